//! One budget for what the engine keeps in memory only to be faster, and who has which part of it.
//!
//! | part      | what                                                                 | bytes                     |
//! |-----------|----------------------------------------------------------------------|---------------------------|
//! | `paths`   | paths of items with their index ids (`indexes::set`), all containers | 1/32, at least 1 MB       |
//! | `changes` | when logical partitions last changed (`sequencer`), all partitions   | 1/32, at least 1 MB       |
//! | `answers` | ready answers of point reads (`cache`)                               | a third of the rest       |
//! | `scans`   | items for scans and fetches (`stretches`)                            | two thirds of the rest    |
//!
//! None of them fails when its part is full: less is kept, and the work is done again. What a container needs to be open at all
//! (its definition, where its partitions stand, counts of its indexes) is no cache: some 30 KB for a container with
//! a few items, counted by `tests/memory.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Room for the busiest containers where hardly any memory is given.
const SMALL_PART_MIN: usize = 1 << 20;
const SMALL_PART_SHARE: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheBudget {
    pub paths: usize,
    pub changes: usize,
    pub answers: usize,
    pub scans: usize,
}

impl CacheBudget {
    pub fn new(total_bytes: usize) -> CacheBudget {
        let small = (total_bytes / SMALL_PART_SHARE).max(SMALL_PART_MIN);
        let rest = total_bytes.saturating_sub(2 * small);
        let third = rest / 3;
        CacheBudget { paths: small, changes: small, answers: third, scans: 2 * third }
    }

    pub fn total(&self) -> usize {
        self.paths + self.changes + self.answers + self.scans
    }
}

/// Bytes of one part that many owners take together.
#[derive(Debug)]
pub(crate) struct SharedPart {
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl SharedPart {
    pub fn new(bytes_max: usize) -> SharedPart {
        SharedPart { bytes: AtomicUsize::new(0), bytes_max }
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

    pub fn give_back(&self, bytes: usize) {
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
        assert_eq!(CacheBudget::new(0).answers, 0);
    }
}
