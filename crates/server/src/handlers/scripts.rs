//! Stored procedures, triggers and user-defined functions.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use quire_engine::{
    Container, EngineError, ExecuteProcedure, ExecuteSystemProcedure, Resource, ScriptKind, SystemAddress,
    is_system_procedure,
};
use quire_value::Value;

use crate::handlers::{Call, Handled, charge, feeds, items};
use crate::wire::Feed;
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

pub(crate) async fn create(call: &Call<'_>, kind: ScriptKind, database: &str, container: &str) -> Handled {
    let owner = call.owner_container(database, container)?;
    let (body, precondition) = (call.json()?, call.precondition()?);
    let upsert = call.is_upsert();
    let engine = call.state.engine.clone();
    let (database, container) = (database.to_owned(), container.to_owned());
    let create = move || match upsert {
        true => engine.upsert_script(&database, &container, kind, &body, &precondition),
        false => engine.create_script(&database, &container, kind, &body).map(|script| (script, true)),
    };
    let written = call.run(create).await?.map(|(script, created)| {
        let (status, charge) =
            if created { (StatusCode::CREATED, charge::CREATE) } else { (StatusCode::OK, charge::REPLACE) };
        (whole(status, &script), charge)
    });
    Ok(with_usage(in_container(&owner, written), &owner))
}

pub(crate) fn read(
    call: &Call<'_>,
    kind: ScriptKind,
    database: &str,
    container: &str,
    script: &str,
) -> Handled {
    let owner = call.owner_container(database, container)?;
    let read = match call.state.engine.script(database, container, kind, script) {
        Ok(script) => Ok((call.read_reply(&script, || json(&script))?, charge::READ)),
        Err(error) => Err(error),
    };
    Ok(in_container(&owner, read))
}

pub(crate) fn list(call: &Call<'_>, kind: ScriptKind, database: &str, container: &str) -> Handled {
    let owner = call.owner_container(database, container)?;
    let scripts = call.state.engine.scripts(database, container, kind)?;
    let rid = owner.resource.rid.to_string();
    let reply = feeds::list(call, feed(kind), &rid, scripts, |script| Ok(script.to_json()))?;
    Ok(in_container(&owner, Ok::<_, HandlerError>((reply, charge::LIST))))
}

pub(crate) async fn query(call: &Call<'_>, kind: ScriptKind, database: &str, container: &str) -> Handled {
    let owner = call.owner_container(database, container)?;
    let scripts = call.state.engine.scripts(database, container, kind)?;
    let rows = scripts.iter().map(|script| script.to_json()).collect();
    let reply = feeds::query(call, feed(kind), &owner.resource.rid.to_string(), rows).await?;
    Ok(in_container(&owner, Ok::<_, HandlerError>((reply, charge::QUERY))))
}

pub(crate) async fn replace(
    call: &Call<'_>,
    kind: ScriptKind,
    database: &str,
    container: &str,
    script: &str,
) -> Handled {
    let owner = call.owner_container(database, container)?;
    let (body, precondition) = (call.json()?, call.precondition()?);
    let engine = call.state.engine.clone();
    let (database, container, script) = (database.to_owned(), container.to_owned(), script.to_owned());
    let replace = move || engine.replace_script(&database, &container, kind, &script, &body, &precondition);
    let replaced = call.run(replace).await?;
    let reply =
        in_container(&owner, replaced.map(|script| (whole(StatusCode::OK, &script), charge::REPLACE)));
    Ok(with_usage(reply, &owner))
}

pub(crate) async fn delete(
    call: &Call<'_>,
    kind: ScriptKind,
    database: &str,
    container: &str,
    script: &str,
) -> Handled {
    let owner = call.owner_container(database, container)?;
    let precondition = call.precondition()?;
    let engine = call.state.engine.clone();
    let (database, container, script) = (database.to_owned(), container.to_owned(), script.to_owned());
    let delete = move || engine.delete_script(&database, &container, kind, &script, &precondition);
    let deleted = call.run(delete).await?;
    let reply =
        in_container(&owner, deleted.map(|()| (Reply::empty(StatusCode::NO_CONTENT), charge::DELETE)));
    Ok(with_usage(reply, &owner))
}

/// POST on a stored procedure: it runs in one logical partition, with the body as its arguments.
pub(crate) async fn execute(call: &Call<'_>, database: &str, container: &str, procedure: &str) -> Handled {
    let container = call.owner_container(database, container)?;
    let parameters = call.body()?;
    if parameters.len() > PARAMETER_BYTES_MAX {
        return Err(RequestError::BodyTooLarge { bytes_max: PARAMETER_BYTES_MAX }.into());
    }
    let named = container.scripts().procedure(procedure);
    let names = named.as_ref().map_or(procedure, |named| named.id.as_str());
    let names = script_names(&container, ScriptKind::StoredProcedure, names);
    if let Some(address) = system_address(call, procedure, named.is_some())? {
        let run = ExecuteSystemProcedure {
            id: procedure.to_owned(),
            address,
            parameters,
            session: call.session()?,
            cancel: call.request.client.cancel(),
        };
        let (engine, target) = (call.state.engine.clone(), container.clone());
        let answer = call.run(move || engine.execute_system_procedure(&target, run)).await?;
        let reply = match answer.result {
            Ok(done) => Reply::json(StatusCode::OK, done.body),
            Err(error) => Reply::failure(Failure::from(&error)),
        };
        let reply = items::with_position(reply, &container, answer.charge, answer.position.as_ref());
        return Ok(reply.owner_names(names));
    }
    let run = ExecuteProcedure {
        id: procedure.to_owned(),
        partition_key: call.partition_key.clone().ok_or(EngineError::PartitionKeyMissing)?,
        parameters,
        logging: call.is_true(&ENABLE_LOGGING),
        session: call.session()?,
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
    let reply = items::with_position(reply, &container, answer.charge, answer.position.as_ref());
    Ok(with_log(reply.owner_names(names), log))
}

/// Procedures of the server may be addressed by a partition instead of a key. With a key, one that is a script runs as
/// any other.
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

/// What a script may ask its request for. The key that signed it is nothing of its business.
pub(super) fn request_headers(call: &Call<'_>) -> Vec<(String, String)> {
    let headers = call.request.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-ms-"));
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// A script that failed has said what it had to say until then.
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

/// As writes of items say what their container holds, so do those of scripts.
fn with_usage(reply: Reply, container: &Container) -> Reply {
    let (item_count, size_bytes) = container.usage();
    reply.usage(item_count, size_bytes)
}

/// Charge, owner and session, also on failures. Scripts are of no partition: the token is that of the first, because
/// clients take no more than one from an answer.
fn in_container<E: Into<HandlerError>>(container: &Container, outcome: Result<(Reply, f64), E>) -> Reply {
    let (reply, charge) = match outcome {
        Ok(done) => done,
        Err(error) => (Reply::failure(Failure::from(&error.into())), charge::FAILED),
    };
    items::with_positions(reply, container, charge, None)
}

fn feed(kind: ScriptKind) -> Feed {
    match kind {
        ScriptKind::StoredProcedure => Feed::StoredProcedures,
        ScriptKind::Trigger => Feed::Triggers,
        ScriptKind::UserDefinedFunction => Feed::UserDefinedFunctions,
    }
}

fn whole(status: StatusCode, script: &Resource) -> Reply {
    Reply::json(status, json(script)).etag(&script.etag)
}

fn json(script: &Resource) -> String {
    Value::from(script.to_json()).to_json()
}
