//! Applying findings: declarations, refactorings and definitions that advice names, and the way back.
//!
//! A job of kind `apply` goes through [`ApplyStage`]s. What it is going to do is in its checkpoint before it is done, and every stage
//! sees whether it was done already: so a job that is killed goes on, and its undo knows what there is to take back. Items that
//! its declarations change are journalled by their build (`maintain::journal`).

mod additions; // declarations in a model
mod forward; // applying
mod journals; // journals whose time is over
mod merge; // a change in another version of a value
mod order; // what is asked for
mod state;
mod undo; // taking back // how far a job is

use std::sync::Arc;

use quire_value::{Object, Value};

pub(crate) use self::additions::Additions;
pub(crate) use self::forward::merged_members;
pub(crate) use self::journals::remove_old_journals;
pub(crate) use self::order::{AppliedChange, ApplyOrder};
pub(crate) use self::state::{ApplyStage, ApplyState};
use crate::api::EngineError;
use crate::catalog::{Catalog, Container};
use crate::jobs::{JobId, JobOwner, JobStatus};
use crate::maintain::journal::journal_of_job;
use crate::profiles::Profiles;
use crate::refactorings::Refactorings;
use crate::runtime::Shared;

pub(crate) const APPLY: &str = "apply";
/// How long what items had is kept.
pub(crate) const JOURNAL_MS: i64 = 7 * 24 * 3600 * 1000;

/// Whether a view has all items of its source.
pub(crate) type IsViewReady = dyn Fn(&Container) -> bool + Send + Sync;

pub(crate) struct Applies {
    pub shared: Arc<Shared>,
    pub catalog: Arc<Catalog>,
    pub profiles: Arc<Profiles>,
    pub refactorings: Arc<Refactorings>,
    pub is_view_ready: Box<IsViewReady>,
}

/// What a step came to.
#[allow(clippy::large_enum_variant, reason = "there is one of them at a time")]
pub(crate) enum ApplyProgress {
    /// It goes on from there.
    Next(ApplyState),
    /// Something else has to be done first, and so many of its items are.
    Wait {
        done: u64,
        total: Option<u64>,
    },
    Done(Value),
    Failed {
        error: String,
        result: Value,
    },
    Blocked {
        error: String,
        result: Value,
    },
}

/// One job of a database.
struct ApplyRun<'a> {
    applies: &'a Applies,
    database: &'a JobOwner,
}

impl Applies {
    /// A job that applies a finding, or goes on to take back what it did.
    pub fn step(
        &self,
        database: &JobOwner,
        (job, order): (JobId, &ApplyOrder),
        state: ApplyState,
    ) -> Result<ApplyProgress, EngineError> {
        let run = ApplyRun { applies: self, database };
        let mut state = state;
        if state.stage == ApplyStage::Begin {
            (state.finding, state.journal) = (order.finding.clone(), journal_of_job(job.0));
        }
        let before = state.clone();
        match run.step(order, state) {
            Err(error) if is_refusal(&error) && is_forward(before.stage) => {
                Ok(ApplyProgress::Next(before.refused(error.to_string())))
            }
            step => step,
        }
    }

    /// A job that undoes another one.
    pub fn step_back(&self, database: &JobOwner, state: ApplyState) -> Result<ApplyProgress, EngineError> {
        let run = ApplyRun { applies: self, database };
        let before = state.clone();
        match run.step_back(state) {
            Err(error) if is_refusal(&error) => {
                Ok(ApplyProgress::Failed { error: error.to_string(), result: before.result("failed") })
            }
            step => step,
        }
    }
}

impl ApplyState {
    /// It cannot be done: what was done of it is taken back.
    fn refused(self, error: String) -> ApplyState {
        ApplyState { error: Some(error), ..self.at(ApplyStage::RestoreDefinition) }
    }
}

impl ApplyRun<'_> {
    fn step(&self, order: &ApplyOrder, state: ApplyState) -> Result<ApplyProgress, EngineError> {
        match state.stage {
            ApplyStage::Begin => self.begin(order, state),
            ApplyStage::PlanModel => self.plan_model(order, state),
            ApplyStage::Declare => self.declare(state),
            ApplyStage::Build => self.build(order, state),
            ApplyStage::PlanRefactoring => self.plan_refactoring(order, state),
            ApplyStage::Refactor => self.refactor(order, state),
            ApplyStage::Refactoring => self.refactoring(order, state),
            ApplyStage::PlanDefinition => self.plan_definition(order, state),
            ApplyStage::Define => self.define(order, state),
            ApplyStage::Defining => self.defining(state),
            ApplyStage::End => self.end(&state),
            _ => self.step_back(state),
        }
    }

    fn step_back(&self, state: ApplyState) -> Result<ApplyProgress, EngineError> {
        match state.stage {
            ApplyStage::RestoreDefinition => self.restore_definition(state),
            ApplyStage::UndoRefactoring => self.undo_refactoring(state),
            ApplyStage::UndoingRefactoring => self.undoing_refactoring(state),
            ApplyStage::RemoveDeclarations => self.remove_declarations(state),
            ApplyStage::RestoreItems => self.restore_items(state),
            ApplyStage::Reopen => self.reopen(&state),
            _ => Ok(ApplyProgress::Next(state.at(ApplyStage::RestoreDefinition))),
        }
    }

    fn model(&self) -> Result<(Object, String), EngineError> {
        let model = self.applies.catalog.model(&self.database.name)?;
        Ok((model.body, model.etag))
    }

    fn container(&self, id: &str) -> Result<Arc<Container>, EngineError> {
        self.applies.catalog.container(&self.database.name, id)
    }

    /// A job that has to be done first.
    fn wait_for(&self, job: Option<JobId>, state: &ApplyState) -> Result<ApplyProgress, EngineError> {
        let status = job.map(|job| self.applies.shared.jobs.status(job)).transpose()?.flatten();
        let (done, total) =
            status.map_or((0, None), |JobStatus { progress, .. }| (progress.done, progress.total));
        Ok(ApplyProgress::Wait { done: state.items + done, total: total.map(|total| state.items + total) })
    }

    fn items_of(&self, job: Option<JobId>) -> Result<u64, EngineError> {
        let status = job.map(|job| self.applies.shared.jobs.status(job)).transpose()?.flatten();
        Ok(status.map_or(0, |status| status.progress.done))
    }

    fn remove_recorded(&self, container: &str) -> Result<(), EngineError> {
        let shared = &self.applies.shared;
        shared.recorder.forget_container(&*shared.storage, self.database.number, container)
    }
}

fn is_forward(stage: ApplyStage) -> bool {
    use ApplyStage::*;
    matches!(
        stage,
        Begin
            | PlanModel
            | Declare
            | Build
            | PlanRefactoring
            | Refactor
            | Refactoring
            | PlanDefinition
            | Define
            | Defining
    )
}

/// It would be refused each time. All else passes, or it is unknown whether it was done.
fn is_refusal(error: &EngineError) -> bool {
    use EngineError::*;
    let is_retried = match error {
        UnderModel => false,
        PreconditionFailed | Corrupt { .. } | ResourceNotFound { kind: "database", .. } => true,
        error => error.is_transient(),
    };
    !is_retried
}
