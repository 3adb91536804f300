//! Signals that wake, pause and stop the threads of background work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Wakes the thread of a worker, or asks it to pause or stop.
#[derive(Default)]
pub(crate) struct Signal {
    requested: Mutex<Requested>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
struct Requested {
    work: bool,
    pausing: bool,
    stopping: bool,
}

impl Signal {
    /// Reports new work.
    pub fn wake(&self) {
        self.requested.lock().work = true;
        self.changed.notify_all();
    }

    pub fn stop(&self) {
        self.requested.lock().stopping = true;
        self.changed.notify_all();
    }

    pub fn pause(&self, pausing: bool) {
        let mut requested = self.requested.lock();
        requested.pausing = pausing;
        requested.work |= !pausing;
        self.changed.notify_all();
    }

    /// Whether the worker is to stop or to pause.
    pub fn is_interrupted(&self) -> bool {
        let requested = *self.requested.lock();
        requested.stopping || requested.pausing
    }

    /// Waits for a time; false: the worker has to stop or pause.
    pub fn sleep(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let mut requested = self.requested.lock();
        while !requested.stopping && !requested.pausing && !time.is_zero() {
            if self.changed.wait_until(&mut requested, deadline).timed_out() {
                break;
            }
        }
        !requested.stopping && !requested.pausing
    }

    /// Waits for the next round; false when there is none.
    pub fn wait(&self, time: Option<Duration>) -> bool {
        let deadline = time.map(|time| Instant::now() + time);
        let mut requested = self.requested.lock();
        while !requested.stopping && (requested.pausing || !requested.work) {
            match deadline.filter(|_| !requested.pausing) {
                Some(deadline) if self.changed.wait_until(&mut requested, deadline).timed_out() => break,
                Some(_) => {}
                None => self.changed.wait(&mut requested),
            }
        }
        requested.work = false;
        !requested.stopping
    }
}

/// The workers that act on changes of the catalog.
#[derive(Clone, Default)]
pub(crate) struct CatalogWorkers {
    /// Creates jobs for the marks in the catalog.
    pub catalog: Arc<Signal>,
    pub vector_indexes: Arc<Signal>,
    /// Only when there is a new view.
    pub views: Arc<Signal>,
}

impl CatalogWorkers {
    /// The catalog has changed.
    pub fn wake(&self) {
        self.catalog.wake();
        self.vector_indexes.wake();
    }
}
