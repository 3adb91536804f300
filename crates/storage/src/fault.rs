//! A storage with injected faults, for tests.
//!
//! [`FaultStorage`] wraps any storage. Faults are scripted call by call, drawn from a seeded generator, or both (the
//! script first). Every fault keeps the contract: a commit that returns `Unknown` has happened completely or not at
//! all; a poisoned storage still reads. Over [`MemoryStorage`] it can also crash and lose its newest commits, which
//! no correct storage does and a caller must detect.

use crate::memory::MemoryStorage;
use crate::random::Random;
use crate::{
    Caps, Commit, CommitError, Committed, Direction, KeyRange, Op, PartitionId, Position, Removal, Scan,
    Snapshot, Space, Storage, StorageError, Token, Visit,
};
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The result of one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFault {
    /// No fault.
    Pass,
    /// Refused as if another writer had been first; nothing is written.
    Conflict,
    /// Refused as if a newer owner had fenced the partition; nothing is written.
    Fenced,
    /// Refused because of load; nothing is written.
    Busy,
    /// Written, but the answer is lost.
    UnknownDone,
    /// Not written, and the answer is lost.
    UnknownNotDone,
    /// Written after a delay.
    Delay(Duration),
    /// The sync fails: nothing is written, and writes are refused until the storage is opened again.
    Poison,
    /// The sync fails, but the bytes reached the disk: they are visible after the storage is opened again.
    PoisonDone,
}

/// The result of one read (`get`, `multi_get`, `visit`, `scan`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFault {
    Pass,
    Fail,
    Delay(Duration),
}

/// The result of one step of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalFault {
    Pass,
    /// Nothing is removed.
    Fail,
    /// The step is done, but the answer is lost.
    FailDone,
    Delay(Duration),
}

/// Rates of seeded faults, in thousandths of the calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    pub conflict: u32,
    pub busy: u32,
    pub unknown_done: u32,
    pub unknown_not_done: u32,
    pub delay: u32,
    pub read_failure: u32,
    pub removal_failure: u32,
}

/// Tokens of recorded removals; a caller's tokens are random.
const RECORDED_REMOVAL: u128 = 0xFA17 << 112;
const RECORDED_ROWS_MAX: usize = 1000;
/// The longest seeded delay.
const SEEDED_DELAY_MAX: Duration = Duration::from_millis(2);

pub struct FaultStorage<S> {
    inner: RwLock<Arc<S>>,
    plan: Arc<Mutex<Plan>>,
    caps: Caps,
}

#[derive(Default)]
struct Plan {
    commits: VecDeque<CommitFault>,
    reads: VecDeque<ReadFault>,
    removals: VecDeque<RemovalFault>,
    seeded: Option<SeededFaults>,
    poisoned: bool,
    /// Commits that reached the disk although their sync failed.
    after_reopen: Vec<Commit>,
    injected: u64,
    history: Option<History>,
}

struct SeededFaults {
    random: Random,
    rates: Rates,
}

/// All changes since a copy was taken, so that the newest can be lost.
struct History {
    base: MemoryStorage,
    commits: Vec<(u64, Commit)>,
    fences: Vec<(PartitionId, u64)>,
    removals: u128,
}

impl<S: Storage> FaultStorage<S> {
    /// Without faults until some are scripted.
    pub fn new(inner: S) -> FaultStorage<S> {
        let caps = inner.caps().clone();
        FaultStorage { inner: RwLock::new(Arc::new(inner)), plan: Arc::default(), caps }
    }

    /// Draws faults from `seed`, the same for the same sequence of calls.
    pub fn seeded(inner: S, seed: u64, rates: Rates) -> FaultStorage<S> {
        let storage = FaultStorage::new(inner);
        storage.plan.lock().seeded = Some(SeededFaults { random: Random(seed), rates });
        storage
    }

    /// Sets the results of the next commits, in this order.
    pub fn script_commits(&self, faults: impl IntoIterator<Item = CommitFault>) {
        self.plan.lock().commits.extend(faults);
    }

    /// Sets the results of the next reads, in this order.
    pub fn script_reads(&self, faults: impl IntoIterator<Item = ReadFault>) {
        self.plan.lock().reads.extend(faults);
    }

    /// Sets the results of the next steps of removals, in this order.
    pub fn script_removals(&self, faults: impl IntoIterator<Item = RemovalFault>) {
        self.plan.lock().removals.extend(faults);
    }

    /// Stops all faults; a poisoned storage stays poisoned until it is opened again.
    pub fn stop_faults(&self) {
        let mut plan = self.plan.lock();
        plan.commits.clear();
        plan.reads.clear();
        plan.removals.clear();
        plan.seeded = None;
    }

    /// The number of injected faults.
    pub fn injected(&self) -> u64 {
        self.plan.lock().injected
    }

    pub fn inner(&self) -> Arc<S> {
        self.inner.read().clone()
    }

    /// Opens it again on `inner`: it is no longer poisoned, and the bytes that reached the disk are visible.
    pub fn reopen_on(&self, inner: S) -> Result<(), CommitError> {
        *self.inner.write() = Arc::new(inner);
        let pending = {
            let mut plan = self.plan.lock();
            plan.poisoned = false;
            std::mem::take(&mut plan.after_reopen)
        };
        pending.into_iter().try_for_each(|commit| self.commit_inner(commit).map(drop))
    }

    fn commit_inner(&self, commit: Commit) -> Result<Committed, CommitError> {
        let inner = self.inner();
        let recording = self.plan.lock().history.is_some();
        if !recording {
            return inner.commit(commit);
        }
        let committed = inner.commit(commit.clone())?;
        if let Some(history) = &mut self.plan.lock().history {
            history.commits.push((committed.sequence, commit));
        }
        Ok(committed)
    }

    fn remove_inner(&self, space: Space, range: &KeyRange) -> Result<Removal, StorageError> {
        let number = self.plan.lock().history.as_mut().map(|history| {
            history.removals += 1;
            history.removals
        });
        match number {
            Some(number) => self.remove_by_commit(space, range, Token(RECORDED_REMOVAL | number)),
            None => self.inner().remove_range(space, range),
        }
    }

    /// As a commit, so that it can be lost like one.
    fn remove_by_commit(
        &self,
        space: Space,
        range: &KeyRange,
        token: Token,
    ) -> Result<Removal, StorageError> {
        let scan = Scan {
            space,
            range: range.clone(),
            direction: Direction::Forward,
            rows_max: RECORDED_ROWS_MAX,
            bytes_max: usize::MAX,
            keys_only: true,
        };
        let page = self.inner().snapshot()?.scan(&scan)?;
        if page.rows.is_empty() {
            return Ok(Removal::Done);
        }
        let ops = page.rows.into_iter().map(|(key, _)| Op::Delete { space, key }).collect();
        match self.commit_inner(Commit { guards: vec![], token, ops }) {
            Ok(_) => Ok(Removal::More),
            Err(CommitError::Storage(error)) => Err(error),
            Err(error) => Err(StorageError::Corrupt { what: error.to_string() }),
        }
    }
}

impl FaultStorage<MemoryStorage> {
    /// From now on, [`Self::reopen_after_loss`] can lose the newest commits.
    pub fn record(&self) {
        let base = self.inner().duplicate();
        self.plan.lock().history =
            Some(History { base, commits: Vec::new(), fences: Vec::new(), removals: 0 });
    }

    /// A crash and a restart, with everything acknowledged still there.
    pub fn reopen(&self) -> Result<(), CommitError> {
        let next = self.inner().reopen();
        self.reopen_on(next)
    }

    /// A crash that loses the newest `count` recorded commits, as on a disk with broken syncs.
    pub fn reopen_after_loss(&self, count: usize) -> Result<(), CommitError> {
        let Some(mut history) = self.plan.lock().history.take() else { return self.reopen() };
        history.commits.sort_by_key(|(sequence, _)| *sequence);
        history.commits.dedup_by_key(|(sequence, _)| *sequence);
        history.commits.truncate(history.commits.len().saturating_sub(count));
        let survivor = history.base;
        for (partition, epoch) in history.fences {
            survivor.fence(partition, epoch)?;
        }
        for (_, commit) in history.commits {
            survivor.commit(commit)?;
        }
        self.reopen_on(survivor)?;
        self.record();
        Ok(())
    }
}

impl<S: Storage> Storage for FaultStorage<S> {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StorageError> {
        let inner = self.inner().snapshot()?;
        Ok(Box::new(FaultSnapshot { inner, plan: self.plan.clone() }))
    }

    fn commit(&self, commit: Commit) -> Result<Committed, CommitError> {
        let fault = self.plan.lock().next_commit()?;
        let token = commit.token;
        match fault {
            CommitFault::Pass => self.commit_inner(commit),
            CommitFault::Conflict => Err(self.injected_error(&commit, |partition, position| {
                CommitError::Conflict { partition, actual_lsn: position.lsn + 1 }
            })),
            CommitFault::Fenced => Err(self.injected_error(&commit, |partition, position| {
                CommitError::Fenced { partition, epoch: position.epoch + 1 }
            })),
            CommitFault::Busy => Err(CommitError::Busy),
            CommitFault::UnknownDone => {
                self.commit_inner(commit)?;
                Err(CommitError::Unknown { token })
            }
            CommitFault::UnknownNotDone => Err(CommitError::Unknown { token }),
            CommitFault::Delay(time) => {
                std::thread::sleep(time);
                self.commit_inner(commit)
            }
            CommitFault::Poison => Err(self.poison(None)),
            CommitFault::PoisonDone => Err(self.poison(Some(commit))),
        }
    }

    fn position(&self, partition: PartitionId) -> Result<Option<Position>, StorageError> {
        self.inner().position(partition)
    }

    fn fence(&self, partition: PartitionId, epoch: u64) -> Result<Position, StorageError> {
        if self.plan.lock().poisoned {
            return Err(poisoned());
        }
        let position = self.inner().fence(partition, epoch)?;
        if let Some(history) = &mut self.plan.lock().history {
            history.fences.push((partition, epoch));
        }
        Ok(position)
    }

    fn resolve(&self, token: Token) -> Result<Option<Committed>, StorageError> {
        self.inner().resolve(token)
    }

    fn is_writable(&self) -> bool {
        !self.plan.lock().poisoned && self.inner().is_writable()
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let mut statistics = self.inner().statistics();
        statistics.push(("faults_injected", self.injected()));
        statistics
    }

    fn compact(&self, space: Space, range: KeyRange) {
        self.inner().compact(space, range);
    }

    fn remove_range(&self, space: Space, range: &KeyRange) -> Result<Removal, StorageError> {
        let fault = self.plan.lock().next_removal()?;
        match fault {
            RemovalFault::Pass => self.remove_inner(space, range),
            RemovalFault::Fail => Err(failed_removal()),
            RemovalFault::FailDone => self.remove_inner(space, range).and_then(|_| Err(failed_removal())),
            RemovalFault::Delay(time) => {
                std::thread::sleep(time);
                self.remove_inner(space, range)
            }
        }
    }

    fn close(&self) -> Result<(), StorageError> {
        self.inner().close()
    }
}

impl<S: Storage> FaultStorage<S> {
    /// An error for the commit's first partition; a commit without guards cannot conflict, so it is busy.
    fn injected_error(
        &self,
        commit: &Commit,
        error: impl Fn(PartitionId, Position) -> CommitError,
    ) -> CommitError {
        let Some(guard) = commit.guards.first() else { return CommitError::Busy };
        match self.inner().position(guard.partition) {
            Ok(position) => error(guard.partition, position.unwrap_or(Position { epoch: 0, lsn: 0 })),
            Err(failure) => failure.into(),
        }
    }

    fn poison(&self, reached_the_disk: Option<Commit>) -> CommitError {
        let mut plan = self.plan.lock();
        plan.poisoned = true;
        plan.after_reopen.extend(reached_the_disk);
        poisoned().into()
    }
}

fn failed_removal() -> StorageError {
    let source = std::io::Error::other("injected");
    StorageError::Io { doing: "removing a range".into(), source }
}

fn poisoned() -> StorageError {
    StorageError::Poisoned { during: "sync (injected)" }
}

impl Plan {
    fn next_commit(&mut self) -> Result<CommitFault, StorageError> {
        if self.poisoned {
            return Err(poisoned());
        }
        let scripted = self.commits.pop_front();
        let fault =
            scripted.unwrap_or_else(|| self.seeded.as_mut().map_or(CommitFault::Pass, SeededFaults::commit));
        self.injected += u64::from(fault != CommitFault::Pass);
        Ok(fault)
    }

    fn next_removal(&mut self) -> Result<RemovalFault, StorageError> {
        if self.poisoned {
            return Err(poisoned());
        }
        let scripted = self.removals.pop_front();
        let fault = scripted
            .unwrap_or_else(|| self.seeded.as_mut().map_or(RemovalFault::Pass, SeededFaults::removal));
        self.injected += u64::from(fault != RemovalFault::Pass);
        Ok(fault)
    }

    fn next_read(&mut self) -> ReadFault {
        let scripted = self.reads.pop_front();
        let fault =
            scripted.unwrap_or_else(|| self.seeded.as_mut().map_or(ReadFault::Pass, SeededFaults::read));
        self.injected += u64::from(fault != ReadFault::Pass);
        fault
    }
}

impl SeededFaults {
    fn removal(&mut self) -> RemovalFault {
        match self.random.below(1000) < u64::from(self.rates.removal_failure) {
            true if self.random.below(2) == 0 => RemovalFault::Fail,
            true => RemovalFault::FailDone,
            false => RemovalFault::Pass,
        }
    }

    fn commit(&mut self) -> CommitFault {
        let mut drawn = self.random.below(1000);
        let delay = CommitFault::Delay(SEEDED_DELAY_MAX.mul_f64(self.random.below(1000) as f64 / 1000.0));
        let table = [
            (self.rates.conflict, CommitFault::Conflict),
            (self.rates.busy, CommitFault::Busy),
            (self.rates.unknown_done, CommitFault::UnknownDone),
            (self.rates.unknown_not_done, CommitFault::UnknownNotDone),
            (self.rates.delay, delay),
        ];
        for (rate, fault) in table {
            if drawn < u64::from(rate) {
                return fault;
            }
            drawn -= u64::from(rate);
        }
        CommitFault::Pass
    }

    fn read(&mut self) -> ReadFault {
        let fails = self.random.below(1000) < u64::from(self.rates.read_failure);
        if fails { ReadFault::Fail } else { ReadFault::Pass }
    }
}

struct FaultSnapshot {
    inner: Box<dyn Snapshot>,
    plan: Arc<Mutex<Plan>>,
}

impl FaultSnapshot {
    fn before_read(&self) -> Result<(), StorageError> {
        let fault = self.plan.lock().next_read();
        match fault {
            ReadFault::Pass => {}
            ReadFault::Delay(time) => std::thread::sleep(time),
            ReadFault::Fail => {
                let source = std::io::Error::other("injected");
                return Err(StorageError::Io { doing: "reading".into(), source });
            }
        }
        Ok(())
    }
}

impl Snapshot for FaultSnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.before_read()?;
        self.inner.get(space, key)
    }

    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
        self.before_read()?;
        self.inner.multi_get(space, keys)
    }

    fn visit(&self, scan: &Scan, visit: &mut Visit<'_>) -> Result<bool, StorageError> {
        self.before_read()?;
        self.inner.visit(scan, visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Guard, Op};

    const PARTITION: PartitionId = PartitionId(1);

    fn commit(lsn: u64) -> Commit {
        let guard = Guard { partition: PARTITION, epoch: 0, previous_lsn: lsn - 1, next_lsn: lsn };
        let op = Op::Put { space: Space(1), key: lsn.to_be_bytes().to_vec(), value: b"x".to_vec() };
        Commit { guards: vec![guard], token: Token(u128::from(lsn)), ops: vec![op] }
    }

    fn rows(storage: &impl Storage) -> usize {
        let scan = Scan {
            space: Space(1),
            range: KeyRange::all(),
            direction: crate::Direction::Forward,
            rows_max: 1000,
            bytes_max: usize::MAX,
            keys_only: true,
        };
        storage.snapshot().unwrap().scan(&scan).unwrap().rows.len()
    }

    #[test]
    fn unknown_is_resolved_by_the_token() {
        let storage = FaultStorage::new(MemoryStorage::new());
        storage.script_commits([CommitFault::UnknownDone, CommitFault::Pass, CommitFault::UnknownNotDone]);
        assert!(matches!(storage.commit(commit(1)), Err(CommitError::Unknown { .. })));
        assert_eq!(storage.resolve(Token(1)).unwrap(), Some(Committed { sequence: 1 }));
        assert_eq!(storage.commit(commit(1)).unwrap().sequence, 1);
        assert!(matches!(storage.commit(commit(2)), Err(CommitError::Unknown { .. })));
        assert_eq!(storage.resolve(Token(2)).unwrap(), None);
        assert_eq!(storage.commit(commit(2)).unwrap().sequence, 2);
        assert_eq!(storage.injected(), 2);
    }

    #[test]
    fn refusals_change_nothing() {
        let storage = FaultStorage::new(MemoryStorage::new());
        storage.script_commits([CommitFault::Conflict, CommitFault::Fenced, CommitFault::Busy]);
        assert!(matches!(storage.commit(commit(1)), Err(CommitError::Conflict { actual_lsn: 1, .. })));
        assert!(matches!(storage.commit(commit(1)), Err(CommitError::Fenced { epoch: 1, .. })));
        assert!(matches!(storage.commit(commit(1)), Err(CommitError::Busy)));
        assert_eq!(rows(&storage), 0);
        storage.commit(commit(1)).unwrap();
    }

    #[test]
    fn a_poisoned_storage_reads_and_writes_again_when_reopened() {
        let storage = FaultStorage::new(MemoryStorage::new());
        storage.commit(commit(1)).unwrap();
        storage.script_commits([CommitFault::PoisonDone]);
        let is_poisoned = |result| matches!(result, Err(CommitError::Storage(StorageError::Poisoned { .. })));
        assert!(is_poisoned(storage.commit(commit(2))));
        assert!(is_poisoned(storage.commit(commit(2))));
        assert!(storage.fence(PARTITION, 9).is_err());
        assert_eq!(rows(&storage), 1);
        storage.reopen().unwrap();
        assert_eq!(rows(&storage), 2);
        assert_eq!(storage.position(PARTITION).unwrap(), Some(Position { epoch: 0, lsn: 2 }));
        storage.commit(commit(3)).unwrap();
    }

    #[test]
    fn a_disk_with_broken_syncs_loses_the_newest_commits() {
        let storage = FaultStorage::new(MemoryStorage::new());
        storage.commit(commit(1)).unwrap();
        storage.record();
        assert!((2..=5).all(|lsn| storage.commit(commit(lsn)).is_ok()));
        storage.reopen_after_loss(2).unwrap();
        assert_eq!(rows(&storage), 3);
        assert_eq!(storage.position(PARTITION).unwrap(), Some(Position { epoch: 0, lsn: 3 }));
        storage.commit(commit(4)).unwrap();
    }

    #[test]
    fn reads_fail_on_demand() {
        let storage = FaultStorage::new(MemoryStorage::new());
        storage.script_reads([ReadFault::Pass, ReadFault::Fail]);
        let snapshot = storage.snapshot().unwrap();
        assert!(snapshot.get(Space(0), b"a").is_ok());
        assert!(matches!(snapshot.get(Space(0), b"a"), Err(StorageError::Io { .. })));
        assert!(snapshot.get(Space(0), b"a").is_ok());
    }

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let rates = Rates { conflict: 100, unknown_done: 100, unknown_not_done: 100, ..Rates::default() };
        let outcome = |seed| {
            let storage = FaultStorage::seeded(MemoryStorage::new(), seed, rates);
            (0..200).map(|_| storage.commit(commit(1)).is_ok()).collect::<Vec<_>>()
        };
        assert_eq!(outcome(7), outcome(7));
        assert_ne!(outcome(7), outcome(8));
    }
}
