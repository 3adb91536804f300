//! What is stored of profiles, advice and recorded requests: not in backups, and gone with its database.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use quire_engine::{
    AdviceInput, Advisor, AnsweredRequest, Container, Engine, EngineError, Precondition, ProfileRequest,
};
use quire_profile::{ActionSource, Operation};
use quire_storage::memory::MemoryStorage;
use quire_value::{Object, Value};
use support::{check_sound, container, json, open, upsert, wait_until, wait_until_idle};

const ANY: Precondition = Precondition { if_match: None };

/// A list with one finding, about nothing.
struct OneFinding;

impl Advisor for OneFinding {
    fn evaluate(&self, input: &AdviceInput<'_>) -> Result<Value, EngineError> {
        Ok(list(input.revision))
    }
}

fn list(revision: u64) -> Value {
    json(&format!(
        r#"{{"revision":{revision},"findings":[{{"id":"a-1","state":"open","reason":null}}],"notEnough":[]}}"#
    ))
}

fn record(engine: &Engine, container: &Container) {
    let (_, observed) = engine.observe(|| ());
    let request = AnsweredRequest {
        operation: Operation::Read,
        status: 200,
        sub_status: 0,
        charge: 1.0,
        bytes: 10,
        micros: 5,
        action: Some((1, ActionSource::Connection)),
        if_match: false,
        observed,
    };
    engine.record(container, request);
}

fn reads(engine: &Engine) -> Option<u64> {
    engine.workload("d").unwrap().get("operations")?.get("c")?.get("read")?.as_u64()
}

/// An engine that has a profile, advice, a decision about it, and a record.
fn observed(storage: &MemoryStorage) -> (Engine, Arc<Container>) {
    let engine = open(storage);
    engine.set_advisor(Arc::new(OneFinding));
    let container = container(&engine);
    (0..50).for_each(|number| upsert(&engine, &container, &"x".repeat(number + 1), number as u64).unwrap());
    record(&engine, &container);
    engine.evaluate_advice("d", Value::Object(Object::new())).unwrap();
    wait_until_idle(&engine);
    engine.dismiss_finding("d", "a-1", "it is so").unwrap();
    assert_eq!((engine.profiles("d").unwrap().len(), reads(&engine)), (1, Some(1)));
    (engine, container)
}

#[test]
fn a_backup_has_items_and_nothing_that_was_observed() {
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup");
    let storage = MemoryStorage::new();
    let (engine, _) = observed(&storage);
    engine.backup(&backup).unwrap();
    engine.close().unwrap();
    check_sound(&storage.reopen());
    let restored = MemoryStorage::new();
    quire_engine::restore(&backup, &restored).unwrap();
    check_sound(&restored);
    let again = open(&restored);
    again.set_advisor(Arc::new(OneFinding));
    assert_eq!(again.profiles("d").unwrap(), Vec::<String>::new());
    assert_eq!(reads(&again), None);
    assert!(again.advice("d").unwrap().is_none());
    // What was decided is not remembered either: all of it starts again, and works.
    again.evaluate_advice("d", Value::Object(Object::new())).unwrap();
    wait_until_idle(&again);
    assert_eq!(again.profiles("d").unwrap().len(), 1);
    let state = again.finding("d", "a-1").unwrap();
    assert_eq!(state.get("state").and_then(Value::as_str), Some("open"));
}

#[test]
fn everything_that_was_observed_goes_with_its_database() {
    let storage = MemoryStorage::new();
    let (engine, container) = observed(&storage);
    engine.close().unwrap();
    let engine = open(&storage);
    assert_eq!(reads(&engine), Some(1), "it was stored");
    engine.catalog().delete_database("d", &ANY).unwrap();
    wait_until_idle(&engine);
    // A request that was under way, and is answered after the drop.
    record(&engine, &container);
    engine.close().unwrap();
    check_sound(&storage.reopen());
    let others = open(&storage);
    support::database(&others, "d");
    assert_eq!(reads(&others), None);
    assert!(others.advice("d").unwrap().is_none());
}

/// Its rules say when they are asked, and wait.
struct WaitingAdvisor {
    asked: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl Advisor for WaitingAdvisor {
    fn evaluate(&self, input: &AdviceInput<'_>) -> Result<Value, EngineError> {
        self.asked.lock().send(()).unwrap();
        self.go_on.lock().recv().unwrap();
        Ok(list(input.revision))
    }
}

#[test]
fn a_database_that_is_deleted_while_it_is_advised_on_leaves_nothing() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    let ((asked, is_asked), (goes, go_on)) = (channel(), channel());
    engine.set_advisor(Arc::new(WaitingAdvisor { asked: Mutex::new(asked), go_on: Mutex::new(go_on) }));
    let container = container(&engine);
    upsert(&engine, &container, "x", 1).unwrap();
    engine.build_profile("d", ProfileRequest::default()).unwrap();
    engine.evaluate_advice("d", Value::Object(Object::new())).unwrap();
    is_asked.recv().unwrap();
    engine.catalog().delete_database("d", &ANY).unwrap();
    goes.send(()).unwrap();
    wait_until_idle(&engine);
    wait_until("the job has ended", || engine.jobs().unwrap().iter().all(|job| job.state.is_finished()));
    engine.close().unwrap();
    check_sound(&storage.reopen());
}
