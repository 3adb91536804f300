//! Index builds: a container's row shows whether it has indexes to build.
//!
//! A job builds what its container has to build until nothing is left, and ends early when the policy changes once more. How far
//! the items are visited is in a row that moves in the commits that do the work (`build`).

pub(crate) mod build; // bringing items up to date after a change of policy
mod missing; // rows for items that lack a path

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use quire_value::{Object, Path, Value};
use tracing::info;

use super::catalog_work::MarkedWork;
use crate::api::{EngineError, corrupt};
use crate::catalog::{Catalog, Container};
use crate::jobs::{JobClaim, JobKind, JobStep, NewJob};
use crate::runtime::Shared;
use build::{IndexBuild, IndexBuildStep};
use missing::{MissingBuild, MissingBuilds, MissingStep};

const KIND: &str = "index-build";
const UNIT: &str = "items";
/// Steps of a build together: it commits how far it is behind them.
const STEPS_TOGETHER: usize = 16;
/// Wait when a container is just being deleted or changed once more.
const VOID_WAIT: Duration = Duration::from_millis(20);

pub(crate) struct IndexBuilds {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    missing: Mutex<MissingBuilds>,
    visited_chunks: AtomicU64,
}

/// The outcome of some steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BuildSlice {
    /// So many items were visited in all.
    More(u64),
    Done,
    /// The container is being changed: try again soon.
    Void,
}

impl IndexBuilds {
    pub fn new(shared: Arc<Shared>, catalog: Arc<Catalog>) -> IndexBuilds {
        let (missing, visited_chunks) = Default::default();
        IndexBuilds { shared, catalog, missing, visited_chunks }
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("index_builds_waiting", self.waiting().len() as u64),
            ("index_build_chunks", self.visited_chunks.load(Ordering::Relaxed)),
        ]
    }

    fn waiting(&self) -> Vec<Arc<Container>> {
        let state = self.catalog.state();
        let waits =
            |container: &&Arc<Container>| has_work(container) || container.partitions.has_requested_rows();
        state.containers().filter(waits).cloned().collect()
    }

    fn build_some(&self, claim: &JobClaim<'_>, container: &Container) -> Result<BuildSlice, EngineError> {
        let slice = match container.partitions.indexes().is_building() {
            true => self.build_indexes(claim, container),
            false => self.build_missing(claim, container),
        };
        match slice {
            Err(EngineError::ResourceNotFound { .. }) => Ok(BuildSlice::Void),
            Err(error) if error.is_conflict() => Ok(BuildSlice::Void),
            Err(EngineError::Corrupt { .. }) if container.partitions.is_retired() => Ok(BuildSlice::Void),
            slice => slice,
        }
    }

    fn build_indexes(&self, claim: &JobClaim<'_>, container: &Container) -> Result<BuildSlice, EngineError> {
        let Some(mut build) = IndexBuild::start(&self.shared, container)? else {
            return Ok(BuildSlice::Void);
        };
        for _ in 0..STEPS_TOGETHER {
            if claim.is_held() {
                break;
            }
            match build.step()? {
                IndexBuildStep::More => self.visited_chunks.fetch_add(1, Ordering::Relaxed),
                IndexBuildStep::Void => return Ok(BuildSlice::Void),
                IndexBuildStep::Done => {
                    if self.catalog.finish_indexes(container, build.epoch())? {
                        info!(container = container.number, "indexes built");
                    }
                    return Ok(BuildSlice::Done);
                }
            };
        }
        Ok(BuildSlice::More(build.visited()))
    }

    /// Rows for items that lack a path.
    fn build_missing(&self, claim: &JobClaim<'_>, container: &Container) -> Result<BuildSlice, EngineError> {
        let mut progress = self.missing.lock().remove(&container.number).unwrap_or_default();
        let mut build = MissingBuild { shared: &self.shared, container, progress: &mut progress };
        let slice = self.build_missing_from(claim, &mut build);
        if !matches!(slice, Ok(BuildSlice::Done)) {
            self.missing.lock().insert(container.number, progress);
        }
        slice
    }

    fn build_missing_from(
        &self,
        claim: &JobClaim<'_>,
        build: &mut MissingBuild<'_>,
    ) -> Result<BuildSlice, EngineError> {
        for _ in 0..STEPS_TOGETHER {
            if claim.is_held() {
                break;
            }
            match build.step()? {
                MissingStep::More => self.visited_chunks.fetch_add(1, Ordering::Relaxed),
                MissingStep::Void => return Ok(BuildSlice::Void),
                MissingStep::Done => {
                    self.catalog.finish_missing(build.container, build.paths())?;
                    info!(container = build.container.number, "rows of missing values built");
                    return Ok(BuildSlice::Done);
                }
            };
        }
        Ok(BuildSlice::More(build.progress.visited))
    }
}

impl JobKind for IndexBuilds {
    fn name(&self) -> &'static str {
        KIND
    }

    /// The policy requires these indexes, so the job cannot be cancelled.
    fn can_cancel(&self) -> bool {
        false
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let (number, epoch) = decode(&claim.body.payload).ok_or_else(|| corrupt("an index build"))?;
        let state = self.catalog.state();
        let Some(container) = state.container(number) else {
            self.missing.lock().remove(&number);
            return Ok(JobStep::Cancelled);
        };
        if container.partitions.indexes().epoch() != epoch {
            return Ok(JobStep::Cancelled);
        }
        if !has_work(container) {
            claim.complete(container.usage().0);
            return Ok(JobStep::Done(Value::Null));
        }
        match self.build_some(claim, container)? {
            BuildSlice::More(visited) => {
                let items = container.usage().0;
                claim.commit(claim.advance(Vec::new(), visited.min(items), Some(items)), Vec::new())?;
                Ok(JobStep::More)
            }
            BuildSlice::Done => Ok(JobStep::More),
            BuildSlice::Void => Ok(JobStep::Rest(VOID_WAIT)),
        }
    }
}

impl MarkedWork for IndexBuilds {
    const KIND: &'static str = KIND;

    fn marked(&self) -> Vec<NewJob> {
        let state = self.catalog.state();
        let job = |container: &Arc<Container>| container.job(KIND, UNIT, Object::new(), payload(container));
        state.containers().filter(|container| has_work(container)).map(job).collect()
    }
}

fn has_work(container: &Container) -> bool {
    let indexes = container.partitions.indexes();
    indexes.is_building() || !indexes.missing_to_build().is_empty()
}

/// Container 4, epoch 1, the paths that get rows for missing values: another job begins when one of them changes. One that is just
/// ending has no time for other paths.
fn payload(container: &Container) -> Vec<u8> {
    let indexes = container.partitions.indexes();
    let paths: Vec<String> = indexes.missing_to_build().iter().map(Path::to_string).collect();
    let mut payload = container.number.to_be_bytes().to_vec();
    payload.push(indexes.epoch());
    payload.extend(paths.join("\n").into_bytes());
    payload
}

fn decode(payload: &[u8]) -> Option<(u32, u8)> {
    let (number, rest) = payload.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), *rest.first()?))
}
