//! Evaluations that need much memory are few at a time in a process: this is one test in a process of its own.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quire_engine::{Engine, EngineError, SqlError};
use quire_sql::Allowance;
use quire_storage::memory::MemoryStorage;
use support::fixture::{FakeClock, Fixture, json, options};

/// What is held ends then, whatever the test does.
const HELD_MAX: Duration = Duration::from_secs(30);

/// A write that needs a place waits for it, but not for long; others do not wait.
#[test]
fn a_write_waits_a_short_time_for_its_turn() {
    let clock = FakeClock::new();
    let storage = Arc::new(MemoryStorage::new());
    let engine = Engine::open(storage.clone(), options(&clock, 1)).expect("opens");
    engine.catalog().create_database(&json(r#"{"id":"db"}"#), None).expect("database");
    let definition = json(
        r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
            "computedProperties":[{"name":"p","query":"SELECT VALUE LENGTH(REPLACE(c.a, 'a', c.b)) FROM c"}],
            "indexingPolicy":{"includedPaths":[{"path":"/*"},{"path":"/p/?"}]}}"#,
    );
    let container = engine.catalog().create_container("db", &definition, None).expect("container");
    let fixture = Fixture { engine, container, clock, storage };
    let large = |id: &str| {
        format!(r#"{{"id":"{id}","pk":"1","a":"{}","b":"{}"}}"#, "a".repeat(2_000), "b".repeat(1_000))
    };
    fixture.create(&large("0")).expect("nobody else evaluates");
    let (is_over, held, begun) = (AtomicBool::new(false), AtomicUsize::new(0), Instant::now());
    let hold = || {
        let held_here = Allowance::alone(|allowance| {
            let meter = allowance.meter();
            meter.build(2 << 20)?;
            held.fetch_add(1, Ordering::SeqCst);
            while !is_over.load(Ordering::SeqCst) && begun.elapsed() < HELD_MAX {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        held_here.expect("in its turn");
    };
    std::thread::scope(|threads| {
        (0..4).for_each(|_| drop(threads.spawn(hold)));
        while held.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(held.load(Ordering::SeqCst) < 4, "the others wait");
        fixture.create(r#"{"id":"small","pk":"1","a":"a","b":"b"}"#).expect("it needs no place");
        let refused = fixture.create(&large("1"));
        let is_held = begun.elapsed() < HELD_MAX;
        is_over.store(true, Ordering::SeqCst);
        assert!(
            matches!(refused, Err(EngineError::Sql(SqlError::ServerMemory { .. }))),
            "{:?}",
            refused.err()
        );
        assert!(is_held, "it has waited for the others");
    });
    fixture.create(&large("1")).expect("it may come again");
}
