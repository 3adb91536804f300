//! Views: containers whose items are made of those of another one, the source.
//!
//! A thread of its own fills a new view from the items of its source and then follows the source's log of versions, which
//! is kept for as long as a view needs it. Every commit that writes items of a view says in the same breath how far the view
//! is, so a restart goes on exactly there. Clients cannot write to a view.
//!
//! Invariants:
//! 1. while a source is registered here, every write to it has its version in the log;
//! 2. a version goes only when all views of its container have taken it ([`FollowedContainers::needed_beyond`](crate::runtime::followed::FollowedContainers::needed_beyond));
//! 3. a view is always a subset of what its source was at the places of its row: all of it, once it follows.

mod apply; // changes of a source to writes of a view
mod progress; // how far a view is
mod step; // emptying, filling, following

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::warn;

use crate::api::EngineError;
use crate::background::{Interrupted, Next, Turn, Work, Worker, WorkerStatus};
use crate::catalog::state::State;
use crate::catalog::views::source_of;
use crate::catalog::{Catalog, Container};
use crate::runtime::Shared;
use crate::runtime::followed::Follower;
use crate::store::keys::{self, CATALOG};
use progress::{Phase, Progress, Standing};
use step::{Step, ViewWork};

/// Between two looks at the sources, when nothing is left to do.
const INTERVAL: Duration = Duration::from_millis(20);
/// The same where there are no views.
const INTERVAL_WITHOUT_VIEWS: Duration = Duration::from_millis(200);
/// Steps of one view before it is another one's turn.
const STEPS_TOGETHER: usize = 8;
/// Filling rests after a chunk for as long as it took.
const REST_MAX: Duration = Duration::from_millis(100);
/// A rebuild that met a split or a commit that happened after all begins again this often.
const REBUILD_TRIES: usize = 8;
/// Writes of its source that a view may be behind.
const LAG_MAX: u64 = 5_000_000;
/// Names the check of a view's lag beside the steps of the view.
const LAG_PART: u64 = 1 << 32;

pub(crate) struct Views {
    worker: Worker<Maintainer>,
}

struct Maintainer {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    /// By the view's number.
    known: Mutex<BTreeMap<u32, Arc<Progress>>>,
    written: AtomicU64,
    rebuilt: AtomicU64,
    lag_max: AtomicU64,
    /// Of the last round: of the view that is furthest behind.
    lag: AtomicU64,
}

/// Where a view stands.
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
    /// Where the partition stands.
    pub source_lsn: u64,
}

impl Views {
    /// From now on the versions that views need are kept. Before any write.
    pub fn start(shared: Arc<Shared>, catalog: Arc<Catalog>) -> Result<Views, EngineError> {
        let (known, written, rebuilt, lag) = Default::default();
        let lag_max = AtomicU64::new(LAG_MAX);
        let maintainer = Maintainer { shared, catalog, known, written, rebuilt, lag_max, lag };
        maintainer.refresh()?;
        let signal = Arc::clone(&maintainer.shared.workers.views);
        Ok(Views { worker: Worker::start(maintainer, signal)? })
    }

    /// Returns when nothing is written to views any more.
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
        let maintainer = self.worker.work();
        let known = maintainer.known.lock().len() as u64;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("views", known),
            ("view_items_written", count(&maintainer.written)),
            ("view_lag_max", count(&maintainer.lag)),
            ("views_rebuilt_for_lag", count(&maintainer.rebuilt)),
        ]
    }

    /// A view that is more writes than this behind its source is filled again.
    pub fn set_lag_max(&self, writes: u64) {
        self.worker.work().lag_max.store(writes, Ordering::Relaxed);
    }

    /// `None` for a container that is no view.
    pub fn status(&self, view: &Container) -> Option<ViewStatus> {
        let state = self.worker.work().catalog.state();
        let source = source_of(&state, view)?;
        let known = self.worker.work().known.lock().get(&view.number).cloned();
        // A view that the thread has not seen yet.
        let standing = known.map_or_else(Standing::new, |progress| progress.standing.lock().clone());
        Some(status(&standing, &source))
    }

    /// Takes everything out of a view and fills it again.
    pub fn rebuild(&self, view: &Container) -> Result<(), EngineError> {
        let mut rebuilt = self.try_rebuild(view);
        for _ in 1..REBUILD_TRIES {
            if !matches!(rebuilt, Err(EngineError::PartitionMoved | EngineError::TransactionConflict)) {
                break;
            }
            rebuilt = self.try_rebuild(view);
        }
        self.worker.wake();
        rebuilt
    }

    /// As the catalog has them now: either may have been split.
    fn try_rebuild(&self, view: &Container) -> Result<(), EngineError> {
        let maintainer = self.worker.work();
        let state = maintainer.refresh()?;
        let source = source_of(&state, view).ok_or_else(|| no_view(view))?;
        let current = state.containers().find(|current| current.number == view.number);
        let view = current.ok_or_else(|| view.not_found())?;
        let progress = maintainer.known.lock().get(&view.number).cloned().ok_or_else(|| view.not_found())?;
        ViewWork { shared: &maintainer.shared, view, source: &source, progress: &progress }.rebuild()
    }
}

impl Maintainer {
    fn interval(&self) -> Duration {
        if self.known.lock().is_empty() { INTERVAL_WITHOUT_VIEWS } else { INTERVAL }
    }

    /// Versions of a source are kept until its views have taken them. A view that is too far behind, whatever the reason, is
    /// filled again, which needs none of them; what is written while it is filled may be as much as the source holds.
    fn bound_lag(&self, work: &ViewWork<'_>) -> Result<u64, Interrupted> {
        let standing = work.progress.standing.lock().clone();
        let lag = behind(&positions(&standing, work.source));
        let lag_max = self.lag_max.load(Ordering::Relaxed);
        let lag_max = match standing.phase {
            Phase::Emptying | Phase::Beginning => return Ok(0),
            Phase::Filling => lag_max.max(2 * work.source.usage().0),
            Phase::Following => lag_max,
        };
        let view = work.view.number;
        let is_warned = lag > lag_max / 2;
        if is_warned && !work.progress.is_warned.swap(is_warned, Ordering::Relaxed) {
            warn!(view, lag, lag_max, "a view is far behind its source, whose versions are kept for it");
        }
        if !is_warned {
            work.progress.is_warned.store(false, Ordering::Relaxed);
        }
        if lag > lag_max {
            work.rebuild()?;
            self.rebuilt.fetch_add(1, Ordering::Relaxed);
            warn!(view, lag, lag_max, "a view was too far behind its source and is filled again");
        }
        Ok(lag)
    }

    /// Some steps of a view; whether there may be more to do.
    fn steps(&self, work: &ViewWork<'_>, turn: &Turn<'_>) -> Result<bool, Interrupted> {
        match self.try_steps(work, turn) {
            Err(Interrupted::Failed(error)) if is_passing(&error) => Ok(false),
            more => more,
        }
    }

    fn try_steps(&self, work: &ViewWork<'_>, turn: &Turn<'_>) -> Result<bool, Interrupted> {
        for _ in 0..STEPS_TOGETHER {
            turn.check()?;
            let started = Instant::now();
            match work.step()? {
                Step::Idle => return Ok(false),
                Step::Done(count) => self.written.fetch_add(count as u64, Ordering::Relaxed),
            };
            if work.progress.standing.lock().phase != Phase::Following {
                turn.rest(started.elapsed().min(REST_MAX))?;
            }
        }
        Ok(true)
    }

    /// What the catalog says about views, and where they stand. The state is read under the lock: an older one than somebody
    /// else has gone by would take a source out for a moment, and its versions would have a gap.
    fn refresh(&self) -> Result<Arc<State>, EngineError> {
        let mut known = self.known.lock();
        let state = self.catalog.state();
        let mut current = BTreeMap::new();
        for view in state.containers() {
            let Some(source) = source_of(&state, view) else { continue };
            let progress = match known.get(&view.number) {
                Some(progress) => Arc::clone(progress),
                None => Arc::new(self.load(view, &source)?),
            };
            current.insert(view.number, progress);
        }
        if known.len() != current.len() || known.keys().ne(current.keys()) {
            let mut followers: HashMap<u32, Vec<Arc<dyn Follower>>> = HashMap::new();
            for progress in current.values() {
                let follower: Arc<dyn Follower> = Arc::clone(progress) as Arc<dyn Follower>;
                followers.entry(progress.source).or_default().push(follower);
            }
            self.shared.followed.set(followers);
        }
        *known = current;
        Ok(state)
    }

    fn load(&self, view: &Container, source: &Container) -> Result<Progress, EngineError> {
        let row = self.shared.storage.snapshot()?.get(CATALOG, &keys::view_progress(view.number))?;
        Progress::new(source.number, row)
    }
}

impl Work for Maintainer {
    const NAME: &'static str = "views";
    type Memory = ();

    fn round(&self, turn: &Turn<'_>, (): &mut ()) -> Result<Next, Interrupted> {
        let state = self.refresh()?;
        let known = self.known.lock().clone();
        turn.retain_parts(|part| known.contains_key(&(part as u32)));
        let (mut more, mut lag) = (false, 0);
        for view in state.containers() {
            let Some(source) = source_of(&state, view) else { continue };
            let Some(progress) = known.get(&view.number) else { continue };
            let work = ViewWork { shared: &self.shared, view, source: &source, progress };
            let bounded = turn.part(LAG_PART | u64::from(view.number), || self.bound_lag(&work))?;
            lag = lag.max(bounded.unwrap_or(0));
            let again = turn.part(u64::from(view.number), || self.steps(&work, turn))?;
            more |= again.unwrap_or(false);
        }
        self.lag.store(lag, Ordering::Relaxed);
        Ok(if more { Next::Now } else { Next::After(self.interval()) })
    }
}

/// Something was deleted or changed meanwhile, or there are many writers: another round comes.
fn is_passing(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::ResourceNotFound { .. }
            | EngineError::Contended
            | EngineError::Overloaded
            | EngineError::PartitionMoved
    )
}

fn no_view(container: &Container) -> EngineError {
    let message = format!("The container '{}' is not a view.", container.definition.id);
    EngineError::BadRequest { message }
}

/// Where a view is in each partition of its source.
fn positions(standing: &Standing, source: &Container) -> Vec<ViewPosition> {
    let aligned = standing.aligned(source.partitions.all());
    let places = aligned.map_or_else(Vec::new, |standing| standing.places);
    let positions = source.partitions.all().iter().map(|partition| {
        let id = partition.layout.id;
        let place = places.iter().find(|place| place.partition == id);
        let source_lsn = partition.sequencer.lsn().unwrap_or(0);
        ViewPosition {
            partition: id,
            lsn: place.map_or(0, progress::SourcePosition::complete_lsn),
            source_lsn,
        }
    });
    positions.collect()
}

fn behind(positions: &[ViewPosition]) -> u64 {
    positions.iter().map(|position| position.source_lsn.saturating_sub(position.lsn)).sum()
}

fn status(standing: &Standing, source: &Container) -> ViewStatus {
    let positions = positions(standing, source);
    let behind = behind(&positions);
    let items = || source.usage().0.saturating_sub(standing.filled);
    let (state, lag) = match standing.phase {
        Phase::Emptying | Phase::Beginning => (ViewState::Initializing, items().max(behind)),
        Phase::Filling => (ViewState::Filling, items() + behind),
        Phase::Following => (ViewState::Active, behind),
    };
    ViewStatus { source: source.definition.id.clone(), state, lag, positions }
}
