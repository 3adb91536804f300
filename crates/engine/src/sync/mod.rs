//! Locks, condition variables, atomics, hashing and sleeping of the concurrent core.
//!
//! These are the very types of `parking_lot` and of the standard library: this room has no types of its own, so it costs
//! nothing. Only the feature `schedules`, which the explorer of schedules sets (ADR 26), puts others in their place: every use
//! of a lock or an atomic is then a point at which another thread may go on.

#[cfg(feature = "schedules")]
mod explored; // the same under the explorer
#[cfg(feature = "schedules")]
pub(crate) mod races; // known races that can be put back

#[cfg(not(feature = "schedules"))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(feature = "schedules"))]
pub(crate) use std::{hash::RandomState, sync::atomic, thread::sleep};

#[cfg(feature = "schedules")]
pub(crate) use explored::{Condvar, Mutex, MutexGuard, RandomState, RwLock, atomic, sleep};

/// Parts that a table is divided into so that threads rarely meet in one. The explorer wants them to meet, and makes a
/// table for every schedule.
pub(crate) const fn shards(count: usize) -> usize {
    if cfg!(feature = "schedules") { 2 } else { count }
}

/// Items that a job writes in one commit. The explorer has few items and wants several commits of them, too.
pub(crate) fn chunk(count: usize) -> usize {
    #[cfg(feature = "schedules")]
    let count = explored::chunk(count);
    count
}

#[cfg(all(test, not(feature = "schedules")))]
mod tests {
    use std::any::TypeId;

    use crate::sync;

    /// What releases use is what it says: nothing is wrapped.
    #[test]
    fn the_types_are_those_of_parking_lot_and_std() {
        let same = [
            (TypeId::of::<sync::Mutex<u8>>(), TypeId::of::<parking_lot::Mutex<u8>>()),
            (
                TypeId::of::<sync::MutexGuard<'static, u8>>(),
                TypeId::of::<parking_lot::MutexGuard<'static, u8>>(),
            ),
            (TypeId::of::<sync::RwLock<u8>>(), TypeId::of::<parking_lot::RwLock<u8>>()),
            (TypeId::of::<sync::Condvar>(), TypeId::of::<parking_lot::Condvar>()),
            (TypeId::of::<sync::RandomState>(), TypeId::of::<std::hash::RandomState>()),
            (TypeId::of::<sync::atomic::AtomicU64>(), TypeId::of::<std::sync::atomic::AtomicU64>()),
        ];
        assert!(same.iter().all(|(ours, theirs)| ours == theirs));
    }
}
