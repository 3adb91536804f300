//! Results that are held between pages: a query that was computed once is not run again, which shows only in what it
//! cost. Random tests print their seed.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use quire_engine::{
    Cancel, Engine, EngineError, Options, PageRequest, Parameters, QueryMemoryLimits, Scope, SqlError,
    TempSpace,
};
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use quire_value::{Limits, Value, text};
use support::fixture::{FakeClock, Fixture, Random, json, number_of, options, pk, request, text_of};

const KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;

struct ResultCacheFixture {
    fixture: Fixture,
    temp: Arc<TempSpace>,
    directory: tempfile::TempDir,
}

fn opened(
    storage: Arc<dyn Storage>,
    clock: &Arc<FakeClock>,
    partitions: u32,
    query_bytes: usize,
    temp: Option<&Arc<TempSpace>>,
) -> Engine {
    let query_memory = QueryMemoryLimits { total_bytes: 1 << 30, query_bytes };
    let options = Options { query_memory, query_temp: temp.cloned(), ..options(clock, partitions) };
    let engine = Engine::open(storage, options).expect("opens");
    engine.pause_sweep(true);
    engine
}

fn held(partitions: u32, query_bytes: usize, temp_bytes: u64) -> ResultCacheFixture {
    let directory = tempfile::tempdir().expect("a directory");
    let temp = TempSpace::open(directory.path(), temp_bytes, 32).expect("opens");
    let (storage, clock): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), FakeClock::new());
    let engine = opened(storage.clone(), &clock, partitions, query_bytes, Some(&temp));
    engine.catalog().create_database(&json(r#"{"id":"db"}"#), None).expect("database");
    let definition = json(&format!(r#"{{"id":"c","partitionKey":{KEY}}}"#));
    let container = engine.catalog().create_container("db", &definition, None).expect("container");
    ResultCacheFixture { fixture: Fixture { engine, container, clock, storage }, temp, directory }
}

impl ResultCacheFixture {
    fn filled(self, items: u64) -> ResultCacheFixture {
        for n in 0..items {
            self.write(n, n * 7919 % items);
        }
        self
    }

    fn write(&self, n: u64, value: u64) {
        let body = format!(
            r#"{{"id":"{n}","pk":"{}","n":{value},"k":"key {}","f":{},"l":[1,2]}}"#,
            n % 7,
            value % 500,
            n as f64 / 7.0
        );
        self.fixture.upsert(&body).expect("written");
    }

    fn figure(&self, name: &str) -> u64 {
        let figures = self.fixture.engine.statistics();
        figures.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).expect(name)
    }

    /// Rows of all pages, and how many items they read; `between` runs before each but the first.
    fn pages(
        &self,
        query: &str,
        scope: &Scope,
        page_size: i64,
        index_use: bool,
        mut between: impl FnMut(&ResultCacheFixture, usize),
    ) -> (Vec<Value>, u64) {
        let (mut rows, mut read, mut number) = (Vec::new(), 0, 0);
        let mut next = PageRequest { index_use, ..request(scope.clone(), page_size, None) };
        loop {
            let page =
                self.fixture.page(Some(query), &next).unwrap_or_else(|error| panic!("{query}: {error}"));
            read += page.metrics.loaded_count;
            let values = text::parse(&page.rows, Limits::default()).expect("pages are JSON");
            rows.extend(values.as_array().expect("pages are arrays").iter().cloned());
            let Some(token) = page.continuation else { return (rows, read) };
            number += 1;
            between(self, number);
            next.continuation = Some(token);
        }
    }
}

const WHOLE: &[&str] = &[
    "SELECT c.k, COUNT(1) AS n, SUM(c.f) AS s FROM c GROUP BY c.k",
    "SELECT c.id, MAX(c.n) AS n FROM c GROUP BY c.id",
    "SELECT DISTINCT VALUE c.k FROM c",
    "SELECT DISTINCT c.id, c.f FROM c",
    "SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n DESC",
    "SELECT c.k, AVG(c.f) AS a FROM c GROUP BY c.k ORDER BY c.k",
    "SELECT VALUE s.k FROM (SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k) AS s WHERE s.n > 0",
];
const SORTED: &[&str] = &[
    "SELECT c.id, c.n FROM c ORDER BY c.n",
    "SELECT * FROM c WHERE c.f > 3 ORDER BY c.k DESC",
    "SELECT VALUE c.id FROM c ORDER BY c.pk OFFSET 3 LIMIT 700",
    "SELECT VALUE [c.id, x] FROM c JOIN x IN c.l ORDER BY c.n DESC",
];

/// Every page ran the query again, so that the pages of a result read as many items as it has, for every page.
#[test]
fn a_query_that_was_computed_is_not_run_again_for_each_page() {
    let held = held(1, 128 << 20, 1 << 30).filled(1_000);
    let everything = Scope::default();
    for (queries, reads_max) in [(WHOLE, 2_000), (SORTED, 4_500)] {
        for query in queries {
            let (expected, _) = held.pages(query, &everything, -1, false, |_, _| {});
            let (rows, read) = held.pages(query, &everything, 10, false, |_, _| {});
            assert_eq!(rows, expected, "{query}");
            assert!(expected.len() >= 500, "{query}");
            assert!(read <= reads_max, "{query}: {read} items read in {} pages", rows.len() / 10);
            let drop_all = |held: &ResultCacheFixture, _| held.fixture.engine.drop_held_results();
            let (_, again) = held.pages(query, &everything, 50, false, drop_all);
            assert!(again >= 8_000, "{query}: {again} items read where nothing is held");
        }
    }
    assert!(held.figure("held_result_pages") > 500);
}

/// The same rows, whether results are held, dropped before some page or before all, or lost with the process.
#[test]
fn pages_are_the_same_with_held_results_and_without() {
    for partitions in [1, 5] {
        let mut held = held(partitions, 128 << 20, 1 << 30).filled(300);
        let scopes = [
            Scope::default(),
            Scope { partition_id: Some("0".to_owned()), ..Scope::default() },
            Scope { partition_key: Some(pk(r#"["3"]"#)), ..Scope::default() },
        ];
        for query in WHOLE.iter().chain(SORTED) {
            for scope in &scopes {
                let (expected, _) = held.pages(query, scope, -1, false, |_, _| {});
                for size in [1, 3, 17] {
                    let (rows, _) = held.pages(query, scope, size, false, |_, _| {});
                    assert_eq!(rows, expected, "held: {query} {scope:?}");
                }
                let drop_all = |held: &ResultCacheFixture, _| held.fixture.engine.drop_held_results();
                assert_eq!(
                    held.pages(query, scope, 17, false, drop_all).0,
                    expected,
                    "dropped: {query} {scope:?}"
                );
                let drop_some = |held: &ResultCacheFixture, number: usize| {
                    if number.is_multiple_of(3) {
                        held.fixture.engine.drop_held_results();
                    }
                };
                assert_eq!(held.pages(query, scope, 7, false, drop_some).0, expected, "{query} {scope:?}");
            }
        }
        let query = WHOLE[0];
        let (expected, _) = held.pages(query, &Scope::default(), -1, false, |_, _| {});
        let first = held.fixture.page(Some(query), &request(Scope::default(), 100, None)).expect("first");
        let mut rows = rows_of(&first.rows);
        let token = first.continuation.expect("there are more");
        let (clock, storage) = (Arc::clone(&held.fixture.clock), Arc::clone(&held.fixture.storage));
        held.fixture.engine = opened(storage, &clock, partitions, 128 << 20, Some(&held.temp));
        held.fixture.container = held.fixture.engine.catalog().container("db", "c").expect("there");
        let second =
            held.fixture.page(Some(query), &request(Scope::default(), -1, Some(token))).expect("second");
        rows.extend(rows_of(&second.rows));
        assert_eq!(rows, expected, "after a restart");
    }
}

fn rows_of(page: &[u8]) -> Vec<Value> {
    text::parse(page, Limits::default()).expect("JSON").as_array().expect("a list").to_vec()
}

/// What is written between pages of an order is shown as if everything were sorted again: the same as without held results.
#[test]
fn an_order_that_is_held_knows_what_was_written_since() {
    for seed in 0..12 {
        println!("seed {seed}");
        let run = |drops: bool| {
            let held = held(if seed % 2 == 0 { 1 } else { 3 }, 128 << 20, 1 << 30).filled(120);
            let mut random = Random(seed);
            let query = SORTED[seed as usize % SORTED.len()];
            let (rows, _) = held.pages(query, &Scope::default(), 5, false, |held, _| {
                for _ in 0..random.below(4) {
                    let id = random.below(150);
                    if random.below(3) == 0 {
                        drop(held.fixture.delete(&id.to_string(), &format!(r#"["{}"]"#, id % 7)));
                    } else {
                        held.write(id, random.below(300));
                    }
                }
                if drops {
                    held.fixture.engine.drop_held_results();
                }
            });
            rows.iter().map(without_stamps).collect::<Vec<_>>()
        };
        assert_eq!(run(false), run(true), "seed {seed}");
    }
}

/// Items of two engines differ in what the engine gives them.
fn without_stamps(row: &Value) -> Value {
    let mut row = row.clone();
    if let Some(object) = row.as_object_mut() {
        for name in ["_etag", "_self", "_rid", "_ts"] {
            object.remove(name);
        }
    }
    row
}

/// Groups are those of the first page: each once, whatever is written meanwhile.
#[test]
fn groups_come_once_while_items_come_and_go() {
    let held = held(1, 128 << 20, 1 << 30).filled(600);
    let query = "SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k";
    let (expected, _) = held.pages(query, &Scope::default(), -1, true, |_, _| {});
    let (rows, _) = held.pages(query, &Scope::default(), 20, true, |held, number| {
        let id = number * 13 % 600;
        drop(held.fixture.delete(&id.to_string(), &format!(r#"["{}"]"#, id % 7)));
        held.write(1_000 + number as u64, number as u64);
    });
    assert_eq!(rows, expected);
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    rows.iter()
        .for_each(|row| *counts.entry(text_of(row, "k").to_owned()).or_default() += number_of(row, "n"));
    assert_eq!((counts.len(), counts.values().sum::<i64>()), (500, 600));
}

/// A second request with the same token, as after a lost answer.
#[test]
fn a_page_can_be_asked_for_again() {
    let held = held(1, 128 << 20, 1 << 30).filled(300);
    for query in WHOLE.iter().chain(SORTED) {
        let page = |token: Option<String>| {
            let request = PageRequest { index_use: false, ..request(Scope::default(), 40, token) };
            held.fixture.page(Some(query), &request).expect("a page")
        };
        let second_token = page(None).continuation;
        let second = page(second_token.clone());
        let third = page(second.continuation.clone());
        assert_eq!(page(second_token).rows, second.rows, "{query}");
        assert_eq!(page(second.continuation).rows, third.rows, "{query}");
    }
}

/// A result is that of one query in one scope.
#[test]
fn no_query_sees_the_result_of_another() {
    let held = held(1, 128 << 20, 1 << 30).filled(300);
    let scope = |key: &str| Scope { partition_key: Some(pk(&format!(r#"["{key}"]"#))), ..Scope::default() };
    let ask = |text: &str, parameter: i64, scope: Scope, token: Option<String>| {
        let parameters = Parameters(vec![("@n".to_owned(), Value::from(parameter))]);
        let request = request(scope, 5, token);
        held.fixture.engine.query_items(&held.fixture.container, text, &parameters, &request).result
    };
    let text = "SELECT c.id, COUNT(1) AS n FROM c WHERE c.n >= @n GROUP BY c.id";
    let token = ask(text, 0, scope("1"), None).expect("a page").continuation.expect("more");
    assert_eq!(held.figure("held_results"), 1);
    let other = "SELECT c.id, COUNT(1) AS m FROM c WHERE c.n >= @n GROUP BY c.id";
    for (text, parameter, key) in [(text, 0, "2"), (text, 1, "1"), (other, 0, "1")] {
        let refused = ask(text, parameter, scope(key), Some(token.clone()));
        assert!(matches!(refused, Err(EngineError::BadContinuation)), "{text} {parameter} {key}");
    }
    assert_eq!(held.figure("held_result_pages"), 0);
    let order = "SELECT c.id, c.pk FROM c WHERE c.n >= @n ORDER BY c.n";
    let sorted = |parameter: i64, key: &str| {
        let (mut rows, mut token) = (Vec::new(), None);
        loop {
            let parameters = Parameters(vec![("@n".to_owned(), Value::from(parameter))]);
            let request = PageRequest { index_use: false, ..request(scope(key), 5, token) };
            let page = held.fixture.engine.query_items(&held.fixture.container, order, &parameters, &request);
            let page = page.result.expect("a page");
            rows.extend(rows_of(&page.rows));
            token = page.continuation;
            if token.is_none() {
                return rows;
            }
        }
    };
    let (one, two, fewer) = (sorted(0, "1"), sorted(0, "2"), sorted(200, "1"));
    assert!(
        one.iter().all(|row| text_of(row, "pk") == "1") && two.iter().all(|row| text_of(row, "pk") == "2")
    );
    assert!(fewer.len() < one.len() && !two.is_empty());
}

/// Many bytes of groups, rows to sort and distinct rows, of which memory has room for a part.
#[test]
fn what_has_no_room_in_memory_goes_to_disk_and_comes_back() {
    let little = held(1, 2 << 20, 1 << 30);
    let long = "x".repeat(2_000);
    for n in 0..3_000 {
        let body =
            format!(r#"{{"id":"{n}","pk":"{}","n":{},"s":"{} {long}"}}"#, n % 5, n * 7919 % 3_000, n % 2_500);
        little.fixture.create(&body).expect("created");
    }
    let clock = Arc::clone(&little.fixture.clock);
    let enough = opened(Arc::clone(&little.fixture.storage), &clock, 1, 512 << 20, None);
    let container = enough.catalog().container("db", "c").expect("there");
    let enough = Fixture { engine: enough, container, clock, storage: Arc::clone(&little.fixture.storage) };
    for (query, index_use) in [
        ("SELECT c.s, COUNT(1) AS n, SUM(c.n / 7) AS t FROM c GROUP BY c.s", true),
        ("SELECT DISTINCT VALUE c.s FROM c", true),
        ("SELECT DISTINCT VALUE c.s FROM c ORDER BY c.s DESC", true),
        ("SELECT c.n, MAX(c.s) AS s FROM c GROUP BY c.n ORDER BY c.n", true),
        ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.s FROM c) AS x", true),
        ("SELECT VALUE c.s FROM c ORDER BY VectorDistance([c.n], [1])", true),
        // Positions in an order that no index has.
        ("SELECT VALUE c.id FROM c ORDER BY c.s", false),
        ("SELECT c.id, c.n FROM c WHERE c.n > 100 ORDER BY c.s DESC", false),
    ] {
        let written = little.figure("query_temp_written_bytes");
        let expected = enough.all(Some(query), &Scope::default(), 200);
        let (rows, _) = little.pages(query, &Scope::default(), 200, index_use, |_, _| {});
        assert!(rows == expected, "{query}: {} and {}", rows.len(), expected.len());
        assert!(little.figure("query_temp_written_bytes") > written + (1 << 20), "{query}");
        assert_eq!(little.figure("query_memory_bytes"), 0, "{query}");
        let names = std::fs::read_dir(little.directory.path()).expect("there").count();
        assert_eq!(names, 0, "files have no names");
        little.fixture.engine.drop_held_results();
        assert_eq!((little.temp.usage().used_bytes, little.temp.usage().files), (0, 0), "{query}");
    }
    assert_eq!(little.figure("query_memory_refused_queries"), 0);
}

#[test]
fn temporary_space_is_bounded_and_names_its_setting() {
    let held = held(1, 1 << 20, 1 << 20);
    let long = "x".repeat(2_000);
    for n in 0..1_500 {
        held.fixture.create(&format!(r#"{{"id":"{n}","pk":"1","s":"{n} {long}"}}"#)).expect("created");
    }
    let request = request(Scope::default(), 10, None);
    let refused = held.fixture.page(Some("SELECT c.s, COUNT(1) AS n FROM c GROUP BY c.s"), &request);
    match refused {
        Err(EngineError::Sql(error @ SqlError::QueryTempSpace { .. })) => {
            assert!(error.to_string().contains("--query-temp-mb"), "{error}");
        }
        other => panic!("{:?}", other.map(|page| page.count)),
    }
    assert_eq!((held.temp.usage().used_bytes, held.temp.usage().files), (0, 0));
    assert!(held.figure("query_temp_refused") > 0);
    // An order that has no room is sorted for every page, as it always was.
    let query = "SELECT VALUE c.id FROM c ORDER BY c.s";
    let (rows, _) = held.pages(query, &Scope::default(), 400, false, |_, _| {});
    assert_eq!(rows.len(), 1_500);
}

#[test]
fn a_query_that_is_cancelled_leaves_no_file() {
    let held = held(1, 1 << 20, 1 << 30);
    let long = "x".repeat(1_000);
    for n in 0..10_000 {
        held.fixture.create(&format!(r#"{{"id":"{n}","pk":"1","s":"{n} {long}"}}"#)).expect("created");
    }
    let mut cancelled = 0;
    for asks in 0..11 {
        let left = std::sync::atomic::AtomicI64::new(asks);
        let temp = Arc::clone(&held.temp);
        // Leaves once something was written.
        let cancel = Cancel::asking(move || {
            temp.usage().files > 0 && left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) <= 0
        });
        let request = PageRequest { cancel, ..request(Scope::default(), 10, None) };
        let ended = held.fixture.page(Some("SELECT c.s, COUNT(1) AS n FROM c GROUP BY c.s"), &request);
        cancelled += u64::from(matches!(ended, Err(EngineError::Cancelled)));
        held.fixture.engine.drop_held_results();
        assert_eq!((held.temp.usage().used_bytes, held.temp.usage().files), (0, 0), "{asks}");
    }
    assert!(cancelled > 0);
}

/// Without a directory small results are held in memory, and larger ones are computed for every page.
#[test]
fn without_temporary_space_pages_are_the_same() {
    let held = held(1, 128 << 20, 1 << 30).filled(600);
    let clock = Arc::clone(&held.fixture.clock);
    let engine = opened(Arc::clone(&held.fixture.storage), &clock, 1, 128 << 20, None);
    let container = engine.catalog().container("db", "c").expect("there");
    let without = Fixture { engine, container, clock, storage: Arc::clone(&held.fixture.storage) };
    for query in WHOLE.iter().chain(SORTED) {
        let expected = without.all(Some(query), &Scope::default(), -1);
        assert_eq!(without.all(Some(query), &Scope::default(), 50), expected, "{query}");
    }
}
