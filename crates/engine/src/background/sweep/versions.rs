//! Removes versions that are older than their retention time and that no follower needs.

use std::collections::HashMap;
use std::ops::Bound;

use quire_storage::{KeyRange, Op, Scan};

use super::{ContainerSweep, Interrupted, SweepRemainder, scan};
use crate::api::corrupt;
use crate::partition::Partition;
use crate::partition::sequencer::PreparedWrite;
use crate::store::keys;
use crate::store::version_row::VersionRow;

/// Versions that one commit removes: no lock is held for them.
const REMOVED_TOGETHER: usize = 1000;
/// Of versions that are read to be removed.
const REMOVED_BYTES: usize = 4 << 20;

pub(super) struct VersionsSwept {
    /// No version can go earlier.
    due: i64,
    /// The last version that was removed, by partition: what is before it is not passed again.
    places: HashMap<u32, (u64, u16)>,
}

/// Versions to remove.
struct OldVersions {
    ops: Vec<Op>,
    /// LSN and ordinal of the last of them.
    place: (u64, u16),
    more: bool,
    /// When the first that stays can go; `i64::MAX` when none stays.
    next: i64,
}

impl Default for VersionsSwept {
    fn default() -> VersionsSwept {
        VersionsSwept { due: i64::MIN, places: HashMap::new() }
    }
}

impl ContainerSweep<'_> {
    pub(super) fn sweep_versions(
        &mut self,
        swept: &mut VersionsSwept,
    ) -> Result<SweepRemainder, Interrupted> {
        let retention = self.retention_seconds();
        let written = self.container.partitions.sweep_due().take_version_written();
        // Without a policy they go as soon as no view needs them.
        swept.due = swept.due.min(written.saturating_add(retention.unwrap_or(0)));
        if swept.due > self.now {
            return Ok(SweepRemainder::default());
        }
        let mut due = i64::MAX;
        let mut left = SweepRemainder::default();
        for id in self.container.partitions.lineage() {
            // Those of a partition that was split are removed by one that came from it.
            let partitions = self.container.partitions.all();
            let Some(partition) = partitions.iter().find(|child| child.layout.descends_from(id)) else {
                continue;
            };
            let old = self.old_versions(id, swept.places.get(&id).copied().unwrap_or_default())?;
            due = due.min(if old.more { self.now } else { old.next });
            if old.ops.is_empty() {
                continue;
            }
            let prepared = self.versions_removed(partition, id, old.place.0, old.ops);
            if partition.sequencer.submit(prepared).is_ok() {
                swept.places.insert(id, old.place);
                left.more |= old.more;
            } else {
                due = self.now; // another round comes
            }
        }
        swept.due = due;
        Ok(left)
    }

    fn retention_seconds(&self) -> Option<i64> {
        self.container.definition.change_feed_retention_minutes.map(|minutes| i64::from(minutes) * 60)
    }

    /// Rows of the log to remove, behind a place.
    fn old_versions(&self, partition: u32, place: (u64, u16)) -> Result<OldVersions, Interrupted> {
        let (number, shared) = (self.container.number, &self.sweep.shared);
        let retention = self.retention_seconds();
        let range = KeyRange {
            start: Bound::Excluded(keys::version(number, partition, place.0, place.1)),
            end: Bound::Included(keys::version(number, partition, u64::MAX, u16::MAX)),
        };
        let scan = Scan { bytes_max: REMOVED_BYTES, ..scan(range, REMOVED_TOGETHER, false) };
        let page = shared.storage.snapshot()?.scan(&scan)?;
        // After the snapshot.
        let needed_after_lsn = shared.followed.needed_after_lsn(number, partition);
        let mut old = OldVersions { ops: Vec::new(), place, more: page.more, next: i64::MAX };
        for (key, value) in page.rows {
            let place = keys::place_of_feed_key(&key).ok_or_else(|| corrupt("key of a version"))?;
            // One that cannot be read is as old as its neighbours.
            let ts = VersionRow::decode(&value).map_or(i64::MIN, |version| version.ts);
            let keeps = |retention: i64| ts.saturating_add(retention) >= self.now;
            if retention.is_some_and(keeps) {
                old.next = ts.saturating_add(retention.unwrap_or(0)) + 1;
                old.more = false;
                break;
            }
            if needed_after_lsn.is_some_and(|taken| place.0 > taken) {
                old.next = self.now; // the view moves on whatever the clock says
                old.more = false;
                break;
            }
            old.place = place;
            old.ops.push(Op::Delete { space: keys::FEEDS, key });
        }
        Ok(old)
    }

    /// Upkeep: no item changes.
    fn versions_removed(
        &self,
        partition: &Partition,
        id: u32,
        floor: u64,
        mut ops: Vec<Op>,
    ) -> PreparedWrite {
        let key = keys::versions_floor(self.container.number, id);
        ops.push(Op::Put { space: keys::CATALOG, key, value: keys::number_value(floor) });
        let generation = partition.sequencer.generation();
        PreparedWrite::index_maintenance(generation, ops)
    }
}
