//! `merge-join-items`: items that join writers and works become arrays on both ends.

use std::collections::BTreeSet;

use quire_engine::{Engine, EngineError};
use quire_storage::memory::MemoryStorage;
use quire_value::Value;

use crate::structural::*;
use crate::support::check_sound;
use crate::support::{delete, json};

const BODY: &str = r#"{"kind":"merge-join-items","container":"bookWriters","left":"/writerId","right":"/workId","into":["/works","/writers"]}"#;

fn with(members: &str) -> String {
    BODY.replacen('{', &format!("{{{members},"), 1)
}

fn join(writer: usize, work: usize) -> String {
    format!(r#"{{"id":"j{writer}-{work}","writerId":"w{writer}","workId":"k{work}","type":"join"}}"#)
}

fn pairs() -> BTreeSet<(usize, usize)> {
    (0..10).flat_map(|writer| (0..writer % 4).map(move |own| (writer, (writer + own * 3) % 9))).collect()
}

fn filled(storage: &MemoryStorage) -> Engine {
    let engine = engine_with(storage, &[("writers", "/id"), ("works", "/id"), ("bookWriters", "/id")]);
    (0..10).for_each(|own| put(&engine, "writers", &format!(r#"{{"id":"w{own}","n":{own}}}"#)).unwrap());
    (0..9).for_each(|own| put(&engine, "works", &format!(r#"{{"id":"k{own}","n":{own}}}"#)).unwrap());
    pairs().iter().for_each(|(writer, work)| put(&engine, "bookWriters", &join(*writer, *work)).unwrap());
    engine
}

/// Items with both arrays, made of the pairs: sorted, as sets.
fn merged(pairs: &BTreeSet<(usize, usize)>, has_joins: bool) -> Items {
    let mut found = Items::new();
    let list = |ids: BTreeSet<String>| {
        let ids: Vec<String> = ids.iter().map(|id| format!("\"{id}\"")).collect();
        ids.join(",")
    };
    for writer in 0..10 {
        let works = pairs.iter().filter(|own| own.0 == writer).map(|own| format!("k{}", own.1)).collect();
        let text = format!(r#"{{"id":"w{writer}","n":{writer},"works":[{}]}}"#, list(works));
        found.insert(("writers".to_owned(), format!("w{writer}")), text);
    }
    for work in 0..9 {
        let writers = pairs.iter().filter(|own| own.1 == work).map(|own| format!("w{}", own.0)).collect();
        let text = format!(r#"{{"id":"k{work}","n":{work},"writers":[{}]}}"#, list(writers));
        found.insert(("works".to_owned(), format!("k{work}")), text);
    }
    for (writer, work) in pairs.iter().filter(|_| has_joins) {
        found.insert(("bookWriters".to_owned(), format!("j{writer}-{work}")), join(*writer, *work));
    }
    found
}

/// With arrays in the order of ids.
fn sorted(items: Items) -> Items {
    let sort = |text: String| {
        let mut item = json(&text);
        for name in ["works", "writers"] {
            if let Some(Value::Array(ids)) = item.as_object_mut().unwrap().get_mut(name) {
                ids.sort_by_key(Value::to_json);
            }
        }
        item.to_json()
    };
    items.into_iter().map(|(name, text)| (name, sort(text))).collect()
}

#[test]
fn an_untouched_expansion_is_undone_to_what_was() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage);
    let before = stored(&engine);
    start(&engine, BODY).unwrap();
    wait_for(&engine, "expanded");
    assert_same(&sorted(stored(&engine)), &merged(&pairs(), true), "expanded");
    check_model(&engine);
    undo(&engine);
    assert_eq!(stored(&engine), before, "word for word");
    assert!(engine.catalog().model("d").unwrap().body.get("links").is_none());
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

#[test]
fn old_writers_are_followed_and_new_ones_come_when_it_is_finished() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage);
    start(&engine, BODY).unwrap();
    wait_for(&engine, "expanded");
    let mut all = pairs();
    put(&engine, "bookWriters", &join(0, 8)).unwrap();
    all.insert((0, 8));
    let joins = engine.catalog().container("d", "bookWriters").unwrap();
    let gone = *all.iter().find(|own| own.0 == 3).unwrap();
    delete(&engine, &joins, &format!("j{}-{}", gone.0, gone.1), &format!("j{}-{}", gone.0, gone.1)).unwrap();
    all.remove(&gone);
    assert_same(&sorted(stored(&engine)), &merged(&all, true), "followed");
    assert!(put(&engine, "writers", r#"{"id":"w1","n":1,"works":["k8"]}"#).is_err());
    finish(&engine);
    assert_same(&sorted(stored(&engine)), &merged(&all, false), "finished");
    check_model(&engine);
    let model = engine.catalog().model("d").unwrap().body;
    let count = |list: &str| model.get(list).and_then(Value::as_array).map_or(0, <[Value]>::len);
    assert_eq!((count("links"), count("mirrors")), (1, 1), "{model:?}");
    // Now the array counts.
    put(&engine, "writers", r#"{"id":"w1","n":1,"works":["k7","k8"]}"#).unwrap();
    all.retain(|own| own.0 != 1);
    all.extend([(1, 7), (1, 8)]);
    assert_same(&sorted(stored(&engine)), &merged(&all, false), "written");
    undo(&engine);
    let found = stored(&engine);
    let back: BTreeSet<(String, String)> = found
        .iter()
        .filter(|((container, _), _)| container == "bookWriters")
        .map(|(_, text)| json(text))
        .map(|item| {
            ["writerId", "workId"].map(|name| item.get(name).and_then(Value::as_str).unwrap().to_owned())
        })
        .map(|[writer, work]| (writer, work))
        .collect();
    let expected = all.iter().map(|(writer, work)| (format!("w{writer}"), format!("k{work}"))).collect();
    assert_eq!(back, expected);
    assert!(
        found.values().all(|text| !text.contains("works\":[") && !text.contains("writers\":[")),
        "{found:?}"
    );
    // One that was there before is as it was.
    let (writer, work) = all.iter().find(|own| own.0 == 7).unwrap();
    let name = ("bookWriters".to_owned(), format!("j{writer}-{work}"));
    assert_eq!(json(&found[&name]), json(&join(*writer, *work)));
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

#[test]
fn data_that_would_be_lost_or_overwritten_blocks_the_merge() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage);
    put(&engine, "bookWriters", r#"{"id":"x","writerId":"w1","workId":"k1","type":"join","share":3}"#)
        .unwrap();
    let found = start(&engine, BODY);
    let Err(EngineError::RefactoringInvalid(invalid)) = found else { panic!("{found:?}") };
    assert_eq!(invalid.0[0].at, "/drop");
    assert!(invalid.to_string().contains("'share'"), "{invalid}");
    put(&engine, "works", r#"{"id":"k1","n":1,"writers":"mine"}"#).unwrap();
    start(&engine, &with(r#""drop":["share"]"#)).unwrap();
    let blocked = wait_for(&engine, "blocked");
    let text = blocked.get("conflicts").unwrap().to_json();
    assert!(text.contains(r#""container":"works","id":"k1""#) && text.contains("/writers"), "{text}");
    undo(&engine);
    let unknown = BODY.replace("/writerId", "/nothing").replace("/writers", "/nobody");
    let found = start(&engine, &unknown.replacen('{', r#"{"drop":["share","writerId"],"#, 1));
    let Err(EngineError::RefactoringInvalid(invalid)) = found else { panic!("{found:?}") };
    assert_eq!(invalid.0[0].at, "/ends/0");
}

#[test]
fn kills_at_every_commit_come_to_the_same_end() {
    let fill = |memory: &MemoryStorage| filled(memory).close().unwrap();
    let writes = vec![("bookWriters", join(0, 8)), ("bookWriters", join(0, 7))];
    let mut all = pairs();
    all.extend([(0, 8), (0, 7)]);
    let expanded = |engine: &Engine, commits: usize| {
        let what = format!("killed after {commits} commits");
        assert_same(&sorted(stored(engine)), &merged(&all, true), &what);
    };
    let step = ("start", "expanded");
    Kills { fill: &fill, writes: &writes, before: &[], step, body: BODY, check: &expanded }.run();
    let finished = |engine: &Engine, commits: usize| {
        let mut found = sorted(stored(engine));
        let mut expected = merged(&all, false);
        // What is sent again after it was finished is an item like any other.
        for work in [7, 8] {
            let name = ("bookWriters".to_owned(), format!("j0-{work}"));
            if found.remove(&name).is_some() {
                let mut all = all.clone();
                all.remove(&(0, work));
                let other = merged(&all, false);
                for name in
                    [("writers".to_owned(), "w0".to_owned()), ("works".to_owned(), format!("k{work}"))]
                {
                    let is_other = json(&found[&name]) != json(&expected[&name]);
                    if is_other {
                        expected.insert(name.clone(), other[&name].clone());
                    }
                }
            }
        }
        let name = ("writers".to_owned(), "w0".to_owned());
        expected.insert(name.clone(), found[&name].clone());
        assert_same(&found, &expected, &format!("finish killed after {commits} commits"));
    };
    let (before, step) = ([("start", "expanded")], ("finish", "finished"));
    Kills { fill: &fill, writes: &writes, before: &before, step, body: BODY, check: &finished }.run();
}

#[test]
fn kills_at_every_commit_of_undo_come_to_the_same_end() {
    let fill = |memory: &MemoryStorage| filled(memory).close().unwrap();
    let check = |engine: &Engine, commits: usize| {
        let memory = MemoryStorage::new();
        let expected = stored(&filled(&memory));
        assert_same(&stored(engine), &expected, &format!("killed after {commits} commits"));
    };
    kill_every_undo(&fill, BODY, &check);
}
