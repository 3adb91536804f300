//! Refactorings: forward, followed, finished and undone, under writers and kills. What items must be is computed here from
//! what was written, by text, without the engine's code.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "refactorings/arrays.rs"]
mod arrays; // members of array elements
#[path = "refactorings/embed.rs"]
mod embed; // items become parts of others
#[path = "refactorings/extract.rs"]
mod extract; // parts of items become items
#[path = "refactorings/flip.rs"]
mod flip; // arrays of ids become references to their owner
#[path = "refactorings/merge.rs"]
mod merge; // join items become arrays
#[path = "refactorings/split.rs"]
mod split; // arrays become windows
#[path = "refactorings/structural.rs"]
mod structural; // what tests of structure share
mod support;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quire_engine::{
    Container, Engine, EngineError, IndexingDirective, JobControl, ModelCondition, Precondition,
    RefactoringDryRun, WriteItem, WriteKind,
};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Commit, Direction, KeyRange, Scan, Space, Storage, Token};
use quire_value::Value;
use support::{
    check_sound, container, items, json, killed_after, open, open_on, wait_until, wait_until_idle,
};

const RENAME: &str = r#"{"kind":"rename","container":"c","from":"/fname","to":"/firstName"}"#;
/// Three steps.
const ITEMS: usize = 1_130;
/// The key space of items.
const ITEMS_SPACE: u8 = 1;
const SYSTEM: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

/// An item in the old form (`fname`) or in the new one.
fn person(number: usize, name: &str, round: usize) -> String {
    format!(r#"{{"id":"p{number}","pk":"{}","{name}":"name {number} {round}","age":{round}}}"#, number % 7)
}

fn put(engine: &Engine, container: &Arc<Container>, body: &str) {
    support::write(engine, container, WriteKind::Upsert, body).unwrap();
}

/// All items by id, without what the server adds.
fn stored(engine: &Engine) -> BTreeMap<String, String> {
    let container = engine.catalog().container("d", "c").unwrap();
    let own = |text: String| {
        let mut item = json(&text);
        SYSTEM.iter().for_each(|name| drop(item.as_object_mut().unwrap().remove(name)));
        item.to_json()
    };
    items(engine, &container).into_iter().map(|(id, text)| (id, own(text))).collect()
}

fn filled(storage: &MemoryStorage) -> (Engine, Arc<Container>) {
    let engine = open(storage);
    let container = container(&engine);
    (0..ITEMS).for_each(|number| put(&engine, &container, &person(number, "fname", 0)));
    (engine, container)
}

fn all_people(name: &str) -> BTreeMap<String, String> {
    (0..ITEMS).map(|number| (format!("p{number}"), person(number, name, 0))).collect()
}

fn start(engine: &Engine, body: &str) -> Result<(), EngineError> {
    engine.start_refactoring("d", json(body)).map(drop)
}

fn state(engine: &Engine) -> Value {
    engine.refactoring("d", "r-1").unwrap()
}

fn wait_for(engine: &Engine, wanted: &str) -> Value {
    wait_until(wanted, || state(engine).get("state").and_then(Value::as_str) == Some(wanted));
    wait_until_idle(engine);
    state(engine)
}

#[test]
fn an_untouched_expansion_is_undone_to_what_was() {
    let storage = MemoryStorage::new();
    let (engine, container) = filled(&storage);
    put(&engine, &container, r#"{"id":"both","pk":"x","fname":"same","firstName":"same"}"#);
    put(&engine, &container, r#"{"id":"differs","pk":"x","fname":"old","firstName":"new"}"#);
    put(&engine, &container, r#"{"id":"neither","pk":"x","other":[1,{"fname":2}]}"#);
    let before = stored(&engine);
    start(&engine, RENAME).unwrap();
    let expanded = wait_for(&engine, "expanded");
    assert_eq!(expanded.get("converted").and_then(Value::as_u64), Some(ITEMS as u64 + 1), "{expanded:?}");
    let mut expected = all_people("firstName");
    expected.insert("both".to_owned(), r#"{"id":"both","pk":"x","firstName":"same"}"#.to_owned());
    expected.insert("differs".to_owned(), before["differs"].clone());
    expected.insert("neither".to_owned(), before["neither"].clone());
    assert_eq!(stored(&engine), expected);
    let conflicts = expanded.get("conflicts").and_then(Value::as_array).unwrap();
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    assert_eq!(conflicts[0].get("id").and_then(Value::as_str), Some("differs"));
    let second = start(&engine, RENAME);
    assert!(matches!(second, Err(EngineError::RefactoringRunning { .. })), "{second:?}");
    engine.undo_refactoring("d", "r-1").unwrap();
    let undone = wait_for(&engine, "undone");
    assert_eq!(undone.get("conflictCount").and_then(Value::as_u64), Some(1), "{undone:?}");
    let parsed =
        |all: BTreeMap<String, String>| -> Vec<Value> { all.values().map(|text| json(text)).collect() };
    let (now, then) = (parsed(stored(&engine)), parsed(before));
    // The order of members is that of before, but for an item that had both.
    assert_eq!(now.iter().filter(|item| !then.contains(item)).count(), 0);
    assert!(matches!(engine.undo_refactoring("d", "r-1"), Err(EngineError::RefactoringRefuses { .. })));
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

#[test]
fn later_writes_are_followed_until_it_is_finished() {
    let storage = MemoryStorage::new();
    let (engine, container) = filled(&storage);
    start(&engine, RENAME).unwrap();
    wait_for(&engine, "expanded");
    put(&engine, &container, &person(3, "fname", 8));
    put(&engine, &container, &person(1_000, "fname", 8));
    let is_followed = || {
        let all = stored(&engine);
        all["p3"] == person(3, "firstName", 8) && all["p1000"] == person(1_000, "firstName", 8)
    };
    wait_until("later writes are converted", is_followed);
    engine.finish_refactoring("d", "r-1").unwrap();
    let finished = wait_for(&engine, "finished");
    assert!(finished.get("journalUntil").and_then(Value::as_str).is_some(), "{finished:?}");
    assert!(matches!(engine.finish_refactoring("d", "r-1"), Err(EngineError::RefactoringRefuses { .. })));
    // Changed by a client since: left, and listed.
    put(&engine, &container, &person(5, "firstName", 9));
    put(&engine, &container, &person(6, "fname", 9));
    engine.undo_refactoring("d", "r-1").unwrap();
    let undone = wait_for(&engine, "undone");
    let conflicts = undone.get("conflicts").and_then(Value::as_array).unwrap();
    let ids: Vec<&str> = conflicts.iter().map(|own| own.get("id").and_then(Value::as_str).unwrap()).collect();
    assert!(ids.len() == 2 && ids.contains(&"p5") && ids.contains(&"p6"), "{conflicts:?}");
    let mut expected = all_people("fname");
    expected.insert("p3".to_owned(), person(3, "fname", 8));
    expected.insert("p1000".to_owned(), person(1_000, "fname", 8));
    expected.insert("p5".to_owned(), person(5, "firstName", 9));
    expected.insert("p6".to_owned(), person(6, "fname", 9));
    assert_eq!(stored(&engine), expected);
}

#[test]
fn values_are_converted_where_nothing_is_lost() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    let container = container(&engine);
    put(&engine, &container, r#"{"id":"a","pk":"1","line":{"price":"12.5"}}"#);
    put(&engine, &container, r#"{"id":"b","pk":"1","line":{"price":"secret"}}"#);
    put(&engine, &container, r#"{"id":"c","pk":"1","line":{"price":3}}"#);
    let body = r#"{"kind":"retype","container":"c","path":"/line/price","as":"number","finish":"auto"}"#;
    let RefactoringDryRun::Done(dry) = engine.dry_run_refactoring("d", &json(body)).unwrap() else {
        panic!()
    };
    let figure = |name: &str| dry.get(name).and_then(Value::as_u64);
    assert_eq!((figure("items"), figure("wouldConvert"), figure("wouldLeave")), (Some(3), Some(1), Some(1)));
    assert_eq!(dry.get("examples").and_then(Value::as_array).map(<[Value]>::len), Some(1));
    assert_eq!(stored(&engine)["a"], r#"{"id":"a","pk":"1","line":{"price":"12.5"}}"#);
    start(&engine, body).unwrap();
    let finished = wait_for(&engine, "finished");
    assert_eq!(stored(&engine)["a"], r#"{"id":"a","pk":"1","line":{"price":12.5}}"#);
    assert_eq!(stored(&engine)["b"], r#"{"id":"b","pk":"1","line":{"price":"secret"}}"#);
    let text = finished.to_json();
    assert!(text.contains(r#""id":"b","partitionKey":["1"],"path":"/line/price""#), "{text}");
    assert!(!text.contains("secret"), "{text}");
    // Through its job, as clients undo other work.
    let job = finished.get("job").and_then(Value::as_str).unwrap().to_owned();
    engine.control_job(&job, JobControl::Undo).unwrap();
    wait_for(&engine, "undone");
    assert_eq!(stored(&engine)["a"], r#"{"id":"a","pk":"1","line":{"price":"12.5"}}"#);
}

#[test]
fn writers_of_both_forms_lose_nothing() {
    let storage = MemoryStorage::new();
    let (engine, container) = filled(&storage);
    let (engine, stop) = (Arc::new(engine), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (engine, container, stop) = (Arc::clone(&engine), Arc::clone(&container), Arc::clone(&stop));
            std::thread::spawn(move || {
                let (mut last, mut round) = (BTreeMap::new(), 1);
                while !stop.load(Ordering::SeqCst) && round < 2_000 {
                    let number = writer + 3 * (round * 7 % 40);
                    let name = if round % 2 == 0 { "fname" } else { "firstName" };
                    put(&engine, &container, &person(number, name, round));
                    last.insert(format!("p{number}"), person(number, "firstName", round));
                    round += 1;
                }
                last
            })
        })
        .collect();
    start(&engine, RENAME).unwrap();
    wait_until("expanded", || state(&engine).get("state").and_then(Value::as_str) == Some("expanded"));
    stop.store(true, Ordering::SeqCst);
    let mut expected = all_people("firstName");
    writers.into_iter().for_each(|writer| expected.extend(writer.join().unwrap()));
    engine.finish_refactoring("d", "r-1").unwrap();
    wait_for(&engine, "finished");
    assert_eq!(stored(&engine), expected);
}

fn is_settled(engine: &Engine) -> bool {
    let state = state(engine);
    ["expanded", "undone"].contains(&state.get("state").and_then(Value::as_str).unwrap_or_default())
}

#[test]
fn kills_at_every_commit_come_to_the_same_end() {
    for commits in 0..16 {
        let memory = MemoryStorage::new();
        let (engine, _) = filled(&memory);
        engine.close().unwrap();
        killed_after(&memory, commits, open_on, |engine| start(engine, RENAME), is_settled);
        let engine = open(&memory);
        // A request that was not answered may have been done or not.
        if engine.refactoring("d", "r-1").is_err() {
            start(&engine, RENAME).unwrap();
        }
        let expanded = wait_for(&engine, "expanded");
        assert_eq!(stored(&engine), all_people("firstName"), "killed after {commits} commits");
        // How far it is moves in the commits of the items.
        let converted = expanded.get("converted").and_then(Value::as_u64);
        assert_eq!(converted, Some(ITEMS as u64), "killed after {commits} commits");
        drop(engine);
        killed_after(
            &memory,
            commits,
            open_on,
            |engine| engine.undo_refactoring("d", "r-1").map(drop),
            is_settled,
        );
        let engine = open(&memory);
        if is_settled(&engine) && state(&engine).get("state").and_then(Value::as_str) == Some("expanded") {
            engine.undo_refactoring("d", "r-1").unwrap();
        }
        let undone = wait_for(&engine, "undone");
        assert_eq!(undone.get("conflictCount").and_then(Value::as_u64), Some(0), "{undone:?}");
        assert_eq!(stored(&engine), all_people("fname"), "undo killed after {commits} commits");
        engine.close().unwrap();
        check_sound(&memory.reopen());
    }
}

/// Commits of a storage until now, and this one.
fn commit_count(storage: &MemoryStorage) -> u64 {
    static TOKENS: AtomicU64 = AtomicU64::new(1 << 40);
    let token = Token(u128::from(TOKENS.fetch_add(1, Ordering::Relaxed)));
    storage.commit(Commit { guards: Vec::new(), token, ops: Vec::new() }).unwrap().sequence
}

/// Items, their journal, how far the refactoring is and how far its job is are one commit of a step.
#[test]
fn a_step_is_one_commit() {
    let storage = MemoryStorage::new();
    let (engine, _) = filled(&storage);
    let before = commit_count(&storage);
    start(&engine, RENAME).unwrap();
    wait_for(&engine, "expanded");
    let expanded = commit_count(&storage);
    // Three of items, one of the position behind them; and the rows of the refactoring and its job, which come and end.
    assert!(expanded - before <= 12, "{} commits", expanded - before);
    engine.undo_refactoring("d", "r-1").unwrap();
    wait_for(&engine, "undone");
    let undone = commit_count(&storage);
    assert!(undone - expanded <= 10, "{} commits", undone - expanded);
    assert_eq!(stored(&engine), all_people("fname"));
}

/// A container in which nothing is to be changed costs hardly any commit.
#[test]
fn items_that_stay_as_they_are_cost_no_commits() {
    let storage = MemoryStorage::new();
    let (engine, _) = filled(&storage);
    let before = commit_count(&storage);
    start(&engine, r#"{"kind":"rename","container":"c","from":"/other","to":"/another"}"#).unwrap();
    wait_for(&engine, "expanded");
    let commits = commit_count(&storage) - before;
    assert!(commits <= 9, "{commits} commits");
}

#[test]
fn it_is_in_backups_and_goes_with_its_container() {
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup");
    let storage = MemoryStorage::new();
    let (engine, _) = filled(&storage);
    start(&engine, RENAME).unwrap();
    wait_for(&engine, "expanded");
    engine.backup(&backup).unwrap();
    let report = quire_engine::verify_backup(&backup).unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
    let restored = MemoryStorage::new();
    quire_engine::restore(&backup, &restored).unwrap();
    check_sound(&restored);
    let again = open(&restored);
    again.undo_refactoring("d", "r-1").unwrap();
    wait_for(&again, "undone");
    assert_eq!(stored(&again), all_people("fname"));
    let any = Precondition { if_match: None };
    engine.catalog().delete_container("d", "c", &any).unwrap();
    wait_until_idle(&engine);
    engine.catalog().create_container("d", &json(support::CONTAINER), None).unwrap();
    start(&engine, RENAME).unwrap();
    wait_until_idle(&engine);
    engine.catalog().delete_database("d", &any).unwrap();
    wait_until_idle(&engine);
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

/// What a container is refactored by knows no rules of a model.
#[test]
fn a_model_and_a_refactoring_exclude_each_other() {
    const ANY: ModelCondition = ModelCondition { if_match: None, if_none_match: None };
    const OTHER: &str = r#"{"id":"o","partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#;
    let model = json(
        r#"{"version":1,"links":[{"name":"boss","from":{"container":"c","path":"/boss"},"to":{"container":"o"}}]}"#,
    );
    let storage = MemoryStorage::new();
    let (engine, _) = filled(&storage);
    let catalog = engine.catalog();
    catalog.create_container("d", &json(OTHER), None).unwrap();
    start(&engine, RENAME).unwrap();
    wait_for(&engine, "expanded");
    let refused = catalog.put_model("d", &model, &ANY);
    assert!(
        matches!(&refused, Err(EngineError::RefactoringRunning { container }) if container == "c"),
        "{:?}",
        refused.err()
    );
    engine.finish_refactoring("d", "r-1").unwrap();
    wait_for(&engine, "finished");
    catalog.put_model("d", &model, &ANY).unwrap();
    wait_until_idle(&engine);
    for refused in [start(&engine, RENAME), engine.undo_refactoring("d", "r-1").map(drop)] {
        assert!(matches!(refused, Err(EngineError::NotSupported { .. })), "{refused:?}");
    }
    assert_eq!(state(&engine).get("state").and_then(Value::as_str), Some("finished"));
    assert_eq!(stored(&engine), all_people("firstName"));
    catalog.delete_model("d", &ANY).unwrap();
    engine.undo_refactoring("d", "r-1").unwrap();
    wait_for(&engine, "undone");
    assert_eq!(stored(&engine), all_people("fname"));
}

/// The flags of an item's row say how it was written.
#[test]
fn items_keep_their_indexing_directive() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    let container = container(&engine);
    let write = WriteItem {
        indexing: IndexingDirective::Exclude,
        ..WriteItem::new(WriteKind::Create, None, person(1, "fname", 0))
    };
    engine.write_item(&container, write).result.unwrap();
    let directive = || {
        let range = KeyRange { start: Bound::Unbounded, end: Bound::Unbounded };
        let (direction, max) = (Direction::Forward, usize::MAX);
        let scan = Scan {
            space: Space(ITEMS_SPACE),
            range,
            direction,
            rows_max: max,
            bytes_max: max,
            keys_only: false,
        };
        let rows = storage.snapshot().unwrap().scan(&scan).unwrap().rows;
        assert_eq!(rows.len(), 1);
        rows[0].1[1] & 0b110
    };
    let before = directive();
    assert_ne!(before, 0);
    start(&engine, RENAME).unwrap();
    wait_for(&engine, "expanded");
    assert_eq!((stored(&engine)["p1"].clone(), directive()), (person(1, "firstName", 0), before));
    engine.undo_refactoring("d", "r-1").unwrap();
    wait_for(&engine, "undone");
    assert_eq!((stored(&engine)["p1"].clone(), directive()), (person(1, "fname", 0), before));
}

#[test]
fn what_cannot_be_refactored_is_refused() {
    let storage = MemoryStorage::new();
    let (engine, _) = filled(&storage);
    let before = stored(&engine);
    for body in [
        r#"{"kind":"rename","container":"c","from":"/pk","to":"/key"}"#,
        r#"{"kind":"rename","container":"c","from":"/a","to":"/id"}"#,
        r#"{"kind":"retype","container":"c","path":"/ttl","as":"number"}"#,
        r#"{"kind":"rename","container":"c","from":"/fname","to":"/_ts"}"#,
        r#"{"kind":"rename","container":"c","from":"/fname","to":"/_lsn"}"#,
        r#"{"kind":"rename","container":"c","from":"/_etag","to":"/tag"}"#,
        r#"{"kind":"rename","container":"c","from":"/fname","to":"/_follow"}"#,
        r#"{"kind":"retype","container":"c","path":"/_ts","as":"iso-date"}"#,
    ] {
        for found in [start(&engine, body), engine.dry_run_refactoring("d", &json(body)).map(drop)] {
            assert!(matches!(found, Err(EngineError::RefactoringInvalid(_))), "{body}: {found:?}");
        }
    }
    let unknown = start(&engine, r#"{"kind":"rename","container":"x","from":"/a","to":"/b"}"#);
    assert!(matches!(unknown, Err(EngineError::ResourceNotFound { .. })), "{unknown:?}");
    let without = RENAME.replace("{\"kind\"", "{\"journal\":false,\"kind\"");
    start(&engine, &without).unwrap();
    wait_for(&engine, "expanded");
    assert!(matches!(engine.undo_refactoring("d", "r-1"), Err(EngineError::RefactoringRefuses { .. })));
    engine.finish_refactoring("d", "r-1").unwrap();
    wait_for(&engine, "finished");
    assert_ne!(stored(&engine), before);
    assert!(engine.refactoring("d", "r-2").is_err() && engine.refactoring("d", "x").is_err());
}
