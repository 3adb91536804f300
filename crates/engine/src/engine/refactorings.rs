//! Refactorings: items of a container in another form.

use quire_model::Model;
use quire_value::{Object, Value};

use super::Engine;
use crate::api::EngineError;
use crate::background::refactorings::DryRunJobs;
use crate::jobs::JobStatus;
use crate::refactorings::{DryRun, Refactoring};

/// A dry run of a larger container is a job.
const DRY_RUN_ITEMS_MAX: u64 = 10_000;

/// What a dry run came to, or the job that does it.
pub enum RefactoringDryRun {
    Done(Value),
    Job(Box<JobStatus>),
}

impl Engine {
    /// All of a database, as JSON, the newest first.
    pub fn refactorings(&self, database: &str) -> Result<Value, EngineError> {
        let (owner, _) = self.database_owner(database)?;
        let all = self.refactorings.list(owner.number)?;
        let all = all.iter().rev().map(Refactoring::to_json).collect::<Value>();
        Ok(Value::Object(Object::from_iter([("refactorings", all)])))
    }

    pub fn refactoring(&self, database: &str, id: &str) -> Result<Value, EngineError> {
        let (owner, _) = self.database_owner(database)?;
        Ok(self.refactorings.find(owner.number, id)?.to_json())
    }

    /// Starts one: the job that expands it.
    pub fn start_refactoring(&self, database: &str, body: Value) -> Result<JobStatus, EngineError> {
        self.refactoring_job(&self.refactorings.start_named(database, body)?)
    }

    /// The same checks, and what it would do.
    pub fn dry_run_refactoring(
        &self,
        database: &str,
        body: &Value,
    ) -> Result<RefactoringDryRun, EngineError> {
        let (_, order, container) = self.refactorings.order(database, body)?;
        let order = self.refactorings.resolved(&container, order)?;
        order.check(&container)?;
        if container.usage().0 > DRY_RUN_ITEMS_MAX {
            let job = self.shared.jobs.order(DryRunJobs::job(&container, &order.whole_body(body.clone())))?;
            return Ok(RefactoringDryRun::Job(Box::new(self.job(&job.to_string())?)));
        }
        let found = DryRun::of_all(&self.shared, &container, &order)?;
        Ok(RefactoringDryRun::Done(found.to_json(&order)))
    }

    /// Whether one could be started now, under the model as it is or as it is going to be.
    pub(super) fn check_refactoring(
        &self,
        database: &str,
        body: &Value,
        model: Option<&Model>,
    ) -> Result<(), EngineError> {
        let (number, order, container) = match model {
            Some(model) => self.refactorings.order_under(database, body, Some(model))?,
            None => self.refactorings.order(database, body)?,
        };
        let order = self.refactorings.resolved(&container, order)?;
        order.check(&container)?;
        self.refactorings.check_alone(number, &order, &container)
    }

    /// Later writes are not followed any more: the job that takes the last ones.
    pub fn finish_refactoring(&self, database: &str, id: &str) -> Result<JobStatus, EngineError> {
        let (owner, _) = self.database_owner(database)?;
        self.refactoring_job(&self.refactorings.finish(owner.number, id)?)
    }

    /// The job that puts back what items had.
    pub fn undo_refactoring(&self, database: &str, id: &str) -> Result<JobStatus, EngineError> {
        let (owner, _) = self.database_owner(database)?;
        self.refactoring_job(&self.refactorings.undo(owner.number, id)?)
    }

    fn refactoring_job(&self, own: &Refactoring) -> Result<JobStatus, EngineError> {
        self.job(own.jobs.last().map_or("", String::as_str))
    }
}
