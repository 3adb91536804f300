//! The caller that waits for a script, and may disconnect before it ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two checks whether the caller still waits: a check may be a system call.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Checked now and then, on any thread, for whether the caller has disconnected; a script without a caller is ended
/// as if its time were over. The default never disconnects.
#[derive(Clone, Default)]
pub struct Caller(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Caller {
    pub fn with_check(is_gone: impl Fn() -> bool + Send + Sync + 'static) -> Caller {
        Caller(Some(Arc::new(is_gone)))
    }
}

/// A [`Caller`] while something runs for it.
pub(crate) struct WatchedCaller {
    caller: Caller,
    next_check: Instant,
}

impl WatchedCaller {
    pub(crate) fn new(caller: Caller, now: Instant) -> WatchedCaller {
        WatchedCaller { caller, next_check: now + CHECK_INTERVAL }
    }

    /// The time of the next check, if any.
    pub(crate) fn next_check(&self) -> Option<Instant> {
        self.caller.0.as_ref().map(|_| self.next_check)
    }

    /// Checks when it is time to.
    pub(crate) fn is_gone(&mut self, now: Instant) -> bool {
        let Some(is_gone) = self.caller.0.as_ref().filter(|_| now >= self.next_check) else { return false };
        self.next_check = now + CHECK_INTERVAL;
        is_gone()
    }
}
