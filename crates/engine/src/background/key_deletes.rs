//! Removes the items of deleted partition keys.
//!
//! A mark hides the items of a key up to an LSN (`items::key_delete`). Its job looks for them once, in the order of their rids,
//! and removes them through the feed. A mark goes when a whole look has left nothing behind: an item that could not be
//! removed would be seen again. The checkpoint's position: next rid 8, items left 8, unreadable items 8.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quire_resource::PartitionKey;
use quire_storage::Op;
use quire_value::{Limits, Object, Value, text};
use tracing::warn;

use super::catalog_work::MarkedWork;
use super::sweep::{remove_items, rest_after};
use crate::api::{EngineError, corrupt};
use crate::catalog::{Catalog, Container};
use crate::items::key_delete::{DeletedKey, DeletedKeyItems};
use crate::jobs::{JobClaim, JobKind, JobStep, NewJob};
use crate::partition::sequencer::PreparedWrite;
use crate::runtime::Shared;
use crate::runtime::signals::Signal;
use crate::store::keys;

const KIND: &str = "key-delete";
const UNIT: &str = "items";
/// Items removed in one step: their locks are held together.
const STEP_ITEMS: usize = 500;
/// The wait after a scan that could not remove all items.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The wait after a scan with items that cannot be read.
const RETRY_UNREADABLE_AFTER: Duration = Duration::from_secs(600);
/// The wait while the sweep is paused, and after a passing failure.
const WAIT: Duration = Duration::from_millis(20);

pub(crate) struct KeyDeletes {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    /// The signal of the sweep: while the sweep is paused nothing is removed.
    sweep: Arc<Signal>,
    removed: AtomicU64,
}

/// The progress of a scan over the items of a key.
#[derive(Clone, Copy, Default)]
struct ScannedItems {
    next_rid: u64,
    /// Items of this scan that could not be removed.
    left: u64,
    unreadable: u64,
}

impl KeyDeletes {
    pub fn new(shared: Arc<Shared>, catalog: Arc<Catalog>, sweep: Arc<Signal>) -> KeyDeletes {
        KeyDeletes { shared, catalog, sweep, removed: AtomicU64::new(0) }
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let state = self.catalog.state();
        let waiting: usize =
            state.containers().map(|container| container.partitions.deleted_keys().len()).sum();
        vec![
            ("partition_key_deletes_waiting", waiting as u64),
            ("partition_key_deletes_items_removed", self.removed.load(Ordering::Relaxed)),
        ]
    }

    /// One scan over all deleted keys of a container, without a checkpoint. What fails is left to the next scan.
    #[cfg(feature = "schedules")]
    pub fn scan_once(&self, container: &Container) {
        for (key, lsn) in container.partitions.deleted_keys().iter() {
            let _left = DeletedKey::new(container, key, lsn).and_then(|deleted| {
                let mut scanned = ScannedItems::default();
                let (_, is_over) = self.remove_some(container, &deleted, &mut scanned)?;
                if is_over && scanned.left == 0 {
                    self.remove_mark(container, (key, lsn), &deleted)
                } else {
                    Ok(false)
                }
            });
        }
    }

    /// Removes some items of a key; returns their number, and whether these were all.
    fn remove_some(
        &self,
        container: &Container,
        deleted: &DeletedKey<'_>,
        scanned: &mut ScannedItems,
    ) -> Result<(usize, bool), EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        let DeletedKeyItems { rids, next_rid, unreadable } =
            deleted.items(&*snapshot, scanned.next_rid, STEP_ITEMS)?;
        drop(snapshot);
        let removal = remove_items(&self.shared, container, &rids)?;
        self.removed.fetch_add(removal.removed as u64, Ordering::Relaxed);
        scanned.left += (removal.later.len() + removal.unreadable.len()) as u64;
        scanned.unreadable += removal.unreadable.len() as u64;
        for (rid, error) in unreadable.iter().chain(&removal.unreadable) {
            warn!(container = container.number, item = format!("{rid:x}"), %error, "an item of a deleted key cannot be read");
        }
        scanned.next_rid = next_rid.unwrap_or(scanned.next_rid);
        Ok((removal.removed, next_rid.is_none()))
    }

    /// Removes the mark of a key without items, and earlier marks; false: it has to be tried again.
    fn remove_mark(
        &self,
        container: &Container,
        (key, lsn): (&[u8], u64),
        deleted: &DeletedKey<'_>,
    ) -> Result<bool, EngineError> {
        let mut partitions = container.partitions.all().iter();
        let partition = partitions.find(|partition| partition.layout.id == deleted.partition_id());
        let Some(partition) = partition else { return Ok(false) };
        let generation = partition.sequencer.generation();
        let marks = deleted.marks(&*self.shared.storage.snapshot()?)?.into_iter();
        let ops = marks.map(|key| Op::Delete { space: keys::CATALOG, key }).collect();
        let is_done = partition.sequencer.submit(PreparedWrite::index_maintenance(generation, ops)).is_ok();
        if is_done {
            container.partitions.change_deleted_keys(|keys| keys.remove(key, lsn));
        }
        Ok(is_done)
    }

    fn remove(
        &self,
        claim: &mut JobClaim<'_>,
        container: &Container,
        (key, lsn): (&[u8], u64),
    ) -> Result<JobStep, EngineError> {
        let started = Instant::now();
        let deleted = DeletedKey::new(container, key, lsn)?;
        let mut scanned = ScannedItems::decode(claim.position());
        let (removed, is_over) = self.remove_some(container, &deleted, &mut scanned)?;
        let done = claim.done() + removed as u64;
        if is_over && scanned.left == 0 {
            if !self.remove_mark(container, (key, lsn), &deleted)? {
                return Ok(JobStep::Rest(WAIT));
            }
            claim.complete(done);
            return Ok(JobStep::Done(Value::Null));
        }
        let rest = match (is_over, scanned.unreadable) {
            (false, _) => rest_after(started.elapsed(), self.age_seconds(claim)),
            (true, 0) => RETRY_AFTER,
            (true, _) => RETRY_UNREADABLE_AFTER,
        };
        let next = if is_over { ScannedItems::default() } else { scanned };
        claim.commit(claim.advance(next.encode(), done, None), Vec::new())?;
        Ok(JobStep::Rest(rest))
    }

    fn age_seconds(&self, claim: &JobClaim<'_>) -> i64 {
        self.shared.now_seconds() - claim.body.created_ms / 1000
    }
}

impl JobKind for KeyDeletes {
    fn name(&self) -> &'static str {
        KIND
    }

    /// The items are invisible since the request, so the job cannot be cancelled.
    fn can_cancel(&self) -> bool {
        false
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        if self.sweep.is_interrupted() {
            return Ok(JobStep::Rest(WAIT));
        }
        let body = Arc::clone(&claim.body);
        let (number, lsn, key) = decode(&body.payload).ok_or_else(|| corrupt("a delete of a key"))?;
        let state = self.catalog.state();
        let Some(container) = state.container(number) else { return Ok(JobStep::Cancelled) };
        if !container.partitions.deleted_keys().covers(key, lsn) {
            return Ok(JobStep::Done(Value::Null));
        }
        match self.remove(claim, container, (key, lsn)) {
            // Deleted or split in the meantime, or its writers are many.
            Err(
                EngineError::ResourceNotFound { .. }
                | EngineError::PartitionMoved
                | EngineError::Contended
                | EngineError::Overloaded,
            ) => Ok(JobStep::Rest(WAIT)),
            Err(_) if container.partitions.is_retired() => Ok(JobStep::Rest(WAIT)),
            step => step,
        }
    }
}

impl MarkedWork for KeyDeletes {
    const KIND: &'static str = KIND;

    fn marked(&self) -> Vec<NewJob> {
        let state = self.catalog.state();
        let mut jobs = Vec::new();
        for container in state.containers() {
            for (key, lsn) in container.partitions.deleted_keys().iter() {
                jobs.push(container.job(KIND, UNIT, about(key), payload(container.number, lsn, key)));
            }
        }
        // In the order of the requests.
        jobs.sort_by(|one, other| one.payload.cmp(&other.payload));
        jobs
    }
}

impl ScannedItems {
    fn encode(self) -> Vec<u8> {
        [self.next_rid, self.left, self.unreadable].map(u64::to_be_bytes).concat()
    }

    /// The beginning, where nothing was written.
    fn decode(bytes: &[u8]) -> ScannedItems {
        let number = |at: usize| bytes.get(at..at + 8).and_then(keys::number).unwrap_or(0);
        ScannedItems { next_rid: number(0), left: number(8), unreadable: number(16) }
    }
}

fn about(key: &[u8]) -> Object {
    let key = PartitionKey::decode(key).ok().map(|(key, _)| key.to_header());
    let key = key.and_then(|json| text::parse(json.as_bytes(), Limits::default()).ok());
    Object::from_iter([("partitionKey", key.unwrap_or(Value::Null))])
}

/// Container 4, LSN 8, the encoded key.
fn payload(container: u32, lsn: u64, key: &[u8]) -> Vec<u8> {
    [&container.to_be_bytes()[..], &lsn.to_be_bytes(), key].concat()
}

fn decode(payload: &[u8]) -> Option<(u32, u64, &[u8])> {
    let (container, rest) = payload.split_first_chunk()?;
    let (lsn, key) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*container), u64::from_be_bytes(*lsn), key))
}
