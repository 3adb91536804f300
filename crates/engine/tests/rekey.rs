//! Another partition key for a container: filled, followed, exchanged and undone, under writers, splits and kills. What is to be
//! there is known from what was written and answered, not from the engine.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "rekey/conflicts.rs"]
mod conflicts; // items that cannot be there together
#[path = "rekey/moved.rs"]
mod moved; // what moves with the name
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quire_engine::{
    ChangesRequest, Container, Engine, EngineError, FeedMode, FeedStart, PageRequest, Precondition,
    RefactoringDryRun, ScriptKind, WriteItem, WriteKind,
};
use quire_resource::{PartitionKey, Throughput};
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use quire_value::{Limits, Value, text};
use support::fixture::{Fixture, Random};
use support::{
    check_sound, database, json, killed_after, options_with, page_request, wait_until, wait_until_idle,
};

const REKEY: &str = r#"{"kind":"rekey","container":"c","partitionKey":{"paths":["/b"],"version":2}}"#;
const ITEMS: usize = 250;
const ANY: Precondition = Precondition { if_match: None };
const SYSTEM: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

/// An item of the old key `/a` and the new one `/b`.
fn item(number: usize, round: usize) -> String {
    format!(r#"{{"id":"i{number}","a":"a{}","b":"b{}","round":{round}}}"#, number % 11, number % 7)
}

fn rekey_with(members: &str) -> String {
    REKEY.replacen('{', &format!("{{{members},"), 1)
}

fn open(storage: &MemoryStorage, partitions: u32) -> Engine {
    Engine::open(Arc::new(storage.reopen()), options_with(partitions)).unwrap()
}

fn make(engine: &Engine, members: &str) -> Arc<Container> {
    database(engine, "d");
    let body = format!(r#"{{"id":"c","partitionKey":{{"paths":["/a"],"version":2}}{members}}}"#);
    engine.catalog().create_container("d", &json(&body), None).unwrap()
}

fn named(engine: &Engine, name: &str) -> Arc<Container> {
    engine.catalog().container("d", name).unwrap()
}

fn write(
    engine: &Engine,
    container: &Arc<Container>,
    kind: WriteKind,
    key: Option<&str>,
    body: &str,
) -> Result<(), EngineError> {
    let write = WriteItem::new(kind, key.map(|key| PartitionKey::from_header(key).unwrap()), body.to_owned());
    engine.write_item(container, write).result.map(drop)
}

fn put(engine: &Engine, body: &str) {
    write(engine, &named(engine, "c"), WriteKind::Upsert, None, body).unwrap();
}

fn delete(engine: &Engine, id: &str, key: &str) {
    delete_in(engine, "c", id, key);
}

fn delete_in(engine: &Engine, container: &str, id: &str, key: &str) {
    let delete = WriteKind::Delete { id: id.to_owned() };
    write(engine, &named(engine, container), delete, Some(key), "").unwrap();
}

/// All items without what the server adds, sorted.
fn stored(engine: &Engine, name: &str) -> Vec<String> {
    let container = named(engine, name);
    let (mut request, mut found) = (page_request(), Vec::new());
    loop {
        let page = engine.list_items(&container, &request).result.unwrap();
        let rows = text::parse(&page.rows, Limits::default()).unwrap();
        for mut row in rows.as_array().unwrap().to_vec() {
            SYSTEM.iter().for_each(|name| drop(row.as_object_mut().unwrap().remove(name)));
            found.push(row.to_json());
        }
        request.continuation = page.continuation;
        if request.continuation.is_none() {
            found.sort();
            return found;
        }
    }
}

fn all_items() -> Vec<String> {
    sorted((0..ITEMS).map(|number| item(number, 0)))
}

fn sorted(items: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut items: Vec<String> = items.into_iter().collect();
    items.sort();
    items
}

fn filled(storage: &MemoryStorage, partitions: u32, members: &str) -> Engine {
    let engine = open(storage, partitions);
    make(&engine, members);
    (0..ITEMS).for_each(|number| put(&engine, &item(number, 0)));
    engine
}

fn start(engine: &Engine, body: &str) -> Result<(), EngineError> {
    engine.start_refactoring("d", json(body)).map(drop)
}

fn state(engine: &Engine) -> String {
    let refactoring = engine.refactoring("d", "r-1").unwrap();
    refactoring.get("state").and_then(Value::as_str).unwrap().to_owned()
}

fn wait_for(engine: &Engine, wanted: &str) -> Value {
    wait_until(wanted, || state(engine) == wanted);
    wait_until_idle(engine);
    engine.refactoring("d", "r-1").unwrap()
}

fn finish(engine: &Engine) {
    engine.finish_refactoring("d", "r-1").unwrap();
    wait_for(engine, "finished");
}

fn undo(engine: &Engine) {
    engine.undo_refactoring("d", "r-1").unwrap();
    wait_for(engine, "undone");
}

fn key_of(engine: &Engine, name: &str) -> String {
    let container = named(engine, name);
    container.definition.json.get("partitionKey").and_then(|key| key.get("paths")).unwrap().to_json()
}

fn names(engine: &Engine) -> Vec<String> {
    sorted(engine.catalog().containers("d").unwrap().iter().map(|own| own.definition.id.clone()))
}

fn conflict_ids(refactoring: &Value) -> Vec<String> {
    let conflicts = refactoring.get("conflicts").and_then(Value::as_array).unwrap();
    sorted(conflicts.iter().map(|own| own.get("id").and_then(Value::as_str).unwrap().to_owned()))
}

#[test]
fn a_container_gets_another_key_and_its_old_one_back() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 3, "");
    start(&engine, REKEY).unwrap();
    let expanded = wait_for(&engine, "expanded");
    assert_eq!(expanded.get("converted").and_then(Value::as_u64), Some(ITEMS as u64), "{expanded:?}");
    assert_eq!(names(&engine), ["c", "c~new"]);
    assert_eq!(stored(&engine, "c~new"), all_items());
    // Clients read it and do not write to it.
    let refused = write(&engine, &named(&engine, "c~new"), WriteKind::Upsert, None, &item(1, 9));
    assert!(matches!(refused, Err(EngineError::Forbidden { .. })), "{refused:?}");
    put(&engine, &item(3, 5));
    put(&engine, &item(900, 5));
    // The same item under another new key.
    put(&engine, r#"{"id":"i4","a":"a4","b":"elsewhere"}"#);
    delete(&engine, "i5", r#"["a5"]"#);
    let mut expected: BTreeMap<usize, String> = (0..ITEMS).map(|number| (number, item(number, 0))).collect();
    expected.insert(3, item(3, 5));
    expected.insert(900, item(900, 5));
    expected.insert(4, r#"{"id":"i4","a":"a4","b":"elsewhere"}"#.to_owned());
    expected.remove(&5);
    finish(&engine);
    assert_eq!(names(&engine), ["c", "c~old"]);
    assert_eq!(
        (key_of(&engine, "c"), key_of(&engine, "c~old")),
        (r#"["/b"]"#.to_owned(), r#"["/a"]"#.to_owned())
    );
    assert_eq!(stored(&engine, "c"), sorted(expected.values().cloned()));
    assert_eq!(stored(&engine, "c~old"), sorted(expected.values().cloned()));
    let refused = write(&engine, &named(&engine, "c~old"), WriteKind::Upsert, None, &item(1, 9));
    assert!(matches!(refused, Err(EngineError::Forbidden { .. })), "{refused:?}");
    // What is written since comes along when it is undone; ids are those of the new key.
    put(&engine, &item(7, 6));
    delete(&engine, "i8", r#"["b1"]"#);
    put(&engine, r#"{"id":"fresh","a":"a1","b":"b1"}"#);
    expected.insert(7, item(7, 6));
    expected.remove(&8);
    expected.insert(1_000, r#"{"id":"fresh","a":"a1","b":"b1"}"#.to_owned());
    undo(&engine);
    wait_until_idle(&engine);
    assert_eq!(names(&engine), ["c"]);
    assert_eq!(key_of(&engine, "c"), r#"["/a"]"#);
    assert_eq!(stored(&engine, "c"), sorted(expected.values().cloned()));
    put(&engine, &item(1, 7));
    assert!(matches!(engine.undo_refactoring("d", "r-1"), Err(EngineError::RefactoringRefuses { .. })));
    start(&engine, REKEY).unwrap();
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

#[test]
fn an_untouched_expansion_is_undone_to_what_was() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 2, "");
    let before = stored(&engine, "c");
    start(&engine, REKEY).unwrap();
    wait_for(&engine, "expanded");
    let second = start(&engine, REKEY);
    assert!(matches!(second, Err(EngineError::RefactoringRunning { .. })), "{second:?}");
    undo(&engine);
    assert_eq!((names(&engine), stored(&engine, "c")), (vec!["c".to_owned()], before));
    put(&engine, &item(1, 1));
    wait_until_idle(&engine);
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

/// What one writer was answered: its items by id; nothing is written by two.
type ExpectedItems = BTreeMap<String, String>;

/// Writes, moves and deletes until it is stopped. A write that was refused for the container was replaced is sent again.
fn run_writer(engine: &Engine, writer: usize, seed: u64, stop: &AtomicBool) -> ExpectedItems {
    let (mut random, mut answered) = (Random(seed), ExpectedItems::new());
    let mut round = 0;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        let number = writer + 4 * (random.below(40) as usize);
        let id = format!("w{number}");
        let (body, is_delete) = match random.below(5) {
            0 => (
                format!(
                    r#"{{"id":"{id}","a":"a{}","b":"b{}","round":{round}}}"#,
                    number % 5,
                    random.below(9)
                ),
                false,
            ),
            1 => (String::new(), true),
            _ => (
                format!(r#"{{"id":"{id}","a":"a{}","b":"b{}","round":{round}}}"#, number % 5, number % 9),
                false,
            ),
        };
        let container = named(engine, "c");
        let path =
            container.definition.json.get("partitionKey").and_then(|key| key.get("paths")).unwrap().to_json();
        let member = if path.contains("/a") { "a" } else { "b" };
        let before = answered.get(&id).map(|text| json(text));
        let key = |item: &Value| format!("[{}]", item.get(member).unwrap().to_json());
        let written = match (&before, is_delete) {
            (None, true) => continue,
            (Some(item), true) => {
                write(engine, &container, WriteKind::Delete { id: id.clone() }, Some(&key(item)), "")
            }
            // Under the new key an item that moves is another one.
            (Some(item), false) if key(item) != key(&json(&body)) => {
                write(engine, &container, WriteKind::Delete { id: id.clone() }, Some(&key(item)), "")
            }
            (_, false) => write(engine, &container, WriteKind::Upsert, None, &body),
        };
        match written {
            Ok(()) if is_delete || before.as_ref().is_some_and(|item| key(item) != key(&json(&body))) => {
                drop(answered.remove(&id));
            }
            Ok(()) => drop(answered.insert(id, body)),
            Err(EngineError::ContainerReplaced | EngineError::Overloaded | EngineError::Contended) => {}
            Err(error) => panic!("writer {writer}, seed {seed}: {error:?}"),
        }
    }
    answered
}

fn under_writers(engine: &Arc<Engine>, seed: u64, act: impl FnOnce(&Engine)) -> Vec<String> {
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (engine, stop) = (Arc::clone(engine), Arc::clone(&stop));
            std::thread::spawn(move || run_writer(&engine, writer, seed + writer as u64, &stop))
        })
        .collect();
    act(engine);
    stop.store(true, Ordering::SeqCst);
    let answered = writers.into_iter().flat_map(|writer| writer.join().unwrap().into_values());
    sorted(answered.chain((0..ITEMS).map(|number| item(number, 0))))
}

#[test]
fn writers_lose_nothing_that_was_answered() {
    for seed in [11, 2_011] {
        let storage = MemoryStorage::new();
        let engine = Arc::new(filled(&storage, 2, ""));
        let expected = under_writers(&engine, seed, |engine| {
            start(engine, REKEY).unwrap();
            wait_until("expanded", || state(engine) == "expanded");
            let container = named(engine, "c");
            let partition = container.partitions()[0].id.clone();
            engine.split_partition(&container, &partition).unwrap();
            engine.finish_refactoring("d", "r-1").unwrap();
            wait_until("finished", || state(engine) == "finished");
            std::thread::sleep(std::time::Duration::from_millis(50));
            engine.undo_refactoring("d", "r-1").unwrap();
            wait_until("undone", || state(engine) == "undone");
        });
        assert_eq!(stored(&engine, "c"), expected, "seed {seed}");
        wait_until_idle(&engine);
        engine.close().unwrap();
        check_sound(&storage.reopen());
    }
}

#[test]
fn writers_lose_nothing_when_it_finishes_itself() {
    let storage = MemoryStorage::new();
    let engine = Arc::new(filled(&storage, 3, ""));
    let seed = 77;
    let expected = under_writers(&engine, seed, |engine| {
        start(engine, &rekey_with(r#""finish":"auto""#)).unwrap();
        wait_until("finished", || state(engine) == "finished");
    });
    assert_eq!(stored(&engine, "c"), expected, "seed {seed}");
    assert_eq!(key_of(&engine, "c"), r#"["/b"]"#);
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

#[test]
fn copied_items_keep_their_expiry() {
    let storage = MemoryStorage::new();
    let key = r#"{"paths":["/a"],"version":2}"#;
    let fixture = Fixture::on(Arc::new(storage.reopen()), key, r#""defaultTtl":100"#, 2);
    fixture.upsert(r#"{"id":"default","a":"1","b":"1"}"#).unwrap();
    fixture.upsert(r#"{"id":"own","a":"1","b":"1","ttl":60}"#).unwrap();
    fixture.upsert(r#"{"id":"never","a":"1","b":"1","ttl":-1}"#).unwrap();
    fixture.clock.advance(50);
    let (engine, state) = (&fixture.engine, |wanted: &str| {
        wait_until(wanted, || {
            let own = fixture.engine.refactoring("db", "r-1").unwrap();
            own.get("state").and_then(Value::as_str) == Some(wanted)
        });
    });
    engine.start_refactoring("db", json(REKEY)).unwrap();
    state("expanded");
    engine.finish_refactoring("db", "r-1").unwrap();
    state("finished");
    let ids = || {
        let container = engine.catalog().container("db", "c").unwrap();
        support::items(engine, &container).into_keys().collect::<Vec<_>>()
    };
    assert_eq!(ids(), ["default", "never", "own"]);
    fixture.clock.advance(11);
    assert_eq!(ids(), ["default", "never"]);
    fixture.clock.advance(40);
    assert_eq!(ids(), ["never"]);
    engine.pause_sweep(false);
    let rows = || quire_engine::verify(&storage.reopen()).unwrap();
    wait_until("they are removed", || engine.catalog().container("db", "c").unwrap().usage().0 == 1);
    assert!(rows().is_sound(), "{:?}", rows().problems);
}

#[test]
fn deleted_partition_keys_stay_deleted() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 2, "");
    start(&engine, REKEY).unwrap();
    wait_for(&engine, "expanded");
    let key = PartitionKey::from_header(r#"["a3"]"#).unwrap();
    engine.delete_partition_key(&named(&engine, "c"), key).result.unwrap();
    finish(&engine);
    let expected = sorted((0..ITEMS).filter(|number| number % 11 != 3).map(|number| item(number, 0)));
    assert_eq!(stored(&engine, "c"), expected);
}

#[test]
fn what_cannot_have_another_key_is_refused() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 1, "");
    for body in [
        r#"{"kind":"rekey","container":"c"}"#,
        r#"{"kind":"rekey","container":"c","partitionKey":{"paths":["b"]}}"#,
        r#"{"kind":"rekey","container":"c","partitionKey":{"paths":["/a"],"version":2}}"#,
        &rekey_with(r#""journal":false"#),
        &rekey_with(r#""onConflict":"last""#),
        &rekey_with(r#""model":{"version":1}"#),
        &rekey_with(r#""other":1"#),
    ] {
        for found in [start(&engine, body), engine.dry_run_refactoring("d", &json(body)).map(drop)] {
            assert!(matches!(found, Err(EngineError::RefactoringInvalid(_))), "{body}: {found:?}");
        }
    }
    let view = r#"{"id":"v","partitionKey":{"paths":["/b"]},
        "materializedViewDefinition":{"sourceCollectionId":"c","definition":"SELECT * FROM c"}}"#;
    engine.catalog().create_container("d", &json(view), None).unwrap();
    let found = start(&engine, REKEY);
    assert!(matches!(found, Err(EngineError::NotSupported { .. })), "{found:?}");
    engine.catalog().delete_container("d", "v", &ANY).unwrap();
    engine
        .catalog()
        .create_container("d", &json(r#"{"id":"c~old","partitionKey":{"paths":["/b"]}}"#), None)
        .unwrap();
    let found = start(&engine, REKEY);
    assert!(matches!(found, Err(EngineError::AlreadyExists { .. })), "{found:?}");
    assert!(engine.refactoring("d", "r-1").is_err());
}

fn open_two(storage: Arc<dyn Storage>) -> Engine {
    Engine::open(storage, options_with(2)).unwrap()
}

#[test]
fn kills_at_every_commit_come_to_the_same_end() {
    for commits in 0..14 {
        let memory = MemoryStorage::new();
        let engine = filled(&memory, 2, "");
        engine.close().unwrap();
        killed_after(
            &memory,
            commits,
            open_two,
            |engine| start(engine, REKEY),
            |engine| state(engine) == "expanded",
        );
        let engine = open(&memory, 2);
        // A request that was not answered may have been done or not.
        if engine.refactoring("d", "r-1").is_err() {
            start(&engine, REKEY).unwrap();
        }
        wait_for(&engine, "expanded");
        assert_eq!(stored(&engine, "c~new"), all_items(), "expand killed after {commits} commits");
        put(&engine, &item(2, 1));
        drop(engine);
        killed_after(
            &memory,
            commits,
            open_two,
            |engine| engine.finish_refactoring("d", "r-1").map(drop),
            |engine| state(engine) == "finished",
        );
        let engine = open(&memory, 2);
        if state(&engine) == "expanded" {
            engine.finish_refactoring("d", "r-1").unwrap();
        }
        wait_for(&engine, "finished");
        let mut expected = all_items();
        expected.retain(|own| *own != item(2, 0));
        let expected = sorted(expected.into_iter().chain([item(2, 1)]));
        assert_eq!(stored(&engine, "c"), expected, "finish killed after {commits} commits");
        assert_eq!(
            (key_of(&engine, "c"), names(&engine)),
            (r#"["/b"]"#.to_owned(), vec!["c".to_owned(), "c~old".to_owned()])
        );
        // Who may write is known after a restart, too.
        let refused = write(&engine, &named(&engine, "c~old"), WriteKind::Upsert, None, &item(1, 9));
        assert!(matches!(refused, Err(EngineError::Forbidden { .. })), "{refused:?}");
        put(&engine, &item(3, 1));
        drop(engine);
        killed_after(
            &memory,
            commits,
            open_two,
            |engine| engine.undo_refactoring("d", "r-1").map(drop),
            |engine| state(engine) == "undone",
        );
        let engine = open(&memory, 2);
        if state(&engine) == "finished" {
            engine.undo_refactoring("d", "r-1").unwrap();
        }
        wait_for(&engine, "undone");
        let changed = expected.into_iter().filter(|own| *own != item(3, 0)).chain([item(3, 1)]);
        assert_eq!(stored(&engine, "c"), sorted(changed), "undo killed after {commits} commits");
        assert_eq!((key_of(&engine, "c"), names(&engine)), (r#"["/a"]"#.to_owned(), vec!["c".to_owned()]));
        put(&engine, &item(4, 1));
        wait_until_idle(&engine);
        engine.close().unwrap();
        check_sound(&memory.reopen());
    }
}
