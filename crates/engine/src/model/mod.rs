//! The model of a database in memory: what is declared, under which numbers, in which states.
//!
//! A [`DatabaseModel`] never changes: another model, or another state of a declaration, makes a new one, which all containers
//! that it names get together with a new epoch of their definitions (see `partition::write_rules`). So a write is made under
//! exactly one model.
//! Not here: what a model is and whether it is valid (`quire-model`), its row (`catalog::model_row`), what a write makes of it.

mod container; // what a model says of one container
mod conversion; // what open refactorings do to items
mod database; // the model of a database

pub(crate) use container::ContainerModel;
pub(crate) use conversion::{
    Conversion, ConversionRule, ConversionStage, EmbedRule, EmbedSide, ExtractRule, FlipRule, MergeRule,
    OldWriters, OnConflict, SplitRule,
};
pub(crate) use database::{
    BuildPhase, DatabaseModel, Declaration, DeclarationKind, DeclarationState, Declarations,
};
