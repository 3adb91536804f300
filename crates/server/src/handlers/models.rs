//! Models in answers about items.
//!
//! While jobs rewrite referrers in a container, answers about its items have `x-quire-model-pending`: how many are still to be
//! rewritten there.

use hyper::header::{HeaderName, HeaderValue};

use crate::handlers::Call;
use crate::routes::RouteKind;
use crate::wire::headers::Reply;

const PENDING: HeaderName = HeaderName::from_static("x-quire-model-pending");

pub(crate) fn with_pending(call: &Call<'_>, kind: &RouteKind<'_>, reply: Reply) -> Reply {
    let engine = &call.state.engine;
    if !engine.has_unfinished_jobs() {
        return reply;
    }
    let (RouteKind::Items { database, container } | RouteKind::Item { database, container, .. }) = kind
    else {
        return reply;
    };
    let container = engine.catalog().container(database, container).ok();
    match container.and_then(|container| engine.model_pending(&container)) {
        Some(pending @ 1..) => reply.with(PENDING, HeaderValue::from(pending)),
        _ => reply,
    }
}
