//! Removes items that are no longer visible: those that expired, and those whose partition key was deleted.

use std::sync::Arc;

use quire_storage::Snapshot;

use super::logical_partition::LogicalPartition;
use crate::api::EngineError;
use crate::catalog::Container;
use crate::items::prepare::RowBuilder;
use crate::partition::Partition;
use crate::partition::sequencer::{PreparedWrite, WriteRefused};
use crate::runtime::Shared;
use crate::runtime::locks::{HeldLocks, LockKind, LockMode, LockSet};
use crate::store::item_row::ItemRow;
use crate::store::keys;

/// Of item rows that are read and removed together.
const BYTES_MAX: usize = 4 << 20;

/// What became of items that were to be removed; those that are neither gone nor there any more are in none of these.
#[derive(Default)]
pub(crate) struct Removal {
    pub removed: usize,
    /// Someone holds them, or their partition refused: to be tried again.
    pub later: Vec<u64>,
    pub unreadable: Vec<(u64, EngineError)>,
}

/// An item that is locked.
struct LockedItem<'a> {
    rid: u64,
    logical_partition: LogicalPartition<'a>,
    id_key: Vec<u8>,
    _held: HeldLocks<'a>,
}

/// Removes those of the items that are still gone once they are locked, each as a write of its own. It waits for no lock: one
/// that is held does not keep the others.
pub(crate) fn remove_invisible_items(
    shared: &Shared,
    container: &Container,
    rids: &[u64],
) -> Result<Removal, EngineError> {
    let mut removal = Removal::default();
    if rids.is_empty() {
        return Ok(removal);
    }
    let targets = lock(shared, container, rids, &mut removal)?;
    for partition in container.partitions.all() {
        let here = targets
            .iter()
            .filter(|target| target.logical_partition.place.partition.layout.id == partition.layout.id);
        let here: Vec<&LockedItem<'_>> = here.collect();
        if !here.is_empty() {
            remove_from(shared, container, partition, &here, &mut removal)?;
        }
    }
    Ok(removal)
}

fn lock<'a>(
    shared: &'a Shared,
    container: &'a Container,
    rids: &[u64],
    removal: &mut Removal,
) -> Result<Vec<LockedItem<'a>>, EngineError> {
    let snapshot = shared.storage.snapshot()?;
    let (mut targets, mut bytes) = (Vec::with_capacity(rids.len()), 0);
    for (rid, row) in rids.iter().zip(items(&*snapshot, container, rids)?) {
        let Some(row) = row else { continue };
        bytes += row.len();
        if bytes > BYTES_MAX && !targets.is_empty() {
            removal.later.push(*rid);
            continue;
        }
        match target(shared, container, *rid, &row) {
            Ok(Some(target)) => targets.push(target),
            Ok(None) => removal.later.push(*rid),
            Err(error) => removal.note(*rid, error)?,
        }
    }
    Ok(targets)
}

/// `None` when the item is locked.
fn target<'a>(
    shared: &'a Shared,
    container: &'a Container,
    rid: u64,
    row: &[u8],
) -> Result<Option<LockedItem<'a>>, EngineError> {
    let row = ItemRow::parse(row)?;
    let logical_partition = LogicalPartition::of(container, row.partition_key()?)?;
    let id_key = logical_partition.id_key(row.id()?);
    let mut locks = LockSet::default();
    logical_partition.add_lock(&shared.locks, &mut locks, LockMode::Shared);
    shared.locks.add(&mut locks, container.number, LockKind::Item(&id_key), LockMode::Exclusive);
    let held = shared.locks.try_take(&locks);
    Ok(held.map(|_held| LockedItem { rid, logical_partition, id_key, _held }))
}

fn remove_from(
    shared: &Shared,
    container: &Container,
    partition: &Partition,
    targets: &[&LockedItem<'_>],
    removal: &mut Removal,
) -> Result<(), EngineError> {
    // Before the snapshot.
    let generation = partition.sequencer.generation();
    let visibility_point = container.visibility_point(shared);
    let rules = container.partitions.write_rules();
    if rules.model.is_some() {
        // It has got one just now.
        removal.later.extend(targets.iter().map(|target| target.rid));
        return Ok(());
    }
    let snapshot = shared.storage.snapshot()?;
    let rids: Vec<u64> = targets.iter().map(|target| target.rid).collect();
    let id_keys: Vec<&[u8]> = targets.iter().map(|target| target.id_key.as_slice()).collect();
    let ids = snapshot.multi_get(keys::LOOKUPS, &id_keys)?;
    let (mut prepared, mut of) = (Vec::new(), Vec::new());
    for ((target, id), bytes) in targets.iter().zip(ids).zip(items(&*snapshot, container, &rids)?) {
        // It may have gone, or given its id to another one.
        let is_same = id.as_deref().and_then(keys::number) == Some(target.rid);
        let Some(bytes) = bytes.filter(|_| is_same) else { continue };
        let removed = ItemRow::parse(&bytes).and_then(|row| {
            if !container.is_invisible(&row, &visibility_point) {
                return Ok(None);
            }
            let mut rows = RowBuilder::new(shared, &target.logical_partition, generation, Arc::clone(&rules));
            rows.delete(target.rid, &row, &target.id_key)?;
            Ok(Some(rows.finish()))
        });
        match removed {
            Ok(Some(write)) => {
                prepared.push(write);
                of.push(target.rid);
            }
            Ok(None) => {}
            Err(error) => removal.note(target.rid, error)?,
        }
    }
    drop(snapshot);
    submit(partition, prepared, &of, removal)
}

fn submit(
    partition: &Partition,
    prepared: Vec<PreparedWrite>,
    of: &[u64],
    removal: &mut Removal,
) -> Result<(), EngineError> {
    if prepared.is_empty() {
        return Ok(());
    }
    let mut failed = None;
    for (rid, result) in of.iter().zip(partition.sequencer.submit_all(prepared)) {
        match result {
            Ok(_) => removal.removed += 1,
            Err(WriteRefused::Failed(error @ EngineError::Storage(_))) => failed = Some(error),
            Err(WriteRefused::Stale | WriteRefused::Failed(_)) => removal.later.push(*rid),
        }
    }
    failed.map_or(Ok(()), Err)
}

fn items(
    snapshot: &dyn Snapshot,
    container: &Container,
    rids: &[u64],
) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
    let keys: Vec<Vec<u8>> = rids.iter().map(|rid| keys::item(container.number, *rid)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    Ok(snapshot.multi_get(keys::ITEMS, &keys)?)
}

impl Removal {
    /// An item that cannot be read is left alone; any other failure concerns all of them.
    fn note(&mut self, rid: u64, error: EngineError) -> Result<(), EngineError> {
        match error {
            error @ EngineError::Storage(_) => Err(error),
            error => {
                self.unreadable.push((rid, error));
                Ok(())
            }
        }
    }
}
