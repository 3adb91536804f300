//! A claim: the exclusive right to run a job for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_storage::{Op, Snapshot};
use quire_value::Value;

use super::id::JobId;
use super::kind::{JobKind, JobStep};
use super::registry::{JobScope, Jobs};
use super::row::{self, Checkpoint, JobBody, JobHold, JobOutcome};
use crate::api::{Cancel, EngineError};
use crate::store::keys::{self, CATALOG};

/// Items of a job's first commit, and the most of any.
const ITEMS_FIRST: usize = 64;
const ITEMS_MAX: usize = 4_096;
/// What a commit of items should take: their writers wait for it.
const VISIT_TIME: Duration = Duration::from_millis(100);

/// A job that the caller alone runs, until this is dropped.
pub(crate) struct JobClaim<'a> {
    jobs: &'a Jobs,
    pub id: JobId,
    pub body: Arc<JobBody>,
    checkpoint: Checkpoint,
    /// The checkpoint as it is in the storage.
    row: Option<Vec<u8>>,
}

/// A job's next checkpoint, to be part of a commit.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointAdvance {
    before: Option<Vec<u8>>,
    checkpoint: Checkpoint,
    key: Vec<u8>,
    row: Vec<u8>,
}

impl<'a> JobClaim<'a> {
    pub(super) fn new(jobs: &'a Jobs, id: JobId, body: Arc<JobBody>) -> JobClaim<'a> {
        JobClaim { jobs, id, body, checkpoint: Checkpoint::default(), row: None }
    }

    /// Where the job is, as its kind has written it; empty at the beginning.
    pub fn position(&self) -> &[u8] {
        &self.checkpoint.position
    }

    pub fn done(&self) -> u64 {
        self.checkpoint.done
    }

    /// Where the job is going to be: `done` of `total`, where that is known. Neither falls.
    pub fn advance(&self, position: Vec<u8>, done: u64, total: Option<u64>) -> CheckpointAdvance {
        let done = done.max(self.checkpoint.done);
        let total = total.max(self.checkpoint.total).map(|total| total.max(done));
        let started_ms = self.checkpoint.started_ms.or_else(|| Some(self.jobs.clock.now_ms()));
        let checkpoint = Checkpoint { started_ms, done, total, position };
        let key = keys::job_checkpoint(self.id.0);
        let row = checkpoint.encode(&key);
        CheckpointAdvance { before: self.row.clone(), checkpoint, key, row }
    }

    /// The commit of an advance is durable.
    pub fn advanced(&mut self, advance: CheckpointAdvance) {
        self.row = Some(advance.row);
        self.checkpoint = advance.checkpoint;
        if let Some(entry) = self.jobs.registry.lock().jobs.get_mut(&self.id) {
            entry.checkpoint = self.checkpoint.clone();
        }
    }

    /// Whether a client has paused or cancelled the job: a step of several commits ends between two of them.
    pub fn is_held(&self) -> bool {
        self.jobs.is_held(self.id)
    }

    /// How many items the next commit should have.
    pub fn items_at_once(&self) -> usize {
        let registry = self.jobs.registry.lock();
        registry.jobs.get(&self.id).and_then(|entry| entry.items_at_once).unwrap_or(ITEMS_FIRST)
    }

    /// So many items took so long: the next commit has more of them, or fewer.
    pub fn visited(&self, items: usize, took: Duration) {
        let fit = items as u128 * VISIT_TIME.as_micros() / took.as_micros().max(1);
        let fit = usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, ITEMS_MAX);
        let before = self.items_at_once();
        let next = if fit < before { fit } else { fit.min(2 * before) };
        if let Some(entry) = self.jobs.registry.lock().jobs.get_mut(&self.id) {
            entry.items_at_once = Some(next);
        }
    }

    /// How far the job is with its last step, which has no checkpoint of its own: shown when it has ended.
    pub fn complete(&mut self, done: u64) {
        self.checkpoint.done = done.max(self.checkpoint.done);
        self.checkpoint.total = Some(self.checkpoint.done);
    }

    /// Commits an advance, and rows that no partition has.
    pub fn commit(&mut self, advance: CheckpointAdvance, mut ops: Vec<Op>) -> Result<(), EngineError> {
        ops.push(advance.op(&*self.jobs.storage.snapshot()?)?);
        self.jobs.commit(ops)?;
        self.advanced(advance);
        Ok(())
    }

    /// A row as it is now.
    #[cfg(test)]
    pub fn stored(&self, space: quire_storage::Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.jobs.storage.snapshot()?.get(space, key)?)
    }

    /// Rows that end the job, to be part of its last commit; [`JobClaim::finished`] and [`JobStep::Committed`] follow. Only of kinds
    /// that clients cannot stop: a client that pauses the job would write its row again.
    pub fn finish_ops(&self, outcome: &JobOutcome) -> Vec<Op> {
        self.jobs.end_ops(self.id, outcome, Some(&self.checkpoint))
    }

    /// Commits those rows by themselves.
    pub fn commit_end(&self, ops: Vec<Op>) -> Result<(), EngineError> {
        self.jobs.commit(ops)
    }

    /// That commit is durable.
    pub fn finished(&self, outcome: &JobOutcome) {
        self.jobs.ended(self.id, outcome);
    }

    /// Runs the job until it has nothing to do, is held, `until` is over or `is_stopping` says so. `cancel` ends a step that is under
    /// way, before its next commit.
    pub(crate) fn run(
        &mut self,
        kind: &dyn JobKind,
        until: Instant,
        is_stopping: impl Fn() -> bool,
        cancel: &Cancel,
    ) -> Result<(), EngineError> {
        if !self.load()? {
            return Ok(());
        }
        let run = self.run_steps(kind, until, is_stopping, cancel);
        let error = run.as_ref().err().map(EngineError::to_string);
        if let Some(entry) = self.jobs.registry.lock().jobs.get_mut(&self.id) {
            entry.error = error;
        }
        run
    }

    fn run_steps(
        &mut self,
        kind: &dyn JobKind,
        until: Instant,
        is_stopping: impl Fn() -> bool,
        cancel: &Cancel,
    ) -> Result<(), EngineError> {
        loop {
            match self.hold() {
                Some(JobHold::None) => {}
                Some(JobHold::Cancelling) => {
                    kind.cancel(self)?;
                    self.jobs.end(self.id, &JobOutcome::Cancelled, None)?;
                    return Ok(());
                }
                Some(JobHold::Paused | JobHold::Blocked { .. }) | None => {
                    kind.release(self.id);
                    return Ok(());
                }
            }
            let step = match cancel.watch(|| kind.step(self)) {
                // How the job is held says what comes next.
                Err(EngineError::Cancelled) if cancel.is_cancelled() => JobStep::More,
                Err(error) if error.is_permanent() && kind.can_cancel() => {
                    kind.cancel(self)?;
                    JobStep::Failed { error: error.to_string(), result: Value::Null }
                }
                step => step?,
            };
            match step {
                JobStep::More => {}
                JobStep::Rest(time) => {
                    self.rest(time);
                    return Ok(());
                }
                step => return self.end(step),
            }
            if Instant::now() >= until || is_stopping() {
                return Ok(());
            }
        }
    }

    fn end(&mut self, step: JobStep) -> Result<(), EngineError> {
        let outcome = match step {
            JobStep::Done(result) => JobOutcome::Done(result),
            JobStep::Failed { error, result } => JobOutcome::Failed { error, result },
            JobStep::Cancelled => JobOutcome::Cancelled,
            JobStep::Blocked { error, result } => return self.block(JobHold::Blocked { error, result }),
            JobStep::More | JobStep::Rest(_) | JobStep::Committed => return Ok(()),
        };
        self.jobs.end(self.id, &outcome, Some(&self.checkpoint))
    }

    fn block(&self, hold: JobHold) -> Result<(), EngineError> {
        let _one = self.jobs.controlling.lock();
        // A client that has paused or cancelled it meanwhile was first.
        if self.hold() != Some(JobHold::None) {
            return Ok(());
        }
        let hold = hold.bounded();
        self.jobs.commit(vec![row::put_body(self.id, &self.body, &hold)])?;
        self.jobs.registry.lock().set_hold(self.id, hold);
        self.jobs.changed();
        Ok(())
    }

    /// The job is not run before this time has passed.
    pub fn rest(&self, time: Duration) {
        if let Some(entry) = self.jobs.registry.lock().jobs.get_mut(&self.id) {
            entry.not_before = Some(Instant::now() + time);
        }
    }

    /// `None`: the job has ended.
    fn hold(&self) -> Option<JobHold> {
        self.jobs.registry.lock().jobs.get(&self.id).map(|entry| entry.hold.clone())
    }

    /// Reads where the job is; false when there is no such job: it ended by a commit whose outcome was not known.
    fn load(&mut self) -> Result<bool, EngineError> {
        // No commit of an earlier run happens behind this one's back.
        self.jobs.sequence.settle(&*self.jobs.storage)?;
        let snapshot = self.jobs.storage.snapshot()?;
        if snapshot.get(CATALOG, &keys::job(self.id.0))?.is_none() {
            self.jobs.doubt();
            return Ok(false);
        }
        (self.checkpoint, self.row) = Checkpoint::read(&*snapshot, self.id)?;
        if let Some(entry) = self.jobs.registry.lock().jobs.get_mut(&self.id) {
            entry.checkpoint = self.checkpoint.clone();
            entry.not_before = None;
        }
        Ok(true)
    }
}

impl Drop for JobClaim<'_> {
    fn drop(&mut self) {
        self.jobs.registry.lock().release(self.id, JobScope::of(&self.body));
    }
}

impl CheckpointAdvance {
    /// The op that moves the checkpoint, for a commit that is prepared on the snapshot. `TransactionConflict` when the job is
    /// elsewhere than was thought: an earlier commit happened after all.
    pub fn op(&self, snapshot: &dyn Snapshot) -> Result<Op, EngineError> {
        if snapshot.get(CATALOG, &self.key)? != self.before {
            return Err(EngineError::TransactionConflict);
        }
        Ok(Op::Put { space: CATALOG, key: self.key.clone(), value: self.row.clone() })
    }
}
