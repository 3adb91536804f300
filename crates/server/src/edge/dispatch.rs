//! An authenticated request: authorized and run by the row of its operation.

use std::sync::Arc;
use std::time::Instant;

use crate::auth::{self, Principal};
use crate::edge::recording;
use crate::edge::request::{Request, Response};
use crate::handlers::models;
use crate::handlers::response_format;
use crate::handlers::views;
use crate::handlers::{Call, HandlerResult, charge, partition_key};
use crate::operations::{self, Operation};
use crate::routes::{Route, RouteKind};
use crate::state::ServerState;
use crate::wire::headers::Reply;
use crate::wire::status::{Failure, HandlerError};

/// Before anything of the body is read.
pub(crate) fn authorize(
    state: &ServerState,
    request: &Request,
    route: &Route<'_>,
    operation: &Operation,
    principal: &Principal,
) -> Result<(), HandlerError> {
    let partition_key = || partition_key(request).ok().flatten();
    Ok(auth::authorize(&state.engine, principal, &route.kind, operation.access, partition_key)?)
}

/// Serves an authorized request.
pub(crate) async fn dispatch(
    state: &Arc<ServerState>,
    request: &Request,
    route: &Route<'_>,
    operation: Operation,
) -> Response {
    let started = Instant::now();
    let reply = match serve(state, request, &route.kind, operation).await {
        Ok(reply) => reply,
        Err(error) => Reply::failure(Failure::from(&error)).charge(charge::FAILED),
    };
    reply.finish(request, started)
}

/// The answer to a request that is authenticated and not served.
pub(crate) fn refuse(request: &Request, error: &HandlerError) -> Response {
    Reply::failure(Failure::from(error)).charge(charge::FAILED).finish(request, Instant::now())
}

async fn serve(
    state: &Arc<ServerState>,
    request: &Request,
    kind: &RouteKind<'_>,
    operation: Operation,
) -> HandlerResult {
    let started = Instant::now();
    let mut call = Call::new(state, request, operation)?;
    let reply = throttled(&mut call, kind).await;
    recording::record(&call, kind, &reply, started);
    reply
}

async fn throttled(call: &mut Call<'_>, kind: &RouteKind<'_>) -> HandlerResult {
    let Some(throttle) = &call.state.throttle else { return run(call, kind).await };
    let meter = throttle.meter(call, kind)?;
    if let Some(meter) = &meter {
        call.charge_max = Some(meter.admit()?);
    }
    let reply = run(call, kind).await;
    if let Some(meter) = &meter {
        meter.spend(reply.as_ref().map_or(charge::FAILED, Reply::charged));
    }
    reply
}

async fn run(call: &Call<'_>, kind: &RouteKind<'_>) -> HandlerResult {
    let reply = response_format::convert(call, kind, operations::run(call, kind).await?)?;
    // All three are about the whole container.
    if call.request.is_limited_to_part {
        return Ok(reply.without_usage());
    }
    Ok(models::with_pending(call, kind, views::with_lag(call, kind, reply)))
}
