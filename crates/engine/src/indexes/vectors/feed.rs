//! What has changed behind a position: rows of the feed of latest versions.

use std::ops::{Bound, ControlFlow};

use quire_storage::{Direction, KeyRange, Scan, Snapshot};

use crate::api::{EngineError, corrupt};
use crate::partition::Partition;
use crate::store::keys::{self, FEEDS};

/// Some items that were written behind an LSN, each with its LSN: at least all of the first LSN there. Also whether there
/// are more. Of a partition that was split off, its parent's are among them.
pub(crate) fn changed_behind(
    snapshot: &dyn Snapshot,
    container: u32,
    partition: &Partition,
    lsn: u64,
    rows_max: usize,
) -> Result<(Vec<(u64, u64)>, bool), EngineError> {
    let mut rows_max = rows_max.max(2);
    loop {
        let (mut rows, mut more) = (Vec::new(), false);
        for source in partition.history() {
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
    let range = KeyRange {
        start: Bound::Excluded(keys::latest(container, partition, lsn, u16::MAX)),
        end: Bound::Included(keys::latest(container, partition, u64::MAX, u16::MAX)),
    };
    let (space, direction, keys_only) = (FEEDS, Direction::Forward, false);
    let scan = Scan { space, range, direction, rows_max, bytes_max: usize::MAX, keys_only };
    let mut is_sound = true;
    let more = snapshot.visit(&scan, &mut |key, value| {
        let row = keys::lsn_of_feed_key(key).zip(keys::number(value));
        is_sound = row.is_some();
        rows.extend(row);
        if is_sound { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    if is_sound { Ok(more) } else { Err(corrupt("feed row")) }
}
