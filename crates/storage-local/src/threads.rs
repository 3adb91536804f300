//! Counters of a storage that outlive a reopening, and panics of its threads.
//!
//! A panic ends no thread of the storage for good: the thread that watches the store starts again, the flusher makes it
//! reopen the store, and the thread that reclaims space is started by the next hint. Each is logged and counted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct StorageTotals {
    /// How often the store was reopened.
    pub(crate) recoveries: AtomicU64,
    pub(crate) thread_panics: AtomicU64,
    #[cfg(test)]
    panics_wanted: parking_lot::Mutex<Vec<PanicPoint>>,
}

/// Where tests let a thread panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PanicPoint {
    Watch,
    Reopen,
    Flush,
    Reclaim,
}

impl StorageTotals {
    /// Runs the work of a thread. `Err`: it panicked.
    pub(crate) fn run_thread(&self, thread: &'static str, work: impl FnOnce()) -> Result<(), Panicked> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|reason| {
            let text = reason.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let reason = text.or_else(|| reason.downcast_ref::<String>().cloned()).unwrap_or_default();
            tracing::error!(thread, reason, "a thread of the storage panicked");
            self.thread_panics.fetch_add(1, Ordering::Relaxed);
            Panicked
        })
    }

    #[cfg(test)]
    pub(crate) fn panic_once(&self, point: PanicPoint) {
        self.panics_wanted.lock().push(point);
    }

    #[cfg(test)]
    pub(crate) fn panic_if_wanted(&self, point: PanicPoint) {
        let mut wanted = self.panics_wanted.lock();
        if let Some(at) = wanted.iter().position(|wanted| *wanted == point) {
            wanted.remove(at);
            drop(wanted);
            panic!("a test wants a panic at {point:?}");
        }
    }

    #[cfg(not(test))]
    pub(crate) fn panic_if_wanted(&self, _: PanicPoint) {}
}

#[derive(Debug)]
pub(crate) struct Panicked;
