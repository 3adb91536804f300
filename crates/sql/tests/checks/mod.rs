//! Properties of any query text; shared by the tests and the fuzz targets.

use quire_sql::{Allowance, Environment, Parameters, Query, SqlError};
use quire_value::{Value, text};

const ITEMS: &[&str] = &[
    r#"{"id":"1","n":1,"t":["a","b",["c"]],"o":{"k":null,"l":[1,2,3]},"s":"text with words"}"#,
    r#"{"id":"2","n":-0.5,"t":[],"o":{"k":true},"s":""}"#,
    r#"{"id":"3"}"#,
];

/// Compiling, planning, printing and running never panic, and a printed query means the same.
pub fn check_query(query_text: &str) {
    let query = match compile(query_text) {
        Ok(query) => query,
        Err(error) => return check_error(&error, query_text),
    };
    let _plan = query.plan();
    let _keys =
        query.partition_key_filter(&["/id".parse().expect("a path"), "/o/k".parse().expect("a path")]);
    let rows = run(&query);
    let printed = query.syntax().to_string();
    match compile(&printed) {
        Ok(again) => check_same(&rows, &run(&again), query_text, &printed),
        // The printed text has more brackets or characters than the original.
        Err(error) => assert!(is_too_much(&error), "{query_text}\nprinted as\n{printed}\n{error}"),
    }
}

fn compile(text: &str) -> Result<Query, SqlError> {
    let parameters =
        Parameters(vec![("@p".to_owned(), Value::from(1)), ("@s".to_owned(), Value::from("a%"))]);
    let allowance = Allowance::limited(20_000, 1 << 20);
    let environment =
        Environment { now_ticks: Some(17_698_536_001_234_567), allowance, ..Environment::default() };
    Ok(Query::compile(text, &parameters, &[])?.with_environment(environment))
}

fn run(query: &Query) -> Result<Vec<Value>, SqlError> {
    let parse = |item: &&str| text::parse(item.as_bytes(), quire_value::Limits::default()).expect("an item");
    let items: Vec<Value> = ITEMS.iter().map(parse).collect();
    query.rows(&items)
}

fn check_error(error: &SqlError, text: &str) {
    let SqlError::Compile(diagnostics) = error else { return };
    assert!(!diagnostics.is_empty());
    for diagnostic in diagnostics {
        assert!(diagnostic.start <= diagnostic.end && diagnostic.end <= text.len(), "{text}: {diagnostic:?}");
        assert!(text.is_char_boundary(diagnostic.start) && text.is_char_boundary(diagnostic.end));
    }
}

fn check_same(
    rows: &Result<Vec<Value>, SqlError>,
    again: &Result<Vec<Value>, SqlError>,
    text: &str,
    printed: &str,
) {
    let spent = |result: &Result<_, SqlError>| {
        matches!(result, Err(SqlError::Budget { .. } | SqlError::QueryMemory { .. }))
    };
    assert!(
        rows == again || spent(rows) || spent(again),
        "{text}\nprinted as\n{printed}\n{rows:?}\n{again:?}"
    );
}

fn is_too_much(error: &SqlError) -> bool {
    matches!(error, SqlError::Compile(diagnostics) if diagnostics.iter().all(|d| d.code == "SC3006" || d.code == "SC3001"))
}
