//! Commits of transactions in modelled containers: what was written becomes one unit.
//!
//! A transaction without locks takes all locks of the unit at once, including those that it needs to validate its read
//! set. A transaction that already has locks may not wait for more: it takes those that are free, or returns the locks
//! that it needs ([`CommitFailure::Locks`]) and runs again with all of them.

use std::collections::HashMap;

use quire_resource::PartitionKey;

use super::commit::{CommitFailure, CommittedTransaction};
use super::own::OwnItem;
use super::{ReadProtection, Transaction};
use crate::api::EngineError;
use crate::catalog::Container;
use crate::items::logical_partition::{LogicalPartition, StoredRow};
use crate::maintain::write::without_follow;
use crate::maintain::{ModelSnapshot, NewItemVersion, StoredItemVersion, Unit, siblings};
use crate::partition::Partition;
use crate::partition::sequencer::{CommittedWrite, WriteRefused};
use crate::runtime::Shared;
use crate::runtime::locks::LockSet;
use crate::store::item_row::Stamp;
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};

/// Locks are taken again this often: every time what follows from the writes has grown.
const TRIES: u32 = 8;

/// What a transaction has written in one logical partition.
pub(super) struct TransactionPart<'a> {
    container: &'a Container,
    key: PartitionKey,
    partition: &'a Partition,
    /// Of the partition, from before the transaction's first read.
    generation: u64,
    items: Vec<OwnItem>,
    requested_ts: Option<i64>,
    /// Where it stood.
    lsn: u64,
    charge: f64,
}

/// A unit that is durable.
pub(super) struct MaintainedUnit {
    /// By container and child id.
    stamps: HashMap<(u32, u64), Stamp>,
    stored: HashMap<(u32, u64), Vec<u8>>,
    /// Of the first write of each partition.
    written: Vec<(u32, u32, CommittedWrite)>,
    /// Of everything but the writes themselves.
    pub charge: f64,
}

enum UnitAttempt {
    Done(MaintainedUnit),
    /// These have to be held.
    Locks(LockSet),
    Stale,
}

impl TransactionPart<'_> {
    pub fn has_changes(&self) -> bool {
        let has_changed =
            |own: &OwnItem| own.before.is_some() || own.now.is_some() || own.is_left || own.origin.is_some();
        self.items.iter().any(has_changed)
    }

    /// Whether nothing uncertain happened since it began: a commit that was in doubt then may have happened behind its view.
    fn is_on(&self, base: &ModelSnapshot<'_>) -> bool {
        #[cfg(feature = "schedules")]
        if is_put_back(Race::DoubtBehindView) {
            return true;
        }
        let site = base.sites.iter().find(|site| site.container.number == self.container.number);
        site.is_some_and(|site| site.generation(self.partition) == self.generation)
    }

    /// Whether it wrote or removed an item.
    pub fn changes(&self, rid: u64) -> bool {
        let rids = |own: &OwnItem| {
            let stored = own.before.iter().chain(&own.origin).map(|stored| stored.rid);
            stored.chain(own.now.as_ref().map(|now| now.rid)).any(|own| own == rid)
        };
        self.items.iter().any(rids)
    }
}

impl MaintainedUnit {
    /// What is to be said about one of the parts.
    pub fn committed(&self, part: &TransactionPart<'_>) -> CommittedTransaction {
        let number = part.container.number;
        let is_own = |(container, _): &&(u32, u64)| *container == number;
        let id = part.partition.layout.id;
        let written =
            self.written.iter().find(|(container, partition, _)| (*container, *partition) == (number, id));
        let written = written.map_or(CommittedWrite { lsn: part.lsn, ts: 0 }, |(_, _, written)| *written);
        let stamps =
            self.stamps.iter().filter(|(key, _)| is_own(key)).map(|((_, rid), stamp)| (*rid, *stamp));
        let stored = self.stored.iter().filter(|(key, _)| is_own(key));
        CommittedTransaction {
            lsn: written.lsn,
            ts: written.ts,
            charge: part.charge + self.charge,
            stamps: stamps.collect(),
            stored: stored.map(|((_, rid), json)| (*rid, json.clone())).collect(),
        }
    }
}

impl<'a> Transaction<'a> {
    pub(super) fn into_part(mut self) -> TransactionPart<'a> {
        self.take_part()
    }

    fn take_part(&mut self) -> TransactionPart<'a> {
        TransactionPart {
            container: self.logical_partition.container,
            key: self.logical_partition.place.key.clone(),
            partition: self.partition(),
            generation: self.generation,
            items: std::mem::take(&mut self.own).into_items(),
            requested_ts: self.own_etags.then_some(self.ts),
            lsn: self.lsn,
            charge: self.charge,
        }
    }

    pub(super) fn commit_maintained(mut self) -> Result<CommittedTransaction, CommitFailure> {
        if !matches!(self.holds, ReadProtection::Nothing) {
            let parts = [self.take_part()];
            return Ok(commit_with_locks(self.shared, &parts, &self.held)?.committed(&parts[0]));
        }
        let mut locks = self.locks_to_commit();
        let parts = [self.take_part()];
        for _ in 0..TRIES {
            let _held = self.shared.locks.take(&locks)?;
            self.validate()?;
            match attempt(self.shared, &parts, &locks)? {
                UnitAttempt::Done(maintained) => return Ok(maintained.committed(&parts[0])),
                UnitAttempt::Locks(needed) => locks.extend(&needed),
                UnitAttempt::Stale => break,
            }
        }
        self.shared.statistics.retry();
        Err(CommitFailure::Conflict)
    }
}

/// Commits what was written under locks that are held: nothing is waited for.
pub(super) fn commit_with_locks(
    shared: &Shared,
    parts: &[TransactionPart<'_>],
    held: &LockSet,
) -> Result<MaintainedUnit, CommitFailure> {
    let mut all = held.clone();
    let mut _further = None;
    for _ in 0..2 {
        match attempt(shared, parts, &all)? {
            UnitAttempt::Done(maintained) => return Ok(maintained),
            UnitAttempt::Stale => break,
            UnitAttempt::Locks(needed) => {
                let further = needed.beyond(&all).and_then(|further| {
                    let taken = shared.locks.try_take(&further)?;
                    all.extend(&further);
                    Some(taken)
                });
                if _further.is_some() || further.is_none() {
                    return Err(CommitFailure::Locks(needed));
                }
                _further = further;
            }
        }
    }
    shared.statistics.retry();
    Err(CommitFailure::Conflict)
}

fn attempt(
    shared: &Shared,
    parts: &[TransactionPart<'_>],
    locks: &LockSet,
) -> Result<UnitAttempt, CommitFailure> {
    let modelled = parts.iter().find_map(|part| Some((part.container, part.container.partitions.model()?)));
    let Some((container, model)) = modelled else { return Ok(UnitAttempt::Stale) };
    let others = siblings(container, &model.database)?;
    let mut own: Vec<&Container> = Vec::new();
    for part in parts {
        if own.iter().all(|other| other.number != part.container.number) {
            own.push(part.container);
        }
    }
    let base = ModelSnapshot::take(shared, &own, &others).map_err(|error| split_or(parts, error))?;
    let Some(base) = base.filter(|base| parts.iter().all(|part| part.is_on(base))) else {
        return Ok(UnitAttempt::Stale);
    };
    let mut unit = Unit::new(&base, base.model.model().fan_out_max as usize);
    let result = run(&mut unit, parts, locks);
    let rid = unit.refused_item().map(|(_, rid)| rid);
    let refused = |error| match error {
        error @ EngineError::RefusedByModel(_) => CommitFailure::Refused { error, rid },
        error => split_or(parts, error),
    };
    if let Some(needed) = result.map_err(refused)? {
        return Ok(UnitAttempt::Locks(needed));
    }
    submit(shared, container, unit).map_err(|failed| match failed {
        CommitFailure::Failed(error) => split_or(parts, error),
        failed => failed,
    })
}

/// Another container of the model was split: it is looked up again.
fn split_or(parts: &[TransactionPart<'_>], error: EngineError) -> CommitFailure {
    let is_moved = || parts.iter().any(|part| !part.container.partitions.is_current());
    match error {
        EngineError::PartitionMoved if !is_moved() => CommitFailure::Conflict,
        error => CommitFailure::from(error),
    }
}

/// Expands and checks a unit; locks that it needs besides.
fn run(
    unit: &mut Unit<'_>,
    parts: &[TransactionPart<'_>],
    locks: &LockSet,
) -> Result<Option<LockSet>, EngineError> {
    for part in parts {
        add(unit, part)?;
    }
    unit.expand()?;
    let needed = unit.locks()?;
    if !locks.covers(&needed) {
        return Ok(Some(needed));
    }
    unit.contribute()?;
    unit.put_owned_values()?;
    unit.check()?;
    Ok(None)
}

fn submit(shared: &Shared, container: &Container, unit: Unit<'_>) -> Result<UnitAttempt, CommitFailure> {
    let slots: Vec<_> = unit
        .slots
        .iter()
        .map(|slot| {
            let partition = slot.logical_partition.place.partition.layout.id;
            let after = slot.after.as_ref().filter(|_| slot.is_client);
            let json = after.map(|after| {
                let mut json = Vec::with_capacity(after.body.json_bytes as usize);
                after.body.item.root().write_json(&mut json);
                (json, after.own_etag)
            });
            ((slot.logical_partition.container.number, slot.rid), partition, json)
        })
        .collect();
    let commit = unit.into_commit().map_err(|error| match error {
        error @ EngineError::RefusedByModel(_) => CommitFailure::Refused { error, rid: None },
        error => CommitFailure::from(error),
    })?;
    let done = match commit.submit(shared, container.partitions.commit_queue()) {
        Ok(done) => done,
        Err(WriteRefused::Stale) => return Ok(UnitAttempt::Stale),
        Err(WriteRefused::Failed(error @ EngineError::RefusedByModel(_))) => {
            return Err(CommitFailure::Refused { error, rid: None });
        }
        Err(WriteRefused::Failed(EngineError::ItemTooLarge { .. })) => {
            return Err(CommitFailure::Failed(super::commit::too_large()));
        }
        Err(WriteRefused::Failed(EngineError::ResourceNotFound { .. })) => {
            return Err(CommitFailure::Failed(container.not_found()));
        }
        Err(WriteRefused::Failed(error)) => return Err(CommitFailure::Failed(error)),
    };
    let (mut stamps, mut stored, mut written_in) = (HashMap::new(), HashMap::new(), Vec::new());
    for (at, (name, partition, json)) in slots.into_iter().enumerate() {
        let Some((written, ordinal)) = done.write_of(at) else { continue };
        written_in.push((name.0, partition, written));
        if let (Some((json, own_etag)), Some(ordinal)) = (json, ordinal) {
            let CommittedWrite { lsn, ts } = written;
            let incarnation = shared.incarnation;
            stamps.insert(name, Stamp { incarnation, partition, lsn, ordinal, ts, own_etag });
            stored.insert(name, json);
        }
    }
    Ok(UnitAttempt::Done(MaintainedUnit { stamps, stored, written: written_in, charge: done.charge }))
}

/// The items that a transaction changed, as the unit's snapshot has them and as they are to be.
fn add(unit: &mut Unit<'_>, part: &TransactionPart<'_>) -> Result<(), EngineError> {
    for own in &part.items {
        let mut gone: Vec<&StoredRow> = Vec::new();
        let mut replaced = None;
        for stored in own.before.iter().chain(&own.origin) {
            match &own.now {
                Some(now) if now.rid == stored.rid => replaced = Some(stored),
                _ => gone.push(stored),
            }
        }
        if let Some(now) = &own.now {
            let site = unit.base.sites.iter().position(|site| site.container.number == part.container.number);
            let after = NewItemVersion {
                id_key: own.id_key.clone(),
                body: without_follow(unit.base, site.ok_or(EngineError::Overloaded)?, &now.body)?,
                tuples: now.tuples.clone(),
                directive: now.indexed.directive(),
                own_etag: now.own_etag,
            };
            let logical_partition = logical_partition_of(unit, part)?;
            let before = replaced.map(|stored| before(unit, &logical_partition, stored)).transpose()?;
            unit.add_client(logical_partition, now.rid, before, Some(after))?;
        }
        for stored in gone {
            let logical_partition = logical_partition_of(unit, part)?;
            let before = before(unit, &logical_partition, stored)?;
            unit.add_client(logical_partition, stored.rid, Some(before), None)?;
        }
    }
    if let Some(ts) = part.requested_ts {
        let partition = logical_partition_of(unit, part)?.place.partition.layout.id;
        unit.requested_ts.push(((part.container.number, partition), ts));
    }
    Ok(())
}

fn logical_partition_of<'u>(
    unit: &Unit<'u>,
    part: &TransactionPart<'_>,
) -> Result<LogicalPartition<'u>, EngineError> {
    let site = unit.base.sites.iter().find(|site| site.container.number == part.container.number);
    LogicalPartition::of(site.ok_or(EngineError::Overloaded)?.container, part.key.clone())
}

/// As it is stored now: index builders change rows without an LSN.
fn before(
    unit: &Unit<'_>,
    logical_partition: &LogicalPartition<'_>,
    stored: &StoredRow,
) -> Result<StoredItemVersion, EngineError> {
    let now = logical_partition.stored(&*unit.base.snapshot, stored.rid)?;
    let now = now.ok_or(EngineError::TransactionConflict)?;
    let site =
        unit.base.sites.iter().find(|site| site.container.number == logical_partition.container.number);
    let visibility_point = &site.ok_or(EngineError::Overloaded)?.visibility_point;
    let (_, row) = now.parse()?;
    let (id_key, is_live) = (
        logical_partition.id_key(row.id()?),
        !logical_partition.container.is_invisible(&row, visibility_point),
    );
    Ok(StoredItemVersion { id_key, bytes: now.bytes, is_live })
}
