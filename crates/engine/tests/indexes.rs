//! Index rows from outside: whatever is written, and however the policy changes meanwhile, `verify` finds the rows that
//! the items ask for, none besides, and the right counts. That the rows are the right ones is tested where they are made.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quire_engine::{Engine, EngineError, IndexingDirective, Precondition, Scope, WriteItem, WriteKind};
use quire_storage::fault::FaultStorage;
use quire_storage::memory::MemoryStorage;
use support::check_sound;
use support::fixture::{Fixture, Random, json};

const KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
const INDEX_SPACE: u8 = 3;

const POLICIES: [&str; 7] = [
    r#"{"indexingMode":"consistent"}"#,
    r#"{"indexingMode":"none","automatic":false}"#,
    r#"{"indexingMode":"consistent","automatic":false}"#,
    r#"{"includedPaths":[{"path":"/a/?"},{"path":"/list/[]/x/?","order":"both"}],"excludedPaths":[{"path":"/*"}]}"#,
    r#"{"includedPaths":[{"path":"/*","order":"partition"}],"excludedPaths":[{"path":"/a/*"}],
        "compositeIndexes":[[{"path":"/a"},{"path":"/_ts","order":"descending"}]]}"#,
    r#"{"compositeIndexes":[[{"path":"/a","order":"descending"},{"path":"/b"}],[{"path":"/b"},{"path":"/pk"}]]}"#,
    r#"{"includedPaths":[{"path":"/*","order":"both"}],"excludedPaths":[{"path":"/list/[]/x/?"},{"path":"/text/?"}]}"#,
];

fn definition(policy: &str, more: &str) -> String {
    format!(r#"{{"id":"c","partitionKey":{KEY},"indexingPolicy":{policy}{more}}}"#)
}

fn replace_policy(engine: &Engine, policy: &str, more: &str) -> Result<(), EngineError> {
    let body = json(&definition(policy, more));
    engine.catalog().replace_container("db", "c", &body, &Precondition::default()).map(drop)
}

fn wait_until_built(engine: &Engine) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while engine.catalog().container("db", "c").expect("exists").index_progress() < 100 {
        assert!(Instant::now() < deadline, "the indexes are never built");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A value of few, so that rows stay, come and go.
fn value(random: &mut Random, depth: u32) -> String {
    match random.below(if depth == 0 { 7 } else { 10 }) {
        0 => "null".to_owned(),
        1 => "true".to_owned(),
        2 => random.below(3).to_string(),
        3 => format!("-{}.5e{}", random.below(3), random.below(300)),
        4 => format!("\"{}\"", "ab\\u0000"[..random.below(3) as usize].repeat(random.below(2) as usize)),
        5 => format!("\"{}{}\"", "long ".repeat(30), random.below(2)),
        6 => format!("\"{}\"", random.below(4)),
        7 | 8 => {
            let elements: Vec<String> = (0..random.below(4)).map(|_| value(random, depth - 1)).collect();
            format!("[{}]", elements.join(","))
        }
        _ => {
            let names = ["x", "y", "odd name"];
            let members = names[..random.below(4) as usize].iter();
            let members: Vec<String> =
                members.map(|name| format!("\"{name}\":{}", value(random, depth - 1))).collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

fn item(random: &mut Random) -> String {
    let mut body = format!(r#"{{"id":"{}","pk":"{}""#, random.below(12), random.below(3));
    for name in ["a", "b", "list", "text"] {
        if random.below(3) > 0 {
            body += &format!(",\"{name}\":{}", value(random, 3));
        }
    }
    if random.below(4) == 0 {
        body += &format!(",\"ttl\":{}", 1 + random.below(5));
    }
    body + "}"
}

/// One random write; what is refused by itself is as good as what is not.
fn write(fixture: &Fixture, random: &mut Random) {
    let id = random.below(12).to_string();
    let kind = match random.below(6) {
        0 | 1 => WriteKind::Create,
        2 | 3 => WriteKind::Upsert,
        4 => WriteKind::Replace { id: id.clone() },
        _ => WriteKind::Delete { id: id.clone() },
    };
    let indexing = match random.below(8) {
        0 => IndexingDirective::Include,
        1 => IndexingDirective::Exclude,
        _ => IndexingDirective::Default,
    };
    let is_delete = matches!(kind, WriteKind::Delete { .. });
    let key = format!("[\"{}\"]", random.below(3));
    let write = WriteItem {
        indexing,
        ..WriteItem::new(
            kind,
            is_delete.then(|| support::fixture::pk(&key)),
            if is_delete { Bytes::new() } else { Bytes::from(item(random)) },
        )
    };
    match fixture.engine.write_item(&fixture.container, write).result {
        Ok(_) => {}
        Err(
            EngineError::ItemExists { .. }
            | EngineError::ItemNotFound { .. }
            | EngineError::UniqueKeyTaken { .. }
            | EngineError::BadRequest { .. }
            | EngineError::Contended
            // Prepared again and again while definitions change.
            | EngineError::Overloaded,
        ) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn rows_follow_every_write_under_every_policy() {
    for (seed, policy) in POLICIES.iter().enumerate() {
        let members = format!(
            r#""indexingPolicy":{policy},"defaultTtl":-1,"uniqueKeyPolicy":{{"uniqueKeys":[{{"paths":["/b"]}}]}}"#
        );
        let fixture = Fixture::with_key(KEY, &members, 2);
        let mut random = Random(seed as u64 + 1);
        for round in 0..250 {
            if round == 60 {
                for path in ["/a", "/b", "/list/x", "/text"] {
                    let path = quire_value::Path::parse(path).expect("a path");
                    fixture.engine.index_missing_values(&fixture.container, &path);
                }
            }
            write(&fixture, &mut random);
            if random.below(10) == 0 {
                fixture.clock.advance(1 + random.below(3) as i64); // some expire, and are removed when in the way
            }
            if round % 50 == 0 {
                check_sound(&*fixture.storage);
            }
        }
        check_sound(&*fixture.storage);
    }
}

#[test]
fn a_store_that_is_opened_again_goes_on_counting() {
    let memory = MemoryStorage::new();
    let mut random = Random(7);
    let mut fixture = Fixture::on(Arc::new(memory.reopen()), KEY, "", 1);
    for _ in 0..4 {
        (0..40).for_each(|_| write(&fixture, &mut random));
        fixture.engine.close().unwrap();
        check_sound(&memory.reopen());
        fixture = fixture.reopened(Arc::new(memory.reopen()));
    }
}

#[test]
fn a_policy_changes_under_writers_and_a_kill() {
    let memory = MemoryStorage::new();
    let fixture = Fixture::on(Arc::new(memory.reopen()), KEY, "", 2);
    let stop = AtomicBool::new(false);
    let mut copies = Vec::new();
    std::thread::scope(|scope| {
        let stop_writers = StopWriters(&stop);
        for seed in 0..3 {
            let (fixture, stop) = (&fixture, &stop);
            scope.spawn(move || {
                let mut random = Random(100 + seed);
                while !stop.load(Ordering::Relaxed) {
                    write(fixture, &mut random);
                }
            });
        }
        for policy in POLICIES.iter().chain(&POLICIES).chain(&POLICIES) {
            // Refused while 15 earlier ones are not complete.
            while let Err(error) = replace_policy(&fixture.engine, policy, "") {
                assert!(matches!(error, EngineError::BadRequest { .. }), "{error}");
                std::thread::sleep(Duration::from_millis(5));
            }
            let path = quire_value::Path::parse(["/a", "/b", "/text"][copies.len() % 3]).expect("a path");
            fixture.engine.index_missing_values(&fixture.container, &path);
            copies.push(memory.duplicate());
            std::thread::sleep(Duration::from_millis(3)); // the next one may come while this one is built
        }
        wait_until_built(&fixture.engine);
        drop(stop_writers);
    });
    fixture.engine.close().unwrap();
    check_sound(&memory.reopen());
    for copy in copies {
        check_sound(&copy.reopen());
        let again = fixture.reopened(Arc::new(copy.reopen()));
        wait_until_built(&again.engine);
        again.engine.close().unwrap();
        check_sound(&copy.reopen());
    }
}

/// An index is used only while the snapshot has all its rows.
#[test]
fn queries_are_right_while_policies_change() {
    let fixture = Fixture::with_key(KEY, "", 2);
    for number in 0..300 {
        fixture.create(&format!(r#"{{"id":"{number}","pk":"{}","a":{}}}"#, number % 9, number % 10)).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop_changes = StopWriters(&stop);
        let (engine, stop) = (&fixture.engine, &stop);
        scope.spawn(move || {
            for policy in POLICIES.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                while replace_policy(engine, policy, "").is_err() && !stop.load(Ordering::Relaxed) {}
                if policy.contains("consistent") {
                    wait_until_built(engine);
                }
            }
        });
        for _ in 0..150 {
            let found = fixture.all(Some("SELECT VALUE c.id FROM c WHERE c.a = 4"), &Scope::default(), -1);
            assert_eq!(found.len(), 30);
            let first =
                fixture.all(Some("SELECT TOP 3 VALUE c.a FROM c ORDER BY c.a DESC"), &Scope::default(), -1);
            assert_eq!(first, vec![json("9"); 3]);
        }
        drop(stop_changes);
    });
}

/// Also when the test fails.
struct StopWriters<'a>(&'a AtomicBool);

impl Drop for StopWriters<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Enough items for many steps, so that a kill falls between them.
#[test]
fn a_build_goes_on_where_it_was_killed() {
    let memory = MemoryStorage::new();
    let fixture = Fixture::on(Arc::new(memory.reopen()), KEY, "", 2);
    for number in 0..1500 {
        fixture.create(&format!(r#"{{"id":"{number}","pk":"{}","a":{number}}}"#, number % 40)).unwrap();
    }
    let rows = fixture.rows(INDEX_SPACE, &[]);
    let lsns = || fixture.container.positions().iter().map(|position| position.lsn).collect::<Vec<_>>();
    let before = lsns();
    replace_policy(&fixture.engine, POLICIES[3], "").unwrap();
    let mut copies = Vec::new();
    while fixture.engine.catalog().container("db", "c").unwrap().index_progress() < 100 {
        copies.push(memory.duplicate());
    }
    assert!(fixture.rows(INDEX_SPACE, &[]) < rows);
    assert_eq!(before, lsns(), "items did not change");
    check_sound(&memory.reopen());
    let step = copies.len().div_ceil(6).max(1);
    for copy in copies.iter().step_by(step) {
        check_sound(&copy.reopen());
        let again = fixture.reopened(Arc::new(copy.reopen()));
        wait_until_built(&again.engine);
        assert_eq!(again.rows(INDEX_SPACE, &[]), fixture.rows(INDEX_SPACE, &[]));
        again.engine.close().unwrap();
        check_sound(&copy.reopen());
    }
}

#[test]
fn commits_of_unknown_outcome_do_not_miscount() {
    use quire_storage::fault::CommitFault::{Busy, Conflict, Pass, UnknownDone, UnknownNotDone};
    let memory = MemoryStorage::new();
    let storage = Arc::new(FaultStorage::new(memory.reopen()));
    let fixture = Fixture::on(storage.clone(), KEY, "", 1);
    let mut random = Random(5);
    for round in 0..120 {
        let fault = [Busy, Conflict, Pass, UnknownDone, UnknownNotDone][random.below(5) as usize];
        storage.script_commits([fault]);
        write(&fixture, &mut random);
        if round % 40 == 10 {
            replace_policy(&fixture.engine, POLICIES[round / 40 + 3], "").unwrap();
        }
    }
    wait_until_built(&fixture.engine);
    fixture.engine.close().unwrap();
    check_sound(&memory.reopen());
}

#[test]
fn what_has_nothing_to_do_with_indexes_builds_none() {
    let fixture = Fixture::new("");
    fixture.create(r#"{"id":"1","pk":"a"}"#).unwrap();
    let more =
        r#","defaultTtl":60,"computedProperties":[{"name":"low","query":"SELECT VALUE LOWER(c.id) FROM c"}]"#;
    replace_policy(&fixture.engine, POLICIES[0], more).unwrap();
    assert_eq!(fixture.engine.catalog().container("db", "c").unwrap().index_progress(), 100);
    let statistics = fixture.engine.statistics();
    assert!(
        statistics.contains(&("index_builds_waiting", 0)) && statistics.contains(&("index_build_chunks", 0))
    );
    check_sound(&*fixture.storage);
}

/// About the most values that fit into an item: all of them replaced by others in one commit.
#[test]
fn an_item_may_be_nothing_but_values() {
    let directory = tempfile::tempdir().unwrap();
    let options = quire_storage_local::LocalOptions::default();
    let local = quire_storage_local::LocalStorage::open(directory.path(), options).unwrap();
    let fixture = Fixture::on(Arc::new(local), KEY, "", 1);
    let body = |first: u32| {
        let values: Vec<String> = (first..first + 290_000).map(|value| value.to_string()).collect();
        format!(r#"{{"id":"1","pk":"a","values":[{}]}}"#, values.join(","))
    };
    fixture.create(&body(100_000)).unwrap();
    fixture.upsert(&body(500_000)).unwrap();
    fixture.delete("1", "[\"a\"]").unwrap();
    let report = quire_engine::verify(&*fixture.storage).unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
}

/// More paths than are counted or remembered, each of its own item.
#[test]
fn a_container_may_have_any_number_of_paths() {
    let fixture = Fixture::new("");
    for number in 0..12 {
        let members: Vec<String> = (0..900).map(|name| format!("\"n{number}_{name}\":{{\"x\":1}}")).collect();
        fixture.create(&format!(r#"{{"id":"{number}","pk":"a",{}}}"#, members.join(","))).unwrap();
    }
    check_sound(&*fixture.storage);
    for number in 0..12 {
        fixture.delete(&number.to_string(), "[\"a\"]").unwrap();
    }
    check_sound(&*fixture.storage);
}
