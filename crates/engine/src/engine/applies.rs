//! Findings that are applied, and a database to try it on.

use std::sync::Arc;

use quire_value::{Object, Value};

use super::Engine;
use crate::api::{CheckModel, DemoFill, EngineError, ModelCondition, ModelDryRun};
use crate::applies::{Additions, AppliedChange, ApplyOrder, merged_members};
use crate::background::applies::ApplyJobs;
use crate::background::checks::{CheckPayload, subject};
use crate::background::demo::DemoJobs;
use crate::engine::refactorings::RefactoringDryRun;
use crate::integrity::Survey;
use crate::jobs::JobStatus;

/// A journal that would be larger is refused.
const JOURNAL_BYTES_MAX: u64 = 1 << 30;
/// Items of one step of a look at what would change.
const STEP_ITEMS: usize = 1_000;

/// What applying a finding would do.
pub enum ApplyDryRun {
    /// The model that it would put.
    Model(Box<ModelDryRun>),
    Refactoring(RefactoringDryRun),
    /// Of a definition: the members before and after.
    Definition(Value),
}

impl Engine {
    /// Starts the job that applies a finding, and marks the finding as accepted. `None`: the finding is for people.
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

    /// What fills databases with examples. Without it, jobs of kind `demo` wait.
    pub fn set_demo_fill(&self, fill: Arc<DemoFill>) {
        self.demo.set_fill(fill);
    }

    /// Makes a database, and starts the job that fills it.
    pub fn fill_demo(&self, database: &str) -> Result<JobStatus, EngineError> {
        if !self.is_recording() {
            let message =
                "The demo needs recorded requests, and none are recorded (--record off).".to_owned();
            return Err(EngineError::BadRequest { message });
        }
        let body = Value::Object(Object::from_iter([("id", database)]));
        let job = self.catalog.create_database_with_job(&body, DemoJobs::job)?;
        self.job(&job.to_string())
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
                let Some(declarations) = declarations else {
                    return self.check_refactoring(database, body, None);
                };
                self.check_additions(database, declarations)?;
                let model = self.catalog.model(database)?.body;
                let planned = Additions::plan(&model, declarations);
                let model = Value::Object(planned.apply_to(model));
                let model = self.catalog.parsed_model(database, &model)?;
                self.check_refactoring(database, &planned.with_names(body), Some(&model))
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

    pub(super) fn with_additions(&self, database: &str, additions: &Value) -> Result<Value, EngineError> {
        let model = self.catalog.model(database)?.body;
        let planned = Additions::plan(&model, additions);
        Ok(Value::Object(planned.apply_to(model)))
    }

    fn check_additions(&self, database: &str, additions: &Value) -> Result<(), EngineError> {
        let model = self.catalog.model(database)?.body;
        let planned = Additions::plan(&model, additions);
        let body = Value::Object(planned.apply_to(model));
        self.catalog.check_model(database, &body)?;
        self.check_journal(database, body, planned.names)
    }

    /// What items have that would be changed is at most 1 GB. It is examined closely only where there is more at all.
    fn check_journal(&self, database: &str, body: Value, names: Vec<String>) -> Result<(), EngineError> {
        let (owner, _) = self.database_owner(database)?;
        let subject = subject(&self.catalog, owner.number, Some(&body))?;
        let usages: Vec<(u64, u64)> =
            subject.containers.values().map(|container| container.usage()).collect();
        if usages.iter().map(|(_, bytes)| bytes).sum::<u64>() <= JOURNAL_BYTES_MAX {
            return Ok(());
        }
        let mean = usages.iter().map(|(items, bytes)| bytes / items.max(&1)).max().unwrap_or(0);
        let check = CheckModel { declarations: Some(names), model: Some(body), ..CheckModel::default() };
        let order = CheckPayload { check, is_dry_run: true };
        let estimates = Survey::start(&self.shared, subject, &order.options())?.run(STEP_ITEMS)?.estimates();
        let changed = |own: &Value| own.get("wouldChange").and_then(Value::as_u64).unwrap_or(0);
        let bytes = estimates.as_array().unwrap_or_default().iter().map(changed).sum::<u64>() * mean;
        if bytes > JOURNAL_BYTES_MAX { Err(EngineError::JournalTooLarge { bytes }) } else { Ok(()) }
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
