//! Splits that nobody asked for: when a container's throughput stands for more partitions than it has, or a partition has
//! grown too large. One at a time, in the background.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tracing::debug;

use super::Splitter;
use crate::background::{Interrupted, Next, Turn, Work, Worker};
use crate::partition::Partition;
use crate::{Container, EngineError};

/// Between two looks at all containers.
const INTERVAL: Duration = Duration::from_millis(500);
/// What the service lets a partition hold.
const PARTITION_BYTES_MAX: u64 = 50 << 30;
/// Throughput of one partition.
pub(crate) const PARTITION_THROUGHPUT: u32 = 10_000;
/// More are not made by themselves, whatever the throughput.
const PARTITIONS_MAX: usize = 1000;

pub(crate) struct Splits {
    splitter: Splitter,
    partition_bytes_max: AtomicU64,
    done: AtomicU64,
}

/// Items of partitions that could not be split: they are tried again when they have others.
type GivenUp = HashMap<(u32, u32), u64>;

impl Splits {
    pub fn start(splitter: Splitter) -> Result<Worker<Splits>, EngineError> {
        let (partition_bytes_max, done) = (AtomicU64::new(PARTITION_BYTES_MAX), AtomicU64::new(0));
        Worker::start(Splits { splitter, partition_bytes_max, done }, Arc::default())
    }

    pub fn splitter(&self) -> &Splitter {
        &self.splitter
    }

    /// A partition with more bytes of items than this is split.
    pub fn set_partition_bytes_max(&self, bytes: u64) {
        self.partition_bytes_max.store(bytes, Ordering::Relaxed);
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        vec![("automatic_splits", self.done.load(Ordering::Relaxed))]
    }

    /// Splits partitions of a container until it needs no more.
    fn split(
        &self,
        container: &Arc<Container>,
        turn: &Turn<'_>,
        given_up: &mut GivenUp,
    ) -> Result<(), Interrupted> {
        let mut container = Arc::clone(container);
        while let Some((id, items)) = self.next(&container, given_up)? {
            turn.check()?;
            match self.splitter.split(&container, &id.to_string()) {
                Ok(_) => drop(self.done.fetch_add(1, Ordering::Relaxed)),
                Err(error @ EngineError::CannotSplit { .. }) => {
                    debug!(container = container.number, %error, "not split");
                    given_up.insert((container.number, id), items);
                }
                // Deleted, or split by someone else.
                Err(
                    EngineError::PartitionMoved
                    | EngineError::PartitionGone { .. }
                    | EngineError::ResourceNotFound { .. },
                ) => {}
                Err(error) => return Err(error.into()),
            }
            match self.splitter.catalog.current(&container) {
                Some(current) => container = current,
                None => break,
            }
        }
        Ok(())
    }

    /// The partition of a container to split now, and how many items it has.
    fn next(&self, container: &Container, given_up: &GivenUp) -> Result<Option<(u32, u64)>, EngineError> {
        let partitions = container.partitions.all();
        let throughput = self.splitter.catalog.throughput_of(container);
        // What a database has is shared by its containers.
        let throughput = throughput.filter(|(_, _, is_shared)| !is_shared).map_or(0, |(_, most, _)| most);
        let wanted = (throughput.div_ceil(PARTITION_THROUGHPUT) as usize).min(PARTITIONS_MAX);
        let bytes_max = self.partition_bytes_max.load(Ordering::Relaxed);
        let is_short = partitions.len() < wanted;
        let mut largest: Option<(u64, u64, u32)> = None;
        for partition in partitions {
            // One that nobody has used since the start has not grown, and is not read for this.
            if !is_short && partition.sequencer.lsn_known().is_none() {
                continue;
            }
            let (items, bytes) = partition.sequencer.usage()?;
            let is_wanted = is_short || bytes > bytes_max;
            if is_wanted && !is_given_up(container, partition, items, given_up) {
                largest = largest.max(Some((bytes, items, partition.layout.id)));
            }
        }
        Ok(largest.map(|(_, items, id)| (id, items)))
    }
}

impl Work for Splits {
    const NAME: &'static str = "split";
    type Memory = GivenUp;

    fn round(&self, turn: &Turn<'_>, given_up: &mut GivenUp) -> Result<Next, Interrupted> {
        let state = self.splitter.catalog.state();
        let is_there = |number: u32| state.containers().any(|other| other.number == number);
        given_up.retain(|(container, _), _| is_there(*container));
        turn.retain_parts(|part| u32::try_from(part).is_ok_and(is_there));
        for container in state.containers() {
            turn.part(u64::from(container.number), || self.split(container, turn, given_up))?;
        }
        Ok(Next::After(INTERVAL))
    }
}

fn is_given_up(container: &Container, partition: &Partition, items: u64, given_up: &GivenUp) -> bool {
    given_up.get(&(container.number, partition.layout.id)) == Some(&items)
}
