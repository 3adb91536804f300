//! One budget for all caches in memory, and its parts.
//!
//! | part      | what                                                                 | bytes                     |
//! |-----------|----------------------------------------------------------------------|---------------------------|
//! | `paths`   | paths of items with their index ids (`indexes::set`), all containers | 1/32, at least 1 MB       |
//! | `changes` | when logical partitions last changed (`sequencer`), all partitions   | 1/64, at least 512 KB     |
//! | `queries` | parsed texts of queries (`syntax_cache`)                             | 1/128, at least 256 KB    |
//! | `prepared` | compiled queries of containers (`prepared_queries`)                 | 1/128, at least 256 KB    |
//! | `ids`     | child ids by id rows (`item_ids`)                                    | 1/64                      |
//! | `items`   | items of point reads (`item_cache`)                                  | a third of the rest       |
//! | `scans`   | item rows for scans and fetches (`row_spans`)                        | two thirds of the rest    |
//!
//! No request fails because a part is full: the cache holds less, and the work is done again. What an open container
//! needs (its definition, the state of its partitions, counts of its indexes) is no cache: about 30 KB for a container with
//! a few items, counted by `tests/memory.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Enough for the busiest containers when the total is small.
const SMALL_PART_MIN: usize = 1 << 20;
const SMALL_PART_SHARE: usize = 32;
const ID_PART_SHARE: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheBudget {
    pub paths: usize,
    pub changes: usize,
    pub queries: usize,
    pub prepared: usize,
    pub ids: usize,
    pub items: usize,
    pub scans: usize,
}

impl CacheBudget {
    pub fn new(total_bytes: usize) -> CacheBudget {
        let small = (total_bytes / SMALL_PART_SHARE).max(SMALL_PART_MIN);
        let ids = total_bytes.saturating_sub(2 * small) / ID_PART_SHARE;
        let rest = total_bytes.saturating_sub(2 * small + ids);
        let third = rest / 3;
        let queries = small / 4;
        CacheBudget {
            paths: small,
            changes: small - 2 * queries,
            queries,
            prepared: queries,
            ids,
            items: third,
            scans: 2 * third,
        }
    }

    pub fn total(&self) -> usize {
        self.paths + self.changes + self.queries + self.prepared + self.ids + self.items + self.scans
    }
}

/// Bytes of one part that many owners share.
#[derive(Debug)]
pub(crate) struct SharedBudget {
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl SharedBudget {
    pub fn new(bytes_max: usize) -> SharedBudget {
        SharedBudget { bytes: AtomicUsize::new(0), bytes_max }
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn is_full(&self) -> bool {
        self.bytes() >= self.bytes_max
    }

    pub fn take(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_no_more_than_the_whole() {
        for total in [2 << 20, 3 << 20, 64 << 20, 512 << 20, 8 << 30] {
            let budget = CacheBudget::new(total);
            assert!(budget.total() <= total && budget.total() + 4 > total, "{budget:?} of {total}");
        }
        assert_eq!(CacheBudget::new(0).items, 0);
    }
}
