//! The change feed of latest versions: every visible item once, in the order of its last write, whatever the pages.

mod support;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use quire_engine::{
    ChangeWatch, Changes, ChangesRequest, EngineError, FeedMode, FeedStart, PageRequest, Precondition, Scope,
    verify,
};
use quire_value::Value;
use support::fixture::{Fixture, Random, json, number_of, pk, text_of};

const HASH: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;

fn changes_request(scope: &Scope, start: FeedStart, size: i64) -> ChangesRequest {
    let page = PageRequest { scope: scope.clone(), item_count_max: Some(size), ..PageRequest::default() };
    ChangesRequest { mode: FeedMode::Latest, page, start, since: None, all_previous_images: false }
}

fn read(fixture: &Fixture, request: &ChangesRequest) -> Changes {
    fixture.engine.read_changes(&fixture.container, request).result.expect("a page")
}

fn items(changes: &Changes) -> Vec<Value> {
    match json(std::str::from_utf8(&changes.rows).expect("text")) {
        Value::Array(items) => items,
        other => panic!("{other:?}"),
    }
}

/// Everything from a start on, page by page, until nothing is new; where that ends.
fn all(fixture: &Fixture, scope: &Scope, start: FeedStart, size: i64) -> (Vec<Value>, String) {
    let (mut changes_read, mut start) = (Vec::new(), start);
    loop {
        let changes = read(fixture, &changes_request(scope, start, size));
        if changes.count == 0 && !changes.more {
            return (changes_read, changes.etag);
        }
        changes_read.extend(items(&changes));
        start = FeedStart::After(changes.etag);
    }
}

fn ids(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| text_of(item, "id")).collect()
}

#[test]
fn the_feed_has_an_item_once_at_its_last_change() {
    let fixture = Fixture::new("");
    for id in ["a", "b", "c", "d"] {
        fixture.create(&format!(r#"{{"id":"{id}","pk":"p"}}"#)).expect("created");
    }
    fixture.upsert(r#"{"id":"a","pk":"p","n":2}"#).expect("written");
    fixture.delete("c", "[\"p\"]").expect("deleted");
    for size in [-1, 1, 2, 3, 100] {
        let (changes_read, end) = all(&fixture, &Scope::default(), FeedStart::Beginning, size);
        assert_eq!(ids(&changes_read), ["b", "d", "a"], "in pages of {size}");
        assert_eq!(end, "\"6\"");
        let lsns: Vec<i64> = changes_read.iter().map(|item| number_of(item, "_lsn")).collect();
        assert_eq!(lsns, [2, 4, 5]);
    }
}

#[test]
fn now_and_after() {
    let fixture = Fixture::new("");
    let empty = read(&fixture, &changes_request(&Scope::default(), FeedStart::Now, 10));
    assert_eq!((empty.count, empty.etag.as_str()), (0, "\"0\""));
    fixture.create(r#"{"id":"a","pk":"p"}"#).expect("created");
    let now = read(&fixture, &changes_request(&Scope::default(), FeedStart::Now, 10));
    assert_eq!((now.count, now.etag.as_str()), (0, "\"1\""));
    fixture.create(r#"{"id":"b","pk":"p"}"#).expect("created");
    let (changes_read, _) = all(&fixture, &Scope::default(), FeedStart::After(now.etag), 10);
    assert_eq!(ids(&changes_read), ["b"]);
    let (changes_read, _) = all(&fixture, &Scope::default(), FeedStart::After(empty.etag), 10);
    assert_eq!(ids(&changes_read), ["a", "b"]);
    for bad in ["", "x", "\"1:2,\"", "-5"] {
        let request = changes_request(&Scope::default(), FeedStart::After(bad.to_owned()), 10);
        let answer = fixture.engine.read_changes(&fixture.container, &request);
        assert!(matches!(answer.result, Err(EngineError::BadContinuation)), "{bad}");
    }
}

#[test]
fn since_a_time() {
    let fixture = Fixture::new("");
    let start = fixture.clock.now();
    for n in 0..50 {
        fixture.create(&format!(r#"{{"id":"{n:02}","pk":"p"}}"#)).expect("created");
        fixture.clock.advance(1);
    }
    for since in [-10, 0, 1, 25, 49, 50, 1000] {
        let request = ChangesRequest {
            since: Some(start + since),
            ..changes_request(&Scope::default(), FeedStart::Beginning, -1)
        };
        let changes_read = items(&read(&fixture, &request));
        let expected: Vec<String> = (since.max(0)..50).map(|n| format!("{n:02}")).collect();
        assert_eq!(ids(&changes_read), expected, "since {since}");
        // Clients send the time again with every page.
        let page = changes_request(&Scope::default(), FeedStart::Beginning, 1).page;
        let first = read(&fixture, &ChangesRequest { page, ..request });
        let next = changes_request(&Scope::default(), FeedStart::After(first.etag.clone()), -1);
        let rest = items(&read(&fixture, &ChangesRequest { since: Some(start + since), ..next }));
        assert_eq!(first.count + rest.len(), expected.len());
    }
}

#[test]
fn the_feed_leaves_out_expired_items() {
    let fixture = Fixture::new(r#""defaultTtl":-1"#);
    fixture.create(r#"{"id":"a","pk":"p","ttl":5}"#).expect("created");
    fixture.create(r#"{"id":"b","pk":"p"}"#).expect("created");
    fixture.clock.advance(6);
    let (changes_read, end) = all(&fixture, &Scope::default(), FeedStart::Beginning, 1);
    assert_eq!((ids(&changes_read), end.as_str()), (vec!["b"], "\"2\""));
}

#[test]
fn scopes() {
    let fixture = Fixture::with_key(HASH, "", 5);
    for n in 0..200 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"key{}"}}"#, n % 17)).expect("created");
    }
    let (whole, end) = all(&fixture, &Scope::default(), FeedStart::Beginning, 7);
    assert_eq!(whole.len(), 200);
    assert_eq!(end.matches(':').count(), 5, "{end}");
    let mut by_partition = 0;
    for partition in fixture.container.partitions() {
        let scope = Scope { partition_id: Some(partition.id), ..Scope::default() };
        let (changes_read, end) = all(&fixture, &scope, FeedStart::Beginning, 3);
        assert_eq!(end, format!("\"{}\"", partition.lsn));
        assert!(
            changes_read.windows(2).all(|pair| number_of(&pair[0], "_lsn") < number_of(&pair[1], "_lsn"))
        );
        by_partition += changes_read.len();
    }
    assert_eq!(by_partition, 200);
    let scope = Scope { partition_key: Some(pk("[\"key3\"]")), ..Scope::default() };
    let (changes_read, _) = all(&fixture, &scope, FeedStart::Beginning, 2);
    let expected: Vec<String> = (0..200).filter(|n| n % 17 == 3).map(|n| n.to_string()).collect();
    assert_eq!(ids(&changes_read), expected);
}

fn place(item: &Value) -> (u64, u64) {
    let (id, key) = (text_of(item, "id"), text_of(item, "pk"));
    (id.parse().expect("a number"), key[1..].parse().expect("a number"))
}

/// A reader that always goes on where it was, among random writes: what it ends with is what is there.
#[test]
fn a_reader_that_follows_ends_with_what_is_there() {
    for (seed, partitions) in [(1, 1), (2, 5), (3, 5)] {
        let (fixture, mut random) = (Fixture::with_key(HASH, "", partitions), Random(seed));
        let (mut known, mut versions) = (HashMap::new(), HashMap::new());
        let mut start = FeedStart::Beginning;
        for round in 0..400 {
            for _ in 0..random.below(4) {
                let (id, key) = (random.below(30), random.below(7));
                if random.below(5) == 0 {
                    let gone = fixture.delete(&id.to_string(), &format!("[\"k{key}\"]")).is_ok();
                    assert_eq!(gone, versions.remove(&(id, key)).is_some());
                } else {
                    let body = format!(r#"{{"id":"{id}","pk":"k{key}","round":{round}}}"#);
                    fixture.upsert(&body).expect("written");
                    versions.insert((id, key), round);
                }
            }
            let size = [1, 3, -1][random.below(3) as usize];
            let changes = read(&fixture, &changes_request(&Scope::default(), start, size));
            for item in items(&changes) {
                let lsn = number_of(&item, "_lsn");
                let before = known.insert(place(&item), (number_of(&item, "round"), lsn));
                assert!(before.is_none_or(|(_, before)| before < lsn), "returned twice");
            }
            start = FeedStart::After(changes.etag);
        }
        let (rest, _) = all(&fixture, &Scope::default(), start, -1);
        for item in &rest {
            known.insert(place(item), (number_of(item, "round"), number_of(item, "_lsn")));
        }
        for (place, round) in &versions {
            assert_eq!(known.get(place).map(|(round, _)| *round), Some(*round), "{place:?}");
        }
    }
}

/// Wakes the thread that polls.
struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// How often the watch was polled until it was ready; `None` when the time is over.
fn polls_until_ready(mut watch: ChangeWatch, time: Duration) -> Option<usize> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (until, mut polls) = (Instant::now() + time, 0);
    loop {
        polls += 1;
        if Pin::new(&mut watch).poll(&mut Context::from_waker(&waker)).is_ready() {
            return Some(polls);
        }
        let left = until.checked_duration_since(Instant::now())?;
        std::thread::park_timeout(left);
    }
}

fn watch(fixture: &Fixture, scope: &Scope, etag: &str) -> ChangeWatch {
    fixture.engine.watch_changes(&fixture.container, scope, etag).expect("a position")
}

#[test]
fn waiting_ends_with_the_first_change() {
    let fixture = Fixture::with_key(HASH, "", 3);
    let now = read(&fixture, &changes_request(&Scope::default(), FeedStart::Now, 10)).etag;
    assert_eq!(polls_until_ready(watch(&fixture, &Scope::default(), &now), Duration::from_millis(20)), None);
    for id in ["a", "b", "c", "d", "e"] {
        let etag = read(&fixture, &changes_request(&Scope::default(), FeedStart::Now, 10)).etag;
        let watch = watch(&fixture, &Scope::default(), &etag);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| polls_until_ready(watch, Duration::from_secs(60)));
            std::thread::sleep(Duration::from_millis(20));
            fixture.create(&format!(r#"{{"id":"{id}","pk":"{id}"}}"#)).expect("created");
            assert!(waiting.join().expect("no panic").is_some_and(|polls| polls <= 3));
        });
        assert_eq!(read(&fixture, &changes_request(&Scope::default(), FeedStart::After(etag), 10)).count, 1);
    }
}

#[test]
fn waiting_ends_when_the_container_is_deleted() {
    let fixture = Fixture::new("");
    let watch = watch(&fixture, &Scope::default(), "\"0\"");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| polls_until_ready(watch, Duration::from_secs(60)));
        std::thread::sleep(Duration::from_millis(20));
        fixture.engine.catalog().delete_container("db", "c", &Precondition::default()).expect("deleted");
        assert!(waiting.join().expect("no panic").is_some());
    });
}

/// It waited with `lsn + 1`, which is 0 for the last number there is: a core was busy until the deadline.
#[test]
fn a_position_beyond_the_end_is_the_end() {
    for partitions in [1, 3] {
        let fixture = Fixture::with_key(HASH, "", partitions);
        fixture.create(r#"{"id":"a","pk":"p"}"#).expect("created");
        for far in [u64::MAX, u64::MAX - 1, 1 << 63, 1000] {
            let changes = read(
                &fixture,
                &changes_request(&Scope::default(), FeedStart::After(format!("\"{far}\"")), 10),
            );
            assert_eq!((changes.count, changes.more), (0, false));
            let now = read(&fixture, &changes_request(&Scope::default(), FeedStart::Now, 10)).etag;
            assert_eq!(changes.etag, now, "{far}");
            let watch = watch(&fixture, &Scope::default(), &format!("{far}"));
            assert_eq!(polls_until_ready(watch, Duration::from_millis(10)), None);
        }
        let etag =
            read(&fixture, &changes_request(&Scope::default(), FeedStart::After(u64::MAX.to_string()), 10))
                .etag;
        fixture.create(r#"{"id":"b","pk":"p"}"#).expect("created");
        assert_eq!(read(&fixture, &changes_request(&Scope::default(), FeedStart::After(etag), 10)).count, 1);
        let too_far =
            changes_request(&Scope::default(), FeedStart::After("18446744073709551616".to_owned()), 10);
        let refused = fixture.engine.read_changes(&fixture.container, &too_far).result;
        assert!(matches!(refused, Err(EngineError::BadContinuation)));
    }
}

fn versions(fixture: &Fixture, start: FeedStart, size: i64) -> Result<Changes, EngineError> {
    let request = ChangesRequest {
        mode: FeedMode::AllVersions,
        all_previous_images: true,
        ..changes_request(&Scope::default(), start, size)
    };
    fixture.engine.read_changes(&fixture.container, &request).result
}

/// What a change says, in short.
fn short(change: &Value) -> String {
    let metadata = change.get("metadata").expect("metadata");
    let image = |name: &str| match change.get(name).and_then(|image| image.get("n")) {
        Some(n) => n.to_json(),
        None => "-".to_owned(),
    };
    let before = metadata.get("previousImageLSN").map_or("-".to_owned(), Value::to_json);
    let expired = if metadata.get("timeToLiveExpired").is_some() { " expired" } else { "" };
    let id =
        change.get("current").and_then(|item| item.get("id")).or(metadata.get("id")).and_then(Value::as_str);
    let lsn = number_of(metadata, "lsn");
    let kind = text_of(metadata, "operationType");
    format!(
        "{lsn} {kind} {} {}<-{} {before}{expired}",
        id.unwrap_or("?"),
        image("current"),
        image("previous")
    )
}

fn all_versions(fixture: &Fixture, start: FeedStart, size: i64) -> Vec<String> {
    let (mut changes_read, mut start) = (Vec::new(), start);
    loop {
        let changes = versions(fixture, start, size).expect("a page");
        if changes.count == 0 && !changes.more {
            return changes_read;
        }
        changes_read.extend(items(&changes).iter().map(short));
        start = FeedStart::After(changes.etag);
    }
}

const POLICY: &str = r#""changeFeedPolicy":{"retentionDuration":5},"defaultTtl":-1"#;

#[test]
fn every_version_and_delete() {
    let fixture = Fixture::new(POLICY);
    fixture.create(r#"{"id":"a","pk":"p","n":1}"#).expect("created");
    let start = versions(&fixture, FeedStart::Now, 10).expect("a page").etag;
    fixture.upsert(r#"{"id":"a","pk":"p","n":2}"#).expect("written");
    fixture.replace("a", r#"{"id":"a","pk":"p","n":3}"#).expect("written");
    fixture.create(r#"{"id":"b","pk":"p","n":4,"ttl":10}"#).expect("created");
    fixture.delete("a", "[\"p\"]").expect("deleted");
    fixture.clock.advance(11);
    fixture.create(r#"{"id":"b","pk":"p","n":5}"#).expect("in place of one that expired");
    let expected = [
        "2 replace a 2<-1 1",
        "3 replace a 3<-2 2",
        "4 create b 4<-- -",
        "5 delete a -<-3 3",
        "6 delete b -<-4 4 expired",
        "6 create b 5<-- -",
    ];
    for size in [1, 2, 100, -1] {
        assert_eq!(
            all_versions(&fixture, FeedStart::After(start.clone()), size),
            expected,
            "in pages of {size}"
        );
    }
    let changes = items(&versions(&fixture, FeedStart::After("\"4\"".to_owned()), 1).expect("a page"));
    let metadata = changes[0].get("metadata").expect("metadata");
    assert_eq!(metadata.get("partitionKey").map(Value::to_json).as_deref(), Some(r#"{"pk":"p"}"#));
    assert_eq!(changes[0].get("current").map(Value::to_json).as_deref(), Some("{}"));
    let report = verify(&*fixture.storage).expect("reads");
    assert!(report.is_sound(), "{:?}", report.problems);
}

/// Without being asked for, only what clients deleted comes with an image.
#[test]
fn images_before_are_those_of_deletes_by_clients() {
    let fixture = Fixture::new(POLICY);
    let start = versions(&fixture, FeedStart::Now, 10).expect("a page").etag;
    fixture.create(r#"{"id":"a","pk":"p","n":1}"#).expect("created");
    fixture.replace("a", r#"{"id":"a","pk":"p","n":2}"#).expect("written");
    fixture.delete("a", "[\"p\"]").expect("deleted");
    fixture.create(r#"{"id":"b","pk":"p","n":3,"ttl":10}"#).expect("created");
    fixture.clock.advance(11);
    fixture.create(r#"{"id":"b","pk":"p","n":4}"#).expect("in place of one that expired");
    let request = ChangesRequest {
        mode: FeedMode::AllVersions,
        ..changes_request(&Scope::default(), FeedStart::After(start), 10)
    };
    let changes = fixture.engine.read_changes(&fixture.container, &request).result.expect("a page");
    let with_image = |change: &Value| {
        let metadata = change.get("metadata").expect("metadata");
        (text_of(metadata, "operationType").to_owned(), change.get("previous").is_some())
    };
    let expected = [
        ("create", false),
        ("replace", false),
        ("delete", true),
        ("create", false),
        ("delete", false),
        ("create", false),
    ];
    let found: Vec<(String, bool)> = items(&changes).iter().map(with_image).collect();
    assert_eq!(found, expected.map(|(kind, image)| (kind.to_owned(), image)));
}

#[test]
fn versions_are_kept_for_a_time() {
    let fixture = Fixture::new(POLICY);
    for n in 0..300 {
        fixture.upsert(&format!(r#"{{"id":"a","pk":"p","n":{n}}}"#)).expect("written");
        fixture.clock.advance(1);
    }
    fixture.clock.advance(150); // the first 150 are older than five minutes
    fixture.engine.pause_sweep(false);
    let started = std::time::Instant::now();
    let early = || versions(&fixture, FeedStart::After("\"10\"".to_owned()), 10);
    while early().is_ok() {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    let Err(EngineError::BadRequest { message }) = early() else { panic!() };
    assert!(message.contains("within the retention period"), "{message}");
    assert_eq!(all_versions(&fixture, FeedStart::After("\"160\"".to_owned()), -1).len(), 140);
    for start in [FeedStart::Beginning, FeedStart::After("\"0\"".to_owned())] {
        assert!(versions(&fixture, start, 10).is_err());
    }
}

#[test]
fn versions_are_kept_where_the_policy_asks() {
    let mut fixture = Fixture::new("");
    fixture.create(r#"{"id":"a","pk":"p","n":1}"#).expect("created");
    let Err(EngineError::BadRequest { message }) = versions(&fixture, FeedStart::Now, 10) else { panic!() };
    assert!(message.contains("changeFeedPolicy"), "{message}");
    let definition =
        json(&format!(r#"{{"id":"c","partitionKey":{HASH},"changeFeedPolicy":{{"retentionDuration":5}}}}"#));
    fixture.container = fixture
        .engine
        .catalog()
        .replace_container("db", "c", &definition, &Precondition::default())
        .expect("replaced");
    assert!(versions(&fixture, FeedStart::After("\"0\"".to_owned()), 10).is_err(), "before the policy");
    let start = versions(&fixture, FeedStart::Now, 10).expect("a page").etag;
    fixture.upsert(r#"{"id":"a","pk":"p","n":2}"#).expect("written");
    assert_eq!(all_versions(&fixture, FeedStart::After(start), 10), ["2 replace a 2<-1 1"]);
}
