//! The front door: compile once, then feed it items.

mod evaluator; // item by item
mod expression; // one expression over named values, without a query around it
mod run; // all rows of a feed

use crate::bind::bound::{self, Expr};
use crate::bind::{self, Bound, Parameters, Schema, computed, flatten};
use crate::error::SqlError;
use crate::exec::{Environment, RankStatistics, Ranked, fold};
use crate::functions::{Aggregate, Patterns};
use crate::limits::Allowance;
use crate::syntax::{ast, parser};

pub use self::evaluator::Evaluator;
pub use self::expression::{Expression, ExpressionError, ReadStep};
pub use self::run::Sink;

/// Bytes of syntax and of the bound query, per byte of text: `[1,1,…` has an expression in every second one.
const TEXT_COPIES: usize = 128;

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
    /// What runs; with `ranked` that is not what was written.
    pub(crate) bound: bound::Query,
    ranked: Option<Ranked>,
    /// ORDER BY RANK, as plans need it.
    pub(crate) ranking: Option<bound::Ranking>,
    /// The expressions of the computed properties, each bound to an item at level 0.
    pub(crate) computed: Vec<Expr>,
    pub(crate) computed_names: Vec<String>,
    uses_clock: bool,
    is_deterministic: bool,
    pub(crate) patterns: Patterns,
    pub(crate) environment: Environment,
}

impl Query {
    /// `computed`: computed properties in scope, name and query text.
    pub fn compile(
        text: &str,
        parameters: &Parameters,
        computed: &[(String, String)],
    ) -> Result<Query, SqlError> {
        Query::compile_for(text, parameters, Schema { computed, ..Schema::default() })
    }

    /// For the items of a container.
    pub fn compile_for(text: &str, parameters: &Parameters, schema: Schema<'_>) -> Result<Query, SqlError> {
        Query::compile_within(text, parameters, schema, &Allowance::default())
    }

    /// The same, spent from an allowance; runs are spent from that of the [environment](Query::with_environment). What the
    /// query holds is taken from the memory of the allowance and given back with it.
    pub fn compile_within(
        text: &str,
        parameters: &Parameters,
        schema: Schema<'_>,
        allowance: &Allowance,
    ) -> Result<Query, SqlError> {
        allowance.memory().take(text.len().saturating_mul(TEXT_COPIES))?;
        let meter = allowance.meter();
        let syntax = parser::parse(text).map_err(|diagnostic| SqlError::Compile(vec![diagnostic]))?;
        // A row of a subquery has no computed properties, the item has.
        let syntax = if schema.computed.is_empty() { flatten::flatten(syntax) } else { syntax };
        let names: Vec<&str> = schema.computed.iter().map(|(name, _)| name.as_str()).collect();
        let Bound { query: mut bound, ranking, uses_clock, is_deterministic } =
            bind::bind(&syntax, text, parameters, &names, schema, &meter)?;
        fold::fold_query(&mut bound, allowance);
        let is_sorted = !bound.order_by.is_empty();
        let ranked = ranking.clone().filter(|_| !is_sorted).map(|ranking| Ranked::new(&mut bound, ranking));
        let computed =
            schema.computed.iter().map(|(name, query)| computed::compile(name, query, schema, &meter));
        let mut computed = computed.collect::<Result<Vec<Expr>, _>>()?;
        computed.iter_mut().for_each(|expr| fold::fold_expr(expr, allowance));
        let computed_names = schema.computed.iter().map(|(name, _)| name.clone()).collect();
        let (patterns, environment) = (Patterns::default(), Environment::default());
        Ok(Query {
            syntax,
            bound,
            ranked,
            ranking,
            computed,
            computed_names,
            uses_clock,
            is_deterministic,
            patterns,
            environment,
        })
    }

    /// For an ORDER BY RANK: what its scores need to know of all items. Without, it is counted from the items that are
    /// fed, and all of them must be, those that WHERE leaves out included.
    pub fn with_rank_statistics(mut self, statistics: RankStatistics) -> Query {
        if let Some(ranked) = &mut self.ranked {
            self.bound.filter.clone_from(&ranked.written.filter);
            ranked.statistics = Some(statistics);
        }
        self
    }

    /// The same query once more, with what its scores need to know.
    pub fn given_rank_statistics(&self, statistics: RankStatistics) -> Query {
        let copy = Query {
            syntax: self.syntax.clone(),
            bound: self.bound.clone(),
            ranked: self.ranked.clone(),
            ranking: self.ranking.clone(),
            computed: self.computed.clone(),
            computed_names: self.computed_names.clone(),
            uses_clock: self.uses_clock,
            is_deterministic: self.is_deterministic,
            patterns: Patterns::default(),
            environment: self.environment.clone(),
        };
        copy.with_rank_statistics(statistics)
    }

    /// Whether scores and ranks decide about the order, and not sort keys.
    pub(crate) fn is_ranked(&self) -> bool {
        self.ranked.is_some()
    }

    /// The time, the seed and the limits of the runs to come.
    pub fn with_environment(mut self, environment: Environment) -> Query {
        self.environment = environment;
        self
    }

    /// Whether its rows follow from the items alone: it asks neither for the time nor for chance. Functions that the
    /// container brings are not looked at.
    pub fn is_deterministic(&self) -> bool {
        self.is_deterministic
    }

    /// What runs, as syntax.
    pub fn syntax(&self) -> &ast::Query {
        &self.syntax
    }

    pub fn shape(&self) -> Shape {
        if !self.bound.reads_container() {
            Shape::Constant
        } else if self.ranked.is_some() || self.bound.needs_all_items() {
            Shape::Blocking
        } else {
            Shape::Streaming { offset: self.bound.offset, limit: self.bound.limit }
        }
    }

    /// Whether the rows of every item can be told by themselves, once the caller sees to the order of the items: all
    /// [`Shape::Streaming`] queries, and those that block only because of ORDER BY or DISTINCT.
    pub fn is_item_by_item(&self) -> bool {
        self.ranked.is_none() && self.bound.reads_container() && self.bound.is_item_by_item()
    }

    /// OFFSET and LIMIT of a query that would be streaming but for its ORDER BY.
    pub fn sorted(&self) -> Option<(u64, Option<u64>)> {
        let bound::Query { offset, limit, distinct, ref order_by, .. } = self.bound;
        (self.is_item_by_item() && !distinct && !order_by.is_empty()).then_some((offset, limit))
    }

    /// The columns of ORDER BY as they are written, and whether each is descending; none for ORDER BY RANK.
    pub fn order_columns(&self) -> Vec<(String, bool)> {
        let order_by = self.syntax.order_by.iter().filter(|order_by| !order_by.rank);
        let items = order_by.flat_map(|order_by| &order_by.items);
        items
            .map(|item| (item.expr.to_string(), item.direction == Some(ast::Direction::Descending)))
            .collect()
    }

    /// Whether items that ORDER BY takes for equal come from the last to the first; the rows of each keep their order. So it
    /// is where the first column descends: clients that resume an order by themselves count on it. They do not resume
    /// groups, scores and distances, where the first comes first.
    pub fn ties_fall(&self) -> bool {
        let is_score = |expr: &bound::Expr| match expr {
            bound::Expr::Coalesce(scores) => {
                matches!(scores.first(), Some(bound::Expr::Call { function, .. }) if function.is_sort_key())
            }
            _ => false,
        };
        let first = self.bound.order_by.first().filter(|_| self.bound.grouping.is_none());
        first.is_some_and(|item| item.descending && !is_score(&item.expr))
    }

    /// Whether equal items may be fed as one, with a multiplicity and in the place of the first: every aggregate counts or
    /// compares, and nothing but the items of the container is in FROM.
    pub fn takes_runs(&self) -> bool {
        let counts = |call: &bound::AggregateCall| {
            matches!(call.aggregate, Aggregate::Count | Aggregate::CountIf | Aggregate::Min | Aggregate::Max)
        };
        let from_items = matches!(
            self.bound.sources.as_slice(),
            [bound::Source { input: bound::Input::Container, iterate: false }]
        );
        match &self.bound.grouping {
            Some(grouping) => from_items && grouping.aggregates.iter().all(counts),
            None => from_items && self.bound.distinct,
        }
    }

    /// What was written, bound.
    pub(crate) fn written(&self) -> &bound::Query {
        self.ranked.as_ref().map_or(&self.bound, |ranked| &ranked.written)
    }

    /// Whether items that WHERE leaves out still count.
    pub(crate) fn needs_rank_statistics(&self) -> bool {
        self.ranked.as_ref().is_some_and(Ranked::needs_statistics)
    }
}
