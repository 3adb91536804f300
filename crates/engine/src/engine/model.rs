//! How the model of a database is, and whether its items are what it says.

use std::sync::Arc;

use quire_value::{Limits, Value, text};

use super::Engine;
use crate::api::{
    BuildProgress, CheckModel, DeclarationStatus, DryRunEstimates, EngineError, LastCheck, ModelCondition,
    ModelDryRun, ModelStatus, PendingFanOut,
};
use crate::background::checks::{CHECK, CheckPayload, subject};
use crate::background::repairs::REPAIR;
use crate::catalog::Container;
use crate::catalog::models::{BUILD, check_condition};
use crate::integrity::Survey;
use crate::jobs::{JobId, JobOwner, JobStatus};
use crate::maintain::fan_out::{FAN_OUT, FanOutRow};
use crate::model::{BuildPhase, DatabaseModel, Declaration, DeclarationKind, DeclarationState};
use crate::store::for_each_row;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, DeclarationKeys, ITEMS, LOOKUPS};

/// A dry run over more items is a job.
const DRY_RUN_ITEMS_MAX: u64 = 10_000;
/// Items of one step of a dry run.
const STEP_ITEMS: usize = 1_000;
const EXAMPLES_DEFAULT: usize = 10;
/// Items that are read to count those that nobody sees any more.
const UNSWEPT_ITEMS_MAX: u64 = if cfg!(test) { 500 } else { 100_000 };

impl Engine {
    /// The states of the declarations of a database's model, and the work that is left.
    pub fn model_status(&self, database: &str) -> Result<ModelStatus, EngineError> {
        let Some(model) = self.catalog.named_model(database)? else { return Ok(ModelStatus::empty()) };
        let (owner, _) = self.database_owner(database)?;
        let jobs: Vec<JobStatus> =
            self.shared.jobs.list()?.into_iter().filter(|job| is_of(job, &owner)).collect();
        let declarations = model.declarations.iter();
        let mut declarations: Vec<DeclarationStatus> =
            declarations.map(|(kind, own)| self.declaration_status(kind, own)).collect::<Result<_, _>>()?;
        self.add_counts(&mut declarations, &jobs)?;
        let (pending, unswept) = (self.pending_fan_outs(&model)?, self.unswept(&model)?);
        Ok(ModelStatus { revision: model.revision, declarations, pending, unswept })
    }

    /// What the last check and the build of each declaration have counted. `jobs` are the newest first; their results are read one
    /// at a time.
    fn add_counts(
        &self,
        declarations: &mut [DeclarationStatus],
        jobs: &[JobStatus],
    ) -> Result<(), EngineError> {
        let mut open: Vec<&mut DeclarationStatus> = declarations.iter_mut().collect();
        for job in jobs {
            if open.is_empty() {
                break;
            }
            let found = job.id.parse().ok().map(|id| self.shared.jobs.status(id)).transpose()?.flatten();
            let Some(job) = found else { continue };
            open.retain_mut(|declaration| !add_counts(declaration, &job));
        }
        Ok(())
    }

    /// Whether any job is not finished.
    pub fn has_unfinished_jobs(&self) -> bool {
        self.shared.jobs.has_unfinished()
    }

    /// Referrers in a container that jobs have still to write; `None` where no model names the container.
    pub fn model_pending(&self, container: &Container) -> Option<u64> {
        container.partitions.model()?;
        Some(self.shared.jobs.remaining(FAN_OUT, container.number))
    }

    fn pending_fan_outs(&self, model: &DatabaseModel) -> Result<Vec<PendingFanOut>, EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        let mut pending = Vec::new();
        for (own, rules) in model.declarations.links.iter().zip(&model.rules.links) {
            let Some(container) = model.containers.get(&rules.link.to.container).copied() else { continue };
            let rows = DeclarationKeys { container, declaration: own.number };
            for_each_row(&*snapshot, LOOKUPS, &rows.fan_outs(), |_, row| {
                let row = FanOutRow::decode(row)?;
                if let Some(job) = self.shared.jobs.status(row.job)? {
                    pending.push(pending_fan_out(&own.name, &rules.link.to.container, &row, &job));
                }
                Ok(())
            })?;
        }
        Ok(pending)
    }

    /// Items that nobody sees any more, and that count until the sweep has removed them.
    fn unswept(&self, model: &DatabaseModel) -> Result<Option<u64>, EngineError> {
        let state = self.catalog.state();
        let (mut count, mut items) = (0, 0);
        for container in state.containers().filter(|container| model.names(container.number)) {
            let visibility_point = container.visibility_point(&self.shared);
            if container.definition.default_ttl.is_none() && !visibility_point.hides_keys() {
                continue;
            }
            items += container.usage().0;
            if items > UNSWEPT_ITEMS_MAX {
                return Ok(None);
            }
            let snapshot = container.snapshot(&self.shared)?;
            for_each_row(&*snapshot, ITEMS, &keys::container_prefix(container.number), |_, row| {
                count += u64::from(container.is_invisible(&ItemRow::trusted(row)?, &visibility_point));
                Ok(())
            })?;
        }
        Ok(Some(count))
    }

    /// Starts a check of the database's model, or of one that is not declared.
    pub fn check_model(&self, database: &str, check: CheckModel) -> Result<JobStatus, EngineError> {
        let order = CheckPayload { check, is_dry_run: false };
        let (owner, revision) = self.database_owner(database)?;
        let subject = subject(&self.catalog, owner.number, order.check.model.as_ref())?;
        // What is wrong with the order is said at once.
        Survey::start(&self.shared, subject, &order.options())?;
        let job = self.shared.jobs.order(order.job(CHECK, owner, revision))?;
        self.job(&job.to_string())
    }

    /// Starts a repair of what the database's model maintains.
    pub fn repair_model(&self, database: &str, check: CheckModel) -> Result<JobStatus, EngineError> {
        if check.model.is_some() {
            let message = "A model that is not declared can be checked, not repaired.".to_owned();
            return Err(EngineError::BadRequest { message });
        }
        let order = CheckPayload { check, is_dry_run: false };
        let (owner, revision) = self.database_owner(database)?;
        Survey::start(&self.shared, subject(&self.catalog, owner.number, None)?, &order.options())?;
        let job = self.shared.jobs.order(order.job(REPAIR, owner, revision))?;
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
        let order = CheckPayload { check, is_dry_run: true };
        let subject = subject(&self.catalog, owner.number, Some(body))?;
        let items: u64 = subject.containers.values().map(|container| container.usage().0).sum();
        let survey = Survey::start(&self.shared, subject, &order.options())?;
        let estimates = match items > DRY_RUN_ITEMS_MAX {
            false => DryRunEstimates::Made(survey.run(STEP_ITEMS)?.estimates()),
            true => {
                drop(survey);
                let job = self.shared.jobs.order(order.job(CHECK, owner, revision))?;
                DryRunEstimates::Job(job.to_string())
            }
        };
        let model = parsed.rules.model.to_json();
        Ok(ModelDryRun { model, difference: parsed.difference, warnings: parsed.warnings, estimates })
    }

    /// A database as the owner of jobs, and the revision of its model.
    pub(super) fn database_owner(&self, database: &str) -> Result<(JobOwner, u64), EngineError> {
        let state = self.catalog.state();
        let entry = state.databases.find(database).map(Arc::clone);
        let entry = entry
            .ok_or_else(|| EngineError::ResourceNotFound { kind: "database", id: database.to_owned() })?;
        let owner = JobOwner { number: entry.number(), name: entry.resource.id.clone() };
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

/// Whether a job has examined all of a database's model.
fn is_of(job: &JobStatus, database: &JobOwner) -> bool {
    let is_other = job.about.get("declared").is_some() || job.about.get("dryRun").is_some();
    job.database.as_deref() == Some(&database.name)
        && !is_other
        && [CHECK, BUILD].contains(&job.kind.as_str())
}

/// What a check or the build of a declaration has counted, where a later one has not. Whether earlier ones have nothing to add.
fn add_counts(declaration: &mut DeclarationStatus, job: &JobStatus) -> bool {
    let mut own = find(job.result.get("declarations"), &declaration.name);
    if let Some(own) = own.next() {
        let count = own.get("references").and_then(Value::as_u64).filter(|_| declaration.kind == "link");
        declaration.references = declaration.references.or(count);
        if let (CHECK, None, Some(at_ms)) = (job.kind.as_str(), &declaration.last_check, job.finished_ms) {
            let findings: Vec<&Value> = find(job.result.get("findings"), &declaration.name).collect();
            let count = |problem: &str| {
                let of_kind = findings.iter().find(|own| own.get("problem") == Some(&problem.into()));
                of_kind.and_then(|own| own.get("count")).and_then(Value::as_u64).unwrap_or(0)
            };
            declaration.last_check =
                Some(LastCheck { at_ms, dangling: count("dangling"), drift: count("drift") });
        }
    }
    // Before its build it was another one, if it was at all.
    let built = job.about.get("declarations").and_then(Value::as_array).unwrap_or_default();
    job.kind == BUILD && built.contains(&declaration.name.as_str().into())
}

/// Entries of a list that are about a declaration.
fn find<'v>(list: Option<&'v Value>, declaration: &str) -> impl Iterator<Item = &'v Value> {
    let list = list.and_then(Value::as_array).unwrap_or_default();
    list.iter().filter(move |own| own.get("declaration").and_then(Value::as_str) == Some(declaration))
}

fn pending_fan_out(link: &str, container: &str, row: &FanOutRow, job: &JobStatus) -> PendingFanOut {
    let text = |name: &str| job.about.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let key = text::parse(text("partitionKey").as_bytes(), Limits::default()).unwrap_or(Value::Null);
    let remaining = job.progress.total.map_or(0, |total| total.saturating_sub(job.progress.done));
    PendingFanOut {
        job: job.id.clone(),
        declaration: link.to_owned(),
        container: container.to_owned(),
        id: text("key"),
        partition_key: key,
        since_lsn: row.since_lsn,
        remaining,
    }
}

impl ModelStatus {
    fn empty() -> ModelStatus {
        ModelStatus { revision: 0, declarations: Vec::new(), pending: Vec::new(), unswept: Some(0) }
    }
}
