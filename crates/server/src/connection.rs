//! One connection: plain or TLS, HTTP/1.1 or HTTP/2, watched for clients that are slow or silent.
//!
//! hyper parses; how long it may take is decided here, by when bytes last moved and whether a request is being served:
//! a head must be complete soon after its first byte, a connection may be silent between requests only so long, and an
//! answer that the client does not take counts as silence.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::Version;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio_rustls::server::TlsStream;

use crate::config::Limits;

/// How long, and for how many bytes, a closing connection listens to a client that is still sending, so that the
/// reset that follows does not take the answer from it.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 64 << 20;

const TLS_HANDSHAKE: u8 = 0x16;

/// More headers than this hyper refuses by itself, unless told otherwise.
const HYPER_HEADER_COUNT_MAX: usize = 100;

/// Where the server is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// Finish what was accepted, take nothing new.
    Draining,
    /// Out of patience.
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
        // What a client may send before anyone has looked at it.
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20)
        .keep_alive_interval(limits.idle_timeout / 2)
        .keep_alive_timeout(limits.head_timeout);
    builder
}

/// The first byte tells TLS from plain HTTP. `None` when the client went away or stayed silent.
pub(crate) async fn accept_tls(
    stream: TcpStream,
    tls: Option<&tokio_rustls::TlsAcceptor>,
    limits: &Limits,
) -> Option<Stream> {
    let Some(tls) = tls else { return Some(Stream::Plain(stream)) };
    let accepted = tokio::time::timeout(limits.head_timeout, async {
        let mut first = [0];
        match stream.peek(&mut first).await {
            Ok(1) if first[0] == TLS_HANDSHAKE => Ok(Stream::Tls(Box::new(tls.accept(stream).await?))),
            Ok(1) => Ok(Stream::Plain(stream)),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error),
        }
    });
    match accepted.await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "connection ended before its first request");
            None
        }
        Err(_) => None,
    }
}

/// Serves requests until the client leaves, the watch says so, or the server ends.
pub(crate) async fn serve<S>(
    protocols: &auto::Builder<TokioExecutor>,
    stream: Stream,
    wire: Arc<Wire>,
    limits: &Limits,
    mut phase: watch::Receiver<Phase>,
    service: S,
) where
    S: hyper::service::Service<
            hyper::Request<hyper::body::Incoming>,
            Response = crate::request::Response,
            Error = std::convert::Infallible,
        > + 'static,
    S::Future: Send + 'static,
{
    let io = TokioIo::new(Watched { stream, wire: wire.clone(), linger: None });
    let mut connection = pin!(protocols.serve_connection(io, service));
    let tick = (limits.head_timeout.min(limits.idle_timeout) / 4).max(Duration::from_millis(10));
    let mut watch = tokio::time::interval_at(tokio::time::Instant::now() + tick, tick);
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "connection ended");
                }
                return;
            }
            changed = phase.changed() => match (changed, *phase.borrow()) {
                (Ok(()), Phase::Serving) => {}
                (Ok(()), Phase::Draining) => connection.as_mut().graceful_shutdown(),
                (Ok(()), Phase::Ending) | (Err(_), _) => return,
            },
            () = wire.cut.notified() => return,
            _ = watch.tick() => match wire.verdict(limits) {
                Verdict::Fine => {}
                Verdict::Idle => connection.as_mut().graceful_shutdown(),
                Verdict::Stuck => return,
            },
        }
    }
}

/// What is known about a connection while it is served; shared by its bytes and its requests.
pub(crate) struct Wire {
    pub https: bool,
    opened: Instant,
    /// Milliseconds since `opened` when bytes last moved, either way.
    moved_at: AtomicU64,
    /// The same when a request was last answered.
    served_at: AtomicU64,
    /// When the first byte of the head now being read came, plus one; 0 when no head is being read.
    head_at: AtomicU64,
    serving: AtomicU32,
    /// HTTP/2: bytes between requests are not the start of a head.
    multiplexed: AtomicBool,
    lingering: AtomicBool,
    cut: Notify,
}

/// A request being served; ends when dropped.
pub(crate) struct Serving(Arc<Wire>);

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    Idle,
    Stuck,
}

impl Wire {
    /// A connection is expected to begin a request at once, so its first head counts from the start.
    pub fn new(https: bool) -> Arc<Wire> {
        Arc::new(Wire {
            https,
            opened: Instant::now(),
            moved_at: AtomicU64::new(0),
            served_at: AtomicU64::new(0),
            head_at: AtomicU64::new(1),
            serving: AtomicU32::new(0),
            multiplexed: AtomicBool::new(false),
            lingering: AtomicBool::new(false),
            cut: Notify::new(),
        })
    }

    pub fn begin(self: &Arc<Wire>, version: Version) -> Serving {
        self.serving.fetch_add(1, Ordering::Relaxed);
        self.head_at.store(0, Ordering::Relaxed);
        if version == Version::HTTP_2 {
            self.multiplexed.store(true, Ordering::Relaxed);
        }
        Serving(self.clone())
    }

    /// Keep listening for a while after the last answer.
    pub fn linger(&self) {
        self.lingering.store(true, Ordering::Relaxed);
    }

    /// Ends the connection at once, without the answer to what it serves.
    pub fn cut(&self) {
        self.cut.notify_one();
    }

    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn received(&self) {
        let now = self.now();
        self.moved_at.store(now, Ordering::Relaxed);
        let between = self.serving.load(Ordering::Relaxed) == 0 && !self.multiplexed.load(Ordering::Relaxed);
        if between && self.head_at.load(Ordering::Relaxed) == 0 {
            self.head_at.store(now + 1, Ordering::Relaxed);
        }
    }

    fn sent(&self) {
        self.moved_at.store(self.now(), Ordering::Relaxed);
    }

    fn verdict(&self, limits: &Limits) -> Verdict {
        if self.serving.load(Ordering::Relaxed) > 0 {
            return Verdict::Fine;
        }
        let now = self.now();
        let since = |at: u64| Duration::from_millis(now.saturating_sub(at));
        let head_at = self.head_at.load(Ordering::Relaxed);
        if head_at > 0 && since(head_at - 1) > limits.head_timeout {
            return Verdict::Stuck;
        }
        // Pings move bytes on an HTTP/2 connection that nobody uses.
        let multiplexed = self.multiplexed.load(Ordering::Relaxed);
        let last = if multiplexed { &self.served_at } else { &self.moved_at };
        let silent = since(last.load(Ordering::Relaxed));
        if silent > 2 * limits.idle_timeout {
            return Verdict::Stuck; // even a graceful end needs a client that takes its last answer
        }
        if silent > limits.idle_timeout { Verdict::Idle } else { Verdict::Fine }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let now = self.0.now();
        self.0.moved_at.store(now, Ordering::Relaxed);
        self.0.served_at.store(now, Ordering::Relaxed);
        self.0.serving.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }
}

/// A stream that tells its [`Wire`] when bytes move.
struct Watched {
    stream: Stream,
    wire: Arc<Wire>,
    linger: Option<Linger>,
}

struct Linger {
    until: Pin<Box<tokio::time::Sleep>>,
    bytes_left: usize,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.stream.poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.wire.received();
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        };
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(self.stream.poll_shutdown(context))?;
            if !self.wire.lingering.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
            let until = Box::pin(tokio::time::sleep(LINGER));
            self.linger = Some(Linger { until, bytes_left: LINGER_BYTES_MAX });
        }
        self.poll_linger(context).map(Ok)
    }
}

impl Watched {
    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(_))) {
            self.wire.sent();
        }
        written
    }

    /// Reads and drops until the client is done, or time or bytes run out.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(linger) = &mut self.linger else { return Poll::Ready(()) };
        let mut scratch = [0; 16 << 10];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match self.stream.poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    linger.bytes_left = linger.bytes_left.saturating_sub(buffer.filled().len());
                    if linger.bytes_left == 0 {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return linger.until.as_mut().poll(context),
            }
        }
    }
}

impl Stream {
    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            head_timeout: Duration::from_millis(20),
            idle_timeout: Duration::from_millis(60),
            ..Limits::default()
        }
    }

    #[test]
    fn a_slow_head_is_stuck_and_silence_is_idle() {
        let wire = Wire::new(false);
        assert_eq!(wire.verdict(&limits()), Verdict::Fine);
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(wire.verdict(&limits()), Verdict::Stuck);
        let serving = wire.begin(Version::HTTP_11);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(wire.verdict(&limits()), Verdict::Fine);
        drop(serving);
        assert_eq!(wire.verdict(&limits()), Verdict::Fine);
        std::thread::sleep(Duration::from_millis(80));
        assert_eq!(wire.verdict(&limits()), Verdict::Idle);
        wire.received();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(wire.verdict(&limits()), Verdict::Stuck);
    }

    #[test]
    fn pings_between_streams_are_no_heads() {
        let wire = Wire::new(false);
        drop(wire.begin(Version::HTTP_2));
        wire.received();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(wire.verdict(&limits()), Verdict::Fine);
    }
}
