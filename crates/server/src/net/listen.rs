//! Listeners and their connections: accepted, served on the shared runtime, moved to threads of their own, or refused.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::config::Limits;
use crate::net::connection::{self, Connection, Phase, RunEnd, Service};
use crate::net::connection_state::ConnectionState;
use crate::net::connections::{Admitted, Connections, LimitReached};
use crate::net::stream::accept_tls;
use crate::net::threads::Threads;

/// After a failed accept (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// For the answer to a connection that is refused.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// A bound address.
pub(crate) struct Listener {
    socket: TcpListener,
    pub address: SocketAddr,
    tls: Option<TlsAcceptor>,
}

/// What the connections of all listeners share.
pub(crate) struct Network {
    pub connections: Arc<Connections>,
    pub threads: Threads,
    /// Connections being refused. A further one is closed without an answer.
    pub refusals: Arc<Semaphore>,
}

/// Accepts the connections of a listener. `make_service` makes what serves the requests of one connection.
///
/// Connections share it, and it does not own the listener: that is closed while they are still served.
pub(crate) struct Acceptor<M> {
    network: Arc<Network>,
    limits: Limits,
    protocols: auto::Builder<TokioExecutor>,
    make_service: M,
}

impl Listener {
    pub async fn bind(address: SocketAddr, tls: Option<TlsAcceptor>) -> io::Result<Listener> {
        let socket = TcpListener::bind(address).await?;
        Ok(Listener { address: socket.local_addr()?, socket, tls })
    }
}

impl<S: Service, M: Fn(Arc<ConnectionState>) -> S + Send + Sync + 'static> Acceptor<M> {
    pub fn new(network: Arc<Network>, limits: &Limits, make_service: M) -> Acceptor<M> {
        let (limits, protocols) = (limits.clone(), connection::protocols(limits));
        Acceptor { network, limits, protocols, make_service }
    }

    /// Runs until it is dropped. Every connection holds a clone of `open` until it ends.
    pub async fn run(
        self: Arc<Self>,
        listener: Arc<Listener>,
        phase: watch::Receiver<Phase>,
        open: mpsc::Sender<Infallible>,
    ) {
        loop {
            let (stream, peer) = match listener.socket.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let admitted = match self.network.connections.admit(peer.ip()).await {
                Ok(admitted) => admitted,
                Err(reached) => {
                    self.refuse(stream, reached);
                    continue;
                }
            };
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "cannot set TCP_NODELAY");
            }
            let open = Open { admitted, _open: open.clone() };
            tokio::spawn(self.clone().serve(stream, listener.tls.clone(), phase.clone(), open));
        }
    }

    /// Serves a connection on the shared runtime, until it gets a thread of its own.
    async fn serve(
        self: Arc<Self>,
        stream: TcpStream,
        tls: Option<TlsAcceptor>,
        phase: watch::Receiver<Phase>,
        mut open: Open,
    ) {
        let state = open.admitted.state.clone();
        let accepted = tokio::select! {
            accepted = accept_tls(stream, tls.as_ref(), &self.limits) => accepted,
            () = state.aborted() => return,
        };
        let Some(stream) = accepted else { return };
        let service = (self.make_service)(state.clone());
        let mut connection = Connection::new(&self.protocols, stream, state.clone(), phase, service);
        while connection.run(&self.limits, true).await == RunEnd::MayMove {
            match self.move_to_thread(ThreadHandover { connection, open }) {
                None => return,
                Some(stays) => (connection, open) = (stays.connection, stays.open),
            }
            state.move_later();
        }
    }

    /// Gives the connection a thread of its own. Returns it when there is no thread for it.
    fn move_to_thread(&self, mut moving: ThreadHandover<S>) -> Option<ThreadHandover<S>> {
        let limits = self.limits.clone();
        let started = self.network.threads.start(move |runtime, (moving, socket)| {
            runtime.block_on(serve_on_thread(&limits, moving, socket));
        });
        let thread = match started {
            Ok(Some(thread)) => thread,
            Ok(None) => return Some(moving),
            Err(error) => {
                tracing::warn!(%error, "no thread for a connection");
                return Some(moving);
            }
        };
        match moving.connection.detach() {
            Ok(socket) => thread.give((moving, socket)),
            Err(error) => tracing::debug!(%error, "connection ended"),
        }
        None
    }

    /// Answers 503, which a client understands that speaks plain HTTP, and closes the connection.
    fn refuse(&self, mut stream: TcpStream, reached: LimitReached) {
        self.network.connections.count_refusal();
        let Ok(permit) = self.network.refusals.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            let answer = async {
                stream.write_all(refusal(reached).as_bytes()).await?;
                stream.shutdown().await?;
                // Reads what the client still sends: a reset would take the answer from it.
                let mut scratch = [0; 1024];
                while stream.read(&mut scratch).await? > 0 {}
                Ok::<(), io::Error>(())
            };
            if let Ok(Err(error)) = tokio::time::timeout(REFUSAL_TIMEOUT, answer).await {
                tracing::debug!(%error, "refused connection ended");
            }
            drop(stream);
            drop(permit);
        });
    }
}

/// An open connection, counted until this is dropped. To be dropped after its socket.
struct Open {
    admitted: Admitted,
    _open: mpsc::Sender<Infallible>,
}

/// A connection that is handed over to a thread. The connection is dropped first.
struct ThreadHandover<S: Service> {
    connection: Connection<S>,
    open: Open,
}

async fn serve_on_thread<S: Service>(
    limits: &Limits,
    mut moving: ThreadHandover<S>,
    socket: std::net::TcpStream,
) {
    match moving.connection.attach(socket) {
        Ok(()) => {
            moving.connection.run(limits, false).await;
        }
        Err(error) => tracing::warn!(%error, "cannot serve a connection"),
    }
}

fn refusal(reached: LimitReached) -> String {
    let message = match reached {
        LimitReached::Server => "The server has too many open connections.",
        LimitReached::Address => "There are too many open connections from this address.",
    };
    let body = format!("{{\"code\":\"ServiceUnavailable\",\"message\":\"{message}\"}}\r\n");
    let length = body.len();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\nretry-after: 1\r\nx-ms-retry-after-ms: 1000\r\n\r\n{body}"
    )
}
