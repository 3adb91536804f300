//! Refactorings: the items of a container get another form, while clients read and write it.
//!
//! One is *expanded* by a job that goes along the changes of the container from its beginning ([`run`]); from then on a worker
//! follows later writes until it is *finished*, or *undone* from its journal. Everything about it is in rows ([`rows`]):
//! what a job or the worker does can be done again from there. Kinds: `rename` and `retype` ([`order`]).

mod convert; // one item, and back
mod dry_run; // what would be done
mod forms; // values of one type as another
mod order; // what is asked for
mod rows; // refactorings and journals in the storage
mod run; // some items at a time

use std::sync::Arc;

use parking_lot::Mutex;
use quire_value::{Object, Value};

use crate::api::EngineError;
use crate::catalog::{Catalog, Container};
use crate::jobs::{JobId, NewJob};
use crate::runtime::Shared;
use crate::runtime::signals::Signal;

pub(crate) use dry_run::DryRun;
pub(crate) use order::RefactoringOrder;
pub(crate) use rows::{Refactoring, State};
use run::Run;

pub(crate) const REFACTORING: &str = "refactoring";
/// How long what items had is kept after a refactoring was finished.
const JOURNAL_MS: i64 = 7 * 24 * 3600 * 1000;
/// A journal that would be larger is refused.
const JOURNAL_BYTES_MAX: u64 = 1 << 30;

pub(crate) struct Refactorings {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    /// Held while states change and items are written: a worker converts nothing behind an undo.
    turn: Mutex<()>,
    /// Of the worker that follows.
    pub signal: Arc<Signal>,
}

/// What a job has come to.
pub(crate) enum JobProgress {
    /// Items that were converted or looked at until now.
    More(u64),
    Done(Value),
    /// The container or the refactoring is gone.
    Gone,
}

impl Refactorings {
    pub fn new(shared: Arc<Shared>, catalog: Arc<Catalog>) -> Refactorings {
        Refactorings { shared, catalog, turn: Mutex::default(), signal: Arc::default() }
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

    /// Stores a refactoring, and starts the job that expands it.
    pub fn start(
        &self,
        database: u32,
        container: &Container,
        (order, body): (&RefactoringOrder, Value),
    ) -> Result<Refactoring, EngineError> {
        order.check(container)?;
        if order.has_journal && container.usage().1 > JOURNAL_BYTES_MAX {
            let bytes = DryRun::of_all(&self.shared, container, order)?.journal_bytes;
            if bytes > JOURNAL_BYTES_MAX {
                return Err(EngineError::JournalTooLarge { bytes });
            }
        }
        let _turn = self.turn.lock();
        let all = self.list(database)?;
        if all.iter().any(|own| own.container == container.number && own.state.is_open()) {
            return Err(EngineError::RefactoringRunning { container: container.definition.id.clone() });
        }
        let own = Refactoring {
            database,
            number: all.iter().map(|own| own.number).max().unwrap_or(0) + 1,
            container: container.number,
            body,
            state: State::Expanding,
            jobs: Vec::new(),
            position: None,
            converted: 0,
            conflicts: Vec::new(),
            conflict_count: 0,
            journal_until: None,
        };
        rows::put(&self.shared, &self.catalog, &own)?;
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
        let gone = || EngineError::ResourceNotFound { kind: "container", id: id.clone() };
        order.check(state.container(container).ok_or_else(gone)?)
    }

    /// Contracts it: later writes are not followed any more.
    pub fn finish(&self, database: u32, id: &str) -> Result<Refactoring, EngineError> {
        let _turn = self.turn.lock();
        let own = self.find(database, id)?;
        match own.state {
            State::Expanded => self.set_state(own, State::Finishing),
            state => Err(refused(&own, "finished", state)),
        }
    }

    /// Puts back what items had.
    pub fn undo(&self, database: u32, id: &str) -> Result<Refactoring, EngineError> {
        let _turn = self.turn.lock();
        let own = self.find(database, id)?;
        if matches!(own.state, State::Undoing | State::Undone) {
            return Err(refused(&own, "undone", own.state));
        }
        let is_over = own.journal_until.is_some_and(|until| until <= self.shared.clock.now_ms());
        let order = own.order()?;
        if !order.has_journal || is_over {
            let why = "it has no journal".to_owned();
            return Err(EngineError::RefactoringRefuses { id: own.id(), verb: "undone", why });
        }
        self.check_container(&order, own.container)?;
        if own.state != State::Finished {
            return self.set_state(own, State::Undoing);
        }
        self.check_alone(&own)?;
        // It is open again from here on: a model may have come before.
        rows::put(&self.shared, &self.catalog, &Refactoring { state: State::Undoing, ..own.clone() })?;
        if let Err(error) = self.check_settled(&order, own.container) {
            rows::put(&self.shared, &self.catalog, &own)?;
            return Err(error);
        }
        self.set_state(own, State::Undoing)
    }

    /// The refactoring that a job works on.
    pub fn of_job(&self, job: JobId) -> Result<Option<Refactoring>, EngineError> {
        let all = rows::all(&*self.shared.storage.snapshot()?, None)?;
        Ok(all.into_iter().find(|own| own.jobs.contains(&job.to_string())))
    }

    fn check_alone(&self, own: &Refactoring) -> Result<(), EngineError> {
        let all = self.list(own.database)?;
        let other = all.iter().find(|other| other.container == own.container && other.state.is_open());
        match other.and_then(|_| own.body.get("container")?.as_str()) {
            Some(container) => Err(EngineError::RefactoringRunning { container: container.to_owned() }),
            None => Ok(()),
        }
    }

    fn set_state(&self, mut own: Refactoring, state: State) -> Result<Refactoring, EngineError> {
        own.state = state;
        rows::put(&self.shared, &self.catalog, &own)?;
        self.add_job_now(own)
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

    /// Does some of the work of a job; `payload` says which state it is for.
    pub fn step(&self, payload: &[u8]) -> Result<JobProgress, EngineError> {
        let _turn = self.turn.lock();
        let Some((database, number, wanted)) = parse_payload(payload) else { return Ok(JobProgress::Gone) };
        let snapshot = self.shared.storage.snapshot()?;
        let Some(mut own) = rows::get(&*snapshot, database, number)? else { return Ok(JobProgress::Gone) };
        drop(snapshot);
        // What came to an end by itself goes on to be finished by the same job.
        let is_own = own.state as u8 == wanted || (own.state == State::Finishing && own.jobs.len() == 1);
        if !is_own {
            return Ok(JobProgress::Done(result(&own)));
        }
        let state = self.catalog.state();
        let Some(container) = state.container(own.container) else { return Ok(JobProgress::Gone) };
        // It goes on when no model names the container any more.
        if container.partitions.is_modelled() {
            return Err(EngineError::UnderModel);
        }
        let mut run = Run { shared: &self.shared, catalog: &self.catalog, container, own: &mut own };
        let has_more = if run.own.state == State::Undoing { run.back()? } else { run.forward()? };
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

    fn end_state(&self, own: &mut Refactoring, container: &Container) -> Result<(), EngineError> {
        own.state = match own.state {
            State::Expanding if own.order()?.finishes_itself => State::Finishing,
            State::Expanding | State::Expanded => State::Expanded,
            State::Finishing | State::Finished => State::Finished,
            State::Undoing | State::Undone => State::Undone,
        };
        if own.state == State::Finished {
            own.journal_until = Some(self.shared.clock.now_ms() + JOURNAL_MS);
        }
        if !own.state.is_open() {
            let name = &container.definition.id;
            self.shared.recorder.forget_container(&*self.shared.storage, own.database, name)?;
            self.shared.touched.invalidate(container.number);
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
        let _turn = self.turn.lock();
        let own = rows::get(&*self.shared.storage.snapshot()?, database, number)?;
        let Some(mut own) = own else { return Ok((false, false)) };
        let state = self.catalog.state();
        let Some(container) = state.container(own.container) else {
            if state.database(own.database).is_some() {
                rows::remove(&self.shared, &self.catalog, &own)?;
            }
            return Ok((false, false));
        };
        if own.state.has_job() && !self.shared.jobs.unfinished(REFACTORING).contains(&payload(&own)) {
            self.add_missing_job(&mut own)?;
        }
        let is_over = own.journal_until.is_some_and(|until| until <= self.shared.clock.now_ms());
        let mut run = Run { shared: &self.shared, catalog: &self.catalog, container, own: &mut own };
        match run.own.state {
            // It goes on when no model names the container any more.
            State::Expanded if container.partitions.is_modelled() => Ok((true, false)),
            State::Expanded => Ok((true, run.forward()?)),
            State::Finished if is_over => Ok((false, run.forget()?)),
            _ => Ok((false, false)),
        }
    }

    /// One that finishes itself is finished by the job that expanded it.
    fn add_missing_job(&self, own: &mut Refactoring) -> Result<(), EngineError> {
        let first = Refactoring { state: State::Expanding, ..own.clone() };
        let is_first = own.state == State::Finishing && own.jobs.len() == 1;
        let jobs = self.shared.jobs.unfinished(REFACTORING);
        if is_first && jobs.contains(&payload(&first)) { Ok(()) } else { self.add_job(own) }
    }
}

fn refused(own: &Refactoring, verb: &'static str, state: State) -> EngineError {
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
