//! The catalog through the engine's own interface, in memory, reopened, and on a storage that fails.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::{Arc, Barrier};

use expect_test::expect;
use quire_engine::{Engine, EngineError, Migrate, Precondition, Resource, ScriptKind};
use quire_resource::{ResourceId, Throughput};
use quire_sql::Parameters;
use quire_storage::Storage;
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use quire_value::{Number, Value};
use support::{CONTAINER, dump, json, open, options_with, page_request, upsert, wait_for_reclaim};

const ANY: Precondition = Precondition { if_match: None };

fn if_match(etag: &str) -> Precondition {
    Precondition { if_match: Some(etag.to_owned()) }
}

/// One of everything.
fn fill(engine: &Engine) {
    engine
        .catalog()
        .create_database(&json(r#"{"id":"d","_rid":"sent back"}"#), Some(Throughput::Manual(500)))
        .unwrap();
    engine.catalog().create_database(&json(r#"{"id":"empty"}"#), None).unwrap();
    engine.catalog().create_container("d", &json(CONTAINER), None).unwrap();
    let autoscale = Throughput::Autoscale { max: 4000, increment_percent: Some(10) };
    let own =
        r#"{"id":"own","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2},"defaultTtl":60}"#;
    engine.catalog().create_container("d", &json(own), Some(autoscale)).unwrap();
    engine.catalog().create_user("d", &json(r#"{"id":"u"}"#), false).unwrap();
    let permission = r#"{"id":"p","permissionMode":"Read","resource":"dbs/d/colls/c"}"#;
    engine.catalog().create_permission("d", "u", &json(permission), false).unwrap();
    let key = r#"{"id":"k","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256","wrappedDataEncryptionKey":"AAEC","keyWrapMetadata":{"type":"AKV"}}"#;
    engine.catalog().create_client_encryption_key("d", &json(key)).unwrap();
}

#[test]
fn an_account_is_the_same_after_it_was_opened_again() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    fill(&engine);
    let before = dump(&engine);
    let (secret, incarnation) = (engine.secret(), engine.incarnation());
    engine.close().unwrap();
    let engine = open(&storage);
    assert_eq!(dump(&engine), before);
    assert_eq!((engine.secret(), engine.incarnation()), (secret, incarnation));
    expect![[r#"
        {"id":"d","_rid":"AAAAAQ==","_self":"dbs/AAAAAQ==/","_etag":"\"00000001-0001-0000-ca7a-000000000002\"","_ts":1700000000,"_colls":"colls/","_users":"users/"}
          {"id":"c","indexingPolicy":{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]},"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""},"geospatialConfig":{"type":"Geography"},"_rid":"AAAAAYAAAAE=","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/","_etag":"\"00000001-0001-0000-ca7a-000000000004\"","_ts":1700000000,"_docs":"docs/","_sprocs":"sprocs/","_triggers":"triggers/","_udfs":"udfs/","_conflicts":"conflicts/"}
          {"id":"own","indexingPolicy":{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]},"partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2},"defaultTtl":60,"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""},"geospatialConfig":{"type":"Geography"},"_rid":"AAAAAYAAAAI=","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAI=/","_etag":"\"00000001-0001-0000-ca7a-000000000005\"","_ts":1700000000,"_docs":"docs/","_sprocs":"sprocs/","_triggers":"triggers/","_udfs":"udfs/","_conflicts":"conflicts/"}
          {"id":"u","_rid":"AAAAAQAAAAE=","_self":"dbs/AAAAAQ==/users/AAAAAQAAAAE=/","_etag":"\"00000001-0001-0000-ca7a-000000000006\"","_ts":1700000000,"_permissions":"permissions/"}
            {"id":"p","permissionMode":"Read","resource":"dbs/d/colls/c","_rid":"AAAAAQAAAAEBAAAAAAAAAA==","_self":"dbs/AAAAAQ==/users/AAAAAQAAAAE=/permissions/AAAAAQAAAAEBAAAAAAAAAA==/","_etag":"\"00000001-0001-0000-ca7a-000000000007\"","_ts":1700000000}
          {"id":"k","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256","wrappedDataEncryptionKey":"AAEC","keyWrapMetadata":{"type":"AKV"},"_cts":1700000000,"_rid":"AAAAAQAAAAAAAAABAgAAAA==","_self":"dbs/AAAAAQ==/clientencryptionkeys/AAAAAQAAAAAAAAABAgAAAA==/","_etag":"\"00000001-0001-0000-ca7a-000000000008\"","_ts":1700000000}
        {"id":"empty","_rid":"AAAAAg==","_self":"dbs/AAAAAg==/","_etag":"\"00000001-0001-0000-ca7a-000000000003\"","_ts":1700000000,"_colls":"colls/","_users":"users/"}
        {"resource":"dbs/AAAAAQ==/","offerType":"Invalid","offerResourceId":"AAAAAQ==","offerVersion":"V2","content":{"offerThroughput":500,"offerIsRUPerMinuteThroughputEnabled":false,"offerMinimumThroughputParameters":{"maxThroughputEverProvisioned":500,"maxConsumedStorageEverInKB":0},"offerLastReplaceTimestamp":1700000000},"id":"AAAB","_rid":"AAAB","_self":"offers/AAAB/","_etag":"\"00000001-0002-0000-ca7a-000000000002\"","_ts":1700000000}
        {"resource":"dbs/AAAAAQ==/colls/AAAAAYAAAAI=/","offerType":"Invalid","offerResourceId":"AAAAAYAAAAI=","offerVersion":"V2","content":{"offerThroughput":4000,"offerIsRUPerMinuteThroughputEnabled":false,"offerMinimumThroughputParameters":{"maxThroughputEverProvisioned":4000,"maxConsumedStorageEverInKB":0},"offerLastReplaceTimestamp":1700000000,"offerAutopilotSettings":{"maxThroughput":4000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":10}}}},"id":"AAAC","_rid":"AAAC","_self":"offers/AAAC/","_etag":"\"00000001-0002-0000-ca7a-000000000005\"","_ts":1700000000}
    "#]].assert_eq(&before);
}

#[test]
fn names_come_first_then_rids() {
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    let database = engine.catalog().database("d").unwrap();
    let rid = database.rid.to_string();
    assert_eq!(engine.catalog().database(&rid).unwrap().id, "d");
    let container = engine.catalog().container(&rid, "c").unwrap();
    assert_eq!(
        engine.catalog().container("d", &container.resource.rid.to_string()).unwrap().resource.id,
        "c"
    );
    // A database that is called like another's rid.
    engine.catalog().create_database(&json(&format!(r#"{{"id":"{rid}"}}"#)), None).unwrap();
    assert_eq!(engine.catalog().database(&rid).unwrap().id, rid);
    assert!(matches!(
        engine.catalog().container("empty", &container.resource.rid.to_string()),
        Err(EngineError::ResourceNotFound { .. })
    ));
}

#[test]
fn missing_owners_and_missing_resources_differ() {
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    assert!(matches!(
        engine.catalog().database("x"),
        Err(EngineError::ResourceNotFound { kind: "database", .. })
    ));
    assert!(matches!(
        engine.catalog().container("x", "c"),
        Err(EngineError::OwnerNotFound { kind: "database", .. })
    ));
    assert!(matches!(
        engine.catalog().container("d", "x"),
        Err(EngineError::ResourceNotFound { kind: "container", .. })
    ));
    assert!(matches!(
        engine.catalog().permission("d", "x", "p"),
        Err(EngineError::OwnerNotFound { kind: "user", .. })
    ));
    assert!(matches!(
        engine.catalog().permission("d", "u", "x"),
        Err(EngineError::ResourceNotFound { kind: "permission", .. })
    ));
    assert!(matches!(
        engine.catalog().offer("zzzz"),
        Err(EngineError::ResourceNotFound { kind: "offer", .. })
    ));
    let body = json(CONTAINER);
    assert!(matches!(
        engine.catalog().create_container("x", &body, None),
        Err(EngineError::OwnerNotFound { .. })
    ));
}

#[test]
fn bad_bodies_change_nothing() {
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    let before = dump(&engine);
    let missing = |result: Result<Arc<Resource>, EngineError>| match result {
        Err(EngineError::MissingProperties { names }) => names,
        other => panic!("{other:?}"),
    };
    for body in [r#"{}"#, r#"{"id":null}"#] {
        assert_eq!(missing(engine.catalog().create_database(&json(body), None)), "id");
    }
    let too_long = format!(r#"{{"id":"{}"}}"#, "x".repeat(256));
    for body in [r#"{"id":""}"#, r#"{"id":"a/b"}"#, r#"{"id":"end "}"#, &too_long] {
        assert!(
            matches!(engine.catalog().create_database(&json(body), None), Err(EngineError::BadName(_))),
            "{body}"
        );
    }
    for body in [r#"{"id":7}"#, "[]", "null", "\"d\""] {
        assert!(
            matches!(
                engine.catalog().create_database(&json(body), None),
                Err(EngineError::BadRequest { .. })
            ),
            "{body}"
        );
    }
    let permission = |body: &str| {
        engine.catalog().create_permission("d", "u", &json(body), false).map(|(resource, _)| resource)
    };
    assert_eq!(missing(permission("{}")), "id; permissionMode; resource");
    for body in [
        r#"{"id":"q","permissionMode":"Write","resource":"dbs/d"}"#,
        r#"{"id":"q","permissionMode":"Read","resource":"somewhere"}"#,
        r#"{"id":"q","permissionMode":"Read","resource":"dbs/empty","resourcePartitionKey":"x"}"#,
    ] {
        assert!(matches!(permission(body), Err(EngineError::BadRequest { .. })), "{body}");
    }
    let key = |body: &str| engine.catalog().create_client_encryption_key("d", &json(body));
    assert_eq!(
        missing(key(r#"{"id":"q"}"#)),
        "encryptionAlgorithm; wrappedDataEncryptionKey; keyWrapMetadata"
    );
    let computed = r#"{"id":"q","partitionKey":{"paths":["/pk"]},"computedProperties":[{"name":"x","query":"SELECT VALUE FROM"}]}"#;
    assert!(matches!(
        engine.catalog().create_container("d", &json(computed), None),
        Err(EngineError::BadRequest { .. })
    ));
    assert_eq!(dump(&engine), before);
}

#[test]
fn names_are_taken_once() {
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    let exists = |result: Result<(), EngineError>| {
        assert!(matches!(result, Err(EngineError::AlreadyExists { .. })), "{result:?}")
    };
    exists(engine.catalog().create_database(&json(r#"{"id":"d"}"#), None).map(|_| ()));
    exists(engine.catalog().create_container("d", &json(CONTAINER), None).map(|_| ()));
    exists(engine.catalog().create_user("d", &json(r#"{"id":"u"}"#), false).map(|_| ()));
    // The same name elsewhere is another thing.
    engine.catalog().create_container("empty", &json(CONTAINER), None).unwrap();
    // A second permission for the same resource, however it is written.
    let rid_link = engine.catalog().container("d", "c").unwrap().resource.rid.self_link();
    for link in ["dbs/d/colls/c", "/dbs/d/colls/c/", &rid_link] {
        let body = format!(r#"{{"id":"q","permissionMode":"All","resource":"{link}"}}"#);
        exists(engine.catalog().create_permission("d", "u", &json(&body), false).map(|_| ()));
    }
    let restricted =
        r#"{"id":"q","permissionMode":"All","resource":"dbs/d/colls/c","resourcePartitionKey":["x"]}"#;
    engine.catalog().create_permission("d", "u", &json(restricted), false).unwrap();
}

#[test]
fn a_recreated_container_is_another_one() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    fill(&engine);
    let first = engine.catalog().container("d", "c").unwrap();
    engine.catalog().delete_container("d", "c", &ANY).unwrap();
    assert!(matches!(engine.catalog().container("d", "c"), Err(EngineError::ResourceNotFound { .. })));
    engine.close().unwrap();
    let engine = open(&storage);
    let second = engine.catalog().create_container("d", &json(CONTAINER), None).unwrap();
    assert_ne!(first.resource.rid, second.resource.rid);
    assert_ne!(first.resource.etag, second.resource.etag);
}

#[test]
fn preconditions_are_checked() {
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    let etag = engine.catalog().container("d", "c").unwrap().resource.etag.clone();
    let replaced = engine.catalog().replace_container("d", "c", &json(CONTAINER), &if_match(&etag)).unwrap();
    assert_ne!(replaced.resource.etag, etag);
    for result in [
        engine.catalog().replace_container("d", "c", &json(CONTAINER), &if_match(&etag)).map(|_| ()),
        engine.catalog().delete_container("d", "c", &if_match(&etag)),
        engine.catalog().delete_database("d", &if_match(&etag)),
        engine.catalog().delete_user("d", "u", &if_match(&etag)),
        engine.catalog().delete_permission("d", "u", "p", &if_match(&etag)),
    ] {
        assert!(matches!(result, Err(EngineError::PreconditionFailed)), "{result:?}");
    }
    engine.catalog().delete_container("d", "c", &if_match("*")).unwrap();
}

#[test]
fn a_replaced_container_keeps_its_items_and_partitions() {
    let engine = Engine::open(Arc::new(MemoryStorage::new()), options_with(3)).unwrap();
    let container = support::container(&engine);
    support::upsert(&engine, &container, "a", 1).unwrap();
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1}"#;
    let replaced = engine.catalog().replace_container("d", "c", &json(body), &ANY).unwrap();
    assert_eq!(replaced.definition.default_ttl, Some(-1));
    assert_eq!(replaced.partitions_etag(), container.partitions_etag());
    assert_eq!(replaced.partitions().len(), 3);
    assert_eq!(support::items(&engine, &replaced).len(), 1);
    let renamed = CONTAINER.replace("\"c\"", "\"other\"");
    assert!(matches!(
        engine.catalog().replace_container("d", "c", &json(&renamed), &ANY),
        Err(EngineError::BadRequest { .. })
    ));
    let moved = CONTAINER.replace("/pk", "/other");
    assert!(engine.catalog().replace_container("d", "c", &json(&moved), &ANY).is_err());
}

#[test]
fn partitions_follow_the_throughput() {
    let engine = Engine::open(Arc::new(MemoryStorage::new()), options_with(2)).unwrap();
    support::database(&engine, "d");
    let create = |id: &str, throughput| {
        let body = CONTAINER.replace("\"c\"", &format!("\"{id}\""));
        engine.catalog().create_container("d", &json(&body), throughput).unwrap().partitions().len()
    };
    assert_eq!(create("default", None), 2);
    assert_eq!(create("more", Some(Throughput::Manual(20_100))), 4);
    assert_eq!(create("autoscale", Some(Throughput::Autoscale { max: 50_000, increment_percent: None })), 5);
}

#[test]
fn users_are_renamed_and_upserted() {
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    let (same, created) = engine.catalog().create_user("d", &json(r#"{"id":"u"}"#), true).unwrap();
    assert!(!created);
    let renamed =
        engine.catalog().replace_user("d", "u", &json(r#"{"id":"v"}"#), &if_match(&same.etag)).unwrap();
    assert_eq!(renamed.rid, same.rid);
    assert!(engine.catalog().user("d", "u").is_err());
    assert_eq!(engine.catalog().permissions("d", "v").unwrap().len(), 1);
    let (_, created) = engine.catalog().create_user("d", &json(r#"{"id":"u"}"#), true).unwrap();
    assert!(created);
    let taken = engine.catalog().replace_user("d", "u", &json(r#"{"id":"v"}"#), &ANY);
    assert!(matches!(taken, Err(EngineError::AlreadyExists { .. })));
}

#[test]
fn a_permission_is_found_by_its_rid_until_it_is_gone() {
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    let permission = engine.catalog().permission("d", "u", "p").unwrap();
    assert_eq!(engine.catalog().permission_by_rid(&permission.rid).unwrap().etag, permission.etag);
    let wider = json(r#"{"id":"p","permissionMode":"All","resource":"dbs/d/colls/c"}"#);
    let (upserted, created) = engine.catalog().create_permission("d", "u", &wider, true).unwrap();
    assert_eq!((upserted.rid, created), (permission.rid, false));
    let replaced = engine.catalog().replace_permission("d", "u", "p", &wider, &ANY).unwrap();
    assert_ne!(engine.catalog().permission_by_rid(&permission.rid).unwrap().etag, permission.etag);
    engine.catalog().delete_permission("d", "u", "p", &if_match(&replaced.etag)).unwrap();
    assert!(engine.catalog().permission_by_rid(&permission.rid).is_none());
    assert!(engine.catalog().permission_by_rid(&ResourceId::Database(1)).is_none());
}

#[test]
fn offers_are_created_and_deleted_with_their_owners() {
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    fill(&engine);
    // The database's own, and the one of the container that asked for it; `c` shares the database's.
    assert_eq!(engine.catalog().offers().len(), 2);
    engine.catalog().delete_container("d", "own", &ANY).unwrap();
    assert_eq!(engine.catalog().offers().len(), 1);
    engine.catalog().create_container("empty", &json(CONTAINER), None).unwrap();
    assert_eq!(engine.catalog().offers().len(), 2);
    engine.catalog().delete_database("d", &ANY).unwrap();
    assert_eq!(engine.catalog().offers().len(), 1);
    wait_for_reclaim(&engine);
    engine.close().unwrap();
    assert_eq!(open(&storage).catalog().offers().len(), 1);
}

#[test]
fn offers_are_replaced_within_their_kind() {
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    let [manual, autoscale] = &engine.catalog().offers()[..] else { panic!("two offers") };
    let with = |offer: &Resource, content: &str| {
        let mut body = offer.to_json();
        body.set("content", json(content));
        Value::Object(body)
    };
    let replace = |offer: &Resource, content: &str, migrate| {
        engine.catalog().replace_offer(&offer.rid.to_string(), &with(offer, content), migrate, &ANY)
    };
    let throughput = |offer: &Resource| {
        let content = offer.body.get("content").unwrap();
        (
            content.get("offerThroughput").and_then(Value::as_i64),
            content.get("offerAutopilotSettings").is_some(),
        )
    };
    let replaced = replace(manual, r#"{"offerThroughput":40000}"#, None).unwrap();
    assert_eq!(throughput(&replaced), (Some(40_000), false));
    assert_eq!(engine.catalog().minimum_throughput(&replaced), 400);
    let highest = replace(manual, r#"{"offerThroughput":100000}"#, None).unwrap();
    assert_eq!(engine.catalog().minimum_throughput(&highest), 1000);
    assert!(replace(manual, r#"{"offerThroughput":500}"#, None).is_err());
    let to_autoscale = r#"{"offerAutopilotSettings":{"maxThroughput":5000}}"#;
    let refused = replace(manual, to_autoscale, None).unwrap_err();
    assert!(
        refused.to_string().contains("x-ms-cosmos-migrate-offer-to-autopilot must be supplied"),
        "{refused}"
    );
    let migrated = replace(manual, r#"{"offerThroughput":100000}"#, Some(Migrate::ToAutoscale)).unwrap();
    assert!(throughput(&migrated).1);
    let migrated = replace(autoscale, r#"{"offerThroughput":400}"#, Some(Migrate::ToManual)).unwrap();
    assert_eq!(throughput(&migrated), (Some(4000), false));
    let mut moved = manual.to_json();
    moved.set("offerResourceId", "other");
    let moved = engine.catalog().replace_offer(&manual.rid.to_string(), &Value::Object(moved), None, &ANY);
    assert!(matches!(moved, Err(EngineError::BadRequest { .. })));
}

#[test]
fn offers_are_found_by_query() {
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    let offers = engine.catalog().offers();
    let query = |text: &str, parameters: &Parameters, request: &_| {
        engine.query_resources(text, parameters, &offers, |offer| offer.to_json(), request)
    };
    let link = engine.catalog().database("d").unwrap().rid.self_link();
    let parameters = Parameters(vec![("@link".to_owned(), Value::from(link))]);
    let page = query("SELECT * FROM root r WHERE r.resource=@link", &parameters, &page_request()).unwrap();
    assert_eq!(page.count, 1);
    let mut request = page_request();
    request.item_count_max = Some(1);
    let mut ids = Vec::new();
    loop {
        let page = query("SELECT VALUE c.id FROM c", &Parameters::default(), &request).unwrap();
        ids.push(String::from_utf8(page.rows).unwrap());
        request.continuation = page.continuation;
        if request.continuation.is_none() {
            break;
        }
        let other = query("SELECT * FROM c", &Parameters::default(), &request);
        assert!(matches!(other, Err(EngineError::BadContinuation)));
    }
    assert_eq!(ids.len(), 2);
}

/// All resources are in memory and are read at every start, with members that mean nothing here.
#[test]
fn members_without_a_limit_of_their_own_are_small() {
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    let catalog = engine.catalog();
    let body = |more: &str, bytes: usize| {
        // Three bytes of text each.
        let list = vec!["[]"; bytes / size_of::<Value>()].join(",");
        json(&format!(r#"{{"id":"large","x":[{list}]{more}}}"#))
    };
    let script = format!(r#","body":"{}""#, " ".repeat(1 << 20));
    let permission = r#","permissionMode":"Read","resource":"dbs/d/colls/own""#;
    let key =
        r#","encryptionAlgorithm":"A","wrappedDataEncryptionKey":"AAEC","keyWrapMetadata":{"type":"AKV"}"#;
    let container = r#","partitionKey":{"paths":["/pk"]}"#;
    type Create<'c> = (&'c str, &'c dyn Fn(&Value) -> Result<(), EngineError>);
    let creates: [Create<'_>; 6] = [
        ("", &|body| catalog.create_database(body, None).map(drop)),
        ("", &|body| catalog.create_user("d", body, true).map(drop)),
        (permission, &|body| catalog.create_permission("d", "u", body, true).map(drop)),
        (key, &|body| catalog.create_client_encryption_key("d", body).map(drop)),
        (container, &|body| catalog.create_container("d", body, None).map(drop)),
        (&script, &|body| catalog.upsert_script("d", "c", ScriptKind::StoredProcedure, body, &ANY).map(drop)),
    ];
    for (more, create) in creates {
        let refused = create(&body(more, 16 << 10)).expect_err(&more[..more.len().min(40)]);
        assert!(matches!(refused, EngineError::BadRequest { .. }), "{refused}");
        assert!(refused.to_string().contains("at most 16384 bytes"), "{refused}");
        create(&body(more, 15 << 10)).unwrap();
    }
}

#[test]
fn large_policies_fit_and_huge_ones_do_not() {
    let engine = open(&MemoryStorage::new());
    fill(&engine);
    let container = |id: &str, policy: &str| {
        json(&format!(r#"{{"id":"{id}","partitionKey":{{"paths":["/pk"]}},"indexingPolicy":{policy}}}"#))
    };
    let path = |number| format!(r#"{{"path":"/{}{number}/?"}}"#, "p".repeat(200));
    let paths: Vec<_> = (0..1499).map(path).collect();
    let excluded = r#""excludedPaths":[{"path":"/*"}]"#;
    let large = container("large", &format!(r#"{{"includedPaths":[{}],{excluded}}}"#, paths.join(",")));
    engine.catalog().create_container("d", &large, None).unwrap();
    let x = vec!["[]"; 50_000].join(",");
    let huge = container("huge", &format!(r#"{{{excluded},"x":[{x}]}}"#));
    let refused = engine.catalog().create_container("d", &huge, None).map(drop).unwrap_err();
    assert!(refused.to_string().contains("at most 1048576 bytes"), "{refused}");
    let huge = container("large", &format!(r#"{{{excluded},"x":[{x}]}}"#));
    let refused = engine.catalog().replace_container("d", "large", &huge, &ANY).map(drop).unwrap_err();
    assert!(refused.to_string().contains("at most 1048576 bytes"), "{refused}");
}

#[test]
fn one_of_many_creates_wins() {
    let engine = Arc::new(open(&MemoryStorage::new()));
    let barrier = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (engine, barrier) = (engine.clone(), barrier.clone());
            std::thread::spawn(move || {
                barrier.wait();
                engine.catalog().create_database(&json(r#"{"id":"d"}"#), None).is_ok()
            })
        })
        .collect();
    let won = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count();
    assert_eq!(won, 1);
    assert_eq!(engine.catalog().databases().len(), 1);
}

#[test]
fn a_lost_answer_is_asked_for_again() {
    for fault in
        [CommitFault::UnknownDone, CommitFault::UnknownNotDone, CommitFault::Busy, CommitFault::Conflict]
    {
        let memory = MemoryStorage::new();
        let storage = Arc::new(FaultStorage::new(memory.reopen()));
        let engine = support::open_on(storage.clone());
        storage.script_commits([fault]);
        support::database(&engine, "d");
        assert_eq!(engine.catalog().databases().len(), 1, "{fault:?}");
        let twice = engine.catalog().create_database(&json(r#"{"id":"d"}"#), None);
        assert!(matches!(twice, Err(EngineError::AlreadyExists { .. })));
        assert_eq!(dump(&open(&memory)), dump(&engine));
    }
}

#[test]
fn a_change_in_doubt_is_settled_before_the_next_one() {
    for fault in [CommitFault::UnknownDone, CommitFault::UnknownNotDone] {
        let memory = MemoryStorage::new();
        let storage = Arc::new(FaultStorage::new(memory.reopen()));
        let engine = support::open_on(storage.clone());
        // Longer than patience. A commit that was done answers every retry, so the doubt has to be scripted.
        storage.script_commits([fault; 6]);
        let doubtful = engine.catalog().create_database(&json(r#"{"id":"d"}"#), None);
        assert!(matches!(doubtful, Err(EngineError::Unresolved)), "{doubtful:?}");
        support::database(&engine, "e");
        let names: Vec<String> =
            engine.catalog().databases().iter().map(|database| database.id.clone()).collect();
        assert_eq!(names, ["d", "e"]);
        assert_eq!(dump(&open(&memory)), dump(&engine));
    }
}

#[test]
fn a_poisoned_storage_takes_no_change_and_still_answers() {
    let memory = MemoryStorage::new();
    let storage = Arc::new(FaultStorage::new(memory.reopen()));
    let engine = support::open_on(storage.clone());
    let container = support::container(&engine);
    storage.script_commits([CommitFault::Poison]);
    assert!(matches!(engine.catalog().delete_container("d", "c", &ANY), Err(EngineError::Storage(_))));
    assert!(matches!(engine.catalog().delete_database("d", &ANY), Err(EngineError::Storage(_))));
    assert_eq!(engine.catalog().container("d", "c").unwrap().resource.rid, container.resource.rid);
    assert_eq!(support::items(&engine, &container).len(), 0);
    assert_eq!(dump(&open(&memory)), dump(&engine));
}

#[test]
fn a_newer_store_and_a_foreign_one_are_refused() {
    let memory = MemoryStorage::new();
    open(&memory).close().unwrap();
    let storage = memory.reopen();
    let snapshot = storage.snapshot().unwrap();
    let space = quire_storage::Space(0);
    let mut store = snapshot.get(space, &[1]).unwrap().unwrap();
    store[5] = 99;
    let put = |key: &[u8], value: Vec<u8>| {
        let op = quire_storage::Op::Put { space, key: key.to_vec(), value };
        let token = quire_storage::Token(Number::Int(7).as_f64() as u128 + key[0] as u128);
        storage.commit(quire_storage::Commit { guards: vec![], token, ops: vec![op] }).unwrap();
    };
    put(&[1], store);
    let newer = Engine::open(Arc::new(memory.reopen()), support::options());
    assert!(matches!(newer, Err(EngineError::NewerFormat { found: 99, .. })));
    let foreign = MemoryStorage::new();
    let token = quire_storage::Token(1);
    let op = quire_storage::Op::Put { space, key: vec![9], value: vec![] };
    foreign.commit(quire_storage::Commit { guards: vec![], token, ops: vec![op] }).unwrap();
    assert!(matches!(Engine::open(Arc::new(foreign), support::options()), Err(EngineError::Corrupt { .. })));
}

#[test]
fn a_garbled_catalog_row_is_noticed() {
    let memory = MemoryStorage::new();
    let engine = open(&memory);
    fill(&engine);
    engine.close().unwrap();
    let storage = memory.reopen();
    let space = quire_storage::Space(0);
    let key = [0x10, 1, 0, 0, 0, 1];
    let mut row = storage.snapshot().unwrap().get(space, &key).unwrap().unwrap();
    *row.last_mut().unwrap() ^= 1;
    let op = quire_storage::Op::Put { space, key: key.to_vec(), value: row };
    storage
        .commit(quire_storage::Commit { guards: vec![], token: quire_storage::Token(3), ops: vec![op] })
        .unwrap();
    assert!(matches!(
        Engine::open(Arc::new(memory.reopen()), support::options()),
        Err(EngineError::Corrupt { .. })
    ));
}

#[test]
fn a_container_of_the_same_name_is_never_behind_the_one_before() {
    // Clients keep session tokens by name and send the old container's to the new one.
    let storage = MemoryStorage::new();
    let engine = open(&storage);
    engine.catalog().create_database(&json(r#"{"id":"d"}"#), None).unwrap();
    let reached = |engine: &Engine| engine.catalog().container("d", "c").unwrap().positions()[0].lsn;
    let mut last = 0;
    for _ in 0..3 {
        let container = engine.catalog().create_container("d", &json(CONTAINER), None).unwrap();
        assert!(reached(&engine) >= last);
        upsert(&engine, &container, "1", 1).unwrap();
        assert!(reached(&engine) > last);
        last = reached(&engine);
        engine.catalog().delete_container("d", "c", &ANY).unwrap();
    }
    engine.catalog().create_container("d", &json(CONTAINER), None).unwrap();
    engine.close().unwrap();
    assert_eq!(reached(&open(&storage)), last);
    let report = quire_engine::verify(&storage).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}
