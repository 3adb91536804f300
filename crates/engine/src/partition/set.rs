//! A container's partitions: ranges of effective partition keys with their LSNs and counts.
//!
//! A split makes a new [`PartitionSet`] in which two children have the place of their parent; everything else is shared by
//! all sets of a container. Feed rows of the parent stay where they are, so a partition's history is that of its
//! ancestors, oldest first, and then its own: LSNs go on where the parent's ended.

use std::sync::Arc;

use arc_swap::ArcSwap;
use quire_resource::{ChildKind, EffectivePartitionKey, ResourceId, SessionToken};
use quire_storage::Snapshot;
use quire_value::Path;

use super::access::{AccessState, ContainerAccess};
use super::deleted_keys::marks_in;
use crate::api::{EngineError, PartitionInfo, SessionPosition};
use crate::indexes::Indexes;
use crate::indexes::missing::PATHS_MAX;
use crate::model::ContainerModel;
use crate::partition::child_ids::ChildIds;
use crate::partition::deleted_keys::DeletedKeys;
use crate::partition::sequencer::{CommitQueue, Sequencer};
use crate::partition::sweep_due::SweepDue;
use crate::partition::write_rules::WriteRules;
use crate::runtime::Shared;
use crate::store::{PartitionLayout, check_tiling, keys, lineage};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// A container's partitions with their sequencers. One per container, until one of them is split.
pub(crate) struct PartitionSet {
    /// In the order of their ranges.
    partitions: Vec<Arc<Partition>>,
    shared_state: Arc<ContainerShared>,
    /// One more than the id of a partition that a split, perhaps under way, brings; 0: none.
    successor: AtomicU64,
    moved: AtomicBool,
}

/// What a container has as a whole, however it is divided, for as long as the engine is open and whatever happens to the
/// definition.
struct ContainerShared {
    rid: ResourceId,
    number: u32,
    rids: ChildIds,
    retired: AtomicBool,
    /// Held during a commit of a background thread that has no partition.
    committing: Mutex<()>,
    /// Percent of the vector indexes that are built.
    vector_progress: AtomicU8,
    /// What a write depends on.
    rules: ArcSwap<WriteRules>,
    deleted_keys: Arc<ArcSwap<DeletedKeys>>,
    /// Paths that queries sort by and that items lack, to be recorded.
    requested_missing: Mutex<Vec<Path>>,
    sweep_due: Arc<SweepDue>,
    access: Arc<ContainerAccess>,
    /// Of the database.
    commit_queue: Arc<CommitQueue>,
}

pub(crate) struct Partition {
    pub layout: PartitionLayout,
    /// The id as clients know it.
    pub name: Arc<str>,
    pub sequencer: Arc<Sequencer>,
    shared: Arc<Shared>,
}

impl PartitionSet {
    /// A partition looks up where it stands when it is first used.
    pub fn open(
        shared: &Arc<Shared>,
        container_number: u32,
        rid: ResourceId,
        rules: WriteRules,
        layout: &[PartitionLayout],
        commit_queue: Arc<CommitQueue>,
    ) -> Result<PartitionSet, EngineError> {
        check_tiling(layout)?;
        let (sweep_due, access) = (Arc::new(SweepDue::new()), Arc::<ContainerAccess>::default());
        let new = |layout| Arc::new(Partition::new(shared, container_number, layout, (&sweep_due, &access)));
        let partitions = layout.iter().map(new).collect();
        let rids = ChildIds::new(shared, container_number);
        let (retired, rules) = (AtomicBool::new(false), ArcSwap::from_pointee(rules));
        let deleted_keys = marks_in(&*shared.storage.snapshot()?, container_number)?;
        let deleted_keys = Arc::new(ArcSwap::from_pointee(deleted_keys));
        let number = container_number;
        let missing_wanted = Mutex::default();
        let (committing, vector_progress) = (Mutex::new(()), AtomicU8::new(100));
        let whole = ContainerShared {
            rid,
            number,
            rids,
            retired,
            committing,
            vector_progress,
            rules,
            deleted_keys,
            requested_missing: missing_wanted,
            sweep_due,
            access,
            commit_queue,
        };
        Ok(PartitionSet::of(partitions, Arc::new(whole)))
    }

    fn of(mut partitions: Vec<Arc<Partition>>, whole: Arc<ContainerShared>) -> PartitionSet {
        partitions.sort_by(|a, b| a.layout.range.min.cmp(&b.layout.range.min));
        PartitionSet {
            partitions,
            shared_state: whole,
            successor: AtomicU64::new(0),
            moved: AtomicBool::new(false),
        }
    }

    /// The set in which the children have the place of a partition. The others are the same objects.
    pub fn with_children(
        &self,
        shared: &Arc<Shared>,
        parent: u32,
        children: &[PartitionLayout],
    ) -> Result<PartitionSet, EngineError> {
        let others = self.partitions.iter().filter(|partition| partition.layout.id != parent);
        let own = (&self.shared_state.sweep_due, &self.shared_state.access);
        let new = |layout| Arc::new(Partition::new(shared, self.shared_state.number, layout, own));
        let partitions: Vec<_> = others.cloned().chain(children.iter().map(new)).collect();
        let set = PartitionSet::of(partitions, Arc::clone(&self.shared_state));
        check_tiling(&set.layout())?;
        Ok(set)
    }

    pub fn layout(&self) -> Vec<PartitionLayout> {
        self.partitions.iter().map(|partition| partition.layout.clone()).collect()
    }

    /// Before the commit of a split: from now on a snapshot may show it.
    pub fn expect_successor(&self, child: u32) {
        self.successor.store(u64::from(child) + 1, Ordering::Release);
    }

    /// That commit certainly failed.
    pub fn expect_no_successor(&self) {
        self.successor.store(0, Ordering::Release);
    }

    /// The split is done and its set can be found in the catalog.
    pub fn set_moved(&self) {
        self.moved.store(true, Ordering::Release);
    }

    /// A partition was split, and the later set may not be found yet.
    pub fn is_splitting(&self) -> bool {
        self.partitions.iter().any(|partition| partition.sequencer.is_moved())
    }

    /// There is a later set.
    pub fn is_moved(&self) -> bool {
        self.moved.load(Ordering::Acquire)
    }

    /// Nothing keeps writes from it: there is no later set, and it is neither held nor closed.
    pub fn is_current(&self) -> bool {
        !self.is_moved() && self.shared_state.access.state() == AccessState::Open
    }

    /// Refuses what is to be read by partition where the snapshot may show a later set: counts and feeds are not where
    /// this one says.
    pub fn check_current(&self, snapshot: &dyn Snapshot) -> Result<(), EngineError> {
        if self.is_moved() {
            return Err(EngineError::PartitionMoved);
        }
        let Some(child) = self.successor.load(Ordering::Acquire).checked_sub(1) else { return Ok(()) };
        let key = keys::counts(self.shared_state.number, child as u32);
        match snapshot.get(keys::CATALOG, &key)? {
            Some(_) => Err(EngineError::PartitionMoved),
            None => Ok(()),
        }
    }

    /// The partitions of a container, and those they come from: where feed rows can be.
    pub fn lineage(&self) -> Vec<u32> {
        lineage(self.partitions.iter().map(|partition| &partition.layout))
    }

    /// For commits over several partitions of the database.
    pub fn commit_queue(&self) -> &CommitQueue {
        &self.shared_state.commit_queue
    }

    /// When the sweep has something to do.
    pub fn sweep_due(&self) -> &SweepDue {
        &self.shared_state.sweep_due
    }

    /// Who may write.
    pub fn access(&self) -> &ContainerAccess {
        &self.shared_state.access
    }

    /// Partition keys that were deleted and are not empty yet.
    pub fn deleted_keys(&self) -> Arc<DeletedKeys> {
        self.shared_state.deleted_keys.load_full()
    }

    pub fn change_deleted_keys(&self, change: impl Fn(&mut DeletedKeys)) {
        self.shared_state.deleted_keys.rcu(|keys| {
            let mut keys = DeletedKeys::clone(keys);
            change(&mut keys);
            keys
        });
    }

    /// The container's indexes as they are now, whichever definition the caller has.
    pub fn indexes(&self) -> Arc<Indexes> {
        Arc::clone(&self.shared_state.rules.load().indexes)
    }

    /// What a write depends on, as it is now. To be loaded after the generation of the partition was noted.
    pub fn write_rules(&self) -> Arc<WriteRules> {
        self.shared_state.rules.load_full()
    }

    /// Whether a model names the container.
    pub fn is_modelled(&self) -> bool {
        self.shared_state.rules.load().model.is_some()
    }

    /// What the model of the database says of the container.
    pub fn model(&self) -> Option<Arc<ContainerModel>> {
        self.shared_state.rules.load().model.clone()
    }

    /// Asks for rows of the items that lack a path; true if that is new.
    pub fn request_missing_rows(&self, path: &Path) -> bool {
        if !self.indexes().can_index_missing(path) {
            return false;
        }
        let mut wanted = self.shared_state.requested_missing.lock();
        let is_new = wanted.len() < PATHS_MAX && !wanted.contains(path);
        if is_new {
            wanted.push(path.clone());
        }
        is_new
    }

    pub fn has_requested_rows(&self) -> bool {
        !self.shared_state.requested_missing.lock().is_empty()
    }

    pub fn requested_missing(&self) -> Vec<Path> {
        self.shared_state.requested_missing.lock().clone()
    }

    /// They are recorded, or cannot be.
    pub fn remove_requested(&self, paths: &[Path]) {
        self.shared_state.requested_missing.lock().retain(|path| !paths.contains(path));
    }

    /// A commit of the catalog says so, and only one of them at a time. Writes that were prepared under other rules are
    /// prepared again, except those in a group that is under way: see [`PartitionSet::wait_for_barrier`].
    pub fn switch(&self, change: impl FnOnce(&mut WriteRules)) {
        let before = self.shared_state.rules.load_full();
        let mut rules = WriteRules::clone(&before);
        change(&mut rules);
        let is_same = rules.are_same(&before);
        self.shared_state.rules.store(Arc::new(rules));
        if !is_same {
            self.partitions.iter().for_each(|partition| partition.sequencer.invalidate_prepared());
        }
    }

    /// After a switch: returns when every write that can still be committed is one under the new rules. Fails where nobody can
    /// tell how an earlier commit ended.
    pub fn wait_for_barrier(&self) -> Result<(), EngineError> {
        self.partitions.iter().try_for_each(|partition| partition.sequencer.wait_for_barrier())
    }

    /// Returns when everything that was prepared before has been committed, or will be prepared again.
    pub fn settle_prepared(&self) -> Result<(), EngineError> {
        self.partitions.iter().for_each(|partition| partition.sequencer.invalidate_prepared());
        self.wait_for_barrier()
    }

    /// Returns when every commit of an unknown outcome has happened, or never will.
    pub fn settle_doubts(&self) -> Result<(), EngineError> {
        let mut in_doubt = self.partitions.iter().filter(|partition| partition.sequencer.is_committing());
        in_doubt.try_for_each(|partition| partition.sequencer.wait_for_barrier())
    }

    /// The container is being deleted: returns when no write is under way, and refuses all later ones with
    /// `ResourceNotFound`. Call it before the commit that drops the container. Fails where it is unknown how a commit ended:
    /// then the partitions are to be opened again.
    pub fn retire(&self) -> Result<(), EngineError> {
        self.shared_state.retired.store(true, Ordering::Release);
        drop(self.shared_state.committing.lock());
        self.shared_state.rids.retire();
        self.partitions.iter().try_for_each(|partition| partition.sequencer.retire())?;
        if let Some(partition) = self.partitions.first() {
            partition.clear_caches();
        }
        Ok(())
    }

    /// That commit failed: takes writes again.
    pub fn resume_writes(&self) {
        self.shared_state.rids.resume_writes();
        self.partitions.iter().for_each(|partition| partition.sequencer.resume_writes());
        self.shared_state.retired.store(false, Ordering::Release);
    }

    /// Runs a commit that no partition's sequencer makes, unless the container is being deleted; that waits for it.
    pub fn unless_retired<T>(&self, commit: impl FnOnce() -> T) -> Option<T> {
        let _committing = self.shared_state.committing.lock();
        (!self.is_retired()).then(commit)
    }

    /// Percent of the vector indexes that are built.
    pub fn vector_progress(&self) -> u8 {
        self.shared_state.vector_progress.load(Ordering::Relaxed)
    }

    pub fn set_vector_progress(&self, percent: u8) {
        self.shared_state.vector_progress.store(percent, Ordering::Relaxed);
    }

    pub fn is_retired(&self) -> bool {
        self.shared_state.retired.load(Ordering::Acquire)
    }

    /// In the order of their ranges.
    pub fn all(&self) -> &[Arc<Partition>] {
        &self.partitions
    }

    /// The partition whose range holds the key.
    pub fn route(&self, epk: &EffectivePartitionKey) -> &Partition {
        let after = self.partitions.partition_point(|partition| partition.layout.range.min <= *epk);
        &self.partitions[after.saturating_sub(1)]
    }

    pub fn allocate_counter(&self) -> Result<u64, EngineError> {
        self.shared_state.rids.allocate()
    }

    pub fn infos(&self) -> Vec<PartitionInfo> {
        self.partitions.iter().map(|partition| partition.info(&self.shared_state.rid)).collect()
    }
}

impl Partition {
    fn new(
        shared: &Arc<Shared>,
        container: u32,
        layout: &PartitionLayout,
        (sweep_due, access): (&Arc<SweepDue>, &Arc<ContainerAccess>),
    ) -> Partition {
        Partition {
            layout: layout.clone(),
            name: Arc::from(layout.id.to_string()),
            sequencer: Arc::new(Sequencer::new(shared, container, layout.id, (sweep_due, access))),
            shared: Arc::clone(shared),
        }
    }

    /// What scans keep of the whole container.
    fn clear_caches(&self) {
        self.shared.row_spans.remove_container(self.sequencer.container());
    }

    pub fn position(&self) -> Result<SessionPosition, EngineError> {
        Ok(self.position_at(self.sequencer.lsn()?))
    }

    /// The same if it needs no disk.
    pub fn cached_position(&self) -> Option<SessionPosition> {
        self.sequencer.cached_lsn().map(|lsn| self.position_at(lsn))
    }

    /// The position for a read, at least as far as the session token asks. A snapshot taken afterwards shows it. Nothing is
    /// waited for: an LSN is published before any answer names it, so a token that is ahead was not given out here.
    pub fn position_for(&self, session: Option<&SessionToken>) -> Result<SessionPosition, EngineError> {
        let Some(floor) = session.and_then(|token| self.floor_of(token)) else { return self.position() };
        let lsn = floor?;
        let position = self.position()?;
        if position.lsn < lsn { Err(EngineError::SessionNotAvailable) } else { Ok(position) }
    }

    /// The LSN that was reached, where the token asks for a later one. Without touching the disk.
    pub fn lsn_behind_session(&self, session: &SessionToken) -> Option<u64> {
        let floor = self.floor_of(session)?.ok()?;
        self.sequencer.cached_lsn().filter(|reached| *reached < floor)
    }

    /// Whether the partition is known to be as far as the token asks.
    pub fn satisfies(&self, session: Option<&SessionToken>, position: &SessionPosition) -> bool {
        match session.and_then(|token| self.floor_of(token)) {
            None => true,
            Some(floor) => floor.is_ok_and(|lsn| lsn <= position.lsn),
        }
    }

    /// The LSN that a token demands of this partition; `None` when it does not speak of it. A token of another
    /// incarnation may promise what a restore took back.
    fn floor_of(&self, token: &SessionToken) -> Option<Result<u64, EngineError>> {
        // What was promised of a parent holds for its children, which go on from there.
        let is_parent = |range: &str| range.parse().is_ok_and(|id| self.layout.parents.contains(&id));
        let applies = |range: &str| range == &*self.name || range.is_empty() || is_parent(range);
        let mut parts = token.parts.iter().filter(|(range, _, _)| applies(range)).peekable();
        parts.peek()?;
        let version = self.shared.session_version();
        Some(parts.try_fold(0, |floor, &(_, part_version, lsn)| {
            if part_version == version { Ok(floor.max(lsn)) } else { Err(EngineError::SessionNotAvailable) }
        }))
    }

    fn position_at(&self, lsn: u64) -> SessionPosition {
        let session_version = self.shared.session_version();
        SessionPosition { partition_id: self.name.clone(), session_version, lsn }
    }

    fn info(&self, container: &ResourceId) -> PartitionInfo {
        let figures = self.sequencer.lsn().and_then(|lsn| Ok((lsn, self.sequencer.usage()?)));
        let (lsn, (item_count, size_bytes)) = figures.unwrap_or_else(|error| {
            tracing::error!(partition = &*self.name, %error, "cannot read where a partition stands");
            (0, (0, 0))
        });
        PartitionInfo {
            id: self.name.to_string(),
            rid: partition_rid(container, self.layout.id),
            range: self.layout.range.clone(),
            parents: self.layout.parents.iter().map(u32::to_string).collect(),
            lsn,
            item_count,
            size_bytes,
        }
    }
}

fn partition_rid(container: &ResourceId, partition: u32) -> ResourceId {
    match *container {
        ResourceId::Container { database, container } => {
            let child = u64::from(partition) + 2;
            ResourceId::Child { database, container, kind: ChildKind::PartitionKeyRange, child }
        }
        other => other,
    }
}
