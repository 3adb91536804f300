//! `/_quire/metrics`: figures of the server and the engine.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};

use crate::admin::Answered;
use crate::admin::health::workers;
use crate::edge::metrics::Held;
use crate::edge::request::Response;
use crate::state::State;

const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

pub(crate) async fn read(state: &Arc<State>) -> Answered {
    let shared = state.clone();
    let engine = state.pool.read(move || shared.engine.statistics()).await?;
    let held = Held { in_flight_bytes: state.bytes.held(), evicted_connections: state.connections.evicted() };
    let text = state.metrics.write(&engine, &workers(state), held);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, METRICS_TYPE);
    Ok(response)
}
