//! The database itself: catalog, partitions, items, transactions, feed rows, charges.
//!
//! Synchronous. [`Engine::open`] takes any `Storage`; every method may block on it and may be called from any
//! thread. Names, keys and rows of the storage are decided in `keys` and nowhere else.
//! Not here: HTTP and its bodies (see `quire-server`), the choice of a storage (see `quire-cli`).

mod api; // requests and answers
mod background; // work that nobody waits for
mod backup; // the whole account copied to files while it is written to
mod batch; // several operations in one request
mod cache; // ready answers of point reads
mod cache_budget; // the memory of all caches and its parts
mod catalog; // databases, containers, scripts, users, permissions, keys, offers
mod charge; // what requests cost
mod container; // an open container: definition and partitions
mod derived; // what follows from an item
mod engine; // opening, closing, the control plane
mod error;
mod indexes; // the rows that find items by their values
mod items; // create, read, replace, upsert, delete, list, query
mod keys; // every key and value form in the storage
mod locks; // who may write what at the same time
mod partition; // a container's partitions: ranges, positions, counts
mod query_plan; // plans for clients that merge partitions themselves
mod resource; // catalog resources as clients see them
mod resource_query; // queries over resources in memory
mod restore; // from a backup to a store
mod results; // results of queries that are held between pages
mod rids; // counters of new items
mod scripts; // stored procedures, triggers and user-defined functions
mod sequencer; // one commit for all that wait, dense LSNs
mod shared; // what every part of the engine needs
mod split; // one partition becomes two
mod stretches; // neighbouring items kept in memory for scans
mod transaction; // several reads and writes of one logical partition as a whole
mod vectors; // vector indexes in rows
mod verify; // reads everything again
mod views; // containers maintained from others
mod watch; // waiting for changes without a thread

pub use api::*;
pub use background::{WorkerState, WorkerStatus};
pub use backup::BackupReport;
pub use batch::{BatchOperation, BatchVerb, Bulk, OperationDone, OperationResult, Outcome};
pub use catalog::ContainerScripts;
pub use container::Container;
pub use engine::Engine;
pub use error::EngineError;
pub use query_plan::{PlannedQuery, QueryRange};
pub use restore::{RestoreReport, restore};
pub use split::CannotSplit;
pub use transaction::{
    TRANSACTION_OPERATIONS_MAX, TransactionAnswer, TransactionDone, TransactionOperation, TransactionOutcome,
    TransactionVerb,
};
pub use vectors::VectorIndexStatus;
pub use verify::{VerifyReport, verify, verify_backup};
pub use views::{ViewPosition, ViewState, ViewStatus};
pub use watch::ChangeWatch;
// Parts of `EngineError` and of requests that callers must name.
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
pub use scripts::{is_system_procedure, serve_scripts};
