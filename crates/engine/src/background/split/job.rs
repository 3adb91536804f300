//! Splits as jobs. Nothing of a split is durable before its one commit, so after a restart it begins again; one that is
//! committed is found done.
//!
//! A request waits for its job and gets the error of the split itself.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use quire_storage::StorageError;
use quire_value::{Object, Value};

use super::Splits;
use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::jobs::{JobClaim, JobId, JobKind, JobStep, Jobs, NewJob};

const KIND: &str = "split";
const UNIT: &str = "partitions";
/// Between two checks of a job that another one blocks, or whose request waits.
const WAIT: Duration = Duration::from_millis(20);

/// The origin of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitTrigger {
    Client = 0,
    Server = 1,
}

type SplitOutcome = Result<[u32; 2], EngineError>;

/// Requests that wait for a split.
#[derive(Default)]
pub(crate) struct SplitRequests {
    outcomes: Mutex<HashMap<JobId, Option<SplitOutcome>>>,
    changed: Condvar,
}

/// Runs splits, one at a time.
pub(crate) struct SplitJobs {
    splits: Arc<Splits>,
    running: Mutex<()>,
}

impl Splits {
    /// Divides a partition, and returns when that is done: the ids of its children.
    pub fn request(&self, container: &Arc<Container>, id: &str) -> SplitOutcome {
        let partition = container.partitions.all().iter().find(|partition| *partition.name == *id);
        let partition = partition.ok_or_else(|| EngineError::PartitionGone { id: id.to_owned() })?;
        container.check_open()?;
        self.splitter.check_possible()?;
        let jobs = &self.splitter.shared.jobs;
        let job = jobs
            .prepare(new_job(container, partition.layout.id, SplitTrigger::Client))
            .map_err(EngineError::not_sent)?;
        let number = job.id;
        self.requests.outcomes.lock().insert(number, None);
        let outcome = match jobs.create_prepared(job) {
            Ok(()) => self.wait(number, id),
            Err(error) => Err(error),
        };
        self.requests.outcomes.lock().remove(&number);
        outcome
    }

    fn wait(&self, job: JobId, id: &str) -> SplitOutcome {
        let mut outcomes = self.requests.outcomes.lock();
        loop {
            if let Some(outcome) = outcomes.get_mut(&job).and_then(Option::take) {
                return outcome;
            }
            if self.signal.is_interrupted() {
                return Err(StorageError::Closed.into());
            }
            if !self.splitter.shared.jobs.is_under_way(job) {
                let reason = "its job was paused or cancelled";
                return Err(EngineError::CannotSplit { id: id.to_owned(), reason });
            }
            self.requests.changed.wait_for(&mut outcomes, WAIT);
        }
    }

    /// The outcome of a split, for the request that waits for it.
    fn answer(&self, job: JobId, outcome: SplitOutcome) {
        if let Some(waiting) = self.requests.outcomes.lock().get_mut(&job) {
            *waiting = Some(outcome);
        }
        self.requests.changed.notify_all();
    }
}

impl SplitJobs {
    pub fn new(splits: Arc<Splits>) -> SplitJobs {
        SplitJobs { splits, running: Mutex::new(()) }
    }

    fn split(&self, container: &Container, id: u32) -> SplitOutcome {
        match children(container, id) {
            Some(children) => Ok(children),
            None => self.splits.splitter.split(container, &id.to_string()),
        }
    }
}

impl JobKind for SplitJobs {
    fn name(&self) -> &'static str {
        KIND
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let Some(_one) = self.running.try_lock() else { return Ok(JobStep::Rest(WAIT)) };
        let (number, id, trigger) = decode(&claim.body.payload).ok_or_else(|| corrupt("a split"))?;
        let state = self.splits.splitter.catalog.state();
        let Some(container) = state.container(number) else {
            self.splits.answer(claim.id, Err(EngineError::PartitionGone { id: id.to_string() }));
            return Ok(JobStep::Cancelled);
        };
        let outcome = self.split(container, id);
        if trigger == SplitTrigger::Server {
            self.splits.set_split_outcome(container, id, &outcome)?;
        }
        let is_answered = trigger == SplitTrigger::Client;
        let step = step_of(&outcome, is_answered);
        if outcome.is_ok() {
            claim.complete(1);
        }
        match step {
            Some(step) => {
                self.splits.answer(claim.id, outcome);
                Ok(step)
            }
            None if is_answered => {
                self.splits.answer(claim.id, Err(EngineError::Unresolved));
                Err(EngineError::Unresolved)
            }
            None => Err(outcome.err().unwrap_or(EngineError::Unresolved)),
        }
    }
}

/// How the job ends; `None`: it is to be tried again.
fn step_of(outcome: &SplitOutcome, is_answered: bool) -> Option<JobStep> {
    let error = match outcome {
        Ok(children) => {
            let children = children.map(|child| Value::from(child.to_string().as_str())).to_vec();
            return Some(JobStep::Done(Value::from(Object::from_iter([("children", children)]))));
        }
        Err(error) => error,
    };
    match error {
        // Deleted, or split by someone else.
        EngineError::PartitionMoved
        | EngineError::PartitionGone { .. }
        | EngineError::ResourceNotFound { .. } => Some(JobStep::Cancelled),
        // It happens, or has happened.
        EngineError::Unresolved => None,
        error if is_answered || matches!(error, EngineError::CannotSplit { .. }) => {
            Some(JobStep::Failed { error: error.to_string(), result: Value::Null })
        }
        _ => None,
    }
}

/// Of a split that is done.
fn children(container: &Container, id: u32) -> Option<[u32; 2]> {
    let all = container.partitions.all().iter();
    let children: Vec<u32> = all
        .filter(|partition| partition.layout.parents.last() == Some(&id))
        .map(|partition| partition.layout.id)
        .collect();
    children.try_into().ok()
}

pub(super) fn new_job(container: &Container, id: u32, trigger: SplitTrigger) -> NewJob {
    let mut about = Object::new();
    about.set("partition", id.to_string().as_str());
    about.set("by", if trigger == SplitTrigger::Server { "server" } else { "request" });
    let mut payload = [container.number.to_be_bytes(), id.to_be_bytes()].concat();
    payload.push(trigger as u8);
    container.job(KIND, UNIT, about, payload)
}

/// Containers that are being split, or will be.
pub(super) fn containers_with_jobs(jobs: &Jobs) -> HashSet<u32> {
    jobs.unfinished(KIND).iter().filter_map(|payload| Some(decode(payload)?.0)).collect()
}

fn decode(payload: &[u8]) -> Option<(u32, u32, SplitTrigger)> {
    let (container, rest) = payload.split_first_chunk()?;
    let (partition, rest) = rest.split_first_chunk()?;
    let trigger =
        if rest == [SplitTrigger::Server as u8] { SplitTrigger::Server } else { SplitTrigger::Client };
    Some((u32::from_be_bytes(*container), u32::from_be_bytes(*partition), trigger))
}
