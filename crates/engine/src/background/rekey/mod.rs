//! Containers that take the place of others under another partition key.
//!
//! The container with the new key is a follower of the one that has the name (`follower`): a job of the refactoring fills it,
//! threads keep it up. To exchange the two, writers are held, the rest is taken, and one commit of the catalog gives the name to
//! the other one (`catalog::rekey`). Undo after that is the same once more with the key of before.
//!
//! Invariants:
//! 1. at the position of a target, every item of its source is in it or among those that it leaves;
//! 2. clients write to nothing but the container that has the name;
//! 3. a write that was answered by what had the name is in what has it: nothing is committed between the last version that
//!    was taken and the exchange.

mod apply; // changes of a source to writes of its target
mod copies; // items under another key, and those that are left
mod drive; // from state to state
mod exchange; // holding writers, exchanging names

use std::sync::Arc;

use quire_storage::{KeyRange, Op, Scan};
use quire_value::Object;

use crate::api::EngineError;
use crate::background::follower::{
    FollowerAdvance, FollowerEntry, FollowerKind, FollowerTarget, Followers, ItemChange,
};
use crate::background::{Worker, WorkerStatus};
use crate::catalog::state::CatalogState;
use crate::catalog::{Catalog, Container};
use crate::jobs::NewJob;
use crate::partition::sequencer::{PreparedWrite, retry_until_accepted};
use crate::refactorings::Refactorings;
use crate::refactorings::rekey::OnConflict;
use crate::runtime::Shared;
use crate::runtime::signals::Signal;
use crate::store::keys::{self, ITEMS};
use crate::store::scan;
use apply::RekeyApplier;
use copies::{CopyBuilder, skipped_page};

/// Rows that one commit takes away.
const CHUNK_ROWS: usize = 200;
const CHUNK_BYTES: usize = 1 << 20;

pub(crate) struct Rekeys {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    refactorings: Arc<Refactorings>,
    worker: Worker<Followers<RekeyKind>>,
}

/// Containers that are filled from others.
pub(crate) struct RekeyKind {
    shared: Arc<Shared>,
    refactorings: Arc<Refactorings>,
}

/// A target container in the catalog.
struct RekeyTarget {
    shared: Arc<Shared>,
    source: Arc<Container>,
    target: Arc<Container>,
    on_conflict: Option<OnConflict>,
}

impl Rekeys {
    /// From now on the versions that targets need are kept. Before any write.
    pub fn start(
        shared: &Arc<Shared>,
        catalog: &Arc<Catalog>,
        refactorings: &Arc<Refactorings>,
    ) -> Result<Rekeys, EngineError> {
        refactorings.open_rekeys()?;
        let kind = RekeyKind { shared: Arc::clone(shared), refactorings: Arc::clone(refactorings) };
        let (shared, catalog) = (Arc::clone(shared), Arc::clone(catalog));
        let signal = Arc::<Signal>::default();
        let worker = Followers::start(kind, Arc::clone(&shared), Arc::clone(&catalog), signal)?;
        Ok(Rekeys { shared, catalog, refactorings: Arc::clone(refactorings), worker })
    }

    pub fn stop(&self) {
        self.worker.stop();
    }

    pub fn worker_status(&self) -> WorkerStatus {
        self.worker.status()
    }
}

impl FollowerKind for RekeyKind {
    const WORKER: &'static str = "rekeys";
    const FILL: &'static str = "rekey-fill";
    const HAS_FILL_JOBS: bool = false;

    fn followers(&self, state: &CatalogState) -> Vec<FollowerEntry> {
        let mut entries = Vec::new();
        for (number, pair) in self.refactorings.rekeys.all() {
            let Some((source, target)) = state.container(pair.source).zip(state.container(number)) else {
                continue;
            };
            let (source, target) = (Arc::clone(source), Arc::clone(target));
            let (shared, on_conflict) = (Arc::clone(&self.shared), pair.on_conflict);
            let own = RekeyTarget { shared, source: Arc::clone(&source), target, on_conflict };
            entries.push(FollowerEntry { number, source, target: Box::new(own) });
        }
        entries
    }
}

impl RekeyTarget {
    fn applier(&self) -> RekeyApplier<'_> {
        let copies =
            CopyBuilder { source: &self.source, target: &self.target, on_conflict: self.on_conflict };
        RekeyApplier { shared: &self.shared, copies }
    }

    fn commit_rows(&self, ops: &[Op]) -> Result<(), EngineError> {
        let sequencer = &self.target.partitions.all()[0].sequencer;
        retry_until_accepted(&self.shared.statistics, || {
            let generation = sequencer.generation();
            sequencer.submit(PreparedWrite::index_maintenance(generation, ops.to_vec())).map(drop)
        })
    }
}

impl FollowerTarget for RekeyTarget {
    fn progress_key(&self) -> Vec<u8> {
        keys::view_progress(self.target.number)
    }

    fn empty(&self) -> Result<Option<usize>, EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        let left = skipped_page(&*snapshot, self.target.number, CHUNK_ROWS)?;
        if !left.is_empty() {
            self.commit_rows(&left)?;
            return Ok(Some(0));
        }
        let range = KeyRange::prefix(&keys::container_prefix(self.target.number));
        let page = Scan { rows_max: CHUNK_ROWS, bytes_max: CHUNK_BYTES, ..scan(ITEMS, range) };
        let page = snapshot.scan(&page)?;
        drop(snapshot);
        if page.rows.is_empty() {
            return Ok(None);
        }
        self.applier().remove(&page.rows).map(Some)
    }

    fn apply(&self, changes: &[ItemChange], advance: FollowerAdvance<'_>) -> Result<usize, EngineError> {
        self.applier().apply(changes, advance)
    }

    /// There is none: a job of the refactoring fills it.
    fn fill_job(&self, kind: &'static str, unit: &'static str, payload: Vec<u8>) -> NewJob {
        self.target.job(kind, unit, Object::new(), payload)
    }
}
