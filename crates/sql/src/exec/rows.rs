//! From tuples to rows: projection, ORDER BY, DISTINCT, OFFSET and LIMIT.
//!
//! Rows that are undefined are dropped before they are counted: clients apply TOP and OFFSET across partitions to the
//! rows they get, so counting rows that no client ever sees would make the answer depend on partitioning.

use std::cmp::Ordering;

use quire_value::Value;

use crate::SqlError;
use crate::bound::{Expr, OrderItem, Query};
use crate::meter::Kept;

use super::datum::{Datum, View};
use super::row::{Row, Shape};
use super::seen::Seen;
use super::{Emit, Flow, Run, Scope, approximate_size};

/// A sort buffer is cut back to the rows that can still be asked for when it has grown by this many.
const SORT_SLACK: usize = 4_096;

/// Which rows of a top-level query are wanted, and how.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub offset: u64,
    pub limit: Option<u64>,
    /// The items come in the order of ORDER BY, or the caller sorts.
    pub in_order: bool,
    /// See [`crate::Query::ties_fall`].
    pub ties_fall: bool,
}

/// Takes a row with its sort keys.
pub(crate) type EmitKeyed<'e> = dyn FnMut(Vec<Value>, Row<'_>) -> Result<Flow, SqlError> + 'e;

impl Run<'_> {
    /// Emits every row of a subquery in the scope of the row around it.
    pub(super) fn rows(
        &self,
        query: &Query,
        scope: Option<&Scope<'_, '_>>,
        emit: &mut Emit<'_>,
    ) -> Result<Flow, SqlError> {
        let mut seen = query.distinct.then(Seen::default);
        let kept = Kept::new(self.meter());
        let seen = seen.as_mut().map(|seen| (seen, &kept));
        let mut tail = Tail { run: self, seen, is_top: false, skip: 0, take: None, emit };
        let mut rows = || self.projected(query, scope, &mut |scope| tail.push(self.project(query, scope)?));
        let Some(missed) = &self.foresight else { return rows() };
        // Without some of its rows a subquery has no value either.
        let missed_outside = missed.replace(false);
        let flow = rows();
        if missed.replace(missed_outside) { Err(SqlError::CallPending) } else { flow }
    }

    /// Emits the rows of a top-level query. `seen`: what DISTINCT has let through before.
    pub fn top_rows(
        &self,
        query: &Query,
        window: Window,
        seen: &mut Seen,
        emit: &mut Emit<'_>,
    ) -> Result<(), SqlError> {
        let kept = Kept::for_good(self.meter());
        let seen = query.distinct.then_some((seen, &kept));
        let mut tail = Tail { run: self, seen, is_top: true, skip: window.offset, take: window.limit, emit };
        if tail.take == Some(0) {
            return Ok(());
        }
        let _enough = if query.order_by.is_empty() || window.in_order {
            self.projected(query, None, &mut |scope| tail.push(self.project(query, scope)?))?
        } else {
            self.sorted(query, window, &mut |row| tail.push(row))?
        };
        Ok(())
    }

    /// Emits the rows of a top-level query with their sort keys, as they come.
    pub fn keyed_rows(&self, query: &Query, emit: &mut EmitKeyed<'_>) -> Result<(), SqlError> {
        let _enough = self.projected(query, None, &mut |scope| {
            let row = self.project(query, scope)?;
            if row.is_undefined() {
                return Ok(Flow::Continue(()));
            }
            emit(self.sort_keys(query, scope)?, row)
        })?;
        Ok(())
    }

    /// The select list stays in parts where nothing but their order makes the object.
    pub(super) fn project<'d>(
        &'d self,
        query: &'d Query,
        scope: Option<&Scope<'_, 'd>>,
    ) -> Result<Row<'d>, SqlError> {
        let Expr::Object(properties) = &query.projection else {
            return Ok(Row::from(self.evaluate(&query.projection, scope)?));
        };
        if !query.names_differ {
            return Ok(Row::from(self.evaluate(&query.projection, scope)?));
        }
        self.meter().spend(1)?;
        let mut members = Vec::with_capacity(properties.len());
        for (name, expr) in properties {
            let datum = self.evaluate(expr, scope)?;
            if !datum.is_undefined() {
                members.push((name.as_str(), datum));
            }
        }
        Ok(Row(Shape::Members(members)))
    }

    /// An owned copy of a row, which is work.
    pub(super) fn own_row(&self, row: Row<'_>) -> Result<Value, SqlError> {
        match row.0 {
            Shape::Datum(datum) => self.own(datum),
            Shape::Members(_) => {
                let bytes = row.approximate_size();
                self.meter().build(bytes)?;
                self.meter().spend_bytes(bytes)?;
                Ok(row.into_value())
            }
        }
    }

    pub(super) fn sort_keys(
        &self,
        query: &Query,
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<Vec<Value>, SqlError> {
        query.order_by.iter().map(|item| self.own(self.evaluate(&item.expr, scope)?)).collect()
    }

    /// Visits the scopes to project from: tuples, or groups of them.
    fn projected(
        &self,
        query: &Query,
        scope: Option<&Scope<'_, '_>>,
        visit: &mut super::Visit<'_>,
    ) -> Result<Flow, SqlError> {
        match &query.grouping {
            Some(grouping) => self.groups(query, grouping, scope, visit),
            None => self.filtered(query, scope, visit),
        }
    }

    fn sorted(&self, query: &Query, window: Window, emit: &mut Emit<'_>) -> Result<Flow, SqlError> {
        let mut buffer = SortBuffer::new(Kept::new(self.meter()), query, window);
        let _all = self.projected(query, None, &mut |scope| {
            let keys = query.order_by.iter().map(|item| self.evaluate(&item.expr, scope));
            let keys = keys.collect::<Result<Vec<Datum<'_>>, SqlError>>()?;
            let row = self.project(query, scope)?;
            if row.is_undefined() || buffer.comes_too_late(&keys, self.item.get()) {
                return Ok(Flow::Continue(()));
            }
            let keys = keys.into_iter().map(|key| self.own(key)).collect::<Result<Vec<Value>, SqlError>>()?;
            let row = self.own_row(row)?;
            let times = if query.distinct { 1 } else { self.multiplicity.get() };
            for _ in 1..times {
                self.meter().spend(1)?;
                buffer.push(keys.clone(), self.item.get(), row.clone())?;
            }
            buffer.push(keys, self.item.get(), row)?;
            Ok(Flow::Continue(()))
        })?;
        // Sorting is not interrupted: memory bounds how long it takes.
        self.meter().allowance().look()?;
        let (rows, _kept) = buffer.finish();
        self.meter().allowance().look()?;
        for row in rows {
            if emit(Row::from(Datum::Owned(row)))?.is_break() {
                return Ok(Flow::Break(()));
            }
        }
        Ok(Flow::Continue(()))
    }
}

/// What happens to rows in their final order.
struct Tail<'t, 'e, 'r> {
    run: &'t Run<'r>,
    seen: Option<(&'t mut Seen, &'t Kept<'t>)>,
    /// Not inside of a query. A row of an item that stands for several comes as often; inside, that is left to the query
    /// around.
    is_top: bool,
    skip: u64,
    take: Option<u64>,
    emit: &'t mut Emit<'e>,
}

impl Tail<'_, '_, '_> {
    /// Breaks when nothing more is wanted.
    fn push(&mut self, row: Row<'_>) -> Result<Flow, SqlError> {
        if row.is_undefined() {
            return Ok(Flow::Continue(()));
        }
        let multiplicity = &self.run.multiplicity;
        let Some((seen, kept)) = &mut self.seen else {
            let times = if self.is_top { multiplicity.get() } else { 1 };
            return self.push_times(row, times);
        };
        self.run.meter().spend_bytes(row.approximate_size())?;
        if !seen.insert(&row, kept)? {
            return Ok(Flow::Continue(()));
        }
        let times = multiplicity.replace(1);
        let flow = self.push_times(row, 1);
        multiplicity.set(times);
        flow
    }

    fn push_times(&mut self, row: Row<'_>, times: u64) -> Result<Flow, SqlError> {
        let skipped = self.skip.min(times - 1);
        self.skip -= skipped;
        for _ in 1..times - skipped {
            self.run.meter().spend(1)?;
            if self.count(row.again())?.is_break() {
                return Ok(Flow::Break(()));
            }
        }
        self.count(row)
    }

    fn count(&mut self, row: Row<'_>) -> Result<Flow, SqlError> {
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(Flow::Continue(()));
        }
        if let Some(take) = &mut self.take {
            *take -= 1;
        }
        let flow = (self.emit)(row)?;
        Ok(if self.take == Some(0) { Flow::Break(()) } else { flow })
    }
}

/// Rows with their sort keys and the numbers of their items. With a limit, only as many as it can still ask for are kept.
struct SortBuffer<'b> {
    kept: Kept<'b>,
    order_by: &'b [OrderItem],
    rows: Vec<(Vec<Value>, u64, Value)>,
    ties_fall: bool,
    keep: Option<usize>,
    /// It has been cut back to as many rows as are kept.
    is_cut: bool,
}

impl<'b> SortBuffer<'b> {
    fn new(kept: Kept<'b>, query: &'b Query, window: Window) -> SortBuffer<'b> {
        let wanted = window.limit.and_then(|limit| usize::try_from(limit.saturating_add(window.offset)).ok());
        SortBuffer {
            kept,
            order_by: &query.order_by,
            rows: Vec::new(),
            ties_fall: window.ties_fall,
            keep: wanted.filter(|_| !query.distinct),
            is_cut: false,
        }
    }

    /// As many rows are there that come before it.
    fn comes_too_late(&self, keys: &[Datum<'_>], item: u64) -> bool {
        let Some(last) = self.keep.filter(|_| self.is_cut).and_then(|keep| self.rows.get(keep - 1)) else {
            return false;
        };
        let each = self.order_by.iter().zip(keys.iter().zip(&last.0));
        let ordering = first_difference(
            each.map(|(item, (key, last))| item.directed(key.view().total_cmp(View::Value(last)))),
        );
        !ordering.then(tie(self.ties_fall, item, last.1)).is_lt()
    }

    fn push(&mut self, keys: Vec<Value>, item: u64, row: Value) -> Result<(), SqlError> {
        self.kept.keep(weight(&keys, &row))?;
        self.rows.push((keys, item, row));
        if let Some(keep) = self.keep.filter(|keep| self.rows.len() >= keep.saturating_add(SORT_SLACK)) {
            self.sort();
            self.is_cut = keep > 0;
            for (keys, _, row) in self.rows.drain(keep..) {
                self.kept.release(weight(&keys, &row));
            }
        }
        Ok(())
    }

    /// Stable, so that the rows of an item keep their order.
    fn sort(&mut self) {
        let (order_by, ties_fall) = (self.order_by, self.ties_fall);
        self.rows.sort_by(|(left, left_item, _), (right, right_item, _)| {
            compare(order_by, left, right).then_with(|| tie(ties_fall, *left_item, *right_item))
        });
    }

    fn finish(mut self) -> (impl Iterator<Item = Value>, Kept<'b>) {
        self.sort();
        (self.rows.into_iter().map(|(_, _, row)| row), self.kept)
    }
}

fn weight(keys: &[Value], row: &Value) -> usize {
    keys.iter().map(approximate_size).sum::<usize>() + approximate_size(row)
}

fn compare(order_by: &[OrderItem], left: &[Value], right: &[Value]) -> Ordering {
    let each = order_by.iter().zip(left.iter().zip(right));
    first_difference(each.map(|(item, (left, right))| item.directed(left.total_cmp(right))))
}

fn tie(falls: bool, left: u64, right: u64) -> Ordering {
    if falls { right.cmp(&left) } else { left.cmp(&right) }
}

fn first_difference(mut orderings: impl Iterator<Item = Ordering>) -> Ordering {
    orderings.find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
}

impl OrderItem {
    fn directed(&self, ordering: Ordering) -> Ordering {
        if self.descending { ordering.reverse() } else { ordering }
    }
}
