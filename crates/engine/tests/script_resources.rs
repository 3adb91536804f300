//! Stored procedures, triggers and user-defined functions as resources of the catalog: what may be stored, who finds it,
//! what becomes of it. How they run is elsewhere.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use expect_test::expect;
use quire_engine::{Engine, EngineError, Precondition, Resource, ScriptKind, restore, verify};
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Commit, Direction, KeyRange, Op, Scan, Space, Storage, Token};
use quire_value::{Object, Value};
use support::{CONTAINER, container, dump, json, open, statistic, wait_for_reclaim};

const ANY: Precondition = Precondition { if_match: None };
const KINDS: [ScriptKind; 3] =
    [ScriptKind::StoredProcedure, ScriptKind::Trigger, ScriptKind::UserDefinedFunction];
const PROCEDURE: ScriptKind = ScriptKind::StoredProcedure;

/// A body that suits every kind.
fn script(id: &str, text: &str) -> Value {
    let mut body = Object::new();
    body.set("id", id);
    body.set("body", text);
    body.set("triggerType", "pre");
    body.set("triggerOperation", "ALL");
    Value::Object(body)
}

fn create(engine: &Engine, kind: ScriptKind, body: &Value) -> Result<Arc<Resource>, EngineError> {
    engine.catalog().create_script("d", "c", kind, body)
}

/// Three of each kind, all kinds with the same ids.
fn fill(engine: &Engine) {
    container(engine);
    for kind in KINDS {
        for id in ["a", "b", "name with ünï"] {
            create(engine, kind, &script(id, &format!("function {id}() {{}}"))).unwrap();
        }
    }
}

fn message(result: Result<impl Sized, EngineError>) -> String {
    match result {
        Ok(_) => "no error".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn scripts_are_the_same_after_the_store_was_opened_again() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    fill(&engine);
    let before = dump(&engine);
    engine.close().unwrap();
    let engine = open(&storage);
    assert_eq!(dump(&engine), before);
    assert_eq!(statistic(&engine, "scripts"), 9);
    let procedures: Vec<String> = engine
        .catalog()
        .scripts("d", "c", PROCEDURE)
        .unwrap()
        .iter()
        .map(|script| Value::Object(script.to_json()).to_json())
        .collect();
    expect![[r#"
        {"id":"a","body":"function a() {}","triggerType":"pre","triggerOperation":"ALL","_rid":"AAAAAYAAAAEBAAAAAAAAgA==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/sprocs/AAAAAYAAAAEBAAAAAAAAgA==/","_etag":"\"00000001-0001-0000-ca7a-000000000004\"","_ts":1700000000}"#]]
    .assert_eq(&procedures[0]);
    // Numbers go on where they were.
    let next = create(&engine, PROCEDURE, &script("next", "")).unwrap();
    assert_eq!(next.rid.to_string(), "AAAAAYAAAAEKAAAAAAAAgA==");
    engine.close().unwrap();
    assert_eq!(verify(&storage).unwrap().problems, Vec::<String>::new());
}

#[test]
fn the_text_is_kept_byte_for_byte_and_never_compiled() {
    let engine = open(&MemoryStorage::new());
    container(&engine);
    let long = " ".repeat(2 << 20);
    let texts = ["", "this is no JavaScript at all", "\r\n\tfunction () { 'ü日\u{1F600}\u{0}' }  ;\n", &long];
    for (kind, (number, text)) in
        KINDS.into_iter().flat_map(|kind| texts.iter().enumerate().map(move |text| (kind, text)))
    {
        let id = number.to_string();
        create(&engine, kind, &script(&id, text)).unwrap();
        let read = engine.catalog().script("d", "c", kind, &id).unwrap();
        assert_eq!(read.body.get("body").and_then(Value::as_str), Some(*text));
    }
    let larger = script("larger", &(long + " "));
    let error = create(&engine, PROCEDURE, &larger);
    assert!(matches!(error, Err(EngineError::ScriptTooLarge { bytes, bytes_max }) if bytes == bytes_max + 1));
}

#[test]
fn what_is_no_script_is_refused() {
    let engine = open(&MemoryStorage::new());
    container(&engine);
    let before = dump(&engine);
    let refused = |kind, body: &str| message(create(&engine, kind, &json(body)));
    let mut answers = String::new();
    for (kind, body) in [
        (PROCEDURE, r#"{}"#),
        (PROCEDURE, r#"{"id":"a"}"#),
        (PROCEDURE, r#"{"id":"a","body":null}"#),
        (PROCEDURE, r#"{"id":"a","body":7}"#),
        (PROCEDURE, r#"{"id":"a","body":{"code":"x"}}"#),
        (PROCEDURE, r#"{"id":7,"body":""}"#),
        (PROCEDURE, r#"{"id":"a/b","body":""}"#),
        (PROCEDURE, r#"{"id":"","body":""}"#),
        (PROCEDURE, r#"{"id":"__.sys.echo","body":""}"#),
        (PROCEDURE, r#"[]"#),
        (ScriptKind::UserDefinedFunction, r#"{"body":""}"#),
        (ScriptKind::Trigger, r#"{"id":"a"}"#),
        (ScriptKind::Trigger, r#"{"id":"a","body":"","triggerOperation":"All"}"#),
        (ScriptKind::Trigger, r#"{"id":"a","body":"","triggerType":"Pre"}"#),
        (ScriptKind::Trigger, r#"{"id":"a","body":"","triggerType":"During","triggerOperation":"All"}"#),
        (ScriptKind::Trigger, r#"{"id":"a","body":"","triggerType":"Pre","triggerOperation":"Read"}"#),
        (ScriptKind::Trigger, r#"{"id":"a","body":"","triggerType":1,"triggerOperation":"All"}"#),
    ] {
        answers.push_str(&format!("{body}\n    {}\n", refused(kind, body)));
    }
    expect![[r#"
        {}
            required properties missing: id; body
        {"id":"a"}
            required properties missing: body
        {"id":"a","body":null}
            required properties missing: body
        {"id":"a","body":7}
            One of the specified inputs is invalid
        {"id":"a","body":{"code":"x"}}
            One of the specified inputs is invalid
        {"id":7,"body":""}
            One of the specified inputs is invalid
        {"id":"a/b","body":""}
            The input name 'a/b' is invalid. It cannot contain the characters '/', '\', '?' or '#', or end with a space.
        {"id":"","body":""}
            The input name '' is invalid. Ensure to provide a unique non-empty string less than '255' characters.
        {"id":"__.sys.echo","body":""}
            Ids that begin with '__.sys.' are reserved.
        []
            One of the specified inputs is invalid
        {"body":""}
            required properties missing: id
        {"id":"a"}
            required properties missing: body; triggerType; triggerOperation
        {"id":"a","body":"","triggerOperation":"All"}
            required properties missing: triggerType
        {"id":"a","body":"","triggerType":"Pre"}
            required properties missing: triggerOperation
        {"id":"a","body":"","triggerType":"During","triggerOperation":"All"}
            The value 'During' of 'triggerType' is invalid: it must be one of Pre, Post.
        {"id":"a","body":"","triggerType":"Pre","triggerOperation":"Read"}
            The value 'Read' of 'triggerOperation' is invalid: it must be one of All, Create, Replace, Update, Delete, Upsert.
        {"id":"a","body":"","triggerType":1,"triggerOperation":"All"}
            One of the specified inputs is invalid
    "#]].assert_eq(&answers);
    assert!(message(create(&engine, PROCEDURE, &script(&"x".repeat(256), ""))).contains("is invalid"));
    create(&engine, PROCEDURE, &script(&"x".repeat(255), "")).unwrap();
    engine.catalog().delete_script("d", "c", PROCEDURE, &"x".repeat(255), &ANY).unwrap();
    assert_eq!(dump(&engine), before);
}

#[test]
fn words_of_triggers_are_taken_in_any_case_and_given_back_as_sent() {
    let engine = open(&MemoryStorage::new());
    container(&engine);
    for (number, operation) in ["All", "create", "REPLACE", "Update", "dElete", "upsert"].iter().enumerate() {
        for kind in ["Pre", "post"] {
            let id = format!("{kind}{number}");
            let body = format!(
                r#"{{"id":"{id}","body":"","triggerType":"{kind}","triggerOperation":"{operation}"}}"#
            );
            create(&engine, ScriptKind::Trigger, &json(&body)).unwrap();
            let read = engine.catalog().script("d", "c", ScriptKind::Trigger, &id).unwrap();
            assert_eq!(Value::Object(read.body.clone()).to_json(), body);
        }
    }
}

#[test]
fn a_script_is_found_by_name_and_by_rid_in_its_kind_and_container_only() {
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    engine.catalog().create_container("d", &json(&CONTAINER.replace("\"c\"", "\"other\"")), None).unwrap();
    let found = engine.catalog().script("d", "c", PROCEDURE, "a").unwrap();
    let rid = found.rid.to_string();
    assert_eq!(engine.catalog().script("d", "c", PROCEDURE, &rid).unwrap().id, "a");
    for (container, kind, segment) in
        [("c", ScriptKind::Trigger, rid.as_str()), ("other", PROCEDURE, &rid), ("other", PROCEDURE, "a")]
    {
        let missing = engine.catalog().script("d", container, kind, segment);
        assert!(matches!(missing, Err(EngineError::ResourceNotFound { .. })), "{container} {segment}");
    }
    assert!(matches!(
        engine.catalog().script("d", "x", PROCEDURE, "a"),
        Err(EngineError::OwnerNotFound { kind: "container", .. })
    ));
    assert!(matches!(
        engine.catalog().scripts("x", "c", PROCEDURE),
        Err(EngineError::OwnerNotFound { kind: "database", .. })
    ));
}

#[test]
fn scripts_are_replaced_upserted_and_deleted() {
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    for kind in KINDS {
        let first = engine.catalog().script("d", "c", kind, "a").unwrap();
        let taken = create(&engine, kind, &script("a", "other"));
        assert!(matches!(taken, Err(EngineError::AlreadyExists { .. })));
        let (second, created) = engine
            .catalog()
            .upsert_script("d", "c", kind, &script("a", "second"), &Precondition::default())
            .unwrap();
        assert!(!created && second.rid == first.rid && second.etag != first.etag);
        let stale = Precondition { if_match: Some(first.etag.clone()) };
        let replace = |id: &str, precondition| {
            engine.catalog().replace_script("d", "c", kind, "a", &script(id, "third"), precondition)
        };
        assert!(matches!(replace("a", &stale), Err(EngineError::PreconditionFailed)));
        assert!(matches!(replace("renamed", &ANY), Err(EngineError::BadRequest { .. })));
        let third = replace("a", &Precondition { if_match: Some(second.etag.clone()) }).unwrap();
        assert_eq!(third.rid, first.rid);
        assert_eq!(
            engine.catalog().script("d", "c", kind, "a").unwrap().body.get("body"),
            Some(&"third".into())
        );
        let delete = |precondition| engine.catalog().delete_script("d", "c", kind, "a", precondition);
        assert!(matches!(delete(&stale), Err(EngineError::PreconditionFailed)));
        delete(&ANY).unwrap();
        assert!(matches!(delete(&ANY), Err(EngineError::ResourceNotFound { .. })));
        let gone = engine.catalog().replace_script("d", "c", kind, "a", &script("a", ""), &ANY);
        assert!(matches!(gone, Err(EngineError::ResourceNotFound { .. })));
        let (again, created) = engine
            .catalog()
            .upsert_script("d", "c", kind, &script("a", ""), &Precondition::default())
            .unwrap();
        assert!(created && again.rid != first.rid);
    }
}

#[test]
fn a_container_gives_its_newest_scripts_however_old_it_is() {
    let engine = open(&MemoryStorage::new());
    let old = container(&engine);
    assert!(old.scripts().procedure("a").is_none());
    create(&engine, PROCEDURE, &script("a", "first")).unwrap();
    engine
        .catalog()
        .replace_container("d", "c", &json(&CONTAINER.replace("}}", "},\"defaultTtl\":9}")), &ANY)
        .unwrap();
    create(&engine, ScriptKind::Trigger, &script("t", "")).unwrap();
    create(&engine, ScriptKind::UserDefinedFunction, &script("f", "")).unwrap();
    engine.catalog().replace_script("d", "c", PROCEDURE, "a", &script("a", "second"), &ANY).unwrap();
    for container in [old, engine.catalog().container("d", "c").unwrap()] {
        let scripts = container.scripts();
        let procedure = scripts.procedure("a").unwrap();
        assert_eq!(procedure.body.get("body"), Some(&"second".into()));
        assert!(scripts.procedure(&procedure.rid.to_string()).is_some());
        assert!(scripts.trigger("t").is_some() && scripts.function("f").is_some());
        assert!(scripts.trigger("f").is_none() && scripts.function("t").is_none());
        // Built in: it runs, and is no resource.
        assert_eq!(scripts.procedure("__.sys.echo").unwrap().id, "__.sys.echo");
    }
    assert_eq!(
        message(engine.catalog().script("d", "c", PROCEDURE, "__.sys.echo")),
        "stored procedure \"__.sys.echo\" not found"
    );
}

#[test]
fn scripts_go_with_their_container_and_database() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    fill(&engine);
    engine.catalog().delete_container("d", "c", &ANY).unwrap();
    engine.catalog().create_container("d", &json(CONTAINER), None).unwrap();
    assert!(engine.catalog().scripts("d", "c", PROCEDURE).unwrap().is_empty());
    create(&engine, PROCEDURE, &script("a", "")).unwrap();
    engine.catalog().delete_database("d", &ANY).unwrap();
    wait_for_reclaim(&engine);
    engine.close().unwrap();
    assert_eq!(verify(&storage).unwrap().problems, Vec::<String>::new());
    let engine = open(&storage);
    assert_eq!(statistic(&engine, "scripts"), 0);
}

#[test]
fn a_backup_has_the_scripts() {
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup");
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    engine.backup(&backup).unwrap();
    let storage = MemoryStorage::new();
    restore(&backup, &storage).unwrap();
    assert_eq!(verify(&storage).unwrap().problems, Vec::<String>::new());
    let restored = open(&storage);
    assert_eq!(dump(&restored), dump(&engine));
    // No number that the lost store may have given out is given out again.
    let next = create(&restored, PROCEDURE, &script("next", "")).unwrap();
    assert_eq!(next.rid.to_string(), "AAAAAYAAAAEaJwAAAAAAgA==");
}

#[test]
fn a_container_holds_500_scripts_of_a_kind() {
    let engine = open(&MemoryStorage::new());
    container(&engine);
    for number in 0..500 {
        create(&engine, PROCEDURE, &script(&number.to_string(), "")).unwrap();
    }
    let full = create(&engine, PROCEDURE, &script("one more", ""));
    assert!(matches!(full, Err(EngineError::Forbidden { .. })));
    engine
        .catalog()
        .upsert_script("d", "c", PROCEDURE, &script("7", "replaced"), &Precondition::default())
        .unwrap();
    create(&engine, ScriptKind::Trigger, &script("of another kind", "")).unwrap();
    engine.catalog().delete_script("d", "c", PROCEDURE, "0", &ANY).unwrap();
    create(&engine, PROCEDURE, &script("one more", "")).unwrap();
}

#[test]
fn a_script_in_doubt_is_there_when_the_doubt_is_settled() {
    for fault in [CommitFault::UnknownDone, CommitFault::UnknownNotDone] {
        let memory = MemoryStorage::new();
        let storage = Arc::new(FaultStorage::new(memory.reopen()));
        let engine = support::open_on(storage.clone());
        let old = container(&engine);
        storage.script_commits([fault; 6]);
        let doubtful = create(&engine, PROCEDURE, &script("a", ""));
        assert!(matches!(doubtful, Err(EngineError::Unresolved)), "{doubtful:?}");
        create(&engine, PROCEDURE, &script("b", "")).unwrap();
        assert!(old.scripts().procedure("a").is_some() && old.scripts().procedure("b").is_some());
        assert_eq!(dump(&open(&memory)), dump(&engine));
    }
}

#[test]
fn a_damaged_script_is_noticed() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    fill(&engine);
    engine.close().unwrap();
    drop(engine);
    let snapshot = storage.snapshot().unwrap();
    // The catalog's rows of triggers: see the engine's `catalog::keys`.
    let range = KeyRange::prefix(&[0x10, 0x08]);
    let scan = Scan {
        space: Space(0),
        range,
        direction: Direction::Forward,
        rows_max: 10,
        bytes_max: 1 << 20,
        keys_only: false,
    };
    let rows = snapshot.scan(&scan).unwrap().rows;
    assert_eq!(rows.len(), 3);
    let (key, mut value) = rows.into_iter().next().unwrap();
    *value.last_mut().unwrap() ^= 1;
    let ops = vec![Op::Put { space: Space(0), key, value }];
    storage.commit(Commit { guards: Vec::new(), token: Token(1), ops }).unwrap();
    assert!(Engine::open(Arc::new(storage.reopen()), support::options()).is_err());
}

#[test]
fn all_scripts_of_a_container_have_64_mb_of_text() {
    let engine = open(&MemoryStorage::new());
    container(&engine);
    // With room for the names and the other members of each.
    let text = " ".repeat((2 << 20) - (1 << 10));
    for number in 0..16 {
        create(&engine, PROCEDURE, &script(&number.to_string(), &text)).unwrap();
        create(&engine, ScriptKind::Trigger, &script(&number.to_string(), &text)).unwrap();
    }
    create(&engine, PROCEDURE, &script("empty", "")).unwrap();
    // More than is left.
    let more = " ".repeat(64 << 10);
    let full = create(&engine, ScriptKind::UserDefinedFunction, &script("a", &more));
    assert!(matches!(full, Err(EngineError::Forbidden { .. })));
    let larger = engine.catalog().replace_script("d", "c", PROCEDURE, "empty", &script("empty", &more), &ANY);
    assert!(matches!(larger, Err(EngineError::Forbidden { .. })));
    engine
        .catalog()
        .replace_script("d", "c", PROCEDURE, "0", &script("0", &text[more.len()..]), &ANY)
        .unwrap();
    create(&engine, ScriptKind::UserDefinedFunction, &script("a", &more)).unwrap();
}
