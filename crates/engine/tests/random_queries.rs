//! Random queries over random items: with indexes, without, in pages of any size, over one partition and several, in
//! memory and on disk, the rows are those of the executor fed with all items.
//!
//! `QUIRE_RANDOM_QUERIES` says how many (a few thousand unless told), `QUIRE_RANDOM_SEED` where to start. A failure
//! prints the seed of its round, which alone repeats it.

mod common;

use std::cell::RefCell;
use std::sync::Arc;

use common::{Fixture, request};
use quire_engine::{EngineError, PageRequest, Parameters, Scope, WriteKind};
use quire_sql::{Query, SqlError};
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_testkit::random::{COMPOSITES, Expected, Random, RandomQuery};
use quire_value::{Limits, Value, text};

const QUERIES_DEFAULT: u64 = 3_000;
const SEED_DEFAULT: u64 = 20_261_115;
const QUERIES_PER_ROUND: u64 = 60;

#[test]
fn random_queries_are_what_the_executor_says() {
    let (queries, seed) =
        (setting("QUIRE_RANDOM_QUERIES", QUERIES_DEFAULT), setting("QUIRE_RANDOM_SEED", SEED_DEFAULT));
    let rounds = queries.div_ceil(QUERIES_PER_ROUND);
    println!("{} queries from seed {seed}", rounds * QUERIES_PER_ROUND);
    let mut tally = Tally::default();
    for round in 0..rounds {
        Round::new(seed + round).run(&mut tally);
    }
    println!("{tally:?}");
    // Or the generator would have gone astray.
    assert!(tally.failed * 10 < tally.queries, "{tally:?}");
    assert!(tally.rows > tally.queries, "{tally:?}");
}

/// What the executor says of the queries.
#[derive(Debug, Default)]
struct Tally {
    queries: u64,
    failed: u64,
    empty: u64,
    rows: u64,
}

impl Tally {
    fn count(&mut self, expected: &Result<Vec<Value>, SqlError>) {
        self.queries += 1;
        match expected {
            Ok(rows) => {
                self.empty += u64::from(rows.is_empty());
                self.rows += rows.len() as u64;
            }
            Err(_) => self.failed += 1,
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

struct Round {
    seed: u64,
    random: Random,
    /// Keeps the folder while the storage is open.
    _folder: Option<tempfile::TempDir>,
    fixture: Fixture,
    excludes: bool,
    /// How the last first page was made.
    explained: RefCell<String>,
}

impl Round {
    fn new(seed: u64) -> Round {
        let mut random = Random::new(seed);
        let on_disk = random.once_in(8);
        let folder = on_disk.then(|| tempfile::tempdir().expect("a folder"));
        let storage: Arc<dyn Storage> = match &folder {
            Some(folder) => {
                Arc::new(LocalStorage::open(folder.path(), LocalOptions::default()).expect("opens"))
            }
            None => Arc::new(MemoryStorage::new()),
        };
        let excludes = random.once_in(4);
        let members = format!("\"indexingPolicy\":{}", policy(excludes));
        let partitions = if random.once_in(2) { 1 } else { 5 };
        let key = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
        let fixture = Fixture::on(storage, key, &members, partitions);
        Round { seed, random, _folder: folder, fixture, excludes, explained: RefCell::default() }
    }

    fn run(mut self, tally: &mut Tally) {
        self.write();
        let items = self.fixture.all(None, &Scope::default(), -1);
        for _ in 0..QUERIES_PER_ROUND {
            let query = self.random.query();
            let expected = oracle(&query.text, &items);
            tally.count(&expected);
            let whole = match query.answer {
                Expected::Part => oracle(&query.whole, &items),
                Expected::Rows | Expected::Ordered => Ok(Vec::new()),
            };
            let small = 1 + self.random.below(4) as i64;
            for (page_size, index_use) in [(-1, true), (-1, false), (1, true), (small, true), (small, false)]
            {
                let found = self.pages(&query.text, page_size, index_use);
                self.check(&query, &expected, &whole, found, (page_size, index_use));
            }
        }
    }

    /// Creates, then replaces and deletes some, so that rows of old versions had to go.
    fn write(&mut self) {
        for id in 0..40 + self.random.below(40) {
            let item = self.random.item(id);
            self.fixture.create(&item).unwrap_or_else(|error| panic!("{item}: {error}"));
        }
        let items = self.fixture.all(None, &Scope::default(), -1);
        for item in items {
            let (id, pk) = (common::text_of(&item, "id").to_owned(), common::text_of(&item, "pk").to_owned());
            if self.random.once_in(5) {
                self.fixture.delete(&id, &format!("[\"{pk}\"]")).expect("deleted");
            } else if self.random.once_in(3) {
                let number = id.parse().expect("ids are numbers");
                let fresh = self.random.item(number);
                let value = common::json(&fresh);
                // The key stays what it was.
                let body = fresh.replacen(
                    &format!("\"pk\":\"{}\"", common::text_of(&value, "pk")),
                    &format!("\"pk\":\"{pk}\""),
                    1,
                );
                self.fixture
                    .write(WriteKind::Replace { id: id.clone() }, None, &body)
                    .result
                    .expect("replaced");
            }
        }
    }

    fn pages(&self, text: &str, page_size: i64, index_use: bool) -> Result<Vec<Value>, EngineError> {
        let mut rows = Vec::new();
        let mut next = PageRequest { index_use, explain: true, ..request(Scope::default(), page_size, None) };
        loop {
            let page = self.fixture.page(Some(text), &next)?;
            if let Some(explained) = page.explain {
                *self.explained.borrow_mut() = explained;
                next.explain = false;
            }
            let values = text::parse(&page.rows, Limits::default()).expect("pages are JSON");
            rows.extend(values.as_array().expect("pages are arrays").iter().cloned());
            assert!(page_size < 1 || page.count as i64 <= page_size, "{text}: a page of {}", page.count);
            match page.continuation {
                Some(token) => next.continuation = Some(token),
                None => return Ok(rows),
            }
        }
    }

    fn check(
        &self,
        query: &RandomQuery,
        expected: &Result<Vec<Value>, SqlError>,
        whole: &Result<Vec<Value>, SqlError>,
        found: Result<Vec<Value>, EngineError>,
        how: (i64, bool),
    ) {
        let told = format!(
            "seed {}, pages of {}, index use {}: {}\n{}",
            self.seed,
            how.0,
            how.1,
            query.text,
            self.explained.borrow()
        );
        let (expected, found) = match (expected, found) {
            (Ok(expected), Ok(found)) => (expected, found),
            (Err(_), Err(_)) => return,
            // A policy that leaves a path out cannot order by it.
            (Ok(_), Err(_)) if self.excludes && query.text.contains("ORDER BY") => return,
            (Ok(expected), Err(error)) => panic!("{told}\n{error}\ninstead of {expected:?}"),
            (Err(error), Ok(found)) => panic!("{told}\n{found:?}\ninstead of {error}"),
        };
        match query.answer {
            Expected::Ordered => assert_eq!(found, *expected, "{told}"),
            Expected::Rows => assert_eq!(sorted(&found), sorted(expected), "{told}"),
            Expected::Part => {
                assert_eq!(found.len(), expected.len(), "{told}");
                let mut rest = sorted(whole.as_ref().expect("the whole runs where its part does"));
                for row in sorted(&found) {
                    let at = rest.iter().position(|other| *other == row);
                    rest.swap_remove(at.unwrap_or_else(|| panic!("{told}\n{row} is no row of the whole")));
                }
            }
        }
    }
}

fn policy(excludes: bool) -> String {
    let composite = COMPOSITES.iter().map(|pair| {
        let paths = pair.map(|(path, order)| format!(r#"{{"path":"{path}","order":"{order}"}}"#));
        format!("[{}]", paths.join(","))
    });
    let excluded = if excludes { r#"{"path":"/m/*"},{"path":"/o/*"},{"path":"/l/*"}"# } else { "" };
    format!(
        r#"{{"includedPaths":[{{"path":"/*"}}],"excludedPaths":[{excluded}],"compositeIndexes":[{}]}}"#,
        composite.collect::<Vec<_>>().join(",")
    )
}

/// All rows over all items in their order.
fn oracle(text: &str, items: &[Value]) -> Result<Vec<Value>, SqlError> {
    Query::compile(text, &Parameters::default(), &[])?.rows(items)
}

fn sorted(rows: &[Value]) -> Vec<String> {
    let mut rows: Vec<String> = rows.iter().map(Value::to_json).collect();
    rows.sort();
    rows
}
