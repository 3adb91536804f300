//! One operation of the engine many times, to be counted by callgrind: `cargo xtask bench instructions`.
//!
//! `instructions point-read|equality|create COUNT`. Storage in memory and one thread, so that the same count takes the same
//! instructions; what two counts differ by is the operations alone. With `-recorded` behind the operation every request is recorded
//! as a server does it, and the records are taken in at the end.

use std::error::Error;
use std::sync::Arc;

use quire_engine::{
    AnsweredRequest, Clock, Container, Engine, Options, PageRequest, Parameters, ReadItem, WriteItem,
    WriteKind,
};
use quire_profile::{ActionSource, Operation};
use quire_resource::PartitionKey;
use quire_storage::memory::MemoryStorage;
use quire_value::{Limits, Value, text};

const ITEMS: u64 = 500;
/// Items with the same team.
const TEAM: u64 = 10;
/// Behind the name of an operation.
const RECORDED: &str = "-recorded";

struct Fixed;

impl Clock for Fixed {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }
}

/// Makes the request of a number.
type MeasuredCall = fn(&Engine, &Arc<Container>, u64);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [operation, count] = words.as_slice() else {
        return Err("usage: instructions OPERATION COUNT".into());
    };
    let count: u64 = count.parse()?;
    let (engine, container) = open()?;
    (0..ITEMS).for_each(|number| create(&engine, &container, number));
    (0..ITEMS).for_each(|number| read(&engine, &container, number));
    let (run, named): (MeasuredCall, Operation) = match operation.trim_end_matches(RECORDED) {
        "point-read" => {
            (|engine, container, number| read(engine, container, number % ITEMS), Operation::Read)
        }
        "equality" => (query, Operation::Query),
        "create" => {
            (|engine, container, number| create(engine, container, ITEMS + number), Operation::Create)
        }
        other => return Err(format!("there is no operation {other:?}").into()),
    };
    if !operation.ends_with(RECORDED) {
        (0..count).for_each(|number| run(&engine, &container, number));
        return Ok(());
    }
    for number in 0..count {
        let ((), observed) = engine.observe(|| run(&engine, &container, number));
        // Fifty requests of a connection are an action.
        let action = Some((number / 200, ActionSource::Connection));
        let (charge, bytes, micros, if_match) = (1.0, 500, 50, false);
        let (operation, status, sub_status) = (named, 200, 0);
        let request = AnsweredRequest {
            operation,
            status,
            sub_status,
            charge,
            bytes,
            micros,
            action,
            if_match,
            observed,
        };
        engine.record(&container, request);
        // A worker takes them in every second.
        if number % 1_000 == 999 {
            engine.workload("d")?;
        }
    }
    engine.workload("d")?;
    Ok(())
}

fn open() -> Result<(Engine, Arc<Container>), Box<dyn Error>> {
    let options = Options {
        clock: Arc::new(Fixed),
        partitions: 1,
        cache_bytes: 64 << 20,
        scripts: Default::default(),
        query_memory: Default::default(),
        query_temp: None,
    };
    let engine = Engine::open(Arc::new(MemoryStorage::new()), options)?;
    let parse = |json: &str| text::parse(json.as_bytes(), Limits::default());
    engine.catalog().create_database(&parse(r#"{"id":"d"}"#)?, None)?;
    let definition = r#"{"id":"c","partitionKey":{"paths":["/tenant"],"kind":"Hash","version":2}}"#;
    let container = engine.catalog().create_container("d", &parse(definition)?, None)?;
    Ok((engine, container))
}

fn key(number: u64) -> PartitionKey {
    PartitionKey::from_header(&format!(r#"["tenant-{}"]"#, number % 50)).expect("a partition key")
}

fn create(engine: &Engine, container: &Arc<Container>, number: u64) {
    let body = format!(
        r#"{{"id":"item-{number}","tenant":"tenant-{}","name":"Ada {number}","team":"team-{}","city":"city-{}","age":{},"score":{},"active":true,"address":{{"street":"harbour street","number":{}}},"tags":["a","b","c"],"orders":[{{"sku":"s{number}","quantity":2}}],"bio":"{}"}}"#,
        number % 50,
        number % (ITEMS / TEAM),
        number % 50,
        18 + number % 70,
        number * 7919 % 1_000_000,
        number % 200,
        "letters window harbour ".repeat(16),
    );
    let write = WriteItem { want_body: true, ..WriteItem::new(WriteKind::Create, Some(key(number)), body) };
    engine.write_item(container, write).result.expect("it is created");
}

fn read(engine: &Engine, container: &Arc<Container>, number: u64) {
    let (id, key) = (format!("item-{number}"), key(number));
    let read = ReadItem { id: &id, partition_key: &key, if_none_match: None, session: None };
    let answer = engine.read_item_cached(container, &read);
    answer.unwrap_or_else(|| engine.read_item(container, &read)).result.expect("it is there");
}

fn query(engine: &Engine, container: &Arc<Container>, number: u64) {
    let team = Value::from(format!("team-{}", number % (ITEMS / TEAM)));
    let parameters = Parameters(vec![("@p".to_owned(), team)]);
    let request = PageRequest { item_count_max: Some(-1), ..PageRequest::default() };
    let text = "SELECT * FROM c WHERE c.team = @p";
    let page = engine.query_items(container, text, &parameters, &request).result.expect("a page");
    assert!(page.count >= TEAM as usize, "{} rows", page.count);
}
