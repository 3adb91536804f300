//! The partitions of a container, and their sequencers, which make writes durable in the order of LSNs.

pub(crate) mod access; // whether a container takes writes
pub(crate) mod child_ids; // counters of new items
pub(crate) mod deleted_keys; // deleted partition keys whose items still have rows
pub(crate) mod sequencer; // group commit of a partition, dense LSNs
mod set; // a container's partitions: ranges, positions, counts
pub(crate) mod sweep_due; // when items or versions have to be removed
pub(crate) mod watch; // waiting for changes without a thread
pub(crate) mod write_rules; // what a write depends on, switched online

pub(crate) use set::{Partition, PartitionSet};
