//! The conformance suite. Every storage passes it unchanged.
//!
//! An implementation provides a [`TestStorage`], which can be opened, closed and killed, and calls [`run`]. Each case
//! starts on an empty storage. Random cases print their seed; `QUIRE_SEED` repeats one.

#![allow(clippy::unwrap_used, reason = "a test suite: a panic is its verdict")]

mod commits;
mod concurrent;
mod model;
mod reads;
mod removals;
mod rows;

use crate::random::Random;
use crate::{
    Commit, CommitError, Committed, Direction, Guard, KeyRange, Op, PartitionId, Removal, Scan, Snapshot,
    Space, Storage, Token,
};
use std::ops::Bound;
use std::sync::Arc;

/// A storage that can be opened again.
pub trait TestStorage {
    fn storage(&self) -> Arc<dyn Storage>;
    /// Closes and opens again.
    fn reopen(&mut self);
    /// Opens again as after a crash: nothing was flushed or closed. The default closes.
    fn crash(&mut self) {
        self.reopen();
    }
}

/// Runs every case, each on a new storage.
pub fn run(make: impl Fn() -> Box<dyn TestStorage>) {
    for (name, case) in CASES {
        eprintln!("conformance: {name}");
        case(&mut Fixture::new(make()));
    }
}

type Case = fn(&mut Fixture);

const CASES: &[(&str, Case)] = &[
    ("an empty storage answers nothing", rows::empty),
    ("rows come back as written", rows::put_get_delete),
    ("spaces are separate", rows::spaces),
    ("a space that does not exist is refused", rows::unknown_space),
    ("multi_get answers in the order of its keys", rows::multi_get),
    ("visit_values shows what multi_get gives", rows::visit_values),
    ("a snapshot never sees a later commit", reads::snapshot_isolation),
    ("a snapshot outlives many later commits", reads::long_snapshot),
    ("scans honour bounds in both directions", reads::scan_bounds),
    ("scans honour their budgets", reads::scan_budgets),
    ("a visiting scan shows what a scan gives", reads::visits),
    ("a visitor ends its scan, and may read", reads::visitor_breaks),
    ("others commit while a visitor takes its time", reads::visitor_waits),
    ("paged scans give every row once", reads::scan_pages),
    ("prefix ranges at their edges", reads::prefixes),
    ("rows ops unfold", rows::rows_ops),
    ("a commit is all or nothing", commits::atomic),
    ("guards are dense", commits::guards),
    ("a commit may span partitions", commits::guards_of_several_partitions),
    ("fencing", commits::fencing),
    ("a retried token gives the first answer", commits::tokens),
    ("a failed commit leaves its token free", commits::failed_token),
    ("sequences rise", commits::sequences),
    ("too large a commit changes nothing", commits::too_large),
    ("a malformed commit changes nothing", commits::malformed),
    ("concurrent commits to different partitions", concurrent::partitions),
    ("concurrent commits to one partition", concurrent::conflicts),
    ("concurrent retries of one token", concurrent::token),
    ("readers see whole commits under writers", concurrent::readers),
    ("readers see index rows of whole commits", concurrent::index_readers),
    ("rows and ordinary ops of one space have one order", rows::rows_and_puts),
    ("everything survives closing", rows::survives_reopen),
    ("everything survives a crash", rows::survives_crash),
    ("a closed storage says so", rows::closed),
    ("hints and figures", rows::hints_and_figures),
    ("a removed range is empty, its neighbours are whole", removals::neighbours_stay),
    ("a removal outlives closing and crashes", removals::is_durable),
    ("the newest rows, once removed, stay away", removals::newest_rows),
    ("a removal interrupted by a crash is done again", removals::interrupted),
    ("a snapshot keeps what a later removal takes", removals::older_snapshots),
    ("a removed range takes commits again", removals::written_again),
    ("removals beside writers and readers", removals::beside_writers),
    ("removals at the edges", removals::edges),
    ("random operations match a map", model::random_operations),
];

/// The storage under test, with helpers for the cases.
struct Fixture {
    subject: Box<dyn TestStorage>,
    storage: Arc<dyn Storage>,
    next_token: u128,
}

impl Fixture {
    fn new(subject: Box<dyn TestStorage>) -> Fixture {
        let storage = subject.storage();
        Fixture { subject, storage, next_token: 1 << 100 }
    }

    fn reopen(&mut self) {
        self.storage = Arc::new(crate::memory::MemoryStorage::new()); // drops the old one
        self.subject.reopen();
        self.storage = self.subject.storage();
    }

    fn crash(&mut self) {
        self.storage = Arc::new(crate::memory::MemoryStorage::new()); // drops the old one
        self.subject.crash();
        self.storage = self.subject.storage();
    }

    fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// A commit without guards.
    fn write(&mut self, ops: Vec<Op>) -> Committed {
        self.try_write(ops).expect("commit")
    }

    fn try_write(&mut self, ops: Vec<Op>) -> Result<Committed, CommitError> {
        let token = self.token();
        self.storage.commit(Commit { guards: vec![], token, ops })
    }

    fn guarded(&mut self, guards: &[Guard]) -> Result<Committed, CommitError> {
        let token = self.token();
        let ops = guards.iter().map(|guard| put(0, &lsn_key(guard), b"x")).collect();
        self.storage.commit(Commit { guards: guards.to_vec(), token, ops })
    }

    /// Removes a range completely. Returns the number of steps.
    fn remove(&self, space: u8, range: &KeyRange) -> usize {
        (1..).find(|_| self.removal_step(space, range) == Removal::Done).unwrap()
    }

    fn removal_step(&self, space: u8, range: &KeyRange) -> Removal {
        self.storage.remove_range(Space(space), range).expect("removal")
    }

    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.storage.snapshot().expect("snapshot")
    }

    fn get(&self, space: u8, key: &[u8]) -> Option<Vec<u8>> {
        self.snapshot().get(Space(space), key).expect("get")
    }

    fn keys(&self, space: u8) -> Vec<Vec<u8>> {
        keys_in(&*self.snapshot(), space, KeyRange::all(), Direction::Forward)
    }
}

fn lsn_key(guard: &Guard) -> Vec<u8> {
    [guard.partition.0.to_be_bytes(), guard.next_lsn.to_be_bytes()].concat()
}

fn put(space: u8, key: &[u8], value: &[u8]) -> Op {
    Op::Put { space: Space(space), key: key.to_vec(), value: value.to_vec() }
}

fn delete(space: u8, key: &[u8]) -> Op {
    Op::Delete { space: Space(space), key: key.to_vec() }
}

fn guard(partition: u64, epoch: u64, previous_lsn: u64, next_lsn: u64) -> Guard {
    Guard { partition: PartitionId(partition), epoch, previous_lsn, next_lsn }
}

fn whole_scan(space: u8, range: KeyRange, direction: Direction) -> Scan {
    Scan {
        space: Space(space),
        range,
        direction,
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
        keys_only: false,
    }
}

fn keys_in(snapshot: &dyn Snapshot, space: u8, range: KeyRange, direction: Direction) -> Vec<Vec<u8>> {
    let page = snapshot.scan(&whole_scan(space, range, direction)).expect("scan");
    assert!(!page.more, "a scan without budgets is complete");
    page.rows.into_iter().map(|(key, _)| key).collect()
}

/// The range that continues a page after `key`.
fn rest(range: &KeyRange, direction: Direction, key: Vec<u8>) -> KeyRange {
    match direction {
        Direction::Forward => KeyRange { start: Bound::Excluded(key), end: range.end.clone() },
        Direction::Backward => KeyRange { start: range.start.clone(), end: Bound::Excluded(key) },
    }
}

/// From `QUIRE_SEED`, else one per run.
fn seed() -> u64 {
    let given = std::env::var("QUIRE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| {
        use std::hash::{BuildHasher, Hasher};
        std::hash::RandomState::new().build_hasher().finish()
    });
    eprintln!("QUIRE_SEED={seed}");
    seed
}

fn random() -> Random {
    Random(seed())
}
