//! What tests of the engine share: a small account here, one container and a clock in [`fixture`], storages that call back or
//! misbehave in [`hooked_storage`] and [`faulty_storage`].
#![allow(dead_code, unused_imports, reason = "every test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

pub mod faulty_storage; // a storage that loses answers as a test says
pub mod fixture; // an engine in memory with one container
pub mod hooked_storage; // a storage that shows every call to the test

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quire_engine::{
    Answer, Cancel, Clock, Container, Engine, EngineError, ItemWritten, Options, PageRequest, ScriptKind,
    WriteItem, WriteKind,
};
use quire_storage::Storage;
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use quire_value::{Limits, Value, text};

/// Advances by 10 ms with every reading, so that times differ and tests do not depend on the real time.
pub struct TickingClock(AtomicI64);

impl Clock for TickingClock {
    fn now_ms(&self) -> i64 {
        self.0.fetch_add(10, Ordering::Relaxed)
    }
}

pub fn options() -> Options {
    options_with(1)
}

/// When clocks of tests begin.
pub const START_MS: i64 = 1_700_000_000_000;

pub fn options_with(partitions: u32) -> Options {
    options_at(START_MS, partitions)
}

pub fn options_at(now_ms: i64, partitions: u32) -> Options {
    options_of(Arc::new(TickingClock(AtomicI64::new(now_ms))), partitions, 1 << 20)
}

fn options_of(clock: Arc<dyn Clock>, partitions: u32, cache_bytes: usize) -> Options {
    Options {
        clock,
        partitions,
        cache_bytes,
        scripts: Default::default(),
        query_memory: Default::default(),
        query_temp: None,
    }
}

pub fn json(text: &str) -> Value {
    text::parse(text.as_bytes(), Limits::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub fn open(storage: &MemoryStorage) -> Engine {
    Engine::open(Arc::new(storage.reopen()), options()).unwrap()
}

pub fn open_on(storage: Arc<dyn Storage>) -> Engine {
    Engine::open(storage, options()).unwrap()
}

pub fn database(engine: &Engine, id: &str) {
    engine.catalog().create_database(&json(&format!(r#"{{"id":"{id}"}}"#)), None).unwrap();
}

pub const CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;

pub fn container(engine: &Engine) -> Arc<Container> {
    database(engine, "d");
    engine.catalog().create_container("d", &json(CONTAINER), None).unwrap()
}

pub fn write(
    engine: &Engine,
    container: &Arc<Container>,
    kind: WriteKind,
    body: &str,
) -> Result<(), EngineError> {
    answer(engine, container, kind, None, body).result.map(|_| ())
}

fn answer(
    engine: &Engine,
    container: &Arc<Container>,
    kind: WriteKind,
    partition_key: Option<quire_resource::PartitionKey>,
    body: &str,
) -> Answer<ItemWritten> {
    let write = WriteItem::new(kind, partition_key, body.to_owned());
    engine.write_item(container, write)
}

pub fn upsert(engine: &Engine, container: &Arc<Container>, id: &str, value: u64) -> Result<(), EngineError> {
    upsert_answer(engine, container, id, value).result.map(|_| ())
}

pub fn upsert_answer(
    engine: &Engine,
    container: &Arc<Container>,
    id: &str,
    value: u64,
) -> Answer<ItemWritten> {
    let key = id.len() % 3;
    let body = format!(r#"{{"id":"{id}","pk":"{key}","value":{value}}}"#);
    answer(engine, container, WriteKind::Upsert, None, &body)
}

pub fn delete_answer(engine: &Engine, container: &Arc<Container>, id: &str) -> Answer<ItemWritten> {
    let key = quire_resource::PartitionKey::from_header(&format!(r#"["{}"]"#, id.len() % 3)).unwrap();
    answer(engine, container, WriteKind::Delete { id: id.to_owned() }, Some(key), "")
}

pub fn page_request() -> PageRequest {
    PageRequest { item_count_max: Some(-1), ..PageRequest::default() }
}

/// Every item's JSON by id.
pub fn items(engine: &Engine, container: &Arc<Container>) -> BTreeMap<String, String> {
    let mut request = page_request();
    let mut found = BTreeMap::new();
    loop {
        let page = engine.list_items(container, &request).result.unwrap();
        let rows = text::parse(&page.rows, Limits::default()).unwrap();
        for row in rows.as_array().unwrap() {
            let id = row.get("id").and_then(Value::as_str).unwrap().to_owned();
            assert!(found.insert(id, row.to_json()).is_none(), "an item came twice");
        }
        request.continuation = page.continuation;
        if request.continuation.is_none() {
            return found;
        }
    }
}

pub fn statistic(engine: &Engine, name: &str) -> u64 {
    let statistics = engine.statistics();
    statistics.iter().find(|(found, _)| *found == name).unwrap_or_else(|| panic!("no statistic {name}")).1
}

/// A client that has left at the nth check of the work for it, and the number of checks so far.
pub fn client_that_leaves_at(nth: u64) -> (Cancel, Arc<AtomicU64>) {
    let checks = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&checks);
    let cancel =
        Cancel::asking_every(Duration::ZERO, move || counted.fetch_add(1, Ordering::Relaxed) + 1 >= nth);
    (cancel, checks)
}

/// Work for a client that stays makes at least `least` checks. When the client leaves at one of them, the work ends there.
pub fn ends_at_every_check<T>(what: &str, least: u64, work: impl Fn(Cancel) -> Result<T, EngineError>) {
    let (stays, checks) = client_that_leaves_at(u64::MAX);
    work(stays).unwrap_or_else(|error| panic!("{what}: {error}"));
    let all = checks.load(Ordering::Relaxed);
    assert!(all >= least, "{what}: {all} checks, not {least}");
    for nth in [1, least / 2, least - 1, least] {
        let (leaves, checks) = client_that_leaves_at(nth.max(1));
        let ended = work(leaves);
        assert!(matches!(ended, Err(EngineError::Cancelled)), "{what}: goes on after check {nth}");
        assert_eq!(checks.load(Ordering::Relaxed), nth.max(1), "{what}");
    }
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until the rows of what was deleted are gone.
pub fn wait_for_reclaim(engine: &Engine) {
    wait_until("rows of what was deleted are gone", || statistic(engine, "reclaim_jobs_waiting") == 0);
}

/// Waits until all jobs that there are have ended.
pub fn wait_for_jobs(engine: &Engine) {
    wait_until("all jobs are done", || has_no_job(engine));
}

/// Whether all jobs have ended.
pub fn has_no_job(engine: &Engine) -> bool {
    engine.jobs().unwrap().iter().all(|job| job.state.is_finished())
}

/// Waits until so many rounds more are counted.
pub fn wait_for_rounds(engine: &Engine, name: &str, rounds: u64) {
    let until = statistic(engine, name) + rounds;
    wait_until(name, || statistic(engine, name) >= until);
}

pub fn check_sound(storage: &dyn Storage) {
    let report = quire_engine::verify(storage).unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
}

pub fn open_with_faults(
    memory: &MemoryStorage,
    open: impl FnOnce(Arc<dyn Storage>) -> Engine,
) -> (Arc<FaultStorage<MemoryStorage>>, Engine) {
    let faults = Arc::new(FaultStorage::new(memory.reopen()));
    let engine = open(Arc::<FaultStorage<MemoryStorage>>::clone(&faults));
    (faults, engine)
}

/// The storage takes so many commits, and none after: as if the process had been killed then. Every other time the last one is done.
pub fn kill_after(faults: &FaultStorage<MemoryStorage>, commits: usize) {
    let last = if commits.is_multiple_of(2) { CommitFault::Poison } else { CommitFault::PoisonDone };
    faults.script_commits(std::iter::repeat_n(CommitFault::Pass, commits).chain([last]));
}

/// An engine that is killed after so many commits, or closed when the act is settled before.
pub fn killed_after(
    memory: &MemoryStorage,
    commits: usize,
    open: impl FnOnce(Arc<dyn Storage>) -> Engine,
    act: impl FnOnce(&Engine) -> Result<(), EngineError>,
    is_settled: impl Fn(&Engine) -> bool,
) {
    let (faults, engine) = open_with_faults(memory, open);
    kill_after(&faults, commits);
    if act(&engine).is_ok() {
        wait_until("it is killed, or done", || faults.injected() > 0 || is_settled(&engine));
    }
    drop(engine);
    // What had reached the disk is there when it is opened again.
    faults.reopen_on(memory.reopen()).unwrap();
}

/// Waits until nothing is left to do in the background that jobs do: neither a mark that gets a job, nor a job.
pub fn wait_until_idle(engine: &Engine) {
    wait_until("nothing is left to do", || is_idle(engine));
}

pub fn is_idle(engine: &Engine) -> bool {
    // The marks first: a job takes its mark away before it ends.
    let marks = ["reclaim_jobs_waiting", "index_builds_waiting", "partition_key_deletes_waiting"];
    marks.iter().all(|name| statistic(engine, name) == 0) && has_no_job(engine)
}

/// The whole catalog as text.
pub fn dump(engine: &Engine) -> String {
    let mut lines = Vec::new();
    let mut line = |indent: usize, resource: &quire_engine::Resource| {
        let json = Value::Object(resource.to_json()).to_json();
        lines.push(format!("{:indent$}{json}", ""));
    };
    for database in engine.catalog().databases() {
        line(0, &database);
        for container in engine.catalog().containers(&database.id).unwrap() {
            line(2, &container.resource);
            for kind in [ScriptKind::StoredProcedure, ScriptKind::Trigger, ScriptKind::UserDefinedFunction] {
                for script in engine.catalog().scripts(&database.id, &container.resource.id, kind).unwrap() {
                    line(4, &script);
                }
            }
        }
        for user in engine.catalog().users(&database.id).unwrap() {
            line(2, &user);
            for permission in engine.catalog().permissions(&database.id, &user.id).unwrap() {
                line(4, &permission);
            }
        }
        for key in engine.catalog().client_encryption_keys(&database.id).unwrap() {
            line(2, &key);
        }
    }
    for offer in engine.catalog().offers() {
        line(0, &offer);
    }
    lines.join("\n") + "\n"
}

pub fn delete(
    engine: &Engine,
    container: &Arc<Container>,
    id: &str,
    partition_key: &str,
) -> Result<(), EngineError> {
    let key = quire_resource::PartitionKey::from_header(&format!("[{partition_key:?}]")).unwrap();
    answer(engine, container, WriteKind::Delete { id: id.to_owned() }, Some(key), "").result.map(|_| ())
}
