//! What an index can serve of a query, before any item is read: a pure function of the bound query.
//!
//! The invariant is soundness, checked by a property test: an item that does not satisfy [`Analysis::filter`] does
//! not change the result, and an item reduced to [`Analysis::reads`] gives the same rows. An expression that is not
//! analysed allows every item and reads it whole. A run that would fail on an item (a subquery with two rows where
//! one value is needed) need not fail when a filter excludes that item.

mod calls; // conditions from functions
mod condition; // conditions on items
mod item_path; // the paths of values in scope
mod partition_keys; // the partition keys that a filter allows
mod policy; // checks and index metrics by an indexing policy
mod predicate; // conditions from expressions
mod projection; // the projection of a materialised view
mod range; // sets of values
mod reads; // the paths that a query reads
mod search; // searches for terms in texts
mod vector_order; // ORDER BY VectorDistance

use std::cell::Cell;

use quire_value::{Path, Value};

use crate::bind::bound::{self, Expr, Input};
use crate::data::{Datum, Row, approximate_size};
use crate::exec::{self, Execution};
use crate::functions::{Aggregate, EvalContext, Externals, Volatility};
use crate::query::Query;

use self::item_path::ItemPath;
use self::predicate::ConditionFinder;

pub use self::condition::{
    ComputedRange, Condition, FullTextCondition, FullTextTerm, PathRange, SpatialCondition, SpatialRelation,
};
pub use self::policy::{CompositeIndex, IndexMetrics, Indexes, SingleIndex};
pub(crate) use self::predicate::{compared_range, mirrored};
pub use self::projection::Projection;
pub use self::range::ValueRange;
pub(crate) use self::range::intersection;
pub use self::reads::Reads;
pub use self::search::{
    RankComponent, RankSearch, ScoreOrder, SearchTerm, SearchedText, TextCount, TextStatisticsSearch,
};
pub use self::vector_order::VectorOrder;

/// Memory limit for constants in conditions. Filters with larger constants are not used for indexes.
pub(crate) const CONSTANT_BYTES_MAX: usize = 4 << 20;
/// Copies of each constant, in ranges and the ranges between them, while conditions are combined.
const CONSTANT_COPIES: usize = 6;

/// What a query requires of the items of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// Satisfied by every item that can contribute to the result: from WHERE, from the sources in FROM and JOIN, and
    /// from `SELECT VALUE`, which drops undefined rows.
    pub filter: Condition,
    /// An item contributes exactly when it satisfies `filter`, and then exactly one row. No path of the filter has
    /// `[]`.
    pub filter_is_exact: bool,
    /// The ORDER BY of the query, if every key is a plain path of the item. With JOIN, an item has several rows with
    /// equal keys.
    pub order: Option<Vec<OrderPath>>,
    /// The ORDER BY of the query with paths as in a policy, for all kinds of keys.
    pub order_keys: Vec<OrderKey>,
    pub reads: Reads,
    pub aggregate: Option<IndexAggregate>,
    /// Paths of aggregated values.
    pub aggregated: Vec<Path>,
    /// Paths of texts that the query searches or scores.
    pub searched: Vec<Path>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderPath {
    /// Names only.
    pub path: Path,
    pub descending: bool,
}

/// A key of ORDER BY, with its path as in a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderKey {
    /// Names and `[]`. Begins with the name of a computed property if it is one.
    pub path: Path,
    pub is_computed: bool,
    pub descending: bool,
}

/// A query of one row that depends only on the number of items that satisfy the (exact) filter, the number of those
/// in which the value at `path` is defined, and, if needed, the minimum and maximum of these values.
///
/// So it may run over any items with the same numbers, minimum and maximum. An array or an object among the values
/// makes MIN and MAX undefined; they sort last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexAggregate {
    /// Names only. `None`: only items are counted. The filter is on no other path.
    pub path: Option<Path>,
    pub min: bool,
    pub max: bool,
}

impl Query {
    /// Depends on the time of [`Query::with_environment`], if the query reads the time.
    pub fn analysis(&self) -> Analysis {
        self.analysis_and_constants().0
    }

    /// The analysis, and the bytes of constants that it has read.
    pub(crate) fn analysis_and_constants(&self) -> (Analysis, usize) {
        let constants = Constants::new(self);
        let constant = |expr: &Expr| constants.of(expr);
        let mut finder = ConditionFinder::new(self, &constant);
        let found = finder.rows(&self.compiled.bound);
        let order = self.order(&finder);
        let order_keys =
            self.compiled.bound.order_by.iter().filter_map(|item| self.order_key(&finder, item)).collect();
        let filter_is_exact =
            found.exact && contributes_once(&self.compiled.bound) && !has_elements(&found.condition);
        let reads = reads::reads(&self.compiled.bound, &self.compiled.computed);
        let aggregate = if filter_is_exact { self.index_aggregate(&finder, &found.condition) } else { None };
        let aggregated = self.aggregated(&finder);
        let filter = found.condition;
        let mut searched = Vec::new();
        filter.for_each_text(&mut |text| searched.push(text.path.clone()));
        searched.extend(self.scored_paths(&finder));
        searched.dedup();
        let analysis =
            Analysis { filter, filter_is_exact, order, order_keys, reads, aggregate, aggregated, searched };
        (analysis, CONSTANT_BYTES_MAX - constants.left_bytes.get())
    }

    /// The filter if WHERE had only these conditions, and the paths of expressions of WHERE in the item.
    pub(crate) fn filter_of(
        &self,
        conditions: Vec<&Expr>,
        exprs: &[&Expr],
    ) -> (Condition, Vec<Option<Path>>) {
        let conditions: Vec<Expr> = conditions.into_iter().cloned().collect();
        let filter = (!conditions.is_empty()).then_some(Expr::And(conditions));
        let query = bound::Query { filter, ..self.compiled.bound.clone() };
        let constants = Constants::new(self);
        let constant = |expr: &Expr| constants.of(expr);
        let mut finder = ConditionFinder::new(self, &constant);
        let found = finder.rows(&query);
        let path = |expr: &&Expr| finder.item_path(expr).map(|item_path| Path(item_path.segments));
        (found.condition, exprs.iter().map(path).collect())
    }

    /// With the levels of the outermost query in scope.
    fn order(&self, finder: &ConditionFinder<'_>) -> Option<Vec<OrderPath>> {
        if self.compiled.bound.order_by.is_empty() || self.compiled.bound.grouping.is_some() {
            return None;
        }
        let path = |item: &bound::OrderItem| {
            let item_path = finder
                .item_path(&item.expr)
                .filter(|item_path| item_path.is_names() && !item_path.segments.is_empty())?;
            Some(OrderPath { path: Path(item_path.segments), descending: item.descending })
        };
        self.compiled.bound.order_by.iter().map(path).collect()
    }

    /// `None` for keys that no policy covers: groups, and the item itself.
    fn order_key(&self, finder: &ConditionFinder<'_>, item: &bound::OrderItem) -> Option<OrderKey> {
        let (base, steps): (&Expr, &[bound::Step]) = match &item.expr {
            Expr::Path { base, steps, .. } => (base, steps),
            other => (other, &[]),
        };
        let (item_path, is_computed) = match base {
            Expr::Computed { index, .. } => {
                let item_path = ItemPath::item().name(self.compiled.computed_names.get(*index)?);
                (steps.iter().try_fold(item_path, ItemPath::step)?, true)
            }
            _ => (finder.item_path(&item.expr)?, false),
        };
        (!item_path.segments.is_empty()).then_some(OrderKey {
            path: Path(item_path.segments),
            is_computed,
            descending: item.descending,
        })
    }

    fn aggregated(&self, finder: &ConditionFinder<'_>) -> Vec<Path> {
        let calls = self.compiled.bound.grouping.iter().flat_map(|grouping| &grouping.aggregates);
        let item_paths = calls.filter_map(|call| finder.item_path(&call.argument));
        let item_paths =
            item_paths.filter(|item_path| item_path.is_names() && !item_path.segments.is_empty());
        item_paths.map(|item_path| Path(item_path.segments)).collect()
    }

    fn index_aggregate(&self, finder: &ConditionFinder<'_>, filter: &Condition) -> Option<IndexAggregate> {
        let grouping = self.compiled.bound.grouping.as_ref().filter(|grouping| grouping.keys.is_empty())?;
        let mut found = IndexAggregate { path: None, min: false, max: false };
        let mut same_path = |path: Path| *found.path.get_or_insert_with(|| path.clone()) == path;
        for call in &grouping.aggregates {
            let constant = finder.constant_of(&call.argument);
            match (call.aggregate, constant, finder.item_path(&call.argument)) {
                (Aggregate::Count, Some(_), _) => {}
                (Aggregate::Count | Aggregate::Min | Aggregate::Max, None, Some(item_path))
                    if item_path.is_names()
                        && !item_path.segments.is_empty()
                        && same_path(Path(item_path.segments.clone())) => {}
                _ => return None,
            }
        }
        let fits = match filter {
            Condition::All | Condition::Nothing => true,
            Condition::Range(range) => same_path(range.path.clone()),
            _ => false,
        };
        let asks = |aggregate: Aggregate| grouping.aggregates.iter().any(|call| call.aggregate == aggregate);
        found.min = asks(Aggregate::Min);
        found.max = asks(Aggregate::Max);
        fits.then_some(found)
    }
}

/// Values of expressions that depend on no item, within a memory limit: conditions hold several copies of them.
struct Constants<'q> {
    query: &'q Query,
    context: EvalContext<'q>,
    left_bytes: Cell<usize>,
}

impl<'q> Constants<'q> {
    fn new(query: &'q Query) -> Constants<'q> {
        let context = exec::eval_context(&query.environment, &query.values, &query.patterns, Externals::NONE);
        Constants { query, context, left_bytes: Cell::new(CONSTANT_BYTES_MAX) }
    }

    /// An expression that fails, is not finite or is too large is left to the run.
    fn of(&self, expr: &Expr) -> Option<Value> {
        let known = self.query.known_value(expr);
        if known.is_none() && !is_constant(expr, self.query.environment.now_ticks.is_some()) {
            return None;
        }
        let evaluated = match known {
            Some(_) => None,
            None => Some(self.evaluate(expr)?),
        };
        let bytes = known.or(evaluated.as_ref()).map_or(0, approximate_size);
        self.left_bytes.set(self.left_bytes.get().checked_sub(bytes)?);
        self.query.environment.allowance.memory().take(bytes * CONSTANT_COPIES).ok()?;
        evaluated.or_else(|| known.cloned())
    }

    /// `None` when it fails, or cannot be a row.
    fn evaluate(&self, expr: &Expr) -> Option<Value> {
        let value = Execution::new(&self.context, &self.query.compiled.computed, None).constant(expr).ok()?;
        let row = Row::from(Datum::Owned(value));
        (row.check().is_ok() && !row.is_undefined()).then(|| row.to_value())
    }
}

/// Whether every item that satisfies the filter gives one tuple.
fn contributes_once(query: &bound::Query) -> bool {
    matches!(query.sources.as_slice(), [source] if matches!(source.input, Input::Container))
}

fn has_elements(condition: &Condition) -> bool {
    let mut found = false;
    condition.for_each_range(&mut |range| found |= range.has_elements());
    found
}

/// Depends on no item and no random number, and on the time only if that is known.
fn is_constant(expr: &Expr, knows_time: bool) -> bool {
    let all = |items: &[Expr]| items.iter().all(|item| is_constant(item, knows_time));
    let one = |item: &Expr| is_constant(item, knows_time);
    match expr {
        Expr::Constant(_) | Expr::Parameter(_) => true,
        Expr::Array(items) | Expr::And(items) | Expr::Or(items) | Expr::Coalesce(items) => all(items),
        Expr::Object(members) => members.iter().all(|(_, member)| one(member)),
        Expr::Unary { operand, .. } => one(operand),
        Expr::Chain { first, rest } => one(first) && rest.iter().all(|(_, operand)| one(operand)),
        Expr::In { needle, items, .. } => one(needle) && all(items),
        Expr::Like { text, pattern, .. } => one(text) && one(pattern),
        Expr::Between { value, low, high, .. } => one(value) && one(low) && one(high),
        Expr::Conditional { branches, otherwise } => {
            branches.iter().all(|(test, value)| one(test) && one(value)) && one(otherwise)
        }
        Expr::Call { function, arguments } => {
            let volatility = match function.volatility() {
                Volatility::Deterministic => true,
                Volatility::Clock => knows_time,
                Volatility::Random => false,
            };
            volatility && all(arguments)
        }
        Expr::Variable { .. } | Expr::Computed { .. } | Expr::Path { .. } => false,
        Expr::GroupKey { .. } | Expr::Aggregate { .. } => false,
        Expr::Subquery { .. } | Expr::Let { .. } | Expr::UserCall { .. } => false,
        Expr::Follow(_) | Expr::WithFollowed { .. } => false,
    }
}

#[cfg(test)]
mod soundness;
#[cfg(test)]
mod tests;
