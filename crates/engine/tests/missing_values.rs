//! ORDER BY over a path that some items lack: after a first query that had to look for them, these items are found by
//! rows of their own, and a page costs what it costs where every item has the path.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quire_engine::{Page, PageRequest, Parameters, Precondition, Scope};
use quire_storage::memory::MemoryStorage;
use quire_value::{Limits, Path, Value, text};
use support::check_sound;
use support::fixture::{Fixture, Random, json, pk, request};

const KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
const INDEX_SPACE: u8 = 3;
const ITEMS: u64 = 3000;

fn path(text: &str) -> Path {
    Path::parse(text).expect("a path")
}

fn wait_for_rows(fixture: &Fixture, of: &str) {
    let started = Instant::now();
    while !fixture.container.has_missing_rows(&path(of)) {
        assert!(started.elapsed() < Duration::from_secs(60), "no rows for items without {of}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Items of which every so-manieth lacks `x`; 0: none.
fn filled(partitions: u32, members: &str, lacking: u64) -> Fixture {
    let fixture = Fixture::with_key(KEY, members, partitions);
    for n in 0..ITEMS {
        let x = if lacking > 0 && n % lacking == lacking / 2 {
            String::new()
        } else {
            format!(r#","x":{}"#, n * 7919 % ITEMS)
        };
        let body = format!(r#"{{"id":"{n}","pk":"p{}","y":{},"half":{}{x}}}"#, n % 40, n % 10, n % 2);
        fixture.create(&body).expect("created");
    }
    fixture
}

/// A page as a client gets it, and what it is charged.
fn page(fixture: &Fixture, text: &str, scope: &Scope) -> (Page, f64) {
    let request = PageRequest { scope: scope.clone(), ..PageRequest::default() };
    let answer = fixture.engine.query_items(&fixture.container, text, &Parameters::default(), &request);
    (answer.result.unwrap_or_else(|error| panic!("{text}: {error}")), answer.charge)
}

const QUERIES: [&str; 5] = [
    "SELECT TOP 20 * FROM c ORDER BY c.x",
    "SELECT TOP 20 * FROM c ORDER BY c.x DESC",
    "SELECT TOP 20 VALUE c.id FROM c WHERE c.half = 1 ORDER BY c.x",
    "SELECT TOP 20 VALUE c.id FROM c ORDER BY c.x, c.y",
    "SELECT TOP 20 VALUE c.id FROM c ORDER BY c.x DESC, c.y DESC",
];
const COMPOSITE: &str = r#""indexingPolicy":{"compositeIndexes":[[{"path":"/x"},{"path":"/y"}]]}"#;

#[test]
fn few_missing_values_cost_nothing() {
    for partitions in [1, 5] {
        let complete = filled(partitions, COMPOSITE, 0);
        for lacking in [ITEMS, ITEMS / 10] {
            let fixture = filled(partitions, COMPOSITE, lacking);
            let rows_before = fixture.rows(INDEX_SPACE, &[]);
            page(&fixture, QUERIES[0], &Scope::default());
            wait_for_rows(&fixture, "/x");
            let rows = fixture.rows(INDEX_SPACE, &[]);
            assert_eq!(rows - rows_before, (ITEMS / lacking) as usize + 1, "one for each, and the name");
            for text in QUERIES {
                let (best, charge_best) = page(&complete, text, &Scope::default());
                let (found, charge) = page(&fixture, text, &Scope::default());
                assert_eq!(found.count, 20);
                assert!(found.continuation.is_none(), "{text} is one page");
                let read = |page: &Page| page.metrics.loaded_count + page.metrics.index_rows;
                assert!(
                    read(&found) <= 2 * read(&best),
                    "{text}: {} rows, not {}",
                    read(&found),
                    read(&best)
                );
                assert!(charge <= 2.0 * charge_best, "{text}: {charge} RU, not {charge_best}");
            }
        }
    }
}

/// A logical partition of many items, one of which lacks the path.
#[test]
fn one_logical_partition() {
    let policy = r#""indexingPolicy":{"includedPaths":[{"path":"/*"},{"path":"/x/?","order":"partition"}]}"#;
    let fixture = Fixture::with_key(KEY, policy, 2);
    for n in 0..1200 {
        let x = if n == 700 { String::new() } else { format!(r#","x":{n}"#) };
        fixture.create(&format!(r#"{{"id":"{n}","pk":"p{}"{x}}}"#, n % 2)).expect("created");
    }
    let one = Scope { partition_key: Some(pk(r#"["p0"]"#)), ..Scope::default() };
    let text = "SELECT TOP 5 VALUE c.id FROM c ORDER BY c.x";
    let (first, _) = page(&fixture, text, &one);
    assert!(first.metrics.loaded_count > 500, "all of them are read");
    wait_for_rows(&fixture, "/x");
    let (second, _) = page(&fixture, text, &one);
    assert_eq!((first.rows, second.metrics.loaded_count), (second.rows, 5));
    assert!(second.metrics.index_rows < 30, "{} rows", second.metrics.index_rows);
}

/// Grouping by the path and asking for the items that lack it use the rows, too.
#[test]
fn others_use_the_rows() {
    let fixture = filled(1, "", ITEMS);
    let undefined = "SELECT VALUE c.id FROM c WHERE NOT IS_DEFINED(c.x)";
    let groups = "SELECT c.x, COUNT(1) AS n FROM c GROUP BY c.x";
    let before =
        (page(&fixture, undefined, &Scope::default()).0, page(&fixture, groups, &Scope::default()).0);
    assert_eq!(before.0.metrics.loaded_count, ITEMS);
    page(&fixture, QUERIES[0], &Scope::default());
    wait_for_rows(&fixture, "/x");
    let after = (page(&fixture, undefined, &Scope::default()).0, page(&fixture, groups, &Scope::default()).0);
    assert_eq!((&before.0.rows, &before.1.rows), (&after.0.rows, &after.1.rows));
    assert_eq!((after.0.metrics.loaded_count, after.1.metrics.loaded_count), (1, 1));
}

#[test]
fn paths_without_few_missing_values_are_left_alone() {
    let fixture = filled(1, "", 3);
    for text in ["SELECT TOP 20 * FROM c ORDER BY c.x", "SELECT TOP 20 * FROM c ORDER BY c.nowhere"] {
        page(&fixture, text, &Scope::default());
    }
    // The paths that were asked for before are done with when a later one is.
    fixture.engine.index_missing_values(&fixture.container, &path("/y"));
    wait_for_rows(&fixture, "/y");
    for of in ["/x", "/nowhere", "/_ts", "/id"] {
        assert!(!fixture.container.has_missing_rows(&path(of)), "{of}");
    }
}

fn all_pages(fixture: &Fixture, text: &str, mut next: PageRequest) -> Vec<Value> {
    let mut rows = Vec::new();
    loop {
        let page = fixture.page(Some(text), &next).unwrap_or_else(|error| panic!("{text}: {error}"));
        let values = text::parse(&page.rows, Limits::default()).expect("pages are JSON");
        rows.extend(values.as_array().expect("pages are arrays").iter().cloned());
        match page.continuation {
            Some(token) => next.continuation = Some(token),
            None => return rows,
        }
    }
}

/// Tokens name places, so that rows which come into use between two pages change no result.
#[test]
fn pages_cross_the_border_of_missing_values() {
    for partitions in [1, 5] {
        let fixture = Fixture::with_key(KEY, "", partitions);
        for n in 0..60 {
            let x = if n % 4 == 0 { String::new() } else { format!(r#","x":{}"#, n % 7) };
            fixture
                .create(&format!(r#"{{"id":"{n}","pk":"p{}","y":{}{x}}}"#, n % 9, n % 3))
                .expect("created");
        }
        let one = Scope { partition_key: Some(pk(r#"["p2"]"#)), ..Scope::default() };
        let part = Scope { partition_id: Some("0".to_owned()), ..Scope::default() };
        let texts = [
            "SELECT VALUE c.id FROM c ORDER BY c.x",
            "SELECT VALUE c.id FROM c ORDER BY c.x DESC",
            "SELECT VALUE c.id FROM c WHERE c.y > 0 ORDER BY c.x",
            "SELECT VALUE c.id FROM c WHERE c.y > 0 ORDER BY c.x DESC",
            "SELECT VALUE c.id FROM c ORDER BY c.x OFFSET 12 LIMIT 9",
        ];
        let first_tokens: Vec<Page> = texts
            .iter()
            .map(|text| fixture.page(Some(text), &request(Scope::default(), 3, None)).expect("a page"))
            .collect();
        fixture.engine.index_missing_values(&fixture.container, &path("/x"));
        wait_for_rows(&fixture, "/x");
        for scope in [Scope::default(), one, part] {
            for text in texts {
                let without = PageRequest { index_use: false, ..request(scope.clone(), -1, None) };
                let expected = all_pages(&fixture, text, without);
                for size in [1, 2, 7, -1] {
                    let found = all_pages(&fixture, text, request(scope.clone(), size, None));
                    assert_eq!(found, expected, "{text} in {scope:?} by {size}");
                }
            }
        }
        for (text, first) in texts.iter().zip(first_tokens) {
            let without = PageRequest { index_use: false, ..request(Scope::default(), -1, None) };
            let expected = all_pages(&fixture, text, without);
            let rest = all_pages(&fixture, text, request(Scope::default(), 2, first.continuation));
            assert_eq!(rest, expected[3..], "{text}");
        }
    }
}

/// Items come, go and change while the rows are written, expire and are deleted by key; a partition is split, the store is
/// copied as a kill would leave it. The rows are right in every copy, and stay right.
#[test]
fn rows_are_exact_beside_everything() {
    let memory = MemoryStorage::new();
    let fixture = Fixture::on(Arc::new(memory.reopen()), KEY, r#""defaultTtl":-1"#, 2);
    fixture.engine.pause_sweep(false);
    let stop = AtomicBool::new(false);
    let mut copies = Vec::new();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (fixture, stop) = (&fixture, &stop);
            scope.spawn(move || {
                let mut random = Random(seed);
                while !stop.load(Ordering::Relaxed) {
                    let (id, key) = (random.below(200), random.below(12));
                    let mut body = format!(r#"{{"id":"{id}","pk":"p{key}""#);
                    for name in ["a", "b", "c"] {
                        if random.below(2) > 0 {
                            body += &format!(r#","{name}":{}"#, random.below(5));
                        }
                    }
                    if random.below(10) == 0 {
                        body += r#","ttl":1"#;
                    }
                    match random.below(8) {
                        0 => drop(fixture.delete(&id.to_string(), &format!(r#"["p{key}"]"#))),
                        _ => drop(fixture.upsert(&(body + "}"))),
                    }
                }
            });
        }
        for (round, of) in ["/a", "/b", "/c"].into_iter().enumerate() {
            std::thread::sleep(Duration::from_millis(60));
            fixture.clock.advance(2);
            fixture.engine.index_missing_values(&fixture.container, &path(of));
            copies.push(memory.duplicate());
            std::thread::sleep(Duration::from_millis(1 + round as u64));
            copies.push(memory.duplicate());
            if round == 1 {
                let container = fixture.engine.catalog().container("db", "c").expect("there");
                let id = container.partitions()[0].id.clone();
                drop(fixture.engine.split_partition(&container, &id));
            }
            let container = fixture.engine.catalog().container("db", "c").expect("there");
            let delete = fixture.engine.delete_partition_key(&container, pk(r#"["p3"]"#));
            delete.result.expect("deleted by key");
            copies.push(memory.duplicate());
        }
        ["/a", "/b", "/c"].into_iter().for_each(|of| wait_for_rows(&fixture, of));
        stop.store(true, Ordering::Relaxed);
    });
    fixture.engine.close().expect("closes");
    check_sound(&memory.reopen());
    for copy in copies {
        check_sound(&copy.reopen());
        let again = fixture.reopened(Arc::new(copy.reopen()));
        again.engine.index_missing_values(&again.container, &path("/b"));
        wait_for_rows(&again, "/b");
        again.engine.close().expect("closes");
        check_sound(&copy.reopen());
    }
}

/// Policies come and go: without index rows there are none for missing values either.
#[test]
fn policies_change() {
    let fixture = filled(2, "", 100);
    fixture.engine.index_missing_values(&fixture.container, &path("/x"));
    wait_for_rows(&fixture, "/x");
    for policy in [
        r#"{"indexingMode":"none","automatic":false}"#,
        r#"{"indexingMode":"consistent"}"#,
        r#"{"includedPaths":[{"path":"/y/?"}],"excludedPaths":[{"path":"/*"}]}"#,
        r#"{"indexingMode":"consistent"}"#,
    ] {
        let body = json(&format!(r#"{{"id":"c","partitionKey":{KEY},"indexingPolicy":{policy}}}"#));
        fixture
            .engine
            .catalog()
            .replace_container("db", "c", &body, &Precondition::default())
            .expect("replaced");
        let started = Instant::now();
        while fixture.engine.catalog().container("db", "c").expect("there").index_progress() < 100 {
            assert!(started.elapsed() < Duration::from_secs(60), "never built");
            std::thread::sleep(Duration::from_millis(2));
        }
        check_sound(&*fixture.storage);
        let rows = fixture.rows(INDEX_SPACE, &[]);
        assert_eq!(policy.contains("none"), rows < 100, "{rows} rows under {policy}");
    }
    assert!(fixture.container.has_missing_rows(&path("/x")));
    let (found, _) = page(&fixture, QUERIES[0], &Scope::default());
    assert!(found.metrics.loaded_count <= 20);
}
