//! Creates jobs for the marks of the catalog.
//!
//! A drop, a change of policy and a delete of a partition key are durable with their own commits, as marks in rows that are
//! theirs. Here every mark that has no job gets one, soon after its commit or after a restart, so the marks decide what there is to
//! do and jobs say how far it is. Also settles a commit of the catalog whose outcome was not known, and records paths that
//! queries ask to have rows for missing values, so that no query waits for the catalog.

use std::sync::Arc;

use super::{Drops, IndexBuilds, Interrupted, KeyDeletes, NextRound, Worker, WorkerRound, WorkerTask};
use crate::api::EngineError;
use crate::catalog::{Catalog, Container};
use crate::jobs::{Jobs, NewJob};
use crate::runtime::signals::Signal;

/// The part of a round that belongs to no container.
const CATALOG_PART: u64 = 1 << 32;

/// Work for which rows have marks.
pub(crate) trait MarkedWork: Send + Sync {
    const KIND: &'static str;

    /// A job for every mark. No two marks have the same payload.
    fn marked(&self) -> Vec<NewJob>;
}

pub(crate) struct CatalogWork {
    pub catalog: Arc<Catalog>,
    pub jobs: Arc<Jobs>,
    pub drops: Arc<Drops>,
    pub index_builds: Arc<IndexBuilds>,
    pub key_deletes: Arc<KeyDeletes>,
}

impl CatalogWork {
    pub fn start(self, signal: Arc<Signal>) -> Result<Worker<CatalogWork>, EngineError> {
        Worker::start(self, signal)
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let (drops, key_deletes) = (self.drops.statistics(), self.key_deletes.statistics());
        drops.into_iter().chain(self.index_builds.statistics()).chain(key_deletes).collect()
    }

    /// Adds the paths that queries requested to the container's row.
    fn store_requested_paths(&self, container: &Container) -> Result<(), EngineError> {
        let wanted = container.partitions.requested_missing();
        if wanted.is_empty() {
            return Ok(());
        }
        match self.catalog.index_missing_values(container, &wanted) {
            Ok(()) => container.partitions.remove_requested(&wanted),
            // Deleted or split in the meantime.
            Err(EngineError::ResourceNotFound { .. } | EngineError::PartitionMoved) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads the jobs first: a job that ends meanwhile removes its mark before.
    fn make_jobs<M: MarkedWork>(&self, marked: &M) -> Result<(), EngineError> {
        self.jobs.refresh()?;
        let known = self.jobs.unfinished(M::KIND);
        for new in marked.marked().into_iter().filter(|new| !known.contains(&new.payload)) {
            self.jobs.create(new)?;
        }
        Ok(())
    }
}

impl WorkerTask for CatalogWork {
    const NAME: &'static str = "catalog";
    type Memory = ();

    fn round(&self, round: &WorkerRound<'_>, (): &mut ()) -> Result<NextRound, Interrupted> {
        round.part(CATALOG_PART, || Ok(self.catalog.settle_unresolved()?))?;
        let state = self.catalog.state();
        round.retain_parts(|part| {
            part == CATALOG_PART || state.containers().any(|other| u64::from(other.number) == part)
        });
        for container in state.containers().filter(|container| container.partitions.has_requested_rows()) {
            round.part(u64::from(container.number), || Ok(self.store_requested_paths(container)?))?;
        }
        // The catalog state has containers that may be dropped by now, and there may be many jobs to create.
        drop(state);
        self.make_jobs(&*self.drops)?;
        self.make_jobs(&*self.index_builds)?;
        self.make_jobs(&*self.key_deletes)?;
        Ok(NextRound::Woken)
    }
}
