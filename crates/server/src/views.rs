//! Views as the server tells of them: how far they are behind, and `/_quire/dbs/{db}/colls/{coll}/view`.
//!
//! `GET …/view` says where a view stands, `POST …/view/rebuild` empties it and fills it again. Every answer that is about
//! items of a view has `x-quire-view-lag`: how many writes of the source the view has not taken yet.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use quire_engine::{Container, Engine, EngineError, ViewState, ViewStatus};
use quire_resource::VIEW_MEMBERS;
use quire_value::{Object, Value};

use crate::handlers::Call;
use crate::headers::Reply;
use crate::quire::{self, AdminCall, Answered};
use crate::routes::RouteKind;

const LAG: HeaderName = HeaderName::from_static("x-quire-view-lag");

pub(crate) async fn status(call: &AdminCall<'_>, database: &str, container: &str) -> Answered {
    let (engine, database, container) =
        (call.state.engine.clone(), database.to_owned(), container.to_owned());
    let answer = move || describe(&engine, &*engine.container(&database, &container)?);
    Ok(quire::json(StatusCode::OK, call.state.pool.read(answer).await??))
}

pub(crate) async fn rebuild(call: &AdminCall<'_>, database: &str, container: &str) -> Answered {
    let (engine, database, container) =
        (call.state.engine.clone(), database.to_owned(), container.to_owned());
    let answer = move || {
        let view = engine.container(&database, &container)?;
        engine.rebuild_view(&view)?;
        describe(&engine, &view)
    };
    Ok(quire::json(StatusCode::ACCEPTED, call.state.pool.write(answer).await??))
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

/// The service's words for what a view is at.
fn word(state: ViewState) -> &'static str {
    match state {
        ViewState::Initializing => "Initializing",
        ViewState::Filling => "InitialBuildAfterCreate",
        ViewState::Active => "Active",
    }
}

/// Says in an answer about items how far the view is behind.
pub(crate) fn with_lag(call: &Call<'_>, kind: &RouteKind, reply: Reply) -> Reply {
    let engine = &call.state.engine;
    if !engine.has_views() {
        return reply;
    }
    let (RouteKind::Items { database, container } | RouteKind::Item { database, container, .. }) = kind
    else {
        return reply;
    };
    let status = engine.container(database, container).ok().and_then(|view| engine.view_status(&view));
    match status {
        Some(status) => reply.with(LAG, HeaderValue::from(status.lag)),
        None => reply,
    }
}

/// What the server adds to a container: the status of a view, the names of the views of a source.
pub(crate) fn complete(engine: &Engine, container: &Container, body: &mut Object) {
    if let Some(status) = engine.view_status(container) {
        for name in VIEW_MEMBERS {
            if let Some(Value::Object(mut section)) = body.get(name).cloned() {
                section.set("status", word(status.state));
                body.set(name, section);
            }
        }
    }
    let views = engine.views_of(container);
    if !views.is_empty() {
        let entry = |view: &Arc<Container>| {
            let mut entry = Object::new();
            entry.set("id", view.definition.id.as_str());
            entry.set("_rid", view.resource.rid.to_string());
            Value::from(entry)
        };
        body.set("materializedViews", views.iter().map(entry).collect::<Vec<Value>>());
    }
}
