//! Batches: atomic ones are all or nothing beside other writers, bulk operations are each for themselves.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::iter::repeat_n;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use expect_test::{Expect, expect};
use quire_engine::{
    Answer, BatchOperation, BatchVerb, Bulk, EngineError, IndexingDirective, OperationResult, WriteKind,
};
use quire_resource::SessionToken;
use quire_storage::Storage;
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use quire_value::{Limits, Value, text};
use support::fixture::{Fixture, Random, number_of, pk};

const KEY: &str = r#"["p"]"#;

fn operation(verb: BatchVerb, body: &str) -> BatchOperation {
    BatchOperation {
        verb,
        body: Bytes::copy_from_slice(body.as_bytes()),
        if_match: None,
        if_none_match: None,
        indexing: IndexingDirective::Default,
        partition_key: None,
        want_body: true,
    }
}

fn create(body: &str) -> BatchOperation {
    operation(BatchVerb::Create, body)
}

fn upsert(body: &str) -> BatchOperation {
    operation(BatchVerb::Upsert, body)
}

fn replace(id: &str, body: &str) -> BatchOperation {
    operation(BatchVerb::Replace { id: id.to_owned() }, body)
}

fn read(id: &str) -> BatchOperation {
    operation(BatchVerb::Read { id: id.to_owned() }, "")
}

fn delete(id: &str) -> BatchOperation {
    operation(BatchVerb::Delete { id: id.to_owned() }, "")
}

fn patch(id: &str, body: &str) -> BatchOperation {
    operation(BatchVerb::Patch { id: id.to_owned() }, body)
}

fn increment(id: &str, by: i64) -> BatchOperation {
    patch(id, &format!(r#"[{{"op":"incr","path":"/n","value":{by}}}]"#))
}

fn in_key(mut operation: BatchOperation, key: &str) -> BatchOperation {
    operation.partition_key = Some(pk(key));
    operation
}

fn atomic(fixture: &Fixture, operations: &[BatchOperation]) -> Answer<Vec<OperationResult>> {
    fixture.engine.write_batch(&fixture.container, &pk(KEY), operations, None, &Default::default())
}

fn bulk(fixture: &Fixture, operations: Vec<BatchOperation>) -> Vec<OperationResult> {
    let bulk = Bulk {
        operations,
        partition_id: None,
        partition_key: None,
        continue_on_error: true,
        session: None,
        cancel: Default::default(),
    };
    fixture.engine.bulk(&fixture.container, bulk).result.expect("a bulk")
}

/// One line per result: outcome or error, charge, body without system properties.
fn print(results: &[OperationResult]) -> String {
    let mut out = String::new();
    for result in results {
        match &result.result {
            Ok(done) => {
                let body = String::from_utf8_lossy(&done.body);
                let body = body.split(",\"_rid\"").next().unwrap_or_default();
                let has_etag = if done.etag.is_empty() { "" } else { " etag" };
                writeln!(out, "{:?} {:.2}{has_etag} {body}", done.outcome, result.charge).expect("memory");
            }
            Err(error) => writeln!(out, "{error:?} {:.2}", result.charge).expect("memory"),
        }
    }
    out
}

fn check(results: &[OperationResult], expect: Expect) {
    expect.assert_eq(&print(results));
}

fn ids(fixture: &Fixture) -> String {
    let all = fixture.all(Some("SELECT VALUE c.id FROM c ORDER BY c.id"), &Default::default(), -1);
    all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

fn groups(fixture: &Fixture) -> u64 {
    let figures = fixture.engine.statistics();
    figures.iter().find(|(name, _)| *name == "commit_groups").expect("counted").1
}

fn body(result: &OperationResult) -> Value {
    text::parse(&result.result.as_ref().expect("done").body, Limits::default()).expect("a body")
}

#[test]
fn a_batch_is_one_commit_and_sees_itself() {
    let fixture = Fixture::new("");
    fixture.create(r#"{"id":"old","pk":"p","n":1}"#).expect("created");
    fixture.create(r#"{"id":"gone","pk":"p"}"#).expect("created");
    let before = fixture.container.position_of(&pk(KEY)).expect("a position").lsn;
    let mut quiet = create(r#"{"id":"quiet","pk":"p"}"#);
    quiet.want_body = false;
    let answer = atomic(
        &fixture,
        &[
            create(r#"{"id":"a","pk":"p","n":1}"#),
            read("a"),
            increment("a", 5),
            upsert(r#"{"id":"a","pk":"p","n":100}"#),
            replace("old", r#"{"id":"old","pk":"p","n":2}"#),
            delete("gone"),
            create(r#"{"id":"gone","pk":"p","again":true}"#),
            upsert(r#"{"id":"new","pk":"p"}"#),
            delete("new"),
            quiet,
            read("a"),
        ],
    );
    let results = answer.result.expect("committed");
    check(
        &results,
        expect![[r#"
        Created 6.05 etag {"id":"a","pk":"p","n":1
        Read 1.00 etag {"id":"a","pk":"p","n":1
        Replaced 12.10 etag {"id":"a","pk":"p","n":6
        Replaced 12.10 etag {"id":"a","pk":"p","n":100
        Replaced 12.10 etag {"id":"old","pk":"p","n":2
        Deleted 5.70 
        Created 6.05 etag {"id":"gone","pk":"p","again":true
        Created 5.70 etag {"id":"new","pk":"p"
        Deleted 5.70 
        Created 5.70 etag 
        Read 1.00 etag {"id":"a","pk":"p","n":100
    "#]],
    );
    let sum: f64 = results.iter().map(|result| result.charge).sum();
    assert!((sum - answer.charge).abs() < 0.001);
    assert_eq!(answer.position.expect("a position").lsn, before + 1);
    assert_eq!(ids(&fixture), "a gone old quiet");
    let item = fixture.read("a", KEY).expect("there");
    assert_eq!(item, body(&results[10]), "what the batch showed is what is stored");
    assert_eq!(item, body(&results[3]));
    let etags: Vec<_> = results.iter().filter_map(|result| result.result.as_ref().ok()).collect();
    assert_ne!(etags[0].etag, etags[2].etag, "each write has its own");
    let replaced = fixture.write_if(
        WriteKind::Replace { id: "a".to_owned() },
        Some(KEY),
        r#"{"id":"a","pk":"p"}"#,
        Some(&etags[3].etag),
    );
    assert!(replaced.result.is_ok(), "the last one is the item's");
}

#[test]
fn one_failure_undoes_all() {
    let fixture = Fixture::new(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]},"defaultTtl":-1"#);
    fixture.create(r#"{"id":"1","pk":"p","n":1,"u":1}"#).expect("created");
    let stale = |mut operation: BatchOperation| {
        operation.if_match = Some("\"stale\"".to_owned());
        operation
    };
    let mut out = String::new();
    for failing in [
        create(r#"{"id":"1","pk":"p","u":2}"#),
        create(r#"{"id":"2","pk":"p","u":1}"#),
        create(r#"{"id":"2","pk":"q","u":2}"#),
        create(r#"{"pk":"p","u":2}"#),
        create("nonsense"),
        create(r#"{"id":"2","pk":"p","u":2,"ttl":0}"#),
        replace("2", r#"{"id":"2","pk":"p","u":2}"#),
        replace("1", r#"{"id":"x","pk":"p","u":2}"#),
        delete("2"),
        read("2"),
        patch("2", "[]"),
        patch("1", r#"[{"op":"remove","path":"/x"}]"#),
        patch(
            "1",
            r#"{"operations":[{"op":"incr","path":"/n","value":1}],"condition":"FROM c WHERE c.n = 7"}"#,
        ),
        stale(delete("1")),
        stale(upsert(r#"{"id":"1","pk":"p","u":2}"#)),
        stale(increment("1", 1)),
    ] {
        let before = fixture.container.position_of(&pk(KEY)).expect("a position").lsn;
        let answer = atomic(&fixture, &[create(r#"{"id":"x","pk":"p","u":"x"}"#), failing, read("1")]);
        let results = answer.result.expect("an answer");
        assert!(matches!(results[0].result, Err(EngineError::FailedDependency)));
        assert!(matches!(results[2].result, Err(EngineError::FailedDependency)));
        assert_eq!(answer.position.expect("a position").lsn, before);
        writeln!(out, "{:?}", results[1].result.as_ref().map(|done| done.outcome)).expect("memory");
    }
    expect![[r#"
        Err(ItemExists { id: "1" })
        Err(UniqueKeyTaken { paths: "/u" })
        Err(PartitionKeyMismatch)
        Err(MissingProperties { names: "id" })
        Err(BadJson(Malformed { offset: 0, reason: "expected a value" }))
        Err(BadTtl(TtlError { value: "0" }))
        Err(ItemNotFound { id: "2" })
        Err(ItemExists { id: "x" })
        Err(ItemNotFound { id: "2" })
        Err(ItemNotFound { id: "2" })
        Err(BadRequest { message: "The patch has no operations." })
        Err(BadRequest { message: "For Operation(1): The Node to be removed is absent. Learn more: https://aka.ms/cosmosdbpatchdocs" })
        Err(PatchConditionNotMet)
        Err(PreconditionFailed)
        Err(PreconditionFailed)
        Err(PreconditionFailed)
    "#]].assert_eq(&out);
    assert_eq!(ids(&fixture), "1");
    assert_eq!(number_of(&fixture.read("1", KEY).expect("there"), "n"), 1);
}

#[test]
fn not_modified_is_no_failure() {
    let fixture = Fixture::new("");
    let etag = fixture.create(r#"{"id":"1","pk":"p"}"#).expect("created").etag;
    let mut none_match = read("1");
    none_match.if_none_match = Some(etag.clone());
    let mut matching = read("1");
    matching.if_match = Some(etag);
    let mut other = read("1");
    (other.if_match, other.if_none_match) = (Some("\"x\"".to_owned()), Some("\"y\"".to_owned()));
    let answer = atomic(&fixture, &[none_match, matching, other, create(r#"{"id":"2","pk":"p"}"#)]);
    check(
        &answer.result.expect("committed"),
        expect![[r#"
        NotModified 1.00 etag 
        NotModified 1.00 etag 
        Read 1.00 etag {"id":"1","pk":"p"
        Created 5.70 etag {"id":"2","pk":"p"
    "#]],
    );
    assert_eq!(ids(&fixture), "1 2");
}

#[test]
fn keys_and_sessions_of_the_whole_request() {
    let fixture = Fixture::with_key(r#"{"paths":["/a","/b"],"kind":"MultiHash","version":2}"#, "", 1);
    let write = create(r#"{"id":"1","a":"x","b":"y"}"#);
    let run = |key: &str, operations: &[BatchOperation], session: Option<&SessionToken>| {
        fixture
            .engine
            .write_batch(&fixture.container, &pk(key), operations, session, &Default::default())
            .result
    };
    let (key, written) = (r#"["x","y"]"#, [write.clone()]);
    assert!(
        matches!(run(r#"["x"]"#, &written, None), Err(EngineError::BadPartitionKey(_))),
        "a prefix is no key"
    );
    // A session asks for what can be read: only a batch that reads waits for it.
    let future = SessionToken::parse("0:-1#99").expect("a token");
    let with_read = [write, read("1")];
    assert!(matches!(run(key, &with_read, Some(&future)), Err(EngineError::SessionNotAvailable)));
    assert!(run(key, &written, Some(&future)).expect("an answer")[0].result.is_ok());
}

#[test]
fn unique_values_move_between_items_of_a_batch() {
    let fixture = Fixture::new(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]},"defaultTtl":-1"#);
    fixture.create(r#"{"id":"1","pk":"p","u":"a"}"#).expect("created");
    fixture.create(r#"{"id":"2","pk":"p","u":"b"}"#).expect("created");
    let set =
        |id: &str, value: &str| patch(id, &format!(r#"[{{"op":"set","path":"/u","value":"{value}"}}]"#));
    let swapped = atomic(&fixture, &[set("1", "free"), set("2", "a"), set("1", "b")]).result.expect("done");
    assert!(swapped.iter().all(|result| result.result.is_ok()), "{}", print(&swapped));
    let freed = [delete("1"), create(r#"{"id":"3","pk":"p","u":"b"}"#)];
    let freed = atomic(&fixture, &freed).result.expect("done");
    assert!(freed.iter().all(|result| result.result.is_ok()), "{}", print(&freed));
    // An expired holder goes, though nobody could name its lock.
    fixture.create(r#"{"id":"4","pk":"p","u":"c","ttl":5}"#).expect("created");
    fixture.clock.advance(6);
    let deleted = [create(r#"{"id":"5","pk":"p","u":"c"}"#)];
    let deleted = atomic(&fixture, &deleted).result.expect("done");
    assert!(deleted.iter().all(|result| result.result.is_ok()), "{}", print(&deleted));
    assert_eq!(ids(&fixture), "2 3 5");
}

#[test]
fn the_response_is_bounded() {
    let fixture = Fixture::new("");
    let large = "x".repeat(1_500_000);
    fixture.create(&format!(r#"{{"id":"1","pk":"p","t":"{large}"}}"#)).expect("created");
    let operations = || vec![create(r#"{"id":"2","pk":"p"}"#), read("1"), read("1"), read("1"), read("2")];
    let failed = atomic(&fixture, &operations()).result.expect("an answer");
    let outcomes: Vec<_> = failed.iter().map(|result| result.result.is_err()).collect();
    assert_eq!(outcomes, [true; 5]);
    assert!(matches!(failed[3].result, Err(EngineError::ResponseTooLarge { .. })));
    assert_eq!(ids(&fixture), "1");
    // In bulk only what does not fit is left out.
    let each = operations().into_iter().map(|operation| in_key(operation, KEY)).collect();
    let each = bulk(&fixture, each);
    assert!(matches!(each[3].result, Err(EngineError::ResponseTooLarge { .. })));
    assert_eq!(each.iter().filter(|result| result.result.is_ok()).count(), 4);
    let grow = |id: &str| in_key(patch(id, r#"[{"op":"add","path":"/y","value":1}]"#), KEY);
    let grown = bulk(&fixture, vec![grow("1"), grow("1"), grow("1"), grow("2")]);
    assert!(matches!(grown[2].result, Err(EngineError::ResponseTooLarge { .. })), "{}", print(&grown[2..]));
    assert!(grown[3].result.is_ok());
}

#[test]
fn a_batch_of_any_size_is_one_group() {
    let fixture = Fixture::new("");
    let before = groups(&fixture);
    let create = |n: usize, prefix: &str| create(&format!(r#"{{"id":"{prefix}{n:03}","pk":"p"}}"#));
    atomic(&fixture, &(0..100).map(|n| create(n, "a")).collect::<Vec<_>>()).result.expect("committed");
    assert_eq!(groups(&fixture), before + 1);
    let results = bulk(&fixture, (0..100).map(|n| create(n, "b")).collect());
    assert!(results.iter().all(|result| result.result.is_ok()));
    assert_eq!(groups(&fixture), before + 2);
}

/// The locks of a batch are named: one that waits for the disk keeps no other out that touches other items.
#[test]
fn batches_on_different_items_share_a_commit() {
    const THREADS: usize = 8;
    const EACH: usize = 5;
    let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
    let key = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
    let fixture = Fixture::on(
        Arc::clone(&storage) as Arc<dyn Storage>,
        key,
        r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#,
        1,
    );
    storage.script_commits(repeat_n(CommitFault::Delay(Duration::from_millis(20)), 2 * THREADS * EACH));
    let (before, start) = (groups(&fixture), Barrier::new(THREADS));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (fixture, start) = (&fixture, &start);
            scope.spawn(move || {
                start.wait();
                for step in 0..EACH {
                    let item =
                        |n: usize| format!(r#"{{"id":"{thread}-{n}","pk":"p","u":"{thread}-{n}-{step}"}}"#);
                    let operations = [upsert(&item(0)), upsert(&item(1)), read(&format!("{thread}-0"))];
                    let results = atomic(fixture, &operations).result.expect("committed");
                    assert!(results.iter().all(|result| result.result.is_ok()), "{}", print(&results));
                }
            });
        }
    });
    let commits = groups(&fixture) - before;
    assert!(commits <= (THREADS * EACH / 2) as u64, "{commits} commits for {} batches", THREADS * EACH);
}

#[test]
fn batches_and_bulks_rename() {
    let unique = r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]},"defaultTtl":-1"#;
    let rid_of = |fixture: &Fixture, id: &str| {
        fixture.read(id, KEY).ok().map(|item| support::fixture::text_of(&item, "_rid").to_owned())
    };
    let verify = |fixture: &Fixture| {
        let report = quire_engine::verify(&*fixture.storage).expect("reads");
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    };
    // Each list of operations, and the ids of the three items that it leaves: `-` where one is gone.
    let item = |id: &str, u: u32| format!(r#"{{"id":"{id}","pk":"p","u":{u}}}"#);
    let to = |from: &str, id: &str, u: u32| replace(from, &item(id, u));
    let cases: Vec<(Vec<BatchOperation>, [&str; 3])> = vec![
        (vec![to("a", "z", 1)], ["z", "b", "c"]),
        (vec![to("a", "z", 1), to("z", "y", 1)], ["y", "b", "c"]),
        (vec![to("a", "z", 1), to("z", "a", 1)], ["a", "b", "c"]),
        (vec![to("a", "z", 1), to("b", "a", 2), to("z", "b", 1)], ["b", "a", "c"]),
        (vec![to("a", "z", 1), delete("z")], ["-", "b", "c"]),
        (vec![delete("b"), to("a", "b", 1)], ["b", "-", "c"]),
        (vec![delete("b"), to("a", "b", 2)], ["b", "-", "c"]),
        (vec![to("a", "z", 1), patch("z", r#"[{"op":"set","path":"/u","value":7}]"#)], ["z", "b", "c"]),
    ];
    for (operations, expected) in cases {
        for building in [false, true] {
            let mut fixture = Fixture::new(unique);
            for (u, id) in ["a", "b", "c"].iter().enumerate() {
                fixture.create(&item(id, u as u32 + 1)).expect("created");
            }
            let rids: Vec<_> = ["a", "b", "c"].iter().map(|id| rid_of(&fixture, id)).collect();
            if building {
                let policy = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
                    "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]},"defaultTtl":-1,
                    "indexingPolicy":{"includedPaths":[{"path":"/u/?"}],"excludedPaths":[{"path":"/*"}]}}"#;
                let policy = support::fixture::json(policy);
                fixture.container = fixture
                    .engine
                    .catalog()
                    .replace_container("db", "c", &policy, &Default::default())
                    .expect("replaced");
            }
            let results = atomic(&fixture, &operations).result.expect("an answer");
            assert!(results.iter().all(|result| result.result.is_ok()), "{}", print(&results));
            for (rid, id) in rids.iter().zip(expected) {
                let found = if id == "-" { None } else { rid_of(&fixture, id) };
                assert_eq!(found.is_some(), id != "-");
                assert!(id == "-" || found == *rid, "{id} has another _rid: {}", print(&results));
            }
            let gone = ["a", "b", "c", "y", "z"].iter().filter(|id| !expected.contains(id));
            assert!(gone.into_iter().all(|id| rid_of(&fixture, id).is_none()));
            verify(&fixture);
        }
    }

    let fixture = Fixture::new(unique);
    fixture.create(&item("a", 1)).expect("created");
    fixture.create(&item("b", 2)).expect("created");
    let rid = rid_of(&fixture, "a");
    // Recreated under the id that it left: another item.
    let operations = [to("a", "z", 1), create(&item("a", 5)), read("a"), read("z")];
    let results = atomic(&fixture, &operations).result.expect("an answer");
    assert!(results.iter().all(|result| result.result.is_ok()), "{}", print(&results));
    assert_eq!((rid_of(&fixture, "z"), rid_of(&fixture, "a") == rid), (rid.clone(), false));
    let taken = atomic(&fixture, &[to("z", "b", 1)]).result.expect("an answer");
    assert!(matches!(taken[0].result, Err(EngineError::ItemExists { .. })), "{}", print(&taken));
    verify(&fixture);

    let results = bulk(
        &fixture,
        vec![in_key(to("z", "y", 1), KEY), in_key(to("y", "x", 1), KEY), in_key(to("x", "b", 1), KEY)],
    );
    assert!(results[..2].iter().all(|result| result.result.is_ok()), "{}", print(&results));
    assert!(matches!(results[2].result, Err(EngineError::ItemExists { .. })), "{}", print(&results));
    assert_eq!((rid_of(&fixture, "x"), rid_of(&fixture, "z")), (rid, None));
    let missing = bulk(&fixture, vec![in_key(replace("gone", "{"), KEY), in_key(replace("x", "{"), KEY)]);
    assert!(matches!(missing[0].result, Err(EngineError::ItemNotFound { .. })), "{}", print(&missing));
    assert!(matches!(missing[1].result, Err(EngineError::BadJson(_))), "{}", print(&missing));
    verify(&fixture);
}

#[test]
fn bulk_operations_stand_alone() {
    let fixture = Fixture::new("");
    fixture.create(r#"{"id":"1","pk":"p","n":0}"#).expect("created");
    let operations = || {
        vec![
            in_key(create(r#"{"id":"2","pk":"p"}"#), KEY),
            in_key(create(r#"{"id":"1","pk":"p"}"#), KEY),
            in_key(increment("1", 1), KEY),
            in_key(increment("1", 10), KEY),
            in_key(read("1"), KEY),
            in_key(create(r#"{"id":"q","pk":"q"}"#), KEY),
            create(r#"{"id":"q","pk":"q"}"#),
            read("q"),
            in_key(read("q"), r#"["q"]"#),
            in_key(replace("q", r#"{"id":"q","pk":"q","new":1}"#), r#"["q"]"#),
            in_key(delete("q"), r#"["q"]"#),
            in_key(delete("q"), r#"["q"]"#),
            in_key(upsert("nonsense"), KEY),
        ]
    };
    check(
        &bulk(&fixture, operations()),
        expect![[r#"
        Created 5.70 etag {"id":"2","pk":"p"
        ItemExists { id: "1" } 1.00
        Replaced 12.10 etag {"id":"1","pk":"p","n":1
        Replaced 12.10 etag {"id":"1","pk":"p","n":11
        Read 1.00 etag {"id":"1","pk":"p","n":11
        PartitionKeyMismatch 1.00
        Created 5.70 etag {"id":"q","pk":"q"
        PartitionKeyMissing 1.00
        Read 1.00 etag {"id":"q","pk":"q"
        Replaced 12.10 etag {"id":"q","pk":"q","new":1
        Deleted 6.05 
        ItemNotFound { id: "q" } 1.00
        BadJson(Malformed { offset: 0, reason: "expected a value" }) 1.00
    "#]],
    );
    let stopping = Bulk {
        operations: operations(),
        partition_id: Some("0".to_owned()),
        partition_key: None,
        continue_on_error: false,
        session: None,
        cancel: Default::default(),
    };
    let stopped = fixture.engine.bulk(&fixture.container, stopping).result.expect("a bulk");
    assert!(matches!(stopped[0].result, Err(EngineError::ItemExists { .. })));
    assert!(stopped[1..].iter().all(|result| matches!(result.result, Err(EngineError::FailedDependency))));
}

#[test]
fn bulk_keeps_to_its_partition() {
    let key = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
    let fixture = Fixture::with_key(key, "", 5);
    let partition_of = |key: &str| fixture.container.position_of(&pk(key)).expect("a position").partition_id;
    let logical_partition = partition_of(KEY);
    let keys: Vec<String> = (0..40).map(|n| format!(r#"["k{n}"]"#)).collect();
    let operation = |n: usize| in_key(create(&format!(r#"{{"id":"i","pk":"k{n}"}}"#)), &keys[n]);
    let run = |partition_id: Option<&str>, partition_key: Option<&str>, operations| {
        let bulk = Bulk {
            operations,
            partition_id: partition_id.map(str::to_owned),
            partition_key: partition_key.map(pk),
            continue_on_error: true,
            session: None,
            cancel: Default::default(),
        };
        fixture.engine.bulk(&fixture.container, bulk)
    };
    let answer = run(Some(&logical_partition), None, (0..40).map(operation).collect());
    assert_eq!(answer.position.expect("a position").partition_id, logical_partition);
    for (result, key) in answer.result.expect("a bulk").iter().zip(&keys) {
        match &result.result {
            Ok(_) => assert_eq!(partition_of(key), logical_partition),
            Err(EngineError::PartitionGone { id }) => {
                assert!(partition_of(key) != logical_partition && **id == *logical_partition)
            }
            Err(error) => panic!("{error}"),
        }
    }
    let unknown = run(Some("99"), None, vec![operation(0)]).result;
    assert!(matches!(unknown, Err(EngineError::PartitionGone { .. })));
    let of_one_key =
        vec![create(r#"{"id":"x","pk":"p"}"#), operation(0), read("x"), create(r#"{"id":"y","pk":"q"}"#)];
    let of_one_key = run(None, Some(KEY), of_one_key).result.expect("a bulk");
    check(
        &of_one_key,
        expect![[r#"
        Created 5.70 etag {"id":"x","pk":"p"
        PartitionKeyMismatch 1.00
        Read 1.00 etag {"id":"x","pk":"p"
        PartitionKeyMismatch 1.00
    "#]],
    );
    // Over all partitions at once.
    let everywhere: Vec<_> =
        (0..40).map(|n| in_key(upsert(&format!(r#"{{"id":"i","pk":"k{n}"}}"#)), &keys[n])).collect();
    assert!(bulk(&fixture, everywhere).iter().all(|result| result.result.is_ok()));
}

#[test]
fn bulk_respects_unique_keys() {
    let fixture = Fixture::new(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]},"defaultTtl":-1"#);
    fixture.create(r#"{"id":"old","pk":"p","u":"late","ttl":5}"#).expect("created");
    fixture.clock.advance(6);
    let set =
        |id: &str, value: &str| patch(id, &format!(r#"[{{"op":"set","path":"/u","value":"{value}"}}]"#));
    let operations = vec![
        create(r#"{"id":"1","pk":"p","u":"a"}"#),
        create(r#"{"id":"2","pk":"p","u":"a"}"#),
        create(r#"{"id":"3","pk":"p","u":"late"}"#),
        in_key(set("1", "b"), KEY),
        in_key(set("3", "b"), KEY),
        in_key(set("3", "c"), KEY),
    ];
    check(
        &bulk(&fixture, operations),
        expect![[r#"
        Created 6.05 etag {"id":"1","pk":"p","u":"a"
        UniqueKeyTaken { paths: "/u" } 1.00
        Created 6.05 etag {"id":"3","pk":"p","u":"late"
        Replaced 12.10 etag {"id":"1","pk":"p","u":"b"
        UniqueKeyTaken { paths: "/u" } 1.00
        Replaced 12.10 etag {"id":"3","pk":"p","u":"c"
    "#]],
    );
}

/// Batches that move amounts between items, beside single and bulk increments of another one: nothing is lost, and the sum
/// that readers see is always the same.
#[test]
fn batches_beside_other_writers() {
    const ITEMS: i64 = 6;
    const EACH: i64 = 60;
    let fixture = Fixture::new("");
    for n in 0..ITEMS {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"p","n":100}}"#)).expect("created");
    }
    fixture.create(r#"{"id":"count","pk":"p","n":0}"#).expect("created");
    let (start, stop) = (Barrier::new(6), AtomicBool::new(false));
    let transfer = |worker: i64, step: i64| {
        let from = (worker + step) % ITEMS;
        let to = (from + 1 + step % (ITEMS - 1)) % ITEMS;
        [increment(&from.to_string(), -1), increment(&to.to_string(), 1)]
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..5)
            .map(|worker: i64| {
                let (fixture, start) = (&fixture, &start);
                scope.spawn(move || {
                    start.wait();
                    for step in 0..EACH {
                        if worker < 3 {
                            let results = atomic(fixture, &transfer(worker, step)).result.expect("committed");
                            assert!(results.iter().all(|result| result.result.is_ok()));
                        } else if worker == 3 {
                            let count = WriteKind::Patch { id: "count".to_owned(), if_none_match: None };
                            let body = r#"[{"op":"incr","path":"/n","value":1}]"#;
                            fixture.write(count, Some(KEY), body).result.expect("patched");
                        } else {
                            let operations = (0..3).map(|_| in_key(increment("count", 1), KEY)).collect();
                            assert!(bulk(fixture, operations).iter().all(|result| result.result.is_ok()));
                        }
                    }
                })
            })
            .collect();
        let (fixture, start, stop) = (&fixture, &start, &stop);
        let reader = scope.spawn(move || {
            start.wait();
            while !stop.load(Ordering::Relaxed) {
                let query = "SELECT VALUE SUM(c.n) FROM c WHERE c.id != 'count'";
                let sums = fixture.all(Some(query), &Default::default(), -1);
                assert_eq!(sums.first().and_then(Value::as_i64), Some(100 * ITEMS));
            }
        });
        workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
        stop.store(true, Ordering::Relaxed);
        reader.join().expect("the reader");
    });
    assert_eq!(number_of(&fixture.read("count", KEY).expect("there"), "n"), EACH + 3 * EACH);
    let lsn = fixture.container.position_of(&pk(KEY)).expect("a position").lsn;
    assert_eq!(lsn as i64, ITEMS + 1 + 3 * EACH + EACH + 3 * EACH, "one LSN for each batch");
}

/// Commits that are refused, lost or in doubt: whatever a batch was answered, it is committed as a whole or not at all.
#[test]
fn batches_stay_whole_on_a_faulty_storage() {
    const THREADS: i64 = 4;
    const EACH: i64 = 60;
    for seed in 1..=3 {
        let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
        let key = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
        let fixture = Fixture::on(Arc::clone(&storage) as Arc<dyn Storage>, key, "", 1);
        for n in 0..4 {
            fixture.create(&format!(r#"{{"id":"{n}","pk":"p","n":100,"steps":[]}}"#)).expect("created");
        }
        let mut random = Random(seed);
        storage.script_commits((0..2000).map(|_| match random.below(20) {
            0 => CommitFault::Conflict,
            1 => CommitFault::Busy,
            2 => CommitFault::UnknownDone,
            3 => CommitFault::UnknownNotDone,
            4 => CommitFault::Delay(Duration::from_millis(1)),
            _ => CommitFault::Pass,
        }));
        let (done, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for worker in 0..THREADS {
                let (fixture, done, failed) = (&fixture, &done, &failed);
                scope.spawn(move || {
                    for step in 0..EACH {
                        let (from, to) = ((worker + step) % 4, (worker + 3 * step + 1) % 4);
                        let name = worker * EACH + step;
                        let change = |id: i64, by: i64| {
                            let operations = format!(
                                r#"[{{"op":"incr","path":"/n","value":{by}}},{{"op":"add","path":"/steps/-","value":{name}}}]"#
                            );
                            patch(&id.to_string(), &operations)
                        };
                        match atomic(fixture, &[change(from, -1), change(to, 1)]).result {
                            Ok(results) => {
                                assert!(results.iter().all(|result| result.result.is_ok()), "seed {seed}");
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(_) => _ = failed.fetch_add(1, Ordering::Relaxed),
                        }
                    }
                });
            }
        });
        storage.stop_faults();
        let mut seen: BTreeMap<i64, usize> = BTreeMap::new();
        let mut sum = 0;
        for n in 0..4 {
            let item = fixture.read(&n.to_string(), KEY).expect("there");
            sum += number_of(&item, "n");
            for step in item.get("steps").and_then(Value::as_array).expect("steps") {
                *seen.entry(step.as_i64().expect("a number")).or_default() += 1;
            }
        }
        assert_eq!(sum, 400, "seed {seed}");
        assert!(seen.values().all(|&count| count == 2), "seed {seed}: half a batch, or one twice: {seen:?}");
        assert!(
            seen.len() as u64 >= done.load(Ordering::Relaxed),
            "seed {seed}: an acknowledged batch is gone"
        );
        assert!(storage.injected() > 20, "seed {seed}");
        println!(
            "seed {seed}: {} done, {} failed, {} found",
            done.into_inner(),
            failed.into_inner(),
            seen.len()
        );
    }
}
