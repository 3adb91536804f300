//! Request charges: one table, fitted to the published examples, the same for the same work.
//!
//! s is the item's compact JSON in KB, at least 1; x the number of its values that the policy indexes; p the
//! partitions a page touched.
//!
//! | work                            | request units                                                           |
//! |---------------------------------|-------------------------------------------------------------------------|
//! | read                            | 1 + 0.091 (s - 1)                                                       |
//! | create, delete                  | 5 + 0.455 (s - 1) + 0.35 x                                              |
//! | replace, upsert of an existing  | twice the create                                                        |
//! | page of a list or query         | 2.5 p + 0.065 loaded + 0.001 index rows + 0.1 returned + 0.3 per MB returned |
//! | call of a user-defined function | 0.01, as a part of its page                                             |
//! | item that is followed           | its read, as a part of its page or read; 1 for one that is not there     |
//! | run of a procedure or trigger   | 1, and what its reads, pages and writes cost by themselves               |
//! | refused, not found, not modified | 1                                                                      |

use std::time::Duration;

/// Looking and finding that there is nothing to do.
pub(crate) const REFUSED: f64 = 1.0;

const READ: f64 = 1.0;
const READ_PER_KB: f64 = 0.091;
const WRITE: f64 = 5.0;
const WRITE_PER_KB: f64 = 0.455;
const WRITE_PER_VALUE: f64 = 0.35;
const REPLACE_FACTOR: f64 = 2.0;
const PAGE_PER_PARTITION: f64 = 2.5;
const PAGE_PER_LOADED: f64 = 0.065;
const PAGE_PER_INDEX_ROW: f64 = 0.001;
const PAGE_PER_RETURNED: f64 = 0.1;
const PAGE_PER_MB: f64 = 0.3;
const PAGE_PER_CALL: f64 = 0.01;
/// One run of a procedure or trigger; what it asks of the database comes on top.
pub(crate) const SCRIPT: f64 = 1.0;

/// What a page followed along links.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FollowCost {
    /// Blocks of items whose links were examined together.
    pub blocks: u64,
    /// What was looked up, and the items that were there.
    pub keys: u64,
    pub items: u64,
    pub charge: f64,
    /// Items that the rows of the page have.
    pub sent: u64,
}

/// What a page read, for metrics and charge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageCost {
    pub partitions: usize,
    pub items: u64,
    pub bytes: u64,
    pub matched: u64,
    pub index_rows: u64,
    /// Of user-defined functions.
    pub calls: u64,
    /// Items of other containers.
    pub follow: FollowCost,
    pub compile: Duration,
    pub plan: Duration,
    pub index: Duration,
    pub load: Duration,
}

pub(crate) fn read(json_bytes: usize) -> f64 {
    rounded(READ + READ_PER_KB * (kilobytes(json_bytes) - 1.0))
}

/// Create or delete.
pub(crate) fn write(json_bytes: usize, indexed_values: usize) -> f64 {
    let size = WRITE_PER_KB * (kilobytes(json_bytes) - 1.0);
    rounded(WRITE + size + WRITE_PER_VALUE * indexed_values as f64)
}

pub(crate) fn replace(json_bytes: usize, indexed_values: usize) -> f64 {
    rounded(REPLACE_FACTOR * write(json_bytes, indexed_values))
}

pub(crate) fn page(cost: &PageCost, returned: usize, bytes_returned: usize) -> f64 {
    let megabytes = bytes_returned as f64 / f64::from(1 << 20);
    let read = loaded(cost.items) + PAGE_PER_INDEX_ROW * cost.index_rows as f64;
    let partitions = partitions(cost.partitions);
    let calls = PAGE_PER_CALL * cost.calls as f64;
    let returned = PAGE_PER_RETURNED * returned as f64 + PAGE_PER_MB * megabytes;
    rounded(partitions + read + calls + cost.follow.charge + returned)
}

/// Items that a page reads.
pub(crate) fn loaded(items: u64) -> f64 {
    PAGE_PER_LOADED * items as f64
}

/// Partitions that a page asks.
pub(crate) fn partitions(count: usize) -> f64 {
    PAGE_PER_PARTITION * count.max(1) as f64
}

fn kilobytes(bytes: usize) -> f64 {
    (bytes as f64 / 1024.0).max(1.0)
}

/// Clients are shown hundredths.
pub(crate) fn rounded(charge: f64) -> f64 {
    (charge * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published examples that the table was fitted to.
    #[test]
    fn published_examples() {
        assert_eq!(read(1024), 1.0);
        assert_eq!(read(100 * 1024), 10.01);
        assert_eq!(write(100, 2), 5.7);
        assert_eq!(write(100, 5), 6.75);
        assert_eq!(write(100 * 1024, 0), 50.05);
        assert_eq!(replace(100, 0), 10.0);
        let cost = |items| PageCost { partitions: 1, items, ..PageCost::default() };
        assert_eq!(page(&cost(100), 100, 10_000).round(), 19.0);
        assert_eq!(page(&cost(0), 0, 2), 2.5);
        assert!((page(&cost(60_951), 7, 50_000) - 3_965.0).abs() < 2.0);
    }
}
