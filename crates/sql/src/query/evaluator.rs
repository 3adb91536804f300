//! Evaluates a query item by item.

use std::ops::ControlFlow;

use quire_value::Value;

use crate::bind::bound::Expr;
use crate::data::{Item, Row};
use crate::error::SqlError;
use crate::exec::{self, DistinctRows, Execution, RowWindow};
use crate::functions::EvalContext;

use super::Query;
use super::run::CollectedRows;

/// Evaluates a query item by item. One state (time, random numbers, limits, rows of DISTINCT) lasts over all items.
///
/// ORDER BY, OFFSET and LIMIT are left to the caller: it passes items in order or sorts the rows by their keys, and
/// counts.
pub struct Evaluator<'q> {
    pub(super) query: &'q Query,
    pub(super) is_per_item: bool,
    pub(super) context: EvalContext<'q>,
    pub(super) seen: DistinctRows,
}

impl Evaluator<'_> {
    /// The rows of one item, without undefined rows and, for DISTINCT, without duplicates. Refuses queries that are
    /// not evaluated [per item](Query::is_per_item).
    pub fn rows_of(
        &mut self,
        item: &Item<'_>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        self.check_item_by_item()?;
        each_row(self.query, &self.context, &mut self.seen, item, emit)
    }

    /// The rows of one item as values. They count as kept memory until the evaluator is dropped.
    pub fn row_values_of(&mut self, item: &Item<'_>) -> Result<Vec<Value>, SqlError> {
        self.check_item_by_item()?;
        let mut rows = CollectedRows::new(&self.context.meter);
        each_row(self.query, &self.context, &mut self.seen, item, &mut |row| rows.push(row))?;
        rows.finish()
    }

    /// The rows of one item, each with its sort keys. DISTINCT is left to the caller.
    pub fn rows_with_sort_keys_of(
        &self,
        item: &Item<'_>,
        emit: &mut dyn FnMut(Vec<Value>, &Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        self.check_item_by_item()?;
        let mut scan = |take: &mut exec::ItemVisitor<'_>| take(item, 1);
        let run = Execution::new(&self.context, &self.query.compiled.computed, Some(&mut scan));
        run.keyed_rows(&self.query.compiled.bound, &mut |keys, row| Ok(emit(keys, &row)))
    }

    /// Passes the calls of the item to [`UserFunctions::value_or_enqueue`], as far as their arguments are known. So a
    /// caller can run the calls of several items together before it evaluates the items. It repeats this as often as
    /// calls depend on each other.
    pub fn collect_calls(&self, item: &Item<'_>) {
        self.collect(item, |run| run.collect_calls(&self.query.compiled.bound));
    }

    /// The same for what decides whether the item matches WHERE.
    pub fn collect_filter_calls(&self, item: &Item<'_>) {
        self.collect(item, |run| run.any_tuple(&self.query.compiled.bound).map(|_| ()));
    }

    fn collect(&self, item: &Item<'_>, calls: impl FnOnce(&Execution<'_>) -> Result<(), SqlError>) {
        let EvalContext { random, failure, .. } = &self.context;
        let random_before = random.get();
        let mut scan = |take: &mut exec::ItemVisitor<'_>| take(item, 1);
        let run = Execution::collecting_calls(&self.context, &self.query.compiled.computed, &mut scan);
        // An error here occurs again when the item is evaluated.
        drop(calls(&run));
        random.set(random_before);
        failure.take();
    }

    /// Whether the item, alone or in any combination with joined values, matches WHERE.
    pub fn matches(&self, item: &Item<'_>) -> Result<bool, SqlError> {
        let mut scan = |take: &mut exec::ItemVisitor<'_>| take(item, 1);
        Execution::new(&self.context, &self.query.compiled.computed, Some(&mut scan))
            .any_tuple(&self.query.compiled.bound)
    }

    /// Whether the item can have rows, as far as can be known without items of other containers.
    pub fn may_have_rows(&self, item: &Item<'_>) -> Result<bool, SqlError> {
        if self.query.needs_rank_statistics() {
            return Ok(true);
        }
        let mut scan = |take: &mut exec::ItemVisitor<'_>| take(item, 1);
        Execution::new(&self.context, &self.query.compiled.computed, Some(&mut scan))
            .any_early_tuple(&self.query.compiled.bound)
    }

    /// Whether the item gives a row, before DISTINCT, OFFSET and LIMIT. Also for ORDER BY RANK.
    pub fn produces_row(&self, item: &Item<'_>) -> Result<bool, SqlError> {
        let mut any = false;
        let mut scan = |take: &mut exec::ItemVisitor<'_>| take(item, 1);
        let window = RowWindow { offset: 0, limit: None, in_order: true, ties_descending: false };
        Execution::new(&self.context, &self.query.compiled.computed, Some(&mut scan)).top_rows(
            self.query.written(),
            window,
            &mut DistinctRows::default(),
            &mut |_| {
                any = true;
                Ok(ControlFlow::Break(()))
            },
        )?;
        Ok(any)
    }

    /// The sort keys of an item, whether or not it matches WHERE. Refused for joins.
    pub fn sort_keys_of(&self, item: &Item<'_>) -> Result<Vec<Value>, SqlError> {
        if !self.query.compiled.bound.is_over_whole_items() {
            return Err(SqlError::Refused("a query with JOIN has no sort keys per item".to_owned()));
        }
        Execution::new(&self.context, &self.query.compiled.computed, None)
            .order_keys(&self.query.compiled.bound, item)
    }

    /// The value of an expression without variables.
    pub(crate) fn constant(&self, expr: &Expr) -> Result<Value, SqlError> {
        Execution::new(&self.context, &self.query.compiled.computed, None).constant(expr)
    }

    fn check_item_by_item(&self) -> Result<(), SqlError> {
        if self.is_per_item {
            return Ok(());
        }
        Err(SqlError::Refused("the query cannot be evaluated item by item".to_owned()))
    }
}

fn each_row(
    query: &Query,
    context: &EvalContext<'_>,
    seen: &mut DistinctRows,
    item: &Item<'_>,
    emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
) -> Result<(), SqlError> {
    let mut scan = |take: &mut exec::ItemVisitor<'_>| take(item, 1);
    let window = RowWindow { offset: 0, limit: None, in_order: true, ties_descending: false };
    Execution::new(context, &query.compiled.computed, Some(&mut scan)).top_rows(
        &query.compiled.bound,
        window,
        seen,
        &mut |row| Ok(emit(&row)),
    )
}
