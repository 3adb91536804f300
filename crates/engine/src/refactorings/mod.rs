//! Refactorings: the items of a container get another form, while clients read and write it.
//!
//! One is *expanded* by a job that goes along the changes of the container from its beginning ([`run`]); from then on a worker
//! follows later writes until it is *finished*, or *undone* from its journal. Everything about it is in rows ([`rows`]):
//! what a job or the worker does can be done again from there. `rename` and `retype` change items of one container by
//! themselves; `rekey` ([`rekey`]) is a container beside another one, which `background::rekey` fills; the others
//! change items of several containers along declarations of the model ([`structure`]).

mod convert; // one item, and back
mod dry_run; // what would be done
mod elements; // elements of arrays that clients have moved
mod forms; // values of one type as another
mod order; // what is asked for
pub(crate) mod rekey; // another partition key
mod rows; // refactorings and journals in the storage
mod run; // some items at a time
mod structure; // refactorings along declarations
mod undo; // the way back
mod writes; // items, journal and position in few commits

use std::sync::Arc;

use parking_lot::Mutex;
use quire_model::Model;
use quire_value::{Object, Value};

use crate::api::EngineError;
use crate::catalog::{Catalog, Container};
use crate::jobs::{JobClaim, JobControl, JobId, JobState, NewJob};
use crate::model::DatabaseModel;
use crate::runtime::Shared;
use crate::runtime::signals::Signal;

pub(crate) use dry_run::DryRun;
pub(crate) use order::RefactoringOrder;
use order::Rule;
use rekey::{RekeyContainers, RekeyPairs};
pub(crate) use rows::{Refactoring, RefactoringState};
use run::RefactoringRun;
use structure::{Structure, StructureProgress, StructureRun};

pub(crate) const REFACTORING: &str = "refactoring";
/// Items of one step, and while clients write: they wait for the items that a step has locked.
pub(crate) const STEP_ITEMS: usize = 500;
pub(crate) const STEP_ITEMS_BESIDE_WRITERS: usize = 100;
/// How long what items had is kept after a refactoring was finished.
const JOURNAL_MS: i64 = 7 * 24 * 3600 * 1000;
/// A journal that would be larger is refused.
const JOURNAL_BYTES_MAX: u64 = 1 << 30;
/// Refactorings that are over and whose journal is, too, are listed up to so many.
const OVER_MAX: usize = 100;

pub(crate) struct Refactorings {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    /// Held while states change and items are written: a worker converts nothing behind an undo.
    state_lock: Mutex<()>,
    /// Of the worker that follows.
    pub signal: Arc<Signal>,
    /// Containers that are filled from others.
    pub rekeys: RekeyPairs,
}

/// What a job has come to.
pub(crate) enum JobProgress {
    /// Items that were converted or looked at until now.
    More(u64),
    Done(Value),
    /// Something else is under way that it waits for.
    Waiting,
    /// A client has to decide something.
    Blocked {
        error: String,
        result: Value,
    },
    /// The container or the refactoring is gone.
    Gone,
}

impl Refactorings {
    pub fn new(shared: Arc<Shared>, catalog: Arc<Catalog>) -> Refactorings {
        let (state_lock, signal, rekeys) = Default::default();
        Refactorings { shared, catalog, state_lock, signal, rekeys }
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Partitions of the database that a job is for: one commit of it has no more.
    pub fn partition_count(&self, claim: &JobClaim<'_>) -> u64 {
        let state = self.catalog.state();
        let database = claim.body.database.as_ref().and_then(|owner| state.database(owner.number));
        let containers = database.into_iter().flat_map(|database| database.containers.iter());
        containers.map(|container| container.partitions.all().len() as u64).sum()
    }

    /// Items of the container that a job is for.
    pub fn item_count(&self, claim: &JobClaim<'_>) -> u64 {
        let state = self.catalog.state();
        let container = claim.body.container.as_ref().and_then(|owner| state.container(owner.number));
        container.map_or(0, |container| container.usage().0)
    }

    pub fn list(&self, database: u32) -> Result<Vec<Refactoring>, EngineError> {
        rows::all(&*self.shared.storage.snapshot()?, Some(database))
    }

    /// By its id: `r-3`.
    pub fn find(&self, database: u32, id: &str) -> Result<Refactoring, EngineError> {
        let not_found = || EngineError::ResourceNotFound { kind: "refactoring", id: id.to_owned() };
        let number = id.strip_prefix("r-").and_then(|number| number.parse().ok()).ok_or_else(not_found)?;
        rows::get(&*self.shared.storage.snapshot()?, database, number)?.ok_or_else(not_found)
    }

    /// The order of a body, with what follows from the items and the model.
    pub fn resolved(
        &self,
        container: &Container,
        order: RefactoringOrder,
    ) -> Result<RefactoringOrder, EngineError> {
        structure::resolved(&self.shared, container, order)
    }

    /// What a body asks for, in a database by its name: the number of that, and the container.
    pub fn order(
        &self,
        database: &str,
        body: &Value,
    ) -> Result<(u32, RefactoringOrder, Arc<Container>), EngineError> {
        let model = self.catalog.named_model(database)?;
        self.order_under(database, body, model.as_deref().map(DatabaseModel::model))
    }

    /// The same under a model that is not put yet.
    pub fn order_under(
        &self,
        database: &str,
        body: &Value,
        model: Option<&Model>,
    ) -> Result<(u32, RefactoringOrder, Arc<Container>), EngineError> {
        let not_found = || EngineError::ResourceNotFound { kind: "database", id: database.to_owned() };
        let number = self.catalog.state().databases.find(database).ok_or_else(not_found)?.number();
        let order = RefactoringOrder::parse(body)?.with_model(model)?;
        let container = self.catalog.container(database, &order.container)?;
        Ok((number, order, container))
    }

    /// Starts what a body asks for.
    pub fn start_named(&self, database: &str, body: Value) -> Result<Refactoring, EngineError> {
        let (number, order, container) = self.order(database, &body)?;
        self.start(number, &container, (&order, body))
    }

    /// Stores a refactoring, and starts the job that expands it.
    pub fn start(
        &self,
        database: u32,
        container: &Container,
        (order, body): (&RefactoringOrder, Value),
    ) -> Result<Refactoring, EngineError> {
        let order = &structure::resolved(&self.shared, container, order.clone())?;
        self.check_alone(database, order, container)?;
        order.check(container)?;
        self.check_rekey(order, container)?;
        if order.has_journal && container.usage().1 > JOURNAL_BYTES_MAX {
            let bytes = DryRun::of_all(&self.shared, container, order)?.journal_bytes;
            if bytes > JOURNAL_BYTES_MAX {
                return Err(EngineError::JournalTooLarge { bytes });
            }
        }
        let _state_lock = self.state_lock.lock();
        self.check_alone(database, order, container)?;
        let all = self.list(database)?;
        let model = self.catalog.database_model(database);
        let plan = match &order.rule {
            Rule::Structure(_) if !self.shared.storage.caps().commit_spans_partitions => {
                return Err(EngineError::NotSupported {
                    feature: "This refactoring on this storage".to_owned(),
                });
            }
            Rule::Structure(structure) => Some(structure.plan(container, model.as_deref())),
            Rule::Rename { .. } | Rule::Retype { .. } | Rule::Rekey(_) => None,
        };
        let own = Refactoring {
            database,
            number: all.iter().map(|own| own.number).max().unwrap_or(0) + 1,
            container: container.number,
            body,
            state: RefactoringState::Expanding,
            jobs: Vec::new(),
            position: None,
            converted: 0,
            conflicts: Vec::new(),
            conflict_count: 0,
            journal_until: None,
            journal_bytes: 0,
            plan,
            rekey: order.rule.rekey().map(|_| RekeyContainers {
                key_before: container.definition.partition_key.to_json(),
                ..RekeyContainers::default()
            }),
        };
        rows::put(&self.shared, &self.catalog, &own)?;
        self.remove_oldest(&all)?;
        if own.plan.is_some() {
            return self.add_job_now(own);
        }
        if let Err(error) = self.check_settled(order, container.number) {
            rows::remove(&self.shared, &self.catalog, &own)?;
            return Err(error);
        }
        self.add_job_now(own)
    }

    /// The same checks behind a change of the model that had begun before the row was stored. One that begins later finds the row.
    fn check_settled(&self, order: &RefactoringOrder, container: u32) -> Result<(), EngineError> {
        self.catalog.settle_unresolved()?;
        self.check_container(order, container)
    }

    fn check_container(&self, order: &RefactoringOrder, container: u32) -> Result<(), EngineError> {
        let state = self.catalog.state();
        let id = &order.container;
        let container_not_found = || EngineError::ResourceNotFound { kind: "container", id: id.clone() };
        order.check(state.container(container).ok_or_else(container_not_found)?)
    }

    /// The row of a refactoring is in commits of the database's items, too: it is read and written by itself behind those only.
    fn settle(&self, database: u32) -> Result<(), EngineError> {
        self.shared.advice.settle(&*self.shared.storage)?;
        self.catalog.commit_queue(database).settle()
    }

    /// Contracts it: later writes are not followed any more.
    pub fn finish(&self, database: u32, id: &str) -> Result<Refactoring, EngineError> {
        let _state_lock = self.state_lock.lock();
        self.settle(database)?;
        let own = self.find(database, id)?;
        match own.state {
            RefactoringState::Expanded => self.set_state(own, RefactoringState::Finishing),
            state => Err(refused(&own, "finished", state)),
        }
    }

    /// The refactoring that a job works on.
    pub fn of_job(&self, job: JobId) -> Result<Option<Refactoring>, EngineError> {
        let all = rows::all(&*self.shared.storage.snapshot()?, None)?;
        Ok(all.into_iter().find(|own| own.jobs.contains(&job.to_string())))
    }

    /// No other refactoring is open in one of the containers.
    pub fn check_alone(
        &self,
        database: u32,
        order: &RefactoringOrder,
        container: &Container,
    ) -> Result<(), EngineError> {
        let id = &container.definition.id;
        let names = order.containers(id);
        let state = self.catalog.state();
        let is_open =
            |other: &&Refactoring| other.state.is_open() && state.container(other.container).is_some();
        for other in self.list(database)?.iter().filter(is_open) {
            let others = other
                .order()?
                .containers(other.body.get("container").and_then(Value::as_str).unwrap_or_default());
            let is_same = |name: &&String| {
                others.contains(name) || **name == *id && other.container == container.number
            };
            if let Some(name) = names.iter().find(is_same) {
                return Err(EngineError::RefactoringRunning { container: name.clone() });
            }
        }
        Ok(())
    }

    /// The oldest of those that cannot be undone any more are not listed for ever.
    fn remove_oldest(&self, all: &[Refactoring]) -> Result<(), EngineError> {
        let now = self.shared.clock.now_ms();
        let has_old = |own: &Refactoring| own.rekey.as_ref().is_some_and(|places| places.old.is_some());
        let is_over = |own: &&Refactoring| {
            !own.state.is_open() && !has_old(own) && own.journal_until.is_none_or(|until| until <= now)
        };
        let over: Vec<&Refactoring> = all.iter().filter(is_over).collect();
        let count = over.len().saturating_sub(OVER_MAX);
        over.into_iter().take(count).try_for_each(|own| rows::remove(&self.shared, &self.catalog, own))
    }

    fn set_state(&self, mut own: Refactoring, state: RefactoringState) -> Result<Refactoring, EngineError> {
        let blocked = own
            .jobs
            .last()
            .filter(|_| own.state == RefactoringState::Blocked && own.rekey.is_none())
            .and_then(|job| job.parse().ok());
        own.state = state;
        rows::put(&self.shared, &self.catalog, &own)?;
        let own = self.add_job_now(own)?;
        // The job that waited for a decision ends.
        if let Some(job) = blocked {
            self.shared.jobs.control(job, JobControl::Resume)?;
        }
        Ok(own)
    }

    /// Where that fails, the worker adds it.
    fn add_job_now(&self, mut own: Refactoring) -> Result<Refactoring, EngineError> {
        self.add_job(&mut own).inspect_err(|_| self.signal.wake())?;
        Ok(own)
    }

    /// The row says what is to be done: where the engine ends before the job is there, the worker adds it.
    fn add_job(&self, own: &mut Refactoring) -> Result<(), EngineError> {
        let state = self.catalog.state();
        let Some(container) = state.container(own.container) else { return Ok(()) };
        let about = Object::from_iter([("refactoring", own.id()), ("does", own.state.name().to_owned())]);
        let job: NewJob = container.job(REFACTORING, "items", about, payload(own));
        own.jobs.push(self.shared.jobs.create(job)?.to_string());
        rows::put(&self.shared, &self.catalog, own)
    }

    /// Does some of the work of a job, whose payload says which state it is for: at most so many items.
    pub fn step(&self, claim: &mut JobClaim<'_>, items_max: usize) -> Result<JobProgress, EngineError> {
        let _state_lock = self.state_lock.lock();
        let Some((database, number, wanted)) = parse_payload(&claim.body.payload) else {
            return Ok(JobProgress::Gone);
        };
        self.settle(database)?;
        let snapshot = self.shared.storage.snapshot()?;
        let Some(mut own) = rows::get(&*snapshot, database, number)? else { return Ok(JobProgress::Gone) };
        drop(snapshot);
        // What came to an end by itself goes on to be finished by the same job.
        let is_blocked = own.state == RefactoringState::Blocked && is_current(&own, wanted);
        let is_own =
            own.state as u8 == wanted || (own.state == RefactoringState::Finishing && own.jobs.len() == 1);
        if !is_own && !is_blocked {
            return Ok(JobProgress::Done(result(&own)));
        }
        let state = self.catalog.state();
        let Some(container) = state.container(own.container) else { return Ok(JobProgress::Gone) };
        let order = own.order()?;
        if let Rule::Structure(structure) = &order.rule {
            return self.step_structure(own, (&order, structure), container, (claim, wanted, items_max));
        }
        let journal = container;
        let current = match own.state {
            RefactoringState::Undoing => self.current_container(&own)?,
            _ => own.container,
        };
        let Some(container) = state.container(current) else { return Ok(JobProgress::Gone) };
        // It goes on when no model names the container any more.
        if container.partitions.is_modelled() {
            return Err(EngineError::UnderModel);
        }
        if own.journal_bytes > JOURNAL_BYTES_MAX && own.state != RefactoringState::Undoing {
            let error = "its journal has more than 1 GB: undo it, or start it without one".to_owned();
            return self.block(own, error);
        }
        let mut run = RefactoringRun {
            shared: &self.shared,
            catalog: &self.catalog,
            container,
            journal,
            own: &mut own,
            claim: Some(claim),
            items_max,
        };
        let has_more =
            if run.own.state == RefactoringState::Undoing { run.undo_some()? } else { run.forward()? };
        if has_more {
            return Ok(JobProgress::More(own.converted));
        }
        self.end_state(&mut own, container)?;
        if own.state.has_job() {
            Ok(JobProgress::More(own.converted))
        } else {
            Ok(JobProgress::Done(result(&own)))
        }
    }

    fn step_structure(
        &self,
        mut own: Refactoring,
        (order, structure): (&RefactoringOrder, &Structure),
        container: &Container,
        (claim, wanted, items_max): (&mut JobClaim<'_>, u8, usize),
    ) -> Result<JobProgress, EngineError> {
        if own.state == RefactoringState::Blocked {
            self.unblock(&mut own, wanted)?;
        }
        let (shared, catalog) = (&*self.shared, &*self.catalog);
        let mut run = StructureRun {
            shared,
            catalog,
            container,
            order,
            structure,
            own: &mut own,
            claim: Some(claim),
            items_max,
        };
        match run.step()? {
            StructureProgress::More => Ok(JobProgress::More(own.converted)),
            StructureProgress::Waiting => Ok(JobProgress::Waiting),
            StructureProgress::Blocked(error) => self.block(own, error),
            StructureProgress::Ended => {
                if let Some(plan) = &mut own.plan {
                    plan.phase = 0;
                }
                self.end_state(&mut own, container)?;
                match own.state.has_job() {
                    true => Ok(JobProgress::More(own.converted)),
                    false => Ok(JobProgress::Done(result(&own))),
                }
            }
        }
    }

    /// A job that was about to wait for a decision when it was undone waits for nothing.
    fn end_blocked_job(&self, own: &Refactoring) -> Result<(), EngineError> {
        let earlier = own.jobs.iter().rev().skip(1).filter_map(|job| job.parse::<JobId>().ok());
        for job in earlier {
            let status = self.shared.jobs.status(job)?;
            if status.is_some_and(|status| status.state == JobState::Blocked) {
                self.shared.jobs.control(job, JobControl::Resume)?;
            }
        }
        Ok(())
    }

    /// It waits for a client, who resumes its job or undoes it.
    fn block(&self, mut own: Refactoring, error: String) -> Result<JobProgress, EngineError> {
        own.state = RefactoringState::Blocked;
        if let Some(plan) = &mut own.plan {
            plan.error = Some(error.clone());
        }
        rows::put(&self.shared, &self.catalog, &own)?;
        let result = own.to_json();
        Ok(JobProgress::Blocked { error, result })
    }

    /// A client has resumed the job: it starts again with what the state was.
    fn unblock(&self, own: &mut Refactoring, wanted: u8) -> Result<(), EngineError> {
        own.state = RefactoringState::numbered(wanted).unwrap_or(RefactoringState::Expanding);
        own.position = None;
        (own.conflicts, own.conflict_count) = Default::default();
        if let Some(plan) = &mut own.plan {
            (plan.phase, plan.undecided, plan.error) = (0, 0, None);
        }
        rows::put(&self.shared, &self.catalog, own)
    }

    fn end_state(&self, own: &mut Refactoring, container: &Container) -> Result<(), EngineError> {
        if own.state == RefactoringState::Undoing {
            self.end_blocked_job(own)?;
        }
        own.state = match own.state {
            RefactoringState::Expanding if own.order()?.finishes_itself => RefactoringState::Finishing,
            RefactoringState::Expanding | RefactoringState::Expanded => RefactoringState::Expanded,
            RefactoringState::Finishing | RefactoringState::Finished => RefactoringState::Finished,
            RefactoringState::Undoing | RefactoringState::Undone => RefactoringState::Undone,
            RefactoringState::Blocked => RefactoringState::Blocked,
        };
        if own.state == RefactoringState::Finished {
            own.journal_until = Some(self.shared.clock.now_ms() + JOURNAL_MS);
        }
        if !own.state.is_open() {
            for name in own.order()?.containers(&container.definition.id) {
                self.shared.recorder.forget_container(&*self.shared.storage, own.database, &name)?;
                let other = container.named_sibling(&name);
                other.iter().for_each(|other| self.shared.touched.invalidate(other.number));
            }
        }
        rows::put(&self.shared, &self.catalog, own)?;
        self.signal.wake();
        Ok(())
    }

    /// Database and number of all.
    pub fn numbers(&self) -> Result<Vec<(u32, u32)>, EngineError> {
        let all = rows::all(&*self.shared.storage.snapshot()?, None)?;
        Ok(all.iter().map(|own| (own.database, own.number)).collect())
    }

    /// What the worker does for one: a job that is missing, later writes, a journal that is over. Whether there is something
    /// to follow, and whether there is more of it right now.
    pub fn follow(&self, database: u32, number: u32) -> Result<(bool, bool), EngineError> {
        let _state_lock = self.state_lock.lock();
        self.settle(database)?;
        let own = rows::get(&*self.shared.storage.snapshot()?, database, number)?;
        let Some(mut own) = own else { return Ok((false, false)) };
        let state = self.catalog.state();
        let Some(container) = state.container(own.container) else {
            if state.database(own.database).is_some() {
                rows::remove(&self.shared, &self.catalog, &own)?;
            }
            return Ok((false, false));
        };
        // It was withdrawn before the answer: a model was put meanwhile.
        if own.state == RefactoringState::Expanding
            && own.plan.is_none()
            && own.jobs.is_empty()
            && container.partitions.is_modelled()
        {
            rows::remove(&self.shared, &self.catalog, &own)?;
            return Ok((false, false));
        }
        if own.state.has_job() && !self.shared.jobs.unfinished(REFACTORING).contains(&payload(&own)) {
            self.add_missing_job(&mut own)?;
        }
        let is_over = own.journal_until.is_some_and(|until| until <= self.shared.clock.now_ms());
        let order = own.order()?;
        if let Rule::Structure(structure) = &order.rule {
            let (shared, catalog) = (&*self.shared, &*self.catalog);
            let (order, own, claim, items_max) = (&order, &mut own, None, STEP_ITEMS);
            let run = StructureRun { shared, catalog, container, order, structure, own, claim, items_max };
            let has_more =
                run.own.state == RefactoringState::Finished && is_over && run.remove_some_journal()?;
            return Ok((false, has_more));
        }
        let mut run = RefactoringRun {
            shared: &self.shared,
            catalog: &self.catalog,
            container,
            journal: container,
            own: &mut own,
            claim: None,
            items_max: STEP_ITEMS_BESIDE_WRITERS,
        };
        match run.own.state {
            // It goes on when no model names the container any more.
            RefactoringState::Expanded if container.partitions.is_modelled() => Ok((true, false)),
            RefactoringState::Expanded => Ok((true, run.forward()?)),
            RefactoringState::Finished if is_over => Ok((false, run.remove_some_journal()?)),
            _ => Ok((false, false)),
        }
    }

    /// One that finishes itself is finished by the job that expanded it.
    fn add_missing_job(&self, own: &mut Refactoring) -> Result<(), EngineError> {
        let first = Refactoring { state: RefactoringState::Expanding, ..own.clone() };
        let is_first = own.state == RefactoringState::Finishing && own.jobs.len() == 1;
        let jobs = self.shared.jobs.unfinished(REFACTORING);
        if is_first && jobs.contains(&payload(&first)) { Ok(()) } else { self.add_job(own) }
    }
}

/// Whether a job of this state is the one that is blocked.
fn is_current(own: &Refactoring, wanted: u8) -> bool {
    let is_first = wanted == RefactoringState::Expanding as u8 && own.jobs.len() == 1;
    is_first || wanted != RefactoringState::Expanding as u8
}

fn container_not_found(id: &str) -> EngineError {
    EngineError::ResourceNotFound { kind: "container", id: id.to_owned() }
}

fn refused(own: &Refactoring, verb: &'static str, state: RefactoringState) -> EngineError {
    EngineError::RefactoringRefuses { id: own.id(), verb, why: format!("it is {}", state.name()) }
}

fn result(own: &Refactoring) -> Value {
    let mut json = Object::new();
    json.set("refactoring", own.id());
    json.set("state", own.state.name());
    json.set("converted", own.converted);
    json.set("conflicts", own.conflict_count);
    Value::Object(json)
}

/// Of a job: database 4, refactoring 4, the state that it works in 1.
fn payload(own: &Refactoring) -> Vec<u8> {
    let mut payload = own.database.to_be_bytes().to_vec();
    payload.extend(own.number.to_be_bytes());
    payload.push(own.state as u8);
    payload
}

fn parse_payload(payload: &[u8]) -> Option<(u32, u32, u8)> {
    let (database, rest) = payload.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let &[state] = rest else { return None };
    Some((u32::from_be_bytes(*database), u32::from_be_bytes(*number), state))
}
