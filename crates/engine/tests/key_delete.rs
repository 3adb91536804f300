//! Deleting all items of a partition key: at once for everyone, later for the disk.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use quire_engine::{EngineError, Scope, verify};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Op, Space};
use support::fixture::{Fixture, number_of, pk, request, text_of};
use support::hooked_storage::{Call, Calls, HookedStorage};

const HASH: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
const MEMBERS: &str = r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/name"]}]}"#;

fn filled(partitions: u32) -> (Fixture, MemoryStorage) {
    let storage = MemoryStorage::new();
    let fixture = Fixture::on(Arc::new(storage.reopen()), HASH, MEMBERS, partitions);
    for n in 0..600 {
        fixture
            .create(&format!(r#"{{"id":"{n}","pk":"k{}","name":"n{n}","n":{n}}}"#, n % 3))
            .expect("created");
    }
    (fixture, storage)
}

fn delete(fixture: &Fixture, key: &str) -> Result<(), EngineError> {
    fixture.engine.delete_partition_key(&fixture.container, pk(key)).result
}

fn count(fixture: &Fixture, query: &str) -> i64 {
    let page = fixture.page(Some(query), &request(Scope::default(), -1, None)).expect("a page");
    String::from_utf8(page.rows).expect("text").trim_matches(['[', ']']).parse().expect("a number")
}

fn check(fixture: &Fixture) {
    for query in [
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT VALUE COUNT(1) FROM c WHERE c.n >= -1",
        "SELECT VALUE COUNT(1) FROM c WHERE c.pk != 'k1' OR c.pk = 'k1'",
    ] {
        assert_eq!(count(fixture, query), 401, "{query}");
    }
    let listed = fixture.all(None, &Scope::default(), 50);
    assert_eq!(listed.iter().filter(|item| text_of(item, "pk") == "k1").count(), 1);
    assert!(matches!(fixture.read("4", "[\"k1\"]"), Err(EngineError::ItemNotFound { .. })));
    assert_eq!(number_of(&fixture.read("1", "[\"k1\"]").expect("the new one"), "n"), -1);
    fixture.read("0", "[\"k0\"]").expect("of another key");
}

#[test]
fn gone_at_once_and_removed_later() {
    for partitions in [1, 4] {
        let (fixture, storage) = filled(partitions);
        fixture.read("1", "[\"k1\"]").expect("in the cache");
        delete(&fixture, "[\"k1\"]").expect("deleted");
        assert_eq!(count(&fixture, "SELECT VALUE COUNT(1) FROM c"), 400);
        assert!(fixture.read("1", "[\"k1\"]").is_err());
        assert!(fixture.delete("7", "[\"k1\"]").is_err());
        // Its ids and unique values are free.
        fixture.create(r#"{"id":"1","pk":"k1","name":"n4","n":-1}"#).expect("created");
        check(&fixture);
        fixture.engine.close().expect("closes");
        let again = Fixture::again(Arc::new(storage.reopen()), Arc::clone(&fixture.clock));
        check(&again);
        again.engine.pause_sweep(false);
        let started = Instant::now();
        while again.container.usage().0 != 401 || waiting(&again) > 0 {
            assert!(started.elapsed() < Duration::from_secs(60), "{:?}", again.container.usage());
            std::thread::sleep(Duration::from_millis(10));
        }
        check(&again);
        let report = verify(&storage.reopen()).expect("reads");
        assert!(report.is_sound(), "{:?}", report.problems);
    }
}

fn waiting(fixture: &Fixture) -> u64 {
    let figures = fixture.engine.statistics();
    figures.iter().find(|(name, _)| *name == "partition_key_deletes_waiting").expect("known").1
}

#[test]
fn twice_and_of_nothing() {
    let (fixture, _) = filled(2);
    delete(&fixture, "[\"k1\"]").expect("deleted");
    fixture.create(r#"{"id":"1","pk":"k1","name":"n1","n":-1}"#).expect("created");
    delete(&fixture, "[\"k1\"]").expect("deleted again");
    assert!(fixture.read("1", "[\"k1\"]").is_err());
    delete(&fixture, "[\"nobody\"]").expect("nothing to do");
    assert_eq!(count(&fixture, "SELECT VALUE COUNT(1) FROM c"), 400);
}

#[test]
fn a_prefix_is_refused() {
    let key = r#"{"paths":["/a","/b"],"kind":"MultiHash","version":2}"#;
    let fixture = Fixture::with_key(key, "", 1);
    assert!(matches!(delete(&fixture, "[\"x\"]"), Err(EngineError::BadPartitionKey(_))));
}

/// Writers of the key go on meanwhile: what they write after the delete stays.
#[test]
fn later_writes_stay() {
    let (fixture, storage) = filled(1);
    fixture.engine.pause_sweep(false);
    for round in 0..20 {
        for n in 0..30 {
            fixture
                .upsert(&format!(r#"{{"id":"r{n}","pk":"k2","name":"r{n}","n":{round}}}"#))
                .expect("written");
        }
        delete(&fixture, "[\"k2\"]").expect("deleted");
        for n in 0..10 {
            fixture
                .create(&format!(r#"{{"id":"r{n}","pk":"k2","name":"r{n}","n":{round}}}"#))
                .expect("created");
        }
        let scope = Scope { partition_key: Some(pk("[\"k2\"]")), ..Scope::default() };
        assert_eq!(fixture.all(None, &scope, 7).len(), 10, "round {round}");
    }
    fixture.engine.close().expect("closes"); // nothing is removed while it is examined
    let report = verify(&storage.reopen()).expect("reads");
    assert!(report.is_sound(), "{:?}", report.problems);
}

/// Deletes a key, and lets the sweep remove its items and forget the delete after a reader has taken its snapshot and before
/// it looks at it.
fn swept_under_a_snapshot<T: Send>(read: impl Fn(&Fixture) -> T + Send + Sync) -> T {
    let storage = HookedStorage::new(Arc::new(MemoryStorage::new()));
    let calls = storage.calls();
    let fixture = Fixture::on(Arc::new(storage), HASH, MEMBERS, 1);
    for n in 0..10 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"k1","name":"n{n}","n":{n}}}"#)).expect("created");
    }
    let pause = Arc::new((AtomicBool::new(false), Barrier::new(2), Barrier::new(2)));
    let hooked = Arc::clone(&pause);
    calls.set_hook(move |call| {
        let is_reader = std::thread::current().name() == Some("reader");
        if matches!(call, Call::SnapshotTaken) && is_reader && !hooked.0.swap(true, Ordering::SeqCst) {
            hooked.1.wait();
            hooked.2.wait();
        }
    });
    delete(&fixture, "[\"k1\"]").expect("deleted");
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().name("reader".to_owned());
        let reader = reader.spawn_scoped(scope, || read(&fixture)).expect("a thread");
        pause.1.wait();
        fixture.engine.pause_sweep(false);
        let started = Instant::now();
        while waiting(&fixture) > 0 {
            assert!(started.elapsed() < Duration::from_secs(60), "the sweep does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        pause.2.wait();
        reader.join().expect("the reader ends")
    })
}

#[test]
fn an_older_snapshot_shows_nothing_of_a_key_whose_delete_is_done() {
    let read = swept_under_a_snapshot(|fixture| fixture.read("1", "[\"k1\"]").is_ok());
    assert!(!read, "a point read shows an item of a deleted key");
    let counted = swept_under_a_snapshot(|fixture| count(fixture, "SELECT VALUE COUNT(1) FROM c"));
    assert_eq!(counted, 0);
    let listed = swept_under_a_snapshot(|fixture| fixture.all(None, &Scope::default(), 50).len());
    assert_eq!(listed, 0);
    // Its unique values and ids are free, whatever the writer's snapshot shows.
    let created =
        swept_under_a_snapshot(|fixture| fixture.create(r#"{"id":"x","pk":"k1","name":"n1"}"#).is_ok());
    assert!(created, "a unique value of a deleted key is taken");
}

/// A delete that comes between the look at the deletes and the snapshot: a query shows what was before it or what is after.
#[test]
fn a_snapshot_shows_items_from_before_or_after_a_delete_and_never_both() {
    let storage = HookedStorage::new(Arc::new(MemoryStorage::new()));
    let calls = storage.calls();
    let fixture = Fixture::on(Arc::new(storage), HASH, "", 1);
    fixture.create(r#"{"id":"1","pk":"k1","n":1}"#).expect("created");
    let fixture = Arc::new(fixture);
    let (writer, is_first) = (Arc::clone(&fixture), AtomicBool::new(true));
    calls.set_hook(move |call| {
        let is_reader = std::thread::current().name() == Some("reader");
        if matches!(call, Call::BeforeSnapshot) && is_reader && is_first.swap(false, Ordering::SeqCst) {
            delete(&writer, "[\"k1\"]").expect("deleted");
            writer.create(r#"{"id":"1","pk":"k1","n":2}"#).expect("created");
        }
    });
    let numbers = std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().name("reader".to_owned());
        let read = || fixture.all(Some("SELECT VALUE c.n FROM c"), &Scope::default(), 50);
        reader.spawn_scoped(scope, read).expect("a thread").join().expect("the reader ends")
    });
    assert_eq!(numbers, [support::fixture::json("2")]);
    calls.set_hook(|_| ());
}

/// Keys are emptied in turn, each with one look at its items: a small one does not wait for a large one.
#[test]
fn keys_alternate_and_rows_are_read_once() {
    let memory = MemoryStorage::new();
    let storage = HookedStorage::new(Arc::new(memory.reopen()));
    let calls = storage.calls();
    let fixture = Fixture::on(Arc::new(storage), HASH, "", 1);
    for n in 0..3000 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"large"}}"#)).expect("created");
    }
    let small: Vec<String> = (0..20).map(|key| format!("small {key}")).collect();
    for key in &small {
        fixture.create(&format!(r#"{{"id":"1","pk":"{key}"}}"#)).expect("created");
    }
    for key in small.iter().map(String::as_str).chain(["large"]) {
        delete(&fixture, &format!("[\"{key}\"]")).expect("deleted");
    }
    let rows = Calls::count(&calls.rows);
    // Items that were left when the first mark went.
    let most = Arc::new(AtomicU64::new(0));
    let (first, watched) = (Arc::clone(&most), Arc::clone(&fixture.container));
    calls.set_hook(move |call| {
        let forgets = |op: &Op| matches!(op, Op::Delete { space: Space(0), key } if key[0] == 0xC5);
        if let Call::Commit(commit) = call
            && commit.ops.iter().any(forgets)
        {
            first.fetch_max(watched.usage().0, Ordering::SeqCst);
        }
    });
    fixture.engine.pause_sweep(false);
    let started = Instant::now();
    while fixture.container.usage().0 > 0 || waiting(&fixture) > 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", fixture.container.usage());
        std::thread::sleep(Duration::from_millis(2));
    }
    let rows = Calls::count(&calls.rows) - rows;
    assert!(rows < 2 * 3020 + 100, "{rows} rows were looked at to remove 3020 items");
    let most = most.load(Ordering::SeqCst);
    assert!(most >= 2000, "{most} items were left when the first key was done");
    calls.set_hook(|_| ());
    let report = verify(&memory.reopen()).expect("reads");
    assert!(report.is_sound(), "{:?}", report.problems);
}
