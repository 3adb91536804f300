//! The database itself: catalog, partitions, items, transactions, feed rows, charges.
//!
//! Synchronous. [`Engine::open`] takes any `Storage`; every method may block on it and may be called from any
//! thread. Names, keys and rows of the storage are decided in `store::keys` and nowhere else.
//! Not here: HTTP and its bodies (see `quire-server`), the choice of a storage (see `quire-cli`).

mod api; // requests, answers, errors, charges
mod applies; // findings that are applied
mod background; // background work
mod catalog; // databases, containers, scripts, users, permissions, keys, offers
mod engine; // `Engine`: open, close, and one method per request
mod feed; // the change feed
mod indexes; // index rows
mod integrity; // whether items are what a model says
mod items; // one item: read, write, patch, delete
mod jobs; // durable work that clients can watch
mod links; // rows of declared links
mod maintain; // what a write changes beside its item, by the model of the database
mod maintenance; // backup, restore, verify
mod memory; // caches
mod model; // the models of databases in memory
mod partition; // partitions and their sequencers
mod profiles; // what is stored in containers, and advice about it
mod query; // pages of items: lists and SQL
mod recording; // recorded requests
mod refactorings; // items in another form
mod runtime; // state that all requests share
#[cfg(feature = "schedules")]
pub mod schedules; // small programs under the explorer of schedules
mod scripts; // stored procedures, triggers and user-defined functions
mod store; // keys and values of rows, the storage as the engine sees it
mod sync; // locks and atomics of the concurrent core
mod transactions; // several reads and writes as a whole, batches
mod what_if; // a change tried on a copy, with recorded requests

pub use api::*;
pub use background::split::CannotSplit;
pub use background::views::{ViewPosition, ViewState, ViewStatus};
pub use background::{WorkerState, WorkerStatus};
pub use catalog::{Catalog, Container, ContainerScripts};
pub use engine::{ApplyDryRun, Engine, RefactoringDryRun};
pub use indexes::vectors::VectorIndexStatus;
pub use jobs::{JobControl, JobCount, JobProgress, JobState, JobStatus, JobWatch};
pub use maintenance::backup::BackupReport;
pub use maintenance::restore::{RestoreReport, restore};
pub use maintenance::verify::{VerifyReport, verify, verify_backup};
pub use partition::watch::ChangeWatch;
pub use recording::{AnsweredRequest, ObservedRequest};
pub use runtime::scripting::serve_scripts;
pub use scripts::is_system_procedure;
pub use transactions::batch::{
    BatchOperation, BatchVerb, Bulk, OperationDone, OperationOutcome, OperationResult,
};
pub use transactions::{
    TRANSACTION_OPERATIONS_MAX, TransactionAnswer, TransactionDone, TransactionOperation, TransactionOutcome,
    TransactionVerb,
};
