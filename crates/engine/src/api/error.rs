//! Everything that can go wrong, as a caller can act on it.

use quire_model::{ItemError, ModelInvalid};
use quire_resource::{ContainerError, NameError, PartitionKeyError, ThroughputError, TtlError};
use quire_sql::SqlError;
use quire_storage::StorageError;
use quire_value::ParseError;

use crate::api::{PlannedQuery, RefactoringInvalid, ScriptFailure};

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{kind} {id:?} not found")]
    ResourceNotFound { kind: &'static str, id: String },
    /// the database or container above it is missing
    #[error("owner {kind} {id:?} not found")]
    OwnerNotFound { kind: &'static str, id: String },
    #[error("item {id:?} not found")]
    ItemNotFound { id: String },
    #[error("{kind} {id:?} already exists")]
    AlreadyExists { kind: &'static str, id: String },
    #[error("item {id:?} already exists")]
    ItemExists { id: String },
    #[error("unique key {paths} is taken")]
    UniqueKeyTaken { paths: String },
    /// two different partition keys with one hash and one id
    #[error("partition key hash collision")]
    HashCollision,
    #[error("precondition failed")]
    PreconditionFailed,
    #[error(transparent)]
    ModelInvalid(#[from] ModelInvalid),
    /// a write that the model of its database refuses
    #[error(transparent)]
    RefusedByModel(#[from] ItemError),
    /// a model names the container meanwhile: the write is made under it; never an answer
    #[error("the container has got a model")]
    UnderModel,
    /// a container that the model of its database names cannot be deleted
    #[error("the container {container:?} is part of the model of its database")]
    ModelInUse { container: String },
    /// no link of this name leads from, or reversed to, the container
    #[error("there is no link {link:?} that can be followed from the container {container:?}")]
    UnknownLink { link: String, container: String },
    /// the index of the link is not complete
    #[error("the link {link:?} cannot be followed: it {}", if *.is_building { "is still being built" } else { "could not be built" })]
    LinkNotReady { link: String, is_building: bool },
    #[error("more than 1,000 items or 4 MB follow from one item")]
    FollowTooLarge,
    #[error(transparent)]
    RefactoringInvalid(#[from] RefactoringInvalid),
    /// one refactoring of a container at a time
    #[error("the container {container:?} is being refactored: finish or undo that first")]
    RefactoringRunning { container: String },
    #[error("the refactoring {id:?} cannot be {verb}: {why}")]
    RefactoringRefuses { id: String, verb: &'static str, why: String },
    #[error(
        "the journal would have {bytes} bytes, and 1 GB is the most: \"journal\": false does without it, and without undo"
    )]
    JournalTooLarge { bytes: u64 },
    /// one what-if of a database at a time
    #[error("a what-if of the database {database:?} is running")]
    WhatIfRunning { database: String },
    /// a job that cannot be paused, resumed, cancelled or undone
    #[error("the job {id:?} cannot be {control}: {why}")]
    JobRefuses { id: String, control: &'static str, why: &'static str },
    #[error("the condition of the patch is not met")]
    PatchConditionNotMet,
    #[error("request body is not valid JSON")]
    BadJson(#[from] ParseError),
    /// generic 400 with the service's text
    #[error("{message}")]
    BadRequest { message: String },
    #[error("required properties missing: {names}")]
    MissingProperties { names: String },
    #[error(transparent)]
    BadName(#[from] NameError),
    #[error(transparent)]
    BadContainer(#[from] ContainerError),
    #[error(transparent)]
    BadPartitionKey(#[from] PartitionKeyError),
    #[error("no partition key given")]
    PartitionKeyMissing,
    #[error("partition key of the header differs from the item's")]
    PartitionKeyMismatch,
    #[error(transparent)]
    BadTtl(#[from] TtlError),
    #[error(transparent)]
    BadThroughput(#[from] ThroughputError),
    #[error("item of {bytes} bytes is larger than {bytes_max}")]
    ItemTooLarge { bytes: usize, bytes_max: usize },
    #[error("script of {bytes} bytes is larger than {bytes_max}")]
    ScriptTooLarge { bytes: usize, bytes_max: usize },
    #[error("read session not available")]
    SessionNotAvailable,
    #[error("partition {id:?} is gone")]
    PartitionGone { id: String },
    /// the partition was split, or writers were held, while the request ran and nothing was done: it is run once more
    #[error("the partition has been split")]
    PartitionMoved,
    /// another container has got the name of the one that a request was about, and nothing was done
    #[error("the container was replaced by another one")]
    ContainerReplaced,
    /// why a partition cannot be split
    #[error("partition {id:?} cannot be split: {reason}")]
    CannotSplit { id: String, reason: &'static str },
    #[error("container rid does not match")]
    ContainerRidMismatch,
    #[error("invalid continuation token")]
    BadContinuation,
    #[error(transparent)]
    Sql(SqlError),
    /// a query over several partitions that did not ask to be one
    #[error("a query over several partitions is refused")]
    CrossPartitionRefused,
    /// groups and aggregates beside other values, over several partitions: clients that can merge them ask for a plan
    #[error("a query over several partitions supports VALUE aggregates only")]
    CrossPartitionAggregate,
    /// the client merges partitions, by this plan
    #[error("the query needs a plan")]
    PlanNeeded(Box<PlannedQuery>),
    /// no client waits for the answer any more
    #[error("the request was cancelled")]
    Cancelled,
    /// a procedure, trigger or user-defined function failed, and everything it did is undone
    #[error("{}", .0.error)]
    Script(Box<ScriptFailure>),
    /// it exceeded its time too often
    #[error("script {id:?} is blocked")]
    ScriptBlocked { id: String },
    /// a call of it runs in this process and does not end
    #[error("a call of script {id:?} does not end")]
    ScriptStuck { id: String },
    /// others kept changing what a transaction read: nothing was done, retry
    #[error("the transaction conflicts with others")]
    TransactionConflict,
    #[error("{feature} is not supported yet")]
    NotSupported { feature: String },
    #[error("forbidden: {reason}")]
    Forbidden { reason: String },
    /// too many writers wait for one lock, or a key is not indexed yet: retry
    #[error("too many concurrent writers")]
    Contended,
    /// another operation of the same batch or transaction failed: nothing was done
    #[error("another operation of the transaction failed")]
    FailedDependency,
    #[error("the transaction is larger than {limit}")]
    TransactionTooLarge { limit: &'static str },
    #[error("the batch ran longer than {limit:?}")]
    BatchTimeout { limit: std::time::Duration },
    #[error("the response would be larger than {bytes_max} bytes")]
    ResponseTooLarge { bytes_max: usize },
    #[error("the engine is overloaded")]
    Overloaded,
    #[error("storage failed")]
    Storage(#[from] StorageError),
    #[error("corrupt data: {what}")]
    Corrupt { what: String },
    /// a write whose outcome the storage could not report, or one that waits behind such a write: 503, retry
    #[error("the outcome of a write is not known yet")]
    Unresolved,
    #[error("the store has format {found}, this version reads up to {supported}")]
    NewerFormat { found: u32, supported: u32 },
    #[error("the storage to restore into is not empty")]
    StorageNotEmpty,
    #[error("a backup is running already")]
    BackupRunning,
    #[error("bad backup: {what}")]
    BadBackup { what: String },
    #[error("i/o error while {doing}")]
    Io { doing: String, source: std::io::Error },
}

/// What was read from the storage is not what was written to it.
pub(crate) fn corrupt(what: impl Into<String>) -> EngineError {
    EngineError::Corrupt { what: what.into() }
}

impl EngineError {
    /// What was to be changed has been changed by others meanwhile, or too many write it: nothing was done, and another
    /// try will probably succeed.
    pub(crate) fn is_conflict(&self) -> bool {
        use EngineError::*;
        matches!(self, PartitionMoved | TransactionConflict | Contended | Overloaded)
    }

    /// The request is not at fault: nothing was done, or nobody knows, and the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        use EngineError::*;
        self.is_conflict() || matches!(self, Cancelled | Unresolved | UnderModel | Storage(_))
    }

    /// Another try of the same would end in the same way.
    pub(crate) fn is_permanent(&self) -> bool {
        use EngineError::*;
        matches!(self, ItemTooLarge { .. } | BadRequest { .. } | TransactionTooLarge { .. })
    }

    /// The error of a request that was not sent, because an earlier commit is in doubt: nothing of it can happen.
    pub(crate) fn not_sent(self) -> EngineError {
        match self {
            EngineError::Unresolved => EngineError::Overloaded,
            error => error,
        }
    }

    /// The same error once more: every write of a commit is answered with it.
    pub(crate) fn duplicate(&self) -> EngineError {
        match self {
            EngineError::Storage(error) => EngineError::Storage(match error {
                StorageError::Closed => StorageError::Closed,
                StorageError::UnknownSpace { space } => StorageError::UnknownSpace { space: *space },
                StorageError::Poisoned { during } => StorageError::Poisoned { during },
                StorageError::Unavailable { during } => StorageError::Unavailable { during },
                StorageError::DiskFull { doing } => StorageError::DiskFull { doing: doing.clone() },
                StorageError::Corrupt { what } => StorageError::Corrupt { what: what.clone() },
                StorageError::Io { doing, source } => {
                    let source = std::io::Error::new(source.kind(), source.to_string());
                    StorageError::Io { doing: doing.clone(), source }
                }
            }),
            EngineError::ResourceNotFound { kind, id } => {
                EngineError::ResourceNotFound { kind, id: id.clone() }
            }
            EngineError::PartitionMoved => EngineError::PartitionMoved,
            EngineError::ContainerReplaced => EngineError::ContainerReplaced,
            EngineError::RefusedByModel(error) => EngineError::RefusedByModel(error.clone()),
            EngineError::PartitionGone { id } => EngineError::PartitionGone { id: id.clone() },
            EngineError::Corrupt { what } => EngineError::Corrupt { what: what.clone() },
            EngineError::ItemTooLarge { bytes, bytes_max } => {
                EngineError::ItemTooLarge { bytes: *bytes, bytes_max: *bytes_max }
            }
            _ => EngineError::Overloaded,
        }
    }
}

/// A query that no request waits for is cancelled, wherever it notices.
impl From<SqlError> for EngineError {
    fn from(error: SqlError) -> EngineError {
        match error {
            SqlError::Cancelled => EngineError::Cancelled,
            error => EngineError::Sql(error),
        }
    }
}
