//! Doors and their connections: accepted, begun on the shared runtime, moved to threads of their own, or refused.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::edge::exchange;
use crate::edge::guard::Guard;
use crate::edge::panics::caught;
use crate::net::connection::{self, Outcome, Phase, Service, Session};
use crate::net::connection_state::Wire;
use crate::net::connections::{Admitted, Full};
use crate::net::stream::accept_tls;
use crate::net::threads;
use crate::state::State;

/// After a failed accept (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// In the order of [`Full`].
const TOO_MANY: [&str; 2] =
    ["The server has too many open connections.", "There are too many open connections from this address."];

pub(super) struct Door {
    pub listener: TcpListener,
    pub address: SocketAddr,
    pub tls: Option<TlsAcceptor>,
    pub kind: DoorKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DoorKind {
    Main,
    Metrics,
}

impl DoorKind {
    /// What the task that accepts its connections is called.
    pub fn task(self) -> &'static str {
        match self {
            DoorKind::Main => "listener",
            DoorKind::Metrics => "metrics-listener",
        }
    }
}

/// What the connections of one door share.
pub(super) struct Keeper {
    state: Arc<State>,
    kind: DoorKind,
    guard: Guard,
    protocols: auto::Builder<TokioExecutor>,
}

impl Keeper {
    pub fn new(state: Arc<State>, address: SocketAddr, kind: DoorKind) -> Keeper {
        let config = &state.config;
        let origins = if kind == DoorKind::Main { config.cors_origins.as_slice() } else { &[] };
        let guard = Guard::new(
            address.ip().is_loopback(),
            config.public_endpoint.as_deref(),
            &config.allow_hosts,
            origins,
        );
        let protocols = connection::protocols(&config.limits);
        Keeper { guard, protocols, kind, state }
    }
}

pub(super) async fn keep(
    door: Arc<Door>,
    keeper: Arc<Keeper>,
    phase: watch::Receiver<Phase>,
    alive: mpsc::Sender<Infallible>,
) {
    loop {
        let (stream, peer) = match door.listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let admitted = match keeper.state.connections.admit(peer.ip()).await {
            Ok(admitted) => admitted,
            Err(full) => {
                refuse(&keeper.state, stream, full);
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let open = Open { _alive: alive.clone(), _counted: Counted::new(keeper.state.clone()), admitted };
        tokio::spawn(begin(keeper.clone(), stream, door.tls.clone(), phase.clone(), open));
    }
}

/// Counts a connection until it ends, however it ends. To be dropped after its socket.
struct Open {
    admitted: Admitted,
    _counted: Counted,
    _alive: mpsc::Sender<Infallible>,
}

/// In the metrics.
struct Counted(Arc<State>);

impl Counted {
    fn new(state: Arc<State>) -> Counted {
        state.metrics.opened();
        Counted(state)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics.closed();
    }
}

/// A connection on the shared runtime, until it gets a thread of its own.
async fn begin(
    keeper: Arc<Keeper>,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    phase: watch::Receiver<Phase>,
    mut open: Open,
) {
    let (limits, wire) = (&keeper.state.config.limits, open.admitted.wire.clone());
    let accepted = tokio::select! {
        accepted = accept_tls(stream, tls.as_ref(), limits) => accepted,
        () = wire.until_cut() => return,
    };
    let Some(stream) = accepted else { return };
    let service = {
        let (keeper, wire) = (keeper.clone(), wire.clone());
        service_fn(move |request| respond(keeper.clone(), wire.clone(), request))
    };
    let mut session = Session::new(&keeper.protocols, stream, wire.clone(), phase, service);
    while session.run(limits, true).await == Outcome::MayMove {
        match move_to_thread(&keeper, Moving { session, open }) {
            None => return,
            Some(stays) => (session, open) = (stays.session, stays.open),
        }
        wire.move_later();
    }
}

/// A connection on its way to a thread. The session is dropped first.
struct Moving<S: Service> {
    session: Session<S>,
    open: Open,
}

/// Gives the connection a thread of its own; gives it back when there is none.
fn move_to_thread<S: Service>(keeper: &Arc<Keeper>, mut moving: Moving<S>) -> Option<Moving<S>> {
    let own = keeper.clone();
    let started = keeper.state.threads.start(move |runtime, (moving, socket)| {
        runtime.block_on(serve_alone(own, moving, socket));
    });
    let thread = match started {
        Ok(Some(thread)) => thread,
        Ok(None) => return Some(moving),
        Err(error) => {
            tracing::warn!(%error, "no thread for a connection");
            return Some(moving);
        }
    };
    match moving.session.detach() {
        Ok(socket) => thread.give((moving, socket)),
        Err(error) => tracing::debug!(%error, "connection ended"),
    }
    None
}

/// A connection on its own thread.
async fn serve_alone<S: Service>(keeper: Arc<Keeper>, mut moving: Moving<S>, socket: std::net::TcpStream) {
    match moving.session.attach(socket) {
        Ok(()) => {
            moving.session.run(&keeper.state.config.limits, false).await;
        }
        Err(error) => tracing::warn!(%error, "cannot serve a connection"),
    }
}

/// Says `Send` itself: the compiler cannot derive it through hyper's types.
#[allow(clippy::manual_async_fn)]
fn respond(
    keeper: Arc<Keeper>,
    wire: Arc<Wire>,
    request: hyper::Request<hyper::body::Incoming>,
) -> impl Future<Output = Result<crate::edge::request::Response, Infallible>> + Send + 'static {
    async move {
        let serving = wire.begin(request.version());
        threads::begin(request.version());
        let Keeper { state, guard, kind, .. } = &*keeper;
        let activity_id = state.activity_ids.of(request.headers());
        let answer = pin!(async {
            match kind {
                DoorKind::Main => exchange::answer(state, guard, &wire, request, &activity_id).await,
                DoorKind::Metrics => exchange::answer_metrics(state, guard, &request).await,
            }
        });
        let answered = caught(answer).await;
        let response = answered.unwrap_or_else(|reason| exchange::panicked(state, "", &activity_id, &reason));
        drop(serving);
        Ok(response)
    }
}

/// Beyond the limit: an answer if the client speaks plain HTTP, and goodbye.
fn refuse(state: &State, mut stream: TcpStream, full: Full) {
    state.metrics.refused();
    let Ok(place) = state.refusals.clone().try_acquire_owned() else { return };
    tokio::spawn(async move {
        let goodbye = async {
            stream.write_all(refusal(full).as_bytes()).await?;
            stream.shutdown().await?;
            // What the client is still sending is taken in, so that the answer reaches it.
            let mut scratch = [0; 1024];
            while stream.read(&mut scratch).await? > 0 {}
            Ok::<(), io::Error>(())
        };
        if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(1), goodbye).await {
            tracing::debug!(%error, "refused connection ended");
        }
        drop(stream);
        drop(place);
    });
}

fn refusal(full: Full) -> String {
    let body = format!("{{\"code\":\"ServiceUnavailable\",\"message\":\"{}\"}}\r\n", TOO_MANY[full as usize]);
    let length = body.len();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\nretry-after: 1\r\nx-ms-retry-after-ms: 1000\r\n\r\n{body}"
    )
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
        assert!(size(respond) <= 8 << 10, "{} bytes", size(respond));
    }
}
