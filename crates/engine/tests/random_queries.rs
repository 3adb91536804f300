//! Random queries over random items: with indexes, without, in pages of any size, over one partition and several, by
//! partition and by partition key, in memory and on disk, the rows are those of a second interpreter that knows nothing
//! but the items.
//!
//! `QUIRE_RANDOM_QUERIES` says how many (a few thousand by default), `QUIRE_RANDOM_SEED` where to start. A failure
//! prints the seed of its round, which alone repeats it.

mod support;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use quire_engine::{EngineError, PageRequest, Parameters, Scope, WriteKind};
use quire_resource::{EffectivePartitionKey, EpkRange};
use quire_sql::{SqlError, functions};
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_testkit::interpreter::{Interpreter, Json, QueryFailure, agrees, plain_name};
use quire_testkit::random::{COMPOSITES, COMPUTED, ExpectedRows, PARAMETERS, QueryGenerator, RandomQuery};
use quire_value::{Limits, Value, text};
use support::fixture::{Fixture, request};

const QUERIES_DEFAULT: u64 = 4_000;
const SEED_DEFAULT: u64 = 20_261_115;
/// 2026-01-31T10:00:00Z
const NOW_TICKS: i64 = 17_698_536_000_000_000;
/// So many are printed before the run ends.
const DIFFERENCES_MAX: usize = 10;
const QUERIES_PER_ROUND: u64 = 60;

/// How an index answers by itself: what plans of that way contain. Each is met, and nothing else says "index only".
const INDEX_ONLY: &[&[&str]] = &[
    &["Count of items, kept with every write"],
    &["Ends of index /", "found 0"],
    &["Ends of index /", ", index only"],
    &["Values of index /", ", index only"],
    &["Rows of index /pk = ", ", index only"],
    &["Walk range index /", " forward", ", index only"],
    &["Walk range index /", " backward", ", index only"],
    &["Counts of full-text index /txt, index only"],
];

/// Paths with rows for the items that lack them, in half of the rounds.
const MISSING: &[&str] = &["/n", "/s", "/m", "/b", "/o/x", "/long", "/gone"];

#[test]
fn random_queries_are_what_a_second_interpreter_says() {
    let (queries, seed) =
        (setting("QUIRE_RANDOM_QUERIES", QUERIES_DEFAULT), setting("QUIRE_RANDOM_SEED", SEED_DEFAULT));
    let rounds = queries.div_ceil(QUERIES_PER_ROUND);
    println!("{} queries from seed {seed}", rounds * QUERIES_PER_ROUND);
    let mut tally = Tally::default();
    for round in 0..rounds {
        Round::new(seed + round).run(&mut tally);
        let differences = &tally.differences;
        assert!(differences.len() < DIFFERENCES_MAX, "{}", differences.join("\n\n"));
    }
    let Tally { queries, failed, empty, rows, called, plans, missing_rows, differences } = &tally;
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    println!("{queries} queries, {failed} failed, {empty} empty, {rows} rows");
    // Or the generator would have gone astray.
    assert!(failed * 10 < *queries && rows > queries, "{failed} failed, {rows} rows");
    if *queries < QUERIES_DEFAULT {
        return; // too few to reach everything
    }
    // Links need a model: tests/follow has them.
    let missing: Vec<&str> = functions::all()
        .filter(|function| !function.follows())
        .map(functions::Function::name)
        .filter(|name| !called.contains(&plain_name(name)))
        .collect();
    assert!(missing.is_empty(), "functions that no query called: {missing:?}");
    println!("{} functions called, {} plans that read no item", called.len(), plans.len());
    assert!(*missing_rows > 20, "{missing_rows} pages found items without a value by rows");
    let is_of = |plan: &str, way: &[&str]| way.iter().all(|part| plan.contains(part));
    let unseen: Vec<&&[&str]> =
        INDEX_ONLY.iter().filter(|way| !plans.iter().any(|plan| is_of(plan, way))).collect();
    assert!(unseen.is_empty(), "ways of index-only answers that no query took: {unseen:?} of {plans:#?}");
    let is_unknown =
        |plan: &&String| plan.contains("index only") && !INDEX_ONLY.iter().any(|way| is_of(plan, way));
    let unknown: Vec<&String> = plans.iter().filter(is_unknown).collect();
    assert!(unknown.is_empty(), "ways of index-only answers that the list lacks: {unknown:#?}");
}

/// What the queries came to.
#[derive(Debug, Default)]
struct Tally {
    queries: u64,
    failed: u64,
    empty: u64,
    rows: u64,
    /// Functions.
    called: BTreeSet<String>,
    /// First lines of plans that read no item.
    plans: BTreeSet<String>,
    /// Pages that found items without a value by rows.
    missing_rows: u64,
    differences: Vec<String>,
}

impl Tally {
    fn count(&mut self, expected: &Result<Vec<Json>, QueryFailure>) {
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
    random: QueryGenerator,
    /// Keeps the folder while the storage is open.
    _folder: Option<tempfile::TempDir>,
    fixture: Fixture,
    excludes: bool,
    computed: Vec<(String, String)>,
    /// How the last first page was made.
    explained: RefCell<String>,
}

impl Round {
    fn new(seed: u64) -> Round {
        let mut random = QueryGenerator::new(seed);
        let on_disk = random.one_in(8);
        let folder = on_disk.then(|| tempfile::tempdir().expect("a folder"));
        let storage: Arc<dyn Storage> = match &folder {
            Some(folder) => {
                Arc::new(LocalStorage::open(folder.path(), LocalOptions::default()).expect("opens"))
            }
            None => Arc::new(MemoryStorage::new()),
        };
        let excludes = random.one_in(4);
        let computed = if random.one_in(2) { computed() } else { Vec::new() };
        let members = format!(
            "\"indexingPolicy\":{},{},{SEARCH_POLICIES}",
            policy(excludes, &computed),
            definitions(&computed)
        );
        let partitions = if random.one_in(2) { 1 } else { 5 };
        let key = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
        let fixture = Fixture::on(storage, key, &members, partitions);
        Round { seed, random, _folder: folder, fixture, excludes, computed, explained: RefCell::default() }
    }

    fn run(mut self, tally: &mut Tally) {
        self.write();
        if self.seed.is_multiple_of(2) {
            let paths: &[&str] = if self.excludes { &["/n", "/s", "/gone"] } else { MISSING };
            support::fixture::index_missing_values(&self.fixture, paths);
        }
        let scopes = self.scopes();
        for _ in 0..QUERIES_PER_ROUND {
            let query = self.random.query();
            let (scope, second) = &scopes[self.random.below(scopes.len() as u64) as usize];
            let expected = second.rows(&query.text);
            tally.count(&expected);
            let whole = match query.answer {
                ExpectedRows::Part => second.rows(&query.whole),
                ExpectedRows::Rows | ExpectedRows::Ordered => Ok(Vec::new()),
            };
            let small = 1 + self.random.below(4) as i64;
            for (page_size, index_use) in [(-1, true), (-1, false), (1, true), (small, true), (small, false)]
            {
                let found = self.pages(scope, &query.text, page_size, index_use);
                if let Err(difference) = self.check(&query, &expected, &whole, found, (page_size, index_use))
                {
                    println!("{difference}\n");
                    tally.differences.push(difference);
                    break;
                }
                let explained = self.explained.borrow();
                tally.missing_rows += u64::from(explained.contains("missing values by rows"));
                if explained.contains("items read 0 ") {
                    tally.plans.extend(explained.lines().next().map(str::to_owned));
                }
            }
        }
        tally.called.extend(scopes.iter().flat_map(|(_, second)| second.called()));
    }

    /// Everything, a partition, a partition key, ranges of keys: each with its items in their order.
    fn scopes(&mut self) -> Vec<(Scope, Interpreter)> {
        let everything = Scope::default();
        let one_partition = Scope { partition_id: Some("0".to_owned()), ..Scope::default() };
        let one_key = Scope { partition_key: Some(support::fixture::pk("[\"key1\"]")), ..Scope::default() };
        let EpkRange { min, max } = EpkRange::full();
        let cut = EffectivePartitionKey::from_hex("1C").expect("hex");
        let range = |min, max| Scope { range: Some(EpkRange { min, max }), ..Scope::default() };
        let halves = [range(min, cut.clone()), range(cut, max)];
        let part_of_one = Scope { partition_id: Some("0".to_owned()), ..halves[0].clone() };
        let [low, high] = halves;
        // Many queries ask for everything.
        [everything.clone(), everything.clone(), everything, one_partition, one_key, low, high, part_of_one]
            .into_iter()
            .map(|scope| {
                let items = self.fixture.all(None, &scope, -1);
                let second = Interpreter::new(&items).with_time(NOW_TICKS);
                (scope, second.with_parameters(&parameters()).with_computed(&self.computed))
            })
            .collect()
    }

    /// Creates, then replaces and deletes some, so that rows of old versions had to go.
    fn write(&mut self) {
        for id in 0..40 + self.random.below(40) {
            let item = self.random.item(id);
            self.fixture.create(&item).unwrap_or_else(|error| panic!("{item}: {error}"));
        }
        let items = self.fixture.all(None, &Scope::default(), -1);
        for item in items {
            let (id, pk) = (
                support::fixture::text_of(&item, "id").to_owned(),
                support::fixture::text_of(&item, "pk").to_owned(),
            );
            if self.random.one_in(5) {
                self.fixture.delete(&id, &format!("[\"{pk}\"]")).expect("deleted");
            } else if self.random.one_in(3) {
                let number = id.parse().expect("ids are numbers");
                let fresh = self.random.item(number);
                let value = support::fixture::json(&fresh);
                // The key stays what it was.
                let body = fresh.replacen(
                    &format!("\"pk\":\"{}\"", support::fixture::text_of(&value, "pk")),
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

    fn pages(
        &self,
        scope: &Scope,
        text: &str,
        page_size: i64,
        index_use: bool,
    ) -> Result<Vec<Value>, EngineError> {
        self.explained.borrow_mut().clear();
        let mut rows = Vec::new();
        let mut next = PageRequest { index_use, explain: true, ..request(scope.clone(), page_size, None) };
        loop {
            let (engine, container) = (&self.fixture.engine, &self.fixture.container);
            let page = engine.query_items(container, text, &Parameters(parameters()), &next).result?;
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
        expected: &Result<Vec<Json>, QueryFailure>,
        whole: &Result<Vec<Json>, QueryFailure>,
        found: Result<Vec<Value>, EngineError>,
        how: (i64, bool),
    ) -> Result<(), String> {
        let query_text = format!(
            "seed {}, pages of {}, index use {}: {}\n{}",
            self.seed,
            how.0,
            how.1,
            query.text,
            self.explained.borrow()
        );
        let not_representable =
            |answer: &Result<Vec<Json>, QueryFailure>| matches!(answer, Err(QueryFailure::NotRepresentable));
        let (expected, found) = match (expected, found) {
            (Ok(expected), Ok(found)) => (expected, found),
            // A policy that leaves a path out cannot order by it.
            (_, Err(EngineError::Sql(SqlError::Refused(why)))) if self.excludes && is_about_order(&why) => {
                return Ok(());
            }
            (Err(QueryFailure::Cardinality), Err(EngineError::Sql(SqlError::Refused(_)))) => return Ok(()),
            (_, Err(EngineError::Sql(SqlError::NotRepresentable)))
                if not_representable(whole) || expected.is_err() =>
            {
                return Ok(());
            }
            // Other rows than these may be the first ones.
            (Err(QueryFailure::NotRepresentable), Ok(_)) if query.answer == ExpectedRows::Part => {
                return Ok(());
            }
            (Ok(expected), Err(error)) => {
                return Err(format!("{query_text}\n{error}\ninstead of {expected:?}"));
            }
            (Err(error), found) => return Err(format!("{query_text}\n{found:?}\ninstead of {error:?}")),
        };
        let tolerance = if query.text.contains("ST_") { 0.01 } else { 1e-9 };
        let found: Vec<Json> = found.iter().filter_map(Json::of).collect();
        let lines =
            |rows: &[Json]| rows.iter().map(|row| format!("  {}\n", row.to_text())).collect::<String>();
        let context = || format!("{query_text}found\n{}expected\n{}", lines(&found), lines(expected));
        let is_same = found.len() == expected.len()
            && match query.answer {
                ExpectedRows::Ordered => {
                    expected.iter().zip(&found).all(|(left, right)| agrees(left, right, tolerance))
                }
                ExpectedRows::Rows => are_among(expected, &found, tolerance),
                ExpectedRows::Part => match whole {
                    Ok(whole) => are_among(whole, &found, tolerance),
                    Err(error) => *error == QueryFailure::NotRepresentable,
                },
            };
        if is_same { Ok(()) } else { Err(context()) }
    }
}

fn is_about_order(refusal: &str) -> bool {
    refusal == "The index path corresponding to the specified order-by item is excluded."
}

/// Whether every row is one of those expected, each of which stands for one. Rows in the same order are paired as they come;
/// otherwise equal rows before those that differ in their last digits.
fn are_among(expected: &[Json], found: &[Json], tolerance: f64) -> bool {
    let in_order = || expected.iter().zip(found).all(|(left, right)| agrees(left, right, tolerance));
    if expected.len() == found.len() && in_order() {
        return true;
    }
    let mut rest: Vec<&Json> = expected.iter().collect();
    let mut take = |is_same: &dyn Fn(&Json) -> bool| {
        let at = rest.iter().position(|other| is_same(other));
        at.map(|at| rest.swap_remove(at)).is_some()
    };
    let others: Vec<&Json> = found.iter().filter(|row| !take(&|other| other.equals(row))).collect();
    others.into_iter().all(|row| take(&|other| agrees(other, row, tolerance)))
}

/// Words, vectors and geometries have indexes of their own.
const SEARCH_POLICIES: &str = r#""fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/txt","language":"en-US"}]},
    "vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v","dataType":"float32","distanceFunction":"cosine","dimensions":2}]}"#;

fn parameters() -> Vec<(String, Value)> {
    PARAMETERS.iter().map(|(name, json)| ((*name).to_owned(), support::fixture::json(json))).collect()
}

fn computed() -> Vec<(String, String)> {
    COMPUTED.iter().map(|(name, query)| ((*name).to_owned(), (*query).to_owned())).collect()
}

fn definitions(computed: &[(String, String)]) -> String {
    let definition = |(name, query): &(String, String)| {
        format!(r#"{{"name":"{name}","query":{}}}"#, Value::from(query.as_str()).to_json())
    };
    format!("\"computedProperties\":[{}]", computed.iter().map(definition).collect::<Vec<_>>().join(","))
}

fn policy(excludes: bool, computed: &[(String, String)]) -> String {
    let composite = COMPOSITES.iter().map(|pair| {
        let paths = pair.map(|(path, order)| format!(r#"{{"path":"{path}","order":"{order}"}}"#));
        format!("[{}]", paths.join(","))
    });
    let of_computed: String =
        computed.iter().map(|(name, _)| format!(r#",{{"path":"/{name}/?"}}"#)).collect();
    let excluded = if excludes { r#"{"path":"/m/*"},{"path":"/o/*"},{"path":"/l/*"}"# } else { "" };
    format!(
        r#"{{"includedPaths":[{{"path":"/*"}}{of_computed}],"excludedPaths":[{excluded}],"compositeIndexes":[{}],
            "spatialIndexes":[{{"path":"/g/*","types":["Point","LineString","Polygon","MultiPolygon"]}}],"fullTextIndexes":[{{"path":"/txt"}}],
            "vectorIndexes":[{{"path":"/v","type":"flat"}}]}}"#,
        composite.collect::<Vec<_>>().join(",")
    )
}
