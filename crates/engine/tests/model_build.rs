//! Builds of declarations over items that are there already, and fan-outs: with writers, and killed at every commit.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quire_engine::{
    CheckModel, Container, DryRunEstimates, Engine, EngineError, JobState, ModelCondition, WriteKind,
};
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Commit, Direction, KeyRange, Op, Scan, Space, Storage, Token};
use quire_testkit::Random;
use quire_testkit::interpreter::Json;
use quire_testkit::model::ModelOracle;
use quire_testkit::model::random::{KEYS, random_item, random_model, with_window};
use quire_value::Value;
use support::hooked_storage::{Call, HookedStorage};
use support::{database, json, options_with, wait_until, wait_until_idle, write};

const ANY: ModelCondition = ModelCondition { if_match: None, if_none_match: None };

fn container(engine: &Engine, id: &str, keys: &[&str]) -> Arc<Container> {
    let paths = keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(",");
    let kind = if keys.len() > 1 { "MultiHash" } else { "Hash" };
    let body = format!(
        r#"{{"id":"{id}","defaultTtl":-1,"partitionKey":{{"paths":[{paths}],"kind":"{kind}","version":2}}}}"#
    );
    engine.catalog().create_container("d", &json(&body), None).unwrap()
}

fn open(storage: Arc<dyn Storage>) -> Engine {
    Engine::open(storage, options_with(2)).unwrap()
}

fn put(engine: &Engine, model: &str) -> Result<Vec<String>, EngineError> {
    engine.catalog().put_model("d", &json(model), &ANY).map(|written| written.jobs)
}

/// Waits for all jobs, and what they came to.
fn finish(engine: &Engine) -> Vec<(String, JobState, Value)> {
    wait_until_idle(engine);
    let jobs = engine.jobs().unwrap().into_iter();
    // Only a job itself has its result.
    let results = jobs.map(|job| engine.job(&job.id).unwrap());
    results.map(|job| (job.kind, job.state, job.result)).collect()
}

/// What the newest build came to. Newer are the drops of what it replaced.
fn last_build(jobs: &[(String, JobState, Value)]) -> (JobState, &Value) {
    let (_, state, result) = jobs.iter().find(|(kind, ..)| kind == "build").unwrap();
    (*state, result)
}

/// Every item as clients see it, without what the server adds.
fn stored(engine: &Engine) -> Vec<(String, Json)> {
    let mut found = Vec::new();
    for container in engine.catalog().containers("d").unwrap() {
        let mut request = support::page_request();
        loop {
            let page = engine.list_items(&container, &request).result.unwrap();
            let rows = json(std::str::from_utf8(&page.rows).unwrap());
            for row in rows.as_array().unwrap() {
                let mut item = row.as_object().unwrap().clone();
                for name in ["_rid", "_self", "_etag", "_ts", "_attachments"] {
                    item.remove(name);
                }
                found.push((container.definition.id.clone(), Json::of(&Value::Object(item)).unwrap()));
            }
            request.continuation = page.continuation;
            if request.continuation.is_none() {
                break;
            }
        }
    }
    found
}

fn texts(engine: &Engine) -> Vec<String> {
    let mut texts: Vec<String> =
        stored(engine).into_iter().map(|(name, item)| format!("{name} {}", item.to_text())).collect();
    texts.sort();
    texts
}

/// Counts of a check by declaration and problem.
fn findings(engine: &Engine) -> BTreeMap<(String, String), u64> {
    let order = CheckModel { examples_max: 3, ..CheckModel::default() };
    let id = engine.check_model("d", order).unwrap().id;
    wait_until("the check is done", || engine.job(&id).unwrap().state.is_finished());
    let job = engine.job(&id).unwrap();
    assert_eq!(job.state, JobState::Done, "{:?}", job.error);
    let text =
        |finding: &Value, member: &str| finding.get(member).and_then(Value::as_str).unwrap().to_owned();
    let findings = job.result.get("findings").and_then(Value::as_array).unwrap();
    let count = |finding: &Value| finding.get("count").and_then(Value::as_u64).unwrap();
    let found = findings
        .iter()
        .map(|finding| ((text(finding, "declaration"), text(finding, "problem")), count(finding)));
    found.collect()
}

fn number(json: &Value, member: &str) -> u64 {
    json.get(member).and_then(Value::as_u64).unwrap()
}

/// A model whose mirrors are never full.
fn model(random: &mut Random, engine: &Engine) -> String {
    let is_valid = |body: &Value| engine.dry_run_model("d", body, &ANY).is_ok();
    let text = random_model(random, is_valid).to_json();
    text.replace(r#""max":1"#, r#""max":90"#).replace(r#""max":2,"whenFull":"cut""#, r#""max":90"#)
}

fn fill(engine: &Engine, random: &mut Random, count: usize) {
    for _ in 0..count {
        let place = random.below(3);
        let own = engine.catalog().container("d", KEYS[place].0).unwrap();
        let mut body = random_item(random, KEYS[place].0);
        if place == 0 && !random.one_in(3) {
            body = with_window(random, body, None, &mut (count as i64));
        }
        let body = body.to_json();
        match write(engine, &own, WriteKind::Upsert, &body) {
            Ok(()) | Err(EngineError::RefusedByModel(_)) => {}
            Err(error) => panic!("{error}: {body}"),
        }
    }
}

/// Pages from before there was a window: too large, empty, of other items, of none.
fn fill_pages(engine: &Engine, random: &mut Random) {
    let own = engine.catalog().container("d", "pages").unwrap();
    for _ in 0..random.below(14) {
        let (id, number) = (1 + random.below(4), random.below(4));
        let post = if random.one_in(9) { 7 } else { id };
        let page = if random.one_in(9) { 99 } else { number };
        let elements: Vec<String> = (0..random.below(24)).map(|at| format!(r#"{{"id":{at}}}"#)).collect();
        let all = if random.one_in(9) { "7".to_owned() } else { format!("[{}]", elements.join(",")) };
        let body =
            format!(r#"{{"id":"w:{id}:{number:08}","post":"{post}","page":{page},"all":{all},"more":1}}"#);
        write(engine, &own, WriteKind::Upsert, &body).unwrap();
    }
}

fn random_database(engine: &Engine) {
    database(engine, "d");
    KEYS.iter().for_each(|(id, keys)| _ = container(engine, id, keys));
}

/// What a dry run says that a build would change, and what the build then changed, by declaration.
fn compare_estimates(estimates: &Value, result: &Value) {
    let built = result.get("declarations").and_then(Value::as_array).unwrap();
    for estimate in estimates.as_array().unwrap() {
        let name = estimate.get("declaration").unwrap();
        let own = built.iter().find(|own| own.get("declaration") == Some(name));
        let own = own.unwrap_or_else(|| panic!("{name:?} in {}", result.to_json()));
        for (said, done) in [("wouldChange", "changed"), ("items", "items")] {
            assert_eq!(number(estimate, said), number(own, done), "{name:?} {said}: {}", own.to_json());
        }
        let is_of_referrers = number(estimate, "references") > 0;
        if is_of_referrers {
            for member in ["references", "dangling"] {
                assert_eq!(number(estimate, member), number(own, member), "{name:?} {member}");
            }
        }
    }
}

#[test]
fn items_that_are_there_get_their_values_as_was_estimated() {
    let (mut built, mut changed, mut windows) = (0, 0, 0);
    for seed in 1..=30 {
        let mut random = Random(seed);
        let engine = open(Arc::new(MemoryStorage::new()));
        random_database(&engine);
        fill(&engine, &mut random, 60);
        fill_pages(&engine, &mut random);
        let model = model(&mut random, &engine);
        let run = engine.dry_run_model("d", &json(&model), &ANY).unwrap();
        let DryRunEstimates::Made(estimates) = run.estimates else { panic!("a job") };
        let duplicates = estimates.as_array().unwrap().iter().any(|own| number(own, "duplicateKeys") > 0);
        if put(&engine, &model).unwrap().is_empty() {
            continue;
        }
        let jobs = finish(&engine);
        let (state, result) = last_build(&jobs);
        if duplicates {
            assert_eq!(state, JobState::Failed, "seed {seed}: {}", result.to_json());
            continue;
        }
        assert_eq!(state, JobState::Done, "seed {seed}: {}", result.to_json());
        compare_estimates(&estimates, result);
        let oracle = ModelOracle::new(&model, KEYS);
        assert_eq!(oracle.problems(&stored(&engine)), Vec::<String>::new(), "seed {seed}\n{model}");
        let problems = findings(&engine);
        let is_dangling = |(_, problem): &(String, String)| problem == "dangling" || problem == "blocked";
        assert!(problems.keys().all(is_dangling), "seed {seed}: {problems:?}");
        // From now on it is maintained.
        fill(&engine, &mut random, 30);
        finish(&engine);
        assert_eq!(oracle.problems(&stored(&engine)), Vec::<String>::new(), "seed {seed}, later\n{model}");
        let estimates = estimates.as_array().unwrap();
        (built, changed) = (built + 1, changed + estimates.len());
        let is_window = |own: &&Value| own.get("declaration") == Some(&"w".into());
        windows += estimates.iter().filter(is_window).map(|own| number(own, "wouldChange")).sum::<u64>();
    }
    println!("{built} models, {changed} declarations, {windows} items with a window to change");
    assert!(built > 5 && changed > 50 && windows > 20, "{built} models, {changed} declarations, {windows}");
}

const LIBRARY: &str = r#"{"version":1,"fanOutMax":10,
    "links":[{"name":"book-authors","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"},"onDelete":"remove"},
      {"name":"sequel","from":{"container":"books","path":"/sequelOf"},"to":{"container":"books","key":"/isbn","partitionKey":"lookup"}}],
    "copies":[{"name":"author-on-book","link":"book-authors","fields":{"name":"t.name"}},
      {"name":"title-of-first","link":"sequel","fields":{"first":"t.title"}}],
    "mirrors":[{"name":"books-of-author","link":"book-authors","into":"/books"}],
    "rollups":[{"name":"count-of-books","link":"book-authors","op":"count","into":"/stats/count"},
      {"name":"pages","link":"book-authors","op":"max","value":"r.pages","into":"/longest"}],
    "windows":[{"name":"reviews","container":"books","path":"/reviews","keep":2,"key":"/id","count":"/reviewCount",
      "pages":{"container":"reviews","path":"/all","parent":"/book","number":"/page","size":10}}]}"#;
const LIBRARY_KEYS: &[(&str, &[&str])] =
    &[("authors", &["/id"]), ("books", &["/id"]), ("reviews", &["/book"])];
const AUTHORS: usize = 4;

fn library(engine: &Engine, books: usize) {
    database(engine, "d");
    let authors = container(engine, "authors", &["/id"]);
    let own = container(engine, "books", &["/id"]);
    container(engine, "reviews", &["/book"]);
    for author in 0..AUTHORS {
        let body = format!(r#"{{"id":"a{author}","name":"Author {author}","books":"garbage"}}"#);
        write(engine, &authors, WriteKind::Create, &body).unwrap();
    }
    (0..books).for_each(|number| write(engine, &own, WriteKind::Create, &book(number)).unwrap());
}

fn book(number: usize) -> String {
    let (author, other) = (number % AUTHORS, (number / 3) % (AUTHORS + 1));
    let reviews: Vec<String> = (0..number % 16).map(|review| format!(r#"{{"id":{review}}}"#)).collect();
    let reviews = reviews.join(",");
    // Some are long, so that a build needs several commits for one container.
    let about = if number.is_multiple_of(3) { "x".repeat(40_000) } else { String::new() };
    format!(
        r#"{{"id":"b{number:04}","isbn":"{number}","title":"Book {number}","sequelOf":"{}","pages":{},
            "authors":[{{"id":"a{author}"}},{{"id":"a{other}","name":"?"}}],"reviews":[{reviews}],"about":"{about}"}}"#,
        number / 2,
        number * 7 % 1000
    )
}

fn compare_with_oracle(engine: &Engine, what: &str) {
    let oracle = ModelOracle::new(LIBRARY, LIBRARY_KEYS);
    let problems = oracle.problems(&stored(engine));
    assert_eq!(problems, Vec::<String>::new(), "{what}");
}

/// A kill at every commit of a build: it goes on, and ends in the same items.
#[test]
fn a_build_is_killed_at_every_commit() {
    let expected = {
        let engine = open(Arc::new(MemoryStorage::new()));
        library(&engine, 130);
        put(&engine, LIBRARY).unwrap();
        assert_eq!(last_build(&finish(&engine)).0, JobState::Done);
        compare_with_oracle(&engine, "without a kill");
        texts(&engine)
    };
    let mut ended = 0;
    for fault in [CommitFault::Poison, CommitFault::PoisonDone, CommitFault::UnknownDone] {
        for passes in 0..28 {
            let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
            let engine = open(Arc::clone(&storage) as Arc<dyn Storage>);
            library(&engine, 130);
            storage.script_commits((0..passes).map(|_| CommitFault::Pass).chain([fault]));
            let put_done = put(&engine, LIBRARY);
            // Until the fault has been met, or everything is done without it.
            wait_until("the fault is met", || {
                let is_done = engine.jobs().unwrap().iter().all(|job| job.state.is_finished());
                storage.injected() > 0 || (put_done.is_ok() && is_done)
            });
            drop(engine);
            ended += usize::from(storage.injected() == 0);
            storage.stop_faults();
            storage.reopen().unwrap();
            let engine = open(Arc::clone(&storage) as Arc<dyn Storage>);
            put(&engine, LIBRARY).unwrap();
            let what = format!("{fault:?} at commit {passes}");
            let jobs = finish(&engine);
            assert!(jobs.iter().all(|(_, state, _)| *state == JobState::Done), "{what}: {jobs:?}");
            compare_with_oracle(&engine, &what);
            assert_eq!(texts(&engine), expected, "{what}");
            let report = quire_engine::verify(&*storage).unwrap();
            assert!(report.is_sound(), "{what}: {:?}", report.problems);
        }
    }
    println!("{ended} builds ended before the fault");
}

#[test]
fn writers_and_a_build_count_every_item_once() {
    for round in 0..6 {
        let engine = open(Arc::new(MemoryStorage::new()));
        library(&engine, 300);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..3usize {
                let (engine, stop) = (&engine, &stop);
                scope.spawn(move || {
                    let mut random = Random(round * 10 + writer as u64);
                    let books = engine.catalog().container("d", "books").unwrap();
                    let authors = engine.catalog().container("d", "authors").unwrap();
                    while !stop.load(Ordering::SeqCst) {
                        let number = random.below(320);
                        let done = match random.below(6) {
                            0 => {
                                let id = format!("b{number:04}");
                                support::delete(engine, &books, &id, &id)
                            }
                            1 => {
                                let (author, name) = (random.below(AUTHORS), random.below(9));
                                let body = format!(r#"{{"id":"a{author}","name":"New {name}"}}"#);
                                write(engine, &authors, WriteKind::Upsert, &body)
                            }
                            _ => write(engine, &books, WriteKind::Upsert, &book(number)),
                        };
                        match done {
                            Ok(())
                            | Err(EngineError::ItemNotFound { .. } | EngineError::RefusedByModel(_)) => {}
                            Err(EngineError::Contended | EngineError::TransactionConflict) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            let job = put(&engine, LIBRARY).unwrap().remove(0);
            let is_built = || engine.job(&job).unwrap().state.is_finished();
            let deadline = Instant::now() + Duration::from_secs(120);
            while !is_built() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::SeqCst);
            assert!(is_built(), "writers keep the build from its end");
        });
        let jobs = finish(&engine);
        let built = jobs.iter().filter(|(kind, ..)| kind == "build");
        built.for_each(|(_, state, result)| assert_eq!(*state, JobState::Done, "{}", result.to_json()));
        compare_with_oracle(&engine, &format!("round {round}"));
        let problems = findings(&engine);
        assert!(problems.keys().all(|(_, problem)| problem == "dangling"), "{problems:?}");
    }
}

const LINK: &str = r#"{"version":1,"links":[
    {"name":"book-authors","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}}]}"#;

/// A book with a given author; so large that a build of its link needs several commits.
fn book_of(number: usize, author: usize) -> String {
    format!(r#"{{"id":"b{number:04}","authors":[{{"id":"a{author}"}}],"about":"{}"}}"#, "x".repeat(60_000))
}

/// A link by itself is built without units: beside writers that give items other references, the rows are those of the items.
#[test]
fn writers_beside_the_build_of_a_link_leave_no_row_behind() {
    const BOOKS: usize = 250;
    for round in 0..4 {
        let storage = Arc::new(MemoryStorage::new());
        let engine = open(Arc::clone(&storage) as Arc<dyn Storage>);
        library(&engine, 0);
        let books = engine.catalog().container("d", "books").unwrap();
        for number in 0..BOOKS {
            write(&engine, &books, WriteKind::Create, &book_of(number, number % (AUTHORS + 1))).unwrap();
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..3u64 {
                let (engine, stop, books) = (&engine, &stop, &books);
                scope.spawn(move || {
                    let mut random = Random(round * 10 + writer);
                    while !stop.load(Ordering::SeqCst) {
                        let number = random.below(BOOKS + 20);
                        let id = format!("b{number:04}");
                        let done = match random.below(5) {
                            0 => support::delete(engine, books, &id, &id),
                            _ => {
                                let body = book_of(number, random.below(AUTHORS + 1));
                                write(engine, books, WriteKind::Upsert, &body)
                            }
                        };
                        match done {
                            Ok(())
                            | Err(
                                EngineError::ItemNotFound { .. }
                                | EngineError::Contended
                                | EngineError::TransactionConflict,
                            ) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            let job = put(&engine, LINK).unwrap().remove(0);
            let is_built = || engine.job(&job).unwrap().state.is_finished();
            let deadline = Instant::now() + Duration::from_secs(120);
            while !is_built() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::SeqCst);
            assert!(is_built(), "writers keep the build from its end");
        });
        assert_eq!(last_build(&finish(&engine)).0, JobState::Done);
        drop(engine);
        let report = quire_engine::verify(&*storage).unwrap();
        assert!(report.is_sound(), "round {round}: {:?}", report.problems);
    }
}

/// The same build, killed at every commit of it: what is done again leaves no row twice, and none out.
#[test]
fn the_build_of_a_link_is_killed_at_every_commit() {
    const BOOKS: usize = 150;
    for fault in [CommitFault::Poison, CommitFault::PoisonDone, CommitFault::UnknownDone] {
        for passes in 0..10 {
            let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
            let engine = open(Arc::clone(&storage) as Arc<dyn Storage>);
            library(&engine, 0);
            let books = engine.catalog().container("d", "books").unwrap();
            for number in 0..BOOKS {
                write(&engine, &books, WriteKind::Create, &book_of(number, number % (AUTHORS + 1))).unwrap();
            }
            storage.script_commits((0..passes).map(|_| CommitFault::Pass).chain([fault]));
            let put_done = put(&engine, LINK);
            wait_until("the fault is met", || {
                let is_done = engine.jobs().unwrap().iter().all(|job| job.state.is_finished());
                storage.injected() > 0 || (put_done.is_ok() && is_done)
            });
            drop(engine);
            storage.stop_faults();
            storage.reopen().unwrap();
            let engine = open(Arc::clone(&storage) as Arc<dyn Storage>);
            put(&engine, LINK).unwrap();
            let what = format!("{fault:?} at commit {passes}");
            let jobs = finish(&engine);
            assert!(jobs.iter().all(|(_, state, _)| *state == JobState::Done), "{what}: {jobs:?}");
            let built = last_build(&jobs).1.get("declarations").and_then(|own| own.at(0)).unwrap().clone();
            let figures = ["items", "references", "dangling"].map(|member| number(&built, member));
            assert_eq!(figures, [150, 150, 30], "{what}");
            drop(engine);
            let report = quire_engine::verify(&*storage).unwrap();
            assert!(report.is_sound(), "{what}: {:?}", report.problems);
        }
    }
}

/// What dangles is counted with the rows of a link: items that are invisible are left out, and so are targets of that kind.
#[test]
fn the_build_of_a_link_counts_what_dangles() {
    let engine = open(Arc::new(MemoryStorage::new()));
    library(&engine, 0);
    let books = engine.catalog().container("d", "books").unwrap();
    for (id, authors) in
        [("b1", r#"{"id":"a0"},{"id":"a0"},{"id":"no"}"#), ("b2", r#"{"id":"no"},{"id":7}"#), ("b3", "")]
    {
        let body = format!(r#"{{"id":"{id}","authors":[{authors}]}}"#);
        write(&engine, &books, WriteKind::Create, &body).unwrap();
    }
    put(&engine, LINK).unwrap();
    let jobs = finish(&engine);
    let (state, result) = last_build(&jobs);
    assert_eq!(state, JobState::Done);
    let built = result.get("declarations").and_then(|own| own.at(0)).unwrap();
    let figures = ["items", "references", "dangling"].map(|member| number(built, member));
    assert_eq!(figures, [3, 4, 2]);
    assert_eq!(findings(&engine), BTreeMap::from([(("book-authors".to_owned(), "dangling".to_owned()), 2)]));
}

#[test]
fn what_cannot_be_built_fails_and_the_rest_is_built() {
    let engine = open(Arc::new(MemoryStorage::new()));
    library(&engine, 60);
    let books = engine.catalog().container("d", "books").unwrap();
    write(&engine, &books, WriteKind::Create, r#"{"id":"twice","isbn":"7"}"#).unwrap();
    let model = LIBRARY.replace(r#""into":"/books""#, r#""into":"/books","max":5"#);
    put(&engine, &model).unwrap();
    let jobs = finish(&engine);
    assert_eq!(last_build(&jobs).0, JobState::Failed);
    let status = engine.model_status("d").unwrap();
    let states: Vec<(&str, &str)> =
        status.declarations.iter().map(|own| (own.name.as_str(), own.state)).collect();
    assert_eq!(
        states,
        [
            ("book-authors", "active"),
            ("sequel", "failed"),
            ("author-on-book", "active"),
            ("title-of-first", "failed"),
            ("books-of-author", "failed"),
            ("count-of-books", "active"),
            ("pages", "active"),
            ("reviews", "active"),
        ]
    );
    let sequel = &status.declarations[1];
    assert_eq!(sequel.error.as_deref(), Some("Two items have the key '7' of the link 'sequel'."));
    assert_eq!(sequel.examples.len(), 1);
    let mirror = &status.declarations[4];
    assert!(mirror.error.as_deref().unwrap().starts_with("MaintainedTooLarge: 'books-of-author'"));
    // What failed is built by the next put, when the reason is gone.
    support::delete(&engine, &books, "twice", "twice").unwrap();
    put(&engine, LIBRARY).unwrap();
    let jobs = finish(&engine);
    let (state, result) = last_build(&jobs);
    assert_eq!(state, JobState::Done, "{}", result.to_json());
    compare_with_oracle(&engine, "later");
    assert!(engine.model_status("d").unwrap().declarations.iter().all(|own| own.state == "active"));
}

#[test]
fn declarations_that_go_end_their_job() {
    let engine = open(Arc::new(MemoryStorage::new()));
    library(&engine, 200);
    put(&engine, LIBRARY).unwrap();
    put(&engine, r#"{"version":1}"#).unwrap();
    let jobs = finish(&engine);
    assert!([JobState::Cancelled, JobState::Done].contains(&last_build(&jobs).0), "{jobs:?}");
    put(&engine, LIBRARY).unwrap();
    finish(&engine);
    compare_with_oracle(&engine, "declared again");
}

/// More referrers than one request writes: a job writes the others, and is killed at every commit.
#[test]
fn fan_outs_are_killed_at_every_commit() {
    for (what, passes) in ["rename", "delete"].into_iter().flat_map(|what| (0..14).map(move |n| (what, n))) {
        let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
        let engine = open(Arc::clone(&storage) as Arc<dyn Storage>);
        library(&engine, 200);
        put(&engine, LIBRARY).unwrap();
        assert_eq!(last_build(&finish(&engine)).0, JobState::Done);
        let authors = engine.catalog().container("d", "authors").unwrap();
        storage.script_commits((0..passes).map(|_| CommitFault::Pass).chain([CommitFault::PoisonDone]));
        let done = match what {
            "rename" => write(&engine, &authors, WriteKind::Upsert, r#"{"id":"a1","name":"Renamed"}"#),
            _ => support::delete(&engine, &authors, "a1", "a1"),
        };
        wait_until("the fault is met", || {
            let is_done = engine.jobs().unwrap().iter().all(|job| job.state.is_finished());
            storage.injected() > 0 || (done.is_ok() && is_done)
        });
        drop(engine);
        storage.stop_faults();
        storage.reopen().unwrap();
        let engine = open(Arc::clone(&storage) as Arc<dyn Storage>);
        let jobs = finish(&engine);
        let what = format!("{what} at commit {passes}");
        assert!(jobs.iter().all(|(_, state, _)| *state == JobState::Done), "{what}: {jobs:?}");
        assert!(engine.model_status("d").unwrap().pending.is_empty());
        compare_with_oracle(&engine, &what);
        let problems = findings(&engine);
        assert!(problems.keys().all(|(_, problem)| problem == "dangling"), "{what}: {problems:?}");
    }
}

/// Waits for a repair: how many items it wrote.
fn repair(engine: &Engine, remove_dangling: bool) -> u64 {
    let order = CheckModel { examples_max: 3, remove_dangling, ..CheckModel::default() };
    let id = engine.repair_model("d", order).unwrap().id;
    wait_until("the repair is done", || engine.job(&id).unwrap().state.is_finished());
    let job = engine.job(&id).unwrap();
    assert_eq!((job.state, job.kind.as_str()), (JobState::Done, "repair"), "{:?}", job.error);
    number(&job.result, "repaired")
}

/// The row of an item, by the text that is in it.
fn item_row(storage: &dyn Storage, text: &str) -> (Vec<u8>, Vec<u8>) {
    let range = KeyRange { start: Bound::Unbounded, end: Bound::Unbounded };
    let (direction, rows_max, bytes_max) = (Direction::Forward, usize::MAX, usize::MAX);
    let scan = Scan { space: Space(1), range, direction, rows_max, bytes_max, keys_only: false };
    let rows = storage.snapshot().unwrap().scan(&scan).unwrap().rows;
    let has = |row: &[u8]| row.windows(text.len()).any(|part| part == text.as_bytes());
    rows.into_iter().find(|(_, row)| has(row)).unwrap()
}

#[test]
fn a_repair_writes_what_drifted_and_nothing_else() {
    let storage = MemoryStorage::new();
    let engine = open(Arc::new(storage.reopen()));
    library(&engine, 40);
    put(&engine, LIBRARY).unwrap();
    finish(&engine);
    // What dangles was there before.
    let dangling: u64 = findings(&engine).values().sum();
    assert!(dangling > 0);
    assert_eq!(repair(&engine, false), 0);
    let (key, stale) = item_row(&storage, "Author 2");
    let books = engine.catalog().container("d", "books").unwrap();
    write(&engine, &books, WriteKind::Create, r#"{"id":"new","authors":[{"id":"a2"}]}"#).unwrap();
    engine.close().unwrap();
    // The author as it was before the book.
    let ops = vec![Op::Put { space: Space(1), key, value: stale }];
    storage.reopen().commit(Commit { guards: Vec::new(), token: Token(7), ops }).unwrap();
    let engine = open(Arc::new(storage.reopen()));
    let drifted = findings(&engine);
    let count = |name: &str| drifted.get(&(name.to_owned(), "drift".to_owned())).copied();
    assert_eq!(
        (count("count-of-books"), count("books-of-author"), count("author-on-book")),
        (Some(1), Some(1), None)
    );
    assert_eq!(repair(&engine, false), 1);
    compare_with_oracle(&engine, "repaired");
    assert_eq!(findings(&engine).values().sum::<u64>(), dangling);
    assert_eq!(repair(&engine, false), 0);
    // And what dangles goes, when that is asked for.
    assert!(repair(&engine, true) > 0);
    assert_eq!(findings(&engine), BTreeMap::new());
    compare_with_oracle(&engine, "without what dangled");
    assert_eq!(repair(&engine, true), 0);
}

/// A backup in the middle of a build and of a fan-out: the restored store goes on.
#[test]
fn what_was_pending_goes_on_after_a_restore() {
    for what in ["build", "fan-out"] {
        let engine = open(Arc::new(MemoryStorage::new()));
        library(&engine, 300);
        put(&engine, LIBRARY).unwrap();
        if what == "fan-out" {
            finish(&engine);
            let authors = engine.catalog().container("d", "authors").unwrap();
            write(&engine, &authors, WriteKind::Upsert, r#"{"id":"a1","name":"Renamed"}"#).unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("backup");
        engine.backup(&path).unwrap();
        drop(engine);
        let restored = MemoryStorage::new();
        quire_engine::restore(&path, &restored).unwrap();
        let engine = open(Arc::new(restored.reopen()));
        finish(&engine);
        compare_with_oracle(&engine, what);
        assert!(
            engine.model_status("d").unwrap().declarations.iter().all(|own| own.state == "active"),
            "{what}"
        );
        engine.close().unwrap();
        let report = quire_engine::verify(&restored).unwrap();
        assert!(report.is_sound(), "{what}: {:?}", report.problems);
    }
}

/// An item that is created while the model is put, and is on disk after its build has begun: it counts.
#[test]
fn what_is_committed_while_a_build_begins_counts() {
    let hooked = HookedStorage::new(Arc::new(MemoryStorage::new()));
    let calls = hooked.calls();
    let engine = open(Arc::new(hooked));
    database(&engine, "d");
    let authors = container(&engine, "authors", &["/id"]);
    let books = container(&engine, "books", &["/id"]);
    write(&engine, &authors, WriteKind::Create, r#"{"id":"a1"}"#).unwrap();
    let (is_held, may_go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (held, go) = (Arc::clone(&is_held), Arc::clone(&may_go));
    let is_book = |op: &Op| matches!(op, Op::Put { space: Space(1), .. });
    calls.set_hook(move |call| {
        if let Call::Commit(commit) = call
            && commit.ops.iter().any(is_book)
            && !held.swap(true, Ordering::SeqCst)
        {
            while !go.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| write(&engine, &books, WriteKind::Create, r#"{"id":"b1","author":"a1"}"#).unwrap());
        wait_until("the book is on its way", || is_held.load(Ordering::SeqCst));
        scope.spawn(|| {
            let model = r#"{"version":1,"links":[{"name":"l","from":{"container":"books","path":"/author"},
                "to":{"container":"authors"}}],"rollups":[{"name":"n","link":"l","op":"count","into":"/n"}]}"#;
            put(&engine, model).unwrap()
        });
        wait_until("the build is there", || !engine.jobs().unwrap().is_empty());
        std::thread::sleep(Duration::from_millis(100)); // enough to count all items that are to be seen
        may_go.store(true, Ordering::SeqCst);
    });
    finish(&engine);
    let author = stored(&engine).into_iter().find(|(name, _)| name == "authors").unwrap().1.to_text();
    assert!(author.contains(r#""n":1"#), "{author}");
}

/// New versions may be much larger than what is stored: fewer items are then written together.
#[test]
fn small_items_that_become_large_are_built_in_smaller_commits() {
    let engine = open(Arc::new(MemoryStorage::new()));
    database(&engine, "d");
    let (authors, books) = (container(&engine, "authors", &["/id"]), container(&engine, "books", &["/id"]));
    let about = "x".repeat(90 << 10);
    write(&engine, &authors, WriteKind::Upsert, &format!(r#"{{"id":"a","about":"{about}"}}"#)).unwrap();
    for book in 0..400 {
        write(&engine, &books, WriteKind::Upsert, &format!(r#"{{"id":"b{book}","author":{{"id":"a"}}}}"#))
            .unwrap();
    }
    let model = r#"{"version":1,"links":[{"name":"l","from":{"container":"books","path":"/author/id"},
        "to":{"container":"authors"}}],"copies":[{"name":"c","link":"l","fields":{"about":"t.about"}}]}"#;
    put(&engine, model).unwrap();
    let jobs = finish(&engine);
    let (state, result) = last_build(&jobs);
    assert_eq!(state, JobState::Done, "{}", result.to_json());
    assert!(findings(&engine).is_empty());
    let large = stored(&engine).iter().filter(|(_, item)| item.to_text().len() > 90 << 10).count();
    assert_eq!(large, 401);
}
