//! `embed`: profiles become parts of the users that refer to them, and lines elements of the order that they refer to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quire_engine::{Engine, EngineError, ModelCondition, RefactoringDryRun};
use quire_storage::memory::MemoryStorage;
use quire_value::Value;

use crate::structural::*;
use crate::support::check_sound;
use crate::support::{delete, json, wait_until, wait_until_idle};

const USERS: usize = 24;
const ORDERS: usize = 7;
const PROFILE: &str = r#"{"kind":"embed","link":"user-profile","into":"/profile"}"#;
const LINES: &str = r#"{"kind":"embed","link":"line-order","into":"/lines","side":"target"}"#;
const PROFILE_LINK: &str = r#"{"name":"user-profile","from":{"container":"users","path":"/profileId"},"to":{"container":"profiles"},"integrity":"enforced","onDelete":"restrict"}"#;
const LINE_LINK: &str = r#"{"name":"line-order","from":{"container":"lines","path":"/orderId"},"to":{"container":"orders"},"onDelete":"cascade"}"#;

fn with(body: &str, members: &str) -> String {
    body.replacen('{', &format!("{{{members},"), 1)
}

fn put_model(engine: &Engine, links: &[&str]) {
    let body = format!(r#"{{"version":1,"links":[{}]}}"#, links.join(","));
    engine.catalog().put_model("d", &json(&body), &ModelCondition::default()).unwrap();
    wait_until_idle(engine);
}

fn profile(number: usize, round: usize) -> String {
    format!(r#"{{"id":"p{number}","bio":"of {number} in round {round}","tags":[{number}]}}"#)
}

/// With its part, where that is given.
fn user(number: usize, profile: Option<&str>) -> String {
    let part = profile.map(|own| format!(r#","profile":{own}"#)).unwrap_or_default();
    format!(r#"{{"id":"u{number}","name":"user {number}","profileId":"p{number}"{part}}}"#)
}

fn name_of(container: &str, id: String) -> (String, String) {
    (container.to_owned(), id)
}

fn users(storage: &MemoryStorage) -> Engine {
    let engine = engine_with(storage, &[("users", "/id"), ("profiles", "/id")]);
    put_model(&engine, &[PROFILE_LINK]);
    for number in 0..USERS {
        put(&engine, "profiles", &profile(number, 0)).unwrap();
        put(&engine, "users", &user(number, None)).unwrap();
    }
    engine
}

/// Users with their profiles as parts; the profiles are items, too, or no longer.
fn embedded(round_of: &dyn Fn(usize) -> usize, keeps_items: bool) -> Items {
    let mut found = Items::new();
    for number in 0..USERS {
        let own = profile(number, round_of(number));
        found.insert(name_of("users", format!("u{number}")), user(number, Some(&own)));
        if keeps_items {
            found.insert(name_of("profiles", format!("p{number}")), own);
        }
    }
    found
}

fn line(order: usize, number: usize, count: usize) -> String {
    format!(r#"{{"id":"l{order}-{number}","shop":"s{}","orderId":"o{order}","count":{count}}}"#, number % 3)
}

fn orders(storage: &MemoryStorage) -> Engine {
    let engine = engine_with(storage, &[("orders", "/id"), ("lines", "/shop")]);
    put_model(&engine, &[LINE_LINK]);
    for order in 0..ORDERS {
        put(&engine, "orders", &format!(r#"{{"id":"o{order}","n":{order}}}"#)).unwrap();
        for number in 0..order {
            put(&engine, "lines", &line(order, number, 1)).unwrap();
        }
    }
    engine
}

/// Orders with their lines: which order has how many, and the count of the first line of each.
fn with_lines(lines: &dyn Fn(usize) -> Vec<(usize, usize)>, keeps_items: bool) -> Items {
    let mut found = Items::new();
    for order in 0..ORDERS {
        let own: Vec<String> =
            lines(order).into_iter().map(|(number, count)| line(order, number, count)).collect();
        let text = format!(r#"{{"id":"o{order}","n":{order},"lines":[{}]}}"#, own.join(","));
        found.insert(name_of("orders", format!("o{order}")), text);
        for text in own.into_iter().filter(|_| keeps_items) {
            let id = json(&text).get("id").and_then(Value::as_str).unwrap().to_owned();
            found.insert(name_of("lines", id), text);
        }
    }
    found
}

fn untouched_lines(order: usize) -> Vec<(usize, usize)> {
    (0..order).map(|number| (number, 1)).collect()
}

fn model_text(engine: &Engine) -> String {
    Value::Object(engine.catalog().model("d").unwrap().body).to_json()
}

fn remove(engine: &Engine, container: &str, id: &str, key: &str) -> Result<(), EngineError> {
    let container = engine.catalog().container("d", container).unwrap();
    delete(engine, &container, id, key)
}

#[test]
fn an_untouched_expansion_is_undone_to_what_was() {
    for (fill, body, expected) in [
        (users as fn(&MemoryStorage) -> Engine, PROFILE, embedded(&|_| 0, true)),
        (orders as fn(&MemoryStorage) -> Engine, LINES, with_lines(&untouched_lines, true)),
    ] {
        let storage = MemoryStorage::new();
        let engine = fill(&storage);
        let (before, model) = (stored(&engine), model_text(&engine));
        start(&engine, body).unwrap();
        let found = wait_for(&engine, "expanded");
        assert!(found.get("container").and_then(Value::as_str).is_some(), "{}", found.to_json());
        assert_same(&stored(&engine), &expected, "expanded");
        check_model(&engine);
        undo(&engine);
        assert_eq!(stored(&engine), before, "word for word");
        assert_eq!(model_text(&engine), model);
        engine.close().unwrap();
        check_sound(&storage.reopen());
    }
}

#[test]
fn a_target_becomes_a_part_of_its_referrer() {
    let storage = MemoryStorage::new();
    let engine = users(&storage);
    let model = model_text(&engine);
    start(&engine, PROFILE).unwrap();
    wait_for(&engine, "expanded");
    // Writers of the old form go on; the part cannot be written yet.
    put(&engine, "profiles", &profile(3, 1)).unwrap();
    put(&engine, "users", &user(5, None)).unwrap();
    let refused = put(&engine, "users", &user(5, Some(&profile(5, 9))));
    assert!(matches!(refused, Err(EngineError::RefusedByModel(_))), "{refused:?}");
    let rounds = |number: usize| usize::from(number == 3);
    assert_same(&stored(&engine), &embedded(&rounds, true), "followed");
    finish(&engine);
    assert_same(&stored(&engine), &embedded(&rounds, false), "finished");
    let body = model_text(&engine);
    assert!(!body.contains("user-profile") && !body.contains("copies"), "{body}");
    // Now the part counts, and a writer may leave the reference out.
    put(&engine, "users", r#"{"id":"u4","name":"user 4","profile":{"id":"p4","bio":"mine"}}"#).unwrap();
    remove(&engine, "users", "u6", "u6").unwrap();
    undo(&engine);
    let mut expected = embedded(&rounds, true);
    for number in 0..USERS {
        expected.insert(name_of("users", format!("u{number}")), user(number, None));
    }
    expected.insert(name_of("profiles", "p4".to_owned()), r#"{"id":"p4","bio":"mine"}"#.to_owned());
    expected.remove(&name_of("users", "u6".to_owned()));
    expected.remove(&name_of("profiles", "p6".to_owned()));
    assert_same(&stored(&engine), &expected, "undone");
    assert_eq!(model_text(&engine), model);
    check_model(&engine);
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

#[test]
fn referrers_become_elements_of_their_target() {
    let storage = MemoryStorage::new();
    let engine = orders(&storage);
    let model = model_text(&engine);
    start(&engine, &with(LINES, r#""oldWriters":"correct""#)).unwrap();
    wait_for(&engine, "expanded");
    put(&engine, "lines", &line(6, 2, 5)).unwrap();
    put(&engine, "lines", &line(0, 0, 1)).unwrap();
    remove(&engine, "lines", "l5-1", "s1").unwrap();
    put(&engine, "orders", r#"{"id":"o2","n":2,"lines":[]}"#).unwrap();
    let lines = |order: usize| match order {
        0 => vec![(0, 1)],
        5 => vec![(0, 1), (2, 1), (3, 1), (4, 1)],
        6 => vec![(0, 1), (1, 1), (2, 5), (3, 1), (4, 1), (5, 1)],
        order => untouched_lines(order),
    };
    assert_same(&stored(&engine), &with_lines(&lines, true), "followed");
    finish(&engine);
    assert_same(&stored(&engine), &with_lines(&lines, false), "finished");
    // A writer of the new form adds a line that does not name its order.
    let added = r#"{"id":"o1","n":1,"lines":[{"id":"l1-0","shop":"s0","orderId":"o1","count":1},{"id":"l1-7","shop":"s1","count":2}]}"#;
    put(&engine, "orders", added).unwrap();
    undo(&engine);
    let mut expected = with_lines(&lines, true);
    for order in 0..ORDERS {
        expected
            .insert(name_of("orders", format!("o{order}")), format!(r#"{{"id":"o{order}","n":{order}}}"#));
    }
    expected.insert(name_of("lines", "l1-7".to_owned()), line(1, 7, 2));
    assert_same(&stored(&engine), &expected, "undone");
    assert_eq!(model_text(&engine), model);
    check_model(&engine);
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

#[test]
fn a_value_at_the_target_path_blocks_the_embed() {
    let storage = MemoryStorage::new();
    let engine = users(&storage);
    put(&engine, "users", r#"{"id":"u3","name":"user 3","profileId":"p3","profile":"mine"}"#).unwrap();
    let before = stored(&engine);
    start(&engine, PROFILE).unwrap();
    let blocked = wait_for(&engine, "blocked");
    let text = blocked.get("conflicts").unwrap().to_json();
    assert!(text.contains(r#""id":"u3""#) && text.contains("/profile"), "{text}");
    // It may be written as it is, and nobody can put another one there.
    put(&engine, "users", r#"{"id":"u3","name":"other","profileId":"p3","profile":"mine"}"#).unwrap();
    assert!(put(&engine, "users", &user(4, Some("1"))).is_err());
    undo(&engine);
    let mut expected = before;
    let own = r#"{"id":"u3","name":"other","profileId":"p3","profile":"mine"}"#;
    expected.insert(name_of("users", "u3".to_owned()), own.to_owned());
    assert_same(&stored(&engine), &expected, "undone");
    // The next one goes on when the item is changed and its job resumed.
    start(&engine, PROFILE).unwrap();
    let state = |engine: &Engine| engine.refactoring("d", "r-2").unwrap();
    let is =
        |engine: &Engine, wanted: &str| state(engine).get("state").and_then(Value::as_str) == Some(wanted);
    wait_until("blocked", || is(&engine, "blocked"));
    put(&engine, "users", &user(3, None)).unwrap();
    let job = state(&engine).get("job").and_then(Value::as_str).unwrap().to_owned();
    engine.control_job(&job, quire_engine::JobControl::Resume).unwrap();
    wait_until("expanded", || is(&engine, "expanded"));
    assert_same(&stored(&engine), &embedded(&|_| 0, true), "expanded");
}

#[test]
fn parts_of_several_items_have_to_be_decided() {
    let shared = |engine: &Engine| {
        put(engine, "users", r#"{"id":"other","profileId":"p2"}"#).unwrap();
        put(engine, "profiles", r#"{"id":"alone"}"#).unwrap();
    };
    let storage = MemoryStorage::new();
    let engine = users(&storage);
    shared(&engine);
    let before = stored(&engine);
    start(&engine, PROFILE).unwrap();
    let blocked = wait_for(&engine, "blocked");
    let text = blocked.to_json();
    assert!(text.contains(r#""id":"p2""#) && text.contains("several items"), "{text}");
    assert!(text.contains(r#""id":"alone""#) && text.contains("no item would have it"), "{text}");
    undo(&engine);
    assert_eq!(stored(&engine), before);
    engine.close().unwrap();
    for (decision, is_left) in [("first", false), ("newest", false), ("skip", true)] {
        let storage = MemoryStorage::new();
        let engine = users(&storage);
        shared(&engine);
        start(&engine, &with(PROFILE, &format!(r#""onConflict":"{decision}""#))).unwrap();
        wait_for(&engine, "expanded");
        finish(&engine);
        let mut expected = embedded(&|_| 0, false);
        expected.insert(name_of("profiles", "alone".to_owned()), r#"{"id":"alone"}"#.to_owned());
        let other = format!(r#"{{"id":"other","profileId":"p2","profile":{}}}"#, profile(2, 0));
        expected.insert(name_of("users", "other".to_owned()), other);
        if is_left {
            expected.insert(
                name_of("users", "other".to_owned()),
                r#"{"id":"other","profileId":"p2"}"#.to_owned(),
            );
            expected.insert(name_of("users", "u2".to_owned()), user(2, None));
            expected.insert(name_of("profiles", "p2".to_owned()), profile(2, 0));
        }
        assert_same(&stored(&engine), &expected, decision);
        undo(&engine);
        assert_same(&stored(&engine), &before, decision);
        check_model(&engine);
        engine.close().unwrap();
        check_sound(&storage.reopen());
    }
}

#[test]
fn what_is_deleted_or_dangles_has_no_part() {
    let storage = MemoryStorage::new();
    let engine = engine_with(&storage, &[("users", "/id"), ("profiles", "/id")]);
    put_model(&engine, &[&PROFILE_LINK.replace("enforced", "weak").replace("restrict", "allow")]);
    put(&engine, "profiles", &profile(0, 0)).unwrap();
    (0..3).for_each(|number| put(&engine, "users", &user(number, None)).unwrap());
    start(&engine, PROFILE).unwrap();
    wait_for(&engine, "expanded");
    // One that appears is filled in, one that goes is taken away.
    put(&engine, "profiles", &profile(1, 0)).unwrap();
    remove(&engine, "profiles", "p0", "p0").unwrap();
    finish(&engine);
    let mut expected = Items::new();
    for (number, part) in [(0, None), (1, Some(profile(1, 0))), (2, None)] {
        expected.insert(name_of("users", format!("u{number}")), user(number, part.as_deref()));
    }
    assert_same(&stored(&engine), &expected, "finished");
}

#[test]
fn a_dry_run_says_what_would_be_done() {
    let storage = MemoryStorage::new();
    let engine = users(&storage);
    put(&engine, "users", r#"{"id":"other","profileId":"p2"}"#).unwrap();
    put(&engine, "users", r#"{"id":"own","profile":1}"#).unwrap();
    let before = stored(&engine);
    let RefactoringDryRun::Done(found) = engine.dry_run_refactoring("d", &json(PROFILE)).unwrap() else {
        panic!("a job")
    };
    let count = |name: &str| found.get(name).and_then(Value::as_u64).unwrap();
    assert_eq!((count("items"), count("wouldConvert"), count("wouldDelete")), (26, 25, 24));
    assert_eq!(count("wouldLeave"), 2, "{}", found.to_json());
    let examples = found.get("examples").and_then(Value::as_array).unwrap();
    assert_eq!(examples.len(), 3);
    let after = examples[0].get("after").and_then(|after| after.at(0)?.get("item")).unwrap();
    let id = after.get("profileId").unwrap();
    assert_eq!(after.get("profile").unwrap().get("id"), Some(id));
    assert_eq!(stored(&engine), before);
    let storage = MemoryStorage::new();
    let engine = orders(&storage);
    let RefactoringDryRun::Done(found) = engine.dry_run_refactoring("d", &json(LINES)).unwrap() else {
        panic!("a job")
    };
    assert_eq!(found.get("wouldDelete").and_then(Value::as_u64), Some(21), "{}", found.to_json());
}

#[test]
fn what_cannot_be_embedded_is_refused() {
    let storage = MemoryStorage::new();
    let engine = users(&storage);
    for (body, at, part) in [
        (r#"{"kind":"embed","link":"nothing","into":"/p"}"#.to_owned(), "/link", "no link"),
        (r#"{"kind":"embed","link":"user-profile","into":"/a/*/p"}"#.to_owned(), "/into", "beside"),
        (r#"{"kind":"embed","link":"user-profile","into":"/profileId"}"#.to_owned(), "/into", "beside"),
        (r#"{"kind":"embed","link":"user-profile","into":"/id"}"#.to_owned(), "/into", "id"),
        (with(PROFILE, r#""container":"users""#), "/container", "link"),
        (with(PROFILE, r#""oldWriters":"through""#), "/oldWriters", "one of"),
        (with(PROFILE, r#""side":"left""#), "/side", "one of"),
    ] {
        let Err(EngineError::RefactoringInvalid(invalid)) = start(&engine, &body) else { panic!("{body}") };
        assert_eq!(invalid.0[0].at, at, "{body}: {invalid}");
        assert!(invalid.to_string().contains(part), "{body}: {invalid}");
    }
    // Other declarations need the items that would go.
    let body = format!(
        r#"{{"version":1,"links":[{PROFILE_LINK}],"rollups":[{{"name":"uses","link":"user-profile","op":"count","into":"/uses"}}]}}"#
    );
    engine.catalog().put_model("d", &json(&body), &ModelCondition::default()).unwrap();
    wait_until_idle(&engine);
    let Err(EngineError::RefactoringInvalid(invalid)) = start(&engine, PROFILE) else { panic!("started") };
    assert!(invalid.to_string().contains("'uses'"), "{invalid}");
    put_model(&engine, &[PROFILE_LINK]);
    // The link cannot be changed meanwhile, and its name is needed by the undo.
    start(&engine, PROFILE).unwrap();
    wait_for(&engine, "expanded");
    let empty = json(r#"{"version":1}"#);
    let found = engine.catalog().put_model("d", &empty, &ModelCondition::default());
    assert!(matches!(found, Err(EngineError::RefactoringRunning { .. })));
    finish(&engine);
    let other = PROFILE_LINK.replace("/profileId", "/otherId");
    put_model(&engine, &[&other]);
    let found = engine.undo_refactoring("d", "r-1");
    assert!(
        matches!(&found, Err(EngineError::RefactoringRefuses { why, .. }) if why.contains("user-profile"))
    );
    engine.catalog().put_model("d", &empty, &ModelCondition::default()).unwrap();
    undo(&engine);
}

#[test]
fn parts_in_arrays_and_targets_found_by_a_key() {
    let storage = MemoryStorage::new();
    let engine = engine_with(&storage, &[("orders", "/id"), ("products", "/kind")]);
    put_model(
        &engine,
        &[
            r#"{"name":"bought","from":{"container":"orders","path":"/lines/*/sku"},"to":{"container":"products","key":"/sku","partitionKey":"lookup"}}"#,
        ],
    );
    let product =
        |number: usize| format!(r#"{{"id":"x{number}","kind":"k{}","sku":"s{number}"}}"#, number % 2);
    let order = |parts: &dyn Fn(usize) -> String| {
        let line = |number: usize| format!(r#"{{"sku":"s{number}","n":{number}{}}}"#, parts(number));
        format!(r#"{{"id":"o","lines":[{},{{"n":9}},{}]}}"#, line(0), line(1))
    };
    (0..2).for_each(|number| put(&engine, "products", &product(number)).unwrap());
    put(&engine, "orders", &order(&|_| String::new())).unwrap();
    let before = stored(&engine);
    start(&engine, r#"{"kind":"embed","link":"bought","into":"/lines/*/product"}"#).unwrap();
    wait_for(&engine, "expanded");
    finish(&engine);
    let whole = order(&|number| format!(r#","product":{}"#, product(number)));
    let expected = Items::from([(name_of("orders", "o".to_owned()), whole)]);
    assert_same(&stored(&engine), &expected, "finished");
    undo(&engine);
    assert_same(&stored(&engine), &before, "undone");
    check_model(&engine);
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

/// An undo that comes while it is finished makes the old form from what is there.
#[test]
fn undo_while_it_is_finished_loses_nothing() {
    for (fill, body) in
        [(users as fn(&MemoryStorage) -> Engine, PROFILE), (orders as fn(&MemoryStorage) -> Engine, LINES)]
    {
        let storage = MemoryStorage::new();
        let engine = fill(&storage);
        let before = stored(&engine);
        start(&engine, body).unwrap();
        wait_for(&engine, "expanded");
        engine.finish_refactoring("d", "r-1").unwrap();
        engine.undo_refactoring("d", "r-1").unwrap();
        wait_for(&engine, "undone");
        assert_same(&stored(&engine), &before, "undone");
    }
}

#[test]
fn writers_lose_nothing_while_it_is_finished() {
    let storage = MemoryStorage::new();
    let engine = users(&storage);
    start(&engine, PROFILE).unwrap();
    wait_for(&engine, "expanded");
    let is_over = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (engine, over) = (&engine, Arc::clone(&is_over));
        let writer = scope.spawn(move || {
            let mut rounds = [0; USERS];
            for round in 1.. {
                for (number, own) in rounds.iter_mut().enumerate() {
                    // In the old form while its item is there, else in the new one.
                    let items = engine.catalog().container("d", "profiles").unwrap();
                    let is_item = crate::support::items(engine, &items).contains_key(&format!("p{number}"));
                    let done = match is_item && round % 2 == 0 {
                        true => put(engine, "profiles", &profile(number, round)),
                        false => put(engine, "users", &user(number, Some(&profile(number, round)))),
                    };
                    if done.is_ok() {
                        *own = round;
                    }
                }
                if over.load(Ordering::Relaxed) {
                    return rounds;
                }
            }
            rounds
        });
        finish(engine);
        is_over.store(true, Ordering::Relaxed);
        let rounds = writer.join().unwrap();
        let mut found = stored(engine);
        // One that was written as an item behind the end stays one; its user has what was written before.
        let behind: Vec<usize> = (0..USERS)
            .filter(|number| found.remove(&name_of("profiles", format!("p{number}"))).is_some())
            .collect();
        let expected = embedded(&|number| rounds[number], false);
        for number in (0..USERS).filter(|number| !behind.contains(number)) {
            let name = name_of("users", format!("u{number}"));
            assert_eq!(json(&found[&name]), json(&expected[&name]), "{number}");
        }
    });
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

#[test]
fn kills_at_every_commit_come_to_the_same_end() {
    let fill = |memory: &MemoryStorage| users(memory).close().unwrap();
    let writes = vec![("profiles", profile(3, 1)), ("users", user(5, Some(&profile(5, 0))))];
    let rounds = |number: usize| usize::from(number == 3);
    let expanded = |engine: &Engine, commits: usize| {
        let what = format!("killed after {commits} commits");
        assert_same(&stored(engine), &embedded(&rounds, true), &what);
        check_model(engine);
    };
    let old = vec![("profiles", profile(3, 1)), ("users", user(5, None))];
    let step = ("start", "expanded");
    Kills { fill: &fill, writes: &old, before: &[], step, body: PROFILE, check: &expanded }.run();
    let finished = |engine: &Engine, commits: usize| {
        let mut found = stored(engine);
        let what = format!("finish killed after {commits} commits");
        // A profile that is sent again after it was finished is an item like any other.
        let again = found.remove(&name_of("profiles", "p3".to_owned()));
        let mut expected = embedded(&rounds, false);
        if let Some(again) = again {
            assert_eq!(json(&again), json(&profile(3, 1)), "{what}");
            let name = name_of("users", "u3".to_owned());
            if json(&found[&name]) == json(&user(3, Some(&profile(3, 0)))) {
                expected.insert(name, user(3, Some(&profile(3, 0))));
            }
        }
        assert_same(&found, &expected, &what);
    };
    let (before, step) = ([("start", "expanded")], ("finish", "finished"));
    Kills { fill: &fill, writes: &writes, before: &before, step, body: PROFILE, check: &finished }.run();
}

#[test]
fn kills_at_every_commit_come_to_the_same_end_in_targets() {
    let fill = |memory: &MemoryStorage| orders(memory).close().unwrap();
    let writes = vec![("lines", line(0, 0, 1)), ("lines", line(6, 0, 5))];
    let lines = |order: usize| match order {
        0 => vec![(0, 1)],
        6 => (0..6).map(|number| (number, if number == 0 { 5 } else { 1 })).collect(),
        order => untouched_lines(order),
    };
    let expanded = |engine: &Engine, commits: usize| {
        let what = format!("killed after {commits} commits");
        assert_same(&stored(engine), &with_lines(&lines, true), &what);
        check_model(engine);
    };
    let step = ("start", "expanded");
    Kills { fill: &fill, writes: &writes, before: &[], step, body: LINES, check: &expanded }.run();
    let finished = |engine: &Engine, commits: usize| {
        let what = format!("finish killed after {commits} commits");
        let mut found = stored(engine);
        let mut expected = with_lines(&lines, false);
        let old = with_lines(&untouched_lines, false);
        for (order, text) in [(0, line(0, 0, 1)), (6, line(6, 0, 5))] {
            let name = name_of("lines", format!("l{order}-0"));
            if let Some(again) = found.remove(&name) {
                assert_eq!(json(&again), json(&text), "{what}");
                let name = name_of("orders", format!("o{order}"));
                if json(&found[&name]) == json(&old[&name]) {
                    expected.insert(name.clone(), old[&name].clone());
                }
            }
        }
        assert_same(&found, &expected, &what);
    };
    let (before, step) = ([("start", "expanded")], ("finish", "finished"));
    Kills { fill: &fill, writes: &writes, before: &before, step, body: LINES, check: &finished }.run();
}

#[test]
fn kills_at_every_commit_of_undo_come_to_the_same_end() {
    for (fill, body) in
        [(users as fn(&MemoryStorage) -> Engine, PROFILE), (orders as fn(&MemoryStorage) -> Engine, LINES)]
    {
        let expected = stored(&fill(&MemoryStorage::new()));
        let filled = |memory: &MemoryStorage| fill(memory).close().unwrap();
        let check = |engine: &Engine, commits: usize| {
            assert_same(&stored(engine), &expected, &format!("killed after {commits} commits"));
            check_model(engine);
        };
        kill_every_undo(&filled, body, &check);
    }
}
