//! The engine itself: opening, closing and the control plane (databases, containers, scripts, users, offers, keys).

pub(crate) mod after_split; // requests that met a split
mod feed; // the change feed, waiting for changes
mod items; // single items
mod pages; // lists and queries
mod scripts; // stored procedures
mod transactions; // batches, transactions over items of a database

use std::sync::Arc;

use quire_resource::{ResourceId, Throughput};
use quire_storage::Storage;
use quire_value::{Path, Value};

use crate::api::{
    EngineError, Migrate, ModelCondition, ModelResource, ModelWritten, Options, Precondition, Resource,
    ScriptKind,
};
use crate::background::split::{CannotSplit, Splits, Splitter};
use crate::background::views::{ViewStatus, Views};
use crate::background::{IndexBuilds, JobRunner, Reclaim, Sweep, VectorIndexes, Worker, WorkerStatus};
use crate::catalog::row::StoreRow;
use crate::catalog::views::views_of;
use crate::catalog::{self, Catalog, Container};
use crate::indexes::vectors::VectorIndexStatus;
use crate::jobs::{self, JobControl, JobStatus, JobWatch};
use crate::runtime::Shared;
use crate::store::watched::Watched;

pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) catalog: Arc<Catalog>,
    reclaim: Worker<Reclaim>,
    jobs: Worker<JobRunner>,
    index_builds: Worker<IndexBuilds>,
    vector_indexes: Worker<VectorIndexes>,
    sweep: Worker<Sweep>,
    views: Views,
    splits: Worker<Splits>,
    /// The storage of `shared`, seen as what backups need.
    pub(crate) watched: Arc<Watched>,
}

impl Engine {
    /// Opens what is in the storage, or makes a new account in an empty one.
    pub fn open(storage: Arc<dyn Storage>, options: Options) -> Result<Engine, EngineError> {
        let StoreRow { incarnation, secret } = catalog::open_store(&*storage)?;
        let watched = Arc::new(Watched::new(storage));
        let shared = Shared::new(watched.clone(), options, secret, incarnation);
        shared.jobs.load()?;
        let workers = shared.workers.clone();
        let catalog = Arc::new(Catalog::open(Arc::clone(&shared), workers.clone())?);
        let views = Views::start(Arc::clone(&shared), Arc::clone(&catalog))?;
        let (backup, reclaim) = (Arc::clone(&watched), workers.reclaim);
        let reclaim = Reclaim::start(Arc::clone(&shared), Arc::clone(&catalog), backup, reclaim)?;
        let index_builds =
            IndexBuilds::start(Arc::clone(&shared), Arc::clone(&catalog), workers.index_builds)?;
        let vector_indexes =
            VectorIndexes::start(Arc::clone(&shared), Arc::clone(&catalog), workers.vector_indexes)?;
        let sweep = Sweep::start(Arc::clone(&shared), Arc::clone(&catalog))?;
        let splitter = Splitter {
            shared: Arc::clone(&shared),
            catalog: Arc::clone(&catalog),
            watched: Arc::clone(&watched),
        };
        let splits = Splits::start(splitter)?;
        let jobs = JobRunner::start(&shared.jobs, Vec::new())?;
        Ok(Engine {
            shared,
            catalog,
            reclaim,
            jobs,
            index_builds,
            vector_indexes,
            sweep,
            views,
            splits,
            watched,
        })
    }
    /// The server is about to stop: queries that call user-defined functions end now, with an error. One that runs in
    /// this process and does not look at the clock cannot be ended: [`Engine::function_pages`] counts it.
    pub fn stop_functions(&self) {
        self.shared.scripts.stop_functions();
    }
    /// Pages of queries that call user-defined functions, under way now.
    pub fn function_pages(&self) -> usize {
        self.shared.scripts.function_pages()
    }
    /// Stops background work, flushes, closes the storage.
    pub fn close(&self) -> Result<(), EngineError> {
        self.stop_workers();
        Ok(self.shared.storage.close()?)
    }
    fn stop_workers(&self) {
        self.reclaim.stop();
        self.jobs.stop();
        self.index_builds.stop();
        self.vector_indexes.stop();
        self.sweep.stop();
        self.views.stop();
        self.splits.stop();
    }
    /// Whether background work gets on.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        vec![
            self.reclaim.status(),
            self.jobs.status(),
            self.index_builds.status(),
            self.vector_indexes.status(),
            self.sweep.status(),
            self.views.worker_status(),
            self.splits.status(),
        ]
    }
    /// The vector indexes of a container, and how far they are.
    pub fn vector_indexes(&self, container: &Container) -> Result<Vec<VectorIndexStatus>, EngineError> {
        self.vector_indexes.work().status(container)
    }
    /// Whether vector indexes are left as they are for now: queries look at what has changed since themselves.
    pub fn pause_vector_indexes(&self, paused: bool) {
        self.vector_indexes.pause(paused);
    }
    /// Whether expired items are left on the disk for now; nobody sees them either way.
    pub fn pause_sweep(&self, paused: bool) {
        self.sweep.pause(paused);
    }
    /// Asks for rows of the items that lack a path, as a query does that sorts by the path and reads many items to find
    /// few without it. See [`Container::has_missing_rows`].
    pub fn keep_missing_rows(&self, container: &Container, path: &Path) {
        if container.partitions.want_missing(path) {
            self.shared.workers.index_builds.wake();
        }
    }
    /// Drops all results that are held between pages: the pages that follow compute them again.
    pub fn drop_held_results(&self) {
        self.shared.results.clear();
    }
    /// Divides a partition into two, and says which. Requests that meet it meanwhile are run once more.
    pub fn split_partition(&self, container: &Arc<Container>, id: &str) -> Result<[u32; 2], EngineError> {
        self.splits.work().splitter().split(container, id)
    }
    /// Why a partition that ought to be split by itself is not.
    pub fn cannot_split(&self, container: &Container, partition: &str) -> Option<CannotSplit> {
        self.splits.work().cannot_split(container, partition.parse().ok()?)
    }
    /// A partition with more bytes of items than this is split by itself; 50 GB unless told.
    pub fn split_partitions_above(&self, bytes: u64) {
        self.splits.work().set_partition_bytes_max(bytes);
    }
    /// Random, made with the store, kept in it: for MACs of resource tokens and continuations.
    pub fn secret(&self) -> [u8; 32] {
        self.shared.secret
    }
    /// False when the storage refuses writes until it is opened again; reads go on.
    pub fn is_writable(&self) -> bool {
        self.shared.storage.is_writable()
    }
    pub fn incarnation(&self) -> u32 {
        self.shared.incarnation
    }

    // ---- databases. `segment` is a path segment: a name, or a rid where no such name exists.
    pub fn create_database(
        &self,
        body: &Value,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Resource>, EngineError> {
        self.catalog.create_database(body, throughput)
    }
    pub fn database(&self, segment: &str) -> Result<Arc<Resource>, EngineError> {
        self.catalog.database(segment)
    }
    pub fn databases(&self) -> Vec<Arc<Resource>> {
        self.catalog.databases()
    }
    pub fn delete_database(&self, segment: &str, precondition: &Precondition) -> Result<(), EngineError> {
        self.catalog.delete_database(segment, precondition)
    }

    // ---- containers
    pub fn create_container(
        &self,
        database: &str,
        body: &Value,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Container>, EngineError> {
        let container = self.catalog.create_container(database, body, throughput)?;
        if container.definition.view.is_some() {
            self.views.notice();
        }
        Ok(container)
    }
    pub fn container(&self, database: &str, container: &str) -> Result<Arc<Container>, EngineError> {
        self.catalog.container(database, container)
    }
    pub fn containers(&self, database: &str) -> Result<Vec<Arc<Container>>, EngineError> {
        self.catalog.containers(database)
    }
    pub fn replace_container(
        &self,
        database: &str,
        container: &str,
        body: &Value,
        precondition: &Precondition,
    ) -> Result<Arc<Container>, EngineError> {
        self.catalog.replace_container(database, container, body, precondition)
    }
    pub fn delete_container(
        &self,
        database: &str,
        container: &str,
        precondition: &Precondition,
    ) -> Result<(), EngineError> {
        self.catalog.delete_container(database, container, precondition)
    }

    // ---- models
    /// Before any was put, the empty one.
    pub fn model(&self, database: &str) -> Result<ModelResource, EngineError> {
        self.catalog.model(database)
    }
    /// Every write that is answered after this has returned is made under the new model.
    pub fn put_model(
        &self,
        database: &str,
        body: &Value,
        condition: &ModelCondition,
    ) -> Result<ModelWritten, EngineError> {
        self.catalog.put_model(database, body, condition)
    }
    pub fn delete_model(&self, database: &str, condition: &ModelCondition) -> Result<(), EngineError> {
        self.catalog.delete_model(database, condition)
    }

    // ---- jobs
    /// The newest first: all that are not finished, and the last 1,000 others.
    pub fn jobs(&self) -> Result<Vec<JobStatus>, EngineError> {
        self.shared.jobs.list()
    }
    pub fn job(&self, id: &str) -> Result<JobStatus, EngineError> {
        let found = id.parse().ok().map(|id| self.shared.jobs.status(id)).transpose()?.flatten();
        found.ok_or_else(|| jobs::not_found(id))
    }
    /// Ready when the job is neither waiting nor running.
    pub fn watch_job(&self, id: &str) -> Result<JobWatch, EngineError> {
        let id = id.parse().map_err(|_| jobs::not_found(id))?;
        Ok(JobWatch::new(Arc::clone(&self.shared.jobs), id))
    }
    /// Pauses, resumes, cancels or undoes a job; the one to look at then.
    pub fn control_job(&self, id: &str, control: JobControl) -> Result<JobStatus, EngineError> {
        let job = id.parse().map_err(|_| jobs::not_found(id))?;
        let next = self.shared.jobs.control(job, control)?;
        self.job(&next.to_string())
    }

    // ---- views
    /// Where a view stands; `None` for a container that is no view.
    pub fn view_status(&self, container: &Container) -> Option<ViewStatus> {
        self.views.status(container)
    }
    /// Whether there are any views.
    pub fn has_views(&self) -> bool {
        !self.shared.followed.is_empty()
    }
    /// Empties a view and fills it again, in the background.
    pub fn rebuild_view(&self, container: &Container) -> Result<(), EngineError> {
        self.views.rebuild(container)
    }
    /// Containers that are maintained from this one.
    pub fn views_of(&self, container: &Container) -> Vec<Arc<Container>> {
        views_of(&self.catalog.state(), container).into_iter().cloned().collect()
    }
    /// A view that is more writes than this behind its source is filled again; 5 million unless told.
    pub fn rebuild_views_behind(&self, writes: u64) {
        self.views.set_lag_max(writes);
    }
    /// Whether views are left as they are for now.
    pub fn pause_views(&self, paused: bool) {
        self.views.pause(paused);
    }

    // ---- scripts: stored procedures, triggers, user-defined functions
    pub fn create_script(
        &self,
        database: &str,
        container: &str,
        kind: ScriptKind,
        body: &Value,
    ) -> Result<Arc<Resource>, EngineError> {
        self.catalog.create_script(database, container, kind, body)
    }
    /// Creates or replaces; true if it was created.
    pub fn upsert_script(
        &self,
        database: &str,
        container: &str,
        kind: ScriptKind,
        body: &Value,
        precondition: &Precondition,
    ) -> Result<(Arc<Resource>, bool), EngineError> {
        self.catalog.upsert_script(database, container, kind, body, precondition)
    }
    pub fn script(
        &self,
        database: &str,
        container: &str,
        kind: ScriptKind,
        script: &str,
    ) -> Result<Arc<Resource>, EngineError> {
        self.catalog.script(database, container, kind, script)
    }
    pub fn scripts(
        &self,
        database: &str,
        container: &str,
        kind: ScriptKind,
    ) -> Result<Vec<Arc<Resource>>, EngineError> {
        self.catalog.scripts(database, container, kind)
    }
    pub fn replace_script(
        &self,
        database: &str,
        container: &str,
        kind: ScriptKind,
        script: &str,
        body: &Value,
        precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        self.catalog.replace_script(database, container, kind, script, body, precondition)
    }
    pub fn delete_script(
        &self,
        database: &str,
        container: &str,
        kind: ScriptKind,
        script: &str,
        precondition: &Precondition,
    ) -> Result<(), EngineError> {
        self.catalog.delete_script(database, container, kind, script, precondition)
    }

    // ---- users, permissions, client encryption keys: `upsert` answers whether it created
    pub fn create_user(
        &self,
        database: &str,
        body: &Value,
        upsert: bool,
    ) -> Result<(Arc<Resource>, bool), EngineError> {
        self.catalog.create_user(database, body, upsert)
    }
    pub fn user(&self, database: &str, user: &str) -> Result<Arc<Resource>, EngineError> {
        self.catalog.user(database, user)
    }
    pub fn users(&self, database: &str) -> Result<Vec<Arc<Resource>>, EngineError> {
        self.catalog.users(database)
    }
    pub fn replace_user(
        &self,
        database: &str,
        user: &str,
        body: &Value,
        precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        self.catalog.replace_user(database, user, body, precondition)
    }
    pub fn delete_user(
        &self,
        database: &str,
        user: &str,
        precondition: &Precondition,
    ) -> Result<(), EngineError> {
        self.catalog.delete_user(database, user, precondition)
    }
    pub fn create_permission(
        &self,
        database: &str,
        user: &str,
        body: &Value,
        upsert: bool,
    ) -> Result<(Arc<Resource>, bool), EngineError> {
        self.catalog.create_permission(database, user, body, upsert)
    }
    pub fn permission(
        &self,
        database: &str,
        user: &str,
        permission: &str,
    ) -> Result<Arc<Resource>, EngineError> {
        self.catalog.permission(database, user, permission)
    }
    pub fn permissions(&self, database: &str, user: &str) -> Result<Vec<Arc<Resource>>, EngineError> {
        self.catalog.permissions(database, user)
    }
    pub fn replace_permission(
        &self,
        database: &str,
        user: &str,
        permission: &str,
        body: &Value,
        precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        self.catalog.replace_permission(database, user, permission, body, precondition)
    }
    pub fn delete_permission(
        &self,
        database: &str,
        user: &str,
        permission: &str,
        precondition: &Precondition,
    ) -> Result<(), EngineError> {
        self.catalog.delete_permission(database, user, permission, precondition)
    }
    /// For resource tokens: the permission as it is now, by rid.
    pub fn permission_by_rid(&self, rid: &ResourceId) -> Option<Arc<Resource>> {
        self.catalog.permission_by_rid(rid)
    }
    pub fn create_client_encryption_key(
        &self,
        database: &str,
        body: &Value,
    ) -> Result<Arc<Resource>, EngineError> {
        self.catalog.create_client_encryption_key(database, body)
    }
    pub fn client_encryption_key(&self, database: &str, key: &str) -> Result<Arc<Resource>, EngineError> {
        self.catalog.client_encryption_key(database, key)
    }
    pub fn client_encryption_keys(&self, database: &str) -> Result<Vec<Arc<Resource>>, EngineError> {
        self.catalog.client_encryption_keys(database)
    }
    pub fn replace_client_encryption_key(
        &self,
        database: &str,
        key: &str,
        body: &Value,
        precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        self.catalog.replace_client_encryption_key(database, key, body, precondition)
    }

    // ---- offers, by their rid text
    pub fn offer(&self, rid: &str) -> Result<Arc<Resource>, EngineError> {
        self.catalog.offer(rid)
    }
    pub fn offers(&self) -> Vec<Arc<Resource>> {
        self.catalog.offers()
    }
    pub fn replace_offer(
        &self,
        rid: &str,
        body: &Value,
        migrate: Option<Migrate>,
        precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        self.catalog.replace_offer(rid, body, migrate, precondition)
    }
    /// The throughput that a container draws on: its offer, its most request units per second, and whether it is the
    /// database's.
    pub fn throughput_of(&self, container: &Container) -> Option<(String, u32, bool)> {
        self.catalog.throughput_of(container)
    }
    /// `x-ms-cosmos-min-throughput`
    pub fn minimum_throughput(&self, offer: &Resource) -> u32 {
        self.catalog.minimum_throughput(offer)
    }

    /// Figures for `/_quire/metrics`, by name: group commit, storage, compaction, cache, reclaim backlog.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let mut figures = self.shared.statistics();
        figures.extend(self.reclaim.work().statistics());
        figures.extend(self.index_builds.work().statistics());
        figures.extend(self.vector_indexes.work().statistics());
        figures.extend(self.sweep.work().statistics());
        figures.push(("sweep_rounds", self.sweep.rounds()));
        figures.extend(self.views.statistics());
        figures.extend(self.splits.work().statistics());
        figures.push(("split_rounds", self.splits.rounds()));
        figures.extend(self.catalog.statistics());
        figures.extend(self.shared.storage.statistics());
        figures
    }
}

/// An engine that is dropped without [`Engine::close`] still ends its thread; the storage is left to its owner.
impl Drop for Engine {
    fn drop(&mut self) {
        self.stop_workers();
    }
}
