//! Automatic splits: when a container's throughput requires more partitions than it has, or a partition is too large.
//! They run as jobs, one per container at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::info;

use super::Splitter;
use super::job::{self, SplitRequests, SplitTrigger};
use crate::api::EngineError;
use crate::background::{Interrupted, NextRound, Worker, WorkerRound, WorkerTask};
use crate::catalog::Container;
use crate::partition::Partition;
use crate::runtime::signals::Signal;

/// Between two checks of all containers.
const INTERVAL: Duration = Duration::from_millis(500);
/// The largest partition of the service.
const PARTITION_BYTES_MAX: u64 = 50 << 30;
/// Beyond this throughput of a partition, the container gets more of them.
const PARTITION_THROUGHPUT: u32 = 10_000;
/// A partition that could not be split is tried again after this, twice as long each time.
const RETRY_SECONDS_MIN: i64 = 10;
const RETRY_SECONDS_MAX: i64 = 3600;
/// It has changed when more was written to it than this part of its items.
const CHANGED_SHARE: u64 = 10;
/// More are not made by themselves, whatever the throughput.
const PARTITIONS_MAX: usize = 1000;

pub(crate) struct Splits {
    pub(super) splitter: Splitter,
    partition_bytes_max: AtomicU64,
    done: AtomicU64,
    tries: AtomicU64,
    failed: Mutex<FailedSplits>,
    pub(super) requests: SplitRequests,
    pub(super) signal: Arc<Signal>,
}

/// Why a partition that ought to be split is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotSplit {
    pub reason: &'static str,
    /// When it was last tried, epoch seconds.
    pub tried_at: i64,
    /// Not before this, and not before the partition has changed.
    pub again_at: i64,
    tries: u32,
    /// Where the partition stood.
    lsn: u64,
    items: u64,
}

/// By container and partition.
type FailedSplits = HashMap<(u32, u32), CannotSplit>;

impl Splits {
    pub fn start(splitter: Splitter) -> Result<Worker<Splits>, EngineError> {
        let (done, tries, failed_splits, requests) = Default::default();
        let partition_bytes_max = AtomicU64::new(PARTITION_BYTES_MAX);
        let signal = Arc::<Signal>::default();
        let splits = Splits {
            splitter,
            partition_bytes_max,
            done,
            tries,
            failed: failed_splits,
            requests,
            signal: Arc::clone(&signal),
        };
        Worker::start(splits, signal)
    }

    /// A partition with more bytes of items than this is split.
    pub fn set_partition_bytes_max(&self, bytes: u64) {
        self.partition_bytes_max.store(bytes, Ordering::Relaxed);
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("automatic_splits", self.done.load(Ordering::Relaxed)),
            ("automatic_split_tries", self.tries.load(Ordering::Relaxed)),
            ("partitions_not_splittable", self.failed.lock().len() as u64),
        ]
    }

    /// Why a partition was not split when it was last tried.
    pub fn cannot_split(&self, container: &Container, partition: u32) -> Option<CannotSplit> {
        self.failed.lock().get(&(container.number, partition)).cloned()
    }

    /// Makes a job for the partition to split next, unless the container has one.
    fn check_container(&self, container: &Arc<Container>, has_job: bool) -> Result<(), EngineError> {
        if has_job {
            return Ok(());
        }
        match self.next(container)? {
            Some(id) => {
                self.splitter.shared.jobs.create(job::new_job(container, id, SplitTrigger::Server)).map(drop)
            }
            None => Ok(()),
        }
    }

    /// A split by the server itself has been tried.
    pub(super) fn set_split_outcome(
        &self,
        container: &Container,
        id: u32,
        outcome: &Result<[u32; 2], EngineError>,
    ) -> Result<(), EngineError> {
        self.tries.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Ok(_) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                self.failed.lock().remove(&(container.number, id));
                // It may need more than two.
                self.signal.wake();
                Ok(())
            }
            Err(EngineError::CannotSplit { reason, .. }) => self.add_failed_split(container, id, reason),
            Err(_) => Ok(()),
        }
    }

    /// Looking for a boundary reads the whole partition, so the next time is later each time.
    fn add_failed_split(
        &self,
        container: &Container,
        id: u32,
        reason: &'static str,
    ) -> Result<(), EngineError> {
        let partition = container.partitions.all().iter().find(|partition| partition.layout.id == id);
        let Some(partition) = partition else { return Ok(()) };
        let (lsn, (items, _)) = (partition.sequencer.lsn()?, partition.sequencer.usage()?);
        let tried_at = self.splitter.shared.now_seconds();
        let mut failed_splits = self.failed.lock();
        let place = (container.number, id);
        let tries = failed_splits.get(&place).map_or(0, |before| before.tries) + 1;
        let wait = (RETRY_SECONDS_MIN << (tries - 1).min(16)).min(RETRY_SECONDS_MAX);
        if tries == 1 {
            info!(
                container = container.number,
                partition = id,
                reason,
                "a partition that is too large is not split"
            );
        }
        let again_at = tried_at + wait;
        failed_splits.insert(place, CannotSplit { reason, tried_at, again_at, tries, lsn, items });
        Ok(())
    }

    /// The partition of a container to split now.
    fn next(&self, container: &Container) -> Result<Option<u32>, EngineError> {
        let partitions = container.partitions.all();
        let throughput = self.splitter.catalog.throughput_of(container);
        // The throughput of a database is shared by its containers.
        let throughput = throughput.filter(|(_, _, is_shared)| !is_shared).map_or(0, |(_, most, _)| most);
        let wanted = (throughput.div_ceil(PARTITION_THROUGHPUT) as usize).min(PARTITIONS_MAX);
        let bytes_max = self.partition_bytes_max.load(Ordering::Relaxed);
        let is_short = partitions.len() < wanted;
        let mut largest: Option<(u64, u32)> = None;
        for partition in partitions {
            // A container that was not used since the start has not grown, and is not read for this.
            if !is_short && partition.sequencer.cached_lsn().is_none() {
                continue;
            }
            let (_, bytes) = partition.sequencer.usage()?;
            let is_wanted = is_short || bytes > bytes_max;
            if is_wanted && self.may_try(container, partition)? {
                largest = largest.max(Some((bytes, partition.layout.id)));
            }
        }
        Ok(largest.map(|(_, id)| id))
    }

    fn may_try(&self, container: &Container, partition: &Partition) -> Result<bool, EngineError> {
        let Some(before) = self.cannot_split(container, partition.layout.id) else { return Ok(true) };
        let now = self.splitter.shared.now_seconds();
        let written = partition.sequencer.lsn()?.saturating_sub(before.lsn);
        let has_changed = written > before.items / CHANGED_SHARE;
        Ok(has_changed && (now >= before.again_at || now < before.tried_at))
    }
}

impl WorkerTask for Splits {
    const NAME: &'static str = "split";
    const DELAY: Duration = INTERVAL;
    type Memory = ();

    fn round(&self, round: &WorkerRound<'_>, (): &mut ()) -> Result<NextRound, Interrupted> {
        let state = self.splitter.catalog.state();
        let is_there = |number: u32| state.containers().any(|other| other.number == number);
        self.failed.lock().retain(|(container, _), _| is_there(*container));
        round.retain_parts(|part| u32::try_from(part).is_ok_and(is_there));
        let with_job = job::containers_with_jobs(&self.splitter.shared.jobs);
        for container in state.containers() {
            let has_job = with_job.contains(&container.number);
            round.part(u64::from(container.number), || Ok(self.check_container(container, has_job)?))?;
        }
        Ok(NextRound::After(INTERVAL))
    }
}
