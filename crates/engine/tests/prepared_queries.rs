//! Queries are compiled once for a container and bound to the parameters of each request. Nobody sees that: a query is always the
//! one that the container, as it is now, and the values of this request make of its text.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use quire_engine::{
    Cancel, Container, Engine, EngineError, Options, Parameters, Precondition, Scope, ScriptKind, WriteKind,
};
use quire_storage::memory::MemoryStorage;
use quire_value::Value;

use self::support::{database, json, options, page_request, statistic, write};

const ANY: Precondition = Precondition { if_match: None };

/// With room for texts of a few hundred bytes.
fn engine() -> Engine {
    let options = Options { cache_bytes: 128 << 20, ..options() };
    let engine = Engine::open(Arc::new(MemoryStorage::new()), options).unwrap();
    database(&engine, "d");
    engine
}

/// A container whose computed property `form` is made by a function of `name`.
fn definition(id: &str, function: &str) -> Value {
    json(&format!(
        r#"{{"id":"{id}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},
            "computedProperties":[{{"name":"form","query":"SELECT VALUE {function}(c.name) FROM c"}}]}}"#
    ))
}

fn fill(engine: &Engine, container: &Arc<Container>) {
    for (number, name) in ["Ada", "ada", "ADA", "Bob"].iter().enumerate() {
        let body = format!(r#"{{"id":"{number}","pk":"x","name":"{name}","n":{number}}}"#);
        write(engine, container, WriteKind::Create, &body).unwrap();
    }
}

fn rows(engine: &Engine, container: &Arc<Container>, text: &str, value: &str) -> Result<String, EngineError> {
    let parameters = Parameters(vec![("@p".to_owned(), json(value))]);
    let page = engine.query_items(container, text, &parameters, &page_request()).result?;
    Ok(String::from_utf8(page.rows).unwrap())
}

/// Runs a query until it is found compiled.
fn rows_prepared(engine: &Engine, container: &Arc<Container>, text: &str, value: &str) -> String {
    let first = rows(engine, container, text, value).unwrap();
    rows(engine, container, text, value).unwrap();
    let hits = statistic(engine, "prepared_query_cache_hits");
    let last = rows(engine, container, text, value).unwrap();
    assert_eq!(statistic(engine, "prepared_query_cache_hits"), hits + 1, "{text} is not found");
    assert_eq!(first, last, "{text}");
    last
}

fn current(engine: &Engine, id: &str) -> Arc<Container> {
    engine.catalog().container("d", id).unwrap()
}

#[test]
fn a_new_definition_drops_what_was_compiled() {
    let engine = engine();
    let container = engine.catalog().create_container("d", &definition("c", "LOWER"), None).unwrap();
    fill(&engine, &container);
    let text = "SELECT VALUE c.form FROM c WHERE c.n = @p";
    assert_eq!(rows_prepared(&engine, &container, text, "3"), r#"["bob"]"#);
    assert_eq!(rows(&engine, &container, text, "0").unwrap(), r#"["ada"]"#);
    engine.catalog().replace_container("d", "c", &definition("c", "UPPER"), &ANY).unwrap();
    let container = current(&engine, "c");
    assert_eq!(rows(&engine, &container, text, "3").unwrap(), r#"["BOB"]"#);
    assert_eq!(rows_prepared(&engine, &container, text, "0"), r#"["ADA"]"#);
}

#[test]
fn a_new_indexing_policy_decides_at_once() {
    let engine = engine();
    let container = engine.catalog().create_container("d", &definition("c", "LOWER"), None).unwrap();
    fill(&engine, &container);
    let text = "SELECT VALUE c.n FROM c WHERE c.n >= @p ORDER BY c.n";
    assert_eq!(rows_prepared(&engine, &container, text, "1"), "[1,2,3]");
    let mut excluded = definition("c", "LOWER");
    let policy = r#"{"indexingMode":"consistent","includedPaths":[{"path":"/name/?"}],"excludedPaths":[{"path":"/*"}]}"#;
    if let Value::Object(definition) = &mut excluded {
        definition.set("indexingPolicy", json(policy));
    }
    engine.catalog().replace_container("d", "c", &excluded, &ANY).unwrap();
    let refused = rows(&engine, &current(&engine, "c"), text, "1").unwrap_err().to_string();
    assert!(refused.contains("excluded"), "{refused}");
}

#[test]
fn two_containers_share_no_compiled_text() {
    let engine = engine();
    let text = "SELECT VALUE c.form FROM c WHERE c.n = @p";
    let [lower, upper] = [("lower", "LOWER"), ("upper", "UPPER")].map(|(id, function)| {
        let container = engine.catalog().create_container("d", &definition(id, function), None).unwrap();
        fill(&engine, &container);
        container
    });
    assert_eq!(rows_prepared(&engine, &lower, text, "3"), r#"["bob"]"#);
    for _ in 0..3 {
        assert_eq!(rows(&engine, &upper, text, "3").unwrap(), r#"["BOB"]"#);
        assert_eq!(rows(&engine, &lower, text, "1").unwrap(), r#"["ada"]"#);
    }
    // One with the name of another that is gone.
    engine.catalog().delete_container("d", "lower", &ANY).unwrap();
    let again = engine.catalog().create_container("d", &definition("lower", "UPPER"), None).unwrap();
    fill(&engine, &again);
    assert_eq!(rows(&engine, &again, text, "3").unwrap(), r#"["BOB"]"#);
}

#[test]
fn a_value_of_another_type_finds_its_own_items() {
    let engine = engine();
    let container = engine.catalog().create_container("d", &definition("c", "LOWER"), None).unwrap();
    let values = ["1", "\"1\"", "true", "null", "[1]", "{\"a\":1}", "1.5"];
    for (number, value) in values.iter().enumerate() {
        let body = format!(r#"{{"id":"{number}","pk":"x","v":{value}}}"#);
        write(&engine, &container, WriteKind::Create, &body).unwrap();
    }
    for text in ["SELECT VALUE c.v FROM c WHERE c.v = @p", "SELECT VALUE c.v FROM c WHERE @p = c.v"] {
        for _ in 0..4 {
            for value in values {
                assert_eq!(rows(&engine, &container, text, value).unwrap(), format!("[{value}]"), "{text}");
            }
        }
    }
    // Numbers from this one on, but no text or boolean; texts, but no numbers.
    let text = "SELECT VALUE c.v FROM c WHERE c.v >= @p";
    for _ in 0..3 {
        assert_eq!(rows(&engine, &container, text, "1").unwrap(), "[1,1.5]");
        assert_eq!(rows(&engine, &container, text, "\"\"").unwrap(), "[\"1\"]");
        assert_eq!(rows(&engine, &container, text, "[]").unwrap(), "[]");
    }
}

#[test]
fn a_function_is_the_newest_one() {
    let engine = engine();
    let container = engine.catalog().create_container("d", &definition("c", "LOWER"), None).unwrap();
    fill(&engine, &container);
    let function =
        |factor: u32| json(&format!(r#"{{"id":"f","body":"function f(n) {{ return n * {factor}; }}"}}"#));
    let kind = ScriptKind::UserDefinedFunction;
    engine.catalog().create_script("d", "c", kind, &function(2)).unwrap();
    let text = "SELECT VALUE udf.f(c.n) FROM c WHERE c.n = @p";
    for _ in 0..4 {
        assert_eq!(rows(&engine, &container, text, "3").unwrap(), "[6]");
    }
    engine.catalog().replace_script("d", "c", kind, "f", &function(5), &ANY).unwrap();
    assert_eq!(rows(&engine, &container, text, "3").unwrap(), "[15]");
}

#[test]
fn time_and_chance_are_not_compiled_in() {
    let engine = engine();
    let container = engine.catalog().create_container("d", &definition("c", "LOWER"), None).unwrap();
    fill(&engine, &container);
    for text in [
        "SELECT VALUE GetCurrentTimestamp() FROM c WHERE c.n = @p",
        "SELECT VALUE RAND() FROM c WHERE c.n = @p",
    ] {
        let mut found: Vec<String> = (0..6).map(|_| rows(&engine, &container, text, "1").unwrap()).collect();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 6, "{text}");
    }
}

#[test]
fn a_plan_and_a_query_share_what_is_compiled() {
    let engine = engine();
    let container = engine.catalog().create_container("d", &definition("c", "LOWER"), None).unwrap();
    fill(&engine, &container);
    let text = "SELECT TOP 2 c.name FROM c WHERE c.n >= @p ORDER BY c.n";
    let plan = || {
        let parameters = Parameters(vec![("@p".to_owned(), Value::from(1))]);
        let plan = engine.query_plan(&container, text, &parameters, &Scope::default(), &Cancel::default());
        format!("{:?}", plan.unwrap())
    };
    let first = plan();
    assert_eq!(rows(&engine, &container, text, "2").unwrap(), r#"[{"name":"ADA"},{"name":"Bob"}]"#);
    let hits = statistic(&engine, "prepared_query_cache_hits");
    assert_eq!(plan(), first);
    assert_eq!(statistic(&engine, "prepared_query_cache_hits"), hits + 1);
    assert_eq!(rows(&engine, &container, text, "1").unwrap(), r#"[{"name":"ada"},{"name":"ADA"}]"#);
}

#[test]
fn a_plan_compiles_for_the_geometry_of_the_container() {
    let engine = engine();
    let mut plane = definition("c", "LOWER");
    if let Value::Object(plane) = &mut plane {
        plane.set("geospatialConfig", json(r#"{"type":"Geometry"}"#));
    }
    let container = engine.catalog().create_container("d", &plane, None).unwrap();
    fill(&engine, &container);
    // Two on the plane, some hundred kilometres on the globe.
    let point = |x: u32| format!("{{'type':'Point','coordinates':[{x},0]}}");
    let text = format!("SELECT VALUE c.n FROM c WHERE c.n >= ST_DISTANCE({},{})", point(0), point(2));
    let parameters = Parameters::default();
    for _ in 0..3 {
        engine.query_plan(&container, &text, &parameters, &Scope::default(), &Cancel::default()).unwrap();
    }
    let hits = statistic(&engine, "prepared_query_cache_hits");
    let page = engine.query_items(&container, &text, &parameters, &page_request()).result.unwrap();
    assert_eq!(statistic(&engine, "prepared_query_cache_hits"), hits + 1);
    assert_eq!(String::from_utf8(page.rows).unwrap(), "[2,3]");
}

#[test]
fn compiled_queries_stay_within_their_memory() {
    let options = Options { cache_bytes: 64 << 20, ..options() };
    let engine = Engine::open(Arc::new(MemoryStorage::new()), options).unwrap();
    database(&engine, "d");
    let container = engine.catalog().create_container("d", &definition("c", "LOWER"), None).unwrap();
    fill(&engine, &container);
    for number in 0..400 {
        let text = format!("SELECT VALUE c.n FROM c WHERE c.n = @p AND c.n != {}", number + 1_000);
        (0..3).for_each(|_| assert_eq!(rows(&engine, &container, &text, "2").unwrap(), "[2]"));
    }
    let bytes = statistic(&engine, "prepared_query_cache_bytes");
    assert!((64 << 10..=512 << 10).contains(&bytes), "{bytes} bytes");
    assert!(statistic(&engine, "caches_bytes") >= bytes);
}
