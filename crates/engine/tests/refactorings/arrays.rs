//! `rename` and `retype` of members of array elements, which clients move, add and delete meanwhile.

use quire_engine::Engine;
use quire_storage::memory::MemoryStorage;
use quire_value::Value;

use crate::structural::*;
use crate::support::check_sound;
use crate::support::wait_until;

const RENAME: &str =
    r#"{"kind":"rename","container":"orders","from":"/lines/*/qty","to":"/lines/*/quantity"}"#;
const RETYPE: &str = r#"{"kind":"retype","container":"orders","path":"/lines/*/price","as":"number"}"#;
const ORDERS: usize = 130;

/// An order with as many lines as its number says; `member` and `quote` make the old or the new form.
fn order(number: usize, member: &str, quote: &str) -> String {
    let line = |own: usize| {
        let id = if number.is_multiple_of(2) { format!(r#""id":"l{own}","#) } else { String::new() };
        format!(r#"{{{id}"{member}":{},"price":{quote}{}{quote}}}"#, own % 3, own + 1)
    };
    let lines: Vec<String> = (0..number % 5).map(line).collect();
    format!(r#"{{"id":"o{number}","lines":[{}]}}"#, lines.join(","))
}

fn all(member: &str, quote: &str) -> Items {
    let name = |number: usize| ("orders".to_owned(), format!("o{number}"));
    (0..ORDERS).map(|number| (name(number), order(number, member, quote))).collect()
}

fn filled(storage: &MemoryStorage) -> Engine {
    let engine = engine_with(storage, &[("orders", "/id")]);
    (0..ORDERS).for_each(|number| put(&engine, "orders", &order(number, "qty", "\"")).unwrap());
    engine
}

fn item(engine: &Engine, id: &str) -> String {
    stored(engine).remove(&("orders".to_owned(), id.to_owned())).unwrap()
}

#[test]
fn an_untouched_expansion_is_undone_to_what_was() {
    for (body, after) in [(RENAME, all("quantity", "\"")), (RETYPE, all("qty", ""))] {
        let storage = MemoryStorage::new();
        let engine = filled(&storage);
        let before = stored(&engine);
        start(&engine, body).unwrap();
        wait_for(&engine, "expanded");
        assert_eq!(stored(&engine), after, "word for word");
        let undone = undo(&engine);
        assert_eq!(undone.get("conflictCount").and_then(Value::as_u64), Some(0));
        assert_eq!(stored(&engine), before, "word for word");
        engine.close().unwrap();
        check_sound(&storage.reopen());
    }
}

#[test]
fn elements_are_undone_where_clients_have_moved_them() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage);
    start(&engine, RENAME).unwrap();
    wait_for(&engine, "expanded");
    // Without ids: the last line first, one of the client's own, one of the old form, which is followed.
    let moved = r#"{"id":"o3","lines":[{"quantity":2,"price":"3"},{"quantity":8,"price":"8"},{"quantity":0,"price":"1"},{"qty":7,"price":"7"}]}"#;
    put(&engine, "orders", moved).unwrap();
    wait_until("followed", || !item(&engine, "o3").contains("qty"));
    // With ids: one was deleted, one has another value, one another price.
    let changed = r#"{"id":"o4","lines":[{"id":"l3","quantity":9,"price":"4"},{"id":"l1","quantity":1,"price":"5"},{"id":"l0","quantity":0,"price":"1"}]}"#;
    put(&engine, "orders", changed).unwrap();
    finish(&engine);
    let undone = undo(&engine);
    let expected = r#"{"id":"o3","lines":[{"qty":2,"price":"3"},{"quantity":8,"price":"8"},{"qty":0,"price":"1"},{"qty":7,"price":"7"}]}"#;
    assert_eq!(item(&engine, "o3"), expected);
    let expected = r#"{"id":"o4","lines":[{"id":"l3","quantity":9,"price":"4"},{"id":"l1","qty":1,"price":"5"},{"id":"l0","qty":0,"price":"1"}]}"#;
    assert_eq!(item(&engine, "o4"), expected);
    let text = undone.get("conflicts").unwrap().to_json();
    assert!(text.contains(r#""id":"o4""#) && text.contains("/lines/3/qty"), "{text}");
    // A line without an id that is nowhere may be the one that the client has put in its place.
    assert!(text.contains(r#""id":"o3""#) && text.contains("/lines/1/qty"), "{text}");
    assert_eq!(undone.get("conflictCount").and_then(Value::as_u64), Some(2), "{text}");
}

#[test]
fn what_is_left_is_listed_by_its_position() {
    let storage = MemoryStorage::new();
    let engine = engine_with(&storage, &[("orders", "/id")]);
    put(&engine, "orders", r#"{"id":"a","lines":[{"price":"1"},{"price":"x"},{"price":null},7]}"#).unwrap();
    put(&engine, "orders", r#"{"id":"b","lines":{"price":"1"}}"#).unwrap();
    start(&engine, RETYPE).unwrap();
    let found = wait_for(&engine, "expanded");
    let text = found.get("conflicts").unwrap().to_json();
    assert!(text.contains("/lines/1/price") && text.contains("/lines/2/price"), "{text}");
    assert_eq!(found.get("conflictCount").and_then(Value::as_u64), Some(2), "{text}");
    assert_eq!(item(&engine, "a"), r#"{"id":"a","lines":[{"price":1},{"price":"x"},{"price":null},7]}"#);
    assert_eq!(item(&engine, "b"), r#"{"id":"b","lines":{"price":"1"}}"#);
}

#[test]
fn kills_at_every_commit_come_to_the_same_end() {
    let fill = |memory: &MemoryStorage| filled(memory).close().unwrap();
    let writes = vec![("orders", order(7, "qty", "\"")), ("orders", order(8, "quantity", "\""))];
    let check = |engine: &Engine, commits: usize| {
        wait_until("followed", || !stored(engine).values().any(|text| text.contains("qty")));
        assert_same(&stored(engine), &all("quantity", "\""), &format!("killed after {commits} commits"));
    };
    let step = ("start", "expanded");
    Kills { fill: &fill, writes: &writes, before: &[], step, body: RENAME, check: &check }.run();
    let check = |engine: &Engine, commits: usize| {
        assert_same(&stored(engine), &all("qty", "\""), &format!("killed after {commits} commits"));
    };
    let expanded = [("start", "expanded")];
    let finished = [("start", "expanded"), ("finish", "finished")];
    for before in [&expanded[..], &finished[..]] {
        let step = ("undo", "undone");
        Kills { fill: &fill, writes: &[], before, step, body: RENAME, check: &check }.run();
    }
}
