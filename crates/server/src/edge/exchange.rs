//! One request from its head to its answer: limits, guard, authentication, body, handler, figures.
//!
//! The order matters: nothing is parsed for a page of a foreign origin, and no body is read before authentication.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_LENGTH, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Version};

use crate::admin::{self, AdminPath, AdminReply};
use crate::auth::{self, Access};
use crate::edge::answers;
use crate::edge::body::read_body;
use crate::edge::budget::ByteReservation;
use crate::edge::dispatch;
use crate::edge::faults::{Fault, FaultEffect};
use crate::edge::guard::{self, Cors, Guard};
use crate::edge::log;
use crate::edge::metrics::Operation;
use crate::edge::request::{Client, Request, RequestPath, Response, check_head, check_transfer_encoding};
use crate::net::connection_state::ConnectionState;
use crate::net::panics::catch_panic;
use crate::operations::{self, Flags};
use crate::routes::RouteError;
use crate::state::ServerState;
use crate::wire::headers::error_response;
use crate::wire::status::{Failure, HandlerError, RequestError};

/// A longer body of a request that is refused is not read.
const REFUSED_BODY_BYTES_MAX: u64 = 16 << 10;

/// Answers a request of the main listener.
pub(crate) async fn answer(
    state: &Arc<ServerState>,
    guard: &Guard,
    connection: &Arc<ConnectionState>,
    received: hyper::Request<Incoming>,
    activity_id: &HeaderValue,
) -> Response {
    let started = Instant::now();
    let (head, body) = received.into_parts();
    let (is_head, version) = (head.method == Method::HEAD, head.version);
    let is_get = is_head || head.method == Method::GET;
    let mut exchange = Exchange {
        state: state.clone(),
        connection: connection.clone(),
        body,
        is_read: false,
        operation: Operation::other(),
        cors: None,
    };
    let (mut response, path) = match exchange.enter(guard, head, activity_id.clone()) {
        Err(error) => (refuse(activity_id, &error.into()), RequestPath::Absent("")),
        Ok(request) => {
            let path = request.path.clone();
            let served = pin!(async move {
                let served = exchange.serve(request).await;
                (exchange, served)
            });
            match catch_panic(served).await {
                Ok((back, served)) => {
                    exchange = back;
                    (served.unwrap_or_else(|error| refuse(activity_id, &error)), path)
                }
                Err(reason) => return panicked(state, &path, activity_id, &reason),
            }
        }
    };
    exchange.finish(&mut response, &path, version, is_head);
    let is_read = is_get || exchange.operation.is_read();
    if let Err(error) = answers::count(state, connection, &mut response, version, is_read) {
        response = refuse(activity_id, &error.into());
        exchange.finish(&mut response, &path, version, is_head);
        answers::count_refusal(state, connection, &mut response, version);
    }
    let took = started.elapsed();
    let charge = response.headers().get("x-ms-request-charge").map(HeaderValue::as_bytes);
    state.metrics.answered(exchange.operation, response.status(), took, charge);
    if took >= state.config.slow_request {
        log::slow(exchange.operation, &path, response.status(), took, activity_id);
    }
    response
}

pub(crate) fn panicked(state: &ServerState, path: &str, activity_id: &HeaderValue, reason: &str) -> Response {
    log::panicked(path, activity_id, reason);
    state.metrics.panicked();
    let error = RequestError::Internal { what: "a request panicked".to_owned() };
    let mut response = refuse(activity_id, &error.into());
    // It is not known how much of the body was read.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Answers a request of the metrics listener: metrics without a key, and nothing else.
pub(crate) async fn answer_metrics(
    state: &Arc<ServerState>,
    guard: &Guard,
    connection: &Arc<ConnectionState>,
    received: &hyper::Request<Incoming>,
) -> Response {
    let checked = guard::check_repeated(received.headers())
        .and_then(|()| check_transfer_encoding(received.headers()))
        .and_then(|()| guard::host(received.uri(), received.headers(), received.version()))
        .and_then(|host| guard.check_host(&host).map(|()| host))
        .and_then(|host| guard.check_origin(received.headers(), &host, false));
    let outcome = match (checked, received.uri().path(), received.method()) {
        (Err(error), ..) => Err(error.into()),
        (Ok(_), "/metrics" | "/_quire/metrics", &Method::GET | &Method::HEAD) => {
            admin::metrics::read(state).await.map(AdminReply::into_response)
        }
        _ => Err(RequestError::Route(RouteError::InvalidUrl).into()),
    };
    let refuse = |error: HandlerError| refuse(&state.activity_ids.of(received.headers()), &error);
    let mut response = outcome.unwrap_or_else(refuse);
    let counted = answers::count(state, connection, &mut response, received.version(), true);
    counted.map_or_else(|error| refuse(error.into()), |()| response)
}

/// Owns what it needs: its future must be `Send` inside [`catch_panic`].
struct Exchange {
    state: Arc<ServerState>,
    connection: Arc<ConnectionState>,
    body: Incoming,
    /// The body was read to its end. (A chunked one does not say so itself.)
    is_read: bool,
    operation: Operation,
    cors: Option<Cors>,
}

impl Exchange {
    /// Checks transport, host, origin and head.
    fn enter(
        &mut self,
        guard: &Guard,
        head: Parts,
        activity_id: HeaderValue,
    ) -> Result<Request, RequestError> {
        if self.state.config.tls_only && !self.connection.is_https() {
            return Err(RequestError::PlainHttp);
        }
        guard::check_repeated(&head.headers)?;
        let host = guard::host(&head.uri, &head.headers, head.version)?;
        guard.check_host(&host)?;
        self.cors = guard.check_origin(&head.headers, &host, self.connection.is_https())?;
        check_head(&head.headers, &self.state.config.limits)?;
        Ok(Request {
            method: head.method,
            path: RequestPath::of(&head.uri),
            headers: head.headers,
            body: Bytes::new(),
            scheme_https: self.connection.is_https(),
            host,
            activity_id,
            client: Client::new(&self.connection),
            is_limited_to_part: false,
            is_limited_to_item: false,
            has_token: false,
            token_owner: None,
        })
    }

    async fn serve(&mut self, request: Request) -> Result<Response, HandlerError> {
        if let Some(cors) = &self.cors
            && guard::is_preflight(&request.method, &request.headers)
        {
            return Ok(cors.preflight(&request.headers));
        }
        if self.state.config.start_page.is_some() && admin::start_page::is_wanted(&request) {
            return Ok(admin::start_page::redirect().into_response());
        }
        if admin::is_own(&request.path) {
            return self.serve_own(request).await;
        }
        self.serve_protocol(request).await
    }

    async fn serve_protocol(&mut self, mut request: Request) -> Result<Response, HandlerError> {
        let state = self.state.clone();
        let path = request.path.clone();
        let route = operations::route(&request.method, &path).map_err(RequestError::Route)?;
        let found = operations::find(&route.kind, &request.method, Flags::of(&request.headers));
        let action = found.as_ref().ok().map(|operation| operation.action);
        self.operation = Operation::new(route.resource_type, action);
        let principal = auth::authenticate(&state, &request, &route).await?;
        state.network.connections.authenticated(&self.connection);
        request.is_limited_to_part = principal.is_limited_to_part();
        request.is_limited_to_item = principal.is_limited_to_item();
        request.has_token = principal.has_token();
        request.token_owner = principal.token_owner();
        let operation = match found {
            Ok(operation) => operation,
            Err(error) => return self.refused(&request, &error.into()).await,
        };
        if let Err(error) = dispatch::authorize(&state, &request, &route, &operation, &principal) {
            return self.refused(&request, &error).await;
        }
        let mut reserved = state.bytes.reserve();
        request.body = self.read_body(&mut reserved).await?;
        let faults = state.faults.as_ref();
        let Some(fault) = faults.and_then(|faults| faults.fire(&request, &route, operation.action)) else {
            return Ok(dispatch::dispatch(&state, &request, &route, operation).await);
        };
        tokio::time::sleep(fault.delay).await;
        let served = if fault.after || fault.effect == FaultEffect::Serve {
            Some(dispatch::dispatch(&state, &request, &route, operation).await)
        } else {
            None
        };
        self.replace_answer(fault, served, &request.activity_id).await
    }

    /// What the client gets because of a fault rule.
    async fn replace_answer(
        &self,
        fault: Fault,
        served: Option<Response>,
        activity_id: &HeaderValue,
    ) -> Result<Response, HandlerError> {
        match (fault.effect, served) {
            (FaultEffect::Serve, Some(response)) => Ok(response),
            (FaultEffect::Status { status, substatus, retry_after_ms, message }, _) => {
                let (code, plan, errors) = (None, None, None);
                let failure = Failure { status, substatus, code, message, retry_after_ms, plan, errors };
                Ok(error_response(activity_id, &failure))
            }
            (FaultEffect::Cut | FaultEffect::Serve, _) => {
                self.connection.abort();
                std::future::pending().await
            }
        }
    }

    async fn serve_own(&mut self, mut request: Request) -> Result<Response, HandlerError> {
        let state = self.state.clone();
        let sent = request.path.clone();
        let path = AdminPath::parse(&state, &request.method, &sent).map_err(RequestError::Route)?;
        let found = operations::find_admin(path.as_sent(), &request.method);
        let operation = found.map_err(RequestError::Route)?;
        // Until it is answered, as some requests wait for background work.
        let mut reserved = state.bytes.reserve();
        if operation.access != Access::Open {
            admin::authorize(&state, &request, operation.access).await?;
            state.network.connections.authenticated(&self.connection);
            request.body = self.read_body(&mut reserved).await?;
        }
        admin::dispatch(&state, &request, &path, operation).await
    }

    async fn read_body(&mut self, reserved: &mut ByteReservation) -> Result<Bytes, RequestError> {
        let read = read_body(&mut self.body, &self.state.config.limits, &self.connection, reserved).await;
        match read {
            Ok(_) => self.is_read = true,
            Err(RequestError::Busy) => self.state.network.connections.end_stalled(),
            Err(_) => {}
        }
        read
    }

    /// Refuses an authenticated request by its head. A short body is read, so that the connection stays open.
    async fn refused(&mut self, request: &Request, error: &HandlerError) -> Result<Response, HandlerError> {
        if self.body.size_hint().upper().is_some_and(|bytes| bytes <= REFUSED_BODY_BYTES_MAX) {
            let mut reserved = self.state.bytes.reserve();
            self.read_body(&mut reserved).await?;
        }
        Ok(dispatch::refuse(request, error))
    }

    /// What every answer needs.
    fn finish(&self, response: &mut Response, path: &str, version: Version, is_head: bool) {
        if let Some(cors) = &self.cors {
            cors.write(response.headers_mut());
        }
        if response.status() == hyper::StatusCode::METHOD_NOT_ALLOWED {
            let verbs = allowed_verbs(&self.state, path);
            response.headers_mut().extend(HeaderValue::try_from(verbs).map(|verbs| (ALLOW, verbs)));
        }
        // The rest of a body that is not read must not be taken for the next request.
        if !self.is_read && !self.body.is_end_stream() && version <= Version::HTTP_11 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            self.connection.linger();
        }
        if is_head {
            let length = response.body().size_hint().lower();
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
            *response.body_mut() = Full::new(Bytes::new());
        }
    }
}

/// The verbs with which the table has operations of a path; none for what is not supported at all.
fn allowed_verbs(state: &ServerState, path: &str) -> String {
    const VERBS: [Method; 6] =
        [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let has = |method: &&Method| match admin::is_own(path) {
        true => AdminPath::parse(state, method, path)
            .is_ok_and(|path| operations::find_admin(path.as_sent(), method).is_ok()),
        false => operations::route(method, path).is_ok(),
    };
    VERBS.iter().filter(has).map(Method::as_str).collect::<Vec<_>>().join(", ")
}

fn refuse(activity_id: &HeaderValue, error: &HandlerError) -> Response {
    error_response(activity_id, &Failure::from(error))
}
