//! The commits of one partition: writers, a reader, a transaction, one that holds the writers; and apart from them a change of
//! definitions, and the end of the container.
//!
//! Every attempt to write has a child id of its own, so the feed says at which LSN it was committed. Writers add 1 to a counter
//! under a lock, as writers of one item do: the values in the order of LSNs say whether one was prepared on old state.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use quire_resource::ItemTtl;
use quire_storage::{Op, Snapshot};
use shuttle::thread::yield_now;

use super::world::World;
use super::{Program, together};
use crate::api::{EngineError, IndexingDirective};
use crate::indexes::IndexChange;
use crate::partition::access::ContainerAccess;
use crate::partition::sequencer::{CommittedWrite, ItemPut, PreparedWrite, Sequencer, WriteRefused};
use crate::partition::sweep_due::SweepDue;
use crate::runtime::locks::{LockKind, LockMode, LockSet};
use crate::store::item_row::{Indexing, ItemRow, NewItemRow};
use crate::store::{keys, latest_feed_scan};
use crate::sync::races::Race;

pub(super) const PROGRAM: Program = Program {
    name: "sequencer",
    races: &[
        Race::PublishBeforeSync,
        Race::TwoLeaders,
        Race::LostHandover,
        Race::DoubtWithoutFence,
        Race::StaleCommitted,
        Race::ChangeNotNoted,
    ],
    run,
};

/// Definitions that change while a container is written to.
pub(super) const BARRIER: Program =
    Program { name: "barrier", races: &[Race::NoBarrier, Race::BarrierLeavesDoubt], run: run_barrier };

/// A container that is dropped while it is written to.
pub(super) const RETIRE: Program =
    Program { name: "retire", races: &[Race::LostHandover, Race::RetireLeavesDoubt], run: run_retire };

pub(super) const CONTAINER: u32 = 1;
const WRITERS: usize = 3;
const TRIES: usize = 3;
const FAULT_ONE_IN: u32 = 4;
/// Where there are few commits.
const FAULT_ONE_IN_FEW: u32 = 2;
const LOOKS: usize = 3;
/// The one logical partition of these items.
const NAME: u64 = 99;

/// One partition of a container that no catalog knows.
pub(super) struct Bench {
    pub world: World,
    pub sequencers: Vec<Arc<Sequencer>>,
    /// By child id, from 1 on.
    attempts: Mutex<Vec<WriteOutcome>>,
    definitions: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WriteOutcome {
    Open,
    Done {
        lsn: u64,
    },
    /// Certainly not done.
    Refused,
    /// Nobody said.
    Unknown,
}

/// What the feed of a partition has.
#[derive(Debug)]
pub(super) struct StoredFeed {
    pub lsn: u64,
    pub rid: u64,
    ts: i64,
    value: u64,
    definitions: u64,
}

fn run() {
    let bench = Arc::new(Bench::new(1));
    bench.world.storage.set_faults(FAULT_ONE_IN);
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for _ in 0..WRITERS {
        threads.push(bench.thread(Bench::increment));
    }
    threads.push(bench.thread(Bench::watch));
    threads.push(bench.thread(Bench::transact));
    threads.push(bench.thread(Bench::hold));
    together(threads);
    bench.check();
}

fn run_barrier() {
    let bench = Arc::new(Bench::new(1));
    bench.world.storage.set_faults(FAULT_ONE_IN_FEW);
    together([Bench::increment, Bench::increment, Bench::switch].map(|run| bench.thread(run)).into());
    bench.check();
}

fn run_retire() {
    let bench = Arc::new(Bench::new(1));
    bench.world.storage.set_faults(FAULT_ONE_IN);
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for _ in 0..WRITERS {
        threads.push(bench.thread(Bench::increment));
    }
    threads.push(bench.thread(Bench::retire));
    together(threads);
    bench.check_retired();
    bench.check();
}

impl Bench {
    pub fn new(partitions: u32) -> Bench {
        let world = World::bare();
        let (due, access) = (Arc::new(SweepDue::new()), Arc::<ContainerAccess>::default());
        let sequencer =
            |partition| Arc::new(Sequencer::new(&world.shared, CONTAINER, partition, (&due, &access)));
        let sequencers = (0..partitions).map(sequencer).collect();
        Bench { world, sequencers, attempts: Mutex::default(), definitions: AtomicU64::new(0) }
    }

    pub fn thread(self: &Arc<Bench>, run: fn(&Bench)) -> Box<dyn FnOnce() + Send> {
        let bench = Arc::clone(self);
        Box::new(move || run(&bench))
    }

    /// A new attempt: its child id.
    pub fn begin(&self) -> u64 {
        let mut attempts = self.attempts.lock().expect("no thread panicked");
        attempts.push(WriteOutcome::Open);
        attempts.len() as u64
    }

    pub fn end(&self, rid: u64, outcome: WriteOutcome) {
        self.attempts.lock().expect("no thread panicked")[rid as usize - 1] = outcome;
    }

    /// Adds 1 to the counter, once unless the outcome is unknown.
    fn increment(&self) {
        let Ok(_held) = self.world.shared.locks.take(&self.lock(LockMode::Exclusive)) else { return };
        for _ in 0..TRIES {
            let sequencer = &self.sequencers[0];
            let (rid, generation) = (self.begin(), sequencer.generation());
            let definitions = self.definitions.load(Ordering::Relaxed);
            let snapshot = self.world.shared.storage.snapshot().expect("it is open");
            let value = counter(&*snapshot) + 1;
            let prepared = prepared(generation, 0, rid, value, definitions);
            let outcome = WriteOutcome::of(sequencer.submit(prepared));
            self.end(rid, outcome);
            if outcome != WriteOutcome::Refused {
                return;
            }
        }
    }

    /// An LSN that was published is in every snapshot that is taken afterwards, and does not fall.
    fn watch(&self) {
        let mut last = 0;
        for _ in 0..LOOKS {
            let Ok(lsn) = self.sequencers[0].lsn() else { continue };
            let snapshot = self.world.shared.storage.snapshot().expect("it is open");
            let shown = counts(&*snapshot, 0).lsn;
            assert!(shown >= lsn, "LSN {lsn} was published, a snapshot shows {shown}");
            assert!(lsn >= last, "LSN {last} was published before {lsn}");
            last = lsn;
            yield_now();
        }
    }

    /// Adds 1 to the counter as a transaction does: reads without a lock, and writes only if nothing has changed since.
    fn transact(&self) {
        let sequencer = &self.sequencers[0];
        for _ in 0..LOOKS {
            let (rid, generation) = (self.begin(), sequencer.generation());
            let (Ok(lsn), definitions) = (sequencer.lsn(), self.definitions.load(Ordering::Relaxed)) else {
                return self.end(rid, WriteOutcome::Refused);
            };
            let value = counter(&*self.world.shared.storage.snapshot().expect("it is open")) + 1;
            yield_now();
            let held = self.world.shared.locks.take(&self.lock(LockMode::Exclusive));
            let outcome = match (held, sequencer.changed_since(NAME, lsn)) {
                (Ok(_held), Ok(false)) => {
                    WriteOutcome::of(sequencer.submit(prepared(generation, 0, rid, value, definitions)))
                }
                _ => WriteOutcome::Refused,
            };
            self.end(rid, outcome);
        }
    }

    /// Nothing is committed while the writers are held.
    fn hold(&self) {
        let Ok(held) = self.sequencers[0].hold() else { return };
        for _ in 0..LOOKS {
            let position = self.world.storage.position_now(keys::partition_id(CONTAINER, 0));
            assert_eq!(position, held.position, "a write was committed while the writers were held");
            yield_now();
        }
    }

    /// After the barrier every write is one under the new definitions.
    fn switch(&self) {
        self.definitions.store(1, Ordering::Relaxed);
        self.sequencers[0].invalidate_prepared();
        if self.sequencers[0].wait_for_barrier().is_err() {
            return;
        }
        let lsn = self.world.storage.position_now(keys::partition_id(CONTAINER, 0)).lsn;
        self.definitions.store(2 + lsn, Ordering::Relaxed);
    }

    /// Nothing is committed afterwards, also when all that was under way has arrived.
    fn retire(&self) {
        if self.sequencers[0].retire().is_err() {
            return;
        }
        let position = || self.world.storage.position_now(keys::partition_id(CONTAINER, 0));
        let retired = position();
        for _ in 0..LOOKS {
            yield_now();
            assert_eq!(position(), retired, "a write was committed after the container was retired");
        }
        self.definitions.store(2 + retired.lsn, Ordering::Relaxed);
    }

    fn check_retired(&self) {
        self.world.storage.settle();
        let lsn = self.world.storage.position_now(keys::partition_id(CONTAINER, 0)).lsn;
        if let Some(retired) = self.definitions.swap(0, Ordering::Relaxed).checked_sub(2) {
            assert_eq!(lsn, retired, "a write was committed after the container was retired");
        }
        self.sequencers[0].resume_writes();
        self.check();
    }

    fn lock(&self, mode: LockMode) -> LockSet {
        let mut set = LockSet::default();
        self.world.shared.locks.add(&mut set, CONTAINER, LockKind::LogicalPartition(b"counter"), mode);
        set
    }

    /// When everything that could happen has happened.
    pub fn check(&self) {
        self.world.storage.settle();
        for (partition, sequencer) in self.sequencers.iter().enumerate() {
            let held = sequencer.hold().expect("the storage answers again");
            let feed = self.feed(partition as u32);
            let lsns: Vec<u64> = feed.iter().map(|stored| stored.lsn).collect();
            assert!(lsns.iter().copied().eq(1..=held.position.lsn), "LSNs are not dense: {lsns:?}");
            assert!(feed.is_sorted_by_key(|stored| stored.ts), "_ts falls: {feed:?}");
            assert_eq!(held.counts.items, feed.len() as u64, "items are counted wrongly");
            drop(held);
            sequencer.wait_for_barrier().expect("the storage answers again");
        }
        self.check_values();
        self.check_outcomes();
    }

    /// No write was prepared on old state, or under old definitions after the barrier.
    fn check_values(&self) {
        let switched_at = self.definitions.load(Ordering::Relaxed).checked_sub(2);
        let counted = self.feed(0).into_iter().filter(|stored| stored.value > 0);
        for (number, stored) in (1..).zip(counted) {
            assert_eq!(stored.value, number, "an update was lost at LSN {}", stored.lsn);
            if switched_at.is_some_and(|lsn| stored.lsn > lsn) {
                assert_ne!(stored.definitions, 0, "old definitions at LSN {}", stored.lsn);
            }
        }
    }

    fn check_outcomes(&self) {
        let mut lsns: BTreeMap<u64, u64> = BTreeMap::new();
        for partition in 0..self.sequencers.len() {
            for StoredFeed { lsn, rid, .. } in self.feed(partition as u32) {
                assert_eq!(lsns.insert(rid, lsn), None, "a write was committed twice");
            }
        }
        let attempts = self.attempts.lock().expect("no thread panicked");
        for (rid, outcome) in (1..).zip(attempts.iter()) {
            let stored = lsns.get(&rid).copied();
            match outcome {
                WriteOutcome::Done { lsn } => {
                    assert_eq!(stored, Some(*lsn), "an acknowledged write is not there")
                }
                WriteOutcome::Refused => assert_eq!(stored, None, "a refused write is there"),
                WriteOutcome::Unknown => {}
                WriteOutcome::Open => panic!("a write was not answered"),
            }
        }
    }

    /// In the order of LSNs.
    pub fn feed(&self, partition: u32) -> Vec<StoredFeed> {
        let snapshot = self.world.storage.now();
        let page = snapshot.scan(&latest_feed_scan(CONTAINER, partition, 0, usize::MAX)).expect("it is open");
        let feed = page.rows.iter().map(|(key, rid)| {
            let (lsn, rid) = (keys::lsn_of_feed_key(key), keys::number(rid));
            (lsn.expect("key of a feed row"), rid.expect("value of a feed row"))
        });
        feed.map(|(lsn, rid)| stored(&*snapshot, lsn, rid)).collect()
    }
}

impl WriteOutcome {
    pub fn of(answer: Result<CommittedWrite, WriteRefused>) -> WriteOutcome {
        match answer {
            Ok(written) => WriteOutcome::Done { lsn: written.lsn },
            Err(WriteRefused::Stale | WriteRefused::Failed(EngineError::ResourceNotFound { .. })) => {
                WriteOutcome::Refused
            }
            Err(WriteRefused::Failed(EngineError::Overloaded)) => WriteOutcome::Unknown,
            Err(WriteRefused::Failed(error)) => panic!("{error}"),
        }
    }
}

fn stored(snapshot: &dyn Snapshot, lsn: u64, rid: u64) -> StoredFeed {
    let row = snapshot.get(keys::ITEMS, &keys::item(CONTAINER, rid)).expect("it is open");
    let row = row.expect("a feed row has an item");
    let row = ItemRow::parse(&row).expect("its checksum holds");
    assert_eq!(row.stamp.lsn, lsn, "an item of another LSN");
    let number = |at: usize| keys::number(&row.item()[at..at + 8]).expect("8 bytes");
    StoredFeed { lsn, rid, ts: row.stamp.ts, value: number(0), definitions: number(8) }
}

fn counter(snapshot: &dyn Snapshot) -> u64 {
    let value = snapshot.get(keys::LOOKUPS, b"counter").expect("it is open");
    value.as_deref().and_then(keys::number).unwrap_or(0)
}

pub(super) fn counts(snapshot: &dyn Snapshot, partition: u32) -> keys::Counts {
    let value = snapshot.get(keys::CATALOG, &keys::counts(CONTAINER, partition)).expect("it is open");
    value.map_or(keys::Counts::default(), |value| keys::Counts::decode(&value).expect("counts"))
}

/// A new item that notes the counter's new value; 0: the counter is left alone.
pub(super) fn prepared(
    generation: u64,
    partition: u32,
    rid: u64,
    value: u64,
    definitions: u64,
) -> PreparedWrite {
    let item = [value.to_be_bytes(), definitions.to_be_bytes()].concat();
    let indexing = Indexing { has_rows: false, directive: IndexingDirective::Default, epoch: 0 };
    let (incarnation, ttl, json_bytes, own_etag, client) = (1, ItemTtl::Inherit, 2, None, None);
    let draft = NewItemRow {
        incarnation,
        partition,
        indexing,
        ttl,
        json_bytes,
        own_etag,
        client,
        partition_key: b"k",
        item: &item,
    };
    let (row, indexes) = (draft.encode(), IndexChange::between(None, None));
    let (ttl_seconds, expiry_before, version, maintained_by) = (None, None, None, None);
    let written = None;
    let put = ItemPut { rid, row, written, ttl_seconds, expiry_before, indexes, version, maintained_by };
    let count = Op::Put { space: keys::LOOKUPS, key: b"counter".to_vec(), value: keys::number_value(value) };
    PreparedWrite {
        is_index_maintenance: false,
        puts: [put].into_iter().collect(),
        items_delta: 1,
        touched: [rid.to_be_bytes().to_vec()].into_iter().collect(),
        logical_partitions: [NAME].into_iter().collect(),
        ..PreparedWrite::index_maintenance(generation, if value > 0 { vec![count] } else { Vec::new() })
    }
}
