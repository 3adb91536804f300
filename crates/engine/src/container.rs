//! An open container: what the catalog says about it, and the partitions that hold its items.

use std::sync::Arc;

use quire_resource::{ContainerDefinition, PartitionKey};

use crate::api::{PartitionInfo, Position, Resource};
use crate::partition::PartitionSet;

/// An open container: definition, partitions, sequencers. Cheap to clone, valid until the container is deleted.
///
/// A replaced definition makes a new `Container` that shares the old one's [`PartitionSet`].
pub struct Container {
    pub resource: Arc<Resource>,
    pub definition: ContainerDefinition,
    pub database: Arc<Resource>,
    pub(crate) number: u32,
    /// Also knows whether the container was deleted: see [`PartitionSet::retire`].
    pub(crate) partitions: Arc<PartitionSet>,
}

impl Container {
    pub fn partitions(&self) -> Vec<PartitionInfo> {
        todo!()
    }
    /// Changes whenever the set of partitions does: the etag of the pkranges feed, with quotes.
    pub fn partitions_etag(&self) -> String {
        todo!()
    }
    /// Where the partition of a key stands (complete key), for headers.
    pub fn position_of(&self, _key: &PartitionKey) -> Option<Position> {
        todo!()
    }
    /// All partitions' positions: the compound session token of container-wide answers.
    pub fn positions(&self) -> Vec<Position> {
        todo!()
    }
    /// Live items and their bytes (for quota headers and statistics).
    pub fn usage(&self) -> (u64, u64) {
        todo!()
    }
}
