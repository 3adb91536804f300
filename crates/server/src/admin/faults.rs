//! `/_quire/faults`: rules by which requests fail. Only with `--enable-faults`.

use hyper::StatusCode;
use quire_engine::EngineError;
use quire_value::Object;

use crate::admin::{AdminCall, AdminReply, AdminResult};
use crate::edge::faults::{Faults, Rule};
use crate::wire::status::{HandlerError, RequestError};

const RULE_BYTES_MAX: usize = 64 << 10;

pub(crate) fn list(call: &AdminCall<'_>) -> AdminResult {
    let mut answer = Object::new();
    answer.set("faults", faults(call)?.list());
    Ok(AdminReply::json(StatusCode::OK, answer))
}

pub(crate) fn create(call: &AdminCall<'_>) -> AdminResult {
    let faults = faults(call)?;
    let rule = faults.add(Rule::parse(&call.json(RULE_BYTES_MAX)?)?)?;
    Ok(AdminReply::json(StatusCode::CREATED, rule))
}

pub(crate) fn delete(call: &AdminCall<'_>, id: &str) -> AdminResult {
    if !faults(call)?.remove(id) {
        return Err(EngineError::ResourceNotFound { kind: "fault", id: id.to_owned() }.into());
    }
    Ok(no_content())
}

pub(crate) fn delete_all(call: &AdminCall<'_>) -> AdminResult {
    faults(call)?.clear();
    Ok(no_content())
}

fn faults<'a>(call: &'a AdminCall<'_>) -> Result<&'a Faults, HandlerError> {
    let faults = call.state.faults.as_ref();
    Ok(faults.ok_or(RequestError::Disabled { flag: "--enable-faults" })?)
}

fn no_content() -> AdminReply {
    AdminReply::json_text(StatusCode::NO_CONTENT, "")
}
