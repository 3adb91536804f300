//! One connection: plain or TLS, HTTP/1.1 or HTTP/2, with timeouts for clients that are slow or silent.
//!
//! hyper parses. The timeouts are decided here, by when bytes last moved and whether a request is being served: a head must
//! be complete soon after its first byte, a connection may be idle between requests for a limited time, and an answer that
//! the client does not read counts as idle time.
//!
//! Every connection begins on the shared runtime, where it takes one file descriptor. An authenticated one of HTTP/1 may be
//! moved to a thread (see [`crate::net::threads`]): its socket is taken from one runtime and registered with another, while
//! hyper owns the stream.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::config::Limits;
use crate::net::connection_state::{ConnectionState, Liveness};
use crate::net::stream::{MonitoredStream, Stream};

/// More headers than this hyper refuses by itself, unless it is configured otherwise.
const HYPER_HEADER_COUNT_MAX: usize = 100;

/// Whether the server runs or stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// Requests that were accepted are finished, new ones are not accepted.
    Draining,
    /// The time to finish is over.
    Ending,
}

/// Both protocols, with the limits that hyper enforces itself. Its bounds on heads are wider than ours, which answer
/// with a body that clients understand.
pub(crate) fn protocols(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size((2 * limits.header_bytes_max).max(64 << 10));
    if limits.header_count_max >= HYPER_HEADER_COUNT_MAX {
        // Costs an allocation per request, which hyper's own bound does not.
        builder.http1().max_headers(2 * limits.header_count_max);
    }
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.stream_count_max)
        .max_pending_accept_reset_streams(limits.reset_count_max)
        .max_local_error_reset_streams(limits.reset_count_max)
        .max_header_list_size(u32::try_from(2 * limits.header_bytes_max).unwrap_or(u32::MAX))
        // What a client may send before the server has read any of it.
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20)
        .keep_alive_interval(limits.idle_timeout / 2)
        .keep_alive_timeout(limits.head_timeout);
    builder
}

/// What serves the requests of a connection.
pub(crate) trait Service:
    hyper::service::Service<
        hyper::Request<hyper::body::Incoming>,
        Response = hyper::Response<Full<Bytes>>,
        Error = std::convert::Infallible,
        Future: Send + 'static,
    > + Send
    + 'static
{
}

impl<S> Service for S where
    S: hyper::service::Service<
            hyper::Request<hyper::body::Incoming>,
            Response = hyper::Response<Full<Bytes>>,
            Error = std::convert::Infallible,
            Future: Send + 'static,
        > + Send
        + 'static
{
}

/// A connection being served, on any runtime.
pub(crate) struct Connection<S: Service> {
    // First, so that it is dropped first: the socket is closed with it.
    connection: Pin<Box<auto::Connection<'static, TokioIo<MonitoredStream>, S, TokioExecutor>>>,
    stream: Weak<Mutex<Stream>>,
    state: Arc<ConnectionState>,
    phase: watch::Receiver<Phase>,
}

/// Why [`Connection::run`] returned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RunEnd {
    Ended,
    /// The connection is authenticated and serves no request: it may be moved to a thread of its own.
    MayMove,
}

impl<S: Service> Connection<S> {
    pub fn new(
        protocols: &auto::Builder<TokioExecutor>,
        stream: Stream,
        state: Arc<ConnectionState>,
        phase: watch::Receiver<Phase>,
        service: S,
    ) -> Connection<S> {
        let is_https = matches!(stream, Stream::Tls(_));
        let shared = Arc::new(Mutex::new(stream));
        let stream = Arc::downgrade(&shared);
        state.connected(stream.clone(), is_https);
        let io = TokioIo::new(MonitoredStream::new(shared, Arc::clone(&state)));
        let connection = Box::pin(protocols.serve_connection(io, service).into_owned());
        Connection { connection, stream, state, phase }
    }

    /// Serves requests until the client closes the connection, a timeout ends it, or the server stops.
    pub async fn run(&mut self, limits: &Limits, may_move: bool) -> RunEnd {
        let Connection { connection, state, phase, .. } = self;
        let tick = (limits.head_timeout.min(limits.idle_timeout) / 4).max(Duration::from_millis(10));
        let mut watch = tokio::time::interval_at(tokio::time::Instant::now() + tick, tick);
        loop {
            let served = std::future::poll_fn(|context| match connection.as_mut().poll(context) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                Poll::Pending if may_move && state.may_move() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            tokio::select! {
                biased;
                ended = served => {
                    let Some(ended) = ended else { return RunEnd::MayMove };
                    if let Err(error) = ended {
                        tracing::debug!(error, "connection ended");
                    }
                    return RunEnd::Ended;
                }
                changed = phase.changed() => match (changed, *phase.borrow()) {
                    (Ok(()), Phase::Serving) => {}
                    (Ok(()), Phase::Draining) => connection.as_mut().graceful_shutdown(),
                    (Ok(()), Phase::Ending) | (Err(_), _) => return RunEnd::Ended,
                },
                () = state.aborted() => return RunEnd::Ended,
                _ = watch.tick() => match state.liveness(limits) {
                    Liveness::Active => {}
                    Liveness::Idle => connection.as_mut().graceful_shutdown(),
                    Liveness::Stalled => return RunEnd::Ended,
                },
            }
        }
    }

    /// Takes the socket from this runtime, to be given to [`Connection::attach`] on another.
    pub fn detach(&mut self) -> io::Result<std::net::TcpStream> {
        let stream = self.stream.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        let mut stream = stream.lock();
        stream.socket().take().ok_or(io::ErrorKind::NotConnected)?.into_std()
    }

    pub fn attach(&mut self, socket: std::net::TcpStream) -> io::Result<()> {
        let socket = TcpStream::from_std(socket)?;
        if let Some(stream) = self.stream.upgrade() {
            stream.lock().socket().give(socket);
        }
        Ok(())
    }
}
