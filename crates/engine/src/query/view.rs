//! The committed state at one moment: what everything that reads items shares.

use std::collections::HashSet;
use std::sync::Arc;

use quire_storage::Snapshot;

use crate::api::EngineError;
use crate::catalog::Container;
use crate::indexes::Indexes;
use crate::items::visibility::Moment;
use crate::memory::row_spans;
use crate::runtime::Shared;
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, put_back_or};

/// A snapshot, and what belongs to it: the indexes that are complete in it, how far memory was when it was taken, and
/// the time that decides what has expired. Pages of one view agree with each other, and so do point reads.
#[derive(Clone)]
pub(crate) struct View {
    pub snapshot: Arc<dyn Snapshot>,
    pub indexes: Arc<Indexes>,
    pub stretches_seen: row_spans::Seen,
    pub moment: Moment,
    /// Child ids of items that are not to be seen: those that a transaction has deleted.
    pub hidden: Arc<HashSet<u64>>,
}

impl View {
    pub fn now(shared: &Shared, container: &Container) -> Result<View, EngineError> {
        let stretches_seen = shared.stretches.now();
        let deleted_keys = container.partitions.deleted_keys();
        let (snapshot, indexes) = container.snapshot_with_indexes(shared)?;
        #[cfg(feature = "schedules")]
        let stretches_seen = put_back_or(Race::ClockAfterSnapshot, stretches_seen, || shared.stretches.now());
        #[cfg(feature = "schedules")]
        let deleted_keys =
            put_back_or(Race::PageMarksAfterSnapshot, deleted_keys, || container.partitions.deleted_keys());
        container.partitions.check_current(&*snapshot)?;
        let moment = container.moment_in(shared, &*snapshot, deleted_keys)?;
        let hidden = Arc::default();
        Ok(View { snapshot: Arc::from(snapshot), indexes, stretches_seen, moment, hidden })
    }

    pub fn without(&self, rids: impl Iterator<Item = u64>) -> View {
        View { hidden: Arc::new(rids.collect()), ..self.clone() }
    }
}
