//! What is known about a connection while it is served: when bytes moved, what it serves, whether its client is known.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use hyper::Version;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::config::Limits;
use crate::net::stream::Stream;

/// The slowest that a client may take a long answer, on top of [`Limits::answer_timeout`].
const ANSWER_BYTES_PER_SECOND_MIN: u64 = 32 << 10;

/// Requests of a known client before its connection gets a thread: a single one is not worth it.
const REQUESTS_BEFORE_THREAD: u32 = 2;
/// Before it asks again when there was none.
const REQUESTS_BETWEEN_MOVES: u32 = 64;

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
pub(super) enum Verdict {
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

    /// The connection is open and its requests are about to be served.
    pub(super) fn connected(&self, stream: Weak<Mutex<Stream>>, is_https: bool) {
        self.https.store(is_https, Ordering::Relaxed);
        self.stream.get_or_init(|| stream);
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
        stream.socket().has_hung_up()
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
    pub(super) fn may_move(&self) -> bool {
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

    pub(super) fn is_lingering(&self) -> bool {
        self.lingering.load(Ordering::Relaxed)
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

    /// The socket takes no more for now.
    pub(super) fn blocked(&self) {
        if self.blocked_at.load(Ordering::Relaxed) == 0 {
            self.blocked_at.store(self.now() + 1, Ordering::Relaxed);
        }
    }

    pub(super) fn verdict(&self, limits: &Limits) -> Verdict {
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
