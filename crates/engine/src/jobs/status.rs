//! Jobs as clients see them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use quire_value::{Object, Value};

use super::id::JobId;
use super::registry::{Jobs, UnfinishedJob, id_of};
use super::row::{FinishedJob, JobBody, JobHold, JobOutcome};
use crate::api::EngineError;
use crate::store::for_each_row;
use crate::store::keys::{self, CATALOG, JobRow};

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobStatus {
    pub id: String,
    pub kind: String,
    pub database: Option<String>,
    pub container: Option<String>,
    pub state: JobState,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    pub started_ms: Option<i64>,
    pub finished_ms: Option<i64>,
    pub about: Object,
    pub progress: JobProgress,
    pub result: Value,
    pub error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobProgress {
    pub done: u64,
    /// `None`: not known.
    pub total: Option<u64>,
    pub unit: String,
    /// Per second.
    pub rate: u64,
}

/// The jobs of one kind in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCount {
    pub kind: String,
    pub state: JobState,
    pub count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobState {
    Waiting,
    Running,
    Paused,
    /// It goes on when a client has decided something.
    Blocked,
    Done,
    Failed,
    Cancelled,
}

impl JobState {
    pub fn name(self) -> &'static str {
        match self {
            JobState::Waiting => "waiting",
            JobState::Running => "running",
            JobState::Paused => "paused",
            JobState::Blocked => "blocked",
            JobState::Done => "done",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
        }
    }

    /// Whether it changes by itself.
    pub fn is_under_way(self) -> bool {
        matches!(self, JobState::Waiting | JobState::Running)
    }

    pub fn is_finished(self) -> bool {
        matches!(self, JobState::Done | JobState::Failed | JobState::Cancelled)
    }
}

impl Jobs {
    /// The newest first: all that are not finished, and the last finished ones. Without results of finished ones: all together may
    /// be more than fits into memory.
    pub fn list(&self) -> Result<Vec<JobStatus>, EngineError> {
        // The snapshot first: a job that ends meanwhile is in both.
        let mut jobs = Vec::new();
        let unfinished: Vec<(JobId, JobStatus)> = {
            let registry = self.registry.lock();
            registry.jobs.iter().map(|(id, entry)| (*id, of_entry(*id, entry))).collect()
        };
        let snapshot = self.storage.snapshot()?;
        for_each_row(&*snapshot, CATALOG, &keys::jobs_prefix(JobRow::Finished), |key, value| {
            let id = id_of(key)?;
            jobs.push((id, of_finished(id, FinishedJob::decode_summary(key, value)?)));
            Ok(())
        })?;
        let is_finished = |id: &JobId| jobs.binary_search_by_key(id, |(id, _)| *id).is_ok();
        let unfinished: Vec<_> = unfinished.into_iter().filter(|(id, _)| !is_finished(id)).collect();
        jobs.extend(unfinished);
        jobs.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        Ok(jobs.into_iter().map(|(_, job)| job).collect())
    }

    /// `None`: there is no such job, or it ended long ago.
    pub fn status(&self, id: JobId) -> Result<Option<JobStatus>, EngineError> {
        if let Some(entry) = self.registry.lock().jobs.get(&id) {
            return Ok(Some(of_entry(id, entry)));
        }
        let key = keys::finished_job(id.0);
        let finished = self.storage.snapshot()?.get(CATALOG, &key)?;
        let finished = finished.map(|value| FinishedJob::decode(&key, &value)).transpose()?;
        Ok(finished.map(|finished| of_finished(id, finished)))
    }

    pub fn has_unfinished(&self) -> bool {
        self.unfinished.load(Ordering::Relaxed) > 0
    }

    /// What unfinished jobs of a kind have still to do in a container, as far as that is known.
    pub fn remaining(&self, kind: &str, container: u32) -> u64 {
        let registry = self.registry.lock();
        let own = registry.jobs.values().filter(|entry| {
            entry.body.kind == kind
                && entry.body.container.as_ref().is_some_and(|own| own.number == container)
        });
        // One whose first step is not done yet has something to do.
        own.map(|entry| entry.checkpoint.total.map_or(1, |total| total.saturating_sub(entry.checkpoint.done)))
            .sum()
    }

    /// Whether a job is not finished.
    pub fn is_pending(&self, id: JobId) -> bool {
        self.registry.lock().jobs.contains_key(&id)
    }

    /// Whether a job is waiting or running.
    pub fn is_under_way(&self, id: JobId) -> bool {
        let registry = self.registry.lock();
        registry.jobs.get(&id).is_some_and(|entry| entry.state().is_under_way())
    }
}

impl UnfinishedJob {
    pub(super) fn state(&self) -> JobState {
        match &self.hold {
            JobHold::None if self.first_run.is_none() => JobState::Waiting,
            JobHold::None | JobHold::Cancelling => JobState::Running,
            JobHold::Paused => JobState::Paused,
            JobHold::Blocked { .. } => JobState::Blocked,
        }
    }
}

impl JobOutcome {
    pub(super) fn state(&self) -> JobState {
        match self {
            JobOutcome::Done(_) => JobState::Done,
            JobOutcome::Failed { .. } => JobState::Failed,
            JobOutcome::Cancelled => JobState::Cancelled,
        }
    }
}

fn of_entry(id: JobId, entry: &UnfinishedJob) -> JobStatus {
    let (error, result) = match &entry.hold {
        JobHold::Blocked { error, result } => (Some(error.clone()), result.clone()),
        JobHold::None | JobHold::Paused | JobHold::Cancelling => (entry.error.clone(), Value::Null),
    };
    let rate = entry.first_run.map_or(0, |run| {
        rate(entry.checkpoint.done.saturating_sub(run.done), run.at.elapsed().as_millis() as u64)
    });
    let progress = (entry.checkpoint.done, entry.checkpoint.total, rate);
    let started_ms = entry.started_ms();
    JobStatus { started_ms, error, result, ..of_body(id, &entry.body, entry.state(), progress) }
}

fn of_finished(id: JobId, job: FinishedJob) -> JobStatus {
    let state = job.outcome.state();
    let (error, result) = match job.outcome {
        JobOutcome::Done(result) => (None, result),
        JobOutcome::Failed { error, result } => (Some(error), result),
        JobOutcome::Cancelled => (None, Value::Null),
    };
    let took = job.started_ms.map_or(0, |started| job.finished_ms.saturating_sub(started));
    let progress = (job.done, job.total, rate(job.done, u64::try_from(took).unwrap_or(0)));
    let (started_ms, finished_ms) = (job.started_ms, Some(job.finished_ms));
    JobStatus { started_ms, finished_ms, error, result, ..of_body(id, &job.body, state, progress) }
}

fn of_body(
    id: JobId,
    body: &JobBody,
    state: JobState,
    (done, total, rate): (u64, Option<u64>, u64),
) -> JobStatus {
    JobStatus {
        id: id.to_string(),
        kind: body.kind.clone(),
        database: body.database.as_ref().map(|owner| owner.name.clone()),
        container: body.container.as_ref().map(|owner| owner.name.clone()),
        state,
        created_ms: body.created_ms,
        started_ms: None,
        finished_ms: None,
        about: body.about.clone(),
        progress: JobProgress { done, total, unit: body.unit.clone(), rate },
        result: Value::Null,
        error: None,
    }
}

fn rate(done: u64, ms: u64) -> u64 {
    done.saturating_mul(1000).checked_div(ms).unwrap_or(0)
}

/// Ready when a job is neither waiting nor running, or is not there.
#[must_use = "a future does nothing unless it is polled"]
pub struct JobWatch {
    number: u64,
    jobs: Arc<Jobs>,
    id: JobId,
}

impl JobWatch {
    pub(crate) fn new(jobs: Arc<Jobs>, id: JobId) -> JobWatch {
        static LAST: AtomicU64 = AtomicU64::new(0);
        JobWatch { number: LAST.fetch_add(1, Ordering::Relaxed), jobs, id }
    }
}

impl Future for JobWatch {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Registered before looking, so no change is missed.
        self.jobs.watchers.register(self.number, context.waker());
        if self.jobs.is_under_way(self.id) { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for JobWatch {
    fn drop(&mut self) {
        self.jobs.watchers.remove(self.number);
    }
}
