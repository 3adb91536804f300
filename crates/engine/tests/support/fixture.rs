//! An engine in memory with one container and a clock that tests move.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use quire_engine::{
    Answer, Clock, Container, Engine, EngineError, ItemRead, ItemWritten, Options, Page, PageRequest,
    Parameters, ReadItem, Scope, WriteItem, WriteKind,
};
use quire_resource::PartitionKey;
use quire_storage::memory::MemoryStorage;
pub use quire_storage::random::Random;
use quire_storage::{Direction, KeyRange, Scan, Space, Storage};
use quire_value::{Limits, Path, Value, text};

use super::options_of;
pub use super::{START_MS, json};

pub struct FakeClock(AtomicI64);

impl Clock for FakeClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl FakeClock {
    pub fn new() -> Arc<FakeClock> {
        Arc::new(FakeClock(AtomicI64::new(START_MS)))
    }
    pub fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1000, Ordering::SeqCst);
    }
    pub fn now(&self) -> i64 {
        self.now_ms() / 1000
    }
}

pub struct Fixture {
    pub engine: Engine,
    pub container: Arc<Container>,
    pub clock: Arc<FakeClock>,
    pub storage: Arc<dyn Storage>,
}

pub fn options(clock: &Arc<FakeClock>, partitions: u32) -> Options {
    options_of(Arc::clone(clock) as Arc<dyn Clock>, partitions, 4 << 20)
}

impl Fixture {
    /// A container of one partition with key `/pk` (version 2) and these further members.
    pub fn new(members: &str) -> Fixture {
        Fixture::with_key(r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, members, 1)
    }

    pub fn with_key(key: &str, members: &str, partitions: u32) -> Fixture {
        Fixture::on(Arc::new(MemoryStorage::new()), key, members, partitions)
    }

    pub fn on(storage: Arc<dyn Storage>, key: &str, members: &str, partitions: u32) -> Fixture {
        let clock = FakeClock::new();
        let engine = Engine::open(Arc::clone(&storage), options(&clock, partitions)).expect("opens");
        engine.pause_sweep(true); // tests count rows
        engine.catalog().create_database(&json(r#"{"id":"db"}"#), None).expect("database");
        let comma = if members.is_empty() { "" } else { "," };
        let definition = json(&format!(r#"{{"id":"c","partitionKey":{key}{comma}{members}}}"#));
        let container = engine.catalog().create_container("db", &definition, None).expect("container");
        Fixture { engine, container, clock, storage }
    }

    /// The same data in another engine, on another storage handle.
    pub fn reopened(&self, storage: Arc<dyn Storage>) -> Fixture {
        Fixture::again(storage, Arc::clone(&self.clock))
    }

    /// What an earlier fixture left in a storage.
    pub fn again(storage: Arc<dyn Storage>, clock: Arc<FakeClock>) -> Fixture {
        let engine = Engine::open(Arc::clone(&storage), options(&clock, 1)).expect("opens again");
        engine.pause_sweep(true);
        let container = engine.catalog().container("db", "c").expect("still there");
        Fixture { engine, container, clock, storage }
    }

    pub fn write(&self, kind: WriteKind, key: Option<&str>, body: &str) -> Answer<ItemWritten> {
        self.write_if(kind, key, body, None)
    }

    pub fn write_if(
        &self,
        kind: WriteKind,
        key: Option<&str>,
        body: &str,
        if_match: Option<&str>,
    ) -> Answer<ItemWritten> {
        let write = WriteItem {
            if_match: if_match.map(str::to_owned),
            want_body: true,
            ..WriteItem::new(kind, key.map(pk), body.to_owned())
        };
        self.engine.write_item(&self.container, write)
    }

    pub fn create(&self, body: &str) -> Result<ItemWritten, EngineError> {
        self.write(WriteKind::Create, None, body).result
    }
    pub fn upsert(&self, body: &str) -> Result<ItemWritten, EngineError> {
        self.write(WriteKind::Upsert, None, body).result
    }
    pub fn replace(&self, id: &str, body: &str) -> Result<ItemWritten, EngineError> {
        self.write(WriteKind::Replace { id: id.to_owned() }, None, body).result
    }
    pub fn delete(&self, id: &str, key: &str) -> Result<ItemWritten, EngineError> {
        self.write(WriteKind::Delete { id: id.to_owned() }, Some(key), "").result
    }

    pub fn read_answer(&self, id: &str, key: &str) -> Answer<ItemRead> {
        let key = pk(key);
        let read = ReadItem { id, partition_key: &key, if_none_match: None, session: None };
        match self.engine.read_item_cached(&self.container, &read) {
            Some(answer) => answer,
            None => self.engine.read_item(&self.container, &read),
        }
    }

    pub fn read(&self, id: &str, key: &str) -> Result<Value, EngineError> {
        self.read_answer(id, key).result.map(|read| match read {
            ItemRead::Found { body, .. } => text::parse(&body, Limits::default()).expect("bodies are JSON"),
            ItemRead::NotModified { .. } => panic!("nobody asked for that"),
        })
    }

    pub fn page(&self, query: Option<&str>, request: &PageRequest) -> Result<Page, EngineError> {
        match query {
            Some(text) => {
                self.engine.query_items(&self.container, text, &Parameters::default(), request).result
            }
            None => self.engine.list_items(&self.container, request).result,
        }
    }

    /// All pages, joined.
    pub fn all(&self, query: Option<&str>, scope: &Scope, page_size: i64) -> Vec<Value> {
        let mut rows = Vec::new();
        let mut next = request(scope.clone(), page_size, None);
        loop {
            let page = self.page(query, &next).expect("page");
            let values = text::parse(&page.rows, Limits::default()).expect("pages are JSON");
            let values = values.as_array().expect("pages are arrays").to_vec();
            assert_eq!(values.len(), page.count);
            assert!(page_size < 1 || page.count as i64 <= page_size);
            rows.extend(values);
            match page.continuation {
                Some(token) => next = request(scope.clone(), page_size, Some(token)),
                None => return rows,
            }
        }
    }

    /// Rows in a space that belong to a container, by what follows the container's number.
    pub fn rows(&self, space: u8, tag: &[u8]) -> usize {
        let number = match self.container.resource.rid {
            quire_resource::ResourceId::Container { container, .. } => container,
            other => panic!("{other:?} is not a container"),
        };
        let prefix = [&number.to_be_bytes(), tag].concat();
        let scan = Scan {
            space: Space(space),
            range: KeyRange::prefix(&prefix),
            direction: Direction::Forward,
            rows_max: usize::MAX,
            bytes_max: usize::MAX,
            keys_only: true,
        };
        self.storage.snapshot().expect("snapshot").scan(&scan).expect("scan").rows.len()
    }
}

/// Waits until items without these paths are found by rows of their own.
pub fn index_missing_values(fixture: &Fixture, paths: &[&str]) {
    let paths: Vec<Path> = paths.iter().map(|path| Path::parse(path).expect("a path")).collect();
    paths.iter().for_each(|path| fixture.engine.index_missing_values(&fixture.container, path));
    let started = Instant::now();
    while !paths.iter().all(|path| fixture.container.has_missing_rows(path)) {
        assert!(started.elapsed() < Duration::from_secs(60), "no rows of missing values");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn request(scope: Scope, page_size: i64, continuation: Option<String>) -> PageRequest {
    PageRequest {
        scope,
        item_count_max: Some(page_size),
        continuation,
        continuation_bytes_max: 1024,
        index_preferred: true,
        ..PageRequest::default()
    }
}

/// A partition key from header text.
pub fn pk(text: &str) -> PartitionKey {
    PartitionKey::from_header(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub fn number_of(value: &Value, name: &str) -> i64 {
    value.get(name).and_then(Value::as_i64).unwrap_or_else(|| panic!("no number {name} in {value:?}"))
}

pub fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no text {name} in {value:?}"))
}
