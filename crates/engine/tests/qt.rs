//! Every `.qt` file through the engine: in memory and on disk, with index use and without, in whole pages and in pages of
//! one, with one partition and with five.

mod support;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use quire_engine::{EngineError, PageRequest, Parameters, Scope};
use quire_sql::functions::{self, Volatility};
use quire_sql::{Environment, Externals, Query, Schema, SqlError};
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_testkit::links::ItemLinks;
use quire_testkit::qt::{self, QuerySetup, Runner};
use quire_value::{Limits, Value, text};
use support::fixture::{Fixture, request};

const SYSTEM_PROPERTIES: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

/// How a query is run.
#[derive(Clone, Copy, Debug)]
struct QueryRun {
    on_disk: bool,
    partitions: u32,
    page_size: i64,
    index_use: bool,
}

struct Engines {
    way: QueryRun,
    /// Containers by what is in them: a file asks many queries of the same items.
    filled: parking_lot::Mutex<HashMap<String, Arc<FilledEngines>>>,
}

struct FilledEngines {
    fixture: Fixture,
    _folder: Option<tempfile::TempDir>,
}

#[test]
fn in_memory() {
    check(QueryRun { on_disk: false, partitions: 1, page_size: -1, index_use: true });
}

#[test]
fn without_indexes() {
    check(QueryRun { on_disk: false, partitions: 1, page_size: -1, index_use: false });
}

#[test]
fn in_pages_of_one() {
    check(QueryRun { on_disk: false, partitions: 1, page_size: 1, index_use: true });
}

#[test]
fn in_pages_of_one_without_indexes() {
    check(QueryRun { on_disk: false, partitions: 1, page_size: 1, index_use: false });
}

#[test]
fn with_five_partitions() {
    check(QueryRun { on_disk: false, partitions: 5, page_size: -1, index_use: true });
    check(QueryRun { on_disk: false, partitions: 5, page_size: 1, index_use: true });
}

#[test]
fn on_disk() {
    check(QueryRun { on_disk: true, partitions: 1, page_size: -1, index_use: true });
}

fn check(way: QueryRun) {
    if std::env::var_os("UPDATE").is_some() {
        return; // the language alone writes the files
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/queries");
    let failures: Vec<String> = qt::files(&folder)
        .expect("the folder of queries is there")
        .iter()
        .filter_map(|file| qt::run(file, &Engines { way, filled: Default::default() }).err())
        .map(|error| format!("{way:?}: {error:#}"))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

impl Runner for Engines {
    fn query(&self, setup: &QuerySetup, text: &str) -> Result<Vec<Value>, String> {
        let expected = oracle(setup, text);
        if self.can_run(setup, text) {
            let found = self.run_query(setup, text);
            self.compare(text, &expected, found)?;
        }
        expected.map_err(|error| print(&error))
    }
}

impl Engines {
    /// The time and chance are the language's own business, and so are items that no container can hold.
    fn can_run(&self, setup: &QuerySetup, text: &str) -> bool {
        let upper = text.to_uppercase();
        let steady = functions::all()
            .filter(|function| function.volatility() != Volatility::Deterministic)
            .all(|function| !upper.contains(&function.name().to_uppercase()));
        let storable =
            |item: &Value| item.get("id").is_some_and(|id| id.as_str().is_some_and(|id| !id.is_empty()));
        let with_system = |item: &Value| SYSTEM_PROPERTIES.iter().any(|name| item.get(name).is_some());
        let mut ids: Vec<&str> = setup.items.iter().filter_map(|item| item.get("id")?.as_str()).collect();
        ids.sort_unstable();
        steady
            && setup.links.is_empty()
            && setup.items.iter().all(|item| storable(item) && !with_system(item))
            && ids.windows(2).all(|pair| pair[0] != pair[1])
            && !SYSTEM_PROPERTIES.iter().any(|name| text.contains(name))
    }

    fn run_query(&self, setup: &QuerySetup, text: &str) -> Result<Vec<Value>, EngineError> {
        let filled = self.filled(setup);
        let mut rows = Vec::new();
        let mut next = PageRequest {
            index_use: self.way.index_use,
            ..request(Scope::default(), self.way.page_size, None)
        };
        loop {
            let Fixture { engine, container, .. } = &filled.fixture;
            let page =
                engine.query_items(container, text, &Parameters(setup.parameters.clone()), &next).result?;
            let values = text::parse(&page.rows, Limits::default()).expect("pages are JSON");
            rows.extend(values.as_array().expect("pages are arrays").iter().map(without_system_properties));
            match page.continuation {
                Some(token) => next.continuation = Some(token),
                None => return Ok(rows),
            }
        }
    }

    fn filled(&self, setup: &QuerySetup) -> Arc<FilledEngines> {
        let key = format!("{:?} {:?}", setup.items, setup.computed);
        let mut filled = self.filled.lock();
        Arc::clone(filled.entry(key).or_insert_with(|| Arc::new(self.fill(setup))))
    }

    /// With one partition all items have one key, so they come in the order in which they were written.
    fn fill(&self, setup: &QuerySetup) -> FilledEngines {
        let folder = self.way.on_disk.then(|| tempfile::tempdir().expect("a folder"));
        let storage: Arc<dyn Storage> = match &folder {
            Some(folder) => {
                Arc::new(LocalStorage::open(folder.path(), LocalOptions::default()).expect("opens"))
            }
            None => Arc::new(MemoryStorage::new()),
        };
        let path = if self.way.partitions == 1 { "/nobodyHasThis" } else { "/id" };
        let key = format!(r#"{{"paths":["{path}"],"kind":"Hash","version":2}}"#);
        let fixture = Fixture::on(storage, &key, &computed(setup), self.way.partitions);
        for item in &setup.items {
            fixture.create(&item.to_json()).unwrap_or_else(|error| panic!("{}: {error}", item.to_json()));
        }
        FilledEngines { fixture, _folder: folder }
    }

    fn compare(
        &self,
        text: &str,
        expected: &Result<Vec<Value>, SqlError>,
        found: Result<Vec<Value>, EngineError>,
    ) -> Result<(), String> {
        match (expected, found) {
            (Ok(expected), Ok(found)) if self.agrees(text, expected, &found) => Ok(()),
            (Ok(_), Ok(found)) => Err(format!("the engine gives {}", Value::Array(found).to_json())),
            // Pages may have been sent before the row that fails; the policy may refuse an order.
            (Err(_), Err(_)) => Ok(()),
            // No policy of these containers has composite indexes.
            (Ok(_), Err(error)) if error.to_string().contains("corresponding composite index") => Ok(()),
            (Ok(_), Err(error)) => Err(format!("the engine refuses: {error}")),
            (Err(error), Ok(_)) => Err(format!("the engine does not say: {}", print(error))),
        }
    }

    fn agrees(&self, text: &str, expected: &[Value], found: &[Value]) -> bool {
        let upper = text.to_uppercase();
        let ordered = upper.contains("ORDER BY");
        let limited = upper.contains(" TOP ") || upper.contains(" LIMIT ");
        if self.way.partitions == 1 && ordered {
            return expected == found;
        }
        // What depends on the order of items differs between partitions, all but its size.
        if limited || upper.contains("MAKESET") || upper.contains("MAKELIST") {
            return self.way.partitions == 1 && expected == found || expected.len() == found.len();
        }
        sorted(expected) == sorted(found)
    }
}

fn oracle(setup: &QuerySetup, text: &str) -> Result<Vec<Value>, SqlError> {
    const NOW_TICKS: i64 = 17_698_536_001_234_567;
    let links = ItemLinks::of(setup);
    let schema = Schema { computed: &setup.computed, ..Schema::default() }.with_links(&links);
    let query = Query::compile_for(text, &Parameters(setup.parameters.clone()), schema)?
        .with_environment(Environment { now_ticks: Some(NOW_TICKS), ..Environment::default() });
    query.rows_with(Externals::links(&links), &setup.items)
}

/// Computed properties, each with an index of its own, or nobody could order by them.
fn computed(setup: &QuerySetup) -> String {
    if setup.computed.is_empty() {
        return String::new();
    }
    let json = |text: &str| Value::from(text).to_json();
    let properties = setup
        .computed
        .iter()
        .map(|(name, query)| format!("{{\"name\":{},\"query\":{}}}", json(name), json(query)));
    let paths =
        setup.computed.iter().map(|(name, _)| format!("{{\"path\":{}}}", json(&format!("/{name}/?"))));
    format!(
        "\"computedProperties\":[{}],\"indexingPolicy\":{{\"includedPaths\":[{{\"path\":\"/*\"}},{}]}}",
        properties.collect::<Vec<_>>().join(","),
        paths.collect::<Vec<_>>().join(",")
    )
}

fn without_system_properties(row: &Value) -> Value {
    match row {
        Value::Object(object) => {
            let kept = object.iter().filter(|(name, _)| !SYSTEM_PROPERTIES.contains(&&**name));
            Value::Object(
                kept.map(|(name, value)| (name.to_string(), without_system_properties(value))).collect(),
            )
        }
        Value::Array(elements) => Value::Array(elements.iter().map(without_system_properties).collect()),
        other => other.clone(),
    }
}

fn sorted(rows: &[Value]) -> Vec<String> {
    let mut rows: Vec<String> = rows.iter().map(Value::to_json).collect();
    rows.sort();
    rows
}

fn print(error: &SqlError) -> String {
    match error {
        SqlError::Compile(diagnostics) => {
            let line = |d: &quire_sql::Diagnostic| format!("{} {}..{} {}", d.code, d.start, d.end, d.message);
            diagnostics.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        other => other.to_string(),
    }
}
