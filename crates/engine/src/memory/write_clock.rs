//! When items were last written: one clock for all caches that keep what a snapshot showed.
//!
//! A cache divides its items into [`WriteSlot`]s. A write counts itself as in progress in the slots of its items **before** its commit
//! can become visible. It stamps these slots with the next time of the clock when its outcome is certain. A reader reads the
//! clock before it takes its snapshot.
//!
//! Invariant: where a slot has no write in progress and no stamp later than that reading, its items are what the snapshot shows.
//! The cache checks this and inserts under one mutex per slot or group of slots.

use crate::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct WriteClock(AtomicU64);

/// The clock as it was before a snapshot was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WriteTime(u64);

impl WriteTime {
    pub const ZERO: WriteTime = WriteTime(0);
}

/// The writes of some items of a cache.
#[derive(Clone, Copy)]
pub(crate) struct WriteSlot {
    in_progress: u32,
    stamp: WriteTime,
}

impl Default for WriteSlot {
    fn default() -> WriteSlot {
        WriteSlot { in_progress: 0, stamp: WriteTime::ZERO }
    }
}

impl WriteClock {
    /// Call it before the snapshot is taken.
    pub fn now(&self) -> WriteTime {
        WriteTime(self.0.load(Ordering::Acquire))
    }

    /// The time of a write whose outcome is certain: later than all readings before it.
    pub fn advance(&self) -> WriteTime {
        WriteTime(self.0.fetch_add(1, Ordering::AcqRel) + 1)
    }
}

impl WriteSlot {
    pub fn begin_write(&mut self) {
        self.in_progress += 1;
    }

    pub fn end_write(&mut self, stamp: WriteTime) {
        self.in_progress -= 1;
        self.stamp = stamp;
    }

    pub fn is_being_written(&self) -> bool {
        self.in_progress > 0
    }

    /// When a write last ended.
    pub fn stamp(&self) -> WriteTime {
        self.stamp
    }

    /// Whether a snapshot that was taken after this reading still shows the newest state.
    pub fn is_unchanged_since(&self, reading: WriteTime) -> bool {
        !self.is_being_written() && self.stamp <= reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_unchanged_only_without_a_write_since_the_reading() {
        let (clock, mut slot, mut other) =
            (WriteClock::default(), WriteSlot::default(), WriteSlot::default());
        let before = clock.now();
        assert!(slot.is_unchanged_since(before));
        slot.begin_write();
        let during = clock.now();
        assert!(!slot.is_unchanged_since(before) && !slot.is_unchanged_since(during));
        slot.end_write(clock.advance());
        assert!(!slot.is_unchanged_since(before) && !slot.is_unchanged_since(during));
        let after = clock.now();
        assert!(slot.is_unchanged_since(after));
        other.begin_write();
        other.end_write(clock.advance());
        assert!(slot.is_unchanged_since(after) && !other.is_unchanged_since(after));
    }

    #[test]
    fn a_slot_waits_for_all_its_writes() {
        let (clock, mut slot) = (WriteClock::default(), WriteSlot::default());
        slot.begin_write();
        slot.begin_write();
        slot.end_write(clock.advance());
        assert!(!slot.is_unchanged_since(clock.now()));
        slot.end_write(clock.advance());
        assert!(slot.is_unchanged_since(clock.now()));
    }
}
