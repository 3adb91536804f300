//! What is recorded of a request to items: status, charge, time, and what the engine noted. No value of an item.

use std::time::Instant;

use hyper::header::{HeaderName, IF_MATCH};
use quire_engine::AnsweredRequest;
use quire_profile::{ActionSource, Operation};

use crate::edge::request::Request;
use crate::handlers::{Call, HandlerResult, charge};
use crate::operations::Action;
use crate::routes::RouteKind;
use crate::wire::status::Failure;

/// Requests with the same value belong together.
const ACTION: HeaderName = HeaderName::from_static("x-quire-action");
const TRACE: HeaderName = HeaderName::from_static("traceparent");
/// Of a `traceparent`: version, trace id, and the rest.
const TRACE_ID: std::ops::Range<usize> = 3..35;

pub(crate) fn record(call: &Call<'_>, kind: &RouteKind<'_>, reply: &HandlerResult, started: Instant) {
    let engine = &call.state.engine;
    if !engine.is_recording() {
        return;
    }
    let Some(operation) = operation(kind, call.operation.action) else { return };
    let Some((database, name)) = kind.container() else { return };
    let Ok(container) = engine.catalog().container(database, name) else { return };
    let (status, sub_status, charge, answered) = match reply {
        Ok(reply) => (reply.status(), reply.sub_status(), reply.charged(), reply.body_bytes()),
        Err(error) => {
            let failure = Failure::from(error);
            (failure.status, failure.substatus.unwrap_or(0), charge::FAILED, 0)
        }
    };
    let request = AnsweredRequest {
        operation,
        status: status.as_u16(),
        sub_status,
        charge,
        bytes: call.request.body.len().max(answered) as u64,
        micros: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
        action: action(call, call.request),
        if_match: call.request.headers.contains_key(IF_MATCH),
        observed: call.take_observed(),
    };
    engine.record(&container, request);
}

/// What items are asked for; `None` for requests about anything else.
fn operation(kind: &RouteKind<'_>, action: Action) -> Option<Operation> {
    match (kind, action) {
        (RouteKind::Items { .. } | RouteKind::Item { .. }, action) => Some(match action {
            Action::Read => Operation::Read,
            Action::ReadFeed | Action::ChangeFeed => Operation::Feed,
            Action::Query => Operation::Query,
            Action::Create => Operation::Create,
            Action::Upsert => Operation::Upsert,
            Action::Replace => Operation::Replace,
            Action::Patch => Operation::Patch,
            Action::Delete => Operation::Delete,
            Action::Batch => Operation::Batch,
            Action::Execute => Operation::Procedure,
            Action::QueryPlan => return None,
        }),
        (RouteKind::Script { .. }, Action::Execute) => Some(Operation::Procedure),
        _ => None,
    }
}

/// The header of the client, else its trace, else its connection.
fn action(call: &Call<'_>, request: &Request) -> Option<(u64, ActionSource)> {
    let hash = |text: &[u8]| call.state.engine.recorded_hash(text);
    if let Some(action) = request.headers.get(ACTION) {
        return Some((hash(action.as_bytes()), ActionSource::Header));
    }
    let trace = request.headers.get(TRACE).and_then(|trace| trace.as_bytes().get(TRACE_ID));
    match trace {
        Some(trace) => Some((hash(trace), ActionSource::Trace)),
        None => Some((request.client.connection_id(), ActionSource::Connection)),
    }
}
