//! Splits: reads, counts, change feeds and writes are the same before and after, and nothing in between is lost.

mod support;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quire_engine::{
    Changes, ChangesRequest, EngineError, FeedMode, FeedStart, ItemRead, PageRequest, ReadItem, Scope,
};
use quire_resource::SessionToken;
use quire_storage::Storage;
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use quire_value::Value;
use support::fixture::{Fixture, Random, json, number_of, pk, request, text_of};
use support::{check_sound, statistic, wait_for_jobs, wait_for_rounds};

const HASH: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
const HASH_1: &str = r#"{"paths":["/pk"],"kind":"Hash","version":1}"#;
const TREE: &str = r#"{"paths":["/pk","/n"],"kind":"MultiHash","version":2}"#;
const RANGE: &str = r#"{"paths":["/pk"],"kind":"Range"}"#;
const KINDS: [&str; 4] = [HASH, HASH_1, TREE, RANGE];

fn fill(fixture: &Fixture, count: u64) {
    for n in 0..count {
        fixture.upsert(&item(n, n % 17, n)).expect("written");
    }
}

fn item(id: u64, key: u64, n: u64) -> String {
    format!(
        r#"{{"id":"{id}","pk":"key {key}","n":{n},"u":{n},"tags":["a{}","b"],"o":{{"p":{}}}}}"#,
        n % 3,
        n % 7
    )
}

/// The same data after a split, seen by someone who has just come.
fn split(fixture: &mut Fixture, id: &str) -> [u32; 2] {
    let children = fixture.engine.split_partition(&fixture.container, id).expect("split");
    fixture.container = fixture.engine.catalog().container("db", "c").expect("still there");
    check_sound(&*fixture.storage);
    children
}

const QUERIES: [&str; 8] = [
    "SELECT VALUE COUNT(1) FROM c",
    "SELECT * FROM c WHERE c.n > 20 AND c.n < 60",
    "SELECT VALUE c.n FROM c ORDER BY c.n DESC",
    "SELECT c.o.p, COUNT(1) AS n FROM c GROUP BY c.o.p",
    "SELECT DISTINCT VALUE c.pk FROM c",
    "SELECT VALUE SUM(c.n) FROM c WHERE ARRAY_CONTAINS(c.tags, 'a1')",
    "SELECT VALUE MAX(c.n) FROM c",
    "SELECT VALUE c.id FROM c WHERE c.pk = 'key 3'",
];

/// Everything that can be asked without naming a partition. Where partitions share the first bits of their keys, items come
/// in another order after a split, unless one was asked for.
fn seen(fixture: &Fixture) -> Vec<String> {
    let scope = Scope::default();
    let text = |mut rows: Vec<Value>, is_ordered: bool| {
        if !is_ordered {
            rows.sort_by(Value::cmp);
        }
        rows.iter().map(Value::to_json).collect::<Vec<_>>().join("\n")
    };
    let mut seen: Vec<String> = [3, 100].map(|size| text(fixture.all(None, &scope, size), false)).to_vec();
    for query in QUERIES {
        let rows = [5, -1].map(|size| fixture.all(Some(query), &scope, size));
        seen.extend(rows.map(|rows| text(rows, query.contains("ORDER"))));
    }
    seen.push(format!("{:?}", fixture.container.usage()));
    seen
}

fn assert_same(after: &[String], before: &[String], kind: &str) {
    for (at, (after, before)) in after.iter().zip(before).enumerate() {
        assert!(
            after == before,
            "{kind}: answer {at} of {} lines has {}",
            before.lines().count(),
            after.lines().count()
        );
    }
}

fn changes(fixture: &Fixture, scope: &Scope, start: FeedStart, mode: FeedMode, size: i64) -> Changes {
    let page = PageRequest { scope: scope.clone(), item_count_max: Some(size), ..PageRequest::default() };
    let request = ChangesRequest { mode, page, start, since: None, all_previous_images: false };
    fixture.engine.read_changes(&fixture.container, &request).result.expect("a page of changes")
}

/// All changes of a scope from a start on, and where they end.
fn changes_of(
    fixture: &Fixture,
    scope: &Scope,
    start: FeedStart,
    mode: FeedMode,
    size: i64,
) -> (Vec<Value>, String) {
    let (mut all_changes, mut start) = (Vec::new(), start);
    loop {
        let page = changes(fixture, scope, start, mode, size);
        let Value::Array(items) = json(std::str::from_utf8(&page.rows).expect("text")) else {
            panic!("no array")
        };
        if items.is_empty() && !page.more {
            return (all_changes, page.etag);
        }
        all_changes.extend(items);
        start = FeedStart::After(page.etag);
    }
}

fn partition(id: u32) -> Scope {
    Scope { partition_id: Some(id.to_string()), ..Scope::default() }
}

#[test]
fn a_split_changes_no_answer() {
    for kind in KINDS {
        let mut fixture =
            Fixture::with_key(kind, r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#, 1);
        fill(&fixture, 100);
        let before = seen(&fixture);
        assert_eq!(split(&mut fixture, "0"), [1, 2], "{kind}");
        assert_same(&seen(&fixture), &before, kind);
        assert_eq!(split(&mut fixture, "2"), [3, 4], "{kind}");
        assert_eq!(split(&mut fixture, "1"), [5, 6], "{kind}");
        assert_same(&seen(&fixture), &before, kind);
        let parts = fixture.container.partitions();
        let ids: Vec<&str> = parts.iter().map(|part| part.id.as_str()).collect();
        assert_eq!(ids, ["5", "6", "3", "4"]);
        assert_eq!(parts[0].parents, ["0", "1"]);
        assert!(parts.iter().all(|part| part.item_count > 5 && part.lsn == 100), "{kind}: {parts:?}");
        // And so for someone who has just opened it.
        let again = fixture.reopened(Arc::clone(&fixture.storage));
        assert_same(&seen(&again), &before, kind);
        // Writes go on, and unique values and ids are still taken.
        assert!(
            matches!(fixture.create(&item(3, 3, 500)), Err(EngineError::ItemExists { .. })) || kind == TREE
        );
        let taken = fixture.create(&item(500, 3, 3));
        assert!(matches!(taken, Err(EngineError::UniqueKeyTaken { .. })), "{kind}");
        for n in 0..50 {
            fixture.upsert(&item(n, n % 17, n)).expect("written");
        }
        check_sound(&*fixture.storage);
    }
}

#[test]
fn a_partition_of_one_logical_partition_stays() {
    let mut fixture = Fixture::new("");
    for n in 0..10 {
        fixture.create(&item(n, 1, n)).expect("created");
    }
    let error = fixture.engine.split_partition(&fixture.container, "0").expect_err("refused");
    assert!(matches!(&error, EngineError::CannotSplit { id, .. } if id == "0"), "{error}");
    let error = fixture.engine.split_partition(&fixture.container, "7").expect_err("refused");
    assert!(matches!(error, EngineError::PartitionGone { .. }), "{error}");
    fixture.create(&item(99, 2, 99)).expect("created");
    split(&mut fixture, "0");
    let counts: Vec<u64> = fixture.container.partitions().iter().map(|part| part.item_count).collect();
    assert!(counts == [10, 1] || counts == [1, 10], "{counts:?}");
    for id in ["1", "2"] {
        assert!(fixture.engine.split_partition(&fixture.container, id).is_err(), "{id}");
    }
}

#[test]
fn an_empty_partition_is_halved() {
    for kind in KINDS {
        let mut fixture = Fixture::with_key(kind, "", 1);
        split(&mut fixture, "0");
        split(&mut fixture, "1");
        fill(&fixture, 60);
        check_sound(&*fixture.storage);
        assert_eq!(fixture.all(None, &Scope::default(), 7).len(), 60);
    }
}

/// The feed of each child is what the parent's was, as far as it is the child's, and no change is returned twice.
#[test]
fn feeds_go_on() {
    for kind in KINDS {
        let mut fixture = Fixture::with_key(kind, "", 1);
        fill(&fixture, 40);
        let half = changes(&fixture, &partition(0), FeedStart::Beginning, FeedMode::Latest, 20);
        let (whole, end) = changes_of(&fixture, &partition(0), FeedStart::Beginning, FeedMode::Latest, -1);
        let [a, b] = split(&mut fixture, "0");
        for size in [1, 7, -1] {
            let from = |start: FeedStart| {
                let lists = [a, b]
                    .map(|id| changes_of(&fixture, &partition(id), start.clone(), FeedMode::Latest, size).0);
                for list in &lists {
                    let lsns: Vec<i64> = list.iter().map(|item| number_of(item, "_lsn")).collect();
                    assert!(lsns.is_sorted(), "{lsns:?}");
                }
                let mut both = lists.concat();
                both.sort_by_key(|item| number_of(item, "_lsn"));
                both
            };
            assert_eq!(from(FeedStart::Beginning), whole, "{kind} in pages of {size}");
            assert_eq!(from(FeedStart::After(half.etag.clone())), whole[20..], "{kind} in pages of {size}");
            assert_eq!(from(FeedStart::After(end.clone())), []);
            let (all, _) = changes_of(
                &fixture,
                &Scope::default(),
                FeedStart::After(half.etag.clone()),
                FeedMode::Latest,
                size,
            );
            assert_eq!(all.len(), 20);
        }
        // What is written now comes behind it, once, and not at its old place.
        for n in 0..10 {
            fixture.upsert(&item(n, n % 17, n)).expect("written");
        }
        let [c, d] = split(&mut fixture, &b.to_string());
        fixture.upsert(&item(39, 39 % 17, 39)).expect("written");
        let mut ids: Vec<String> = Vec::new();
        for id in [a, c, d] {
            let (list, _) = changes_of(&fixture, &partition(id), FeedStart::Beginning, FeedMode::Latest, 3);
            ids.extend(list.iter().map(|item| text_of(item, "id").to_owned()));
            let (list, _) =
                changes_of(&fixture, &partition(id), FeedStart::After(end.clone()), FeedMode::Latest, 3);
            assert!(list.iter().all(|item| number_of(item, "_lsn") > 40));
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 40);
    }
}

#[test]
fn versions_go_on() {
    let mut fixture = Fixture::new(r#""changeFeedPolicy":{"retentionDuration":10}"#);
    let start = changes(&fixture, &Scope::default(), FeedStart::Now, FeedMode::AllVersions, -1).etag;
    fill(&fixture, 20);
    fixture.delete("3", r#"["key 3"]"#).expect("deleted");
    let all = |fixture: &Fixture| {
        let (list, _) =
            changes_of(fixture, &Scope::default(), FeedStart::After(start.clone()), FeedMode::AllVersions, 4);
        let mut list: Vec<String> = list.iter().map(Value::to_json).collect();
        list.sort();
        list
    };
    let before = all(&fixture);
    assert_eq!(before.len(), 21);
    let [a, b] = split(&mut fixture, "0");
    assert!(all(&fixture) == before, "the same versions");
    fill(&fixture, 20);
    assert_eq!(all(&fixture).len(), 41);
    let parts: usize = [a, b]
        .map(|id| {
            changes_of(&fixture, &partition(id), FeedStart::After(start.clone()), FeedMode::AllVersions, 2)
                .0
                .len()
        })
        .iter()
        .sum();
    assert_eq!(parts, 41);
    // When the parent's versions are swept, the children cannot begin there any more.
    fixture.clock.advance(11 * 60);
    fixture.engine.pause_sweep(false);
    support::wait_until("old versions are swept", || fixture.rows(4, &[3]) == 0);
    let page = PageRequest { scope: partition(a), ..PageRequest::default() };
    let (mode, start) = (FeedMode::AllVersions, FeedStart::After(start));
    let request = ChangesRequest { mode, page, start, since: None, all_previous_images: false };
    assert!(matches!(
        fixture.engine.read_changes(&fixture.container, &request).result,
        Err(EngineError::BadRequest { .. })
    ));
    check_sound(&*fixture.storage);
}

#[test]
fn expired_items_of_the_parent_are_swept() {
    let mut fixture = Fixture::new(r#""defaultTtl":100"#);
    fill(&fixture, 40);
    split(&mut fixture, "0");
    for n in 0..5 {
        fixture.upsert(&item(n, n % 17, n)).expect("written");
    }
    fixture.clock.advance(60);
    fixture.upsert(&item(7, 7, 7)).expect("written");
    fixture.clock.advance(60);
    assert_eq!(fixture.all(None, &Scope::default(), -1).len(), 1);
    fixture.engine.pause_sweep(false);
    support::wait_until("expired items are swept", || fixture.container.usage().0 == 1);
    check_sound(&*fixture.storage);
}

/// Pages that were begun before a split go on behind it, with the container as scope or the partition that is gone.
#[test]
fn pages_go_on() {
    let queries: Vec<Option<&str>> =
        QUERIES.into_iter().chain(["SELECT VALUE c.id FROM c"]).map(Some).chain([None]).collect();
    for kind in KINDS {
        let mut fixture = Fixture::with_key(kind, "", 1);
        fill(&fixture, 60);
        let mut begun = Vec::new();
        for query in &queries {
            for (pages, size) in [(1, 2), (2, 3), (1, 40)] {
                for scope in [Scope::default(), partition(0)] {
                    let whole = fixture.all(*query, &scope, size);
                    let (rows, token) = begin(&fixture, *query, &scope, size, pages);
                    begun.extend(token.map(|token| (*query, size, scope.partition_id, whole, rows, token)));
                }
            }
        }
        assert!(begun.len() > 30);
        let [a, b] = split(&mut fixture, "0");
        let [c, d] = split(&mut fixture, &a.to_string());
        for (query, size, scope, whole, mut rows, token) in begun {
            if scope.is_some() {
                // Or under the name of the parent.
                let mut rows = rows.clone();
                go_on(&fixture, query, &partition(0), size, &mut rows, token.clone());
                assert_eq!(rows.len(), whole.len(), "{kind} {query:?}");
            }
            match &scope {
                None => go_on(&fixture, query, &Scope::default(), size, &mut rows, token),
                Some(_) => [b, d, c].into_iter().for_each(|id| {
                    go_on(&fixture, query, &partition(id), size, &mut rows, token.clone());
                }),
            }
            let ids = |rows: &[Value]| rows.iter().map(name_of).collect::<Vec<_>>();
            assert_eq!(ids(&rows), ids(&whole), "{kind} {query:?} of {scope:?} in pages of {size}");
        }
    }
}

fn name_of(value: &Value) -> String {
    match value {
        Value::Object(_) if value.get("id").is_some() => text_of(value, "id").to_owned(),
        value => value.to_json(),
    }
}

fn begin(
    fixture: &Fixture,
    query: Option<&str>,
    scope: &Scope,
    size: i64,
    pages: usize,
) -> (Vec<Value>, Option<String>) {
    let (mut rows, mut token) = (Vec::new(), None);
    for _ in 0..pages {
        let page = fixture.page(query, &request(scope.clone(), size, token)).expect("page");
        rows.extend(rows_of(&page.rows));
        token = page.continuation;
        if token.is_none() {
            break;
        }
    }
    (rows, token)
}

fn go_on(
    fixture: &Fixture,
    query: Option<&str>,
    scope: &Scope,
    size: i64,
    rows: &mut Vec<Value>,
    token: String,
) {
    let mut token = Some(token);
    while token.is_some() {
        let page = fixture.page(query, &request(scope.clone(), size, token)).expect("page");
        rows.extend(rows_of(&page.rows));
        token = page.continuation;
    }
}

fn rows_of(rows: &[u8]) -> Vec<Value> {
    match json(std::str::from_utf8(rows).expect("text")) {
        Value::Array(rows) => rows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sessions_of_the_parent_hold() {
    let mut fixture = Fixture::new("");
    fill(&fixture, 20);
    let token = |text: &str| SessionToken::parse(text).expect("a token");
    let [a, b] = split(&mut fixture, "0");
    let read = |session: &str| {
        let (key, session) = (pk(r#"["key 3"]"#), token(session));
        let read = ReadItem { id: "3", partition_key: &key, if_none_match: None, session: Some(&session) };
        let answer = fixture.engine.read_item(&fixture.container, &read);
        (
            answer.position.expect("a position").partition_id.to_string(),
            answer.result.map(|read| matches!(read, ItemRead::Found { .. })),
        )
    };
    let (id, found) = read("0:-1#20");
    assert!(id == a.to_string() || id == b.to_string());
    assert!(found.expect("read"));
    assert!(matches!(read("0:-1#21").1, Err(EngineError::SessionNotAvailable)));
    assert!(read(&format!("0:-1#20,{id}:-1#20")).1.is_ok());
}

#[test]
fn a_gone_partition_is_gone() {
    let mut fixture = Fixture::new("");
    fill(&fixture, 20);
    let etag = fixture.container.partitions_etag();
    split(&mut fixture, "0");
    assert_ne!(fixture.container.partitions_etag(), etag);
    let gone = fixture.page(None, &request(partition(0), 10, None));
    assert!(matches!(gone, Err(EngineError::PartitionGone { .. })));
}

/// A request that still has the container from before the split is run on the one after it.
#[test]
fn requests_that_began_before_a_split_are_served() {
    let fixture = Fixture::new("");
    fill(&fixture, 50);
    let before = seen(&fixture);
    fixture.engine.split_partition(&fixture.container, "0").expect("split");
    assert_same(&seen(&fixture)[..before.len() - 1], &before[..before.len() - 1], HASH);
    for n in 0..50 {
        fixture.upsert(&item(n, n % 17, n)).expect("written");
    }
    fixture.delete("5", r#"["key 5"]"#).expect("deleted");
    check_sound(&*fixture.storage);
}

/// Writers, readers and followers of feeds while partitions are split, against what the writers know.
#[test]
fn splits_under_load() {
    for (seed, kind) in (1..).zip(KINDS) {
        splits_under(kind, seed);
    }
}

fn splits_under(kind: &str, seed: u64) {
    const WRITERS: u64 = 4;
    let members = r#""changeFeedPolicy":{"retentionDuration":1000}"#;
    let fixture = Fixture::on(Arc::new(MemoryStorage::new()), kind, members, 1);
    let stop = AtomicBool::new(false);
    let (written, finished) = (AtomicU64::new(0), AtomicBool::new(false));
    let (expected, followed) = std::thread::scope(|threads| {
        let _stop = (StopLast(&stop), StopLast(&finished));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (fixture, stop, written) = (&fixture, &stop, &written);
                threads.spawn(move || {
                    let mut random = Random(seed * 100 + writer);
                    let mut model: BTreeMap<u64, Option<u64>> = BTreeMap::new();
                    while !stop.load(Ordering::Relaxed) {
                        let id = random.below(60) * WRITERS + writer;
                        let key = format!(r#"["key {}"]"#, id % 29);
                        if random.below(5) == 0 && kind != TREE {
                            match fixture.delete(&id.to_string(), &key) {
                                Ok(_) => {
                                    assert!(model.insert(id, None).flatten().is_some(), "{id} was not there")
                                }
                                Err(EngineError::ItemNotFound { .. }) => {
                                    assert!(model.get(&id).copied().flatten().is_none(), "{id} is lost")
                                }
                                Err(error) => panic!("delete of {id}: {error}"),
                            }
                        } else {
                            let n = if kind == TREE { id } else { random.below(1000) };
                            fixture.upsert(&item(id, id % 29, n)).expect("written");
                            model.insert(id, Some(n));
                        }
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                    model
                })
            })
            .collect();
        let follower = threads.spawn(|| follow(&fixture, &finished));
        let reader = threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let counted = fixture.all(Some("SELECT VALUE COUNT(1) FROM c"), &Scope::default(), -1);
                let count = counted[0].as_i64().expect("a number");
                assert!((0..=240).contains(&count), "{count}");
                let rows = fixture.all(Some("SELECT VALUE c.id FROM c ORDER BY c.n"), &Scope::default(), 50);
                let mut ids: Vec<&str> = rows.iter().filter_map(Value::as_str).collect();
                let count = ids.len();
                ids.sort_unstable();
                ids.dedup();
                let _ = count; // An item that changes between two pages may come twice.
            }
        });
        for round in 0..6 {
            let from = written.load(Ordering::Relaxed);
            while written.load(Ordering::Relaxed) < from + 150 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let container = fixture.engine.catalog().container("db", "c").expect("there");
            let parts = container.partitions();
            let largest = parts.iter().max_by_key(|part| part.item_count).expect("partitions");
            fixture.engine.split_partition(&container, &largest.id).unwrap_or_else(|error| {
                panic!("{kind}: split {round} of {largest:?}: {error}");
            });
        }
        std::thread::sleep(Duration::from_millis(20));
        stop.store(true, Ordering::Relaxed);
        let mut expected = BTreeMap::new();
        for writer in writers {
            expected.extend(writer.join().expect("a writer"));
        }
        reader.join().expect("a reader");
        finished.store(true, Ordering::Relaxed); // after the last write
        (expected, follower.join().expect("a follower"))
    });
    check_sound(&*fixture.storage);
    let alive: BTreeMap<u64, u64> = expected.into_iter().filter_map(|(id, n)| Some((id, n?))).collect();
    let fixture = fixture.reopened(Arc::clone(&fixture.storage));
    assert_eq!(fixture.container.partitions().len(), 7);
    let rows = fixture.all(None, &Scope::default(), 20);
    let found: BTreeMap<u64, u64> = rows
        .iter()
        .map(|row| (text_of(row, "id").parse().expect("a number"), number_of(row, "n") as u64))
        .collect();
    assert_eq!(found, alive, "{kind}");
    assert_eq!(followed, alive, "{kind}: what the feed came to");
    let counted = fixture.all(Some("SELECT VALUE COUNT(1) FROM c WHERE c.n >= 0"), &Scope::default(), -1);
    assert_eq!(counted[0].as_i64(), Some(alive.len() as i64));
}

/// Whatever happens, the other threads end.
struct StopLast<'a>(&'a AtomicBool);

impl Drop for StopLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Follows the log of versions: it comes to what is there, with every version on top of the one it names.
fn follow(fixture: &Fixture, stop: &AtomicBool) -> BTreeMap<u64, u64> {
    let mut state: HashMap<u64, (u64, i64)> = HashMap::new();
    let mut start = FeedStart::After("\"0\"".to_owned());
    loop {
        let last = stop.load(Ordering::Relaxed);
        // With the newest container half the time: both kinds of followers exist.
        let page = changes(fixture, &Scope::default(), start, FeedMode::AllVersions, 20);
        for version in rows_of(&page.rows) {
            let metadata = version.get("metadata").expect("metadata");
            let lsn = number_of(metadata, "lsn");
            let before = metadata.get("previousImageLSN").and_then(Value::as_i64);
            let kind = text_of(metadata, "operationType");
            let current = version.get("current").expect("current");
            let named = if kind == "delete" { metadata } else { current };
            let id: u64 = text_of(named, "id").parse().expect("a number");
            assert_eq!(state.get(&id).map(|(_, lsn)| *lsn), before, "{id} at {lsn}: {kind}");
            match kind {
                "delete" => drop(state.remove(&id)),
                _ => drop(state.insert(id, (number_of(current, "n") as u64, lsn))),
            }
        }
        if last && page.count == 0 && !page.more {
            return state.into_iter().map(|(id, (n, _))| (id, n)).collect();
        }
        start = FeedStart::After(page.etag);
    }
}

/// Whatever becomes of the split's commit, the partition is whole or divided, and the store goes on.
#[test]
fn a_commit_that_goes_wrong() {
    use CommitFault::{Busy, Conflict, UnknownDone, UnknownNotDone};
    let repeated = |fault: CommitFault, times: usize| vec![fault; times];
    let faults = [
        repeated(Conflict, 1),
        repeated(Conflict, 20),
        repeated(Busy, 20),
        repeated(UnknownDone, 1),
        repeated(UnknownDone, 20),
        repeated(UnknownNotDone, 1),
        repeated(UnknownNotDone, 20),
    ];
    let other = format!(r#"{{"id":"other","partitionKey":{HASH}}}"#);
    let job_row_or_split = [vec![], vec![CommitFault::Pass]];
    let faults = faults
        .iter()
        .flat_map(|faults| job_row_or_split.iter().map(|passes| (passes.clone(), faults.clone())));
    for (passes, faults) in faults {
        let all_changes = format!("{passes:?} {faults:?}");
        let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
        let fixture = Fixture::on(Arc::clone(&storage) as Arc<dyn Storage>, HASH, "", 1);
        fill(&fixture, 30);
        // Numbers of jobs are reserved by the first one, so that the faults are those of the job's row or of the split.
        let one = fixture.engine.catalog().create_container("db", &json(&other), None).expect("created");
        fixture.engine.split_partition(&one, "0").expect("split");
        wait_for_jobs(&fixture.engine);
        storage.script_commits(passes.into_iter().chain(faults));
        let outcome = fixture.engine.split_partition(&fixture.container, "0");
        check_sound(&*fixture.storage);
        storage.stop_faults();
        for n in 0..40 {
            fixture.upsert(&item(n, n % 17, n)).unwrap_or_else(|error| panic!("{all_changes}: {error}"));
        }
        check_sound(&*fixture.storage);
        let count = fixture.all(Some("SELECT VALUE COUNT(1) FROM c"), &Scope::default(), -1);
        assert_eq!(count[0].as_i64(), Some(40), "{all_changes}");
        let parts = fixture.engine.catalog().container("db", "c").expect("there").partitions().len();
        match outcome {
            Ok(_) => assert_eq!(parts, 2, "{all_changes}"),
            Err(EngineError::Unresolved) => wait_for_partitions(&fixture, 2, &all_changes),
            Err(error) => assert_eq!(parts, 1, "{all_changes}: {error}"),
        }
    }
}

fn wait_for_partitions(fixture: &Fixture, count: usize, all_changes: &str) {
    let started = Instant::now();
    while fixture.engine.catalog().container("db", "c").expect("there").partitions().len() < count {
        assert!(started.elapsed() < Duration::from_secs(60), "never split: {all_changes}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A partition that cannot be split is read again only after a wait, which grows, and only when it has changed.
#[test]
fn what_cannot_be_split_is_not_tried_all_the_time() {
    let fixture = Fixture::new("");
    let write = |from: u64, count: u64| {
        (from..from + count).for_each(|n| drop(fixture.upsert(&item(n, 1, n)).expect("written")));
    };
    write(0, 100);
    fixture.engine.split_partitions_above(1);
    wait_for_rounds(&fixture.engine, "split_rounds", 2);
    assert_eq!(statistic(&fixture.engine, "automatic_split_tries"), 1);
    let cannot = fixture.engine.cannot_split(&fixture.container, "0").expect("it is said");
    assert_eq!(cannot.reason, "it holds one logical partition only");
    assert_eq!((cannot.tried_at, cannot.again_at), (fixture.clock.now(), fixture.clock.now() + 10));
    assert_eq!(statistic(&fixture.engine, "partitions_not_splittable"), 1);
    // It changes, but it is too early; it is time, but it has hardly changed.
    write(100, 50);
    wait_for_rounds(&fixture.engine, "split_rounds", 2);
    assert_eq!(statistic(&fixture.engine, "automatic_split_tries"), 1);
    fixture.clock.advance(11);
    wait_for_rounds(&fixture.engine, "split_rounds", 2);
    assert_eq!(statistic(&fixture.engine, "automatic_split_tries"), 2);
    let cannot = fixture.engine.cannot_split(&fixture.container, "0").expect("it is said");
    assert_eq!(cannot.again_at, fixture.clock.now() + 20);
    write(150, 5);
    fixture.clock.advance(100);
    wait_for_rounds(&fixture.engine, "split_rounds", 2);
    assert_eq!(statistic(&fixture.engine, "automatic_split_tries"), 2);
    // Another logical partition makes it possible.
    (0..50).for_each(|n| drop(fixture.upsert(&item(n, 2, n)).expect("written")));
    wait_for_partitions(&fixture, 2, "by itself");
    fixture.engine.split_partitions_above(1 << 40);
}
