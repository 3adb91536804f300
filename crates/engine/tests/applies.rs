//! Findings that are applied and taken back, with kills. What items must be is computed here from what was written.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use quire_engine::{
    AdviceInput, Advisor, Engine, EngineError, JobControl, JobState, JobStatus, Precondition, WriteKind,
};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Direction, KeyRange, Scan, Space, Storage};
use quire_value::{Object, Value};
use support::fixture::pk;
use support::{
    START_MS, check_sound, database, has_no_job, items, json, killed_after, open, open_on, options_at,
    wait_until, wait_until_idle, write,
};

const BOOKS: usize = 120;
const AUTHORS: usize = 15;
const SYSTEM: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];
const USERS: usize = 12;
const ANY: Precondition = Precondition { if_match: None };

/// Findings about a library: what an advisor would say, without one.
struct Findings;

impl Advisor for Findings {
    fn evaluate(&self, input: &AdviceInput<'_>) -> Result<Value, EngineError> {
        let link = r#"{"name":"book-author","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"},"integrity":"weak","onDelete":"allow"}"#;
        let copies = r#"[{"name":"author-on-book","link":"book-author","fields":{"name":"t.name"}}]"#;
        let rollups =
            r#"[{"name":"count-of-books","link":"book-author","op":"count","into":"/countOfBooks"}]"#;
        let rename = r#"{"kind":"rename","container":"people","from":"/fname","to":"/firstName"}"#;
        let base = r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[]}"#;
        let wanted = r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/note/*"}]}"#;
        let view = r#"{"id":"people-by-city","partitionKey":{"paths":["/city"],"kind":"Hash","version":2},"materializedViewDefinition":{"sourceCollectionId":"people","definition":"SELECT * FROM c"}}"#;
        let profile = r#"{"links":[{"name":"user-profile","from":{"container":"users","path":"/profileId"},"to":{"container":"profiles"}}]}"#;
        let findings = [
            finding("an-embed", "refactoring", "POST", r#"{"kind":"embed","link":"user-profile","into":"/profile"}"#, &format!(r#","link":{profile}"#)),
            finding("a-copy", "model", "PUT", &format!(r#"{{"version":1,"links":[{link}],"copies":{copies}}}"#), ""),
            finding("a-count", "model", "PUT", &format!(r#"{{"version":1,"links":[{link}],"rollups":{rollups}}}"#), ""),
            finding("a-bad", "model", "PUT", r#"{"version":1,"links":[{"name":"x","from":{"container":"gone","path":"/a"},"to":{"container":"authors"}}]}"#, ""),
            finding("a-full", "model", "PUT", &format!(r#"{{"version":1,"links":[{link}],"mirrors":[{{"name":"m","link":"book-author","into":"/bookIds","max":1}}],"copies":{copies}}}"#), ""),
            finding("a-rename", "refactoring", "POST", rename, ""),
            finding("a-index", "indexing-policy", "PUT", &format!(r#"{{"id":"people","indexingPolicy":{wanted}}}"#), &format!(r#","base":{{"indexingPolicy":{base}}}"#)),
            finding("a-view", "container", "POST", view, ""),
            r#"{"id":"a-steps","state":"open","reason":null,"apply":{"kind":"steps","request":null,"steps":["Think."]}}"#.to_owned(),
        ];
        let findings = findings.join(",");
        Ok(json(&format!(r#"{{"revision":{},"findings":[{findings}],"notEnough":[]}}"#, input.revision)))
    }
}

fn finding(id: &str, kind: &str, method: &str, body: &str, more: &str) -> String {
    format!(
        r#"{{"id":"{id}","state":"open","reason":null,"apply":{{"kind":"{kind}","request":{{"method":"{method}","path":"/","body":{body}}},"steps":[]{more}}}}}"#
    )
}

/// Every third copy is old, every fourth count is wrong.
fn book(number: usize, is_right: bool) -> String {
    let author = |place: usize| {
        let author = (number * 7 + place * 3) % AUTHORS;
        let age = if is_right || !(number + place).is_multiple_of(3) { "Author" } else { "Old name" };
        format!(r#"{{"id":"a{author}","name":"{age} {author}"}}"#)
    };
    format!(r#"{{"id":"b{number}","title":"Title {number}","authors":[{},{}]}}"#, author(0), author(1))
}

fn author(number: usize, is_right: bool) -> String {
    let refers = |book: usize| [0, 1].iter().any(|place| (book * 7 + place * 3) % AUTHORS == number);
    let count =
        (0..BOOKS).filter(|book| refers(*book)).count() + usize::from(!is_right && number.is_multiple_of(4));
    format!(r#"{{"id":"a{number}","name":"Author {number}","countOfBooks":{count}}}"#)
}

fn person(number: usize, name: &str) -> String {
    format!(r#"{{"id":"p{number}","{name}":"name {number}","city":"city {}","note":"n"}}"#, number % 9)
}

/// With the profile as its part, or without.
fn user(number: usize, has_profile: bool) -> String {
    let profile = format!(r#","profile":{}"#, profile(number));
    let profile = if has_profile { profile.as_str() } else { "" };
    format!(r#"{{"id":"u{number}","profileId":"p{number}"{profile}}}"#)
}

fn profile(number: usize) -> String {
    format!(r#"{{"id":"p{number}","about":"text {number}"}}"#)
}

fn library(storage: &MemoryStorage) -> Engine {
    let engine = open(storage);
    database(&engine, "d");
    for id in ["books", "authors", "people", "users", "profiles"] {
        let body = format!(
            r#"{{"id":"{id}","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}},"indexingPolicy":{{"indexingMode":"consistent","automatic":true,"includedPaths":[{{"path":"/*"}}],"excludedPaths":[]}}}}"#
        );
        engine.catalog().create_container("d", &json(&body), None).unwrap();
    }
    let put = |container: &str, body: &str| {
        let container = engine.catalog().container("d", container).unwrap();
        write(&engine, &container, WriteKind::Upsert, body).unwrap();
    };
    (0..AUTHORS).for_each(|number| put("authors", &author(number, false)));
    (0..BOOKS).for_each(|number| put("books", &book(number, false)));
    (0..40).for_each(|number| put("people", &person(number, "fname")));
    (0..USERS).for_each(|number| put("profiles", &profile(number)));
    (0..USERS).for_each(|number| put("users", &user(number, false)));
    evaluate(&engine);
    engine
}

fn evaluate(engine: &Engine) {
    engine.set_advisor(Arc::new(Findings));
    engine.evaluate_advice("d", Value::Object(Object::new())).unwrap();
    wait_until_idle(engine);
}

/// All items by id, without what the server adds.
fn stored(engine: &Engine, container: &str) -> BTreeMap<String, String> {
    let container = engine.catalog().container("d", container).unwrap();
    let own = |text: String| {
        let mut item = json(&text);
        SYSTEM.iter().for_each(|name| drop(item.as_object_mut().unwrap().remove(name)));
        item.to_json()
    };
    items(engine, &container).into_iter().map(|(id, text)| (id, own(text))).collect()
}

fn all(count: usize, item: impl Fn(usize) -> String) -> BTreeMap<String, String> {
    let id = |item: &str| json(item).get("id").and_then(Value::as_str).unwrap().to_owned();
    (0..count).map(item).map(|item| (id(&item), item)).collect()
}

fn finished(engine: &Engine, job: &JobStatus) -> JobStatus {
    let now = || engine.job(&job.id).unwrap();
    wait_until("the job is finished", || now().state.is_finished());
    now()
}

fn apply(engine: &Engine, finding: &str) -> JobStatus {
    let job = engine.apply_finding("d", finding, true).unwrap().unwrap();
    assert_eq!((job.kind.as_str(), state_of(engine, finding).as_str()), ("apply", "accepted"));
    let job = finished(engine, &job);
    assert_eq!((job.state, job.error), (JobState::Done, None), "{finding}");
    engine.job(&job.id).unwrap()
}

fn undo(engine: &Engine, job: &JobStatus) -> JobStatus {
    let undone = finished(engine, &engine.control_job(&job.id, JobControl::Undo).unwrap());
    assert_eq!((undone.state, undone.error), (JobState::Done, None));
    engine.job(&undone.id).unwrap()
}

fn state_of(engine: &Engine, finding: &str) -> String {
    let finding = engine.finding("d", finding).unwrap();
    finding.get("state").and_then(Value::as_str).unwrap().to_owned()
}

fn names(engine: &Engine) -> Vec<String> {
    let model = engine.catalog().model("d").unwrap().body;
    let kinds = ["links", "copies", "mirrors", "rollups"];
    let all = kinds.iter().flat_map(|kind| model.get(kind).and_then(Value::as_array).unwrap_or_default());
    all.filter_map(|own| own.get("name")?.as_str().map(str::to_owned)).collect()
}

#[test]
fn declarations_are_added_built_and_taken_back_with_what_items_had() {
    let storage = MemoryStorage::new();
    let engine = library(&storage);
    let (books, authors) = (stored(&engine, "books"), stored(&engine, "authors"));
    let copy = apply(&engine, "a-copy");
    assert_eq!(stored(&engine, "books"), all(BOOKS, |number| book(number, true)));
    assert_eq!(names(&engine), ["book-author", "author-on-book"]);
    let count = apply(&engine, "a-count");
    // The link is used again.
    assert_eq!(names(&engine), ["book-author", "author-on-book", "count-of-books"]);
    assert_eq!(stored(&engine, "authors"), all(AUTHORS, |number| author(number, true)));
    // What is there already is not declared twice.
    apply(&engine, "a-copy");
    assert_eq!(names(&engine).len(), 3);
    let undone = undo(&engine, &copy);
    assert_eq!(undone.result.get("conflictCount").and_then(Value::as_u64), Some(0), "{undone:?}");
    assert_eq!(stored(&engine, "books"), books);
    assert_eq!(names(&engine), ["book-author", "count-of-books"], "a link that is used stays");
    assert_eq!(
        (state_of(&engine, "a-copy"), state_of(&engine, "a-count")),
        ("open".into(), "accepted".into())
    );
    let again = engine.control_job(&copy.id, JobControl::Undo);
    assert!(matches!(again, Err(EngineError::JobRefuses { .. })), "{again:?}");
    // It is listed still, and what was decided about it is remembered.
    evaluate(&engine);
    assert_eq!(state_of(&engine, "a-count"), "accepted");
    undo(&engine, &count);
    assert_eq!(stored(&engine, "authors"), authors);
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

/// Rows of journals, of whatever.
fn journal_rows(storage: &MemoryStorage) -> usize {
    const CATALOG: Space = Space(0);
    const JOURNALS: u8 = 0xCB;
    let scan = Scan {
        space: CATALOG,
        range: KeyRange::prefix(&[JOURNALS]),
        direction: Direction::Forward,
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
        keys_only: true,
    };
    storage.snapshot().unwrap().scan(&scan).unwrap().rows.len()
}

/// What items had is kept for seven days.
#[test]
fn journals_go_when_their_time_is_over() {
    const DAY_MS: i64 = 24 * 3600 * 1000;
    let storage = MemoryStorage::new();
    let engine = library(&storage);
    let books = stored(&engine, "books");
    let copy = apply(&engine, "a-copy");
    let rows = journal_rows(&storage);
    let right = all(BOOKS, |number| book(number, true));
    let changed = books.iter().filter(|(id, book)| right[*id] != **book);
    assert_eq!(rows, changed.count());
    assert!(rows > 0);
    engine.close().unwrap();
    let at_day = |days: i64| {
        let options = options_at(START_MS + days * DAY_MS, 1);
        Engine::open(Arc::new(storage.reopen()), options).unwrap()
    };
    let engine = at_day(6);
    evaluate(&engine);
    let count = apply(&engine, "a-count");
    let later_rows = journal_rows(&storage) - rows;
    assert!(later_rows > 0);
    engine.close().unwrap();
    let engine = at_day(8);
    wait_until("a journal is gone", || journal_rows(&storage) < rows + later_rows);
    // It ends with what it has begun.
    engine.close().unwrap();
    assert_eq!(journal_rows(&storage), later_rows);
    let engine = at_day(8);
    let refused = engine.control_job(&copy.id, JobControl::Undo);
    assert!(matches!(refused, Err(EngineError::JobRefuses { .. })), "{refused:?}");
    assert_eq!(stored(&engine, "books"), right);
    undo(&engine, &count);
    assert_eq!(stored(&engine, "authors"), all(AUTHORS, |number| author(number, false)));
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

/// However many other jobs have ended since.
#[test]
fn an_apply_can_be_undone_as_long_as_its_journal_is_kept() {
    const DAY_MS: i64 = 24 * 3600 * 1000;
    let storage = MemoryStorage::new();
    let engine = library(&storage);
    apply(&engine, "a-copy");
    let rows = journal_rows(&storage);
    engine.close().unwrap();
    let at_day = |days: i64| {
        let options = options_at(START_MS + days * DAY_MS, 1);
        Engine::open(Arc::new(storage.reopen()), options).unwrap()
    };
    let engine = at_day(6);
    evaluate(&engine);
    let count = apply(&engine, "a-count");
    let later_rows = journal_rows(&storage) - rows;
    let people = engine.catalog().container("d", "people").unwrap();
    for number in 0..1_100 {
        engine.delete_partition_key(&people, pk(&format!(r#"["gone {number}"]"#))).result.unwrap();
    }
    wait_until_idle(&engine);
    engine.close().unwrap();
    let engine = at_day(8);
    wait_until("the other journal is gone", || journal_rows(&storage) < rows + later_rows);
    engine.close().unwrap();
    assert_eq!(journal_rows(&storage), later_rows);
    let engine = at_day(8);
    undo(&engine, &count);
    assert_eq!(stored(&engine, "authors"), all(AUTHORS, |number| author(number, false)));
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

#[test]
fn what_a_client_changed_since_stays() {
    let storage = MemoryStorage::new();
    let engine = library(&storage);
    let copy = apply(&engine, "a-copy");
    // An author has another name now, and one book other authors.
    let put = |container: &str, body: &str| {
        let container = engine.catalog().container("d", container).unwrap();
        write(&engine, &container, WriteKind::Upsert, body).unwrap();
    };
    put("authors", r#"{"id":"a0","name":"Another","countOfBooks":1}"#);
    put("books", r#"{"id":"b1","title":"Another title","authors":[]}"#);
    let mut expected = all(BOOKS, |number| book(number, false).replace("Author 0\"", "Another\""));
    // Copies of the author that were old: they are what the declaration made of them last.
    expected.values_mut().for_each(|item| *item = item.replace("Old name 0\"", "Another\""));
    expected.insert("b1".into(), r#"{"id":"b1","title":"Another title","authors":[]}"#.into());
    let undone = undo(&engine, &copy);
    assert_eq!(stored(&engine, "books"), expected);
    assert!(undone.result.get("conflictCount").and_then(Value::as_u64) > Some(0), "{undone:?}");
    let conflict = undone.result.get("conflicts").and_then(|all| all.at(0)).unwrap().clone();
    assert_eq!(conflict.get("container").and_then(Value::as_str), Some("books"), "{conflict:?}");
}

#[test]
fn a_refused_apply_is_reported_and_undone() {
    let storage = MemoryStorage::new();
    let engine = library(&storage);
    let before = (stored(&engine, "books"), stored(&engine, "authors"));
    assert!(matches!(engine.apply_finding("d", "a-bad", true), Err(EngineError::ModelInvalid(_))));
    assert_eq!(state_of(&engine, "a-bad"), "open");
    assert!(engine.apply_finding("d", "a-steps", true).unwrap().is_none());
    // A mirror that is too small cannot be built: what was built beside it is taken back.
    let job = engine.apply_finding("d", "a-full", true).unwrap().unwrap();
    let failed = finished(&engine, &job);
    assert_eq!(failed.state, JobState::Failed, "{failed:?}");
    assert!(failed.error.as_deref().is_some_and(|error| error.contains("'m'")), "{failed:?}");
    assert_eq!((names(&engine).len(), state_of(&engine, "a-full").as_str()), (0, "open"));
    assert_eq!((stored(&engine, "books"), stored(&engine, "authors")), before);
    let undone = engine.control_job(&job.id, JobControl::Undo);
    assert!(matches!(undone, Err(EngineError::JobRefuses { .. })), "{undone:?}");
    let cancelled = engine.control_job(&apply(&engine, "a-copy").id, JobControl::Cancel);
    assert!(matches!(cancelled, Err(EngineError::JobRefuses { .. })), "{cancelled:?}");
}

#[test]
fn refactorings_definitions_and_views_are_applied_and_taken_back() {
    let storage = MemoryStorage::new();
    let engine = library(&storage);
    let rename = apply(&engine, "a-rename");
    assert_eq!(rename.result.get("state").and_then(Value::as_str), Some("finished"), "{rename:?}");
    assert_eq!(stored(&engine, "people"), all(40, |number| person(number, "firstName")));
    let policy = || {
        engine
            .catalog()
            .container("d", "people")
            .unwrap()
            .definition
            .json
            .get("indexingPolicy")
            .unwrap()
            .to_json()
    };
    let before = policy();
    // Somebody else changes the policy after the advice.
    let mut body = engine.catalog().container("d", "people").unwrap().definition.json.clone();
    let own = r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/own/*"}]}"#;
    body.set("indexingPolicy", json(own));
    engine.catalog().replace_container("d", "people", &Value::Object(body), &ANY).unwrap();
    let index = apply(&engine, "a-index");
    assert!(policy().contains("/own/*") && policy().contains("/note/*"), "{}", policy());
    assert_eq!(engine.catalog().container("d", "people").unwrap().index_progress(), 100);
    undo(&engine, &index);
    assert!(
        policy().contains("/own/*") && !policy().contains("/note/*") && !before.contains("/own/*"),
        "{}",
        policy()
    );
    let view = apply(&engine, "a-view");
    wait_until("the view has all", || stored(&engine, "people-by-city").len() == 40);
    undo(&engine, &view);
    assert!(engine.catalog().container("d", "people-by-city").is_err());
    undo(&engine, &rename);
    assert_eq!(stored(&engine, "people"), all(40, |number| person(number, "fname")));
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

fn open_with_findings(storage: Arc<dyn Storage>) -> Engine {
    let engine = open_on(storage);
    engine.set_advisor(Arc::new(Findings));
    engine
}

fn job_of(engine: &Engine, is_own: impl Fn(&JobStatus) -> bool) -> Option<JobStatus> {
    engine.jobs().unwrap().into_iter().find(|job| job.kind == "apply" && is_own(job))
}

fn kills(
    finding: &str,
    container: &str,
    applied: &BTreeMap<String, String>,
    commits: std::ops::Range<usize>,
) {
    for commits in commits {
        let memory = MemoryStorage::new();
        let engine = library(&memory);
        let before = stored(&engine, container);
        engine.close().unwrap();
        killed_after(
            &memory,
            commits,
            open_with_findings,
            |engine| engine.apply_finding("d", finding, true).map(drop),
            has_no_job,
        );
        let engine = open(&memory);
        engine.set_advisor(Arc::new(Findings));
        // A request that was not answered may have been done or not.
        let job = job_of(&engine, |_| true);
        let job = job.unwrap_or_else(|| engine.apply_finding("d", finding, true).unwrap().unwrap());
        let done = finished(&engine, &job);
        assert_eq!((done.state, &done.error), (JobState::Done, &None), "killed after {commits} commits");
        assert_eq!(&stored(&engine, container), applied, "killed after {commits} commits");
        assert_eq!(state_of(&engine, finding), "accepted");
        wait_until_idle(&engine);
        drop(engine);
        killed_after(
            &memory,
            commits,
            open_with_findings,
            |engine| engine.control_job(&job.id, JobControl::Undo).map(drop),
            has_no_job,
        );
        let engine = open(&memory);
        engine.set_advisor(Arc::new(Findings));
        let undone = job_of(&engine, |job| job.about.get("undoes").is_some());
        let undone = undone.unwrap_or_else(|| engine.control_job(&job.id, JobControl::Undo).unwrap());
        let undone = finished(&engine, &undone);
        assert_eq!(
            (undone.state, &undone.error),
            (JobState::Done, &None),
            "undo killed after {commits} commits"
        );
        assert_eq!(stored(&engine, container), before, "undo killed after {commits} commits");
        assert_eq!((names(&engine).len(), state_of(&engine, finding).as_str()), (0, "open"));
        wait_until_idle(&engine);
        engine.close().unwrap();
        check_sound(&memory.reopen());
    }
}

#[test]
fn a_model_is_applied_and_taken_back_through_kills_at_every_commit() {
    kills("a-copy", "books", &all(BOOKS, |number| book(number, true)), 0..24);
}

#[test]
fn a_refactoring_is_applied_and_taken_back_through_kills_at_every_commit() {
    kills("a-rename", "people", &all(40, |number| person(number, "firstName")), 0..18);
}

#[test]
fn an_embed_is_applied_with_its_link_and_taken_back_through_kills_at_every_commit() {
    let storage = MemoryStorage::new();
    let engine = library(&storage);
    let embed = apply(&engine, "an-embed");
    assert_eq!(stored(&engine, "users"), all(USERS, |number| user(number, true)));
    assert_eq!((stored(&engine, "profiles").len(), names(&engine).len()), (0, 0));
    undo(&engine, &embed);
    assert_eq!(stored(&engine, "users"), all(USERS, |number| user(number, false)));
    assert_eq!(stored(&engine, "profiles"), all(USERS, profile));
    assert!(names(&engine).is_empty());
    engine.close().unwrap();
    kills("an-embed", "users", &all(USERS, |number| user(number, true)), 0..30);
}

#[test]
fn an_apply_under_way_can_be_taken_back() {
    let storage = MemoryStorage::new();
    let engine = library(&storage);
    let before = stored(&engine, "books");
    let job = engine.apply_finding("d", "a-copy", true).unwrap().unwrap();
    let undone = engine.control_job(&job.id, JobControl::Undo).unwrap();
    assert_eq!(finished(&engine, &undone).state, JobState::Done);
    assert!(finished(&engine, &job).state.is_finished());
    wait_until_idle(&engine);
    assert_eq!((stored(&engine, "books"), names(&engine).len()), (before, 0));
    assert_eq!(state_of(&engine, "a-copy"), "open");
}
