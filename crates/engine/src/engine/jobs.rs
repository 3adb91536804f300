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

#[cfg(test)]
mod tests {
    use quire_storage::memory::MemoryStorage;

    use super::*;
    use crate::jobs::JobKind;
    use crate::runtime::stopped_clock::StoppedClock;

    /// The table of docs/extensions.md has a row for every kind, which says what clients may do to its jobs.
    #[test]
    fn every_kind_is_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/extensions.md");
        let text = std::fs::read_to_string(path).expect("the documentation is there");
        let options = StoppedClock::default().into_options(1);
        let engine = Engine::open(Arc::new(MemoryStorage::new()), options).expect("opens");
        let (_, table) = text.split_once("| kind | work | progress in | can be |").expect("there is a table");
        let rows: Vec<Vec<&str>> = table
            .lines()
            .skip(2)
            .map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
            .map(|row| row.split(" | ").collect())
            .collect();
        let documented = |kind: &dyn JobKind| rows.iter().find(|row| row[0] == format!("`{}`", kind.name()));
        for kind in engine.shared.jobs.kinds() {
            let row = documented(&**kind).unwrap_or_else(|| panic!("{} is not in the table", kind.name()));
            assert_eq!(row[3].contains("paused"), kind.can_pause(), "{}", kind.name());
            assert_eq!(row[3].contains("cancelled"), kind.can_cancel(), "{}", kind.name());
        }
        assert_eq!(rows.len(), engine.shared.jobs.kinds().len());
    }
}
