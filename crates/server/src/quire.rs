//! What the server says about itself, below `/_quire/`.
//!
//! `live` and `ready` are open and bare, and so is the certificate that clients must trust, at the path where samples for
//! emulators look for it. Everything else is signed like any other request, with the resource type
//! `_quire` and the path (without its leading slash) as link. Which key opens what is in [`operations`]; resource tokens
//! and bearers never open anything here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use quire_engine::{WorkerState, WorkerStatus};

use crate::auth::{self, Access, AuthError, Signed};
use crate::metrics::Held;
use crate::operations;
use crate::request::{Request, Response};
use crate::routes::RouteError;
use crate::state::State;
use crate::status::{HandlerError, RequestError};

/// Where samples fetch the certificate to trust.
const AUTHORITY_PATH: &str = "/_explorer/emulator.pem";
const RESOURCE_TYPE: &str = "_quire";
const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(crate) type Answered = Result<Response, HandlerError>;

/// What a path below `/_quire/` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdminRoute {
    Live,
    Ready,
    Metrics,
    /// The certificate of the authority that signed the server's own.
    Authority,
    /// All rules, or the one with the id.
    Faults {
        id: Option<String>,
    },
    Transaction {
        database: String,
    },
    View {
        database: String,
        container: String,
    },
    ViewRebuild {
        database: String,
        container: String,
    },
    Partitions {
        database: String,
        container: String,
    },
    PartitionSplit {
        database: String,
        container: String,
        id: String,
    },
    /// Of the server's owner.
    Endpoint {
        path: &'static str,
    },
}

/// An authorized request below `/_quire/`, its body read.
pub(crate) struct AdminCall<'a> {
    pub state: &'a Arc<State>,
    pub request: &'a Request,
}

fn without_query(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

pub(crate) fn is_own(path: &str) -> bool {
    path.starts_with("/_quire/") || path == AUTHORITY_PATH
}

/// Percent-decoded, without a query string.
pub(crate) fn parse(state: &State, method: &Method, path: &str) -> Result<AdminRoute, RouteError> {
    let path = without_query(path);
    if path == AUTHORITY_PATH {
        return if state.certificate.is_some() {
            Ok(AdminRoute::Authority)
        } else {
            Err(RouteError::InvalidUrl)
        };
    }
    let mut endpoints = state.config.endpoints.iter().filter(|endpoint| endpoint.path == path).peekable();
    if let Some(endpoint) = endpoints.peek() {
        let route = AdminRoute::Endpoint { path: endpoint.path };
        let is_known = endpoints.any(|endpoint| endpoint.method == *method);
        return if is_known { Ok(route) } else { Err(RouteError::MethodNotAllowed) };
    }
    let segments: Vec<&str> = path.strip_prefix("/_quire/").unwrap_or_default().split('/').collect();
    Ok(match *segments.as_slice() {
        ["live"] => AdminRoute::Live,
        ["ready"] => AdminRoute::Ready,
        ["metrics"] => AdminRoute::Metrics,
        ["faults"] => AdminRoute::Faults { id: None },
        ["faults", id] => AdminRoute::Faults { id: Some(decode(id)?) },
        ["dbs", database, "transaction"] => AdminRoute::Transaction { database: decode(database)? },
        ["dbs", database, "colls", container, ref rest @ ..] => {
            in_container(decode(database)?, decode(container)?, rest)?
        }
        _ => return Err(RouteError::InvalidUrl),
    })
}

fn in_container(database: String, container: String, rest: &[&str]) -> Result<AdminRoute, RouteError> {
    Ok(match *rest {
        ["view"] => AdminRoute::View { database, container },
        ["view", "rebuild"] => AdminRoute::ViewRebuild { database, container },
        ["partitions"] => AdminRoute::Partitions { database, container },
        ["partitions", id, "split"] => AdminRoute::PartitionSplit { database, container, id: decode(id)? },
        _ => return Err(RouteError::InvalidUrl),
    })
}

fn decode(segment: &str) -> Result<String, RouteError> {
    match percent_decode_str(segment).decode_utf8() {
        Ok(name) if !name.is_empty() => Ok(name.into_owned()),
        _ => Err(RouteError::InvalidUrl),
    }
}

/// Who asks, and whether they may.
pub(crate) async fn authorize(state: &State, request: &Request, access: Access) -> Result<(), AuthError> {
    let path = without_query(&request.path);
    let signed = Signed {
        method: &request.method,
        resource_type: RESOURCE_TYPE,
        link: path.strip_prefix('/').unwrap_or(path),
        link_rid: None,
    };
    let principal = auth::authenticate_signed(state, &request.headers, &signed).await?;
    auth::authorize_server(&principal, access)
}

pub(crate) fn live() -> Response {
    plain(StatusCode::OK, String::new())
}

/// A server that is not ready, or whose background work fails in part, says why.
pub(crate) fn ready(state: &State) -> Response {
    let mut reasons = Vec::new();
    if !state.ready.load(Ordering::Relaxed) {
        reasons.push("the server is stopping".to_owned());
    }
    if !state.engine.is_writable() {
        reasons.push("the storage takes no writes".to_owned());
    }
    let (status, text) = readiness(reasons, &workers(state));
    plain(status, text)
}

/// Those of the engine and those of the server.
fn workers(state: &State) -> Vec<WorkerStatus> {
    let mut workers = state.engine.workers();
    workers.extend(state.tasks.status());
    workers
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

fn plain(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// What clients must trust to speak TLS with this server: the last certificate of its chain.
pub(crate) fn authority(state: &State) -> Answered {
    let certificate = state.certificate.as_ref().ok_or(RequestError::Route(RouteError::InvalidUrl))?;
    let mut response = Response::new(Full::new(Bytes::from(certificate.authority_pem())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-pem-file"));
    Ok(response)
}

pub(crate) fn faults(call: &AdminCall<'_>, id: Option<&str>) -> Answered {
    let faults = call.state.faults.as_ref().ok_or(RequestError::Disabled { flag: "--enable-faults" })?;
    let (status, text) = faults.serve(&call.request.method, id, &call.request.body)?;
    Ok(json(status, text))
}

pub(crate) async fn metrics(state: &Arc<State>) -> Answered {
    let shared = state.clone();
    let engine = state.pool.read(move || shared.engine.statistics()).await?;
    let held = Held { in_flight_bytes: state.bytes.held(), evicted_connections: state.connections.evicted() };
    let text = state.metrics.write(&engine, &workers(state), held);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, METRICS_TYPE);
    Ok(response)
}

/// One that the server's owner added.
pub(crate) async fn endpoint(call: &AdminCall<'_>, path: &str) -> Answered {
    let method = &call.request.method;
    let mut endpoints = call.state.config.endpoints.iter();
    let endpoint = endpoints.find(|endpoint| endpoint.path == path && endpoint.method == *method);
    let endpoint = endpoint.ok_or(RequestError::Route(RouteError::MethodNotAllowed))?;
    let (shared, run, body) = (call.state.clone(), endpoint.call.clone(), call.request.body.clone());
    let text = call.state.pool.write(move || run(&shared.engine, &body)).await??;
    Ok(json(StatusCode::OK, text))
}

/// Serves a request below `/_quire/` that is authorized.
pub(crate) async fn dispatch(
    state: &Arc<State>,
    request: &Request,
    route: &AdminRoute,
    name: operations::AdminName,
) -> Answered {
    operations::run_admin(name, &AdminCall { state, request }, route).await
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
