//! `/_quire/dbs/{db}/profile` and `/_quire/dbs/{db}/colls/{coll}/profile`: what is stored and how it is used.

use hyper::StatusCode;
use hyper::header::{ACCEPT, HeaderValue};
use quire_engine::ProfileRequest;
use quire_value::Value;

use crate::admin::{AdminCall, AdminReply, AdminResult, jobs};
use crate::wire::status::{HandlerError, RequestError};

const BODY_BYTES_MAX: usize = 1 << 20;
const NDJSON: &str = "application/x-ndjson";

pub(crate) async fn build(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let (database, order) = (database.to_owned(), order(call)?);
    let job = call.run(move |engine| engine.build_profile(&database, order)).await?;
    Ok(jobs::accepted(&job))
}

/// The profiles of all containers that have one: `{"database", "containers": [...]}`.
pub(crate) async fn list(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let owned = database.to_owned();
    let profiles = call.run(move |engine| engine.profiles(&owned)).await?;
    let name = Value::from(database).to_json();
    let text = format!(r#"{{"database":{name},"containers":[{}]}}"#, profiles.join(","));
    Ok(AdminReply::json_text(StatusCode::OK, text))
}

pub(crate) async fn read(call: &AdminCall<'_>, database: &str, container: &str) -> AdminResult {
    let (database, container) = (database.to_owned(), container.to_owned());
    let profile = call.run(move |engine| engine.profile(&database, &container)).await?;
    Ok(AdminReply::json_text(StatusCode::OK, profile))
}

/// What is recorded of the requests to a database; with `Accept: application/x-ndjson` the last of them, one a line.
pub(crate) async fn read_workload(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let database = database.to_owned();
    if call.request.text(&ACCEPT)?.is_some_and(|accepted| accepted.contains(NDJSON)) {
        let lines = call.run(move |engine| engine.workload_lines(&database)).await?;
        return Ok(AdminReply::text(StatusCode::OK, HeaderValue::from_static(NDJSON), lines));
    }
    let workload = call.run(move |engine| engine.workload(&database)).await?;
    Ok(AdminReply::json(StatusCode::OK, workload))
}

/// Forgets it.
pub(crate) async fn forget_workload(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let database = database.to_owned();
    call.run(move |engine| engine.forget_workload(&database)).await?;
    Ok(AdminReply::empty(StatusCode::NO_CONTENT))
}

/// No body is the same as an empty one.
fn order(call: &AdminCall<'_>) -> Result<ProfileRequest, HandlerError> {
    let mut order = ProfileRequest::default();
    if call.body(BODY_BYTES_MAX)?.is_empty() {
        return Ok(order);
    }
    let body = call.json(BODY_BYTES_MAX)?;
    let body = body.as_object().ok_or_else(|| bad("The body must be an object."))?;
    for (member, value) in body.iter() {
        match member {
            "containers" => order.containers = Some(container_names(value)?),
            "scanMax" => order.scan_max = Some(scan_max(value)?),
            _ => return Err(bad(format!("'{member}' is not known here."))),
        }
    }
    Ok(order)
}

pub(super) fn container_names(value: &Value) -> Result<Vec<String>, HandlerError> {
    let names = value.as_array().map(|names| names.iter().map(|name| name.as_str().map(str::to_owned)));
    let names = names.and_then(|names| names.collect::<Option<Vec<String>>>());
    names.ok_or_else(|| bad("'containers' must be a list of names."))
}

fn scan_max(value: &Value) -> Result<u64, HandlerError> {
    let count = value.as_u64().filter(|count| *count >= 1);
    count.ok_or_else(|| bad("'scanMax' must be an integer from 1."))
}

pub(super) fn bad(message: impl Into<String>) -> HandlerError {
    RequestError::BadRequest { message: message.into() }.into()
}
