//! Background work with an end is a job: it is seen, held and goes on after a kill at any commit.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quire_engine::{Engine, EngineError, JobControl, JobState, JobStatus, Precondition, verify};
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Op, Space, Storage};
use quire_value::Path;
use support::fixture::{Fixture, json, pk};
use support::hooked_storage::{Call, HookedStorage};
use support::{is_idle, wait_until};

const HASH: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
const NO_INDEX: &str = r#""indexingPolicy":{"indexingMode":"none","automatic":false}"#;
const ITEMS: u64 = 300;

fn of_kind(engine: &Engine, kind: &str) -> Vec<JobStatus> {
    engine.jobs().expect("a list").into_iter().filter(|job| job.kind == kind).collect()
}

/// Waits for the one job of a kind.
fn finished(engine: &Engine, kind: &str) -> JobStatus {
    wait_until(kind, || of_kind(engine, kind).iter().any(|job| job.state.is_finished()));
    let mut jobs = of_kind(engine, kind);
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    // With its result.
    engine.job(&jobs.remove(0).id).expect("listed")
}

fn fill(fixture: &Fixture) {
    for n in 0..ITEMS {
        let item = format!(r#"{{"id":"{n}","pk":"k{}","n":{n}}}"#, n % 10);
        fixture.create(&item).expect("created");
    }
}

fn replace_policy(engine: &Engine) -> Result<(), EngineError> {
    let definition = json(&format!(r#"{{"id":"c","partitionKey":{HASH}}}"#));
    engine.catalog().replace_container("db", "c", &definition, &Precondition::default()).map(drop)
}

fn progress(job: &JobStatus) -> (u64, Option<u64>) {
    (job.progress.done, job.progress.total)
}

#[test]
fn every_kind_is_seen_with_its_place_and_progress() {
    let storage = MemoryStorage::new();
    let fixture = Fixture::on(Arc::new(storage.reopen()), HASH, NO_INDEX, 1);
    let engine = &fixture.engine;
    fill(&fixture);

    replace_policy(engine).expect("replaced");
    let built = finished(engine, "index-build");
    assert_eq!((built.state, progress(&built)), (JobState::Done, (ITEMS, Some(ITEMS))));
    assert_eq!((built.database.as_deref(), built.container.as_deref()), (Some("db"), Some("c")));

    engine.delete_partition_key(&fixture.container, pk("[\"k3\"]")).result.expect("deleted");
    wait_until("the key is deleted", || of_kind(engine, "key-delete").len() == 1);
    assert!(of_kind(engine, "key-delete")[0].state.is_under_way(), "the sweep is paused");
    engine.pause_sweep(false);
    let deleted = finished(engine, "key-delete");
    assert_eq!((deleted.state, progress(&deleted)), (JobState::Done, (ITEMS / 10, Some(ITEMS / 10))));
    assert_eq!(deleted.about.get("partitionKey").expect("named").to_json(), r#"["k3"]"#);

    let view = format!(
        r#"{{"id":"v","partitionKey":{HASH},"materializedViewDefinition":{{"sourceCollectionId":"c","definition":"SELECT c.n FROM c"}}}}"#
    );
    engine.catalog().create_container("db", &json(&view), None).expect("a view");
    let filled = finished(engine, "view-fill");
    assert_eq!((filled.state, filled.container.as_deref()), (JobState::Done, Some("v")));
    assert_eq!(progress(&filled), (ITEMS - ITEMS / 10, Some(ITEMS - ITEMS / 10)));

    let children = engine.split_partition(&fixture.container, "0").expect("split");
    let split = finished(engine, "split");
    assert_eq!((split.state, progress(&split)), (JobState::Done, (1, Some(1))));
    let expected = format!(r#"{{"children":["{}","{}"]}}"#, children[0], children[1]);
    assert_eq!(split.result.to_json(), expected);

    engine.catalog().delete_container("db", "v", &Precondition::default()).expect("deleted");
    let dropped = finished(engine, "drop");
    assert_eq!((dropped.state, dropped.container.as_deref()), (JobState::Done, Some("v")));
    assert_eq!(dropped.about.get("dropped").expect("said").to_json(), r#""container""#);
    assert!(dropped.progress.done > 0 && Some(dropped.progress.done) == dropped.progress.total);

    engine.close().expect("closes");
    let report = verify(&storage.reopen()).expect("reads");
    assert!(report.is_sound(), "{:?}", report.problems);
}

#[test]
fn a_split_that_is_not_possible_fails_its_job() {
    let fixture = Fixture::new("");
    fixture.create(r#"{"id":"1","pk":"a"}"#).expect("created");
    let refused = fixture.engine.split_partition(&fixture.container, "0");
    assert!(matches!(refused, Err(EngineError::CannotSplit { .. })), "{refused:?}");
    let failed = finished(&fixture.engine, "split");
    assert_eq!(failed.state, JobState::Failed);
    assert!(failed.error.is_some_and(|error| error.contains("one logical partition")));
}

/// A build that is paused stays so over a restart; nothing of it is lost.
#[test]
fn a_build_is_paused_and_resumed() {
    let storage = MemoryStorage::new();
    let hooked = HookedStorage::new(Arc::new(storage.reopen()));
    let calls = hooked.calls();
    let fixture = Fixture::on(Arc::new(hooked), HASH, NO_INDEX, 1);
    fill(&fixture);
    let is_held = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&is_held);
    calls.set_hook(move |call| {
        let is_job = std::thread::current().name() == Some("quire-jobs");
        while is_job
            && matches!(call, Call::Visit(scan) if scan.space == Space(1))
            && held.load(Ordering::SeqCst)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    replace_policy(&fixture.engine).expect("replaced");
    let running = || of_kind(&fixture.engine, "index-build").into_iter().find(|job| job.state.is_under_way());
    wait_until("it runs", || running().is_some_and(|job| job.state == JobState::Running));
    let id = running().expect("running").id;
    let paused = fixture.engine.control_job(&id, JobControl::Pause).expect("paused");
    assert_eq!(paused.state, JobState::Paused);
    let refused = fixture.engine.control_job(&id, JobControl::Cancel);
    assert!(matches!(refused, Err(EngineError::JobRefuses { .. })), "{refused:?}");
    is_held.store(false, Ordering::SeqCst);
    fixture.engine.close().expect("closes");
    let again = fixture.reopened(Arc::new(storage.reopen()));
    assert_eq!(again.engine.job(&id).expect("there").state, JobState::Paused);
    assert!(again.container.index_progress() < 100);
    // Nobody else takes it up meanwhile.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(of_kind(&again.engine, "index-build").len(), 1);
    again.engine.control_job(&id, JobControl::Resume).expect("resumed");
    assert_eq!(finished(&again.engine, "index-build").state, JobState::Done);
    assert_eq!(again.container.index_progress(), 100);
    again.engine.close().expect("closes");
    assert!(verify(&storage.reopen()).expect("reads").is_sound());
}

/// A query asks for rows of another path while the job for the first one is just ending.
#[test]
fn a_build_that_is_asked_for_at_the_end_of_another_is_done() {
    let hooked = HookedStorage::new(Arc::new(MemoryStorage::new()));
    let calls = hooked.calls();
    let fixture = Fixture::on(Arc::new(hooked), HASH, "", 1);
    fixture.create(r#"{"id":"1","pk":"a"}"#).expect("created");
    let [is_met, is_free] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (met, free) = (Arc::clone(&is_met), Arc::clone(&is_free));
    calls.set_hook(move |call| {
        if let Call::Commit(commit) = call
            && commit.ops.iter().any(is_end_of_job)
            && !met.swap(true, Ordering::SeqCst)
        {
            wait_until("the job may end", || free.load(Ordering::SeqCst));
        }
    });
    let [first, second] = ["/x", "/y"].map(|path| Path::parse(path).expect("a path"));
    fixture.engine.index_missing_values(&fixture.container, &first);
    wait_until("the first job ends", || is_met.load(Ordering::SeqCst));
    assert!(fixture.container.has_missing_rows(&first));
    fixture.engine.index_missing_values(&fixture.container, &second);
    // Time to see that there is something to build, and that there is a job for such things.
    std::thread::sleep(Duration::from_millis(500));
    is_free.store(true, Ordering::SeqCst);
    wait_until("the second path has its rows", || fixture.container.has_missing_rows(&second));
}

/// Whether the row of a job that is not finished goes.
fn is_end_of_job(op: &Op) -> bool {
    matches!(op, Op::Delete { space: Space(0), key } if key.first() == Some(&0xD0))
}

/// The store stops at each commit in turn, done or not; what was acknowledged is finished after the restart.
#[test]
fn a_kill_at_any_commit_is_made_up_for() {
    for fault in [CommitFault::Poison, CommitFault::PoisonDone] {
        for passes in 0..14 {
            let memory = MemoryStorage::new();
            let storage = Arc::new(FaultStorage::new(memory.reopen()));
            let fixture = Fixture::on(Arc::clone(&storage) as Arc<dyn Storage>, HASH, NO_INDEX, 1);
            let other = json(&format!(r#"{{"id":"other","partitionKey":{HASH}}}"#));
            fixture.engine.catalog().create_container("db", &other, None).expect("created");
            fill(&fixture);
            fixture.engine.pause_sweep(false);
            storage.script_commits((0..passes).map(|_| CommitFault::Pass).chain([fault]));
            let engine = &fixture.engine;
            let replaced = replace_policy(engine).is_ok();
            let deleted = engine.delete_partition_key(&fixture.container, pk("[\"k3\"]")).result.is_ok();
            let dropped = engine.catalog().delete_container("db", "other", &Precondition::default()).is_ok();
            wait_until("it stops or ends", || !engine.is_writable() || is_idle(engine));
            drop(fixture);
            let again = Fixture::again(Arc::new(memory.reopen()), support::fixture::FakeClock::new());
            again.engine.pause_sweep(false);
            wait_until("all is done", || is_idle(&again.engine));
            let context = format!("{fault:?} after {passes}");
            assert!(!replaced || again.container.index_progress() == 100, "{context}");
            let items = again.container.usage().0;
            assert!(items == ITEMS - ITEMS / 10 || !deleted && items == ITEMS, "{context}: {items}");
            assert!(!dropped || again.engine.catalog().container("db", "other").is_err(), "{context}");
            again.engine.close().expect("closes");
            let report = verify(&memory.reopen()).expect("reads");
            assert!(report.is_sound(), "{context}: {:?}", report.problems);
        }
    }
}
