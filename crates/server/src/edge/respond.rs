//! The requests of one listener: each is answered, also when it panics.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use crate::edge::exchange;
use crate::edge::guard::Guard;
use crate::edge::request::Response;
use crate::net::connection_state::ConnectionState;
use crate::net::panics::catch_panic;
use crate::net::threads;
use crate::state::ServerState;

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// Everything.
    Main,
    /// Metrics without a key, and nothing else.
    Metrics,
}

/// What the requests of one listener share.
pub(crate) struct ListenerContext {
    state: Arc<ServerState>,
    kind: ListenerKind,
    guard: Guard,
}

impl ListenerKind {
    /// The name of the task that accepts its connections.
    pub fn task(self) -> &'static str {
        match self {
            ListenerKind::Main => "listener",
            ListenerKind::Metrics => "metrics-listener",
        }
    }
}

impl ListenerContext {
    pub fn new(state: Arc<ServerState>, address: SocketAddr, kind: ListenerKind) -> ListenerContext {
        let config = &state.config;
        let origins = if kind == ListenerKind::Main { config.cors_origins.as_slice() } else { &[] };
        let guard = Guard::new(
            address.ip().is_loopback(),
            config.public_endpoint.as_deref(),
            &config.allow_hosts,
            origins,
        );
        ListenerContext { state, kind, guard }
    }
}

/// Names `Send` itself: the compiler cannot derive it through hyper's types.
#[allow(clippy::manual_async_fn)]
pub(crate) fn respond(
    context: Arc<ListenerContext>,
    connection: Arc<ConnectionState>,
    request: hyper::Request<hyper::body::Incoming>,
) -> impl Future<Output = Result<Response, Infallible>> + Send + 'static {
    async move {
        let active = connection.begin_request(request.version());
        threads::begin_request(request.version());
        let ListenerContext { state, kind, guard } = &*context;
        let activity_id = state.activity_ids.of(request.headers());
        let answer = pin!(async {
            match kind {
                ListenerKind::Main => {
                    exchange::answer(state, guard, &connection, request, &activity_id).await
                }
                ListenerKind::Metrics => exchange::answer_metrics(state, guard, &connection, &request).await,
            }
        });
        let answered = catch_panic(answer).await;
        let response = answered.unwrap_or_else(|reason| exchange::panicked(state, "", &activity_id, &reason));
        drop(active);
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every request's future is moved a few times before it runs. It was 19 KB when it held the bearer token's fetches.
    #[test]
    fn a_request_is_small() {
        fn size<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
            std::mem::size_of::<F>()
        }
        assert!(size(respond) <= 9 << 10, "{} bytes", size(respond));
    }
}
