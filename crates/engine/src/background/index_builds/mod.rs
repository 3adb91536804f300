//! Building indexes: a container's own row says that it has some to build. Paths that queries ask to have rows for missing
//! values are recorded here, too, so that no query waits for the catalog.
//!
//! Containers take turns, a slice of items each, so a small one does not wait for a large one.

pub(crate) mod build; // bringing items up to date after a change of policy
mod missing; // rows for items that lack a path

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tracing::info;

use super::{Interrupted, Next, Turn, Work, Worker};
use crate::api::EngineError;
use crate::background::index_builds::build::{Build, Step};
use crate::catalog::{Catalog, Container};
use crate::runtime::Shared;
use crate::runtime::signals::Signal;
use missing::{MissingBuild, MissingBuilds, MissingStep};

/// Steps of one container before it is another one's turn.
const STEPS_TOGETHER: usize = 16;
/// Wait when containers are just being deleted or changed once more.
const VOID_WAIT: Duration = Duration::from_millis(20);

pub(crate) struct IndexBuilds {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    visited_chunks: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slice {
    More,
    Done,
    /// Something else happens to the container: look again soon.
    Void,
}

impl IndexBuilds {
    /// Goes on with what an earlier run left.
    pub fn start(
        shared: Arc<Shared>,
        catalog: Arc<Catalog>,
        signal: Arc<Signal>,
    ) -> Result<Worker<IndexBuilds>, EngineError> {
        Worker::start(IndexBuilds { shared, catalog, visited_chunks: AtomicU64::new(0) }, signal)
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("index_builds_waiting", self.waiting().len() as u64),
            ("index_build_chunks", self.visited_chunks.load(Ordering::Relaxed)),
        ]
    }

    fn waiting(&self) -> Vec<Arc<Container>> {
        let state = self.catalog.state();
        let waits = |container: &&Arc<Container>| {
            let indexes = container.partitions.indexes();
            indexes.is_building()
                || !indexes.missing_to_build().is_empty()
                || container.partitions.wants_missing()
        };
        state.containers().filter(waits).cloned().collect()
    }

    fn build_some(
        &self,
        container: &Container,
        turn: &Turn<'_>,
        missing: &mut MissingBuilds,
    ) -> Result<Slice, Interrupted> {
        match self.try_build_some(container, turn, missing) {
            Err(Interrupted::Failed(
                EngineError::ResourceNotFound { .. } | EngineError::PartitionMoved | EngineError::Contended,
            )) => Ok(Slice::Void),
            Err(Interrupted::Failed(EngineError::Corrupt { .. })) if container.partitions.is_retired() => {
                Ok(Slice::Void)
            }
            slice => slice,
        }
    }

    fn try_build_some(
        &self,
        container: &Container,
        turn: &Turn<'_>,
        missing: &mut MissingBuilds,
    ) -> Result<Slice, Interrupted> {
        self.record_wanted(container)?;
        let indexes = container.partitions.indexes();
        if !indexes.is_building() {
            return self.build_missing(container, turn, missing);
        }
        let Some(mut build) = Build::start(&self.shared, container)? else { return Ok(Slice::Void) };
        for _ in 0..STEPS_TOGETHER {
            turn.check()?;
            match build.step()? {
                Step::More => self.visited_chunks.fetch_add(1, Ordering::Relaxed),
                Step::Void => return Ok(Slice::Void),
                Step::Done => {
                    if self.catalog.finish_indexes(container, build.epoch())? {
                        info!(container = container.number, "indexes built");
                    }
                    return Ok(Slice::Done);
                }
            };
        }
        Ok(Slice::More)
    }
}

impl IndexBuilds {
    /// Paths that queries asked for become part of the container.
    fn record_wanted(&self, container: &Container) -> Result<(), EngineError> {
        let wanted = container.partitions.missing_wanted();
        if wanted.is_empty() {
            return Ok(());
        }
        self.catalog.keep_missing(container, &wanted)?;
        container.partitions.forget_wanted(&wanted);
        Ok(())
    }

    /// Rows for items that lack a path.
    fn build_missing(
        &self,
        container: &Container,
        turn: &Turn<'_>,
        builds: &mut MissingBuilds,
    ) -> Result<Slice, Interrupted> {
        let progress = builds.entry(container.number).or_default();
        let mut build = MissingBuild { shared: &self.shared, container, progress };
        for _ in 0..STEPS_TOGETHER {
            turn.check()?;
            match build.step()? {
                MissingStep::More => self.visited_chunks.fetch_add(1, Ordering::Relaxed),
                MissingStep::Void => return Ok(Slice::Void),
                MissingStep::Done => {
                    self.catalog.finish_missing(container, build.paths())?;
                    builds.remove(&container.number);
                    info!(container = container.number, "rows of missing values built");
                    return Ok(Slice::Done);
                }
            };
        }
        Ok(Slice::More)
    }
}

impl Work for IndexBuilds {
    const NAME: &'static str = "index-builds";
    type Memory = MissingBuilds;

    fn round(&self, turn: &Turn<'_>, missing: &mut MissingBuilds) -> Result<Next, Interrupted> {
        let waiting = self.waiting();
        turn.retain_parts(|part| waiting.iter().any(|container| u64::from(container.number) == part));
        missing.retain(|number, _| waiting.iter().any(|container| container.number == *number));
        let mut next = Next::Woken;
        for container in waiting {
            let slice =
                turn.part(u64::from(container.number), || self.build_some(&container, turn, missing))?;
            match slice {
                Some(Slice::More) => next = Next::Now,
                Some(Slice::Void) if next == Next::Woken => next = Next::After(VOID_WAIT),
                Some(Slice::Void | Slice::Done) | None => {}
            }
        }
        Ok(next)
    }
}
