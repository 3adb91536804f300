//! `/_quire/metrics`: figures of the server and the engine, in Prometheus' text form.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderValue;

use crate::admin::health::workers;
use crate::admin::{AdminReply, AdminResult};
use crate::edge::metrics::Held;
use crate::state::State;

const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

pub(crate) async fn read(state: &Arc<State>) -> AdminResult {
    let shared = state.clone();
    let engine = state.pool.read(move || shared.engine.statistics()).await?;
    let held = Held { in_flight_bytes: state.bytes.held(), evicted_connections: state.connections.evicted() };
    let text = state.metrics.write(&engine, &workers(state), held);
    Ok(AdminReply::text(StatusCode::OK, METRICS_TYPE, text))
}
