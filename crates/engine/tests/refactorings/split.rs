//! `split-array`: the newest comments stay in the post, the others go to pages.

use quire_engine::{Engine, EngineError, RefactoringDryRun};
use quire_storage::memory::MemoryStorage;
use quire_value::Value;

use crate::structural::*;
use crate::support::check_sound;
use crate::support::json;

const BODY: &str = r#"{"kind":"split-array","container":"posts","path":"/comments","keep":3,"key":"/id","pages":{"container":"posts-pages","path":"/comments","parent":"/itemId","number":"/page","size":10}}"#;

fn renamed() -> String {
    BODY.replacen('{', r#"{"rename":"/recentComments","#, 1)
}

fn comment(post: usize, number: usize) -> String {
    format!(r#"{{"id":"c{post}-{number}","text":"t{number}"}}"#)
}

fn post(number: usize, comments: usize) -> String {
    let all: Vec<String> = (0..comments).map(|own| comment(number, own)).collect();
    format!(r#"{{"id":"p{number}","blog":"b{}","comments":[{}],"n":1}}"#, number % 3, all.join(","))
}

fn count(number: usize) -> usize {
    number * 7 % 38
}

fn filled_with_key(storage: &MemoryStorage, key: &str) -> Engine {
    let engine = engine_with(storage, &[("posts", key)]);
    (0..20).for_each(|number| put(&engine, "posts", &post(number, count(number))).unwrap());
    engine
}

fn filled(storage: &MemoryStorage) -> Engine {
    filled_with_key(storage, "/id")
}

/// Every comment of every post: its pages in order, then its window.
fn comments(engine: &Engine, window: &str) -> Vec<Vec<String>> {
    let all = stored(engine);
    let ids = |item: &Value, path: &str| -> Vec<String> {
        let array = item.get(path).and_then(Value::as_array).unwrap_or_default();
        array.iter().map(|own| own.get("id").and_then(Value::as_str).unwrap().to_owned()).collect()
    };
    let of_post = |number: usize| {
        let id = format!("p{number}");
        let pages = all.iter().filter(|((container, _), text)| {
            container == "posts-pages" && json(text).get("itemId").and_then(Value::as_str) == Some(&id)
        });
        // Their ids sort as their numbers do.
        let mut found: Vec<String> = pages.flat_map(|(_, text)| ids(&json(text), "comments")).collect();
        let own = ids(&json(&all[&("posts".to_owned(), id)]), window);
        assert!(own.len() <= 3, "{own:?}");
        found.extend(own);
        found
    };
    (0..20).map(of_post).collect()
}

fn expected() -> Vec<Vec<String>> {
    (0..20).map(|post| (0..count(post)).map(|own| format!("c{post}-{own}")).collect()).collect()
}

#[test]
fn an_untouched_expansion_is_undone_to_what_was() {
    for key in ["/id", "/blog"] {
        let storage = MemoryStorage::new();
        let engine = filled_with_key(&storage, key);
        put(&engine, "posts", r#"{"id":"none","blog":"x"}"#).unwrap();
        let before = stored(&engine);
        start(&engine, BODY).unwrap();
        wait_for(&engine, "expanded");
        assert_eq!(comments(&engine, "comments"), expected());
        check_model(&engine);
        undo(&engine);
        assert_eq!(stored(&engine), before, "word for word");
        assert!(engine.catalog().container("d", "posts-pages").is_err());
        engine.close().unwrap();
        check_sound(&storage.reopen());
    }
}

#[test]
fn the_window_moves_when_it_is_finished() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage);
    let before = stored(&engine);
    start(&engine, &renamed()).unwrap();
    wait_for(&engine, "expanded");
    // Readers and writers of the old form go on with the newest ones.
    let mut all = expected();
    assert_eq!(comments(&engine, "comments"), all);
    let item = json(&stored(&engine)[&("posts".to_owned(), "p5".to_owned())]);
    let mut newest = item.get("comments").and_then(Value::as_array).unwrap().to_vec();
    newest.push(json(&comment(5, 900)));
    let mut item = item.as_object().unwrap().clone();
    item.set("comments", Value::Array(newest));
    put(&engine, "posts", &Value::Object(item).to_json()).unwrap();
    all[5].push("c5-900".to_owned());
    assert_eq!(comments(&engine, "comments"), all);
    finish(&engine);
    assert_eq!(comments(&engine, "recentComments"), all);
    assert!(
        stored(&engine).iter().all(|((name, _), text)| name != "posts" || !text.contains("\"comments\""))
    );
    check_model(&engine);
    undo(&engine);
    let mut expected = before;
    let name = ("posts".to_owned(), "p5".to_owned());
    let text = expected[&name].replace("],\"n\"", &format!(",{}],\"n\"", comment(5, 900)));
    expected.insert(name, text);
    assert_same(&stored(&engine), &expected, "undone");
}

#[test]
fn errors_are_reported_and_a_dry_run_changes_nothing() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage);
    let before = stored(&engine);
    let RefactoringDryRun::Done(dry) = engine.dry_run_refactoring("d", &json(BODY)).unwrap() else {
        panic!()
    };
    let more = (0..20).filter(|number| count(*number) > 3).count() as u64;
    assert_eq!(dry.get("wouldConvert").and_then(Value::as_u64), Some(more), "{}", dry.to_json());
    assert_eq!(stored(&engine), before);
    for (body, at) in [
        (BODY.replace("\"keep\":3", "\"keep\":0"), "/keep"),
        (BODY.replace("\"size\":10", "\"size\":1"), "/pages/size"),
        (BODY.replace("\"/itemId\"", "7"), "/pages/parent"),
        (BODY.replace("posts-pages", "posts"), "/pages/container"),
        (BODY.replace("\"path\":\"/comments\",\"keep\"", "\"path\":\"/id\",\"keep\""), "/path"),
    ] {
        let found = start(&engine, &body);
        let Err(EngineError::RefactoringInvalid(invalid)) = found else { panic!("{body}: {found:?}") };
        assert_eq!(invalid.0[0].at, at, "{body}");
    }
}

#[test]
fn kills_at_every_commit_come_to_the_same_end() {
    let fill = |memory: &MemoryStorage| filled(memory).close().unwrap();
    let body = renamed();
    let expanded = |engine: &Engine, commits: usize| {
        assert_eq!(comments(engine, "comments"), expected(), "killed after {commits} commits");
    };
    let step = ("start", "expanded");
    Kills { fill: &fill, writes: &[], before: &[], step, body: &body, check: &expanded }.run();
    let finished = |engine: &Engine, commits: usize| {
        assert_eq!(comments(engine, "recentComments"), expected(), "finish killed after {commits} commits");
    };
    let (before, step) = ([("start", "expanded")], ("finish", "finished"));
    Kills { fill: &fill, writes: &[], before: &before, step, body: &body, check: &finished }.run();
    let undone = |engine: &Engine, commits: usize| {
        let memory = MemoryStorage::new();
        let expected = stored(&filled(&memory));
        assert_same(&stored(engine), &expected, &format!("undo killed after {commits} commits"));
    };
    let (before, step) = ([("start", "expanded"), ("finish", "finished")], ("undo", "undone"));
    Kills { fill: &fill, writes: &[], before: &before, step, body: &body, check: &undone }.run();
}
