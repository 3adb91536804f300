//! Removing the rows of what was deleted.
//!
//! A delete leaves a job row in its own commit. A job keeps no progress: its rows are found by prefix, so a restart goes on
//! where it stopped, and the job row goes last. Numbers are never reused, so a row that waits here can never be found by
//! anyone. Nothing else waits for these jobs. The rows of a container are removed by range, in steps of the storage's
//! own; what is in the catalog by commits.
//!
//! A backup reads containers one after the other, each in snapshots of its own: what is deleted meanwhile stays until it is
//! done.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quire_resource::ResourceId;
use quire_storage::{KeyRange, Op, Position, Removal, Scan, Space};
use tracing::debug;

use super::{Interrupted, Next, Turn, Work, Worker};
use crate::api::EngineError;
use crate::catalog::Catalog;
use crate::catalog::keys::{self as catalog_keys, RowId};
use crate::catalog::state::Job;
use crate::indexes::IndexId;
use crate::runtime::Shared;
use crate::runtime::signals::Signal;
use crate::store::keys::{self, CATALOG};
use crate::store::watched::Watched;
use crate::store::{Sent, for_each_row, guarded_commit, scan, send};

/// Rows removed by one commit: small enough that writers of other containers hardly wait behind it.
const CHUNK_ROWS: usize = 1000;
/// The longest rest after a step: otherwise as long as the step took.
const REST_MAX: Duration = Duration::from_millis(100);
/// Between two looks at whether a backup is done.
const BACKUP_WAIT: Duration = Duration::from_millis(500);

pub(crate) struct Reclaim {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    watched: Arc<Watched>,
    reclaimed_containers: AtomicU64,
}

impl Reclaim {
    /// Goes on with what an earlier run left.
    pub fn start(
        shared: Arc<Shared>,
        catalog: Arc<Catalog>,
        watched: Arc<Watched>,
        signal: Arc<Signal>,
    ) -> Result<Worker<Reclaim>, EngineError> {
        let reclaimed_containers = AtomicU64::new(0);
        Worker::start(Reclaim { shared, catalog, watched, reclaimed_containers }, signal)
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("reclaim_jobs_waiting", self.catalog.state().jobs.len() as u64),
            ("reclaimed_containers", self.reclaimed_containers.load(Ordering::Relaxed)),
        ]
    }

    fn run_job(&self, job: Job, turn: &Turn<'_>) -> Result<(), Interrupted> {
        match job {
            Job::Container { container } => self.empty_container(container, turn)?,
            Job::Database { database } => self.empty_database(database, turn)?,
            Job::User { database, user } => {
                self.empty_catalog(&catalog_keys::permissions_prefix(database, user), turn)?
            }
            Job::Declaration { container, declaration } => {
                self.empty_declaration(container, declaration, turn)?
            }
        }
        self.catalog.finish_job(job)?;
        debug!(?job, "reclaimed");
        Ok(())
    }

    fn empty_database(&self, database: u32, turn: &Turn<'_>) -> Result<(), Interrupted> {
        let mut containers = Vec::new();
        let snapshot = self.shared.storage.snapshot()?;
        for_each_row(&*snapshot, CATALOG, &catalog_keys::containers_prefix(database), |key, _| {
            if let Some(RowId::Resource(ResourceId::Container { container, .. })) =
                catalog_keys::parse_row_key(key)
            {
                containers.push(container);
            }
            Ok(())
        })?;
        drop(snapshot);
        for container in containers {
            self.empty_container(container, turn)?;
        }
        for kind in catalog_keys::DATABASE_CHILDREN {
            self.empty_catalog(&catalog_keys::children_prefix(kind, database), turn)?;
        }
        Ok(())
    }

    fn empty_container(&self, container: u32, turn: &Turn<'_>) -> Result<(), Interrupted> {
        self.fence(container)?;
        for (space, prefix) in keys::container_ranges(container) {
            match space {
                CATALOG => self.empty_by_commits(container, &prefix, turn)?,
                space => self.empty_range(space, &KeyRange::prefix(&prefix), turn)?,
            }
        }
        self.reclaimed_containers.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// No write under the older model is under way any more, nor in doubt.
    fn empty_declaration(
        &self,
        container: u32,
        declaration: u32,
        turn: &Turn<'_>,
    ) -> Result<(), Interrupted> {
        let state = self.catalog.state();
        let found = state.containers().find(|found| found.number == container);
        for partition in found.iter().flat_map(|container| container.partitions.all()) {
            drop(partition.sequencer.hold()?);
        }
        for (space, prefix) in
            keys::declaration_ranges(container, declaration, IndexId::of_link(declaration).0)
        {
            self.empty_range(space, &KeyRange::prefix(&prefix), turn)?;
        }
        Ok(())
    }

    fn empty_range(&self, space: Space, range: &KeyRange, turn: &Turn<'_>) -> Result<(), Interrupted> {
        loop {
            let started = Instant::now();
            if self.shared.storage.remove_range(space, range)? == Removal::Done {
                return Ok(());
            }
            turn.rest(started.elapsed().min(REST_MAX))?;
        }
    }

    /// A write whose outcome nobody learnt must not come to life behind the job.
    fn fence(&self, container: u32) -> Result<(), Interrupted> {
        let storage = &*self.shared.storage;
        let mut partitions = Vec::new();
        for_each_row(&*storage.snapshot()?, CATALOG, &keys::counts_prefix(container), |key, _| {
            partitions.extend(keys::partition_of_counts_key(key));
            Ok(())
        })?;
        let partitions = partitions.into_iter().map(|partition| keys::partition_id(container, partition));
        for sequence in partitions.chain([keys::vector_sequence(container)]) {
            let epoch = storage.position(sequence)?.map_or(0, |position| position.epoch);
            storage.fence(sequence, epoch + 1)?;
        }
        Ok(())
    }

    /// What the catalog has of a container, which are few rows.
    fn empty_by_commits(&self, container: u32, prefix: &[u8], turn: &Turn<'_>) -> Result<(), Interrupted> {
        let mut range = KeyRange::prefix(prefix);
        loop {
            turn.check()?;
            let rows = self.chunk(CATALOG, range.clone())?;
            let Some(last) = rows.last().cloned() else { return Ok(()) };
            self.remove(container, rows)?;
            range.start = Bound::Excluded(last);
        }
    }

    /// The next keys to remove, as a snapshot of their own sees them.
    fn chunk(&self, space: Space, range: KeyRange) -> Result<Vec<Vec<u8>>, Interrupted> {
        let scan = Scan { rows_max: CHUNK_ROWS, keys_only: true, ..scan(space, range) };
        let page = self.shared.storage.snapshot()?.scan(&scan)?;
        Ok(page.rows.into_iter().map(|(key, _)| key).collect())
    }

    /// In the container's own sequence for this, so that neither the catalog nor other containers wait.
    fn remove(&self, container: u32, rows: Vec<Vec<u8>>) -> Result<(), Interrupted> {
        let storage = &*self.shared.storage;
        let sequence = keys::reclaim_sequence(container);
        let position = storage.position(sequence)?.unwrap_or(Position { epoch: 0, lsn: 0 });
        let ops = rows.into_iter().map(|key| Op::Delete { space: CATALOG, key }).collect();
        let commit = guarded_commit(sequence, position, position.lsn + 1, ops)?;
        match send(storage, &commit) {
            Sent::Done => Ok(()),
            Sent::Failed(error) => Err(error.into()),
            // Done or not, the next round removes what is there.
            Sent::Unknown => Err(EngineError::Unresolved.into()),
        }
    }

    fn empty_catalog(&self, prefix: &[u8], turn: &Turn<'_>) -> Result<(), Interrupted> {
        let mut range = KeyRange::prefix(prefix);
        loop {
            turn.check()?;
            let rows = self.chunk(CATALOG, range.clone())?;
            let Some(last) = rows.last().cloned() else { return Ok(()) };
            self.catalog.remove_rows(rows)?;
            range.start = Bound::Excluded(last);
        }
    }
}

impl Work for Reclaim {
    const NAME: &'static str = "reclaim";
    type Memory = ();

    fn round(&self, turn: &Turn<'_>, (): &mut ()) -> Result<Next, Interrupted> {
        self.catalog.settle_unresolved()?;
        let jobs = self.catalog.state().jobs.clone();
        // Jobs that are there now are of containers that a backup which begins now does not see.
        if !jobs.is_empty() && self.watched.is_backup_running() {
            return Ok(Next::After(BACKUP_WAIT));
        }
        turn.retain_parts(|part| jobs.iter().any(|job| part_of(*job) == part));
        for job in jobs {
            turn.part(part_of(job), || self.run_job(job, turn))?;
        }
        Ok(Next::Woken)
    }
}

/// A name for a job; two that share one share their waits after failures.
fn part_of(job: Job) -> u64 {
    let mut hasher = DefaultHasher::new();
    job.hash(&mut hasher);
    hasher.finish()
}
