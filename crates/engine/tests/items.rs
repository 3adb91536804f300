//! Items at the engine's boundary: what each operation answers.

mod support;

use quire_engine::{EngineError, ItemRead, ReadItem, WriteKind};
use quire_resource::{NameError, PartitionKeyError, SessionToken};
use quire_value::Value;
use support::fixture::{Fixture, json, number_of, pk, text_of};

#[test]
fn an_item_comes_back_with_its_system_properties_in_order() {
    let fixture = Fixture::new("");
    let written =
        fixture.create(r#"{"z":1,"id":"a","pk":"p","_ts":5,"_etag":"x","_lsn":9}"#).expect("created");
    assert!(written.created);
    let body = String::from_utf8(written.body.to_vec()).expect("UTF-8");
    let value = json(&body);
    let names: Vec<&str> = value.as_object().expect("object").iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["z", "id", "pk", "_rid", "_self", "_etag", "_attachments", "_ts"]);
    assert_eq!(number_of(&value, "_ts"), fixture.clock.now());
    assert_eq!(text_of(&value, "_etag"), written.etag);
    assert!(written.etag.starts_with('"') && written.etag.ends_with('"'));
    let rid = text_of(&value, "_rid");
    assert_eq!(
        text_of(&value, "_self"),
        format!("{}docs/{rid}/", fixture.container.resource.rid.self_link())
    );
    for _ in 0..3 {
        // from the storage, then from the cache
        let answer = fixture.read_answer("a", r#"["p"]"#);
        assert_eq!(answer.charge, 1.0);
        let Ok(ItemRead::Found { body: read, etag, item_lsn }) = answer.result else { panic!("not found") };
        assert_eq!((&read[..], &*etag, item_lsn), (body.as_bytes(), &*written.etag, 1));
    }
}

#[test]
fn operations_on_what_is_there_and_what_is_not() {
    let fixture = Fixture::new("");
    assert!(matches!(fixture.read("a", r#"["p"]"#), Err(EngineError::ItemNotFound { .. })));
    assert!(matches!(fixture.replace("a", r#"{"id":"a","pk":"p"}"#), Err(EngineError::ItemNotFound { .. })));
    assert!(matches!(fixture.delete("a", r#"["p"]"#), Err(EngineError::ItemNotFound { .. })));
    assert!(fixture.upsert(r#"{"id":"a","pk":"p","n":1}"#).expect("inserted").created);
    assert!(matches!(fixture.create(r#"{"id":"a","pk":"p"}"#), Err(EngineError::ItemExists { .. })));
    let first = fixture.read("a", r#"["p"]"#).expect("there");
    assert!(!fixture.upsert(r#"{"id":"a","pk":"p","n":2}"#).expect("replaced").created);
    assert!(!fixture.replace("a", r#"{"id":"a","pk":"p","n":3}"#).expect("replaced").created);
    let last = fixture.read("a", r#"["p"]"#).expect("there");
    assert_eq!(number_of(&last, "n"), 3);
    assert_eq!(text_of(&first, "_rid"), text_of(&last, "_rid"));
    assert_ne!(text_of(&first, "_etag"), text_of(&last, "_etag"));
    // the same id under another key is another item
    assert!(fixture.create(r#"{"id":"a","pk":"q"}"#).expect("created").created);
    assert!(fixture.delete("a", r#"["p"]"#).expect("deleted").body.is_empty());
    assert!(fixture.read("a", r#"["p"]"#).is_err());
    assert!(fixture.read("a", r#"["q"]"#).is_ok());
    let again = fixture.create(r#"{"id":"a","pk":"p"}"#).expect("created again");
    assert_ne!(text_of(&json(&String::from_utf8_lossy(&again.body)), "_rid"), text_of(&last, "_rid"));
}

#[test]
fn bad_bodies_are_refused_and_change_nothing() {
    let fixture = Fixture::new("");
    let refused = |body: &str| fixture.create(body).err().unwrap_or_else(|| panic!("{body} was accepted"));
    assert!(matches!(refused("{"), EngineError::BadJson(_)));
    assert!(matches!(refused(r#"{"id":"a","id":"b","pk":1}"#), EngineError::BadJson(_)));
    assert!(matches!(refused(r#"{"id":"a","n":1e999}"#), EngineError::BadJson(_)));
    for body in ["[]", "1", "null", "\"text\""] {
        assert!(matches!(refused(body), EngineError::BadRequest { .. }), "{body}");
    }
    assert!(matches!(refused(r#"{"pk":"p"}"#), EngineError::MissingProperties { .. }));
    assert!(matches!(refused(r#"{"id":null,"pk":"p"}"#), EngineError::MissingProperties { .. }));
    assert!(matches!(refused(r#"{"id":7,"pk":"p"}"#), EngineError::BadRequest { .. }));
    assert!(matches!(refused(r#"{"id":"","pk":"p"}"#), EngineError::BadName(NameError::Length { .. })));
    let long = format!(r#"{{"id":"{}","pk":"p"}}"#, "x".repeat(1024));
    assert!(matches!(refused(&long), EngineError::BadName(_)));
    let deep =
        |levels: usize| format!(r#"{{"id":"a","pk":"p","x":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    assert!(matches!(refused(&deep(128)), EngineError::BadJson(_)));
    assert!(fixture.create(&deep(127)).is_ok());
    assert_eq!(fixture.container.usage().0, 1);
}

#[test]
fn the_size_limit_counts_compact_json_without_system_properties() {
    let fixture = Fixture::new("");
    let item = |bytes: usize, white: &str| {
        let frame = r#"{"id":"a","pk":"p","x":""}"#.len();
        format!(r#"{{"id":"a",{white}"pk":"p","x":"{}"}}"#, "x".repeat(bytes - frame))
    };
    let max = 2 << 20;
    assert!(fixture.upsert(&item(max, "   \n  ")).is_ok());
    assert!(matches!(
        fixture.upsert(&item(max + 1, "")),
        Err(EngineError::ItemTooLarge { bytes, bytes_max }) if bytes == max + 1 && bytes_max == max
    ));
    assert_eq!(fixture.container.usage(), (1, max as u64));
    let answer = fixture.write(WriteKind::Upsert, None, r#"{"id":"a","pk":"p"}"#);
    assert!(answer.result.is_ok());
    assert_eq!(fixture.container.usage(), (1, 19));
}

#[test]
fn the_header_must_agree_with_the_body() {
    let fixture = Fixture::new("");
    let create = |key: Option<&str>, body: &str| fixture.write(WriteKind::Create, key, body).result;
    assert!(matches!(
        create(Some(r#"["q"]"#), r#"{"id":"a","pk":"p"}"#),
        Err(EngineError::PartitionKeyMismatch)
    ));
    assert!(matches!(create(Some("[null]"), r#"{"id":"a"}"#), Err(EngineError::PartitionKeyMismatch)));
    assert!(create(Some("[{}]"), r#"{"id":"a"}"#).is_ok());
    assert!(create(Some("[null]"), r#"{"id":"a","pk":null}"#).is_ok());
    assert!(create(Some("[1.0]"), r#"{"id":"a","pk":1}"#).is_ok());
    assert!(create(Some("[true]"), r#"{"id":"a","pk":true}"#).is_ok());
    // an object counts as absent, so this is the item from above
    assert!(matches!(
        create(Some("[{}]"), r#"{"id":"a","pk":{"x":1}}"#),
        Err(EngineError::ItemExists { .. })
    ));
    let keys = ["[{}]", "[null]", "[1]", "[true]"];
    assert!(keys.iter().all(|key| fixture.read("a", key).is_ok()));
    let none = |kind: WriteKind| fixture.write(kind, None, "").result;
    assert!(matches!(none(WriteKind::Delete { id: "a".into() }), Err(EngineError::PartitionKeyMissing)));
    let few = EngineError::BadPartitionKey(PartitionKeyError::TooFew).to_string();
    assert_eq!(create(Some("[]"), r#"{"id":"x","pk":"p"}"#).err().map(|error| error.to_string()), Some(few));
    assert!(matches!(
        fixture.read("a", "[1,2]"),
        Err(EngineError::BadPartitionKey(PartitionKeyError::TooMany))
    ));
}

#[test]
fn a_replace_with_another_id_renames() {
    let fixture = Fixture::new(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]},"defaultTtl":-1"#);
    let key = r#"["p"]"#;
    fixture.create(r#"{"id":"a","pk":"p","u":1,"n":1}"#).expect("created");
    fixture.create(r#"{"id":"taken","pk":"p","u":2}"#).expect("created");
    fixture.create(r#"{"id":"expired","pk":"p","u":3,"ttl":5}"#).expect("created");
    let before = fixture.read("a", key).expect("read");
    let lsn = fixture.container.positions()[0].lsn;
    assert!(matches!(
        fixture.replace("a", r#"{"id":"taken","pk":"p","u":1}"#),
        Err(EngineError::ItemExists { id }) if id == "taken"
    ));
    let replace = WriteKind::Replace { id: "a".to_owned() };
    let moved = fixture.write(replace, Some(key), r#"{"id":"b","pk":"q"}"#);
    assert!(matches!(moved.result, Err(EngineError::PartitionKeyMismatch)), "the key stays");
    assert_eq!(fixture.container.positions()[0].lsn, lsn);

    let written = fixture.replace("a", r#"{"id":"b","pk":"p","u":1,"n":2}"#).expect("renamed");
    assert!(!written.created);
    assert_eq!(fixture.container.positions()[0].lsn, lsn + 1, "one commit");
    assert!(matches!(fixture.read("a", key), Err(EngineError::ItemNotFound { .. })));
    let after = fixture.read("b", key).expect("read");
    assert_eq!((text_of(&after, "_rid"), number_of(&after, "n")), (text_of(&before, "_rid"), 2));
    let ids = |query: &str| fixture.all(Some(query), &Default::default(), -1).len();
    assert_eq!(ids("SELECT * FROM c WHERE c.id = 'a'"), 0);
    assert_eq!(ids("SELECT * FROM c WHERE c.id = 'b' AND c.n = 2"), 1);
    fixture.create(r#"{"id":"a","pk":"p","u":9}"#).expect("the old id is free");

    // An expired item has no claim to its id.
    fixture.clock.advance(10);
    fixture.replace("b", r#"{"id":"expired","pk":"p","u":1}"#).expect("renamed");
    assert_eq!(text_of(&fixture.read("expired", key).expect("read"), "_rid"), text_of(&before, "_rid"));
    assert_eq!(fixture.container.usage().0, 3);
    assert!(matches!(fixture.replace("b", r#"{"id":"b","pk":"p"}"#), Err(EngineError::ItemNotFound { .. })));
    let report = quire_engine::verify(&*fixture.storage).expect("reads");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn what_is_missing_is_missing_whatever_the_body_says() {
    let fixture = Fixture::new("");
    fixture.create(r#"{"id":"a","pk":"p"}"#).expect("created");
    let write = |kind: WriteKind, body: &str| fixture.write(kind, Some(r#"["p"]"#), body).result.err();
    for body in ["{", "[]", "{}", r#"{"id":7}"#, r#"{"id":"x","pk":"other"}"#] {
        let replace = |id: &str| write(WriteKind::Replace { id: id.to_owned() }, body);
        assert!(matches!(replace("gone"), Some(EngineError::ItemNotFound { .. })), "{body}");
        assert!(!matches!(replace("a"), None | Some(EngineError::ItemNotFound { .. })), "{body}");
        let patch = |id: &str| write(WriteKind::Patch { id: id.to_owned(), if_none_match: None }, body);
        assert!(matches!(patch("gone"), Some(EngineError::ItemNotFound { .. })), "{body}");
        assert!(!matches!(patch("a"), None | Some(EngineError::ItemNotFound { .. })), "{body}");
    }
}

#[test]
fn preconditions() {
    let fixture = Fixture::new("");
    let body = r#"{"id":"a","pk":"p"}"#;
    let first = fixture.create(body).expect("created").etag;
    let upsert = |condition: &str| fixture.write_if(WriteKind::Upsert, None, body, Some(condition)).result;
    let second = upsert(&first).expect("matches").etag;
    assert!(matches!(upsert(&first), Err(EngineError::PreconditionFailed)));
    let third = upsert(second.trim_matches('"')).expect("without quotes").etag;
    let fourth = upsert("*").expect("any").etag;
    let replace = |condition: &str| {
        fixture.write_if(WriteKind::Replace { id: "a".into() }, None, body, Some(condition)).result
    };
    assert!(matches!(replace(&third), Err(EngineError::PreconditionFailed)));
    let fifth = replace(&fourth).expect("matches").etag;
    let delete = |condition: &str| {
        fixture.write_if(WriteKind::Delete { id: "a".into() }, Some(r#"["p"]"#), "", Some(condition))
    };
    let refused = delete(&fourth);
    assert!(matches!(refused.result, Err(EngineError::PreconditionFailed)));
    assert_eq!((refused.charge, refused.position.map(|position| position.lsn)), (1.0, Some(5)));
    assert!(delete(&fifth).result.is_ok());
    assert!(matches!(replace("*"), Err(EngineError::ItemNotFound { .. })));
    assert!(upsert(&fifth).expect("the condition is about replacing only").created);
}

#[test]
fn a_known_version_is_not_sent_again() {
    let fixture = Fixture::new("");
    let etag = fixture.create(r#"{"id":"a","pk":"p"}"#).expect("created").etag;
    let key = pk(r#"["p"]"#);
    for (condition, known) in [(&*etag, true), ("*", true), ("\"other\"", false)] {
        let read = ReadItem { id: "a", partition_key: &key, if_none_match: Some(condition), session: None };
        for answer in [
            Some(fixture.engine.read_item(&fixture.container, &read)),
            fixture.engine.read_item_cached(&fixture.container, &read),
        ] {
            let result = answer.expect("cached by the first read").result.expect("there");
            assert_eq!(matches!(result, ItemRead::NotModified { .. }), known, "{condition}");
        }
    }
}

#[test]
fn hierarchical_keys_need_all_levels() {
    let key = r#"{"paths":["/t","/u"],"kind":"MultiHash","version":2}"#;
    let fixture = Fixture::with_key(key, "", 1);
    fixture.create(r#"{"id":"a","t":"x","u":1}"#).expect("created");
    assert!(fixture.read("a", r#"["x",1]"#).is_ok());
    assert!(matches!(
        fixture.read("a", r#"["x"]"#),
        Err(EngineError::BadPartitionKey(PartitionKeyError::TooFew))
    ));
    fixture.create(r#"{"id":"b","t":"x"}"#).expect("a level may be absent in the item");
    assert!(fixture.read("b", r#"["x",{}]"#).is_ok());
}

#[test]
fn system_keys_know_an_empty_key() {
    let key = r#"{"paths":["/_partitionKey"],"kind":"Hash","version":2,"systemKey":true}"#;
    let fixture = Fixture::with_key(key, "", 2);
    assert!(fixture.write(WriteKind::Create, Some("[]"), r#"{"id":"a"}"#).result.is_ok());
    assert!(matches!(fixture.create(r#"{"id":"a"}"#), Err(EngineError::ItemExists { .. })));
    assert!(fixture.read("a", "[]").is_ok() && fixture.read("a", "[{}]").is_ok());
    assert!(fixture.create(r#"{"id":"a","_partitionKey":"k"}"#).is_ok());
    let scope = quire_engine::Scope { partition_key: Some(pk("[]")), ..Default::default() };
    assert_eq!(fixture.all(None, &scope, -1).len(), 1);
}

/// Version 1 hashes and keeps the first 100 characters: longer keys collide, and are still distinguished.
#[test]
fn colliding_keys_are_distinguished() {
    let fixture = Fixture::with_key(
        r#"{"paths":["/pk"],"kind":"Hash"}"#,
        r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#,
        1,
    );
    let (one, two) = (format!("{}1", "k".repeat(100)), format!("{}2", "k".repeat(100)));
    let item = |id: &str, key: &str, u: i64| format!(r#"{{"id":"{id}","pk":"{key}","u":{u}}}"#);
    let header = |key: &str| format!(r#"["{key}"]"#);
    fixture.create(&item("a", &one, 1)).expect("created");
    assert!(matches!(fixture.create(&item("a", &two, 2)), Err(EngineError::HashCollision)));
    assert!(matches!(fixture.upsert(&item("a", &two, 2)), Err(EngineError::HashCollision)));
    assert!(matches!(fixture.replace("a", &item("a", &two, 2)), Err(EngineError::ItemNotFound { .. })));
    assert!(matches!(fixture.delete("a", &header(&two)), Err(EngineError::ItemNotFound { .. })));
    assert!(fixture.read("a", &header(&one)).is_ok());
    for _ in 0..2 {
        assert!(matches!(fixture.read("a", &header(&two)), Err(EngineError::ItemNotFound { .. })));
    }
    // unique values and lists are those of the real key
    fixture.create(&item("b", &two, 1)).expect("another logical partition");
    assert!(matches!(fixture.create(&item("c", &one, 1)), Err(EngineError::UniqueKeyTaken { .. })));
    let scope = quire_engine::Scope { partition_key: Some(pk(&header(&two))), ..Default::default() };
    let listed = fixture.all(None, &scope, -1);
    assert_eq!(listed.iter().map(|item| text_of(item, "id")).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn unique_keys() {
    let fixture =
        Fixture::new(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u","/v/w"]},{"paths":["/x"]}]}"#);
    fixture.create(r#"{"id":"1","pk":"p","u":1,"v":{"w":"a"},"x":1}"#).expect("created");
    let taken = |body: &str| matches!(fixture.upsert(body), Err(EngineError::UniqueKeyTaken { .. }));
    assert!(taken(r#"{"id":"2","pk":"p","u":1.0,"v":{"w":"a"},"x":2}"#));
    assert!(taken(r#"{"id":"2","pk":"p","u":2,"x":1}"#));
    assert!(!taken(r#"{"id":"2","pk":"q","u":1,"v":{"w":"a"},"x":1}"#));
    assert!(!taken(r#"{"id":"3","pk":"p","u":1,"v":{"w":"A"},"x":"1"}"#));
    // missing is null, once
    assert!(!taken(r#"{"id":"4","pk":"p","x":null}"#));
    assert!(taken(r#"{"id":"5","pk":"p","u":null,"v":{},"x":5}"#));
    assert!(taken(r#"{"id":"5","pk":"p","u":5}"#));
    // its own values are no obstacle, changed ones are free at once
    assert!(!taken(r#"{"id":"1","pk":"p","u":1,"v":{"w":"a"},"x":1,"more":true}"#));
    assert!(taken(r#"{"id":"3","pk":"p","u":1,"v":{"w":"a"},"x":3}"#));
    assert!(!taken(r#"{"id":"1","pk":"p","u":9,"v":{"w":"a"},"x":9}"#));
    assert!(!taken(r#"{"id":"3","pk":"p","u":1,"v":{"w":"a"},"x":1}"#));
    fixture.delete("3", r#"["p"]"#).expect("deleted");
    assert!(!taken(r#"{"id":"6","pk":"p","u":1,"v":{"w":"a"},"x":1}"#));
    let items = fixture.rows(1, &[]);
    assert_eq!((items, fixture.rows(2, &[1]), fixture.rows(2, &[2]), fixture.rows(4, &[1])), (4, 4, 8, 4));
}

#[test]
fn expired_items_are_invisible_at_once_and_block_no_write() {
    let fixture = Fixture::new(r#""defaultTtl":100,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#);
    for bad in ["0", "-2", "1.5", "null", "\"1\"", "2147483648"] {
        let body = format!(r#"{{"id":"a","pk":"p","ttl":{bad}}}"#);
        assert!(matches!(fixture.create(&body), Err(EngineError::BadTtl(_))), "{bad}");
    }
    fixture.create(r#"{"id":"own","pk":"p","u":1,"ttl":10}"#).expect("created");
    fixture.create(r#"{"id":"default","pk":"p","u":2}"#).expect("created");
    fixture.create(r#"{"id":"never","pk":"p","u":3,"ttl":-1}"#).expect("created");
    assert_eq!(fixture.rows(4, &[2]), 1);
    let old = fixture.read("own", r#"["p"]"#).expect("there, and cached");
    fixture.clock.advance(9);
    assert!(fixture.read("own", r#"["p"]"#).is_ok());
    fixture.clock.advance(1);
    assert!(matches!(fixture.read("own", r#"["p"]"#), Err(EngineError::ItemNotFound { .. })));
    assert!(matches!(fixture.delete("own", r#"["p"]"#), Err(EngineError::ItemNotFound { .. })));
    let ids = |fixture: &Fixture| {
        fixture
            .all(None, &Default::default(), -1)
            .iter()
            .map(|item| text_of(item, "id").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&fixture), ["default", "never"]);
    // its unique value is free, and taking it removes the item for good
    fixture.create(r#"{"id":"heir","pk":"p","u":1}"#).expect("the value is free");
    assert_eq!(
        (
            fixture.rows(1, &[]),
            fixture.rows(2, &[1]),
            fixture.rows(2, &[2]),
            fixture.rows(4, &[1]),
            fixture.rows(4, &[2])
        ),
        (3, 3, 3, 3, 0)
    );
    assert_eq!(fixture.container.usage().0, 3);
    fixture.clock.advance(90);
    assert!(matches!(fixture.read("default", r#"["p"]"#), Err(EngineError::ItemNotFound { .. })));
    let created = fixture.upsert(r#"{"id":"default","pk":"p","u":2}"#).expect("a new item");
    assert!(created.created);
    let new = fixture.read("default", r#"["p"]"#).expect("there");
    assert_ne!(text_of(&old, "_rid"), text_of(&new, "_rid"));
    assert_eq!((fixture.rows(1, &[]), fixture.rows(2, &[1]), fixture.rows(4, &[1])), (3, 3, 3));
    fixture.clock.advance(1_000_000);
    assert_eq!(ids(&fixture), ["never"]);
}

#[test]
fn every_write_restarts_the_clock_of_an_item() {
    let fixture = Fixture::new(r#""defaultTtl":-1"#);
    fixture.create(r#"{"id":"a","pk":"p","ttl":10}"#).expect("created");
    for _ in 0..3 {
        fixture.clock.advance(9);
        fixture.upsert(r#"{"id":"a","pk":"p","ttl":10}"#).expect("replaced");
        fixture.upsert(r#"{"id":"a","pk":"p","ttl":10}"#).expect("in the same second");
        assert_eq!(fixture.rows(4, &[2]), 1);
    }
    fixture.upsert(r#"{"id":"a","pk":"p"}"#).expect("without a ttl now");
    assert_eq!(fixture.rows(4, &[2]), 0);
    fixture.clock.advance(1_000_000);
    assert!(fixture.read("a", r#"["p"]"#).is_ok());
}

#[test]
fn ttl_is_checked_but_without_effect_until_it_is_switched_on() {
    let mut fixture = Fixture::new("");
    fixture.create(r#"{"id":"a","pk":"p","ttl":5}"#).expect("created");
    fixture.create(r#"{"id":"b","pk":"p","ttl":-1}"#).expect("created");
    for bad in ["0", "-2", "1.5", "\"soon\"", "null"] {
        let item = format!(r#"{{"id":"bad","pk":"p","ttl":{bad}}}"#);
        assert!(matches!(fixture.create(&item), Err(EngineError::BadTtl(_))), "{bad}");
    }
    fixture.clock.advance(100);
    assert!(fixture.read("a", r#"["p"]"#).is_ok());
    let definition =
        json(r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1}"#);
    fixture.container = fixture
        .engine
        .catalog()
        .replace_container("db", "c", &definition, &Default::default())
        .expect("replaced");
    assert!(matches!(fixture.read("a", r#"["p"]"#), Err(EngineError::ItemNotFound { .. })));
    assert!(fixture.read("b", r#"["p"]"#).is_ok());
}

#[test]
fn time_to_live_counts_from_a_property() {
    let fixture = Fixture::new(r#""defaultTtl":100,"ttlPropertyPath":"/at/made""#);
    let now = fixture.clock.now();
    let item = |id: &str, made: i64, more: &str| {
        let body = format!(r#"{{"id":"{id}","pk":"p","at":{{"made":{made}}}{more}}}"#);
        fixture.create(&body).expect("created");
    };
    item("minute", now - 60, "");
    item("own", now - 60, r#","ttl":80"#);
    item("never", now - 1000, r#","ttl":-1"#);
    item("future", now + 50, "");
    // What is over when it is written is gone a second later.
    item("past", now - 1000, "");
    fixture.create(r#"{"id":"plain","pk":"p","at":{"made":"now"}}"#).expect("created");
    let visible = || {
        let all = fixture.all(Some("SELECT VALUE c.id FROM c"), &Default::default(), -1);
        let mut ids: Vec<_> = all.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        ids.sort();
        ids.join(" ")
    };
    for (seconds, expected) in [
        (0, "future minute never own past plain"),
        (1, "future minute never own plain"),
        (20, "future minute never plain"),
        (20, "future never plain"),
        (60, "future never"),
        (50, "never"),
    ] {
        fixture.clock.advance(seconds);
        assert_eq!(visible(), expected);
    }
    let report = quire_engine::verify(&*fixture.storage).expect("reads");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn ts_never_goes_back() {
    let fixture = Fixture::new("");
    fixture.create(r#"{"id":"a","pk":"p"}"#).expect("created");
    fixture.clock.advance(-1000);
    fixture.create(r#"{"id":"b","pk":"p"}"#).expect("created");
    let ts = |id: &str| number_of(&fixture.read(id, r#"["p"]"#).expect("there"), "_ts");
    assert_eq!(ts("a"), ts("b"));
}

#[test]
fn session_tokens_are_a_floor() {
    let fixture = Fixture::new("");
    let lsn = fixture.write(WriteKind::Create, None, r#"{"id":"a","pk":"p"}"#).position.expect("routed").lsn;
    let key = pk(r#"["p"]"#);
    let read = |token: &str| {
        let session = SessionToken::parse(token).expect("token");
        let read = ReadItem { id: "a", partition_key: &key, if_none_match: None, session: Some(&session) };
        match fixture.engine.read_item_cached(&fixture.container, &read) {
            Some(answer) => answer.result.map(|_| ()),
            None => fixture.engine.read_item(&fixture.container, &read).result.map(|_| ()),
        }
    };
    for round in 0..2 {
        assert!(read(&format!("0:-1#{lsn}")).is_ok(), "round {round}");
        assert!(read("0:-1#0").is_ok());
        assert!(read("7:-1#99").is_ok(), "of a range that is not here");
        assert!(matches!(read(&format!("0:-1#{}", lsn + 1)), Err(EngineError::SessionNotAvailable)));
        assert!(matches!(read("0:3#0"), Err(EngineError::SessionNotAvailable)), "of another incarnation");
    }
}

#[test]
fn charges_follow_size_and_indexed_values() {
    let fixture = Fixture::new(r#""indexingPolicy":{"indexingMode":"none","automatic":false}"#);
    let body = r#"{"id":"a","pk":"p"}"#;
    let charge = |kind: WriteKind, body: &str| fixture.write(kind, Some(r#"["p"]"#), body).charge;
    assert_eq!(charge(WriteKind::Create, body), 5.0);
    assert_eq!(charge(WriteKind::Create, body), 1.0);
    assert_eq!(charge(WriteKind::Upsert, body), 10.0);
    assert_eq!(charge(WriteKind::Delete { id: "a".into() }, ""), 5.0);
    assert_eq!(charge(WriteKind::Delete { id: "a".into() }, ""), 1.0);
    let indexed = Fixture::new("");
    let answer = indexed.write(WriteKind::Create, None, body);
    assert_eq!(answer.charge, 5.0 + 0.35 * 2.0);
}

#[test]
fn counts_and_positions_survive_a_restart() {
    let fixture = Fixture::new("");
    for n in 0..10 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"p"}}"#)).expect("created");
    }
    fixture.delete("3", r#"["p"]"#).expect("deleted");
    let before =
        (fixture.container.usage(), fixture.container.positions().iter().map(|p| p.lsn).collect::<Vec<_>>());
    assert_eq!(before, ((9, 9 * 19), vec![11]));
    let again = fixture.reopened(std::sync::Arc::clone(&fixture.storage));
    assert_eq!(
        (again.container.usage(), again.container.positions().iter().map(|p| p.lsn).collect::<Vec<_>>()),
        before
    );
    let rids = |fixture: &Fixture| {
        fixture
            .all(None, &Default::default(), -1)
            .iter()
            .map(|item| text_of(item, "_rid").to_owned())
            .collect::<std::collections::HashSet<_>>()
    };
    let old = rids(&fixture);
    let created = again.create(r#"{"id":"new","pk":"p"}"#).expect("created");
    assert!(!old.contains(text_of(&json(&String::from_utf8_lossy(&created.body)), "_rid")));
    assert_eq!(created.item_lsn, 12);
}

#[test]
fn a_deleted_container_takes_nothing_and_shows_nothing() {
    let fixture = Fixture::new("");
    fixture.create(r#"{"id":"a","pk":"p"}"#).expect("created");
    fixture.read("a", r#"["p"]"#).expect("cached");
    fixture.engine.catalog().delete_container("db", "c", &Default::default()).expect("deleted");
    let gone = |error: EngineError| matches!(error, EngineError::ResourceNotFound { kind: "container", id } if id == "c");
    assert!(fixture.read("a", r#"["p"]"#).err().is_some_and(gone));
    assert!(fixture.upsert(r#"{"id":"a","pk":"p"}"#).err().is_some_and(gone));
    assert!(
        fixture.page(None, &support::fixture::request(Default::default(), -1, None)).err().is_some_and(gone)
    );
}

/// Hours forth and back, each noticed by the next write; `_ts` does not go back.
#[test]
fn a_clock_that_jumps_is_counted() {
    let fixture = Fixture::new("");
    let jumps = || support::statistic(&fixture.engine, "clock_jumps");
    fixture.create(r#"{"id":"a","pk":"p"}"#).expect("created");
    assert_eq!(jumps(), 0);
    let mut latest = 0;
    for (seconds, count) in [(7200, 1), (-7200, 2), (5, 2)] {
        fixture.clock.advance(seconds);
        let written = fixture.upsert(r#"{"id":"a","pk":"p"}"#).expect("written");
        let stamp = number_of(&json(&String::from_utf8_lossy(&written.body)), "_ts");
        assert!(stamp >= latest, "{stamp} after {latest}");
        latest = stamp;
        assert_eq!(jumps(), count, "{seconds}");
    }
}

#[test]
fn ids_may_be_anything() {
    let fixture = Fixture::new("");
    for id in ["/", "\\", "?", "#", "%20", " ", "a b ", "é", "\u{1F600}", "..", "\u{0}", "\n"] {
        let mut object = quire_value::Object::new();
        object.set("id", id);
        object.set("pk", "p");
        fixture.create(&Value::Object(object).to_json()).expect("created");
        assert_eq!(text_of(&fixture.read(id, r#"["p"]"#).expect("there"), "id"), id);
        fixture.delete(id, r#"["p"]"#).expect("deleted");
    }
}
