//! What the server says about itself, below `/_quire/`.
//!
//! `live` and `ready` are open and bare. Everything else is signed like any other request, with the resource type
//! `_quire` and the path (without its leading slash) as link: a GET with any key, the rest with a read-write key.
//! Resource tokens and bearers never open anything here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use quire_engine::{WorkerState, WorkerStatus};

use crate::auth::{self, AuthError, Principal, Signed};
use crate::config::Endpoint;
use crate::partitions;
use crate::request::{Request, Response};
use crate::routes::RouteError;
use crate::state::State;
use crate::status::{HandlerError, RequestError};
use crate::transaction;
use crate::views;

const RESOURCE_TYPE: &str = "_quire";
const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

pub(crate) fn is_own(path: &str) -> bool {
    path.starts_with("/_quire/")
}

/// Live and ready. A server that is not ready, or whose background work fails in part, says why.
pub(crate) fn open(state: &State, method: &Method, path: &str) -> Option<Response> {
    let (status, text) = match path {
        "/_quire/live" => (StatusCode::OK, String::new()),
        "/_quire/ready" => ready(state),
        _ => return None,
    };
    let is_read = *method == Method::GET || *method == Method::HEAD;
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = if is_read { status } else { StatusCode::METHOD_NOT_ALLOWED };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Some(response)
}

fn ready(state: &State) -> (StatusCode, String) {
    let mut reasons = Vec::new();
    if !state.ready.load(Ordering::Relaxed) {
        reasons.push("the server is stopping".to_owned());
    }
    if !state.engine.is_writable() {
        reasons.push("the storage takes no writes".to_owned());
    }
    readiness(reasons, &state.engine.workers())
}

/// Not ready when there is a reason already, or when a worker is failing as a whole. What fails for one container only is
/// said, but takes nobody out of service. Names no resource: everybody may ask.
fn readiness(mut reasons: Vec<String>, workers: &[WorkerStatus]) -> (StatusCode, String) {
    let of_worker = |worker: &WorkerStatus| match worker.state {
        WorkerState::Running => None,
        WorkerState::Failing => Some(format!("background worker {} is failing", worker.name)),
        WorkerState::Down => Some(format!("background worker {} is down", worker.name)),
    };
    reasons.extend(workers.iter().filter_map(of_worker));
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let in_part = workers.iter().filter(|worker| worker.failing_parts > 0);
    reasons.extend(in_part.map(|worker| {
        format!("background worker {} is failing for {} resources", worker.name, worker.failing_parts)
    }));
    (status, reasons.iter().map(|reason| format!("{reason}\n")).collect())
}

/// Who asks; only an account key will do.
pub(crate) async fn authenticate(state: &State, request: &Request) -> Result<(), AuthError> {
    let path = path(request);
    let signed = Signed {
        method: &request.method,
        resource_type: RESOURCE_TYPE,
        link: path.strip_prefix('/').unwrap_or(path),
        link_rid: None,
    };
    let reads = request.method == Method::GET || request.method == Method::HEAD;
    match auth::authenticate_signed(state, &request.headers, &signed).await? {
        Principal::Master { read_only: false } => Ok(()),
        Principal::Master { read_only: true } if reads => Ok(()),
        Principal::Master { .. } => Err(AuthError::ReadOnlyKey { access: auth::Access::Write }),
        Principal::ResourceToken(_) => Err(AuthError::NotPermitted),
        Principal::Oidc { .. } => Err(AuthError::ControlPlane),
    }
}

/// The request is authenticated and its body read.
pub(crate) async fn dispatch(state: &Arc<State>, request: &Request) -> Result<Response, HandlerError> {
    let path = path(request);
    if path == "/_quire/metrics" {
        return match request.method {
            Method::GET | Method::HEAD => metrics(state).await,
            _ => Err(RequestError::Route(RouteError::MethodNotAllowed).into()),
        };
    }
    if let Some(id) = fault_path(path) {
        return faults(state, &request.method, id, &request.body);
    }
    if let Some(database) = transaction::database(path) {
        return transaction::serve(state, request, database.map_err(RequestError::Route)?).await;
    }
    if let Some(view) = views::parse(path) {
        return views::serve(state, request, view.map_err(RequestError::Route)?).await;
    }
    if let Some(asked) = partitions::asked(path) {
        return partitions::serve(state, request, asked.map_err(RequestError::Route)?).await;
    }
    let endpoint = find(&state.config.endpoints, &request.method, path).map_err(RequestError::Route)?;
    call(state, endpoint, request.body.clone()).await
}

/// Behind `/_quire/faults`: nothing, or the id of a rule.
fn fault_path(path: &str) -> Option<Option<&str>> {
    match path.strip_prefix("/_quire/faults")? {
        "" => Some(None),
        id => id.strip_prefix('/').map(Some),
    }
}

fn faults(state: &State, method: &Method, id: Option<&str>, body: &[u8]) -> Result<Response, HandlerError> {
    let faults = state.faults.as_ref().ok_or(RequestError::Disabled { flag: "--enable-faults" })?;
    let (status, text) = faults.serve(method, id, body)?;
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn find<'a>(endpoints: &'a [Endpoint], method: &Method, path: &str) -> Result<&'a Endpoint, RouteError> {
    let mut known = endpoints.iter().filter(|endpoint| endpoint.path == path).peekable();
    if known.peek().is_none() {
        return Err(RouteError::InvalidUrl);
    }
    known.find(|endpoint| endpoint.method == *method).ok_or(RouteError::MethodNotAllowed)
}

pub(crate) async fn metrics(state: &Arc<State>) -> Result<Response, HandlerError> {
    let shared = state.clone();
    let engine = state.pool.read(move || shared.engine.statistics()).await?;
    let text = state.metrics.write(&engine, &state.engine.workers(), state.bodies.held());
    let mut response = Response::new(Full::new(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, METRICS_TYPE);
    Ok(response)
}

async fn call(state: &Arc<State>, endpoint: &Endpoint, body: Bytes) -> Result<Response, HandlerError> {
    let (shared, call) = (state.clone(), endpoint.call.clone());
    let text = state.pool.write(move || call(&shared.engine, &body)).await??;
    let mut response = Response::new(Full::new(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn path(request: &Request) -> &str {
    request.path.split('?').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(state: WorkerState, failing_parts: usize) -> WorkerStatus {
        WorkerStatus { name: "sweep", state, failures: 9, panics: 9, failing_parts, last_error: None }
    }

    #[test]
    fn ready_tells_about_workers() {
        let ask = |state, parts| readiness(Vec::new(), &[worker(state, parts)]);
        assert_eq!(ask(WorkerState::Running, 0), (StatusCode::OK, String::new()));
        let text = "background worker sweep is failing for 2 resources\n";
        assert_eq!(ask(WorkerState::Running, 2), (StatusCode::OK, text.to_owned()));
        let text = "background worker sweep is failing\n";
        assert_eq!(ask(WorkerState::Failing, 0), (StatusCode::SERVICE_UNAVAILABLE, text.to_owned()));
        let text = "background worker sweep is down\n";
        assert_eq!(ask(WorkerState::Down, 0), (StatusCode::SERVICE_UNAVAILABLE, text.to_owned()));
    }
}
