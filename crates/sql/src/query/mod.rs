//! Compiled queries: compile once, then run over items.

mod evaluator; // evaluates item by item
mod expression; // one expression over named values
mod run; // runs over all items of a scan

use std::sync::Arc;

use quire_value::Value;

use crate::bind::bound::{self, Expr};
use crate::bind::{self, Bound, Parameters, Schema, UsedParameter, computed, flatten, follow_plan};
use crate::error::SqlError;
use crate::exec::{Environment, RankStatistics, Ranked, fold};
use crate::functions::{Aggregate, RegexCache};
use crate::limits::Allowance;
use crate::syntax::{ast, parser};

pub use self::evaluator::Evaluator;
pub use self::expression::{Expression, ExpressionError, ReadStep};
pub use self::run::ItemSink;

/// Memory of syntax and bound query per byte of text: `[1,1,…` has an expression in every second byte.
const TEXT_COPIES: usize = 128;

/// How rows can be paged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryShape {
    /// Every item gives its rows independently; `offset` and `limit` (TOP or OFFSET LIMIT) count rows.
    Streaming { offset: u64, limit: Option<u64> },
    /// Needs all items first: ORDER BY, aggregates, GROUP BY, DISTINCT.
    Blocking,
    /// No FROM: one row without reading items.
    Constant,
}

/// A text that is parsed, before it is bound to parameters and to a container. It can be kept and compiled again.
#[derive(Clone)]
pub struct Syntax {
    query: Arc<ast::Query>,
}

impl Syntax {
    pub fn parse(text: &str) -> Result<Syntax, SqlError> {
        let query = parser::parse(text).map_err(|diagnostic| SqlError::Compile(vec![diagnostic]))?;
        Ok(Syntax { query: Arc::new(query) })
    }

    /// The most memory that the syntax of a text takes.
    pub fn bytes_max(text: &str) -> usize {
        text.len().saturating_mul(TEXT_COPIES)
    }
}

/// A compiled query: what was compiled, with values for its parameters and what it runs in.
pub struct Query {
    pub(crate) compiled: Arc<Compiled>,
    /// The parameters whose values are compiled into the query.
    pub(crate) used: Vec<UsedParameter>,
    /// The values of its [places](Expr::Parameter).
    pub(crate) values: Vec<Value>,
    pub(crate) patterns: RegexCache,
    pub(crate) environment: Environment,
}

/// What a text is compiled to. It can be shared by many runs.
#[derive(Clone)]
pub(crate) struct Compiled {
    syntax: Arc<ast::Query>,
    /// What runs. With `ranked` it differs from the written query.
    pub bound: bound::Query,
    pub ranked: Option<Ranked>,
    /// ORDER BY RANK, for plans.
    pub ranking: Option<bound::Ranking>,
    /// The expressions of the computed properties, each bound to an item at level 0.
    pub computed: Vec<Expr>,
    pub computed_names: Vec<String>,
    uses_clock: bool,
    is_deterministic: bool,
    follows: bool,
    /// Needs user-defined functions or links, which are found anew for each page.
    needs_externals: bool,
}

impl Query {
    /// `computed`: name and query text of the computed properties in scope.
    pub fn compile(
        text: &str,
        parameters: &Parameters,
        computed: &[(String, String)],
    ) -> Result<Query, SqlError> {
        Query::compile_for(text, parameters, Schema { computed, ..Schema::default() })
    }

    /// Compiles for the items of a container.
    pub fn compile_for(text: &str, parameters: &Parameters, schema: Schema<'_>) -> Result<Query, SqlError> {
        Query::compile_within(text, parameters, schema, &Allowance::default())
    }

    /// Compiles within an allowance. Runs use the allowance of the [environment](Query::with_environment). The memory
    /// of the compiled query is reserved in the allowance and released with it.
    pub fn compile_within(
        text: &str,
        parameters: &Parameters,
        schema: Schema<'_>,
        allowance: &Allowance,
    ) -> Result<Query, SqlError> {
        allowance.memory().take(Syntax::bytes_max(text))?;
        let syntax = Syntax::parse(text)?;
        Query::bind(&syntax, (text, parameters), schema, allowance, Environment::default())
    }

    /// Compiles a text that is parsed already, for runs in an environment and within its allowance. The caller has reserved the
    /// memory of the syntax ([`Syntax::bytes_max`]).
    pub fn compile_parsed(
        syntax: &Syntax,
        text: &str,
        parameters: &Parameters,
        schema: Schema<'_>,
        environment: Environment,
    ) -> Result<Query, SqlError> {
        let allowance = environment.allowance.clone();
        Query::bind(syntax, (text, parameters), schema, &allowance, environment)
    }

    fn bind(
        syntax: &Syntax,
        (text, parameters): (&str, &Parameters),
        schema: Schema<'_>,
        allowance: &Allowance,
        environment: Environment,
    ) -> Result<Query, SqlError> {
        let meter = allowance.meter();
        let names: Vec<&str> = schema.computed.iter().map(|(name, _)| name.as_str()).collect();
        let syntax = flatten::flatten(Arc::clone(&syntax.query), &names);
        let Bound { query: mut bound, ranking, uses_clock, is_deterministic, calls_functions, used } =
            bind::bind(&syntax, text, parameters, &names, schema, &meter)?;
        if schema.adds_followed {
            follow_plan::add_followed(&mut bound)?;
        }
        fold::fold_query(&mut bound, allowance);
        let follow_plan = follow_plan::follow_plan(&mut bound);
        let follows = follow_plan.is_some();
        let is_sorted = !bound.order_by.is_empty();
        let ranked = ranking.clone().filter(|_| !is_sorted).map(|ranking| Ranked::new(&mut bound, ranking));
        if ranked.is_none() {
            bound.follow_plan = follow_plan;
        }
        let computed =
            schema.computed.iter().map(|(name, query)| computed::compile(name, query, schema, &meter));
        let mut computed = computed.collect::<Result<Vec<Expr>, _>>()?;
        computed.iter_mut().for_each(|expr| fold::fold_expr(expr, allowance));
        let compiled = Compiled {
            syntax,
            bound,
            ranked,
            ranking,
            computed,
            computed_names: schema.computed.iter().map(|(name, _)| name.clone()).collect(),
            uses_clock,
            is_deterministic,
            follows,
            needs_externals: follows || calls_functions || schema.adds_followed,
        };
        Ok(Query { used, ..Query::of(Arc::new(compiled), Vec::new(), environment) })
    }

    /// With the values of its places.
    pub(crate) fn of(compiled: Arc<Compiled>, values: Vec<Value>, environment: Environment) -> Query {
        Query { compiled, used: Vec::new(), values, patterns: RegexCache::default(), environment }
    }

    /// The value of an expression that is a constant or a parameter.
    pub(crate) fn known_value<'q>(&'q self, expr: &'q Expr) -> Option<&'q Value> {
        match expr {
            Expr::Parameter(number) => self.values.get(*number),
            expr => expr.as_constant(),
        }
    }

    /// For ORDER BY RANK: statistics of all items that its scores need. Without them they are counted from the items,
    /// so all items must be read, including those that do not match WHERE.
    pub fn with_rank_statistics(mut self, statistics: RankStatistics) -> Query {
        if self.is_ranked() {
            Arc::make_mut(&mut self.compiled).set_rank_statistics(statistics);
        }
        self
    }

    /// A copy of the query with statistics for its scores.
    pub fn clone_with_rank_statistics(&self, statistics: RankStatistics) -> Query {
        let copy = Query::of(Arc::clone(&self.compiled), self.values.clone(), self.environment.clone());
        copy.with_rank_statistics(statistics)
    }

    /// Whether scores and ranks, not sort keys, decide the order.
    pub(crate) fn is_ranked(&self) -> bool {
        self.compiled.ranked.is_some()
    }

    /// Sets the time, the seed and the limits of the following runs.
    pub fn with_environment(mut self, environment: Environment) -> Query {
        self.environment = environment;
        self
    }

    /// Whether its rows depend on the items alone, not on time or random numbers. User-defined functions are not
    /// checked.
    pub fn is_deterministic(&self) -> bool {
        self.compiled.is_deterministic
    }

    /// Whether it reads items of other containers.
    pub fn follows(&self) -> bool {
        self.compiled.follows
    }

    /// Whether an item has rows, and how many, depends on items of other containers.
    pub fn follows_for_rows(&self) -> bool {
        self.compiled.follows
            && self
                .compiled
                .bound
                .follow_plan
                .as_ref()
                .is_none_or(|plan| plan.decides_rows || !self.rows_are_defined())
    }

    /// Whether the select list is never undefined.
    pub fn rows_are_defined(&self) -> bool {
        matches!(self.compiled.bound.projection, Expr::Object(_) | Expr::Array(_) | Expr::WithFollowed { .. })
    }

    /// The syntax of what runs.
    pub fn syntax(&self) -> &ast::Query {
        &self.compiled.syntax
    }

    pub fn shape(&self) -> QueryShape {
        if !self.compiled.bound.reads_container() {
            QueryShape::Constant
        } else if self.compiled.ranked.is_some() || self.compiled.bound.needs_all_items() {
            QueryShape::Blocking
        } else {
            QueryShape::Streaming { offset: self.compiled.bound.offset, limit: self.compiled.bound.limit }
        }
    }

    /// Whether the rows of each item can be computed separately, if the caller orders the items: all
    /// [`QueryShape::Streaming`] queries, and those that block only because of ORDER BY or DISTINCT.
    pub fn is_per_item(&self) -> bool {
        self.compiled.ranked.is_none()
            && self.compiled.bound.reads_container()
            && self.compiled.bound.is_per_item()
    }

    /// OFFSET and LIMIT of a query that would stream without its ORDER BY.
    pub fn sorted(&self) -> Option<(u64, Option<u64>)> {
        let bound::Query { offset, limit, distinct, ref order_by, .. } = self.compiled.bound;
        (self.is_per_item() && !distinct && !order_by.is_empty()).then_some((offset, limit))
    }

    /// The expressions of ORDER BY as written, and whether each is descending; none for ORDER BY RANK.
    pub fn order_columns(&self) -> Vec<(String, bool)> {
        let order_by = self.compiled.syntax.order_by.iter().filter(|order_by| !order_by.rank);
        let items = order_by.flat_map(|order_by| &order_by.items);
        items
            .map(|item| (item.expr.to_string(), item.direction == Some(ast::Direction::Descending)))
            .collect()
    }

    /// Whether items with equal sort keys come from last to first (the rows of one item keep their order). True where
    /// the first column is descending: clients that resume an order themselves rely on it. False for groups, scores
    /// and distances, which clients do not resume.
    pub fn ties_descending(&self) -> bool {
        let is_score = |expr: &bound::Expr| match expr {
            bound::Expr::Coalesce(scores) => {
                matches!(scores.first(), Some(bound::Expr::Call { function, .. }) if function.is_sort_key())
            }
            _ => false,
        };
        let first = self.compiled.bound.order_by.first().filter(|_| self.compiled.bound.grouping.is_none());
        first.is_some_and(|item| item.descending && !is_score(&item.expr))
    }

    /// Whether equal items may be passed once with a multiplicity, at the position of the first: every aggregate
    /// counts or compares, and FROM has only the items of the container.
    pub fn accepts_multiplicity(&self) -> bool {
        let counts = |call: &bound::AggregateCall| {
            matches!(call.aggregate, Aggregate::Count | Aggregate::CountIf | Aggregate::Min | Aggregate::Max)
        };
        let from_items = matches!(
            self.compiled.bound.sources.as_slice(),
            [bound::Source { input: bound::Input::Container, iterate: false }]
        );
        match &self.compiled.bound.grouping {
            Some(grouping) => from_items && grouping.aggregates.iter().all(counts),
            None => from_items && self.compiled.bound.distinct,
        }
    }

    /// The written query, bound.
    pub(crate) fn written(&self) -> &bound::Query {
        self.compiled.ranked.as_ref().map_or(&self.compiled.bound, |ranked| &ranked.written)
    }

    /// Whether items that do not match WHERE still count.
    pub(crate) fn needs_rank_statistics(&self) -> bool {
        self.compiled.ranked.as_ref().is_some_and(Ranked::needs_statistics)
    }
}

impl Compiled {
    fn set_rank_statistics(&mut self, statistics: RankStatistics) {
        if let Some(ranked) = &mut self.ranked {
            self.bound.filter.clone_from(&ranked.written.filter);
            ranked.statistics = Some(statistics);
        }
    }

    /// Whether it depends on nothing but the text, the container's definition and the values of parameters.
    pub fn is_self_contained(&self) -> bool {
        self.is_deterministic && !self.needs_externals
    }
}
