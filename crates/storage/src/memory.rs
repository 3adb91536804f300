//! The reference implementation: all data in memory, lost with the process.
//!
//! A key has its newest version inline and, only while a snapshot needs them, older ones. A snapshot is a sequence
//! number in a table, so it is cheap for any amount of data.
//!
//! Invariants: a version that a live snapshot can see is never pruned (versions are pruned up to the oldest live
//! snapshot, and a new snapshot starts at the newest visible sequence, which is never below that); `visible` advances
//! under the write lock after all rows of its commit are in place.

use crate::ledger::{Positions, Tokens};
use crate::rows::{Row, rows_of_commit};
use crate::{
    Caps, Commit, CommitError, Committed, Direction, KeyRange, PartitionId, Position, Removal, SPACE_COUNT,
    Scan, Snapshot, Space, Storage, StorageError, Token, Visit,
};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Limits of the engines in this process.
pub const CAPS: Caps = Caps {
    key_bytes_max: 1536,
    value_bytes_max: 16 << 20,
    commit_bytes_max: 32 << 20,
    // An item of 2 MB has at most about 300,000 index rows; a replace removes them and adds as many others.
    commit_ops_max: 1_000_000,
    commit_spans_partitions: true,
};

/// Stale keys pruned per written row, so that pruning keeps pace and no commit pays for all of it.
const PRUNED_PER_ROW: usize = 2;
/// Rows that a scan reads at a time: the first few are often enough.
const GROUP_ROWS_MIN: usize = 4;
const GROUP_ROWS_MAX: usize = 256;
/// Rows per step of a removal.
const REMOVED_ROWS_MAX: usize = 1000;

/// A handle. [`MemoryStorage::reopen`] gives another one on the same data.
pub struct MemoryStorage {
    shared: Arc<Shared>,
    closed: Arc<AtomicBool>,
}

#[derive(Default)]
struct Shared {
    state: RwLock<State>,
    /// Live snapshots by the sequence they see. Locked after `state` where both are held.
    live: Mutex<BTreeMap<u64, usize>>,
}

#[derive(Clone, Default)]
struct State {
    spaces: [BTreeMap<Vec<u8>, Cell>; SPACE_COUNT as usize],
    positions: Positions,
    tokens: Tokens,
    visible: u64,
    /// Keys with an old version or a tombstone, by the sequence that made it stale.
    stale: VecDeque<(u64, Space, Vec<u8>)>,
    bytes: u64,
}

/// One key's versions.
#[derive(Clone)]
struct Cell {
    newest: Version,
    /// Ascending, all below `newest`.
    older: Vec<Version>,
}

#[derive(Clone)]
struct Version {
    sequence: u64,
    value: Option<Arc<[u8]>>,
}

struct MemorySnapshot {
    shared: Arc<Shared>,
    closed: Arc<AtomicBool>,
    sequence: u64,
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStorage {
    pub fn new() -> MemoryStorage {
        MemoryStorage { shared: Arc::default(), closed: Arc::default() }
    }

    /// A new handle on the same data, as after a restart of the process.
    pub fn reopen(&self) -> MemoryStorage {
        MemoryStorage { shared: self.shared.clone(), closed: Arc::default() }
    }

    /// An independent copy of everything, for tests that rewind.
    pub fn duplicate(&self) -> MemoryStorage {
        let state = self.shared.state.read().clone();
        let shared = Shared { state: RwLock::new(state), live: Mutex::default() };
        MemoryStorage { shared: Arc::new(shared), closed: Arc::default() }
    }

    fn open_state(&self) -> Result<RwLockReadGuard<'_, State>, StorageError> {
        check_open(&self.closed)?;
        Ok(self.shared.state.read())
    }
}

fn check_open(closed: &AtomicBool) -> Result<(), StorageError> {
    if closed.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
}

impl Storage for MemoryStorage {
    fn caps(&self) -> &Caps {
        &CAPS
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StorageError> {
        let state = self.open_state()?;
        *self.shared.live.lock().entry(state.visible).or_default() += 1;
        let sequence = state.visible;
        drop(state);
        Ok(Box::new(MemorySnapshot { shared: self.shared.clone(), closed: self.closed.clone(), sequence }))
    }

    fn commit(&self, mut commit: Commit) -> Result<Committed, CommitError> {
        check_open(&self.closed)?;
        let rows = rows_of_commit(&mut commit, &CAPS)?;
        let mut state = self.shared.state.write();
        if let Some(first_answer) = state.tokens.get(commit.token) {
            return Ok(first_answer);
        }
        state.positions.check(&commit.guards)?;
        let oldest = self.shared.live.lock().keys().next().copied();
        let sequence = state.apply(rows, oldest);
        state.positions.advance(&commit.guards);
        state.tokens.retain_token(commit.token, sequence);
        Ok(Committed { sequence })
    }

    fn position(&self, partition: PartitionId) -> Result<Option<Position>, StorageError> {
        Ok(self.open_state()?.positions.get(partition))
    }

    fn fence(&self, partition: PartitionId, epoch: u64) -> Result<Position, StorageError> {
        check_open(&self.closed)?;
        let mut state = self.shared.state.write();
        let (position, _) = state.positions.raised_epoch(partition, epoch);
        state.positions.set(partition, position);
        Ok(position)
    }

    fn resolve(&self, token: Token) -> Result<Option<Committed>, StorageError> {
        Ok(self.open_state()?.tokens.get(token))
    }

    fn is_writable(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let state = self.shared.state.read();
        vec![
            ("commits", state.visible),
            ("rows", state.spaces.iter().map(|space| space.len() as u64).sum()),
            ("bytes", state.bytes),
            ("stale_keys", state.stale.len() as u64),
            ("snapshots", self.shared.live.lock().values().map(|&count| count as u64).sum()),
        ]
    }

    /// Deleted rows are pruned by later commits; there is nothing to compact.
    fn compact(&self, _space: Space, _range: KeyRange) {}

    fn remove_range(&self, space: Space, range: &KeyRange) -> Result<Removal, StorageError> {
        check_open(&self.closed)?;
        let mut state = self.shared.state.write();
        let rows = state.rows_to_remove(space, range)?;
        if rows.is_empty() {
            return Ok(Removal::Done);
        }
        let oldest = self.shared.live.lock().keys().next().copied();
        state.apply(rows, oldest);
        Ok(Removal::More)
    }

    fn close(&self) -> Result<(), StorageError> {
        self.closed.store(true, Ordering::Release);
        Ok(())
    }
}

impl State {
    fn rows_to_remove(&self, space: Space, range: &KeyRange) -> Result<Vec<Row>, StorageError> {
        let rows = self.spaces.get(usize::from(space.0)).ok_or(StorageError::UnknownSpace { space })?;
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let bounds = (range.start.as_ref(), range.end.as_ref());
        let live = rows.range::<Vec<u8>, _>(bounds).filter(|(_, cell)| cell.newest.value.is_some());
        let removed = live.take(REMOVED_ROWS_MAX);
        Ok(removed.map(|(key, _)| Row { space, key: key.clone(), value: None }).collect())
    }

    /// `oldest` is the oldest live snapshot.
    fn apply(&mut self, rows: Vec<Row>, oldest: Option<u64>) -> u64 {
        let sequence = self.visible + 1;
        let prune_max = rows.len() * PRUNED_PER_ROW + PRUNED_PER_ROW;
        for row in rows {
            self.write(row, sequence, oldest.is_some());
        }
        self.visible = sequence;
        self.prune(oldest.unwrap_or(sequence), prune_max);
        sequence
    }

    fn write(&mut self, row: Row, sequence: u64, keep_older: bool) {
        let space = &mut self.spaces[usize::from(row.space.0)];
        let version = Version { sequence, value: row.value.map(Arc::from) };
        self.bytes += version.bytes();
        let cell = space.get_mut(&row.key);
        match (cell, keep_older) {
            (Some(cell), true) => {
                cell.older.push(std::mem::replace(&mut cell.newest, version));
                self.stale.push_back((sequence, row.space, row.key));
            }
            (Some(cell), false) => {
                self.bytes -= cell.bytes();
                if version.value.is_none() {
                    self.bytes -= row.key.len() as u64;
                    space.remove(&row.key);
                } else {
                    *cell = Cell::from(version);
                }
            }
            (None, _) if version.value.is_none() => {}
            (None, _) => {
                self.bytes += row.key.len() as u64;
                space.insert(row.key, Cell::from(version));
            }
        }
    }

    /// Drops versions that no snapshot at or above `oldest` can see, for the next few stale keys.
    fn prune(&mut self, oldest: u64, keys_max: usize) {
        for _ in 0..keys_max {
            match self.stale.front() {
                Some((sequence, ..)) if *sequence <= oldest => {}
                _ => return,
            }
            if let Some((_, space, key)) = self.stale.pop_front() {
                self.prune_key(space, &key, oldest);
            }
        }
    }

    fn prune_key(&mut self, space: Space, key: &[u8], oldest: u64) {
        let space = &mut self.spaces[usize::from(space.0)];
        let Some(cell) = space.get_mut(key) else { return };
        let before = cell.bytes();
        cell.drop_below(oldest);
        self.bytes -= before - cell.bytes();
        if cell.older.is_empty() && cell.newest.value.is_none() {
            self.bytes -= key.len() as u64;
            space.remove(key);
        }
    }
}

impl Cell {
    fn at(&self, sequence: u64) -> Option<&Arc<[u8]>> {
        if self.newest.sequence <= sequence {
            return self.newest.value.as_ref();
        }
        let seen = self.older.partition_point(|version| version.sequence <= sequence);
        self.older[..seen].last()?.value.as_ref()
    }

    /// Keeps the version that `oldest` sees and everything newer.
    fn drop_below(&mut self, oldest: u64) {
        if self.newest.sequence <= oldest {
            self.older = Vec::new();
            return;
        }
        let seen = self.older.partition_point(|version| version.sequence <= oldest);
        self.older.drain(..seen.saturating_sub(1));
    }

    fn bytes(&self) -> u64 {
        self.newest.bytes() + self.older.iter().map(Version::bytes).sum::<u64>()
    }
}

impl From<Version> for Cell {
    fn from(newest: Version) -> Self {
        Cell { newest, older: Vec::new() }
    }
}

impl Version {
    fn bytes(&self) -> u64 {
        self.value.as_ref().map_or(0, |value| value.len() as u64)
    }
}

impl MemorySnapshot {
    fn state(&self) -> Result<RwLockReadGuard<'_, State>, StorageError> {
        check_open(&self.closed)?;
        // Recursive: a reader must not wait for a writer that waits for another read of this thread.
        Ok(self.shared.state.read_recursive())
    }
}

fn space_rows(state: &State, space: Space) -> Result<&BTreeMap<Vec<u8>, Cell>, StorageError> {
    state.spaces.get(usize::from(space.0)).ok_or(StorageError::UnknownSpace { space })
}

impl Snapshot for MemorySnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let state = self.state()?;
        let cell = space_rows(&state, space)?.get(key);
        Ok(cell.and_then(|cell| cell.at(self.sequence)).map(|value| value.to_vec()))
    }

    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
        let state = self.state()?;
        let rows = space_rows(&state, space)?;
        let get = |key: &&[u8]| Some(rows.get(*key)?.at(self.sequence)?.to_vec());
        Ok(keys.iter().map(get).collect())
    }

    fn visit(&self, scan: &Scan, visit: &mut Visit<'_>) -> Result<bool, StorageError> {
        let (mut budget, mut range, mut count_max) = (scan.budget(), scan.range.clone(), GROUP_ROWS_MIN);
        loop {
            let group = self.group(scan, &range, count_max)?;
            for (key, value) in &group {
                let value: &[u8] = if scan.keys_only { &[] } else { value };
                if !budget.takes(key.len() + value.len()) || visit(key, value).is_break() {
                    return Ok(true);
                }
            }
            let is_last = group.len() < count_max;
            let Some((last, _)) = group.into_iter().next_back().filter(|_| !is_last) else {
                return Ok(false);
            };
            match scan.direction {
                Direction::Forward => range.start = Bound::Excluded(last),
                Direction::Backward => range.end = Bound::Excluded(last),
            }
            count_max = GROUP_ROWS_MAX.min(2 * count_max);
        }
    }
}

/// Key and value.
type VisibleRow = (Vec<u8>, Arc<[u8]>);

impl MemorySnapshot {
    /// The next rows of a scan. The visitor runs after the lock is released: it may take long, and others must be
    /// able to commit.
    fn group(
        &self,
        scan: &Scan,
        range: &KeyRange,
        count_max: usize,
    ) -> Result<Vec<VisibleRow>, StorageError> {
        let state = self.state()?;
        let rows = space_rows(&state, scan.space)?;
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let bounds = (bound(&range.start), bound(&range.end));
        let visible = rows.range::<[u8], _>(bounds).filter_map(|(key, cell)| {
            let value = cell.at(self.sequence)?;
            Some((key.clone(), Arc::clone(value)))
        });
        Ok(match scan.direction {
            Direction::Forward => visible.take(count_max).collect(),
            Direction::Backward => visible.rev().take(count_max).collect(),
        })
    }
}

fn bound(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl Drop for MemorySnapshot {
    fn drop(&mut self) {
        let mut live = self.shared.live.lock();
        if let Some(count) = live.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.sequence);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;

    fn put(storage: &MemoryStorage, token: u128, key: &str, value: &str) {
        let op = Op::Put { space: Space(0), key: key.into(), value: value.into() };
        storage.commit(Commit { guards: vec![], token: Token(token), ops: vec![op] }).unwrap();
    }

    fn figure(storage: &MemoryStorage, name: &str) -> u64 {
        storage.statistics().into_iter().find(|(key, _)| *key == name).unwrap().1
    }

    #[test]
    fn old_versions_leave_once_no_snapshot_needs_them() {
        let storage = MemoryStorage::new();
        put(&storage, 1, "a", "one");
        let snapshot = storage.snapshot().unwrap();
        put(&storage, 2, "a", "two");
        let op = Op::Delete { space: Space(0), key: b"a".to_vec() };
        storage.commit(Commit { guards: vec![], token: Token(3), ops: vec![op] }).unwrap();
        assert_eq!(snapshot.get(Space(0), b"a").unwrap(), Some(b"one".to_vec()));
        assert_eq!(figure(&storage, "stale_keys"), 2);
        drop(snapshot);
        put(&storage, 4, "b", "x");
        assert_eq!(figure(&storage, "stale_keys"), 0);
        assert_eq!(figure(&storage, "rows"), 1);
        assert_eq!(figure(&storage, "bytes"), 2);
    }
}
