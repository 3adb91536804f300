//! Work that no request waits for, each kind on a thread of its own ([`Worker`]).

pub(crate) mod applies; // findings that are applied
mod builds; // making what declarations of models maintain
mod catalog_work; // what the catalog leaves to do becomes jobs
pub(crate) mod checks; // whether items are what a model says
pub(crate) mod demo; // a database of examples
mod drops; // removing the rows of what was deleted
mod fan_outs; // what the change of a target means for many referrers
pub(crate) mod follower; // what is made of the versions of a container
pub(crate) mod index_builds; // bringing items up to date after a change of policy
mod jobs; // running jobs that clients watch
mod key_deletes; // removing the items of deleted partition keys
pub(crate) mod profiles; // profiles of containers, advice
mod recording; // taking in and storing what was recorded
pub(crate) mod refactorings; // items in another form, later writes
pub(crate) mod rekey; // containers that take the place of others under another partition key
pub(crate) mod repairs; // writing what a model says
pub(crate) mod split; // one partition becomes two
mod sweep; // removing expired items, old versions
pub(crate) mod vector_indexes; // building vector indexes, and what has changed since
pub(crate) mod views; // containers maintained from others
mod visits; // items that jobs visit, with their checkpoints
mod what_ifs; // changes tried on copies
mod work_rate; // how fast a job writes
mod worker; // a thread that goes on after errors and panics

pub(crate) use builds::Builds;
pub(crate) use catalog_work::CatalogWork;
pub(crate) use checks::Checks;
pub(crate) use drops::Drops;
pub(crate) use fan_outs::FanOuts;
pub(crate) use index_builds::IndexBuilds;
pub(crate) use jobs::JobRunner;
pub(crate) use key_deletes::KeyDeletes;
pub(crate) use profiles::ProfileJobs;
pub(crate) use recording::Recording;
pub(crate) use repairs::Repairs;
pub(crate) use sweep::Sweep;
pub(crate) use vector_indexes::{VectorBuilds, VectorIndexes};
pub(crate) use what_ifs::WhatIfs;
pub(crate) use worker::{Interrupted, NextRound, Worker, WorkerRound, WorkerTask};
pub use worker::{WorkerState, WorkerStatus};
