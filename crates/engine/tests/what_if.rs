//! What-if: a change is tried on a copy of the items, with recorded requests. The originals stay as they are.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use quire_engine::{
    Answer, AnsweredRequest, Container, Engine, EngineError, ItemWritten, JobControl, JobState, Parameters,
    Precondition, ReadItem, WriteItem, WriteKind,
};
use quire_profile::{ActionSource, Operation};
use quire_resource::PartitionKey;
use quire_storage::memory::MemoryStorage;
use quire_value::Value;
use support::{database, items, json, open, page_request, wait_until, wait_until_idle};

const ANY: Precondition = Precondition { if_match: None };

/// A database whose requests are recorded, as the server records them.
struct RecordedDatabase {
    engine: Engine,
}

impl RecordedDatabase {
    fn new(storage: &MemoryStorage) -> RecordedDatabase {
        let engine = open(storage);
        database(&engine, "d");
        RecordedDatabase { engine }
    }

    fn container(&self, body: &str) -> Arc<Container> {
        self.engine.catalog().create_container("d", &json(body), None).unwrap()
    }

    fn call<T>(
        &self,
        container: &Arc<Container>,
        (operation, action): (Operation, Option<u64>),
        call: impl FnOnce() -> Answer<T>,
    ) -> T {
        let (answer, observed) = self.engine.observe(call);
        self.engine.record(
            container,
            AnsweredRequest {
                operation,
                status: 200,
                sub_status: 0,
                charge: answer.charge,
                bytes: 100,
                micros: 5,
                action: action.map(|action| (action, ActionSource::Header)),
                if_match: false,
                observed,
            },
        );
        answer.result.unwrap()
    }

    fn write(&self, container: &Arc<Container>, kind: WriteKind, body: &str) -> ItemWritten {
        let operation = match kind {
            WriteKind::Create => Operation::Create,
            WriteKind::Upsert => Operation::Upsert,
            WriteKind::Patch { .. } => Operation::Patch,
            _ => Operation::Replace,
        };
        let partition_key = match &kind {
            WriteKind::Patch { id, .. } => Some(key(id)),
            _ => None,
        };
        let write = WriteItem::new(kind, partition_key, body.to_owned());
        self.call(container, (operation, None), || self.engine.write_item(container, write))
    }

    fn read(&self, container: &Arc<Container>, id: &str, action: Option<u64>) {
        let key = key(id);
        let read = ReadItem { id, partition_key: &key, if_none_match: None, session: None };
        self.call(container, (Operation::Read, action), || self.engine.read_item(container, &read));
    }

    fn query(
        &self,
        container: &Arc<Container>,
        text: &str,
        parameters: &[(&str, Value)],
        action: Option<u64>,
    ) {
        let parameters =
            Parameters(parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect());
        self.call(container, (Operation::Query, action), || {
            self.engine.query_items(container, text, &parameters, &page_request())
        });
    }

    /// The result of a what-if that is done.
    fn what_if(&self, body: &str) -> Value {
        let job = self.engine.start_what_if("d", &json(body)).unwrap();
        wait_until_idle(&self.engine);
        let job = self.engine.job(&job.id).unwrap();
        assert_eq!(job.state, JobState::Done, "{:?}", job.error);
        job.result
    }

    fn databases(&self) -> Vec<String> {
        self.engine.catalog().databases().iter().map(|own| own.id.clone()).collect()
    }
}

fn key(id: &str) -> PartitionKey {
    PartitionKey::from_header(&format!("[{id:?}]")).unwrap()
}

fn number(result: &Value, path: &[&str]) -> f64 {
    let found = path.iter().try_fold(result, |value, name| value.get(name));
    found.and_then(Value::as_number).unwrap_or_else(|| panic!("{path:?} in {}", result.to_json())).as_f64()
}

/// What must be the same for the same seed.
fn charges(result: &Value) -> String {
    let charge = |side: &str| number(result, &[side, "charge"]);
    let members = ["sample", "replayed", "skipped", "operations", "measured"];
    let members = members.map(|name| result.get(name).map(Value::to_json).unwrap_or_default());
    format!("{} {} {members:?}", charge("now"), charge("then"))
}

const NOTES: &str = r#"{"id":"notes","partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#;

fn note(number: usize, text: &str) -> String {
    format!(
        r#"{{"id":"n{number}","title":"title {number}","text":"{text}","stars":{number},"tags":["a","b"]}}"#
    )
}

/// 60 notes, with 40 replaces, 20 patches, 20 creates, 30 reads and 10 queries.
fn notes(storage: &MemoryStorage) -> (RecordedDatabase, Arc<Container>) {
    let recorded = RecordedDatabase::new(storage);
    let container = recorded.container(NOTES);
    for number in 0..60 {
        support::write(&recorded.engine, &container, WriteKind::Create, &note(number, "old")).unwrap();
    }
    for number in 0..40 {
        recorded.write(&container, WriteKind::Replace { id: format!("n{number}") }, &note(number, "new"));
    }
    for number in 0..20 {
        let patch = r#"{"operations":[{"op":"set","path":"/stars","value":99},{"op":"add","path":"/tags/-","value":"c"}]}"#;
        recorded.write(&container, WriteKind::Patch { id: format!("n{number}"), if_none_match: None }, patch);
        recorded.write(&container, WriteKind::Create, &note(100 + number, "made"));
    }
    (0..30).for_each(|number| recorded.read(&container, &format!("n{number}"), None));
    for number in 0..10 {
        let text = "SELECT * FROM c WHERE c.title = @title";
        recorded.query(&container, text, &[("@title", Value::from(format!("title {number}")))], None);
    }
    (recorded, container)
}

const WITHOUT_TEXT_AND_TAGS: &str = r#"{"container":{"id":"notes","partitionKey":{"paths":["/id"],"kind":"Hash","version":2},
    "indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/text/?"},{"path":"/tags/*"}]}}}"#;

#[test]
fn another_indexing_policy_is_measured() {
    let storage = MemoryStorage::new();
    let (recorded, container) = notes(&storage);
    let (before, catalog) = (items(&recorded.engine, &container), support::dump(&recorded.engine));
    let result = recorded.what_if(WITHOUT_TEXT_AND_TAGS);
    assert_eq!(result.get("sample").unwrap().to_json(), r#"{"items":80,"share":1}"#);
    assert_eq!(result.get("replayed").and_then(Value::as_u64), Some(120), "{}", result.to_json());
    assert_eq!(result.get("skipped").unwrap().to_json(), "{}");
    // Three values less to index, each 0.35; twice in a replace. A patch adds a fourth one, a tag. Items that were patched and
    // are replaced again have it, too.
    let saved = number(&result, &["now", "charge"]) - number(&result, &["then", "charge"]);
    let (least, most) = (0.35 * 3.0 * (2.0 * 60.0 + 20.0), 0.35 * 4.0 * (2.0 * 60.0 + 20.0));
    assert!((least..=most).contains(&saved), "{saved}: {}", result.to_json());
    // All of it was recorded within a day, which stands for one.
    assert!((number(&result, &["measured"]) - saved).abs() < 0.01, "{}", result.to_json());
    assert_eq!(result.get("predicted"), Some(&Value::Null));
    let operations: BTreeMap<&str, u64> = result
        .get("operations")
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .map(|own| {
            (own.get("operation").unwrap().as_str().unwrap(), own.get("count").unwrap().as_u64().unwrap())
        })
        .collect();
    let expected = [("create", 20), ("patch", 20), ("query", 10), ("read", 30), ("replace", 40)];
    assert_eq!(operations, BTreeMap::from(expected));
    assert_eq!(number(&result, &["now", "roundTrips"]), 120.0);
    // The originals were not touched, and nothing is left.
    assert_eq!(items(&recorded.engine, &container), before);
    assert_eq!(support::dump(&recorded.engine), catalog);
    assert_eq!(recorded.engine.workload("d").unwrap().get("kept").and_then(Value::as_u64), Some(120));
    // The same seed gives the same charges.
    assert_eq!(charges(&recorded.what_if(WITHOUT_TEXT_AND_TAGS)), charges(&result));
    recorded.engine.close().unwrap();
    let report = quire_engine::verify(&storage.reopen()).unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
}

#[test]
fn a_replay_costs_what_was_recorded() {
    let (recorded, _) = notes(&MemoryStorage::new());
    let recorded_charge: f64 = recorded
        .engine
        .workload_lines("d")
        .unwrap()
        .lines()
        .map(|line| number(&json(line), &["charge"]))
        .sum();
    let result = recorded.what_if(r#"{"container":{"id":"notes","partitionKey":{"paths":["/id"],"kind":"Hash","version":2},"defaultTtl":-1}}"#);
    let now = number(&result, &["now", "charge"]);
    // Sizes and values are not the same, but nearly.
    assert!((now / recorded_charge - 1.0).abs() < 0.03, "{now} {recorded_charge}");
    assert_eq!(number(&result, &["then", "charge"]), now);
    assert_eq!(number(&result, &["measured"]), 0.0);
}

#[test]
fn a_refactoring_is_made_on_the_copy() {
    let storage = MemoryStorage::new();
    let (recorded, container) = notes(&storage);
    let before = items(&recorded.engine, &container);
    let body =
        r#"{"refactoring":{"kind":"rename","container":"notes","from":"/title","to":"/name"},"keep":true}"#;
    let result = recorded.what_if(body);
    assert_eq!(result.get("replayed").and_then(Value::as_u64), Some(120), "{}", result.to_json());
    // Queries go by the new name: they cost the same.
    assert!((number(&result, &["measured"])).abs() < 0.5, "{}", result.to_json());
    assert_eq!(items(&recorded.engine, &container), before);
    let kept: Vec<String> = recorded.databases().into_iter().filter(|name| name.starts_with('_')).collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    let copy = |side: &str, path: &str| {
        let name = kept.iter().find(|name| name.ends_with(side)).unwrap();
        let copy = recorded.engine.catalog().container(name, "notes").unwrap();
        items(&recorded.engine, &copy).values().filter(|item| json(item).get(path).is_some()).count()
    };
    assert_eq!((copy("-now", "title"), copy("-now", "name")), (100, 0));
    assert_eq!((copy("-then", "title"), copy("-then", "name")), (0, 100));
    // Clients cannot take such names, and can delete what was kept.
    let taken = recorded.engine.catalog().create_database(&json(r#"{"id":"_quire-mine"}"#), None);
    assert!(matches!(taken, Err(EngineError::BadRequest { .. })));
    kept.iter().for_each(|name| recorded.engine.catalog().delete_database(name, &ANY).unwrap());
    let unknown = r#"{"refactoring":{"kind":"tidy-up","container":"notes"}}"#;
    let refused = recorded.engine.start_what_if("d", &json(unknown));
    assert!(matches!(refused, Err(EngineError::RefactoringInvalid(_))), "{refused:?}");
}

#[test]
fn invalid_what_ifs_are_refused() {
    let (recorded, _) = notes(&MemoryStorage::new());
    let start = |database: &str, body: &str| recorded.engine.start_what_if(database, &json(body));
    let not_found = |result| {
        matches!(result, Err(EngineError::ResourceNotFound { .. } | EngineError::OwnerNotFound { .. }))
    };
    assert!(not_found(start("d", r#"{"finding":"a-1"}"#)));
    assert!(not_found(start("other", r#"{"finding":"a-1"}"#)));
    assert!(not_found(start("d", r#"{"container":{"id":"other","partitionKey":{"paths":["/id"]}}}"#)));
    assert!(not_found(start(
        "d",
        r#"{"refactoring":{"kind":"rename","container":"x","from":"/a","to":"/b"}}"#
    )));
    assert!(matches!(start("d", r#"{"model":{"version":2}}"#), Err(EngineError::ModelInvalid(_))));
    assert!(matches!(start("d", "{}"), Err(EngineError::BadRequest { .. })));
    let other_key =
        r#"{"container":{"id":"notes","partitionKey":{"paths":["/title"],"kind":"Hash","version":2}}}"#;
    assert!(start("d", other_key).is_err());
    assert_eq!(recorded.engine.jobs().unwrap().len(), 0);
}

/// So many recorded reads that a what-if takes a while.
fn busy(storage: &MemoryStorage) -> RecordedDatabase {
    let (recorded, container) = notes(storage);
    (0..60_000).for_each(|number| recorded.read(&container, &format!("n{}", number % 60), None));
    recorded
}

const LONG: &str = r#"{"container":{"id":"notes","partitionKey":{"paths":["/id"],"kind":"Hash","version":2},"defaultTtl":-1},"operations":65536,"seconds":600}"#;

fn has_scratch(engine: &Engine) -> bool {
    engine.catalog().databases().iter().any(|own| own.id.starts_with("_quire-what-if-"))
}

#[test]
fn one_runs_at_a_time_and_a_cancelled_one_leaves_nothing() {
    let recorded = busy(&MemoryStorage::new());
    let job = recorded.engine.start_what_if("d", &json(LONG)).unwrap();
    let second = recorded.engine.start_what_if("d", &json(LONG));
    assert!(matches!(second, Err(EngineError::WhatIfRunning { .. })), "{second:?}");
    wait_until("it has begun", || has_scratch(&recorded.engine));
    assert!(recorded.engine.control_job(&job.id, JobControl::Pause).is_err());
    recorded.engine.control_job(&job.id, JobControl::Cancel).unwrap();
    wait_until_idle(&recorded.engine);
    assert_eq!(recorded.engine.job(&job.id).unwrap().state, JobState::Cancelled);
    assert_eq!(recorded.databases(), ["d"]);
}

#[test]
fn a_replay_ends_when_its_time_is_over() {
    let recorded = RecordedDatabase::new(&MemoryStorage::new());
    let container = recorded.container(NOTES);
    let item = |length: usize| format!(r#"{{"id":"n","l":{:?}}}"#, vec![1; length]);
    support::write(&recorded.engine, &container, WriteKind::Upsert, &item(1)).unwrap();
    let text = "SELECT VALUE COUNT(1) FROM c JOIN a IN c.l JOIN b IN c.l JOIN d IN c.l";
    (0..400).for_each(|_| recorded.query(&container, text, &[], None));
    // From now on the query takes a while.
    support::write(&recorded.engine, &container, WriteKind::Upsert, &item(60)).unwrap();
    let result = recorded.what_if(&LONG.replace("600", "1"));
    let late = number(&result, &["skipped", "out of time"]);
    assert_eq!(late + number(&result, &["replayed"]), 400.0);
}

#[test]
fn a_run_that_was_killed_leaves_no_database_behind() {
    let storage = MemoryStorage::new();
    let recorded = busy(&storage);
    let job = recorded.engine.start_what_if("d", &json(&LONG.replace("600", "2"))).unwrap();
    wait_until("it has begun", || has_scratch(&recorded.engine));
    // Not closed: as after a kill.
    drop(recorded);
    let engine = open(&storage);
    assert!(has_scratch(&engine), "they were durable");
    wait_until_idle(&engine);
    assert_eq!(engine.job(&job.id).unwrap().state, JobState::Done);
    assert!(!has_scratch(&engine));
    // The same where its database is gone meanwhile.
    let job = engine.start_what_if("d", &json(LONG)).unwrap();
    wait_until("it has begun", || has_scratch(&engine));
    drop(engine);
    let engine = open(&storage);
    engine.catalog().delete_database("d", &ANY).unwrap();
    wait_until_idle(&engine);
    assert!(engine.job(&job.id).unwrap().state.is_finished());
    assert!(!has_scratch(&engine));
}

#[test]
fn of_a_larger_container_a_sample_is_tried() {
    let (recorded, _) = notes(&MemoryStorage::new());
    let body = WITHOUT_TEXT_AND_TAGS.replacen('{', r#"{"sampleItems":40,"seed":7,"#, 1);
    let result = recorded.what_if(&body);
    assert_eq!(number(&result, &["sample", "items"]), 40.0);
    assert_eq!(number(&result, &["sample", "share"]), 0.5);
    // Queries are priced: they cost what was recorded.
    let queries = result.get("operations").unwrap().as_array().unwrap();
    let queries =
        queries.iter().find(|own| own.get("operation").and_then(Value::as_str) == Some("query")).unwrap();
    assert_eq!(queries.get("count").and_then(Value::as_u64), Some(10));
    assert_eq!(queries.get("now"), queries.get("then"));
    assert!(number(&result, &["skipped", "item not in the sample"]) > 0.0, "{}", result.to_json());
    // What is not replayed counts in proportion.
    let all = number(&recorded.what_if(WITHOUT_TEXT_AND_TAGS), &["measured"]);
    let measured = number(&result, &["measured"]);
    assert!((measured / all - 1.0).abs() < 0.1, "{measured} {all}");
    assert_eq!(charges(&recorded.what_if(&body)), charges(&result));
}

#[test]
fn a_container_that_goes_meanwhile_is_an_error_of_the_job() {
    let recorded = busy(&MemoryStorage::new());
    let first = recorded.engine.start_what_if("d", &json(LONG)).unwrap();
    wait_until("it has begun", || has_scratch(&recorded.engine));
    recorded.engine.control_job(&first.id, JobControl::Cancel).unwrap();
    wait_until("it has ended", || recorded.engine.job(&first.id).unwrap().state.is_finished());
    recorded.engine.catalog().delete_container("d", "notes", &ANY).unwrap();
    assert!(recorded.engine.start_what_if("d", &json(LONG)).is_err());
    wait_until_idle(&recorded.engine);
    assert_eq!(recorded.databases(), ["d"]);
}
