//! Findings that are applied.

use quire_value::{Object, Value};

use super::Engine;
use crate::api::{EngineError, ModelCondition, ModelDryRun};
use crate::applies::{Additions, AppliedChange, ApplyOrder, merged_members};
use crate::background::applies::ApplyJobs;
use crate::engine::refactorings::RefactoringDryRun;
use crate::jobs::JobStatus;

/// What applying a finding would do.
pub enum ApplyDryRun {
    /// The model that it would put.
    Model(Box<ModelDryRun>),
    Refactoring(RefactoringDryRun),
    /// Of a definition: the members before and after.
    Definition(Value),
}

impl Engine {
    /// Starts the job that applies a finding, which is accepted thereby. `None`: the finding is for people.
    pub fn apply_finding(
        &self,
        database: &str,
        id: &str,
        finishes_itself: bool,
    ) -> Result<Option<JobStatus>, EngineError> {
        let Some(order) = ApplyOrder::of_finding(&self.finding(database, id)?, finishes_itself)? else {
            return Ok(None);
        };
        self.check_apply(database, &order)?;
        let (owner, _) = self.database_owner(database)?;
        let job = self.shared.jobs.order(ApplyJobs::job(&order, owner))?;
        // The job does so, too: it may be that it was just made when the engine ends.
        self.accept_finding(database, id)?;
        self.job(&job.to_string()).map(Some)
    }

    /// The same checks, and what it would do.
    pub fn dry_run_apply(
        &self,
        database: &str,
        id: &str,
        finishes_itself: bool,
    ) -> Result<Option<ApplyDryRun>, EngineError> {
        let Some(order) = ApplyOrder::of_finding(&self.finding(database, id)?, finishes_itself)? else {
            return Ok(None);
        };
        self.check_apply(database, &order)?;
        let run = match &order.change {
            AppliedChange::Model { additions } => self.dry_run_additions(database, additions)?,
            // What a refactoring does with a link that is not there cannot be tried.
            AppliedChange::Refactoring { declarations: Some(declarations), .. } => {
                self.dry_run_additions(database, declarations)?
            }
            AppliedChange::Refactoring { body, declarations: None } => {
                ApplyDryRun::Refactoring(self.dry_run_refactoring(database, body)?)
            }
            AppliedChange::Definition { container, .. } => {
                let (before, after) = self.changed_definition(database, &order.change)?;
                ApplyDryRun::Definition(definition_json(
                    container,
                    Value::Object(before),
                    Value::Object(after),
                ))
            }
            AppliedChange::Container { body } => {
                let id = body.get("id").and_then(Value::as_str).unwrap_or_default();
                ApplyDryRun::Definition(definition_json(id, Value::Null, body.clone()))
            }
        };
        Ok(Some(run))
    }

    /// What can be said at once is not left to the job.
    fn check_apply(&self, database: &str, order: &ApplyOrder) -> Result<(), EngineError> {
        match &order.change {
            AppliedChange::Model { additions } => self.check_additions(database, additions),
            AppliedChange::Refactoring { body, declarations } => {
                if let Some(declarations) = declarations {
                    self.check_additions(database, declarations)?;
                }
                self.check_refactoring(database, body)
            }
            AppliedChange::Definition { container, .. } => {
                let (_, after) = self.changed_definition(database, &order.change)?;
                let current = self.catalog.container(database, container)?;
                let mut body = current.definition.json.clone();
                after.iter().for_each(|(member, value)| body.set(member, value.clone()));
                current.definition.replace(&Value::Object(body)).map(drop)?;
                Ok(())
            }
            AppliedChange::Container { body } => self.catalog.check_new_container(database, body),
        }
    }

    fn with_additions(&self, database: &str, additions: &Value) -> Result<Value, EngineError> {
        let model = self.catalog.model(database)?.body;
        let planned = Additions::plan(&model, additions);
        Ok(Value::Object(planned.added_to(model)))
    }

    fn check_additions(&self, database: &str, additions: &Value) -> Result<(), EngineError> {
        let body = self.with_additions(database, additions)?;
        self.catalog.check_model(database, &body)
    }

    fn dry_run_additions(&self, database: &str, additions: &Value) -> Result<ApplyDryRun, EngineError> {
        let body = self.with_additions(database, additions)?;
        let run = self.dry_run_model(database, &body, &ModelCondition::default())?;
        Ok(ApplyDryRun::Model(Box::new(run)))
    }

    fn changed_definition(
        &self,
        database: &str,
        change: &AppliedChange,
    ) -> Result<(Object, Object), EngineError> {
        let AppliedChange::Definition { container, base, wanted } = change else {
            return Ok(Default::default());
        };
        let current = self.catalog.container(database, container)?;
        Ok(merged_members(base, wanted, &current.definition.json))
    }
}

fn definition_json(container: &str, before: Value, after: Value) -> Value {
    let mut json = Object::new();
    json.set("container", container);
    json.set("before", before);
    json.set("after", after);
    Value::Object(json)
}
