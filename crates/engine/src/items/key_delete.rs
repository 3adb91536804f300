//! Deleting all items of a partition key: a durable mark makes them invisible at once, the sweep removes them.
//!
//! A mark holds for items whose LSN is at most its own. It is set while the logical partition is locked, so every write
//! before it has a smaller LSN and every later one a larger; ids and unique values are free at once.

use std::ops::Bound;
use std::time::Duration;

use quire_resource::PartitionKey;
use quire_storage::{KeyRange, Op, Snapshot};

use super::logical_partition::LogicalPartition;
use super::moment::DeletedKeys;
use super::remove::{REMOVED_TOGETHER, remove_gone};
use super::row::{self, Row};
use crate::api::Answer;
use crate::catalog::{for_each_row, scan};
use crate::locks::{LockSet, Mode};
use crate::sequencer::{Prepared, Refused};
use crate::shared::Shared;
use crate::{Container, EngineError, charge, keys};

const TRIES: u32 = 12;

pub(crate) fn delete_key(shared: &Shared, container: &Container, key: PartitionKey) -> Answer<()> {
    let charge = charge::REFUSED;
    let open = container.check_open().and_then(|()| container.check_writable());
    let home = match open.and_then(|()| LogicalPartition::of(container, key)) {
        Ok(home) => home,
        Err(error) => return Answer { charge, position: None, result: Err(error) },
    };
    let result = mark(shared, &home);
    Answer { charge, position: home.place.partition.position().ok(), result }
}

fn mark(shared: &Shared, home: &LogicalPartition<'_>) -> Result<(), EngineError> {
    let (container, sequencer) = (home.container, &home.place.partition.sequencer);
    let mut locks = LockSet::default();
    home.add_lock(&shared.locks, &mut locks, Mode::Exclusive);
    let _held = shared.locks.take(&locks)?;
    for tried in 0..TRIES {
        if tried > 1 {
            std::thread::sleep(Duration::from_millis(1 << (tried - 1).min(6)));
        }
        let generation = sequencer.generation();
        let lsn = sequencer.lsn()?;
        let key = keys::deleted_key(container.number, &home.place.epk, lsn);
        let ops = vec![Op::Put { space: keys::CATALOG, key, value: home.encoded_key.clone() }];
        let prepared = Prepared {
            is_upkeep: false,
            logical_partitions: [home.name(&shared.locks)].into_iter().collect(),
            ..Prepared::upkeep(generation, container.partitions.indexes().epoch(), ops)
        };
        match sequencer.submit(prepared) {
            Ok(_) => {
                container.partitions.change_deleted_keys(|keys| keys.insert(home.encoded_key.clone(), lsn));
                return Ok(());
            }
            Err(Refused::Stale) => shared.statistics.retry(),
            Err(Refused::Failed(EngineError::ResourceNotFound { .. })) => return Err(container.not_found()),
            Err(Refused::Failed(error)) => return Err(error),
        }
    }
    Err(EngineError::Overloaded)
}

/// The marks of a container as a snapshot has them.
pub(crate) fn marks_in(snapshot: &dyn Snapshot, container: u32) -> Result<DeletedKeys, EngineError> {
    let mut marks = DeletedKeys::default();
    for_each_row(snapshot, keys::CATALOG, &keys::deleted_keys_prefix(container), |key, encoded_key| {
        let lsn = keys::lsn_of_deleted_key(key).ok_or_else(|| row::corrupt("mark of a deleted key"))?;
        marks.insert(encoded_key.to_vec(), lsn);
        Ok(())
    })?;
    Ok(marks)
}

/// Removes some items of a deleted key, and its marks when there are none left. How many items were removed; `None` when the
/// key is done.
pub(crate) fn remove_some(
    shared: &Shared,
    container: &Container,
    encoded_key: &[u8],
    lsn: u64,
) -> Result<Option<usize>, EngineError> {
    let (key, _) = PartitionKey::decode(encoded_key).map_err(|_| row::corrupt("mark of a deleted key"))?;
    let home = LogicalPartition::of(container, key)?;
    let rids = some_items(shared, &home, lsn)?;
    if !rids.is_empty() {
        return remove_gone(shared, container, &rids).map(Some);
    }
    let sequencer = &home.place.partition.sequencer;
    let generation = sequencer.generation();
    let snapshot = shared.storage.snapshot()?;
    let mut ops = Vec::new();
    for_each_row(&*snapshot, keys::CATALOG, &keys::deleted_keys_prefix(container.number), |key, value| {
        if value == encoded_key && keys::lsn_of_deleted_key(key).is_some_and(|marked| marked <= lsn) {
            ops.push(Op::Delete { space: keys::CATALOG, key: key.to_vec() });
        }
        Ok(())
    })?;
    match sequencer.submit(Prepared::upkeep(generation, container.partitions.indexes().epoch(), ops)) {
        Ok(_) => {
            container.partitions.change_deleted_keys(|keys| keys.remove(encoded_key, lsn));
            Ok(None)
        }
        Err(Refused::Stale) => Ok(Some(0)),
        Err(Refused::Failed(error)) => Err(error),
    }
}

fn some_items(shared: &Shared, home: &LogicalPartition<'_>, lsn: u64) -> Result<Vec<u64>, EngineError> {
    let definition = &home.container.definition.partition_key;
    let prefix = home.place.epk.rid_prefix(definition.kind, definition.version);
    let (first, last) = (keys::rid(prefix, 0), keys::rid(prefix, (1 << keys::RID_COUNTER_BITS) - 1));
    let snapshot = shared.storage.snapshot()?;
    let mut range = KeyRange {
        start: Bound::Included(keys::item(home.container.number, first)),
        end: Bound::Included(keys::item(home.container.number, last)),
    };
    let mut rids = Vec::new();
    loop {
        let page = snapshot.scan(&scan(keys::ITEMS, range.clone()))?;
        for (key, bytes) in &page.rows {
            let row = Row::parse(bytes)?;
            if row.encoded_partition_key() == home.encoded_key && row.stamp.lsn <= lsn {
                rids.push(keys::rid_of_item_key(key).ok_or_else(|| row::corrupt("item key"))?);
            }
            if rids.len() == REMOVED_TOGETHER {
                return Ok(rids);
            }
        }
        match page.rows.into_iter().next_back() {
            Some((last, _)) if page.more => range.start = Bound::Excluded(last),
            _ => return Ok(rids),
        }
    }
}
