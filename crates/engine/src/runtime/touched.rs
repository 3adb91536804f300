//! Items that writers touch, noted in memory for those who asked: a profile brings itself up to date by them.
//!
//! A note is made when a write is prepared, so notes name at least the items that change; whoever takes them first lets all that
//! was prepared until then be committed or prepared again (`PartitionSet::settle_prepared`), and looks at the items as they are.
//!
//! Invariants:
//! 1. while notes are complete, every item that was changed by a write prepared after [`TouchedItems::begin`] is in them, or was
//!    when they were taken;
//! 2. notes have a bound: beyond it they are not complete, and nothing more is noted;
//! 3. nothing is noted for a container that nobody asked about.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// By number of the container. Part of [`Shared`](super::Shared), for writers ask it.
#[derive(Default)]
pub(crate) struct TouchedItems(ArcSwap<HashMap<u32, Vec<Weak<TouchedLog>>>>);

/// What was touched in a container since somebody asked. Dropped, nothing more is noted.
pub(crate) struct TouchedLog {
    items_max: usize,
    /// `None`: not complete any more.
    items: Mutex<Option<TouchedRids>>,
}

/// By number of the item: whether it is new.
pub(crate) type TouchedRids = HashMap<u64, bool>;

impl TouchedItems {
    /// Notes items of a container from now on, up to so many of them.
    pub fn begin(&self, container: u32, items_max: usize) -> Arc<TouchedLog> {
        let notes = Arc::new(TouchedLog { items_max, items: Mutex::new(Some(TouchedRids::new())) });
        self.0.rcu(|known| {
            let mut known = living(known);
            known.entry(container).or_default().push(Arc::downgrade(&notes));
            known
        });
        notes
    }

    /// A write of an item is being prepared.
    pub fn note(&self, container: u32, rid: u64, is_new: bool) {
        let known = self.0.load();
        for notes in known.get(&container).into_iter().flatten().filter_map(Weak::upgrade) {
            notes.note(rid, is_new);
        }
    }

    /// The items of a container have another form now: its notes are not complete any more.
    pub fn invalidate(&self, container: u32) {
        let known = self.0.load();
        for notes in known.get(&container).into_iter().flatten().filter_map(Weak::upgrade) {
            *notes.items.lock() = None;
        }
    }
}

impl TouchedLog {
    fn note(&self, rid: u64, is_new: bool) {
        let mut items = self.items.lock();
        let Some(known) = &mut *items else { return };
        known.entry(rid).or_insert(is_new);
        if known.len() > self.items_max {
            *items = None;
        }
    }

    /// What was noted since the last time; `None` where something may be missing.
    pub fn take(&self) -> Option<TouchedRids> {
        self.items.lock().as_mut().map(std::mem::take)
    }
}

fn living(known: &HashMap<u32, Vec<Weak<TouchedLog>>>) -> HashMap<u32, Vec<Weak<TouchedLog>>> {
    let living = |all: &[Weak<TouchedLog>]| -> Vec<Weak<TouchedLog>> {
        all.iter().filter(|notes| notes.strong_count() > 0).cloned().collect()
    };
    let known = known.iter().map(|(container, all)| (*container, living(all)));
    known.filter(|(_, all)| !all.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_end_with_who_asked() {
        let touched = TouchedItems::default();
        touched.note(1, 7, true);
        let (one, other) = (touched.begin(1, 10), touched.begin(1, 10));
        touched.note(1, 8, true);
        touched.note(1, 8, false);
        touched.note(2, 9, false);
        assert_eq!(one.take(), Some(TouchedRids::from([(8, true)])));
        assert_eq!(one.take(), Some(TouchedRids::new()));
        assert_eq!(other.take().map(|notes| notes.len()), Some(1));
        drop((one, other));
        let third = touched.begin(2, 10);
        assert_eq!(touched.0.load().len(), 1);
        drop(third);
    }

    #[test]
    fn notes_have_a_bound() {
        let touched = TouchedItems::default();
        let notes = touched.begin(1, 3);
        (0..3).for_each(|rid| touched.note(1, rid, false));
        touched.note(1, 2, false);
        assert_eq!(notes.take().map(|notes| notes.len()), Some(3));
        (0..4).for_each(|rid| touched.note(1, rid, false));
        assert_eq!(notes.take(), None);
        touched.note(1, 9, false);
        assert_eq!(notes.take(), None, "also later");
        let others = touched.begin(1, 3);
        touched.invalidate(1);
        assert_eq!(others.take(), None);
    }
}
