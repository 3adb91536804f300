//! Reading across links: items of other containers, in the snapshot of a page or point read.
//!
//! Items are asked for by what references name ([`Lookup`]). A page collects what the items of a block need
//! ([`PageLinks::prefetch`]) and reads it together: one read of all keys, one of all items. What was not prefetched is read alone,
//! so prefetching changes what a page costs and nothing else.
//! Expired items and those of deleted partition keys are no targets and no referrers.

mod branches; // chains of links as a tree
mod followed_item; // an item of another container
mod from_cache; // point reads, made of answers that are kept
mod link_containers; // the containers that links name, and what of them is visible
mod member; // the member of items that says what follows from them
mod page_links; // what a page follows
mod point; // point reads
mod read; // from lookups to items
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests;

pub(crate) use from_cache::{NotCached, read_from_cache};
pub(crate) use member::followed_in;
pub(crate) use page_links::PageLinks;
pub(crate) use point::read_item_followed;

/// Items that one answer follows at most, and their JSON.
pub(crate) const ITEMS_MAX: u64 = 1_000;
pub(crate) const BYTES_MAX: u64 = 4 << 20;
/// Items of which a page looks at the links together.
pub(crate) const BLOCK_ITEMS: usize = 100;
