//! One connection: plain or TLS, HTTP/1.1 or HTTP/2, watched for clients that are slow or silent.
//!
//! hyper parses; how long it may take is decided here, by when bytes last moved and whether a request is being served:
//! a head must be complete soon after its first byte, a connection may be silent between requests only so long, and an
//! answer that the client does not take counts as silence.
//!
//! Every connection begins on the shared runtime, where it takes one file descriptor. One of HTTP/1 whose client is known
//! may go on elsewhere (see [`crate::threads`]): its socket is taken from one runtime and registered with another, and
//! hyper, which owns the stream, does not notice.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::Version;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio_rustls::server::TlsStream;

use crate::config::Limits;

/// How long, and for how many bytes, a closing connection listens to a client that is still sending, so that the
/// reset that follows does not take the answer from it.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 64 << 20;

/// The slowest that a client may take a long answer, on top of [`Limits::answer_timeout`].
const ANSWER_BYTES_PER_SECOND_MIN: u64 = 32 << 10;

/// Requests of a known client before its connection gets a thread: a single one is not worth it.
const REQUESTS_BEFORE_THREAD: u32 = 2;
/// Before it asks again when there was none.
const REQUESTS_BETWEEN_MOVES: u32 = 64;

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
    let Some(tls) = tls else { return Some(Stream::Plain(Socket(Some(stream)))) };
    let accepted = tokio::time::timeout(limits.head_timeout, async {
        let mut first = [0];
        let read = stream.peek(&mut first).await?;
        let socket = Socket(Some(stream));
        match read {
            1 if first[0] == TLS_HANDSHAKE => Ok(Stream::Tls(Box::new(tls.accept(socket).await?))),
            1 => Ok(Stream::Plain(socket)),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
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

/// What serves the requests of a connection.
pub(crate) trait Service:
    hyper::service::Service<
        hyper::Request<hyper::body::Incoming>,
        Response = crate::request::Response,
        Error = std::convert::Infallible,
        Future: Send + 'static,
    > + Send
    + 'static
{
}

impl<S> Service for S where
    S: hyper::service::Service<
            hyper::Request<hyper::body::Incoming>,
            Response = crate::request::Response,
            Error = std::convert::Infallible,
            Future: Send + 'static,
        > + Send
        + 'static
{
}

/// A connection being served, on whichever runtime.
pub(crate) struct Session<S: Service> {
    // First, so that it is dropped first: the socket is closed with it.
    connection: Pin<Box<auto::Connection<'static, TokioIo<Watched>, S, TokioExecutor>>>,
    stream: Weak<Mutex<Stream>>,
    wire: Arc<Wire>,
    phase: watch::Receiver<Phase>,
}

/// Why [`Session::run`] returned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ended,
    /// The client is known and waits for nothing: the connection may go on with a thread of its own.
    MayMove,
}

impl<S: Service> Session<S> {
    pub fn new(
        protocols: &auto::Builder<TokioExecutor>,
        stream: Stream,
        wire: Arc<Wire>,
        phase: watch::Receiver<Phase>,
        service: S,
    ) -> Session<S> {
        wire.https.store(matches!(stream, Stream::Tls(_)), Ordering::Relaxed);
        let shared = Arc::new(Mutex::new(stream));
        let stream = Arc::downgrade(&shared);
        wire.stream.get_or_init(|| stream.clone());
        let io = TokioIo::new(Watched { stream: shared, wire: Arc::clone(&wire), linger: None });
        let connection = Box::pin(protocols.serve_connection(io, service).into_owned());
        Session { connection, stream, wire, phase }
    }

    /// Serves requests until the client leaves, the watch says so, or the server ends.
    pub async fn run(&mut self, limits: &Limits, may_move: bool) -> Outcome {
        let Session { connection, wire, phase, .. } = self;
        let tick = (limits.head_timeout.min(limits.idle_timeout) / 4).max(Duration::from_millis(10));
        let mut watch = tokio::time::interval_at(tokio::time::Instant::now() + tick, tick);
        loop {
            let served = std::future::poll_fn(|context| match connection.as_mut().poll(context) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                Poll::Pending if may_move && wire.may_move() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            tokio::select! {
                biased;
                ended = served => {
                    let Some(ended) = ended else { return Outcome::MayMove };
                    if let Err(error) = ended {
                        tracing::debug!(error, "connection ended");
                    }
                    return Outcome::Ended;
                }
                changed = phase.changed() => match (changed, *phase.borrow()) {
                    (Ok(()), Phase::Serving) => {}
                    (Ok(()), Phase::Draining) => connection.as_mut().graceful_shutdown(),
                    (Ok(()), Phase::Ending) | (Err(_), _) => return Outcome::Ended,
                },
                () = wire.cut.notified() => return Outcome::Ended,
                _ = watch.tick() => match wire.verdict(limits) {
                    Verdict::Fine => {}
                    Verdict::Idle => connection.as_mut().graceful_shutdown(),
                    Verdict::Stuck => return Outcome::Ended,
                },
            }
        }
    }

    /// Takes the socket from this runtime, to be given to [`Session::attach`] on another.
    pub fn detach(&mut self) -> io::Result<std::net::TcpStream> {
        let stream = self.stream.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        let mut stream = stream.lock();
        stream.socket().0.take().ok_or(io::ErrorKind::NotConnected)?.into_std()
    }

    pub fn attach(&mut self, socket: std::net::TcpStream) -> io::Result<()> {
        let socket = TcpStream::from_std(socket)?;
        if let Some(stream) = self.stream.upgrade() {
            stream.lock().socket().0 = Some(socket);
        }
        Ok(())
    }
}

/// What is known about a connection while it is served; shared by its bytes and its requests.
pub(crate) struct Wire {
    /// In the order in which connections were opened.
    pub id: u64,
    https: AtomicBool,
    /// A request was authenticated.
    known: AtomicBool,
    opened: Instant,
    /// Milliseconds since `opened` when bytes last moved, either way.
    moved_at: AtomicU64,
    /// The same when a request was last answered.
    served_at: AtomicU64,
    /// When the first byte of the head now being read came, plus one; 0 when no head is being read.
    head_at: AtomicU64,
    /// The same when the socket first took no more, plus one; 0 while it takes what is written.
    blocked_at: AtomicU64,
    /// Long bodies that have not come and long answers that are not sent.
    transfers: Mutex<BTreeMap<u64, TransferTimes>>,
    transfer_count: AtomicU64,
    serving: AtomicU32,
    served: AtomicU32,
    /// How many requests must be served before the connection asks for a thread.
    move_at: AtomicU32,
    /// HTTP/2: bytes between requests are not the start of a head.
    multiplexed: AtomicBool,
    lingering: AtomicBool,
    /// Gone when the connection is.
    stream: OnceLock<Weak<Mutex<Stream>>>,
    #[cfg(test)]
    is_cut: AtomicBool,
    cut: Notify,
}

#[derive(Clone, Copy)]
struct TransferTimes {
    begun: u64,
    /// When it must be over.
    deadline: u64,
}

/// A long body until it has come, or a long answer until it is sent.
pub(crate) struct Transfer {
    wire: Arc<Wire>,
    number: u64,
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
    pub fn new(id: u64) -> Arc<Wire> {
        Arc::new(Wire {
            id,
            https: AtomicBool::new(false),
            known: AtomicBool::new(false),
            opened: Instant::now(),
            moved_at: AtomicU64::new(0),
            served_at: AtomicU64::new(0),
            head_at: AtomicU64::new(1),
            blocked_at: AtomicU64::new(0),
            transfers: Mutex::default(),
            transfer_count: AtomicU64::new(0),
            serving: AtomicU32::new(0),
            served: AtomicU32::new(0),
            move_at: AtomicU32::new(REQUESTS_BEFORE_THREAD),
            multiplexed: AtomicBool::new(false),
            lingering: AtomicBool::new(false),
            stream: OnceLock::new(),
            #[cfg(test)]
            is_cut: AtomicBool::new(false),
            cut: Notify::new(),
        })
    }

    pub fn is_https(&self) -> bool {
        self.https.load(Ordering::Relaxed)
    }

    /// True for the first time.
    pub fn set_known(&self) -> bool {
        !self.known.load(Ordering::Relaxed) && !self.known.swap(true, Ordering::Relaxed)
    }

    /// Whether the client has hung up, or reset the connection. Costs a system call; from any thread.
    pub fn client_is_gone(&self) -> bool {
        let Some(stream) = self.stream.get() else { return false };
        let Some(stream) = stream.upgrade() else { return true };
        // Bytes are being moved right now: the next time will do.
        let Some(mut stream) = stream.try_lock() else { return false };
        stream.socket().0.as_ref().is_some_and(has_hung_up)
    }

    /// A long answer begins: the connection ends if the client does not take it in time.
    pub fn sending(self: &Arc<Wire>, bytes: usize, limits: &Limits) -> Transfer {
        let extra = Duration::from_millis(bytes as u64 * 1000 / ANSWER_BYTES_PER_SECOND_MIN);
        self.transfer(limits.answer_timeout + extra)
    }

    /// A long body begins.
    pub fn receiving(self: &Arc<Wire>, limits: &Limits) -> Transfer {
        // The reader gives up first, with an answer.
        self.transfer(2 * limits.body_timeout)
    }

    fn transfer(self: &Arc<Wire>, time: Duration) -> Transfer {
        let number = self.transfer_count.fetch_add(1, Ordering::Relaxed);
        let begun = self.now();
        let deadline = begun.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self.transfers.lock().insert(number, TransferTimes { begun, deadline });
        Transfer { wire: Arc::clone(self), number }
    }

    /// How long the oldest body or answer is under way.
    pub fn transfer_age(&self) -> Option<Duration> {
        let begun = self.transfers.lock().values().map(|transfer| transfer.begun).min()?;
        Some(Duration::from_millis(self.now().saturating_sub(begun)))
    }

    /// No thread could be had: later perhaps.
    pub fn move_later(&self) {
        let served = self.served.load(Ordering::Relaxed);
        self.move_at.store(served.saturating_add(REQUESTS_BETWEEN_MOVES), Ordering::Relaxed);
    }

    /// Whether the connection is worth a thread: HTTP/1, known, between two requests.
    fn may_move(&self) -> bool {
        self.served.load(Ordering::Relaxed) >= self.move_at.load(Ordering::Relaxed)
            && self.serving.load(Ordering::Relaxed) == 0
            && self.known.load(Ordering::Relaxed)
            && !self.multiplexed.load(Ordering::Relaxed)
            && !self.lingering.load(Ordering::Relaxed)
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
        #[cfg(test)]
        self.is_cut.store(true, Ordering::Relaxed);
        self.cut.notify_one();
    }

    /// Ready when the connection is to end at once.
    pub async fn until_cut(&self) {
        self.cut.notified().await;
    }

    #[cfg(test)]
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
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
        self.blocked_at.store(0, Ordering::Relaxed);
    }

    /// The socket takes no more for now.
    fn blocked(&self) {
        if self.blocked_at.load(Ordering::Relaxed) == 0 {
            self.blocked_at.store(self.now() + 1, Ordering::Relaxed);
        }
    }

    fn verdict(&self, limits: &Limits) -> Verdict {
        let now = self.now();
        let since = |at: u64| Duration::from_millis(now.saturating_sub(at));
        let blocked_at = self.blocked_at.load(Ordering::Relaxed);
        if blocked_at > 0 && since(blocked_at - 1) > limits.answer_timeout {
            return Verdict::Stuck;
        }
        if self.transfers.lock().values().any(|transfer| transfer.deadline < now) {
            return Verdict::Stuck;
        }
        if self.serving.load(Ordering::Relaxed) > 0 {
            return Verdict::Fine;
        }
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
        self.0.served.fetch_add(1, Ordering::Relaxed);
        self.0.serving.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.wire.transfers.lock().remove(&self.number);
    }
}

/// Also when there are bytes before its end that nobody has read, as the goodbye of TLS.
fn has_hung_up(socket: &TcpStream) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    #[cfg(target_os = "linux")]
    const GONE: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);
    #[cfg(not(target_os = "linux"))]
    const GONE: PollFlags = PollFlags::HUP.union(PollFlags::ERR);
    let mut asked = [PollFd::new(socket, GONE)];
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&at_once)).is_ok_and(|count| count > 0 && asked[0].revents().intersects(GONE))
}

/// A socket that can be taken from one runtime and given to another. Empty only in between.
pub(crate) struct Socket(Option<TcpStream>);

pub(crate) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl Stream {
    fn socket(&mut self) -> &mut Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.get_mut().0,
        }
    }
}

impl Socket {
    fn get(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.0.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get()?.poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get()?.poll_shutdown(context)
    }
}

/// A stream that tells its [`Wire`] when bytes move. The lock is free but for a glance whether the client is there.
struct Watched {
    stream: Arc<Mutex<Stream>>,
    wire: Arc<Wire>,
    linger: Option<Linger>,
}

struct Linger {
    until: Pin<Box<tokio::time::Sleep>>,
    bytes_left: usize,
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut *self.stream.lock()).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.wire.received();
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.stream.lock()).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.stream.lock()).poll_write_vectored(context, slices);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.lock().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut *self.stream.lock()).poll_flush(context);
        if flushed.is_pending() {
            self.wire.blocked();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut *self.stream.lock()).poll_shutdown(context))?;
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
        match written {
            Poll::Ready(Ok(_)) => self.wire.sent(),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.wire.blocked(),
        }
        written
    }

    /// Reads and drops until the client is done, or time or bytes run out.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(linger) = &mut self.linger else { return Poll::Ready(()) };
        let mut scratch = [0; 16 << 10];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut *self.stream.lock()).poll_read(context, &mut buffer) {
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

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
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
        let wire = Wire::new(1);
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
    fn an_answer_that_is_taken_too_slowly_is_stuck() {
        let limits = Limits { answer_timeout: Duration::from_millis(20), ..limits() };
        let wire = Wire::new(1);
        let serving = wire.begin(Version::HTTP_2);
        let long = wire.sending(10 << 20, &limits);
        std::thread::sleep(Duration::from_millis(40));
        wire.sent();
        assert_eq!(wire.verdict(&limits), Verdict::Fine);
        assert!(wire.transfer_age().is_some_and(|age| age >= Duration::from_millis(40)));
        let short = wire.sending(0, &limits);
        std::thread::sleep(Duration::from_millis(40));
        wire.sent();
        assert_eq!(wire.verdict(&limits), Verdict::Stuck);
        drop(short);
        assert_eq!(wire.verdict(&limits), Verdict::Fine);
        wire.blocked();
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!(wire.verdict(&limits), Verdict::Stuck);
        drop((long, serving));
        assert_eq!(wire.transfer_age(), None);
    }

    #[test]
    fn pings_between_streams_are_no_heads() {
        let wire = Wire::new(1);
        drop(wire.begin(Version::HTTP_2));
        wire.received();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(wire.verdict(&limits()), Verdict::Fine);
    }
}
