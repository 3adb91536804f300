//! `/_quire/faults`: rules by which requests fail. Only with `--enable-faults`.

use crate::admin::answer::json;
use crate::admin::{AdminCall, Answered};
use crate::wire::status::RequestError;

pub(crate) fn serve(call: &AdminCall<'_>, id: Option<&str>) -> Answered {
    let faults = call.state.faults.as_ref().ok_or(RequestError::Disabled { flag: "--enable-faults" })?;
    let (status, text) = faults.serve(&call.request.method, id, &call.request.body)?;
    Ok(json(status, text))
}
