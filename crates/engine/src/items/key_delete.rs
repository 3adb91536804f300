//! Deleting all items of a partition key: a durable mark makes them invisible at once, the sweep removes them.
//!
//! A mark holds for items whose LSN is at most its own. It is set while the logical partition is locked, so every write
//! before it has a smaller LSN and every later one a larger; ids and unique values are free at once.

use std::ops::Bound;

use quire_resource::PartitionKey;
use quire_storage::{KeyRange, Op, Scan, Snapshot};

use super::logical_partition::LogicalPartition;
use crate::api::{Answer, EngineError, charge, corrupt};
use crate::catalog::Container;
use crate::partition::sequencer::{PreparedWrite, retry_until_accepted};
use crate::runtime::Shared;
use crate::runtime::locks::{LockMode, LockSet};
use crate::store::item_row::ItemRow;
use crate::store::{for_each_row, keys, scan};
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};

/// Item rows that are examined together, at least.
const PAGE_ROWS_MIN: usize = 100;
const PAGE_BYTES: usize = 4 << 20;

pub(crate) fn delete_key(shared: &Shared, container: &Container, key: PartitionKey) -> Answer<()> {
    let charge = charge::REFUSED;
    let open = container.check_open().and_then(|()| container.check_writable());
    let logical_partition = match open.and_then(|()| LogicalPartition::of(container, key)) {
        Ok(logical_partition) => logical_partition,
        Err(error) => return Answer { charge, position: None, result: Err(error) },
    };
    let result = mark(shared, &logical_partition);
    Answer { charge, position: logical_partition.place.partition.position().ok(), result }
}

fn mark(shared: &Shared, logical_partition: &LogicalPartition<'_>) -> Result<(), EngineError> {
    let (container, sequencer) = (logical_partition.container, &logical_partition.place.partition.sequencer);
    let mut locks = LockSet::default();
    logical_partition.add_lock(&shared.locks, &mut locks, LockMode::Exclusive);
    let _held = shared.locks.take(&locks)?;
    let marked = retry_until_accepted(&shared.statistics, || {
        let generation = sequencer.generation();
        let lsn = sequencer.lsn()?;
        let key = keys::deleted_key(container.number, &logical_partition.place.epk, lsn);
        let ops = vec![Op::Put { space: keys::CATALOG, key, value: logical_partition.encoded_key.clone() }];
        let prepared = PreparedWrite {
            is_index_maintenance: false,
            logical_partitions: [logical_partition.name(&shared.locks)].into_iter().collect(),
            ..PreparedWrite::index_maintenance(generation, ops)
        };
        #[cfg(feature = "schedules")]
        if is_put_back(Race::MarkBeforeSync) {
            container
                .partitions
                .change_deleted_keys(|keys| keys.insert(logical_partition.encoded_key.clone(), lsn));
        }
        sequencer.submit(prepared)?;
        container
            .partitions
            .change_deleted_keys(|keys| keys.insert(logical_partition.encoded_key.clone(), lsn));
        shared.workers.catalog.wake();
        Ok(())
    });
    marked.map_err(|error| match error {
        EngineError::ResourceNotFound { .. } => container.not_found(),
        error => error,
    })
}

/// A partition key whose items are deleted up to an LSN, for the job that removes them.
pub(crate) struct DeletedKey<'a> {
    logical_partition: LogicalPartition<'a>,
    lsn: u64,
}

/// Items of a deleted key.
pub(crate) struct DeletedKeyItems {
    pub rids: Vec<u64>,
    /// Where to go on; `None` when all items were examined.
    pub next_rid: Option<u64>,
    pub unreadable: Vec<(u64, EngineError)>,
}

impl<'a> DeletedKey<'a> {
    pub fn new(
        container: &'a Container,
        encoded_key: &[u8],
        lsn: u64,
    ) -> Result<DeletedKey<'a>, EngineError> {
        let (key, _) = PartitionKey::decode(encoded_key).map_err(|_| corrupt("mark of a deleted key"))?;
        Ok(DeletedKey { logical_partition: LogicalPartition::of(container, key)?, lsn })
    }

    pub fn partition_id(&self) -> u32 {
        self.logical_partition.place.partition.layout.id
    }

    /// Items that the mark hides, from a rid on: one page, in which at most so many are found.
    pub fn items(
        &self,
        snapshot: &dyn Snapshot,
        from: u64,
        items_max: usize,
    ) -> Result<DeletedKeyItems, EngineError> {
        let (number, definition) = (
            self.logical_partition.container.number,
            &self.logical_partition.container.definition.partition_key,
        );
        let prefix = self.logical_partition.place.epk.rid_prefix(definition.kind, definition.version);
        let (first, last) = (keys::rid(prefix, 0), keys::rid(prefix, (1 << keys::RID_COUNTER_BITS) - 1));
        let range = KeyRange {
            start: Bound::Included(keys::item(number, first.max(from))),
            end: Bound::Included(keys::item(number, last)),
        };
        // Nearly all of them are of this key.
        let rows_max = items_max.max(PAGE_ROWS_MIN);
        let page = Scan { rows_max, bytes_max: PAGE_BYTES, ..scan(keys::ITEMS, range) };
        let page = snapshot.scan(&page)?;
        let mut found = DeletedKeyItems { rids: Vec::new(), next_rid: None, unreadable: Vec::new() };
        for (key, bytes) in &page.rows {
            let Some(rid) = keys::rid_of_item_key(key) else { continue };
            if found.rids.len() == items_max {
                found.next_rid = Some(rid);
                return Ok(found);
            }
            match ItemRow::parse(bytes) {
                Ok(row) if row.encoded_partition_key() == self.logical_partition.encoded_key => {
                    found.rids.extend((row.stamp.lsn <= self.lsn).then_some(rid));
                }
                Ok(_) => {}
                Err(error) => found.unreadable.push((rid, error)),
            }
            found.next_rid = page.more.then_some(rid + 1);
        }
        Ok(found)
    }

    /// The rows of its marks, this one and earlier ones.
    pub fn marks(&self, snapshot: &dyn Snapshot) -> Result<Vec<Vec<u8>>, EngineError> {
        let mut marks = Vec::new();
        let prefix = keys::deleted_key_prefix(
            self.logical_partition.container.number,
            &self.logical_partition.place.epk,
        );
        for_each_row(snapshot, keys::CATALOG, &prefix, |key, value| {
            let is_earlier = keys::lsn_of_deleted_key(key).is_some_and(|marked| marked <= self.lsn);
            if value == self.logical_partition.encoded_key && is_earlier {
                marks.push(key.to_vec());
            }
            Ok(())
        })?;
        Ok(marks)
    }
}
