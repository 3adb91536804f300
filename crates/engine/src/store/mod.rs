//! How rows reach the storage: their keys, their values, and the storage as the engine sees it.

mod commit; // guarded commits outside of a partition's sequence
mod definition; // definitions of containers
mod etag; // the text of ETags
pub(crate) mod item_row; // the value of an item's row
pub(crate) mod journal; // what items had before a refactoring
pub(crate) mod keys; // every key and value form in the storage
pub(crate) mod latest_time; // the latest time that was seen
mod layout; // the partitions of a container
pub(crate) mod open_refactorings; // containers that are being refactored
mod random; // tokens of commits
mod scan; // pages of rows
pub(crate) mod sealed; // rows with a checksum
mod sequence; // guarded commits of one writer at a time
mod system_properties; // properties of items that the engine sets
pub(crate) mod version_row; // the value of a row in the log of all versions
pub(crate) mod watched; // a storage that records which items are written
mod watchers; // wakers for the next change

pub(crate) use commit::{CommitOutcome, guarded_commit, send};
pub(crate) use definition::stored_definition;
pub(crate) use layout::{PartitionLayout, check_tiling, lineage};
pub(crate) use random::{fill_random, random_token};
pub(crate) use scan::{for_each_row, latest_feed_scan, scan};
pub(crate) use sequence::Sequence;
pub(crate) use system_properties::{SYSTEM_PROPERTIES, is_system_property};
pub(crate) use watchers::Watchers;
