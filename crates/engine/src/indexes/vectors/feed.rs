//! Changes after a position: rows of the latest feed.

use std::ops::ControlFlow;

use quire_storage::Snapshot;

use crate::api::{EngineError, corrupt};
use crate::store::{PartitionLayout, keys, latest_feed_scan};

/// Some items that were written behind an LSN, each with its LSN: at least all of the first LSN there. Also whether there
/// are more. Of a partition that was split off, its parent's are among them.
pub(crate) fn changed_behind(
    snapshot: &dyn Snapshot,
    container: u32,
    layout: &PartitionLayout,
    lsn: u64,
    rows_max: usize,
) -> Result<(Vec<(u64, u64)>, bool), EngineError> {
    let mut rows_max = rows_max.max(2);
    loop {
        let (mut rows, mut more) = (Vec::new(), false);
        for source in layout.history() {
            // One row at least, to learn whether there are more.
            let left = rows_max.saturating_sub(rows.len()).max(1);
            more = read(snapshot, container, (source, lsn), left, &mut rows)?;
            if more {
                break;
            }
        }
        if !more {
            return Ok((rows, false));
        }
        // Of the last LSN there may be more rows than were read.
        let last = rows.last().map(|(lsn, _)| *lsn);
        let complete = rows.partition_point(|(lsn, _)| Some(*lsn) != last);
        if complete > 0 {
            rows.truncate(complete);
            return Ok((rows, true));
        }
        rows_max = rows_max.saturating_mul(4); // a transaction larger than what was read
    }
}

fn read(
    snapshot: &dyn Snapshot,
    container: u32,
    (partition, lsn): (u32, u64),
    rows_max: usize,
    rows: &mut Vec<(u64, u64)>,
) -> Result<bool, EngineError> {
    let scan = latest_feed_scan(container, partition, lsn, rows_max);
    let mut is_sound = true;
    let more = snapshot.visit(&scan, &mut |key, value| {
        let row = keys::lsn_of_feed_key(key).zip(keys::number(value));
        is_sound = row.is_some();
        rows.extend(row);
        if is_sound { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    if is_sound { Ok(more) } else { Err(corrupt("feed row")) }
}
