//! Declared links between containers, and what is kept true by them: copies, mirrors, rollups and windows.
//!
//! [`Model::parse`] reads the JSON of a model strictly and checks it against the containers of a database; what is wrong is a
//! [`ModelInvalid`] with every error. [`Difference`] says what a new model changes. [`ModelRules`] applies a model to items:
//! references, owned values, the differences that a write makes to its targets, windows.
//! Everything is a pure function: no storage, no threads, no time.
//! Not here: indexes of links, locks, commits and jobs (see `quire-engine`), requests (see `quire-server`).

mod declare; // declarations: types, JSON in and out, stored form
mod difference; // what a new model changes
mod evaluate; // what declarations make of items
mod pointer; // JSON pointers with `*`
mod problem; // what can be wrong with a model
mod sum; // exact sums
mod validate; // whether a model fits its database

pub use declare::{
    ContainerPath, Convert, Copy, DECLARATIONS_MAX, FAN_OUT_DEFAULT, FAN_OUT_MAX, Field, IfMatch, Integrity,
    LINKS_MAX, Level, Link, MIRROR_MAX, MODEL_BYTES_MAX, Mirror, Model, NewestAt, OnDelete, OnMissing,
    OnWrite, Operation, PAGE_SIZE_MAX, PAGE_SIZE_MIN, Pages, REFERENCES_MAX, Rollup, RollupOf, Route,
    StoredModelError, Target, WINDOW_KEEP_MAX, WhenFull, Window, declaration_name,
};
pub use difference::Difference;
pub use evaluate::{
    CopyRules, ExpectedPathValue, ItemError, LinkRules, MirrorChange, MirrorRules, ModelMismatch, ModelRules,
    OwnedValue, PutOutcome, Reference, ReferrerKey, RollupChange, RollupRules, RollupTotals, SizeLimit,
    TargetKey, WindowRules, added_references, put_owned_values, window,
};
pub use pointer::{Pointer, Segment, escape};
pub use problem::{ModelError, ModelInvalid, Problem, ReservedPath};
pub use sum::{CorruptSum, Sum};
pub use validate::{Database, FOLLOW_MEMBER, Warning};
