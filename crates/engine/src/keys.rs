//! Every key and value form in the storage: the only place that decides them.

use quire_storage::{PartitionId, Space};

/// Catalog resources, counters, partition counts, jobs, secret, incarnation.
pub(crate) const CATALOG: Space = Space(0);
pub(crate) const ITEMS: Space = Space(1);
/// Id rows and unique rows.
pub(crate) const LOOKUPS: Space = Space(2);
/// Index rows.
pub(crate) const INDEX: Space = Space(3);
/// Latest feed rows and expiry rows.
pub(crate) const FEEDS: Space = Space(4);

/// Spaces whose keys all begin with a container number, so that a container is emptied by prefix.
pub(crate) const CONTAINER_SPACES: [Space; 4] = [ITEMS, LOOKUPS, INDEX, FEEDS];

/// First byte of the keys in [`CATALOG`] that belong to partitions and containers' counters; the catalog's own keys
/// begin with other bytes.
pub(crate) const CATALOG_COUNTS: u8 = 0xC0;
pub(crate) const CATALOG_RID_COUNTER: u8 = 0xC1;

/// The guarded sequence of commits of the catalog itself.
pub(crate) const CATALOG_PARTITION: PartitionId = PartitionId(0);

/// Every container-owned key begins with this.
pub(crate) fn container_prefix(container: u32) -> [u8; 4] {
    container.to_be_bytes()
}

/// The guarded sequence of commits of one partition of a container. Container numbers start at 1.
pub(crate) fn partition_id(container: u32, partition: u32) -> PartitionId {
    PartitionId(u64::from(container) << 32 | u64::from(partition))
}

// ---- catalog keys (owned by the catalog)

/// Everything a container has in the storage: its rows by prefix, its counts and its rid counter.
pub(crate) fn container_ranges(container: u32) -> Vec<(Space, Vec<u8>)> {
    let prefix = container_prefix(container);
    let counters = [CATALOG_COUNTS, CATALOG_RID_COUNTER].map(|tag| (CATALOG, [&[tag], &prefix[..]].concat()));
    CONTAINER_SPACES.into_iter().map(|space| (space, prefix.to_vec())).chain(counters).collect()
}

/// The guarded sequence of the commits that empty a deleted container; no partition has this id.
pub(crate) fn reclaim_sequence(container: u32) -> PartitionId {
    partition_id(container, u32::MAX)
}
