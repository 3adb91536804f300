//! Backups under writers, restores, and what `verify` notices.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quire_engine::{Container, Engine, EngineError, Precondition, WriteKind};
use quire_storage::fault::{FaultStorage, Rates};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Commit, Direction, KeyRange, Op, Scan, Space, Storage, Token};
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_value::Value;
use support::hooked_storage::{Call, HookedStorage};
use support::{check_sound, container, dump, items, json, open, options_with, upsert};

const ANY: Precondition = Precondition { if_match: None };

fn restored(backup: &Path) -> MemoryStorage {
    let report = quire_engine::verify_backup(backup).unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
    let storage = MemoryStorage::new();
    quire_engine::restore(backup, &storage).unwrap();
    check_sound(&storage);
    storage
}

#[test]
fn a_quiet_account_comes_back_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup");
    let engine = Engine::open(Arc::new(MemoryStorage::new()), options_with(3)).unwrap();
    let container = container(&engine);
    let unique = r#"{"id":"u","partitionKey":{"paths":["/pk"]},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a"]}]},"defaultTtl":-1}"#;
    let unique = engine.catalog().create_container("d", &json(unique), None).unwrap();
    for number in 0..300 {
        upsert(&engine, &container, &"x".repeat(number % 200 + 1), number as u64).unwrap();
        let body = format!(r#"{{"id":"{number}","pk":{},"a":{number},"ttl":{}}}"#, number % 7, 1000 + number);
        support::write(&engine, &unique, WriteKind::Create, &body).unwrap();
    }
    engine.catalog().delete_container("d", "c", &ANY).unwrap();
    let nowhere = quire_value::Path::parse("/nowhere").unwrap();
    engine.index_missing_values(&unique, &nowhere);
    while !unique.has_missing_rows(&nowhere) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let report = engine.backup(&backup).unwrap();
    assert_eq!((report.containers, report.items), (1, 300));
    let storage = restored(&backup);
    let again = Engine::open(Arc::new(storage.reopen()), options_with(3)).unwrap();
    assert_eq!(dump(&again), dump(&engine));
    let unique_again = again.catalog().container("d", "u").unwrap();
    assert!(!unique_again.has_missing_rows(&nowhere), "they are made again when a query wants them");
    assert_eq!(items(&again, &unique_again), items(&engine, &unique));
    // A new incarnation: nothing that the old one may have said meanwhile is said again.
    assert_eq!(again.incarnation(), engine.incarnation() + 1);
    assert_ne!(again.secret(), engine.secret());
    assert!(unique_again.positions().iter().all(|position| position.session_version == 2));
    for (new, old) in unique_again.positions().iter().zip(unique.positions()) {
        assert!(new.lsn > old.lsn + 1_000_000);
    }
    let taken = r#"{"id":"new","pk":0,"a":0}"#;
    let taken = support::write(&again, &unique_again, WriteKind::Create, taken);
    assert!(matches!(taken, Err(EngineError::UniqueKeyTaken { .. })));
    let free = r#"{"id":"new","pk":0,"a":"free"}"#;
    support::write(&again, &unique_again, WriteKind::Create, free).unwrap();
    support::write(&engine, &unique, WriteKind::Create, free).unwrap();
    let rid = |engine: &Engine, container| {
        let item = json(&items(engine, container)["new"]);
        (item.get("_rid").unwrap().to_json(), item.get("_etag").unwrap().to_json())
    };
    let (old, new) = (rid(&engine, &unique), rid(&again, &unique_again));
    assert!(old.0 != new.0 && old.1 != new.1, "{old:?} {new:?}");
    again.catalog().create_database(&json(r#"{"id":"e"}"#), None).unwrap();
    assert!(again.catalog().database("e").unwrap().rid > engine.catalog().database("d").unwrap().rid);
    again.close().unwrap();
    check_sound(&storage.reopen());
}

/// An acknowledged write.
struct Event {
    partition: String,
    lsn: u64,
    name: String,
    /// `None`: deleted.
    value: Option<u64>,
}

#[test]
fn a_backup_under_writers_is_the_state_at_its_lsn_vector() {
    for round in 0..5u64 {
        let directory = tempfile::tempdir().unwrap();
        let backup = directory.path().join("backup");
        let memory = MemoryStorage::new();
        let rates = Rates { delay: 50, ..Rates::default() };
        let storage = Arc::new(FaultStorage::seeded(memory.reopen(), round, rates));
        let engine = Arc::new(Engine::open(storage, options_with(3)).unwrap());
        let container = container(&engine);
        let written = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (engine, container) = (engine.clone(), container.clone());
                let (written, stop) = (written.clone(), stop.clone());
                std::thread::spawn(move || run_writer(&engine, &container, writer, round, &written, &stop))
            })
            .collect();
        support::wait_until("there is something to copy", || written.load(Ordering::Relaxed) > 3000);
        let before = written.load(Ordering::Relaxed);
        engine.backup(&backup).unwrap();
        assert!(written.load(Ordering::Relaxed) > before, "writers went on");
        stop.store(true, Ordering::SeqCst);
        let events: Vec<Event> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        check_sound(&memory.reopen());
        let vector = lsn_vector(&backup);
        let again = open(&restored(&backup));
        let found = items(&again, &again.catalog().container("d", "c").unwrap());
        let value = |item: &String| json(item).get("value").unwrap().as_i64().unwrap() as u64;
        let found: BTreeMap<String, u64> =
            found.iter().map(|(name, item)| (name.clone(), value(item))).collect();
        assert_eq!(found, state_at(&vector, events), "seed {round}");
    }
}

fn run_writer(
    engine: &Engine,
    container: &Arc<Container>,
    writer: u64,
    seed: u64,
    written: &AtomicU64,
    stop: &AtomicBool,
) -> Vec<Event> {
    let mut events = Vec::new();
    let mut random = seed * 1000 + writer + 1;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for step in 0u64.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        // The length decides the logical partition. Items are written by all.
        let number = next() % 2000;
        let name = format!("{number:0width$}", width = 5 + (number % 3) as usize);
        let value = (next() % 3 > 0).then_some(writer << 32 | step);
        let answer = match value {
            Some(value) => support::upsert_answer(engine, container, &name, value),
            None => support::delete_answer(engine, container, &name),
        };
        match answer.result {
            Ok(done) => {
                let partition = answer.position.unwrap().partition_id.to_string();
                events.push(Event { partition, lsn: done.item_lsn, name, value });
                written.fetch_add(1, Ordering::Relaxed);
            }
            Err(EngineError::ItemNotFound { .. }) if value.is_none() => {}
            Err(error) => panic!("{error}"),
        }
    }
    events
}

/// How far every partition had come, as the manifest says.
fn lsn_vector(backup: &Path) -> HashMap<String, u64> {
    let manifest = fs::read_to_string(backup.join("manifest.json")).unwrap();
    let manifest = json(manifest.lines().next().unwrap());
    let containers = manifest.get("containers").unwrap().as_array().unwrap();
    let partitions = containers[0].get("partitions").unwrap().as_array().unwrap();
    let lsn = |partition: &Value| partition.get("lsn").unwrap().as_i64().unwrap() as u64;
    partitions.iter().map(|partition| (partition.get("id").unwrap().to_json(), lsn(partition))).collect()
}

fn state_at(vector: &HashMap<String, u64>, mut events: Vec<Event>) -> BTreeMap<String, u64> {
    events.retain(|event| event.lsn <= vector[&event.partition]);
    // An item never leaves its partition, so its own events are in order.
    events.sort_by_key(|event| event.lsn);
    let mut state = BTreeMap::new();
    for event in events {
        match event.value {
            Some(value) => state.insert(event.name, value),
            None => state.remove(&event.name),
        };
    }
    state
}

/// The same journey on files: write, back up, delete, reclaim, verify, restore, open again.
#[test]
fn on_the_embedded_engine() {
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup");
    let storage =
        |name: &str| LocalStorage::open(directory.path().join(name), LocalOptions::default()).unwrap();
    let engine = Arc::new(support::open_on(Arc::new(storage("data"))));
    let container = container(&engine);
    let writers: Vec<_> = (0..16)
        .map(|writer| {
            let (engine, container) = (engine.clone(), container.clone());
            std::thread::spawn(move || {
                for number in 0..ITEMS_PER_WRITER {
                    upsert(&engine, &container, &format!("{writer}-{number}"), number).unwrap();
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(engine.backup(&backup).unwrap().items, 16 * ITEMS_PER_WRITER);
    let before = items(&engine, &container);
    engine.catalog().delete_container("d", "c", &ANY).unwrap();
    support::wait_for_reclaim(&engine);
    engine.close().unwrap();
    drop((engine, container));
    let emptied = storage("data");
    check_sound(&emptied);
    assert_eq!(quire_engine::verify(&emptied).unwrap().items, 0);
    let restored = storage("restored");
    quire_engine::restore(&backup, &restored).unwrap();
    check_sound(&restored);
    restored.close().unwrap();
    drop(restored);
    let engine = support::open_on(Arc::new(storage("restored")));
    let container = engine.catalog().container("d", "c").unwrap();
    assert!(items(&engine, &container) == before);
    upsert(&engine, &container, "new", 1).unwrap();
    engine.close().unwrap();
}

const ITEMS_PER_WRITER: u64 = 100;

#[test]
fn containers_that_come_and_go_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let storage = MemoryStorage::new();
    let engine = Arc::new(open(&storage));
    container(&engine);
    let stop = Arc::new(AtomicBool::new(false));
    let changer = {
        let (engine, stop) = (engine.clone(), stop.clone());
        std::thread::spawn(move || {
            for number in 0u64.. {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let body = format!(r#"{{"id":"t{number}","partitionKey":{{"paths":["/pk"]}}}}"#);
                let created = engine.catalog().create_container("d", &json(&body), None).unwrap();
                for item in 0..30 {
                    upsert(&engine, &created, &format!("{item}"), item).unwrap();
                }
                if number >= 2 {
                    engine.catalog().delete_container("d", &format!("t{}", number - 2), &ANY).unwrap();
                }
            }
        })
    };
    for number in 0..20 {
        let backup = directory.path().join(number.to_string());
        engine.backup(&backup).unwrap();
        let again = open(&restored(&backup));
        // A container that is there is whole, up to the one being filled.
        for container in again.catalog().containers("d").unwrap() {
            assert!(items(&again, &container).len() <= 30);
        }
    }
    stop.store(true, Ordering::SeqCst);
    changer.join().unwrap();
}

#[test]
fn a_backup_goes_nowhere_it_should_not() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&MemoryStorage::new());
    container(&engine);
    let backup = directory.path().join("backup");
    engine.backup(&backup).unwrap();
    assert!(matches!(engine.backup(&backup), Err(EngineError::Io { .. })));
    assert!(matches!(engine.backup(&directory.path().join("no/such")), Err(EngineError::Io { .. })));
    // A failed one can be followed by a good one.
    engine.backup(&directory.path().join("second")).unwrap();
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let used = MemoryStorage::new();
    open(&used).close().unwrap();
    assert!(matches!(quire_engine::restore(&backup, &used.reopen()), Err(EngineError::StorageNotEmpty)));
}

#[test]
fn a_damaged_backup_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup");
    let engine = open(&MemoryStorage::new());
    let container = container(&engine);
    for number in 0..20 {
        upsert(&engine, &container, &format!("{number}"), number).unwrap();
    }
    engine.backup(&backup).unwrap();
    let refused = |what: &str| {
        let storage = MemoryStorage::new();
        let result = quire_engine::restore(&backup, &storage);
        assert!(
            matches!(result, Err(EngineError::BadBackup { .. } | EngineError::Io { .. })),
            "{what}: {result:?}"
        );
    };
    for name in ["catalog", "items-000001", "manifest.json"] {
        let path = backup.join(name);
        let bytes = fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by(37) {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            fs::write(&path, &bad).unwrap();
            refused(&format!("{name}, byte {at}"));
        }
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        refused(&format!("{name}, cut"));
        fs::remove_file(&path).unwrap();
        refused(&format!("{name}, missing"));
        #[cfg(unix)]
        {
            let elsewhere = directory.path().join("elsewhere");
            fs::write(&elsewhere, &bytes).unwrap();
            std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
            refused(&format!("{name}, a link"));
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, &bytes).unwrap();
    }
    fs::write(backup.join("extra"), b"").unwrap();
    refused("a file too many");
    fs::remove_file(backup.join("extra")).unwrap();
    restored(&backup);
}

#[test]
fn an_interrupted_restore_is_no_store() {
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup");
    let engine = open(&MemoryStorage::new());
    let container = container(&engine);
    upsert(&engine, &container, "a", 1).unwrap();
    engine.backup(&backup).unwrap();
    let memory = MemoryStorage::new();
    let storage = quire_storage::fault::FaultStorage::new(memory.reopen());
    use quire_storage::fault::CommitFault::{Pass, Poison};
    storage.script_commits([Pass, Pass, Poison]);
    assert!(quire_engine::restore(&backup, &storage).is_err());
    let opened = Engine::open(Arc::new(memory.reopen()), support::options());
    assert!(matches!(opened, Err(EngineError::Corrupt { .. })));
    assert!(matches!(quire_engine::restore(&backup, &memory.reopen()), Err(EngineError::StorageNotEmpty)));
}

/// Every row taken away, and every row changed, is noticed.
#[test]
fn verify_notices_every_missing_or_changed_row() {
    let memory = MemoryStorage::new();
    let engine = open(&memory);
    support::database(&engine, "d");
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"]},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a"]}]},"defaultTtl":-1}"#;
    let container = engine.catalog().create_container("d", &json(body), None).unwrap();
    for number in 0..3 {
        let body = format!(r#"{{"id":"{number}","pk":{number},"a":{number},"ttl":1000}}"#);
        support::write(&engine, &container, WriteKind::Create, &body).unwrap();
    }
    engine.close().unwrap();
    check_sound(&memory.reopen());
    let mut token = 0;
    let mut noticed = |op: Op, what: &str| {
        let damaged = memory.duplicate();
        token += 1;
        damaged.commit(Commit { guards: vec![], token: Token(token), ops: vec![op] }).unwrap();
        let report = quire_engine::verify(&damaged);
        assert!(report.is_err() || !report.as_ref().unwrap().is_sound(), "{what}: {report:?}");
    };
    let snapshot = memory.reopen().snapshot().unwrap();
    for space in (0..quire_storage::SPACE_COUNT).map(Space) {
        let scan = Scan {
            space,
            range: KeyRange { start: std::ops::Bound::Unbounded, end: std::ops::Bound::Unbounded },
            direction: Direction::Forward,
            rows_max: usize::MAX,
            bytes_max: usize::MAX,
            keys_only: false,
        };
        for (key, value) in snapshot.scan(&scan).unwrap().rows {
            let what = format!("{key:02x?} of {space:?}");
            let is_offer = space.0 == 0 && key.starts_with(&[0x10, 0x06]);
            let is_rid_counter = space.0 == 0 && key[0] == 0xC1;
            // What an index id stands for is written again when a process first meets it.
            let is_index_name = space.0 == 3 && key[4..12] == [0; 8];
            if !is_offer && !is_rid_counter && !is_index_name {
                noticed(Op::Delete { space, key: key.clone() }, &format!("deleted {what}"));
            }
            // The last `_ts` of a partition may be that of a deleted item, and its indexes may once have been too many:
            // nothing contradicts either.
            let is_past = |at: usize| space.0 == 0 && key[0] == 0xC0 && ((25..33).contains(&at) || at == 41);
            for at in (0..value.len()).filter(|at| !is_rid_counter && !is_past(*at)) {
                let mut changed = value.clone();
                changed[at] ^= 1;
                noticed(Op::Put { space, key: key.clone(), value: changed }, &format!("byte {at} of {what}"));
            }
            if space.0 > 0 {
                let mut foreign = key.clone();
                foreign[3] ^= 0x40;
                noticed(Op::Put { space, key: foreign, value: value.clone() }, &format!("foreign {what}"));
                let mut more = key.clone();
                *more.last_mut().unwrap() ^= 0x40;
                noticed(Op::Put { space, key: more, value }, &format!("one more than {what}"));
            }
        }
    }
}

/// No snapshot is held while others are read: each holds on to every version that is replaced meanwhile.
#[test]
fn snapshots_of_a_backup_are_short() {
    let directory = tempfile::tempdir().unwrap();
    let memory = MemoryStorage::new();
    let hooked = HookedStorage::new(Arc::new(memory.reopen()));
    let calls = hooked.calls();
    let engine = Engine::open(Arc::new(hooked), options_with(100)).unwrap();
    let container = container(&engine);
    for number in 0..300 {
        upsert(&engine, &container, &format!("{number}"), number).unwrap();
    }
    let (taken, nested) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    {
        let (taken, nested, thread) = (taken.clone(), nested.clone(), std::thread::current().id());
        calls.set_hook(move |call| {
            if matches!(call, Call::BeforeSnapshot) && std::thread::current().id() == thread {
                let live = memory.statistics().into_iter().find(|(name, _)| *name == "snapshots").unwrap().1;
                taken.fetch_add(1, Ordering::Relaxed);
                nested.fetch_add(u64::from(live > 0), Ordering::Relaxed);
            }
        });
    }
    engine.backup(&directory.path().join("backup")).unwrap();
    let (taken, nested) = (taken.load(Ordering::Relaxed), nested.load(Ordering::Relaxed));
    // Background work takes one now and then.
    assert!(taken > 100 && nested * 10 < taken, "{nested} of {taken} snapshots were taken beside another");
}

/// Items are written once, index rows in their packed form, and each item in one commit with what follows from it.
#[test]
fn a_restore_writes_every_item_once() {
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup");
    let engine = open(&MemoryStorage::new());
    let container = container(&engine);
    for number in 0..500 {
        upsert(&engine, &container, &format!("{number}"), number).unwrap();
    }
    engine.backup(&backup).unwrap();
    let (items, index_puts, index_rows) = Default::default();
    let counted: [Arc<AtomicU64>; 3] = [items, index_puts, index_rows];
    let memory = MemoryStorage::new();
    let hooked = HookedStorage::new(Arc::new(memory.reopen()));
    let counters = counted.clone();
    hooked.calls().set_hook(move |call| {
        let Call::Commit(commit) = call else { return };
        for op in &commit.ops {
            let counter = match op {
                Op::Put { space: Space(1), .. } => 0,
                Op::Put { space: Space(3), .. } => 1,
                Op::Rows { .. } => 2,
                _ => continue,
            };
            counters[counter].fetch_add(1, Ordering::Relaxed);
        }
    });
    quire_engine::restore(&backup, &hooked).unwrap();
    assert_eq!(counted.map(|counter| counter.load(Ordering::Relaxed)), [500, 0, 500]);
    check_sound(&memory);
}
