//! GroupCommit commit: a writer that finds no leader becomes the leader and commits for all waiting writers.
//!
//! A writer queues its work. If there is no leader, it becomes the leader: it takes the queue, writes it as one
//! journal batch with one sync, and answers all writers. Writers that arrive meanwhile queue; the first of them leads
//! the next round. So a single writer pays for one append and one sync, and sixteen writers share them. There is no
//! thread and no timer.
//!
//! Invariants: one leader at a time; a leader's own work is the first of its round; two works of one round never
//! write the same key (the second sleep_unless_ended for the next round), since a batch has no order.

use crate::OpenStore;
use crate::commit::state::{Ledger, StorageState};
use crate::error::failed;
use crate::index_rows::packed::{Delta, DeltaBuilder, packed_key};
use crate::log::record::{
    CHECKPOINT_KEY, Record, RowsChecksum, encode_checkpoint, encode_position, position_key, record_key,
};
use crate::store::Store;
use fjall::{Keyspace, OwnedWriteBatch, PersistMode, UserKey, UserValue};
use parking_lot::{Condvar, Mutex};
use quire_storage::{CommitError, Committed, Guard, PartitionId, Position, Space, StorageError, Token};
use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Limits of a round, so that a journal batch keeps a reasonable size.
const ROUND_BYTES_MAX: usize = 16 << 20;
const ROUND_WORKS_MAX: usize = 1024;

/// One row, prepared for the batch.
pub(crate) struct ReadyRow {
    pub(crate) space: Space,
    pub(crate) keyspace: Keyspace,
    pub(crate) key: UserKey,
    pub(crate) value: Option<UserValue>,
}

pub(crate) enum Work {
    Commit { guards: Vec<Guard>, token: Option<Token>, rows: Vec<ReadyRow>, delta: Box<Delta>, bytes: usize },
    Fence { partition: PartitionId, epoch: u64 },
}

/// The result of a finished work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Committed(Committed),
    Fenced(Position),
}

type Outcome = Result<Answer, CommitError>;

#[derive(Default)]
pub(crate) struct GroupCommit {
    queue: Mutex<Queue>,
    idle: Condvar,
    hasher: RandomState,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    has_leader: bool,
    closed: bool,
}

struct Waiting {
    work: Work,
    waiter: Arc<Waiter>,
}

/// Where a waiting writer receives its result.
#[derive(Default)]
struct Waiter {
    signal: Mutex<Signal>,
    changed: Condvar,
}

#[derive(Default)]
enum Signal {
    #[default]
    Wait,
    Lead,
    Done(Outcome),
}

impl Waiter {
    fn send(&self, signal: Signal) {
        *self.signal.lock() = signal;
        self.changed.notify_one();
    }

    /// Waits for a result; `None` means that this writer becomes the leader.
    fn wait(&self) -> Option<Outcome> {
        let mut signal = self.signal.lock();
        loop {
            match std::mem::take(&mut *signal) {
                Signal::Wait => self.changed.wait(&mut signal),
                Signal::Lead => return None,
                Signal::Done(outcome) => return Some(outcome),
            }
        }
    }
}

impl GroupCommit {
    /// Blocks until the work is durable and visible, or refused.
    pub(crate) fn submit(&self, work: Work, open: &OpenStore) -> Outcome {
        let waiter = Arc::new(Waiter::default());
        let leads = {
            let mut queue = self.queue.lock();
            if queue.closed {
                return Err(StorageError::Closed.into());
            }
            queue.waiting.push_back(Waiting { work, waiter: waiter.clone() });
            !std::mem::replace(&mut queue.has_leader, true)
        };
        if !leads && let Some(outcome) = waiter.wait() {
            return outcome;
        }
        self.lead(open);
        waiter.wait().unwrap_or(Err(StorageError::Poisoned { during: "hand-over" }.into()))
    }

    /// Refuses new work and sleep_unless_ended for queued work.
    pub(crate) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        while queue.has_leader {
            self.idle.wait(&mut queue);
        }
    }

    fn lead(&self, open: &OpenStore) {
        let state = &open.state;
        let waited = open.store.wait_for_room().and_then(|time| Ok(time + open.views.wait_for_room(state)?));
        let round = self.take_round();
        match waited {
            Ok(_) if !open.disk_space.is_enough() => {
                refuse_round(round, || StorageError::DiskFull { doing: "committing".into() });
            }
            Ok(waited) => {
                state.counters.stalled_microseconds.fetch_add(waited.as_micros() as u64, Ordering::Relaxed);
                commit_round(round, open);
                let merged = open.views.merge_small();
                state.counters.merged_rows.fetch_add(merged as u64, Ordering::Relaxed);
                state.counters.merged_rows_max.fetch_max(merged as u64, Ordering::Relaxed);
            }
            Err(_) => {
                state.halt("flush");
                refuse_round(round, || refusal(state));
            }
        }
        self.appoint_leader();
    }

    /// Takes work from the front of the queue, up to the limits or the first key that occurs twice.
    fn take_round(&self) -> Vec<Waiting> {
        let mut queue = self.queue.lock();
        let (mut round, mut bytes, mut keys) = (Vec::new(), 0, HashSet::new());
        while let Some(next) = queue.waiting.front() {
            let alone = queue.waiting.len() == 1 && round.is_empty();
            if round.len() >= ROUND_WORKS_MAX || (bytes > 0 && bytes + next.work.bytes() > ROUND_BYTES_MAX) {
                break;
            }
            if !alone && !self.add_keys(&next.work, &mut keys) {
                break;
            }
            bytes += next.work.bytes();
            round.extend(queue.waiting.pop_front());
        }
        round
    }

    /// Whether none of the work's keys is in the round yet. By hash: a collision only ends a round early.
    fn add_keys(&self, work: &Work, keys: &mut HashSet<u64>) -> bool {
        let Work::Commit { rows, delta, .. } = work else { return true };
        let plain = rows.iter().map(|row| (row.space.0, &row.key[..]));
        let merged =
            (0u8..).zip(&delta.runs).flat_map(|(space, run)| run.keys().map(move |key| (space, key)));
        let hashes: Vec<u64> = plain.chain(merged).map(|key| self.hasher.hash_one(key)).collect();
        if hashes.iter().any(|hash| keys.contains(hash)) {
            return false;
        }
        keys.extend(hashes);
        true
    }

    fn appoint_leader(&self) {
        let mut queue = self.queue.lock();
        match queue.waiting.front() {
            Some(next) => next.waiter.send(Signal::Lead),
            None => {
                queue.has_leader = false;
                self.idle.notify_all();
            }
        }
    }
}

impl Work {
    /// For an internal commit that nobody resolves by token.
    pub(crate) fn without_token(mut self) -> Work {
        if let Work::Commit { token, .. } = &mut self {
            *token = None;
        }
        self
    }

    fn bytes(&self) -> usize {
        match self {
            Work::Commit { bytes, .. } => *bytes,
            Work::Fence { .. } => 0,
        }
    }
}

/// The error of a state that accepts no writes.
fn refusal(state: &StorageState) -> StorageError {
    state.poisoned().unwrap_or(StorageError::Poisoned { during: "commit" })
}

fn refuse_round(round: Vec<Waiting>, error: impl Fn() -> StorageError) {
    for waiting in round {
        waiting.waiter.send(Signal::Done(Err(error().into())));
    }
}

fn commit_round(round: Vec<Waiting>, open: &OpenStore) {
    let state = &open.state;
    if state.poisoned().is_some() {
        return refuse_round(round, || refusal(state));
    }
    let mut batch = Batch::new(open, round.len());
    let mut answered = Vec::with_capacity(round.len());
    {
        let mut ledger = state.ledger.lock();
        for waiting in round {
            match batch.take(waiting.work, &mut ledger) {
                Ok(answer) => answered.push((waiting.waiter, answer)),
                Err(error) => waiting.waiter.send(Signal::Done(Err(error))),
            }
        }
        if !batch.commits.is_empty() {
            batch.finish(&mut ledger);
        }
    }
    if !batch.commits.is_empty() {
        batch.write();
    }
    for (waiter, answer) in answered {
        waiter.send(Signal::Done(match state.poisoned() {
            None => Ok(answer),
            Some(error) => Err(error.into()),
        }));
    }
}

/// The journal batch of a round.
struct Batch<'a> {
    open: &'a OpenStore,
    store: &'a Store,
    inner: OwnedWriteBatch,
    /// Rows that are kept in runs.
    deltas: DeltaBuilder,
    delta: Delta,
    sequence: u64,
    checksum: RowsChecksum,
    commits: Vec<Option<Token>>,
    moves: Vec<Guard>,
    bytes: usize,
}

impl<'a> Batch<'a> {
    fn new(open: &'a OpenStore, works: usize) -> Batch<'a> {
        let store = &open.store;
        let inner = OwnedWriteBatch::with_capacity(store.database.clone(), works * 8 + 2)
            .durability(Some(PersistMode::SyncData));
        Batch {
            open,
            store,
            inner,
            deltas: DeltaBuilder::default(),
            delta: Delta::default(),
            sequence: 0,
            checksum: RowsChecksum::default(),
            commits: Vec::new(),
            moves: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a work if its token is new and its guards hold after the works before it.
    fn take(&mut self, work: Work, ledger: &mut Ledger) -> Outcome {
        match work {
            Work::Commit { guards, token, rows, delta, .. } => {
                if let Some(first_answer) = token.and_then(|token| ledger.tokens.get(token)) {
                    return Ok(Answer::Committed(first_answer));
                }
                ledger.prepared.check(&guards)?;
                self.add_rows(rows, *delta);
                let sequence = self.enter(token, &guards, ledger);
                token.into_iter().for_each(|token| ledger.tokens.keep(token, sequence));
                Ok(Answer::Committed(Committed { sequence }))
            }
            Work::Fence { partition, epoch } => {
                let (position, raised) = ledger.prepared.fenced(partition, epoch);
                if raised {
                    let Position { epoch, lsn } = position;
                    self.enter(None, &[Guard { partition, epoch, previous_lsn: lsn, next_lsn: lsn }], ledger);
                }
                Ok(Answer::Fenced(position))
            }
        }
    }

    fn enter(&mut self, token: Option<Token>, guards: &[Guard], ledger: &mut Ledger) -> u64 {
        self.commits.push(token);
        self.moves.extend(guards);
        ledger.prepared.advance(guards);
        ledger.chain.newest.sequence + self.commits.len() as u64
    }

    /// A space is kept in runs from its first index rows on, also for a work that was prepared before.
    fn add_rows(&mut self, rows: Vec<ReadyRow>, delta: Delta) {
        let views = &self.open.views;
        views.add_merged(delta.with_rows);
        let merged = views.merged_with(delta.with_rows);
        for row in rows {
            match merged.contains(row.space) {
                true => self.deltas.row(row.space, &row.key, row.value.as_deref()),
                false => self.add(&row.keyspace, row.key, row.value),
            }
        }
        match self.deltas.is_empty() {
            true if self.delta.is_empty() => self.delta = delta,
            _ => self.deltas.append(&delta),
        }
    }

    fn add(&mut self, keyspace: &Keyspace, key: UserKey, value: Option<UserValue>) {
        self.checksum.row(&key, value.as_deref());
        self.bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
        match value {
            Some(value) => self.inner.insert(keyspace, key, value),
            None => self.inner.remove(keyspace, key),
        }
    }

    /// Adds positions, pruning and, last, the commit record.
    fn finish(&mut self, ledger: &mut Ledger) {
        let keyspace = self.store.ledger.clone();
        let partitions: HashSet<PartitionId> = self.moves.iter().map(|guard| guard.partition).collect();
        for partition in partitions {
            if let Some(position) = ledger.prepared.get(partition) {
                let value = encode_position(position);
                self.add(&keyspace, position_key(partition).into(), Some(value.into()));
            }
        }
        if let Some((pruned, checkpoint)) = ledger.chain.prune() {
            for sequence in pruned {
                self.add(&keyspace, record_key(sequence).into(), None);
            }
            let value = encode_checkpoint(checkpoint);
            self.add(&keyspace, CHECKPOINT_KEY.into(), Some(value.into()));
        }
        let previous = ledger.chain.newest;
        self.sequence = previous.sequence + self.commits.len() as u64;
        self.add_packed();
        let record = Record {
            sequence: self.sequence,
            previous,
            rows_checksum: std::mem::take(&mut self.checksum).finish(),
            commits: std::mem::take(&mut self.commits),
            moves: std::mem::take(&mut self.moves),
        };
        let (value, link) = record.encode();
        self.inner.insert(&keyspace, record_key(record.sequence), value);
        ledger.chain.extend(link, record.commits.len());
        (self.commits, self.moves) = (record.commits, record.moves);
    }

    fn add_packed(&mut self) {
        if !self.deltas.is_empty() {
            let first = std::mem::take(&mut self.delta);
            self.deltas.append(&first);
            self.delta = std::mem::take(&mut self.deltas).finish();
        }
        if let Some(packed) = self.delta.packed() {
            let keyspace = self.store.packed.clone();
            self.add(&keyspace, packed_key(self.sequence).into(), Some(packed.into()));
        }
    }

    /// Journal, sync, memtables, publish; then the acknowledgement. A failure is recorded in the state.
    fn write(self) {
        let (inner, state) = (self.inner, &self.open.state);
        let gate = self.open.views.gate();
        // A panic inside would leave the other writers waiting forever.
        let committed = {
            let _alone = self.store.committing.lock();
            catch_unwind(AssertUnwindSafe(move || inner.commit()))
        };
        match committed {
            Ok(Ok(())) => {}
            // fjall checks this before it writes anything.
            Ok(Err(fjall::Error::Poisoned)) => return state.halt("flush"),
            Ok(Err(error)) => {
                let error = failed("writing the journal", error);
                tracing::error!(%error, "journal write failed, no more writes until reopened");
                return state.poison("journal write", matches!(error, StorageError::DiskFull { .. }));
            }
            Err(_) => return state.poison("journal write", false),
        }
        gate.publish(&self.store.database, self.delta.runs, self.sequence);
        state.publish(&self.moves, self.commits.len(), self.bytes);
    }
}
