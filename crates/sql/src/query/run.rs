//! Runs a query over all items of a scan.

use std::ops::ControlFlow;

use quire_value::Value;

use crate::data::{Datum, Item, Row};
use crate::error::SqlError;
use crate::exec::{self, DistinctRows, Environment, Execution, Ranked, RowWindow};
use crate::functions::Externals;
use crate::limits::{Allowance, Meter};

use super::{Evaluator, Query};

/// Takes an item and its multiplicity.
pub type ItemSink<'s> = dyn FnMut(&Item<'_>, u64) -> ControlFlow<()> + 's;

impl Query {
    /// Starts evaluation item by item.
    pub fn start(&self) -> Result<Evaluator<'_>, SqlError> {
        self.start_with(Externals::NONE)
    }

    /// Starts evaluation item by item within another allowance than that of its environment.
    pub fn start_within(&self, allowance: &Allowance) -> Result<Evaluator<'_>, SqlError> {
        self.check_clock()?;
        let allowance = allowance.clone();
        let Environment { now_ticks, random_seed, geospatial, .. } = self.environment;
        let environment = Environment { now_ticks, random_seed, geospatial, allowance };
        let context = exec::eval_context(&environment, &self.values, &self.patterns, Externals::NONE);
        let is_per_item = self.is_per_item();
        Ok(Evaluator { query: self, is_per_item, context, seen: DistinctRows::default() })
    }

    /// Starts evaluation with the functions and links that the query was compiled with.
    pub fn start_with<'q>(&'q self, externals: Externals<'q>) -> Result<Evaluator<'q>, SqlError> {
        self.check_clock()?;
        let context = exec::eval_context(&self.environment, &self.values, &self.patterns, externals);
        let is_per_item = self.is_per_item();
        Ok(Evaluator { query: self, is_per_item, context, seen: DistinctRows::default() })
    }

    /// Emits all rows, with OFFSET and LIMIT applied, of the items of `scan`. The scan passes every item to its sink,
    /// with the number of equal items it stands for. It ends early when the sink breaks, or with its own error. A
    /// constant query reads no items. A break of `emit` ends the run.
    pub fn run<E: From<SqlError>>(
        &self,
        scan: &mut dyn FnMut(&mut ItemSink<'_>) -> Result<(), E>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), E> {
        self.run_with(Externals::NONE, scan, emit)
    }

    /// Runs with the functions and links that the query was compiled with.
    pub fn run_with<E: From<SqlError>>(
        &self,
        externals: Externals<'_>,
        scan: &mut dyn FnMut(&mut ItemSink<'_>) -> Result<(), E>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), E> {
        self.check_clock()?;
        let context = exec::eval_context(&self.environment, &self.values, &self.patterns, externals);
        let mut failure = None;
        let mut items = |take: &mut exec::ItemVisitor<'_>| adapt_scan(scan, take, &mut failure);
        let run = Execution::new(&context, &self.compiled.computed, Some(&mut items));
        let result = match &self.compiled.ranked {
            None => self.run_plain(&run, emit),
            Some(ranked) => self.run_ranked(&run, ranked, emit),
        };
        match failure {
            Some(failure) => Err(failure),
            None => Ok(result?),
        }
    }

    /// The row of a query whose aggregates are known: see [`Query::text_statistics`].
    pub fn run_with_aggregates(
        &self,
        externals: Externals<'_>,
        aggregates: Vec<Value>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        self.check_clock()?;
        let context = exec::eval_context(&self.environment, &self.values, &self.patterns, externals);
        let run = Execution::new(&context, &self.compiled.computed, None).with_aggregates(aggregates);
        self.run_plain(&run, emit)
    }

    fn run_plain(
        &self,
        run: &Execution<'_>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        let window = RowWindow {
            offset: self.compiled.bound.offset,
            limit: self.compiled.bound.limit,
            in_order: false,
            ties_descending: self.ties_descending(),
        };
        run.top_rows(&self.compiled.bound, window, &mut DistinctRows::default(), &mut |row| Ok(emit(&row)))
    }

    fn run_ranked(
        &self,
        run: &Execution<'_>,
        ranked: &Ranked,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        // Until the last row is emitted.
        let meter = self.environment.allowance.meter();
        let mut rows = CollectedRows::new(&meter);
        self.run_plain(run, &mut |row| rows.push(row))?;
        for row in ranked.rows(rows.finish()?) {
            if emit(&Row::from(Datum::Owned(row))).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// All rows over items in memory: the reference for every other way to run the query. They count as kept memory until
    /// they are returned: a server sends rows as they are emitted.
    pub fn rows<'i>(&self, items: impl IntoIterator<Item = &'i Value>) -> Result<Vec<Value>, SqlError> {
        self.rows_with(Externals::NONE, items)
    }

    /// All rows, with the functions and links that the query was compiled with.
    pub fn rows_with<'i>(
        &self,
        externals: Externals<'_>,
        items: impl IntoIterator<Item = &'i Value>,
    ) -> Result<Vec<Value>, SqlError> {
        let mut items = items.into_iter();
        let meter = self.environment.allowance.meter();
        let mut rows = CollectedRows::new(&meter);
        let scan = &mut |sink: &mut ItemSink<'_>| {
            let _enough = items.try_for_each(|item| sink(&Item::value(item), 1));
            Ok::<(), SqlError>(())
        };
        self.run_with(externals, scan, &mut |row| rows.push(row))?;
        rows.finish()
    }

    fn check_clock(&self) -> Result<(), SqlError> {
        if self.compiled.uses_clock && self.environment.now_ticks.is_none() {
            return Err(SqlError::Refused("the query reads the time, but no time was given".to_owned()));
        }
        Ok(())
    }
}

/// Rows in memory, within the limits. They are kept memory of the meter.
pub(super) struct CollectedRows<'m> {
    rows: Vec<Value>,
    meter: &'m Meter,
    result: Result<(), SqlError>,
}

impl<'m> CollectedRows<'m> {
    pub fn new(meter: &'m Meter) -> CollectedRows<'m> {
        CollectedRows { rows: Vec::new(), meter, result: Ok(()) }
    }

    pub fn push(&mut self, row: &Row<'_>) -> ControlFlow<()> {
        self.result = row.check().and_then(|()| self.meter.retain_bytes(row.approximate_size()));
        if self.result.is_err() {
            return ControlFlow::Break(());
        }
        self.rows.push(row.to_value());
        ControlFlow::Continue(())
    }

    pub fn finish(self) -> Result<Vec<Value>, SqlError> {
        self.result.map(|()| self.rows)
    }
}

/// Adapts a scan with errors of the caller to one that fails with [`SqlError`].
fn adapt_scan<E>(
    scan: &mut dyn FnMut(&mut ItemSink<'_>) -> Result<(), E>,
    take: &mut exec::ItemVisitor<'_>,
    failure: &mut Option<E>,
) -> Result<exec::Flow, SqlError> {
    let mut result = Ok(ControlFlow::Continue(()));
    let fed = scan(&mut |item, multiplicity| {
        if !matches!(result, Ok(ControlFlow::Continue(()))) {
            return ControlFlow::Break(());
        }
        result = take(item, multiplicity);
        if matches!(result, Ok(ControlFlow::Continue(()))) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    match fed {
        Err(error) if result.is_ok() => {
            *failure = Some(error);
            Err(SqlError::Refused("reading items failed".to_owned()))
        }
        _ => result,
    }
}
