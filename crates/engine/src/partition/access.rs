//! Whether a container takes writes: from all clients, from nobody for a moment, or from a refactoring alone.
//!
//! A refactoring that exchanges two containers holds the writers of one meanwhile. It closes the container that it
//! fills and the one that it replaces. A write to a held or closed container fails like one that meets a split: nothing
//! was done, and the caller looks up the container again. The leader of a partition checks the state, so after a
//! barrier ([`PartitionSet::wait_for_barrier`](super::PartitionSet::wait_for_barrier)) no write is committed that the state
//! forbids.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Of all partitions of a container.
#[derive(Default)]
pub(crate) struct ContainerAccess {
    state: AtomicU8,
    /// Held while the state changes.
    changing: Mutex<()>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessState {
    Open = 0,
    /// Nothing is written.
    Held = 1,
    /// A refactoring writes, and nobody else.
    Closed = 2,
}

impl ContainerAccess {
    pub fn state(&self) -> AccessState {
        match self.state.load(Ordering::Acquire) {
            0 => AccessState::Open,
            1 => AccessState::Held,
            _ => AccessState::Closed,
        }
    }

    pub fn set(&self, state: AccessState) {
        let _changing = self.changing.lock();
        self.state.store(state as u8, Ordering::Release);
        self.changed.notify_all();
    }

    /// Returns when writers are not held, or after a time.
    pub fn wait_while_held(&self, time_max: Duration) {
        let deadline = Instant::now() + time_max;
        let mut changing = self.changing.lock();
        while self.state() == AccessState::Held {
            if self.changed.wait_until(&mut changing, deadline).timed_out() {
                return;
            }
        }
    }
}
