//! Runs a bound query by nested loops over items in their stored form. It uses no index and no plan: it is the
//! reference for every faster way, and it decides about every item that an index found.

mod distinct; // rows of DISTINCT
mod environment; // time, randomness and allowance of a run
mod evaluate; // expressions
pub(crate) mod fold; // folds constants at compile time
mod follow; // FOLLOW, REFERRERS and followed members
mod group; // GROUP BY and aggregates
mod operators; // comparison, arithmetic, bits
mod ranking; // ORDER BY RANK: scores, ranks, order
mod rows; // ORDER BY, DISTINCT, OFFSET LIMIT
mod scope; // the stack of values in scope
mod spill; // external merge sort

use std::cell::Cell;
use std::ops::ControlFlow;

use quire_value::Value;

use crate::bind::bound::{Expr, Input, Query, Source, Step};
use crate::data::{Datum, Item, Row, ValueRef};
use crate::error::SqlError;
use crate::functions::{EvalContext, Externals, GeometryCache, RegexCache, SearcherCache};
use crate::limits::Meter;

pub(crate) use self::distinct::DistinctRows;
pub use self::environment::Environment;
pub use self::ranking::{RankStatistics, fused_scores, rank_contribution};
pub(crate) use self::ranking::{Ranked, text_counts};
pub(crate) use self::rows::RowWindow;
pub(crate) use self::scope::Scope;
pub use self::spill::{SortRecord, SortedRecords, Sorter, StepLimit};

/// Continue, or break when there are enough rows.
pub(crate) type Flow = ControlFlow<()>;
pub(crate) type Emit<'e> = dyn FnMut(Row<'_>) -> Result<Flow, SqlError> + 'e;
type Visit<'v> = dyn FnMut(Option<&Scope<'_, '_>>) -> Result<Flow, SqlError> + 'v;
/// Takes an item and its multiplicity.
pub(crate) type ItemVisitor<'t> = dyn FnMut(&Item<'_>, u64) -> Result<Flow, SqlError> + 't;
/// Passes every item of the container to the visitor, in order, until the visitor breaks.
pub(crate) type ItemScan<'f> = dyn FnMut(&mut ItemVisitor<'_>) -> Result<Flow, SqlError> + 'f;

/// State that lasts over many items.
pub(crate) fn eval_context<'r>(
    environment: &Environment,
    parameters: &'r [Value],
    patterns: &'r RegexCache,
    externals: Externals<'r>,
) -> EvalContext<'r> {
    EvalContext {
        now_ticks: environment.now_ticks.unwrap_or(0),
        parameters,
        random: Cell::new(environment.random_seed),
        patterns,
        externals,
        searchers: SearcherCache::default(),
        geometries: GeometryCache::default(),
        geospatial: environment.geospatial,
        meter: environment.allowance.meter(),
        failure: Cell::new(None),
    }
}

/// One run of a query over the items of one scan. Cheap to create.
pub(crate) struct Execution<'r> {
    context: &'r EvalContext<'r>,
    computed: &'r [Expr],
    /// Taken by the source that reads the container; there is only one.
    scan: Cell<Option<&'r mut ItemScan<'r>>>,
    /// How many equal items the current item stands for.
    multiplicity: Cell<u64>,
    /// Number of items read so far.
    item: Cell<u64>,
    /// Set while calls of user-defined functions are only collected: rows that need a call without a value are
    /// skipped, and the cell records whether there was one.
    missing_call: Option<Cell<bool>>,
    /// Aggregates of the outermost query, where they are known without reading items.
    aggregates: Cell<Option<Vec<Value>>>,
}

impl<'r> Execution<'r> {
    pub fn new(
        context: &'r EvalContext<'r>,
        computed: &'r [Expr],
        scan: Option<&'r mut ItemScan<'r>>,
    ) -> Execution<'r> {
        Execution {
            context,
            computed,
            scan: Cell::new(scan),
            multiplicity: Cell::new(1),
            item: Cell::new(0),
            missing_call: None,
            aggregates: Cell::new(None),
        }
    }

    /// A run of a query whose aggregates are known.
    pub fn with_aggregates(self, aggregates: Vec<Value>) -> Execution<'r> {
        self.aggregates.set(Some(aggregates));
        self
    }

    /// A run that only collects calls.
    pub fn collecting_calls(
        context: &'r EvalContext<'r>,
        computed: &'r [Expr],
        scan: &'r mut ItemScan<'r>,
    ) -> Execution<'r> {
        Execution { missing_call: Some(Cell::new(false)), ..Execution::new(context, computed, Some(scan)) }
    }

    /// Evaluates every row of the query, to collect its calls.
    pub fn collect_calls(&self, query: &Query) -> Result<(), SqlError> {
        let _all = self.filtered(query, None, &mut |scope| {
            match &query.grouping {
                Some(grouping) => self.collect_group_calls(grouping, scope)?,
                None => {
                    self.sort_keys(query, scope)?;
                    self.collect_row_calls(query, scope)?;
                }
            }
            Ok(Flow::Continue(()))
        })?;
        Ok(())
    }

    /// A call without a value hides none of the other members of a select list.
    fn collect_row_calls(&self, query: &Query, scope: Option<&Scope<'_, '_>>) -> Result<(), SqlError> {
        let Expr::Object(members) = &query.projection else {
            return self.evaluate(&query.projection, scope).map(drop);
        };
        let mut pending = Ok(());
        for (_, member) in members.iter().filter(|(_, member)| !is_read_only(member)) {
            match self.evaluate(member, scope) {
                Err(SqlError::CallPending) => pending = Err(SqlError::CallPending),
                evaluated => drop(evaluated?),
            }
        }
        pending
    }

    /// Skips a row that needs a call without a value.
    fn skip_pending(&self, result: Result<Flow, SqlError>) -> Result<Flow, SqlError> {
        match (result, &self.missing_call) {
            (Err(SqlError::CallPending), Some(missing)) => {
                missing.set(true);
                Ok(Flow::Continue(()))
            }
            (result, _) => result,
        }
    }

    fn meter(&self) -> &Meter {
        &self.context.meter
    }

    /// The value of an expression without variables.
    pub fn constant(&self, expr: &Expr) -> Result<Value, SqlError> {
        let datum = self.evaluate(expr, None)?;
        self.own(datum)
    }

    /// The value of an expression with these values in scope, the first at level 0.
    pub fn evaluate_over(&self, expr: &Expr, values: &[ValueRef<'_>]) -> Result<Value, SqlError> {
        self.evaluate_over_scope(expr, values, None)
    }

    fn evaluate_over_scope(
        &self,
        expr: &Expr,
        values: &[ValueRef<'_>],
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<Value, SqlError> {
        match values.split_first() {
            Some((value, rest)) => self.evaluate_over_scope(expr, rest, Some(&Scope::value(*value, scope))),
            None => {
                let datum = self.evaluate(expr, scope)?;
                self.own(datum)
            }
        }
    }

    /// The sort keys of the item, where only the item is in scope.
    pub fn order_keys(&self, query: &Query, item: &Item<'_>) -> Result<Vec<Value>, SqlError> {
        self.meter().start_item();
        self.sort_keys(query, Some(&Scope::value(ValueRef::of(item), None)))
    }

    /// Whether any combination of the sources passes WHERE.
    pub fn any_tuple(&self, query: &Query) -> Result<bool, SqlError> {
        let mut found = false;
        let _first = self.filtered(query, None, &mut |_| {
            found = true;
            Ok(Flow::Break(()))
        })?;
        Ok(found)
    }

    /// Visits every combination of the sources, leftmost loop outermost.
    fn tuples(
        &self,
        sources: &[Source],
        scope: Option<&Scope<'_, '_>>,
        visit: &mut Visit<'_>,
    ) -> Result<Flow, SqlError> {
        let result = self.each_tuple(sources, scope, visit);
        self.skip_pending(result)
    }

    fn each_tuple(
        &self,
        sources: &[Source],
        scope: Option<&Scope<'_, '_>>,
        visit: &mut Visit<'_>,
    ) -> Result<Flow, SqlError> {
        let Some((source, rest)) = sources.split_first() else {
            self.meter().spend(1)?;
            return visit(scope);
        };
        match &source.input {
            Input::Container => self.each_item(&mut |item| {
                self.repeat_by_multiplicity(source, rest, &mut || {
                    self.bind(source, ValueRef::of(item), rest, scope, visit)
                })
            }),
            Input::Expr(Expr::Follow(follow)) if source.iterate && follow.is_array => {
                self.each_followed(follow, scope, &mut |item| {
                    self.tuples(rest, Some(&Scope::value(item, scope)), visit)
                })
            }
            Input::Expr(expr) => {
                let value = self.evaluate(expr, scope)?;
                self.bind(source, value.value_ref(), rest, scope, visit)
            }
            Input::Subquery(query) if query.reads_container() => self.rows(query, scope, &mut |row| {
                let row = self.datum_of(row)?;
                self.repeat_by_multiplicity(source, rest, &mut || {
                    self.bind(source, row.value_ref(), rest, scope, visit)
                })
            }),
            Input::Subquery(query) => self.rows(query, scope, &mut |row| {
                let row = self.datum_of(row)?;
                self.bind(source, row.value_ref(), rest, scope, visit)
            }),
        }
    }

    /// A row of a source as one value.
    fn datum_of<'d>(&self, row: Row<'d>) -> Result<Datum<'d>, SqlError> {
        if row.is_in_parts() {
            let bytes = row.approximate_size();
            self.meter().build(bytes)?;
            self.meter().spend_bytes(bytes)?;
        }
        Ok(row.into_datum())
    }

    /// Repeats a source that makes several rows per item, as often as the item's multiplicity, so that the rows
    /// alternate.
    fn repeat_by_multiplicity(
        &self,
        source: &Source,
        rest: &[Source],
        bind: &mut dyn FnMut() -> Result<Flow, SqlError>,
    ) -> Result<Flow, SqlError> {
        if rest.is_empty() && !source.iterate {
            return bind();
        }
        let times = self.multiplicity.replace(1);
        let mut flow = Ok(Flow::Continue(()));
        for _ in 0..times {
            flow = bind();
            if !matches!(flow, Ok(Flow::Continue(()))) {
                break;
            }
        }
        self.multiplicity.set(times);
        flow
    }

    fn each_item(
        &self,
        visit: &mut dyn FnMut(&Item<'_>) -> Result<Flow, SqlError>,
    ) -> Result<Flow, SqlError> {
        let Some(scan) = self.scan.take() else { return Ok(Flow::Continue(())) };
        let flow = scan(&mut |item, multiplicity| {
            self.meter().start_item();
            if multiplicity == 0 {
                return Ok(Flow::Continue(()));
            }
            self.multiplicity.set(multiplicity);
            self.item.set(self.item.get() + 1);
            let flow = visit(item);
            self.multiplicity.set(1);
            flow
        })?;
        self.meter().start_item();
        Ok(flow)
    }

    /// Continues with the next source: once, or once per element.
    fn bind(
        &self,
        source: &Source,
        value: ValueRef<'_>,
        rest: &[Source],
        scope: Option<&Scope<'_, '_>>,
        visit: &mut Visit<'_>,
    ) -> Result<Flow, SqlError> {
        if !source.iterate {
            if value.is_undefined() {
                return Ok(Flow::Continue(()));
            }
            return self.tuples(rest, Some(&Scope::value(value, scope)), visit);
        }
        for (position, element) in value.elements().enumerate() {
            let mark = self.meter().mark();
            if self.tuples(rest, Some(&Scope::element(element, position, scope)), visit)?.is_break() {
                return Ok(Flow::Break(()));
            }
            self.meter().restore(mark);
        }
        Ok(Flow::Continue(()))
    }

    /// Visits the tuples that pass WHERE.
    fn filtered(
        &self,
        query: &Query,
        scope: Option<&Scope<'_, '_>>,
        visit: &mut Visit<'_>,
    ) -> Result<Flow, SqlError> {
        let Some(plan) = &query.follow_plan else {
            return self.tuples(&query.sources, scope, &mut |scope| {
                self.visit_if(query.filter.as_ref(), scope, visit)
            });
        };
        let (first, rest) = query.sources.split_at(plan.sources);
        self.tuples(first, scope, &mut |scope| {
            self.visit_if(plan.early.as_ref(), scope, &mut |scope| {
                self.tuples(rest, scope, &mut |scope| self.visit_if(plan.late.as_ref(), scope, visit))
            })
        })
    }

    fn visit_if(
        &self,
        filter: Option<&Expr>,
        scope: Option<&Scope<'_, '_>>,
        visit: &mut Visit<'_>,
    ) -> Result<Flow, SqlError> {
        match filter {
            Some(filter) if self.evaluate(filter, scope)?.as_bool() != Some(true) => Ok(Flow::Continue(())),
            _ => visit(scope),
        }
    }

    /// Whether any combination of the sources passes the part of WHERE that needs no item of another container.
    pub fn any_early_tuple(&self, query: &Query) -> Result<bool, SqlError> {
        let Some(plan) = &query.follow_plan else { return self.any_tuple(query) };
        let mut found = false;
        let _first = self.tuples(&query.sources[..plan.sources], None, &mut |scope| {
            self.visit_if(plan.early.as_ref(), scope, &mut |_| {
                found = true;
                Ok(Flow::Break(()))
            })
        })?;
        Ok(found)
    }
}

/// Whether an expression only reads a value that is there: it has no calls.
fn is_read_only(expr: &Expr) -> bool {
    match expr {
        Expr::Constant(_) | Expr::Parameter(_) | Expr::Variable { .. } => true,
        Expr::Path { base, steps, .. } => {
            matches!(**base, Expr::Variable { .. }) && steps.iter().all(|step| matches!(step, Step::Name(_)))
        }
        _ => false,
    }
}
