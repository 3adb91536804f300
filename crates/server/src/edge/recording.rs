//! What is recorded of a request to items: status, charge, time, and what the engine noted. No value of an item.

use std::time::Instant;

use hyper::header::{HeaderName, IF_MATCH};
use quire_engine::AnsweredRequest;
use quire_profile::{ActionSource, Operation};

use crate::edge::request::Request;
use crate::handlers::{Call, HandlerResult, charge};
use crate::operations::Action;
use crate::routes::RouteKind;
use crate::state::ServerState;
use crate::wire::status::Failure;

/// Requests with the same value belong together.
const ACTION: HeaderName = HeaderName::from_static("x-quire-action");
const TRACE: HeaderName = HeaderName::from_static("traceparent");
/// Of a `traceparent`: version, trace id, and the rest.
const TRACE_ID: std::ops::Range<usize> = 3..35;

/// The action that a request belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedAction(u64, ActionSource);

impl RecordedAction {
    /// `None` where the request is not recorded: nothing is, or there are too many.
    pub fn of(state: &ServerState, request: &Request) -> Option<RecordedAction> {
        if !state.engine.is_recording() {
            return None;
        }
        let (action, source) = action(state, request);
        state.engine.records_action(action).then_some(RecordedAction(action, source))
    }
}

pub(crate) fn record(call: &Call<'_>, kind: &RouteKind<'_>, reply: &HandlerResult, started: Instant) {
    let engine = &call.state.engine;
    if !engine.is_recording() {
        return;
    }
    let Some(operation) = operation(kind, call.operation.action) else { return };
    let Some((database, name)) = kind.container() else { return };
    let Ok(container) = engine.catalog().container(database, name) else { return };
    let Some(RecordedAction(action, source)) = call.recorded else {
        return engine.record_left_out(&container);
    };
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
        action: Some((action, source)),
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
fn action(state: &ServerState, request: &Request) -> (u64, ActionSource) {
    let hash = |text: &[u8]| state.engine.recorded_hash(text);
    if let Some(action) = request.headers.get(ACTION) {
        return (hash(action.as_bytes()), ActionSource::Header);
    }
    let trace = request.headers.get(TRACE).and_then(|trace| trace.as_bytes().get(TRACE_ID));
    match trace {
        Some(trace) => (hash(trace), ActionSource::Trace),
        None => (request.client.connection_id(), ActionSource::Connection),
    }
}
