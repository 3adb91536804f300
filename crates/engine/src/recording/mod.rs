//! Records of answered requests, without any value of an item.
//!
//! While a request runs, the engine notes what it does in its thread ([`observe`]). The server adds what only it knows (status, time,
//! action) and hands the record in ([`Recorder::add`]): one push to a list that threads hardly share. A worker moves the lists to
//! the workload of each database ([`Recorder::drain`]), which is stored every minute and when the engine is closed.
//! Above [`RATE_MAX`] records a second whole actions are left out, and the rest stands for them.

mod cached; // records in memory, and those that are too many
mod change; // what a write changed
mod hash; // keyed hashes
mod observed; // what a thread notes of the request that it runs
mod rows; // workloads in the storage
mod shapes; // queries without their values
mod waiting; // records on their way to the workloads

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use quire_profile::{ActionSource, ItemChange, Operation, Record, RecordedQuery, Workload};
use quire_resource::PartitionKey;
use quire_sql::Parameters;
use quire_storage::Storage;

use self::cached::CachedRecord;
use self::hash::KeyedHash;
pub use self::observed::ObservedRequest;
pub(crate) use self::observed::{
    ObservedWrite, PageRecord, add_write, is_observed, record_query, record_read, record_returned,
    record_write, take_write,
};
use self::shapes::Shapes;
use self::waiting::{Drained, RecordShard, WaitingRecord};
use crate::api::EngineError;
use crate::store::Sequence;
use crate::store::keys::WORKLOAD_SEQUENCE;

const SHARDS: usize = 16;
/// Records of a shard that wait to be taken in; beyond it they are dropped.
const WAITING_MAX: usize = 8_192;
/// And their memory.
const WAITING_BYTES_MAX: usize = 2 << 20;
/// Records a second above which actions are sampled.
const RATE_MAX: f64 = 5_000.0;
/// Of the record of one database; beyond it the oldest is removed.
const STORED_BYTES_MAX: usize = 16 << 20;
/// Executions of queries whose next page is known.
const PAGES_MAX: usize = 4_096;

pub(crate) struct Recorder {
    is_on: AtomicBool,
    hash: KeyedHash,
    shards: Vec<Mutex<RecordShard>>,
    shapes: Shapes,
    /// One of so many actions is recorded.
    one_in: AtomicU32,
    databases: Mutex<HashMap<u32, CachedRecord>>,
    /// By hash of a continuation: the execution that goes on there.
    pages: Vec<Mutex<HashMap<u64, u64>>>,
    drained: Mutex<Drained>,
    /// Held from taking what is to be stored until it is, so that nothing is stored after it was forgotten.
    storing: Mutex<()>,
    sequence: Sequence,
}

/// What is recorded of a database.
#[derive(Default)]
pub(crate) struct DatabaseRecord {
    pub workload: Workload,
    is_changed: bool,
}

/// A request that was answered: what the server knows of it.
pub struct AnsweredRequest {
    pub operation: Operation,
    pub status: u16,
    pub sub_status: u32,
    pub charge: f64,
    pub bytes: u64,
    pub micros: u64,
    pub action: Option<(u64, ActionSource)>,
    pub if_match: bool,
    pub observed: ObservedRequest,
}

/// Where a request was answered.
#[derive(Clone, Debug)]
pub(crate) struct RecordedContainer {
    pub database: u32,
    pub container: u32,
    pub name: Arc<str>,
    pub key_paths: Arc<[String]>,
}

impl Recorder {
    pub fn new(secret: &[u8; 32]) -> Recorder {
        Recorder {
            is_on: AtomicBool::new(true),
            hash: KeyedHash::new(secret),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shapes: Shapes::default(),
            one_in: AtomicU32::new(1),
            databases: Mutex::default(),
            pages: (0..SHARDS).map(|_| Mutex::default()).collect(),
            drained: Mutex::default(),
            storing: Mutex::default(),
            sequence: Sequence::new(WORKLOAD_SEQUENCE),
        }
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Runs an engine call, and notes what it does.
    pub fn observe<T>(&self, call: impl FnOnce() -> T) -> (T, ObservedRequest) {
        match self.is_on() {
            true => observed::observe(&self.hash, call),
            false => (call(), ObservedRequest::default()),
        }
    }

    pub fn hash_text(&self, text: &[u8]) -> u64 {
        self.hash.of(text)
    }

    /// As records name a partition key.
    pub fn hash_key(&self, key: &PartitionKey) -> u64 {
        self.hash.of(key)
    }

    /// The shape of a query, by number.
    pub fn shape(
        &self,
        place: &RecordedContainer,
        (text, parameters): (&str, &Parameters),
        has_key: bool,
    ) -> Option<u64> {
        self.shapes.of(place, text, parameters, has_key)
    }

    /// Whether requests of an action are recorded: above [`RATE_MAX`] not all are.
    pub fn is_sampled(&self, action: u64) -> bool {
        let one_in = self.one_in.load(Ordering::Relaxed);
        one_in <= 1 || action.wrapping_mul(0x9e37_79b9_7f4a_7c15).is_multiple_of(u64::from(one_in))
    }

    /// A request that was answered and is not recorded.
    pub fn drop_request(&self, database: u32) {
        self.shards[shard_of_thread()].lock().drop_request(database, 1);
    }

    /// A request that was answered.
    pub fn add(&self, place: &RecordedContainer, time_ms: u64, request: AnsweredRequest) {
        let sampled_by = request.action.map_or(time_ms ^ request.micros, |(action, _)| action);
        let is_sampled = self.is_sampled(sampled_by);
        let mut shard = self.shards[shard_of_thread()].lock();
        let is_full = shard.records.len() >= WAITING_MAX || shard.bytes >= WAITING_BYTES_MAX;
        if !is_sampled || is_full {
            shard.drop_request(place.database, 1);
            return;
        }
        let weight = self.one_in.load(Ordering::Relaxed).max(1);
        self.records_for(place, time_ms, request, weight, |waiting| {
            shard.bytes += waiting.record.memory();
            shard.records.push(waiting);
        });
    }

    /// The record of a request, and behind it those of the writes that it has made together.
    fn records_for(
        &self,
        place: &RecordedContainer,
        time_ms: u64,
        mut request: AnsweredRequest,
        weight: u32,
        mut add: impl FnMut(WaitingRecord),
    ) {
        let (database, container) = (place.database, place.container);
        let mut waiting = |record: Record| add(WaitingRecord { database, container, record });
        let mut writes = std::mem::take(&mut request.observed.writes);
        // A write with triggers is a transaction, and often its only write.
        if let (true, [_]) = (request.operation.is_write(), writes.as_slice()) {
            request.observed.set_write(writes.remove(0));
        }
        if writes.is_empty() {
            return waiting(self.record_for(place, time_ms, request, weight));
        }
        // The charge is that of the writes.
        let charge = std::mem::take(&mut request.charge) / writes.len() as f64;
        let (action, micros, status) = (request.action, request.micros, request.status);
        waiting(self.record_for(place, time_ms, request, weight));
        for write in writes {
            let bytes = write.change.size_after.unwrap_or(0);
            let change = Some(ItemChange { in_batch: true, ..write.change });
            waiting(Record {
                time_ms,
                action,
                container: Arc::clone(&place.name),
                operation: write.operation,
                status,
                sub_status: 0,
                charge,
                bytes,
                micros,
                item: Some(write.item),
                id: Some(write.id),
                partition_key: Some(write.partition_key),
                change,
                query: None,
                weight,
            });
        }
    }

    fn record_for(
        &self,
        place: &RecordedContainer,
        time_ms: u64,
        request: AnsweredRequest,
        weight: u32,
    ) -> Record {
        let AnsweredRequest { observed, .. } = request;
        let mut change = observed.change;
        if let Some(change) = &mut change {
            change.if_match = request.if_match;
        }
        let query = observed.query.and_then(|query| {
            let shape = query.shape?;
            Some(RecordedQuery {
                shape,
                execution: self.execution(query.continued, query.continues),
                rows_read: query.rows_read,
                returned: query.returned,
                items: query.items,
                is_last: query.continues.is_none(),
                refused: request.status == 400 && query.is_order_refused,
            })
        });
        Record {
            time_ms,
            action: request.action,
            container: Arc::clone(&place.name),
            operation: request.operation,
            status: request.status,
            sub_status: request.sub_status,
            charge: request.charge,
            bytes: request.bytes,
            micros: request.micros,
            item: observed.item,
            id: observed.id,
            partition_key: observed.partition_key,
            change,
            query,
            weight,
        }
    }

    /// Takes in requests that were answered at times that the caller says, all of them.
    pub fn add_answered(
        &self,
        storage: &dyn Storage,
        requests: Vec<(RecordedContainer, u64, AnsweredRequest)>,
    ) -> Result<(), EngineError> {
        let _drained = self.drained.lock();
        let mut waited = RecordShard::default();
        for (place, time_ms, request) in requests {
            self.records_for(&place, time_ms, request, 1, |waiting| waited.records.push(waiting));
        }
        let added = self.add_records(storage, &mut waited, self.shapes.take_new());
        if added.is_err() {
            self.shapes.clear();
        }
        added
    }

    /// The number that all pages of an execution have.
    fn execution(&self, continued: Option<u64>, continues: Option<u64>) -> u64 {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let pages = |token: u64| self.pages[(token as usize) % SHARDS].lock();
        let known = continued.and_then(|token| pages(token).remove(&token));
        let execution = known.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) as u64);
        if let Some(token) = continues {
            let mut pages = pages(token);
            if pages.len() >= PAGES_MAX / SHARDS {
                pages.clear();
            }
            pages.insert(token, execution);
        }
        execution
    }

    /// The workload of a database, with all that was answered until now.
    pub fn current(
        &self,
        storage: &dyn Storage,
        database: u32,
    ) -> Result<Arc<Mutex<DatabaseRecord>>, EngineError> {
        self.drain(storage)?;
        self.record_of(storage, database)
    }

    fn record_of(
        &self,
        storage: &dyn Storage,
        database: u32,
    ) -> Result<Arc<Mutex<DatabaseRecord>>, EngineError> {
        let mut databases = self.databases.lock();
        if let Some(known) = databases.get_mut(&database) {
            known.used = Instant::now();
            return Ok(Arc::clone(&known.record));
        }
        let workload = rows::load(storage, database)?;
        let record = DatabaseRecord { workload, ..DatabaseRecord::default() };
        let record = Arc::new(Mutex::new(record));
        let cached = CachedRecord { record: Arc::clone(&record), used: Instant::now() };
        databases.insert(database, cached);
        Ok(record)
    }

    /// Forgets all that was recorded of a database.
    pub fn remove_recorded(&self, storage: &dyn Storage, database: u32) -> Result<(), EngineError> {
        let record = self.current(storage, database)?;
        let _storing = self.storing.lock();
        let mut record = record.lock();
        *record = DatabaseRecord::default();
        self.shapes.clear();
        rows::remove(storage, &self.sequence, database)
    }

    /// Forgets what was recorded of a container: its items are others now.
    pub fn forget_container(
        &self,
        storage: &dyn Storage,
        database: u32,
        container: &str,
    ) -> Result<(), EngineError> {
        let record = self.current(storage, database)?;
        let mut record = record.lock();
        record.workload.remove_recorded(container);
        record.is_changed = true;
        // A shape that is known is not added again.
        self.shapes.clear();
        Ok(())
    }

    /// Writes what has changed. `exists`: the record of a deleted database is removed. One that cannot be stored does not block others.
    pub fn store(&self, storage: &dyn Storage, exists: &dyn Fn(u32) -> bool) -> Result<(), EngineError> {
        let mut result = self.drain(storage);
        self.databases.lock().retain(|database, _| exists(*database));
        let all: Vec<_> =
            self.databases.lock().iter().map(|(number, own)| (*number, Arc::clone(&own.record))).collect();
        for (database, record) in all {
            let stored = self.store_one(storage, (database, exists), &record);
            if stored.is_err() {
                record.lock().is_changed = true;
                result = stored;
            }
        }
        result
    }

    fn store_one(
        &self,
        storage: &dyn Storage,
        (database, exists): (u32, &dyn Fn(u32) -> bool),
        record: &Mutex<DatabaseRecord>,
    ) -> Result<(), EngineError> {
        let _storing = self.storing.lock();
        // Half of a commit: rows have keys and checksums.
        let bytes_max = STORED_BYTES_MAX.min(storage.caps().commit_bytes_max / 2);
        let bytes = {
            let mut record = record.lock();
            std::mem::take(&mut record.is_changed).then(|| record.workload.to_bytes_within(bytes_max))
        };
        bytes.map_or(Ok(()), |bytes| rows::put(storage, &self.sequence, (database, exists), &bytes).map(drop))
    }

    /// What was stored before a database was seen to be gone is there when it returns; nothing comes after it.
    pub fn settle(&self, storage: &dyn Storage) -> Result<(), EngineError> {
        self.sequence.settle(storage)
    }
}

impl DatabaseRecord {
    fn add_records(&mut self, record: Record) {
        self.workload.record(record);
        self.is_changed = true;
    }
}

fn shard_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    OWN.with(|own| *own)
}

#[cfg(test)]
mod tests;
