//! What belongs to a container and moves with its name: scripts, permissions, offers, models, refactorings.

use crate::*;

#[test]
fn scripts_and_permissions_move_with_the_container() {
    let members = r#","defaultTtl":-1,"indexingPolicy":{"indexingMode":"consistent","automatic":true,
        "includedPaths":[{"path":"/round/?"}],"excludedPaths":[{"path":"/*"}]},
        "computedProperties":[{"name":"twice","query":"SELECT VALUE c.round * 2 FROM c"}],
        "changeFeedPolicy":{"retentionDuration":60}"#;
    let storage = MemoryStorage::new();
    let engine = open(&storage, 2);
    database(&engine, "d");
    let body = format!(r#"{{"id":"c","partitionKey":{{"paths":["/a"],"version":2}}{members}}}"#);
    engine.catalog().create_container("d", &json(&body), Some(Throughput::Manual(700))).unwrap();
    (0..20).for_each(|number| put(&engine, &item(number, 0)));
    let catalog = engine.catalog();
    let script = r#"{"id":"s","body":"function () { return 1; }"}"#;
    catalog.create_script("d", "c", ScriptKind::StoredProcedure, &json(script)).unwrap();
    catalog.create_script("d", "c", ScriptKind::UserDefinedFunction, &json(script)).unwrap();
    catalog.create_user("d", &json(r#"{"id":"u"}"#), false).unwrap();
    let rid = named(&engine, "c").resource.rid.to_string();
    let database_rid = catalog.database("d").unwrap().rid.to_string();
    catalog.create_user("d", &json(r#"{"id":"by-rid"}"#), false).unwrap();
    for (user, id, link, key) in [
        ("u", "by-name", "dbs/d/colls/c".to_owned(), ""),
        ("by-rid", "by-rid", format!("dbs/{database_rid}/colls/{rid}"), ""),
        ("u", "by-key", "dbs/d/colls/c/docs/i1".to_owned(), r#","resourcePartitionKey":["a1"]"#),
    ] {
        let body = format!(r#"{{"id":"{id}","permissionMode":"All","resource":"{link}"{key}}}"#);
        catalog.create_permission("d", user, &json(&body), false).unwrap();
    }
    let link_of = |id: &str| {
        let user = if id == "by-rid" { "by-rid" } else { "u" };
        let permission = engine.catalog().permission("d", user, id).unwrap();
        permission.body.get("resource").and_then(Value::as_str).unwrap().to_owned()
    };
    let before = named(&engine, "c");
    start(&engine, REKEY).unwrap();
    wait_for(&engine, "expanded");
    for refused in [
        catalog.delete_container("d", "c", &ANY),
        catalog.delete_container("d", "c~new", &ANY),
        catalog.replace_container("d", "c", &Value::Object(before.definition.json.clone()), &ANY).map(drop),
    ] {
        assert!(matches!(refused, Err(EngineError::RefactoringRunning { .. })), "{refused:?}");
    }
    let taken = json(r#"{"id":"c~old","partitionKey":{"paths":["/a"]}}"#);
    assert!(matches!(catalog.create_container("d", &taken, None), Err(EngineError::AlreadyExists { .. })));
    // Scripts of the last moment.
    let later = r#"{"id":"later","body":"function () {}","triggerType":"Pre","triggerOperation":"All"}"#;
    catalog.create_script("d", "c", ScriptKind::Trigger, &json(later)).unwrap();
    finish(&engine);
    let after = named(&engine, "c");
    let without_key = |container: &Container| {
        let mut json = container.definition.json.clone();
        json.remove("partitionKey");
        Value::Object(json).to_json()
    };
    assert_eq!(without_key(&after), without_key(&before));
    assert_ne!(after.resource.rid, before.resource.rid);
    assert_eq!(catalog.throughput_of(&after).unwrap().1, 700);
    for (kind, id) in [
        (ScriptKind::StoredProcedure, "s"),
        (ScriptKind::UserDefinedFunction, "s"),
        (ScriptKind::Trigger, "later"),
    ] {
        catalog.script("d", "c", kind, id).unwrap();
    }
    assert_eq!(link_of("by-name"), "dbs/d/colls/c");
    assert_eq!(link_of("by-rid"), format!("dbs/{database_rid}/colls/{}", after.resource.rid));
    // The values of its key are those of another property.
    assert_eq!(link_of("by-key"), "dbs/d/colls/c~old/docs/i1");
    // Requests with the old container get an error that says so, and partitions of it are unknown.
    let stale = write(&engine, &before, WriteKind::Upsert, None, &item(1, 3));
    assert!(matches!(stale, Err(EngineError::ContainerReplaced)), "{stale:?}");
    let ids =
        |container: &Container| container.partitions().into_iter().map(|own| own.id).collect::<Vec<_>>();
    assert!(ids(&after).iter().all(|id| !ids(&before).contains(id)));
    // A position of the old feed is not a position of the new one: all changes are returned again.
    let page = PageRequest { item_count_max: Some(-1), ..PageRequest::default() };
    let start = FeedStart::After("\"20\"".to_owned());
    let request =
        ChangesRequest { mode: FeedMode::Latest, page, start, since: None, all_previous_images: false };
    assert_eq!(engine.read_changes(&after, &request).result.unwrap().count, 20);
    undo(&engine);
    assert_eq!(link_of("by-key"), "dbs/d/colls/c/docs/i1");
    assert_eq!(catalog.throughput_of(&named(&engine, "c")).unwrap().1, 700);
    catalog.script("d", "c", ScriptKind::Trigger, "later").unwrap();
    wait_until_idle(&engine);
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

/// Clients write to neither of the containers beside it, and a link leads to what has the name.
#[test]
fn a_model_goes_along() {
    const ANY_MODEL: quire_engine::ModelCondition =
        quire_engine::ModelCondition { if_match: None, if_none_match: None };
    let storage = MemoryStorage::new();
    let engine = open(&storage, 2);
    make(&engine, "");
    let catalog = engine.catalog();
    catalog
        .create_container("d", &json(r#"{"id":"o","partitionKey":{"paths":["/id"],"version":2}}"#), None)
        .unwrap();
    let model = |key: &str| {
        json(&format!(
            r#"{{"version":1,"links":[{{"name":"boss","from":{{"container":"o","path":"/boss"}},
                "to":{{"container":"c","partitionKey":[{{"path":"/{key}"}}]}},"integrity":"enforced"}},
                {{"name":"likes","from":{{"container":"c","path":"/likes"}},"to":{{"container":"o"}},"onDelete":"remove"}}],
                "rollups":[{{"name":"staff","link":"boss","op":"count","into":"/staff"}}]}}"#
        ))
    };
    (0..30).for_each(|number| put(&engine, &item(number, 0)));
    catalog.put_model("d", &model("a"), &ANY_MODEL).unwrap();
    wait_until_idle(&engine);
    let staff = |name: &str, number: usize| {
        let id = format!(r#""id":"i{number}""#);
        let found = stored(&engine, name).into_iter().find(|own| own.contains(&id)).unwrap();
        json(&found).get("staff").and_then(Value::as_u64)
    };
    let create_employees = |id: &str, boss: usize| {
        let body = format!(r#"{{"id":"{id}","boss":"i{boss}","a":"a{}","b":"b{}"}}"#, boss % 11, boss % 7);
        write(&engine, &named(&engine, "o"), WriteKind::Upsert, None, &body)
    };
    write(&engine, &named(&engine, "o"), WriteKind::Upsert, None, r#"{"id":"liked"}"#).unwrap();
    put(&engine, r#"{"id":"i40","a":"a7","b":"b5","likes":"liked"}"#);
    let likes = || stored(&engine, "c").iter().any(|own| own.contains(r#""likes":"liked""#));
    create_employees("e1", 3).unwrap();
    create_employees("e2", 3).unwrap();
    assert_eq!(staff("c", 3), Some(2));
    let refused = start(&engine, REKEY);
    assert!(matches!(refused, Err(EngineError::ModelInUse { .. })), "{refused:?}");
    let with_model = |key: &str| rekey_with(&format!(r#""model":{}"#, model(key).to_json()));
    let invalid = rekey_with(
        r#""model":{"version":1,"links":[{"name":"x","from":{"container":"o","path":"/boss"},"to":{"container":"c"}}]}"#,
    );
    let refused = start(&engine, &invalid);
    assert!(matches!(refused, Err(EngineError::ModelInvalid(_))), "{refused:?}");
    start(&engine, &with_model("b")).unwrap();
    wait_for(&engine, "expanded");
    create_employees("e3", 3).unwrap();
    let refused = catalog.put_model("d", &model("b"), &ANY_MODEL);
    assert!(refused.is_err(), "another model while the key changes");
    finish(&engine);
    wait_until_idle(&engine);
    assert_eq!(staff("c", 3), Some(3));
    create_employees("e4", 3).unwrap();
    assert_eq!(staff("c", 3), Some(4));
    assert!(matches!(create_employees("e5", 999), Err(EngineError::RefusedByModel(_))));
    // A link that is the same under both keys knows its referrers by the container that they are in.
    assert!(likes(), "the reference was copied");
    delete_in(&engine, "o", "liked", r#"["liked"]"#);
    assert!(!likes(), "the reference goes with its target");
    undo(&engine);
    wait_until_idle(&engine);
    assert_eq!((staff("c", 3), key_of(&engine, "c")), (Some(4), r#"["/a"]"#.to_owned()));
    create_employees("e6", 3).unwrap();
    assert_eq!(staff("c", 3), Some(5));
    engine.close().unwrap();
    check_sound(&storage.reopen());
}

/// What a rename has in its journal is found under the new key: the items are copies, with rids of their own.
#[test]
fn a_rename_is_undone_under_another_key() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 3, "");
    start(&engine, r#"{"kind":"rename","container":"c","from":"/round","to":"/lap"}"#).unwrap();
    wait_for(&engine, "expanded");
    finish(&engine);
    let of_second = |wanted: &str| {
        let found = || engine.refactoring("d", "r-2").unwrap().get("state").unwrap().to_json();
        wait_until(wanted, || found() == format!("{wanted:?}"));
        wait_until_idle(&engine);
    };
    start(&engine, REKEY).unwrap();
    of_second("expanded");
    engine.finish_refactoring("d", "r-2").unwrap();
    of_second("finished");
    let renamed = |number: usize| item(number, 0).replace("round", "lap");
    assert_eq!(stored(&engine, "c"), sorted((0..ITEMS).map(renamed)));
    // Changed elsewhere, changed at the path, gone, gone and another one with its id, and one that is new.
    put(&engine, &renamed(1).replace("\"lap\"", "\"x\":1,\"lap\""));
    put(&engine, &renamed(2).replace("\"lap\":0", "\"lap\":7"));
    delete(&engine, "i3", r#"["b3"]"#);
    delete(&engine, "i4", r#"["b4"]"#);
    put(&engine, &renamed(4));
    put(&engine, &renamed(ITEMS));
    undo(&engine);
    let expected = (0..=ITEMS).filter(|number| *number != 3).map(|number| match number {
        1 => item(1, 0).replace("\"round\"", "\"x\":1,\"round\""),
        2 => item(2, 0).replace("\"round\":0", "\"lap\":7"),
        4 | ITEMS => renamed(number),
        _ => item(number, 0),
    });
    let members = |text: &String| {
        let mut members: Vec<String> = json(text)
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_json()))
            .collect();
        members.sort();
        members
    };
    let found: Vec<_> = stored(&engine, "c").iter().map(members).collect();
    assert_eq!(found, sorted(expected).iter().map(members).collect::<Vec<_>>());
    assert_eq!(conflict_ids(&engine.refactoring("d", "r-1").unwrap()), ["i2"]);
    assert_eq!(key_of(&engine, "c"), r#"["/b"]"#);
    drop(engine);
    check_sound(&storage.reopen());
}

/// The journals of refactorings before and since go on in the container that comes back.
#[test]
fn renames_are_undone_after_the_undo_of_another_key() {
    let storage = MemoryStorage::new();
    let engine = filled(&storage, 3, "");
    let of = |number: usize, wanted: &str| {
        let found =
            || engine.refactoring("d", &format!("r-{number}")).unwrap().get("state").unwrap().to_json();
        wait_until(wanted, || found() == format!("{wanted:?}"));
        wait_until_idle(&engine);
    };
    let done = |number: usize, body: &str| {
        start(&engine, body).unwrap();
        of(number, "expanded");
        engine.finish_refactoring("d", &format!("r-{number}")).unwrap();
        of(number, "finished");
    };
    let undone = |number: usize| {
        engine.undo_refactoring("d", &format!("r-{number}")).unwrap();
        of(number, "undone");
    };
    done(1, r#"{"kind":"rename","container":"c","from":"/round","to":"/lap"}"#);
    done(2, REKEY);
    done(3, r#"{"kind":"rename","container":"c","from":"/lap","to":"/turn"}"#);
    // Under the other key it gets another value of the first one, and one is gone.
    let turned = |number: usize| item(number, 0).replace("round", "turn");
    put(&engine, &turned(1).replace("\"a\":\"a1\"", "\"a\":\"a9\""));
    delete(&engine, "i3", r#"["b3"]"#);
    undone(2);
    assert_eq!((key_of(&engine, "c"), names(&engine)), (r#"["/a"]"#.to_owned(), vec!["c".to_owned()]));
    let expected = |name: &str| {
        let own = |number: usize| {
            let text = item(number, 0).replace("round", name);
            if number == 1 { text.replace("\"a\":\"a1\"", "\"a\":\"a9\"") } else { text }
        };
        sorted((0..ITEMS).filter(|number| *number != 3).map(own))
    };
    assert_eq!(stored(&engine, "c"), expected("turn"));
    undone(3);
    assert_eq!(stored(&engine, "c"), expected("lap"));
    undone(1);
    assert_eq!(stored(&engine, "c"), expected("round"));
    assert!(conflict_ids(&engine.refactoring("d", "r-1").unwrap()).is_empty());
    wait_until_idle(&engine);
    engine.close().unwrap();
    check_sound(&storage.reopen());
}
