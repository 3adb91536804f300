//! A database with a model whose declarations are all active.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::ThreadId;

use quire_resource::{PartitionKey, ResourceId};
use quire_storage::memory::MemoryStorage;
use quire_value::{Limits, Value, text};

use crate::api::*;
use crate::catalog::Container;
use crate::engine::Engine;
use crate::model::DeclarationState;

pub struct ManualClock {
    now_ms: AtomicI64,
    /// Looks of a thread until it goes on by itself, and by how many seconds.
    readings_left: AtomicI64,
    then_seconds: AtomicI64,
    observed_thread: parking_lot::Mutex<Option<ThreadId>>,
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        let is_observed_thread = *self.observed_thread.lock() == Some(std::thread::current().id());
        if is_observed_thread && self.readings_left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.advance(self.then_seconds.load(Ordering::Relaxed));
        }
        self.now_ms.load(Ordering::Relaxed)
    }
}

impl ManualClock {
    pub fn advance(&self, seconds: i64) {
        self.now_ms.fetch_add(seconds * 1000, Ordering::Relaxed);
    }

    /// At the given reading of the clock by this thread, counted from now on.
    pub fn advance_at_reading(&self, reading: i64, seconds: i64) {
        self.then_seconds.store(seconds, Ordering::Relaxed);
        self.readings_left.store(reading, Ordering::Relaxed);
        *self.observed_thread.lock() = Some(std::thread::current().id());
    }
}

pub struct Bench {
    pub engine: Engine,
    pub clock: Arc<ManualClock>,
}

pub fn json(json: &str) -> Value {
    text::parse(json.as_bytes(), Limits::default()).unwrap_or_else(|error| panic!("{error}: {json}"))
}

impl Bench {
    /// Containers with the path of their partition key and further members of their definition.
    pub fn new(partitions: u32, containers: &[(&str, &str, &str)], model: &str) -> Bench {
        let [now_ms, readings_left, then_seconds] = [1_700_000_000_000, 0, 0].map(AtomicI64::new);
        let clock = Arc::new(ManualClock {
            now_ms,
            readings_left,
            then_seconds,
            observed_thread: Default::default(),
        });
        let options = Options {
            clock: clock.clone(),
            partitions,
            cache_bytes: 64 << 20,
            scripts: Default::default(),
            query_memory: Default::default(),
            query_temp: None,
        };
        let engine = Engine::open(Arc::new(MemoryStorage::new()), options).unwrap();
        engine.pause_sweep(true);
        engine.catalog().create_database(&json(r#"{"id":"d"}"#), None).unwrap();
        for (id, path, members) in containers {
            let definition = format!(
                r#"{{"id":"{id}","defaultTtl":-1,"partitionKey":{{"paths":["{path}"],"kind":"Hash","version":2}}{members}}}"#
            );
            engine.catalog().create_container("d", &json(&definition), None).unwrap();
        }
        let bench = Bench { engine, clock };
        let condition = ModelCondition { if_match: None, if_none_match: None };
        bench.engine.catalog().put_model("d", &json(model), &condition).unwrap();
        bench.set_states(&DeclarationState::Active);
        bench
    }

    pub fn set_states(&self, state: &DeclarationState) {
        let number = match self.engine.catalog().database("d").unwrap().rid {
            ResourceId::Database(number) => number,
            _ => panic!("a database"),
        };
        let changed = self.engine.catalog().change_declarations(number, |declarations| {
            declarations.iter_mut().for_each(|declaration| declaration.state = state.clone());
            true
        });
        assert!(changed.unwrap());
    }

    pub fn container(&self, name: &str) -> Arc<Container> {
        self.engine.catalog().container("d", name).unwrap()
    }

    pub fn upsert(&self, container: &str, item: &str) {
        let write = write(WriteKind::Upsert, None, item);
        let written = self.engine.write_item(&self.container(container), write).result;
        assert!(written.is_ok(), "{item}: {:?}", written.err());
    }

    pub fn delete(&self, container: &str, id: &str, key: &str) {
        let write = write(WriteKind::Delete { id: id.to_owned() }, Some(key), "");
        self.engine.write_item(&self.container(container), write).result.map(drop).unwrap();
    }

    /// The whole answer of a point read.
    pub fn read(&self, container: &str, id: &str, key: &PartitionKey) -> Option<String> {
        let read = ReadItem { id, partition_key: key, if_none_match: None, session: None };
        match self.engine.read_item(&self.container(container), &read).result {
            Ok(ItemRead::Found { body, .. }) => Some(String::from_utf8(body.to_vec()).unwrap()),
            Ok(ItemRead::NotModified { .. }) => panic!("nothing was asked for"),
            Err(EngineError::ItemNotFound { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The same of an item whose partition key is its id.
    pub fn get(&self, container: &str, id: &str) -> Option<String> {
        self.read(container, id, &PartitionKey::from_header(&format!("[{id:?}]")).unwrap())
    }

    pub fn page(&self, container: &str, query: &str, request: &PageRequest) -> Answer<Page> {
        self.engine.query_items(&self.container(container), query, &Parameters::default(), request)
    }

    /// All rows, in pages of a size.
    pub fn rows(&self, container: &str, query: &str, page_size: i64) -> Vec<Value> {
        let request = PageRequest { item_count_max: Some(page_size), ..PageRequest::default() };
        self.all(container, query, request).unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    pub fn all(
        &self,
        container: &str,
        query: &str,
        mut request: PageRequest,
    ) -> Result<Vec<Value>, EngineError> {
        let mut rows = Vec::new();
        loop {
            let page = self.page(container, query, &request).result?;
            rows.extend(page_rows(&page));
            request.continuation = page.continuation;
            if request.continuation.is_none() {
                return Ok(rows);
            }
        }
    }
}

pub fn page_rows(page: &Page) -> Vec<Value> {
    text::parse(&page.rows, Limits::default()).unwrap().into_array().unwrap()
}

pub fn write(kind: WriteKind, key: Option<&str>, body: &str) -> WriteItem {
    WriteItem::new(kind, key.map(|key| PartitionKey::from_header(key).unwrap()), body.to_owned())
}

pub const CONTAINERS: &[(&str, &str, &str)] =
    &[("authors", "/id", ""), ("books", "/id", ""), ("publishers", "/region", ""), ("countries", "/id", "")];

pub const LIBRARY: &str = r#"{"version":1,"links":[
    {"name":"book-authors","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}},
    {"name":"book-publisher","from":{"container":"books","path":"/pub/id"},
     "to":{"container":"publishers","partitionKey":[{"path":"/pub/region"}]}},
    {"name":"publisher-country","from":{"container":"publishers","path":"/country"},"to":{"container":"countries"}},
    {"name":"sequel","from":{"container":"books","path":"/sequelOf"},
     "to":{"container":"books","key":"/isbn","partitionKey":"lookup"}}]}"#;

/// Books with authors and publishers, some of them missing.
pub fn library(partitions: u32, books: usize) -> Bench {
    let bench = Bench::new(partitions, CONTAINERS, LIBRARY);
    for country in ["nz", "uk"] {
        bench.upsert("countries", &format!(r#"{{"id":"{country}","name":"{country}!"}}"#));
    }
    for (id, region, country) in [("p1", "north", "nz"), ("p2", "south", "uk"), ("p3", "south", "xx")] {
        bench.upsert(
            "publishers",
            &format!(r#"{{"id":"{id}","region":"{region}","country":"{country}","name":"{id}"}}"#),
        );
    }
    for author in 0..7 {
        bench.upsert("authors", &format!(r#"{{"id":"a{author}","name":"Author \u00e9 {author}","n":1.50}}"#));
    }
    for book in 0..books {
        let (one, two) = (book % 7, (book / 3) % 9);
        bench.upsert(
            "books",
            &format!(
                r#"{{"id":"b{book:04}","year":{},"isbn":"i{book}","sequelOf":"i{}","authors":[{{"id":"a{one}"}},{{"id":"a{two}"}}],"pub":{{"id":"p{}","region":"{}"}}}}"#,
                1900 + book % 50,
                book / 2 + 1,
                1 + book % 3,
                if book % 2 == 0 { "north" } else { "south" },
            ),
        );
    }
    bench
}
