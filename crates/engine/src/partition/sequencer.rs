//! One commit for all writes of a partition that wait, stamped with dense LSNs.
//!
//! There is no thread: a writer that finds no leader leads. It takes what waits in the queue (itself first), stamps
//! it, sends **one** storage commit with one guard, answers everyone in the group, and hands leadership to the next
//! in the queue. While it waits for the disk the queue grows, and that is the next group.
//!
//! Invariants:
//! 1. At most one leader, and never none while the queue is not empty. Leadership is given under the mutex of
//!    `State`, to a ticket that is in the queue, and is handed on by a drop guard, so a panic does not lose it.
//! 2. LSNs are dense: one per write or transaction, assigned in commit order; `_ts` never falls. Upkeep of index rows
//!    changes no item and has none.
//! 3. A write is committed only if nothing uncertain happened since it was prepared: `generation` is noted before
//!    the write's snapshot and moves whenever the outcome of a commit was in doubt. A write of an older generation
//!    is [`Refused::Stale`] and prepares again.
//! 4. `lsn` is published after the commit is durable and visible, and after the item cache forgot what it changed.
//! 5. A write is committed only if its index rows were made under the policy that is the newest when its group is
//!    taken; any other is [`Refused::Stale`] too.
//! 6. After [`Sequencer::retire`] has returned nothing is committed.
//! 7. What [`Sequencer::changed_since`] denies has not happened: a write is noted before anyone is told of it, and
//!    whatever cannot be noted (the outcome was in doubt, or the partition was just opened) counts as changed at the
//!    LSN that is read afterwards.
//! 8. A partition that was split commits nothing more: what waits or comes later is told `PartitionMoved`.
//! 9. A commit over several partitions leads all of them, in the order of their ids, so leaders never wait in a circle.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use quire_storage::{Commit, CommitError, Guard, Op, PartitionId, Position, StorageError, Token};
use smallvec::SmallVec;

use crate::EngineError;
use crate::indexes::{CountedIndexes, IndexChange, IndexId, IndexName};
use crate::memory::budget::SharedPart;
use crate::partition::sweep_due::{Noted, SweepDue};
use crate::partition::watch::Watchers;
use crate::runtime::shared::Shared;
use crate::store::item_row;
use crate::store::keys;
use crate::store::keys::Counts;
use crate::store::version_row::{Before, Deleted, Version, VersionKind};

/// A group is at most half of what the storage takes, and no more than this: the first in it waits for the last.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// Logical partitions of which is kept when they last changed: twice as many at most.
const CHANGES_KEPT: usize = 8192;
/// The same while all partitions of all containers together have more than their part of the memory.
const CHANGES_KEPT_MIN: usize = 128;
/// What one of them takes.
const CHANGE_BYTES: usize = 32;
/// How often the outcome of a commit is asked for before the partition stops taking writes.
const RESOLVE_TRIES: u32 = 6;

/// A write whose rows are computed but for LSN, `_ts` and what follows from them.
pub(crate) struct Prepared {
    /// From [`Sequencer::generation`], taken before the snapshot the write was prepared on.
    pub generation: u64,
    /// Under which policy its index rows were made.
    pub index_epoch: u8,
    /// Whose items change: see [`Sequencer::changed_since`].
    pub logical_partitions: SmallVec<[u64; 1]>,
    /// The `_ts` that was shown before the commit: it is taken, unless the partition has reached a later one.
    pub asked_ts: Option<i64>,
    /// Items to put, in the order of the transaction: their index is the ordinal.
    pub puts: SmallVec<[ItemPut; 1]>,
    /// Rows that do not depend on the stamp.
    pub ops: Vec<Op>,
    pub items_delta: i64,
    pub bytes_delta: i64,
    pub unindexed_items_delta: i64,
    /// Rows that each index gains by `ops`; those of `puts` come on top.
    pub index_rows_delta: Vec<(IndexId, i64)>,
    /// Items that go, where all versions are kept.
    pub deleted: Vec<Deleted>,
    /// Cache keys of all items that change.
    pub touched: SmallVec<[Vec<u8>; 1]>,
    /// Indexes to be listed, besides those of `puts`.
    pub index_names: Vec<Arc<IndexName>>,
    /// Changes no item, so it gets no LSN.
    pub is_upkeep: bool,
}

pub(crate) struct ItemPut {
    pub rid: u64,
    /// Encoded with empty slots.
    pub row: Vec<u8>,
    /// Own ttl: the item gets an expiry row.
    pub ttl_seconds: Option<u32>,
    /// When the version before this one was to expire by its own ttl: that row goes.
    pub expiry_before: Option<i64>,
    pub indexes: IndexChange,
    /// The version before, where all versions are kept.
    pub version: Option<Option<Before>>,
}

/// A write that is durable and visible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub lsn: u64,
    pub ts: i64,
}

#[derive(Debug)]
pub(crate) enum Refused {
    /// Nothing happened; prepare again on a new snapshot.
    Stale,
    Failed(EngineError),
}

pub(crate) struct Sequencer {
    container: u32,
    partition: u32,
    shared: Arc<Shared>,
    state: Mutex<State>,
    /// An LSN was published, or leadership ended.
    moved: Condvar,
    /// Woken when an LSN was published, and when none will be any more.
    watchers: Watchers,
    standing_known: AtomicBool,
    generation: AtomicU64,
    index_epoch: AtomicU8,
    lsn: AtomicU64,
    last_ts: AtomicI64,
    items: AtomicU64,
    bytes: AtomicU64,
    /// Of the container.
    sweep_due: Arc<SweepDue>,
}

struct State {
    queue: VecDeque<Arc<Ticket>>,
    leading: bool,
    /// `None` until it is read from the storage. Some during every commit, so a reload never races with one.
    standing: Option<Standing>,
    /// The leader has it while it commits; `None` also when it has to be read again.
    counted_indexes: Option<CountedIndexes>,
    unresolved: Option<Unresolved>,
    retired: bool,
    /// Split: its children go on.
    moved: bool,
    changes: Changes,
}

impl State {
    fn new(changes_kept: &Arc<SharedPart>) -> State {
        let (queue, leading, standing, counted_indexes, unresolved, retired, moved) = Default::default();
        let changes = Changes::new(changes_kept);
        State { queue, leading, standing, counted_indexes, unresolved, retired, moved, changes }
    }
}

/// When logical partitions last changed, as far as that is kept: the newest ones by name, all others no later than
/// `floor`.
///
/// What all partitions keep is bounded: see [`CacheBudget`](crate::memory::budget::CacheBudget). Less is kept then, which only makes transactions begin again that
/// need not have.
struct Changes {
    kept: Arc<SharedPart>,
    newest: HashMap<u64, u64>,
    older: HashMap<u64, u64>,
    /// The last LSN in `older`.
    older_end: u64,
    floor: u64,
}

#[derive(Clone, Copy)]
struct Standing {
    epoch: u64,
    counts: Counts,
}

/// A commit of which nobody could be told how it ended.
struct Unresolved {
    token: Token,
    touched: Vec<Vec<u8>>,
    rids: Vec<u64>,
}

struct Ticket {
    stage: Mutex<Stage>,
    changed: Condvar,
}

enum Stage {
    Waiting(Prepared),
    Lead(Prepared),
    /// Waits to lead a commit over several partitions.
    Seat,
    LeadSeat,
    /// In a group under way.
    Taken,
    Done(Result<Written, Refused>),
    /// The writer has its answer.
    Gone,
}

/// The tickets of one commit, answered at the latest when dropped.
struct Group<'a> {
    sequencer: &'a Sequencer,
    tickets: Vec<Arc<Ticket>>,
    written: Vec<Written>,
    touched: Vec<Vec<u8>>,
    /// Items that change.
    rids: Vec<u64>,
    /// Logical partitions whose items change, and at which LSN.
    changed: Vec<(u64, u64)>,
    /// Indexes that this commit lists.
    names: Vec<Arc<IndexName>>,
    /// For the sweep.
    noted: Noted,
    marked: bool,
}

struct Handover<'a>(&'a Sequencer);

/// A partition without writers.
pub(crate) struct Held<'a> {
    handover: Handover<'a>,
    /// Of its guarded sequence.
    pub position: Position,
    pub counts: Counts,
}

impl Held<'_> {
    /// It was split, or will have been when the outcome of a commit is known: no write is taken any more.
    pub fn set_moved(&self) {
        self.handover.0.state.lock().moved = true;
        self.handover.0.watchers.wake();
    }
}

/// One commit over several partitions, each of them once: all of it or nothing, with one LSN in each. Blocks as
/// [`Sequencer::submit`] does; answers in the order of the writes.
pub(crate) fn submit_across(writes: Vec<(&Sequencer, Prepared)>) -> Result<Vec<Written>, Refused> {
    let mut order: Vec<usize> = (0..writes.len()).collect();
    order.sort_unstable_by_key(|&at| writes[at].0.storage_partition());
    let mut writes: Vec<Option<(&Sequencer, Prepared)>> = writes.into_iter().map(Some).collect();
    let in_order = order.iter().filter_map(|&at| writes[at].take());
    let written = submit_in_order(in_order.map(|(sequencer, write)| (sequencer, vec![write])).collect())?;
    let mut answers = vec![Written { lsn: 0, ts: 0 }; order.len()];
    order.into_iter().zip(written).for_each(|(at, written)| answers[at] = written);
    Ok(answers)
}

/// The same for several writes of each partition, which keep LSNs of their own.
pub(crate) fn submit_together(mut writes: Vec<(&Sequencer, Vec<Prepared>)>) -> Result<(), Refused> {
    writes.sort_unstable_by_key(|(sequencer, _)| sequencer.storage_partition());
    submit_in_order(writes).map(|_| ())
}

fn submit_in_order(writes: Vec<(&Sequencer, Vec<Prepared>)>) -> Result<Vec<Written>, Refused> {
    let Some(&(first, _)) = writes.first() else { return Ok(Vec::new()) };
    let _seats: Vec<Handover<'_>> = writes.iter().map(|(sequencer, _)| sequencer.take_seat()).collect();
    let mut standings = Vec::with_capacity(writes.len());
    for (sequencer, prepared) in &writes {
        standings.push(sequencer.ready().map_err(Refused::Failed)?);
        if prepared.iter().any(|prepared| sequencer.is_stale(prepared)) {
            return Err(Refused::Stale);
        }
    }
    let token = random_token().map_err(Refused::Failed)?;
    let (mut ops, mut guards, mut groups, mut afters) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for ((sequencer, prepared), standing) in writes.into_iter().zip(standings) {
        let mut group = Group::new(sequencer);
        // An index is listed once by a commit, whichever partition is the first to need it.
        let listed = |other: &&Group<'_>| other.sequencer.container == sequencer.container;
        group.names = groups.iter().filter(listed).flat_map(|other| other.names.clone()).collect();
        let from = ops.len();
        let (guard, after) = sequencer.stamp_all(prepared, standing, &mut ops, &mut group);
        group.rids.extend(ops[from..].iter().filter_map(item_of));
        guards.push(guard);
        afters.push(after);
        groups.push(group);
    }
    let written = groups.iter().flat_map(|group| group.written.clone()).collect();
    groups.iter_mut().for_each(Group::mark);
    let outcome = first.shared.storage.commit(Commit { guards, token, ops });
    let outcome = match outcome {
        Ok(_) => Outcome::Done,
        // A raised epoch of one partition keeps all of the commit from happening.
        Err(CommitError::Unknown { .. }) => match first.settle(token) {
            Some(true) => Outcome::DoneElsewhere,
            Some(false) => Outcome::Nothing,
            None => Outcome::InDoubt,
        },
        Err(CommitError::Busy | CommitError::Conflict { .. }) => Outcome::Nothing,
        Err(error) => {
            let error = first.explain(error);
            groups.into_iter().for_each(|group| group.fail(&error));
            return Err(Refused::Failed(error));
        }
    };
    for (group, after) in groups.into_iter().zip(afters) {
        match outcome {
            Outcome::Done => group.succeed(after.0.counts, Some(after)),
            Outcome::DoneElsewhere => group.succeed(after.0.counts, None),
            Outcome::Nothing => group.stale(),
            Outcome::InDoubt => group.in_doubt(token),
        }
    }
    match outcome {
        Outcome::Done | Outcome::DoneElsewhere => Ok(written),
        Outcome::Nothing => Err(Refused::Stale),
        Outcome::InDoubt => Err(Refused::Failed(EngineError::Overloaded)),
    }
}

/// What a commit over several partitions came to.
#[derive(Clone, Copy)]
enum Outcome {
    Done,
    /// It is certain now, but where the partitions stand has to be read again.
    DoneElsewhere,
    Nothing,
    InDoubt,
}

impl Sequencer {
    pub fn new(
        shared: &Arc<Shared>,
        container: u32,
        partition: u32,
        index_epoch: u8,
        sweep_due: &Arc<SweepDue>,
    ) -> Sequencer {
        Sequencer {
            sweep_due: Arc::clone(sweep_due),
            container,
            partition,
            shared: Arc::clone(shared),
            state: Mutex::new(State::new(&shared.changes_kept)),
            moved: Condvar::new(),
            watchers: Watchers::default(),
            standing_known: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            index_epoch: AtomicU8::new(index_epoch),
            lsn: AtomicU64::new(0),
            last_ts: AtomicI64::new(0),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    pub fn container(&self) -> u32 {
        self.container
    }

    /// To be noted before the snapshot a write is prepared on.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The last LSN that is durable and visible. A snapshot taken after this call shows it.
    pub fn lsn(&self) -> Result<u64, EngineError> {
        self.know_standing()?;
        Ok(self.lsn.load(Ordering::Acquire))
    }

    /// The last `_ts`, once [`Sequencer::lsn`] has answered.
    pub fn last_ts(&self) -> i64 {
        self.last_ts.load(Ordering::Acquire)
    }

    /// The same as `lsn` without touching the disk, if it is known.
    pub fn lsn_known(&self) -> Option<u64> {
        self.standing_known.load(Ordering::Acquire).then(|| self.lsn.load(Ordering::Acquire))
    }

    /// Items and bytes that the partition holds.
    pub fn usage(&self) -> Result<(u64, u64), EngineError> {
        self.know_standing()?;
        Ok((self.items.load(Ordering::Acquire), self.bytes.load(Ordering::Acquire)))
    }

    pub fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// Whether a read would find more than up to this LSN, or another answer than before. Without touching the disk:
    /// what is not known may have changed.
    pub fn is_beyond(&self, lsn: u64) -> bool {
        if self.lsn_known().is_none_or(|reached| reached > lsn) {
            return true;
        }
        let state = self.state.lock();
        state.moved || state.retired
    }

    /// Whether the partition was split: its children go on.
    pub fn is_moved(&self) -> bool {
        self.state.lock().moved
    }

    /// Blocks until the write is durable and visible, or certainly not going to be (except after `Overloaded`).
    pub fn submit(&self, prepared: Prepared) -> Result<Written, Refused> {
        let ticket = Ticket::new(Stage::Waiting(prepared));
        let leads = self.enqueue(std::slice::from_ref(&ticket));
        if leads || ticket.wait_to_lead() {
            self.lead();
        }
        ticket.answer()
    }

    /// The same for several writes that have nothing to do with each other: they share a sync as far as they fit into
    /// one group. Answers in their order.
    pub fn submit_all(&self, writes: Vec<Prepared>) -> Vec<Result<Written, Refused>> {
        let tickets: Vec<_> = writes.into_iter().map(|write| Ticket::new(Stage::Waiting(write))).collect();
        let mut leads = self.enqueue(&tickets);
        // Tickets are served in their order, so the one that is to lead is the first without an answer.
        let answer = |ticket: &Arc<Ticket>| {
            if std::mem::take(&mut leads) || ticket.wait_to_lead() {
                self.lead();
            }
            ticket.answer()
        };
        tickets.iter().map(answer).collect()
    }

    /// Whether items of a logical partition may have changed after an LSN. The caller holds its lock exclusively, so
    /// the answer stays true.
    pub fn changed_since(&self, logical_partition: u64, lsn: u64) -> Result<bool, EngineError> {
        self.know_standing()?;
        Ok(self.state.lock().changes.last(logical_partition) > lsn)
    }

    /// True: the caller leads now, and the first of the tickets is taken first.
    fn enqueue(&self, tickets: &[Arc<Ticket>]) -> bool {
        let mut state = self.state.lock();
        state.queue.extend(tickets.iter().cloned());
        !tickets.is_empty() && !std::mem::replace(&mut state.leading, true)
    }

    /// From now on writes are taken that were prepared under this policy, and no others. Epochs come again, so what
    /// was prepared until now is void in any case.
    pub fn set_index_epoch(&self, epoch: u8) {
        if self.index_epoch.swap(epoch, Ordering::AcqRel) != epoch {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// What was prepared until now is prepared again, except what is in a group under way.
    pub fn void_prepared(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Refuses all later writes; returns when none is under way.
    pub fn retire(&self) {
        let mut state = self.state.lock();
        state.retired = true;
        while state.leading {
            self.moved.wait(&mut state);
        }
        drop(state);
        self.watchers.wake();
    }

    pub fn revive(&self) {
        self.state.lock().retired = false;
    }

    /// Stops the writers: nothing is under way, and nothing is committed before the answer is dropped.
    pub fn hold(&self) -> Result<Held<'_>, EngineError> {
        let handover = self.take_seat();
        let (standing, counted) = self.ready()?;
        self.state.lock().counted_indexes = Some(counted);
        let Standing { epoch, counts } = standing;
        Ok(Held { handover, position: Position { epoch, lsn: counts.lsn }, counts })
    }

    /// Becomes the leader, without a group of its own, until the answer is dropped.
    fn take_seat(&self) -> Handover<'_> {
        let ticket = Ticket::new(Stage::Seat);
        if !self.enqueue(std::slice::from_ref(&ticket)) {
            ticket.wait_to_lead();
        }
        let handover = Handover(self);
        // It is the first: the queue was empty, or leadership was handed to it.
        self.state.lock().queue.pop_front();
        handover
    }

    fn lead(&self) {
        let _handover = Handover(self);
        let mut group = Group::new(self);
        let taken = {
            let mut state = self.state.lock();
            self.take_group(&mut state, &mut group)
        };
        match self.ready() {
            Ok((standing, counted)) => self.commit_group(group, taken, standing, counted),
            Err(error) => group.fail(&error),
        }
    }

    /// Takes from the front of the queue what fits into one commit.
    fn take_group(&self, state: &mut State, group: &mut Group<'_>) -> Vec<Prepared> {
        let caps = self.shared.storage.caps();
        let bytes_max = (caps.commit_bytes_max / 2).min(GROUP_BYTES_MAX);
        let ops_max = caps.commit_ops_max / 2;
        let (mut bytes, mut ops, mut taken) = (0, 0, Vec::new());
        while let Some(ticket) = state.queue.front() {
            if ticket.is_seat() {
                break; // it leads by itself
            }
            let size = ticket.size();
            (bytes, ops) = (bytes + size.0, ops + size.1);
            if !group.tickets.is_empty() && (bytes > bytes_max || ops > ops_max) {
                break;
            }
            if let Some(prepared) = ticket.take() {
                group.tickets.push(Arc::clone(ticket));
                taken.push(prepared);
            }
            state.queue.pop_front();
        }
        taken
    }

    /// Where the partition stands, every earlier commit's outcome certain.
    fn ready(&self) -> Result<(Standing, CountedIndexes), EngineError> {
        let unresolved = {
            let mut state = self.state.lock();
            if state.moved {
                return Err(EngineError::PartitionMoved);
            }
            if state.retired {
                let id = self.container.to_string();
                return Err(EngineError::ResourceNotFound { kind: "container", id });
            }
            state.unresolved.take()
        };
        if let Some(unresolved) = unresolved {
            self.settle_later(unresolved)?;
        }
        let mut state = self.state.lock();
        let standing = self.load_standing(&mut state)?;
        let counted = match state.counted_indexes.take() {
            Some(counted) => counted,
            None => {
                let snapshot = self.shared.storage.snapshot()?;
                CountedIndexes::read(&*snapshot, self.container, self.partition, &standing.counts)?
            }
        };
        Ok((standing, counted))
    }

    fn commit_group(
        &self,
        mut group: Group<'_>,
        taken: Vec<Prepared>,
        standing: Standing,
        counted: CountedIndexes,
    ) {
        let taken = group.refuse_stale(taken);
        if taken.is_empty() {
            self.state.lock().counted_indexes = Some(counted);
            return;
        }
        let mut ops = Vec::with_capacity(8 * taken.len() + 1);
        let (guard, after) = self.stamp_all(taken, (standing, counted), &mut ops, &mut group);
        self.commit(group, guard, ops, after);
    }

    /// Gives LSN and `_ts` to writes. Their rows, the guard of the commit, and where the partition stands after it.
    fn stamp_all(
        &self,
        taken: Vec<Prepared>,
        (standing, mut counted): (Standing, CountedIndexes),
        ops: &mut Vec<Op>,
        group: &mut Group<'_>,
    ) -> (Guard, (Standing, CountedIndexes)) {
        let (mut counts, now) = (standing.counts, self.shared.now_checked());
        let previous_lsn = counts.lsn;
        for prepared in taken {
            let ts = prepared.asked_ts.unwrap_or(now).max(counts.last_ts);
            counts.last_ts = ts;
            counts.lsn += u64::from(!prepared.is_upkeep);
            counts.items = counts.items.saturating_add_signed(prepared.items_delta);
            counts.bytes = counts.bytes.saturating_add_signed(prepared.bytes_delta);
            counts.unindexed_items =
                counts.unindexed_items.saturating_add_signed(prepared.unindexed_items_delta);
            let at = Written { lsn: counts.lsn, ts };
            group.written.push(at);
            group.changed.extend(prepared.logical_partitions.iter().map(|name| (*name, at.lsn)));
            prepared.index_rows().for_each(|(index, rows)| counted.add(index, rows));
            // A clock that was set back is behind `_ts`, which never falls.
            self.stamp(prepared, at, ts.min(now), ops, group);
        }
        counts.indexes_overflowed = counted.overflowed;
        counted.ops(self.container, self.partition, ops);
        let key = keys::counts(self.container, self.partition);
        ops.push(Op::Put { space: keys::CATALOG, key, value: counts.encode() });
        let guard = Guard {
            partition: self.storage_partition(),
            epoch: standing.epoch,
            previous_lsn,
            next_lsn: counts.lsn,
        };
        (guard, (Standing { counts, ..standing }, counted))
    }

    fn stamp(&self, prepared: Prepared, at: Written, written: i64, ops: &mut Vec<Op>, group: &mut Group<'_>) {
        let Written { lsn, ts } = at;
        self.list(prepared.index_names, ops, group);
        ops.extend(prepared.ops);
        group.touched.extend(prepared.touched);
        let gone =
            u16::try_from(prepared.deleted.len()).expect("a transaction has at most 10,000 operations");
        // An item that goes may make room for one that comes.
        for (ordinal, deleted) in (0..).zip(&prepared.deleted) {
            group.noted.version_written = group.noted.version_written.min(ts);
            ops.push(self.delete_version(deleted, at, ordinal));
        }
        for (ordinal, mut put) in prepared.puts.into_iter().enumerate() {
            let ordinal = u16::try_from(ordinal).expect("a transaction has at most 10,000 operations");
            item_row::stamp(&mut put.row, lsn, ordinal, ts, written);
            let expires_at = put.ttl_seconds.map(|seconds| written + i64::from(seconds));
            group.noted.item_written = group.noted.item_written.min(written);
            group.noted.own_expiry = group.noted.own_expiry.min(expires_at.unwrap_or(i64::MAX));
            if put.version.is_some() {
                group.noted.version_written = group.noted.version_written.min(ts);
            }
            if expires_at != put.expiry_before {
                let expiry = |at: i64| keys::expiry(self.container, at, put.rid);
                ops.extend(put.expiry_before.map(|at| Op::Delete { space: keys::FEEDS, key: expiry(at) }));
                ops.extend(expires_at.map(|at| Op::Put {
                    space: keys::FEEDS,
                    key: expiry(at),
                    value: vec![],
                }));
            }
            ops.extend(put.version.take().map(|before| self.put_version(&put, before, at, ordinal + gone)));
            self.stamp_indexes(put.rid, put.indexes, ts, ops, group);
            let latest = keys::latest(self.container, self.partition, lsn, ordinal);
            ops.push(Op::Put { space: keys::FEEDS, key: latest, value: keys::number_value(put.rid) });
            ops.push(Op::Put {
                space: keys::ITEMS,
                key: keys::item(self.container, put.rid),
                value: put.row,
            });
        }
    }

    fn put_version(&self, put: &ItemPut, before: Option<Before>, at: Written, ordinal: u16) -> Op {
        let kind = if before.is_some() { VersionKind::Replace } else { VersionKind::Create };
        let before = before.unwrap_or(Before { lsn: 0, row: Vec::new() });
        let (current, previous) = (&put.row, &before.row);
        let version = Version { kind, rid: put.rid, ts: at.ts, lsn_before: before.lsn, current, previous };
        let key = keys::version(self.container, self.partition, at.lsn, ordinal);
        Op::Put { space: keys::FEEDS, key, value: version.encode() }
    }

    fn delete_version(&self, deleted: &Deleted, at: Written, ordinal: u16) -> Op {
        let Deleted { rid, before, is_expired } = deleted;
        let kind = if *is_expired { VersionKind::Expire } else { VersionKind::Delete };
        let (current, previous): (&[u8], _) = (&[], &before.row);
        let version = Version { kind, rid: *rid, ts: at.ts, lsn_before: before.lsn, current, previous };
        let key = keys::version(self.container, self.partition, at.lsn, ordinal);
        Op::Put { space: keys::FEEDS, key, value: version.encode() }
    }

    fn stamp_indexes(
        &self,
        rid: u64,
        mut change: IndexChange,
        ts: i64,
        ops: &mut Vec<Op>,
        group: &mut Group<'_>,
    ) {
        change.stamp(ts);
        self.list(std::mem::take(&mut change.names), ops, group);
        ops.extend(change.into_op(self.container, rid));
    }

    fn list(&self, names: Vec<Arc<IndexName>>, ops: &mut Vec<Op>, group: &mut Group<'_>) {
        for name in names {
            if !group.names.iter().any(|other| other.id == name.id) {
                ops.push(name.row(self.container));
                group.names.push(name);
            }
        }
    }

    fn commit(&self, mut group: Group<'_>, guard: Guard, ops: Vec<Op>, after: (Standing, CountedIndexes)) {
        let token = match random_token() {
            Ok(token) => token,
            Err(error) => return group.fail(&error),
        };
        group.rids.extend(ops.iter().filter_map(item_of));
        group.mark();
        let outcome = self.shared.storage.commit(Commit { guards: vec![guard], token, ops });
        match outcome {
            Ok(_) => group.succeed(after.0.counts, Some(after)),
            Err(CommitError::Unknown { .. }) => match self.settle(token) {
                // The epoch may be another one now: it is read again before the next commit.
                Some(true) => group.succeed(after.0.counts, None),
                Some(false) => group.stale(),
                None => group.in_doubt(token),
            },
            // Nothing was done: the writers prepare again, or give up after some tries.
            Err(CommitError::Busy | CommitError::Conflict { .. }) => group.stale(),
            Err(error) => group.fail(&self.explain(error)),
        }
    }

    /// How a commit of unknown outcome ended: done or not, `None` if that cannot be learnt now. A raised epoch sees
    /// to it that a commit that has not happened by then never will.
    fn settle(&self, token: Token) -> Option<bool> {
        for tried in 0..RESOLVE_TRIES {
            if tried > 0 {
                std::thread::sleep(Duration::from_millis(1 << tried));
            }
            match self.settle_once(token) {
                Ok(done) => return Some(done),
                Err(error) => {
                    tracing::warn!(partition = ?self.storage_partition(), %error, "outcome of a commit is unknown")
                }
            }
        }
        None
    }

    fn settle_once(&self, token: Token) -> Result<bool, StorageError> {
        let storage = &self.shared.storage;
        if storage.resolve(token)?.is_some() {
            return Ok(true);
        }
        let partition = self.storage_partition();
        let epoch = storage.position(partition)?.map_or(0, |position| position.epoch);
        storage.fence(partition, epoch + 1)?;
        Ok(storage.resolve(token)?.is_some())
    }

    /// Before anything else is committed. Keeps the doubt if it still cannot be removed.
    fn settle_later(&self, unresolved: Unresolved) -> Result<(), EngineError> {
        if self.settle(unresolved.token).is_none() {
            self.state.lock().unresolved = Some(unresolved);
            return Err(EngineError::Overloaded);
        }
        self.sweep_due.note(Noted::ANYTHING);
        self.forget_standing();
        unresolved.touched.iter().for_each(|key| self.shared.cache.end_write(key));
        self.shared.stretches.end_write(self.container, &unresolved.rids);
        Ok(())
    }

    /// What was prepared is void and where the partition stands has to be read again.
    fn forget_standing(&self) {
        let mut state = self.state.lock();
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.standing_known.store(false, Ordering::Release);
        state.standing = None;
        state.counted_indexes = None;
    }

    fn know_standing(&self) -> Result<(), EngineError> {
        if self.standing_known.load(Ordering::Acquire) {
            return Ok(());
        }
        self.load_standing(&mut self.state.lock())?;
        Ok(())
    }

    fn load_standing(&self, state: &mut MutexGuard<'_, State>) -> Result<Standing, EngineError> {
        if let Some(standing) = state.standing {
            return Ok(standing);
        }
        let standing = self.read_standing()?;
        state.standing = Some(standing);
        state.changes.forget_until(standing.counts.lsn);
        self.publish(&standing.counts);
        self.standing_known.store(true, Ordering::Release);
        Ok(standing)
    }

    fn read_standing(&self) -> Result<Standing, EngineError> {
        let position = self.shared.storage.position(self.storage_partition())?;
        let (epoch, lsn) = position.map_or((0, 0), |position| (position.epoch, position.lsn));
        let key = keys::counts(self.container, self.partition);
        let counts = match self.shared.storage.snapshot()?.get(keys::CATALOG, &key)? {
            Some(value) => {
                Counts::decode(&value).ok_or_else(|| item_row::corrupt("counts of a partition"))?
            }
            None => Counts::default(),
        };
        Ok(Standing { epoch, counts: Counts { lsn, ..counts } })
    }

    fn publish(&self, counts: &Counts) {
        self.items.store(counts.items, Ordering::Release);
        self.bytes.store(counts.bytes, Ordering::Release);
        self.last_ts.store(counts.last_ts, Ordering::Release);
        self.lsn.store(counts.lsn, Ordering::Release);
    }

    /// Prepared before the outcome of some commit was in doubt, or under another indexing policy.
    fn is_stale(&self, prepared: &Prepared) -> bool {
        let epoch = self.index_epoch.load(Ordering::Acquire);
        (prepared.generation, prepared.index_epoch) != (self.generation(), epoch)
    }

    fn storage_partition(&self) -> PartitionId {
        keys::partition_id(self.container, self.partition)
    }

    fn explain(&self, error: CommitError) -> EngineError {
        match error {
            CommitError::Storage(error) => EngineError::Storage(error),
            // Only a write that is a group by itself can be that large.
            CommitError::TooLarge { bytes, .. } => {
                let bytes_max = self.shared.storage.caps().commit_bytes_max;
                EngineError::ItemTooLarge { bytes, bytes_max }
            }
            error => {
                tracing::error!(partition = ?self.storage_partition(), %error, "commit refused");
                EngineError::Overloaded
            }
        }
    }
}

/// The item that an op changes.
fn item_of(op: &Op) -> Option<u64> {
    match op {
        Op::Put { space: keys::ITEMS, key, .. } | Op::Delete { space: keys::ITEMS, key } => {
            keys::rid_of_item_key(key)
        }
        _ => None,
    }
}

impl Changes {
    fn new(kept: &Arc<SharedPart>) -> Changes {
        let (newest, older, older_end, floor) = Default::default();
        Changes { kept: Arc::clone(kept), newest, older, older_end, floor }
    }

    /// When a logical partition last changed, or later.
    fn last(&self, name: u64) -> u64 {
        self.newest.get(&name).or_else(|| self.older.get(&name)).copied().unwrap_or(self.floor)
    }

    fn note(&mut self, name: u64, lsn: u64) {
        let kept_max = if self.kept.is_full() { CHANGES_KEPT_MIN } else { CHANGES_KEPT };
        if self.newest.len() >= kept_max && !self.newest.contains_key(&name) {
            self.floor = self.floor.max(self.older_end);
            self.release(self.older.len());
            self.older = std::mem::take(&mut self.newest);
            self.older_end = lsn;
        }
        if self.newest.insert(name, lsn).is_none() {
            self.kept.take(CHANGE_BYTES);
        }
    }

    /// Nothing is known about what happened up to an LSN.
    fn forget_until(&mut self, lsn: u64) {
        let mut unknown = Changes::new(&self.kept);
        unknown.floor = self.floor.max(lsn);
        *self = unknown;
    }

    fn release(&self, count: usize) {
        self.kept.give_back(count * CHANGE_BYTES);
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.release(self.newest.len() + self.older.len());
    }
}

impl<'a> Group<'a> {
    fn new(sequencer: &'a Sequencer) -> Group<'a> {
        Group {
            sequencer,
            tickets: vec![],
            written: vec![],
            touched: vec![],
            rids: vec![],
            changed: vec![],
            names: vec![],
            noted: Noted::NOTHING,
            marked: false,
        }
    }

    /// Answers those prepared before the outcome of some commit was in doubt, or under another indexing policy; the
    /// others stay.
    fn refuse_stale(&mut self, taken: Vec<Prepared>) -> Vec<Prepared> {
        let sequencer = self.sequencer;
        let (stale, kept): (Vec<_>, Vec<_>) =
            self.tickets.drain(..).zip(taken).partition(|(_, prepared)| sequencer.is_stale(prepared));
        stale.into_iter().for_each(|(ticket, _)| ticket.done(Err(Refused::Stale)));
        let (tickets, taken) = kept.into_iter().unzip();
        self.tickets = tickets;
        taken
    }

    /// Before the commit: from now on the cache neither has nor takes what changes.
    fn mark(&mut self) {
        let Sequencer { shared, container, .. } = self.sequencer;
        self.touched.iter().for_each(|key| shared.cache.begin_write(key));
        shared.stretches.begin_write(*container, &self.rids);
        self.marked = true;
    }

    fn unmark(&mut self) {
        if std::mem::take(&mut self.marked) {
            let Sequencer { shared, container, .. } = self.sequencer;
            self.touched.iter().for_each(|key| shared.cache.end_write(key));
            shared.stretches.end_write(*container, &self.rids);
        }
    }

    fn succeed(mut self, counts: Counts, standing: Option<(Standing, CountedIndexes)>) {
        let sequencer = self.sequencer;
        self.names.iter().for_each(|name| name.set_listed());
        {
            let mut state = sequencer.state.lock();
            (state.standing, state.counted_indexes) = standing.unzip();
            self.changed.drain(..).for_each(|(name, lsn)| state.changes.note(name, lsn));
            self.unmark();
            sequencer.publish(&counts);
            sequencer.moved.notify_all();
        }
        sequencer.sweep_due.note(self.noted);
        sequencer.watchers.wake();
        sequencer.shared.statistics.group(self.written.len());
        let written = std::mem::take(&mut self.written);
        for (ticket, written) in self.tickets.drain(..).zip(written) {
            ticket.done(Ok(written));
        }
    }

    fn stale(mut self) {
        self.sequencer.forget_standing();
        self.unmark();
        self.tickets.drain(..).for_each(|ticket| ticket.done(Err(Refused::Stale)));
    }

    /// The marks stay until the doubt is gone.
    fn in_doubt(mut self, token: Token) {
        self.sequencer.forget_standing();
        let (touched, rids) = (std::mem::take(&mut self.touched), std::mem::take(&mut self.rids));
        self.marked = false;
        self.sequencer.state.lock().unresolved = Some(Unresolved { token, touched, rids });
        self.tickets.drain(..).for_each(|ticket| ticket.done(Err(Refused::Failed(EngineError::Overloaded))));
    }

    fn fail(mut self, error: &EngineError) {
        self.sequencer.forget_standing();
        self.unmark();
        self.tickets.drain(..).for_each(|ticket| ticket.done(Err(Refused::Failed(duplicate(error)))));
    }
}

impl Drop for Group<'_> {
    /// Only a panic leaves tickets unanswered.
    fn drop(&mut self) {
        if !self.tickets.is_empty() {
            self.sequencer.forget_standing();
            let overloaded = || Err(Refused::Failed(EngineError::Overloaded));
            self.tickets.drain(..).for_each(|ticket| ticket.done(overloaded()));
        }
        self.unmark();
    }
}

impl Drop for Handover<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        match state.queue.front() {
            Some(next) => next.lead(),
            None => {
                state.leading = false;
                self.0.moved.notify_all();
            }
        }
    }
}

impl Ticket {
    fn new(stage: Stage) -> Arc<Ticket> {
        Arc::new(Ticket { stage: Mutex::new(stage), changed: Condvar::new() })
    }

    fn is_seat(&self) -> bool {
        matches!(*self.stage.lock(), Stage::Seat | Stage::LeadSeat)
    }

    /// Bytes and ops of the commit that this write adds, roughly from above.
    fn size(&self) -> (usize, usize) {
        match &*self.stage.lock() {
            Stage::Waiting(prepared) | Stage::Lead(prepared) => prepared.size(),
            Stage::Seat | Stage::LeadSeat | Stage::Taken | Stage::Done(_) | Stage::Gone => (0, 0),
        }
    }

    fn take(&self) -> Option<Prepared> {
        let mut stage = self.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Waiting(prepared) | Stage::Lead(prepared) => Some(prepared),
            Stage::Seat | Stage::LeadSeat | Stage::Taken | Stage::Done(_) | Stage::Gone => None,
        }
    }

    fn lead(&self) {
        let mut stage = self.stage.lock();
        *stage = match std::mem::replace(&mut *stage, Stage::Gone) {
            Stage::Waiting(prepared) => Stage::Lead(prepared),
            Stage::Seat => Stage::LeadSeat,
            other => other,
        };
        self.changed.notify_one();
    }

    fn done(&self, result: Result<Written, Refused>) {
        *self.stage.lock() = Stage::Done(result);
        self.changed.notify_one();
    }

    /// True: the caller leads now. False: its answer is there.
    fn wait_to_lead(&self) -> bool {
        let mut stage = self.stage.lock();
        loop {
            match &*stage {
                Stage::Lead(_) | Stage::LeadSeat => return true,
                Stage::Done(_) => return false,
                Stage::Waiting(_) | Stage::Seat | Stage::Taken | Stage::Gone => self.changed.wait(&mut stage),
            }
        }
    }

    fn answer(&self) -> Result<Written, Refused> {
        match std::mem::replace(&mut *self.stage.lock(), Stage::Gone) {
            Stage::Done(result) => result,
            _ => unreachable!("a leader's group answers every ticket, its own first"),
        }
    }
}

impl Prepared {
    /// Adds what else the same transaction does in the same partition.
    pub fn merge(&mut self, other: Prepared) {
        // The older of two makes both stale.
        self.generation = self.generation.min(other.generation);
        self.logical_partitions.extend(other.logical_partitions);
        self.asked_ts = self.asked_ts.max(other.asked_ts);
        self.puts.extend(other.puts);
        self.ops.extend(other.ops);
        self.items_delta += other.items_delta;
        self.bytes_delta += other.bytes_delta;
        self.unindexed_items_delta += other.unindexed_items_delta;
        self.index_rows_delta.extend(other.index_rows_delta);
        self.deleted.extend(other.deleted);
        self.touched.extend(other.touched);
        self.index_names.extend(other.index_names);
    }

    /// Changes no item.
    pub fn upkeep(generation: u64, index_epoch: u8, ops: Vec<Op>) -> Prepared {
        Prepared {
            generation,
            index_epoch,
            logical_partitions: SmallVec::new(),
            asked_ts: None,
            puts: SmallVec::new(),
            ops,
            items_delta: 0,
            bytes_delta: 0,
            unindexed_items_delta: 0,
            index_rows_delta: Vec::new(),
            deleted: Vec::new(),
            touched: SmallVec::new(),
            index_names: Vec::new(),
            is_upkeep: true,
        }
    }

    fn size(&self) -> (usize, usize) {
        let rows: usize = self.ops.iter().map(op_bytes).sum();
        let versions =
            self.puts.iter().filter_map(|put| Some((put.row.len(), put.version.as_ref()?.as_ref())));
        let versions = versions.map(|(row, before)| row + before.map_or(0, |before| before.row.len()));
        let deleted = self.deleted.iter().map(|deleted| deleted.before.row.len());
        let versions: usize = versions.chain(deleted).map(|bytes| bytes + 64).sum();
        let puts: usize = self.puts.iter().map(|put| put.row.len() + put.indexes.bytes() + 128).sum();
        let ops: usize = self.index_names.len() + self.ops.iter().map(op_rows).sum::<usize>();
        let put_ops: usize =
            self.puts.iter().map(|put| 4 + put.indexes.len() + put.indexes.names.len()).sum();
        (rows + puts + versions, ops + put_ops + self.puts.len() + self.deleted.len())
    }

    /// How many rows each index gains.
    fn index_rows(&self) -> impl Iterator<Item = (IndexId, i64)> {
        let puts = self.puts.iter().flat_map(|put| &put.indexes.counts);
        self.index_rows_delta.iter().chain(puts).copied()
    }
}

/// As the storage counts it.
fn op_rows(op: &Op) -> usize {
    match op {
        Op::Put { .. } | Op::Delete { .. } => 1,
        Op::Rows { added, removed, .. } => added.len() + removed.len(),
    }
}

fn op_bytes(op: &Op) -> usize {
    match op {
        Op::Put { key, value, .. } => key.len() + value.len(),
        Op::Delete { key, .. } => key.len(),
        Op::Rows { prefix, suffix, added, removed, .. } => {
            let rows = added.iter().chain(removed);
            rows.map(|middle| prefix.len() + middle.len() + suffix.len()).sum()
        }
    }
}

pub(crate) fn random_token() -> Result<Token, EngineError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let source = std::io::Error::other(error.to_string());
        EngineError::Storage(StorageError::Io { doing: "drawing a random number".to_owned(), source })
    })?;
    Ok(Token(u128::from_ne_bytes(bytes)))
}

/// The same error for everyone in a group.
pub(crate) fn duplicate(error: &EngineError) -> EngineError {
    match error {
        EngineError::Storage(error) => EngineError::Storage(match error {
            StorageError::Closed => StorageError::Closed,
            StorageError::UnknownSpace { space } => StorageError::UnknownSpace { space: *space },
            StorageError::Poisoned { during } => StorageError::Poisoned { during },
            StorageError::Unavailable { during } => StorageError::Unavailable { during },
            StorageError::DiskFull { doing } => StorageError::DiskFull { doing: doing.clone() },
            StorageError::Corrupt { what } => StorageError::Corrupt { what: what.clone() },
            StorageError::Io { doing, source } => {
                let source = std::io::Error::new(source.kind(), source.to_string());
                StorageError::Io { doing: doing.clone(), source }
            }
        }),
        EngineError::ResourceNotFound { kind, id } => EngineError::ResourceNotFound { kind, id: id.clone() },
        EngineError::PartitionMoved => EngineError::PartitionMoved,
        EngineError::PartitionGone { id } => EngineError::PartitionGone { id: id.clone() },
        EngineError::Corrupt { what } => EngineError::Corrupt { what: what.clone() },
        EngineError::ItemTooLarge { bytes, bytes_max } => {
            EngineError::ItemTooLarge { bytes: *bytes, bytes_max: *bytes_max }
        }
        _ => EngineError::Overloaded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_forgotten_only_upwards() {
        let mut changes = Changes::new(&Arc::new(SharedPart::new(1 << 20)));
        changes.forget_until(10);
        assert_eq!(changes.last(1), 10);
        let period = 3 * CHANGES_KEPT as u64;
        for lsn in 11..11 + 5 * CHANGES_KEPT as u64 {
            changes.note(lsn % period, lsn);
            // Whatever is asked, the answer is never before the last change.
            let name = (7 * lsn) % period;
            let last = lsn.saturating_sub((lsn + period - name) % period).max(10);
            assert!(changes.last(name) >= last, "{name} at {lsn}");
            assert!(changes.last(name) <= lsn);
            assert!(changes.newest.len() <= CHANGES_KEPT && changes.older.len() <= CHANGES_KEPT);
            assert_eq!(changes.last(lsn % period), lsn);
        }
    }

    /// However many partitions there are, and whatever they were written, what they keep together has a bound, and is given
    /// back with them.
    #[test]
    fn what_all_partitions_keep_is_bounded() {
        let together = 40 * CHANGES_KEPT;
        let kept = Arc::new(SharedPart::new(together * CHANGE_BYTES));
        let mut partitions: Vec<Changes> = (0..80).map(|_| Changes::new(&kept)).collect();
        for (partition, changes) in partitions.iter_mut().enumerate() {
            for lsn in 1..=2 * CHANGES_KEPT as u64 {
                changes.note(lsn, lsn);
            }
            let bound = together + (partition + 1) * 2 * CHANGES_KEPT_MIN + CHANGES_KEPT;
            let count = kept.bytes() / CHANGE_BYTES;
            assert!(count <= bound, "{count} are kept by {partition} partitions");
            // What is not kept counts as changed.
            assert!(changes.last(1) >= 1 && changes.last(2 * CHANGES_KEPT as u64) == 2 * CHANGES_KEPT as u64);
        }
        partitions[0].forget_until(9);
        drop(partitions);
        assert_eq!(kept.bytes(), 0);
    }
}
