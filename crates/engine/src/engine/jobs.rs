//! Durable work that clients watch, pause and cancel.

use std::sync::Arc;

use super::Engine;
use crate::api::EngineError;
use crate::jobs::{self, JobControl, JobCount, JobStatus, JobWatch};

impl Engine {
    /// The newest first: all that are not finished, and the last 1,000 others of each kind, without their results.
    pub fn jobs(&self) -> Result<Vec<JobStatus>, EngineError> {
        self.shared.jobs.list()
    }

    pub fn job(&self, id: &str) -> Result<JobStatus, EngineError> {
        let found = id.parse().ok().map(|id| self.shared.jobs.status(id)).transpose()?.flatten();
        found.ok_or_else(|| jobs::not_found(id))
    }

    /// How many jobs there are, by kind and state: unfinished ones now, finished ones since the engine was opened.
    pub fn job_counts(&self) -> Vec<JobCount> {
        self.shared.jobs.counts()
    }

    /// Ready when the job is neither waiting nor running.
    pub fn watch_job(&self, id: &str) -> Result<JobWatch, EngineError> {
        let id = id.parse().map_err(|_| jobs::not_found(id))?;
        Ok(JobWatch::new(Arc::clone(&self.shared.jobs), id))
    }

    /// Pauses, resumes, cancels or undoes a job; the one to look at then.
    pub fn control_job(&self, id: &str, control: JobControl) -> Result<JobStatus, EngineError> {
        let job = id.parse().map_err(|_| jobs::not_found(id))?;
        let next = self.shared.jobs.control(job, control)?;
        self.job(&next.to_string())
    }
}
