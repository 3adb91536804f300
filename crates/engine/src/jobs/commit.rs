//! Commits of job rows outside of partitions, and the numbers of jobs.

use quire_storage::{Op, Storage};
use quire_value::Value;

use super::id::JobId;
use super::registry::Jobs;
use super::row::{Checkpoint, JobOutcome};
use crate::api::{EngineError, corrupt};
use crate::store::Sequence;
use crate::store::keys::{self, CATALOG};
use crate::sync::Mutex;

/// Numbers that one commit reserves: most jobs are made by a commit that needs no other one.
const BLOCK: u64 = 64;

/// Numbers that were reserved and not given out.
#[derive(Default)]
pub(super) struct JobNumbers(Mutex<ReservedNumbers>);

struct ReservedNumbers {
    next: u64,
    end: u64,
}

impl Default for ReservedNumbers {
    fn default() -> ReservedNumbers {
        ReservedNumbers { next: 1, end: 1 }
    }
}

impl JobNumbers {
    pub fn load(&self, storage: &dyn Storage) -> Result<(), EngineError> {
        if let Some(value) = storage.snapshot()?.get(CATALOG, &keys::JOB_NUMBERS)? {
            let end = keys::number(&value).ok_or_else(|| corrupt("numbers of jobs"))?;
            *self.0.lock() = ReservedNumbers { next: end, end };
        }
        Ok(())
    }

    pub fn next(&self, storage: &dyn Storage, sequence: &Sequence) -> Result<JobId, EngineError> {
        let mut reserved = self.0.lock();
        if reserved.next == reserved.end {
            let end = reserved.end + BLOCK;
            let (key, value) = (keys::JOB_NUMBERS.to_vec(), keys::number_value(end));
            // Of an unknown outcome: the same block is reserved once more.
            sequence.commit(storage, vec![Op::Put { space: CATALOG, key, value }])?;
            reserved.end = end;
        }
        reserved.next += 1;
        Ok(JobId(reserved.next - 1))
    }
}

impl Jobs {
    /// A commit by itself. When it is unknown whether it happened, the rows are read again before the next job runs.
    pub(super) fn commit(&self, ops: Vec<Op>) -> Result<(), EngineError> {
        let committed = self.sequence.commit(&*self.storage, ops);
        if matches!(committed, Err(EngineError::Unresolved)) {
            self.doubt();
        }
        committed
    }

    /// Every earlier commit of jobs by themselves has happened, or never will, when it returns `Ok`.
    pub fn settle(&self) -> Result<(), EngineError> {
        self.sequence.settle(&*self.storage)
    }

    /// Rows that belong to what jobs do, and to no partition.
    pub fn commit_rows(&self, ops: Vec<Op>) -> Result<(), EngineError> {
        self.commit(ops)
    }

    /// Ends a job that is not finished, as cancelled. Nobody runs it.
    pub fn end_unfinished(&self, id: JobId) -> Result<(), EngineError> {
        if self.is_pending(id) { self.end(id, &JobOutcome::Cancelled, None) } else { Ok(()) }
    }

    /// Ends a job in a commit by itself.
    pub(super) fn end(
        &self,
        id: JobId,
        outcome: &JobOutcome,
        reached: Option<&Checkpoint>,
    ) -> Result<(), EngineError> {
        let _one = self.controlling.lock();
        match self.commit(self.end_ops(id, outcome, reached)) {
            // It would be refused again.
            Err(error) if error.is_permanent() => {
                let error = format!("The result cannot be stored: {error}.");
                let outcome = JobOutcome::Failed { error, result: Value::Null };
                self.commit(self.end_ops(id, &outcome, reached))?;
                self.ended(id, &outcome);
            }
            committed => {
                committed?;
                self.ended(id, outcome);
            }
        }
        Ok(())
    }
}
