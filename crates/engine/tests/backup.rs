//! Backups under writers, restores, and what `verify` notices.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quire_engine::{Container, Engine, EngineError, Precondition, WriteKind};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Commit, Direction, KeyRange, Op, Scan, Space, Storage, Token};
use support::{container, delete, dump, items, json, open, options_with, upsert};

const ANY: Precondition = Precondition { if_match: None };

fn check_sound(storage: &dyn Storage) {
    let report = quire_engine::verify(storage).unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
}

fn restored(backup: &std::path::Path) -> MemoryStorage {
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
    let unique = engine.create_container("d", &json(unique), None).unwrap();
    for number in 0..300 {
        upsert(&engine, &container, &"x".repeat(number % 200 + 1), number as u64).unwrap();
        let body = format!(r#"{{"id":"{number}","pk":{},"a":{number},"ttl":{}}}"#, number % 7, 1000 + number);
        support::write(&engine, &unique, WriteKind::Create, &body).unwrap();
    }
    engine.delete_container("d", "c", &ANY).unwrap();
    let report = engine.backup(&backup).unwrap();
    assert_eq!((report.containers, report.items), (1, 300));
    let storage = restored(&backup);
    let again = Engine::open(Arc::new(storage.reopen()), options_with(3)).unwrap();
    assert_eq!(dump(&again), dump(&engine));
    let unique_again = again.container("d", "u").unwrap();
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
    again.create_database(&json(r#"{"id":"e"}"#), None).unwrap();
    assert!(again.database("e").unwrap().rid > engine.database("d").unwrap().rid);
    again.close().unwrap();
    check_sound(&storage.reopen());
}

/// What writers did, by partition LSN: the model that a backup is compared with.
#[derive(Default)]
struct History {
    /// Every acknowledged version of an item: value, or deleted.
    versions: HashMap<String, Vec<Option<u64>>>,
}

#[test]
fn a_backup_under_writers_is_a_state_that_was() {
    for round in 0..5u64 {
        let directory = tempfile::tempdir().unwrap();
        let backup = directory.path().join("backup");
        let storage = MemoryStorage::new();
        let engine = Arc::new(Engine::open(Arc::new(storage.reopen()), options_with(3)).unwrap());
        let container = container(&engine);
        for number in 0..3000 {
            upsert(&engine, &container, &id(number), 0).unwrap();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (engine, container, stop) = (engine.clone(), container.clone(), stop.clone());
                std::thread::spawn(move || run_writer(&engine, &container, writer, round, &stop))
            })
            .collect();
        let report = engine.backup(&backup).unwrap();
        stop.store(true, Ordering::SeqCst);
        let histories: Vec<History> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        check_sound(&storage.reopen());
        let again = open(&restored(&backup));
        let found = items(&again, &again.container("d", "c").unwrap());
        assert_eq!(found.len() as u64, report.items);
        for history in &histories {
            history.check(&found);
        }
        // Writes to one logical partition are one sequence: the backup holds a prefix of it, not a selection.
        check_prefix(&histories, &found);
    }
}

fn id(number: u64) -> String {
    // The length decides the logical partition.
    format!("{number:0width$}", width = 5 + (number % 3) as usize)
}

/// Counts up in one counter item per writer with every change, so that the prefix can be told.
fn run_writer(
    engine: &Engine,
    container: &Arc<Container>,
    writer: u64,
    seed: u64,
    stop: &AtomicBool,
) -> History {
    let mut history = History::default();
    let mut random = seed * 1000 + writer + 1;
    for step in 1u64.. {
        if stop.load(Ordering::SeqCst) {
            return history;
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Every writer has items of its own.
        let number = random % 1200 * 3 + writer;
        let name = id(number);
        let versions =
            history.versions.entry(name.clone()).or_insert_with(|| vec![(number < 3000).then_some(0)]);
        if random & 0x300 == 0 {
            match delete(engine, container, &name) {
                Ok(()) => versions.push(None),
                Err(EngineError::ItemNotFound { .. }) => assert_eq!(versions.last(), Some(&None)),
                Err(error) => panic!("{error}"),
            }
        } else {
            upsert(engine, container, &name, step).unwrap();
            versions.push(Some(step));
        }
    }
    unreachable!("a writer stops when told")
}

impl History {
    /// Every item is in the backup with one of its versions, or absent where it was deleted at some time.
    fn check(&self, found: &BTreeMap<String, String>) {
        for (name, versions) in &self.versions {
            let value = value_of(found, name);
            assert!(versions.contains(&value), "{name}: {value:?} of {versions:?}");
        }
    }
}

fn value_of(found: &BTreeMap<String, String>, name: &str) -> Option<u64> {
    found.get(name).map(|item| json(item).get("value").unwrap().as_i64().unwrap() as u64)
}

/// A writer's steps on one logical partition are ordered: if a later one is in the backup, so are all before it.
fn check_prefix(histories: &[History], found: &BTreeMap<String, String>) {
    for history in histories {
        for length in 0..3 {
            let of_partition = || history.versions.iter().filter(|(name, _)| name.len() % 3 == length);
            let newest_seen = of_partition().filter_map(|(name, _)| value_of(found, name)).max().unwrap_or(0);
            for (name, versions) in of_partition() {
                // The last version up to what was seen must be there, or a later deletion.
                let at_cut =
                    versions.iter().rposition(|version| version.is_some_and(|step| step <= newest_seen));
                let Some(at_cut) = at_cut else { continue };
                let value = value_of(found, name);
                let allowed =
                    [Some(versions[at_cut]), versions.get(at_cut + 1).copied().filter(Option::is_none)];
                assert!(
                    allowed.contains(&Some(value)),
                    "{name}: {value:?}, seen {newest_seen}, {versions:?}"
                );
            }
        }
    }
}

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
                let created = engine.create_container("d", &json(&body), None).unwrap();
                for item in 0..30 {
                    upsert(&engine, &created, &format!("{item}"), item).unwrap();
                }
                if number >= 2 {
                    engine.delete_container("d", &format!("t{}", number - 2), &ANY).unwrap();
                }
            }
        })
    };
    for number in 0..20 {
        let backup = directory.path().join(number.to_string());
        engine.backup(&backup).unwrap();
        let again = open(&restored(&backup));
        // A container that is there is whole, up to the one being filled.
        for container in again.containers("d").unwrap() {
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
    let container = engine.create_container("d", &json(body), None).unwrap();
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
            if !is_offer && !is_rid_counter {
                noticed(Op::Delete { space, key: key.clone() }, &format!("deleted {what}"));
            }
            // The last `_ts` of a partition may be that of a deleted item: nothing contradicts it.
            let is_last_ts = |at: usize| space.0 == 0 && key[0] == 0xC0 && at >= 25;
            for at in (0..value.len()).filter(|at| !is_rid_counter && !is_last_ts(*at)) {
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
