//! `/_quire/dbs/{db}/colls/{coll}/view`: the positions and lag of a view, and its rebuild.
//!
//! `GET …/view?waitMs=N` waits up to N milliseconds until the view has applied every write of its source. `POST …/view/rebuild`
//! empties it and fills it again, in the background.

use hyper::StatusCode;
use quire_engine::{Container, Engine, EngineError, ViewState, ViewStatus};
use quire_value::{Object, Value};

use crate::admin::{AdminCall, AdminReply, AdminResult};
use crate::handlers::views::state_name;

pub(crate) async fn status(call: &AdminCall<'_>, database: &str, container: &str) -> AdminResult {
    let wait = call.parameters(&["waitMs"])?.wait()?;
    let view = call.container(database, container)?;
    let engine = &call.state.engine;
    call.wait_until(wait, || engine.view_status(&view).is_none_or(|status| is_current(&status))).await;
    let status = call.run(move |engine| describe(engine, &view)).await?;
    Ok(AdminReply::json(StatusCode::OK, status))
}

pub(crate) async fn rebuild(call: &AdminCall<'_>, database: &str, container: &str) -> AdminResult {
    let view = call.container(database, container)?;
    let rebuild = move |engine: &Engine| {
        engine.rebuild_view(&view)?;
        describe(engine, &view)
    };
    let status = call.run(rebuild).await?;
    Ok(AdminReply::accepted(&["dbs", database, "colls", container, "view"], status))
}

fn is_current(status: &ViewStatus) -> bool {
    matches!(status.state, ViewState::Active) && status.lag == 0
}

fn describe(engine: &Engine, view: &Container) -> Result<Object, EngineError> {
    let status = engine.view_status(view).ok_or_else(|| EngineError::BadRequest {
        message: format!("The container '{}' is not a view.", view.definition.id),
    })?;
    Ok(json(view, &status))
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
    body.set("status", state_name(status.state));
    body.set("lag", number(status.lag));
    body.set("positions", positions.collect::<Vec<Value>>());
    body
}
