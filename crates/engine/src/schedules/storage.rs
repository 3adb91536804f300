//! A storage under the explorer: every call is a point at which another thread may go on, and the schedule chooses the faults.
//!
//! It is the in-memory storage inside the fault storage. One fault is made here: a commit of unknown outcome that happens *later*,
//! at any call, or when all else has ended, if nothing keeps it from happening.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::layer::StorageLayer;
use quire_storage::memory::MemoryStorage;
use quire_storage::{
    Commit, CommitError, Committed, KeyRange, PartitionId, Position, Removal, Snapshot, Space, Storage,
    StorageError, Token,
};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::AtomicBool;

use crate::maintenance::verify::{VerifyReport, verify};

type Inner = FaultStorage<MemoryStorage>;

pub(super) struct SteppedStorage {
    inner: Arc<Inner>,
    /// Its loads are the points.
    point: AtomicBool,
    /// One of so many commits has a fault; 0: none has.
    fault_one_in: AtomicU32,
    /// Questions for outcomes that fail before one is answered.
    outage: AtomicU32,
    /// Commits that are still on their way,
    late: Mutex<Vec<Commit>>,
    /// and those that arrive when all else has ended.
    last: Mutex<Vec<Commit>>,
}

#[derive(Clone, Copy)]
enum Fault {
    Injected(CommitFault),
    UnknownLate,
}

const FAULTS: &[Fault] = &[
    Fault::Injected(CommitFault::Busy),
    Fault::Injected(CommitFault::Conflict),
    Fault::Injected(CommitFault::UnknownDone),
    Fault::Injected(CommitFault::UnknownNotDone),
    Fault::UnknownLate,
    Fault::UnknownLate,
];
/// After an unknown outcome, so many questions for it fail. The last is more than a sequencer asks: the outcome stays in doubt.
const OUTAGES: &[u32] = &[0, 0, 1, 7];
/// At one of so many calls a commit arrives that is on its way.
const ARRIVAL_ONE_IN: u32 = 8;

impl SteppedStorage {
    pub fn new(store: MemoryStorage) -> Arc<SteppedStorage> {
        let (fault_one_in, outage, late, last) = Default::default();
        let inner = Arc::new(FaultStorage::new(store));
        Arc::new(SteppedStorage { inner, point: AtomicBool::new(false), fault_one_in, outage, late, last })
    }

    pub fn set_faults(&self, one_in: u32) {
        self.fault_one_in.store(one_in, Ordering::Relaxed);
    }

    /// No more faults; returns when everything that could still happen has happened.
    pub fn settle(&self) {
        self.set_faults(0);
        self.outage.store(0, Ordering::Relaxed);
        for way in [&self.late, &self.last] {
            for commit in std::mem::take(&mut *way.lock().expect("no thread panicked")) {
                // Nearly all are refused by now.
                let _outcome = self.inner.commit(commit);
            }
        }
    }

    /// What is stored now, without a point.
    pub fn now(&self) -> Box<dyn Snapshot> {
        self.inner.snapshot().expect("it is open")
    }

    pub fn position_now(&self, partition: PartitionId) -> Position {
        self.inner.position(partition).expect("it is open").unwrap_or(Position { epoch: 0, lsn: 0 })
    }

    /// Reads all of it, without a point.
    pub fn verify(&self) -> VerifyReport {
        verify(&*self.inner).expect("it is open")
    }

    fn step(&self) {
        self.point.load(Ordering::SeqCst);
        self.arrive();
    }

    fn draw(&self) -> Fault {
        let one_in = self.fault_one_in.load(Ordering::Relaxed);
        if one_in == 0 || !thread_rng().gen_ratio(1, one_in) {
            return Fault::Injected(CommitFault::Pass);
        }
        self.outage.store(OUTAGES[thread_rng().gen_range(0..OUTAGES.len())], Ordering::Relaxed);
        FAULTS[thread_rng().gen_range(0..FAULTS.len())]
    }

    fn check_outage(&self) -> Result<(), StorageError> {
        let left = self.outage.load(Ordering::Relaxed);
        if left == 0 {
            return Ok(());
        }
        self.outage.store(left - 1, Ordering::Relaxed);
        Err(StorageError::Io { doing: "asking".into(), source: std::io::Error::other("injected") })
    }

    fn commit_later(&self, commit: Commit) -> CommitError {
        let token = commit.token;
        let way = if thread_rng().gen_ratio(1, 2) { &self.late } else { &self.last };
        way.lock().expect("no thread panicked").push(commit);
        CommitError::Unknown { token }
    }

    /// What was sent earlier may arrive now.
    fn arrive(&self) {
        let mut late = self.late.lock().expect("no thread panicked");
        if !late.is_empty() && thread_rng().gen_ratio(1, ARRIVAL_ONE_IN) {
            // It may be refused by now.
            let _outcome = self.inner.commit(late.remove(0));
        }
    }
}

impl StorageLayer for SteppedStorage {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StorageError> {
        self.step();
        let snapshot = self.inner.snapshot();
        self.step();
        snapshot
    }
    fn commit(&self, commit: Commit) -> Result<Committed, CommitError> {
        self.step();
        let outcome = match self.draw() {
            Fault::UnknownLate => Err(self.commit_later(commit)),
            Fault::Injected(fault) => {
                self.inner.script_commits([fault]);
                self.inner.commit(commit)
            }
        };
        self.step();
        outcome
    }
    fn position(&self, partition: PartitionId) -> Result<Option<Position>, StorageError> {
        self.step();
        self.inner.position(partition)
    }
    fn fence(&self, partition: PartitionId, epoch: u64) -> Result<Position, StorageError> {
        self.step();
        self.inner.fence(partition, epoch)
    }
    fn resolve(&self, token: Token) -> Result<Option<Committed>, StorageError> {
        self.step();
        self.check_outage()?;
        self.inner.resolve(token)
    }
    fn remove_range(&self, space: Space, range: &KeyRange) -> Result<Removal, StorageError> {
        self.step();
        self.inner.remove_range(space, range)
    }
}
