//! Group commit over partitions: one storage commit for all waiting atomic writes of a database.
//!
//! Atomic writes ([`AtomicWrites`]) touch several partitions and are committed as a whole. They wait in the queue of their
//! database. There is no thread: a caller that finds no leader leads. The leader takes what is queued (its own writes first), takes the
//! leadership of all partitions that the writes touch, stamps the writes in the order of the queue, sends **one** storage commit
//! with one guard for every partition, answers all callers, and hands leadership to the next in the queue. The own writes of these
//! partitions wait for this one commit.
//!
//! Invariants:
//! 1. At most one leader of a queue, and never none while the queue is not empty: a drop guard hands leadership on.
//! 2. Atomic writes are committed as a whole or not at all. Writes that are refused (they are stale, or one of their partitions was
//!    split, retired or has a commit in doubt) do not affect the others of the group.
//! 3. LSNs of every partition stay dense: the writes of a group get theirs in the order of the queue.
//! 4. Only the leader of a database's queue leads several partitions. Any other leader of a partition, or thread that waits to
//!    lead one, waits for nothing else meanwhile, and databases share no partition. So there is no deadlock, in whatever order
//!    partitions are handed over.
//! 5. A commit in doubt is settled before the next group of this queue is taken, even if that touches other partitions.
//! 6. What several atomic writes change of one item becomes one version of it ([`Differences`]), made while its partition is led.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use quire_sql::WriteMeter;
use quire_storage::{Commit, CommitError, Guard, Op, PartitionId, Token};

use super::group::{CommitGroup, item_of};
use super::queue::{GROUP_BYTES_MAX, Leadership, check_evaluated};
use super::ticket::Ticket;
use super::{
    BuiltTargets, CommittedState, CommittedWrite, CountedIndexes, Differences, PreparedWrite, Sequencer,
    WriteRefused,
};
use crate::api::EngineError;
use crate::runtime::Shared;
use crate::store::random_token;
use crate::sync::Mutex;
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};

/// Partitions of one group, unless one entry alone has more: their own writers wait meanwhile.
const GROUP_PARTITIONS_MAX: usize = 64;

/// Writes that are committed together or not at all.
#[derive(Default)]
pub(crate) struct AtomicWrites {
    /// By partition. Every write has an LSN of its own, in the order of the list.
    pub writes: Vec<(Arc<Sequencer>, Vec<PreparedWrite>)>,
    /// What it changes of items that others of its group may change, too.
    pub differences: Option<Box<dyn Differences>>,
}

/// Atomic writes that are durable and visible.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtomicWritesDone {
    /// In the order of its writes.
    pub written: Vec<CommittedWrite>,
    /// For the items of its differences.
    pub charge: f64,
}

/// The atomic writes of one database that wait for a commit.
#[derive(Default)]
pub(crate) struct CommitQueue(Mutex<CommitQueueState>);

#[derive(Default)]
struct CommitQueueState {
    queue: VecDeque<Arc<AtomicTicket>>,
    leading: bool,
    /// The partitions of the last commit, where it is unknown how it ended.
    in_doubt: Option<Arc<Vec<Arc<Sequencer>>>>,
}

/// The queues of all databases that have an open container.
#[derive(Default)]
pub(crate) struct CommitQueues(Mutex<HashMap<u32, Weak<CommitQueue>>>);

type AtomicTicket = Ticket<AtomicWrites, AtomicWritesDone>;

struct LeaderHandover<'a>(&'a CommitQueue);

/// The atomic writes of one commit, answered at the latest when dropped.
#[derive(Default)]
struct AtomicGroup(Vec<GroupedWrites>);

struct GroupedWrites {
    ticket: Arc<AtomicTicket>,
    entry: AtomicWrites,
}

/// Writes of one partition, with the number of the entry and the place in it that each has. Those that no entry has by itself
/// come last and have no place.
type PlacedWrites = (Vec<PreparedWrite>, Vec<(usize, usize)>);

/// A partition of a commit, led by this group.
struct ReadyPartition {
    committed: CommittedState,
    counted: CountedIndexes,
}

/// A commit that is about to be sent.
struct StampedCommit<'a> {
    guards: Vec<Guard>,
    ops: Vec<Op>,
    groups: Vec<(CommitGroup<'a>, CommittedState, CountedIndexes)>,
    /// By entry of the queue.
    done: Vec<AtomicWritesDone>,
}

/// What a commit came to.
#[derive(Clone, Copy)]
enum GroupOutcome {
    Done,
    /// It is certain now, but where the partitions stand has to be read again.
    DoneElsewhere,
    Nothing,
    InDoubt,
}

impl CommitQueues {
    pub fn of(&self, database: u32) -> Arc<CommitQueue> {
        let mut queues = self.0.lock();
        if let Some(queue) = queues.get(&database).and_then(Weak::upgrade) {
            return queue;
        }
        queues.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::<CommitQueue>::default();
        queues.insert(database, Arc::downgrade(&queue));
        queue
    }
}

impl CommitQueue {
    /// Blocks until the entry is durable and visible, or certainly not going to be (except after `Overloaded`).
    pub fn submit(&self, shared: &Shared, entry: AtomicWrites) -> Result<AtomicWritesDone, WriteRefused> {
        if entry.writes.is_empty() && entry.differences.is_none() {
            return Ok(AtomicWritesDone::default());
        }
        check_evaluated()?;
        let ticket = Ticket::new(entry);
        if self.enqueue(&ticket) || ticket.wait_to_lead() {
            WriteMeter::outside(|| self.lead(shared));
        }
        WriteMeter::restart();
        ticket.answer()
    }

    /// True: the caller leads now.
    fn enqueue(&self, ticket: &Arc<AtomicTicket>) -> bool {
        let mut state = self.0.lock();
        state.queue.push_back(Arc::clone(ticket));
        #[cfg(feature = "schedules")]
        if is_put_back(Race::TwoLeadersAcross) {
            return true;
        }
        !std::mem::replace(&mut state.leading, true)
    }

    fn lead(&self, shared: &Shared) {
        let _handover = LeaderHandover(self);
        let group = self.take_group(shared);
        match self.settle() {
            Ok(()) => self.commit(shared, group),
            Err(error) => group.fail(&error),
        }
    }

    /// Takes from the front of the queue what fits into one commit.
    fn take_group(&self, shared: &Shared) -> AtomicGroup {
        let caps = shared.storage.caps();
        let (bytes_max, ops_max) =
            ((caps.commit_bytes_max / 2).min(GROUP_BYTES_MAX), caps.commit_ops_max / 2);
        let (mut bytes, mut ops, mut partitions) = (0, 0, HashSet::new());
        let mut group = AtomicGroup::default();
        let mut state = self.0.lock();
        while let Some(ticket) = state.queue.front() {
            let look = |entry: &AtomicWrites| {
                partitions.extend(entry.sequencers().map(|sequencer| sequencer.storage_partition()));
                entry.size()
            };
            let size = ticket.peek(look).unwrap_or_default();
            (bytes, ops) = (bytes + size.0, ops + size.1);
            let is_full = bytes > bytes_max || ops > ops_max || partitions.len() > GROUP_PARTITIONS_MAX;
            if is_full && !group.0.is_empty() {
                break;
            }
            if let Some(entry) = ticket.take() {
                group.0.push(GroupedWrites { ticket: Arc::clone(ticket), entry });
            }
            state.queue.pop_front();
        }
        group
    }

    /// Learns how the last commit ended, where that is not known. What this queue's entries share may be of other partitions
    /// than those that the next ones touch.
    pub fn settle(&self) -> Result<(), EngineError> {
        let Some(in_doubt) = self.0.lock().in_doubt.clone() else { return Ok(()) };
        #[cfg(feature = "schedules")]
        if is_put_back(Race::DoubtAcrossNotSettled) {
            return Ok(());
        }
        for sequencer in &*in_doubt {
            match sequencer.settle_doubt() {
                // One partition decides for all of them.
                Ok(()) => break,
                // Settled before it was split; or nobody uses it any more.
                Err(EngineError::PartitionMoved | EngineError::ResourceNotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.0.lock().in_doubt.take_if(|other| Arc::ptr_eq(other, &in_doubt));
        Ok(())
    }

    fn commit(&self, shared: &Shared, mut group: AtomicGroup) {
        let partitions = group.partitions();
        let requested = partitions.values().map(|partition| partition.request_leadership());
        let mut led: Vec<Leadership<'_>> = requested.collect();
        led.iter_mut().for_each(Leadership::wait);
        let mut ready = HashMap::with_capacity(partitions.len());
        for (id, partition) in &partitions {
            match partition.ready() {
                Ok((committed, counted)) => drop(ready.insert(*id, ReadyPartition { committed, counted })),
                Err(error) => {
                    group.refuse(|entry| entry.touches(*id).then(|| WriteRefused::Failed(error.duplicate())))
                }
            }
        }
        group.refuse(|entry| entry.is_stale().then_some(WriteRefused::Stale));
        group.refuse(|entry| entry.is_closed().then_some(WriteRefused::Failed(EngineError::PartitionMoved)));
        let built = group.build(shared);
        let targets = built.iter().flat_map(|built| &built.writes).map(|(sequencer, _)| sequencer);
        let writes = group.0.iter().flat_map(|taken| &taken.entry.writes).map(|(sequencer, _)| sequencer);
        let touched: BTreeMap<_, _> = writes
            .chain(targets)
            .map(|sequencer| (sequencer.storage_partition(), Arc::clone(sequencer)))
            .collect();
        for (id, ReadyPartition { counted, .. }) in ready.extract_if(|id, _| !touched.contains_key(id)) {
            partitions[&id].return_counted(counted);
        }
        if group.0.is_empty() {
            return;
        }
        match built.and_then(|built| Ok((built, random_token()?))) {
            Ok((built, token)) => self.send(shared, group, built, token, &touched, ready),
            Err(error) => group.fail(&error),
        }
    }

    fn send(
        &self,
        shared: &Shared,
        mut group: AtomicGroup,
        built: BuiltTargets,
        token: Token,
        partitions: &BTreeMap<PartitionId, Arc<Sequencer>>,
        ready: HashMap<PartitionId, ReadyPartition>,
    ) {
        let StampedCommit { guards, ops, mut groups, done } = group.stamp(partitions, built, ready);
        let Some(first) = groups.first().map(|(group, ..)| group.sequencer) else {
            return group.fail(&EngineError::Overloaded);
        };
        groups.iter_mut().for_each(|(group, ..)| group.mark());
        let sent = shared.storage.commit(Commit { guards, token, ops });
        let outcome = match sent {
            Ok(_) => GroupOutcome::Done,
            // A raised epoch of one partition keeps all of the commit from happening.
            Err(CommitError::Unknown { .. }) => match first.settle(token) {
                Some(true) => GroupOutcome::DoneElsewhere,
                Some(false) => GroupOutcome::Nothing,
                None => GroupOutcome::InDoubt,
            },
            Err(CommitError::Busy | CommitError::Conflict { .. }) => GroupOutcome::Nothing,
            Err(error) => {
                let error = first.explain(error);
                groups.into_iter().for_each(|(group, ..)| group.fail(&error));
                return group.fail(&error);
            }
        };
        for (group, committed, counted) in groups {
            match outcome {
                GroupOutcome::Done => group.succeed(committed.counts, Some((committed, counted))),
                GroupOutcome::DoneElsewhere => group.succeed(committed.counts, None),
                GroupOutcome::Nothing => group.stale(),
                GroupOutcome::InDoubt => group.in_doubt(token),
            }
        }
        match outcome {
            GroupOutcome::Done | GroupOutcome::DoneElsewhere => group.succeed(done),
            GroupOutcome::Nothing => group.refuse(|_| Some(WriteRefused::Stale)),
            GroupOutcome::InDoubt => {
                self.0.lock().in_doubt = Some(Arc::new(partitions.values().cloned().collect()));
                group.fail(&EngineError::Overloaded);
            }
        }
    }
}

impl Sequencer {
    /// Returns when it is known how every commit ended that someone was answered about.
    pub fn ensure_settled(&self) -> Result<(), EngineError> {
        if self.is_doubtful.load(Ordering::Acquire) { self.settle_doubt() } else { Ok(()) }
    }

    /// Learns how the last commit ended, if that is not known.
    fn settle_doubt(&self) -> Result<(), EngineError> {
        let _leadership = self.take_leadership();
        let (_, counted) = self.ready()?;
        self.return_counted(counted);
        Ok(())
    }
}

impl AtomicWrites {
    /// Of its own writes, and of the items of its differences.
    fn sequencers(&self) -> impl Iterator<Item = &Arc<Sequencer>> {
        let differences = self.differences.iter().flat_map(|differences| differences.partitions());
        self.writes.iter().map(|(sequencer, _)| sequencer).chain(differences)
    }

    fn touches(&self, partition: PartitionId) -> bool {
        self.sequencers().any(|sequencer| sequencer.storage_partition() == partition)
    }

    fn is_stale(&self) -> bool {
        self.writes.iter().any(|(sequencer, writes)| writes.iter().any(|write| sequencer.is_stale(write)))
    }

    /// A container is closed for it.
    fn is_closed(&self) -> bool {
        let is_closed = |sequencer: &Sequencer, writes: &[PreparedWrite]| {
            writes.iter().any(|write| sequencer.is_closed_for(write))
        };
        self.writes.iter().any(|(sequencer, writes)| is_closed(sequencer, writes))
    }

    /// Bytes and ops that it adds to a commit, roughly from above.
    fn size(&self) -> (usize, usize) {
        let sizes = self.writes.iter().flat_map(|(_, writes)| writes).map(PreparedWrite::size);
        let sizes = sizes.chain(self.differences.iter().map(|differences| differences.size()));
        sizes.fold((0, 0), |(bytes, ops), size| (bytes + size.0, ops + size.1))
    }
}

impl AtomicGroup {
    /// What the entries touch, in the order of ids.
    fn partitions(&self) -> BTreeMap<PartitionId, Arc<Sequencer>> {
        let sequencers = self.0.iter().flat_map(|taken| taken.entry.sequencers());
        sequencers.map(|sequencer| (sequencer.storage_partition(), Arc::clone(sequencer))).collect()
    }

    /// Answers those that are refused; the others stay.
    fn refuse(&mut self, refusal: impl Fn(&AtomicWrites) -> Option<WriteRefused>) {
        self.0.retain(|taken| match refusal(&taken.entry) {
            Some(refused) => {
                taken.ticket.done(Err(refused));
                false
            }
            None => true,
        });
    }

    fn fail(mut self, error: &EngineError) {
        self.refuse(|_| Some(WriteRefused::Failed(error.duplicate())));
    }

    fn succeed(mut self, done: Vec<AtomicWritesDone>) {
        for (taken, done) in self.0.drain(..).zip(done) {
            taken.ticket.done(Ok(done));
        }
    }

    /// What the differences of all entries come to. Entries that cannot be part of it are answered.
    fn build(&mut self, shared: &Shared) -> Result<BuiltTargets, EngineError> {
        loop {
            let entries = self.0.iter().enumerate();
            let entries: Vec<(usize, &dyn Differences)> = entries
                .filter_map(|(number, taken)| Some((number, taken.entry.differences.as_deref()?)))
                .collect();
            let Some((_, first)) = entries.first() else { return Ok(BuiltTargets::default()) };
            let built = first.build(shared, &entries)?;
            if built.refused.is_empty() {
                return Ok(built);
            }
            let mut refused: HashMap<usize, WriteRefused> = built.refused.into_iter().collect();
            let mut number = 0;
            self.0.retain(|taken| {
                number += 1;
                let Some(refused) = refused.remove(&(number - 1)) else { return true };
                taken.ticket.done(Err(refused));
                false
            });
        }
    }

    /// Gives LSNs to the writes of all entries, partition by partition.
    fn stamp<'a>(
        &mut self,
        partitions: &'a BTreeMap<PartitionId, Arc<Sequencer>>,
        built: BuiltTargets,
        mut ready: HashMap<PartitionId, ReadyPartition>,
    ) -> StampedCommit<'a> {
        let mut by_partition: HashMap<PartitionId, PlacedWrites> = HashMap::new();
        let mut done = Vec::with_capacity(self.0.len());
        for (number, taken) in self.0.iter_mut().enumerate() {
            let mut count = 0;
            for (sequencer, writes) in std::mem::take(&mut taken.entry.writes) {
                let (prepared, places) = by_partition.entry(sequencer.storage_partition()).or_default();
                places.extend((count..count + writes.len()).map(|place| (number, place)));
                count += writes.len();
                prepared.extend(writes);
            }
            done.push(AtomicWritesDone {
                written: vec![CommittedWrite { lsn: 0, ts: 0 }; count],
                charge: 0.0,
            });
        }
        for (sequencer, write) in built.writes {
            by_partition.entry(sequencer.storage_partition()).or_default().0.push(write);
        }
        built.charges.iter().for_each(|(entry, charge)| done[*entry].charge += charge);
        let (guards, groups) = Default::default();
        let mut stamped = StampedCommit { guards, ops: built.ops, groups, done };
        for (id, sequencer) in partitions {
            let (Some((prepared, places)), Some(ready)) = (by_partition.remove(id), ready.remove(id)) else {
                continue;
            };
            let written = stamped.add(sequencer, prepared, ready);
            for ((entry, place), written) in places.into_iter().zip(written) {
                stamped.done[entry].written[place] = written;
            }
        }
        stamped
    }
}

impl<'a> StampedCommit<'a> {
    fn add(
        &mut self,
        sequencer: &'a Sequencer,
        prepared: Vec<PreparedWrite>,
        ready: ReadyPartition,
    ) -> Vec<CommittedWrite> {
        let mut group = CommitGroup::new(sequencer);
        // An index is listed once by a commit, whichever partition is the first to need it.
        let same_container =
            self.groups.iter().filter(|(other, ..)| other.sequencer.container == sequencer.container);
        group.names = same_container.flat_map(|(other, ..)| other.names.clone()).collect();
        let from = self.ops.len();
        let before = (ready.committed, ready.counted);
        let (guard, (committed, counted)) = sequencer.stamp_all(prepared, before, &mut self.ops, &mut group);
        group.rids.extend(self.ops[from..].iter().filter_map(item_of));
        let written = group.written.to_vec();
        self.guards.push(guard);
        self.groups.push((group, committed, counted));
        written
    }
}

impl Drop for AtomicGroup {
    /// Only a panic leaves entries unanswered.
    fn drop(&mut self) {
        self.refuse(|_| Some(WriteRefused::Failed(EngineError::Overloaded)));
    }
}

impl Drop for LeaderHandover<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        match state.queue.front() {
            Some(next) => next.lead(),
            None => state.leading = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use quire_storage::memory::MemoryStorage;
    use quire_value::{Limits, text};

    use super::*;
    use crate::Engine;
    use crate::runtime::stopped_clock::StoppedClock;

    /// Asked for and dropped, waited for or not: the partition is free afterwards.
    #[test]
    fn leadership_is_given_up_in_every_stage() {
        let json = |json: &str| text::parse(json.as_bytes(), Limits::default()).unwrap();
        let options = StoppedClock::default().into_options(1);
        let engine = Engine::open(Arc::new(MemoryStorage::new()), options).unwrap();
        engine.catalog().create_database(&json(r#"{"id":"d"}"#), None).unwrap();
        let body = json(r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#);
        let container = engine.catalog().create_container("d", &body, None).unwrap();
        let sequencer = &container.partitions.all()[0].sequencer;
        let is_free = || {
            let state = sequencer.state.lock();
            !state.leading && state.queue.is_empty()
        };
        drop(sequencer.request_leadership());
        assert!(is_free());
        let held = sequencer.take_leadership();
        drop(sequencer.request_leadership()); // it was not its turn
        let next = sequencer.request_leadership();
        drop(held);
        assert!(!is_free());
        drop(next); // it was its turn, but nobody waited for it
        assert!(is_free());
    }
}
