//! `/_quire/dbs/{db}/what-if`: a change is tried on a copy of some items, with the requests that were recorded.

use quire_value::Value;

use crate::admin::{AdminCall, AdminResult, jobs};
use crate::wire::status::RequestError;

const BODY_BYTES_MAX: usize = 1 << 20;

/// The job that tries it.
pub(crate) async fn start(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let body = call.json(BODY_BYTES_MAX)?;
    if let Some(id) = body.get("finding").and_then(Value::as_str) {
        let (owned, finding, order) = (database.to_owned(), id.to_owned(), body.clone());
        let finding = call.run(move |engine| {
            engine.check_what_if(&order)?;
            engine.finding(&owned, &finding)
        });
        let finding = finding.await?;
        let kind = finding.get("apply").and_then(|apply| apply.get("kind")?.as_str());
        if kind == Some("steps") {
            return Err(RequestError::NothingToApply { id: id.to_owned() }.into());
        }
    }
    let database = database.to_owned();
    let job = call.run(move |engine| engine.start_what_if(&database, &body)).await?;
    Ok(jobs::accepted(&job))
}
