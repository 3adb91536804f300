//! Group commit of a partition: one storage commit for all waiting writes, stamped with dense LSNs.
//!
//! There is no thread: a writer that finds no leader leads. The leader takes the queued writes (its own first), stamps them,
//! sends **one** storage commit with one guard, answers all writers of the group, and hands leadership to the next in
//! the queue. The writes that arrive while it waits for the disk are the next group.
//!
//! Invariants:
//! 1. At most one leader, and never none while the queue is not empty. Leadership is given under the mutex of
//!    `SequencerState`, to a ticket that is in the queue, and is handed on by a drop guard, so a panic does not lose it.
//! 2. LSNs are dense: one per write or transaction, assigned in commit order; `_ts` never decreases. Maintenance of
//!    index rows changes no item and has no LSN.
//! 3. A write is committed only if no commit was in doubt since it was prepared: a write reads `generation` before its
//!    snapshot, and every commit in doubt increases it. A write of an older generation is [`WriteRefused::Stale`]
//!    and is prepared again.
//! 4. `lsn` is published after the commit is durable and visible, and after the caches have removed what it changed.
//! 5. A write is committed only if it was made under the definitions (see `partition::write_rules`) that are the newest
//!    when its group is taken: another definition increases `generation`, too. A group in progress may still have
//!    writes of the older one, until [`Sequencer::wait_for_barrier`] has returned.
//! 6. After [`Sequencer::retire`] has returned nothing is committed.
//! 7. If [`Sequencer::changed_since`] is false, nothing has changed: a write is recorded before it is answered. What cannot be
//!    recorded (the outcome was in doubt, or the partition was just opened) counts as changed at the LSN that is read
//!    afterwards.
//! 8. A partition that was split commits nothing more: queued and later writes fail with `PartitionMoved`.
//! 9. A commit over several partitions leads all of them: see [`across`].
//! 10. What [`ContainerAccess`] forbids when a group is taken is not committed and fails with `PartitionMoved`, too.

mod across; // one commit over several partitions
mod differences; // items that several atomic writes change
mod doubt; // commits with an unknown outcome
mod group; // the writes of one commit, and their answers
mod last_changes; // when logical partitions last changed
mod prepared; // a write before it has an LSN
mod queue; // waiting writes and their leader
mod retry; // retries until a write is accepted
mod stamp; // LSN, `_ts`, and the rows that follow from them
mod ticket; // an entry in a queue whose members lead it in turn

use std::collections::VecDeque;
use std::sync::Arc;

use quire_storage::{PartitionId, Position};

pub(crate) use across::{AtomicWrites, CommitQueue, CommitQueues};
pub(crate) use differences::{BuiltTargets, Differences};
pub(crate) use group::OPS_OF_WRITE;
pub(crate) use prepared::{CommittedWrite, ItemPut, PreparedWrite, WriteRefused};
pub(crate) use queue::check_evaluated;
pub(crate) use retry::{attempts, retry_until_accepted};

use self::doubt::UnresolvedCommit;
use self::last_changes::LastChanges;
use self::queue::{Leadership, WriteTicket};
use crate::api::{EngineError, corrupt};
use crate::indexes::CountedIndexes;
use crate::memory::budget::SharedBudget;
use crate::partition::access::{AccessState, ContainerAccess};
use crate::partition::sweep_due::SweepDue;
use crate::runtime::Shared;
use crate::store::Watchers;
use crate::store::keys::{self, Counts};
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back, unless};
use crate::sync::{Condvar, Mutex, MutexGuard};

pub(crate) struct Sequencer {
    container: u32,
    partition: u32,
    shared: Arc<Shared>,
    state: Mutex<SequencerState>,
    /// An LSN was published, or leadership ended.
    moved: Condvar,
    /// Woken when an LSN was published, and when none will be any more.
    watchers: Watchers,
    is_loaded: AtomicBool,
    /// The outcome of the last commit is unknown.
    is_doubtful: AtomicBool,
    generation: AtomicU64,
    lsn: AtomicU64,
    last_ts: AtomicI64,
    items: AtomicU64,
    bytes: AtomicU64,
    /// Of the container.
    sweep_due: Arc<SweepDue>,
    access: Arc<ContainerAccess>,
}

struct SequencerState {
    queue: VecDeque<Arc<WriteTicket>>,
    leading: bool,
    /// `None` until it is read from the storage. Some during every commit, so a reload never races with one.
    committed: Option<CommittedState>,
    /// The leader has it while it commits; `None` also when it has to be read again.
    counted_indexes: Option<CountedIndexes>,
    unresolved: Option<UnresolvedCommit>,
    retired: bool,
    /// Split: its children go on.
    moved: bool,
    changes: LastChanges,
}

impl SequencerState {
    fn new(retained_changes: &Arc<SharedBudget>) -> SequencerState {
        let (queue, leading, committed, counted_indexes, unresolved, retired, moved) = Default::default();
        let changes = LastChanges::new(retained_changes);
        SequencerState { queue, leading, committed, counted_indexes, unresolved, retired, moved, changes }
    }
}

#[derive(Clone, Copy)]
struct CommittedState {
    epoch: u64,
    counts: Counts,
}

/// A partition without writers.
pub(crate) struct HeldPartition<'a> {
    leadership: Leadership<'a>,
    /// Of its guarded sequence.
    pub position: Position,
    pub counts: Counts,
}

impl HeldPartition<'_> {
    /// It was split, or will have been when the outcome of a commit is known: no write is taken any more.
    pub fn set_moved(&self) {
        self.leadership.sequencer.state.lock().moved = true;
        self.leadership.sequencer.watchers.wake();
    }
}

impl Sequencer {
    pub fn new(
        shared: &Arc<Shared>,
        container: u32,
        partition: u32,
        (sweep_due, access): (&Arc<SweepDue>, &Arc<ContainerAccess>),
    ) -> Sequencer {
        Sequencer {
            sweep_due: Arc::clone(sweep_due),
            access: Arc::clone(access),
            container,
            partition,
            shared: Arc::clone(shared),
            state: Mutex::new(SequencerState::new(&shared.retained_changes)),
            moved: Condvar::new(),
            watchers: Watchers::default(),
            is_loaded: AtomicBool::new(false),
            is_doubtful: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            lsn: AtomicU64::new(0),
            last_ts: AtomicI64::new(0),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    pub fn container(&self) -> u32 {
        self.container
    }

    /// To be noted before the snapshot a write is prepared on, and before the definitions that it is made under.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The last LSN that is durable and visible. A snapshot taken after this call shows it.
    pub fn lsn(&self) -> Result<u64, EngineError> {
        self.ensure_loaded()?;
        Ok(self.lsn.load(Ordering::Acquire))
    }

    /// The last `_ts`, once [`Sequencer::lsn`] has answered.
    pub fn last_ts(&self) -> i64 {
        self.last_ts.load(Ordering::Acquire)
    }

    /// The same as `lsn` without touching the disk, if it is known.
    pub fn cached_lsn(&self) -> Option<u64> {
        self.is_loaded.load(Ordering::Acquire).then(|| self.lsn.load(Ordering::Acquire))
    }

    /// Items and bytes that the partition holds.
    pub fn usage(&self) -> Result<(u64, u64), EngineError> {
        self.ensure_loaded()?;
        Ok((self.items.load(Ordering::Acquire), self.bytes.load(Ordering::Acquire)))
    }

    pub fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// Whether a read would find more than up to this LSN, or another answer than before. Without touching the disk:
    /// what is not known may have changed.
    pub fn has_lsn_after(&self, lsn: u64) -> bool {
        if self.cached_lsn().is_none_or(|reached| reached > lsn) {
            return true;
        }
        let state = self.state.lock();
        state.moved || state.retired
    }

    /// Whether the partition was split: its children go on.
    pub fn is_moved(&self) -> bool {
        self.state.lock().moved
    }

    /// Whether items of a logical partition may have changed after an LSN. The caller holds its lock exclusively, so
    /// the answer stays true.
    pub fn changed_since(&self, logical_partition: u64, lsn: u64) -> Result<bool, EngineError> {
        self.ensure_loaded()?;
        Ok(self.state.lock().changes.last(logical_partition) > lsn)
    }

    /// What was prepared until now is prepared again, except what is in a group under way.
    pub fn invalidate_prepared(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns when every group that was taken before the call has been committed, or never will be.
    pub fn wait_for_barrier(&self) -> Result<(), EngineError> {
        #[cfg(feature = "schedules")]
        if is_put_back(Race::NoBarrier) {
            return Ok(());
        }
        let _leadership = self.take_leadership();
        if self.state.lock().unresolved.is_none() {
            return Ok(());
        }
        #[cfg(feature = "schedules")]
        if is_put_back(Race::BarrierLeavesDoubt) {
            return Ok(());
        }
        let (_, counted) = self.ready()?;
        self.return_counted(counted);
        Ok(())
    }

    /// Whether a commit is under way, or it is unknown how the last one ended.
    pub fn is_committing(&self) -> bool {
        let state = self.state.lock();
        state.leading || state.unresolved.is_some()
    }

    /// Refuses all later writes; returns when none is under way, and none can still happen. Fails where it is unknown how the
    /// last commit ended.
    pub fn retire(&self) -> Result<(), EngineError> {
        let mut state = self.state.lock();
        state.retired = true;
        while state.leading {
            self.moved.wait(&mut state);
        }
        let unresolved = state.unresolved.take();
        drop(state);
        self.watchers.wake();
        #[cfg(feature = "schedules")]
        let unresolved = unresolved.and_then(|unresolved| unless(Race::RetireLeavesDoubt, unresolved));
        unresolved.map_or(Ok(()), |unresolved| self.settle_later(unresolved))
    }

    pub fn resume_writes(&self) {
        self.state.lock().retired = false;
    }

    /// Stops the writers: nothing is under way, and nothing is committed before the answer is dropped.
    pub fn hold(&self) -> Result<HeldPartition<'_>, EngineError> {
        let leadership = self.take_leadership();
        let (committed, counted) = self.ready()?;
        self.return_counted(counted);
        let CommittedState { epoch, counts } = committed;
        Ok(HeldPartition { leadership, position: Position { epoch, lsn: counts.lsn }, counts })
    }

    /// Where the partition stands, every earlier commit's outcome certain.
    fn ready(&self) -> Result<(CommittedState, CountedIndexes), EngineError> {
        let unresolved = {
            let mut state = self.state.lock();
            if state.moved || self.access.state() == AccessState::Held {
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
        let committed = self.load_committed(&mut state)?;
        let counted = match state.counted_indexes.take() {
            Some(counted) => counted,
            None => {
                let snapshot = self.shared.storage.snapshot()?;
                CountedIndexes::read(&*snapshot, self.container, self.partition, &committed.counts)?
            }
        };
        Ok((committed, counted))
    }

    /// What [`Sequencer::ready`] gave, where nothing was committed.
    fn return_counted(&self, counted: CountedIndexes) {
        self.state.lock().counted_indexes = Some(counted);
    }

    /// What was prepared is void and where the partition stands has to be read again.
    fn discard_committed(&self) {
        let mut state = self.state.lock();
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.is_loaded.store(false, Ordering::Release);
        state.committed = None;
        state.counted_indexes = None;
    }

    fn ensure_loaded(&self) -> Result<(), EngineError> {
        if self.is_loaded.load(Ordering::Acquire) {
            return Ok(());
        }
        self.load_committed(&mut self.state.lock())?;
        Ok(())
    }

    fn load_committed(
        &self,
        state: &mut MutexGuard<'_, SequencerState>,
    ) -> Result<CommittedState, EngineError> {
        if let Some(committed) = state.committed {
            return Ok(committed);
        }
        let committed = self.read_committed()?;
        state.committed = Some(committed);
        state.changes.discard_until(committed.counts.lsn);
        self.publish(&committed.counts);
        self.is_loaded.store(true, Ordering::Release);
        Ok(committed)
    }

    fn read_committed(&self) -> Result<CommittedState, EngineError> {
        let position = self.shared.storage.position(self.storage_partition())?;
        let (epoch, lsn) = position.map_or((0, 0), |position| (position.epoch, position.lsn));
        let key = keys::counts(self.container, self.partition);
        let counts = match self.shared.storage.snapshot()?.get(keys::CATALOG, &key)? {
            Some(value) => Counts::decode(&value).ok_or_else(|| corrupt("counts of a partition"))?,
            None => Counts::default(),
        };
        Ok(CommittedState { epoch, counts: Counts { lsn, ..counts } })
    }

    fn publish(&self, counts: &Counts) {
        self.items.store(counts.items, Ordering::Release);
        self.bytes.store(counts.bytes, Ordering::Release);
        self.last_ts.store(counts.last_ts, Ordering::Release);
        self.lsn.store(counts.lsn, Ordering::Release);
    }

    fn storage_partition(&self) -> PartitionId {
        keys::partition_id(self.container, self.partition)
    }
}
