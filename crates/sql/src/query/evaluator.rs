//! A query that is fed item by item.

use std::ops::ControlFlow;

use quire_value::Value;

use crate::bind::bound::Expr;
use crate::data::{Item, Row};
use crate::error::SqlError;
use crate::exec::{self, Run, Seen, Window};
use crate::functions::Surroundings;

use super::Query;
use super::run::Collected;

/// A query that is fed item by item: one state (time, chance, limits, what DISTINCT has seen) over all of them.
///
/// ORDER BY, offset and limit are the caller's: it feeds items in order, or sorts rows by their keys, and counts.
pub struct Evaluator<'q> {
    pub(super) query: &'q Query,
    pub(super) is_item_by_item: bool,
    pub(super) surroundings: Surroundings<'q>,
    pub(super) seen: Seen,
}

impl Evaluator<'_> {
    /// The rows of one item; those that are undefined, or for DISTINCT equal to an earlier one, are left out. Only for
    /// queries that are [item by item](Query::is_item_by_item): others are refused.
    pub fn rows_of(
        &mut self,
        item: &Item<'_>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        self.check_item_by_item()?;
        let mut feed = |take: &mut exec::Take<'_>| take(item, 1);
        let window = Window { offset: 0, limit: None, in_order: true, ties_fall: false };
        Run::new(&self.surroundings, &self.query.computed, Some(&mut feed)).top_rows(
            &self.query.bound,
            window,
            &mut self.seen,
            &mut |row| Ok(emit(&row)),
        )
    }

    /// The rows of one item as values; what they weigh counts as held.
    pub fn row_values_of(&mut self, item: &Item<'_>) -> Result<Vec<Value>, SqlError> {
        let mut rows = Collected::new(&self.query.environment.allowance);
        self.rows_of(item, &mut |row| rows.push(row))?;
        rows.finish()
    }

    /// The rows of one item, each with its sort keys; DISTINCT is left to the caller.
    pub fn keyed_rows_of(
        &self,
        item: &Item<'_>,
        emit: &mut dyn FnMut(Vec<Value>, &Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        self.check_item_by_item()?;
        let mut feed = |take: &mut exec::Take<'_>| take(item, 1);
        let run = Run::new(&self.surroundings, &self.query.computed, Some(&mut feed));
        run.keyed_rows(&self.query.bound, &mut |keys, row| Ok(emit(keys, &row)))
    }

    /// Tells the functions which calls the item makes, as far as they follow from calls with known values. So a caller
    /// that has several items can have their calls made together, before it evaluates the items: as often as the query
    /// has calls that depend on each other.
    pub fn foresee_calls(&self, item: &Item<'_>) {
        let Surroundings { random, failure, .. } = &self.surroundings;
        let random_before = random.get();
        let mut feed = |take: &mut exec::Take<'_>| take(item, 1);
        let run = Run::foreseeing(&self.surroundings, &self.query.computed, &mut feed);
        // What fails here fails again when the item is evaluated.
        drop(run.foresee(&self.query.bound));
        random.set(random_before);
        failure.take();
    }

    /// Whether the item passes WHERE: alone, or in any combination with what is joined to it.
    pub fn matches(&self, item: &Item<'_>) -> Result<bool, SqlError> {
        let mut feed = |take: &mut exec::Take<'_>| take(item, 1);
        Run::new(&self.surroundings, &self.query.computed, Some(&mut feed)).any_tuple(&self.query.bound)
    }

    /// Whether the item gives a row, before DISTINCT, OFFSET and LIMIT. Also for ORDER BY RANK.
    pub fn gives_row(&self, item: &Item<'_>) -> Result<bool, SqlError> {
        let mut any = false;
        let mut feed = |take: &mut exec::Take<'_>| take(item, 1);
        let window = Window { offset: 0, limit: None, in_order: true, ties_fall: false };
        Run::new(&self.surroundings, &self.query.computed, Some(&mut feed)).top_rows(
            self.query.written(),
            window,
            &mut Seen::default(),
            &mut |_| {
                any = true;
                Ok(ControlFlow::Break(()))
            },
        )?;
        Ok(any)
    }

    /// The sort keys of an item, whether it passes WHERE or not. Refused where the item is not all that is in scope.
    pub fn order_keys_of(&self, item: &Item<'_>) -> Result<Vec<Value>, SqlError> {
        if !self.query.bound.is_over_whole_items() {
            return Err(SqlError::Refused("the sort keys of a join are those of its rows".to_owned()));
        }
        Run::new(&self.surroundings, &self.query.computed, None).order_keys(&self.query.bound, item)
    }

    /// The value of an expression that uses nothing in scope.
    pub(crate) fn constant(&self, expr: &Expr) -> Result<Value, SqlError> {
        Run::new(&self.surroundings, &self.query.computed, None).constant(expr)
    }

    fn check_item_by_item(&self) -> Result<(), SqlError> {
        if self.is_item_by_item {
            return Ok(());
        }
        Err(SqlError::Refused("the query cannot be evaluated item by item".to_owned()))
    }
}
