//! `/_quire/metrics`: metrics of the server and the engine, in the text form of Prometheus.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderValue;

use crate::admin::health::workers;
use crate::admin::{AdminReply, AdminResult};
use crate::edge::metrics::OtherCounts;
use crate::state::ServerState;

const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

pub(crate) async fn read(state: &Arc<ServerState>) -> AdminResult {
    let shared = state.clone();
    let read = move || (shared.engine.statistics(), shared.engine.job_counts());
    let (engine, jobs) = state.pool.read(state.pool.party(super::OWN_PATHS), read).await?;
    let connections = state.network.connections.counts();
    let other = OtherCounts { in_flight_bytes: state.bytes.reserved(), connections, jobs };
    let text = state.metrics.write(&engine, &workers(state), other);
    Ok(AdminReply::text(StatusCode::OK, METRICS_TYPE, text))
}
