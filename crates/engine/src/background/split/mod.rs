//! Splits a partition into two, while it is read and written.
//!
//! Rows of items are found by container and child id, so none of them moves. What a split makes is the new layout, and the
//! exact counts of the children: they are counted beside the writers, brought up to date in rounds, and once more with
//! the writers held. Then one commit has the container's row, the children's counts and the guards of all three
//! partitions, so a crash leaves the partition whole or divided. Feed rows stay with the parent: see `partition`.

mod auto; // when a container needs more partitions
mod boundary; // where a partition is divided
mod count; // what lies on either side
mod job; // splits as jobs

pub use auto::CannotSplit;
pub(crate) use auto::Splits;
pub(crate) use job::SplitJobs;

use std::sync::Arc;

use tracing::info;

use self::boundary::find_boundary;
use self::count::SplitCount;
use crate::api::EngineError;
use crate::catalog::containers::SplitRequest;
use crate::catalog::{Catalog, Container};
use crate::partition::Partition;
use crate::runtime::Shared;
use crate::store::watched::{TouchLog, WatchedStorage};

/// A round that found no more than this is the last before the writers are held.
const ROUND_SMALL: usize = 1000;
/// Writers that stay ahead are held a little longer instead.
const ROUNDS_MAX: usize = 8;

pub(crate) struct Splitter {
    pub shared: Arc<Shared>,
    pub catalog: Arc<Catalog>,
    pub watched: Arc<WatchedStorage>,
}

/// Forgets what it watched when it is dropped.
struct TouchWatch<'a> {
    watched: &'a WatchedStorage,
    log: Arc<TouchLog>,
}

impl Splitter {
    /// Divides a partition; the ids of its children.
    pub fn split(&self, container: &Container, id: &str) -> Result<[u32; 2], EngineError> {
        let partition = container.partitions.all().iter().find(|partition| *partition.name == *id);
        let partition = partition.ok_or_else(|| EngineError::PartitionGone { id: id.to_owned() })?;
        self.check_possible()?;
        let children = self.divide(container, partition)?;
        info!(container = container.number, partition = id, ?children, "partition split");
        Ok(children)
    }

    pub fn check_possible(&self) -> Result<(), EngineError> {
        match self.shared.storage.caps().commit_spans_partitions {
            true => Ok(()),
            false => Err(EngineError::NotSupported { feature: "a split on this storage".to_owned() }),
        }
    }

    fn divide(&self, container: &Container, partition: &Partition) -> Result<[u32; 2], EngineError> {
        let boundary = find_boundary(&self.shared, container, partition)?;
        // From before the first snapshot.
        let watch = TouchWatch { watched: &self.watched, log: self.watched.watch(container.number) };
        // A commit from before the watch with an unknown outcome must not become visible after that snapshot.
        partition.sequencer.wait_for_barrier()?;
        let mut counting = SplitCount::new(&self.shared, container, partition, &boundary, &watch.log)?;
        counting.count_all()?;
        for _ in 0..ROUNDS_MAX {
            if counting.catch_up()? <= ROUND_SMALL {
                break;
            }
        }
        let split = SplitRequest { partition, boundary: &boundary };
        self.catalog.split_partition(container, split, |counts| {
            counting.catch_up()?;
            counting.finish(counts)
        })
    }
}

impl Drop for TouchWatch<'_> {
    fn drop(&mut self) {
        self.watched.unwatch(&self.log);
    }
}
