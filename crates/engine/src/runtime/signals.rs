//! How the threads of background work are woken, paused and stopped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Tells a worker's thread that there is something to do, or that it is to pause or stop.
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
    /// There is something to do.
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

    /// Waits for a time; false as soon as the worker is to stop or to pause.
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

/// The workers that act on what the catalog says.
#[derive(Clone, Default)]
pub(crate) struct CatalogWorkers {
    /// Makes jobs of what the catalog leaves to do.
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
