//! Holding the writers of a container until it has exchanged its name with the one that follows it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_storage::{KeyRange, Scan};
use quire_value::Value;

use super::Rekeys;
use super::apply::RekeyApplier;
use super::copies::CopyBuilder;
use crate::api::{EngineError, corrupt};
use crate::background::follower::FollowerStep;
use crate::catalog::Container;
use crate::catalog::rekey::NameExchange;
use crate::partition::PartitionSet;
use crate::partition::access::AccessState;
use crate::refactorings::rekey::RekeyContainers;
use crate::refactorings::{Refactoring, RefactoringState};
use crate::store::keys::{self, CATALOG};
use crate::store::scan;
use crate::sync::sleep;

/// Writers are held for this time at most; where the rest cannot be taken by then, they go on and it is tried again.
const HELD_MAX: Duration = Duration::from_secs(1);
/// Another thread takes a step.
const STEP_WAIT: Duration = Duration::from_millis(1);
const PAGE_ROWS: usize = 100;

/// Writers of a container that are held; they go on when this is dropped.
struct HeldWriters {
    partitions: Arc<PartitionSet>,
    stays: bool,
}

impl HeldWriters {
    fn new(partitions: &Arc<PartitionSet>) -> HeldWriters {
        partitions.access().set(AccessState::Held);
        HeldWriters { partitions: Arc::clone(partitions), stays: false }
    }
}

impl Drop for HeldWriters {
    fn drop(&mut self) {
        if !self.stays {
            self.partitions.access().set(AccessState::Open);
        }
    }
}

impl Rekeys {
    /// Exchanges the names; false where the rest could not be taken in time.
    pub(super) fn exchange(
        &self,
        own: &mut Refactoring,
        current: &Arc<Container>,
        target: &Arc<Container>,
    ) -> Result<bool, EngineError> {
        current.partitions.settle_doubts()?;
        let mut hold = HeldWriters::new(&current.partitions);
        let deadline = Instant::now() + HELD_MAX;
        self.wait_for_barrier(current)?;
        let has_more = !self.catch_up(target.number, deadline)?;
        // Items of deleted keys are still among the versions to come.
        if has_more || !current.partitions.deleted_keys().is_empty() {
            return Ok(false);
        }
        if own.state == RefactoringState::Undoing {
            self.restore_skipped(own, current, target)?;
        }
        let exchanged = self.exchange_held(own, current, target);
        // Where the outcome is unknown, it is done, or will be before anything else of the catalog.
        hold.stays = matches!(exchanged, Ok(()) | Err(EngineError::Unresolved));
        exchanged.map(|()| true)
    }

    /// Returns when nothing is written any more, also where a partition was just split.
    fn wait_for_barrier(&self, current: &Arc<Container>) -> Result<(), EngineError> {
        let mut passed: Option<Arc<PartitionSet>> = None;
        loop {
            self.catalog.wait_for_publication();
            let found = self.catalog.current(current).ok_or_else(|| current.not_found())?;
            if passed.as_ref().is_some_and(|passed| Arc::ptr_eq(passed, &found.partitions)) {
                return Ok(());
            }
            found.partitions.wait_for_barrier()?;
            passed = Some(Arc::clone(&found.partitions));
        }
    }

    /// Follows until there is nothing to follow; false where that takes too long.
    fn catch_up(&self, target: u32, deadline: Instant) -> Result<bool, EngineError> {
        loop {
            match self.worker.work().step(target)? {
                None => return Ok(false),
                Some(FollowerStep::Idle) => return Ok(true),
                Some(FollowerStep::Busy) => sleep(STEP_WAIT),
                Some(FollowerStep::Done(_)) => {}
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
        }
    }

    fn exchange_held(
        &self,
        own: &mut Refactoring,
        current: &Container,
        target: &Container,
    ) -> Result<(), EngineError> {
        let (mut after, places) = (own.clone(), own.rekey.clone().unwrap_or_default());
        let is_back = own.state == RefactoringState::Undoing;
        let models = self.models(own, current, target, &places, is_back)?;
        let (dropped, key_before) = (places.old.filter(|_| is_back), places.key_before);
        (after.container, after.position) = (target.number, None);
        after.state = if is_back { RefactoringState::Undoing } else { RefactoringState::Finished };
        let (target_after, old) = (None, Some(current.number));
        let kept = if is_back { places.models } else { models.clone() };
        after.rekey = Some(RekeyContainers { target: target_after, old, is_back, key_before, models: kept });
        let model = models.as_ref().map(|(_, since)| since);
        let mut rows = vec![self.refactorings.rekey_op(&after)];
        if is_back {
            rows.extend(self.refactorings.moved_rows(own, target.number)?);
        }
        let names = (current.number, target.number);
        self.catalog.exchange(NameExchange { current: names.0, target: names.1, dropped, model, rows })?;
        *own = after;
        Ok(())
    }

    /// The model before and after, where one names the container.
    fn models(
        &self,
        own: &Refactoring,
        current: &Container,
        target: &Container,
        places: &RekeyContainers,
        is_back: bool,
    ) -> Result<Option<(Value, Value)>, EngineError> {
        let model = self.catalog.database_model(own.database);
        let Some(model) = model.filter(|model| model.names(current.number)) else { return Ok(None) };
        let before = Value::Object(model.model().to_json());
        let order = own.order()?;
        let requested = order.rule.rekey().and_then(|rule| rule.model.as_ref());
        let next = if is_back { places.models.as_ref().map(|(before, _)| before) } else { requested };
        let next =
            next.ok_or_else(|| EngineError::ModelInUse { container: current.definition.id.clone() })?;
        let key = target.definition.partition_key.to_json();
        Ok(Some((before, self.catalog.check_rekeyed_model(current, &key, next)?)))
    }

    /// Items that were left when the names were exchanged are in the old container alone: they come back, unless others have
    /// their places by now.
    fn restore_skipped(
        &self,
        own: &mut Refactoring,
        current: &Arc<Container>,
        target: &Arc<Container>,
    ) -> Result<(), EngineError> {
        let copies = CopyBuilder { source: current, target, on_conflict: None };
        let applier = RekeyApplier { shared: &self.shared, copies };
        for prefix in
            [keys::skipped_items_prefix(current.number), keys::unplaceable_items_prefix(current.number)]
        {
            let mut range = KeyRange::prefix(&prefix);
            loop {
                let page = Scan { rows_max: PAGE_ROWS, ..scan(CATALOG, range.clone()) };
                let page = self.shared.storage.snapshot()?.scan(&page)?;
                for (key, row) in &page.rows {
                    let rid = keys::rid_of_skipped_key(key).ok_or_else(|| corrupt("an item that is left"))?;
                    if !applier.restore(rid, row)? {
                        self.record_conflict(own, current, row, "another item has its place by now")?;
                    }
                }
                match page.rows.into_iter().next_back().filter(|_| page.more) {
                    Some((last, _)) => range.start = std::ops::Bound::Excluded(last),
                    None => break,
                }
            }
        }
        Ok(())
    }
}
