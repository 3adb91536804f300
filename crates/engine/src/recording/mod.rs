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

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use quire_profile::{ActionSource, Operation, Record, RecordedQuery, Workload};
use quire_resource::PartitionKey;
use quire_sql::Parameters;
use quire_storage::Storage;

use self::cached::CachedRecord;
use self::hash::KeyedHash;
pub use self::observed::ObservedRequest;
pub(crate) use self::observed::{PageNote, note_query, note_read, note_returned, note_write};
use self::shapes::{NewShapes, Shapes};
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
/// Of the record of one database; the oldest beyond it is forgotten.
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
    drained: Mutex<Instant>,
    /// Held from taking what is to be stored until it is, so that nothing is stored after it was forgotten.
    storing: Mutex<()>,
    sequence: Sequence,
}

#[derive(Default)]
struct RecordShard {
    records: Vec<(u32, u32, Record)>,
    /// Memory of the records.
    bytes: usize,
    dropped: HashMap<u32, u64>,
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
            drained: Mutex::new(Instant::now()),
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

    /// A request that was answered.
    pub fn add(&self, place: &RecordedContainer, time_ms: u64, request: AnsweredRequest) {
        let one_in = self.one_in.load(Ordering::Relaxed);
        let sampled_by = request.action.map_or(time_ms ^ request.micros, |(action, _)| action);
        let is_sampled =
            one_in <= 1 || sampled_by.wrapping_mul(0x9e37_79b9_7f4a_7c15).is_multiple_of(u64::from(one_in));
        let mut shard = self.shards[shard_of_thread()].lock();
        let is_full = shard.records.len() >= WAITING_MAX || shard.bytes >= WAITING_BYTES_MAX;
        if !is_sampled || is_full {
            *shard.dropped.entry(place.database).or_default() += 1;
            return;
        }
        let record = self.record_for(place, time_ms, request, one_in.max(1));
        shard.bytes += record.memory();
        shard.records.push((place.database, place.container, record));
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
    pub fn take_in_answered(
        &self,
        storage: &dyn Storage,
        requests: Vec<(RecordedContainer, u64, AnsweredRequest)>,
    ) -> Result<(), EngineError> {
        let _drained = self.drained.lock();
        let mut waited = RecordShard::default();
        for (place, time_ms, request) in requests {
            let record = self.record_for(&place, time_ms, request, 1);
            waited.records.push((place.database, place.container, record));
        }
        let taken_in = self.take_in(storage, waited, self.shapes.take_new());
        if taken_in.is_err() {
            self.shapes.clear();
        }
        taken_in
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

    /// Takes in what waits, and decides which part of the requests is recorded from now on. A database whose record cannot be read
    /// holds up no other one.
    pub fn drain(&self, storage: &dyn Storage) -> Result<(), EngineError> {
        let mut drained = self.drained.lock();
        let mut waited = RecordShard::default();
        for shard in &self.shards {
            let shard = std::mem::take(&mut *shard.lock());
            waited.records.extend(shard.records);
            for (database, count) in shard.dropped {
                *waited.dropped.entry(database).or_default() += count;
            }
        }
        // After the records: every shape that one of them names is there.
        let shapes = self.shapes.take_new();
        let answered = waited.records.len() as f64 + waited.dropped.values().sum::<u64>() as f64;
        let seconds = drained.elapsed().as_secs_f64();
        if seconds >= 0.5 {
            let one_in = (answered / seconds / RATE_MAX).ceil().clamp(1.0, 1_000_000.0);
            self.one_in.store(one_in as u32, Ordering::Relaxed);
            *drained = Instant::now();
        }
        let taken_in = self.take_in(storage, waited, shapes);
        if taken_in.is_err() {
            // Those that were not taken in must come again.
            self.shapes.clear();
        }
        taken_in
    }

    fn take_in(
        &self,
        storage: &dyn Storage,
        waited: RecordShard,
        shapes: NewShapes,
    ) -> Result<(), EngineError> {
        let mut result = Ok(());
        let mut with = |database: u32, what: &mut dyn FnMut(&mut DatabaseRecord)| match self
            .record_of(storage, database)
        {
            Ok(record) => what(&mut record.lock()),
            Err(error) => result = Err(error),
        };
        for (database, count) in waited.dropped {
            with(database, &mut |record| record.workload.drop_requests(count));
        }
        let mut records = waited.records;
        records.sort_by_key(|(.., record)| record.time_ms);
        // Shapes of a container that was made again come after those of the one before are forgotten.
        let mut containers = HashMap::new();
        for (database, container, request) in &records {
            containers.insert((*database, Arc::clone(&request.container)), *container);
        }
        for ((database, name), container) in &containers {
            with(*database, &mut |record| record.workload.set_container(name, *container));
        }
        for ((database, _), (name, shape)) in shapes {
            with(database, &mut |record| record.workload.add_shape(&name, &shape));
        }
        for (database, container, request) in records {
            if containers.get(&(database, Arc::clone(&request.container))) == Some(&container) {
                let mut request = Some(request);
                with(database, &mut |record| request.take().into_iter().for_each(|own| record.take_in(own)));
            }
        }
        result
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
    pub fn forget(&self, storage: &dyn Storage, database: u32) -> Result<(), EngineError> {
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
        record.workload.forget(container);
        record.is_changed = true;
        // A shape that is known is not added again.
        self.shapes.clear();
        Ok(())
    }

    /// Writes what has changed. `exists`: a database that is gone is forgotten. One that cannot be stored holds up no other one.
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
    fn take_in(&mut self, record: Record) {
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
mod tests {
    use quire_storage::fault::{FaultStorage, ReadFault};
    use quire_storage::memory::MemoryStorage;

    use super::*;

    pub(super) fn place(database: u32, container: u32) -> RecordedContainer {
        RecordedContainer { database, container, name: Arc::from("c"), key_paths: Arc::from([]) }
    }

    pub(super) fn request(action: u64) -> AnsweredRequest {
        AnsweredRequest {
            operation: Operation::Read,
            status: 200,
            sub_status: 0,
            charge: 1.0,
            bytes: 10,
            micros: 5,
            action: Some((action, ActionSource::Header)),
            if_match: false,
            observed: ObservedRequest::default(),
        }
    }

    pub(super) fn reads(recorder: &Recorder, storage: &dyn Storage, database: u32) -> u64 {
        let record = recorder.current(storage, database).expect("a record");
        let totals = record.lock().workload.container("c");
        totals.operations.get(&Operation::Read).map_or(0, |totals| totals.count)
    }

    #[test]
    fn what_is_dropped_is_counted_and_the_rest_stands_for_it() {
        let (recorder, storage) = (Recorder::new(&[1; 32]), MemoryStorage::new());
        recorder.one_in.store(4, Ordering::Relaxed);
        (0..4_000).for_each(|action| recorder.add(&place(1, 1), 1_000, request(action)));
        let counted = reads(&recorder, &storage, 1);
        assert!((3_200..=4_800).contains(&counted), "{counted}");
        let record = recorder.current(&storage, 1).expect("a record");
        let kept = record.lock().workload.records().count() as u64;
        assert_eq!(counted, 4 * kept);
        let json = record.lock().workload.to_json(true, &|_| String::new());
        assert_eq!(json.get("dropped").and_then(|dropped| dropped.as_u64()), Some(4_000 - kept));
    }

    #[test]
    fn it_is_stored_read_again_and_forgotten() {
        let (recorder, storage) = (Recorder::new(&[1; 32]), MemoryStorage::new());
        (0..5_000).for_each(|action| recorder.add(&place(1, 1), 1_000, request(action)));
        recorder.add(&place(2, 1), 1_000, request(1));
        recorder.store(&storage, &|_| true).expect("stores");
        let again = Recorder::new(&[1; 32]);
        assert_eq!((reads(&again, &storage, 1), reads(&again, &storage, 2)), (5_000, 1));
        again.forget(&storage, 1).expect("forgets");
        assert_eq!(reads(&Recorder::new(&[1; 32]), &storage, 1), 0);
        assert_eq!(reads(&Recorder::new(&[1; 32]), &storage, 2), 1);
    }

    #[test]
    fn a_container_that_is_made_again_begins_anew() {
        let (recorder, storage) = (Recorder::new(&[1; 32]), MemoryStorage::new());
        (0..3).for_each(|action| recorder.add(&place(1, 1), 1_000, request(action)));
        assert_eq!(reads(&recorder, &storage, 1), 3);
        recorder.add(&place(1, 2), 2_000, request(9));
        assert_eq!(reads(&recorder, &storage, 1), 1);
        // Also after the server was started again.
        recorder.store(&storage, &|_| true).expect("stores");
        let again = Recorder::new(&[1; 32]);
        again.add(&place(1, 2), 3_000, request(10));
        assert_eq!(reads(&again, &storage, 1), 2);
        let again = Recorder::new(&[1; 32]);
        again.add(&place(1, 3), 3_000, request(10));
        assert_eq!(reads(&again, &storage, 1), 1);
    }

    #[test]
    fn shapes_of_a_container_that_is_forgotten_or_made_again_come_again() {
        let (recorder, storage) = (Recorder::new(&[1; 32]), MemoryStorage::new());
        let none = Parameters(Vec::new());
        let ask = |container: u32| {
            let shape = recorder.shape(&place(1, container), ("SELECT * FROM c", &none), false);
            recorder.add(&place(1, container), 1_000, request(1));
            let record = recorder.current(&storage, 1).expect("a record");
            record.lock().workload.shape(shape.expect("a shape")).is_some()
        };
        assert!(ask(1));
        recorder.forget_container(&storage, 1, "c").expect("forgets");
        assert!(ask(1));
        assert!(ask(2));
    }

    #[test]
    fn what_is_forgotten_is_not_stored_by_a_store_under_way() {
        let (recorder, storage) = (Recorder::new(&[1; 32]), FaultStorage::new(MemoryStorage::new()));
        recorder.add(&place(1, 1), 1_000, request(1));
        recorder.drain(&storage).expect("takes in");
        // The store has the bytes, and reads slowly what is stored.
        storage.script_reads([ReadFault::Delay(std::time::Duration::from_millis(500))]);
        std::thread::scope(|threads| {
            let store = threads.spawn(|| recorder.store(&storage, &|_| true));
            while storage.injected() == 0 {
                std::thread::yield_now();
            }
            recorder.forget(&storage, 1).expect("forgets");
            store.join().expect("a thread").expect("stores");
        });
        assert_eq!(reads(&Recorder::new(&[1; 32]), &storage, 1), 0);
    }

    #[test]
    fn a_record_above_the_limit_of_a_commit_is_stored_and_others_too() {
        let (recorder, storage) = (Recorder::new(&[1; 32]), MemoryStorage::new());
        for hour in 0..30 {
            for number in 0..200 {
                let mut request = request(number);
                let paths = (0..8).map(|path| format!("/{number}-{path}-{}", "n".repeat(1_000))).collect();
                let (size_before, size_after) = (Some(1), Some(1));
                let change = quire_profile::Change { paths, size_before, size_after, ..Default::default() };
                request.observed.change = Some(change);
                recorder.add(&place(1, 1), hour * 3_600_000, request);
            }
            recorder.drain(&storage).expect("takes in");
        }
        recorder.add(&place(2, 1), 1_000, request(1));
        let record = recorder.current(&storage, 1).expect("a record");
        assert!(record.lock().workload.to_bytes().len() > storage.caps().commit_bytes_max);
        recorder.store(&storage, &|_| true).expect("stores");
        let again = Recorder::new(&[1; 32]);
        assert!(reads(&again, &storage, 1) > 0);
        assert_eq!(reads(&again, &storage, 2), 1);
    }

    #[test]
    fn a_database_that_cannot_be_stored_holds_up_no_other_one() {
        let (recorder, storage) = (Recorder::new(&[1; 32]), FaultStorage::new(MemoryStorage::new()));
        (1..=2).for_each(|database| recorder.add(&place(database, 1), 1_000, request(1)));
        recorder.drain(&storage).expect("takes in");
        storage.script_reads([ReadFault::Fail]);
        assert!(recorder.store(&storage, &|_| true).is_err());
        let stored = |database| reads(&Recorder::new(&[1; 32]), &storage, database);
        assert_eq!(stored(1) + stored(2), 1);
        recorder.store(&storage, &|_| true).expect("stores");
        assert_eq!((stored(1), stored(2)), (1, 1));
    }

    #[test]
    fn an_error_of_one_database_neither_loses_shapes_nor_holds_up_others() {
        let (recorder, storage) = (Recorder::new(&[1; 32]), FaultStorage::new(MemoryStorage::new()));
        let none = Parameters(Vec::new());
        let ask = || recorder.shape(&place(1, 1), ("SELECT * FROM c", &none), false).expect("a shape");
        let shape = ask();
        recorder.add(&place(2, 1), 1_000, request(1));
        storage.script_reads([ReadFault::Fail]);
        assert!(recorder.drain(&storage).is_err());
        assert_eq!(reads(&recorder, &storage, 2), 1);
        ask();
        let record = recorder.current(&storage, 1).expect("a record");
        assert!(record.lock().workload.shape(shape).is_some());
    }

    #[test]
    fn memory_of_what_waits_is_bounded() {
        let recorder = Recorder::new(&[1; 32]);
        for action in 0..WAITING_MAX as u64 {
            let mut request = request(action);
            let paths = vec!["n".repeat(1_000); 8];
            request.observed.change = Some(quire_profile::Change { paths, ..Default::default() });
            recorder.add(&place(1, 1), 1_000, request);
        }
        let bytes: usize = recorder
            .shards
            .iter()
            .flat_map(|shard| {
                shard.lock().records.iter().map(|(.., record)| record.memory()).collect::<Vec<_>>()
            })
            .sum();
        assert!(bytes < WAITING_BYTES_MAX + 10_000, "{bytes}");
    }
}
