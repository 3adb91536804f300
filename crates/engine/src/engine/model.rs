//! How the model of a database is, and whether its items are what it says.

use std::sync::Arc;

use quire_value::Value;

use super::Engine;
use crate::api::{
    BuildProgress, CheckModel, DeclarationStatus, DryRunEstimates, EngineError, ModelCondition, ModelDryRun,
    ModelStatus,
};
use crate::background::checks::{CHECK, CheckOrder, subject};
use crate::catalog::models::check_condition;
use crate::integrity::Survey;
use crate::jobs::{JobId, JobStatus, Owner};
use crate::model::{BuildPhase, Declaration, DeclarationKind, DeclarationState};

/// A dry run over more items is a job.
const DRY_RUN_ITEMS_MAX: u64 = 10_000;
/// Items of one step of a dry run.
const STEP_ITEMS: usize = 1_000;
const EXAMPLES_DEFAULT: usize = 10;

impl Engine {
    /// The states of the declarations of a database's model, and the work that is left.
    pub fn model_status(&self, database: &str) -> Result<ModelStatus, EngineError> {
        let Some(model) = self.catalog.named_model(database)? else { return Ok(ModelStatus::empty()) };
        let declarations = model.declarations.iter();
        let declarations =
            declarations.map(|(kind, own)| self.declaration_status(kind, own)).collect::<Result<_, _>>()?;
        Ok(ModelStatus { revision: model.revision, declarations, pending: Vec::new(), unswept: 0 })
    }

    /// Starts a check of the database's model, or of one that is not declared.
    pub fn check_model(&self, database: &str, check: CheckModel) -> Result<JobStatus, EngineError> {
        let order = CheckOrder { check, is_dry_run: false };
        let (owner, revision) = self.database_owner(database)?;
        let subject = subject(&self.catalog, owner.number, order.check.model.as_ref())?;
        // What is wrong with the order is said at once.
        Survey::start(&self.shared, subject, &order.options())?;
        let job = self.shared.jobs.create(order.job(CHECK, owner, revision))?;
        self.job(&job.to_string())
    }

    /// What a put would come to. Nothing changes.
    pub fn dry_run_model(
        &self,
        database: &str,
        body: &Value,
        condition: &ModelCondition,
    ) -> Result<ModelDryRun, EngineError> {
        let (owner, revision) = self.database_owner(database)?;
        let state = self.catalog.state();
        let entry = state
            .database(owner.number)
            .ok_or_else(|| EngineError::ResourceNotFound { kind: "database", id: database.to_owned() })?;
        check_condition(condition, entry)?;
        let parsed = self.catalog.parse_model(entry, body)?;
        let built = parsed.difference.added.iter().chain(&parsed.difference.rebuilt).cloned().collect();
        let check = CheckModel {
            declarations: Some(built),
            examples_max: EXAMPLES_DEFAULT,
            model: Some(body.clone()),
            remove_dangling: false,
        };
        let order = CheckOrder { check, is_dry_run: true };
        let subject = subject(&self.catalog, owner.number, Some(body))?;
        let items: u64 = subject.containers.values().map(|container| container.usage().0).sum();
        let survey = Survey::start(&self.shared, subject, &order.options())?;
        let estimates = match items > DRY_RUN_ITEMS_MAX {
            false => DryRunEstimates::Made(survey.run(STEP_ITEMS)?.estimates()),
            true => {
                drop(survey);
                let job = self.shared.jobs.create(order.job(CHECK, owner, revision))?;
                DryRunEstimates::Job(job.to_string())
            }
        };
        let model = parsed.rules.model.to_json();
        Ok(ModelDryRun { model, difference: parsed.difference, warnings: parsed.warnings, estimates })
    }

    /// A database as the owner of jobs, and the revision of its model.
    fn database_owner(&self, database: &str) -> Result<(Owner, u64), EngineError> {
        let state = self.catalog.state();
        let entry = state.databases.find(database).map(Arc::clone);
        let entry = entry
            .ok_or_else(|| EngineError::ResourceNotFound { kind: "database", id: database.to_owned() })?;
        let owner = Owner { number: entry.number(), name: entry.resource.id.clone() };
        Ok((owner, entry.model.as_ref().map_or(0, |model| model.revision)))
    }

    fn declaration_status(
        &self,
        kind: DeclarationKind,
        declaration: &Declaration,
    ) -> Result<DeclarationStatus, EngineError> {
        let mut status = DeclarationStatus {
            name: declaration.name.clone(),
            kind: kind.name(),
            state: declaration.state.name(),
            progress: None,
            references: None,
            last_check: None,
            error: None,
            examples: Vec::new(),
        };
        match &declaration.state {
            DeclarationState::Active => {}
            DeclarationState::Building { job, phase } => {
                status.progress = Some(self.build_progress(*job, *phase)?);
            }
            DeclarationState::Failed { error, examples } => {
                status.error = Some(error.clone());
                status.examples = examples.clone();
            }
        }
        Ok(status)
    }

    fn build_progress(&self, job: JobId, phase: BuildPhase) -> Result<BuildProgress, EngineError> {
        let progress = self.shared.jobs.status(job)?.map(|status| status.progress);
        let (done, total) = progress.map_or((0, None), |progress| (progress.done, progress.total));
        Ok(BuildProgress { job: job.to_string(), phase: phase.name(), done, total })
    }
}

impl ModelStatus {
    fn empty() -> ModelStatus {
        ModelStatus { revision: 0, declarations: Vec::new(), pending: Vec::new(), unswept: 0 }
    }
}
