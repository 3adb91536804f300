//! Items that cannot be under the new key together: what is reported, decided, and kept.

use crate::*;

/// Three items of one id under three old keys and one new one; two of another id.
fn create_conflicts(engine: &Engine) {
    for (id, a, n) in
        [("x", "1", 1), ("x", "2", 2), ("x", "3", 3), ("y", "1", 4), ("y", "2", 5), ("z", "1", 6)]
    {
        put(engine, &format!(r#"{{"id":"{id}","a":"{a}","b":"same","n":{n}}}"#));
    }
    // The first one was written last, in another second.
    (0..200).for_each(|_| put(engine, r#"{"id":"z","a":"1","b":"same","n":6}"#));
    put(engine, r#"{"id":"x","a":"1","b":"same","n":7}"#);
}

#[test]
fn items_that_clash_block_it_until_that_is_decided() {
    for (choice, left) in
        [("first", vec!["5", "6", "7"]), ("newest", vec!["5", "6", "7"]), ("skip", vec!["6"])]
    {
        let storage = MemoryStorage::new();
        let engine = open(&storage, 2);
        make(&engine, "");
        create_conflicts(&engine);
        let before = stored(&engine, "c");
        start(&engine, &rekey_with(&format!(r#""onConflict":"{choice}""#))).unwrap();
        let expanded = wait_for(&engine, "expanded");
        let count = expanded.get("conflictCount").and_then(Value::as_u64);
        assert_eq!(count, Some(if choice == "skip" { 5 } else { 3 }), "{expanded:?}");
        let found = || -> Vec<String> {
            let numbers = stored(&engine, "c~new").into_iter();
            sorted(numbers.map(|own| json(&own).get("n").unwrap().to_json()))
        };
        let expected: Vec<String> = match choice {
            "first" => vec!["4".to_owned(), "6".to_owned(), "7".to_owned()],
            _ => sorted(left.iter().map(|own| (*own).to_owned())),
        };
        assert_eq!(found(), expected, "{choice}");
        // What was in the way goes, and what was left comes.
        delete(&engine, "x", r#"["1"]"#);
        delete(&engine, "x", r#"["3"]"#);
        wait_until("the other one is there", || found().contains(&"2".to_owned()));
        finish(&engine);
        undo(&engine);
        let gone = |own: &&String| !own.contains(r#""n":7"#) && !own.contains(r#""n":3"#);
        assert_eq!(stored(&engine, "c"), before.iter().filter(gone).cloned().collect::<Vec<_>>(), "{choice}");
        wait_until_idle(&engine);
        engine.close().unwrap();
        check_sound(&storage.reopen());
    }
    let storage = MemoryStorage::new();
    let engine = open(&storage, 2);
    make(&engine, "");
    create_conflicts(&engine);
    start(&engine, &rekey_with(r#""finish":"auto""#)).unwrap();
    let blocked = wait_for(&engine, "blocked");
    assert_eq!(conflict_ids(&blocked), ["x", "x", "x", "y", "y"]);
    assert!(matches!(engine.finish_refactoring("d", "r-1"), Err(EngineError::RefactoringRefuses { .. })));
    for (id, key) in [("x", r#"["1"]"#), ("x", r#"["2"]"#), ("y", r#"["1"]"#)] {
        delete(&engine, id, key);
    }
    // It goes on by itself.
    wait_for(&engine, "finished");
    assert_eq!(stored(&engine, "c").len(), 3);
}

#[test]
fn unique_values_of_the_new_partitions() {
    let storage = MemoryStorage::new();
    let engine = open(&storage, 2);
    make(&engine, r#","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/tag"]},{"paths":["/code"]}]}"#);
    for (id, a, tag, code) in
        [("p", "1", "t1", 1), ("q", "2", "t1", 2), ("r", "3", "t2", 2), ("s", "4", "t3", 3)]
    {
        put(&engine, &format!(r#"{{"id":"{id}","a":"{a}","b":"same","tag":"{tag}","code":{code}}}"#));
    }
    start(&engine, REKEY).unwrap();
    assert_eq!(conflict_ids(&wait_for(&engine, "blocked")), ["p", "q", "r"]);
    put(&engine, r#"{"id":"q","a":"2","b":"other","tag":"t1","code":2}"#);
    wait_for(&engine, "expanded");
    assert_eq!(stored(&engine, "c~new"), stored(&engine, "c"));
    finish(&engine);
    let taken = write(
        &engine,
        &named(&engine, "c"),
        WriteKind::Upsert,
        None,
        r#"{"id":"new","a":"9","b":"same","tag":"t1","code":9}"#,
    );
    assert!(matches!(taken, Err(EngineError::UniqueKeyTaken { .. })), "{taken:?}");
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

#[test]
fn keys_that_are_missing_or_too_long() {
    let storage = MemoryStorage::new();
    let engine = open(&storage, 2);
    make(&engine, "");
    let long = "k".repeat(3_000);
    put(&engine, r#"{"id":"none","a":"1"}"#);
    put(&engine, &format!(r#"{{"id":"long","a":"1","b":"{long}"}}"#));
    start(&engine, &rekey_with(r#""onConflict":"first""#)).unwrap();
    // Who comes first does not make it shorter.
    assert_eq!(conflict_ids(&wait_for(&engine, "blocked")), ["long"]);
    undo(&engine);
    engine.start_refactoring("d", json(&rekey_with(r#""onConflict":"skip","finish":"auto""#))).unwrap();
    let is_finished = || {
        let own = engine.refactoring("d", "r-2").unwrap();
        own.get("state").and_then(Value::as_str) == Some("finished")
    };
    wait_until("finished", is_finished);
    assert_eq!(stored(&engine, "c"), [r#"{"id":"none","a":"1"}"#]);
    engine.undo_refactoring("d", "r-2").unwrap();
    wait_until_idle(&engine);
    assert_eq!(stored(&engine, "c").len(), 2, "what was left comes back");
}

#[test]
fn a_dry_run_reports_keys_and_conflicts() {
    let storage = MemoryStorage::new();
    let engine = open(&storage, 2);
    make(&engine, "");
    create_conflicts(&engine);
    let RefactoringDryRun::Done(found) = engine.dry_run_refactoring("d", &json(REKEY)).unwrap() else {
        panic!("a job")
    };
    let number = |name: &str| found.get(name).and_then(Value::as_u64);
    assert_eq!((number("items"), number("wouldLeave"), number("partitionKeys")), (Some(6), Some(3), Some(1)));
    assert_eq!(found.get("largest").and_then(|own| own.get("items")).and_then(Value::as_u64), Some(6));
    assert_eq!(found.get("conflicts").and_then(Value::as_array).map(<[Value]>::len), Some(3));
    assert_eq!(found.get("examples").and_then(Value::as_array).map(<[Value]>::len), Some(3));
    assert_eq!(names(&engine), ["c"]);
}
