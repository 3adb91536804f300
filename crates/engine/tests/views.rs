//! Views: what a source has, cut down and under another key, whatever happens to either.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quire_engine::{
    BatchOperation, BatchVerb, ChangesRequest, Container, Engine, EngineError, FeedMode, FeedStart,
    IndexingDirective, PageRequest, Precondition, Scope, ViewState, WriteItem, WriteKind,
};
use quire_storage::fault::{FaultStorage, Rates};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Op, Space};
use quire_value::{Limits, Object, Value, text};
use support::check_sound;
use support::fixture::{Fixture, Random, json, pk, request, text_of};
use support::hooked_storage::{Call, HookedStorage};

const HASH: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
const PATIENCE: Duration = Duration::from_secs(60);

fn create_view(
    engine: &Engine,
    id: &str,
    key: &str,
    projection: &str,
) -> Result<Arc<Container>, EngineError> {
    let body = format!(
        r#"{{"id":"{id}","partitionKey":{{"paths":["{key}"],"version":2}},
            "materializedViewDefinition":{{"sourceCollectionId":"c","definition":"{projection}"}}}}"#
    );
    engine.catalog().create_container("db", &json(&body), None)
}

/// Returns when no view is written to any more: a round that is under way ends first.
fn pause_views(engine: &Engine) {
    engine.pause_views(true);
    std::thread::sleep(Duration::from_millis(300));
}

/// Until the view follows its source and is where it is.
fn catch_up(engine: &Engine, view: &Container) {
    let started = Instant::now();
    loop {
        let status = engine.view_status(view).expect("a view");
        if status.state == ViewState::Active && status.lag == 0 {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{status:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn all(engine: &Engine, container: &Arc<Container>) -> Vec<Value> {
    let (mut rows, mut next) = (Vec::new(), request(Scope::default(), 50, None));
    loop {
        let page = engine.list_items(container, &next).result.expect("a page");
        let values = text::parse(&page.rows, Limits::default()).expect("pages are JSON");
        rows.extend(values.as_array().expect("pages are arrays").to_vec());
        match page.continuation {
            Some(token) => next = request(Scope::default(), 50, Some(token)),
            None => return rows,
        }
    }
}

/// What is to be in a view, by the rids of the source's items.
fn expected(source: &[Value], names: Option<&[&str]>) -> BTreeMap<String, String> {
    let project = |item: &Value| {
        let item = item.as_object().expect("an object");
        let mut kept = Object::new();
        kept.set("_id", item.get("id").cloned());
        for (name, value) in item.iter() {
            let is_own = name == "id" || name.starts_with('_');
            if !is_own && names.is_none_or(|names| names.contains(&name)) {
                kept.set(name, value.clone());
            }
        }
        Value::Object(kept).to_json()
    };
    source.iter().map(|item| (text_of(item, "_rid").to_owned(), project(item))).collect()
}

fn found(view: &[Value]) -> BTreeMap<String, String> {
    let project = |item: &Value| {
        let item = item.as_object().expect("an object");
        let system = ["id", "_rid", "_self", "_etag", "_attachments", "_ts"];
        let kept = item.iter().filter(|(name, _)| !system.contains(name));
        Value::Object(kept.map(|(name, value)| (name.to_owned(), value.clone())).collect()).to_json()
    };
    let items: BTreeMap<_, _> =
        view.iter().map(|item| (text_of(item, "id").to_owned(), project(item))).collect();
    assert_eq!(items.len(), view.len(), "an item is in the view twice");
    items
}

fn assert_same(engine: &Engine, view: &Arc<Container>, names: Option<&[&str]>) {
    catch_up(engine, view);
    let source = engine.catalog().container("db", "c").expect("the source");
    let view = engine.catalog().container("db", &view.definition.id).expect("the view");
    assert_eq!(found(&all(engine, &view)), expected(&all(engine, &source), names));
}

fn fixture(members: &str, partitions: u32) -> (Fixture, MemoryStorage) {
    let storage = MemoryStorage::new();
    (Fixture::on(Arc::new(storage.reopen()), HASH, members, partitions), storage)
}

#[test]
fn existing_and_later_items_are_in_the_view() {
    let (fixture, storage) = fixture("", 3);
    for n in 0..500 {
        fixture
            .create(&format!(r#"{{"id":"{n}","pk":"k{}","city":"c{}","n":{n},"more":[1]}}"#, n % 7, n % 5))
            .expect("created");
    }
    let view = create_view(&fixture.engine, "v", "/city", "SELECT c.city, c.n FROM c").expect("a view");
    assert_same(&fixture.engine, &view, Some(&["city", "n"]));
    fixture.upsert(r#"{"id":"1","pk":"k1","city":"elsewhere","n":1}"#).expect("moves");
    fixture.upsert(r#"{"id":"2","pk":"k2","n":2}"#).expect("has no key any more");
    fixture.upsert(r#"{"id":"3","pk":"k3","city":{"a":1},"n":2}"#).expect("has no key either");
    fixture.delete("4", "[\"k4\"]").expect("deleted");
    fixture.create(r#"{"id":"4","pk":"k4","city":"c4","n":44}"#).expect("another one");
    fixture.create(r#"{"id":"new","pk":"k","city":"c0","_id":"own","id2":3}"#).expect("created");
    assert_same(&fixture.engine, &view, Some(&["city", "n"]));
    check_sound(&storage.reopen());
    let scope = Scope { partition_key: Some(pk("[\"elsewhere\"]")), ..Scope::default() };
    let query = "SELECT VALUE c._id FROM c";
    let page = PageRequest { scope, ..request(Scope::default(), 10, None) };
    let page = fixture.engine.query_items(&view, query, &Default::default(), &page).result.expect("a page");
    assert_eq!(&page.rows[..], b"[\"1\"]");
}

#[test]
fn an_item_whose_part_in_the_view_stays_is_not_written() {
    let (fixture, _) = fixture("", 1);
    fixture.create(r#"{"id":"1","pk":"k","a":1,"b":1}"#).expect("created");
    let view = create_view(&fixture.engine, "v", "/a", "SELECT c.a FROM c").expect("a view");
    catch_up(&fixture.engine, &view);
    let before = all(&fixture.engine, &view);
    fixture.upsert(r#"{"id":"1","pk":"k","a":1,"b":2}"#).expect("written");
    catch_up(&fixture.engine, &view);
    assert_eq!(all(&fixture.engine, &view), before, "ETag and all");
}

#[test]
fn expired_items_leave_the_view() {
    let (fixture, storage) = fixture(r#""defaultTtl":-1"#, 2);
    let view = create_view(&fixture.engine, "v", "/n", "SELECT * FROM c").expect("a view");
    for n in 0..50 {
        let ttl = if n % 2 == 0 { r#","ttl":10"# } else { "" };
        fixture.create(&format!(r#"{{"id":"{n}","pk":"k","n":{n}{ttl}}}"#)).expect("created");
    }
    assert_same(&fixture.engine, &view, None);
    fixture.clock.advance(11);
    fixture.engine.pause_sweep(false);
    let started = Instant::now();
    while fixture.container.usage().0 != 25 {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_same(&fixture.engine, &view, None);
    assert_eq!(all(&fixture.engine, &view).len(), 25);
    check_sound(&storage.reopen());
}

#[test]
fn versions_go_when_the_views_have_them() {
    let (fixture, storage) = fixture("", 1);
    let view = create_view(&fixture.engine, "v", "/n", "SELECT * FROM c").expect("a view");
    catch_up(&fixture.engine, &view);
    pause_views(&fixture.engine);
    fixture.engine.pause_sweep(false);
    for n in 0..20 {
        fixture.upsert(&format!(r#"{{"id":"{}","pk":"k","n":{n}}}"#, n % 4)).expect("written");
    }
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(fixture.rows(4, &[3]), 20, "the view needs them");
    let status = fixture.engine.view_status(&view).expect("a view");
    assert_eq!((status.lag, status.state), (20, ViewState::Active));
    let request = ChangesRequest {
        mode: FeedMode::AllVersions,
        page: PageRequest::default(),
        start: FeedStart::Now,
        since: None,
        all_previous_images: false,
    };
    let versions = fixture.engine.read_changes(&fixture.container, &request).result;
    assert!(versions.is_err(), "no policy asks for versions");
    fixture.engine.pause_views(false);
    assert_same(&fixture.engine, &view, None);
    let started = Instant::now();
    while fixture.rows(4, &[3]) > 0 {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    check_sound(&storage.reopen());
}

/// A policy of the source's own keeps its versions for as long as it says, and longer for the view alone.
#[test]
fn readers_of_versions_see_what_the_policy_says() {
    let (fixture, _) = fixture(r#""changeFeedPolicy":{"retentionDuration":1}"#, 1);
    let view = create_view(&fixture.engine, "v", "/n", "SELECT * FROM c").expect("a view");
    catch_up(&fixture.engine, &view);
    fixture.engine.pause_sweep(false);
    let wait_for = |count: usize| {
        let started = Instant::now();
        while fixture.rows(4, &[3]) != count {
            assert!(started.elapsed() < PATIENCE, "{} versions", fixture.rows(4, &[3]));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    fixture.create(r#"{"id":"1","pk":"k","n":1}"#).expect("created");
    catch_up(&fixture.engine, &view);
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(fixture.rows(4, &[3]), 1, "readers may still come");
    fixture.clock.advance(61);
    wait_for(0);
    pause_views(&fixture.engine);
    fixture.create(r#"{"id":"2","pk":"k","n":1}"#).expect("created");
    fixture.clock.advance(61);
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(fixture.rows(4, &[3]), 1, "the view needs it");
    fixture.engine.pause_views(false);
    wait_for(0);
    assert_same(&fixture.engine, &view, None);
}

#[test]
fn clients_do_not_write_to_a_view() {
    let (fixture, _) = fixture("", 1);
    fixture.create(r#"{"id":"1","pk":"k","a":1}"#).expect("created");
    let view = create_view(&fixture.engine, "v", "/a", "SELECT * FROM c").expect("a view");
    catch_up(&fixture.engine, &view);
    let id = text_of(&all(&fixture.engine, &view)[0], "id").to_owned();
    let refused = |error: EngineError| match error {
        EngineError::Forbidden { reason } => {
            assert_eq!(reason, "The container 'v' is a view of 'c' and cannot be written to.");
        }
        other => panic!("{other}"),
    };
    for kind in [
        WriteKind::Create,
        WriteKind::Upsert,
        WriteKind::Replace { id: id.clone() },
        WriteKind::Delete { id: id.clone() },
        WriteKind::Patch { id: id.clone(), if_none_match: None },
    ] {
        let write = WriteItem {
            want_body: true,
            ..WriteItem::new(kind, Some(pk("[1]")), format!(r#"{{"id":"{id}","a":1}}"#))
        };
        refused(fixture.engine.write_item(&view, write).result.err().expect("refused"));
    }
    assert_eq!(all(&fixture.engine, &view).len(), 1);
}

#[test]
fn sources_and_views_depend_on_each_other() {
    let (fixture, _) = fixture("", 1);
    let engine = &fixture.engine;
    for (key, projection) in
        [("/a", "SELECT c.a.b FROM c"), ("/a", "SELECT * FROM c WHERE c.a"), ("/a", "nonsense")]
    {
        create_view(engine, "v", key, projection).map(|_| ()).expect_err(projection);
    }
    let missing = r#"{"id":"v","partitionKey":{"paths":["/a"]},
        "materializedViewDefinition":{"sourceCollectionId":"nowhere","definition":"SELECT * FROM c"}}"#;
    engine.catalog().create_container("db", &json(missing), None).map(|_| ()).expect_err("no such source");
    let view = create_view(engine, "v", "/a", "SELECT * FROM c").expect("a view");
    let of_view = r#"{"id":"w","partitionKey":{"paths":["/a"]},
        "globalSecondaryIndexDefinition":{"sourceContainerId":"v","definition":"SELECT * FROM c"}}"#;
    engine.catalog().create_container("db", &json(of_view), None).map(|_| ()).expect_err("a view of a view");
    for n in 1..5 {
        create_view(engine, &format!("v{n}"), "/a", "SELECT * FROM c").expect("a view");
    }
    create_view(engine, "v5", "/a", "SELECT * FROM c").map(|_| ()).expect_err("the sixth");
    let names: Vec<String> =
        engine.catalog().views_of(&fixture.container).iter().map(|view| view.definition.id.clone()).collect();
    assert_eq!(names, ["v", "v1", "v2", "v3", "v4"]);
    let any = Precondition::default();
    engine.catalog().delete_container("db", "c", &any).expect_err("it has views");
    let body = json(
        r#"{"id":"v","partitionKey":{"paths":["/a"],"version":2},"indexingPolicy":{"indexingMode":"none","automatic":false}}"#,
    );
    let replaced = engine.catalog().replace_container("db", "v", &body, &any).expect("another policy");
    assert_eq!(replaced.definition.view, view.definition.view);
    let body = json(
        r#"{"id":"v","partitionKey":{"paths":["/a"],"version":2},
            "materializedViewDefinition":{"sourceCollectionId":"c","definition":"SELECT c.a FROM c"}}"#,
    );
    engine.catalog().replace_container("db", "v", &body, &any).map(|_| ()).expect_err("another projection");
    for view in names {
        engine.catalog().delete_container("db", &view, &any).expect("deleted");
    }
    engine.catalog().delete_container("db", "c", &any).expect("deleted");
}

#[test]
fn a_view_is_rebuilt() {
    let (fixture, storage) = fixture("", 2);
    for n in 0..450 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"k{n}","a":{}}}"#, n % 3)).expect("created");
    }
    let view = create_view(&fixture.engine, "v", "/a", "SELECT c.a FROM c").expect("a view");
    assert_same(&fixture.engine, &view, Some(&["a"]));
    fixture.engine.rebuild_view(&fixture.container).expect_err("no view");
    pause_views(&fixture.engine);
    fixture.engine.rebuild_view(&view).expect("begins");
    let status = fixture.engine.view_status(&view).expect("a view");
    assert_eq!((status.state, status.lag), (ViewState::Initializing, 450));
    fixture.delete("7", "[\"k7\"]").expect("deleted");
    fixture.engine.pause_views(false);
    assert_same(&fixture.engine, &view, Some(&["a"]));
    check_sound(&storage.reopen());
}

/// Random writes, with everything that can happen to a view in between.
#[test]
fn the_model() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(17);
    println!("SEED={seed}");
    let mut random = Random(seed);
    let (mut fixture, storage) = fixture(r#""defaultTtl":-1"#, 3);
    fixture.engine.pause_sweep(false);
    create_view(&fixture.engine, "v", "/a", "SELECT * FROM c").expect("a view");
    for round in 0..12 {
        for _ in 0..150 {
            let (id, key) = (random.below(60), random.below(5));
            let ttl = if random.below(10) == 0 { r#","ttl":3"# } else { "" };
            let body = format!(
                r#"{{"id":"{id}","pk":"k{key}","a":{},"b":{}{ttl}}}"#,
                random.below(4),
                random.below(3)
            );
            match random.below(10) {
                0..6 => drop(fixture.upsert(&body)),
                6..9 => drop(fixture.delete(&id.to_string(), &format!("[\"k{key}\"]"))),
                _ => {
                    let body = |n: u64| format!(r#"{{"id":"b{n}","pk":"k{key}","a":{}}}"#, (n + id) % 4);
                    let upserts: Vec<_> = (0..3).map(|n| upsert(&body(n))).collect();
                    let key = pk(&format!("[\"k{key}\"]"));
                    fixture
                        .engine
                        .write_batch(&fixture.container, &key, &upserts, None, &Default::default())
                        .result
                        .expect("done");
                }
            }
        }
        fixture.clock.advance(1);
        match round % 4 {
            0 => {
                let view = fixture.engine.catalog().container("db", "v").expect("the view");
                fixture.engine.rebuild_view(&view).expect("begins");
            }
            1 => {
                let clock = Arc::clone(&fixture.clock);
                fixture.engine.close().expect("closes");
                drop(fixture);
                fixture = Fixture::again(Arc::new(storage.reopen()), clock);
                fixture.engine.pause_sweep(false);
            }
            2 if round == 6 => {
                fixture
                    .engine
                    .catalog()
                    .delete_container("db", "v", &Precondition::default())
                    .expect("deleted");
                create_view(&fixture.engine, "v", "/b", "SELECT c.a, c.b, c.ttl FROM c").expect("a view");
            }
            _ => {}
        }
        if random.below(2) == 0 {
            wait_until_expired(&fixture);
            let view = fixture.engine.catalog().container("db", "v").expect("the view");
            let names = (round >= 6).then_some(&["a", "b", "ttl"][..]);
            let names = names.or(Some(&["pk", "a", "b", "ttl"]));
            assert_same(&fixture.engine, &view, names);
        }
    }
    wait_until_expired(&fixture);
    let view = fixture.engine.catalog().container("db", "v").expect("the view");
    assert_same(&fixture.engine, &view, Some(&["a", "b", "ttl"]));
    fixture.engine.close().expect("closes");
    check_sound(&storage.reopen());
}

fn upsert(body: &str) -> BatchOperation {
    BatchOperation {
        verb: BatchVerb::Upsert,
        body: Bytes::copy_from_slice(body.as_bytes()),
        if_match: None,
        if_none_match: None,
        indexing: IndexingDirective::Default,
        partition_key: None,
        want_body: false,
    }
}

/// Until what has expired is gone.
fn wait_until_expired(fixture: &Fixture) {
    let started = Instant::now();
    while all(&fixture.engine, &fixture.container).len() as u64 != fixture.container.usage().0 {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Commits that fail, or of which nobody says how they ended, while items move between the keys of the view.
#[test]
fn on_a_faulty_storage() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let memory = MemoryStorage::new();
        let rates =
            Rates { conflict: 20, busy: 20, unknown_done: 60, unknown_not_done: 60, ..Rates::default() };
        let storage = Arc::new(FaultStorage::seeded(memory.reopen(), seed, rates));
        let made = Fixture::on(Arc::new(memory.reopen()), HASH, "", 2);
        made.engine.pause_views(true);
        create_view(&made.engine, "v", "/a", "SELECT c.a, c.b FROM c").expect("a view");
        made.engine.close().expect("closes");
        let fixture = Fixture::again(storage.clone(), Arc::clone(&made.clock));
        let view = fixture.engine.catalog().container("db", "v").expect("the view");
        for n in 0..400 {
            let (id, key) = (random.below(20), random.below(3));
            let body = format!(r#"{{"id":"{id}","pk":"k{key}","a":{},"b":{n}}}"#, random.below(4));
            match random.below(4) {
                0 => drop(fixture.delete(&id.to_string(), &format!("[\"k{key}\"]"))),
                _ => drop(fixture.upsert(&body)),
            }
            if n == 200 {
                drop(fixture.engine.rebuild_view(&view));
            }
        }
        storage.stop_faults();
        assert_same(&fixture.engine, &view, Some(&["a", "b"]));
        fixture.engine.close().expect("closes");
        check_sound(&memory.reopen());
    }
}

#[test]
fn many_writers_while_it_is_filled_and_rebuilt() {
    let (fixture, storage) = fixture("", 3);
    for n in 0..1500 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"k{}","a":{}}}"#, n % 9, n % 4)).expect("created");
    }
    let view = std::thread::scope(|scope| {
        for writer in 0..3u64 {
            let fixture = &fixture;
            scope.spawn(move || {
                let mut random = Random(writer);
                for _ in 0..700 {
                    let n = random.below(1500);
                    let key = n % 9;
                    match random.below(4) {
                        0 => drop(fixture.delete(&n.to_string(), &format!("[\"k{key}\"]"))),
                        _ => drop(
                            fixture
                                .upsert(&format!(r#"{{"id":"{n}","pk":"k{key}","a":{}}}"#, random.below(5))),
                        ),
                    }
                }
            });
        }
        let view = create_view(&fixture.engine, "v", "/a", "SELECT * FROM c").expect("a view");
        std::thread::sleep(Duration::from_millis(100));
        fixture.engine.rebuild_view(&view).expect("begins");
        view
    });
    assert_same(&fixture.engine, &view, None);
    check_sound(&storage.reopen());
}

#[test]
fn a_restored_view_is_filled_again() {
    let (fixture, _) = fixture("", 2);
    let view = create_view(&fixture.engine, "v", "/a", "SELECT * FROM c").expect("a view");
    for n in 0..300 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"k{n}","a":{}}}"#, n % 3)).expect("created");
    }
    catch_up(&fixture.engine, &view);
    pause_views(&fixture.engine);
    fixture.delete("5", "[\"k5\"]").expect("deleted");
    let directory = tempfile::tempdir().expect("a directory");
    let backup = directory.path().join("backup");
    fixture.engine.backup(&backup).expect("a backup");
    let storage = MemoryStorage::new();
    quire_engine::restore(&backup, &storage).expect("restored");
    let again = Fixture::again(Arc::new(storage.reopen()), Arc::clone(&fixture.clock));
    let view = again.engine.catalog().container("db", "v").expect("the view");
    assert_same(&again.engine, &view, None);
    assert_eq!(all(&again.engine, &view).len(), 299);
    again.create(r#"{"id":"new","pk":"k","a":1}"#).expect("created");
    assert_same(&again.engine, &view, None);
    check_sound(&storage.reopen());
}

/// Partitions of source and view are split while the view is filled, follows and is rebuilt, and writers write.
#[test]
fn partitions_are_split() {
    let (fixture, storage) = fixture("", 1);
    fixture.engine.pause_sweep(false);
    for n in 0..600 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"k{}","a":{}}}"#, n % 40, n % 30)).expect("created");
    }
    let split = |name: &str| {
        for partition in fixture.engine.catalog().container("db", name).expect("there").partitions() {
            let container = fixture.engine.catalog().container("db", name).expect("there");
            // One with a single key cannot be split.
            drop(fixture.engine.split_partition(&container, &partition.id));
        }
    };
    let view = std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let fixture = &fixture;
            scope.spawn(move || {
                let mut random = Random(writer);
                for _ in 0..600 {
                    let n = random.below(600);
                    let (key, a) = (n % 40, random.below(30));
                    if random.below(4) == 0 {
                        drop(fixture.delete(&n.to_string(), &format!("[\"k{key}\"]")));
                    } else {
                        let body = format!(r#"{{"id":"{n}","pk":"k{key}","a":{a}}}"#);
                        fixture.upsert(&body).expect("written");
                    }
                }
            });
        }
        let view = create_view(&fixture.engine, "v", "/a", "SELECT * FROM c").expect("a view");
        split("c");
        split("v");
        split("c");
        fixture.engine.rebuild_view(&view).expect("begins, whatever was split");
        split("v");
        split("c");
        view
    });
    assert_same(&fixture.engine, &view, None);
    assert!(fixture.engine.catalog().container("db", "c").expect("there").partitions().len() >= 8);
    assert!(fixture.engine.catalog().container("db", "v").expect("there").partitions().len() >= 3);
    // What lies in the logs of ancestors is taken by their descendants.
    pause_views(&fixture.engine);
    for n in 0..100 {
        fixture.upsert(&format!(r#"{{"id":"{n}","pk":"k{}","a":{}}}"#, n % 40, n + 1000)).expect("written");
    }
    split("c");
    for n in 50..150 {
        fixture.upsert(&format!(r#"{{"id":"{n}","pk":"k{}","a":{}}}"#, n % 40, n + 2000)).expect("written");
    }
    std::thread::sleep(Duration::from_millis(700));
    fixture.engine.pause_views(false);
    assert_same(&fixture.engine, &view, None);
    fixture.engine.close().expect("closes");
    check_sound(&storage.reopen());
}

/// A view that cannot follow, for whatever reason, does not keep its source's versions for ever: beyond a bound it is filled
/// again, and then has what its source has.
#[test]
fn a_view_that_is_too_far_behind_is_filled_again() {
    let storage = MemoryStorage::new();
    let hooked = HookedStorage::new(Arc::new(storage.reopen()));
    let calls = hooked.calls();
    let fixture = Fixture::on(Arc::new(hooked), HASH, "", 1);
    let view = create_view(&fixture.engine, "v", "/n", "SELECT * FROM c").expect("a view");
    fixture.upsert(r#"{"id":"0","pk":"k","n":0}"#).expect("written");
    catch_up(&fixture.engine, &view);
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    calls.set_hook(move |call| {
        let is_item =
            |op: &Op| matches!(op, Op::Put { space: Space(1), .. } | Op::Delete { space: Space(1), .. });
        let is_views = matches!(std::thread::current().name(), Some("quire-views" | "quire-jobs"));
        if let Call::Commit(commit) = call
            && is_views
            && broken.load(Ordering::SeqCst)
            && commit.ops.iter().any(is_item)
        {
            panic!("by design");
        }
    });
    fixture.engine.rebuild_views_behind(50);
    fixture.engine.pause_sweep(false);
    for n in 0..20 {
        fixture.upsert(&format!(r#"{{"id":"{}","pk":"k","n":{n}}}"#, n % 7)).expect("written");
    }
    let statistic =
        |name: &str| fixture.engine.statistics().iter().find(|(found, _)| *found == name).expect("known").1;
    let wait = |what: &str, condition: &dyn Fn() -> bool| {
        let started = Instant::now();
        while !condition() {
            assert!(started.elapsed() < PATIENCE, "waited too long until {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait("a small lag is seen", &|| statistic("view_lag_max") == 20);
    assert_eq!(statistic("view_lag_alarms"), 0);
    for n in 20..50 {
        fixture.upsert(&format!(r#"{{"id":"{}","pk":"k","n":{n}}}"#, n % 7)).expect("written");
    }
    wait("the lag is seen", &|| statistic("view_lag_max") == 50);
    wait("there is an alarm above half of the lag", &|| statistic("view_lag_alarms") == 1);
    assert_eq!((statistic("views_rebuilt_for_lag"), fixture.rows(4, &[3])), (0, 50));
    for n in 0..20 {
        fixture.upsert(&format!(r#"{{"id":"{}","pk":"k","n":{n}}}"#, n % 7)).expect("written");
    }
    wait("it is filled again", &|| statistic("views_rebuilt_for_lag") == 1);
    wait("the versions are gone", &|| fixture.rows(4, &[3]) == 0);
    assert_eq!(fixture.engine.view_status(&view).expect("a view").state, ViewState::Initializing);
    is_broken.store(false, Ordering::SeqCst);
    catch_up(&fixture.engine, &view);
    wait("the alarm is over", &|| statistic("view_lag_alarms") == 0);
    assert_same(&fixture.engine, &view, None);
    check_sound(&storage.reopen());
    calls.set_hook(|_| ());
}
