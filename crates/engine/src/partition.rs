//! A container's partitions: ranges of effective partition keys, where they stand, what they hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use quire_resource::{ChildKind, EffectivePartitionKey, EpkRange, ResourceId, SessionToken};

use crate::EngineError;
use crate::api::{PartitionInfo, Position};
use crate::catalog::ContainerScripts;
use crate::indexes::Indexes;
use crate::items::{DeletedKeys, key_delete};
use crate::rids::Rids;
use crate::sequencer::Sequencer;
use crate::shared::Shared;

/// How long a read waits for an LSN that a session token promises.
const SESSION_WAIT_MAX: Duration = Duration::from_millis(100);

/// One partition as the container's catalog row keeps it. The ranges of a container's layouts tile the key space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionLayout {
    pub id: u32,
    pub range: EpkRange,
    /// Partitions this one was split from, oldest first.
    pub parents: Vec<u32>,
}

/// A container's partitions with their sequencers. One per container for as long as the engine is open, whatever
/// happens to the definition.
pub(crate) struct PartitionSet {
    rid: ResourceId,
    /// In the order of their ranges.
    partitions: Vec<Partition>,
    rids: Rids,
    retired: AtomicBool,
    indexes: ArcSwap<Indexes>,
    deleted_keys: Arc<ArcSwap<DeletedKeys>>,
    scripts: ArcSwap<ContainerScripts>,
}

pub(crate) struct Partition {
    pub layout: PartitionLayout,
    /// The id as clients know it.
    pub name: String,
    pub sequencer: Sequencer,
    shared: Arc<Shared>,
}

impl PartitionSet {
    /// A partition looks up where it stands when it is first used.
    pub fn open(
        shared: &Arc<Shared>,
        container_number: u32,
        rid: ResourceId,
        indexes: Indexes,
        layout: &[PartitionLayout],
    ) -> Result<PartitionSet, EngineError> {
        check_tiling(layout)?;
        let epoch = indexes.epoch();
        let mut partitions: Vec<Partition> =
            layout.iter().map(|layout| Partition::new(shared, container_number, layout, epoch)).collect();
        partitions.sort_by(|a, b| a.layout.range.min.cmp(&b.layout.range.min));
        let rids = Rids::new(shared, container_number);
        let (retired, indexes) = (AtomicBool::new(false), ArcSwap::from_pointee(indexes));
        let deleted_keys = Arc::new(ArcSwap::from_pointee(key_delete::marks_of(shared, container_number)?));
        Ok(PartitionSet {
            rid,
            partitions,
            rids,
            retired,
            indexes,
            deleted_keys,
            scripts: ArcSwap::default(),
        })
    }

    /// The container's scripts as they are now, whichever definition the caller has.
    pub fn scripts(&self) -> Arc<ContainerScripts> {
        self.scripts.load_full()
    }

    /// A commit of the catalog says so.
    pub fn switch_scripts(&self, scripts: Arc<ContainerScripts>) {
        self.scripts.store(scripts);
    }

    /// Partition keys that were deleted and are not empty yet.
    pub fn deleted_keys(&self) -> Arc<DeletedKeys> {
        self.deleted_keys.load_full()
    }

    pub fn change_deleted_keys(&self, change: impl Fn(&mut DeletedKeys)) {
        self.deleted_keys.rcu(|keys| {
            let mut keys = DeletedKeys::clone(keys);
            change(&mut keys);
            keys
        });
    }

    /// The container's indexes as they are now, whichever definition the caller has.
    pub fn indexes(&self) -> Arc<Indexes> {
        self.indexes.load_full()
    }

    /// A commit of the catalog says so. Writes that were prepared under another epoch are prepared again, except those
    /// in a group that is under way: see `indexes::build`.
    pub fn switch_indexes(&self, indexes: Arc<Indexes>) {
        let epoch = indexes.epoch();
        self.indexes.store(indexes);
        self.partitions.iter().for_each(|partition| partition.sequencer.set_index_epoch(epoch));
    }

    /// The container is being deleted: returns when no write is under way, and refuses all later ones with
    /// `ResourceNotFound`. Call it before the commit that drops the container.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.rids.retire();
        self.partitions.iter().for_each(|partition| partition.sequencer.retire());
        if let Some(partition) = self.partitions.first() {
            partition.forget_kept();
        }
    }

    /// That commit failed: takes writes again.
    pub fn revive(&self) {
        self.rids.revive();
        self.partitions.iter().for_each(|partition| partition.sequencer.revive());
        self.retired.store(false, Ordering::Release);
    }

    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// In the order of their ranges.
    pub fn all(&self) -> &[Partition] {
        &self.partitions
    }

    /// The partition whose range holds the key.
    pub fn route(&self, epk: &EffectivePartitionKey) -> &Partition {
        let after = self.partitions.partition_point(|partition| partition.layout.range.min <= *epk);
        &self.partitions[after.saturating_sub(1)]
    }

    pub fn allocate_counter(&self) -> Result<u64, EngineError> {
        self.rids.allocate()
    }

    pub fn infos(&self) -> Vec<PartitionInfo> {
        self.partitions.iter().map(|partition| partition.info(&self.rid)).collect()
    }
}

impl Partition {
    fn new(shared: &Arc<Shared>, container: u32, layout: &PartitionLayout, index_epoch: u8) -> Partition {
        Partition {
            layout: layout.clone(),
            name: layout.id.to_string(),
            sequencer: Sequencer::new(shared, container, layout.id, index_epoch),
            shared: Arc::clone(shared),
        }
    }

    /// What scans and vector indexes keep of the whole container.
    fn forget_kept(&self) {
        self.shared.stretches.forget(self.sequencer.container());
        self.shared.vectors.forget(self.sequencer.container());
    }

    pub fn position(&self) -> Result<Position, EngineError> {
        Ok(self.position_at(self.sequencer.lsn()?))
    }

    /// The same if it needs no disk.
    pub fn position_known(&self) -> Option<Position> {
        self.sequencer.lsn_known().map(|lsn| self.position_at(lsn))
    }

    /// The position for a read, at least as far as the session token asks. A snapshot taken afterwards shows it.
    pub fn position_for(&self, session: Option<&SessionToken>) -> Result<Position, EngineError> {
        let Some(floor) = session.and_then(|token| self.floor_of(token)) else { return self.position() };
        let lsn = floor?;
        if self.sequencer.lsn()? < lsn && !self.sequencer.wait_for(lsn, Instant::now() + SESSION_WAIT_MAX)? {
            return Err(EngineError::SessionNotAvailable);
        }
        self.position()
    }

    /// Whether the partition is known to be as far as the token asks.
    pub fn satisfies(&self, session: Option<&SessionToken>, position: &Position) -> bool {
        match session.and_then(|token| self.floor_of(token)) {
            None => true,
            Some(floor) => floor.is_ok_and(|lsn| lsn <= position.lsn),
        }
    }

    /// The LSN that a token demands of this partition; `None` when it does not speak of it. A token of another
    /// incarnation may promise what a restore took back.
    fn floor_of(&self, token: &SessionToken) -> Option<Result<u64, EngineError>> {
        let applies = |range: &str| range == self.name || range.is_empty();
        let mut parts = token.parts.iter().filter(|(range, _, _)| applies(range)).peekable();
        parts.peek()?;
        let version = self.shared.session_version();
        Some(parts.try_fold(0, |floor, &(_, part_version, lsn)| {
            if part_version == version { Ok(floor.max(lsn)) } else { Err(EngineError::SessionNotAvailable) }
        }))
    }

    fn position_at(&self, lsn: u64) -> Position {
        let session_version = self.shared.session_version();
        Position { partition_id: self.name.clone(), session_version, lsn }
    }

    fn info(&self, container: &ResourceId) -> PartitionInfo {
        let figures = self.sequencer.lsn().and_then(|lsn| Ok((lsn, self.sequencer.usage()?)));
        let (lsn, (item_count, size_bytes)) = figures.unwrap_or_else(|error| {
            tracing::error!(partition = self.name, %error, "cannot read where a partition stands");
            (0, (0, 0))
        });
        PartitionInfo {
            id: self.name.clone(),
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

fn check_tiling(layout: &[PartitionLayout]) -> Result<(), EngineError> {
    let mut ranges: Vec<&EpkRange> = layout.iter().map(|partition| &partition.range).collect();
    ranges.sort_by(|a, b| a.min.cmp(&b.min));
    let full = EpkRange::full();
    let ends = ranges.first().map(|range| &range.min) == Some(&full.min)
        && ranges.last().map(|range| &range.max) == Some(&full.max);
    if ends && ranges.windows(2).all(|pair| pair[0].max == pair[1].min) {
        return Ok(());
    }
    Err(EngineError::Corrupt { what: "partitions that do not cover the key space".to_owned() })
}
