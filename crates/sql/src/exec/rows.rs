//! From tuples to rows: projection, ORDER BY, DISTINCT, OFFSET and LIMIT.
//!
//! Rows that are undefined are dropped before they are counted: clients apply TOP and OFFSET across partitions to
//! the rows they get, so counting rows that no client ever sees would make the answer depend on partitioning.

use std::cmp::Ordering;
use std::collections::HashSet;

use quire_value::Value;

use crate::SqlError;
use crate::bound::{OrderItem, Query};
use crate::environment::Budget;

use super::{Emit, Flow, Run, Scope, approximate_size};

/// A sort buffer is cut back to the rows that can still be asked for when it has grown by this many.
const SORT_SLACK: usize = 4_096;

impl Run<'_> {
    /// Emits every row of a subquery in the scope of the row around it.
    pub(super) fn rows(
        &self,
        query: &Query,
        scope: Option<&Scope<'_>>,
        emit: &mut Emit<'_>,
    ) -> Result<Flow, SqlError> {
        self.rows_between(query, query.offset, query.limit, scope, emit)
    }

    pub(super) fn rows_between(
        &self,
        query: &Query,
        offset: u64,
        limit: Option<u64>,
        scope: Option<&Scope<'_>>,
        emit: &mut Emit<'_>,
    ) -> Result<Flow, SqlError> {
        let mut tail =
            Tail { budget: self.budget(), seen: HashSet::new(), query, skip: offset, take: limit, emit };
        if tail.take == Some(0) {
            return Ok(Flow::Continue(()));
        }
        let enough = if query.order_by.is_empty() {
            self.projected(query, scope, &mut |scope| {
                let row = self.evaluate(&query.projection, scope)?;
                tail.push(self.own(row)?)
            })?
        } else {
            self.sorted(query, scope, &mut |row| tail.push(row))?
        };
        // A limit reached ends this query, not the one around it.
        Ok(if tail.stopped_outside(enough) { Flow::Break(()) } else { Flow::Continue(()) })
    }

    /// Visits the scopes to project from: tuples, or groups of them.
    fn projected(
        &self,
        query: &Query,
        scope: Option<&Scope<'_>>,
        visit: &mut super::Visit<'_>,
    ) -> Result<Flow, SqlError> {
        match &query.grouping {
            Some(grouping) => self.groups(query, grouping, scope, visit),
            None => self.filtered(query, scope, visit),
        }
    }

    fn sorted(
        &self,
        query: &Query,
        scope: Option<&Scope<'_>>,
        emit: &mut Emit<'_>,
    ) -> Result<Flow, SqlError> {
        let mut buffer = SortBuffer::new(self.budget(), query);
        let _all = self.projected(query, scope, &mut |scope| {
            let keys = query.order_by.iter().map(|item| self.own(self.evaluate(&item.expr, scope)?));
            let keys = keys.collect::<Result<Vec<Value>, SqlError>>()?;
            let row = self.evaluate(&query.projection, scope)?;
            if row.is_undefined() {
                return Ok(Flow::Continue(()));
            }
            buffer.push(keys, self.own(row)?)
        })?;
        for row in buffer.finish() {
            if emit(row)?.is_break() {
                return Ok(Flow::Break(()));
            }
        }
        Ok(Flow::Continue(()))
    }
}

/// What happens to rows in their final order.
struct Tail<'t, 'e> {
    budget: &'t Budget,
    query: &'t Query,
    seen: HashSet<Value>,
    skip: u64,
    take: Option<u64>,
    emit: &'t mut Emit<'e>,
}

impl Tail<'_, '_> {
    fn push(&mut self, row: Value) -> Result<Flow, SqlError> {
        if row.is_undefined() || !self.is_new(&row)? {
            return Ok(Flow::Continue(()));
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(Flow::Continue(()));
        }
        if let Some(take) = &mut self.take {
            *take -= 1;
        }
        if (self.emit)(row)?.is_break() {
            self.take = None;
            return Ok(Flow::Break(()));
        }
        Ok(if self.take == Some(0) { Flow::Break(()) } else { Flow::Continue(()) })
    }

    /// DISTINCT keeps the first of equals.
    fn is_new(&mut self, row: &Value) -> Result<bool, SqlError> {
        if !self.query.distinct {
            return Ok(true);
        }
        if self.seen.contains(row) {
            return Ok(false);
        }
        self.budget.hold(approximate_size(row))?;
        Ok(self.seen.insert(row.clone()))
    }

    /// Whether it was the receiver, and not our own limit, that had enough.
    fn stopped_outside(&self, flow: Flow) -> bool {
        flow.is_break() && self.take != Some(0)
    }
}

/// Rows with their sort keys. With a limit, only as many as it can still ask for are kept.
struct SortBuffer<'b> {
    budget: &'b Budget,
    order_by: &'b [OrderItem],
    rows: Vec<(Vec<Value>, Value)>,
    keep: Option<usize>,
}

impl<'b> SortBuffer<'b> {
    fn new(budget: &'b Budget, query: &'b Query) -> SortBuffer<'b> {
        let wanted = query.limit.and_then(|limit| usize::try_from(limit.saturating_add(query.offset)).ok());
        SortBuffer {
            budget,
            order_by: &query.order_by,
            rows: Vec::new(),
            keep: wanted.filter(|_| !query.distinct),
        }
    }

    fn push(&mut self, keys: Vec<Value>, row: Value) -> Result<Flow, SqlError> {
        self.budget.hold(weight(&keys, &row))?;
        self.rows.push((keys, row));
        if let Some(keep) = self.keep.filter(|keep| self.rows.len() >= keep.saturating_add(SORT_SLACK)) {
            self.sort();
            for (keys, row) in self.rows.drain(keep..) {
                self.budget.release(weight(&keys, &row));
            }
        }
        Ok(Flow::Continue(()))
    }

    /// Stable, so that ties keep the order of the items.
    fn sort(&mut self) {
        let order_by = self.order_by;
        self.rows.sort_by(|(left, _), (right, _)| compare(order_by, left, right));
    }

    fn finish(mut self) -> impl Iterator<Item = Value> {
        self.sort();
        self.rows.into_iter().map(|(_, row)| row)
    }
}

fn weight(keys: &[Value], row: &Value) -> usize {
    keys.iter().map(approximate_size).sum::<usize>() + approximate_size(row)
}

fn compare(order_by: &[OrderItem], left: &[Value], right: &[Value]) -> Ordering {
    let each = order_by.iter().zip(left.iter().zip(right)).map(|(item, (left, right))| {
        let ordering = left.total_cmp(right);
        if item.descending { ordering.reverse() } else { ordering }
    });
    each.into_iter().find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
}
