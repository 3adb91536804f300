//! Commits over several partitions that share a sync: density of LSNs, all or nothing, refusals of single works, doubt, death.
//!
//! Every transaction here creates one item in each of two containers. So the LSN of a partition is the number of its items, and
//! both items are there or neither.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quire_engine::{
    Engine, EngineError, IndexingDirective, TransactionOperation, TransactionVerb, WriteKind,
};
use quire_resource::PartitionKey;
use quire_storage::Storage;
use quire_storage::fault::{CommitFault, FaultStorage, Rates};
use quire_storage::memory::MemoryStorage;
use support::faulty_storage::{FaultyStorage, LOSE_ANSWER, LOSE_COMMIT, PANIC};
use support::hooked_storage::{Calls, HookedStorage};
use support::{check_sound, database, items, json, options_with, upsert, wait_until, write};

const THREADS: usize = 16;

struct Bench {
    engine: Engine,
    storage: Arc<dyn Storage>,
}

impl Bench {
    fn new(storage: Arc<dyn Storage>, partitions: u32) -> Bench {
        let engine = Engine::open(Arc::clone(&storage), options_with(partitions)).unwrap();
        database(&engine, "d");
        for id in ["left", "right"] {
            create_container(&engine, id);
        }
        Bench { engine, storage }
    }

    /// Creates one item in each of two containers.
    fn create_pair(&self, [left, right]: [&str; 2], id: &str) -> Result<(), EngineError> {
        let operations = vec![create(left, id), create(right, id)];
        let answer = self.engine.transact("d", operations, &Default::default())?;
        let mut errors = answer.results.into_iter().filter_map(Result::err);
        let own = errors.find(|error| !matches!(error, EngineError::FailedDependency));
        own.map_or(Ok(()), Err)
    }

    fn ids(&self, container: &str) -> BTreeSet<String> {
        items(&self.engine, &self.engine.catalog().container("d", container).unwrap()).into_keys().collect()
    }

    /// Both items of every acknowledged pair are there, and of all others both or none. How many pairs there are.
    fn check_pairs(&self, acknowledged: &BTreeSet<String>) -> usize {
        let (left, right) = (self.ids("left"), self.ids("right"));
        assert_eq!(left, right);
        assert!(left.is_superset(acknowledged), "lost: {:?}", acknowledged.difference(&left));
        left.len()
    }

    fn check_dense(&self, container: &str) {
        for partition in self.engine.catalog().container("d", container).unwrap().partitions() {
            assert_eq!(partition.lsn, partition.item_count, "partition {} of {container}", partition.id);
        }
    }

    fn check_sound(&self) {
        check_sound(&*self.storage);
    }
}

fn create_container(engine: &Engine, id: &str) {
    let body = format!(r#"{{"id":"{id}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#);
    engine.catalog().create_container("d", &json(&body), None).unwrap();
}

fn create(container: &str, id: &str) -> TransactionOperation {
    TransactionOperation {
        container: container.to_owned(),
        partition_key: Some(PartitionKey::from_header(&format!(r#"["{container}-{id}"]"#)).unwrap()),
        verb: TransactionVerb::Create,
        body: format!(r#"{{"id":"{id}","pk":"{container}-{id}"}}"#).into(),
        if_match: None,
        if_none_match: None,
        indexing: IndexingDirective::Default,
        want_body: false,
    }
}

/// Runs something in every thread, and gives back what it says.
fn in_threads<T: Send>(run: impl Fn(usize) -> Vec<T> + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn waiting_transactions_share_a_commit_and_lsns_are_dense() {
    for partitions in [1, 5] {
        let faults = Arc::new(FaultStorage::new(MemoryStorage::new()));
        let hooked = Arc::new(HookedStorage::new(faults.clone()));
        let (calls, bench) = (hooked.calls(), Bench::new(hooked, partitions));
        bench.create_pair(["left", "right"], "first").unwrap();
        let before = Calls::count(&calls.commits);
        faults.script_commits((0..2000).map(|_| CommitFault::Delay(Duration::from_millis(1))));
        in_threads(|thread| {
            for number in 0..20 {
                bench.create_pair(["left", "right"], &format!("{thread}-{number}")).unwrap();
            }
            Vec::<()>::new()
        });
        let commits = Calls::count(&calls.commits) - before;
        assert!(commits < 20 * THREADS as u64 / 2, "{commits} commits for {} transactions", 20 * THREADS);
        assert_eq!(bench.check_pairs(&BTreeSet::new()), 20 * THREADS + 1);
        ["left", "right"].iter().for_each(|container| bench.check_dense(container));
        bench.check_sound();
    }
}

/// Writers of single items use the same partitions: both go on, and share the sequence of LSNs.
#[test]
fn plain_writes_and_transactions_share_partitions() {
    let bench = Bench::new(Arc::new(MemoryStorage::new()), 3);
    in_threads(|thread| {
        for number in 0..40 {
            let id = format!("{thread}-{number}");
            if thread % 2 == 0 {
                bench.create_pair(["left", "right"], &id).unwrap();
            } else {
                let left = bench.engine.catalog().container("d", "left").unwrap();
                let body = format!(r#"{{"id":"{id}","pk":"{id}"}}"#);
                write(&bench.engine, &left, WriteKind::Create, &body).unwrap();
            }
        }
        Vec::<()>::new()
    });
    assert_eq!((bench.ids("left").len(), bench.ids("right").len()), (40 * THREADS, 20 * THREADS));
    ["left", "right"].iter().for_each(|container| bench.check_dense(container));
    bench.check_sound();
}

/// Whatever becomes of commits: what is acknowledged is there, the rest as a whole or not at all, also after a restart.
#[test]
fn faults_lose_nothing_and_leave_nothing_by_half() {
    for seed in 0..6 {
        let rates = Rates {
            conflict: 30,
            busy: 30,
            unknown_done: 60,
            unknown_not_done: 60,
            delay: 300,
            ..Rates::default()
        };
        let memory = MemoryStorage::new();
        let bench = Bench::new(Arc::new(memory.reopen()), 3);
        bench.engine.close().unwrap();
        let faults = Arc::new(FaultStorage::seeded(memory.reopen(), seed, rates));
        let engine = Engine::open(faults.clone(), options_with(3)).unwrap();
        let bench = Bench { engine, storage: faults.clone() };
        let acknowledged = in_threads(|thread| {
            let create = |number: usize| {
                let id = format!("{thread}-{number}");
                match bench.create_pair(["left", "right"], &id) {
                    Ok(()) => Some(id),
                    Err(EngineError::Overloaded | EngineError::TransactionConflict) => None,
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            };
            (0..15).filter_map(create).collect()
        });
        assert!(faults.injected() > 0);
        faults.stop_faults();
        let acknowledged: BTreeSet<String> = acknowledged.into_iter().collect();
        assert!(!acknowledged.is_empty());
        // Whatever is still in doubt is settled by what comes next.
        bench.create_pair(["left", "right"], "last").unwrap();
        let pairs = bench.check_pairs(&acknowledged);
        ["left", "right"].iter().for_each(|container| bench.check_dense(container));
        bench.check_sound();
        bench.engine.close().unwrap();
        let again = Arc::new(memory.reopen());
        let bench = Bench { engine: Engine::open(again.clone(), options_with(3)).unwrap(), storage: again };
        assert_eq!(bench.check_pairs(&acknowledged), pairs, "seed {seed}");
    }
}

/// While the outcome of a commit is open its queue takes nothing, whatever it touches; writes of other partitions go on.
#[test]
fn a_queue_in_doubt_takes_nothing_until_it_knows() {
    for fault in [LOSE_ANSWER, LOSE_COMMIT] {
        let storage = FaultyStorage::new();
        let bench = Bench::new(storage.clone(), 1);
        ["third", "fourth"].iter().for_each(|id| create_container(&bench.engine, id));
        bench.create_pair(["left", "right"], "a").unwrap();
        storage.dark.store(true, Ordering::SeqCst);
        storage.fault.store(fault, Ordering::SeqCst);
        assert!(matches!(bench.create_pair(["left", "right"], "b"), Err(EngineError::Overloaded)));
        assert!(matches!(bench.create_pair(["third", "fourth"], "c"), Err(EngineError::Overloaded)));
        let third = bench.engine.catalog().container("d", "third").unwrap();
        upsert(&bench.engine, &third, "plain", 1).unwrap();
        storage.dark.store(false, Ordering::SeqCst);
        bench.create_pair(["third", "fourth"], "c").unwrap();
        bench.create_pair(["left", "right"], "d").unwrap();
        let expected = if fault == LOSE_ANSWER { 3 } else { 2 };
        assert_eq!(bench.check_pairs(&["a".to_owned(), "d".to_owned()].into()), expected);
        ["left", "right", "third", "fourth"].iter().for_each(|container| bench.check_dense(container));
        bench.check_sound();
    }
}

#[test]
fn a_leader_that_dies_leaves_no_one_waiting() {
    let storage = FaultyStorage::new();
    let bench = Bench::new(storage.clone(), 2);
    storage.slow.store(true, Ordering::SeqCst);
    let is_killed = AtomicU64::new(0);
    let acknowledged = in_threads(|thread| {
        let mut done = Vec::new();
        for number in 0..5 {
            if thread == 0 && number % 2 == 1 {
                storage.fault.store(PANIC, Ordering::SeqCst);
            }
            let id = format!("{thread}-{number}");
            let create = || bench.create_pair(["left", "right"], &id);
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(create)) {
                Err(_) => _ = is_killed.fetch_add(1, Ordering::SeqCst),
                Ok(Ok(())) => done.push(id),
                Ok(Err(EngineError::Overloaded)) => {}
                Ok(Err(error)) => panic!("{error}"),
            }
        }
        done
    });
    assert!(is_killed.into_inner() > 0);
    let acknowledged: BTreeSet<String> = acknowledged.into_iter().collect();
    bench.create_pair(["left", "right"], "last").unwrap();
    assert_eq!(bench.check_pairs(&acknowledged), acknowledged.len() + 1);
    ["left", "right"].iter().for_each(|container| bench.check_dense(container));
    bench.check_sound();
}

/// A deleted container takes its own transactions with it, and those of the others that wait beside them are not hurt.
#[test]
fn a_deleted_container_fails_only_its_own_transactions() {
    let bench = Bench::new(Arc::new(MemoryStorage::new()), 2);
    create_container(&bench.engine, "third");
    let deleted = AtomicBool::new(false);
    let kept = in_threads(|thread| {
        let mut done = Vec::new();
        for number in 0..30 {
            let id = format!("{thread}-{number}");
            if thread == 0 && number == 10 {
                bench.engine.catalog().delete_container("d", "third", &Default::default()).unwrap();
                deleted.store(true, Ordering::SeqCst);
            }
            if thread % 2 == 0 {
                bench.create_pair(["left", "right"], &id).unwrap();
                done.push(id);
                continue;
            }
            let was_deleted = deleted.load(Ordering::SeqCst);
            match bench.create_pair(["left", "third"], &id) {
                Ok(()) => assert!(!was_deleted, "a transaction of a deleted container"),
                Err(EngineError::ResourceNotFound { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        done
    });
    let right = bench.ids("right");
    assert_eq!(right, kept.into_iter().collect());
    assert!(bench.ids("left").is_superset(&right));
    ["left", "right"].iter().for_each(|container| bench.check_dense(container));
}

/// Splits at any moment: what met one runs again on the children, once.
#[test]
fn transactions_outlive_splits() {
    let bench = Bench::new(Arc::new(MemoryStorage::new()), 1);
    (0..50).for_each(|number| bench.create_pair(["left", "right"], &format!("before-{number}")).unwrap());
    let done = in_threads(|thread| {
        let mut done = Vec::new();
        for number in 0..25 {
            if thread < 2 && number % 8 == 4 {
                let id = ["left", "right"][thread];
                let container = bench.engine.catalog().container("d", id).unwrap();
                let widest = container.partitions().into_iter().max_by_key(|part| part.item_count).unwrap();
                bench.engine.split_partition(&container, &widest.id).unwrap();
            }
            let id = format!("{thread}-{number}");
            bench.create_pair(["left", "right"], &id).unwrap();
            done.push(id);
        }
        done
    });
    assert_eq!(bench.check_pairs(&done.into_iter().collect()), 50 + 25 * THREADS);
    for id in ["left", "right"] {
        let container = bench.engine.catalog().container("d", id).unwrap();
        assert_eq!(container.partitions().len(), 4);
    }
    bench.check_sound();
}

/// A changed indexing policy makes what was prepared under the old one stale: such works are prepared again, one by one.
#[test]
fn stale_works_run_again() {
    let bench = Bench::new(Arc::new(MemoryStorage::new()), 2);
    in_threads(|thread| {
        for number in 0..20 {
            bench.create_pair(["left", "right"], &format!("{thread}-{number}")).unwrap();
            if thread == 0 && number % 5 == 2 {
                let policy = format!(
                    r#"{{"id":"left","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},
                        "indexingPolicy":{{"includedPaths":[{{"path":"/*"}}],"excludedPaths":[{{"path":"/x{number}/*"}}]}}}}"#
                );
                let container = bench.engine.catalog().container("d", "left").unwrap();
                wait_until("the last policy is in force", || container.index_progress() == 100);
                bench
                    .engine
                    .catalog()
                    .replace_container("d", "left", &json(&policy), &Default::default())
                    .unwrap();
            }
        }
        Vec::<()>::new()
    });
    assert_eq!(bench.check_pairs(&BTreeSet::new()), 20 * THREADS);
    ["left", "right"].iter().for_each(|container| bench.check_dense(container));
    let container = bench.engine.catalog().container("d", "left").unwrap();
    wait_until("the last policy is in force", || container.index_progress() == 100);
    bench.check_sound();
}
