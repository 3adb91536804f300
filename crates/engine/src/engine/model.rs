//! How the model of a database is.

use super::Engine;
use crate::api::{BuildProgress, DeclarationStatus, EngineError, ModelStatus};
use crate::jobs::JobId;
use crate::model::{BuildPhase, Declaration, DeclarationKind, DeclarationState};

impl Engine {
    /// The states of the declarations of a database's model, and the work that is left.
    pub fn model_status(&self, database: &str) -> Result<ModelStatus, EngineError> {
        let Some(model) = self.catalog.named_model(database)? else { return Ok(ModelStatus::empty()) };
        let declarations = model.declarations.iter();
        let declarations =
            declarations.map(|(kind, own)| self.declaration_status(kind, own)).collect::<Result<_, _>>()?;
        Ok(ModelStatus { revision: model.revision, declarations, pending: Vec::new(), unswept: 0 })
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
