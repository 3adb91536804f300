//! All versions are switched on while a container is written to: from the place where they begin none is missing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use quire_engine::{
    ChangesRequest, Container, Engine, EngineError, FeedMode, FeedStart, PageRequest, Precondition,
};
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use quire_value::Value;
use support::fixture::{FakeClock, Fixture, json, options};
use support::hooked_storage::{Call, Calls, HookedStorage};

const HASH: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;

fn hooked() -> (Fixture, Arc<Calls>) {
    let hooked = HookedStorage::new(Arc::new(MemoryStorage::new()));
    let calls = hooked.calls();
    (Fixture::on(Arc::new(hooked), HASH, "", 1), calls)
}

fn switch_on(engine: &Engine) -> Result<Arc<Container>, EngineError> {
    let policy = r#""changeFeedPolicy":{"retentionDuration":1000}"#;
    let definition = json(&format!(r#"{{"id":"c","partitionKey":{HASH},{policy}}}"#));
    engine.catalog().replace_container("db", "c", &definition, &Precondition::default())
}

/// LSNs of all versions behind a position, and the position behind them.
fn versions(
    engine: &Engine,
    container: &Arc<Container>,
    start: FeedStart,
) -> Result<(Vec<i64>, String), EngineError> {
    let page = PageRequest { item_count_max: Some(-1), ..PageRequest::default() };
    let (mode, since) = (FeedMode::AllVersions, None);
    let mut request = ChangesRequest { mode, page, start, since, all_previous_images: false };
    let mut lsns = Vec::new();
    loop {
        let changes = engine.read_changes(container, &request).result?;
        let rows = json(std::str::from_utf8(&changes.rows).unwrap());
        let lsn = |row: &Value| row.get("metadata").unwrap().get("lsn").unwrap().as_i64().unwrap();
        lsns.extend(rows.as_array().unwrap().iter().map(lsn));
        if changes.count == 0 && !changes.more {
            return Ok((lsns, changes.etag));
        }
        request.start = FeedStart::After(changes.etag);
    }
}

fn is_too_early(result: Result<(Vec<i64>, String), EngineError>) -> bool {
    matches!(result, Err(EngineError::BadRequest { message }) if message.contains("retention period"))
}

fn is_thread(name: &str) -> bool {
    std::thread::current().name() == Some(name)
}

/// Runs in a thread whose name hooks check.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> std::thread::ScopedJoinHandle<'scope, T> {
    std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, run).unwrap()
}

#[test]
fn a_write_that_was_prepared_before_has_its_version() {
    let (fixture, calls) = hooked();
    fixture.create(r#"{"id":"a","pk":"p","n":1}"#).unwrap();
    let (met, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (first, waits) = (AtomicBool::new(true), (Arc::clone(&met), Arc::clone(&go)));
    calls.set_hook(move |call| {
        let reads = matches!(call, Call::Get(..)) && is_thread("writer");
        if reads && first.swap(false, Ordering::SeqCst) {
            waits.0.wait();
            waits.1.wait();
        }
    });
    std::thread::scope(|scope| {
        let writer = spawn(scope, "writer", || fixture.upsert(r#"{"id":"a","pk":"p","n":2}"#));
        met.wait();
        let container = switch_on(&fixture.engine).unwrap();
        let (_, start) = versions(&fixture.engine, &container, FeedStart::Now).unwrap();
        go.wait();
        writer.join().unwrap().unwrap();
        let (lsns, _) = versions(&fixture.engine, &container, FeedStart::After(start)).unwrap();
        assert_eq!(lsns, [2]);
    });
}

#[test]
fn a_write_that_is_being_committed_is_before_the_beginning() {
    let (fixture, calls) = hooked();
    fixture.create(r#"{"id":"a","pk":"p","n":1}"#).unwrap();
    let (met, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let waits = (Arc::clone(&met), Arc::clone(&go));
    let (writes, switches) = (AtomicBool::new(true), AtomicBool::new(true));
    calls.set_hook(move |call| {
        if !matches!(call, Call::Commit(_)) {
            return;
        }
        if is_thread("writer") && writes.swap(false, Ordering::SeqCst) {
            waits.0.wait();
            waits.1.wait();
        }
        // The definition is about to be committed: the write goes on at the same time.
        if is_thread("switch") && switches.swap(false, Ordering::SeqCst) {
            waits.1.wait();
        }
    });
    std::thread::scope(|scope| {
        let writer = spawn(scope, "writer", || fixture.upsert(r#"{"id":"a","pk":"p","n":2}"#));
        met.wait();
        let switch = spawn(scope, "switch", || switch_on(&fixture.engine));
        let container = switch.join().unwrap().unwrap();
        writer.join().unwrap().unwrap();
        // Its version is not there, so nobody may begin before it.
        let before = FeedStart::After("\"1\"".to_owned());
        assert!(is_too_early(versions(&fixture.engine, &container, before)));
        let behind = FeedStart::After("\"2\"".to_owned());
        assert_eq!(versions(&fixture.engine, &container, behind).unwrap().0, Vec::<i64>::new());
    });
}

/// Many writers, none of whom waits for the switch.
#[test]
fn no_version_is_missing_behind_the_beginning() {
    let fixture = Fixture::with_key(HASH, "", 3);
    let stop = AtomicBool::new(false);
    let (container, start) = std::thread::scope(|scope| {
        for writer in 0..4 {
            let (fixture, stop) = (&fixture, &stop);
            scope.spawn(move || {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    let item = format!(r#"{{"id":"{}","pk":"{}","n":{n}}}"#, n % 7, writer * 8 + n % 8);
                    fixture.upsert(&item).unwrap();
                    n += 1;
                }
            });
        }
        let container = switch_on(&fixture.engine).unwrap();
        let (_, start) = versions(&fixture.engine, &container, FeedStart::Now).unwrap();
        let target = lsns(&container).iter().sum::<i64>() + 300;
        while lsns(&container).iter().sum::<i64>() < target {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        (container, start)
    });
    let lsn_of = |part: &str| part.split(':').next_back().unwrap().parse::<i64>().unwrap();
    let begins: i64 = start.trim_matches('"').split(',').map(lsn_of).sum();
    let ends: i64 = lsns(&container).iter().sum();
    let (found, _) = versions(&fixture.engine, &container, FeedStart::After(start)).unwrap();
    assert_eq!(found.len() as i64, ends - begins);
}

fn lsns(container: &Container) -> Vec<i64> {
    container.positions().iter().map(|position| position.lsn as i64).collect()
}

/// The server is killed after the definition was committed and before it is known where versions begin.
#[test]
fn the_beginning_is_found_after_a_restart() {
    let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
    let fixture = Fixture::on(Arc::clone(&storage) as Arc<_>, HASH, "", 1);
    fixture.create(r#"{"id":"a","pk":"p","n":1}"#).unwrap();
    storage.script_commits([CommitFault::Pass, CommitFault::Poison]);
    assert!(switch_on(&fixture.engine).is_err());
    drop(fixture);
    storage.reopen().unwrap();
    let engine = Engine::open(storage, options(&FakeClock::new(), 1)).unwrap();
    let container = engine.catalog().container("db", "c").unwrap();
    assert!(is_too_early(versions(&engine, &container, FeedStart::After("\"0\"".to_owned()))));
    let (_, start) = versions(&engine, &container, FeedStart::Now).unwrap();
    assert_eq!(start, "\"1\"");
    let split = engine.split_partition(&container, "0");
    assert!(matches!(split, Err(EngineError::CannotSplit { .. })), "one item cannot be divided: {split:?}");
}
