//! Evaluates expressions. Results borrow from the item where possible.

use std::sync::Arc;

use quire_value::{Kind, Object, Value};

use crate::bind::bound::{Expr, Query, Step};
use crate::data::{Datum, ValueRef, approximate_size};
use crate::error::SqlError;
use crate::functions::{Argument, Call, Evaluate, FoundFunction, Function, Implementation};
use crate::limits::RetainedMemory;
use crate::syntax::ast::{BinaryOperator, SubqueryForm, UnaryOperator};
use crate::text::like::Pattern;

use super::operators::{binary, compare, equal, logical, to_int32};
use super::{Execution, Flow, Scope};

const CARDINALITY: &str = "The cardinality of a scalar subquery result set cannot be greater than one.";

/// Smaller arrays and objects are not measured again when their operands are dropped.
const MEASURED_BYTES_MIN: usize = 16 << 10;
/// Texts of one call that are not counted: the result of a function is dropped soon.
const UNCOUNTED_TEXT_BYTES_MAX: usize = 256;

type Evaluated<'d> = Result<Datum<'d>, SqlError>;

impl Execution<'_> {
    /// The common expressions of a scan come first and need little stack; the others are behind a call.
    pub(super) fn evaluate<'d>(&'d self, expr: &'d Expr, scope: Option<&Scope<'_, 'd>>) -> Evaluated<'d> {
        self.meter().spend(1)?;
        match expr {
            Expr::Constant(value) => Ok(Datum::Borrowed(ValueRef::Value(value))),
            Expr::Parameter(number) => {
                let value = self.context.parameters.get(*number);
                Ok(Datum::Borrowed(value.map_or(ValueRef::UNDEFINED, ValueRef::Value)))
            }
            Expr::Variable { level, .. } => Ok(Datum::Borrowed(value_at(scope, *level))),
            Expr::Path { base, steps, .. } => self.path(base, steps, scope),
            Expr::Chain { first, rest } => self.chain(first, rest, scope),
            _ => self.evaluate_other(expr, scope),
        }
    }

    #[inline(never)]
    fn evaluate_other<'d>(&'d self, expr: &'d Expr, scope: Option<&Scope<'_, 'd>>) -> Evaluated<'d> {
        let mark = self.meter().mark();
        let datum = self.evaluate_node(expr, scope)?;
        self.release_operands(mark, &datum)?;
        Ok(datum)
    }

    /// Releases the transient memory of the operands and counts the result.
    #[inline]
    fn release_operands(&self, mark: usize, result: &Datum<'_>) -> Result<(), SqlError> {
        if self.meter().mark() == mark { Ok(()) } else { self.release_operands_of_built(mark, result) }
    }

    fn release_operands_of_built(&self, mark: usize, result: &Datum<'_>) -> Result<(), SqlError> {
        let built = self.meter().mark() - mark;
        let stays = match result {
            Datum::Owned(Value::String(text)) => text.len(),
            // Measuring takes time, and would gain little.
            Datum::Owned(Value::Array(_) | Value::Object(_)) if built < MEASURED_BYTES_MIN => built,
            Datum::Owned(value @ (Value::Array(_) | Value::Object(_))) => {
                self.meter().spend_bytes(built)?;
                approximate_size(value)
            }
            Datum::LinkedArray(_) => built,
            Datum::Owned(_) | Datum::Borrowed(_) | Datum::Linked(_) => 0,
        };
        self.meter().restore(mark + stays.min(built));
        Ok(())
    }

    fn evaluate_node<'d>(&'d self, expr: &'d Expr, scope: Option<&Scope<'_, 'd>>) -> Evaluated<'d> {
        match expr {
            Expr::Constant(_) | Expr::Parameter(_) | Expr::Variable { .. } => {
                unreachable!("evaluated by the caller")
            }
            Expr::Path { .. } | Expr::Chain { .. } => unreachable!("evaluated by the caller"),
            Expr::Computed { level, index, .. } => self.computed(value_at(scope, *level), *index),
            Expr::GroupKey { level, index } => {
                let key = scope.and_then(|scope| scope.group_at(*level)?.keys.get(*index));
                Ok(Datum::Borrowed(key.map_or(ValueRef::UNDEFINED, ValueRef::Value)))
            }
            Expr::Aggregate { level, index } => {
                let aggregate = scope.and_then(|scope| scope.group_at(*level)?.aggregates.get(*index));
                Ok(Datum::Borrowed(aggregate.map_or(ValueRef::UNDEFINED, ValueRef::Value)))
            }
            Expr::Array(items) => self.array(items, scope),
            Expr::Object(properties) => self.object(properties, scope),
            Expr::Unary { operators, operand } => self.unary(operators, operand, scope),
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
            Expr::UserCall { function, arguments } => self.user_call(function, arguments, scope),
            Expr::Follow(follow) => self.follow(follow, scope),
            Expr::WithFollowed { level, .. } => self.with_followed(*level, scope),
            Expr::Subquery { form, query } => self.subquery(*form, query, scope),
            Expr::Let { value, body } => self.let_in(value, body, scope),
        }
    }

    fn let_in<'d>(&'d self, value: &'d Expr, body: &'d Expr, scope: Option<&Scope<'_, 'd>>) -> Evaluated<'d> {
        match self.evaluate(value, scope)? {
            Datum::Borrowed(view) => self.evaluate(body, Some(&Scope::value(view, scope))),
            datum => {
                let inner = Scope::value(datum.value_ref(), scope);
                let result = self.evaluate(body, Some(&inner))?;
                Ok(Datum::Owned(self.own(result)?))
            }
        }
    }

    /// An owned copy. Copying a borrowed value spends steps.
    pub(super) fn own(&self, datum: Datum<'_>) -> Result<Value, SqlError> {
        if let Datum::Borrowed(_) | Datum::Linked(_) = datum {
            let bytes = datum.approximate_size();
            self.meter().build(bytes)?;
            self.meter().spend_bytes(bytes)?;
        }
        Ok(datum.into_value())
    }

    /// Computed properties are bound with the item as the only level.
    fn computed<'d>(&'d self, item: ValueRef<'d>, index: usize) -> Evaluated<'d> {
        let Some(expr) = self.computed.get(index) else { return Ok(Datum::UNDEFINED) };
        self.evaluate(expr, Some(&Scope::value(item, None)))
    }

    #[inline(never)]
    fn path<'d>(&'d self, base: &'d Expr, steps: &'d [Step], scope: Option<&Scope<'_, 'd>>) -> Evaluated<'d> {
        let mut value = self.evaluate(base, scope)?;
        for step in steps {
            value = match step {
                Step::Name(name) => {
                    self.spend_on_search(&value)?;
                    value.member(name)
                }
                Step::Index(index) => {
                    self.spend_on_search(&value)?;
                    let index = self.evaluate(index, scope)?;
                    let index = index.value_ref();
                    match (index.as_str(), index.as_number()) {
                        (Some(name), _) => value.member(name),
                        (_, Some(number)) => value.element(number),
                        _ => Datum::UNDEFINED,
                    }
                }
            };
        }
        Ok(value)
    }

    /// Values search names linearly; stored objects use binary search.
    #[inline]
    fn spend_on_search(&self, value: &Datum<'_>) -> Result<(), SqlError> {
        match value {
            Datum::Borrowed(ValueRef::Value(Value::Object(object))) | Datum::Owned(Value::Object(object)) => {
                self.meter().spend(object.len() as u64 / 8)
            }
            _ => Ok(()),
        }
    }

    fn array<'d>(&'d self, items: &'d [Expr], scope: Option<&Scope<'_, 'd>>) -> Evaluated<'d> {
        let mut elements = Vec::with_capacity(items.len());
        for item in items {
            let value = self.evaluate(item, scope)?;
            if !value.is_undefined() {
                elements.push(self.own(value)?);
            }
        }
        Ok(Datum::Owned(Value::Array(elements)))
    }

    fn object<'d>(
        &'d self,
        properties: &'d [(String, Expr)],
        scope: Option<&Scope<'_, 'd>>,
    ) -> Evaluated<'d> {
        let mut members = Vec::with_capacity(properties.len());
        for (name, expr) in properties {
            let value = self.evaluate(expr, scope)?;
            if !value.is_undefined() {
                members.push((name.as_str(), self.own(value)?));
            }
        }
        Ok(Datum::Owned(Value::Object(members.into_iter().collect::<Object>())))
    }

    fn unary<'d>(
        &'d self,
        operators: &'d [UnaryOperator],
        operand: &'d Expr,
        scope: Option<&Scope<'_, 'd>>,
    ) -> Evaluated<'d> {
        let mut value = self.evaluate(operand, scope)?;
        for operator in operators.iter().rev() {
            value = Datum::Owned(apply_unary(*operator, value.value_ref()));
        }
        Ok(value)
    }

    #[inline(never)]
    fn chain<'d>(
        &'d self,
        first: &'d Expr,
        rest: &'d [(BinaryOperator, Expr)],
        scope: Option<&Scope<'_, 'd>>,
    ) -> Evaluated<'d> {
        let mark = self.meter().mark();
        let mut left = self.evaluate(first, scope)?;
        for (operator, operand) in rest {
            let right = self.evaluate(operand, scope)?;
            self.spend_on(left.value_ref())?;
            if *operator == BinaryOperator::Concat {
                let length = |view: ValueRef<'_>| view.as_text().map_or(0, <[u8]>::len);
                let bytes = length(left.value_ref()) + length(right.value_ref());
                self.meter().build(bytes)?;
                self.meter().spend_bytes(bytes)?;
            }
            left = Datum::Owned(binary(*operator, left.value_ref(), right.value_ref()));
            self.release_operands(mark, &left)?;
        }
        Ok(left)
    }

    /// Concatenation and comparison take time in proportion to the size of the values.
    fn spend_on(&self, value: ValueRef<'_>) -> Result<(), SqlError> {
        match value.kind() {
            Kind::String => self.meter().spend_bytes(value.as_text().map_or(0, <[u8]>::len)),
            Kind::Array | Kind::Object => self.meter().spend_bytes(value.approximate_size()),
            _ => Ok(()),
        }
    }

    /// OR (`decisive` is true) or AND (false): one decisive operand decides the result; else an operand that is not a
    /// boolean makes it undefined.
    fn logic<'d>(
        &'d self,
        items: &'d [Expr],
        decisive: bool,
        scope: Option<&Scope<'_, 'd>>,
    ) -> Evaluated<'d> {
        let mut undefined = false;
        let mark = self.meter().mark();
        for item in items {
            self.meter().restore(mark);
            match self.evaluate(item, scope)?.as_bool() {
                Some(truth) if truth == decisive => return Ok(Datum::Owned(Value::Bool(decisive))),
                Some(_) => {}
                None => undefined = true,
            }
        }
        Ok(Datum::Owned(if undefined { Value::Undefined } else { Value::Bool(!decisive) }))
    }

    fn contains(
        &self,
        needle: &Expr,
        items: &[Expr],
        sorted: Option<&[Arc<Value>]>,
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<Option<bool>, SqlError> {
        let needle = self.evaluate(needle, scope)?;
        if needle.is_undefined() {
            return Ok(None);
        }
        if let Some(sorted) = sorted {
            self.spend_on(needle.value_ref())?;
            return Ok(contains_sorted(needle.value_ref(), sorted));
        }
        let mut undefined = false;
        let mark = self.meter().mark();
        for item in items {
            self.meter().restore(mark);
            self.spend_on(needle.value_ref())?;
            match equal(needle.value_ref(), self.evaluate(item, scope)?.value_ref()) {
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
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<Option<bool>, SqlError> {
        let text = self.evaluate(text, scope)?;
        let pattern = self.evaluate(pattern, scope)?;
        let (Some(text), Some(pattern)) = (text.value_ref().as_str(), pattern.value_ref().as_str()) else {
            return Ok(None);
        };
        let fresh;
        let compiled = match compiled {
            Some(compiled) => compiled,
            None => {
                fresh = self.pattern(pattern, escape)?;
                &fresh
            }
        };
        self.meter().spend(compiled.work(text.len()))?;
        Ok(Some(compiled.matches(text)))
    }

    /// Compiles a pattern that is not a constant.
    pub(crate) fn pattern(&self, pattern: &str, escape: Option<char>) -> Result<Pattern, SqlError> {
        self.meter().build(Pattern::bytes_max(pattern))?;
        Pattern::new(pattern, escape, &mut |steps| self.meter().spend(steps))
    }

    /// `value >= low AND value <= high`
    fn between(
        &self,
        value: &Expr,
        low: &Expr,
        high: &Expr,
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<Option<bool>, SqlError> {
        let value = self.evaluate(value, scope)?;
        let above =
            compare(value.value_ref(), self.evaluate(low, scope)?.value_ref(), std::cmp::Ordering::is_ge);
        let below =
            compare(value.value_ref(), self.evaluate(high, scope)?.value_ref(), std::cmp::Ordering::is_le);
        Ok(match (above, below) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        })
    }

    fn coalesce<'d>(&'d self, items: &'d [Expr], scope: Option<&Scope<'_, 'd>>) -> Evaluated<'d> {
        let mark = self.meter().mark();
        for item in items {
            let value = self.evaluate(item, scope)?;
            if !value.is_undefined() {
                return Ok(value);
            }
            self.meter().restore(mark);
        }
        Ok(Datum::UNDEFINED)
    }

    /// Any value but `true` selects the other branch.
    fn conditional<'d>(
        &'d self,
        branches: &'d [(Expr, Expr)],
        otherwise: &'d Expr,
        scope: Option<&Scope<'_, 'd>>,
    ) -> Evaluated<'d> {
        let mark = self.meter().mark();
        for (test, value) in branches {
            self.meter().restore(mark);
            if self.evaluate(test, scope)?.as_bool() == Some(true) {
                return self.evaluate(value, scope);
            }
        }
        self.evaluate(otherwise, scope)
    }

    fn call<'d>(
        &'d self,
        function: &Function,
        arguments: &'d [Expr],
        scope: Option<&Scope<'_, 'd>>,
    ) -> Evaluated<'d> {
        let Implementation::Scalar(evaluate) = function.implementation else {
            return Ok(Datum::UNDEFINED);
        };
        // Common argument counts need no list on the heap.
        match arguments {
            [first] => self.invoke(function, evaluate, &[self.argument(first, scope)?]),
            [first, second] => {
                let arguments = [self.argument(first, scope)?, self.argument(second, scope)?];
                self.invoke(function, evaluate, &arguments)
            }
            many => {
                let arguments = many.iter().map(|argument| self.argument(argument, scope));
                self.invoke(function, evaluate, &arguments.collect::<Result<Vec<_>, _>>()?)
            }
        }
    }

    fn argument<'d>(
        &'d self,
        expr: &'d Expr,
        scope: Option<&Scope<'_, 'd>>,
    ) -> Result<Argument<'d>, SqlError> {
        self.evaluate(expr, scope).map(Argument::new)
    }

    fn invoke<'d>(
        &self,
        function: &Function,
        evaluate: Evaluate,
        arguments: &[Argument<'_>],
    ) -> Evaluated<'d> {
        if !function.sees_undefined && arguments.iter().any(|argument| argument.value_ref().is_undefined()) {
            return Ok(Datum::UNDEFINED);
        }
        let mut text_bytes = 0;
        for argument in arguments {
            text_bytes += self.spend_on_argument(argument.value_ref())?;
        }
        if text_bytes > UNCOUNTED_TEXT_BYTES_MAX {
            // Most functions build at most this much from their texts; the others reserve memory themselves.
            self.meter().build(2 * text_bytes)?;
        }
        let result = evaluate(&Call { arguments, context: self.context });
        match self.context.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(Datum::Owned(result.unwrap_or(Value::Undefined))),
        }
    }

    /// Undefined arguments are passed: JavaScript has the value `undefined`.
    fn user_call<'d>(
        &'d self,
        function: &FoundFunction,
        arguments: &'d [Expr],
        scope: Option<&Scope<'_, 'd>>,
    ) -> Evaluated<'d> {
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let value = self.evaluate(argument, scope)?;
            values.push(self.own(value)?);
        }
        let functions = self.context.externals.functions;
        if self.missing_call.is_some() {
            let value = functions.value_or_enqueue(function.number, &values);
            return value.map(Datum::Owned).ok_or(SqlError::CallPending);
        }
        let value = functions.call(function.number, &values, &mut |steps| self.meter().spend(steps))?;
        let bytes = ValueRef::Value(&value).approximate_size();
        self.meter().build(bytes)?;
        self.meter().spend_bytes(bytes)?;
        Ok(Datum::Owned(value))
    }

    /// Spends steps for reading an argument once; functions that do more work spend more themselves. Returns the
    /// length of a text.
    fn spend_on_argument(&self, argument: ValueRef<'_>) -> Result<usize, SqlError> {
        match argument.kind() {
            Kind::String => {
                let bytes = argument.as_text().map_or(0, <[u8]>::len);
                self.meter().spend_bytes(bytes)?;
                Ok(bytes)
            }
            Kind::Array | Kind::Object => self.meter().spend(argument.len() as u64).map(|()| 0),
            _ => Ok(0),
        }
    }

    fn subquery<'d>(
        &'d self,
        form: SubqueryForm,
        query: &'d Query,
        scope: Option<&Scope<'_, 'd>>,
    ) -> Evaluated<'d> {
        let value = match form {
            SubqueryForm::Scalar => self.only_row(query, scope)?,
            SubqueryForm::Exists => Value::Bool(self.has_row(query, scope)?),
            SubqueryForm::All => Value::Bool(!self.has_row(query, scope)?),
            SubqueryForm::First => self.first_row(query, scope)?,
            SubqueryForm::Last => self.last_row(query, scope)?,
            SubqueryForm::Array => self.row_array(query, scope)?,
        };
        if matches!(value, Value::String(_) | Value::Array(_) | Value::Object(_)) {
            self.meter().build(approximate_size(&value))?;
        }
        Ok(Datum::Owned(value))
    }

    fn only_row(&self, query: &Query, scope: Option<&Scope<'_, '_>>) -> Result<Value, SqlError> {
        let mut only = Value::Undefined;
        let _all = self.rows(query, scope, &mut |row| {
            if !only.is_undefined() {
                return Err(SqlError::Refused(CARDINALITY.to_owned()));
            }
            only = self.own_row(row)?;
            Ok(Flow::Continue(()))
        })?;
        Ok(only)
    }

    fn has_row(&self, query: &Query, scope: Option<&Scope<'_, '_>>) -> Result<bool, SqlError> {
        let mut found = false;
        let _first = self.rows(query, scope, &mut |_| {
            found = true;
            Ok(Flow::Break(()))
        })?;
        Ok(found)
    }

    fn first_row(&self, query: &Query, scope: Option<&Scope<'_, '_>>) -> Result<Value, SqlError> {
        let mut first = Value::Undefined;
        let _first = self.rows(query, scope, &mut |row| {
            first = self.own_row(row)?;
            Ok(Flow::Break(()))
        })?;
        Ok(first)
    }

    fn last_row(&self, query: &Query, scope: Option<&Scope<'_, '_>>) -> Result<Value, SqlError> {
        let mut last = Value::Undefined;
        let _all = self.rows(query, scope, &mut |row| {
            last = self.own_row(row)?;
            Ok(Flow::Continue(()))
        })?;
        Ok(last)
    }

    fn row_array(&self, query: &Query, scope: Option<&Scope<'_, '_>>) -> Result<Value, SqlError> {
        let mut rows = Vec::new();
        let kept = RetainedMemory::new(self.meter());
        let _all = self.rows(query, scope, &mut |row| {
            kept.retain_bytes(row.approximate_size())?;
            rows.push(self.own_row(row)?);
            Ok(Flow::Continue(()))
        })?;
        Ok(Value::Array(rows))
    }
}

pub(super) fn value_at<'d>(scope: Option<&Scope<'_, 'd>>, level: usize) -> ValueRef<'d> {
    scope.map_or(ValueRef::UNDEFINED, |scope| scope.value_at(level))
}

fn truth<'d>(truth: Option<bool>, negated: bool) -> Datum<'d> {
    Datum::Owned(logical(truth.map(|truth| truth != negated)))
}

fn apply_unary(operator: UnaryOperator, value: ValueRef<'_>) -> Value {
    match (operator, value.as_bool(), value.as_number()) {
        (UnaryOperator::Not, Some(truth), _) => Value::Bool(!truth),
        (UnaryOperator::Plus, _, Some(number)) => Value::Number(number),
        (UnaryOperator::Minus, _, Some(number)) => Value::from(-number.as_f64()),
        (UnaryOperator::BitNot, _, Some(number)) => Value::from(i64::from(!to_int32(number))),
        _ => Value::Undefined,
    }
}

/// Undefined constants sort first. Without a match, one of them makes the result undefined.
fn contains_sorted(needle: ValueRef<'_>, sorted: &[Arc<Value>]) -> Option<bool> {
    let found =
        || sorted.binary_search_by(|value| needle.total_cmp(ValueRef::Value(value)).reverse()).is_ok();
    if !needle.is_nan() && found() {
        return Some(true);
    }
    (!sorted.first().is_some_and(|first| first.is_undefined())).then_some(false)
}
