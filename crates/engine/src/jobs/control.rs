//! Pause, resume, cancel, undo.

use super::id::JobId;
use super::registry::Jobs;
use super::row::{self, JobHold, JobOutcome};
use crate::api::EngineError;

/// A request of a client to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobControl {
    Pause,
    Resume,
    Cancel,
    Undo,
}

impl JobControl {
    fn verb(self) -> &'static str {
        match self {
            JobControl::Pause => "paused",
            JobControl::Resume => "resumed",
            JobControl::Cancel => "cancelled",
            JobControl::Undo => "undone",
        }
    }
}

impl Jobs {
    /// Durable when it returns. A job that is running goes on until its commit is done. The job that is to be examined then.
    pub fn control(&self, id: JobId, control: JobControl) -> Result<JobId, EngineError> {
        self.refresh()?;
        let status = self.status(id)?.ok_or_else(|| not_found(&id.to_string()))?;
        let refused =
            |why: &'static str| EngineError::JobRefuses { id: id.to_string(), control: control.verb(), why };
        if control == JobControl::Undo {
            let undone = self.kind(&status.kind).map(|kind| kind.undo(id)).transpose()?.flatten();
            return undone.ok_or_else(|| refused("jobs of its kind cannot be"));
        }
        if status.state.is_finished() {
            return Err(refused("it is finished"));
        }
        let is_possible = self.kind(&status.kind).is_none_or(|kind| match control {
            JobControl::Pause => kind.can_pause(),
            JobControl::Cancel => kind.can_cancel(),
            JobControl::Resume | JobControl::Undo => true,
        });
        if !is_possible {
            return Err(refused("jobs of its kind cannot be"));
        }
        if control == JobControl::Cancel && self.kind(&status.kind).is_none() {
            // No kind of this version runs the job, so no step is in progress.
            self.end(id, &JobOutcome::Cancelled, None)?;
            return Ok(id);
        }
        self.set(id, control)?;
        Ok(id)
    }

    fn set(&self, id: JobId, control: JobControl) -> Result<(), EngineError> {
        // One at a time, so that the row says the same as the registry.
        let _one = self.controlling.lock();
        let Some((body, hold)) = self.held(id) else { return Ok(()) };
        let next = match (control, &hold) {
            (JobControl::Pause, JobHold::None) => JobHold::Paused,
            (JobControl::Resume, JobHold::Paused | JobHold::Blocked { .. }) => JobHold::None,
            (JobControl::Cancel, JobHold::None | JobHold::Paused | JobHold::Blocked { .. }) => {
                JobHold::Cancelling
            }
            _ => return Ok(()),
        };
        self.commit(vec![row::put_body(id, &body, &next)])?;
        self.registry.lock().set_hold(id, next);
        if let Some(kind) = self.kind(&body.kind) {
            kind.release(id);
        }
        self.wake();
        self.changed();
        Ok(())
    }
}

pub(crate) fn not_found(id: &str) -> EngineError {
    EngineError::ResourceNotFound { kind: "job", id: id.to_owned() }
}
