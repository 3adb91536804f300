//! Reading rows of a snapshot in pages.

use std::ops::Bound;

use quire_storage::{Direction, KeyRange, Scan, Snapshot, Space};

use super::keys;
use crate::api::EngineError;

const SCAN_ROWS_MAX: usize = 1000;

const SCAN_BYTES_MAX: usize = 4 << 20;

/// Every row under a prefix, in key order, in pages of one snapshot.
pub(crate) fn for_each_row(
    snapshot: &dyn Snapshot,
    space: Space,
    prefix: &[u8],
    mut row: impl FnMut(&[u8], &[u8]) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut range = KeyRange::prefix(prefix);
    loop {
        let page = snapshot.scan(&scan(space, range.clone()))?;
        for (key, value) in &page.rows {
            row(key, value)?;
        }
        match page.rows.into_iter().next_back() {
            Some((last, _)) if page.more => range.start = Bound::Excluded(last),
            _ => return Ok(()),
        }
    }
}

/// Rows of the latest feed of a partition behind an LSN.
pub(crate) fn latest_feed_scan(container: u32, partition: u32, after_lsn: u64, rows_max: usize) -> Scan {
    let range = KeyRange {
        start: Bound::Excluded(keys::latest(container, partition, after_lsn, u16::MAX)),
        end: Bound::Included(keys::latest(container, partition, u64::MAX, u16::MAX)),
    };
    Scan { rows_max, bytes_max: usize::MAX, ..scan(keys::FEEDS, range) }
}

/// One page of a range, forward, keys and values.
pub(crate) fn scan(space: Space, range: KeyRange) -> Scan {
    Scan {
        space,
        range,
        direction: Direction::Forward,
        rows_max: SCAN_ROWS_MAX,
        bytes_max: SCAN_BYTES_MAX,
        keys_only: false,
    }
}
