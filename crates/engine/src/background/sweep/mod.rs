//! The sweep: expired items are invisible at once; the sweep removes them later, through the feed. It also removes
//! versions beyond their retention. Items of deleted partition keys have jobs of their own (`background::key_deletes`).
//!
//! A round gives every container that has something to remove one bounded turn, so none waits for another. How far a
//! container was looked through is kept in memory ([`SweptContainer`]): a row is examined once, and what was removed is not passed
//! again. When the next item expires is kept too, and writers say when theirs do ([`SweepDue`](crate::partition::sweep_due::SweepDue)): a round of a container
//! with nothing due reads no storage. Rests between turns are shorter the longer items have waited, so the sweep keeps up
//! with the writers and is hardly noticed when it has.
//!
//! A row that cannot be read is counted, logged and skipped.

mod expiry; // items whose time is over
mod versions; // versions that are older than the container keeps them

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quire_storage::{Direction, KeyRange, Scan};
use tracing::warn;

use super::{Interrupted, NextRound, Worker, WorkerRound, WorkerTask};
use crate::api::EngineError;
use crate::catalog::{Catalog, Container};
use crate::items::remove::{Removal, remove_invisible_items};
use crate::maintain;
use crate::runtime::Shared;
use crate::runtime::signals::Signal;
use crate::store::keys;
use expiry::{DefaultTtlPosition, OwnExpiryPosition};
use versions::VersionsSwept;

/// Between two rounds when there was nothing to do.
const INTERVAL: Duration = Duration::from_millis(500);
/// The longest rest after a turn.
const REST_MAX: Duration = Duration::from_millis(200);
/// Items removed in one turn of a container: their locks are held together.
const TURN_ITEMS: usize = 500;
/// Partitions commit one after the other: a container with several gets larger turns, up to so many times as large.
const TURN_PARTITIONS_MAX: usize = 4;
/// Items that were locked or refused and are tried again first. With more of them than this no new items are read.
const LATER_MAX: usize = 4 * TURN_ITEMS;
/// Unreadable rows of a container that are logged one by one.
const LOGGED_MAX: u64 = 10;

pub(crate) struct Sweep {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    removed: AtomicU64,
    skipped: AtomicU64,
    /// Of the last round: for how many seconds the oldest thing to remove has waited.
    lag_seconds: AtomicU64,
}

#[derive(Default)]
pub(crate) struct SweepMemory {
    containers: HashMap<u32, SweptContainer>,
    /// The clock of the last round, seconds.
    last_now: i64,
}

/// The positions of the sweep in a container, under a policy.
#[derive(Default)]
struct SweptContainer {
    policy: Option<SweepPolicy>,
    own: OwnExpiryPosition,
    default: DefaultTtlPosition,
    versions: VersionsSwept,
    /// Items that were locked, or whose removal was refused.
    later: Vec<u64>,
    skipped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SweepPolicy {
    default_ttl: Option<i32>,
    retention_minutes: Option<u32>,
}

/// What remains of a container after one sweep.
#[derive(Clone, Copy, Debug, Default)]
struct SweepRemainder {
    /// There is more that can be removed now.
    more: bool,
    /// For how many seconds the oldest of it has waited.
    lag_seconds: i64,
}

/// One turn of one container.
struct ContainerSweep<'a> {
    sweep: &'a Sweep,
    container: &'a Container,
    now: i64,
    /// Items that may still be removed in this turn.
    budget: usize,
}

impl Sweep {
    pub fn start(
        shared: Arc<Shared>,
        catalog: Arc<Catalog>,
        signal: Arc<Signal>,
    ) -> Result<Worker<Sweep>, EngineError> {
        let (removed, skipped, lag_seconds) = Default::default();
        Worker::start(Sweep { shared, catalog, removed, skipped, lag_seconds }, signal)
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("expired_items_removed", count(&self.removed)),
            ("sweep_rows_skipped", count(&self.skipped)),
            ("sweep_lag_seconds", count(&self.lag_seconds)),
        ]
    }

    fn sweep(
        &self,
        container: &Container,
        swept: &mut SweptContainer,
        now: i64,
    ) -> Result<SweepRemainder, Interrupted> {
        let policy = SweepPolicy {
            default_ttl: container.definition.default_ttl,
            retention_minutes: container.definition.change_feed_retention_minutes,
        };
        if swept.policy != Some(policy) {
            let skipped = swept.skipped;
            *swept = SweptContainer { policy: Some(policy), skipped, ..SweptContainer::default() };
        }
        let partitions = container.partitions.all().len().min(TURN_PARTITIONS_MAX);
        let mut round = ContainerSweep { sweep: self, container, now, budget: TURN_ITEMS * partitions };
        match round.run(swept) {
            // Deleted or split in the meantime, or its writers are many: another round comes.
            Err(Interrupted::Failed(
                EngineError::ResourceNotFound { .. }
                | EngineError::PartitionMoved
                | EngineError::Contended
                | EngineError::Overloaded,
            )) => Ok(SweepRemainder::default()),
            _ if container.partitions.is_retired() => Ok(SweepRemainder::default()),
            left => left,
        }
    }
}

impl ContainerSweep<'_> {
    fn run(&mut self, swept: &mut SweptContainer) -> Result<SweepRemainder, Interrupted> {
        let mut left = SweepRemainder::default();
        left.add(self.sweep_versions(&mut swept.versions)?);
        if !swept.later.is_empty() {
            let rids = std::mem::take(&mut swept.later);
            let removal = self.remove(&rids)?;
            self.finish(removal, swept);
        }
        if swept.later.len() >= LATER_MAX {
            return Ok(left);
        }
        if let Some(default) = self.container.definition.default_ttl {
            left.add(self.sweep_own(swept)?);
            if default > 0 {
                left.add(self.sweep_default(swept, default)?);
            }
        }
        Ok(left)
    }

    /// Removes those of the items that are still invisible once they are locked.
    fn remove(&mut self, rids: &[u64]) -> Result<Removal, Interrupted> {
        self.budget = self.budget.saturating_sub(rids.len());
        Ok(remove_items(&self.sweep.shared, self.container, rids)?)
    }

    /// Counts what expired, and remembers what could not be removed.
    fn finish(&self, removal: Removal, swept: &mut SweptContainer) {
        self.sweep.removed.fetch_add(removal.removed as u64, Ordering::Relaxed);
        swept.later.extend(removal.later);
        for (rid, error) in removal.unreadable {
            self.skip(swept, &format!("item {rid:x}"), &error);
        }
    }

    /// A row that cannot be read: it is passed over.
    fn skip(&self, swept: &mut SweptContainer, row: &str, error: &EngineError) {
        if self.container.partitions.is_retired() {
            return; // its rows are being removed
        }
        self.sweep.skipped.fetch_add(1, Ordering::Relaxed);
        swept.skipped += 1;
        if swept.skipped <= LOGGED_MAX {
            warn!(container = self.container.number, row, %error, "the sweep passes over a row that it cannot read");
        }
    }
}

impl WorkerTask for Sweep {
    const NAME: &'static str = "sweep";
    const DELAY: Duration = INTERVAL;
    type Memory = SweepMemory;

    fn round(&self, round: &WorkerRound<'_>, memory: &mut SweepMemory) -> Result<NextRound, Interrupted> {
        self.shared.result_cache.remove_idle();
        let state = self.catalog.state();
        let now = self.shared.now_checked();
        // A position that was reached under a later clock does not hold for an earlier one.
        if now < memory.last_now {
            memory.containers.clear();
        }
        memory.last_now = now;
        let is_there = |number: u32| state.containers().any(|other| other.number == number);
        if memory.containers.len() > state.containers().count() {
            memory.containers.retain(|container, _| is_there(*container));
        }
        round.retain_parts(|part| u32::try_from(part).is_ok_and(is_there));
        let mut all = SweepRemainder::default();
        // A closed container stays as the refactoring left it.
        for container in state.containers().filter(|container| !container.is_closed()) {
            round.check()?;
            let started = Instant::now();
            let swept = memory.containers.entry(container.number).or_default();
            let left = round.part(u64::from(container.number), || self.sweep(container, swept, now))?;
            let left = left.unwrap_or_default();
            all.add(left);
            if left.more || left.lag_seconds > 0 {
                round.sleep(rest_after(started.elapsed(), left.lag_seconds))?;
            }
        }
        self.lag_seconds.store(all.lag_seconds.max(0) as u64, Ordering::Relaxed);
        Ok(if all.more { NextRound::Now } else { NextRound::After(INTERVAL) })
    }
}

impl SweepRemainder {
    fn add(&mut self, other: SweepRemainder) {
        self.more |= other.more;
        self.lag_seconds = self.lag_seconds.max(other.lag_seconds);
    }
}

/// Removes those of the items that are still invisible once they are locked. Also for jobs that remove invisible items.
pub(super) fn remove_items(
    shared: &Shared,
    container: &Container,
    rids: &[u64],
) -> Result<Removal, EngineError> {
    match container.partitions.is_modelled() {
        true => maintain::remove::remove_invisible_items(shared, container, rids),
        false => remove_invisible_items(shared, container, rids),
    }
}

/// A fifth of the time when the sweep is as far as the clock, half of it when it is not, all of it when it stays behind.
pub(super) fn rest_after(round: Duration, lag_seconds: i64) -> Duration {
    let factor = match lag_seconds {
        ..=2 => 4,
        3..=30 => 1,
        _ => 0,
    };
    (factor * round).min(REST_MAX)
}

fn scan(range: KeyRange, rows_max: usize, keys_only: bool) -> Scan {
    let (space, direction) = (keys::FEEDS, Direction::Forward);
    Scan { space, range, direction, rows_max, bytes_max: usize::MAX, keys_only }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_are_shorter_the_longer_items_wait() {
        let round = Duration::from_millis(10);
        assert_eq!(rest_after(round, 0), 4 * round);
        assert_eq!(rest_after(round, 10), round);
        assert_eq!(rest_after(round, 31), Duration::ZERO);
        assert_eq!(rest_after(Duration::from_secs(9), 0), REST_MAX);
    }
}
