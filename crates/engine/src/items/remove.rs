//! Removing items that nobody can see any more: those that expired, and those whose partition key was deleted.

use std::sync::Arc;

use super::logical_partition::LogicalPartition;
use super::row::Row;
use super::rows::Rows;
use crate::locks::{LockSet, Mode, Protects};
use crate::sequencer::Prepared;
use crate::shared::Shared;
use crate::{Container, EngineError, keys};

/// Removed by one commit: their locks are held together.
pub(crate) const REMOVED_TOGETHER: usize = 100;

/// Removes those of the items, at most [`REMOVED_TOGETHER`], that are still gone once they are locked, each as a write of
/// its own. How many were removed; the others changed meanwhile, or have to be tried again.
pub(crate) fn remove_gone(
    shared: &Shared,
    container: &Container,
    rids: &[u64],
) -> Result<usize, EngineError> {
    let homes = homes(shared, container, rids)?;
    let mut locks = LockSet::default();
    for (home, id_key, _) in &homes {
        home.add_lock(&shared.locks, &mut locks, Mode::Shared);
        shared.locks.add(&mut locks, container.number, Protects::Item(id_key), Mode::Exclusive);
    }
    let _held = shared.locks.take(&locks)?;
    let mut removed = 0;
    for partition in container.partitions.all() {
        let here = homes.iter().filter(|(home, ..)| home.place.partition.layout.id == partition.layout.id);
        // Before the snapshots.
        let generation = partition.sequencer.generation();
        let prepared: Vec<Prepared> = here
            .filter_map(|(home, id_key, rid)| removal(shared, home, id_key, *rid, generation).transpose())
            .collect::<Result<_, _>>()?;
        if !prepared.is_empty() {
            removed +=
                partition.sequencer.submit_all(prepared).iter().filter(|result| result.is_ok()).count();
        }
    }
    Ok(removed)
}

/// Where items live, and what their ids are locked by.
fn homes<'a>(
    shared: &Shared,
    container: &'a Container,
    rids: &[u64],
) -> Result<Vec<(LogicalPartition<'a>, Vec<u8>, u64)>, EngineError> {
    let snapshot = shared.storage.snapshot()?;
    let mut homes = Vec::with_capacity(rids.len());
    for &rid in rids.iter().take(REMOVED_TOGETHER) {
        let Some(bytes) = snapshot.get(keys::ITEMS, &keys::item(container.number, rid))? else { continue };
        let row = Row::parse(&bytes)?;
        let home = LogicalPartition::of(container, row.partition_key()?)?;
        let id_key = home.id_key(row.id()?);
        homes.push((home, id_key, rid));
    }
    Ok(homes)
}

fn removal(
    shared: &Shared,
    home: &LogicalPartition<'_>,
    id_key: &[u8],
    rid: u64,
    generation: u64,
) -> Result<Option<Prepared>, EngineError> {
    let indexes = home.container.partitions.indexes();
    let moment = home.container.moment(shared);
    let snapshot = shared.storage.snapshot()?;
    let Some(stored) = home.find(&*snapshot, id_key)?.filter(|stored| stored.rid == rid) else {
        return Ok(None);
    };
    let (_, row) = stored.parse()?;
    if !home.container.is_gone(&row, &moment) {
        return Ok(None);
    }
    let mut rows = Rows::new(shared, home, generation, Arc::clone(&indexes));
    rows.delete(rid, &row, id_key)?;
    Ok(Some(rows.finish()))
}
