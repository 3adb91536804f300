//! Views as the server tells of them: how far they are behind, and `/_quire/dbs/{db}/colls/{coll}/view`.
//!
//! `GET …/view` says where a view stands, `POST …/view/rebuild` empties it and fills it again. Every answer that is about
//! items of a view has `x-quire-view-lag`: how many writes of the source the view has not taken yet.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use quire_engine::{Container, Engine, EngineError, ViewState, ViewStatus};
use quire_resource::VIEW_MEMBERS;
use quire_value::{Object, Value};

use crate::handlers::Call;
use crate::headers::Reply;
use crate::request::{Request, Response};
use crate::routes::{RouteError, RouteKind};
use crate::state::State;
use crate::status::{HandlerError, RequestError};

const LAG: HeaderName = HeaderName::from_static("x-quire-view-lag");

/// What is asked of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Status,
    Rebuild,
}

/// Database and container of such a path, percent-decoded.
pub(crate) fn parse(path: &str) -> Option<Result<(String, String, Asked), RouteError>> {
    let segments: Vec<&str> = path.strip_prefix("/_quire/dbs/")?.split('/').collect();
    let (database, container, asked) = match *segments.as_slice() {
        [database, "colls", container, "view"] => (database, container, Asked::Status),
        [database, "colls", container, "view", "rebuild"] => (database, container, Asked::Rebuild),
        _ => return None,
    };
    let decode = |segment: &str| match percent_decode_str(segment).decode_utf8() {
        Ok(name) if !name.is_empty() => Ok(name.into_owned()),
        _ => Err(RouteError::InvalidUrl),
    };
    Some(decode(database).and_then(|database| Ok((database, decode(container)?, asked))))
}

pub(crate) async fn serve(
    state: &Arc<State>,
    request: &Request,
    (database, container, asked): (String, String, Asked),
) -> Result<Response, HandlerError> {
    let is_allowed = match asked {
        Asked::Status => request.method == Method::GET || request.method == Method::HEAD,
        Asked::Rebuild => request.method == Method::POST,
    };
    if !is_allowed {
        return Err(RequestError::Route(RouteError::MethodNotAllowed).into());
    }
    let engine = state.engine.clone();
    let answer = move || answer(&engine, &database, &container, asked);
    let text = match asked {
        Asked::Status => state.pool.read(answer).await??,
        Asked::Rebuild => state.pool.write(answer).await??,
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = match asked {
        Asked::Status => StatusCode::OK,
        Asked::Rebuild => StatusCode::ACCEPTED,
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn answer(engine: &Engine, database: &str, container: &str, asked: Asked) -> Result<String, EngineError> {
    let view = engine.container(database, container)?;
    if asked == Asked::Rebuild {
        engine.rebuild_view(&view)?;
    }
    let status = engine.view_status(&view).ok_or_else(|| EngineError::BadRequest {
        message: format!("The container '{}' is not a view.", view.definition.id),
    })?;
    Ok(Value::from(json(&view, &status)).to_json())
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
