//! When items or versions of a container will have to be removed, as its writers report it.
//!
//! Writers report a time after their commit is visible; the sweep takes the times before its snapshot. So what a
//! snapshot does not show yet is reported for the next round.

use std::sync::atomic::{AtomicI64, Ordering};

/// Times are seconds; `i64::MAX` for nothing.
#[derive(Debug)]
pub(crate) struct SweepDue {
    /// The first moment at which an item that was written expires by a `ttl` of its own.
    own_expiry: AtomicI64,
    /// When the oldest of the items that were written was.
    item_written: AtomicI64,
    /// The same of versions.
    version_written: AtomicI64,
}

/// What one commit adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SweepDueUpdate {
    pub own_expiry: i64,
    pub item_written: i64,
    pub version_written: i64,
}

impl SweepDueUpdate {
    pub const NOTHING: SweepDueUpdate =
        SweepDueUpdate { own_expiry: i64::MAX, item_written: i64::MAX, version_written: i64::MAX };
    /// Anything may have been written.
    pub const ANYTHING: SweepDueUpdate =
        SweepDueUpdate { own_expiry: i64::MIN, item_written: i64::MIN, version_written: i64::MIN };
}

impl SweepDue {
    /// Of a container that was just opened: nothing is known of what is in it.
    pub fn new() -> SweepDue {
        let unknown = || AtomicI64::new(i64::MIN);
        SweepDue { own_expiry: unknown(), item_written: unknown(), version_written: unknown() }
    }

    pub fn add(&self, noted: SweepDueUpdate) {
        lower(&self.own_expiry, noted.own_expiry);
        lower(&self.item_written, noted.item_written);
        lower(&self.version_written, noted.version_written);
    }

    pub fn take_own_expiry(&self) -> i64 {
        take(&self.own_expiry)
    }

    pub fn take_item_written(&self) -> i64 {
        take(&self.item_written)
    }

    pub fn take_version_written(&self) -> i64 {
        take(&self.version_written)
    }
}

fn lower(time: &AtomicI64, to: i64) {
    // Nearly always it is earlier already, and a look disturbs no other writer.
    if to < time.load(Ordering::Acquire) {
        time.fetch_min(to, Ordering::AcqRel);
    }
}

fn take(time: &AtomicI64) -> i64 {
    if time.load(Ordering::Acquire) == i64::MAX { i64::MAX } else { time.swap(i64::MAX, Ordering::AcqRel) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_time_is_kept_until_it_is_taken() {
        let due = SweepDue::new();
        assert_eq!(due.take_own_expiry(), i64::MIN);
        assert_eq!(due.take_own_expiry(), i64::MAX);
        for own_expiry in [9, 7, 8] {
            due.add(SweepDueUpdate { own_expiry, ..SweepDueUpdate::NOTHING });
        }
        assert_eq!(due.take_own_expiry(), 7);
        assert_eq!(due.take_own_expiry(), i64::MAX);
        due.add(SweepDueUpdate::ANYTHING);
        assert_eq!(due.take_version_written(), i64::MIN);
    }
}
