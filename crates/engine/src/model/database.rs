//! The model of a database, its declarations and their states.

use std::collections::HashMap;
use std::sync::Arc;

use quire_model::{Model, ModelRules};
use quire_value::Value;

use super::Conversion;
use crate::jobs::JobId;

/// The model of a database, valid and compiled.
#[derive(Debug)]
pub(crate) struct DatabaseModel {
    /// How often the model was put.
    pub revision: u64,
    pub etag: String,
    pub ts: i64,
    pub rules: Arc<ModelRules>,
    pub declarations: Declarations,
    /// Numbers of the containers that take part, by name. Containers themselves change with every split: they are looked up
    /// in the catalog.
    pub containers: HashMap<String, u32>,
    /// Of open refactorings.
    pub conversions: Vec<Conversion>,
}

/// The declarations of a model, each list in the order of the model's, as [`ModelRules`] has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Declarations {
    pub links: Vec<Declaration>,
    pub copies: Vec<Declaration>,
    pub mirrors: Vec<Declaration>,
    pub rollups: Vec<Declaration>,
    pub windows: Vec<Declaration>,
}

/// What the engine keeps about a declaration, beside what it says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Declaration {
    pub name: String,
    /// Names its rows. New whenever it is rebuilt, and never given out twice.
    pub number: u32,
    pub state: DeclarationState,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DeclarationState {
    Building {
        job: JobId,
        phase: BuildPhase,
    },
    Active,
    /// It maintains nothing until it is rebuilt.
    Failed {
        error: String,
        /// Items that show it.
        examples: Vec<Value>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuildPhase {
    /// The link's own index and sums are made; writes store a client's value at owned paths.
    Index,
    /// Owned paths are written; writes store the right value.
    Values,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DeclarationKind {
    Link,
    Copy,
    Mirror,
    Rollup,
    Window,
}

impl DatabaseModel {
    pub fn model(&self) -> &Model {
        &self.rules.model
    }

    /// The same, to become another one.
    pub fn duplicate(&self) -> DatabaseModel {
        DatabaseModel {
            revision: self.revision,
            etag: self.etag.clone(),
            ts: self.ts,
            rules: Arc::clone(&self.rules),
            declarations: self.declarations.clone(),
            containers: self.containers.clone(),
            conversions: self.conversions.clone(),
        }
    }

    /// Whether the container takes part.
    pub fn names(&self, container: u32) -> bool {
        self.containers.values().any(|number| *number == container)
    }
}

impl Declarations {
    /// Gives every declaration of a model what `of` says, in the model's order.
    pub fn try_new<E>(
        model: &Model,
        mut of: impl FnMut(DeclarationKind, &str) -> Result<Declaration, E>,
    ) -> Result<Declarations, E> {
        use DeclarationKind::*;
        Ok(Declarations {
            links: model.links.iter().map(|own| of(Link, &own.name)).collect::<Result<_, E>>()?,
            copies: model.copies.iter().map(|own| of(Copy, &own.name)).collect::<Result<_, E>>()?,
            mirrors: model.mirrors.iter().map(|own| of(Mirror, &own.name)).collect::<Result<_, E>>()?,
            rollups: model.rollups.iter().map(|own| of(Rollup, &own.name)).collect::<Result<_, E>>()?,
            windows: model.windows.iter().map(|own| of(Window, &own.name)).collect::<Result<_, E>>()?,
        })
    }

    /// All of them, in the order of the contract: links, copies, mirrors, rollups, windows.
    pub fn iter(&self) -> impl Iterator<Item = (DeclarationKind, &Declaration)> {
        use DeclarationKind::*;
        let kinds = [
            (Link, &self.links),
            (Copy, &self.copies),
            (Mirror, &self.mirrors),
            (Rollup, &self.rollups),
            (Window, &self.windows),
        ];
        kinds.into_iter().flat_map(|(kind, list)| list.iter().map(move |declaration| (kind, declaration)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Declaration> {
        let lists =
            [&mut self.links, &mut self.copies, &mut self.mirrors, &mut self.rollups, &mut self.windows];
        lists.into_iter().flatten()
    }

    pub fn named(&self, name: &str) -> Option<&Declaration> {
        self.iter().map(|(_, declaration)| declaration).find(|declaration| declaration.name == name)
    }
}

impl DeclarationState {
    pub fn is_active(&self) -> bool {
        matches!(self, DeclarationState::Active)
    }

    pub fn is_failed(&self) -> bool {
        matches!(self, DeclarationState::Failed { .. })
    }

    pub fn name(&self) -> &'static str {
        match self {
            DeclarationState::Building { .. } => "building",
            DeclarationState::Active => "active",
            DeclarationState::Failed { .. } => "failed",
        }
    }

    /// Its rows beside the items are kept: links, totals, mirrors.
    pub fn keeps_rows(&self) -> bool {
        !self.is_failed()
    }

    /// Owned paths have the right value with every write.
    pub fn keeps_values(&self) -> bool {
        matches!(
            self,
            DeclarationState::Active | DeclarationState::Building { phase: BuildPhase::Values, .. }
        )
    }

    /// Items count one by one, each with a mark.
    pub fn is_counting(&self) -> bool {
        matches!(self, DeclarationState::Building { phase: BuildPhase::Index, .. })
    }

    /// The job that builds it.
    pub fn job(&self) -> Option<JobId> {
        match self {
            DeclarationState::Building { job, .. } => Some(*job),
            DeclarationState::Active | DeclarationState::Failed { .. } => None,
        }
    }
}

impl BuildPhase {
    pub fn name(self) -> &'static str {
        match self {
            BuildPhase::Index => "index",
            BuildPhase::Values => "values",
        }
    }
}

impl DeclarationKind {
    pub fn name(self) -> &'static str {
        match self {
            DeclarationKind::Link => "link",
            DeclarationKind::Copy => "copy",
            DeclarationKind::Mirror => "mirror",
            DeclarationKind::Rollup => "rollup",
            DeclarationKind::Window => "window",
        }
    }
}
