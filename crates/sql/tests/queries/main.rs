//! Runs every `.qt` file through the executor, and checks that every function has one.

mod hybrid;
mod merge;
mod random_plans;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use quire_sql::{
    Environment, Externals, HybridSearch, Item, Parameters, Query, QueryPlan, QueryShape, Schema, SqlError,
    functions,
};
use quire_testkit::interpreter::{Interpreter, Json, QueryFailure, agrees, plain_name};
use quire_testkit::links::ItemLinks;
use quire_testkit::qt::{self, QuerySetup, Runner};
use quire_value::Value;

/// 2026-01-31T10:00:00.1234567Z
const NOW_TICKS: i64 = 17_698_536_001_234_567;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/queries")
}

/// Items from a `Vec`, without any storage.
struct Language;

/// Like a client: runs the rewritten query of the plan on every partition and merges the rows.
struct Client;

/// The second interpreter, which checks the rows in the files.
#[derive(Default)]
struct Second {
    judged: RefCell<usize>,
    called: RefCell<BTreeSet<String>>,
    differences: RefCell<Vec<String>>,
}

impl Second {
    /// The executor's rows are in the file; the second interpreter must agree.
    fn compare(&self, setup: &QuerySetup, text: &str, rows: &Result<Vec<Value>, SqlError>) {
        // Compile errors are checked by the executor alone.
        if matches!(rows, Err(SqlError::Compile(_))) {
            return;
        }
        let second = Interpreter::new(&setup.items)
            .with_parameters(&setup.parameters)
            .with_computed(&setup.computed)
            .with_links(&setup.links, &setup.others)
            .with_time(NOW_TICKS);
        let answer = second.rows(text);
        self.called.borrow_mut().extend(second.called());
        let expected = match (&answer, rows) {
            (Ok(expected), Ok(_)) => expected,
            (Err(QueryFailure::Cardinality), Err(SqlError::Refused(_))) => return,
            (Ok(_), Err(SqlError::Refused(reason))) if reason.ends_with("is not supported") => return,
            (Ok(_), Err(SqlError::Refused(reason))) if reason.ends_with("is not supported.") => return,
            (Err(QueryFailure::NotRepresentable), Err(SqlError::NotRepresentable)) => return,
            (answer, rows) => return self.differ(text, format!("{answer:?} and not {rows:?}")),
        };
        *self.judged.borrow_mut() += 1;
        let found: Vec<Json> = rows.iter().flatten().filter_map(Json::of).collect();
        let tolerance = if text.to_uppercase().contains("ST_") { 0.01 } else { 1e-9 };
        let is_same = expected.len() == found.len()
            && expected.iter().zip(&found).all(|(left, right)| agrees(left, right, tolerance));
        if !is_same {
            let lines =
                |rows: &[Json]| rows.iter().map(|row| format!("    {}\n", row.to_text())).collect::<String>();
            self.differ(text, format!("\n{}  and not\n{}", lines(expected), lines(&found)));
        }
    }

    fn differ(&self, text: &str, what: String) {
        self.differences.borrow_mut().push(format!("{text}: {what}"));
    }
}

impl Runner for Second {
    fn query(&self, setup: &QuerySetup, text: &str) -> Result<Vec<Value>, String> {
        let rows = compile(setup, text).and_then(|query| all_at_once(setup, &query, &setup.items));
        self.compare(setup, text, &rows);
        rows.map_err(|error| print(&error))
    }
}

impl Runner for Language {
    fn query(&self, setup: &QuerySetup, text: &str) -> Result<Vec<Value>, String> {
        let query = compile(setup, text).map_err(|error| print(&error))?;
        let rows = all_at_once(setup, &query, &setup.items);
        if let QueryShape::Streaming { offset, limit } = query.shape() {
            assert_eq!(
                item_by_item(setup, &query, offset, limit),
                rows,
                "{text}: rows of one item at a time"
            );
        }
        let printed = query.syntax().to_string();
        let again = compile(setup, &printed).and_then(|query| all_at_once(setup, &query, &setup.items));
        assert_eq!(again, rows, "{text}: the same query printed and read again:\n{printed}");
        rows.map_err(|error| print(&error))
    }

    fn plan(&self, setup: &QuerySetup, text: &str) -> Option<Result<String, String>> {
        let plan = compile(setup, text).and_then(|query| query.plan());
        Some(Ok(plan.map_or_else(|error| print(&error), |plan| print_plan(&plan))))
    }
}

impl Runner for Client {
    fn query(&self, setup: &QuerySetup, text: &str) -> Result<Vec<Value>, String> {
        let query = compile(setup, text).map_err(|error| print(&error))?;
        let plan = match query.plan() {
            Ok(plan) if query.shape() != QueryShape::Constant => plan,
            _ => return all_at_once(setup, &query, &setup.items).map_err(|error| print(&error)),
        };
        if let Some(hybrid) = &plan.hybrid {
            return hybrid::run(hybrid, setup).map_err(|error| print(&error));
        }
        let info = plan.info.expect("a plan without ranks has this");
        let text = match info.rewritten_query.as_str() {
            "" => text.to_owned(),
            rewritten => rewritten.replace("{documentdb-formattableorderbyquery-filter}", "true"),
        };
        let query = compile(setup, &text).map_err(|error| format!("{text}: {}", print(&error)))?;
        let (left, right) = setup.items.split_at(setup.items.len() / 2);
        let mut rows = Vec::new();
        for partition in [left, &[], right] {
            rows.extend(all_at_once(setup, &query, partition).map_err(|error| print(&error))?);
        }
        Ok(merge::merge(&info, rows))
    }
}

fn compile(setup: &QuerySetup, text: &str) -> Result<Query, SqlError> {
    let links = ItemLinks::of(setup);
    let schema = Schema { computed: &setup.computed, ..Schema::default() }.with_links(&links);
    let query = Query::compile_for(text, &Parameters(setup.parameters.clone()), schema)?;
    Ok(query.with_environment(Environment { now_ticks: Some(NOW_TICKS), ..Environment::default() }))
}

fn all_at_once(setup: &QuerySetup, query: &Query, items: &[Value]) -> Result<Vec<Value>, SqlError> {
    query.rows_with(Externals::links(&ItemLinks::of(setup)), items)
}

fn item_by_item(
    setup: &QuerySetup,
    query: &Query,
    offset: u64,
    limit: Option<u64>,
) -> Result<Vec<Value>, SqlError> {
    let mut rows = Vec::new();
    let links = ItemLinks::of(setup);
    let mut evaluator = query.start_with(Externals::links(&links))?;
    let wanted = limit.map_or(usize::MAX, |limit| (offset + limit) as usize);
    for item in &setup.items {
        if rows.len() >= wanted {
            break;
        }
        rows.extend(evaluator.row_values_of(&Item::value(item))?);
    }
    rows.truncate(wanted);
    Ok(rows.split_off((offset as usize).min(rows.len())))
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

/// Everything that differs from a plain query, one line each.
fn print_plan(plan: &QueryPlan) -> String {
    let info = &plan.info.clone().unwrap_or_default();
    let mut lines = vec![format!("features: {:?}", plan.features)];
    let mut line = |name: &str, shown: bool, value: String| {
        if shown {
            lines.push(format!("{name}: {value}"));
        }
    };
    line("distinct", info.distinct != quire_sql::Distinct::None, format!("{:?}", info.distinct));
    line("top", info.top.is_some(), format!("{}", info.top.unwrap_or(0)));
    line("offset", info.offset.is_some(), format!("{}", info.offset.unwrap_or(0)));
    line("limit", info.limit.is_some(), format!("{}", info.limit.unwrap_or(0)));
    line(
        "order by",
        !info.order_by.is_empty(),
        format!("{:?} {:?}", info.order_by, info.order_by_expressions),
    );
    line("group by", !info.group_by_expressions.is_empty(), format!("{:?}", info.group_by_expressions));
    line("aliases", !info.group_by_aliases.is_empty(), format!("{:?}", info.group_by_alias_to_aggregate));
    line("aggregates", !info.aggregates.is_empty(), format!("{:?}", info.aggregates));
    line("select value", info.has_select_value, "yes".to_owned());
    line("distinct count", info.distinct_count.is_some(), format!("{:?}", info.distinct_count));
    line("non-streaming", info.has_non_streaming_order_by, "yes".to_owned());
    lines.extend(info.rewritten_query.lines().map(str::to_owned));
    lines.extend(plan.hybrid.iter().flat_map(print_hybrid));
    lines.join("\n")
}

fn print_hybrid(hybrid: &HybridSearch) -> Vec<String> {
    let mut lines = vec![format!("skip {:?}, take {:?}", hybrid.skip, hybrid.take)];
    let weights: Vec<f64> = hybrid.component_weights.iter().map(|weight| weight.as_f64()).collect();
    lines.push(format!("weights: {weights:?}"));
    lines.push(format!("statistics needed: {}", hybrid.requires_global_statistics));
    lines.extend(hybrid.global_statistics_query.lines().map(str::to_owned));
    for component in &hybrid.components {
        lines.push(format!("component: {:?}", component.order_by));
        lines.extend(component.rewritten_query.lines().map(str::to_owned));
    }
    lines
}

#[test]
fn queries() {
    let files = qt::files(&folder()).expect("the folder of queries is there");
    assert!(!files.is_empty());
    let failures: Vec<String> = files
        .iter()
        .filter_map(|file| qt::run(file, &Language).err())
        .map(|error| format!("{error:#}"))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Two interpreters that share only the parser agree on every query of every file, and every function occurs in one.
#[test]
fn a_second_interpreter_agrees() {
    if std::env::var_os("UPDATE").is_some() {
        return;
    }
    let second = Second::default();
    for file in qt::files(&folder()).expect("the folder of queries is there") {
        qt::run(&file, &second).unwrap_or_else(|error| panic!("{error:#}"));
    }
    let differences = second.differences.into_inner();
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    let (judged, called) = (second.judged.into_inner(), second.called.into_inner());
    println!("{judged} queries, {} functions", called.len());
    let missing: Vec<&str> = functions::all()
        .map(functions::Function::name)
        .filter(|name| !called.contains(&plain_name(name)))
        .collect();
    assert!(missing.is_empty(), "never called: {missing:?}");
}

/// The rows merged by a client equal the rows of a single run.
#[test]
fn plans() {
    if std::env::var_os("UPDATE").is_some() {
        return;
    }
    let files = qt::files(&folder()).expect("the folder of queries is there");
    let failures: Vec<String> = files
        .iter()
        .filter_map(|file| qt::run(file, &Client).err())
        .map(|error| format!("{error:#}"))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_function_has_its_file() {
    let folder = folder().join("functions");
    let missing: Vec<&str> = functions::all()
        .map(functions::Function::name)
        .filter(|name| !folder.join(format!("{}.qt", name.to_lowercase())).exists())
        .collect();
    assert!(missing.is_empty(), "no .qt file for {missing:?}");
}

#[test]
fn every_file_names_a_function() {
    for file in qt::files(&folder().join("functions")).expect("the folder of functions is there") {
        let name = file.file_stem().and_then(|stem| stem.to_str()).expect("names are text");
        let function = functions::find(name).unwrap_or_else(|| panic!("{name} is no function"));
        let text = std::fs::read_to_string(&file).expect("the file is readable");
        let upper = text.to_uppercase();
        assert!(upper.contains(&format!("{}(", function.name().to_uppercase())), "{name} is never called");
    }
}
