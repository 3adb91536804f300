//! Group commit: what waits is written as one journal batch with one sync.
//!
//! A single writer pays for one append and one sync, and sixteen writers share them. Who leads is decided in
//! [`crate::commit::leader`], in which order things happen in [`crate::commit::round`].
//!
//! Invariant: two works of one round never write the same key (the second waits for the next round), since a batch has no
//! order.

use crate::OpenStore;
use crate::commit::leader::{LeaderQueue, NotCommitted, QueuedCommit};
use crate::commit::round::{RoundStore, commit_round, refuse_round};
use crate::commit::state::{Ledger, StorageState};
use crate::error::failed;
use crate::index_rows::packed::{Delta, DeltaBuilder, packed_key};
use crate::index_rows::read_view::PublishGuard;
use crate::log::record::{
    CHECKPOINT_KEY, Record, RowsChecksum, encode_checkpoint, encode_position, position_key, record_key,
};
use crate::store::Store;
use fjall::{Keyspace, OwnedWriteBatch, PersistMode, UserKey, UserValue};
use quire_storage::{CommitError, Committed, Guard, PartitionId, Position, Space, StorageError, Token};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    queue: LeaderQueue<Work, Outcome>,
    hasher: RandomState,
}

impl GroupCommit {
    /// Blocks until the work is durable and visible, or refused.
    pub(crate) fn submit(&self, work: Work, open: &OpenStore) -> Outcome {
        match self.queue.submit(work, || self.lead(open)) {
            Ok(outcome) => outcome,
            Err(NotCommitted::Closed) => Err(StorageError::Closed.into()),
            Err(NotCommitted::NotAnswered) => Err(StorageError::Poisoned { during: "hand-over" }.into()),
        }
    }

    /// Refuses new work and waits for queued work.
    pub(crate) fn close(&self) {
        self.queue.close();
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
                commit_round(&OpenRound(open), round);
                let merged = open.views.merge_small();
                state.counters.merged_rows.fetch_add(merged as u64, Ordering::Relaxed);
                state.counters.merged_rows_max.fetch_max(merged as u64, Ordering::Relaxed);
            }
            Err(_) => {
                state.refuse_writes("flush");
                refuse_round(round, || refusal(state));
            }
        }
    }

    /// Takes work from the front of the queue, up to the limits or the first key that occurs twice.
    fn take_round(&self) -> Vec<QueuedCommit<Work, Outcome>> {
        let (mut works, mut bytes, mut keys) = (0, 0, HashSet::new());
        self.queue.take_round(|work, behind| {
            let alone = works == 0 && behind == 0;
            if works >= ROUND_WORKS_MAX || (bytes > 0 && bytes + work.bytes() > ROUND_BYTES_MAX) {
                return false;
            }
            if !alone && !self.add_keys(work, &mut keys) {
                return false;
            }
            works += 1;
            bytes += work.bytes();
            true
        })
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

/// An open store, as what rounds are written to.
struct OpenRound<'a>(&'a OpenStore);

impl<'a> RoundStore for OpenRound<'a> {
    type Work = Work;
    type Answer = Answer;
    type Batch = Batch<'a>;

    fn refusal(&self) -> Option<StorageError> {
        self.0.state.poisoned()
    }

    fn prepare(&self, works: Vec<Work>) -> (Option<Batch<'a>>, Vec<Outcome>) {
        let mut batch = Batch::new(self.0, works.len());
        let mut ledger = self.0.state.ledger.lock();
        let answers = works.into_iter().map(|work| batch.take(work, &mut ledger)).collect();
        if batch.commits.is_empty() {
            return (None, answers);
        }
        batch.finish(&mut ledger);
        (Some(batch), answers)
    }

    fn sync(&self, batch: &mut Batch<'a>) -> bool {
        batch.sync()
    }

    fn publish(&self, batch: Batch<'a>) {
        batch.publish();
    }
}

/// The journal batch of a round.
struct Batch<'a> {
    open: &'a OpenStore,
    store: &'a Store,
    /// `None`: it was written.
    inner: Option<OwnedWriteBatch>,
    /// From before it is written until it is published.
    gate: Option<PublishGuard<'a>>,
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
            inner: Some(inner),
            gate: None,
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
                token.into_iter().for_each(|token| ledger.tokens.retain_token(token, sequence));
                Ok(Answer::Committed(Committed { sequence }))
            }
            Work::Fence { partition, epoch } => {
                let (position, raised) = ledger.prepared.raised_epoch(partition, epoch);
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
        let inner = self.inner.as_mut().expect("a batch is filled before it is written");
        match value {
            Some(value) => inner.insert(keyspace, key, value),
            None => inner.remove(keyspace, key),
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
        let inner = self.inner.as_mut().expect("a batch is filled before it is written");
        inner.insert(&keyspace, record_key(record.sequence), value);
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

    /// Journal, sync, memtables. A failure is recorded in the state.
    fn sync(&mut self) -> bool {
        let Some(inner) = self.inner.take() else { return false };
        let state = &self.open.state;
        self.gate = Some(self.open.views.gate());
        // A panic inside would leave the other writers waiting forever.
        let committed = {
            let _alone = self.store.committing.lock();
            catch_unwind(AssertUnwindSafe(move || inner.commit()))
        };
        match committed {
            Ok(Ok(())) => return true,
            // fjall checks this before it writes anything.
            Ok(Err(fjall::Error::Poisoned)) => state.refuse_writes("flush"),
            Ok(Err(error)) => {
                let error = failed("writing the journal", error);
                tracing::error!(%error, "journal write failed, no more writes until reopened");
                state.poison("journal write", matches!(error, StorageError::DiskFull { .. }));
            }
            Err(_) => state.poison("journal write", false),
        }
        false
    }

    /// To readers, and to the file of acknowledged commits.
    fn publish(self) {
        if let Some(gate) = self.gate {
            gate.publish(&self.store.database, self.delta.runs, self.sequence);
        }
        self.open.state.publish(&self.moves, self.commits.len(), self.bytes);
    }
}
