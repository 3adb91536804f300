//! Whoever waits for a script, and may leave before it ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two questions whether somebody still waits: a question may be a system call.
const ASK_INTERVAL: Duration = Duration::from_millis(50);

/// Asked now and then, on any thread, whether it is gone; a script for nobody is ended as if its time were over. The
/// default never leaves.
#[derive(Clone, Default)]
pub struct Caller(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Caller {
    pub fn asking(is_gone: impl Fn() -> bool + Send + Sync + 'static) -> Caller {
        Caller(Some(Arc::new(is_gone)))
    }
}

/// A [`Caller`] while something runs for it.
pub(crate) struct WatchedCaller {
    caller: Caller,
    ask_at: Instant,
}

impl WatchedCaller {
    pub(crate) fn new(caller: Caller, now: Instant) -> WatchedCaller {
        WatchedCaller { caller, ask_at: now + ASK_INTERVAL }
    }

    /// When to ask, if ever.
    pub(crate) fn ask_at(&self) -> Option<Instant> {
        self.caller.0.as_ref().map(|_| self.ask_at)
    }

    /// Asks when it is time to.
    pub(crate) fn is_gone(&mut self, now: Instant) -> bool {
        let Some(is_gone) = self.caller.0.as_ref().filter(|_| now >= self.ask_at) else { return false };
        self.ask_at = now + ASK_INTERVAL;
        is_gone()
    }
}
