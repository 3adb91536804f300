//! `extract`: stocks that are parts of portfolios become items.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quire_engine::{Engine, EngineError, JobControl, ModelCondition, RefactoringDryRun};
use quire_storage::memory::MemoryStorage;
use quire_value::Value;

use crate::structural::*;
use crate::support::check_sound;
use crate::support::{json, open, wait_until};

const BODY: &str = r#"{"kind":"extract","container":"portfolios","path":"/holdings/*/stock","key":"/symbol","into":"stocks","reference":"stockId"}"#;

fn with(members: &str) -> String {
    BODY.replacen('{', &format!("{{{members},"), 1)
}

fn stock(symbol: usize, price: usize) -> String {
    format!(r#"{{"symbol":"S{symbol}","open":{price},"tags":["a",{{"b":{symbol}}}]}}"#)
}

fn holding(symbol: usize, price: usize) -> String {
    format!(r#"{{"held":{symbol},"stock":{}}}"#, stock(symbol, price))
}

fn portfolio(number: usize, holdings: &[String]) -> String {
    format!(r#"{{"id":"p{number}","pk":"k{}","holdings":[{}],"note":"n"}}"#, number % 4, holdings.join(","))
}

/// A portfolio in the old form, whose stocks have the price that all have.
fn old(number: usize) -> String {
    portfolio(number, &[holding(number % 7, 10), holding((number + 3) % 7, 10)])
}

/// What is to become of items: `keeps_part` until it is finished. Written from the contract, by text.
fn extracted(portfolios: &[String], keeps_part: bool) -> Items {
    let mut found = Items::new();
    for text in portfolios {
        let mut item = json(text);
        let id = item.get("id").and_then(Value::as_str).unwrap().to_owned();
        let Some(Value::Array(holdings)) = item.as_object_mut().unwrap().get_mut("holdings") else {
            panic!()
        };
        for holding in holdings {
            let holding = holding.as_object_mut().unwrap();
            let Some(part) = holding.get("stock").cloned() else { continue };
            let symbol = part.get("symbol").and_then(Value::as_str).unwrap().to_owned();
            holding.set("stockId", symbol.as_str());
            if !keeps_part {
                holding.remove("stock");
            }
            let body = part.to_json();
            let target = format!(r#"{{"id":"{symbol}",{}"#, &body[1..]);
            found.insert(("stocks".to_owned(), symbol), target);
        }
        found.insert(("portfolios".to_owned(), id), item.to_json());
    }
    found
}

fn filled(storage: &MemoryStorage, count: usize) -> Engine {
    let engine = engine_with(storage, &[("portfolios", "/pk")]);
    (0..count).for_each(|number| put(&engine, "portfolios", &old(number)).unwrap());
    engine
}

/// Portfolios, stocks, journals and how far the walk and its job are: one commit for all items of a step.
#[test]
fn a_walk_commits_once_a_step() {
    const PORTFOLIOS: usize = 900;
    let storage = MemoryStorage::new();
    let engine = filled(&storage, PORTFOLIOS);
    let before = crate::commit_count(&storage);
    start(&engine, BODY).unwrap();
    let expanded = wait_for(&engine, "expanded");
    assert_eq!(expanded.get("converted").and_then(Value::as_u64), Some(PORTFOLIOS as u64));
    let (end, commits) = (crate::commit_count(&storage), crate::commit_count(&storage) - before);
    // Two of items; phases, containers, declarations and their builds are the others.
    assert!(commits <= 60, "{commits} commits to expand");
    finish(&engine);
    let commits = crate::commit_count(&storage) - end;
    assert!(commits <= 40, "{commits} commits to finish");
    let portfolios: Vec<String> = (0..PORTFOLIOS).map(old).collect();
    assert_same(&stored(&engine), &extracted(&portfolios, false), "finished");
}

#[test]
fn an_untouched_expansion_is_undone_to_what_was() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 230);
    put(&engine, "portfolios", r#"{"id":"none","pk":"x","holdings":[{"held":1},7],"stock":{"symbol":"S1"}}"#)
        .unwrap();
    let before = stored(&engine);
    start(&engine, BODY).unwrap();
    let expanded = wait_for(&engine, "expanded");
    assert_eq!(expanded.get("converted").and_then(Value::as_u64), Some(230), "{expanded:?}");
    let all: Vec<String> = (0..230).map(old).collect();
    let mut expected = extracted(&all, true);
    let none = ("portfolios".to_owned(), "none".to_owned());
    expected.insert(none.clone(), before[&none].clone());
    assert_same(&stored(&engine), &expected, "expanded");
    check_model(&engine);
    let second = start(&engine, BODY);
    assert!(matches!(second, Err(EngineError::RefactoringRunning { .. })), "{second:?}");
    let rename = r#"{"kind":"rename","container":"stocks","from":"/open","to":"/opened"}"#;
    assert!(matches!(start(&engine, rename), Err(EngineError::RefactoringRunning { .. })));
    let undone = undo(&engine);
    assert_eq!(undone.get("conflictCount").and_then(Value::as_u64), Some(0), "{undone:?}");
    // Word for word, and the container that was made is gone.
    assert_eq!(stored(&engine), before);
    assert!(engine.catalog().container("d", "stocks").is_err());
    assert!(engine.catalog().model("d").unwrap().body.get("links").is_none());
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

#[test]
fn finish_removes_the_part_and_keeps_the_link() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 120);
    start(&engine, &with(r#""finish":"auto""#)).unwrap();
    let finished = wait_for(&engine, "finished");
    assert!(finished.get("journalUntil").and_then(Value::as_str).is_some(), "{finished:?}");
    let all: Vec<String> = (0..120).map(old).collect();
    assert_same(&stored(&engine), &extracted(&all, false), "finished");
    let model = engine.catalog().model("d").unwrap().body;
    let links = model.get("links").and_then(Value::as_array).unwrap();
    assert_eq!(links.len(), 1, "{model:?}");
    assert!(model.get("copies").is_none(), "{model:?}");
    check_model(&engine);
    // The old form is made from the new one as it is now.
    put(&engine, "stocks", r#"{"id":"S1","symbol":"S1","open":99}"#).unwrap();
    put(&engine, "portfolios", r#"{"id":"new","pk":"x","holdings":[{"held":1,"stockId":"S1"}]}"#).unwrap();
    undo(&engine);
    let mut expected = Items::new();
    let changed = r#"{"symbol":"S1","open":99}"#;
    for number in 0..120 {
        let text = old(number).replace(&stock(1, 10), changed);
        expected.insert(("portfolios".to_owned(), format!("p{number}")), text);
    }
    let new = format!(r#"{{"id":"new","pk":"x","holdings":[{{"held":1,"stock":{changed}}}]}}"#);
    expected.insert(("portfolios".to_owned(), "new".to_owned()), new);
    // A client has changed it.
    let kept = r#"{"id":"S1","symbol":"S1","open":99}"#.to_owned();
    expected.insert(("stocks".to_owned(), "S1".to_owned()), kept);
    assert_same(&stored(&engine), &expected, "undone");
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

#[test]
fn later_writes_are_followed_in_their_own_commit() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 20);
    start(&engine, BODY).unwrap();
    wait_for(&engine, "expanded");
    // A new item with the part and no reference, of a stock that is there and of one that is not.
    put(&engine, "portfolios", &portfolio(500, &[holding(1, 10), holding(40, 7)])).unwrap();
    let mut all: Vec<String> = (0..20).map(old).collect();
    all.push(portfolio(500, &[holding(1, 10), holding(40, 7)]));
    assert_same(&stored(&engine), &extracted(&all, true), "followed");
    // An old writer puts another stock in the place of one: it reads the item and writes all of it.
    let moved =
        old(3).replace(&stock(3, 10), &stock(4, 10)).replace(r#""held":3"#, r#""stockId":"S3","held":3"#);
    put(&engine, "portfolios", &moved).unwrap();
    all[3] = old(3).replace(&stock(3, 10), &stock(4, 10));
    assert_same(&stored(&engine), &extracted(&all, true), "moved");
    // A new writer writes the reference alone, or changes it and leaves the part as it read it.
    let text = r#"{"id":"p4","pk":"k0","holdings":[{"held":4,"stockId":"S2"}],"note":"n"}"#;
    put(&engine, "portfolios", text).unwrap();
    all[4] = text.replace(r#""stockId":"S2""#, &format!(r#""stock":{}"#, stock(2, 10)));
    let text = portfolio(5, &[format!(r#"{{"held":5,"stockId":"S6","stock":{}}}"#, stock(5, 10))]);
    put(&engine, "portfolios", &text).unwrap();
    all[5] = portfolio(5, &[format!(r#"{{"held":5,"stock":{}}}"#, stock(6, 10))]);
    // A change of the stock is in all portfolios.
    put(&engine, "stocks", r#"{"id":"S0","symbol":"S0","open":77,"tags":["a",{"b":0}]}"#).unwrap();
    all = all.iter().map(|text| text.replace(&stock(0, 10), &stock(0, 77))).collect();
    assert_same(&stored(&engine), &extracted(&all, true), "written in both forms");
    // What contradicts the stock is refused, and nothing of it is stored.
    let wrong = put(&engine, "portfolios", &portfolio(6, &[holding(6, 11)]));
    let Err(EngineError::RefusedByModel(error)) = wrong else { panic!("{wrong:?}") };
    assert!(error.to_string().contains("/holdings/0/stock is maintained by"), "{error}");
    assert!(put(&engine, "portfolios", &portfolio(501, &[holding(6, 11)])).is_err());
    assert_same(&stored(&engine), &extracted(&all, true), "refused");
    finish(&engine);
    assert_same(&stored(&engine), &extracted(&all, false), "finished");
    // After that the old form is a form like any other.
    put(&engine, "portfolios", &portfolio(6, &[holding(6, 11)])).unwrap();
}

#[test]
fn old_writers_are_corrected_or_written_through() {
    for (old_writers, price) in [("correct", 10), ("through", 55)] {
        let storage = MemoryStorage::new();
        let engine = filled(&storage, 30);
        start(&engine, &with(&format!(r#""oldWriters":"{old_writers}""#))).unwrap();
        wait_for(&engine, "expanded");
        put(&engine, "portfolios", &portfolio(2, &[holding(2, 55)])).unwrap();
        put(&engine, "portfolios", &portfolio(700, &[holding(5, 55)])).unwrap();
        let mut all: Vec<String> = (0..30).map(old).collect();
        all[2] = portfolio(2, &[holding(2, 10)]);
        all.push(portfolio(700, &[holding(5, 10)]));
        for symbol in [2, 5] {
            all = all.iter().map(|text| text.replace(&stock(symbol, 10), &stock(symbol, price))).collect();
        }
        assert_same(&stored(&engine), &extracted(&all, true), old_writers);
        check_model(&engine);
        finish(&engine);
        assert_same(&stored(&engine), &extracted(&all, false), old_writers);
    }
}

#[test]
fn conflicts_stop_it_or_are_decided() {
    // p1 is the first with S1, p8 is the newest, and p15 is in between.
    let fill = |storage: &MemoryStorage| {
        let engine = filled(storage, 1);
        for (number, price) in [(1, 10), (15, 20), (8, 30)] {
            // `_ts` counts seconds.
            (0..200).for_each(|_| put(&engine, "portfolios", &old(0)).unwrap());
            put(&engine, "portfolios", &portfolio(number, &[holding(1, price)])).unwrap();
        }
        engine
    };
    let storage = MemoryStorage::new();
    let engine = fill(&storage);
    let before = stored(&engine);
    start(&engine, BODY).unwrap();
    let blocked = wait_for(&engine, "blocked");
    assert_eq!(blocked.get("conflictCount").and_then(Value::as_u64), Some(2), "{}", blocked.to_json());
    let text = blocked.get("conflicts").unwrap().to_json();
    assert!(text.contains(r#""path":"/holdings/0/stock""#), "{text}");
    assert!(matches!(engine.finish_refactoring("d", "r-1"), Err(EngineError::RefactoringRefuses { .. })));
    // The items are changed, and the job is resumed.
    let job = blocked.get("job").and_then(Value::as_str).unwrap().to_owned();
    engine.control_job(&job, JobControl::Resume).unwrap();
    wait_until("it was looked at again", || state(&engine).as_deref() == Some("blocked"));
    undo(&engine);
    assert_eq!(stored(&engine), before);
    for (on_conflict, price) in [("newest", 30), ("first", 0), ("skip", 0)] {
        let storage = MemoryStorage::new();
        let engine = fill(&storage);
        let before = stored(&engine);
        start(&engine, &with(&format!(r#""onConflict":"{on_conflict}""#))).unwrap();
        let expanded = wait_for(&engine, "expanded");
        let all = stored(&engine);
        let target = json(&all[&("stocks".to_owned(), "S1".to_owned())]);
        let found = target.get("open").and_then(Value::as_u64).unwrap() as usize;
        if on_conflict == "newest" {
            assert_eq!(found, price);
        }
        for number in [1, 15, 8] {
            let item = json(&all[&("portfolios".to_owned(), format!("p{number}"))]);
            let holding = item.get("holdings").unwrap().at(0).unwrap();
            let own =
                holding.get("stock").and_then(|stock| stock.get("open")).and_then(Value::as_u64).unwrap();
            let is_referred = holding.get("stockId").is_some();
            assert!(
                is_referred && own as usize == found || on_conflict == "skip" && !is_referred,
                "{item:?}"
            );
        }
        let count = expanded.get("conflictCount").and_then(Value::as_u64);
        assert_eq!(count, Some(if on_conflict == "skip" { 2 } else { 0 }), "{}", expanded.to_json());
        undo(&engine);
        assert_eq!(stored(&engine), before, "{on_conflict}");
    }
}

#[test]
fn a_part_of_its_owner() {
    let storage = MemoryStorage::new();
    let engine = engine_with(&storage, &[("users", "/tenant")]);
    let user = |number: usize| {
        format!(r#"{{"id":"u{number}","tenant":"t{}","profile":{{"bio":"b{number}"}},"n":1}}"#, number % 3)
    };
    (0..40).for_each(|number| put(&engine, "users", &user(number)).unwrap());
    let before = stored(&engine);
    let body = r#"{"kind":"extract","container":"users","path":"/profile","key":"/id","into":"users-profile","reference":"profileId"}"#;
    start(&engine, body).unwrap();
    wait_for(&engine, "expanded");
    let mut expected = Items::new();
    for number in 0..40 {
        let (id, tenant) = (format!("u{number}"), format!("t{}", number % 3));
        let own = user(number).replace(r#","n":1"#, &format!(r#","n":1,"profileId":"{id}""#));
        expected.insert(("users".to_owned(), id.clone()), own);
        let made = format!(r#"{{"id":"{id}","tenant":"{tenant}","profile":{{"bio":"b{number}"}}}}"#);
        expected.insert(("users-profile".to_owned(), id), made);
    }
    assert_same(&stored(&engine), &expected, "expanded");
    undo(&engine);
    assert_eq!(stored(&engine), before);
}

#[test]
fn fields_that_are_kept_stay_copies() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 20);
    start(&engine, &with(r#""keepFields":["open"],"finish":"auto""#)).unwrap();
    wait_for(&engine, "finished");
    put(&engine, "stocks", r#"{"id":"S2","symbol":"S2","open":3}"#).unwrap();
    let item = stored(&engine)[&("portfolios".to_owned(), "p2".to_owned())].clone();
    assert!(item.contains(r#""stock":{"open":3}"#), "{item}");
    check_model(&engine);
}

#[test]
fn a_dry_run_changes_nothing() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 30);
    put(&engine, "portfolios", &portfolio(77, &[holding(1, 99)])).unwrap();
    let before = stored(&engine);
    let RefactoringDryRun::Done(dry) = engine.dry_run_refactoring("d", &json(BODY)).unwrap() else {
        panic!()
    };
    let figure = |name: &str| dry.get(name).and_then(Value::as_u64);
    let figures = ["items", "wouldConvert", "wouldMake", "wouldLeave"].map(figure);
    assert_eq!(figures, [Some(31), Some(30), Some(7), Some(1)], "{}", dry.to_json());
    let examples = dry.get("examples").and_then(Value::as_array).unwrap();
    assert_eq!(examples.len(), 3);
    assert!(examples[0].get("after").unwrap().to_json().contains(r#""container":"stocks""#), "{examples:?}");
    assert_eq!(stored(&engine), before);
}

#[test]
fn clients_cannot_contradict_it() {
    const ANY: ModelCondition = ModelCondition { if_match: None, if_none_match: None };
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 10);
    start(&engine, BODY).unwrap();
    wait_for(&engine, "expanded");
    let catalog = engine.catalog();
    let is_running = |found: Result<(), EngineError>| {
        assert!(matches!(found, Err(EngineError::RefactoringRunning { .. })), "{found:?}");
    };
    is_running(catalog.delete_model("d", &ANY));
    is_running(catalog.put_model("d", &json(r#"{"version":1}"#), &ANY).map(drop));
    let mut model = catalog.model("d").unwrap().body;
    let rollup = r#"[{"name":"held","link":"portfolios-stock","op":"count","into":"/held"}]"#;
    model.set("rollups", json(rollup));
    catalog.put_model("d", &Value::Object(model), &ANY).unwrap();
    crate::support::wait_until_idle(&engine);
    // What others maintain in the item is no part of the part.
    let item = stored(&engine)[&("portfolios".to_owned(), "p1".to_owned())].clone();
    assert!(item.contains(&stock(1, 10)), "{item}");
    assert!(catalog.delete_container("d", "stocks", &quire_engine::Precondition { if_match: None }).is_err());
    finish(&engine);
    check_model(&engine);
}

#[test]
fn what_cannot_be_extracted_is_refused() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 3);
    create(&engine, "other", "/x");
    for (body, at) in [
        (BODY.replace("\"into\":\"stocks\"", "\"into\":\"portfolios\""), "/into"),
        (BODY.replace("\"into\":\"stocks\"", "\"into\":\"other\""), "/into"),
        (BODY.replace("/holdings/*/stock", "/pk"), "/path"),
        (BODY.replace("/holdings/*/stock", "/holdings/*"), "/path"),
        (BODY.replace("\"key\":\"/symbol\",", ""), ""),
        (with(r#""oldWriters":"sometimes""#), "/oldWriters"),
        (with(r#""onConflict":"last""#), "/onConflict"),
        (with(r#""unknown":1"#), "/unknown"),
    ] {
        let found = start(&engine, &body);
        let Err(EngineError::RefactoringInvalid(invalid)) = found else { panic!("{body}: {found:?}") };
        assert_eq!(invalid.0[0].at, at, "{body}");
    }
    assert!(engine.catalog().container("d", "stocks").is_err());
}

/// Writers of the old form and of the new one, from before it starts until it is finished.
#[test]
fn writers_of_both_forms_lose_nothing() {
    let storage = MemoryStorage::new();
    let engine = Arc::new(filled(&storage, 120));
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (engine, stop) = (Arc::clone(&engine), Arc::clone(&stop));
            std::thread::spawn(move || {
                let (mut last, mut round) = (BTreeMap::new(), 1);
                while !stop.load(Ordering::SeqCst) && round < 3_000 {
                    let number = writer + 3 * (round * 7 % 60);
                    let (one, two) = (round % 9, (round / 3) % 9);
                    let text = portfolio(number, &[holding(one, 10), holding(two, 10)])
                        .replace("\"n\"", &format!("\"r{round}\""));
                    let is_new = round % 3 == 0 && state(&engine).as_deref() == Some("expanded");
                    let sent = match is_new {
                        true => [one, two].iter().fold(text.clone(), |text, own| {
                            text.replace(
                                &format!(r#""stock":{}"#, stock(*own, 10)),
                                &format!(r#""stockId":"S{own}""#),
                            )
                        }),
                        false => text.clone(),
                    };
                    put(&engine, "portfolios", &sent).unwrap();
                    last.insert(number, text);
                    round += 1;
                }
                last
            })
        })
        .collect();
    // All stocks are there from the beginning, so that a new writer may refer to them.
    for symbol in 0..9 {
        put(&engine, "portfolios", &portfolio(900 + symbol, &[holding(symbol, 10)])).unwrap();
    }
    start(&engine, BODY).unwrap();
    wait_until("expanded", || state(&engine).as_deref() == Some("expanded"));
    engine.finish_refactoring("d", "r-1").unwrap();
    wait_until("finished", || state(&engine).as_deref() != Some("finishing"));
    stop.store(true, Ordering::SeqCst);
    let mut all: BTreeMap<usize, String> = (0..120).map(|number| (number, old(number))).collect();
    all.extend((0..9).map(|symbol| (900 + symbol, portfolio(900 + symbol, &[holding(symbol, 10)]))));
    let mut written = BTreeMap::new();
    writers.into_iter().for_each(|writer| written.extend(writer.join().unwrap()));
    all.extend(written);
    wait_for(&engine, "finished");
    // What old writers wrote after it was finished is in the old form.
    let found = stored(&engine);
    let after: Vec<String> = all.values().cloned().collect();
    let expected = extracted(&after, false);
    let both = extracted(&after, true);
    for (name, text) in &expected {
        let own = json(&found[name]);
        let is_old = all.values().any(|text| json(text) == own);
        assert!(own == json(text) || is_old, "{name:?}: {} or {text} or {}", own.to_json(), both[name]);
    }
    assert_eq!(found.len(), expected.len());
    check_model(&engine);
}

fn kill_writes() -> Vec<(&'static str, String)> {
    vec![
        ("portfolios", portfolio(2, &[holding(6, 10)])),
        ("portfolios", portfolio(800, &[holding(2, 10), holding(50, 4)])),
        ("portfolios", portfolio(11, &[holding(1, 10)])),
    ]
}

fn after_kill_writes(count: usize) -> Vec<String> {
    let mut all: Vec<String> = (0..count).map(old).collect();
    all[2] = portfolio(2, &[holding(6, 10)]);
    all[11] = portfolio(11, &[holding(1, 10)]);
    all.push(portfolio(800, &[holding(2, 10), holding(50, 4)]));
    all
}

#[test]
fn kills_at_every_commit_of_expand_come_to_the_same_end() {
    let check = |engine: &Engine, commits: usize| {
        let all = after_kill_writes(25);
        assert_same(&stored(engine), &extracted(&all, true), &format!("killed after {commits} commits"));
    };
    let fill = |memory: &MemoryStorage| filled(memory, 25).close().unwrap();
    let writes = kill_writes();
    let step = ("start", "expanded");
    Kills { fill: &fill, writes: &writes, before: &[], step, body: BODY, check: &check }.run();
}

#[test]
fn kills_at_every_commit_of_finish_come_to_the_same_end() {
    let check = |engine: &Engine, commits: usize| {
        let (found, all) = (stored(engine), after_kill_writes(25));
        let written = ["p2", "p800", "p11"];
        let mut expected = extracted(&all, false);
        // A write that is sent again when it is finished keeps its form.
        for id in written {
            let name = ("portfolios".to_owned(), id.to_owned());
            let is_old = all.iter().any(|text| json(text) == json(&found[&name]));
            if is_old {
                expected.insert(name.clone(), found[&name].clone());
            }
        }
        if !found.contains_key(&("stocks".to_owned(), "S50".to_owned())) {
            expected.remove(&("stocks".to_owned(), "S50".to_owned()));
        }
        assert_same(&found, &expected, &format!("killed after {commits} commits"));
    };
    let fill = |memory: &MemoryStorage| filled(memory, 25).close().unwrap();
    let writes = kill_writes();
    let before = [("start", "expanded")];
    Kills {
        fill: &fill,
        writes: &writes,
        before: &before,
        step: ("finish", "finished"),
        body: BODY,
        check: &check,
    }
    .run();
}

#[test]
fn kills_at_every_commit_of_undo_come_to_the_same_end() {
    let fill = |memory: &MemoryStorage| filled(memory, 25).close().unwrap();
    let check = |engine: &Engine, commits: usize| {
        let expected: Items =
            (0..25).map(|number| (("portfolios".to_owned(), format!("p{number}")), old(number))).collect();
        assert_same(&stored(engine), &expected, &format!("killed after {commits} commits"));
        assert!(engine.catalog().container("d", "stocks").is_err());
    };
    kill_every_undo(&fill, BODY, &check);
}

#[test]
fn it_goes_on_after_a_restart_and_in_many_partitions() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 60);
    start(&engine, BODY).unwrap();
    drop(engine);
    let engine = open(&storage);
    wait_for(&engine, "expanded");
    let all: Vec<String> = (0..60).map(old).collect();
    assert_same(&stored(&engine), &extracted(&all, true), "expanded");
}
