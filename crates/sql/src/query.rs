//! The front door: compile once, then feed it items.

use std::borrow::Cow;

use quire_value::{Path, Value};

use crate::bind::{self, Bound};
use crate::bound::{self, Expr};
use crate::environment::Environment;
use crate::exec::Run;
use crate::functions::Patterns;
use crate::plan::{self, QueryPlan};
use crate::{SqlError, ast, computed, parser, partition_keys};

/// Bound values for `@name` parameters, the `@` included in the name.
#[derive(Clone, Debug, Default)]
pub struct Parameters(pub Vec<(String, Value)>);

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

/// A compiled query.
pub struct Query {
    syntax: ast::Query,
    pub(crate) bound: bound::Query,
    /// The expressions of the computed properties, each bound to an item at level 0.
    pub(crate) computed: Vec<Expr>,
    uses_clock: bool,
    patterns: Patterns,
    pub(crate) environment: Environment,
}

impl Query {
    /// `computed`: computed properties in scope, name and query text.
    pub fn compile(
        text: &str,
        parameters: &Parameters,
        computed: &[(String, String)],
    ) -> Result<Query, SqlError> {
        let syntax = parser::parse(text).map_err(|diagnostic| SqlError::Compile(vec![diagnostic]))?;
        let names: Vec<&str> = computed.iter().map(|(name, _)| name.as_str()).collect();
        let Bound { query: bound, uses_clock, .. } = bind::bind(&syntax, text, parameters, &names)?;
        let computed =
            computed.iter().map(|(name, query)| computed::compile(name, query)).collect::<Result<_, _>>()?;
        let environment = Environment::default();
        Ok(Query { syntax, bound, computed, uses_clock, patterns: Patterns::default(), environment })
    }

    /// The time, the seed and the limits of the runs to come.
    pub fn with_environment(mut self, environment: Environment) -> Query {
        self.environment = environment;
        self
    }

    /// What was parsed.
    pub fn syntax(&self) -> &ast::Query {
        &self.syntax
    }

    pub fn shape(&self) -> Shape {
        if !self.bound.reads_container() {
            Shape::Constant
        } else if self.bound.needs_all_items() {
            Shape::Blocking
        } else {
            Shape::Streaming { offset: self.bound.offset, limit: self.bound.limit }
        }
    }

    /// Streaming: the rows of one item (undefined rows already dropped), before offset and limit.
    pub fn rows_of(&self, item: &Value) -> Result<Vec<Value>, SqlError> {
        let mut next = Some(item);
        let mut items = || Ok(next.take().map(Cow::Borrowed));
        self.check_clock()?;
        let run = Run::new(&self.environment, &self.patterns, &self.computed, &mut items);
        run.unlimited_rows(&self.bound)
    }

    /// Blocking or constant: all rows, offset and limit applied. `next` hands out items until `None`.
    pub fn run<E: From<SqlError>>(
        &self,
        next: &mut dyn FnMut() -> Result<Option<Value>, E>,
    ) -> Result<Vec<Value>, E> {
        self.check_clock()?;
        let mut failure = None;
        let mut items = || match next() {
            Ok(item) => Ok(item.map(Cow::Owned)),
            Err(error) => {
                failure = Some(error);
                Err(SqlError::Refused("reading items failed".to_owned()))
            }
        };
        let result = {
            let run = Run::new(&self.environment, &self.patterns, &self.computed, &mut items);
            run.all_rows(&self.bound)
        };
        match failure {
            Some(failure) => Err(failure),
            None => Ok(result?),
        }
    }

    /// What a client must do to merge the rows of several partitions, and the text it sends to each.
    pub fn plan(&self) -> Result<QueryPlan, SqlError> {
        plan::plan(&self.syntax, &self.bound, false)
    }

    /// The same for a filter that leaves at most one partition key (see [`Query::partition_key_filter`]).
    pub fn plan_for_one_key(&self) -> Result<QueryPlan, SqlError> {
        plan::plan(&self.syntax, &self.bound, true)
    }

    /// The partition keys that WHERE leaves, one tuple per key with one value per path; `undefined` is a key, too.
    /// `None`: not told by the filter. An empty list: no item can match.
    pub fn partition_key_filter(&self, paths: &[Path]) -> Option<Vec<Vec<Value>>> {
        partition_keys::points(&self.bound, paths)
    }

    /// Like [`Query::partition_key_filter`], but tuples may be leading parts of a hierarchical key.
    pub fn partition_key_prefixes(&self, paths: &[Path]) -> Option<Vec<Vec<Value>>> {
        partition_keys::prefixes(&self.bound, paths)
    }

    /// The value of an expression that needs no item; `None` when it fails, or is nothing that a row can be.
    pub(crate) fn evaluate_constant(&self, expr: &Expr) -> Option<Value> {
        let mut items = || Ok(None);
        let run = Run::new(&self.environment, &self.patterns, &self.computed, &mut items);
        let rows = run.all_rows(&bound::Query::of_value(expr.clone()));
        rows.ok().and_then(|mut rows| rows.pop())
    }

    fn check_clock(&self) -> Result<(), SqlError> {
        if self.uses_clock && self.environment.now_ticks.is_none() {
            return Err(SqlError::Refused("the query asks for the time, and none was given".to_owned()));
        }
        Ok(())
    }
}
