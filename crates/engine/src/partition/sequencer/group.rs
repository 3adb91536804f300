//! The writes of one commit, from stamping to their answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use quire_storage::{Commit, CommitError, Guard, Op, Token};
use smallvec::SmallVec;

use super::doubt::UnresolvedCommit;
use super::queue::WriteTicket;
use super::{CommittedState, CommittedWrite, PreparedWrite, Sequencer, WriteRefused};
use crate::api::EngineError;
use crate::indexes::{CountedIndexes, IndexName};
use crate::partition::access::AccessState;
use crate::partition::sweep_due::SweepDueUpdate;
use crate::store::keys::{self, Counts};
use crate::store::random_token;
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};

/// Operations of a write, mostly: its own and those that follow from its stamp.
pub(crate) const OPS_OF_WRITE: usize = 10;

/// The tickets of one commit, answered at the latest when dropped.
pub(super) struct CommitGroup<'a> {
    pub sequencer: &'a Sequencer,
    pub tickets: SmallVec<[Arc<WriteTicket>; 4]>,
    pub written: SmallVec<[CommittedWrite; 4]>,
    pub touched: SmallVec<[Vec<u8>; 4]>,
    /// Items that change.
    pub rids: SmallVec<[u64; 4]>,
    /// Logical partitions whose items change, and at which LSN.
    pub changed: SmallVec<[(u64, u64); 4]>,
    /// Indexes that this commit lists.
    pub names: Vec<Arc<IndexName>>,
    /// For the sweep.
    pub sweep_due: SweepDueUpdate,
    pub marked: bool,
}

impl Sequencer {
    pub(super) fn commit_group(
        &self,
        mut group: CommitGroup<'_>,
        taken: Vec<PreparedWrite>,
        committed: CommittedState,
        counted: CountedIndexes,
    ) {
        let taken = group.refuse_stale(taken);
        let mut taken = group.refuse_closed(taken);
        let Some(first) = taken.first_mut() else {
            return self.return_counted(counted);
        };
        // With room for what is added to it.
        let mut ops = std::mem::take(&mut first.ops);
        ops.reserve(OPS_OF_WRITE * (taken.len() - 1));
        let (guard, after) = self.stamp_all(taken, (committed, counted), &mut ops, &mut group);
        self.commit(group, guard, ops, after);
    }

    pub(super) fn commit(
        &self,
        mut group: CommitGroup<'_>,
        guard: Guard,
        ops: Vec<Op>,
        after: (CommittedState, CountedIndexes),
    ) {
        let token = match random_token() {
            Ok(token) => token,
            Err(error) => return group.fail(&error),
        };
        group.rids.extend(ops.iter().filter_map(item_of));
        group.mark();
        #[cfg(feature = "schedules")]
        if is_put_back(Race::PublishBeforeSync) {
            self.publish(&after.0.counts);
        }
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

    /// Prepared before the outcome of some commit was in doubt, or under other definitions.
    pub(super) fn is_stale(&self, prepared: &PreparedWrite) -> bool {
        #[cfg(feature = "schedules")]
        if is_put_back(Race::StaleCommitted) {
            return false;
        }
        prepared.generation != self.generation()
    }

    /// The container is closed for its writer.
    pub(super) fn is_closed_for(&self, prepared: &PreparedWrite) -> bool {
        let is_open = prepared.is_index_maintenance || prepared.fills_closed;
        !is_open && self.access.state() == AccessState::Closed
    }

    pub(super) fn explain(&self, error: CommitError) -> EngineError {
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

impl<'a> CommitGroup<'a> {
    pub(super) fn new(sequencer: &'a Sequencer) -> CommitGroup<'a> {
        CommitGroup {
            sequencer,
            tickets: SmallVec::new(),
            written: SmallVec::new(),
            touched: SmallVec::new(),
            rids: SmallVec::new(),
            changed: SmallVec::new(),
            names: vec![],
            sweep_due: SweepDueUpdate::NOTHING,
            marked: false,
        }
    }

    /// Answers those prepared before the outcome of some commit was in doubt, or under other definitions; the
    /// others stay.
    pub(super) fn refuse_stale(&mut self, taken: Vec<PreparedWrite>) -> Vec<PreparedWrite> {
        let sequencer = self.sequencer;
        self.refuse(taken, |prepared| sequencer.is_stale(prepared).then_some(WriteRefused::Stale))
    }

    /// The same for writes that the container is closed for.
    pub(super) fn refuse_closed(&mut self, taken: Vec<PreparedWrite>) -> Vec<PreparedWrite> {
        let sequencer = self.sequencer;
        let moved = || WriteRefused::Failed(EngineError::PartitionMoved);
        self.refuse(taken, |prepared| sequencer.is_closed_for(prepared).then(moved))
    }

    fn refuse(
        &mut self,
        taken: Vec<PreparedWrite>,
        refused: impl Fn(&PreparedWrite) -> Option<WriteRefused>,
    ) -> Vec<PreparedWrite> {
        if taken.iter().all(|prepared| refused(prepared).is_none()) {
            return taken;
        }
        let (mut tickets, mut kept) = (SmallVec::new(), Vec::with_capacity(taken.len()));
        for (ticket, prepared) in self.tickets.drain(..).zip(taken) {
            match refused(&prepared) {
                Some(refused) => ticket.done(Err(refused)),
                None => {
                    tickets.push(ticket);
                    kept.push(prepared);
                }
            }
        }
        self.tickets = tickets;
        kept
    }

    /// Before the commit: from now on the cache neither has nor takes what changes.
    pub(super) fn mark(&mut self) {
        let Sequencer { shared, container, .. } = self.sequencer;
        self.touched.iter().for_each(|key| shared.item_cache.begin_write(key));
        shared.row_spans.begin_write(*container, &self.rids);
        self.marked = true;
    }

    pub(super) fn unmark(&mut self) {
        if std::mem::take(&mut self.marked) {
            let Sequencer { shared, container, .. } = self.sequencer;
            self.touched.iter().for_each(|key| shared.item_cache.end_write(key));
            shared.row_spans.end_write(*container, &self.rids);
        }
    }

    pub(super) fn succeed(mut self, counts: Counts, committed: Option<(CommittedState, CountedIndexes)>) {
        let sequencer = self.sequencer;
        self.names.iter().for_each(|name| name.set_listed());
        {
            let mut state = sequencer.state.lock();
            (state.committed, state.counted_indexes) = committed.unzip();
            #[cfg(feature = "schedules")]
            if is_put_back(Race::ChangeNotNoted) {
                self.changed.clear();
            }
            self.changed.drain(..).for_each(|(name, lsn)| state.changes.add(name, lsn));
            self.unmark();
            sequencer.publish(&counts);
            sequencer.moved.notify_all();
        }
        sequencer.sweep_due.add(self.sweep_due);
        sequencer.watchers.wake();
        sequencer.shared.statistics.group(self.written.len());
        let written = std::mem::take(&mut self.written);
        for (ticket, written) in self.tickets.drain(..).zip(written) {
            ticket.done(Ok(written));
        }
    }

    pub(super) fn stale(mut self) {
        self.sequencer.discard_committed();
        self.unmark();
        self.tickets.drain(..).for_each(|ticket| ticket.done(Err(WriteRefused::Stale)));
    }

    /// The marks stay until the doubt is gone.
    pub(super) fn in_doubt(mut self, token: Token) {
        self.sequencer.discard_committed();
        let (touched, rids) = (std::mem::take(&mut self.touched), std::mem::take(&mut self.rids));
        let (touched, rids) = (touched.into_vec(), rids.into_vec());
        self.marked = false;
        self.sequencer.is_doubtful.store(true, Ordering::Release);
        self.sequencer.state.lock().unresolved = Some(UnresolvedCommit { token, touched, rids });
        self.tickets
            .drain(..)
            .for_each(|ticket| ticket.done(Err(WriteRefused::Failed(EngineError::Overloaded))));
    }

    pub(super) fn fail(mut self, error: &EngineError) {
        self.sequencer.discard_committed();
        self.unmark();
        self.tickets.drain(..).for_each(|ticket| ticket.done(Err(WriteRefused::Failed(error.duplicate()))));
    }
}

impl Drop for CommitGroup<'_> {
    /// Only a panic leaves tickets unanswered, or marks: then the outcome of the commit is unknown.
    fn drop(&mut self) {
        if !self.tickets.is_empty() || self.marked {
            self.sequencer.discard_committed();
            let overloaded = || Err(WriteRefused::Failed(EngineError::Overloaded));
            self.tickets.drain(..).for_each(|ticket| ticket.done(overloaded()));
        }
        self.unmark();
    }
}

/// The item that an op changes.
pub(super) fn item_of(op: &Op) -> Option<u64> {
    match op {
        Op::Put { space: keys::ITEMS, key, .. } | Op::Delete { space: keys::ITEMS, key } => {
            keys::rid_of_item_key(key)
        }
        _ => None,
    }
}
