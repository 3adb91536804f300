//! What is visible at a moment: items expire, and whole partition keys are deleted, before their rows go.

use std::sync::Arc;

use quire_resource::{ItemTtl, PartitionKey, expires_at};
use quire_storage::Snapshot;

use crate::api::EngineError;
use crate::catalog::Container;
use crate::partition::deleted_keys::{DeletedKeys, marks_in};
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;

/// Pages, point reads and transactions that share one agree on what is there.
#[derive(Clone, Debug)]
pub(crate) struct VisibilityPoint {
    pub seconds: i64,
    deleted: Arc<DeletedKeys>,
}

impl VisibilityPoint {
    pub fn new(seconds: i64, deleted: Arc<DeletedKeys>) -> VisibilityPoint {
        VisibilityPoint { seconds, deleted }
    }

    /// Whether items of deleted partition keys may still have rows.
    pub fn hides_keys(&self) -> bool {
        !self.deleted.is_empty()
    }
}

impl Container {
    /// What is visible now, of a single item, or while no item of the logical partition can change. Always asked **before**
    /// the snapshot or the cache that shows the item: the sweep may remove items and forget the mark that hid them in between,
    /// and a mark that comes later belongs to a delete that is not answered yet.
    pub(crate) fn visibility_point(&self, shared: &Shared) -> VisibilityPoint {
        VisibilityPoint { seconds: shared.now_seconds(), deleted: self.partitions.deleted_keys() }
    }

    /// What is visible in a snapshot as a whole, where `before` are the marks as they were before it was taken. When they have
    /// changed since, the snapshot's own marks count: a mark that came too late would show items beside those written after
    /// the delete.
    pub(crate) fn visibility_point_in(
        &self,
        shared: &Shared,
        snapshot: &dyn Snapshot,
        before: Arc<DeletedKeys>,
    ) -> Result<VisibilityPoint, EngineError> {
        let is_same = Arc::ptr_eq(&before, &self.partitions.deleted_keys());
        let deleted = if is_same { before } else { Arc::new(marks_in(snapshot, self.number)?) };
        Ok(VisibilityPoint { seconds: shared.now_seconds(), deleted })
    }

    /// Whether an item is invisible, wherever its rows still are.
    pub(crate) fn is_invisible(&self, row: &ItemRow<'_>, visibility_point: &VisibilityPoint) -> bool {
        self.is_past(row.ttl, row.written(), visibility_point.seconds)
            || (!visibility_point.deleted.is_empty()
                && visibility_point.deleted.covers(row.encoded_partition_key(), row.stamp.lsn))
    }

    /// The same of what is known of an item besides its row.
    pub(crate) fn is_invisible_by(
        &self,
        (ttl, written): (ItemTtl, i64),
        key: &PartitionKey,
        lsn: u64,
        visibility_point: &VisibilityPoint,
    ) -> bool {
        if self.is_past(ttl, written, visibility_point.seconds) {
            return true;
        }
        if visibility_point.deleted.is_empty() {
            return false;
        }
        let mut encoded = Vec::new();
        key.encode(&mut encoded);
        visibility_point.deleted.covers(&encoded, lsn)
    }

    pub(crate) fn is_past(&self, ttl: ItemTtl, written: i64, now_seconds: i64) -> bool {
        expires_at(self.definition.default_ttl, ttl, written).is_some_and(|at| at <= now_seconds)
    }
}
