//! Removes the rows of deleted containers, databases, users and declarations.
//!
//! A delete leaves a mark in its own commit. The rows that are left are found by prefix, so a restart goes on where it stopped,
//! and the mark goes last. Numbers are never reused, so a row that waits here can never be found by anyone. Nothing else
//! waits for these jobs. The rows of a container are removed by range, in steps of the storage's own; what is in the
//! catalog by commits.
//!
//! A backup reads containers one after the other, each in snapshots of its own: rows that are deleted meanwhile are
//! removed after the backup.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quire_resource::ResourceId;
use quire_storage::{KeyRange, Op, Position, Removal, Scan, Space};
use quire_value::{Object, Value};
use tracing::debug;

use super::catalog_work::MarkedWork;
use crate::api::{EngineError, corrupt};
use crate::catalog::Catalog;
use crate::catalog::keys::{self as catalog_keys, RowId};
use crate::catalog::state::DropJob;
use crate::indexes::IndexId;
use crate::jobs::{JobClaim, JobKind, JobStep, NewJob};
use crate::runtime::Shared;
use crate::store::keys::{self, CATALOG};
use crate::store::watched::WatchedStorage;
use crate::store::{CommitOutcome, for_each_row, guarded_commit, scan, send};

const KIND: &str = "drop";
const UNIT: &str = "ranges";
/// Rows removed by one commit: small enough that writers of other containers hardly wait behind it.
const CHUNK_ROWS: usize = 1000;
/// The longest pause after a step. A shorter step is followed by a pause of its own length.
const REST_MAX: Duration = Duration::from_millis(100);
/// Between two checks whether a backup has ended.
const BACKUP_WAIT: Duration = Duration::from_millis(500);

pub(crate) struct Drops {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    watched: Arc<WatchedStorage>,
    /// The ranges that are being removed.
    plans: Mutex<HashMap<DropJob, DropPlan>>,
    reclaimed_containers: AtomicU64,
}

/// The ranges to remove, in this order.
#[derive(Clone)]
struct DropPlan {
    ranges: Arc<[DroppedRange]>,
    /// Those before it are empty.
    next: usize,
    containers: u64,
}

#[derive(Clone, Debug)]
enum DroppedRange {
    /// Of items, indexes or feeds.
    Rows { space: Space, prefix: Vec<u8> },
    /// What the catalog has of a container, which are few rows.
    OfContainer { container: u32, prefix: Vec<u8> },
    /// Rows of the catalog itself.
    Catalog { prefix: Vec<u8> },
}

impl Drops {
    pub fn new(shared: Arc<Shared>, catalog: Arc<Catalog>, watched: Arc<WatchedStorage>) -> Drops {
        let (plans, reclaimed_containers) = Default::default();
        Drops { shared, catalog, watched, plans, reclaimed_containers }
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("reclaim_jobs_waiting", self.catalog.state().jobs.len() as u64),
            ("reclaimed_containers", self.reclaimed_containers.load(Ordering::Relaxed)),
        ]
    }

    /// No new rows appear in these ranges.
    fn plan(&self, job: DropJob) -> Result<DropPlan, EngineError> {
        if let Some(plan) = self.plans.lock().get(&job) {
            return Ok(plan.clone());
        }
        let (mut ranges, mut containers) = (Vec::new(), 0);
        match job {
            DropJob::Container { container } => {
                self.add_container(container, &mut ranges)?;
                containers = 1;
            }
            DropJob::Database { database } => {
                for container in self.containers_of(database)? {
                    self.add_container(container, &mut ranges)?;
                    containers += 1;
                }
                self.wait_for_observers()?;
                let prefixes = catalog_keys::DATABASE_CHILDREN.into_iter();
                let prefixes = prefixes.map(|kind| catalog_keys::children_prefix(kind, database));
                ranges.extend(prefixes.map(|prefix| DroppedRange::Catalog { prefix }));
                let observed = [keys::advice_prefix, keys::workload_prefix, keys::refactorings_prefix];
                let observed = observed.map(|prefix| prefix(database));
                ranges.extend(observed.map(|prefix| DroppedRange::Catalog { prefix }));
            }
            DropJob::User { database, user } => {
                let prefix = catalog_keys::permissions_prefix(database, user);
                ranges.push(DroppedRange::Catalog { prefix });
            }
            DropJob::Declaration { container, declaration } => {
                self.add_declaration(container, declaration, &mut ranges)?;
            }
        }
        let plan = DropPlan { ranges: ranges.into(), next: 0, containers };
        self.plans.lock().insert(job, plan.clone());
        Ok(plan)
    }

    /// Returns when nothing about advice, refactorings or recorded requests is stored any more of a database that is gone.
    fn wait_for_observers(&self) -> Result<(), EngineError> {
        self.catalog.wait_for_publication();
        let storage = &*self.shared.storage;
        self.shared.advice.settle(storage)?;
        self.shared.recorder.settle(storage)
    }

    fn containers_of(&self, database: u32) -> Result<Vec<u32>, EngineError> {
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
        Ok(containers)
    }

    fn add_container(&self, container: u32, ranges: &mut Vec<DroppedRange>) -> Result<(), EngineError> {
        self.fence(container)?;
        ranges.extend(keys::container_ranges(container).into_iter().map(|(space, prefix)| match space {
            CATALOG => DroppedRange::OfContainer { container, prefix },
            space => DroppedRange::Rows { space, prefix },
        }));
        Ok(())
    }

    fn add_declaration(
        &self,
        container: u32,
        declaration: u32,
        ranges: &mut Vec<DroppedRange>,
    ) -> Result<(), EngineError> {
        self.wait_for_older_writes(container)?;
        let rows = keys::DeclarationKeys { container, declaration };
        let found = rows.ranges(IndexId::of_link(declaration).0);
        ranges.extend(found.into_iter().map(|(space, prefix)| DroppedRange::Rows { space, prefix }));
        Ok(())
    }

    /// Returns when no write under the older model is under way any more, nor in doubt. A write in any container of the database
    /// may have rows in this one: totals and mirrors are with the target, but ride in the commit of the referrer.
    fn wait_for_older_writes(&self, container: u32) -> Result<(), EngineError> {
        self.catalog.wait_for_publication();
        let state = self.catalog.state();
        let Some(database) =
            state.container(container).and_then(|own| state.databases.get(&own.database.rid))
        else {
            return Ok(());
        };
        database.containers.iter().try_for_each(|own| own.partitions.wait_for_barrier())
    }

    /// A write with an unknown outcome must not become visible after the job.
    fn fence(&self, container: u32) -> Result<(), EngineError> {
        let storage = &*self.shared.storage;
        let mut partitions = Vec::new();
        for_each_row(&*storage.snapshot()?, CATALOG, &keys::counts_prefix(container), |key, _| {
            partitions.extend(keys::partition_of_counts_key(key));
            Ok(())
        })?;
        let partitions = partitions.into_iter().map(|partition| keys::partition_id(container, partition));
        let others =
            [keys::vector_sequence, keys::rid_sequence, keys::profile_sequence, keys::journal_sequence];
        let others = others.map(|sequence| sequence(container));
        for sequence in partitions.chain(others) {
            let epoch = storage.position(sequence)?.map_or(0, |position| position.epoch);
            storage.fence(sequence, epoch + 1)?;
        }
        Ok(())
    }

    /// Removes some rows of a range; whether it is empty.
    fn remove_some(&self, range: &DroppedRange) -> Result<bool, EngineError> {
        match range {
            DroppedRange::Rows { space, prefix } => {
                let removed = self.shared.storage.remove_range(*space, &KeyRange::prefix(prefix))?;
                Ok(removed == Removal::Done)
            }
            DroppedRange::OfContainer { container, prefix } => {
                self.remove_chunk(prefix, |rows| self.remove_of_container(*container, rows))
            }
            DroppedRange::Catalog { prefix } => {
                self.remove_chunk(prefix, |rows| self.catalog.remove_rows(rows))
            }
        }
    }

    fn remove_chunk(
        &self,
        prefix: &[u8],
        remove: impl FnOnce(Vec<Vec<u8>>) -> Result<(), EngineError>,
    ) -> Result<bool, EngineError> {
        let range = KeyRange::prefix(prefix);
        let scan = Scan { rows_max: CHUNK_ROWS, keys_only: true, ..scan(CATALOG, range) };
        let page = self.shared.storage.snapshot()?.scan(&scan)?;
        if page.rows.is_empty() {
            return Ok(true);
        }
        remove(page.rows.into_iter().map(|(key, _)| key).collect())?;
        Ok(!page.more)
    }

    /// In the container's own sequence for this, so that neither the catalog nor other containers wait.
    fn remove_of_container(&self, container: u32, rows: Vec<Vec<u8>>) -> Result<(), EngineError> {
        let storage = &*self.shared.storage;
        let sequence = keys::reclaim_sequence(container);
        let position = storage.position(sequence)?.unwrap_or(Position { epoch: 0, lsn: 0 });
        let ops = rows.into_iter().map(|key| Op::Delete { space: CATALOG, key }).collect();
        let commit = guarded_commit(sequence, position, position.lsn + 1, ops)?;
        match send(storage, &commit) {
            CommitOutcome::Done => Ok(()),
            CommitOutcome::Failed(error) => Err(error),
            // Done or not, the next step removes what is there.
            CommitOutcome::Unknown => Err(EngineError::Unresolved),
        }
    }

    /// Some work of a step: `None` when everything is removed.
    fn remove_next(&self, job: DropJob, plan: &mut DropPlan) -> Result<Option<Duration>, EngineError> {
        while let Some(range) = plan.ranges.get(plan.next) {
            let started = Instant::now();
            if !self.remove_some(range)? {
                return Ok(Some(started.elapsed().min(REST_MAX)));
            }
            plan.next += 1;
            self.plans.lock().insert(job, plan.clone());
        }
        Ok(None)
    }
}

impl JobKind for Drops {
    fn name(&self) -> &'static str {
        KIND
    }

    /// A delete cannot be cancelled.
    fn can_cancel(&self) -> bool {
        false
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let job = catalog_keys::parse_job_key(&claim.body.payload).ok_or_else(|| corrupt("a drop"))?;
        if !self.catalog.state().jobs.contains(&job) {
            return Ok(JobStep::Done(Value::Null));
        }
        // A backup that begins now does not read what is dropped now.
        if self.watched.is_backup_running() {
            return Ok(JobStep::Rest(BACKUP_WAIT));
        }
        let mut plan = self.plan(job)?;
        let total = plan.ranges.len() as u64;
        if let Some(rest) = self.remove_next(job, &mut plan)? {
            let done = plan.next as u64;
            if done > claim.done() {
                claim.commit(claim.advance(Vec::new(), done, Some(total)), Vec::new())?;
            }
            return Ok(JobStep::Rest(rest));
        }
        self.catalog.finish_job(job)?;
        self.plans.lock().remove(&job);
        self.reclaimed_containers.fetch_add(plan.containers, Ordering::Relaxed);
        debug!(?job, "reclaimed");
        claim.complete(total);
        Ok(JobStep::Done(Value::Null))
    }
}

impl MarkedWork for Drops {
    const KIND: &'static str = KIND;

    fn marked(&self) -> Vec<NewJob> {
        let job = |job: &DropJob| {
            let [database, container] = self.catalog.dropped_owners(*job);
            let what = match job {
                DropJob::Container { .. } => "container",
                DropJob::Database { .. } => "database",
                DropJob::User { .. } => "user",
                DropJob::Declaration { .. } => "declaration",
            };
            let about = Object::from_iter([("dropped", what)]);
            NewJob {
                kind: KIND,
                unit: UNIT,
                database,
                container,
                about,
                payload: catalog_keys::job_key(*job),
            }
        };
        self.catalog.state().jobs.iter().map(job).collect()
    }
}
