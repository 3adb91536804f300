//! One step of a follower towards its source: empty it, fill it, follow.

use std::collections::HashMap;
use std::ops::Bound;

use quire_storage::{Direction, KeyRange, Op, Scan, Snapshot};

use super::progress::{FollowerPhase, FollowerProgress, FollowerState, SourcePosition};
use super::{FollowerAdvance, FollowerTarget, ItemChange};
use crate::api::{EngineError, corrupt};
use crate::catalog::{Container, RoutedKey};
use crate::partition::Partition;
use crate::partition::sequencer::{PreparedWrite, retry_until_accepted};
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, CATALOG, ITEMS};
use crate::store::scan;
use crate::store::version_row::VersionRow;

/// Items or versions of the source that one commit takes.
const CHUNK_ROWS: usize = 200;
const CHUNK_BYTES: usize = 1 << 20;

/// A follower with its source and its progress.
pub(crate) struct RunningFollower<'a> {
    pub shared: &'a Shared,
    pub source: &'a Container,
    pub target: &'a dyn FollowerTarget,
    pub progress: &'a FollowerProgress,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowerStep {
    /// How many items were written; there may be more to do.
    Done(usize),
    /// The follower had applied everything when the step began.
    Idle,
    /// Another thread runs this follower.
    Busy,
}

impl RunningFollower<'_> {
    pub fn step(&self) -> Result<FollowerStep, EngineError> {
        let Some(_step_lock) = self.progress.step_lock.try_lock() else { return Ok(FollowerStep::Busy) };
        let step = self.next();
        if step.is_err() {
            self.reload()?;
        }
        match step {
            Err(EngineError::TransactionConflict) => Ok(FollowerStep::Done(0)),
            step => step,
        }
    }

    fn next(&self) -> Result<FollowerStep, EngineError> {
        let follower_state = self.progress.state.lock().clone();
        match follower_state.phase {
            FollowerPhase::Emptying | FollowerPhase::Beginning => self.empty(),
            FollowerPhase::Filling | FollowerPhase::Following => {
                let Some(follower_state) = follower_state.aligned(self.source.partitions.all()) else {
                    // The position in some partition is unknown: the follower is filled again.
                    self.commit_changes(&[], FollowerState::new())?;
                    return Ok(FollowerStep::Done(0));
                };
                // Readers of the needed LSNs use the current partitions.
                *self.progress.state.lock() = follower_state.clone();
                match follower_state.phase {
                    FollowerPhase::Filling => self.fill(follower_state),
                    _ => self.follow(follower_state),
                }
            }
        }
    }

    /// Empties the follower, to be filled again.
    pub fn rebuild(&self) -> Result<(), EngineError> {
        let _step_lock = self.progress.step_lock.lock();
        self.restart()
    }

    /// The same, unless the follower is in another phase by now: false.
    pub fn rebuild_from(&self, expected: FollowerPhase) -> Result<bool, EngineError> {
        let _step_lock = self.progress.step_lock.lock();
        if self.progress.state.lock().phase != expected {
            return Ok(false);
        }
        self.restart().map(|()| true)
    }

    fn restart(&self) -> Result<(), EngineError> {
        let again = self.commit_changes(&[], FollowerState::new());
        if again.is_err() {
            self.reload()?;
        }
        again.map(|_| ())
    }

    fn reload(&self) -> Result<(), EngineError> {
        let key = self.target.progress_key();
        self.progress.reload(self.shared.storage.snapshot()?.get(CATALOG, &key)?)
    }

    fn empty(&self) -> Result<FollowerStep, EngineError> {
        match self.target.empty()? {
            Some(removed) => Ok(FollowerStep::Done(removed)),
            None => self.begin(),
        }
    }

    /// Finds where the versions of the source are complete from: writes that were prepared while none were kept are void, and
    /// those in a group that was under way have been committed when the partition has taken something of ours.
    fn begin(&self) -> Result<FollowerStep, EngineError> {
        let beginning = FollowerState { phase: FollowerPhase::Beginning, ..FollowerState::new() };
        *self.progress.state.lock() = beginning.clone();
        let mut places = Vec::new();
        for partition in self.source.partitions.all() {
            partition.sequencer.invalidate_prepared();
            self.wait_for_earlier_writes(partition)?;
            let (lsn, ordinal) = (partition.sequencer.lsn()?, u16::MAX);
            let parents = partition.layout.parents.clone();
            places.push(SourcePosition { partition: partition.layout.id, parents, lsn, ordinal });
        }
        self.commit_changes(
            &[],
            FollowerState { phase: FollowerPhase::Filling, positions: places, ..beginning },
        )?;
        Ok(FollowerStep::Done(0))
    }

    fn wait_for_earlier_writes(&self, partition: &Partition) -> Result<(), EngineError> {
        retry_until_accepted(&self.shared.statistics, || {
            let generation = partition.sequencer.generation();
            partition
                .sequencer
                .submit(PreparedWrite::index_maintenance(generation, Vec::<Op>::new()))
                .map(drop)
        })
    }

    /// Copies some items as they were at the positions. Later changes have versions, which the following applies.
    fn fill(&self, follower_state: FollowerState) -> Result<FollowerStep, EngineError> {
        let range = keys::items_from(self.source.number, follower_state.next_rid);
        let page = Scan { rows_max: CHUNK_ROWS, bytes_max: CHUNK_BYTES, ..scan(ITEMS, range) };
        let deleted_keys = self.source.partitions.deleted_keys();
        let snapshot = self.shared.storage.snapshot()?;
        let visibility_point = self.source.visibility_point_in(self.shared, &*snapshot, deleted_keys)?;
        let page = snapshot.scan(&page)?;
        drop(snapshot);
        let mut next = FollowerState {
            filled: follower_state.filled + page.rows.len() as u64,
            ..follower_state.clone()
        };
        let mut changes = Vec::with_capacity(page.rows.len());
        for (key, value) in page.rows {
            let rid = keys::rid_of_item_key(&key).ok_or_else(|| corrupt("key of an item"))?;
            next.next_rid = rid + 1;
            let row = ItemRow::parse(&value)?;
            let partition = RoutedKey::of(self.source, row.partition_key()?)?.partition.layout.id;
            let place = follower_state.positions.iter().find(|place| place.partition == partition);
            let place = place.ok_or_else(|| corrupt("an item without partition"))?;
            if row.stamp.lsn <= place.lsn && !self.source.is_invisible(&row, &visibility_point) {
                changes.push(ItemChange { rid, old: None, new: Some(value) });
            }
        }
        if !page.more {
            (next.phase, next.next_rid) = (FollowerPhase::Following, 0);
        }
        self.commit_changes(&changes, next).map(FollowerStep::Done)
    }

    /// Applies some versions of every partition that has new ones.
    fn follow(&self, mut follower_state: FollowerState) -> Result<FollowerStep, EngineError> {
        let (mut written, mut moved) = (0, false);
        for (at, partition) in self.source.partitions.all().iter().enumerate() {
            // Before the snapshot, which shows it.
            let end = partition.sequencer.lsn()?;
            if end <= follower_state.positions[at].complete_lsn() {
                continue;
            }
            let (changes, place) = self.versions(partition, &follower_state.positions[at], end)?;
            follower_state.positions[at] = place;
            written += self.commit_changes(&changes, follower_state.clone())?;
            moved = true;
        }
        Ok(if moved { FollowerStep::Done(written) } else { FollowerStep::Idle })
    }

    /// Some of a partition's versions after a position, and the position after them. Versions from before a split are
    /// in the logs of the ancestors, for all of their descendants.
    fn versions(
        &self,
        partition: &Partition,
        from: &SourcePosition,
        end: u64,
    ) -> Result<(Vec<ItemChange>, SourcePosition), EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        let layout = &partition.layout;
        let mut changes = SourceChanges::default();
        let (mut lsn, mut ordinal) = (from.lsn, from.ordinal);
        for member in layout.parents.iter().copied().chain([layout.id]) {
            let page = self.log(&*snapshot, member, (lsn, ordinal), CHUNK_ROWS - changes.rows)?;
            for (key, value) in page.rows {
                (lsn, ordinal) = keys::place_of_feed_key(&key).ok_or_else(|| corrupt("key of a version"))?;
                let version = VersionRow::decode(&value)?;
                let known = if version.current.is_empty() { version.previous } else { version.current };
                let key = ItemRow::parse(known)?.partition_key()?;
                if RoutedKey::of(self.source, key)?.partition.layout.id == layout.id {
                    changes.add(&version);
                }
                changes.rows += 1;
            }
            if page.more || changes.rows >= CHUNK_ROWS {
                let place = SourcePosition { lsn, ordinal, ..from.clone() };
                return Ok((changes.items, place));
            }
        }
        let place = SourcePosition { lsn: lsn.max(end), ordinal: u16::MAX, ..from.clone() };
        Ok((changes.items, place))
    }

    fn log(
        &self,
        snapshot: &dyn Snapshot,
        partition: u32,
        (lsn, ordinal): (u64, u16),
        rows_max: usize,
    ) -> Result<quire_storage::ScanPage, EngineError> {
        let version = |lsn, ordinal| keys::version(self.source.number, partition, lsn, ordinal);
        let range = KeyRange {
            start: Bound::Excluded(version(lsn, ordinal)),
            end: Bound::Included(version(u64::MAX, u16::MAX)),
        };
        let (space, direction, bytes_max) = (keys::FEEDS, Direction::Forward, CHUNK_BYTES);
        let scan = Scan { space, range, direction, rows_max, bytes_max, keys_only: false };
        Ok(snapshot.scan(&scan)?)
    }

    /// Commits changes with the new progress.
    fn commit_changes(
        &self,
        changes: &[ItemChange],
        follower_state: FollowerState,
    ) -> Result<usize, EngineError> {
        let (before, after) = (self.progress.row.lock().clone(), follower_state.encode());
        let written =
            self.target.apply(changes, FollowerAdvance { before: before.as_deref(), after: &after })?;
        *self.progress.row.lock() = Some(after);
        *self.progress.state.lock() = follower_state;
        Ok(written)
    }
}

/// Versions, of each item the first and the last.
#[derive(Default)]
struct SourceChanges {
    items: Vec<ItemChange>,
    by_rid: HashMap<u64, usize>,
    /// Versions that were read.
    rows: usize,
}

impl SourceChanges {
    fn add(&mut self, version: &VersionRow<'_>) {
        let row = |row: &[u8]| (!row.is_empty()).then(|| row.to_vec());
        let new = row(version.current);
        match self.by_rid.get(&version.rid) {
            Some(&at) => self.items[at].new = new,
            None => {
                self.by_rid.insert(version.rid, self.items.len());
                self.items.push(ItemChange { rid: version.rid, old: row(version.previous), new });
            }
        }
    }
}
