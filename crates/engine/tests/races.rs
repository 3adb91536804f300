//! Many threads on few items: what must hold however they meet.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quire_engine::{EngineError, ItemRead, WriteKind};
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Direction, KeyRange, Scan, Space};
use support::fixture::{Fixture, json, number_of};

const KEY: &str = r#"["p"]"#;

#[test]
fn of_many_creates_of_one_id_one_wins() {
    let fixture = Fixture::new(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#);
    for round in 0..50 {
        let (by_id, by_value) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (fixture, by_id, by_value) = (&fixture, &by_id, &by_value);
                scope.spawn(move || {
                    match fixture.create(&format!(r#"{{"id":"a{round}","pk":"p","u":"{round}-{thread}"}}"#)) {
                        Ok(_) => by_id.fetch_add(1, Ordering::SeqCst),
                        Err(EngineError::ItemExists { .. }) => 0,
                        Err(error) => panic!("{error}"),
                    };
                    match fixture.create(&format!(r#"{{"id":"b{round}-{thread}","pk":"p","u":{round}}}"#)) {
                        Ok(_) => by_value.fetch_add(1, Ordering::SeqCst),
                        Err(EngineError::UniqueKeyTaken { .. }) => 0,
                        Err(error) => panic!("{error}"),
                    };
                });
            }
        });
        assert_eq!((by_id.into_inner(), by_value.into_inner()), (1, 1));
    }
    assert_eq!(fixture.container.usage().0, 100);
}

/// Optimistic increments: none is lost, none is counted twice.
#[test]
fn etags_make_increments_safe() {
    let fixture = Fixture::new("");
    fixture.create(r#"{"id":"a","pk":"p","n":0}"#).expect("created");
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let Ok(ItemRead::Found { body, etag, .. }) = fixture.read_answer("a", KEY).result else {
                        panic!("it is there")
                    };
                    let n = number_of(&json(&String::from_utf8_lossy(&body)), "n");
                    let body = format!(r#"{{"id":"a","pk":"p","n":{}}}"#, n + 1);
                    let replace = WriteKind::Replace { id: "a".to_owned() };
                    match fixture.write_if(replace, None, &body, Some(&etag)).result {
                        Ok(_) => done.fetch_add(1, Ordering::SeqCst),
                        Err(EngineError::PreconditionFailed) => 0,
                        Err(error) => panic!("{error}"),
                    };
                }
            });
        }
    });
    let n = number_of(&fixture.read("a", KEY).expect("there"), "n");
    assert_eq!(n as u64, done.into_inner());
    assert!(n >= 100);
}

/// A reader never sees less than what was acknowledged before its read began, nor less than it saw before; and no
/// reader sees less than another one that was done before it began.
#[test]
fn reads_never_go_back() {
    let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
    let fixture = Fixture::on(storage.clone(), r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, "", 1);
    fixture.create(r#"{"id":"a","pk":"p","n":0}"#).expect("created");
    storage.script_commits((0..400).map(|n| match n % 3 {
        0 => CommitFault::Delay(Duration::from_micros(300)),
        _ => CommitFault::Pass,
    }));
    let (seen, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let floor = seen.load(Ordering::SeqCst);
                    let n = number_of(&fixture.read("a", KEY).expect("there"), "n") as u64;
                    assert!(n >= floor, "read {n} after someone had {floor}");
                    seen.fetch_max(n, Ordering::SeqCst);
                }
            });
        }
        for n in 1..=300 {
            fixture.replace("a", &format!(r#"{{"id":"a","pk":"p","n":{n}}}"#)).expect("replaced");
            seen.fetch_max(n, Ordering::SeqCst);
            // Only what was read while nobody wrote is cached.
            if n % 10 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
    let figures = fixture.engine.statistics();
    let hits = figures.iter().find(|(name, _)| *name == "cache_hits").map(|&(_, hits)| hits);
    assert!(hits.is_some_and(|hits| hits > 0), "the cache took no part: {figures:?}");
}

#[test]
fn waiting_writes_share_a_commit_and_lsns_are_dense() {
    let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
    let fixture = Fixture::on(storage.clone(), r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, "", 1);
    fixture.create(r#"{"id":"first","pk":"p"}"#).expect("created");
    storage.script_commits((0..1000).map(|_| CommitFault::Delay(Duration::from_millis(1))));
    let lsns = parking_lot::Mutex::new(vec![1]);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (fixture, lsns) = (&fixture, &lsns);
            scope.spawn(move || {
                for n in 0..20 {
                    let written =
                        fixture.create(&format!(r#"{{"id":"{thread}-{n}","pk":"p"}}"#)).expect("created");
                    lsns.lock().push(written.item_lsn);
                }
            });
        }
    });
    let mut lsns = lsns.into_inner();
    lsns.sort_unstable();
    assert_eq!(lsns, (1..=321).collect::<Vec<_>>());
    let figures = fixture.engine.statistics();
    let figure = |name: &str| figures.iter().find(|figure| figure.0 == name).map_or(0, |figure| figure.1);
    assert_eq!(figure("committed_writes"), 321);
    assert!(figure("commit_groups") < 160, "{} commits for 321 writes", figure("commit_groups"));
}

/// When the delete of a container is acknowledged nothing of it is written any more.
#[test]
fn nothing_is_written_after_a_container_is_deleted() {
    for round in 0..20 {
        let storage = Arc::new(MemoryStorage::new());
        let fixture = Fixture::on(storage, r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, "", 2);
        let deleted = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (fixture, deleted) = (&fixture, &deleted);
                scope.spawn(move || {
                    for n in 0.. {
                        let after = deleted.load(Ordering::SeqCst);
                        match fixture.create(&format!(r#"{{"id":"{thread}-{n}","pk":"{n}"}}"#)) {
                            Ok(_) => assert!(!after, "written after the delete"),
                            Err(EngineError::ResourceNotFound { .. }) => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(round % 5));
            fixture.engine.catalog().delete_container("db", "c", &Default::default()).expect("deleted");
            deleted.store(true, Ordering::SeqCst);
        });
        // The rows go in the background; then there is nothing, and nothing comes back.
        let left = || [1u8, 2, 3, 4].iter().map(|&space| rows(&fixture, space)).sum::<usize>();
        support::wait_until("the rows are gone", || left() == 0);
        support::wait_until_idle(&fixture.engine);
        assert_eq!(left(), 0);
    }
}

fn rows(fixture: &Fixture, space: u8) -> usize {
    let scan = Scan {
        space: Space(space),
        range: KeyRange::prefix(&[]),
        direction: Direction::Forward,
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
        keys_only: true,
    };
    fixture.storage.snapshot().expect("snapshot").scan(&scan).expect("scan").rows.len()
}

/// Each fault once, in front of one write: the write is done exactly once, or refused and not done at all.
#[test]
fn every_fault_of_a_commit_is_survived() {
    let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
    let fixture = Fixture::on(storage.clone(), r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, "", 1);
    fixture.create(r#"{"id":"first","pk":"p"}"#).expect("created");
    let faults =
        [CommitFault::Conflict, CommitFault::Busy, CommitFault::UnknownDone, CommitFault::UnknownNotDone];
    let mut lsn = 1;
    for (n, fault) in faults.iter().cycle().take(12).enumerate() {
        storage.script_commits([*fault]);
        let written = fixture
            .create(&format!(r#"{{"id":"{n}","pk":"p"}}"#))
            .unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        lsn += 1;
        assert_eq!(written.item_lsn, lsn, "{fault:?}");
        assert!(fixture.read(&n.to_string(), KEY).is_ok());
    }
    assert_eq!((fixture.container.usage().0, fixture.rows(1, &[]), fixture.rows(4, &[1])), (13, 13, 13));
    storage.script_commits([CommitFault::Fenced]);
    assert!(matches!(fixture.create(r#"{"id":"f","pk":"p"}"#), Err(EngineError::Overloaded)));
    assert!(fixture.create(r#"{"id":"f","pk":"p"}"#).is_ok());
}

#[test]
fn a_poisoned_storage_reads_on() {
    let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
    let fixture = Fixture::on(storage.clone(), r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, "", 1);
    fixture.create(r#"{"id":"a","pk":"p"}"#).expect("created");
    storage.script_commits([CommitFault::Poison]);
    for _ in 0..3 {
        assert!(matches!(fixture.create(r#"{"id":"b","pk":"p"}"#), Err(EngineError::Storage(_))));
        assert!(fixture.read("a", KEY).is_ok());
        assert!(matches!(fixture.read("b", KEY), Err(EngineError::ItemNotFound { .. })));
        assert_eq!(fixture.all(None, &Default::default(), -1).len(), 1);
    }
}
