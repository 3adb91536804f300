//! Starting and undoing, and the rows of a refactoring for the job and the worker that run it.

use quire_storage::{KeyRange, Op, Scan};
use quire_value::Value;

use super::{RekeyContainers, RekeyPair};
use crate::api::EngineError;
use crate::catalog::Container;
use crate::jobs::{JobId, NewJob};
use crate::partition::access::AccessState;
use crate::refactorings::order::RefactoringOrder;
use crate::refactorings::rows::{self, Refactoring, RefactoringState};
use crate::refactorings::{REFACTORING, Refactorings, container_not_found, parse_payload, payload, result};
use crate::store::keys::{self, CATALOG};
use crate::store::scan;

/// Database and number of a refactoring, and the state that a job of it is for.
type RekeyJob = ((u32, u32), u8);
/// Items that were left and are put back when it is undone after it was finished: writers wait meanwhile.
const RESTORED_MAX: usize = 10_000;

impl Refactorings {
    /// As the rows say it, before anything is written: who may write to which container, and which ones follow others.
    pub fn open_rekeys(&self) -> Result<(), EngineError> {
        let state = self.catalog.state();
        for own in rows::all(&*self.shared.storage.snapshot()?, None)? {
            let Some(places) = own.rekey.as_ref().filter(|_| own.state != RefactoringState::Undone) else {
                continue;
            };
            for number in [places.target, places.old].into_iter().flatten() {
                if let Some(container) = state.container(number) {
                    container.partitions.access().set(AccessState::Closed);
                }
            }
            self.register(&own, places)?;
        }
        Ok(())
    }

    /// The target follows what has the name.
    pub fn register(&self, own: &Refactoring, places: &RekeyContainers) -> Result<(), EngineError> {
        let Some(target) = places.target else { return Ok(()) };
        let order = own.order()?;
        let on_conflict = order.rule.rekey().and_then(|rule| rule.on_conflict);
        self.rekeys.insert(target, RekeyPair { source: own.container, on_conflict });
        Ok(())
    }

    /// Calls with one as it is now, while nobody else changes its state. `None`: it is gone.
    pub fn with_rekey<T>(
        &self,
        (database, number): (u32, u32),
        call: impl FnOnce(Refactoring) -> Result<T, EngineError>,
    ) -> Result<Option<T>, EngineError> {
        let _state_lock = self.state_lock.lock();
        // A commit of the catalog that nobody knows the end of may have changed the row.
        self.catalog.settle_unresolved()?;
        let own = rows::get(&*self.shared.storage.snapshot()?, database, number)?;
        own.filter(|own| own.rekey.is_some()).map(call).transpose()
    }

    /// Which refactoring the payload of a job is about, and the state that it is for; `None` where it is of another kind.
    pub fn rekey_of_payload(&self, payload: &[u8]) -> Result<Option<RekeyJob>, EngineError> {
        let Some((database, number, wanted)) = parse_payload(payload) else { return Ok(None) };
        let is_rekey = self.is_rekey((database, number))?;
        Ok(is_rekey.then_some(((database, number), wanted)))
    }

    pub fn is_rekey(&self, (database, number): (u32, u32)) -> Result<bool, EngineError> {
        let own = rows::get(&*self.shared.storage.snapshot()?, database, number)?;
        Ok(own.is_some_and(|own| own.rekey.is_some()))
    }

    pub fn put_rekey(&self, own: &Refactoring) -> Result<(), EngineError> {
        rows::put(&self.shared, &self.catalog, own)
    }

    pub fn remove_rekey(&self, own: &Refactoring) -> Result<(), EngineError> {
        rows::remove(&self.shared, &self.catalog, own)
    }

    /// What the row is to say, for a commit of the catalog.
    pub fn rekey_op(&self, own: &Refactoring) -> Op {
        own.op()
    }

    pub fn rekey_result(&self, own: &Refactoring) -> Value {
        result(own)
    }

    /// A job for the state that it is in, where it needs one and has none.
    pub fn add_missing_rekey_job(
        &self,
        own: &mut Refactoring,
        container: &Container,
    ) -> Result<(), EngineError> {
        let needs = own.state.has_job() && !self.shared.jobs.unfinished(REFACTORING).contains(&payload(own));
        if !needs {
            return Ok(());
        }
        let job: JobId = self.shared.jobs.create(rekey_job(own, container))?;
        own.jobs.push(job.to_string());
        self.put_rekey(own)
    }

    /// Items that a container leaves, counted up to more than can be put back.
    fn skipped_count(&self, container: u32) -> Result<usize, EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        let prefixes = [keys::skipped_items_prefix(container), keys::unplaceable_items_prefix(container)];
        let count = |prefix: &Vec<u8>| {
            let page = Scan {
                rows_max: RESTORED_MAX + 1,
                keys_only: true,
                ..scan(CATALOG, KeyRange::prefix(prefix))
            };
            Ok(snapshot.scan(&page)?.rows.len())
        };
        prefixes.iter().map(count).sum()
    }

    /// Whether a container can have another key: with its model, where one names it.
    pub(in crate::refactorings) fn check_rekey(
        &self,
        order: &RefactoringOrder,
        container: &Container,
    ) -> Result<(), EngineError> {
        let Some(rule) = order.rule.rekey() else { return Ok(()) };
        match &rule.model {
            Some(model) => self.catalog.check_rekeyed_model(container, &rule.key, model).map(drop),
            None => Ok(()),
        }
    }

    /// After it was finished, for as long as the old container is there.
    pub(in crate::refactorings) fn check_rekey_undo(&self, own: &Refactoring) -> Result<(), EngineError> {
        let (state, places) = (self.catalog.state(), own.rekey.clone().unwrap_or_default());
        let refused = |why: &str| {
            let (id, why) = (own.id(), why.to_owned());
            Err(EngineError::RefactoringRefuses { id, verb: "undone", why })
        };
        let is_there = |number: u32| state.container(number).is_some();
        if !is_there(own.container) {
            return refused("its container is deleted");
        }
        if own.state != RefactoringState::Finished {
            return Ok(());
        }
        if !places.old.is_some_and(is_there) {
            return refused("its old container is deleted");
        }
        if self.skipped_count(own.container)? > RESTORED_MAX {
            return refused("it left too many items, which are in the old container alone");
        }
        let container = state.container(own.container).ok_or_else(|| container_not_found(&own.id()))?;
        self.check_alone(own.database, &own.order()?, container)?;
        let model = state.database(own.database).and_then(|database| database.model.as_ref());
        let names = model
            .filter(|model| model.names(own.container))
            .map(|model| Value::Object(model.model().to_json()));
        match (names, &places.models) {
            (None, _) => Ok(()),
            (Some(now), Some((_, since))) if now == *since => Ok(()),
            (Some(_), _) => {
                refused("the model names its container, and is another one than it was made with")
            }
        }
    }
}

fn rekey_job(own: &Refactoring, container: &Container) -> NewJob {
    let about = [("refactoring", own.id()), ("does", own.state.name().to_owned())];
    container.job(REFACTORING, "items", about.into_iter().collect(), payload(own))
}
