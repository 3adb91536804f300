//! Views in answers about their items and about their container.
//!
//! Every answer that is about items of a view has `x-quire-view-lag`: how many writes of the source the view has not
//! applied yet. Its positions are at `/_quire/` (see `admin::views`).

use std::sync::Arc;

use hyper::header::{HeaderName, HeaderValue};
use quire_engine::{Container, Engine, ViewState};
use quire_resource::VIEW_MEMBERS;
use quire_value::{Object, Value};

use crate::handlers::Call;
use crate::routes::RouteKind;
use crate::wire::headers::Reply;

const LAG: HeaderName = HeaderName::from_static("x-quire-view-lag");

/// The name of the state in the service.
pub(crate) fn state_name(state: ViewState) -> &'static str {
    match state {
        ViewState::Initializing => "Initializing",
        ViewState::Filling => "InitialBuildAfterCreate",
        ViewState::Active => "Active",
    }
}

/// Adds the lag of the view to an answer about items.
pub(crate) fn with_lag(call: &Call<'_>, kind: &RouteKind<'_>, reply: Reply) -> Reply {
    let engine = &call.state.engine;
    if !engine.catalog().has_views() {
        return reply;
    }
    let (RouteKind::Items { database, container } | RouteKind::Item { database, container, .. }) = kind
    else {
        return reply;
    };
    let status =
        engine.catalog().container(database, container).ok().and_then(|view| engine.view_status(&view));
    match status {
        Some(status) => reply.with(LAG, HeaderValue::from(status.lag)),
        None => reply,
    }
}

/// What the server adds to a container: the status of a view, the names of the views of a source.
pub(crate) fn add_view_members(engine: &Engine, container: &Container, body: &mut Object) {
    if let Some(status) = engine.view_status(container) {
        for name in VIEW_MEMBERS {
            if let Some(Value::Object(mut section)) = body.get(name).cloned() {
                section.set("status", state_name(status.state));
                body.set(name, section);
            }
        }
    }
    let views = engine.catalog().views_of(container);
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
