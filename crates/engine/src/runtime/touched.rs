//! Items that writers touch, recorded in memory for profiles, which refresh themselves by them.
//!
//! An item is recorded when its write is prepared, so a log has at least the items that change. A reader of the log
//! first waits until all writes prepared so far are committed or prepared again (`PartitionSet::settle_prepared`), and
//! then reads the items.
//!
//! Invariants: 1. while a log is complete, every item that was changed by a write prepared after
//! [`TouchedItems::begin`] is in it, or was when it was taken; 2. a log is bounded: beyond the bound it is not
//! complete, and records nothing more; 3. nothing is recorded for a container without a log.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// By number of the container. Part of [`Shared`](super::Shared), because writers read it.
#[derive(Default)]
pub(crate) struct TouchedItems(ArcSwap<HashMap<u32, Vec<Weak<TouchedLog>>>>);

/// Items that were touched in a container. When it is dropped, recording stops.
pub(crate) struct TouchedLog {
    items_max: usize,
    /// `None`: no longer complete.
    items: Mutex<Option<TouchedRids>>,
}

/// By number of the item: whether it is new.
pub(crate) type TouchedRids = HashMap<u64, bool>;

impl TouchedItems {
    /// Records items of a container from now on, up to this number.
    pub fn begin(&self, container: u32, items_max: usize) -> Arc<TouchedLog> {
        let notes = Arc::new(TouchedLog { items_max, items: Mutex::new(Some(TouchedRids::new())) });
        self.0.rcu(|known| {
            let mut known = without_dropped(known);
            known.entry(container).or_default().push(Arc::downgrade(&notes));
            known
        });
        notes
    }

    /// A write of an item is being prepared.
    pub fn record_touched(&self, container: u32, rid: u64, is_new: bool) {
        let known = self.0.load();
        for notes in known.get(&container).into_iter().flatten().filter_map(Weak::upgrade) {
            notes.record_touched(rid, is_new);
        }
    }

    /// The items of a container have another form now: its log is no longer complete.
    pub fn invalidate(&self, container: u32) {
        let known = self.0.load();
        for notes in known.get(&container).into_iter().flatten().filter_map(Weak::upgrade) {
            *notes.items.lock() = None;
        }
    }
}

impl TouchedLog {
    fn record_touched(&self, rid: u64, is_new: bool) {
        let mut items = self.items.lock();
        let Some(known) = &mut *items else { return };
        known.entry(rid).or_insert(is_new);
        if known.len() > self.items_max {
            *items = None;
        }
    }

    /// The items that were recorded since the last call; `None`: some may be missing.
    pub fn take(&self) -> Option<TouchedRids> {
        self.items.lock().as_mut().map(std::mem::take)
    }
}

fn without_dropped(known: &HashMap<u32, Vec<Weak<TouchedLog>>>) -> HashMap<u32, Vec<Weak<TouchedLog>>> {
    let without_dropped = |all: &[Weak<TouchedLog>]| -> Vec<Weak<TouchedLog>> {
        all.iter().filter(|notes| notes.strong_count() > 0).cloned().collect()
    };
    let known = known.iter().map(|(container, all)| (*container, without_dropped(all)));
    known.filter(|(_, all)| !all.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_logs_end_with_their_owner() {
        let touched = TouchedItems::default();
        touched.record_touched(1, 7, true);
        let (one, other) = (touched.begin(1, 10), touched.begin(1, 10));
        touched.record_touched(1, 8, true);
        touched.record_touched(1, 8, false);
        touched.record_touched(2, 9, false);
        assert_eq!(one.take(), Some(TouchedRids::from([(8, true)])));
        assert_eq!(one.take(), Some(TouchedRids::new()));
        assert_eq!(other.take().map(|notes| notes.len()), Some(1));
        drop((one, other));
        let third = touched.begin(2, 10);
        assert_eq!(touched.0.load().len(), 1);
        drop(third);
    }

    #[test]
    fn touched_logs_are_bounded() {
        let touched = TouchedItems::default();
        let notes = touched.begin(1, 3);
        (0..3).for_each(|rid| touched.record_touched(1, rid, false));
        touched.record_touched(1, 2, false);
        assert_eq!(notes.take().map(|notes| notes.len()), Some(3));
        (0..4).for_each(|rid| touched.record_touched(1, rid, false));
        assert_eq!(notes.take(), None);
        touched.record_touched(1, 9, false);
        assert_eq!(notes.take(), None, "also later");
        let others = touched.begin(1, 3);
        touched.invalidate(1);
        assert_eq!(others.take(), None);
    }
}
