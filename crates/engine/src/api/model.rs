//! The model of a database, as clients see it.

use quire_model::{Difference, Warning};
use quire_value::{Object, Value};

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

/// How a model and what it declares are.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelStatus {
    pub revision: u64,
    /// In the order of the contract: links, copies, mirrors, rollups, windows.
    pub declarations: Vec<DeclarationStatus>,
    /// Work that a write of a target has left.
    pub pending: Vec<PendingFanOut>,
    /// Items that expired, or whose partition key was deleted, and that the sweep has not removed yet. `None`: there are too many
    /// items to count them for an answer.
    pub unswept: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DeclarationStatus {
    pub name: String,
    pub kind: &'static str,
    pub state: &'static str,
    /// While it is built.
    pub progress: Option<BuildProgress>,
    /// Of a link, when it was last counted: by its build or by a check.
    pub references: Option<u64>,
    pub last_check: Option<LastCheck>,
    /// Why it failed, and items that show it.
    pub error: Option<String>,
    pub examples: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildProgress {
    pub job: String,
    pub phase: &'static str,
    pub done: u64,
    pub total: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastCheck {
    /// Milliseconds since 1970.
    pub at_ms: i64,
    pub dangling: u64,
    pub drift: u64,
}

/// A target whose referrers are still to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingFanOut {
    pub job: String,
    /// The link.
    pub declaration: String,
    /// Of the target.
    pub container: String,
    pub id: String,
    pub partition_key: Value,
    pub since_lsn: u64,
    /// Referrers that are left, at most.
    pub remaining: u64,
}

/// What is to be checked, or repaired.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckModel {
    /// Names of declarations; `None`: all of them.
    pub declarations: Option<Vec<String>>,
    /// Examples of each finding, at most.
    pub examples_max: usize,
    /// A model that is not declared, in place of the database's.
    pub model: Option<Value>,
    /// A repair takes away references without a target.
    pub remove_dangling: bool,
}

/// What a put of a model would come to.
#[derive(Clone, Debug)]
pub struct ModelDryRun {
    /// As it would be answered.
    pub model: Object,
    pub difference: Difference,
    pub warnings: Vec<Warning>,
    pub estimates: DryRunEstimates,
}

#[derive(Clone, Debug)]
pub enum DryRunEstimates {
    /// One object for each declaration that would be built.
    Made(Value),
    /// The job that makes them: there are many items.
    Job(String),
}
