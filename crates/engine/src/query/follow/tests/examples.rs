//! The `.qt` files of links through the engine: the rows of the language alone, in pages, with 1 and 5 partitions.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use quire_sql::{Externals, Query, Schema, SqlError};
use quire_testkit::links::{ItemLinks, OWN_CONTAINER};
use quire_testkit::qt::{self, QuerySetup, Runner};
use quire_value::{Object, Value};

use super::bench::Bench;
use crate::api::*;
use crate::store::SYSTEM_PROPERTIES;

struct Engines {
    partitions: u32,
    page_size: i64,
    index_use: bool,
    filled: Mutex<HashMap<String, Arc<Bench>>>,
}

#[test]
fn rows_are_those_of_the_language() {
    for (partitions, page_size, index_use) in
        [(1, -1, true), (1, 1, true), (1, -1, false), (1, 1, false), (5, -1, true), (5, 1, true)]
    {
        let engines = Engines { partitions, page_size, index_use, filled: Default::default() };
        for name in ["follow", "referrers"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/queries/functions");
            qt::run(&folder.join(format!("{name}.qt")), &engines).unwrap_or_else(|error| panic!("{error:#}"));
        }
    }
}

impl Runner for Engines {
    fn query(&self, setup: &QuerySetup, text: &str) -> Result<Vec<Value>, String> {
        let expected = oracle(setup, text);
        let request = PageRequest {
            item_count_max: Some(self.page_size),
            index_use: self.index_use,
            ..PageRequest::default()
        };
        let found = self.bench(setup).all(OWN_CONTAINER, text, request);
        match (&expected, found) {
            (Ok(expected), Ok(found)) => self.compare(text, expected, found)?,
            (Err(expected), Err(EngineError::Sql(found))) if *expected == found => {}
            (expected, found) => return Err(format!("{expected:?} and not {found:?}")),
        }
        expected.map_err(|error| print(&error))
    }
}

impl Engines {
    fn compare(&self, text: &str, expected: &[Value], found: Vec<Value>) -> Result<(), String> {
        let found: Vec<Value> = found.into_iter().map(stripped).collect();
        let is_ordered = self.partitions == 1 || text.contains("ORDER BY");
        let is_cut = text.contains("TOP") || text.contains("LIMIT");
        let agrees = match () {
            () if is_ordered => expected == found,
            () if is_cut => expected.len() == found.len(),
            () => sorted(expected) == sorted(&found),
        };
        if agrees { Ok(()) } else { Err(format!("the engine gives {}", Value::Array(found).to_json())) }
    }

    fn bench(&self, setup: &QuerySetup) -> Arc<Bench> {
        let key = format!("{:?} {:?} {:?}", setup.items, setup.others, setup.links);
        Arc::clone(self.filled.lock().entry(key).or_insert_with(|| Arc::new(self.fill(setup))))
    }

    /// With one partition all items have one key, so they come in the order in which they were written.
    fn fill(&self, setup: &QuerySetup) -> Bench {
        let own_path = if self.partitions == 1 { "/nobodyHasThis" } else { "/id" };
        let mut containers = vec![(OWN_CONTAINER, own_path, "")];
        containers.extend(setup.others.keys().map(|name| (name.as_str(), "/id", "")));
        let links: Vec<Value> = setup.links.iter().map(|link| routed(link, own_path)).collect();
        let model = format!(r#"{{"version":1,"links":{}}}"#, Value::Array(links).to_json());
        let bench = Bench::new(self.partitions, &containers, &model);
        let others = setup.others.iter().map(|(name, items)| (name.as_str(), items));
        for (name, items) in others.chain([(OWN_CONTAINER, &setup.items)]) {
            items.iter().for_each(|item| bench.upsert(name, &item.to_json()));
        }
        bench
    }
}

/// Says where the partition key of the queries' own container comes from: no item has it.
fn routed(link: &Value, own_path: &str) -> Value {
    let mut link = link.clone().into_object().unwrap();
    let mut to = link.get("to").unwrap().clone().into_object().unwrap();
    if to.get("container").and_then(Value::as_str) == Some(OWN_CONTAINER) && own_path != "/id" {
        let route: Object = [("path", own_path)].into_iter().collect();
        to.set("partitionKey", Value::Array(vec![Value::Object(route)]));
    }
    link.set("to", Value::Object(to));
    Value::Object(link)
}

fn oracle(setup: &QuerySetup, text: &str) -> Result<Vec<Value>, SqlError> {
    let links = ItemLinks::of(setup);
    let schema = Schema::default().with_links(&links);
    let query = Query::compile_for(text, &Parameters(setup.parameters.clone()), schema)?;
    query.rows_with(Externals::links(&links), &setup.items)
}

fn stripped(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let own = object.into_iter().filter(|(name, _)| !SYSTEM_PROPERTIES.contains(&name.as_str()));
            Value::Object(own.map(|(name, value)| (name, stripped(value))).collect())
        }
        Value::Array(elements) => Value::Array(elements.into_iter().map(stripped).collect()),
        other => other,
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
            let line = |d: &Diagnostic| format!("{} {}..{} {}", d.code, d.start, d.end, d.message);
            diagnostics.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        other => other.to_string(),
    }
}
