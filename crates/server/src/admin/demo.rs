//! `POST /_quire/demo`: a database of examples with a day of workload.
//!
//! The job's result is `{"database", "containers": {"people": 400}, "requests"}`. The body may name the database.

use quire_value::{Object, Value};

use crate::admin::profile::bad;
use crate::admin::{AdminCall, AdminResult, jobs};
use crate::wire::status::HandlerError;

const BODY_BYTES_MAX: usize = 4_096;
const DATABASE: &str = "demo";

pub(crate) async fn fill(call: &AdminCall<'_>) -> AdminResult {
    let database = database(call)?;
    let job = call.run(move |engine| engine.fill_demo(&database)).await?;
    Ok(jobs::accepted(&job))
}

fn database(call: &AdminCall<'_>) -> Result<String, HandlerError> {
    if call.body(BODY_BYTES_MAX)?.is_empty() {
        return Ok(DATABASE.to_owned());
    }
    let body = call.json(BODY_BYTES_MAX)?;
    let known = |body: &Object| body.iter().all(|(member, _)| member == "database");
    if !body.as_object().is_some_and(known) {
        return Err(bad("Only 'database' is known here."));
    }
    match body.get("database").map(Value::as_str) {
        None => Ok(DATABASE.to_owned()),
        Some(Some(name)) => Ok(name.to_owned()),
        Some(None) => Err(bad("'database' must be a name.")),
    }
}
