//! A job that fills a database, and an engine that is closed meanwhile.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use quire_storage::Storage;
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use quire_value::{Limits, text};

use super::*;
use crate::api::{Clock, Options};
use crate::{Engine, JobState};

/// Looks at the cancellation of a fill that never ends by itself.
const LOOKS_MAX: u32 = 6_000;
const LOOK_WAIT: Duration = Duration::from_millis(10);

struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

fn open(memory: &MemoryStorage) -> Arc<Engine> {
    open_on(Arc::new(memory.reopen()))
}

fn open_on(storage: Arc<dyn Storage>) -> Arc<Engine> {
    let options = Options {
        clock: Arc::new(TestClock(AtomicI64::new(1_700_000_000_000))),
        partitions: 1,
        cache_bytes: 1 << 20,
        scripts: Default::default(),
        query_memory: Default::default(),
        query_temp: None,
    };
    Arc::new(Engine::open(storage, options).unwrap())
}

fn container(id: &str) -> Value {
    let body = format!(r#"{{"id":"{id}","partitionKey":{{"paths":["/id"],"kind":"Hash"}}}}"#);
    text::parse(body.as_bytes(), Limits::default()).unwrap()
}

/// Jobs of other kinds have threads left, however many databases are to be filled.
#[test]
fn databases_are_filled_one_after_the_other() {
    const DATABASES: usize = 5;
    let engine = open(&MemoryStorage::new());
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counts = (Arc::clone(&running), Arc::clone(&most));
    engine.set_demo_fill(Arc::new(move |_, _| {
        counts.1.fetch_max(counts.0.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(5 * LOOK_WAIT);
        counts.0.fetch_sub(1, Ordering::SeqCst);
        Ok(Value::Object(Object::new()))
    }));
    let jobs: Vec<_> =
        (0..DATABASES).map(|each| engine.fill_demo(&format!("demo{each}")).unwrap().id).collect();
    let is_done = |id: &String| engine.job(id).unwrap().state == JobState::Done;
    for _ in 0..LOOKS_MAX {
        if jobs.iter().all(is_done) {
            break;
        }
        std::thread::sleep(LOOK_WAIT);
    }
    assert!(jobs.iter().all(is_done));
    assert_eq!((most.load(Ordering::SeqCst), running.load(Ordering::SeqCst)), (1, 0));
    engine.close().unwrap();
}

#[test]
fn a_fill_ends_when_the_engine_is_closed_and_starts_again() {
    let memory = MemoryStorage::new();
    let engine = open(&memory);
    let (looks, filled) = (Arc::new(AtomicU32::new(0)), Arc::downgrade(&engine));
    let counted = Arc::clone(&looks);
    engine.set_demo_fill(Arc::new(move |database, cancel| {
        filled.upgrade().unwrap().catalog().create_container(database, &container("half"), None)?;
        while counted.fetch_add(1, Ordering::SeqCst) < LOOKS_MAX {
            cancel.check()?;
            std::thread::sleep(LOOK_WAIT);
        }
        Ok(Value::Object(Object::new()))
    }));
    let job = engine.fill_demo("demo").unwrap();
    while looks.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    engine.close().unwrap();
    drop(engine);
    assert!(looks.load(Ordering::SeqCst) <= LOOKS_MAX, "the fill was not cancelled");

    // The next engine makes it again, from nothing.
    let engine = open(&memory);
    let filled = Arc::downgrade(&engine);
    engine.set_demo_fill(Arc::new(move |database, _| {
        let engine = filled.upgrade().unwrap();
        assert!(engine.catalog().containers(database)?.is_empty(), "an earlier fill left something");
        engine.catalog().create_container(database, &container("half"), None)?;
        Ok(Value::Object(Object::new()))
    }));
    let mut status = engine.job(&job.id).unwrap();
    for _ in 0..LOOKS_MAX {
        if status.state == JobState::Done {
            break;
        }
        std::thread::sleep(LOOK_WAIT);
        status = engine.job(&job.id).unwrap();
    }
    assert_eq!((status.state, status.error), (JobState::Done, None));
    engine.close().unwrap();
}

/// Whenever the process is killed, a database that is there is filled, by its job or by a request that is sent again.
#[test]
fn a_kill_leaves_no_database_without_its_job() {
    let mut killed = 0;
    for commits in 0..4 {
        let memory = MemoryStorage::new();
        let faults = Arc::new(FaultStorage::new(memory.reopen()));
        let engine = open_on(Arc::<FaultStorage<MemoryStorage>>::clone(&faults));
        faults
            .script_commits(std::iter::repeat_n(CommitFault::Pass, commits).chain([CommitFault::PoisonDone]));
        // Without a function to fill it the job waits.
        let asked = engine.fill_demo("demo");
        killed += usize::from(faults.injected() > 0);
        drop(engine);
        faults.reopen_on(memory.reopen()).unwrap();

        let engine = open(&memory);
        let filled = Arc::downgrade(&engine);
        engine.set_demo_fill(Arc::new(move |database, _| {
            filled.upgrade().unwrap().catalog().create_container(database, &container("all"), None)?;
            Ok(Value::Object(Object::new()))
        }));
        if engine.catalog().database("demo").is_err() {
            assert!(asked.is_err(), "it was answered after {commits} commits, and is gone");
            engine.fill_demo("demo").unwrap();
        }
        let is_filled = || engine.catalog().containers("demo").is_ok_and(|own| own.len() == 1);
        for _ in 0..LOOKS_MAX {
            if is_filled() {
                break;
            }
            std::thread::sleep(LOOK_WAIT);
        }
        assert!(is_filled(), "killed after {commits} commits");
        engine.close().unwrap();
    }
    assert!(killed >= 2, "{killed} kills");
}
