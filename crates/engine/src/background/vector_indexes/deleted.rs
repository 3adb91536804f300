//! Removes deleted items from an index.

use std::ops::{Bound, ControlFlow};

use quire_storage::{Direction, KeyRange, Scan, Snapshot};

use super::follow::{FollowedIndex, IndexFollowStep, IndexFollower, IndexWrites, counts};
use crate::api::{EngineError, corrupt};
use crate::store::keys::{self, ITEMS, LOOKUPS, VectorKeys};
use crate::store::scan;

/// Deleted items are searched when the index has at least this many, and this share, more entries than there are items.
const DELETED_MIN: u64 = 1024;

const DELETED_PART: u64 = 8;

/// Entries that one slice checks.
const SWEEP_ITEMS: usize = 8192;

/// An index with so many leaves and fewer items in each, on average, is made again.
const SPARSE_LEAVES: u64 = 64;

const SPARSE_ITEMS: u64 = 6;

impl IndexFollower<'_> {
    /// Takes out items that are not in the container any more, where they are many.
    pub fn sweep(
        &self,
        snapshot: &dyn Snapshot,
        followed_index: &mut FollowedIndex,
    ) -> Result<IndexFollowStep, EngineError> {
        let mut items = 0;
        for partition in self.container.partitions.all() {
            items += counts(snapshot, self.container.number, partition)?.items;
        }
        let deleted_entries = followed_index.state.items.saturating_sub(items);
        if followed_index.swept.is_none() && deleted_entries <= DELETED_MIN.max(items / DELETED_PART) {
            let is_sparse = followed_index.state.leaves > SPARSE_LEAVES;
            let is_sparse =
                is_sparse && followed_index.state.items < followed_index.state.leaves * SPARSE_ITEMS;
            return Ok(if is_sparse { IndexFollowStep::Sparse } else { IndexFollowStep::Idle });
        }
        let mut range = KeyRange::prefix(&self.keys().places());
        if let Some(swept) = followed_index.swept {
            range.start = Bound::Excluded(self.keys().place(swept));
        }
        let page = Scan { rows_max: SWEEP_ITEMS, ..scan(LOOKUPS, range) };
        let page = snapshot.scan(&page)?;
        let mut writes = IndexWrites::default();
        let mut places = Vec::with_capacity(page.rows.len());
        for (key, value) in &page.rows {
            let place = VectorKeys::rid_of_place(key).zip(keys::number(value));
            places.push(place.ok_or_else(|| corrupt("where a vector is"))?);
        }
        let deleted_entries = self.deleted_entries(snapshot, &places)?;
        for (rid, place) in &deleted_entries {
            self.remove_entry(&mut writes, *rid, Some(*place));
            writes.places.insert(*rid, None);
        }
        followed_index.state.items = followed_index.state.items.saturating_sub(deleted_entries.len() as u64);
        self.write_leaves(snapshot, followed_index, &mut writes)?;
        self.commit(followed_index, writes)?;
        followed_index.swept = places.last().map(|(rid, _)| *rid).filter(|_| page.more);
        Ok(IndexFollowStep::Done(deleted_entries.len()))
    }

    /// The entries whose item does not exist.
    fn deleted_entries(
        &self,
        snapshot: &dyn Snapshot,
        places: &[(u64, u64)],
    ) -> Result<Vec<(u64, u64)>, EngineError> {
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(Vec::new()) };
        let number = self.container.number;
        let range = KeyRange {
            start: Bound::Included(keys::item(number, first.0)),
            end: Bound::Included(keys::item(number, last.0)),
        };
        let (direction, keys_only) = (Direction::Forward, true);
        let (rows_max, bytes_max) = (usize::MAX, usize::MAX);
        let scan = Scan { space: ITEMS, range, direction, rows_max, bytes_max, keys_only };
        let mut deleted_entries = Vec::new();
        let mut left = places.iter().peekable();
        snapshot.visit(&scan, &mut |key, _| {
            let Some(rid) = keys::rid_of_item_key(key) else { return ControlFlow::Continue(()) };
            while let Some(place) = left.next_if(|place| place.0 < rid) {
                deleted_entries.push(*place);
            }
            left.next_if(|place| place.0 == rid);
            ControlFlow::Continue(())
        })?;
        deleted_entries.extend(left);
        Ok(deleted_entries)
    }
}
