//! Another partition key for a container: filled, followed, exchanged and undone, under writers, splits and kills. What is to be
//! there is known from what was written and answered, not from the engine.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quire_engine::{
    ChangesRequest, Container, Engine, EngineError, FeedMode, FeedStart, IndexingDirective, PageRequest,
    Precondition, RefactoringDryRun, ScriptKind, WriteItem, WriteKind,
};
use quire_resource::{PartitionKey, Throughput};
use quire_storage::Storage;
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use quire_value::{Limits, Value, text};
use support::fixture::{Fixture, Random};
use support::{database, json, options_with, page_request, wait_until, wait_until_idle};

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
    let write = WriteItem {
        kind,
        partition_key: key.map(|key| PartitionKey::from_header(key).unwrap()),
        body: body.to_owned().into(),
        if_match: None,
        indexing: IndexingDirective::Default,
        want_body: false,
        pre_trigger: None,
        post_trigger: None,
        trigger_headers: Vec::new(),
        cancel: Default::default(),
    };
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

fn check_sound(storage: &MemoryStorage) {
    let report = quire_engine::verify(&storage.reopen()).unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
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
    check_sound(&storage);
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
    check_sound(&storage);
}

/// What one writer was answered: its items by id; nothing is written by two.
type ExpectedItems = BTreeMap<String, String>;

/// Writes, moves and deletes until it is told to stop. A write that was refused for the container was replaced is sent again.
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
        check_sound(&storage);
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
    check_sound(&storage);
}

/// Three items of one id under three old keys and one new one; two of another id.
fn create_conflicts(engine: &Engine) {
    for (id, a, n) in
        [("x", "1", 1), ("x", "2", 2), ("x", "3", 3), ("y", "1", 4), ("y", "2", 5), ("z", "1", 6)]
    {
        put(engine, &format!(r#"{{"id":"{id}","a":"{a}","b":"same","n":{n}}}"#));
    }
    // The first one was written last, in another second.
    (0..200).for_each(|_| put(engine, r#"{"id":"z","a":"1","b":"same","n":6}"#));
    put(engine, r#"{"id":"x","a":"1","b":"same","n":7}"#);
}

#[test]
fn items_that_clash_block_it_until_that_is_decided() {
    for (choice, left) in
        [("first", vec!["5", "6", "7"]), ("newest", vec!["5", "6", "7"]), ("skip", vec!["6"])]
    {
        let storage = MemoryStorage::new();
        let engine = open(&storage, 2);
        make(&engine, "");
        create_conflicts(&engine);
        let before = stored(&engine, "c");
        start(&engine, &rekey_with(&format!(r#""onConflict":"{choice}""#))).unwrap();
        let expanded = wait_for(&engine, "expanded");
        let count = expanded.get("conflictCount").and_then(Value::as_u64);
        assert_eq!(count, Some(if choice == "skip" { 5 } else { 3 }), "{expanded:?}");
        let found = || -> Vec<String> {
            let numbers = stored(&engine, "c~new").into_iter();
            sorted(numbers.map(|own| json(&own).get("n").unwrap().to_json()))
        };
        let expected: Vec<String> = match choice {
            "first" => vec!["4".to_owned(), "6".to_owned(), "7".to_owned()],
            _ => sorted(left.iter().map(|own| (*own).to_owned())),
        };
        assert_eq!(found(), expected, "{choice}");
        // What was in the way goes, and what was left comes.
        delete(&engine, "x", r#"["1"]"#);
        delete(&engine, "x", r#"["3"]"#);
        wait_until("the other one is there", || found().contains(&"2".to_owned()));
        finish(&engine);
        undo(&engine);
        let gone = |own: &&String| !own.contains(r#""n":7"#) && !own.contains(r#""n":3"#);
        assert_eq!(stored(&engine, "c"), before.iter().filter(gone).cloned().collect::<Vec<_>>(), "{choice}");
        wait_until_idle(&engine);
        engine.close().unwrap();
        check_sound(&storage);
    }
    let storage = MemoryStorage::new();
    let engine = open(&storage, 2);
    make(&engine, "");
    create_conflicts(&engine);
    start(&engine, &rekey_with(r#""finish":"auto""#)).unwrap();
    let blocked = wait_for(&engine, "blocked");
    assert_eq!(conflict_ids(&blocked), ["x", "x", "x", "y", "y"]);
    assert!(matches!(engine.finish_refactoring("d", "r-1"), Err(EngineError::RefactoringRefuses { .. })));
    for (id, key) in [("x", r#"["1"]"#), ("x", r#"["2"]"#), ("y", r#"["1"]"#)] {
        delete(&engine, id, key);
    }
    // It goes on by itself.
    wait_for(&engine, "finished");
    assert_eq!(stored(&engine, "c").len(), 3);
}

#[test]
fn unique_values_of_the_new_partitions() {
    let storage = MemoryStorage::new();
    let engine = open(&storage, 2);
    make(&engine, r#","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/tag"]},{"paths":["/code"]}]}"#);
    for (id, a, tag, code) in
        [("p", "1", "t1", 1), ("q", "2", "t1", 2), ("r", "3", "t2", 2), ("s", "4", "t3", 3)]
    {
        put(&engine, &format!(r#"{{"id":"{id}","a":"{a}","b":"same","tag":"{tag}","code":{code}}}"#));
    }
    start(&engine, REKEY).unwrap();
    assert_eq!(conflict_ids(&wait_for(&engine, "blocked")), ["p", "q", "r"]);
    put(&engine, r#"{"id":"q","a":"2","b":"other","tag":"t1","code":2}"#);
    wait_for(&engine, "expanded");
    assert_eq!(stored(&engine, "c~new"), stored(&engine, "c"));
    finish(&engine);
    let taken = write(
        &engine,
        &named(&engine, "c"),
        WriteKind::Upsert,
        None,
        r#"{"id":"new","a":"9","b":"same","tag":"t1","code":9}"#,
    );
    assert!(matches!(taken, Err(EngineError::UniqueKeyTaken { .. })), "{taken:?}");
    engine.close().unwrap();
    check_sound(&storage);
}

#[test]
fn keys_that_are_missing_or_too_long() {
    let storage = MemoryStorage::new();
    let engine = open(&storage, 2);
    make(&engine, "");
    let long = "k".repeat(3_000);
    put(&engine, r#"{"id":"none","a":"1"}"#);
    put(&engine, &format!(r#"{{"id":"long","a":"1","b":"{long}"}}"#));
    start(&engine, &rekey_with(r#""onConflict":"first""#)).unwrap();
    // Who comes first does not make it shorter.
    assert_eq!(conflict_ids(&wait_for(&engine, "blocked")), ["long"]);
    undo(&engine);
    engine.start_refactoring("d", json(&rekey_with(r#""onConflict":"skip","finish":"auto""#))).unwrap();
    let is_finished = || {
        let own = engine.refactoring("d", "r-2").unwrap();
        own.get("state").and_then(Value::as_str) == Some("finished")
    };
    wait_until("finished", is_finished);
    assert_eq!(stored(&engine, "c"), [r#"{"id":"none","a":"1"}"#]);
    engine.undo_refactoring("d", "r-2").unwrap();
    wait_until_idle(&engine);
    assert_eq!(stored(&engine, "c").len(), 2, "what was left comes back");
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
fn scripts_and_permissions_move_with_the_container() {
    let members = r#","defaultTtl":-1,"indexingPolicy":{"indexingMode":"consistent","automatic":true,
        "includedPaths":[{"path":"/round/?"}],"excludedPaths":[{"path":"/*"}]},
        "computedProperties":[{"name":"twice","query":"SELECT VALUE c.round * 2 FROM c"}],
        "changeFeedPolicy":{"retentionDuration":60}"#;
    let storage = MemoryStorage::new();
    let engine = open(&storage, 2);
    database(&engine, "d");
    let body = format!(r#"{{"id":"c","partitionKey":{{"paths":["/a"],"version":2}}{members}}}"#);
    engine.catalog().create_container("d", &json(&body), Some(Throughput::Manual(700))).unwrap();
    (0..20).for_each(|number| put(&engine, &item(number, 0)));
    let catalog = engine.catalog();
    let script = r#"{"id":"s","body":"function () { return 1; }"}"#;
    catalog.create_script("d", "c", ScriptKind::StoredProcedure, &json(script)).unwrap();
    catalog.create_script("d", "c", ScriptKind::UserDefinedFunction, &json(script)).unwrap();
    catalog.create_user("d", &json(r#"{"id":"u"}"#), false).unwrap();
    let rid = named(&engine, "c").resource.rid.to_string();
    let database_rid = catalog.database("d").unwrap().rid.to_string();
    catalog.create_user("d", &json(r#"{"id":"by-rid"}"#), false).unwrap();
    for (user, id, link, key) in [
        ("u", "by-name", "dbs/d/colls/c".to_owned(), ""),
        ("by-rid", "by-rid", format!("dbs/{database_rid}/colls/{rid}"), ""),
        ("u", "by-key", "dbs/d/colls/c/docs/i1".to_owned(), r#","resourcePartitionKey":["a1"]"#),
    ] {
        let body = format!(r#"{{"id":"{id}","permissionMode":"All","resource":"{link}"{key}}}"#);
        catalog.create_permission("d", user, &json(&body), false).unwrap();
    }
    let link_of = |id: &str| {
        let user = if id == "by-rid" { "by-rid" } else { "u" };
        let permission = engine.catalog().permission("d", user, id).unwrap();
        permission.body.get("resource").and_then(Value::as_str).unwrap().to_owned()
    };
    let before = named(&engine, "c");
    start(&engine, REKEY).unwrap();
    wait_for(&engine, "expanded");
    for refused in [
        catalog.delete_container("d", "c", &ANY),
        catalog.delete_container("d", "c~new", &ANY),
        catalog.replace_container("d", "c", &Value::Object(before.definition.json.clone()), &ANY).map(drop),
    ] {
        assert!(matches!(refused, Err(EngineError::RefactoringRunning { .. })), "{refused:?}");
    }
    let taken = json(r#"{"id":"c~old","partitionKey":{"paths":["/a"]}}"#);
    assert!(matches!(catalog.create_container("d", &taken, None), Err(EngineError::AlreadyExists { .. })));
    // Scripts of the last moment.
    let later = r#"{"id":"later","body":"function () {}","triggerType":"Pre","triggerOperation":"All"}"#;
    catalog.create_script("d", "c", ScriptKind::Trigger, &json(later)).unwrap();
    finish(&engine);
    let after = named(&engine, "c");
    let without_key = |container: &Container| {
        let mut json = container.definition.json.clone();
        json.remove("partitionKey");
        Value::Object(json).to_json()
    };
    assert_eq!(without_key(&after), without_key(&before));
    assert_ne!(after.resource.rid, before.resource.rid);
    assert_eq!(catalog.throughput_of(&after).unwrap().1, 700);
    for (kind, id) in [
        (ScriptKind::StoredProcedure, "s"),
        (ScriptKind::UserDefinedFunction, "s"),
        (ScriptKind::Trigger, "later"),
    ] {
        catalog.script("d", "c", kind, id).unwrap();
    }
    assert_eq!(link_of("by-name"), "dbs/d/colls/c");
    assert_eq!(link_of("by-rid"), format!("dbs/{database_rid}/colls/{}", after.resource.rid));
    // The values of its key are those of another property.
    assert_eq!(link_of("by-key"), "dbs/d/colls/c~old/docs/i1");
    // Whoever still has the old container is told so, and partitions of it are unknown.
    let stale = write(&engine, &before, WriteKind::Upsert, None, &item(1, 3));
    assert!(matches!(stale, Err(EngineError::ContainerReplaced)), "{stale:?}");
    let ids =
        |container: &Container| container.partitions().into_iter().map(|own| own.id).collect::<Vec<_>>();
    assert!(ids(&after).iter().all(|id| !ids(&before).contains(id)));
    // A position of the old feed names nothing behind it: everything is told once more.
    let page = PageRequest { item_count_max: Some(-1), ..PageRequest::default() };
    let start = FeedStart::After("\"20\"".to_owned());
    let request =
        ChangesRequest { mode: FeedMode::Latest, page, start, since: None, all_previous_images: false };
    assert_eq!(engine.read_changes(&after, &request).result.unwrap().count, 20);
    undo(&engine);
    assert_eq!(link_of("by-key"), "dbs/d/colls/c/docs/i1");
    assert_eq!(catalog.throughput_of(&named(&engine, "c")).unwrap().1, 700);
    catalog.script("d", "c", ScriptKind::Trigger, "later").unwrap();
    wait_until_idle(&engine);
    engine.close().unwrap();
    check_sound(&storage);
}

#[test]
fn a_dry_run_reports_keys_and_conflicts() {
    let storage = MemoryStorage::new();
    let engine = open(&storage, 2);
    make(&engine, "");
    create_conflicts(&engine);
    let RefactoringDryRun::Done(found) = engine.dry_run_refactoring("d", &json(REKEY)).unwrap() else {
        panic!("a job")
    };
    let number = |name: &str| found.get(name).and_then(Value::as_u64);
    assert_eq!((number("items"), number("wouldLeave"), number("partitionKeys")), (Some(6), Some(3), Some(1)));
    assert_eq!(found.get("largest").and_then(|own| own.get("items")).and_then(Value::as_u64), Some(6));
    assert_eq!(found.get("conflicts").and_then(Value::as_array).map(<[Value]>::len), Some(3));
    assert_eq!(found.get("examples").and_then(Value::as_array).map(<[Value]>::len), Some(3));
    assert_eq!(names(&engine), ["c"]);
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

/// The storage takes so many commits, and none after: as if the process had been killed then.
fn killed_after(
    memory: &MemoryStorage,
    commits: usize,
    act: impl Fn(&Engine) -> Result<(), EngineError>,
    end: &str,
) {
    let faults = Arc::new(FaultStorage::new(memory.reopen()));
    let storage = Arc::<FaultStorage<MemoryStorage>>::clone(&faults) as Arc<dyn Storage>;
    let engine = Engine::open(storage, options_with(2)).unwrap();
    let last = if commits.is_multiple_of(2) { CommitFault::Poison } else { CommitFault::PoisonDone };
    faults.script_commits(std::iter::repeat_n(CommitFault::Pass, commits).chain([last]));
    if act(&engine).is_ok() {
        wait_until("it is killed, or done", || faults.injected() > 0 || state(&engine) == end);
    }
    drop(engine);
    // What had reached the disk is there when it is opened again.
    faults.reopen_on(memory.reopen()).unwrap();
}

#[test]
fn kills_at_every_commit_come_to_the_same_end() {
    for commits in 0..14 {
        let memory = MemoryStorage::new();
        let engine = filled(&memory, 2, "");
        engine.close().unwrap();
        killed_after(&memory, commits, |engine| start(engine, REKEY), "expanded");
        let engine = open(&memory, 2);
        // A request that was not answered may have been done or not.
        if engine.refactoring("d", "r-1").is_err() {
            start(&engine, REKEY).unwrap();
        }
        wait_for(&engine, "expanded");
        assert_eq!(stored(&engine, "c~new"), all_items(), "expand killed after {commits} commits");
        put(&engine, &item(2, 1));
        drop(engine);
        killed_after(&memory, commits, |engine| engine.finish_refactoring("d", "r-1").map(drop), "finished");
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
        killed_after(&memory, commits, |engine| engine.undo_refactoring("d", "r-1").map(drop), "undone");
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
        check_sound(&memory);
    }
}

/// Clients write to neither of the containers beside it, and a link leads to what has the name.
#[test]
fn a_model_goes_along() {
    const ANY_MODEL: quire_engine::ModelCondition =
        quire_engine::ModelCondition { if_match: None, if_none_match: None };
    let storage = MemoryStorage::new();
    let engine = open(&storage, 2);
    make(&engine, "");
    let catalog = engine.catalog();
    catalog
        .create_container("d", &json(r#"{"id":"o","partitionKey":{"paths":["/id"],"version":2}}"#), None)
        .unwrap();
    let model = |key: &str| {
        json(&format!(
            r#"{{"version":1,"links":[{{"name":"boss","from":{{"container":"o","path":"/boss"}},
                "to":{{"container":"c","partitionKey":[{{"path":"/{key}"}}]}},"integrity":"enforced"}},
                {{"name":"likes","from":{{"container":"c","path":"/likes"}},"to":{{"container":"o"}},"onDelete":"remove"}}],
                "rollups":[{{"name":"staff","link":"boss","op":"count","into":"/staff"}}]}}"#
        ))
    };
    (0..30).for_each(|number| put(&engine, &item(number, 0)));
    catalog.put_model("d", &model("a"), &ANY_MODEL).unwrap();
    wait_until_idle(&engine);
    let staff = |name: &str, number: usize| {
        let id = format!(r#""id":"i{number}""#);
        let found = stored(&engine, name).into_iter().find(|own| own.contains(&id)).unwrap();
        json(&found).get("staff").and_then(Value::as_u64)
    };
    let create_employees = |id: &str, boss: usize| {
        let body = format!(r#"{{"id":"{id}","boss":"i{boss}","a":"a{}","b":"b{}"}}"#, boss % 11, boss % 7);
        write(&engine, &named(&engine, "o"), WriteKind::Upsert, None, &body)
    };
    write(&engine, &named(&engine, "o"), WriteKind::Upsert, None, r#"{"id":"liked"}"#).unwrap();
    put(&engine, r#"{"id":"i40","a":"a7","b":"b5","likes":"liked"}"#);
    let likes = || stored(&engine, "c").iter().any(|own| own.contains(r#""likes":"liked""#));
    create_employees("e1", 3).unwrap();
    create_employees("e2", 3).unwrap();
    assert_eq!(staff("c", 3), Some(2));
    let refused = start(&engine, REKEY);
    assert!(matches!(refused, Err(EngineError::ModelInUse { .. })), "{refused:?}");
    let with_model = |key: &str| rekey_with(&format!(r#""model":{}"#, model(key).to_json()));
    let invalid = rekey_with(
        r#""model":{"version":1,"links":[{"name":"x","from":{"container":"o","path":"/boss"},"to":{"container":"c"}}]}"#,
    );
    let refused = start(&engine, &invalid);
    assert!(matches!(refused, Err(EngineError::ModelInvalid(_))), "{refused:?}");
    start(&engine, &with_model("b")).unwrap();
    wait_for(&engine, "expanded");
    create_employees("e3", 3).unwrap();
    let refused = catalog.put_model("d", &model("b"), &ANY_MODEL);
    assert!(refused.is_err(), "another model while the key changes");
    finish(&engine);
    wait_until_idle(&engine);
    assert_eq!(staff("c", 3), Some(3));
    create_employees("e4", 3).unwrap();
    assert_eq!(staff("c", 3), Some(4));
    assert!(matches!(create_employees("e5", 999), Err(EngineError::RefusedByModel(_))));
    // A link that is the same under both keys knows its referrers by the container that they are in.
    assert!(likes(), "the reference was copied");
    delete_in(&engine, "o", "liked", r#"["liked"]"#);
    assert!(!likes(), "the reference goes with its target");
    undo(&engine);
    wait_until_idle(&engine);
    assert_eq!((staff("c", 3), key_of(&engine, "c")), (Some(4), r#"["/a"]"#.to_owned()));
    create_employees("e6", 3).unwrap();
    assert_eq!(staff("c", 3), Some(5));
    engine.close().unwrap();
    check_sound(&storage);
}

/// The journals of refactorings before and since go on in the container that comes back.
#[test]
fn renames_are_undone_after_the_undo_of_another_key() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 3, "");
    let of = |number: usize, wanted: &str| {
        let found =
            || engine.refactoring("d", &format!("r-{number}")).unwrap().get("state").unwrap().to_json();
        wait_until(wanted, || found() == format!("{wanted:?}"));
        wait_until_idle(&engine);
    };
    let done = |number: usize, body: &str| {
        start(&engine, body).unwrap();
        of(number, "expanded");
        engine.finish_refactoring("d", &format!("r-{number}")).unwrap();
        of(number, "finished");
    };
    let undone = |number: usize| {
        engine.undo_refactoring("d", &format!("r-{number}")).unwrap();
        of(number, "undone");
    };
    done(1, r#"{"kind":"rename","container":"c","from":"/round","to":"/lap"}"#);
    done(2, REKEY);
    done(3, r#"{"kind":"rename","container":"c","from":"/lap","to":"/turn"}"#);
    // Under the other key it gets another value of the first one, and one is gone.
    let turned = |number: usize| item(number, 0).replace("round", "turn");
    put(&engine, &turned(1).replace("\"a\":\"a1\"", "\"a\":\"a9\""));
    delete(&engine, "i3", r#"["b3"]"#);
    undone(2);
    assert_eq!((key_of(&engine, "c"), names(&engine)), (r#"["/a"]"#.to_owned(), vec!["c".to_owned()]));
    let expected = |name: &str| {
        let own = |number: usize| {
            let text = item(number, 0).replace("round", name);
            if number == 1 { text.replace("\"a\":\"a1\"", "\"a\":\"a9\"") } else { text }
        };
        sorted((0..ITEMS).filter(|number| *number != 3).map(own))
    };
    assert_eq!(stored(&engine, "c"), expected("turn"));
    undone(3);
    assert_eq!(stored(&engine, "c"), expected("lap"));
    undone(1);
    assert_eq!(stored(&engine, "c"), expected("round"));
    assert!(conflict_ids(&engine.refactoring("d", "r-1").unwrap()).is_empty());
    wait_until_idle(&engine);
    engine.close().unwrap();
    check_sound(&storage);
}

/// What a rename has in its journal is found under the new key: the items are copies, with rids of their own.
#[test]
fn a_rename_is_undone_under_another_key() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 3, "");
    start(&engine, r#"{"kind":"rename","container":"c","from":"/round","to":"/lap"}"#).unwrap();
    wait_for(&engine, "expanded");
    finish(&engine);
    let of_second = |wanted: &str| {
        let found = || engine.refactoring("d", "r-2").unwrap().get("state").unwrap().to_json();
        wait_until(wanted, || found() == format!("{wanted:?}"));
        wait_until_idle(&engine);
    };
    start(&engine, REKEY).unwrap();
    of_second("expanded");
    engine.finish_refactoring("d", "r-2").unwrap();
    of_second("finished");
    let renamed = |number: usize| item(number, 0).replace("round", "lap");
    assert_eq!(stored(&engine, "c"), sorted((0..ITEMS).map(renamed)));
    // Changed elsewhere, changed at the path, gone, gone and another one with its id, and one that is new.
    put(&engine, &renamed(1).replace("\"lap\"", "\"x\":1,\"lap\""));
    put(&engine, &renamed(2).replace("\"lap\":0", "\"lap\":7"));
    delete(&engine, "i3", r#"["b3"]"#);
    delete(&engine, "i4", r#"["b4"]"#);
    put(&engine, &renamed(4));
    put(&engine, &renamed(ITEMS));
    undo(&engine);
    let expected = (0..=ITEMS).filter(|number| *number != 3).map(|number| match number {
        1 => item(1, 0).replace("\"round\"", "\"x\":1,\"round\""),
        2 => item(2, 0).replace("\"round\":0", "\"lap\":7"),
        4 | ITEMS => renamed(number),
        _ => item(number, 0),
    });
    let members = |text: &String| {
        let mut members: Vec<String> = json(text)
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_json()))
            .collect();
        members.sort();
        members
    };
    let found: Vec<_> = stored(&engine, "c").iter().map(members).collect();
    assert_eq!(found, sorted(expected).iter().map(members).collect::<Vec<_>>());
    assert_eq!(conflict_ids(&engine.refactoring("d", "r-1").unwrap()), ["i2"]);
    assert_eq!(key_of(&engine, "c"), r#"["/b"]"#);
    drop(engine);
    check_sound(&storage);
}
