//! Deleting containers and databases: at once for everyone, in the background for the disk.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quire_engine::{Engine, EngineError, Precondition};
use quire_storage::fault::{CommitFault, FaultStorage, RemovalFault};
use quire_storage::memory::MemoryStorage;
use quire_storage::{
    Commit, CommitError, Direction, Guard, KeyRange, Op, PartitionId, Position, Scan, Space, Storage, Token,
};
use quire_storage_local::{LocalOptions, LocalStorage};
use support::hooked_storage::{Call, Calls, HookedStorage};
use support::{CONTAINER, container, json, open, statistic, upsert, wait_for_reclaim, wait_until};

const ANY: Precondition = Precondition { if_match: None };

/// All keys of the storage that belong to containers.
fn container_rows(storage: &MemoryStorage) -> Vec<(u8, Vec<u8>)> {
    let storage = storage.reopen();
    let snapshot = storage.snapshot().unwrap();
    let mut found = Vec::new();
    for space in 0..quire_storage::SPACE_COUNT {
        let prefix: &[u8] = if space == 0 { &[0xC0] } else { &[] };
        let start = std::ops::Bound::Included(prefix.to_vec());
        let scan = Scan {
            space: Space(space),
            range: KeyRange { start, end: std::ops::Bound::Unbounded },
            direction: Direction::Forward,
            rows_max: usize::MAX,
            bytes_max: usize::MAX,
            keys_only: true,
        };
        // Rows of jobs, which stay for a while, are of no container.
        let is_job = |key: &[u8]| space == 0 && matches!(key[0], 0xD0..=0xD3);
        let rows = snapshot.scan(&scan).unwrap().rows.into_iter().filter(|(key, _)| !is_job(key));
        found.extend(rows.map(|(key, _)| (space, key)));
    }
    found
}

fn fill(engine: &Engine, container: &Arc<quire_engine::Container>, count: u64) {
    for number in 0..count {
        upsert(engine, container, &format!("item {number}"), number).unwrap();
    }
}

#[test]
fn nothing_of_a_deleted_container_stays() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    let container = container(&engine);
    fill(&engine, &container, 2500);
    assert!(container_rows(&storage).len() > 7500);
    engine.catalog().delete_container("d", "c", &ANY).unwrap();
    wait_for_reclaim(&engine);
    assert_eq!(container_rows(&storage), []);
    wait_until("it is counted", || statistic(&engine, "reclaimed_containers") == 1);
    let report = quire_engine::verify(&storage.reopen()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

/// What was sent before the delete, and of which nobody learnt how it ended, is refused when it arrives.
#[test]
fn nothing_arrives_behind_the_delete() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    let container = container(&engine);
    fill(&engine, &container, 1);
    let storage = storage.reopen();
    // Of the partition, of numbers of items, of vector indexes.
    let sequences = [0, u32::MAX - 1, u32::MAX - 2].map(|own| PartitionId(1 << 32 | u64::from(own)));
    let guards = sequences.map(|partition| {
        let Position { epoch, lsn } =
            storage.position(partition).unwrap().unwrap_or(Position { epoch: 0, lsn: 0 });
        Guard { partition, epoch, previous_lsn: lsn, next_lsn: lsn + 1 }
    });
    engine.catalog().delete_container("d", "c", &ANY).unwrap();
    wait_for_reclaim(&engine);
    for (guard, token) in guards.into_iter().zip(1..) {
        let key = [0xC1, 0, 0, 0, 1].to_vec();
        let ops = vec![Op::Put { space: Space(0), key, value: vec![0; 8] }];
        let late = storage.commit(Commit { guards: vec![guard], token: Token(token), ops });
        assert!(matches!(late, Err(CommitError::Fenced { .. })), "{late:?}");
    }
    assert_eq!(container_rows(&storage), []);
}

#[test]
fn nothing_of_a_deleted_database_stays() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    let first = container(&engine);
    fill(&engine, &first, 50);
    let body = CONTAINER.replace("\"c\"", "\"c2\"");
    let second = engine.catalog().create_container("d", &json(&body), None).unwrap();
    fill(&engine, &second, 50);
    engine.catalog().create_user("d", &json(r#"{"id":"u"}"#), false).unwrap();
    let permission = json(r#"{"id":"p","permissionMode":"Read","resource":"dbs/d"}"#);
    let permission = engine.catalog().create_permission("d", "u", &permission, false).unwrap().0;
    engine.catalog().delete_database("d", &ANY).unwrap();
    assert!(engine.catalog().permission_by_rid(&permission.rid).is_none());
    assert!(engine.catalog().offers().is_empty());
    // The name is free at once.
    let again = container(&engine);
    upsert(&engine, &again, "new", 1).unwrap();
    wait_for_reclaim(&engine);
    assert_eq!(support::items(&engine, &again).len(), 1);
    engine.catalog().delete_database("d", &ANY).unwrap();
    wait_for_reclaim(&engine);
    assert_eq!(container_rows(&storage), []);
    engine.close().unwrap();
    assert_eq!(support::dump(&open(&storage)), "\n");
}

#[test]
fn nothing_is_acknowledged_after_the_delete() {
    for _ in 0..10 {
        let storage = MemoryStorage::new();
        let engine = Arc::new(open(&storage));
        let container = container(&engine);
        let deleted = Arc::new(AtomicBool::new(false));
        let written = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (engine, container) = (engine.clone(), container.clone());
                let (deleted, written) = (deleted.clone(), written.clone());
                std::thread::spawn(move || {
                    for number in 0u64.. {
                        let was_deleted = deleted.load(Ordering::SeqCst);
                        match upsert(&engine, &container, &format!("{writer} {number}"), number) {
                            Ok(()) => assert!(!was_deleted, "acknowledged after the delete"),
                            Err(EngineError::ResourceNotFound { .. }) => return,
                            Err(error) => panic!("{error}"),
                        }
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        wait_until("something was written", || written.load(Ordering::Relaxed) > 200);
        engine.catalog().delete_container("d", "c", &ANY).unwrap();
        deleted.store(true, Ordering::SeqCst);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        wait_for_reclaim(&engine);
        assert_eq!(container_rows(&storage), []);
    }
}

#[test]
fn a_job_goes_on_after_a_restart() {
    let memory = MemoryStorage::new();
    let storage = Arc::new(FaultStorage::new(memory.reopen()));
    let engine = support::open_on(storage.clone());
    let container = container(&engine);
    fill(&engine, &container, 1500);
    // One step is done, and then the disk fails.
    storage.script_removals([RemovalFault::Pass].into_iter().chain([RemovalFault::Fail; 100]));
    engine.catalog().delete_container("d", "c", &ANY).unwrap();
    let jobs = || engine.workers().into_iter().find(|worker| worker.name == "jobs").unwrap();
    wait_until("a step has failed", || jobs().failing_parts > 0);
    drop(engine);
    assert!(!container_rows(&memory).is_empty());
    assert!(quire_engine::verify(&memory.reopen()).unwrap().is_sound());
    let engine = open(&memory);
    wait_for_reclaim(&engine);
    assert_eq!(container_rows(&memory), []);
}

#[test]
fn a_failing_storage_delays_a_job() {
    let memory = MemoryStorage::new();
    let storage = Arc::new(FaultStorage::new(memory.reopen()));
    let engine = support::open_on(storage.clone());
    let container = container(&engine);
    fill(&engine, &container, 1500);
    let faults =
        [CommitFault::UnknownDone, CommitFault::UnknownNotDone, CommitFault::Busy, CommitFault::Conflict];
    storage.script_commits([CommitFault::Pass].into_iter().chain(faults.into_iter().cycle().take(8)));
    storage.script_removals([RemovalFault::Fail, RemovalFault::FailDone, RemovalFault::Pass]);
    engine.catalog().delete_container("d", "c", &ANY).unwrap();
    wait_for_reclaim(&engine);
    assert_eq!(container_rows(&memory), []);
}

#[test]
fn a_failed_delete_leaves_the_container_in_use() {
    let memory = MemoryStorage::new();
    let storage = Arc::new(FaultStorage::new(memory.reopen()));
    let engine = support::open_on(storage.clone());
    let container = container(&engine);
    storage.script_commits([CommitFault::Fenced]);
    assert!(engine.catalog().delete_container("d", "c", &ANY).is_err());
    upsert(&engine, &container, "still", 1).unwrap();
    assert_eq!(support::items(&engine, &container).len(), 1);
}

#[test]
fn a_delete_in_doubt_is_finished_later() {
    let memory = MemoryStorage::new();
    let storage = Arc::new(FaultStorage::new(memory.reopen()));
    let engine = support::open_on(storage.clone());
    let container = container(&engine);
    storage.script_commits([CommitFault::UnknownNotDone; 6]);
    assert!(matches!(engine.catalog().delete_container("d", "c", &ANY), Err(EngineError::Unresolved)));
    assert!(upsert(&engine, &container, "late", 1).is_err());
    wait_until("the delete is settled", || engine.catalog().container("d", "c").is_err());
    wait_for_reclaim(&engine);
    assert_eq!(container_rows(&memory), []);
}

/// However many rows a container has, dropping it takes a handful of commits.
#[test]
fn a_drop_commits_nothing_per_row() {
    let memory = MemoryStorage::new();
    let storage = HookedStorage::new(Arc::new(memory.reopen()));
    let calls = storage.calls();
    let engine = support::open_on(Arc::new(storage));
    let container = container(&engine);
    fill(&engine, &container, 3000);
    let commits = Calls::count(&calls.commits);
    let deleted = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&deleted);
    calls.set_hook(move |call| {
        if let Call::Commit(commit) = call {
            let is_row = |op: &&Op| matches!(op, Op::Delete { space, .. } if *space != Space(0));
            counted.fetch_add(commit.ops.iter().filter(is_row).count() as u64, Ordering::SeqCst);
        }
    });
    engine.catalog().delete_container("d", "c", &ANY).unwrap();
    wait_for_reclaim(&engine);
    let commits = Calls::count(&calls.commits) - commits;
    assert_eq!(deleted.load(Ordering::SeqCst), 0, "rows were deleted one by one");
    assert!(commits < 15, "{commits} commits");
    assert_eq!(container_rows(&memory), []);
}

/// Indexes of other containers are built while a dropped one is still being removed.
#[test]
fn a_drop_delays_no_index_build() {
    let storage = HookedStorage::new(Arc::new(MemoryStorage::new()));
    let calls = storage.calls();
    let engine = support::open_on(Arc::new(storage));
    let first = container(&engine);
    fill(&engine, &first, 10);
    let body = CONTAINER.replace("\"c\"", "\"c2\"");
    let second = engine.catalog().create_container("d", &json(&body), None).unwrap();
    fill(&engine, &second, 10);
    let is_held = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&is_held);
    calls.set_hook(move |call| {
        while matches!(call, Call::RemoveRange(_)) && held.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    engine.catalog().delete_container("d", "c", &ANY).unwrap();
    let policy =
        r#","indexingPolicy":{"includedPaths":[{"path":"/value/?"}],"excludedPaths":[{"path":"/*"}]}}"#;
    let changed = format!("{}{policy}", body.strip_suffix('}').unwrap());
    engine.catalog().replace_container("d", "c2", &json(&changed), &ANY).unwrap();
    wait_until("the index is built", || {
        engine.catalog().container("d", "c2").unwrap().index_progress() == 100
    });
    assert_eq!(statistic(&engine, "reclaim_jobs_waiting"), 1);
    is_held.store(false, Ordering::SeqCst);
    wait_for_reclaim(&engine);
}

/// Bytes of all tables of a data directory.
fn table_bytes(folder: &std::path::Path) -> u64 {
    let keyspaces = std::fs::read_dir(folder.join("store/keyspaces")).unwrap();
    let tables =
        keyspaces.flat_map(|keyspace| std::fs::read_dir(keyspace.unwrap().path().join("tables")).unwrap());
    // One may just be deleted.
    tables.map(|table| table.unwrap().metadata().map_or(0, |metadata| metadata.len())).sum()
}

/// On disk: when containers were dropped and nothing is left to do, the tables are as small as those of an empty store.
#[test]
fn dropped_containers_give_their_space_back() {
    const EMPTY_BYTES_MAX: u64 = 300_000;
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let small = LocalOptions { memtable_bytes: 1 << 20, run_rows_max: 5_000, ..LocalOptions::default() };
    let engine = support::open_on(Arc::new(LocalStorage::open(folder.path(), small).unwrap()));
    let kept = container(&engine);
    fill(&engine, &kept, 20);
    let bodies: Vec<String> = (0..4).map(|n| CONTAINER.replace("\"c\"", &format!("\"drop{n}\""))).collect();
    let padding = "no two bytes of a text compress to nothing, but these do ".repeat(20);
    for (nth, body) in bodies.iter().enumerate() {
        let dropped = engine.catalog().create_container("d", &json(body), None).unwrap();
        for number in 0..1500u64 {
            let noise = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let item = format!(
                r#"{{"id":"{number}","pk":"{}","noise":"{noise:x}{:x}","more":[{noise},{number}],"text":"{number} {padding}"}}"#,
                number % 9,
                noise.rotate_left(17)
            );
            support::write(&engine, &dropped, quire_engine::WriteKind::Create, &item).unwrap();
        }
        if nth % 2 == 0 {
            engine.catalog().delete_container("d", &format!("drop{nth}"), &ANY).unwrap();
        }
    }
    let full = table_bytes(folder.path());
    assert!(full > 3 * EMPTY_BYTES_MAX, "{full} bytes: nothing to give back");
    for nth in [1, 3] {
        engine.catalog().delete_container("d", &format!("drop{nth}"), &ANY).unwrap();
    }
    let started = std::time::Instant::now();
    while statistic(&engine, "reclaim_jobs_waiting") > 0 || table_bytes(folder.path()) > EMPTY_BYTES_MAX {
        let left = table_bytes(folder.path());
        assert!(started.elapsed().as_secs() < 120, "{left} bytes of {full} are left");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(support::items(&engine, &kept).len(), 20);
}
