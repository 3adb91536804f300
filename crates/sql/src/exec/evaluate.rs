//! Expressions to values, borrowed from the item where that is possible.

use std::borrow::Cow;

use quire_value::{Number, Object, Value};

use crate::SqlError;
use crate::ast::{BinaryOperator, SubqueryForm, UnaryOperator};
use crate::bound::{Expr, Query, Step};
use crate::functions::{Call, Function, Implementation};
use crate::like::Pattern;

use super::operators::{binary, compare, equal, logical, to_int32};
use super::{Flow, Run, Scope, approximate_size};

const CARDINALITY: &str = "The cardinality of a scalar subquery result set cannot be greater than one.";

type Evaluated<'e> = Result<Cow<'e, Value>, SqlError>;

impl Run<'_> {
    pub(super) fn evaluate<'e>(&'e self, expr: &'e Expr, scope: Option<&'e Scope<'e>>) -> Evaluated<'e> {
        self.budget().spend(1)?;
        match expr {
            Expr::Constant(value) => Ok(Cow::Borrowed(value)),
            Expr::Variable { level, .. } => Ok(Cow::Borrowed(value_at(scope, *level))),
            Expr::Computed { level, index, .. } => self.computed(value_at(scope, *level), *index),
            Expr::GroupKey { level, index } => Ok(Cow::Borrowed(
                scope.and_then(|scope| scope.group_at(*level)?.keys.get(*index)).unwrap_or(&Value::Undefined),
            )),
            Expr::Aggregate { level, index } => Ok(Cow::Borrowed(
                scope
                    .and_then(|scope| scope.group_at(*level)?.aggregates.get(*index))
                    .unwrap_or(&Value::Undefined),
            )),
            Expr::Path { base, steps, .. } => self.path(base, steps, scope),
            Expr::Array(items) => self.array(items, scope),
            Expr::Object(properties) => self.object(properties, scope),
            Expr::Unary { operators, operand } => self.unary(operators, operand, scope),
            Expr::Chain { first, rest } => self.chain(first, rest, scope),
            Expr::And(items) => self.logic(items, false, scope),
            Expr::Or(items) => self.logic(items, true, scope),
            Expr::In { needle, items, sorted, negated } => {
                let found = self.contains(needle, items, sorted.as_deref(), scope)?;
                Ok(truth(found, *negated))
            }
            Expr::Like { text, pattern, escape, compiled, negated } => {
                let matches = self.like(text, pattern, *escape, compiled.as_ref(), scope)?;
                Ok(truth(matches, *negated))
            }
            Expr::Between { value, low, high, negated } => {
                let inside = self.between(value, low, high, scope)?;
                Ok(truth(inside, *negated))
            }
            Expr::Coalesce(items) => self.coalesce(items, scope),
            Expr::Conditional { branches, otherwise } => self.conditional(branches, otherwise, scope),
            Expr::Call { function, arguments } => self.call(function, arguments, scope),
            Expr::Subquery { form, query } => self.subquery(*form, query, scope),
            Expr::Let { value, body } => {
                let value = self.evaluate(value, scope)?;
                let inner = Scope::value(&value, scope);
                let result = self.evaluate(body, Some(&inner))?;
                Ok(Cow::Owned(self.own(result)?))
            }
        }
    }

    /// An owned copy; copying what is borrowed is work.
    pub(super) fn own(&self, value: Cow<'_, Value>) -> Result<Value, SqlError> {
        if let Cow::Borrowed(borrowed) = value {
            self.budget().spend_bytes(approximate_size(borrowed))?;
        }
        Ok(value.into_owned())
    }

    /// Bound where the item is the only level.
    fn computed<'e>(&'e self, item: &'e Value, index: usize) -> Evaluated<'e> {
        let Some(expr) = self.computed.get(index) else { return Ok(Cow::Borrowed(&Value::Undefined)) };
        let scope = Scope::value(item, None);
        let value = self.evaluate(expr, Some(&scope))?;
        Ok(Cow::Owned(self.own(value)?))
    }

    fn path<'e>(&'e self, base: &'e Expr, steps: &'e [Step], scope: Option<&'e Scope<'e>>) -> Evaluated<'e> {
        let mut value = self.evaluate(base, scope)?;
        for step in steps {
            value = match step {
                Step::Name(name) => {
                    self.spend_on_search(&value)?;
                    member(value, name)
                }
                Step::Index(index) => {
                    self.spend_on_search(&value)?;
                    let index = self.evaluate(index, scope)?;
                    match &*index {
                        Value::String(name) => member(value, name),
                        Value::Number(number) => element(value, *number),
                        _ => Cow::Borrowed(&Value::Undefined),
                    }
                }
            };
        }
        Ok(value)
    }

    /// Names are looked for one by one.
    fn spend_on_search(&self, value: &Value) -> Result<(), SqlError> {
        self.budget().spend(value.as_object().map_or(0, |object| object.len() as u64 / 8))
    }

    fn array<'e>(&'e self, items: &'e [Expr], scope: Option<&'e Scope<'e>>) -> Evaluated<'e> {
        let mut elements = Vec::with_capacity(items.len());
        for item in items {
            let value = self.evaluate(item, scope)?;
            if !value.is_undefined() {
                elements.push(self.own(value)?);
            }
        }
        Ok(Cow::Owned(Value::Array(elements)))
    }

    fn object<'e>(&'e self, properties: &'e [(String, Expr)], scope: Option<&'e Scope<'e>>) -> Evaluated<'e> {
        let mut members = Vec::with_capacity(properties.len());
        for (name, expr) in properties {
            let value = self.evaluate(expr, scope)?;
            if !value.is_undefined() {
                members.push((name.as_str(), self.own(value)?));
            }
        }
        Ok(Cow::Owned(Value::Object(members.into_iter().collect::<Object>())))
    }

    fn unary<'e>(
        &'e self,
        operators: &'e [UnaryOperator],
        operand: &'e Expr,
        scope: Option<&'e Scope<'e>>,
    ) -> Evaluated<'e> {
        let mut value = self.evaluate(operand, scope)?;
        for operator in operators.iter().rev() {
            value = Cow::Owned(apply_unary(*operator, &value));
        }
        Ok(value)
    }

    fn chain<'e>(
        &'e self,
        first: &'e Expr,
        rest: &'e [(BinaryOperator, Expr)],
        scope: Option<&'e Scope<'e>>,
    ) -> Evaluated<'e> {
        let mut left = self.evaluate(first, scope)?;
        for (operator, operand) in rest {
            let right = self.evaluate(operand, scope)?;
            self.spend_on(&left)?;
            left = Cow::Owned(binary(*operator, &left, &right)?);
        }
        Ok(left)
    }

    /// Joining and comparing take as long as the values are large.
    fn spend_on(&self, value: &Value) -> Result<(), SqlError> {
        match value {
            Value::String(text) => self.budget().spend_bytes(text.len()),
            Value::Array(_) | Value::Object(_) => self.budget().spend_bytes(approximate_size(value)),
            _ => Ok(()),
        }
    }

    /// OR (`decisive` true) or AND (false): one decisive operand decides, else one that is no boolean makes it
    /// undefined.
    fn logic<'e>(&'e self, items: &'e [Expr], decisive: bool, scope: Option<&'e Scope<'e>>) -> Evaluated<'e> {
        let mut undefined = false;
        for item in items {
            match self.evaluate(item, scope)?.as_bool() {
                Some(truth) if truth == decisive => return Ok(Cow::Owned(Value::Bool(decisive))),
                Some(_) => {}
                None => undefined = true,
            }
        }
        Ok(Cow::Owned(if undefined { Value::Undefined } else { Value::Bool(!decisive) }))
    }

    fn contains(
        &self,
        needle: &Expr,
        items: &[Expr],
        sorted: Option<&[Value]>,
        scope: Option<&Scope<'_>>,
    ) -> Result<Option<bool>, SqlError> {
        let needle = self.evaluate(needle, scope)?;
        if needle.is_undefined() {
            return Ok(None);
        }
        if let Some(sorted) = sorted {
            return Ok(contains_sorted(&needle, sorted));
        }
        let mut undefined = false;
        for item in items {
            self.spend_on(&needle)?;
            match equal(&needle, &*self.evaluate(item, scope)?) {
                Some(true) => return Ok(Some(true)),
                Some(false) => {}
                None => undefined = true,
            }
        }
        Ok((!undefined).then_some(false))
    }

    fn like(
        &self,
        text: &Expr,
        pattern: &Expr,
        escape: Option<char>,
        compiled: Option<&Pattern>,
        scope: Option<&Scope<'_>>,
    ) -> Result<Option<bool>, SqlError> {
        let text = self.evaluate(text, scope)?;
        let pattern = self.evaluate(pattern, scope)?;
        let (Some(text), Some(pattern)) = (text.as_str(), pattern.as_str()) else { return Ok(None) };
        let fresh;
        let compiled = match compiled {
            Some(compiled) => compiled,
            None => {
                self.budget().spend_bytes(pattern.len().saturating_mul(16))?;
                fresh = Pattern::new(pattern, escape);
                &fresh
            }
        };
        self.budget().spend(compiled.work(text.len()) as u64)?;
        Ok(Some(compiled.matches(text)))
    }

    /// `value >= low AND value <= high`
    fn between(
        &self,
        value: &Expr,
        low: &Expr,
        high: &Expr,
        scope: Option<&Scope<'_>>,
    ) -> Result<Option<bool>, SqlError> {
        let value = self.evaluate(value, scope)?;
        let above = compare(&value, &*self.evaluate(low, scope)?, std::cmp::Ordering::is_ge);
        let below = compare(&value, &*self.evaluate(high, scope)?, std::cmp::Ordering::is_le);
        Ok(match (above, below) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        })
    }

    fn coalesce<'e>(&'e self, items: &'e [Expr], scope: Option<&'e Scope<'e>>) -> Evaluated<'e> {
        for item in items {
            let value = self.evaluate(item, scope)?;
            if !value.is_undefined() {
                return Ok(value);
            }
        }
        Ok(Cow::Borrowed(&Value::Undefined))
    }

    /// Anything but `true` selects the other branch.
    fn conditional<'e>(
        &'e self,
        branches: &'e [(Expr, Expr)],
        otherwise: &'e Expr,
        scope: Option<&'e Scope<'e>>,
    ) -> Evaluated<'e> {
        for (test, value) in branches {
            if *self.evaluate(test, scope)? == Value::Bool(true) {
                return self.evaluate(value, scope);
            }
        }
        self.evaluate(otherwise, scope)
    }

    fn call<'e>(
        &'e self,
        function: &Function,
        arguments: &'e [Expr],
        scope: Option<&'e Scope<'e>>,
    ) -> Evaluated<'e> {
        let Implementation::Scalar(evaluate) = function.implementation else {
            return Ok(Cow::Borrowed(&Value::Undefined));
        };
        let arguments =
            arguments.iter().map(|argument| self.evaluate(argument, scope)).collect::<Result<Vec<_>, _>>()?;
        if !function.sees_undefined && arguments.iter().any(|argument| argument.is_undefined()) {
            return Ok(Cow::Borrowed(&Value::Undefined));
        }
        for argument in &arguments {
            self.spend_on_argument(argument)?;
        }
        let result = evaluate(&Call { arguments: &arguments, surroundings: &self.surroundings });
        match self.surroundings.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(Cow::Owned(result.unwrap_or(Value::Undefined))),
        }
    }

    /// What every function may look through; those that do more say so themselves.
    fn spend_on_argument(&self, argument: &Value) -> Result<(), SqlError> {
        match argument {
            Value::String(text) => self.budget().spend_bytes(text.len()),
            Value::Array(elements) => self.budget().spend(elements.len() as u64),
            Value::Object(object) => self.budget().spend(object.len() as u64),
            _ => Ok(()),
        }
    }

    fn subquery<'e>(
        &'e self,
        form: SubqueryForm,
        query: &'e Query,
        scope: Option<&'e Scope<'e>>,
    ) -> Evaluated<'e> {
        let value = match form {
            SubqueryForm::Scalar => self.only_row(query, scope)?,
            SubqueryForm::Exists => Value::Bool(!self.first_row(query, scope)?.is_undefined()),
            SubqueryForm::All => Value::Bool(self.first_row(query, scope)?.is_undefined()),
            SubqueryForm::First => self.first_row(query, scope)?,
            SubqueryForm::Last => self.last_row(query, scope)?,
            SubqueryForm::Array => self.row_array(query, scope)?,
        };
        Ok(Cow::Owned(value))
    }

    fn only_row(&self, query: &Query, scope: Option<&Scope<'_>>) -> Result<Value, SqlError> {
        let mut only = Value::Undefined;
        let _all = self.rows(query, scope, &mut |row| {
            if !only.is_undefined() {
                return Err(SqlError::Refused(CARDINALITY.to_owned()));
            }
            only = row;
            Ok(Flow::Continue(()))
        })?;
        Ok(only)
    }

    fn first_row(&self, query: &Query, scope: Option<&Scope<'_>>) -> Result<Value, SqlError> {
        let mut first = Value::Undefined;
        let _first = self.rows(query, scope, &mut |row| {
            first = row;
            Ok(Flow::Break(()))
        })?;
        Ok(first)
    }

    fn last_row(&self, query: &Query, scope: Option<&Scope<'_>>) -> Result<Value, SqlError> {
        let mut last = Value::Undefined;
        let _all = self.rows(query, scope, &mut |row| {
            last = row;
            Ok(Flow::Continue(()))
        })?;
        Ok(last)
    }

    fn row_array(&self, query: &Query, scope: Option<&Scope<'_>>) -> Result<Value, SqlError> {
        let mut rows = Vec::new();
        let _all = self.rows(query, scope, &mut |row| {
            rows.push(row);
            Ok(Flow::Continue(()))
        })?;
        Ok(Value::Array(rows))
    }
}

fn value_at<'s>(scope: Option<&Scope<'s>>, level: usize) -> &'s Value {
    scope.map_or(&Value::Undefined, |scope| scope.value_at(level))
}

fn truth<'e>(truth: Option<bool>, negated: bool) -> Cow<'e, Value> {
    Cow::Owned(logical(truth.map(|truth| truth != negated)))
}

fn member<'v>(value: Cow<'v, Value>, name: &str) -> Cow<'v, Value> {
    match value {
        Cow::Borrowed(value) => Cow::Borrowed(value.get(name).unwrap_or(&Value::Undefined)),
        Cow::Owned(Value::Object(mut object)) => Cow::Owned(object.remove(name).unwrap_or(Value::Undefined)),
        Cow::Owned(_) => Cow::Borrowed(&Value::Undefined),
    }
}

/// Only whole numbers from zero on are positions.
fn element(value: Cow<'_, Value>, index: Number) -> Cow<'_, Value> {
    let Some(index) = index.as_u64().and_then(|index| usize::try_from(index).ok()) else {
        return Cow::Borrowed(&Value::Undefined);
    };
    match value {
        Cow::Borrowed(value) => Cow::Borrowed(value.at(index).unwrap_or(&Value::Undefined)),
        Cow::Owned(Value::Array(mut elements)) if index < elements.len() => {
            Cow::Owned(elements.swap_remove(index))
        }
        Cow::Owned(_) => Cow::Borrowed(&Value::Undefined),
    }
}

fn apply_unary(operator: UnaryOperator, value: &Value) -> Value {
    match (operator, value) {
        (UnaryOperator::Not, Value::Bool(truth)) => Value::Bool(!truth),
        (UnaryOperator::Plus, Value::Number(number)) => Value::Number(*number),
        (UnaryOperator::Minus, Value::Number(number)) => Value::from(-number.as_f64()),
        (UnaryOperator::BitNot, Value::Number(number)) => Value::from(i64::from(!to_int32(*number))),
        _ => Value::Undefined,
    }
}

/// Undefined constants sort first: without a match one of them makes the answer undefined.
fn contains_sorted(needle: &Value, sorted: &[Value]) -> Option<bool> {
    let is_nan = needle.as_number().is_some_and(|number| number.as_f64().is_nan());
    if !is_nan && sorted.binary_search(needle).is_ok() {
        return Some(true);
    }
    (!sorted.first().is_some_and(Value::is_undefined)).then_some(false)
}
