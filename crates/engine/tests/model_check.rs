//! Checks of models that are not declared: counts are exact, and judged by a recomputation that shares nothing with the engine.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use expect_test::expect;
use quire_engine::{
    CheckModel, Container, DryRunEstimates, Engine, EngineError, JobControl, JobState, ModelCondition,
    WriteKind,
};
use quire_storage::memory::MemoryStorage;
use quire_testkit::Random;
use quire_testkit::interpreter::{Json, same};
use quire_testkit::model::ModelOracle;
use quire_testkit::model::random::{KEYS, random_item, random_model};
use quire_value::Value;
use support::{database, ends_at_every_check, items, json, open, wait_until, write};

const ANY: ModelCondition = ModelCondition { if_match: None, if_none_match: None };

fn container(engine: &Engine, id: &str, keys: &[&str], more: &str) -> Arc<Container> {
    let paths = keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(",");
    let kind = if keys.len() > 1 { "MultiHash" } else { "Hash" };
    let body =
        format!(r#"{{"id":"{id}","partitionKey":{{"paths":[{paths}],"kind":"{kind}","version":2}}{more}}}"#);
    engine.catalog().create_container("d", &json(&body), None).unwrap()
}

fn check(engine: &Engine, order: CheckModel) -> Result<Value, EngineError> {
    let id = engine.check_model("d", order)?.id;
    wait_until("the check is done", || engine.job(&id).unwrap().state.is_finished());
    let job = engine.job(&id).unwrap();
    assert_eq!((job.state, job.kind.as_str()), (JobState::Done, "check"), "{:?}", job.error);
    Ok(job.result)
}

fn of_model(model: &str) -> CheckModel {
    CheckModel { examples_max: 10, model: Some(json(model)), ..CheckModel::default() }
}

/// Counts of a result by declaration and problem.
fn counts(result: &Value) -> BTreeMap<(String, String), u64> {
    let text =
        |finding: &Value, member: &str| finding.get(member).and_then(Value::as_str).unwrap().to_owned();
    let findings = result.get("findings").and_then(Value::as_array).unwrap();
    let count = |finding: &Value| finding.get("count").and_then(Value::as_u64).unwrap();
    findings
        .iter()
        .map(|finding| ((text(finding, "declaration"), text(finding, "problem")), count(finding)))
        .collect()
}

/// Every item as clients wrote it.
fn stored(engine: &Engine, containers: &[Arc<Container>]) -> Vec<(String, Json)> {
    let mut found = Vec::new();
    for container in containers {
        let request = quire_engine::PageRequest { item_count_max: Some(-1), ..Default::default() };
        let page = engine.list_items(container, &request).result.unwrap();
        assert!(page.continuation.is_none());
        let rows = json(std::str::from_utf8(&page.rows).unwrap());
        for row in rows.as_array().unwrap() {
            let mut item = row.as_object().unwrap().clone();
            for name in ["_rid", "_self", "_etag", "_ts", "_attachments"] {
                item.remove(name);
            }
            found.push((container.definition.id.clone(), Json::of(&Value::Object(item)).unwrap()));
        }
    }
    found
}

/// The targets of one item are more than is held of them: those that are not are read again.
#[test]
fn an_item_may_refer_to_many_large_items() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    database(&engine, "d");
    let [authors, books] = ["authors", "books"].map(|id| container(&engine, id, &["/id"], ""));
    let text = "x".repeat(1_900_000);
    for author in 0..12 {
        let author = format!(r#"{{"id":"a{author}","name":"n","text":"{text}"}}"#);
        write(&engine, &authors, WriteKind::Upsert, &author).unwrap();
    }
    // The names of the first and the last are not those of their authors.
    let name = |author| if author % 11 == 0 { "other" } else { "n" };
    let reference = |author| format!(r#"{{"id":"a{author}","name":"{}"}}"#, name(author));
    let references = (0..12).map(reference).collect::<Vec<_>>().join(",");
    write(&engine, &books, WriteKind::Upsert, &format!(r#"{{"id":"b","authors":[{references}]}}"#)).unwrap();
    let model = r#"{"version":1,"links":[
        {"name":"l","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}}],
        "copies":[{"name":"c","link":"l","fields":{"name":"t.name"}}]}"#;
    let found = counts(&check(&engine, of_model(model)).unwrap());
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [(("c".to_owned(), "drift".to_owned()), 2)]);
}

/// Items as they come, none of them maintained: what is wrong with them is counted to the last path.
#[test]
fn counts_are_those_of_a_recomputation() {
    let (mut compared, mut wrong) = (0, 0);
    for seed in 1..=25 {
        let mut random = Random(seed);
        let storage = MemoryStorage::new();
        let engine = open(&storage);
        database(&engine, "d");
        let containers: Vec<_> = KEYS.iter().map(|(id, keys)| container(&engine, id, keys, "")).collect();
        let dry = |body: &Value| engine.dry_run_model("d", body, &ANY).is_ok();
        let model = random_model(&mut random, dry).to_json();
        for _ in 0..60 {
            let place = random.below(3);
            let body = random_item(&mut random, KEYS[place].0).to_json();
            write(&engine, &containers[place], WriteKind::Upsert, &body).unwrap();
        }
        let result = check(&engine, of_model(&model)).unwrap();
        let found = counts(&result);
        let items = stored(&engine, &containers);
        let oracle = ModelOracle::new(&model, KEYS);
        let mut expected: BTreeMap<(String, String), u64> = BTreeMap::new();
        for place in oracle.expected(&items) {
            let is_wrong = !same(&place.value, &place.found);
            *expected.entry((place.declaration, "drift".to_owned())).or_default() += u64::from(is_wrong);
        }
        for dangling in oracle.dangling(&items) {
            *expected.entry((dangling.link, "dangling".to_owned())).or_default() += 1;
        }
        let has = |name: &str, problem: &str| found.contains_key(&(name.to_owned(), problem.to_owned()));
        let model = json(&model);
        let link_of = |name: &str| -> String {
            let lists =
                ["copies", "mirrors", "rollups"].map(|list| model.get(list).and_then(Value::as_array));
            let own = lists.into_iter().flatten().flatten();
            let mut own = own.filter(|own| own.get("name").and_then(Value::as_str) == Some(name));
            let link = own.next().and_then(|own| own.get("link")).and_then(Value::as_str);
            link.unwrap_or(name).to_owned()
        };
        for ((name, problem), count) in expected {
            // Two targets of one reference: there is no right value. A mirror that is too long has none either.
            if name == "w" || has(&link_of(&name), "duplicate-key") || has(&name, "blocked") {
                continue;
            }
            let own = found.get(&(name.clone(), problem.clone())).copied().unwrap_or(0);
            assert_eq!(own, count, "seed {seed}, {name} {problem}\n{model:?}");
            (compared, wrong) = (compared + 1, wrong + u64::from(count > 0));
        }
    }
    assert!(compared > 100 && wrong > 50, "{compared} counts, {wrong} of them not zero");
}

const LIBRARY: &str = r#"{"version":1,
    "links":[{"name":"book-authors","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}},
      {"name":"sequel","from":{"container":"books","path":"/sequelOf"},"to":{"container":"books","key":"/isbn","partitionKey":"lookup"}}],
    "copies":[{"name":"author-on-book","link":"book-authors","fields":{"name":"t.name"}}],
    "mirrors":[{"name":"books-of-author","link":"book-authors","into":"/books","max":2}],
    "rollups":[{"name":"count-of-books","link":"book-authors","op":"count","into":"/stats/count"}]}"#;

fn library() -> (MemoryStorage, Engine, Arc<Container>, Arc<Container>) {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    database(&engine, "d");
    let authors = container(&engine, "authors", &["/id"], r#","defaultTtl":-1"#);
    let books = container(&engine, "books", &["/id"], "");
    for author in [
        r#"{"id":"a1","name":"Ann","books":["b1","b2"],"stats":{"count":2}}"#,
        r#"{"id":"a2","name":"Bob","stats":7}"#,
        r#"{"id":"a3","name":"Cid","books":[],"stats":{"count":0}}"#,
    ] {
        write(&engine, &authors, WriteKind::Create, author).unwrap();
    }
    for book in [
        r#"{"id":"b1","isbn":"1","authors":[{"id":"a1","name":"Ann"}]}"#,
        r#"{"id":"b2","isbn":"2","sequelOf":"1","authors":[{"id":"a1","name":"An"},{"id":"a2"}]}"#,
        r#"{"id":"b3","isbn":"2","sequelOf":"9","authors":[{"id":"a2","name":"Bob"},{"id":"gone","name":"?"}]}"#,
        r#"{"id":"b4","authors":[{"id":"a2","name":"Bob"},{"name":"none"}]}"#,
    ] {
        write(&engine, &books, WriteKind::Create, book).unwrap();
    }
    (storage, engine, authors, books)
}

fn lines(result: &Value) -> String {
    let rest = ["clean", "items", "references"].map(|member| result.get(member).unwrap().to_json());
    let mut lines = format!("clean {}, items {}, references {}\n", rest[0], rest[1], rest[2]);
    for finding in result.get("findings").and_then(Value::as_array).unwrap() {
        let text = |member: &str| finding.get(member).unwrap().to_json();
        lines.push_str(&format!("{} {} {}\n", text("declaration"), text("problem"), text("count")));
        for example in finding.get("examples").and_then(Value::as_array).unwrap() {
            lines.push_str(&format!("  {}\n", example.to_json()));
        }
    }
    lines
}

#[test]
fn every_problem_with_its_examples() {
    let (_, engine, ..) = library();
    expect![[r#"
        clean false, items 7, references 8
        "book-authors" "dangling" 1
          {"container":"books","id":"b3","partitionKey":["b3"],"path":"/authors/1/id","found":"gone"}
        "sequel" "dangling" 1
          {"container":"books","id":"b3","partitionKey":["b3"],"path":"/sequelOf","found":"9"}
        "sequel" "duplicate-key" 1
          {"container":"books","id":"b2","partitionKey":["b2"],"path":"/isbn","found":"2"}
        "author-on-book" "drift" 3
          {"container":"books","id":"b3","partitionKey":["b3"],"path":"/authors/1/name","found":"?"}
          {"container":"books","id":"b2","partitionKey":["b2"],"path":"/authors/0/name","found":"An","expected":"Ann"}
          {"container":"books","id":"b2","partitionKey":["b2"],"path":"/authors/1/name","expected":"Bob"}
        "books-of-author" "blocked" 1
          {"container":"authors","id":"a2","partitionKey":["a2"],"path":"/books"}
        "count-of-books" "blocked" 1
          {"container":"authors","id":"a2","partitionKey":["a2"],"path":"/stats/count","expected":3}
    "#]].assert_eq(&lines(&check(&engine, of_model(LIBRARY)).unwrap()));
    let only = CheckModel { declarations: Some(vec!["sequel".to_owned()]), ..of_model(LIBRARY) };
    let only = CheckModel { examples_max: 0, ..only };
    expect![[r#"
        clean false, items 4, references 2
        "sequel" "dangling" 1
        "sequel" "duplicate-key" 1
    "#]]
    .assert_eq(&lines(&check(&engine, only).unwrap()));
    let unknown = CheckModel { declarations: Some(vec!["other".to_owned()]), ..of_model(LIBRARY) };
    assert!(matches!(check(&engine, unknown), Err(EngineError::BadRequest { .. })));
    assert!(matches!(check(&engine, of_model("{}")), Err(EngineError::ModelInvalid(_))));
    // Nothing is declared: nothing can be wrong.
    let nothing = check(&engine, CheckModel::default()).unwrap();
    assert_eq!(lines(&nothing), "clean true, items 0, references 0\n");
    assert!(engine.catalog().model("d").unwrap().revision == 0);
}

/// Examples show the beginning of values that are long, and are as many as fit into a result.
#[test]
fn examples_are_of_limited_size() {
    const RESULT_BYTES_MAX: usize = 1 << 20;
    let engine = open(&MemoryStorage::new());
    database(&engine, "d");
    let none = r#","indexingPolicy":{"indexingMode":"none","automatic":false}"#;
    let (authors, books) =
        (container(&engine, "authors", &["/id"], ""), container(&engine, "books", &["/id"], none));
    write(&engine, &authors, WriteKind::Create, r#"{"id":"a1","name":"Ann"}"#).unwrap();
    let model = r#"{"version":1,
        "links":[{"name":"book-author","from":{"container":"books","path":"/author/id"},"to":{"container":"authors"},"integrity":"weak","onDelete":"allow"}],
        "copies":[{"name":"author-on-book","link":"book-author","fields":{"name":"t.name"}}]}"#;
    let book = |n: usize, letters: usize| {
        let name = "ä".repeat(letters);
        let book = format!(r#"{{"id":"b{n}","author":{{"id":"a1","name":"{name}"}}}}"#);
        write(&engine, &books, WriteKind::Upsert, &book).unwrap();
    };
    let all = || CheckModel { examples_max: 1_000, ..of_model(model) };
    let drift = |result: &Value| result.get("findings").and_then(Value::as_array).unwrap()[0].clone();
    (0..20).for_each(|n| book(n, 900_000));
    let result = check(&engine, all()).unwrap();
    assert!(result.to_json().len() < RESULT_BYTES_MAX);
    let found = drift(&result);
    let examples = found.get("examples").and_then(Value::as_array).unwrap();
    assert_eq!((examples.len(), found.get("examplesLeftOut")), (20, None));
    for example in examples {
        let shown = example.get("found").and_then(Value::as_str).unwrap();
        assert!(shown.starts_with("\"äää") && shown.ends_with("ä…") && shown.len() < 1_100, "{shown}");
        assert_eq!(example.get("expected"), Some(&Value::from("Ann")));
    }
    let run = engine.dry_run_model("d", &json(model), &ANY).unwrap();
    let DryRunEstimates::Made(estimates) = run.estimates else { panic!("a job") };
    assert!(estimates.to_json().len() < RESULT_BYTES_MAX);
    (0..900).for_each(|n| book(n, 5_000));
    let result = check(&engine, all()).unwrap();
    assert!(result.to_json().len() < RESULT_BYTES_MAX);
    let found = drift(&result);
    assert_eq!(found.get("count"), Some(&Value::from(900)));
    assert_eq!(found.get("examplesLeftOut"), Some(&Value::from(true)));
    assert!(found.get("examples").and_then(Value::as_array).unwrap().len() > 300);
    let list = engine.jobs().unwrap();
    assert!(list.len() == 2 && list.iter().all(|job| job.result == Value::Null), "a list has no results");
}

/// Expressions that take long end with the work that they are evaluated for.
#[test]
fn a_dry_run_ends_when_its_client_has_left() {
    let (_, engine, authors, _) = library();
    let list: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
    let author = format!(r#"{{"id":"a1","name":"Ann","list":[{}]}}"#, list.join(","));
    write(&engine, &authors, WriteKind::Upsert, &author).unwrap();
    let lists = ["t.list"; 60].join(",");
    let model = LIBRARY.replace("t.name", &format!("ARRAY_LENGTH(SETUNION(ARRAY_CONCAT({lists}), t.list))"));
    assert_ne!(model, LIBRARY);
    ends_at_every_check("a dry run", 20, |cancel| {
        cancel.watch(|| engine.dry_run_model("d", &json(&model), &ANY)).map(drop)
    });
}

#[test]
fn a_dry_run_estimates() {
    let (_, engine, authors, books) = library();
    let before = (items(&engine, &authors), items(&engine, &books));
    let run = engine.dry_run_model("d", &json(LIBRARY), &ANY).unwrap();
    let DryRunEstimates::Made(estimates) = run.estimates else { panic!("a job") };
    let mut shown = String::new();
    for estimate in estimates.as_array().unwrap() {
        let mut estimate = estimate.as_object().unwrap().clone();
        let examples = estimate.remove("examples").unwrap();
        let count = examples.as_array().unwrap().len();
        shown.push_str(&format!("{} {count} examples\n", Value::Object(estimate).to_json()));
    }
    expect![[r#"
        {"declaration":"book-authors","items":4,"wouldChange":0,"references":6,"dangling":1,"duplicateKeys":0,"fanOut":{"p50":2,"p95":3,"max":3}} 1 examples
        {"declaration":"sequel","items":4,"wouldChange":0,"references":2,"dangling":1,"duplicateKeys":1,"fanOut":{"p50":1,"p95":1,"max":1}} 2 examples
        {"declaration":"author-on-book","items":4,"wouldChange":2,"references":6,"dangling":1,"duplicateKeys":0,"fanOut":{"p50":2,"p95":3,"max":3}} 3 examples
        {"declaration":"books-of-author","items":3,"wouldChange":0,"references":0,"dangling":0,"duplicateKeys":0,"fanOut":{"p50":2,"p95":3,"max":3}} 1 examples
        {"declaration":"count-of-books","items":3,"wouldChange":0,"references":0,"dangling":0,"duplicateKeys":0,"fanOut":{"p50":2,"p95":3,"max":3}} 1 examples
    "#]].assert_eq(&shown);
    assert_eq!((items(&engine, &authors), items(&engine, &books)), before);
    assert!(engine.jobs().unwrap().is_empty() && engine.catalog().model("d").unwrap().revision == 0);
    let wrong = ModelCondition { if_match: Some("\"x\"".to_owned()), if_none_match: None };
    let refused = engine.dry_run_model("d", &json(LIBRARY), &wrong);
    assert!(matches!(refused, Err(EngineError::PreconditionFailed)));
}

/// Over 10,000 items the estimates come from a job; it can be paused, and goes on.
#[test]
fn a_large_dry_run_is_a_job() {
    let (_, engine, authors, _) = library();
    for number in 0..10_001 {
        let body = format!(r#"{{"id":"x{number}","books":[],"stats":{{"count":0}}}}"#);
        write(&engine, &authors, WriteKind::Create, &body).unwrap();
    }
    let run = engine.dry_run_model("d", &json(LIBRARY), &ANY).unwrap();
    let DryRunEstimates::Job(id) = run.estimates else { panic!("no job") };
    engine.control_job(&id, JobControl::Pause).ok();
    engine.control_job(&id, JobControl::Resume).ok();
    wait_until("the dry run is done", || engine.job(&id).unwrap().state.is_finished());
    let job = engine.job(&id).unwrap();
    assert_eq!((job.kind.as_str(), job.state), ("check", JobState::Done));
    let estimates = job.result.get("estimates").and_then(Value::as_array).unwrap();
    let count =
        estimates.iter().find(|own| own.get("declaration") == Some(&"count-of-books".into())).unwrap();
    assert_eq!(count.get("items").and_then(Value::as_u64), Some(10_004));
    assert_eq!(count.get("wouldChange").and_then(Value::as_u64), Some(0));
    // One that is cancelled before its end has no result, and another one can be asked for.
    let cancelled = (0..20).find_map(|_| {
        let run = engine.dry_run_model("d", &json(LIBRARY), &ANY).unwrap();
        let DryRunEstimates::Job(id) = run.estimates else { panic!("no job") };
        engine.control_job(&id, JobControl::Cancel).ok()?;
        wait_until("the dry run has ended", || engine.job(&id).unwrap().state.is_finished());
        Some(engine.job(&id).unwrap()).filter(|job| job.state == JobState::Cancelled)
    });
    let cancelled = cancelled.expect("one of twenty is cancelled before its end");
    assert_eq!((cancelled.result, cancelled.error), (Value::Null, None));
    assert_eq!(engine.catalog().model("d").unwrap().revision, 0);
}

/// What expired is not reported as dangling; it counts as a referrer until it is removed.
#[test]
fn what_the_sweep_has_still_to_do_is_pending() {
    let (_, engine, authors, books) = library();
    write(&engine, &authors, WriteKind::Create, r#"{"id":"a4","name":"Dan","ttl":1}"#).unwrap();
    write(&engine, &books, WriteKind::Create, r#"{"id":"b5","authors":[{"id":"a4","name":"Dan"}]}"#).unwrap();
    let link = CheckModel { declarations: Some(vec!["book-authors".to_owned()]), ..of_model(LIBRARY) };
    let dangling = |result: &Value| counts(result).values().sum::<u64>();
    // The clock of these tests moves with every reading: within the sweep's time the item has expired.
    let first = check(&engine, link.clone()).unwrap();
    wait_until("it is swept", || items(&engine, &authors).len() == 3);
    let later = check(&engine, link).unwrap();
    assert!(dangling(&first) <= dangling(&later));
    assert!([1, 2].contains(&dangling(&later)), "{}", lines(&later));
}
