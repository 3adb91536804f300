//! When logical partitions last changed, so that a transaction can detect that what it read is out of date.

use std::collections::HashMap;
use std::sync::Arc;

use crate::memory::budget::SharedBudget;

/// Logical partitions of which is kept when they last changed: twice as many at most.
const RETAINED_CHANGES: usize = 8192;

/// The same while all partitions of all containers together have more than their part of the memory.
const RETAINED_CHANGES_MIN: usize = 128;

/// What one of them takes.
const CHANGE_BYTES: usize = 32;

/// When logical partitions last changed, as far as that is kept: the newest ones by name, all others no later than
/// `floor`.
///
/// What all partitions keep is bounded: see [`CacheBudget`](crate::memory::budget::CacheBudget). Less is kept then, which only makes transactions begin again that
/// need not have.
pub(super) struct LastChanges {
    kept: Arc<SharedBudget>,
    newest: HashMap<u64, u64>,
    older: HashMap<u64, u64>,
    /// The last LSN in `older`.
    older_end: u64,
    floor: u64,
}

impl LastChanges {
    pub(super) fn new(kept: &Arc<SharedBudget>) -> LastChanges {
        let (newest, older, older_end, floor) = Default::default();
        LastChanges { kept: Arc::clone(kept), newest, older, older_end, floor }
    }

    /// When a logical partition last changed, or later.
    pub(super) fn last(&self, name: u64) -> u64 {
        self.newest.get(&name).or_else(|| self.older.get(&name)).copied().unwrap_or(self.floor)
    }

    pub(super) fn add(&mut self, name: u64, lsn: u64) {
        let retained_max = if self.kept.is_full() { RETAINED_CHANGES_MIN } else { RETAINED_CHANGES };
        if self.newest.len() >= retained_max && !self.newest.contains_key(&name) {
            self.floor = self.floor.max(self.older_end);
            self.release(self.older.len());
            self.older = std::mem::take(&mut self.newest);
            self.older_end = lsn;
        }
        if self.newest.insert(name, lsn).is_none() {
            self.kept.take(CHANGE_BYTES);
        }
    }

    /// Nothing is known about what happened up to an LSN.
    pub(super) fn discard_until(&mut self, lsn: u64) {
        let mut unknown = LastChanges::new(&self.kept);
        unknown.floor = self.floor.max(lsn);
        *self = unknown;
    }

    pub(super) fn release(&self, count: usize) {
        self.kept.release(count * CHANGE_BYTES);
    }
}

impl Drop for LastChanges {
    fn drop(&mut self) {
        self.release(self.newest.len() + self.older.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    pub(super) fn a_change_is_forgotten_only_upwards() {
        let mut changes = LastChanges::new(&Arc::new(SharedBudget::new(1 << 20)));
        changes.discard_until(10);
        assert_eq!(changes.last(1), 10);
        let period = 3 * RETAINED_CHANGES as u64;
        for lsn in 11..11 + 5 * RETAINED_CHANGES as u64 {
            changes.add(lsn % period, lsn);
            // Whatever is asked, the answer is never before the last change.
            let name = (7 * lsn) % period;
            let last = lsn.saturating_sub((lsn + period - name) % period).max(10);
            assert!(changes.last(name) >= last, "{name} at {lsn}");
            assert!(changes.last(name) <= lsn);
            assert!(changes.newest.len() <= RETAINED_CHANGES && changes.older.len() <= RETAINED_CHANGES);
            assert_eq!(changes.last(lsn % period), lsn);
        }
    }

    /// However many partitions there are, and whatever they were written, what they keep together has a bound, and is given
    /// back with them.
    #[test]
    pub(super) fn changes_kept_by_all_partitions_are_bounded() {
        let together = 40 * RETAINED_CHANGES;
        let kept = Arc::new(SharedBudget::new(together * CHANGE_BYTES));
        let mut partitions: Vec<LastChanges> = (0..80).map(|_| LastChanges::new(&kept)).collect();
        for (partition, changes) in partitions.iter_mut().enumerate() {
            for lsn in 1..=2 * RETAINED_CHANGES as u64 {
                changes.add(lsn, lsn);
            }
            let bound = together + (partition + 1) * 2 * RETAINED_CHANGES_MIN + RETAINED_CHANGES;
            let count = kept.bytes() / CHANGE_BYTES;
            assert!(count <= bound, "{count} are kept by {partition} partitions");
            // What is not kept counts as changed.
            assert!(
                changes.last(1) >= 1
                    && changes.last(2 * RETAINED_CHANGES as u64) == 2 * RETAINED_CHANGES as u64
            );
        }
        partitions[0].discard_until(9);
        drop(partitions);
        assert_eq!(kept.bytes(), 0);
    }
}
