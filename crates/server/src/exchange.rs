//! One request from its head to its answer: limits, guard, authentication, body, handler, figures.
//!
//! The order matters: nothing is parsed for a foreign page, and no body is read for a client that nobody knows.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_LENGTH, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Version};

use crate::auth::{self, Access};
use crate::connection::Wire;
use crate::dispatch;
use crate::faults::{End, Fault};
use crate::guard::{self, Cors, Guard};
use crate::headers::error_response;
use crate::log;
use crate::metrics::Operation;
use crate::operations::{self, Flags};
use crate::quire;
use crate::request::{Request, Response, check_head, read_body};
use crate::routes::{self, RouteError};
use crate::state::State;
use crate::status::{Failure, HandlerError, RequestError};

/// The main door: everything.
pub(crate) async fn answer(
    state: &Arc<State>,
    guard: &Guard,
    wire: &Arc<Wire>,
    received: hyper::Request<Incoming>,
) -> Response {
    let started = Instant::now();
    let (head, body) = received.into_parts();
    let (is_head, version) = (head.method == Method::HEAD, head.version);
    let activity_id = state.activity_ids.of(&head.headers);
    let mut exchange = Exchange {
        state: state.clone(),
        wire: wire.clone(),
        body,
        is_read: false,
        operation: Operation::other(),
        cors: None,
    };
    let (mut response, path) = match exchange.enter(guard, head, activity_id.clone()) {
        Err(error) => (refuse(&activity_id, &error.into()), String::new()),
        Ok(request) => {
            let path = request.path.clone();
            let served = pin!(async move {
                let served = exchange.serve(request).await;
                (exchange, served)
            });
            match caught(served).await {
                Ok((back, served)) => {
                    exchange = back;
                    (served.unwrap_or_else(|error| refuse(&activity_id, &error)), path)
                }
                Err(reason) => return panicked(state, &path, &activity_id, &reason),
            }
        }
    };
    exchange.finish(&mut response, version, is_head);
    let took = started.elapsed();
    let charge = response.headers().get("x-ms-request-charge").map(HeaderValue::as_bytes);
    state.metrics.answered(exchange.operation, response.status(), took, charge);
    if took >= state.config.slow_request {
        log::slow(exchange.operation, &path, response.status(), took, &activity_id);
    }
    response
}

fn panicked(state: &State, path: &str, activity_id: &HeaderValue, reason: &str) -> Response {
    log::panicked(path, activity_id, reason);
    state.metrics.panicked();
    let error = RequestError::Internal { what: "a request panicked".to_owned() };
    let mut response = refuse(activity_id, &error.into());
    // Nobody knows how much of the body was read.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The metrics door: metrics without a key, nothing else.
pub(crate) async fn answer_metrics(
    state: &Arc<State>,
    guard: &Guard,
    received: &hyper::Request<Incoming>,
) -> Response {
    let checked = guard::host(received.uri(), received.headers(), received.version())
        .and_then(|host| guard.check_host(&host).map(|()| host))
        .and_then(|host| guard.check_origin(received.headers(), &host, false));
    let outcome = match (checked, received.uri().path(), received.method()) {
        (Err(error), ..) => Err(error.into()),
        (Ok(_), "/metrics" | "/_quire/metrics", &Method::GET | &Method::HEAD) => quire::metrics(state).await,
        _ => Err(RequestError::Route(RouteError::InvalidUrl).into()),
    };
    outcome.unwrap_or_else(|error| refuse(&state.activity_ids.of(received.headers()), &error))
}

/// Owns what it needs: its future must be `Send` inside [`caught`].
struct Exchange {
    state: Arc<State>,
    wire: Arc<Wire>,
    body: Incoming,
    /// The body was read to its end. (A chunked one does not say so itself.)
    is_read: bool,
    operation: Operation,
    cors: Option<Cors>,
}

impl Exchange {
    /// Who was called, from which page, with which head.
    fn enter(
        &mut self,
        guard: &Guard,
        head: Parts,
        activity_id: HeaderValue,
    ) -> Result<Request, RequestError> {
        let host = guard::host(&head.uri, &head.headers, head.version)?;
        guard.check_host(&host)?;
        self.cors = guard.check_origin(&head.headers, &host, self.wire.https)?;
        check_head(&head.headers, &self.state.config.limits)?;
        let path = head.uri.path_and_query().map_or("*", |path| path.as_str()).to_owned();
        Ok(Request {
            method: head.method,
            path,
            headers: head.headers,
            body: Bytes::new(),
            scheme_https: self.wire.https,
            host,
            activity_id,
        })
    }

    async fn serve(&mut self, request: Request) -> Result<Response, HandlerError> {
        if let Some(cors) = &self.cors
            && guard::is_preflight(&request.method, &request.headers)
        {
            return Ok(cors.preflight(&request.headers));
        }
        if quire::is_own(&request.path) {
            return self.serve_own(request).await;
        }
        self.serve_protocol(request).await
    }

    async fn serve_protocol(&mut self, mut request: Request) -> Result<Response, HandlerError> {
        let state = self.state.clone();
        let route = routes::parse(&request.method, &request.path).map_err(RequestError::Route)?;
        let found = operations::find(&route.kind, &request.method, Flags::of(&request.headers));
        let action = found.as_ref().ok().map(|operation| operation.action);
        self.operation = Operation::new(route.resource_type, action);
        let principal = auth::authenticate(&state, &request, &route).await?;
        let operation = match found {
            Ok(operation) => operation,
            Err(error) => return Ok(dispatch::refuse(&request, &error.into())),
        };
        if let Err(error) = dispatch::authorize(&state, &request, &route, &operation, &principal) {
            return Ok(dispatch::refuse(&request, &error));
        }
        let mut hold = state.bodies.hold();
        request.body = read_body(&mut self.body, &state.config.limits, &mut hold).await?;
        self.is_read = true;
        let faults = state.faults.as_ref();
        let Some(fault) = faults.and_then(|faults| faults.strike(&request, &route, operation.action)) else {
            return Ok(dispatch::dispatch(&state, &request, &route, operation).await);
        };
        tokio::time::sleep(fault.delay).await;
        let served = if fault.after || fault.end == End::Served {
            Some(dispatch::dispatch(&state, &request, &route, operation).await)
        } else {
            None
        };
        self.strike(fault, served, &request.activity_id).await
    }

    /// What the client gets in place of an answer.
    async fn strike(
        &self,
        fault: Fault,
        served: Option<Response>,
        activity_id: &HeaderValue,
    ) -> Result<Response, HandlerError> {
        match (fault.end, served) {
            (End::Served, Some(response)) => Ok(response),
            (End::Status { status, substatus, retry_after_ms, message }, _) => {
                let failure = Failure { status, substatus, message, retry_after_ms, plan: None };
                Ok(error_response(activity_id, &failure))
            }
            (End::Cut | End::Served, _) => {
                self.wire.cut();
                std::future::pending().await
            }
        }
    }

    async fn serve_own(&mut self, mut request: Request) -> Result<Response, HandlerError> {
        let state = self.state.clone();
        let route = quire::parse(&state, &request).map_err(RequestError::Route)?;
        let found = operations::find_admin(&route, &request.method);
        let (name, access) = found.ok_or(RequestError::Route(RouteError::MethodNotAllowed))?;
        if access != Access::Open {
            quire::authorize(&state, &request, access).await?;
            let mut hold = state.bodies.hold();
            request.body = read_body(&mut self.body, &state.config.limits, &mut hold).await?;
            self.is_read = true;
        }
        quire::dispatch(&state, &request, &route, name).await
    }

    /// What every answer needs, whoever wrote it.
    fn finish(&self, response: &mut Response, version: Version, is_head: bool) {
        if let Some(cors) = &self.cors {
            cors.write(response.headers_mut());
        }
        if response.status() == hyper::StatusCode::METHOD_NOT_ALLOWED {
            let allow = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
            response.headers_mut().entry(ALLOW).or_insert(allow);
        }
        // The rest of a body that nobody will read must not be taken for the next request.
        if !self.is_read && !self.body.is_end_stream() && version <= Version::HTTP_11 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            self.wire.linger();
        }
        if is_head {
            let length = response.body().size_hint().lower();
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
            *response.body_mut() = Full::new(Bytes::new());
        }
    }
}

fn refuse(activity_id: &HeaderValue, error: &HandlerError) -> Response {
    error_response(activity_id, &Failure::from(error))
}

/// Runs the request to its end or to its panic: a bug costs one answer, not the process. By reference, since a
/// request's future is large and every move copies it.
async fn caught<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Result<T, String> {
    std::future::poll_fn(|context| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(reason(&*panic))),
        }
    })
    .await
}

fn reason(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no reason given".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_a_reason() {
        assert_eq!(caught(pin!(async { 7 })).await, Ok(7));
        let panicking = pin!(async {
            tokio::task::yield_now().await;
            panic!("nothing there");
        });
        assert_eq!(caught(panicking).await.err().as_deref(), Some("nothing there"));
    }
}
