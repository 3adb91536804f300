//! Patch as one write: conditions, limits of the result, unique keys, concurrent increments.

mod support;

use std::sync::Barrier;
use std::thread;

use quire_engine::{EngineError, ItemWritten, WriteKind};
use quire_value::{Limits, Value, text};
use support::fixture::{Fixture, number_of, text_of};

const KEY: &str = r#"["p"]"#;

fn kind(id: &str) -> WriteKind {
    WriteKind::Patch { id: id.to_owned(), if_none_match: None }
}

fn patch(fixture: &Fixture, id: &str, body: &str) -> Result<ItemWritten, EngineError> {
    fixture.write(kind(id), Some(KEY), body).result
}

fn set(path: &str, value: &str) -> String {
    format!(r#"[{{"op":"set","path":"{path}","value":{value}}}]"#)
}

fn body(written: &ItemWritten) -> Value {
    text::parse(&written.body, Limits::default()).expect("a body")
}

#[test]
fn a_patch_is_one_write() {
    let fixture = Fixture::new("");
    let created = fixture.create(r#"{"id":"1","pk":"p","n":1,"last":true}"#).expect("created");
    let answer =
        fixture.write(kind("1"), Some(KEY), r#"{"operations":[{"op":"incr","path":"/n","value":2}]}"#);
    let written = answer.result.expect("patched");
    assert!(!written.created && written.item_lsn == created.item_lsn + 1 && written.etag != created.etag);
    assert_eq!(answer.position.expect("a position").lsn, written.item_lsn);
    let replaced = fixture.write(
        WriteKind::Replace { id: "1".to_owned() },
        Some(KEY),
        r#"{"id":"1","pk":"p","n":3,"last":true}"#,
    );
    assert_eq!(answer.charge, replaced.charge);
    let names: Vec<String> = match body(&written) {
        Value::Object(object) => object.names().map(str::to_owned).collect(),
        other => panic!("{other:?}"),
    };
    assert_eq!(names.join(","), "id,pk,n,last,_rid,_self,_etag,_attachments,_ts");
    assert_eq!(number_of(&fixture.read("1", KEY).expect("there"), "n"), 3);
    // The index follows.
    let found = fixture.all(Some("SELECT VALUE c.id FROM c WHERE c.n = 3"), &Default::default(), -1);
    assert_eq!(found.len(), 1);
}

#[test]
fn checks_come_in_the_services_order() {
    let fixture = Fixture::new("");
    let bad = r#"{"operations":[{"op":"nonsense"}],"condition":"FROM c WHERE false"}"#;
    assert!(matches!(patch(&fixture, "1", bad), Err(EngineError::ItemNotFound { .. })));
    let created = fixture.create(r#"{"id":"1","pk":"p"}"#).expect("created");
    let stale = fixture.write_if(kind("1"), Some(KEY), bad, Some("\"stale\"")).result;
    assert!(matches!(stale, Err(EngineError::PreconditionFailed)));
    assert!(matches!(patch(&fixture, "1", bad), Err(EngineError::PatchConditionNotMet)));
    let none_match = |etag: &str| {
        let kind = WriteKind::Patch { id: "1".to_owned(), if_none_match: Some(etag.to_owned()) };
        fixture.write(kind, Some(KEY), &set("/n", "1")).result
    };
    assert!(matches!(none_match(&created.etag), Err(EngineError::PreconditionFailed)));
    assert!(matches!(none_match("*"), Err(EngineError::PreconditionFailed)));
    none_match("\"other\"").expect("another version");
    let missing_key = fixture.write(kind("1"), None, &set("/n", "1")).result;
    assert!(matches!(missing_key, Err(EngineError::PartitionKeyMissing)));
    assert!(matches!(patch(&fixture, "1", "nonsense"), Err(EngineError::BadJson(_))));
}

#[test]
fn conditions_see_the_current_item() {
    let fixture = Fixture::new("");
    let created = fixture.create(r#"{"id":"1","pk":"p","state":"open"}"#).expect("created");
    let close = |condition: &str| {
        let condition = condition.replace('"', "\\\"");
        let patch_body = format!(
            r#"{{"condition":"{condition}","operations":[{{"op":"set","path":"/state","value":"closed"}}]}}"#
        );
        patch(&fixture, "1", &patch_body)
    };
    let etag = created.etag.trim_matches('"');
    assert!(matches!(close("FROM c WHERE c._etag = 'other'"), Err(EngineError::PatchConditionNotMet)));
    close(&format!(r#"FROM c WHERE c._etag = '"{etag}"' AND c.state = 'open'"#)).expect("still open");
    assert!(matches!(close("FROM c WHERE c.state = 'open'"), Err(EngineError::PatchConditionNotMet)));
    let out_of_scope = close("FROM x WHERE c.y != 1");
    assert!(matches!(out_of_scope, Err(EngineError::Sql(_))));
    close("FROM x WHERE x._ts > 0 AND GetCurrentTimestamp() > 0").expect("system properties and the clock");
}

#[test]
fn the_result_must_be_a_valid_item() {
    let fixture = Fixture::new(r#""defaultTtl":-1"#);
    fixture.create(r#"{"id":"1","pk":"p","t":"x"}"#).expect("created");
    let large = format!(r#""{}""#, "x".repeat((2 << 20) - 200));
    patch(&fixture, "1", &set("/a", &large)).expect("just fits");
    assert!(matches!(patch(&fixture, "1", &set("/b", &large)), Err(EngineError::ItemTooLarge { .. })));
    patch(&fixture, "1", r#"[{"op":"remove","path":"/a"}]"#).expect("removed");
    assert!(matches!(patch(&fixture, "1", &set("/ttl", "0")), Err(EngineError::BadTtl(_))));
    assert!(matches!(patch(&fixture, "1", &set("/ttl", "null")), Err(EngineError::BadTtl(_))));
    patch(&fixture, "1", &set("/ttl", "100")).expect("a time to live");
    fixture.clock.advance(60);
    patch(&fixture, "1", &set("/t", "1")).expect("starts the time anew");
    fixture.clock.advance(60);
    assert_eq!(number_of(&fixture.read("1", KEY).expect("there"), "t"), 1);
    fixture.clock.advance(60);
    assert!(matches!(patch(&fixture, "1", &set("/t", "2")), Err(EngineError::ItemNotFound { .. })));
}

#[test]
fn unique_keys_hold() {
    let fixture = Fixture::new(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/mail"]}]},"defaultTtl":-1"#);
    fixture.create(r#"{"id":"1","pk":"p","mail":"a"}"#).expect("created");
    fixture.create(r#"{"id":"2","pk":"p","mail":"b","ttl":10}"#).expect("created");
    assert!(matches!(patch(&fixture, "1", &set("/mail", "\"b\"")), Err(EngineError::UniqueKeyTaken { .. })));
    patch(&fixture, "1", &set("/mail", "\"a\"")).expect("its own");
    patch(&fixture, "1", &set("/other", "1")).expect("something else");
    fixture.clock.advance(11);
    patch(&fixture, "1", &set("/mail", "\"b\"")).expect("its holder has expired");
    fixture.create(r#"{"id":"3","pk":"p","mail":"a"}"#).expect("freed");
    assert!(matches!(patch(&fixture, "3", &set("/mail", "\"b\"")), Err(EngineError::UniqueKeyTaken { .. })));
    assert_eq!(text_of(&fixture.read("1", KEY).expect("there"), "mail"), "b");
}

#[test]
fn concurrent_patches_lose_nothing() {
    const THREADS: i64 = 6;
    const EACH: i64 = 40;
    let fixture = Fixture::new(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/slot"]}]}"#);
    fixture.create(r#"{"id":"1","pk":"p","n":0,"log":[],"slot":0}"#).expect("created");
    fixture.create(r#"{"id":"2","pk":"p","n":0,"slot":-1}"#).expect("created");
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for worker in 0..THREADS {
            let (fixture, start) = (&fixture, &start);
            scope.spawn(move || {
                start.wait();
                for step in 0..EACH {
                    let slot = worker * EACH + step + 1;
                    let operations = format!(
                        r#"[{{"op":"incr","path":"/n","value":1}},{{"op":"add","path":"/log/-","value":{slot}}},{{"op":"set","path":"/slot","value":{slot}}}]"#
                    );
                    patch(fixture, "1", &operations).expect("patched");
                    // Now and then in the way of the other item's unique value.
                    match patch(fixture, "2", &set("/slot", &slot.to_string())) {
                        Ok(_) | Err(EngineError::UniqueKeyTaken { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let item = fixture.read("1", KEY).expect("there");
    assert_eq!(number_of(&item, "n"), THREADS * EACH);
    let mut log: Vec<i64> =
        item.get("log").and_then(Value::as_array).expect("a log").iter().filter_map(Value::as_i64).collect();
    log.sort_unstable();
    assert_eq!(log, (1..=THREADS * EACH).collect::<Vec<_>>());
    let other = fixture.read("2", KEY).expect("there");
    assert_ne!(number_of(&other, "slot"), number_of(&item, "slot"));
}
