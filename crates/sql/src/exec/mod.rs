//! Runs a bound query by nested loops over items: no index, no plan. It is the oracle that every faster way is checked
//! against, and what runs when there is none.

mod evaluate; // expressions
mod group; // GROUP BY and aggregates
mod operators; // comparison, arithmetic, bits
mod rows; // ORDER BY, DISTINCT, OFFSET LIMIT
mod scope; // the stack of values in scope
mod size; // how much a value weighs

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

use quire_value::Value;

use crate::SqlError;
use crate::bound::{Expr, Input, Query, Source};
use crate::environment::{Budget, Environment};
use crate::functions::{Patterns, Surroundings};

pub(crate) use self::scope::Scope;
pub(crate) use self::size::approximate_size;

/// Go on, or enough rows.
pub(crate) type Flow = ControlFlow<()>;
pub(crate) type Emit<'e> = dyn FnMut(Value) -> Result<Flow, SqlError> + 'e;
type Visit<'v> = dyn FnMut(Option<&Scope<'_>>) -> Result<Flow, SqlError> + 'v;
/// Hands out the items of the container, in their order.
pub(crate) type Items<'i> = dyn FnMut() -> Result<Option<Cow<'i, Value>>, SqlError> + 'i;

/// One run of a query.
pub(crate) struct Run<'r> {
    surroundings: Surroundings<'r>,
    computed: &'r [Expr],
    items: RefCell<&'r mut Items<'r>>,
}

impl<'r> Run<'r> {
    pub fn new(
        environment: &Environment,
        patterns: &'r Patterns,
        computed: &'r [Expr],
        items: &'r mut Items<'r>,
    ) -> Run<'r> {
        let surroundings = Surroundings {
            now_ticks: environment.now_ticks.unwrap_or(0),
            random: Cell::new(environment.random_seed),
            patterns,
            budget: Budget::new(environment.limits),
            failure: Cell::new(None),
        };
        Run { surroundings, computed, items: RefCell::new(items) }
    }

    fn budget(&self) -> &Budget {
        &self.surroundings.budget
    }

    /// All rows of a top-level query.
    pub fn all_rows(&self, query: &Query) -> Result<Vec<Value>, SqlError> {
        self.window(query, query.offset, query.limit)
    }

    /// The same, whatever its TOP or OFFSET LIMIT: the caller counts.
    pub fn unlimited_rows(&self, query: &Query) -> Result<Vec<Value>, SqlError> {
        self.window(query, 0, None)
    }

    fn window(&self, query: &Query, offset: u64, limit: Option<u64>) -> Result<Vec<Value>, SqlError> {
        let mut rows = Vec::new();
        let _all = self.rows_between(query, offset, limit, None, &mut |mut row| {
            drop_non_finite(&mut row);
            if !row.is_undefined() {
                self.budget().hold(approximate_size(&row))?;
                rows.push(row);
            }
            Ok(Flow::Continue(()))
        })?;
        Ok(rows)
    }

    /// Visits every combination of the sources, leftmost loop outermost.
    fn tuples(
        &self,
        sources: &[Source],
        scope: Option<&Scope<'_>>,
        visit: &mut Visit<'_>,
    ) -> Result<Flow, SqlError> {
        let Some((source, rest)) = sources.split_first() else {
            self.budget().spend(1)?;
            return visit(scope);
        };
        match &source.input {
            Input::Container => {
                while let Some(item) = self.next_item()? {
                    if self.bind(source, &item, rest, scope, visit)?.is_break() {
                        return Ok(Flow::Break(()));
                    }
                }
                Ok(Flow::Continue(()))
            }
            Input::Expr(expr) => {
                let value = self.evaluate(expr, scope)?;
                self.bind(source, &value, rest, scope, visit)
            }
            Input::Subquery(query) => {
                self.rows(query, scope, &mut |row| self.bind(source, &row, rest, scope, visit))
            }
        }
    }

    fn next_item(&self) -> Result<Option<Cow<'r, Value>>, SqlError> {
        self.budget().start_item();
        (self.items.borrow_mut())()
    }

    /// Goes on with the sources behind this one: once, or once per element.
    fn bind(
        &self,
        source: &Source,
        value: &Value,
        rest: &[Source],
        scope: Option<&Scope<'_>>,
        visit: &mut Visit<'_>,
    ) -> Result<Flow, SqlError> {
        if !source.iterate {
            if value.is_undefined() {
                return Ok(Flow::Continue(()));
            }
            return self.tuples(rest, Some(&Scope::value(value, scope)), visit);
        }
        for element in value.as_array().unwrap_or_default() {
            if self.tuples(rest, Some(&Scope::value(element, scope)), visit)?.is_break() {
                return Ok(Flow::Break(()));
            }
        }
        Ok(Flow::Continue(()))
    }

    /// Visits the tuples that pass WHERE.
    fn filtered(
        &self,
        query: &Query,
        scope: Option<&Scope<'_>>,
        visit: &mut Visit<'_>,
    ) -> Result<Flow, SqlError> {
        self.tuples(&query.sources, scope, &mut |scope| match &query.filter {
            Some(filter) if *self.evaluate(filter, scope)? != Value::Bool(true) => Ok(Flow::Continue(())),
            _ => visit(scope),
        })
    }
}

/// NaN and infinities have no JSON form: they are left out like `undefined`.
fn drop_non_finite(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_finite() => *value = Value::Undefined,
        Value::Array(elements) => {
            elements.iter_mut().for_each(drop_non_finite);
            elements.retain(|element| !element.is_undefined());
        }
        Value::Object(object) => {
            let mut dropped = false;
            for (_, property) in object.iter_mut() {
                drop_non_finite(property);
                dropped |= property.is_undefined();
            }
            if dropped {
                let members = std::mem::take(object).into_iter();
                *object = members.filter(|(_, property)| !property.is_undefined()).collect();
            }
        }
        _ => {}
    }
}
