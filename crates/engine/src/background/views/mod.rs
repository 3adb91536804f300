//! Views: containers whose items are derived from those of another one, the source.
//!
//! A view is a follower of its source (`follower`): a change of an item becomes the write of the view's item. Clients cannot write
//! to a view.

mod apply; // changes of a source to writes of a view

use std::sync::Arc;

use quire_storage::{KeyRange, Scan};
use quire_value::Object;

use crate::api::EngineError;
use crate::background::follower::{
    Fills, FollowerAdvance, FollowerEntry, FollowerKind, FollowerPhase, FollowerState, FollowerTarget,
    Followers, ItemChange,
};
use crate::background::{Worker, WorkerStatus};
use crate::catalog::state::CatalogState;
use crate::catalog::views::source_of;
use crate::catalog::{Catalog, Container};
use crate::jobs::NewJob;
use crate::runtime::Shared;
use crate::store::keys::{self, ITEMS};
use crate::store::scan;
use apply::{ViewApplier, ViewItem, commit};

/// Items that one commit takes away.
const CHUNK_ROWS: usize = 200;
const CHUNK_BYTES: usize = 1 << 20;

pub(crate) struct Views {
    catalog: Arc<Catalog>,
    worker: Worker<Followers<ViewKind>>,
}

/// Containers that are views.
pub(crate) struct ViewKind {
    shared: Arc<Shared>,
}

/// One view, as the catalog has it.
struct ViewEntry {
    shared: Arc<Shared>,
    view: Arc<Container>,
    source: Arc<Container>,
}

/// The state of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewStatus {
    pub source: String,
    pub state: ViewState,
    /// Writes of the source that the view has not taken yet; while it is filled, items too.
    pub lag: u64,
    pub positions: Vec<ViewPosition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewState {
    /// It is new, or is being emptied to be filled again.
    Initializing,
    Filling,
    /// It follows its source.
    Active,
}

/// How far a view is in one partition of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewPosition {
    pub partition: u32,
    /// Everything up to it has been taken.
    pub lsn: u64,
    /// The LSN of the partition.
    pub source_lsn: u64,
}

impl Views {
    /// Registers the sources, so that their versions are retained. Call it before any write.
    pub fn start(shared: Arc<Shared>, catalog: Arc<Catalog>) -> Result<Views, EngineError> {
        let (kind, signal) = (ViewKind { shared: Arc::clone(&shared) }, Arc::clone(&shared.workers.views));
        let worker = Followers::start(kind, shared, Arc::clone(&catalog), signal)?;
        Ok(Views { catalog, worker })
    }

    /// The kind of jobs that fill views.
    pub fn fills(&self) -> Fills<ViewKind> {
        Fills::new(self.worker.shared_work())
    }

    /// Returns when nothing is written to views any more, once no job fills one.
    pub fn stop(&self) {
        self.worker.stop();
    }

    pub fn pause(&self, paused: bool) {
        self.worker.pause(paused);
    }

    pub fn worker_status(&self) -> WorkerStatus {
        self.worker.status()
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let figures = self.worker.work().figures();
        vec![
            ("views", figures.count),
            ("view_items_written", figures.items_written),
            ("view_lag_max", figures.lag_max),
            ("view_lag_alarms", figures.alarms),
            ("views_rebuilt_for_lag", figures.rebuilt_for_lag),
        ]
    }

    /// A view that is more writes than this behind its source is filled again.
    pub fn set_lag_max(&self, writes: u64) {
        self.worker.work().set_lag_max(writes);
    }

    /// A check whether a view follows its source, for callers without [`Views`].
    pub fn watch(&self) -> Box<dyn Fn(&Container) -> bool + Send + Sync> {
        let work = self.worker.shared_work();
        Box::new(move |view| matches!(work.follower_state(view.number).phase, FollowerPhase::Following))
    }

    /// `None` for a container that is no view.
    pub fn status(&self, view: &Container) -> Option<ViewStatus> {
        let source = source_of(&self.catalog.state(), view)?;
        Some(status(&self.worker.work().follower_state(view.number), &source))
    }

    /// Takes everything out of a view and fills it again.
    pub fn rebuild(&self, view: &Container) -> Result<(), EngineError> {
        let state = self.catalog.state();
        source_of(&state, view).ok_or_else(|| no_view(view))?;
        match self.worker.work().rebuild(view.number)? {
            true => Ok(()),
            false => Err(view.not_found()),
        }
    }
}

impl FollowerKind for ViewKind {
    const WORKER: &'static str = "views";
    const FILL: &'static str = "view-fill";

    fn followers(&self, state: &CatalogState) -> Vec<FollowerEntry> {
        let entry = |view: &Arc<Container>| {
            let source = source_of(state, view)?;
            let target = ViewEntry {
                shared: Arc::clone(&self.shared),
                view: Arc::clone(view),
                source: Arc::clone(&source),
            };
            Some(FollowerEntry { number: view.number, source, target: Box::new(target) })
        };
        state.containers().filter_map(entry).collect()
    }
}

impl FollowerTarget for ViewEntry {
    fn progress_key(&self) -> Vec<u8> {
        keys::view_progress(self.view.number)
    }

    fn empty(&self) -> Result<Option<usize>, EngineError> {
        let range = KeyRange::prefix(&keys::container_prefix(self.view.number));
        let page = Scan { rows_max: CHUNK_ROWS, bytes_max: CHUNK_BYTES, ..scan(ITEMS, range) };
        let page = self.shared.storage.snapshot()?.scan(&page)?;
        if page.rows.is_empty() {
            return Ok(None);
        }
        let items: Vec<ViewItem<'_>> =
            page.rows.iter().map(|(_, row)| ViewItem::removal(&self.view, row)).collect::<Result<_, _>>()?;
        commit(&self.shared, &self.view, &items, None).map(Some)
    }

    fn apply(&self, changes: &[ItemChange], advance: FollowerAdvance<'_>) -> Result<usize, EngineError> {
        ViewApplier::new(&self.shared, &self.view, &self.source)?.apply(changes, advance)
    }

    fn fill_job(&self, kind: &'static str, unit: &'static str, payload: Vec<u8>) -> NewJob {
        let about = Object::from_iter([("source", self.source.definition.id.as_str())]);
        self.view.job(kind, unit, about, payload)
    }
}

fn no_view(container: &Container) -> EngineError {
    let message = format!("The container '{}' is not a view.", container.definition.id);
    EngineError::BadRequest { message }
}

fn status(follower_state: &FollowerState, source: &Container) -> ViewStatus {
    let behind = follower_state.lag(source);
    let items = || source.usage().0.saturating_sub(follower_state.filled);
    let (state, lag) = match follower_state.phase {
        FollowerPhase::Emptying | FollowerPhase::Beginning => (ViewState::Initializing, items().max(behind)),
        FollowerPhase::Filling => (ViewState::Filling, items() + behind),
        FollowerPhase::Following => (ViewState::Active, behind),
    };
    let positions = follower_state.partitions(source).into_iter();
    let positions = positions.map(|found| ViewPosition {
        partition: found.partition,
        lsn: found.lsn,
        source_lsn: found.source_lsn,
    });
    ViewStatus { source: source.definition.id.clone(), state, lag, positions: positions.collect() }
}
