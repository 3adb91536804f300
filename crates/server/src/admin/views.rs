//! `/_quire/dbs/{db}/colls/{coll}/view`: where a view stands, and filling it again.
//!
//! `GET …/view` says where a view stands, `POST …/view/rebuild` empties it and fills it again.

use hyper::StatusCode;
use quire_engine::{Container, Engine, EngineError, ViewStatus};
use quire_value::{Object, Value};

use crate::admin::{AdminCall, Answered, answer};
use crate::handlers::views::word;

pub(crate) async fn status(call: &AdminCall<'_>, database: &str, container: &str) -> Answered {
    let (engine, database, container) =
        (call.state.engine.clone(), database.to_owned(), container.to_owned());
    let answer = move || describe(&engine, &*engine.container(&database, &container)?);
    Ok(answer::json(StatusCode::OK, call.state.pool.read(answer).await??))
}

pub(crate) async fn rebuild(call: &AdminCall<'_>, database: &str, container: &str) -> Answered {
    let (engine, database, container) =
        (call.state.engine.clone(), database.to_owned(), container.to_owned());
    let answer = move || {
        let view = engine.container(&database, &container)?;
        engine.rebuild_view(&view)?;
        describe(&engine, &view)
    };
    Ok(answer::json(StatusCode::ACCEPTED, call.state.pool.write(answer).await??))
}

fn describe(engine: &Engine, view: &Container) -> Result<String, EngineError> {
    let status = engine.view_status(view).ok_or_else(|| EngineError::BadRequest {
        message: format!("The container '{}' is not a view.", view.definition.id),
    })?;
    Ok(Value::from(json(view, &status)).to_json())
}

fn json(view: &Container, status: &ViewStatus) -> Object {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let positions = status.positions.iter().map(|position| {
        let mut entry = Object::new();
        entry.set("partition", position.partition.to_string());
        entry.set("lsn", number(position.lsn));
        entry.set("sourceLsn", number(position.source_lsn));
        Value::from(entry)
    });
    let mut body = Object::new();
    body.set("id", view.definition.id.as_str());
    body.set("source", status.source.as_str());
    body.set("status", word(status.state));
    body.set("lag", number(status.lag));
    body.set("positions", positions.collect::<Vec<Value>>());
    body
}
