//! What is left of declarations that are gone, however their writers, their builds and the commit of their model meet.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quire_engine::{CheckModel, Engine, EngineError, JobState, ModelCondition, WriteKind, verify};
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Direction, KeyRange, Scan, Space, Storage};
use support::hooked_storage::{Call, Calls, HookedStorage};
use support::{database, json, open_on, statistic, wait_until, wait_until_idle, write};

const ANY: ModelCondition = ModelCondition { if_match: None, if_none_match: None };
const LIBRARY: &str = r#"{"version":1,
    "links":[{"name":"book-authors","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}}],
    "mirrors":[{"name":"books-of-author","link":"book-authors","into":"/books"}],
    "rollups":[{"name":"count-of-books","link":"book-authors","op":"count","into":"/countOfBooks"}]}"#;
/// What must not happen gets this time to happen.
const PATIENCE: Duration = Duration::from_millis(500);
const LOOKUPS: u8 = 2;
/// Behind the number of the container in keys of rows of declarations.
const DECLARATION_TAGS: std::ops::RangeInclusive<u8> = 4..=9;
const BUILT_MARK: u8 = 8;

struct Library {
    engine: Engine,
    calls: Arc<Calls>,
    storage: Arc<dyn Storage>,
}

fn library(storage: Arc<dyn Storage>) -> Library {
    let hooked = HookedStorage::new(Arc::clone(&storage));
    let calls = hooked.calls();
    let engine = open_on(Arc::new(hooked));
    database(&engine, "d");
    for id in ["authors", "books"] {
        let definition =
            format!(r#"{{"id":"{id}","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}}}}"#);
        engine.catalog().create_container("d", &json(&definition), None).unwrap();
    }
    Library { engine, calls, storage }
}

impl Library {
    /// A book of an author that is not there.
    fn write_book(&self, number: usize) {
        let books = self.engine.catalog().container("d", "books").unwrap();
        let body = format!(r#"{{"id":"b{number}","authors":[{{"id":"nobody"}}]}}"#);
        write(&self.engine, &books, WriteKind::Upsert, &body).unwrap();
    }

    fn put_model(&self) -> Result<(), EngineError> {
        self.engine.catalog().put_model("d", &json(LIBRARY), &ANY).map(drop)
    }

    /// How many rows of declarations there are, by tag.
    fn declaration_rows(&self) -> BTreeMap<u8, usize> {
        let range = KeyRange { start: std::ops::Bound::Unbounded, end: std::ops::Bound::Unbounded };
        let (direction, rows_max, bytes_max) = (Direction::Forward, usize::MAX, usize::MAX);
        let scan = Scan { space: Space(LOOKUPS), range, direction, rows_max, bytes_max, keys_only: true };
        let rows = self.storage.snapshot().unwrap().scan(&scan).unwrap().rows;
        let tags = rows.iter().filter_map(|(key, _)| key.get(4).copied());
        let mut counts = BTreeMap::new();
        tags.filter(|tag| DECLARATION_TAGS.contains(tag))
            .for_each(|tag| *counts.entry(tag).or_default() += 1);
        counts
    }

    fn check_nothing_left(&self) {
        wait_until_idle(&self.engine);
        assert_eq!(self.declaration_rows(), BTreeMap::new());
        let report = verify(&*self.storage).unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
    }
}

fn is_thread(name: &str) -> bool {
    std::thread::current().name() == Some(name)
}

/// Until it is so, or for as long as what must not happen gets to happen.
fn wait_briefly(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A write under the older model, in the commit of a referrer, has rows in the container of the target: these wait for it.
#[test]
fn rows_of_a_commit_under_way_go_with_their_declaration() {
    let library = library(Arc::new(MemoryStorage::new()));
    library.write_book(0); // numbers of items are reserved
    library.put_model().unwrap();
    wait_until_idle(&library.engine);
    let [is_met, is_free] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (met, free) = (Arc::clone(&is_met), Arc::clone(&is_free));
    library.calls.set_hook(move |call| {
        if matches!(call, Call::Commit(_)) && is_thread("writer") && !met.swap(true, Ordering::SeqCst) {
            wait_until("the commit may go on", || free.load(Ordering::SeqCst));
        }
    });
    std::thread::scope(|scope| {
        let writer = std::thread::Builder::new().name("writer".to_owned());
        writer.spawn_scoped(scope, || library.write_book(1)).unwrap();
        wait_until("the commit is under way", || is_met.load(Ordering::SeqCst));
        scope.spawn(|| library.engine.catalog().delete_model("d", &ANY).unwrap());
        wait_until("the model is deleted", || statistic(&library.engine, "reclaim_jobs_waiting") > 0);
        wait_briefly(|| {
            let jobs = library.engine.jobs().unwrap().into_iter();
            let mut drops = jobs.filter(|job| job.kind == "drop");
            let has_ended = |job: quire_engine::JobStatus| {
                job.container.as_deref() == Some("authors") && job.state.is_finished()
            };
            drops.all(has_ended)
        });
        is_free.store(true, Ordering::SeqCst);
    });
    library.check_nothing_left();
}

/// While declarations are built, every referrer that was counted has marks.
#[test]
fn marks_of_a_build_go_with_their_declaration() {
    let library = library(Arc::new(MemoryStorage::new()));
    (0..150).for_each(|number| library.write_book(number));
    let [is_counted, is_met, is_free] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    let (counted, met, free) = (is_counted, Arc::clone(&is_met), Arc::clone(&is_free));
    library.calls.set_hook(move |call| match call {
        Call::Commit(_) if is_thread("quire-jobs") => counted.store(true, Ordering::SeqCst),
        Call::Visit(scan)
            if is_thread("quire-jobs") && scan.space == Space(1) && counted.load(Ordering::SeqCst) =>
        {
            met.store(true, Ordering::SeqCst); // behind the items of the first commit
            wait_until("the build may go on", || free.load(Ordering::SeqCst));
        }
        _ => {}
    });
    library.put_model().unwrap();
    wait_until("items are counted", || is_met.load(Ordering::SeqCst));
    assert!(library.declaration_rows().contains_key(&BUILT_MARK), "nothing is marked");
    library.engine.catalog().delete_model("d", &ANY).unwrap();
    is_free.store(true, Ordering::SeqCst);
    library.check_nothing_left();
}

/// The row of a build is in the commit of its model, and may be found there before the outcome of that commit is known.
#[test]
fn a_build_that_is_found_before_its_model_waits_for_it() {
    let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
    let library = library(Arc::clone(&storage) as Arc<dyn Storage>);
    let engine = &library.engine;
    library.write_book(0);
    engine.check_model("d", CheckModel::default()).unwrap(); // numbers of jobs are reserved
    wait_until_idle(engine);
    let is_free = Arc::new(AtomicBool::new(false));
    let free = Arc::clone(&is_free);
    library.calls.set_hook(move |call| {
        if matches!(call, Call::Commit(_)) && is_thread("quire-catalog") {
            wait_until("the commit may be settled", || free.load(Ordering::SeqCst));
        }
    });
    storage.script_commits([CommitFault::UnknownDone; 6]);
    assert!(matches!(library.put_model(), Err(EngineError::Unresolved)));
    // Another doubt: the rows of all jobs are read.
    storage.script_commits([CommitFault::UnknownDone; 6]);
    let check = engine.check_model("d", CheckModel::default());
    assert!(matches!(check, Err(EngineError::Unresolved)), "{check:?}");
    let build = || engine.jobs().unwrap().into_iter().find(|job| job.kind == "build").map(|job| job.state);
    wait_briefly(|| build().is_some_and(JobState::is_finished));
    is_free.store(true, Ordering::SeqCst);
    wait_until("the build is done", || build().is_some_and(JobState::is_finished));
    assert_eq!(build(), Some(JobState::Done));
    let status = engine.model_status("d").unwrap();
    let states: Vec<&str> = status.declarations.iter().map(|own| own.state).collect();
    assert_eq!(states, ["active"; 3]);
}
