//! Commits of unknown outcome, and leaders that die.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quire_engine::{EngineError, ItemRead, WriteKind};
use support::faulty_storage::{FaultyStorage, LATE, LOSE_ANSWER, LOSE_COMMIT, PANIC};
use support::fixture::Fixture;

const KEY: &str = r#"["p"]"#;

fn fixture(storage: &Arc<FaultyStorage>) -> Fixture {
    let key = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
    let fixture = Fixture::on(storage.clone(), key, "", 1);
    fixture.create(r#"{"id":"first","pk":"p","n":0}"#).expect("created");
    fixture
}

#[test]
fn a_partition_in_doubt_takes_no_writes_until_it_knows() {
    for (fault, lsn_after) in [(LOSE_ANSWER, 3), (LOSE_COMMIT, 2)] {
        let storage = FaultyStorage::new();
        let fixture = fixture(&storage);
        fixture.read("first", KEY).expect("cached");
        storage.dark.store(true, Ordering::SeqCst);
        storage.fault.store(fault, Ordering::SeqCst);
        let replace = |n: u64| fixture.replace("first", &format!(r#"{{"id":"first","pk":"p","n":{n}}}"#));
        assert!(matches!(replace(1), Err(EngineError::Overloaded)));
        assert!(matches!(fixture.create(r#"{"id":"b","pk":"p"}"#), Err(EngineError::Overloaded)));
        // Reads go on, and show what is durable, not what the cache remembers.
        let n = support::fixture::number_of(&fixture.read("first", KEY).expect("there"), "n");
        assert_eq!(n, if fault == LOSE_ANSWER { 1 } else { 0 });
        assert!(fixture.read("b", KEY).is_err());
        storage.dark.store(false, Ordering::SeqCst);
        assert_eq!(fixture.create(r#"{"id":"b","pk":"p"}"#).expect("knows again").item_lsn, lsn_after);
        assert_eq!(replace(2).expect("replaced").item_lsn, lsn_after + 1);
        assert_eq!((fixture.container.usage().0, fixture.rows(1, &[]), fixture.rows(4, &[1])), (2, 2, 2));
        assert_eq!(support::fixture::number_of(&fixture.read("first", KEY).expect("there"), "n"), 2);
    }
}

/// A write prepared while another one of its item was in doubt stands on sand: that one may still happen.
#[test]
fn what_was_prepared_in_doubt_is_not_committed() {
    let storage = FaultyStorage::new();
    let fixture = fixture(&storage);
    let Ok(ItemRead::Found { etag, .. }) = fixture.read_answer("first", KEY).result else {
        panic!("it is there")
    };
    storage.dark.store(true, Ordering::SeqCst);
    storage.fault.store(LATE, Ordering::SeqCst);
    let replace = |n: u64, etag: Option<&str>| {
        let kind = WriteKind::Replace { id: "first".to_owned() };
        fixture.write_if(kind, None, &format!(r#"{{"id":"first","pk":"p","n":{n}}}"#), etag).result
    };
    assert!(matches!(replace(1, None), Err(EngineError::Overloaded)));
    assert_eq!(support::fixture::number_of(&fixture.read("first", KEY).expect("there"), "n"), 0);
    storage.dark.store(false, Ordering::SeqCst);
    assert!(matches!(replace(2, Some(&etag)), Err(EngineError::PreconditionFailed)));
    assert_eq!(support::fixture::number_of(&fixture.read("first", KEY).expect("there"), "n"), 1);
    assert_eq!((fixture.rows(1, &[]), fixture.rows(4, &[1])), (1, 1));
}

/// Writers that wait behind a commit in doubt were prepared on a state that may be gone: they are not committed as
/// they are. Whatever they are answered, the rows agree afterwards.
#[test]
fn writers_behind_a_commit_in_doubt_prepare_again() {
    for fault in [LOSE_ANSWER, LOSE_COMMIT] {
        let storage = FaultyStorage::new();
        let fixture = fixture(&storage);
        storage.slow.store(true, Ordering::SeqCst);
        storage.fault.store(fault, Ordering::SeqCst);
        let created = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (fixture, created) = (&fixture, &created);
                scope.spawn(move || {
                    fixture.upsert(r#"{"id":"one","pk":"p"}"#).expect("the outcome can be learnt");
                    fixture.create(&format!(r#"{{"id":"{thread}","pk":"p"}}"#)).expect("created");
                    created.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        let items = 2 + created.into_inner();
        assert_eq!(fixture.container.usage().0, items);
        assert_eq!(fixture.rows(1, &[]) as u64, items);
        assert_eq!(fixture.rows(4, &[1]) as u64, items);
        let lsn = fixture.container.positions()[0].lsn;
        assert_eq!(lsn, 1 + 16, "one LSN for each write");
    }
}

#[test]
fn a_leader_that_dies_leaves_no_one_waiting() {
    let storage = FaultyStorage::new();
    let fixture = fixture(&storage);
    storage.slow.store(true, Ordering::SeqCst);
    let (is_killed, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..12 {
            let (fixture, storage, is_killed, answered) = (&fixture, &storage, &is_killed, &answered);
            scope.spawn(move || {
                for n in 0..10 {
                    if thread == 0 && n % 3 == 1 {
                        storage.fault.store(PANIC, Ordering::SeqCst);
                    }
                    let write = || fixture.create(&format!(r#"{{"id":"{thread}-{n}","pk":"p"}}"#));
                    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)) {
                        Err(_) => is_killed.fetch_add(1, Ordering::SeqCst),
                        Ok(Ok(_) | Err(EngineError::Overloaded)) => answered.fetch_add(1, Ordering::SeqCst),
                        Ok(Err(error)) => panic!("{error}"),
                    };
                }
            });
        }
    });
    assert!(is_killed.load(Ordering::SeqCst) > 0);
    assert_eq!(is_killed.into_inner() + answered.into_inner(), 120);
    let items = fixture.rows(1, &[]);
    assert_eq!(
        (fixture.container.usage().0 as usize, fixture.rows(2, &[1]), fixture.rows(4, &[1])),
        (items, items, items)
    );
    assert!(fixture.create(r#"{"id":"last","pk":"p"}"#).is_ok());
}
