//! A refactoring that changes a partition key, from state to state: what its jobs do, and what is done between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_storage::{KeyRange, Op, Scan, Snapshot};
use quire_value::{Object, Value};

use super::Rekeys;
use super::copies::{is_any, skipped_page};
use crate::api::EngineError;
use crate::catalog::Container;
use crate::integrity::key_json;
use crate::jobs::{JobClaim, JobStep};
use crate::partition::access::AccessState;
use crate::refactorings::rekey::{OnConflict, RekeyedItem};
use crate::refactorings::{Refactoring, RefactoringState};
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, CATALOG};
use crate::store::{for_each_row, scan};

/// A target that is this many writes behind is close: the rest is taken while writers are held.
const CLOSE_WRITES: u64 = 5_000;
/// Before it is tried again to exchange names, or looked whether conflicts are gone.
const RETRY_WAIT: Duration = Duration::from_millis(200);
/// Filling rests for as long as half of a step took, at most.
const REST_MAX: Duration = Duration::from_millis(50);
const CONFLICTS_MAX: usize = 100;
const REMOVED_ROWS_MAX: usize = 500;
const CONFLICTS: &str =
    "another item would have the same id, or the same unique values, under the same partition key";
const TOO_LONG: &str = "its partition key would be too long";

impl Rekeys {
    /// Some work of a job.
    pub fn step(&self, id: (u32, u32), wanted: u8, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let done = self.refactorings.with_rekey(id, |mut own| {
            let is_first = own.state == RefactoringState::Finishing && own.jobs.len() == 1;
            if own.state as u8 != wanted && !is_first {
                return Ok((own.converted, JobStep::Done(self.refactorings.rekey_result(&own))));
            }
            let step = self.advance(&mut own)?;
            Ok((own.converted, step))
        })?;
        let Some((converted, step)) = done else { return Ok(JobStep::Cancelled) };
        if converted > claim.done() && !matches!(step, JobStep::Done(_)) {
            claim.commit(claim.advance(Vec::new(), converted, None), Vec::new())?;
        }
        Ok(step)
    }

    fn advance(&self, own: &mut Refactoring) -> Result<JobStep, EngineError> {
        let state = self.catalog.state();
        let Some(current) = state.container(own.container) else { return Ok(JobStep::Cancelled) };
        match own.state {
            RefactoringState::Undoing => self.undo(own, current),
            RefactoringState::Expanding | RefactoringState::Finishing => match self.filled(own, current)? {
                FillState::Not(step) => Ok(step),
                FillState::To(target) if own.state == RefactoringState::Finishing => {
                    self.finish(own, current, &target)
                }
                FillState::To(target) => self.end_expanding(own, &target),
            },
            RefactoringState::Expanded
            | RefactoringState::Finished
            | RefactoringState::Undone
            | RefactoringState::Blocked => Ok(JobStep::Done(self.refactorings.rekey_result(own))),
        }
    }

    /// The target, once it is there and close behind its source.
    fn filled(&self, own: &mut Refactoring, current: &Arc<Container>) -> Result<FillState, EngineError> {
        let places = own.rekey.clone().unwrap_or_default();
        let Some(number) = places.target else {
            self.make_target(own, current)?;
            return Ok(FillState::Not(JobStep::More));
        };
        let state = self.catalog.state();
        let Some(target) = state.container(number) else { return Ok(FillState::Not(JobStep::Cancelled)) };
        let lag = self.worker.work().lag(number)?;
        if lag.is_some_and(|lag| lag <= CLOSE_WRITES) {
            return Ok(FillState::To(Arc::clone(target)));
        }
        let started = Instant::now();
        let step = match self.worker.work().step(number) {
            Err(EngineError::PartitionMoved | EngineError::Contended | EngineError::Overloaded) => {
                JobStep::Rest(RETRY_WAIT / 10)
            }
            stepped => {
                stepped?;
                if lag.is_some() {
                    JobStep::More
                } else {
                    JobStep::Rest((started.elapsed() / 2).min(REST_MAX))
                }
            }
        };
        own.converted = own.converted.max(target.usage().0);
        Ok(FillState::Not(step))
    }

    /// An empty container with the other key, and the row that names it, in one commit.
    fn make_target(&self, own: &mut Refactoring, current: &Arc<Container>) -> Result<(), EngineError> {
        let (order, places) = (own.order()?, own.rekey.clone().unwrap_or_default());
        let requested = order.rule.rekey().map(|rule| rule.key.clone());
        let key = if own.state == RefactoringState::Undoing { Some(places.key_before) } else { requested };
        let key = key.ok_or_else(|| crate::api::corrupt("a refactoring without partition key"))?;
        let with_target = |number: u32| {
            let mut after = own.clone();
            if let Some(places) = &mut after.rekey {
                places.target = Some(number);
            }
            after
        };
        let op = |number: u32| self.refactorings.rekey_op(&with_target(number));
        let target = self.catalog.create_rekeyed(current, &key, op)?;
        *own = with_target(target.number);
        self.register(own)
    }

    fn register(&self, own: &Refactoring) -> Result<(), EngineError> {
        let places = own.rekey.clone().unwrap_or_default();
        self.refactorings.register(own, &places)
    }

    fn end_expanding(&self, own: &mut Refactoring, target: &Arc<Container>) -> Result<JobStep, EngineError> {
        own.converted = own.converted.max(target.usage().0);
        let finishes_itself = own.order()?.finishes_itself;
        let is_blocked = self.record_conflicts(own, target)?;
        own.state = match (is_blocked, finishes_itself) {
            (true, _) => RefactoringState::Blocked,
            (false, true) => RefactoringState::Finishing,
            (false, false) => RefactoringState::Expanded,
        };
        self.refactorings.put_rekey(own)?;
        self.refactorings.signal.wake();
        let is_over = own.state != RefactoringState::Finishing;
        Ok(if is_over { JobStep::Done(self.refactorings.rekey_result(own)) } else { JobStep::More })
    }

    fn finish(
        &self,
        own: &mut Refactoring,
        current: &Arc<Container>,
        target: &Arc<Container>,
    ) -> Result<JobStep, EngineError> {
        if self.record_conflicts(own, target)? {
            own.state = RefactoringState::Blocked;
            self.refactorings.put_rekey(own)?;
            self.refactorings.signal.wake();
            return Ok(JobStep::Done(self.refactorings.rekey_result(own)));
        }
        if !self.exchange(own, current, target)? {
            return Ok(JobStep::Rest(RETRY_WAIT));
        }
        self.refactorings.rekeys.remove(target.number);
        let name = &current.definition.id;
        self.shared.recorder.forget_container(&*self.shared.storage, own.database, name)?;
        self.shared.touched.invalidate(target.number);
        Ok(JobStep::Done(self.refactorings.rekey_result(own)))
    }

    /// Before the exchange: drop the target. After it: fill a container with the old key, exchange again, drop both others.
    fn undo(&self, own: &mut Refactoring, current: &Arc<Container>) -> Result<JobStep, EngineError> {
        let places = own.rekey.clone().unwrap_or_default();
        if places.is_back || places.old.is_none() {
            return self.drop_last(own);
        }
        let target = match self.filled(own, current)? {
            FillState::Not(step) => return Ok(step),
            FillState::To(target) => target,
        };
        let before = own.clone();
        if self.record_conflicts(own, &target)? {
            if *own != before {
                self.refactorings.put_rekey(own)?;
            }
            return Ok(JobStep::Rest(RETRY_WAIT));
        }
        if !self.refactorings.copy_journals(own, &target)? {
            return Ok(JobStep::More);
        }
        if !self.exchange(own, current, &target)? {
            return Ok(JobStep::Rest(RETRY_WAIT));
        }
        self.refactorings.rekeys.remove(target.number);
        Ok(JobStep::More)
    }

    /// The container that has the name is the only one that stays.
    fn drop_last(&self, own: &mut Refactoring) -> Result<JobStep, EngineError> {
        let places = own.rekey.clone().unwrap_or_default();
        let dropped = if places.is_back { places.old } else { places.target };
        let mut after = own.clone();
        after.state = RefactoringState::Undone;
        if let Some(places) = &mut after.rekey {
            (places.target, places.old) = (None, None);
        }
        self.catalog.drop_rekeyed(dropped, self.refactorings.rekey_op(&after))?;
        if let Some(number) = places.target {
            self.refactorings.rekeys.remove(number);
        }
        *own = after;
        Ok(JobStep::Done(self.refactorings.rekey_result(own)))
    }

    /// What the worker does for one. Whether there is something to follow, and whether there is more of it right now.
    pub fn follow(&self, id: (u32, u32)) -> Result<(bool, bool), EngineError> {
        let followed = self.refactorings.with_rekey(id, |mut own| {
            let state = self.catalog.state();
            let Some(current) = state.container(own.container) else {
                return self.remove_refactoring(&own).map(|()| (false, false));
            };
            self.refactorings.add_missing_rekey_job(&mut own, current)?;
            match own.state {
                RefactoringState::Expanded | RefactoringState::Blocked => self.update_conflicts(own, current),
                RefactoringState::Finished => Ok((false, self.remove_skipped_rows(own)?)),
                RefactoringState::Expanding
                | RefactoringState::Finishing
                | RefactoringState::Undoing
                | RefactoringState::Undone => Ok((false, false)),
            }
        })?;
        Ok(followed.unwrap_or((false, false)))
    }

    /// Conflicts come and go with what clients write.
    fn update_conflicts(
        &self,
        mut own: Refactoring,
        current: &Arc<Container>,
    ) -> Result<(bool, bool), EngineError> {
        let before = own.clone();
        let FillState::To(target) = self.filled(&mut own, current)? else { return Ok((true, true)) };
        let is_blocked = self.record_conflicts(&mut own, &target)?;
        own.state = match (is_blocked, own.state) {
            (true, _) => RefactoringState::Blocked,
            (false, RefactoringState::Blocked) if own.order()?.finishes_itself => RefactoringState::Finishing,
            (false, _) => RefactoringState::Expanded,
        };
        if own != before {
            self.refactorings.put_rekey(&own)?;
            self.refactorings.add_missing_rekey_job(&mut own, current)?;
        }
        Ok((true, false))
    }

    /// Its container is gone, and not with its database: what it has left behind is an ordinary container.
    fn remove_refactoring(&self, own: &Refactoring) -> Result<(), EngineError> {
        let state = self.catalog.state();
        if state.database(own.database).is_none() {
            return Ok(());
        }
        let places = own.rekey.clone().unwrap_or_default();
        for container in
            [places.target, places.old].into_iter().flatten().filter_map(|own| state.container(own))
        {
            container.partitions.access().set(AccessState::Open);
        }
        self.refactorings.remove_rekey(own)
    }

    /// Once the old container is gone nothing is put back: whether there is more to forget.
    fn remove_skipped_rows(&self, mut own: Refactoring) -> Result<bool, EngineError> {
        let state = self.catalog.state();
        let Some(places) = own.rekey.as_mut() else { return Ok(false) };
        if places.old.is_none_or(|old| state.container(old).is_some()) {
            return Ok(false);
        }
        let ops = skipped_page(&*self.shared.storage.snapshot()?, own.container, REMOVED_ROWS_MAX)?;
        if ops.is_empty() {
            places.old = None;
            return self.refactorings.put_rekey(&own).map(|()| false);
        }
        let key = |op: Op| match op {
            Op::Delete { key, .. } => Some(key),
            Op::Put { .. } | Op::Rows { .. } => None,
        };
        self.catalog.remove_rows(ops.into_iter().filter_map(key).collect())?;
        Ok(true)
    }

    /// Lists what is left; whether that has to be decided.
    fn record_conflicts(&self, own: &mut Refactoring, target: &Container) -> Result<bool, EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        let order = own.order()?;
        let unplaceable = keys::unplaceable_items_prefix(target.number);
        let is_blocked = match order.rule.rekey().and_then(|rule| rule.on_conflict) {
            Some(OnConflict::Skip) => false,
            Some(OnConflict::First | OnConflict::Newest) => is_any(&*snapshot, &unplaceable)?,
            None => is_any(&*snapshot, &keys::skipped_prefix(target.number))?,
        };
        own.conflicts.clear();
        own.conflict_count = 0;
        let conflicting = keys::skipped_items_prefix(target.number);
        for (prefix, why) in [(conflicting, CONFLICTS), (unplaceable, TOO_LONG)] {
            self.list_skipped(&*snapshot, own, &prefix, why)?;
        }
        Ok(is_blocked)
    }

    fn list_skipped(
        &self,
        snapshot: &dyn Snapshot,
        own: &mut Refactoring,
        prefix: &[u8],
        why: &str,
    ) -> Result<(), EngineError> {
        let state = self.catalog.state();
        let Some(current) = state.container(own.container) else { return Ok(()) };
        let page = Scan { rows_max: CONFLICTS_MAX, ..scan(CATALOG, KeyRange::prefix(prefix)) };
        for (_, row) in &snapshot.scan(&page)?.rows {
            if own.conflicts.len() < CONFLICTS_MAX {
                own.conflicts.push(conflict(current, row, why)?);
            }
        }
        let mut count = 0;
        for_each_row(snapshot, CATALOG, prefix, |_, _| {
            count += 1;
            Ok(())
        })?;
        own.conflict_count += count;
        Ok(())
    }

    pub(super) fn record_conflict(
        &self,
        own: &mut Refactoring,
        container: &Container,
        row: &[u8],
        why: &str,
    ) -> Result<(), EngineError> {
        own.add_conflict(conflict(container, row, why)?);
        Ok(())
    }
}

/// A target that is close behind, or what is to be done until there is one.
enum FillState {
    To(Arc<Container>),
    Not(JobStep),
}

fn conflict(container: &Container, row: &[u8], why: &str) -> Result<Value, EngineError> {
    let row = ItemRow::parse(row)?;
    let place = RekeyedItem::of(container.number, &container.definition, row.node()?);
    let mut json = Object::new();
    json.set("container", container.definition.id.as_str());
    json.set("id", row.id()?);
    json.set("partitionKey", place.map_or(Value::Null, |place| key_json(&place.key)));
    json.set("path", "");
    json.set("reason", why);
    Ok(Value::Object(json))
}
