//! Windows over items that are there already: checks count exactly, builds and repairs correct what is wrong and nothing else.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use quire_engine::{CheckModel, Container, Engine, JobState, ModelCondition, WriteKind};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Commit, Direction, KeyRange, Op, Scan, Space, Storage, Token};
use quire_value::Value;
use support::{database, json, open, wait_until, write};

const ANY: ModelCondition = ModelCondition { if_match: None, if_none_match: None };
const MODEL: &str = r#"{"version":1,"windows":[{"name":"w","container":"posts","path":"/c","keep":3,"key":"/id","count":"/n",
    "pages":{"container":"pages","path":"/all","parent":"/post","number":"/page","size":10}}]}"#;

fn container(engine: &Engine, id: &str, key: &str) -> Arc<Container> {
    let body = format!(r#"{{"id":"{id}","partitionKey":{{"paths":["{key}"],"kind":"Hash","version":2}}}}"#);
    engine.catalog().create_container("d", &json(&body), None).unwrap()
}

fn blog(engine: &Engine) -> [Arc<Container>; 2] {
    database(engine, "d");
    [container(engine, "posts", "/id"), container(engine, "pages", "/post")]
}

fn elements(ids: std::ops::Range<usize>) -> String {
    let all: Vec<String> = ids.map(|id| format!(r#"{{"id":{id}}}"#)).collect();
    format!("[{}]", all.join(","))
}

fn post(id: &str, ids: std::ops::Range<usize>) -> String {
    format!(r#"{{"id":"{id}","c":{}}}"#, elements(ids))
}

fn page(post: &str, number: usize, ids: std::ops::Range<usize>) -> String {
    let all = elements(ids);
    format!(r#"{{"id":"w:{post}:{number:08}","post":"{post}","page":{number},"all":{all}}}"#)
}

/// Counts by problem.
fn check(engine: &Engine, model: Option<&str>) -> BTreeMap<String, u64> {
    let order = CheckModel { examples_max: 3, model: model.map(json), ..CheckModel::default() };
    let id = engine.check_model("d", order).unwrap().id;
    wait_until("the check is done", || engine.job(&id).unwrap().state.is_finished());
    let result = engine.job(&id).unwrap().result;
    let findings = result.get("findings").and_then(Value::as_array).unwrap();
    let text = |own: &Value| own.get("problem").and_then(Value::as_str).unwrap().to_owned();
    findings.iter().map(|own| (text(own), own.get("count").and_then(Value::as_u64).unwrap())).collect()
}

fn repair(engine: &Engine) -> u64 {
    let order = CheckModel { examples_max: 3, ..CheckModel::default() };
    let id = engine.repair_model("d", order).unwrap().id;
    wait_until("the repair is done", || engine.job(&id).unwrap().state.is_finished());
    let job = engine.job(&id).unwrap();
    assert_eq!(job.state, JobState::Done, "{:?}", job.error);
    job.result.get("repaired").and_then(Value::as_u64).unwrap()
}

fn put(engine: &Engine) -> Value {
    let job = engine.catalog().put_model("d", &json(MODEL), &ANY).unwrap().jobs.remove(0);
    wait_until("the build is done", || engine.job(&job).unwrap().state.is_finished());
    let job = engine.job(&job).unwrap();
    assert_eq!(job.state, JobState::Done, "{:?}", job.error);
    job.result
}

/// Ids of the elements of all items: posts with their count, then pages.
fn shown(engine: &Engine) -> Vec<String> {
    let mut shown = Vec::new();
    for (name, path) in [("posts", "c"), ("pages", "all")] {
        let container = engine.catalog().container("d", name).unwrap();
        let page = engine.list_items(&container, &support::page_request()).result.unwrap();
        assert!(page.continuation.is_none());
        for item in json(std::str::from_utf8(&page.rows).unwrap()).as_array().unwrap() {
            let elements = item.get(path).and_then(Value::as_array).unwrap_or_default();
            let ids: Vec<String> =
                elements.iter().map(|element| element.get("id").unwrap().to_json()).collect();
            let count = item.get("n").map_or(String::new(), |count| format!(" = {}", count.to_json()));
            let id = item.get("id").and_then(Value::as_str).unwrap();
            shown.push(format!("{id}: {}{count}", ids.join(" ")));
        }
    }
    shown.sort();
    shown
}

#[test]
fn what_is_wrong_with_windows_is_counted_and_built() {
    let engine = open(&MemoryStorage::new());
    let [posts, pages] = blog(&engine);
    let right = r#"{"id":"right","c":[{"id":1}],"n":1}"#;
    let garbage = r#"{"id":"garbage","c":7,"n":"x"}"#;
    for body in [&post("long", 0..14), &post("short", 14..15), right, garbage, r#"{"id":"none"}"#] {
        write(&engine, &posts, WriteKind::Create, body).unwrap();
    }
    write(&engine, &posts, WriteKind::Create, &post("large", 30..33)).unwrap();
    let odd = page("large", 2, 29..30).replace(r#""page":2"#, r#""page":5"#);
    for body in [
        &page("short", 0, 0..10),
        &page("short", 1, 10..10),
        &page("short", 2, 10..14),
        &page("large", 0, 0..29),
        &odd,
        &page("orphan", 0, 0..3),
        r#"{"id":"else","post":"p"}"#,
        r#"{"id":"v:other:00000000","post":"other"}"#,
    ] {
        write(&engine, &pages, WriteKind::Create, body).unwrap();
    }
    // Misplaced: long, short, garbage, large, and the page of nobody. Counts: all but the right one.
    let expected = BTreeMap::from([("window".to_owned(), 5), ("drift".to_owned(), 5)]);
    assert_eq!(check(&engine, Some(MODEL)), expected);
    let result = put(&engine);
    let built = &result.get("declarations").and_then(Value::as_array).unwrap()[0];
    let number = |member: &str| built.get(member).and_then(Value::as_u64).unwrap();
    assert_eq!((number("items"), number("changed")), (6, 5), "{}", built.to_json());
    let expected = [
        "else: ",
        "garbage:  = 0",
        "large: 30 31 32 = 33",
        "long: 11 12 13 = 14",
        "none:  = 0",
        "right: 1 = 1",
        "short: 12 13 14 = 15",
        "v:other:00000000: ",
        "w:large:00000000: 0 1 2 3 4 5 6 7 8 9",
        "w:large:00000001: 10 11 12 13 14 15 16 17 18 19",
        "w:large:00000002: 20 21 22 23 24 25 26 27 28 29",
        "w:long:00000000: 0 1 2 3 4 5 6 7 8 9",
        "w:long:00000001: 10",
        "w:short:00000000: 0 1 2 3 4 5 6 7 8 9",
        "w:short:00000002: 10 11",
    ];
    assert_eq!(shown(&engine), expected);
    assert_eq!(check(&engine, None), BTreeMap::new());
    assert_eq!(repair(&engine), 0, "a repair of what is right writes nothing");
}

#[test]
fn loading_first_or_declaring_first_gives_the_same_items() {
    let loaded = |is_declared_first: bool| {
        let engine = open(&MemoryStorage::new());
        let [posts, _] = blog(&engine);
        if is_declared_first {
            put(&engine);
        }
        for count in 0..40 {
            write(&engine, &posts, WriteKind::Create, &post(&format!("p{count}"), 0..count)).unwrap();
        }
        if !is_declared_first {
            put(&engine);
        }
        shown(&engine)
    };
    assert_eq!(loaded(true), loaded(false));
}

#[test]
fn a_window_that_is_declared_again_finds_its_pages() {
    let engine = open(&MemoryStorage::new());
    let [posts, _] = blog(&engine);
    put(&engine);
    write(&engine, &posts, WriteKind::Create, &post("p", 0..14)).unwrap();
    engine.catalog().delete_model("d", &ANY).unwrap();
    // As ordinary properties: a client changes them as it likes.
    write(&engine, &posts, WriteKind::Upsert, r#"{"id":"p","c":[{"id":13}]}"#).unwrap();
    put(&engine);
    let expected = ["p: 9 10 13 = 12", "w:p:00000000: 0 1 2 3 4 5 6 7 8", "w:p:00000001: "];
    assert_eq!(shown(&engine), expected);
    assert_eq!(check(&engine, None), BTreeMap::new());
}

/// All rows of the store.
fn rows(storage: &dyn Storage) -> BTreeMap<(u8, Vec<u8>), Vec<u8>> {
    let (snapshot, mut all) = (storage.snapshot().unwrap(), BTreeMap::new());
    for space in 1..=4 {
        let range = KeyRange { start: Bound::Unbounded, end: Bound::Unbounded };
        let (direction, rows_max, bytes_max) = (Direction::Forward, usize::MAX, usize::MAX);
        let scan = Scan { space: Space(space), range, direction, rows_max, bytes_max, keys_only: false };
        let rows = snapshot.scan(&scan).unwrap().rows;
        all.extend(rows.into_iter().map(|(key, value)| ((space, key), value)));
    }
    all
}

#[test]
fn a_repair_corrects_windows_and_removes_orphan_pages() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    let [posts, _] = blog(&engine);
    put(&engine);
    write(&engine, &posts, WriteKind::Create, &post("p", 0..3)).unwrap();
    write(&engine, &posts, WriteKind::Create, &post("q", 0..14)).unwrap();
    let before = rows(&storage);
    write(&engine, &posts, WriteKind::Upsert, &post("p", 0..5)).unwrap();
    support::delete(&engine, &posts, "q", "q").unwrap();
    engine.close().unwrap();
    // The item as it was, beside the page that it has got since; and the pages of an item that is gone.
    let after = rows(&storage);
    let posts_prefix = posts_rows(&before);
    let is_lost = |((space, key), value): &(&(u8, Vec<u8>), &Vec<u8>)| match key.starts_with(&posts_prefix) {
        true => *space == 1 && after.contains_key(&(*space, key.clone())),
        false => *space != 4 && after.get(&(*space, key.clone())) != Some(value),
    };
    let lost = before.iter().filter(is_lost);
    let ops: Vec<Op> = lost
        .map(|((space, key), value)| Op::Put { space: Space(*space), key: key.clone(), value: value.clone() })
        .collect();
    storage.reopen().commit(Commit { guards: Vec::new(), token: Token(7), ops }).unwrap();
    let engine = open(&storage);
    let expected = BTreeMap::from([("drift".to_owned(), 1), ("window".to_owned(), 2)]);
    assert_eq!(check(&engine, None), expected, "{:?}", shown(&engine));
    assert_eq!(repair(&engine), 3);
    assert_eq!(shown(&engine), ["p: 0 1 2 = 5", "w:p:00000000: 0 1"]);
    assert_eq!(check(&engine, None), BTreeMap::new());
    assert_eq!(repair(&engine), 0);
}

/// What keys of the first container begin with.
fn posts_rows(rows: &BTreeMap<(u8, Vec<u8>), Vec<u8>>) -> Vec<u8> {
    let has = |row: &[u8], text: &[u8]| row.windows(text.len()).any(|part| part == text);
    let page = rows.iter().find(|((space, _), value)| *space == 1 && has(value, b"w:q:00000000"));
    let page = page.unwrap().0.1[..4].to_vec();
    let post = rows.keys().find(|(space, key)| *space == 1 && key[..4] != page);
    post.unwrap().1[..4].to_vec()
}
