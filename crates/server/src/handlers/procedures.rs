//! Running a stored procedure: POST on it.

use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use quire_engine::{
    Container, EngineError, ExecuteProcedure, ExecuteSystemProcedure, ScriptKind, SystemAddress,
    is_system_procedure,
};
use quire_value::text;

use crate::handlers::{Call, HandlerResult, items};
use crate::wire::headers::{Reply, script_names};
use crate::wire::status::{Failure, HandlerError, RequestError};

const ENABLE_LOGGING: HeaderName = HeaderName::from_static("x-ms-documentdb-script-enable-logging");
const LOG_RESULTS: HeaderName = HeaderName::from_static("x-ms-documentdb-script-log-results");
const PARAMETER_BYTES_MAX: usize = 2 << 20;
/// What `encodeURIComponent` leaves as it is.
const URI_COMPONENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// It runs in one logical partition, with the body as its arguments.
pub(crate) async fn execute(call: &Call<'_>, database: &str, container: &str, id: &str) -> HandlerResult {
    let container = call.owner_container(database, container)?;
    let parameters = Bytes::from(text::strict(&call.body()?).into_owned());
    if parameters.len() > PARAMETER_BYTES_MAX {
        return Err(RequestError::BodyTooLarge { bytes_max: PARAMETER_BYTES_MAX }.into());
    }
    // A session is about reads: as a write, a run checks only that the token can be parsed.
    call.session()?;
    let script = container.scripts().procedure(id);
    let reply = match system_address(call, id, script.is_some())? {
        Some(address) => execute_system(call, &container, id, address, parameters).await?,
        None => execute_script(call, &container, id, parameters).await?,
    };
    let id = script.as_ref().map_or(id, |script| script.id.as_str());
    Ok(reply.owner_names(script_names(&container, ScriptKind::StoredProcedure, id)))
}

async fn execute_system(
    call: &Call<'_>,
    container: &Arc<Container>,
    id: &str,
    address: SystemAddress,
    parameters: Bytes,
) -> HandlerResult {
    let run = ExecuteSystemProcedure {
        id: id.to_owned(),
        address,
        parameters,
        cancel: call.request.client.cancel(),
    };
    let (engine, target) = (call.state.engine.clone(), container.clone());
    let answer = call.run(move || engine.execute_system_procedure(&target, run)).await?;
    let reply = match answer.result {
        Ok(done) => Reply::json(StatusCode::OK, done.body),
        Err(error) => Reply::failure(Failure::from(&error)),
    };
    Ok(items::with_position(reply, container, answer.charge, answer.position.as_ref()))
}

async fn execute_script(
    call: &Call<'_>,
    container: &Arc<Container>,
    id: &str,
    parameters: Bytes,
) -> HandlerResult {
    let run = ExecuteProcedure {
        id: id.to_owned(),
        partition_key: call.partition_key.clone().ok_or(EngineError::PartitionKeyMissing)?,
        parameters,
        logging: call.is_true(&ENABLE_LOGGING),
        headers: request_headers(call),
        charge_max: call.charge_max,
        cancel: call.request.client.cancel(),
    };
    let (engine, target) = (call.state.engine.clone(), container.clone());
    let answer = call.run(move || engine.execute_procedure(&target, run)).await?;
    let (reply, log) = match answer.result {
        Ok(done) => (Reply::json(StatusCode::OK, done.body), done.log),
        Err(error) => (Reply::failure(Failure::from(&error)), log_of(error)),
    };
    Ok(with_log(items::with_position(reply, container, answer.charge, answer.position.as_ref()), log))
}

/// Procedures of the server may be addressed by a partition instead of a key. With a key, one that is stored as a script runs
/// as any other.
fn system_address(
    call: &Call<'_>,
    procedure: &str,
    is_script: bool,
) -> Result<Option<SystemAddress>, HandlerError> {
    if !is_system_procedure(procedure) {
        return Ok(None);
    }
    let scope = call.scope()?;
    Ok(match (scope.partition_key, scope.partition_id) {
        (Some(_), _) if is_script => None,
        (Some(key), _) => Some(SystemAddress::PartitionKey(key)),
        (None, Some(id)) => Some(SystemAddress::Partition(id)),
        (None, None) => None,
    })
}

/// The headers of its request that a script may read. The signature is not among them.
pub(super) fn request_headers(call: &Call<'_>) -> Vec<(String, String)> {
    let headers = call.request.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-ms-"));
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// A script that failed has logged until then.
fn log_of(error: EngineError) -> Option<String> {
    match error {
        EngineError::Script(failure) => failure.log,
        _ => None,
    }
}

fn with_log(reply: Reply, log: Option<String>) -> Reply {
    match log {
        Some(log) => reply.with_text(LOG_RESULTS, utf8_percent_encode(&log, URI_COMPONENT).to_string()),
        None => reply,
    }
}
