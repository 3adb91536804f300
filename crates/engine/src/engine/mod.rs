//! An open engine: opening, closing, figures, and one method per request. What the catalog does is reached by
//! [`Engine::catalog`].

pub(crate) mod after_split; // requests that met a split
mod applies; // findings that are applied
mod background; // control of background work
mod feed; // the change feed, waiting for changes
mod items; // single items
mod jobs; // durable work
mod model; // models of databases
mod pages; // lists and queries
mod profiles; // profiles and advice
mod recording; // what is recorded of requests
mod refactorings; // items in another form
mod scripts; // stored procedures
mod transactions; // batches, transactions over items of a database
mod what_if; // changes that are tried on a copy

use std::sync::Arc;

use parking_lot::Mutex;
use quire_storage::Storage;

use crate::api::{EngineError, Options};
use crate::applies::Applies;
use crate::background::applies::ApplyJobs;
use crate::background::demo::DemoJobs;
use crate::background::refactorings::{DryRunJobs, RefactoringFollower, RefactoringJobs};
use crate::background::rekey::Rekeys;
use crate::background::split::{SplitJobs, Splits, Splitter};
use crate::background::views::Views;
use crate::background::{
    Builds, CatalogWork, Checks, Drops, FanOuts, IndexBuilds, JobRunner, KeyDeletes, ProfileJobs, Recording,
    Repairs, Sweep, VectorBuilds, VectorIndexes, WhatIfs, Worker, WorkerStatus,
};
use crate::catalog::row::StoreRow;
use crate::catalog::{self, Catalog};
use crate::jobs::JobKind;
use crate::profiles::Profiles;
use crate::refactorings::Refactorings;
use crate::runtime::Shared;
use crate::runtime::signals::Signal;
use crate::store::watched::WatchedStorage;

pub use applies::ApplyDryRun;
pub use refactorings::RefactoringDryRun;

pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) catalog: Arc<Catalog>,
    catalog_work: Worker<CatalogWork>,
    jobs: Worker<JobRunner>,
    vector_indexes: Worker<VectorIndexes>,
    sweep: Worker<Sweep>,
    views: Views,
    splits: Worker<Splits>,
    recording: Worker<Recording>,
    profiles: Arc<Profiles>,
    refactorings: Arc<Refactorings>,
    /// Jobs know it by a weak reference.
    #[allow(dead_code, reason = "it lives as long as the engine")]
    applies: Arc<Applies>,
    demo: Arc<DemoJobs>,
    following: Worker<RefactoringFollower>,
    rekeys: Arc<Rekeys>,
    /// Held while one is started: there is one at a time for each database.
    starting_what_if: Mutex<()>,
    /// The storage of `shared`, seen as what backups need.
    pub(crate) watched: Arc<WatchedStorage>,
}

impl Engine {
    /// Opens what is in the storage, or makes a new account in an empty one.
    pub fn open(storage: Arc<dyn Storage>, options: Options) -> Result<Engine, EngineError> {
        let StoreRow { incarnation, secret } = catalog::open_store(&*storage)?;
        let watched = Arc::new(WatchedStorage::new(storage));
        let shared = Shared::new(watched.clone(), options, secret, incarnation);
        shared.jobs.load()?;
        shared.latest_time.load(&*shared.storage)?;
        let workers = shared.workers.clone();
        let catalog = Arc::new(Catalog::open(Arc::clone(&shared), workers.clone())?);
        let views = Views::start(Arc::clone(&shared), Arc::clone(&catalog))?;
        let refactorings = Arc::new(Refactorings::new(Arc::clone(&shared), Arc::clone(&catalog)));
        let rekeys = Arc::new(Rekeys::start(&shared, &catalog, &refactorings)?);
        let drops = Drops::new(Arc::clone(&shared), Arc::clone(&catalog), Arc::clone(&watched));
        let (drops, index_builds) =
            (Arc::new(drops), Arc::new(IndexBuilds::new(Arc::clone(&shared), Arc::clone(&catalog))));
        let vector_indexes =
            VectorIndexes::start(Arc::clone(&shared), Arc::clone(&catalog), workers.vector_indexes)?;
        let signal = Arc::<Signal>::default();
        let sweep = Sweep::start(Arc::clone(&shared), Arc::clone(&catalog), Arc::clone(&signal))?;
        let key_deletes = Arc::new(KeyDeletes::new(Arc::clone(&shared), Arc::clone(&catalog), signal));
        let splitter = Splitter {
            shared: Arc::clone(&shared),
            catalog: Arc::clone(&catalog),
            watched: Arc::clone(&watched),
        };
        let splits = Splits::start(splitter)?;
        let recording = Recording::start(&shared, &catalog)?;
        let profiles = Arc::new(Profiles::new(Arc::clone(&shared), Arc::clone(&catalog)));
        let applies = Arc::new(Applies {
            shared: Arc::clone(&shared),
            catalog: Arc::clone(&catalog),
            profiles: Arc::clone(&profiles),
            refactorings: Arc::clone(&refactorings),
            is_view_ready: views.watch(),
        });
        let demo = Arc::new(DemoJobs::new(&catalog));
        let [profile, advice] = ProfileJobs::kinds(&shared, &catalog, &profiles);
        let kinds: Vec<Arc<dyn JobKind>> = vec![
            Arc::<Drops>::clone(&drops),
            Arc::<IndexBuilds>::clone(&index_builds),
            Arc::<KeyDeletes>::clone(&key_deletes),
            Arc::new(SplitJobs::new(splits.shared_work())),
            Arc::new(views.fills()),
            Arc::new(VectorBuilds::new(vector_indexes.shared_work())),
            Arc::new(Builds::new(&shared, &catalog)),
            Arc::new(FanOuts::new(&shared, &catalog)),
            Arc::new(Checks::new(&shared, &catalog)),
            Arc::new(Repairs::new(&shared, &catalog)),
            Arc::new(profile),
            Arc::new(advice),
            Arc::new(RefactoringJobs::new(&refactorings, &rekeys)),
            Arc::new(DryRunJobs::new(&shared, &catalog)),
            Arc::new(ApplyJobs::new(&applies)),
            Arc::<DemoJobs>::clone(&demo),
            Arc::new(WhatIfs::new(&shared, &catalog, &profiles, &refactorings)),
        ];
        let jobs = JobRunner::start(&shared.jobs, kinds)?;
        let following = RefactoringFollower::start(&refactorings, &rekeys, (&shared, &catalog))?;
        let catalog_work = CatalogWork {
            catalog: Arc::clone(&catalog),
            jobs: Arc::clone(&shared.jobs),
            drops,
            index_builds,
            key_deletes,
        };
        let catalog_work = catalog_work.start(workers.catalog)?;
        Ok(Engine {
            shared,
            catalog,
            catalog_work,
            jobs,
            vector_indexes,
            sweep,
            views,
            splits,
            recording,
            profiles,
            refactorings,
            applies,
            demo,
            following,
            rekeys,
            starting_what_if: Mutex::default(),
            watched,
        })
    }
    /// Databases, containers, scripts, users, permissions, client encryption keys, offers, models.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
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
        self.recording.work().store_last();
        Ok(self.shared.storage.close()?)
    }
    fn stop_workers(&self) {
        self.demo.stop();
        self.catalog_work.stop();
        self.jobs.stop();
        self.vector_indexes.stop();
        self.sweep.stop();
        self.views.stop();
        self.splits.stop();
        self.recording.stop();
        self.following.stop();
        self.rekeys.stop();
    }
    /// Whether background work gets on.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        vec![
            self.catalog_work.status(),
            self.jobs.status(),
            self.vector_indexes.status(),
            self.sweep.status(),
            self.views.worker_status(),
            self.splits.status(),
            self.recording.status(),
            self.following.status(),
            self.rekeys.worker_status(),
        ]
    }
    /// Random, made with the store, kept in it: for MACs of resource tokens and continuations.
    pub fn secret(&self) -> [u8; 32] {
        self.shared.secret
    }
    /// The latest time that [`Engine::store_time`] made durable, in milliseconds since the epoch; 0: none.
    pub fn stored_time_ms(&self) -> i64 {
        self.shared.latest_time.stored_ms()
    }
    /// Makes a time durable that has certainly passed, for a start under a clock that was set back.
    pub fn store_time(&self, latest_ms: i64) -> Result<(), EngineError> {
        self.shared.latest_time.store(&*self.shared.storage, latest_ms)
    }
    /// False when the storage refuses writes until it is opened again; reads go on.
    pub fn is_writable(&self) -> bool {
        self.shared.storage.is_writable()
    }
    pub fn incarnation(&self) -> u32 {
        self.shared.incarnation
    }

    /// Figures for `/_quire/metrics`, by name: group commit, storage, compaction, cache, reclaim backlog.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let mut figures = self.shared.statistics();
        figures.extend(self.catalog_work.work().statistics());
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
