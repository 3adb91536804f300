//! The interface of `parking_lot` over the primitives of the explorer.
//!
//! A wait with a deadline ends by it whenever the schedule says so: there is no time here.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use shuttle::rand::{Rng, thread_rng};
pub(crate) use shuttle::sync::atomic;

/// Without chance, so that a schedule can be run again.
pub(crate) type RandomState = BuildHasherDefault<DefaultHasher>;

/// One of so many waits with a deadline ends by it.
const TIMEOUT_ONE_IN: u32 = 6;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// Empty only while [`Condvar::wait`] has it.
pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

#[derive(Debug, Default)]
pub(crate) struct Condvar(shuttle::sync::Condvar);

pub(crate) struct WaitTimeoutResult(bool);

#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("nobody looks while it waits")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("nobody looks while it waits")
    }
}

impl Condvar {
    pub fn new() -> Condvar {
        Condvar::default()
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("held");
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _deadline: Instant) -> WaitTimeoutResult {
        let is_over = thread_rng().gen_ratio(1, TIMEOUT_ONE_IN);
        if !is_over {
            self.wait(guard);
        }
        WaitTimeoutResult(is_over)
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl WaitTimeoutResult {
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl<T> RwLock<T> {
    pub fn new(value: T) -> RwLock<T> {
        RwLock(shuttle::sync::RwLock::new(value))
    }

    pub fn read(&self) -> shuttle::sync::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> shuttle::sync::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time passes: others go on.
pub(crate) fn sleep(_time: Duration) {
    shuttle::thread::yield_now();
}

/// So many items, or fewer.
pub(super) fn chunk(count: usize) -> usize {
    if thread_rng().gen_ratio(1, 2) { 2 } else { count }
}
