//! What the engine's item operations cost, in memory and on the embedded storage.
//!
//! `cargo bench -p quire-engine`. Time per operation of a 1 KB item; a floor for what HTTP adds to it.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use quire_engine::{
    Clock, Container, Engine, Options, PageRequest, Parameters, ReadItem, WriteItem, WriteKind,
};
use quire_resource::PartitionKey;
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_value::{Limits, text};

struct Fixed;

impl Clock for Fixed {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }
}

struct Bench {
    engine: Engine,
    container: Arc<Container>,
    key: PartitionKey,
}

fn main() {
    let memory = Bench::open(Arc::new(MemoryStorage::new()), 64 << 20);
    println!("in memory, one thread");
    memory.writes(20_000);
    memory.reads(200_000);
    memory.pages();
    let uncached = Bench::open(Arc::new(MemoryStorage::new()), 0);
    uncached.prepare(1000);
    println!("in memory, without a cache");
    time("read", 100_000, |n| uncached.read(n as usize % 1000));
    let directory = tempfile::tempdir().expect("a directory");
    let storage = LocalStorage::open(directory.path(), LocalOptions::default()).expect("opens");
    let local = Bench::open(Arc::new(storage), 64 << 20);
    println!("on the embedded storage, durable");
    time("create, 1 thread", 500, |n| local.write(WriteKind::Create, &format!("one-{n}")));
    local.creates_by_threads(16, 200);
}

fn time(what: &str, count: u32, mut operation: impl FnMut(u32)) {
    let started = Instant::now();
    (0..count).for_each(&mut operation);
    let each = started.elapsed() / count;
    println!("  {what:<28} {:>9.2} us", each.as_nanos() as f64 / 1000.0);
}

impl Bench {
    fn open(storage: Arc<dyn Storage>, cache_bytes: usize) -> Bench {
        let engine = Engine::open(
            storage,
            Options {
                clock: Arc::new(Fixed),
                partitions: 1,
                cache_bytes,
                scripts: Default::default(),
                query_memory: Default::default(),
                query_temp: None,
            },
        );
        let engine = engine.expect("opens");
        let parse = |json: &str| text::parse(json.as_bytes(), Limits::default()).expect("JSON");
        engine.catalog().create_database(&parse(r#"{"id":"db"}"#), None).expect("database");
        let definition = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
            "indexingPolicy":{"indexingMode":"none","automatic":false}}"#;
        let container = engine.catalog().create_container("db", &parse(definition), None).expect("container");
        Bench { engine, container, key: PartitionKey::from_header(r#"["tenant"]"#).expect("key") }
    }

    fn body(id: &str) -> Bytes {
        let filler = "x".repeat(60);
        let fields: String = (0..12).map(|n| format!(r#","field{n}":"{filler}""#)).collect();
        format!(r#"{{"id":"{id}","pk":"tenant","n":1,"flag":true,"list":[1,2,3]{fields}}}"#).into()
    }

    fn write(&self, kind: WriteKind, id: &str) {
        let body = if matches!(kind, WriteKind::Delete { .. }) { Bytes::new() } else { Bench::body(id) };
        let write = WriteItem { want_body: true, ..WriteItem::new(kind, Some(self.key.clone()), body) };
        self.engine.write_item(&self.container, write).result.expect("written");
    }

    fn prepare(&self, count: usize) {
        (0..count).for_each(|n| self.write(WriteKind::Upsert, &n.to_string()));
    }

    fn writes(&self, count: u32) {
        let id = |n: u32| n.to_string();
        time("create", count, |n| self.write(WriteKind::Create, &id(n)));
        time("replace", count, |n| self.write(WriteKind::Replace { id: id(n) }, &id(n)));
        time("delete", count / 2, |n| self.write(WriteKind::Delete { id: id(n) }, &id(n)));
    }

    fn read(&self, n: usize) {
        let id = n.to_string();
        let read = ReadItem { id: &id, partition_key: &self.key, if_none_match: None, session: None };
        let answer = self.engine.read_item_cached(&self.container, &read);
        let answer = answer.unwrap_or_else(|| self.engine.read_item(&self.container, &read));
        answer.result.expect("there");
    }

    fn reads(&self, count: u32) {
        time("read, first", 10_000, |n| self.read(10_000 + n as usize));
        time("read, cached", count, |n| self.read(10_000 + n as usize % 10_000));
    }

    fn pages(&self) {
        let request = PageRequest { item_count_max: Some(-1), ..PageRequest::default() };
        let rows = self.engine.list_items(&self.container, &request).result.expect("page").count;
        time(&format!("list of {rows}"), 10, |_| {
            self.engine.list_items(&self.container, &request).result.expect("page");
        });
        for text in ["SELECT VALUE COUNT(1) FROM c", "SELECT * FROM c WHERE c.n = 2"] {
            time(text, 3, |_| {
                let answer = self.engine.query_items(&self.container, text, &Parameters::default(), &request);
                answer.result.expect("page");
            });
        }
    }

    fn creates_by_threads(&self, threads: u32, each: u32) {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    (0..each).for_each(|n| self.write(WriteKind::Create, &format!("{thread}-{n}")));
                });
            }
        });
        let each = started.elapsed() / (threads * each);
        println!("  create, {threads} threads            {:>9.2} us", each.as_nanos() as f64 / 1000.0);
    }
}
