//! What the account contains: databases, containers, scripts, users, permissions, client encryption keys, offers.
//!
//! Every resource is one durable row; the whole catalog is also in memory as one immutable [`CatalogState`], so that reads
//! take no lock and touch no storage. Invariants:
//! 1. a state is published only after the commit that makes it true is durable;
//! 2. changes are made one at a time, each one storage commit of the catalog's own sequence with the next LSN;
//! 3. numbers come from durable counters and are never given out twice, so a recreated resource has a new rid;
//! 4. a deleted thing leaves the catalog in one commit, and a job row in that same commit names what is left to do.

mod body; // checks of bodies
mod change; // one change: rows and next state, committed and published
mod client_encryption_keys;
mod container; // an open container: definition and partitions
pub(crate) mod containers;
pub(crate) mod databases;
mod dropped; // names of what was dropped
pub(crate) mod keys; // the catalog's keys
mod load; // from rows to the state in memory
pub(crate) mod model_row; // the row of a model
pub(crate) mod models; // links, copies, mirrors, rollups and windows of databases
mod offers;
mod permissions;
pub(crate) mod rekey; // containers that replace others under another key
mod routed_key; // a partition key and its partition
pub(crate) mod row; // formats of catalog rows
mod scripts; // stored procedures, triggers, user-defined functions
pub(crate) mod state; // the catalog in memory
mod users;
pub(crate) mod views; // which containers are views of which

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::api::{EngineError, Precondition, Resource};
use crate::partition::sequencer::{CommitQueue, CommitQueues};
use crate::runtime::Shared;
use crate::runtime::signals::CatalogWorkers;
use crate::sync::Mutex;
use change::CatalogWriter;
use dropped::DroppedOwners;
use state::{CatalogState, DatabaseEntry, DropJob, UserEntry};

pub(crate) use load::{for_each_model, for_each_resource, is_empty, open_store, read_jobs, read_store};

pub use container::Container;
pub(crate) use routed_key::{RoutedKey, canonical, canonical_of, id_key_of};
pub use scripts::ContainerScripts;
pub(crate) use scripts::check_script;

/// What the account contains. Databases and containers are named by path segments: a name, or a rid where no such name
/// exists.
pub struct Catalog {
    shared: Arc<Shared>,
    /// Containers find their siblings in it.
    state: Arc<ArcSwap<CatalogState>>,
    writer: Mutex<CatalogWriter>,
    /// Woken when a change leaves something to do.
    workers: CatalogWorkers,
    /// By database.
    commit_queues: CommitQueues,
    dropped: Mutex<HashMap<DropJob, DroppedOwners>>,
}

impl Catalog {
    pub(crate) fn state(&self) -> Arc<CatalogState> {
        self.state.load_full()
    }

    /// Commits over several partitions of a database.
    pub(crate) fn commit_queue(&self, database: u32) -> Arc<CommitQueue> {
        self.commit_queues.of(database)
    }

    pub(crate) fn statistics(&self) -> Vec<(&'static str, u64)> {
        let state = self.state.load();
        let users = state.databases.iter().map(|database| database.users.len());
        vec![
            ("databases", state.databases.len() as u64),
            ("containers", state.containers().count() as u64),
            ("scripts", state.containers().map(|container| container.scripts().len() as u64).sum()),
            ("users", users.sum::<usize>() as u64),
            ("offers", state.offers.len() as u64),
        ]
    }

    /// The database as the owner of something: when it is missing, what was asked for has no owner.
    fn owner_database(&self, segment: &str) -> Result<Arc<DatabaseEntry>, EngineError> {
        let state = self.state.load();
        state.databases.find(segment).cloned().ok_or_else(|| owner_not_found("database", segment))
    }

    /// The container as the owner of something.
    fn owner_container(&self, database: &str, container: &str) -> Result<Arc<Container>, EngineError> {
        let database = self.owner_database(database)?;
        database.containers.find(container).cloned().ok_or_else(|| owner_not_found("container", container))
    }

    /// Containers that are maintained from this one.
    pub fn views_of(&self, container: &Container) -> Vec<Arc<Container>> {
        views::views_of(&self.state.load(), container).into_iter().cloned().collect()
    }

    /// False while no container is a view; true from the first one on.
    pub fn has_views(&self) -> bool {
        self.state.load().has_views
    }

    pub fn container(&self, database: &str, container: &str) -> Result<Arc<Container>, EngineError> {
        let state = self.state.load();
        let database = state.databases.find(database).ok_or_else(|| owner_not_found("database", database))?;
        database.containers.find(container).cloned().ok_or_else(|| not_found("container", container))
    }
}

/// Finds a user as the owner of something.
fn owner_user<'a>(database: &'a DatabaseEntry, segment: &str) -> Result<&'a Arc<UserEntry>, EngineError> {
    database.users.find(segment).ok_or_else(|| owner_not_found("user", segment))
}

fn not_found(kind: &'static str, id: &str) -> EngineError {
    EngineError::ResourceNotFound { kind, id: id.to_owned() }
}

fn owner_not_found(kind: &'static str, id: &str) -> EngineError {
    EngineError::OwnerNotFound { kind, id: id.to_owned() }
}

fn already_exists(kind: &'static str, id: &str) -> EngineError {
    EngineError::AlreadyExists { kind, id: id.to_owned() }
}

/// `If-Match` on a resource that exists.
fn check_precondition(precondition: &Precondition, resource: &Resource) -> Result<(), EngineError> {
    match precondition.if_match.as_deref() {
        None | Some("*") => Ok(()),
        Some(etag) if etag == resource.etag => Ok(()),
        Some(_) => Err(EngineError::PreconditionFailed),
    }
}
