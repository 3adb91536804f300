//! The state of one connection while it is served: when bytes moved, what it serves, whether it is authenticated.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use hyper::Version;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::config::Limits;
use crate::net::stream::Stream;

/// The slowest rate at which a client may read a long answer, on top of [`Limits::answer_timeout`].
const ANSWER_BYTES_PER_SECOND_MIN: u64 = 32 << 10;

/// Requests before an authenticated connection gets a thread: a single one is not worth it.
const REQUESTS_BEFORE_THREAD: u32 = 2;
/// Requests before it tries again when there was no thread.
const REQUESTS_BETWEEN_MOVES: u32 = 64;

/// Shared by the stream of a connection and its requests.
pub(crate) struct ConnectionState {
    /// In the order in which connections were opened.
    pub id: u64,
    https: AtomicBool,
    /// A request was authenticated.
    authenticated: AtomicBool,
    opened: Instant,
    /// Milliseconds since `opened` when bytes last moved, either way.
    moved_at: AtomicU64,
    /// The same when a request was last answered.
    served_at: AtomicU64,
    /// When the first byte of the head now being read came, plus one; 0 when no head is being read.
    head_at: AtomicU64,
    /// The same when the socket first took no more, plus one; 0 while it takes what is written.
    blocked_at: AtomicU64,
    /// Long bodies that are being received and long answers that are being sent.
    transfers: Mutex<BTreeMap<u64, TransferTimes>>,
    transfer_count: AtomicU64,
    serving: AtomicU32,
    served: AtomicU32,
    /// How many requests must be served before the connection may get a thread.
    move_at: AtomicU32,
    /// HTTP/2: bytes between requests are not the start of a head.
    multiplexed: AtomicBool,
    lingering: AtomicBool,
    /// Empty when the connection is closed.
    stream: OnceLock<Weak<Mutex<Stream>>>,
    #[cfg(test)]
    is_aborted: AtomicBool,
    abort: Notify,
}

#[derive(Clone, Copy)]
struct TransferTimes {
    begun: u64,
    /// When it must be over.
    deadline: u64,
}

/// A long body until it is received, or a long answer until it is sent.
pub(crate) struct Transfer {
    state: Arc<ConnectionState>,
    number: u64,
}

/// A request being served; it ends when this is dropped.
pub(crate) struct ActiveRequest(Arc<ConnectionState>);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    Active,
    Idle,
    Stalled,
}

impl ConnectionState {
    /// A client is expected to send a request at once, so the time of the first head counts from here.
    pub fn new(id: u64) -> Arc<ConnectionState> {
        Arc::new(ConnectionState {
            id,
            https: AtomicBool::new(false),
            authenticated: AtomicBool::new(false),
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
            is_aborted: AtomicBool::new(false),
            abort: Notify::new(),
        })
    }

    /// The connection is open and its requests are about to be served.
    pub(super) fn connected(&self, stream: Weak<Mutex<Stream>>, is_https: bool) {
        self.https.store(is_https, Ordering::Relaxed);
        self.stream.get_or_init(|| stream);
    }

    pub fn is_https(&self) -> bool {
        self.https.load(Ordering::Relaxed)
    }

    /// Whether it was not authenticated before.
    pub fn set_authenticated(&self) -> bool {
        !self.authenticated.load(Ordering::Relaxed) && !self.authenticated.swap(true, Ordering::Relaxed)
    }

    pub fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }

    /// Whether the client has closed or reset the connection. Costs a system call; works from any thread.
    pub fn is_closed_by_client(&self) -> bool {
        let Some(stream) = self.stream.get() else { return false };
        let Some(stream) = stream.upgrade() else { return true };
        // Bytes are being read or written right now: the next call will show.
        let Some(mut stream) = stream.try_lock() else { return false };
        stream.socket().is_closed_by_client()
    }

    /// A long answer begins: the connection is closed if the client does not read it in time.
    pub fn sending(self: &Arc<ConnectionState>, bytes: usize, limits: &Limits) -> Transfer {
        let extra = Duration::from_millis(bytes as u64 * 1000 / ANSWER_BYTES_PER_SECOND_MIN);
        self.transfer(limits.answer_timeout + extra)
    }

    /// A long body begins.
    pub fn receiving(self: &Arc<ConnectionState>, limits: &Limits) -> Transfer {
        // The reader of the body times out first, and answers.
        self.transfer(2 * limits.body_timeout)
    }

    fn transfer(self: &Arc<ConnectionState>, time: Duration) -> Transfer {
        let number = self.transfer_count.fetch_add(1, Ordering::Relaxed);
        let begun = self.now();
        let deadline = begun.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self.transfers.lock().insert(number, TransferTimes { begun, deadline });
        Transfer { state: Arc::clone(self), number }
    }

    /// For how long the oldest body or answer has been under way.
    pub fn transfer_age(&self) -> Option<Duration> {
        let begun = self.transfers.lock().values().map(|transfer| transfer.begun).min()?;
        Some(Duration::from_millis(self.now().saturating_sub(begun)))
    }

    /// There was no thread: tries again after some requests.
    pub fn move_later(&self) {
        let served = self.served.load(Ordering::Relaxed);
        self.move_at.store(served.saturating_add(REQUESTS_BETWEEN_MOVES), Ordering::Relaxed);
    }

    /// Whether the connection may get a thread: HTTP/1, authenticated, between two requests.
    pub(super) fn may_move(&self) -> bool {
        self.served.load(Ordering::Relaxed) >= self.move_at.load(Ordering::Relaxed)
            && self.serving.load(Ordering::Relaxed) == 0
            && self.authenticated.load(Ordering::Relaxed)
            && !self.multiplexed.load(Ordering::Relaxed)
            && !self.lingering.load(Ordering::Relaxed)
    }

    pub fn begin_request(self: &Arc<ConnectionState>, version: Version) -> ActiveRequest {
        self.serving.fetch_add(1, Ordering::Relaxed);
        self.head_at.store(0, Ordering::Relaxed);
        if version == Version::HTTP_2 {
            self.multiplexed.store(true, Ordering::Relaxed);
        }
        ActiveRequest(self.clone())
    }

    /// Goes on reading for a while after the last answer.
    pub fn linger(&self) {
        self.lingering.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_lingering(&self) -> bool {
        self.lingering.load(Ordering::Relaxed)
    }

    /// Closes the connection at once, without the answer to what it serves.
    pub fn abort(&self) {
        #[cfg(test)]
        self.is_aborted.store(true, Ordering::Relaxed);
        self.abort.notify_one();
    }

    /// Ready when the connection is to be closed at once.
    pub async fn aborted(&self) {
        self.abort.notified().await;
    }

    #[cfg(test)]
    pub fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn received(&self) {
        let now = self.now();
        self.moved_at.store(now, Ordering::Relaxed);
        let between = self.serving.load(Ordering::Relaxed) == 0 && !self.multiplexed.load(Ordering::Relaxed);
        if between && self.head_at.load(Ordering::Relaxed) == 0 {
            self.head_at.store(now + 1, Ordering::Relaxed);
        }
    }

    pub(super) fn sent(&self) {
        self.moved_at.store(self.now(), Ordering::Relaxed);
        self.blocked_at.store(0, Ordering::Relaxed);
    }

    /// The socket accepts no more bytes for now.
    pub(super) fn blocked(&self) {
        if self.blocked_at.load(Ordering::Relaxed) == 0 {
            self.blocked_at.store(self.now() + 1, Ordering::Relaxed);
        }
    }

    pub(super) fn liveness(&self, limits: &Limits) -> Liveness {
        let now = self.now();
        let since = |at: u64| Duration::from_millis(now.saturating_sub(at));
        let blocked_at = self.blocked_at.load(Ordering::Relaxed);
        if blocked_at > 0 && since(blocked_at - 1) > limits.answer_timeout {
            return Liveness::Stalled;
        }
        if self.transfers.lock().values().any(|transfer| transfer.deadline < now) {
            return Liveness::Stalled;
        }
        if self.serving.load(Ordering::Relaxed) > 0 {
            return Liveness::Active;
        }
        let head_at = self.head_at.load(Ordering::Relaxed);
        if head_at > 0 && since(head_at - 1) > limits.head_timeout {
            return Liveness::Stalled;
        }
        // Pings move bytes on an HTTP/2 connection that serves no requests.
        let multiplexed = self.multiplexed.load(Ordering::Relaxed);
        let last = if multiplexed { &self.served_at } else { &self.moved_at };
        let silent = since(last.load(Ordering::Relaxed));
        if silent > 2 * limits.idle_timeout {
            return Liveness::Stalled; // even a graceful shutdown needs a client that reads its last answer
        }
        if silent > limits.idle_timeout { Liveness::Idle } else { Liveness::Active }
    }
}

impl Drop for ActiveRequest {
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
        self.state.transfers.lock().remove(&self.number);
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
    fn a_slow_head_is_stalled_and_silence_is_idle() {
        let state = ConnectionState::new(1);
        assert_eq!(state.liveness(&limits()), Liveness::Active);
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(state.liveness(&limits()), Liveness::Stalled);
        let request = state.begin_request(Version::HTTP_11);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(state.liveness(&limits()), Liveness::Active);
        drop(request);
        assert_eq!(state.liveness(&limits()), Liveness::Active);
        std::thread::sleep(Duration::from_millis(80));
        assert_eq!(state.liveness(&limits()), Liveness::Idle);
        state.received();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(state.liveness(&limits()), Liveness::Stalled);
    }

    #[test]
    fn an_answer_that_is_read_too_slowly_is_stalled() {
        let limits = Limits { answer_timeout: Duration::from_millis(20), ..limits() };
        let state = ConnectionState::new(1);
        let request = state.begin_request(Version::HTTP_2);
        let long = state.sending(10 << 20, &limits);
        std::thread::sleep(Duration::from_millis(40));
        state.sent();
        assert_eq!(state.liveness(&limits), Liveness::Active);
        assert!(state.transfer_age().is_some_and(|age| age >= Duration::from_millis(40)));
        let short = state.sending(0, &limits);
        std::thread::sleep(Duration::from_millis(40));
        state.sent();
        assert_eq!(state.liveness(&limits), Liveness::Stalled);
        drop(short);
        assert_eq!(state.liveness(&limits), Liveness::Active);
        state.blocked();
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!(state.liveness(&limits), Liveness::Stalled);
        drop((long, request));
        assert_eq!(state.transfer_age(), None);
    }

    #[test]
    fn pings_between_streams_are_not_heads() {
        let state = ConnectionState::new(1);
        drop(state.begin_request(Version::HTTP_2));
        state.received();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(state.liveness(&limits()), Liveness::Active);
    }
}
