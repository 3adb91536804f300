//! A second, naive interpreter of the query language, to judge the first one by.
//!
//! It shares the parser's syntax tree and nothing else: names are looked up as they are met, every clause makes a whole
//! list, values are JSON trees with their own equality and order, and every function is written again from the
//! reference. No plan, no index, no budget. What depends on chance has a fixed answer here that any other answer must
//! agree with in the queries that are asked (`RAND() < 1`).
//!
//! It answers valid queries. What does not compile is not its concern: it may answer or fail.

mod aggregates;
mod arrays;
mod calendar;
mod dates;
mod expressions;
mod full_text;
mod functions;
mod geometry;
mod hash;
mod json;
mod links;
mod numbers;
mod patterns;
mod queries;
mod strings;
mod vectors;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use quire_sql::ast::{Query, Selection};
use quire_value::Value;

pub use self::functions::plain_name;
pub use self::json::{Json, JsonOrUndefined, parse as parse_json, same, total_order};

/// What a query is asked over.
#[derive(Clone, Debug, Default)]
pub struct Interpreter {
    items: Vec<Json>,
    parameters: Vec<(String, JsonOrUndefined)>,
    computed: Vec<(String, Query)>,
    links: Vec<Json>,
    /// Items of the containers that links name.
    others: Vec<(String, Vec<Json>)>,
    /// The time, in units of 100 ns since 1970.
    now_ticks: i128,
    /// How often chance was asked.
    draws: Cell<u32>,
    /// Names of the functions that were called.
    called: RefCell<BTreeSet<String>>,
}

/// Why there are no rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryFailure {
    Syntax(String),
    /// A scalar subquery with more than one row.
    Cardinality,
    /// NaN or an infinity in a row.
    NotRepresentable,
    /// Not a valid query, or nothing that the interpreter can know.
    Unknown(String),
}

type QueryResult<T> = Result<T, QueryFailure>;

impl Interpreter {
    pub fn new(items: &[Value]) -> Interpreter {
        Interpreter { items: items.iter().filter_map(Json::of).collect(), ..Interpreter::default() }
    }

    /// Names with their `@`.
    pub fn with_parameters(mut self, parameters: &[(String, Value)]) -> Interpreter {
        self.parameters = parameters.iter().map(|(name, value)| (name.clone(), Json::of(value))).collect();
        self
    }

    /// Names and queries of computed properties.
    pub fn with_computed(mut self, computed: &[(String, String)]) -> Interpreter {
        let parsed = |(name, text): &(String, String)| {
            (name.clone(), quire_sql::parse(text).expect("the query of a computed property parses"))
        };
        self.computed = computed.iter().map(parsed).collect();
        self
    }

    pub fn with_time(mut self, now_ticks: i64) -> Interpreter {
        self.now_ticks = i128::from(now_ticks);
        self
    }

    /// All rows, in their order.
    pub fn rows(&self, text: &str) -> QueryResult<Vec<Json>> {
        let query = quire_sql::parse(text).map_err(|error| QueryFailure::Syntax(error.message))?;
        let rows = self.top_rows(&query)?;
        if rows.iter().any(Json::has_non_finite) {
            return Err(QueryFailure::NotRepresentable);
        }
        Ok(rows)
    }

    /// The value of one expression over named values.
    pub fn expression(&self, text: &str, names: &[(&str, JsonOrUndefined)]) -> QueryResult<JsonOrUndefined> {
        let query = quire_sql::parse(&format!("SELECT VALUE {text}"));
        let query = query.map_err(|error| QueryFailure::Syntax(error.message))?;
        let Selection::Value(expr) = &query.select.selection else {
            return Err(QueryFailure::Unknown("not an expression".to_owned()));
        };
        let scope = names.iter().fold(queries::NameScope::default(), |scope, (name, value)| {
            scope.with(Some((*name).to_owned()), value.clone(), true)
        });
        self.evaluate(expr, &scope)
    }

    /// Functions that were called so far, by the name that errors print.
    pub fn called(&self) -> BTreeSet<String> {
        self.called.borrow().clone()
    }
}

/// Whether a value of the judged side is the one expected; numbers that were computed may differ in their last digits.
pub fn agrees(expected: &Json, found: &Json, tolerance: f64) -> bool {
    match (expected, found) {
        (Json::Array(left), Json::Array(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| agrees(left, right, tolerance))
        }
        (Json::Object(left), Json::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(name, value)| found.get(name).is_some_and(|other| agrees(value, other, tolerance)))
        }
        _ if expected.equals(found) => true,
        (Json::String(text), Json::String(_)) => text == geometry::ANY_TEXT,
        _ => match (expected.as_f64(), found.as_f64()) {
            // Exact integers have no last digits to differ in.
            (Some(left), Some(right)) if !(is_large(expected) && is_large(found)) => {
                (left - right).abs() <= tolerance * left.abs().max(right.abs()).max(1e-9)
            }
            _ => false,
        },
    }
}

fn is_large(value: &Json) -> bool {
    matches!(value, Json::Integer(value) if value.unsigned_abs() >= 1 << 53)
}
