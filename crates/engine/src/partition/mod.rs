//! The partitions of a container, and how writes of a partition become durable in the order of their LSNs.

pub(crate) mod access; // who may write
pub(crate) mod child_ids; // counters of new items
pub(crate) mod deleted_keys; // partition keys whose items are gone and still have rows
pub(crate) mod sequencer; // one commit for all that wait, dense LSNs
mod set; // a container's partitions: ranges, positions, counts
pub(crate) mod sweep_due; // when something is to be removed, as writers know it
pub(crate) mod watch; // waiting for changes without a thread
pub(crate) mod write_rules; // what a write depends on, switched online

pub(crate) use set::{Partition, PartitionSet};
