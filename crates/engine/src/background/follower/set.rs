//! All followers of a kind: registration of their sources, rounds, and a bound on their lag.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::warn;

use super::progress::{FollowerPhase, FollowerProgress, FollowerState};
use super::step::{FollowerStep, RunningFollower};
use super::{FollowerEntry, FollowerKind, fill};
use crate::api::EngineError;
use crate::background::{Interrupted, NextRound, Worker, WorkerRound, WorkerTask};
use crate::catalog::Catalog;
use crate::runtime::Shared;
use crate::runtime::followed::Follower;
use crate::runtime::signals::Signal;
use crate::store::keys::CATALOG;

/// Threads of a kind. One thread at a time runs a follower.
const THREADS: usize = 2;
/// Between two rounds when there was nothing to do.
const INTERVAL: Duration = Duration::from_millis(20);
/// The same where there are no followers.
const INTERVAL_WITHOUT_FOLLOWERS: Duration = Duration::from_millis(200);
/// Steps of one follower before the next one.
const STEPS_TOGETHER: usize = 8;
/// A rebuild that fails because of a split or a late commit starts again this often.
const REBUILD_TRIES: usize = 8;
/// Writes of its source that a follower may be behind.
const LAG_MAX: u64 = 5_000_000;
/// Names the check of a follower's lag beside its steps.
const LAG_PART: u64 = 1 << 32;

pub(crate) struct Followers<K> {
    pub(super) shared: Arc<Shared>,
    pub(super) catalog: Arc<Catalog>,
    kind: K,
    pub(super) signal: Arc<Signal>,
    /// By the follower's number.
    progress: Mutex<BTreeMap<u32, Arc<FollowerProgress>>>,
    pub(super) written: AtomicU64,
    rebuilt: AtomicU64,
    lag_max: AtomicU64,
    /// By the follower's number, as of the last round.
    lags: Mutex<BTreeMap<u32, u64>>,
    /// Locked while a job is created, so that two threads do not create one for the same follower.
    creating_jobs: Mutex<()>,
}

/// Figures of the followers of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FollowerFigures {
    pub count: u64,
    pub items_written: u64,
    /// The largest lag: this many versions are retained for it.
    pub lag_max: u64,
    /// Followers with more than half of the allowed lag.
    pub alarms: u64,
    pub rebuilt_for_lag: u64,
}

impl<K: FollowerKind> Followers<K> {
    /// Registers the sources, so that their versions are retained. Call it before any write.
    pub fn start(
        kind: K,
        shared: Arc<Shared>,
        catalog: Arc<Catalog>,
        signal: Arc<Signal>,
    ) -> Result<Worker<Followers<K>>, EngineError> {
        let (known, written, rebuilt, lags, creating_jobs) = Default::default();
        let lag_max = AtomicU64::new(LAG_MAX);
        let worker_signal = Arc::clone(&signal);
        let followers = Followers {
            shared,
            catalog,
            kind,
            signal,
            progress: known,
            written,
            rebuilt,
            lag_max,
            lags,
            creating_jobs,
        };
        followers.refresh()?;
        Worker::start_threads(followers, worker_signal, THREADS)
    }

    pub fn figures(&self) -> FollowerFigures {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let progress = self.progress.lock().clone();
        FollowerFigures {
            count: progress.len() as u64,
            items_written: count(&self.written),
            lag_max: self.lags.lock().values().copied().max().unwrap_or(0),
            alarms: progress.values().filter(|progress| progress.is_warned.load(Ordering::Relaxed)).count()
                as u64,
            rebuilt_for_lag: count(&self.rebuilt),
        }
    }

    /// A follower that is more writes than this behind its source is filled again.
    pub fn set_lag_max(&self, writes: u64) {
        self.lag_max.store(writes, Ordering::Relaxed);
    }

    /// The state of a follower. One that no thread has read yet is new.
    pub fn follower_state(&self, number: u32) -> FollowerState {
        let known = self.progress.lock().get(&number).cloned();
        known.map_or_else(FollowerState::new, |progress| progress.state.lock().clone())
    }

    /// One step of a follower, beside the worker's threads; `None`: there is no such follower.
    pub fn step(&self, number: u32) -> Result<Option<FollowerStep>, EngineError> {
        let step = self.with(number, |following| following.step())?;
        if let Some(FollowerStep::Done(count)) = step {
            self.written.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(step)
    }

    /// Writes of its source that a follower has not taken yet; `None` until it follows.
    pub fn lag(&self, number: u32) -> Result<Option<u64>, EngineError> {
        let lag = self.with(number, |following| {
            let follower_state = following.progress.state.lock().clone();
            Ok((follower_state.phase == FollowerPhase::Following)
                .then(|| follower_state.lag(following.source)))
        })?;
        Ok(lag.flatten())
    }

    /// Empties a follower and fills it again; false: there is no such follower.
    pub fn rebuild(&self, number: u32) -> Result<bool, EngineError> {
        let mut rebuilt = self.try_rebuild(number);
        for _ in 1..REBUILD_TRIES {
            if !matches!(rebuilt, Err(EngineError::PartitionMoved | EngineError::TransactionConflict)) {
                break;
            }
            rebuilt = self.try_rebuild(number);
        }
        self.signal.wake();
        rebuilt
    }

    /// As the catalog has it now: its source may have been split.
    fn try_rebuild(&self, number: u32) -> Result<bool, EngineError> {
        let rebuilt = self.with(number, |following| following.rebuild())?;
        Ok(rebuilt.is_some())
    }

    /// Calls with a follower as it is now, where it is there.
    pub(super) fn with<T>(
        &self,
        number: u32,
        call: impl FnOnce(&RunningFollower<'_>) -> Result<T, EngineError>,
    ) -> Result<Option<T>, EngineError> {
        let entries = self.refresh()?;
        let entry = entries.iter().find(|entry| entry.number == number);
        let progress = self.progress.lock().get(&number).cloned();
        entry.zip(progress).map(|(entry, progress)| call(&self.following(entry, &progress))).transpose()
    }

    fn following<'a>(
        &'a self,
        entry: &'a FollowerEntry,
        progress: &'a FollowerProgress,
    ) -> RunningFollower<'a> {
        RunningFollower { shared: &self.shared, source: &entry.source, target: &*entry.target, progress }
    }

    /// Versions of a source are kept until its followers have taken them. One that is too far behind, whatever the reason, is
    /// filled again, which needs none of them; what is written while it is filled may be as much as the source holds.
    fn bound_lag(&self, number: u32, following: &RunningFollower<'_>) -> Result<(), Interrupted> {
        let follower_state = following.progress.state.lock().clone();
        let lag_max = self.lag_max.load(Ordering::Relaxed);
        let (lag, lag_max) = match follower_state.phase {
            FollowerPhase::Emptying | FollowerPhase::Beginning => (0, lag_max),
            FollowerPhase::Filling => {
                (follower_state.lag(following.source), lag_max.max(2 * following.source.usage().0))
            }
            FollowerPhase::Following => (follower_state.lag(following.source), lag_max),
        };
        self.lags.lock().insert(number, lag);
        let is_alarming = lag > lag_max / 2;
        let was_alarming = following.progress.is_warned.swap(is_alarming, Ordering::Relaxed);
        if is_alarming && !was_alarming {
            warn!(
                worker = K::WORKER,
                number, lag, lag_max, "a follower is far behind its source, whose versions are kept for it"
            );
        }
        if lag > lag_max && following.rebuild_from(follower_state.phase)? {
            self.rebuilt.fetch_add(1, Ordering::Relaxed);
            warn!(
                worker = K::WORKER,
                number, lag, lag_max, "a follower was too far behind its source and is filled again"
            );
        }
        Ok(())
    }

    /// Some steps of a follower; whether there may be more to do.
    fn steps(
        &self,
        number: u32,
        following: &RunningFollower<'_>,
        round: &WorkerRound<'_>,
    ) -> Result<bool, Interrupted> {
        match self.try_steps(number, following, round) {
            Err(Interrupted::Failed(error)) if may_succeed_later(&error) => Ok(false),
            more => more,
        }
    }

    fn try_steps(
        &self,
        number: u32,
        following: &RunningFollower<'_>,
        round: &WorkerRound<'_>,
    ) -> Result<bool, Interrupted> {
        for _ in 0..STEPS_TOGETHER {
            round.check()?;
            if following.progress.state.lock().phase != FollowerPhase::Following {
                if !K::HAS_FILL_JOBS {
                    return Ok(false);
                }
                let _making = self.creating_jobs.lock();
                fill::make_job::<K>(&self.shared.jobs, number, following.target)?;
                return Ok(false);
            }
            match following.step()? {
                FollowerStep::Idle | FollowerStep::Busy => return Ok(false),
                FollowerStep::Done(count) => self.written.fetch_add(count as u64, Ordering::Relaxed),
            };
        }
        Ok(true)
    }

    /// What the catalog says about followers, and where they stand. The state is read under the lock.
    /// A stale state could unregister a source for a short time, which would leave a gap in its versions.
    fn refresh(&self) -> Result<Vec<FollowerEntry>, EngineError> {
        let mut known = self.progress.lock();
        let entries = self.kind.followers(&self.catalog.state());
        let mut current = BTreeMap::new();
        for entry in &entries {
            let progress = match known.get(&entry.number) {
                Some(progress) => Arc::clone(progress),
                None => Arc::new(self.load(entry)?),
            };
            current.insert(entry.number, progress);
        }
        if known.len() != current.len() || known.keys().ne(current.keys()) {
            let mut followers: HashMap<u32, Vec<Arc<dyn Follower>>> = HashMap::new();
            for progress in current.values() {
                let follower: Arc<dyn Follower> = Arc::clone(progress) as Arc<dyn Follower>;
                followers.entry(progress.source).or_default().push(follower);
            }
            self.shared.followed.set(K::WORKER, followers);
            self.lags.lock().retain(|number, _| current.contains_key(number));
        }
        *known = current;
        Ok(entries)
    }

    fn load(&self, entry: &FollowerEntry) -> Result<FollowerProgress, EngineError> {
        let row = self.shared.storage.snapshot()?.get(CATALOG, &entry.target.progress_key())?;
        FollowerProgress::new(entry.source.number, row)
    }

    fn interval(&self) -> Duration {
        if self.progress.lock().is_empty() { INTERVAL_WITHOUT_FOLLOWERS } else { INTERVAL }
    }
}

impl<K: FollowerKind> WorkerTask for Followers<K> {
    const NAME: &'static str = K::WORKER;
    /// The follower that comes first in the next round, so that threads do not all begin with the same one.
    type Memory = usize;

    fn round(&self, round: &WorkerRound<'_>, first: &mut usize) -> Result<NextRound, Interrupted> {
        let mut entries = self.refresh()?;
        let known = self.progress.lock().clone();
        round.retain_parts(|part| known.contains_key(&(part as u32)));
        *first = first.wrapping_add(1);
        if !entries.is_empty() {
            let first = *first % entries.len();
            entries.rotate_left(first);
        }
        let mut more = false;
        for entry in &entries {
            let Some(progress) = known.get(&entry.number) else { continue };
            let (number, following) = (entry.number, self.following(entry, progress));
            round.part(LAG_PART | u64::from(number), || self.bound_lag(number, &following))?;
            let again = round.part(u64::from(number), || self.steps(number, &following, round))?;
            more |= again.unwrap_or(false);
        }
        Ok(if more { NextRound::Now } else { NextRound::After(self.interval()) })
    }
}

/// Whether another round will probably succeed: something was deleted or changed meanwhile, or there are many writers.
pub(super) fn may_succeed_later(error: &EngineError) -> bool {
    error.is_conflict() || matches!(error, EngineError::ResourceNotFound { .. })
}
