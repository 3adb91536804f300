//! Ending work that no request waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quire_sql::{Cancellation, SqlError, ThreadWatch};

use super::EngineError;

/// Cancels work that no client waits for: it ends soon with [`EngineError::Cancelled`], and an atomic operation is then
/// not done at all.
#[derive(Clone)]
pub struct Cancel {
    /// `None`: it never is.
    state: Option<Arc<CancelState>>,
    deadline: Option<Instant>,
}

/// With a check whether the client has disconnected. It is called at intervals, because it may be a system call.
struct CancelState<F: ?Sized = dyn Fn() -> bool + Send + Sync> {
    is_cancelled: AtomicBool,
    /// Between two questions; `None`: nobody is asked.
    interval: Option<Duration>,
    began: Instant,
    /// When to ask again, in microseconds since it began.
    ask_at_micros: AtomicU64,
    is_gone: F,
}

impl Default for Cancel {
    fn default() -> Cancel {
        Cancel::with(None, || false)
    }
}

impl Cancel {
    /// Between two questions.
    pub(crate) const ASK_INTERVAL: Duration = Duration::from_millis(20);

    /// Also asks, on the thread that works and now and then, whether the client has gone.
    pub fn asking(is_gone: impl Fn() -> bool + Send + Sync + 'static) -> Cancel {
        Cancel::asking_every(Cancel::ASK_INTERVAL, is_gone)
    }

    /// The same with at least this time between two questions. Zero: at every check.
    pub fn asking_every(interval: Duration, is_gone: impl Fn() -> bool + Send + Sync + 'static) -> Cancel {
        Cancel::with(Some(interval), is_gone)
    }

    fn with(interval: Option<Duration>, is_gone: impl Fn() -> bool + Send + Sync + 'static) -> Cancel {
        let (is_cancelled, ask_at_micros) = (AtomicBool::new(false), AtomicU64::new(0));
        let state = CancelState { is_cancelled, interval, began: Instant::now(), ask_at_micros, is_gone };
        Cancel { state: Some(Arc::new(state)), deadline: None }
    }

    /// For work that is never cancelled.
    pub fn never() -> Cancel {
        Cancel { state: None, deadline: None }
    }

    /// A part of this work, which also ends when its time comes.
    pub(crate) fn until(&self, deadline: Instant) -> Cancel {
        let whole = self.clone();
        let part = Cancel::asking(move || whole.check_disconnect());
        Cancel { deadline: Some(deadline), ..part }
    }

    pub fn cancel(&self) {
        if let Some(state) = &self.state {
            state.is_cancelled.store(true, Ordering::Relaxed);
        }
    }

    pub fn is_cancelled(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.is_cancelled.load(Ordering::Relaxed))
    }

    /// Whether to end; asks when it is time to.
    pub(crate) fn check_disconnect(&self) -> bool {
        let is_over = || self.deadline.is_some_and(|at| Instant::now() >= at);
        if !self.is_cancelled() && (self.state.as_ref().is_some_and(|state| state.is_gone()) || is_over()) {
            self.cancel();
        }
        self.is_cancelled()
    }

    /// Runs work on this thread whose evaluations outside of queries (of models, computed properties, conditions) and commits of
    /// items end when it is cancelled.
    pub fn watch<T>(&self, work: impl FnOnce() -> T) -> T {
        ThreadWatch::during(Arc::new(self.clone()), work)
    }

    /// Whether there is a client to ask about.
    pub(crate) fn asks(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.interval.is_some())
    }

    /// The same for work that ends with an error.
    pub fn check(&self) -> Result<(), EngineError> {
        if self.check_disconnect() { Err(EngineError::Cancelled) } else { Ok(()) }
    }
}

impl Cancellation for Cancel {
    fn check(&self) -> Result<(), SqlError> {
        if self.check_disconnect() { Err(SqlError::Cancelled) } else { Ok(()) }
    }
}

impl CancelState {
    fn is_gone(&self) -> bool {
        let Some(interval) = self.interval else { return false };
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        if micros < self.ask_at_micros.load(Ordering::Relaxed) {
            return false;
        }
        let interval = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        let next = micros.saturating_add(interval);
        self.ask_at_micros.store(next, Ordering::Relaxed);
        (self.is_gone)()
    }
}
