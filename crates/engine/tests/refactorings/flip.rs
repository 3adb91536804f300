//! `flip`: the ids of titles in publishers become the id of the publisher in each title.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quire_engine::{Engine, EngineError, RefactoringDryRun};
use quire_storage::memory::MemoryStorage;
use quire_value::Value;

use crate::structural::*;
use crate::support::check_sound;
use crate::support::{json, wait_until};

const BODY: &str =
    r#"{"kind":"flip","container":"publishers","path":"/books","to":"titles","into":"/pubId"}"#;

fn with(members: &str) -> String {
    BODY.replacen('{', &format!("{{{members},"), 1)
}

fn title(number: usize) -> String {
    format!(r#"{{"id":"t{number}","name":"title {number}"}}"#)
}

fn publisher(number: usize, titles: &[usize]) -> String {
    let ids: Vec<String> = titles.iter().map(|own| format!(r#""t{own}""#)).collect();
    format!(r#"{{"id":"p{number}","region":"r{}","books":[{}],"n":1}}"#, number % 3, ids.join(","))
}

/// Which publisher has which titles: in an order that is not that of the ids.
fn owned(number: usize) -> Vec<usize> {
    (0..4).rev().map(|own| own * 12 + number).collect()
}

/// What the items are to become, made of which publisher has which titles.
fn flipped(owners: &BTreeMap<usize, Vec<usize>>, titles: usize, keeps_array: bool) -> Items {
    let mut found = Items::new();
    for number in 0..titles {
        let owner = owners.iter().find(|(_, own)| own.contains(&number)).map(|(owner, _)| *owner);
        let text = match owner {
            Some(owner) => title(number).replace('}', &format!(r#","pubId":"p{owner}"}}"#)),
            None => title(number),
        };
        found.insert(("titles".to_owned(), format!("t{number}")), text);
    }
    for (number, own) in owners {
        let mut sorted: Vec<(String, usize)> = own.iter().map(|own| (format!("t{own}"), *own)).collect();
        sorted.sort();
        let sorted: Vec<usize> = sorted.into_iter().map(|(_, own)| own).collect();
        let mut text = publisher(*number, &sorted);
        if !keeps_array {
            let mut item = json(&text);
            item.as_object_mut().unwrap().remove("books");
            text = item.to_json();
        }
        found.insert(("publishers".to_owned(), format!("p{number}")), text);
    }
    found
}

fn all_owned() -> BTreeMap<usize, Vec<usize>> {
    (0..12).map(|number| (number, owned(number))).collect()
}

fn filled_with_key(storage: &MemoryStorage, key: &str) -> Engine {
    let engine = engine_with(storage, &[("publishers", key), ("titles", "/id")]);
    (0..50).for_each(|number| put(&engine, "titles", &title(number)).unwrap());
    (0..12).for_each(|number| put(&engine, "publishers", &publisher(number, &owned(number))).unwrap());
    engine
}

fn filled(storage: &MemoryStorage) -> Engine {
    filled_with_key(storage, "/id")
}

#[test]
fn an_untouched_expansion_is_undone_to_what_was() {
    for key in ["/id", "/region"] {
        let storage = MemoryStorage::new();
        let engine = filled_with_key(&storage, key);
        put(&engine, "publishers", r#"{"id":"none","region":"x"}"#).unwrap();
        put(&engine, "publishers", r#"{"id":"empty","region":"x","books":[]}"#).unwrap();
        let before = stored(&engine);
        start(&engine, BODY).unwrap();
        wait_for(&engine, "expanded");
        let mut expected = flipped(&all_owned(), 50, true);
        for id in ["none", "empty"] {
            let text = format!(r#"{{"id":"{id}","region":"x","books":[]}}"#);
            expected.insert(("publishers".to_owned(), id.to_owned()), text);
        }
        assert_same(&stored(&engine), &expected, "expanded");
        check_model(&engine);
        let undone = undo(&engine);
        assert_eq!(undone.get("conflictCount").and_then(Value::as_u64), Some(0), "{undone:?}");
        assert_eq!(stored(&engine), before, "word for word");
        assert!(engine.catalog().model("d").unwrap().body.get("links").is_none());
        engine.close().unwrap();
        check_sound(&storage.reopen());
    }
}

#[test]
fn both_forms_are_written_until_it_is_finished() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage);
    start(&engine, BODY).unwrap();
    wait_for(&engine, "expanded");
    let mut owners = all_owned();
    // A new writer moves a title; the arrays follow.
    put(&engine, "titles", r#"{"id":"t5","name":"title 5","pubId":"p7"}"#).unwrap();
    owners.get_mut(&5).unwrap().retain(|own| *own != 5);
    owners.get_mut(&7).unwrap().push(5);
    // An old writer that does not know the property changes a title, and a publisher.
    put(&engine, "titles", &title(6)).unwrap();
    put(&engine, "publishers", &publisher(6, &[6, 18, 30, 42])).unwrap();
    assert_same(&stored(&engine), &flipped(&owners, 50, true), "both");
    let refused = put(&engine, "publishers", &publisher(6, &[6, 18, 30, 42, 49]));
    let Err(EngineError::RefusedByModel(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("/books is maintained by"), "{error}");
    // Nothing is said of the array.
    put(&engine, "publishers", r#"{"id":"p8","region":"r2","n":1}"#).unwrap();
    // `null` takes the owner away.
    put(&engine, "titles", r#"{"id":"t9","name":"title 9","pubId":null}"#).unwrap();
    owners.get_mut(&9).unwrap().retain(|own| *own != 9);
    let name = ("titles".to_owned(), "t9".to_owned());
    let mut expected = flipped(&owners, 50, true);
    expected.insert(name.clone(), r#"{"id":"t9","name":"title 9","pubId":null}"#.to_owned());
    assert_same(&stored(&engine), &expected, "more");
    finish(&engine);
    let mut expected = flipped(&owners, 50, false);
    expected.insert(name.clone(), r#"{"id":"t9","name":"title 9","pubId":null}"#.to_owned());
    assert_same(&stored(&engine), &expected, "finished");
    check_model(&engine);
    let model = engine.catalog().model("d").unwrap().body;
    assert!(model.get("mirrors").is_none() && model.get("links").is_some(), "{model:?}");
    // Back from what the titles say now.
    put(&engine, "titles", r#"{"id":"t10","name":"title 10","pubId":"p11"}"#).unwrap();
    undo(&engine);
    let found = stored(&engine);
    let books =
        |id: &str| json(&found[&("publishers".to_owned(), id.to_owned())]).get("books").unwrap().to_json();
    assert_eq!(books("p0"), r#"["t36","t24","t12","t0"]"#, "in the order that it had");
    assert_eq!(books("p11"), r#"["t47","t35","t23","t11","t10"]"#);
    assert_eq!(books("p10"), r#"["t46","t34","t22"]"#);
    assert_eq!(books("p5"), r#"["t41","t29","t17"]"#);
    let owned = found.iter().filter(|((container, _), text)| container == "titles" && text.contains("pubId"));
    assert_eq!(owned.count(), 1, "the one that a client has given null");
}

#[test]
fn conflicts_stop_it_or_are_decided() {
    let fill = |storage: &MemoryStorage| {
        let engine = filled(storage);
        (0..200).for_each(|_| put(&engine, "titles", &title(49)).unwrap());
        put(&engine, "publishers", &publisher(20, &[0, 49])).unwrap();
        put(&engine, "publishers", r#"{"id":"p21","region":"r0","books":["gone","t48"],"n":1}"#).unwrap();
        engine
    };
    let storage = MemoryStorage::new();
    let engine = fill(&storage);
    let before = stored(&engine);
    let RefactoringDryRun::Done(dry) = engine.dry_run_refactoring("d", &json(BODY)).unwrap() else {
        panic!()
    };
    let figure = |name: &str| dry.get(name).and_then(Value::as_u64);
    assert_eq!((figure("wouldMake"), figure("wouldLeave")), (Some(50), Some(2)), "{}", dry.to_json());
    start(&engine, BODY).unwrap();
    let blocked = wait_for(&engine, "blocked");
    assert_eq!(blocked.get("conflictCount").and_then(Value::as_u64), Some(2), "{}", blocked.to_json());
    undo(&engine);
    assert_eq!(stored(&engine), before);
    for (on_conflict, owner) in [("newest", Some("p20")), ("first", None), ("skip", None)] {
        let storage = MemoryStorage::new();
        let engine = fill(&storage);
        let before = stored(&engine);
        start(&engine, &with(&format!(r#""onConflict":"{on_conflict}""#))).unwrap();
        wait_for(&engine, "expanded");
        let item = json(&stored(&engine)[&("titles".to_owned(), "t0".to_owned())]);
        let found = item.get("pubId").and_then(Value::as_str).unwrap().to_owned();
        assert!(owner.is_none_or(|owner| owner == found) && ["p0", "p20"].contains(&&*found), "{found}");
        check_model(&engine);
        undo(&engine);
        assert_same(&stored(&engine), &before, on_conflict);
    }
}

#[test]
fn what_cannot_be_flipped_is_refused() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage);
    create(&engine, "other", "/x");
    for (body, at) in [
        (BODY.replace("titles", "nothing"), "/to"),
        (BODY.replace("titles", "other"), "/to"),
        (BODY.replace("/pubId", "/id"), "/into"),
        (BODY.replace("/books", "/books/*"), "/path"),
        (with(r#""oldWriters":"through""#), "/oldWriters"),
    ] {
        let found = start(&engine, &body);
        let Err(EngineError::RefactoringInvalid(invalid)) = found else { panic!("{body}: {found:?}") };
        assert_eq!(invalid.0[0].at, at, "{body}");
    }
}

/// Old writers change arrays while it expands: what was acknowledged is in the titles.
#[test]
fn writers_of_both_forms_lose_nothing() {
    let storage = MemoryStorage::new();
    let engine = Arc::new(filled(&storage));
    for number in 100..400 {
        put(&engine, "titles", &title(number)).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer: usize| {
            let (engine, stop) = (Arc::clone(&engine), Arc::clone(&stop));
            std::thread::spawn(move || {
                let (mut last, mut round) = (BTreeMap::new(), 0);
                // Each has publishers and titles of its own.
                while !stop.load(Ordering::SeqCst) && round < 3_000 {
                    let number = 20 + writer * 5 + round % 5;
                    let from = 100 + writer * 100 + (round % 5) * 20;
                    let titles: Vec<usize> = (from..from + round % 19).collect();
                    // Until the array is owned.
                    if put(&engine, "publishers", &publisher(number, &titles)).is_err() {
                        break;
                    }
                    last.insert(number, titles);
                    round += 1;
                    let number = 100 + writer * 100 + round % 100;
                    put(&engine, "titles", &title(number)).unwrap();
                }
                last
            })
        })
        .collect();
    start(&engine, BODY).unwrap();
    wait_until("expanded", || state(&engine).as_deref() != Some("expanding"));
    stop.store(true, Ordering::SeqCst);
    let mut owners = all_owned();
    writers.into_iter().for_each(|writer| owners.extend(writer.join().unwrap()));
    wait_for(&engine, "expanded");
    let mut expected = flipped(&owners, 400, true);
    expected.retain(|(container, id), _| {
        let number: usize = id[1..].parse().unwrap();
        container == "publishers" || !(50..100).contains(&number)
    });
    assert_same(&stored(&engine), &expected, "expanded");
    check_model(&engine);
}

fn kill_writes() -> Vec<(&'static str, String)> {
    vec![("titles", title(3)), ("titles", title(60)), ("publishers", publisher(1, &owned(1)))]
}

#[test]
fn kills_at_every_commit_come_to_the_same_end() {
    let fill = |memory: &MemoryStorage| filled(memory).close().unwrap();
    let writes = kill_writes();
    let check = |keeps_array: bool| {
        move |engine: &Engine, commits: usize| {
            let mut found = stored(engine);
            found.remove(&("titles".to_owned(), "t60".to_owned()));
            let mut expected = flipped(&all_owned(), 50, keeps_array);
            if !keeps_array {
                // What old writers send after it was finished is theirs.
                for (container, id) in [("titles", "t3"), ("publishers", "p1")] {
                    let name = (container.to_owned(), id.to_owned());
                    expected.insert(name.clone(), found[&name].clone());
                }
            }
            assert_same(&found, &expected, &format!("killed after {commits} commits"));
        }
    };
    let (expanded, finished) = (check(true), check(false));
    let step = ("start", "expanded");
    Kills { fill: &fill, writes: &writes, before: &[], step, body: BODY, check: &expanded }.run();
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
