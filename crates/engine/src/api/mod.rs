//! What callers see of the engine besides [`Engine`](crate::engine::Engine): requests, answers, errors, charges.

mod advice; // profiles, and what evaluates rules
mod cancel; // cancellation
pub(crate) mod charge; // charges
mod error; // errors
mod feed; // reading the change feed
mod follow; // chains of links to follow
mod items; // single items
mod model; // models of databases
mod options; // what an engine is opened with
mod pages; // pages of items: lists and queries
mod plan; // plans for clients that merge partitions themselves
mod refactorings; // what is wrong with a request for a refactoring
mod resource; // catalog resources as clients see them
mod scripts; // runs of stored procedures

pub use advice::{AdviceInput, Advisor, DemoFill, ProfileRequest};
pub use cancel::Cancel;
pub use error::EngineError;
pub(crate) use error::corrupt;
pub use feed::{Changes, ChangesRequest, FeedMode, FeedStart};
pub use follow::{FollowRequest, FollowStep};
pub use items::{
    Answer, IndexingDirective, ItemRead, ItemWritten, PartitionInfo, ReadItem, SessionPosition, WriteItem,
    WriteKind,
};
pub use model::{
    BuildProgress, CheckModel, DeclarationStatus, DryRunEstimates, LastCheck, ModelCondition, ModelDryRun,
    ModelResource, ModelStatus, ModelWritten, PendingFanOut,
};
pub use options::{Clock, Options, QueryMemoryLimits, ScriptOptions};
pub use pages::{
    CONTINUATION_BYTES_MAX, Crossing, Page, PageRequest, QueryMetrics, ResumeFilter, ResumeValue, Scope,
};
pub use plan::{PlannedQuery, QueryRange};
pub use refactorings::{OrderError, RefactoringInvalid};
pub use resource::{Migrate, Precondition, Resource, ScriptKind};
pub use scripts::{ExecuteProcedure, ExecuteSystemProcedure, ProcedureDone, ScriptFailure, SystemAddress};
// Parts of `EngineError` and of requests that callers must name.
pub use quire_model::{Difference, ItemError, ModelError, ModelInvalid, Problem as ModelProblem, Warning};
pub use quire_script::{
    Isolation as ScriptIsolation, Limits as ScriptLimits, Position as ScriptPosition, ScriptError,
};
pub use quire_sql::ast::Direction;
pub use quire_sql::functions::Aggregate;
pub use quire_sql::{
    Diagnostic, Distinct, Feature, HybridSearch, IndexMetrics, Parameters, QueryInfo, QueryPlan, Reservation,
    SqlError, TempSpace,
};
pub use quire_storage::StorageError;
