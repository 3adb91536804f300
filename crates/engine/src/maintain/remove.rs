//! Removing invisible items of modelled containers, with everything that follows from it.

use quire_model::ItemError;

use super::{ModelSnapshot, StoredItemVersion, Unit, siblings};
use crate::api::EngineError;
use crate::catalog::Container;
use crate::items::logical_partition::LogicalPartition;
use crate::items::remove::Removal;
use crate::partition::sequencer::WriteRefused;
use crate::runtime::Shared;
use crate::runtime::locks::LockSet;
use crate::store::item_row::ItemRow;
use crate::store::keys;

/// Items that are removed by one commit.
const ITEMS_AT_ONCE: usize = 64;

/// Pages of one item, where there are too many.
const PAGES_AT_ONCE: usize = 500;

/// The outcome of the removal of some items.
enum RemoveOutcome {
    Done(usize),
    /// Somebody holds one of them, or what depends on them.
    Held,
    /// They cannot be removed together.
    Failed(EngineError),
}

impl RemoveOutcome {
    fn is_progress(&self) -> bool {
        matches!(self, RemoveOutcome::Done(1..) | RemoveOutcome::Held)
    }
}

/// Removes those of the items that are still gone once they are locked. It waits for no lock.
pub(crate) fn remove_invisible_items(
    shared: &Shared,
    container: &Container,
    rids: &[u64],
) -> Result<Removal, EngineError> {
    let mut removal = Removal::default();
    for rids in rids.chunks(ITEMS_AT_ONCE) {
        if let RemoveOutcome::Done(count) = remove(shared, container, rids)? {
            removal.removed += count;
            continue;
        }
        for rid in rids {
            match remove(shared, container, &[*rid])? {
                RemoveOutcome::Done(count) => removal.removed += count,
                RemoveOutcome::Held => removal.later.push(*rid),
                // Pages that do not go with it go before it.
                RemoveOutcome::Failed(EngineError::RefusedByModel(ItemError::TooMuchAtOnce { .. }))
                    if remove_with(shared, container, &first_pages, &[*rid])?.is_progress() =>
                {
                    removal.later.push(*rid);
                }
                RemoveOutcome::Failed(error) => removal.unreadable.push((*rid, error)),
            }
        }
    }
    Ok(removal)
}

fn remove(shared: &Shared, container: &Container, rids: &[u64]) -> Result<RemoveOutcome, EngineError> {
    remove_with(shared, container, &expanded, rids)
}

/// What is removed because of some items.
type ExpandRemoval = dyn for<'a> Fn(&'a ModelSnapshot<'a>, &[u64]) -> Result<Unit<'a>, EngineError>;

fn remove_with(
    shared: &Shared,
    container: &Container,
    expanded: &ExpandRemoval,
    rids: &[u64],
) -> Result<RemoveOutcome, EngineError> {
    let Some(model) = container.partitions.model() else { return Ok(RemoveOutcome::Held) };
    let others = siblings(container, &model.database)?;
    let base = match ModelSnapshot::take(shared, &[container], &others) {
        Ok(Some(base)) => base,
        Ok(None) => return Ok(RemoveOutcome::Held),
        Err(error) => return failed(error),
    };
    let locks = match expanded(&base, rids).and_then(|unit| unit.locks()) {
        Ok(locks) => locks,
        Err(error) => return failed(error),
    };
    drop(base);
    let Some(_held) = shared.locks.try_take(&locks) else { return Ok(RemoveOutcome::Held) };
    let base = match ModelSnapshot::take(shared, &[container], &others) {
        Ok(Some(base)) => base,
        Ok(None) => return Ok(RemoveOutcome::Held),
        Err(error) => return failed(error),
    };
    match expanded(&base, rids).and_then(|unit| commit(shared, container, unit, &locks)) {
        Ok(removed) => Ok(removed),
        Err(error) => failed(error),
    }
}

/// A failure of the storage concerns all items.
fn failed(error: EngineError) -> Result<RemoveOutcome, EngineError> {
    match error {
        error @ EngineError::Storage(_) => Err(error),
        EngineError::PartitionMoved => Ok(RemoveOutcome::Held),
        error => Ok(RemoveOutcome::Failed(error)),
    }
}

fn commit(
    shared: &Shared,
    container: &Container,
    mut unit: Unit<'_>,
    locks: &LockSet,
) -> Result<RemoveOutcome, EngineError> {
    if !locks.covers(&unit.locks()?) {
        return Ok(RemoveOutcome::Held);
    }
    let count = unit.slots.iter().filter(|slot| slot.is_client).count();
    let count = if count == 0 { unit.slots.len() } else { count };
    if count == 0 {
        return Ok(RemoveOutcome::Done(0));
    }
    unit.contribute()?;
    unit.put_owned_values()?;
    unit.check()?;
    match unit.into_commit()?.submit(shared, container.partitions.commit_queue()) {
        Ok(_) => Ok(RemoveOutcome::Done(count)),
        Err(WriteRefused::Failed(error @ EngineError::Storage(_))) => Err(error),
        Err(WriteRefused::Failed(error @ EngineError::RefusedByModel(_))) => Err(error),
        Err(WriteRefused::Stale | WriteRefused::Failed(_)) => Ok(RemoveOutcome::Held),
    }
}

/// Those of the items that are still there and invisible.
fn expanded<'a>(base: &'a ModelSnapshot<'a>, rids: &[u64]) -> Result<Unit<'a>, EngineError> {
    let fan_out_max = base.model.model().fan_out_max as usize;
    let mut unit = Unit::new(base, fan_out_max);
    let site = &base.sites[0];
    for rid in rids {
        let key = keys::item(site.container.number, *rid);
        let Some(bytes) = base.snapshot.get(keys::ITEMS, &key)? else { continue };
        let row = ItemRow::parse(&bytes)?;
        if !site.container.is_invisible(&row, &site.visibility_point) {
            continue;
        }
        let logical_partition = LogicalPartition::of(site.container, row.partition_key()?)?;
        let id_key = logical_partition.id_key(row.id()?);
        let before = StoredItemVersion { id_key, bytes: bytes.clone(), is_live: false };
        unit.add_client(logical_partition, *rid, Some(before), None)?;
    }
    unit.expand()?;
    Ok(unit)
}

/// Some pages of an invisible item that has too many to be removed with it.
fn first_pages<'a>(base: &'a ModelSnapshot<'a>, rids: &[u64]) -> Result<Unit<'a>, EngineError> {
    let mut unit = Unit::new(base, base.model.model().fan_out_max as usize);
    let site = &base.sites[0];
    for rid in rids {
        let key = keys::item(site.container.number, *rid);
        let Some(bytes) = base.snapshot.get(keys::ITEMS, &key)? else { continue };
        let row = ItemRow::parse(&bytes)?;
        if site.container.is_invisible(&row, &site.visibility_point) {
            let logical_partition = LogicalPartition::of(site.container, row.partition_key()?)?;
            unit.remove_first_pages(logical_partition, &row, PAGES_AT_ONCE)?;
        }
    }
    unit.expand()?;
    Ok(unit)
}
