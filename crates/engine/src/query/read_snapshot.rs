//! The committed state at one time, as all readers of items use it.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use quire_storage::Snapshot;

use crate::api::EngineError;
use crate::catalog::Container;
use crate::indexes::Indexes;
use crate::items::visibility::VisibilityPoint;
use crate::memory::write_clock::WriteTime;
use crate::runtime::Shared;
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, put_back_or};

/// A storage snapshot with the indexes that are complete in it, the write time of the caches before it was taken, and the time
/// that decides which items have expired. All pages and point reads of one `ReadSnapshot` see the same items.
#[derive(Clone)]
pub(crate) struct ReadSnapshot {
    pub snapshot: Arc<dyn Snapshot>,
    pub indexes: Arc<Indexes>,
    pub write_time: WriteTime,
    pub visibility_point: VisibilityPoint,
    /// Child ids of items that a transaction has deleted: readers skip them.
    pub hidden: Arc<HashSet<u64>>,
}

/// Most snapshots hide nothing, and share that.
fn nothing_hidden() -> Arc<HashSet<u64>> {
    static NOTHING: OnceLock<Arc<HashSet<u64>>> = OnceLock::new();
    Arc::clone(NOTHING.get_or_init(Arc::default))
}

impl ReadSnapshot {
    pub fn take(shared: &Shared, container: &Container) -> Result<ReadSnapshot, EngineError> {
        let write_time = shared.row_spans.begin_scan();
        let deleted_keys = container.partitions.deleted_keys();
        let (snapshot, indexes) = container.snapshot_with_indexes(shared)?;
        #[cfg(feature = "schedules")]
        let write_time = put_back_or(Race::ClockAfterSnapshot, write_time, || shared.row_spans.begin_scan());
        #[cfg(feature = "schedules")]
        let deleted_keys =
            put_back_or(Race::PageMarksAfterSnapshot, deleted_keys, || container.partitions.deleted_keys());
        container.partitions.check_current(&*snapshot)?;
        let visibility_point = container.visibility_point_in(shared, &*snapshot, deleted_keys)?;
        let hidden = nothing_hidden();
        Ok(ReadSnapshot { snapshot: Arc::from(snapshot), indexes, write_time, visibility_point, hidden })
    }

    pub fn without(&self, rids: impl Iterator<Item = u64>) -> ReadSnapshot {
        ReadSnapshot { hidden: Arc::new(rids.collect()), ..self.clone() }
    }
}
