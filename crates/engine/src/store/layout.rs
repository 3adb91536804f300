//! The partitions of a container, as its catalog row stores them.

use std::collections::BTreeSet;

use quire_resource::EpkRange;

use crate::api::{EngineError, corrupt};

/// One partition as the container's catalog row keeps it. The ranges of a container's layouts tile the key space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionLayout {
    pub id: u32,
    pub range: EpkRange,
    /// Partitions this one was split from, oldest first.
    pub parents: Vec<u32>,
}

impl PartitionLayout {
    /// The partition and those it comes from, oldest first: where its feed rows can be, in the order of their LSNs.
    pub fn history(&self) -> impl Iterator<Item = u32> {
        self.parents.iter().copied().chain([self.id])
    }

    /// Whether it is the partition or comes from it.
    pub fn descends_from(&self, partition: u32) -> bool {
        self.id == partition || self.parents.contains(&partition)
    }
}

/// All partitions of a layout, and all those they come from, each once.
pub(crate) fn lineage<'a>(layout: impl IntoIterator<Item = &'a PartitionLayout>) -> Vec<u32> {
    let ids = layout.into_iter().flat_map(|layout| layout.parents.iter().chain([&layout.id]));
    ids.copied().collect::<BTreeSet<u32>>().into_iter().collect()
}

/// The ranges of a container's partitions cover the key space, and none overlaps another.
pub(crate) fn check_tiling(layout: &[PartitionLayout]) -> Result<(), EngineError> {
    let mut ranges: Vec<&EpkRange> = layout.iter().map(|partition| &partition.range).collect();
    ranges.sort_by(|a, b| a.min.cmp(&b.min));
    let full = EpkRange::full();
    let ends = ranges.first().map(|range| &range.min) == Some(&full.min)
        && ranges.last().map(|range| &range.max) == Some(&full.max);
    if ends && ranges.windows(2).all(|pair| pair[0].max == pair[1].min) {
        return Ok(());
    }
    Err(corrupt("partitions that do not cover the key space"))
}
