//! The model of a database, as clients see it.

use quire_model::{Difference, Warning};
use quire_value::Object;

/// What a client expects of the model that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelCondition {
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
}

#[derive(Clone, Debug)]
pub struct ModelResource {
    /// As it was put, without what the server adds.
    pub body: Object,
    pub etag: String,
    pub ts: i64,
    /// How often it was put; 0 before.
    pub revision: u64,
}

/// What a put came to.
#[derive(Clone, Debug)]
pub struct ModelWritten {
    pub model: ModelResource,
    /// There was none before.
    pub created: bool,
    pub difference: Difference,
    pub warnings: Vec<Warning>,
    /// Jobs that build what is new.
    pub jobs: Vec<String>,
}
