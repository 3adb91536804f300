//! Background work: emptying what was deleted, building indexes.
//!
//! A delete leaves a job row in its own commit; one thread takes jobs in order and removes the rows in bounded,
//! guarded commits. A job keeps no progress: its rows are found by prefix, so a restart goes on where it stopped, and
//! the job row goes last. Numbers are never reused, so a row that waits here can never be found by anyone.
//! Indexes are built when nothing waits to be emptied: a container's own row says that it has some to build.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use quire_resource::ResourceId;
use quire_storage::{KeyRange, Op, Position, Scan, Space, StorageError};
use tracing::{info, warn};

use crate::EngineError;
use crate::catalog::keys::{self as catalog_keys, RowId};
use crate::catalog::state::Job;
use crate::catalog::{Catalog, Sent, for_each_row, guarded_commit, scan, send};
use crate::container::Container;
use crate::indexes::build::{Build, Step};
use crate::keys::{self, CATALOG};
use crate::shared::Shared;

/// Rows removed by one commit: small enough that writers of other containers hardly wait behind it.
const CHUNK_ROWS: usize = 1000;
/// Wait after a failure before the job is tried again.
const RETRY_WAIT: Duration = Duration::from_secs(1);
/// Wait when a container is just being deleted or changed once more.
const VOID_WAIT: Duration = Duration::from_millis(20);

pub(crate) struct Jobs {
    runner: Arc<Runner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Runner {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    bell: Arc<Bell>,
    reclaimed_rows: AtomicU64,
    visited_chunks: AtomicU64,
}

/// How the thread learns that there is something to do, or that it is time to stop.
#[derive(Default)]
pub(crate) struct Bell {
    signal: Mutex<Signal>,
    rung: Condvar,
}

#[derive(Clone, Copy, Default)]
struct Signal {
    work: bool,
    stopping: bool,
}

/// Why a job did not finish now.
enum Pause {
    Stopping,
    Failed(EngineError),
}

impl<E: Into<EngineError>> From<E> for Pause {
    fn from(error: E) -> Pause {
        Pause::Failed(error.into())
    }
}

impl Bell {
    /// There is something to do.
    pub fn ring(&self) {
        self.signal.lock().work = true;
        self.rung.notify_all();
    }

    fn stop(&self) {
        self.signal.lock().stopping = true;
        self.rung.notify_all();
    }

    /// Waits for work; false when it is time to stop.
    fn wait_for_work(&self) -> bool {
        let mut signal = self.signal.lock();
        while !signal.work && !signal.stopping {
            self.rung.wait(&mut signal);
        }
        signal.work = false;
        !signal.stopping
    }

    /// Waits, but not when it is time to stop.
    fn pause(&self, time: Duration) {
        let mut signal = self.signal.lock();
        if !signal.stopping {
            self.rung.wait_for(&mut signal, time);
        }
    }

    fn is_stopping(&self) -> bool {
        self.signal.lock().stopping
    }
}

impl Jobs {
    /// Goes on with what an earlier run left.
    pub fn start(shared: Arc<Shared>, catalog: Arc<Catalog>, bell: Arc<Bell>) -> Result<Jobs, EngineError> {
        bell.ring();
        let (reclaimed_rows, visited_chunks) = Default::default();
        let runner = Arc::new(Runner { shared, catalog, bell, reclaimed_rows, visited_chunks });
        let run = Arc::clone(&runner);
        let thread = thread::Builder::new().name("quire-jobs".to_owned()).spawn(move || run.run());
        let thread =
            thread.map_err(|source| EngineError::Io { doing: "starting a thread".to_owned(), source })?;
        Ok(Jobs { runner, thread: Mutex::new(Some(thread)) })
    }

    /// Returns when no job runs any more.
    pub fn stop(&self) {
        self.runner.bell.stop();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            warn!("the job thread panicked");
        }
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("reclaim_jobs_waiting", self.runner.catalog.state().jobs.len() as u64),
            ("reclaimed_rows", self.runner.reclaimed_rows.load(Ordering::Relaxed)),
            ("index_builds_waiting", self.runner.builds_waiting()),
            ("index_build_chunks", self.runner.visited_chunks.load(Ordering::Relaxed)),
        ]
    }
}

impl Runner {
    fn run(&self) {
        while self.bell.wait_for_work() {
            let mut outcome = self.work();
            while let Err(Pause::Failed(error)) = outcome {
                if matches!(error, EngineError::Storage(StorageError::Closed | StorageError::Poisoned { .. }))
                {
                    return;
                }
                warn!(%error, "a background job failed and is tried again");
                self.bell.pause(RETRY_WAIT);
                outcome = self.work();
            }
        }
    }

    fn check_stopping(&self) -> Result<(), Pause> {
        if self.bell.is_stopping() { Err(Pause::Stopping) } else { Ok(()) }
    }

    /// Everything there is to do.
    fn work(&self) -> Result<(), Pause> {
        self.check_stopping()?;
        self.catalog.settle_unresolved()?;
        self.reclaim()?;
        while let Some(container) = self.next_build() {
            self.check_stopping()?;
            self.build(&container)?;
            self.reclaim()?;
        }
        Ok(())
    }

    fn reclaim(&self) -> Result<(), Pause> {
        while let Some(job) = self.catalog.state().jobs.first().copied() {
            self.run_job(job)?;
            self.catalog.finish_job(job)?;
            info!(?job, "reclaimed");
        }
        Ok(())
    }

    fn builds_waiting(&self) -> u64 {
        let state = self.catalog.state();
        state.containers().filter(|container| container.partitions.indexes().is_building()).count() as u64
    }

    fn next_build(&self) -> Option<Arc<Container>> {
        let state = self.catalog.state();
        state.containers().find(|container| container.partitions.indexes().is_building()).cloned()
    }

    /// Until it is complete, or something else has to be done first.
    fn build(&self, container: &Container) -> Result<(), Pause> {
        let Some(mut build) = Build::start(&self.shared, container)? else {
            self.bell.pause(VOID_WAIT);
            return Ok(());
        };
        while self.catalog.state().jobs.is_empty() {
            self.check_stopping()?;
            match build.step()? {
                Step::More => self.visited_chunks.fetch_add(1, Ordering::Relaxed),
                Step::Void => return Ok(()),
                Step::Done => {
                    if self.catalog.finish_indexes(container, build.epoch())? {
                        info!(container = container.number, "indexes built");
                    }
                    return Ok(());
                }
            };
        }
        Ok(())
    }

    fn run_job(&self, job: Job) -> Result<(), Pause> {
        match job {
            Job::Container { container } => self.empty_container(container),
            Job::Database { database } => self.empty_database(database),
            Job::User { database, user } => {
                self.empty_catalog(&catalog_keys::permissions_prefix(database, user))
            }
        }
    }

    fn empty_database(&self, database: u32) -> Result<(), Pause> {
        let mut containers = Vec::new();
        let snapshot = self.shared.storage.snapshot()?;
        crate::catalog::for_each_row(
            &*snapshot,
            CATALOG,
            &catalog_keys::containers_prefix(database),
            |key, _| {
                if let Some(RowId::Resource(ResourceId::Container { container, .. })) =
                    catalog_keys::parse_row_key(key)
                {
                    containers.push(container);
                }
                Ok(())
            },
        )?;
        drop(snapshot);
        for container in containers {
            self.empty_container(container)?;
        }
        for kind in catalog_keys::DATABASE_CHILDREN {
            self.empty_catalog(&catalog_keys::children_prefix(kind, database))?;
        }
        Ok(())
    }

    fn empty_container(&self, container: u32) -> Result<(), Pause> {
        self.fence(container)?;
        for (space, prefix) in keys::container_ranges(container) {
            let emptied = self.empty(container, space, &prefix)?;
            if emptied && space != CATALOG {
                self.shared.storage.compact(space, KeyRange::prefix(&prefix));
            }
        }
        Ok(())
    }

    /// A write whose outcome nobody learnt must not come to life behind the job.
    fn fence(&self, container: u32) -> Result<(), Pause> {
        let storage = &*self.shared.storage;
        let mut partitions = Vec::new();
        for_each_row(&*storage.snapshot()?, CATALOG, &keys::counts_prefix(container), |key, _| {
            partitions.extend(keys::partition_of_counts_key(key));
            Ok(())
        })?;
        for partition in partitions {
            let sequence = keys::partition_id(container, partition);
            let epoch = storage.position(sequence)?.map_or(0, |position| position.epoch);
            storage.fence(sequence, epoch + 1)?;
        }
        Ok(())
    }

    /// Removes every row under the prefix; whether there was any.
    fn empty(&self, container: u32, space: Space, prefix: &[u8]) -> Result<bool, Pause> {
        let mut range = KeyRange::prefix(prefix);
        let mut found = false;
        loop {
            let rows = self.chunk(space, range.clone())?;
            let Some(last) = rows.last().cloned() else { return Ok(found) };
            found = true;
            self.remove(container, space, rows)?;
            range.start = Bound::Excluded(last);
        }
    }

    /// The next keys to remove, as a snapshot of their own sees them.
    fn chunk(&self, space: Space, range: KeyRange) -> Result<Vec<Vec<u8>>, Pause> {
        self.check_stopping()?;
        let scan = Scan { rows_max: CHUNK_ROWS, keys_only: true, ..scan(space, range) };
        let page = self.shared.storage.snapshot()?.scan(&scan)?;
        Ok(page.rows.into_iter().map(|(key, _)| key).collect())
    }

    /// In the container's own sequence for this, so that neither the catalog nor other containers wait.
    fn remove(&self, container: u32, space: Space, rows: Vec<Vec<u8>>) -> Result<(), Pause> {
        let storage = &*self.shared.storage;
        let sequence = keys::reclaim_sequence(container);
        let position = storage.position(sequence)?.unwrap_or(Position { epoch: 0, lsn: 0 });
        let count = rows.len() as u64;
        let ops = rows.into_iter().map(|key| Op::Delete { space, key }).collect();
        let commit = guarded_commit(sequence, position, position.lsn + 1, ops)?;
        match send(storage, &commit) {
            Sent::Done => {
                self.reclaimed_rows.fetch_add(count, Ordering::Relaxed);
                Ok(())
            }
            Sent::Failed(error) => Err(Pause::Failed(error)),
            // Done or not, the next round removes what is there.
            Sent::Unknown => Err(Pause::Failed(EngineError::Unresolved)),
        }
    }

    fn empty_catalog(&self, prefix: &[u8]) -> Result<(), Pause> {
        let mut range = KeyRange::prefix(prefix);
        loop {
            let rows = self.chunk(CATALOG, range.clone())?;
            let Some(last) = rows.last().cloned() else { return Ok(()) };
            self.catalog.remove_rows(rows)?;
            range.start = Bound::Excluded(last);
        }
    }
}
