//! From tuples to rows: projection, ORDER BY, DISTINCT, OFFSET and LIMIT.
//!
//! Undefined rows are dropped before they are counted. Clients apply TOP and OFFSET across partitions to the rows
//! they get, so counting rows that no client sees would make the result depend on partitioning.

use std::cmp::Ordering;

use quire_value::{Value, key};

use crate::bind::bound::{Expr, OrderItem, Query};
use crate::data::{
    Datum, Fields, Row, RowForm, ValueRef, approximate_size, invalid_record, put_number, put_value,
};
use crate::error::SqlError;
use crate::limits::{Meter, RetainedMemory};

use super::distinct::{DistinctRows, InsertOutcome, RowMemory, WhenFull};
use super::spill::{SortedRecords, Sorter, StepLimit};
use super::{Emit, Execution, Flow, Scope};

/// The sort buffer is cut back to the needed rows when it has grown by this many rows.
const SORT_SLACK: usize = 4_096;

/// Which rows of a top-level query are wanted.
#[derive(Clone, Copy)]
pub(crate) struct RowWindow {
    pub offset: u64,
    pub limit: Option<u64>,
    /// The items come in the order of ORDER BY, or the caller sorts.
    pub in_order: bool,
    /// See [`crate::query::Query::ties_descending`].
    pub ties_descending: bool,
}

/// Takes the sort keys of a row, and the row.
pub(crate) type EmitKeyed<'e> = dyn FnMut(Vec<Value>, Row<'_>) -> Result<Flow, SqlError> + 'e;

impl Execution<'_> {
    /// Emits every row of a subquery in the scope of the outer row.
    pub(super) fn rows(
        &self,
        query: &Query,
        scope: Option<&Scope<'_, '_>>,
        emit: &mut Emit<'_>,
    ) -> Result<Flow, SqlError> {
        let mut seen = DistinctRows::default();
        let kept = RetainedMemory::new(self.meter());
        let distinct =
            query.distinct.then(|| Distinct::new(&mut seen, &kept, WhenFull::Defer, StepLimit::of(query)));
        let mut tail = RowOutput { run: self, distinct, is_top: false, skip: 0, take: None, emit };
        let mut rows = || {
            let flow = self.projected(query, scope, &mut |scope| tail.push(self.project(query, scope)?))?;
            tail.finish(flow)
        };
        let Some(missing) = &self.missing_call else { return rows() };
        // A subquery with a skipped row has no value.
        let missing_outside = missing.replace(false);
        let flow = rows();
        if missing.replace(missing_outside) { Err(SqlError::CallPending) } else { flow }
    }

    /// Emits the rows of a top-level query. `emitted`: the rows that DISTINCT emitted before.
    pub fn top_rows(
        &self,
        query: &Query,
        window: RowWindow,
        seen: &mut DistinctRows,
        emit: &mut Emit<'_>,
    ) -> Result<(), SqlError> {
        let kept = RetainedMemory::until_meter_drops(self.meter());
        // A caller that evaluates item by item needs the rows of each item at once.
        let when_full = if window.in_order { WhenFull::Fail } else { WhenFull::Defer };
        let distinct = query.distinct.then(|| Distinct::new(seen, &kept, when_full, StepLimit::of(query)));
        let mut tail =
            RowOutput { run: self, distinct, is_top: true, skip: window.offset, take: window.limit, emit };
        if tail.take == Some(0) {
            return Ok(());
        }
        let flow = if query.order_by.is_empty() || window.in_order {
            self.projected(query, None, &mut |scope| tail.push(self.project(query, scope)?))?
        } else {
            self.sorted(query, window, &mut |row| tail.push(row))?
        };
        let _enough = tail.finish(flow)?;
        Ok(())
    }

    /// Emits the rows of a top-level query with their sort keys, in the order of the items.
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

    /// The select list stays in parts if all names differ.
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
        Ok(Row(RowForm::Members(members)))
    }

    /// An owned copy of a row. Spends steps.
    pub(super) fn own_row(&self, row: Row<'_>) -> Result<Value, SqlError> {
        match row.0 {
            RowForm::Datum(datum) => self.own(datum),
            RowForm::Members(_) => {
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

    /// Visits the scopes of the projection: tuples, or groups.
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

    fn sorted(&self, query: &Query, window: RowWindow, emit: &mut Emit<'_>) -> Result<Flow, SqlError> {
        let mut buffer = SortBuffer::new(RetainedMemory::new(self.meter()), query, window);
        let _all = self.projected(query, None, &mut |scope| {
            let keys = query.order_by.iter().map(|item| self.evaluate(&item.expr, scope));
            let keys = keys.collect::<Result<Vec<Datum<'_>>, SqlError>>()?;
            let row = self.project(query, scope)?;
            if row.is_undefined() || buffer.is_past_limit(&keys, self.item.get()) {
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
        match buffer.finish()? {
            SortedRows::InMemory(rows, _kept) => {
                for row in rows {
                    self.meter().restart_steps();
                    if emit(Row::from(Datum::Owned(row)))?.is_break() {
                        return Ok(Flow::Break(()));
                    }
                }
            }
            SortedRows::Spilled(mut rows) => {
                while let Some((_, payload)) = rows.next_record()? {
                    let mark = self.meter().mark();
                    self.meter().build(2 * payload.len())?;
                    let row = Fields(payload).value()?;
                    if emit(Row::from(Datum::Owned(row)))?.is_break() {
                        return Ok(Flow::Break(()));
                    }
                    self.meter().restore(mark);
                }
            }
        }
        Ok(Flow::Continue(()))
    }
}

/// The last stage: applies DISTINCT, OFFSET and LIMIT, then emits.
struct RowOutput<'t, 'e, 'r> {
    run: &'t Execution<'r>,
    distinct: Option<Distinct<'t>>,
    /// The outermost query. Its rows repeat with the multiplicity of the item; a subquery leaves that to the outer
    /// query.
    is_top: bool,
    skip: u64,
    take: Option<u64>,
    emit: &'t mut Emit<'e>,
}

impl RowOutput<'_, '_, '_> {
    /// Breaks when no more rows are needed.
    fn push(&mut self, row: Row<'_>) -> Result<Flow, SqlError> {
        if row.is_undefined() {
            return Ok(Flow::Continue(()));
        }
        let multiplicity = &self.run.multiplicity;
        let Some(distinct) = &mut self.distinct else {
            let times = if self.is_top { multiplicity.get() } else { 1 };
            return self.push_times(row, times);
        };
        self.run.meter().spend_bytes(row.approximate_size())?;
        if !distinct.insert(self.run.meter(), &row, self.run.item.get())? {
            return Ok(Flow::Continue(()));
        }
        let times = multiplicity.replace(1);
        let flow = self.push_times(row, 1);
        multiplicity.set(times);
        flow
    }

    /// After the last row: emits the rows that DISTINCT deferred.
    fn finish(&mut self, flow: Flow) -> Result<Flow, SqlError> {
        let Some(distinct) = self.distinct.as_mut().filter(|_| flow.is_continue()) else { return Ok(flow) };
        let Some(mut rows) = distinct.finish()? else { return Ok(flow) };
        let run = self.run;
        let (times, item) = (run.multiplicity.replace(1), run.item.get());
        let mut flow = flow;
        while let Some((_, payload)) = rows.next_record()? {
            let mark = run.meter().mark();
            run.meter().build(2 * payload.len())?;
            let mut fields = Fields(payload);
            run.item.set(fields.number()?);
            flow = self.push_times(Row::from(Datum::Owned(fields.value()?)), 1)?;
            if flow.is_break() {
                break;
            }
            run.meter().restore(mark);
        }
        run.multiplicity.set(times);
        run.item.set(item);
        Ok(flow)
    }

    fn push_times(&mut self, row: Row<'_>, times: u64) -> Result<Flow, SqlError> {
        let skipped = self.skip.min(times - 1);
        self.skip -= skipped;
        for _ in 1..times - skipped {
            self.run.meter().spend(1)?;
            if self.count(row.reborrow())?.is_break() {
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

/// Emits each row that differs from all earlier rows. While there is memory, new rows are emitted at once. After
/// that, rows that are not in the table are deferred: they are sorted by value to find the first of equal rows, then
/// sorted back by their sequence number.
struct Distinct<'t> {
    seen: &'t mut DistinctRows,
    memory: RowMemory<'t>,
    steps: StepLimit,
    deferred: Option<Sorter<'t>>,
    /// Number of deferred rows.
    count: u64,
}

impl<'t> Distinct<'t> {
    fn new(
        seen: &'t mut DistinctRows,
        kept: &'t RetainedMemory<'t>,
        when_full: WhenFull,
        steps: StepLimit,
    ) -> Distinct<'t> {
        Distinct { seen, memory: RowMemory { kept, when_full }, steps, deferred: None, count: 0 }
    }

    /// Whether to emit the row now.
    fn insert(&mut self, meter: &'t Meter, row: &Row<'_>, item: u64) -> Result<bool, SqlError> {
        match self.seen.insert(row, self.memory)? {
            InsertOutcome::New => return Ok(true),
            InsertOutcome::Duplicate => return Ok(false),
            InsertOutcome::NoMemory => self.memory.when_full = WhenFull::DeferAll,
        }
        let mark = meter.mark();
        meter.build(2 * row.approximate_size())?;
        let value = row.to_value();
        let (mut record_key, mut payload) = (Vec::new(), Vec::new());
        key::encode(&value, &mut record_key);
        record_key.extend(self.count.to_be_bytes());
        put_number(item, &mut payload);
        put_value(&value, &mut payload);
        self.count += 1;
        self.deferred.get_or_insert_with(|| Sorter::new(meter, self.steps)).push(&record_key, &payload)?;
        meter.restore(mark);
        Ok(false)
    }

    /// The deferred rows without duplicates, in the order in which they came.
    fn finish(&mut self) -> Result<Option<SortedRecords<'t>>, SqlError> {
        let Some(rows) = self.deferred.take() else { return Ok(None) };
        self.seen.clear();
        self.memory.kept.release_all();
        let mut turns = Sorter::new(rows.meter(), self.steps);
        let mut rows = rows.finish()?;
        let mut before: Vec<u8> = Vec::new();
        while let Some((record_key, payload)) = rows.next_record()? {
            let (value, turn) = record_key.split_last_chunk::<8>().ok_or_else(invalid_record)?;
            if value != before {
                turns.push(turn, payload)?;
                before.clear();
                before.extend_from_slice(value);
            }
        }
        Ok(Some(turns.finish()?))
    }
}

/// Rows with their sort keys and item numbers. With a limit, only the needed rows are kept.
struct SortBuffer<'b> {
    kept: RetainedMemory<'b>,
    order_by: &'b [OrderItem],
    rows: Vec<(Vec<Value>, u64, Value)>,
    ties_descending: bool,
    keep: Option<usize>,
    /// The buffer has been cut back to the needed rows.
    is_cut: bool,
    /// Takes all rows when they no longer fit into memory.
    spilled: Option<Sorter<'b>>,
    spilled_count: u64,
}

enum SortedRows<'b> {
    InMemory(std::vec::IntoIter<Value>, RetainedMemory<'b>),
    Spilled(SortedRecords<'b>),
}

impl<'b> SortBuffer<'b> {
    fn new(kept: RetainedMemory<'b>, query: &'b Query, window: RowWindow) -> SortBuffer<'b> {
        let wanted = window.limit.and_then(|limit| usize::try_from(limit.saturating_add(window.offset)).ok());
        SortBuffer {
            kept,
            order_by: &query.order_by,
            rows: Vec::new(),
            ties_descending: window.ties_descending,
            keep: wanted.filter(|_| !query.distinct),
            is_cut: false,
            spilled: None,
            spilled_count: 0,
        }
    }

    /// Whether the buffer has enough rows that come before this one.
    fn is_past_limit(&self, keys: &[Datum<'_>], item: u64) -> bool {
        let Some(last) = self.keep.filter(|_| self.is_cut).and_then(|keep| self.rows.get(keep - 1)) else {
            return false;
        };
        let each = self.order_by.iter().zip(keys.iter().zip(&last.0));
        let ordering = first_difference(each.map(|(item, (key, last))| {
            item.apply_direction(key.value_ref().sort_cmp(ValueRef::Value(last)))
        }));
        !ordering.then(compare_ties(self.ties_descending, item, last.1)).is_lt()
    }

    fn push(&mut self, keys: Vec<Value>, item: u64, row: Value) -> Result<(), SqlError> {
        if self.spilled.is_some() || !self.kept.try_retain_bytes(row_bytes(&keys, &row))? {
            self.spill()?;
            return self.spill_row(&keys, item, &row);
        }
        self.rows.push((keys, item, row));
        if let Some(keep) = self.keep.filter(|keep| self.rows.len() >= keep.saturating_add(SORT_SLACK)) {
            self.sort();
            self.is_cut = keep > 0;
            for (keys, _, row) in self.rows.drain(keep..) {
                self.kept.release(row_bytes(&keys, &row));
            }
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<(), SqlError> {
        self.is_cut = false;
        for (keys, item, row) in std::mem::take(&mut self.rows) {
            self.spill_row(&keys, item, &row)?;
        }
        self.kept.release_all();
        Ok(())
    }

    /// Sort order: sort keys, item number, then the order of the rows of one item.
    fn spill_row(&mut self, keys: &[Value], item: u64, row: &Value) -> Result<(), SqlError> {
        let mut record_key = Vec::new();
        for (order, value) in self.order_by.iter().zip(keys) {
            let start = record_key.len();
            key::encode_sort(value, &mut record_key);
            if order.descending {
                record_key[start..].iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        record_key.extend((if self.ties_descending { !item } else { item }).to_be_bytes());
        record_key.extend(self.spilled_count.to_be_bytes());
        self.spilled_count += 1;
        let mut payload = Vec::new();
        put_value(row, &mut payload);
        let meter = self.kept.meter();
        let sorter = self.spilled.get_or_insert_with(|| Sorter::new(meter, StepLimit::PerRecord));
        sorter.push(&record_key, &payload)
    }

    /// Stable, so that the rows of an item keep their order.
    fn sort(&mut self) {
        let (order_by, ties_descending) = (self.order_by, self.ties_descending);
        self.rows.sort_by(|(left, left_item, _), (right, right_item, _)| {
            compare(order_by, left, right)
                .then_with(|| compare_ties(ties_descending, *left_item, *right_item))
        });
    }

    fn finish(mut self) -> Result<SortedRows<'b>, SqlError> {
        if let Some(spilled) = self.spilled {
            return Ok(SortedRows::Spilled(spilled.finish()?));
        }
        // The sort is not interrupted: the memory limit bounds its time.
        let meter = self.kept.meter();
        meter.allowance().check_cancelled()?;
        self.sort();
        meter.allowance().check_cancelled()?;
        let rows: Vec<Value> = self.rows.into_iter().map(|(_, _, row)| row).collect();
        Ok(SortedRows::InMemory(rows.into_iter(), self.kept))
    }
}

fn row_bytes(keys: &[Value], row: &Value) -> usize {
    keys.iter().map(approximate_size).sum::<usize>() + approximate_size(row)
}

fn compare(order_by: &[OrderItem], left: &[Value], right: &[Value]) -> Ordering {
    let each = order_by.iter().zip(left.iter().zip(right));
    let ordering = |left, right| ValueRef::Value(left).sort_cmp(ValueRef::Value(right));
    first_difference(each.map(|(item, (left, right))| item.apply_direction(ordering(left, right))))
}

fn compare_ties(falls: bool, left: u64, right: u64) -> Ordering {
    if falls { right.cmp(&left) } else { left.cmp(&right) }
}

fn first_difference(mut orderings: impl Iterator<Item = Ordering>) -> Ordering {
    orderings.find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
}

impl OrderItem {
    fn apply_direction(&self, ordering: Ordering) -> Ordering {
        if self.descending { ordering.reverse() } else { ordering }
    }
}
