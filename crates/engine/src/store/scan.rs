//! Reading rows of a snapshot in pages.

use std::ops::Bound;

use quire_storage::{Direction, KeyRange, Scan, Snapshot, Space};

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
