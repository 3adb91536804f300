//! Stored procedures, triggers and user-defined functions.

use hyper::StatusCode;
use quire_engine::{Container, Resource, ScriptKind};
use quire_value::Value;

use crate::handlers::{Call, Handled, charge, feeds, items};
use crate::headers::Reply;
use crate::status::{Failure, HandlerError};
use crate::wire::Feed;

pub(crate) async fn create(call: &Call<'_>, kind: ScriptKind, database: &str, container: &str) -> Handled {
    let owner = call.owner_container(database, container)?;
    let (body, upsert) = (call.json()?, call.is_upsert());
    let engine = call.state.engine.clone();
    let (database, container) = (database.to_owned(), container.to_owned());
    let create = move || engine.create_script(&database, &container, kind, &body, upsert);
    let created = call.state.pool.write(create).await?.map(|(script, created)| match created {
        true => (whole(StatusCode::CREATED, &script), charge::CREATE),
        false => (whole(StatusCode::OK, &script), charge::REPLACE),
    });
    Ok(in_container(&owner, created))
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
    let replaced = call.state.pool.write(replace).await?;
    Ok(in_container(&owner, replaced.map(|script| (whole(StatusCode::OK, &script), charge::REPLACE))))
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
    let deleted = call.state.pool.write(delete).await?;
    Ok(in_container(&owner, deleted.map(|()| (Reply::empty(StatusCode::NO_CONTENT), charge::DELETE))))
}

/// Charge, owner and session, also on failures. Scripts are of no partition, so it is where all of them stand.
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
