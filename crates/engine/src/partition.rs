//! A container's partitions: ranges, positions, counts.

use std::sync::Arc;

use quire_resource::{ContainerDefinition, EpkRange, ResourceId};

use crate::EngineError;
use crate::shared::Shared;

/// One partition as the container's catalog row keeps it. The ranges of a container's layouts tile the key space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionLayout {
    pub id: u32,
    pub range: EpkRange,
    /// Partitions this one was split from, oldest first.
    pub parents: Vec<u32>,
}

/// A container's partitions with their sequencers. One per container for as long as the engine is open, whatever
/// happens to the definition.
pub(crate) struct PartitionSet {}

impl PartitionSet {
    /// Reads nothing: a partition looks up where it stands when it is first used.
    pub fn open(
        _shared: &Arc<Shared>,
        _container_number: u32,
        _rid: ResourceId,
        _definition: &ContainerDefinition,
        _layout: &[PartitionLayout],
    ) -> Result<PartitionSet, EngineError> {
        todo!()
    }

    /// The container is being deleted: returns when no write is under way, and refuses all later ones with
    /// `ResourceNotFound`. Call it before the commit that drops the container.
    pub fn retire(&self) {
        todo!()
    }

    /// That commit failed: takes writes again.
    pub fn revive(&self) {
        todo!()
    }
}
