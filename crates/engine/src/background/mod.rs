//! Work that nobody waits for, each kind on a thread of its own ([`Worker`]).

pub(crate) mod index_builds; // bringing items up to date after a change of policy
mod jobs; // running jobs that clients watch
mod reclaim; // removing the rows of what was deleted
pub(crate) mod split; // one partition becomes two
mod sweep; // removing expired items, items of deleted keys, old versions
pub(crate) mod vector_indexes; // building vector indexes, and what has changed since
pub(crate) mod views; // containers maintained from others
mod worker; // a thread that goes on after errors and panics

pub(crate) use index_builds::IndexBuilds;
pub(crate) use jobs::JobRunner;
pub(crate) use reclaim::Reclaim;
pub(crate) use sweep::Sweep;
pub(crate) use vector_indexes::VectorIndexes;
pub(crate) use worker::{Interrupted, Next, Turn, Work, Worker};
pub use worker::{WorkerState, WorkerStatus};
