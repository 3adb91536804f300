//! Single writes of items in modelled containers.

use std::sync::Arc;
use std::time::Duration;

use quire_model::FOLLOW_MEMBER;
use quire_value::Item;

use super::locks::{lock_named_target, needs_target};
use super::slot::Slot;
use super::{ModelSnapshot, NewItemVersion, StoredItemVersion, Unit, siblings};
use crate::api::{Answer, EngineError, ItemWritten, WriteItem, charge};
use crate::catalog::Container;
use crate::items;
use crate::items::body::Body;
use crate::items::logical_partition::{LogicalPartition, StoredRow};
use crate::items::write::{ExistingItems, WriteRequest, WriteSummary, missing_or, named};
use crate::links::TargetRoute;
use crate::model::ContainerModel;
use crate::partition::Partition;
use crate::partition::sequencer::{CommittedWrite, WriteRefused, attempts};
use crate::runtime::Shared;
#[cfg(test)]
use crate::runtime::injected_bug::InjectedBug;
use crate::runtime::locks::LockSet;
use crate::sync::sleep;

/// A write whose snapshot is stale, or that needs further locks, is prepared again this often.
const TRIES: u32 = 24;
/// Attempts without a wait before them: the first ones find which locks are needed.
const AT_ONCE: u32 = 4;
/// Then the referrers of a target are left to a job.
const CONTENDED_TRIES: u32 = 3;

/// A write without triggers, by the model of its database where that names the container.
pub(crate) fn write_any(shared: &Shared, container: &Container, write: &WriteItem) -> Answer<ItemWritten> {
    if container.partitions.is_modelled() {
        return write_item(shared, container, write);
    }
    let answer = items::write::write_item(shared, container, write);
    match answer.result {
        Err(EngineError::UnderModel) => write_item(shared, container, write),
        result => Answer { result, ..answer },
    }
}

pub(crate) fn write_item(shared: &Shared, container: &Container, write: &WriteItem) -> Answer<ItemWritten> {
    let mut partition = None;
    let done = run(shared, container, write, &mut partition);
    // Asked for after the write, so it covers it.
    let position = partition.and_then(|partition: &Partition| partition.position().ok());
    match done {
        Ok((written, charge)) => Answer { charge, position, result: Ok(written) },
        Err(error) => Answer { charge: charge::REFUSED, position, result: Err(error) },
    }
}

fn run<'a>(
    shared: &Shared,
    container: &'a Container,
    write: &WriteItem,
    partition: &mut Option<&'a Partition>,
) -> Result<(ItemWritten, f64), EngineError> {
    container.check_open()?;
    let request = match WriteRequest::new(container, write) {
        Ok(request) => request,
        Err(error) => return Err(missing_or(shared, container, named(write), error)),
    };
    *partition = Some(request.partition());
    run_request(shared, container, request)
}

/// A validated request, by itself. What it cost comes with it.
pub(crate) fn run_request(
    shared: &Shared,
    container: &Container,
    mut request: WriteRequest<'_>,
) -> Result<(ItemWritten, f64), EngineError> {
    let mut own_locks = LockSet::default();
    request.add_locks(shared, &mut own_locks);
    // Contended are those of referrers, which are known when the write was examined once.
    let (mut locks, mut contended, mut has_grown) = (own_locks.clone(), 0, false);
    for attempt in attempts(TRIES, AT_ONCE) {
        let Some(model) = container.partitions.model() else {
            let under_model = |error| match error {
                // It has got one just now: nothing was done.
                EngineError::UnderModel => EngineError::Overloaded,
                error => error,
            };
            return request.run(shared).map_err(under_model);
        };
        let others = siblings(container, &model.database)?;
        if attempt == 0 {
            guess(shared, &model, &others, &request, &mut locks);
        }
        let _held = match shared.locks.take(&locks) {
            Ok(held) => held,
            Err(EngineError::Contended) if has_grown && contended < CONTENDED_TRIES => {
                contended += 1;
                locks = if contended < CONTENDED_TRIES { locks } else { own_locks.clone() };
                continue;
            }
            Err(error) => return Err(error),
        };
        let leaves_to_jobs = contended >= CONTENDED_TRIES;
        let outcome = ModelSnapshot::take(shared, &[container], &others).and_then(|base| match &base {
            Some(base) => Attempt { shared, container, base, leaves_to_jobs }.run(&mut request, &mut locks),
            None => Ok(AttemptOutcome::Stale),
        });
        match outcome {
            // Another container of the model was split: it is looked up again.
            Err(EngineError::PartitionMoved) if container.partitions.is_current() => {
                sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
            Ok(AttemptOutcome::NeedsLocks) => has_grown = true,
            Ok(AttemptOutcome::Stale) => shared.statistics.retry(),
            Ok(AttemptOutcome::Committed { planned, written, json }) => {
                let answer = request.answer_with(shared, planned, written, json);
                return Ok((answer, charge::rounded(planned.charge)));
            }
        }
    }
    Err(EngineError::Overloaded)
}

/// Locks that the body alone says are needed: with luck all of them.
fn guess(
    shared: &Shared,
    model: &ContainerModel,
    others: &[Arc<Container>],
    request: &WriteRequest<'_>,
    locks: &mut LockSet,
) {
    let Some(body) = request.body() else { return };
    #[cfg(test)]
    if shared.injected_bug.is(InjectedBug::TargetNotLocked) {
        return;
    }
    let database = &model.database;
    for link in model.links_from.iter().filter(|link| needs_target(&database.rules, **link)) {
        let (rules, declaration) = (&database.rules.links[*link], database.declarations.links[*link].number);
        let target = &rules.link.to.container;
        let Some(container) = others.iter().find(|other| other.definition.id == *target) else { continue };
        let route = TargetRoute { link: rules, declaration, container };
        for reference in rules.references(body.item.root()).unwrap_or_default() {
            lock_named_target(&shared.locks, locks, route, &reference.target);
        }
    }
}

struct Attempt<'a> {
    shared: &'a Shared,
    container: &'a Container,
    base: &'a ModelSnapshot<'a>,
    /// Locks of referrers could not be had.
    leaves_to_jobs: bool,
}

enum AttemptOutcome {
    /// More has to be locked.
    NeedsLocks,
    Stale,
    Committed {
        planned: WriteSummary,
        written: (CommittedWrite, u16),
        json: Vec<u8>,
    },
}

impl Attempt<'_> {
    fn run(
        &self,
        request: &mut WriteRequest<'_>,
        locks: &mut LockSet,
    ) -> Result<AttemptOutcome, EngineError> {
        let base = self.base;
        let (snapshot, visibility_point) = (&*base.snapshot, &base.sites[0].visibility_point);
        let looked =
            request.find_existing(self.shared, snapshot, visibility_point, base.model.model().if_match)?;
        let invisible_conflicts = request.invisible_conflicts(snapshot, visibility_point, &looked);
        let fan_out_max = base.model.model().fan_out_max as usize;
        let mut unit = Unit::new(base, if self.leaves_to_jobs { 0 } else { fan_out_max });
        let own = self.add_own(&mut unit, request, &looked)?;
        for holder in invisible_conflicts.iter().flatten() {
            self.remove_invisible(&mut unit, request, holder)?;
        }
        unit.expand()?;
        let mut needed = unit.locks()?;
        request.add_locks(self.shared, &mut needed);
        if !locks.covers(&needed) {
            locks.extend(&needed);
            return Ok(AttemptOutcome::NeedsLocks);
        }
        unit.contribute()?;
        unit.put_owned_values()?;
        unit.check()?;
        invisible_conflicts?;
        let slot = &unit.slots[own];
        let json = match (&slot.after, request.body()) {
            (Some(after), _) => after.body.json.clone(),
            (None, Some(body)) => body.json.clone(), // a page that was emptied, and is gone
            (None, None) => Vec::new(),
        };
        let (rid, created) = (slot.rid, !looked.is_live && slot.after.is_some());
        let bytes = own_bytes(slot)?;
        let before = looked.there.as_ref().filter(|_| looked.is_live);
        let after = unit.slots[own].after.as_ref().map(|after| &after.body);
        request.note(before.map(StoredRow::parse).transpose()?.as_ref().map(|(_, row)| row), after, rid)?;
        let commit = unit.into_commit()?;
        let values = commit.indexed_values(own);
        let charge = match bytes {
            OwnBytes::New(bytes) if looked.is_live => charge::replace(bytes, values),
            OwnBytes::New(bytes) | OwnBytes::Gone(bytes) => charge::write(bytes, values),
            OwnBytes::Nothing => charge::REFUSED,
        };
        match commit.submit(self.shared, self.container.partitions.commit_queue()) {
            Ok(done) => {
                let written = done.write_of(own).unwrap_or((CommittedWrite { lsn: 0, ts: 0 }, None));
                let written = (written.0, written.1.unwrap_or(0));
                let planned = WriteSummary { rid, created, charge: charge + done.charge };
                Ok(AttemptOutcome::Committed { planned, written, json })
            }
            Err(WriteRefused::Stale) => Ok(AttemptOutcome::Stale),
            Err(WriteRefused::Failed(EngineError::ResourceNotFound { .. })) => {
                Err(self.container.not_found())
            }
            Err(WriteRefused::Failed(error)) => Err(error),
        }
    }

    /// The item of the request. What had its id, or the one that it gets, and is not seen any more, goes.
    fn add_own<'u>(
        &self,
        unit: &mut Unit<'u>,
        request: &mut WriteRequest<'_>,
        looked: &ExistingItems,
    ) -> Result<usize, EngineError>
    where
        Self: 'u,
    {
        let after = request.body().map(|body| self.after(request, body)).transpose()?;
        let id_key = request.id_keys().0.to_vec();
        let stored = |stored: &StoredRow, is_live| StoredItemVersion {
            id_key: id_key.clone(),
            bytes: stored.bytes.clone(),
            is_live,
        };
        let own = match &looked.there {
            Some(there) if looked.is_live => unit.add_client(
                self.logical_partition_of(unit, request)?,
                there.rid,
                Some(stored(there, true)),
                after,
            )?,
            there => {
                let rid = request.new_rid()?;
                let own = unit.add_client(self.logical_partition_of(unit, request)?, rid, None, after)?;
                if let Some(there) = there {
                    let gone = Some(stored(there, false));
                    unit.add_client(self.logical_partition_of(unit, request)?, there.rid, gone, None)?;
                }
                own
            }
        };
        if let Some(taken) = &looked.taken {
            self.remove_invisible(unit, request, taken)?;
        }
        Ok(own)
    }

    /// Removes an invisible item.
    fn remove_invisible(
        &self,
        unit: &mut Unit<'_>,
        request: &WriteRequest<'_>,
        stored: &StoredRow,
    ) -> Result<(), EngineError> {
        let logical_partition = self.logical_partition_of(unit, request)?;
        let (_, row) = stored.parse()?;
        let id_key = logical_partition.id_key(row.id()?);
        let before = StoredItemVersion { id_key, bytes: stored.bytes.clone(), is_live: false };
        unit.add_client(logical_partition, stored.rid, Some(before), None)?;
        Ok(())
    }

    fn logical_partition_of<'u>(
        &self,
        unit: &Unit<'u>,
        request: &WriteRequest<'_>,
    ) -> Result<LogicalPartition<'u>, EngineError> {
        LogicalPartition::of(unit.base.sites[0].container, request.key().clone())
    }

    fn after(&self, request: &WriteRequest<'_>, body: &Body) -> Result<NewItemVersion, EngineError> {
        Ok(NewItemVersion {
            id_key: request.id_keys().1.to_vec(),
            body: without_follow(self.base, 0, body)?,
            tuples: request.tuples().to_vec(),
            directive: request.directive(),
            own_etag: None,
        })
    }
}

/// JSON of the item of a request.
enum OwnBytes {
    New(usize),
    /// Of what is stored and goes.
    Gone(usize),
    Nothing,
}

fn own_bytes(slot: &Slot<'_>) -> Result<OwnBytes, EngineError> {
    Ok(match (&slot.after, &slot.before) {
        (Some(after), _) => OwnBytes::New(after.body.json_bytes as usize),
        (None, Some(before)) => OwnBytes::Gone(before.row()?.json_bytes as usize),
        (None, None) => OwnBytes::Nothing,
    })
}

/// The body without what answers add to items that are followed.
pub(crate) fn without_follow(
    base: &ModelSnapshot<'_>,
    site: usize,
    body: &Body,
) -> Result<Body, EngineError> {
    if body.item.root().get(FOLLOW_MEMBER).is_none() {
        return Ok(body.clone());
    }
    let mut value = body.item.root().to_value();
    base.model.rules.drop_follow(&base.sites[site].container.definition.id, &mut value);
    Body::of_item(Item::from_value(&value), !body.json.is_empty())
}
