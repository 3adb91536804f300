//! The model of a database through the engine's own interface: in memory, opened again, backed up, on a storage that fails.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use support::hooked_storage::{Call, Calls, HookedStorage};

use quire_engine::{
    Engine, EngineError, JobControl, JobState, JobStatus, ModelCondition, ModelResource, Precondition,
    restore, verify,
};
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Direction, KeyRange, Scan, Space, Storage};
use quire_value::Value;
use support::{database, json, open, options, wait_until_idle};

const ANY: ModelCondition = ModelCondition { if_match: None, if_none_match: None };
const LIBRARY: &str = r#"{"version":1,
    "links":[{"name":"book-authors","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}}],
    "copies":[{"name":"author-on-book","link":"book-authors","fields":{"name":"t.name"}}],
    "rollups":[{"name":"count-of-books","link":"book-authors","op":"count","into":"/countOfBooks"}]}"#;

fn container(engine: &Engine, id: &str) {
    let definition =
        format!(r#"{{"id":"{id}","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}}}}"#);
    engine.catalog().create_container("d", &json(&definition), None).unwrap();
}

fn fill(engine: &Engine) {
    database(engine, "d");
    ["authors", "books", "shelves"].iter().for_each(|id| container(engine, id));
}

fn library() -> (MemoryStorage, Engine) {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    fill(&engine);
    (storage, engine)
}

/// With what the server adds to its answers.
fn shown(model: &ModelResource) -> String {
    let body = Value::Object(model.body.clone()).to_json();
    format!("{} {} {} {body}", model.revision, model.etag, model.ts)
}

fn get(engine: &Engine) -> String {
    shown(&engine.catalog().model("d").unwrap())
}

fn put(engine: &Engine, model: &str) -> Result<quire_engine::ModelWritten, EngineError> {
    engine.catalog().put_model("d", &json(model), &ANY)
}

/// A model, jobs and rows, when nothing changes them any more.
struct StoreDump {
    model: String,
    jobs: Vec<JobStatus>,
    rows: Vec<Row>,
}

/// Space, key and value.
type Row = (u8, Vec<u8>, Vec<u8>);

impl StoreDump {
    fn take(engine: &Engine, storage: &dyn Storage) -> StoreDump {
        wait_until_idle(engine);
        StoreDump { model: get(engine), jobs: engine.jobs().unwrap(), rows: rows(storage) }
    }

    /// Shows the first difference.
    fn check_same(&self, later: &StoreDump) {
        assert_eq!(later.model, self.model);
        assert_eq!(first_difference(&self.jobs, &later.jobs), None);
        assert_eq!(first_difference(&self.rows, &later.rows), None);
    }
}

fn first_difference<'a, T: PartialEq>(
    before: &'a [T],
    after: &'a [T],
) -> Option<(usize, Option<&'a T>, Option<&'a T>)> {
    let mut places = 0..before.len().max(after.len());
    let place = places.find(|place| before.get(*place) != after.get(*place))?;
    Some((place, before.get(place), after.get(place)))
}

/// Every row of the storage.
fn rows(storage: &dyn Storage) -> Vec<Row> {
    let snapshot = storage.snapshot().unwrap();
    let mut rows = Vec::new();
    for space in 0..quire_storage::SPACE_COUNT {
        let range = KeyRange { start: std::ops::Bound::Unbounded, end: std::ops::Bound::Unbounded };
        let (direction, rows_max, bytes_max) = (Direction::Forward, usize::MAX, usize::MAX);
        let scan = Scan { space: Space(space), range, direction, rows_max, bytes_max, keys_only: false };
        rows.extend(snapshot.scan(&scan).unwrap().rows.into_iter().map(|(key, value)| (space, key, value)));
    }
    rows
}

#[test]
fn before_any_put_it_is_empty() {
    let (_, engine) = library();
    let model = engine.catalog().model("d").unwrap();
    assert_eq!((model.revision, Value::Object(model.body).to_json()), (0, r#"{"version":1}"#.to_owned()));
    assert!(matches!(
        engine.catalog().model("x"),
        Err(EngineError::ResourceNotFound { kind: "database", .. })
    ));
    assert!(matches!(
        engine.catalog().put_model("x", &json(LIBRARY), &ANY),
        Err(EngineError::ResourceNotFound { .. })
    ));
    // The empty model is what there is.
    let written = put(&engine, r#"{"version":1}"#).unwrap();
    assert_eq!((written.created, written.model.revision, written.jobs.len()), (false, 0, 0));
    assert!(matches!(engine.catalog().delete_model("d", &ANY), Ok(())));
    assert_eq!(engine.catalog().model("d").unwrap().revision, 0);
}

#[test]
fn revisions_and_changes() {
    let (_, engine) = library();
    let first = put(&engine, LIBRARY).unwrap();
    assert!(first.created);
    assert_eq!(first.model.revision, 1);
    assert_eq!(first.difference.added, ["book-authors", "author-on-book", "count-of-books"]);
    assert_eq!(first.jobs.len(), 1);
    let job = engine.job(&first.jobs[0]).unwrap();
    assert_eq!((job.kind.as_str(), job.database.as_deref(), job.container), ("build", Some("d"), None));
    assert_eq!(
        Value::Object(job.about).to_json(),
        r#"{"revision":1,"declarations":["book-authors","author-on-book","count-of-books"]}"#
    );
    assert_eq!(get(&engine), shown(&first.model));
    // In force at once: nothing is built.
    let enforced = LIBRARY
        .replace(r#""to":{"container":"authors"}"#, r#""to":{"container":"authors"},"integrity":"enforced""#);
    let second = put(&engine, &enforced).unwrap();
    assert_eq!((second.created, second.model.revision, second.jobs.len()), (false, 2, 0));
    assert_eq!(second.difference.changed, ["book-authors"]);
    assert_ne!(second.model.etag, first.model.etag);
    let third = put(&engine, &enforced.replace("t.name", "t.lastName")).unwrap();
    assert_eq!((third.model.revision, third.jobs.len()), (3, 1));
    assert_eq!(third.difference.rebuilt, ["author-on-book"]);
    assert_eq!(third.difference.unchanged, ["book-authors", "count-of-books"]);
    let fourth = put(&engine, r#"{"version":1}"#).unwrap();
    assert_eq!((fourth.model.revision, fourth.difference.removed.len(), fourth.jobs.len()), (4, 3, 0));
    engine.catalog().delete_model("d", &ANY).unwrap();
    assert_eq!(engine.catalog().model("d").unwrap().revision, 0);
    assert_eq!(
        put(&engine, LIBRARY).map(|written| (written.created, written.model.revision)).unwrap(),
        (true, 1)
    );
}

/// Must hold (1).
#[test]
fn getting_a_model_and_putting_it_back_changes_nothing() {
    let (storage, engine) = library();
    for model in [r#"{"version":1}"#, LIBRARY] {
        put(&engine, model).unwrap();
        let before = StoreDump::take(&engine, &storage);
        let mut body = engine.catalog().model("d").unwrap().body;
        body.set("_etag", "anything");
        body.set("revision", 99);
        let again = engine.catalog().put_model("d", &Value::Object(body), &ANY).unwrap();
        assert!(again.difference.is_unchanged() && again.jobs.is_empty() && !again.created);
        let spelled = model.replace(r#""version":1"#, r#""version":1,"onWrite":"correct","fanOutMax":100"#);
        let spelled = put(&engine, &spelled).unwrap();
        assert!(spelled.difference.is_unchanged(), "{:?}", spelled.difference);
        before.check_same(&StoreDump::take(&engine, &storage));
    }
}

/// Must hold (1).
#[test]
fn a_refused_put_changes_nothing() {
    let (storage, engine) = library();
    put(&engine, LIBRARY).unwrap();
    let before = StoreDump::take(&engine, &storage);
    let invalid = LIBRARY.replace("\"authors\"}", "\"nobody\"}");
    match put(&engine, &invalid) {
        Err(EngineError::ModelInvalid(invalid)) => {
            assert_eq!(
                invalid.to_string(),
                "The model has 1 error. The first: There is no container 'nobody' in the database 'd'."
            );
            assert_eq!(invalid.0[0].at, "/links/0/to/container");
        }
        other => panic!("{other:?}"),
    }
    let etag = engine.catalog().model("d").unwrap().etag;
    let other = Some("\"other\"".to_owned());
    let everything = Some("*".to_owned());
    let refused = [
        ModelCondition { if_match: other.clone(), if_none_match: None },
        ModelCondition { if_match: None, if_none_match: everything.clone() },
        ModelCondition { if_match: None, if_none_match: Some(etag.clone()) },
    ];
    for condition in &refused {
        let put = engine.catalog().put_model("d", &json(r#"{"version":1}"#), condition);
        assert!(matches!(put, Err(EngineError::PreconditionFailed)), "{condition:?}");
        let deleted = engine.catalog().delete_model("d", condition);
        assert!(matches!(deleted, Err(EngineError::PreconditionFailed)), "{condition:?}");
    }
    before.check_same(&StoreDump::take(&engine, &storage));
    let accepted = [
        ModelCondition { if_match: Some(etag), if_none_match: other },
        ModelCondition { if_match: everything.clone(), if_none_match: None },
    ];
    for condition in &accepted {
        engine.catalog().put_model("d", &json(LIBRARY), condition).unwrap();
    }
    engine.catalog().delete_model("d", &accepted[1]).unwrap();
    // Where there is none, `*` names nothing.
    assert!(matches!(
        engine.catalog().put_model("d", &json(LIBRARY), &accepted[1]),
        Err(EngineError::PreconditionFailed)
    ));
    let created = engine.catalog().put_model("d", &json(LIBRARY), &refused[1]).unwrap();
    assert!(created.created);
}

#[test]
fn a_container_of_a_model_stays() {
    let (storage, engine) = library();
    put(&engine, LIBRARY).unwrap();
    let delete = |id: &str| engine.catalog().delete_container("d", id, &Precondition::default());
    for id in ["books", "authors"] {
        match delete(id) {
            Err(EngineError::ModelInUse { container }) => assert_eq!(container, id),
            other => panic!("{other:?}"),
        }
    }
    delete("shelves").unwrap();
    put(&engine, r#"{"version":1}"#).unwrap();
    delete("books").unwrap();
    wait_until_idle(&engine);
    assert!(verify(&storage).unwrap().is_sound());
}

#[test]
fn a_model_goes_with_its_database() {
    let (storage, engine) = library();
    put(&engine, LIBRARY).unwrap();
    engine.catalog().delete_database("d", &Precondition::default()).unwrap();
    wait_until_idle(&engine);
    assert!(rows(&storage).iter().all(|(space, key, _)| *space != 0 || key.first() != Some(&0x30)));
    fill(&engine);
    assert_eq!(engine.catalog().model("d").unwrap().revision, 0);
    assert!(put(&engine, LIBRARY).unwrap().created);
    let report = verify(&storage).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

#[test]
fn it_is_the_same_after_a_restart() {
    let (storage, engine) = library();
    put(&engine, LIBRARY).unwrap();
    put(&engine, &LIBRARY.replace("t.name", "t.lastName")).unwrap();
    wait_until_idle(&engine);
    let (before, jobs) = (get(&engine), engine.jobs().unwrap());
    assert_eq!(jobs.len(), 2);
    engine.close().unwrap();
    let engine = open(&storage);
    assert_eq!((get(&engine), engine.jobs().unwrap()), (before, jobs));
    // Its containers are still named by it.
    let deleted = engine.catalog().delete_container("d", "books", &Precondition::default());
    assert!(matches!(deleted, Err(EngineError::ModelInUse { .. })));
    assert_eq!(put(&engine, r#"{"version":1,"fanOutMax":5}"#).unwrap().model.revision, 3);
}

#[test]
fn it_is_in_a_backup() {
    let (_, engine) = library();
    put(&engine, LIBRARY).unwrap();
    wait_until_idle(&engine);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("backup");
    engine.backup(&path).unwrap();
    let report = quire_engine::verify_backup(&path).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    let restored = MemoryStorage::new();
    restore(&path, &restored).unwrap();
    let report = verify(&restored).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    let before = (get(&engine), engine.jobs().unwrap());
    let engine = open(&restored);
    assert_eq!((get(&engine), engine.jobs().unwrap()), before);
    // Numbers of jobs and declarations are not given out again.
    let last = before.1[0].id.clone();
    put(&engine, &LIBRARY.replace("t.name", "t.lastName")).unwrap();
    let jobs = engine.jobs().unwrap();
    assert_eq!(jobs.len(), 2);
    assert_ne!(jobs[0].id, last);
}

/// Whatever becomes of the commit of a put: the model is the old one or the new one, with its job or without.
#[test]
fn a_put_happens_as_a_whole() {
    for fault in [
        CommitFault::Pass,
        CommitFault::UnknownDone,
        CommitFault::UnknownNotDone,
        CommitFault::Poison,
        CommitFault::PoisonDone,
    ] {
        // The first commit of a put reserves numbers of jobs.
        for passes in 0..2 {
            let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
            let engine = Engine::open(Arc::clone(&storage) as Arc<_>, options()).unwrap();
            fill(&engine);
            storage.script_commits((0..passes).map(|_| CommitFault::Pass).chain([fault]));
            let written = put(&engine, LIBRARY);
            drop(engine);
            storage.stop_faults();
            storage.reopen().unwrap();
            let engine = Engine::open(Arc::clone(&storage) as Arc<_>, options()).unwrap();
            let (revision, jobs) = (engine.catalog().model("d").unwrap().revision, engine.jobs().unwrap());
            assert_eq!(revision, jobs.len() as u64, "{fault:?}");
            if let Ok(written) = written {
                assert_eq!((revision, jobs[0].id.as_str()), (1, written.jobs[0].as_str()), "{fault:?}");
            }
            let report = verify(&*storage).unwrap();
            assert!(report.is_sound(), "{fault:?}: {:?}", report.problems);
            // What comes next is taken either way.
            let next = put(&engine, &LIBRARY.replace("t.name", "t.lastName")).unwrap();
            assert_eq!(next.model.revision, revision + 1, "{fault:?}");
        }
    }
}

/// A library on a storage in which one call of the thread "writer", the first that `is_held` names, waits twice.
fn held(
    is_held: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static,
) -> (Engine, Arc<Calls>, [Arc<Barrier>; 2]) {
    let hooked = HookedStorage::new(Arc::new(MemoryStorage::new()));
    let calls = hooked.calls();
    let engine = Engine::open(Arc::new(hooked), options()).unwrap();
    fill(&engine);
    let waits = [Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2))];
    let ([met, go], first) = (waits.clone(), AtomicBool::new(true));
    calls.set_hook(move |call| {
        let is_writer = std::thread::current().name() == Some("writer");
        if is_writer && is_held(call) && first.swap(false, Ordering::SeqCst) {
            met.wait();
            go.wait();
        }
    });
    (engine, calls, waits)
}

fn upsert_book(engine: &Engine) {
    let books = engine.catalog().container("d", "books").unwrap();
    support::write(engine, &books, quire_engine::WriteKind::Upsert, r#"{"id":"b"}"#).unwrap();
}

fn spawn_writer<'scope>(scope: &'scope std::thread::Scope<'scope, '_>, engine: &'scope Engine) {
    let writer = std::thread::Builder::new().name("writer".to_owned());
    writer.spawn_scoped(scope, || upsert_book(engine)).unwrap();
}

/// A write that is being committed is one under the older model, so a put waits for it.
#[test]
fn a_put_waits_for_the_commits_under_way() {
    let (engine, _calls, [met, go]) = held(|call| matches!(call, Call::Commit(_)));
    upsert_book(&engine); // numbers of items are reserved
    std::thread::scope(|scope| {
        spawn_writer(scope, &engine);
        met.wait();
        let (sender, put_done) = mpsc::channel();
        let engine = &engine;
        scope.spawn(move || sender.send(put(engine, LIBRARY).unwrap().model.revision).unwrap());
        assert_eq!(put_done.recv_timeout(Duration::from_millis(300)), Err(RecvTimeoutError::Timeout));
        go.wait();
        assert_eq!(put_done.recv(), Ok(1));
    });
}

/// A write that was prepared under another model is prepared again; those of containers that neither names are not.
#[test]
fn a_write_is_made_under_one_model() {
    let elsewhere = r#"{"version":1,"links":[{"name":"shelf-author","from":{"container":"shelves","path":"/author"},
        "to":{"container":"authors"}}]}"#;
    for (model, is_retried) in [(LIBRARY, true), (elsewhere, false)] {
        let (engine, _calls, [met, go]) = held(|call| matches!(call, Call::Get(..)));
        upsert_book(&engine);
        std::thread::scope(|scope| {
            spawn_writer(scope, &engine);
            met.wait();
            put(&engine, model).unwrap();
            go.wait();
        });
        // Its build may have changed the model once more meanwhile.
        assert_eq!(support::statistic(&engine, "retried_writes") > 0, is_retried);
    }
}

/// An engine whose jobs wait before they look at items, until they may go on.
fn open_held(storage: &MemoryStorage) -> (Engine, Arc<AtomicBool>) {
    let hooked = HookedStorage::new(Arc::new(storage.reopen()));
    let is_free = Arc::new(AtomicBool::new(false));
    let free = Arc::clone(&is_free);
    hooked.calls().set_hook(move |call| {
        let is_job = std::thread::current().name() == Some("quire-jobs");
        if is_job && matches!(call, Call::Visit(scan) if scan.space == Space(1)) {
            support::wait_until("the job may go on", || free.load(Ordering::SeqCst));
        }
    });
    (Engine::open(Arc::new(hooked), options()).unwrap(), is_free)
}

/// A build that is cancelled fails what it was to build.
#[test]
fn jobs_are_paused_resumed_and_cancelled() {
    let storage = MemoryStorage::new();
    let (engine, is_free) = open_held(&storage);
    fill(&engine);
    upsert_book(&engine);
    let id = put(&engine, LIBRARY).unwrap().jobs[0].clone();
    let control = |engine: &Engine, control| engine.control_job(&id, control).map(|job| job.state);
    assert!(engine.job(&id).unwrap().state.is_under_way());
    assert_eq!(control(&engine, JobControl::Pause).unwrap(), JobState::Paused);
    assert_eq!(control(&engine, JobControl::Pause).unwrap(), JobState::Paused);
    is_free.store(true, Ordering::SeqCst);
    drop(engine);
    let (engine, is_free) = open_held(&storage);
    assert_eq!(engine.job(&id).unwrap().state, JobState::Paused);
    assert!(control(&engine, JobControl::Resume).unwrap().is_under_way());
    assert!(matches!(control(&engine, JobControl::Undo), Err(EngineError::JobRefuses { .. })));
    for id in ["j-999", "j-x", "", "j-01"] {
        assert!(matches!(engine.job(id), Err(EngineError::ResourceNotFound { kind: "job", .. })), "{id}");
        let control = engine.control_job(id, JobControl::Pause);
        assert!(matches!(control, Err(EngineError::ResourceNotFound { kind: "job", .. })), "{id}");
    }
    control(&engine, JobControl::Cancel).unwrap();
    is_free.store(true, Ordering::SeqCst);
    wait_until_idle(&engine);
    assert_eq!(engine.job(&id).unwrap().state, JobState::Cancelled);
    let status = engine.model_status("d").unwrap();
    let errors: Vec<_> = status.declarations.iter().map(|own| own.error.as_deref()).collect();
    assert_eq!(errors, [Some("The build was cancelled."); 3]);
    for refused in [JobControl::Pause, JobControl::Resume, JobControl::Cancel] {
        assert!(matches!(control(&engine, refused), Err(EngineError::JobRefuses { .. })), "{refused:?}");
    }
    drop(engine);
    assert_eq!(open(&storage).job(&id).unwrap().state, JobState::Cancelled);
}
