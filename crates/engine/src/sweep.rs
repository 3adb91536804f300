//! The sweep: expired items are invisible at once and removed here, later, through the feed.
//!
//! Items with a `ttl` of their own have expiry rows, in the order of time. The others expire by the container's default in
//! the order of their `_ts`, which is the order of the latest feed; how far a partition was looked through is kept
//! in memory, so a row is looked at once. A chunk of removals is followed by a rest nine times as long.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quire_resource::ItemTtl;
use quire_storage::{Direction, KeyRange, Op, Scan};

use crate::background::{Interrupted, Next, Turn, Work, Worker};
use crate::catalog::Catalog;
use crate::items::key_delete::remove_some;
use crate::items::remove::{REMOVED_TOGETHER, remove_gone};
use crate::items::row::{self, Row};
use crate::items::versions::Version;
use crate::partition::Partition;
use crate::sequencer::Prepared;
use crate::shared::Shared;
use crate::{Container, EngineError, keys};

/// Between two looks at all containers.
const INTERVAL: Duration = Duration::from_millis(500);
/// The longest rest after a chunk.
const REST_MAX: Duration = Duration::from_millis(200);
const REST_FACTOR: u32 = 9;
/// Of versions that are read to be removed.
const REMOVED_BYTES: usize = 4 << 20;
/// Versions removed by one commit: nobody waits for locks of theirs.
const VERSIONS_REMOVED_TOGETHER: usize = 1000;
/// Feed rows looked at together: more than a transaction has.
const ROWS_LOOKED_AT: usize = 12_000;

pub(crate) struct Sweep {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    removed: AtomicU64,
    removed_by_key: AtomicU64,
}

/// How far the feed of a partition was looked through under one default.
type Looked = HashMap<(u32, u32), (i32, u64)>;

impl Sweep {
    pub fn start(shared: Arc<Shared>, catalog: Arc<Catalog>) -> Result<Worker<Sweep>, EngineError> {
        let (removed, removed_by_key) = Default::default();
        Worker::start(Sweep { shared, catalog, removed, removed_by_key }, Arc::default())
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let state = self.catalog.state();
        let waiting: usize =
            state.containers().map(|container| container.partitions.deleted_keys().len()).sum();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("expired_items_removed", count(&self.removed)),
            ("partition_key_deletes_waiting", waiting as u64),
            ("partition_key_deletes_items_removed", count(&self.removed_by_key)),
        ]
    }

    fn sweep_unless_busy(
        &self,
        container: &Container,
        turn: &Turn<'_>,
        looked: &mut Looked,
    ) -> Result<(), Interrupted> {
        match self.sweep_container(container, turn, looked) {
            // Deleted or split in the meantime, or its writers are many: another round comes.
            Err(Interrupted::Failed(
                EngineError::ResourceNotFound { .. }
                | EngineError::PartitionMoved
                | EngineError::Contended
                | EngineError::Overloaded,
            )) => Ok(()),
            swept => swept,
        }
    }

    fn sweep_container(
        &self,
        container: &Container,
        turn: &Turn<'_>,
        looked: &mut Looked,
    ) -> Result<(), Interrupted> {
        self.sweep_versions(container, turn)?;
        self.sweep_keys(container, turn)?;
        let Some(default) = container.definition.default_ttl else { return Ok(()) };
        self.sweep_own(container, turn)?;
        if default > 0 { self.sweep_default(container, default, turn, looked) } else { Ok(()) }
    }

    /// Items of partition keys that were deleted.
    fn sweep_keys(&self, container: &Container, turn: &Turn<'_>) -> Result<(), Interrupted> {
        for (key, lsn) in container.partitions.deleted_keys().iter() {
            loop {
                let started = Instant::now();
                let removed = remove_some(&self.shared, container, key, lsn)?;
                self.removed_by_key.fetch_add(removed.unwrap_or(0) as u64, Ordering::Relaxed);
                turn.rest((REST_FACTOR * started.elapsed()).min(REST_MAX))?;
                if removed.is_none_or(|removed| removed == 0) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Versions that are older than the container keeps them.
    fn sweep_versions(&self, container: &Container, turn: &Turn<'_>) -> Result<(), Interrupted> {
        for id in container.partitions.lineage() {
            // Those of a partition that was split are removed by one that came from it.
            let partition = container.partitions.all().iter().find(|heir| heir.layout.descends_from(id));
            let Some(partition) = partition else { continue };
            while let Some((floor, ops)) = self.old_versions(container, id)? {
                let started = Instant::now();
                match partition.sequencer.submit(versions_removed(container, partition, id, floor, ops)) {
                    Ok(_) => turn.rest((REST_FACTOR * started.elapsed()).min(REST_MAX))?,
                    Err(_) => return Ok(()), // another round comes
                }
            }
        }
        Ok(())
    }

    /// Rows of the log to remove, and the LSN up to which it is empty then.
    fn old_versions(
        &self,
        container: &Container,
        partition: u32,
    ) -> Result<Option<(u64, Vec<Op>)>, Interrupted> {
        let retention =
            container.definition.change_feed_retention_minutes.map(|minutes| i64::from(minutes) * 60);
        // Without a policy nothing is kept, and what an earlier policy kept goes.
        let newest = self.shared.now_seconds() - retention.unwrap_or(i64::MIN / 2);
        let range = KeyRange {
            start: Bound::Included(keys::version(container.number, partition, 0, 0)),
            end: Bound::Included(keys::version(container.number, partition, u64::MAX, u16::MAX)),
        };
        let bytes_max = REMOVED_BYTES;
        let page = self
            .shared
            .storage
            .snapshot()?
            .scan(&Scan { bytes_max, ..scan(range, VERSIONS_REMOVED_TOGETHER, false) })?;
        // After the snapshot.
        let needed_beyond = self.shared.sources.needed_beyond(container.number, partition);
        let (mut floor, mut ops) = (0, Vec::new());
        for (key, value) in page.rows {
            let lsn = keys::lsn_of_feed_key(&key).ok_or_else(|| row::corrupt("key of a version"))?;
            if Version::decode(&value)?.ts >= newest && retention.is_some()
                || needed_beyond.is_some_and(|taken| lsn > taken)
            {
                break;
            }
            floor = lsn;
            ops.push(Op::Delete { space: keys::FEEDS, key });
        }
        Ok((!ops.is_empty()).then_some((floor, ops)))
    }

    /// Items that expired by a `ttl` of their own.
    fn sweep_own(&self, container: &Container, turn: &Turn<'_>) -> Result<(), Interrupted> {
        loop {
            let now = self.shared.now_seconds();
            let range = KeyRange {
                start: Bound::Included(keys::expiry(container.number, 0, 0)),
                end: Bound::Included(keys::expiry(container.number, now, u64::MAX)),
            };
            let scan = scan(range, REMOVED_TOGETHER, true);
            let page = self.shared.storage.snapshot()?.scan(&scan)?;
            let rids = page.rows.iter().map(|(key, _)| keys::rid_of_expiry_key(key));
            let rids: Vec<u64> = rids.collect::<Option<_>>().ok_or_else(|| row::corrupt("expiry row"))?;
            if rids.is_empty() || self.remove(container, &rids, turn)? < rids.len() {
                return Ok(());
            }
        }
    }

    /// Items that expired by the container's default.
    fn sweep_default(
        &self,
        container: &Container,
        default: i32,
        turn: &Turn<'_>,
        looked: &mut Looked,
    ) -> Result<(), Interrupted> {
        for id in container.partitions.lineage() {
            let place = (container.number, id);
            let known = looked.get(&place).filter(|(under, _)| *under == default);
            let mut lsn = known.map_or(0, |(_, lsn)| *lsn);
            while let Some(reached) = self.sweep_feed(container, id, lsn, turn)? {
                lsn = reached;
                looked.insert(place, (default, lsn));
            }
        }
        Ok(())
    }

    /// Removes what has expired behind an LSN of the feed; how far everything was looked at, `None` when there is nothing
    /// more to be done now.
    fn sweep_feed(
        &self,
        container: &Container,
        partition: u32,
        lsn: u64,
        turn: &Turn<'_>,
    ) -> Result<Option<u64>, Interrupted> {
        let now = self.shared.now_seconds();
        let snapshot = self.shared.storage.snapshot()?;
        let range = KeyRange {
            start: Bound::Excluded(keys::latest(container.number, partition, lsn, u16::MAX)),
            end: Bound::Included(keys::latest(container.number, partition, u64::MAX, u16::MAX)),
        };
        let page = snapshot.scan(&scan(range, ROWS_LOOKED_AT, false))?;
        let (mut last, mut is_cut, mut rids) = (lsn, page.more, Vec::new());
        for (_, rid) in page.rows {
            let rid = keys::number(&rid).ok_or_else(|| row::corrupt("feed row"))?;
            let bytes = snapshot.get(keys::ITEMS, &keys::item(container.number, rid))?;
            let bytes = bytes.ok_or_else(|| row::corrupt("feed row without an item"))?;
            let row = Row::parse(&bytes)?;
            if !container.is_past(ItemTtl::Inherit, row.stamp.ts, now) {
                is_cut = false; // a transaction has one time, so this is the next one
                break;
            }
            if rids.len() == REMOVED_TOGETHER {
                is_cut = true;
                break;
            }
            rids.extend((row.ttl == ItemTtl::Inherit).then_some(rid));
            last = row.stamp.lsn;
        }
        drop(snapshot);
        let removed = if rids.is_empty() { 0 } else { self.remove(container, &rids, turn)? };
        if removed < rids.len() {
            return Ok(None);
        }
        // Of the last transaction there may be more.
        let reached = if is_cut { last.saturating_sub(1).max(lsn) } else { last };
        Ok((reached > lsn || removed > 0).then_some(reached))
    }

    fn remove(&self, container: &Container, rids: &[u64], turn: &Turn<'_>) -> Result<usize, Interrupted> {
        let started = Instant::now();
        let removed = remove_gone(&self.shared, container, rids)?;
        self.removed.fetch_add(removed as u64, Ordering::Relaxed);
        turn.rest((REST_FACTOR * started.elapsed()).min(REST_MAX))?;
        Ok(removed)
    }
}

impl Work for Sweep {
    const NAME: &'static str = "sweep";
    type Memory = Looked;

    fn round(&self, turn: &Turn<'_>, looked: &mut Looked) -> Result<Next, Interrupted> {
        let state = self.catalog.state();
        let is_there = |number: u32| state.containers().any(|other| other.number == number);
        looked.retain(|(container, _), _| is_there(*container));
        turn.retain_parts(|part| u32::try_from(part).is_ok_and(is_there));
        for container in state.containers() {
            turn.part(u64::from(container.number), || self.sweep_unless_busy(container, turn, looked))?;
        }
        Ok(Next::After(INTERVAL))
    }
}

/// Upkeep: no item changes.
fn versions_removed(
    container: &Container,
    partition: &Partition,
    id: u32,
    floor: u64,
    mut ops: Vec<Op>,
) -> Prepared {
    let key = keys::versions_floor(container.number, id);
    ops.push(Op::Put { space: keys::CATALOG, key, value: keys::number_value(floor) });
    let generation = partition.sequencer.generation();
    Prepared::upkeep(generation, container.partitions.indexes().epoch(), ops)
}

fn scan(range: KeyRange, rows_max: usize, keys_only: bool) -> Scan {
    let (space, direction) = (keys::FEEDS, Direction::Forward);
    Scan { space, range, direction, rows_max, bytes_max: usize::MAX, keys_only }
}
