//! Query language: from SQL text to rows.
//!
//! `parse` → [`ast`] → `bind` → `exec`. Each stage is a pure function of the one before.
//! [`Query`] is the front door: compile once, then feed it items.
//! Not here: partitions, paging tokens, charges (see `quire-engine`).

use quire_value::Value;

/// Bound values for `@name` parameters, the `@` included in the name.
#[derive(Clone, Debug, Default)]
pub struct Parameters(pub Vec<(String, Value)>);

/// One compile error of the service: code, byte span into the query text, text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub code: &'static str, // "SC1001"
    pub start: usize,
    pub end: usize,
    pub message: String,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum SqlError {
    /// Syntax or binding: all that were found.
    #[error("the query does not compile")]
    Compile(Vec<Diagnostic>),
    /// Planner and run-time errors without a position, the service's `{"Errors":[...]}` form.
    #[error("{0}")]
    Refused(String),
    #[error("division by zero")]
    DivisionByZero,
    #[error("the query needs more than {what}")]
    Budget { what: &'static str },
}

/// How rows can be paged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every item yields its rows independently; `offset`/`limit` (TOP or OFFSET LIMIT) count rows.
    Streaming { offset: u64, limit: Option<u64> },
    /// Needs all items first: ORDER BY, aggregates, GROUP BY, DISTINCT.
    Blocking,
    /// No FROM: one row without any item.
    Constant,
}

pub struct Query {
    // private
}

impl Query {
    /// `computed`: computed properties in scope, name and query text.
    pub fn compile(_text: &str, _parameters: &Parameters, _computed: &[(String, String)]) -> Result<Query, SqlError> {
        todo!()
    }
    pub fn shape(&self) -> Shape {
        todo!()
    }
    /// Streaming: the rows of one item (undefined rows already dropped), before offset and limit.
    pub fn rows_of(&self, _item: &Value) -> Result<Vec<Value>, SqlError> {
        todo!()
    }
    /// Blocking or constant: all rows, offset and limit applied. `next` hands out items until `None`.
    pub fn run<E: From<SqlError>>(&self, _next: &mut dyn FnMut() -> Result<Option<Value>, E>) -> Result<Vec<Value>, E> {
        todo!()
    }
}

/// Checks a computed property definition (sql.md 9.1); the text of the error is the service's.
pub fn check_computed_property(_name: &str, _query: &str) -> Result<(), SqlError> {
    todo!()
}
