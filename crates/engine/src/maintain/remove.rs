//! Removing items of modelled containers that nobody sees any more, with everything that follows from it.

use super::{Before, Ground, Unit, siblings};
use crate::api::EngineError;
use crate::catalog::Container;
use crate::items::logical_partition::LogicalPartition;
use crate::items::remove::Removal;
use crate::partition::sequencer::Refused;
use crate::runtime::Shared;
use crate::runtime::locks::LockSet;
use crate::store::item_row::Row;
use crate::store::keys;

/// Items that are removed by one commit.
const ITEMS_AT_ONCE: usize = 64;

/// What became of some items together.
enum Removed {
    Done(usize),
    /// Somebody holds one of them, or what depends on them.
    Held,
    /// They cannot be removed together.
    Failed(EngineError),
}

/// Removes those of the items that are still gone once they are locked. It waits for no lock.
pub(crate) fn remove_gone(
    shared: &Shared,
    container: &Container,
    rids: &[u64],
) -> Result<Removal, EngineError> {
    let mut removal = Removal::default();
    for rids in rids.chunks(ITEMS_AT_ONCE) {
        if let Removed::Done(count) = remove(shared, container, rids)? {
            removal.removed += count;
            continue;
        }
        for rid in rids {
            match remove(shared, container, &[*rid])? {
                Removed::Done(count) => removal.removed += count,
                Removed::Held => removal.later.push(*rid),
                Removed::Failed(error) => removal.unreadable.push((*rid, error)),
            }
        }
    }
    Ok(removal)
}

fn remove(shared: &Shared, container: &Container, rids: &[u64]) -> Result<Removed, EngineError> {
    let Some(model) = container.partitions.model() else { return Ok(Removed::Held) };
    let others = siblings(container, &model.database)?;
    let ground = match Ground::take(shared, &[container], &others) {
        Ok(Some(ground)) => ground,
        Ok(None) => return Ok(Removed::Held),
        Err(error) => return failed(error),
    };
    let locks = match expanded(&ground, rids).and_then(|unit| unit.locks()) {
        Ok(locks) => locks,
        Err(error) => return failed(error),
    };
    drop(ground);
    let Some(_held) = shared.locks.try_take(&locks) else { return Ok(Removed::Held) };
    let ground = match Ground::take(shared, &[container], &others) {
        Ok(Some(ground)) => ground,
        Ok(None) => return Ok(Removed::Held),
        Err(error) => return failed(error),
    };
    match commit(shared, container, &ground, rids, &locks) {
        Ok(removed) => Ok(removed),
        Err(error) => failed(error),
    }
}

/// A failure of the storage concerns all items.
fn failed(error: EngineError) -> Result<Removed, EngineError> {
    match error {
        error @ EngineError::Storage(_) => Err(error),
        EngineError::PartitionMoved => Ok(Removed::Held),
        error => Ok(Removed::Failed(error)),
    }
}

fn commit(
    shared: &Shared,
    container: &Container,
    ground: &Ground<'_>,
    rids: &[u64],
    locks: &LockSet,
) -> Result<Removed, EngineError> {
    let mut unit = expanded(ground, rids)?;
    if !locks.covers(&unit.locks()?) {
        return Ok(Removed::Held);
    }
    let count = unit.slots.iter().filter(|slot| slot.is_client).count();
    if count == 0 {
        return Ok(Removed::Done(0));
    }
    unit.contribute()?;
    unit.settle()?;
    unit.check()?;
    match unit.into_commit()?.submit(shared, container.partitions.commit_queue()) {
        Ok(_) => Ok(Removed::Done(count)),
        Err(Refused::Failed(error @ EngineError::Storage(_))) => Err(error),
        Err(Refused::Failed(error @ EngineError::RefusedByModel(_))) => Err(error),
        Err(Refused::Stale | Refused::Failed(_)) => Ok(Removed::Held),
    }
}

/// Those of the items that are still there and that nobody sees.
fn expanded<'a>(ground: &'a Ground<'a>, rids: &[u64]) -> Result<Unit<'a>, EngineError> {
    let fan_out_max = ground.model.model().fan_out_max as usize;
    let mut unit = Unit::new(ground, fan_out_max);
    let site = &ground.sites[0];
    for rid in rids {
        let key = keys::item(site.container.number, *rid);
        let Some(bytes) = ground.snapshot.get(keys::ITEMS, &key)? else { continue };
        let row = Row::parse(&bytes)?;
        if !site.container.is_gone(&row, &site.moment) {
            continue;
        }
        let home = LogicalPartition::of(site.container, row.partition_key()?)?;
        let id_key = home.id_key(row.id()?);
        let before = Before { id_key, bytes: bytes.clone(), is_live: false };
        unit.add_client(home, *rid, Some(before), None)?;
    }
    unit.expand()?;
    Ok(unit)
}
