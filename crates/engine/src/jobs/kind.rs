//! Kinds of jobs.

use std::time::Duration;

use quire_value::Value;

use super::claim::JobClaim;
use super::id::JobId;
use crate::api::EngineError;

/// A kind of job. One value serves all jobs of the kind, on several threads.
pub(crate) trait JobKind: Send + Sync {
    /// As clients know it; in the rows of its jobs.
    fn name(&self) -> &'static str;

    /// Does a little of the work: one commit, or a few. It is asked again until it answers that there is no more, and after
    /// an error, with the checkpoint as it is in the storage: an error says nothing about whether a commit happened.
    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError>;

    /// Whether a client may pause or cancel it.
    fn can_stop(&self) -> bool {
        true
    }

    fn can_pause(&self) -> bool {
        self.can_stop()
    }

    fn can_cancel(&self) -> bool {
        self.can_stop()
    }

    /// A finished job is kept at least as long as this, however many there are of its kind.
    fn kept_ms(&self) -> i64 {
        0
    }

    /// A client has cancelled the job, and it is about to end: puts in order what it leaves. May come again.
    fn cancel(&self, _claim: &mut JobClaim<'_>) -> Result<(), EngineError> {
        Ok(())
    }

    /// The job does not run for now: what the kind keeps of it in memory goes.
    fn release(&self, _job: JobId) {}

    /// Takes back what a job has done: the job that does so.
    fn undo(&self, _job: JobId) -> Result<Option<JobId>, EngineError> {
        Ok(None)
    }
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JobStep {
    /// There is more to do.
    More,
    /// The same, not before this time has passed.
    Rest(Duration),
    Done(Value),
    /// It cannot be done.
    Failed {
        error: String,
        result: Value,
    },
    /// It goes on when a client has decided something and resumes it.
    Blocked {
        error: String,
        result: Value,
    },
    /// What it was for is not there any more.
    Cancelled,
    /// It ended in a commit of its own: see [`JobClaim::finish_ops`].
    Committed,
}
