//! Jobs of kind `apply`: a finding is applied, or what another such job did is taken back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use quire_value::{Limits, Object, Value, text};

use crate::api::{EngineError, corrupt};
use crate::applies::{APPLY, Applies, ApplyOrder, ApplyProgress, ApplyStage, ApplyState, JOURNAL_MS};
use crate::jobs::{JobClaim, JobId, JobKind, JobOwner, JobState, JobStatus, JobStep, NewJob};

/// Between two checks of the work that the job waits for.
const WAIT: Duration = Duration::from_millis(20);
const PAYLOAD_LIMITS: Limits = Limits { depth_max: 256 };
/// What a job is about, where it takes back another one.
const UNDOES: &str = "undoes";

pub(crate) struct ApplyJobs {
    applies: Weak<Applies>,
}

impl ApplyJobs {
    pub fn new(applies: &Arc<Applies>) -> ApplyJobs {
        ApplyJobs { applies: Arc::downgrade(applies) }
    }

    pub fn job(order: &ApplyOrder, database: JobOwner) -> NewJob {
        let about = Object::from_iter([("finding", order.finding.as_str())]);
        new_job(database, about, order.encode())
    }

    fn applies(&self) -> Result<Arc<Applies>, EngineError> {
        self.applies.upgrade().ok_or(EngineError::Storage(quire_storage::StorageError::Closed))
    }
}

fn new_job(database: JobOwner, about: Object, payload: Vec<u8>) -> NewJob {
    NewJob { kind: APPLY, unit: "items", database: Some(database), container: None, about, payload }
}

impl JobKind for ApplyJobs {
    fn name(&self) -> &'static str {
        APPLY
    }

    /// It is undone instead.
    fn can_cancel(&self) -> bool {
        false
    }

    /// As long as its journal: without the job there is no undo.
    fn kept_ms(&self) -> i64 {
        JOURNAL_MS
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let applies = self.applies()?;
        let database = claim.body.database.clone().ok_or_else(|| corrupt("a job without a database"))?;
        if applies.catalog.state().database(database.number).is_none() {
            return Ok(JobStep::Cancelled);
        }
        let state = ApplyState::decode(claim.position())?;
        let progress = match undone_job(&claim.body.payload) {
            Some(job) if state.stage == ApplyStage::Begin => return load(&applies, claim, job),
            Some(_) => applies.step_back(&database, state),
            None => applies.step(&database, (claim.id, &ApplyOrder::parse(&claim.body.payload)?), state),
        };
        match progress {
            Ok(progress) => continue_job(claim, progress),
            Err(EngineError::ResourceNotFound { kind: "database", .. }) => Ok(JobStep::Cancelled),
            Err(error) => Err(error),
        }
    }

    fn undo(&self, job: JobId) -> Result<Option<JobId>, EngineError> {
        let applies = self.applies()?;
        let jobs = &applies.shared.jobs;
        let Some(status) = jobs.status(job)? else { return Ok(None) };
        let refused = |why| EngineError::JobRefuses { id: job.to_string(), control: "undone", why };
        if status.about.get(UNDOES).is_some() {
            return Ok(None);
        }
        if matches!(status.state, JobState::Failed | JobState::Cancelled) {
            return Err(refused("it has left nothing to take back"));
        }
        if is_undone(&jobs.list()?, job) {
            return Err(refused("it was undone"));
        }
        if status.finished_ms.is_some_and(|at| at + JOURNAL_MS < applies.shared.clock.now_ms()) {
            return Err(refused("its journal is over"));
        }
        let Some(database) = owner(&applies, &status) else { return Ok(None) };
        let mut about = status.about.clone();
        about.set(UNDOES, job.to_string());
        let payload = Value::Object(Object::from_iter([("undo", job.to_string())])).to_json().into_bytes();
        jobs.create(new_job(database, about, payload)).map(Some)
    }
}

/// What the other job did. One that is not finished is ended: jobs of a database run one at a time, so nobody is in it.
fn load(applies: &Applies, claim: &mut JobClaim<'_>, job: JobId) -> Result<JobStep, EngineError> {
    let jobs = &applies.shared.jobs;
    let state = match jobs.unfinished_position(job) {
        Some(position) => Some(ApplyState::decode(&position)?),
        None => jobs.status(job)?.and_then(|status| ApplyState::read(&status.result)),
    };
    let Some(state) = state else { return Ok(JobStep::Cancelled) };
    let state = ApplyState { items: 0, conflicts: Vec::new(), conflict_count: 0, ..state };
    let state = state.at(ApplyStage::RestoreDefinition);
    claim.commit(claim.advance(state.encode(), 0, None), Vec::new())?;
    jobs.end_unfinished(job)?;
    Ok(JobStep::More)
}

fn continue_job(claim: &mut JobClaim<'_>, progress: ApplyProgress) -> Result<JobStep, EngineError> {
    match progress {
        ApplyProgress::Next(state) => {
            claim.commit(claim.advance(state.encode(), state.items, None), Vec::new())?;
            Ok(JobStep::More)
        }
        ApplyProgress::Wait { done, total } => {
            if done > claim.done() {
                let position = claim.position().to_vec();
                claim.commit(claim.advance(position, done, total), Vec::new())?;
            }
            Ok(JobStep::Rest(WAIT))
        }
        ApplyProgress::Done(result) => {
            claim.complete(claim.done());
            Ok(JobStep::Done(result))
        }
        ApplyProgress::Failed { error, result } => Ok(JobStep::Failed { error, result }),
        ApplyProgress::Blocked { error, result } => Ok(JobStep::Blocked { error, result }),
    }
}

fn undone_job(payload: &[u8]) -> Option<JobId> {
    text::parse(payload, PAYLOAD_LIMITS).ok()?.get("undo")?.as_str()?.parse().ok()
}

fn is_undone(jobs: &[JobStatus], job: JobId) -> bool {
    let id = Value::from(job.to_string());
    jobs.iter().any(|own| own.about.get(UNDOES) == Some(&id) && own.state != JobState::Failed)
}

fn owner(applies: &Applies, status: &JobStatus) -> Option<JobOwner> {
    let state = applies.catalog.state();
    let database = state.databases.find(status.database.as_deref()?)?;
    Some(JobOwner { number: database.number(), name: database.resource.id.clone() })
}
