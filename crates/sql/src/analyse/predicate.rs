//! Conditions from expressions.
//!
//! Logic has three values, so there are two conditions for an expression: for `true` and for `false`. NOT swaps them.
//! Each condition holds at least for all items for which the expression has that value, for any elements of the
//! sources in scope. An expression that is not analysed allows every item.

use std::borrow::Borrow;
use std::ops::Bound;
use std::sync::Arc;

use quire_value::{Kind, Object, Value};

use crate::bind::bound::{Expr, Input, Query};
use crate::functions::Aggregate;
use crate::syntax::ast::{BinaryOperator, SubqueryForm, UnaryOperator};
use crate::text::like::{Pattern, Shape};

use super::condition::Condition;
use super::place::{Binding, Levels, Place};
use super::range::{ValueRange, intersection, union, without};

/// A condition, and whether it holds for no other items (it is exact).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub condition: Condition,
    pub exact: bool,
}

impl Found {
    pub const UNKNOWN: Found = Found { condition: Condition::All, exact: false };
    pub const ALL: Found = Found { condition: Condition::All, exact: true };
    pub const NOTHING: Found = Found { condition: Condition::Nothing, exact: true };

    pub fn inexact(mut condition: Condition) -> Found {
        condition.forget_exactness();
        let exact = condition == Condition::Nothing;
        Found { condition, exact }
    }

    pub fn all_of(found: impl IntoIterator<Item = Found>) -> Found {
        let (conditions, exact): (Vec<_>, Vec<_>) =
            found.into_iter().map(|found| (found.condition, found.exact)).unzip();
        Found::joined(Condition::all_of(conditions), &exact)
    }

    pub fn any_of(found: impl IntoIterator<Item = Found>) -> Found {
        let (conditions, exact): (Vec<_>, Vec<_>) =
            found.into_iter().map(|found| (found.condition, found.exact)).unzip();
        Found::joined(Condition::any_of(conditions), &exact)
    }

    fn joined(condition: Condition, exact: &[bool]) -> Found {
        let exact = condition == Condition::Nothing || exact.iter().all(|exact| *exact);
        Found { condition, exact }
    }
}

/// The values at one path for which a test is true, and for which it is false.
pub(super) struct Test {
    pub yes: Vec<ValueRange>,
    pub no: Vec<ValueRange>,
    /// Exact sets, not only supersets.
    pub exact: bool,
}

impl Test {
    pub fn exact(yes: Vec<ValueRange>, no: Vec<ValueRange>) -> Test {
        Test { yes, no, exact: true }
    }

    pub fn inexact(yes: ValueRange, no: ValueRange) -> Test {
        Test { yes: vec![yes], no: vec![no], exact: false }
    }

    /// Always undefined.
    pub fn never() -> Test {
        Test::exact(Vec::new(), Vec::new())
    }

    pub fn negated(self) -> Test {
        Test { yes: self.no, no: self.yes, exact: self.exact }
    }

    /// The test of `value ?? default`.
    fn with_default(self, default: &Value) -> Test {
        let replaced = |ranges: Vec<ValueRange>| {
            let missing = ranges.iter().any(|range| range.contains(default));
            let mut ranges = intersection(&ranges, &[ValueRange::defined()]);
            if missing {
                ranges.push(ValueRange::point(Value::Undefined));
            }
            union(ranges)
        };
        Test { yes: replaced(self.yes), no: replaced(self.no), exact: self.exact }
    }
}

/// Derives conditions from the expressions of one query.
pub(super) struct Finder<'q> {
    pub levels: Levels,
    pub computed: &'q [Expr],
    /// Evaluates expressions that depend on no item.
    pub constant: &'q dyn Fn(&Expr) -> Option<Value>,
}

impl Finder<'_> {
    /// The condition for a query in the current scope to have a row: from its sources, its filter and its projection.
    /// Its levels stay in scope, so that its row can be examined.
    pub fn rows(&mut self, query: &Query) -> Found {
        let tuples = self.tuples(query);
        match &query.grouping {
            // Aggregates over no rows also give a row, but no item contributes to it.
            Some(grouping) if grouping.keys.is_empty() && !query.reads_container() => Found::UNKNOWN,
            Some(_) => tuples,
            None => Found::all_of([tuples, self.defined(&query.projection)]),
        }
    }

    /// The condition for a combination of its sources to match the filter.
    fn tuples(&mut self, query: &Query) -> Found {
        let mut found = Vec::new();
        for source in &query.sources {
            found.push(self.source(&source.input, source.iterate));
        }
        if let Some(filter) = &query.filter {
            found.push(self.when(filter, true));
        }
        Found::all_of(found)
    }

    /// Adds the source to the scope. Exact when it gives one tuple.
    fn source(&mut self, input: &Input, iterate: bool) -> Found {
        let (binding, found) = match input {
            Input::Container => (Binding::Place(Place::item()), Found::ALL),
            Input::Expr(expr) => (self.binding(expr), Found::ALL),
            Input::Subquery(query) => self.derived(query),
        };
        let present = match (&binding, iterate) {
            (Binding::Place(place), true) => {
                let array = Test::inexact(ValueRange::of_kind(Kind::Array), ValueRange::everything());
                self.test(place, array, true)
            }
            (Binding::Place(place), false) => self.test(place, is_defined(), true),
            (Binding::Members(_), false) => Found::ALL,
            _ => Found::UNKNOWN,
        };
        self.levels.push(if iterate { binding.element() } else { binding });
        Found::all_of([found, present])
    }

    fn derived(&mut self, query: &Query) -> (Binding, Found) {
        let outer = self.levels.len();
        let found = self.rows(query);
        let binding = match &query.grouping {
            Some(_) => Binding::Unknown,
            None => self.binding(&query.projection),
        };
        self.levels.truncate(outer);
        let exact = found.exact && !query.distinct && query.grouping.is_none();
        (binding, Found { exact, ..found })
    }

    fn binding(&self, expr: &Expr) -> Binding {
        self.levels.binding(expr, self.computed)
    }

    pub fn constant_of(&self, expr: &Expr) -> Option<Value> {
        (self.constant)(expr)
    }

    pub fn place(&self, expr: &Expr) -> Option<Place> {
        match self.binding(expr) {
            Binding::Place(place) => Some(place),
            Binding::Unknown | Binding::Members(_) => None,
        }
    }

    /// The condition for the expression to be defined.
    fn defined(&self, expr: &Expr) -> Found {
        match expr {
            Expr::Object(_) | Expr::Array(_) => Found::ALL,
            Expr::Constant(value) if value.is_undefined() => Found::NOTHING,
            Expr::Constant(_) => Found::ALL,
            expr => match self.place(expr) {
                Some(place) => self.test(&place, is_defined(), true),
                None => Found::UNKNOWN,
            },
        }
    }

    /// The condition for the expression to be `wanted`, not the other truth value, undefined, or a value of another
    /// type.
    pub fn when(&mut self, expr: &Expr, wanted: bool) -> Found {
        if let Some(value) = (self.constant)(expr) {
            return if value.as_bool() == Some(wanted) { Found::ALL } else { Found::NOTHING };
        }
        match expr {
            Expr::And(items) => self.logic(items, wanted, wanted),
            Expr::Or(items) => self.logic(items, wanted, !wanted),
            Expr::Unary { operators, operand } => {
                match operators.iter().all(|operator| *operator == UnaryOperator::Not) {
                    true => self.when(operand, wanted == (operators.len() % 2 == 0)),
                    false => Found::NOTHING, // a number
                }
            }
            Expr::Chain { first, rest } => match rest.as_slice() {
                [(operator, right)] => self.comparison(first, *operator, right, wanted),
                _ => Found::UNKNOWN,
            },
            Expr::In { needle, items, sorted, negated } => {
                self.membership(needle, items, sorted.as_deref(), wanted != *negated)
            }
            Expr::Between { value, low, high, negated } => self.between(value, low, high, wanted != *negated),
            Expr::Like { text, pattern, compiled, negated, .. } => {
                self.like(text, pattern, compiled.as_ref(), wanted != *negated)
            }
            Expr::Coalesce(items) => match self.test_of(expr, is_true(), wanted) {
                Some(found) => found,
                None => Found::inexact(self.logic(items, wanted, false).condition),
            },
            Expr::Conditional { branches, otherwise } => self.conditional(branches, otherwise, wanted),
            Expr::Call { function, arguments } => self.call(function, arguments, wanted),
            Expr::Subquery { form, query } => self.subquery(*form, query, wanted),
            Expr::Let { value, body } => {
                let outer = self.levels.len();
                let binding = self.binding(value);
                self.levels.push(binding);
                let found = self.when(body, wanted);
                self.levels.truncate(outer);
                found
            }
            Expr::Array(_) | Expr::Object(_) => Found::NOTHING,
            Expr::Variable { .. } | Expr::Computed { .. } | Expr::Path { .. } => match self.place(expr) {
                Some(place) => self.test(&place, is_true(), wanted),
                None => Found::UNKNOWN,
            },
            Expr::Constant(_) | Expr::GroupKey { .. } | Expr::Aggregate { .. } => Found::UNKNOWN,
            Expr::UserCall { .. } => Found::UNKNOWN,
        }
    }

    /// All of them have the value, or any of them.
    fn logic(&mut self, items: &[Expr], wanted: bool, all: bool) -> Found {
        let found: Vec<Found> = items.iter().map(|item| self.when(item, wanted)).collect();
        if all { Found::all_of(found) } else { Found::any_of(found) }
    }

    /// The condition of a test of an expression: a path, or a path with a default.
    pub fn test_of(&self, expr: &Expr, test: Test, wanted: bool) -> Option<Found> {
        if let Some(place) = self.place(expr) {
            return Some(self.test(&place, test, wanted));
        }
        let Expr::Coalesce(items) = expr else { return None };
        let [first, default] = items.as_slice() else { return None };
        // NaN has a position in the total order, but every comparison with it is false.
        let default = self.constant_of(default).filter(|default| !is_nan(default))?;
        let place = self.place(first)?;
        Some(self.test(&place, test.with_default(&default), wanted))
    }

    /// The condition of a test of the value at a path.
    pub fn test(&self, place: &Place, test: Test, wanted: bool) -> Found {
        let ranges = if wanted { test.yes } else { test.no };
        if ranges.is_empty() {
            return Found::NOTHING;
        }
        if place.path.is_empty() {
            // The item itself is an object.
            let object = Value::Object(Object::new());
            let possible = ranges.iter().any(|range| range.contains(&object));
            return if possible {
                Found { condition: Condition::All, exact: test.exact }
            } else {
                Found::NOTHING
            };
        }
        if place.is_names() {
            let condition = Condition::range(place.path.clone(), ranges, test.exact);
            return Found { condition, exact: test.exact };
        }
        if ranges.iter().any(|range| range.has_undefined() || range.has_nested()) {
            return Found::UNKNOWN;
        }
        Found::inexact(Condition::range(place.path.clone(), ranges, false))
    }

    fn comparison(&mut self, left: &Expr, operator: BinaryOperator, right: &Expr, wanted: bool) -> Found {
        if !is_comparison(operator) {
            return Found::NOTHING; // a number or a string
        }
        for (expr, operator, other) in [(left, operator, right), (right, mirrored(operator), left)] {
            let Some(value) = (self.constant)(other) else { continue };
            return match self.test_of(expr, compared(operator, &value), wanted) {
                Some(found) => found,
                None => self.computed_comparison(expr, operator, &value, wanted),
            };
        }
        Found::UNKNOWN
    }

    /// A comparison of an expression other than a path with a constant.
    fn computed_comparison(
        &mut self,
        expr: &Expr,
        operator: BinaryOperator,
        value: &Value,
        wanted: bool,
    ) -> Found {
        match expr {
            Expr::Call { function, arguments } if !super::calls::is_predicate(function) => {
                return self.call_comparison(function, arguments, operator, value, wanted);
            }
            Expr::Subquery { form: SubqueryForm::Scalar, query } if counts(query) => {
                return self.count_comparison(query, &compared(operator, value), wanted);
            }
            _ => {}
        }
        let equal = match operator {
            BinaryOperator::Equal => wanted,
            BinaryOperator::NotEqual => !wanted,
            _ => return Found::UNKNOWN,
        };
        match value {
            Value::Undefined => Found::NOTHING,
            Value::Bool(truth) if equal => self.when(expr, *truth),
            // Not equal, and a boolean: the other truth value.
            Value::Bool(truth) if is_predicate(expr) => self.when(expr, !*truth),
            _ => Found::UNKNOWN,
        }
    }

    /// A number of tuples other than zero.
    fn count_comparison(&mut self, query: &Query, test: &Test, wanted: bool) -> Found {
        let ranges = if wanted { &test.yes } else { &test.no };
        if ranges.iter().any(|range| range.contains(&Value::from(0))) {
            return Found::UNKNOWN;
        }
        let outer = self.levels.len();
        let found = self.tuples(query);
        self.levels.truncate(outer);
        Found::inexact(found.condition)
    }

    fn membership(
        &mut self,
        needle: &Expr,
        items: &[Expr],
        sorted: Option<&[Arc<Value>]>,
        wanted: bool,
    ) -> Found {
        if let Some(found) = sorted.and_then(|values| self.test_of(needle, any_of(values), wanted)) {
            return found;
        }
        let mut found = Vec::with_capacity(items.len());
        for item in items {
            found.push(self.comparison(needle, BinaryOperator::Equal, item, wanted));
        }
        if wanted { Found::any_of(found) } else { Found::all_of(found) }
    }

    fn between(&mut self, value: &Expr, low: &Expr, high: &Expr, wanted: bool) -> Found {
        let above = self.comparison(value, BinaryOperator::GreaterEqual, low, wanted);
        let below = self.comparison(value, BinaryOperator::LessEqual, high, wanted);
        if wanted { Found::all_of([above, below]) } else { Found::any_of([above, below]) }
    }

    fn like(&mut self, text: &Expr, pattern: &Expr, compiled: Option<&Pattern>, wanted: bool) -> Found {
        let Some(place) = self.place(text) else { return Found::UNKNOWN };
        let strings = ValueRange::of_kind(Kind::String);
        let test = match (compiled, pattern) {
            (Some(pattern), _) => match (pattern.prefix(), pattern.shape()) {
                (prefix, Shape::Text) => strings_but(vec![ValueRange::point(Value::String(prefix))]),
                (prefix, Shape::Prefix) => strings_but(vec![ValueRange::prefix(&prefix)]),
                (prefix, Shape::Other) => Test::inexact(ValueRange::prefix(&prefix), strings),
            },
            (None, Expr::Constant(_)) => Test::never(), // not a string
            (None, _) => Test::inexact(strings.clone(), strings),
        };
        self.test(&place, test, wanted)
    }

    fn conditional(&mut self, branches: &[(Expr, Expr)], otherwise: &Expr, wanted: bool) -> Found {
        let mut found = vec![self.when(otherwise, wanted)];
        for (test, value) in branches {
            let chosen = self.when(test, true);
            found.push(Found::all_of([chosen, self.when(value, wanted)]));
        }
        Found::inexact(Found::any_of(found).condition)
    }

    fn subquery(&mut self, form: SubqueryForm, query: &Query, wanted: bool) -> Found {
        let outer = self.levels.len();
        let found = match (form, wanted) {
            (SubqueryForm::Exists, true) | (SubqueryForm::All, false) => self.rows(query),
            (SubqueryForm::Exists, false) | (SubqueryForm::All, true) => Found::UNKNOWN,
            (SubqueryForm::Array, _) => Found::NOTHING,
            (SubqueryForm::Scalar | SubqueryForm::First | SubqueryForm::Last, _) => {
                let rows = self.rows(query);
                match &query.grouping {
                    Some(_) => Found::UNKNOWN,
                    None => Found::all_of([rows, self.when(&query.projection, wanted)]),
                }
            }
        };
        self.levels.truncate(outer);
        Found::inexact(found.condition)
    }
}

/// `SELECT VALUE COUNT(…)`, without GROUP BY.
fn counts(query: &Query) -> bool {
    let Some(grouping) = query.grouping.as_ref().filter(|grouping| grouping.keys.is_empty()) else {
        return false;
    };
    let Expr::Aggregate { index, .. } = &query.projection else { return false };
    grouping.aggregates.get(*index).is_some_and(|call| call.aggregate == Aggregate::Count)
}

/// Always a boolean or undefined.
fn is_predicate(expr: &Expr) -> bool {
    match expr {
        Expr::And(_) | Expr::Or(_) | Expr::In { .. } | Expr::Between { .. } | Expr::Like { .. } => true,
        Expr::Unary { operators, .. } => operators.first() == Some(&UnaryOperator::Not),
        Expr::Chain { rest, .. } => rest.last().is_some_and(|(operator, _)| is_comparison(*operator)),
        Expr::Subquery { form, .. } => matches!(form, SubqueryForm::Exists | SubqueryForm::All),
        Expr::Call { function, .. } => super::calls::is_predicate(function),
        _ => false,
    }
}

pub(super) fn is_comparison(operator: BinaryOperator) -> bool {
    use BinaryOperator::*;
    matches!(operator, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual)
}

/// The operator with exchanged operands.
fn mirrored(operator: BinaryOperator) -> BinaryOperator {
    use BinaryOperator::*;
    match operator {
        Less => Greater,
        LessEqual => GreaterEqual,
        Greater => Less,
        GreaterEqual => LessEqual,
        other => other,
    }
}

fn is_true() -> Test {
    Test::exact(vec![ValueRange::point(Value::Bool(true))], vec![ValueRange::point(Value::Bool(false))])
}

pub(super) fn is_defined() -> Test {
    Test::exact(vec![ValueRange::defined()], vec![ValueRange::point(Value::Undefined)])
}

/// True for the given strings, false for all other strings.
pub(super) fn strings_but(yes: Vec<ValueRange>) -> Test {
    let no = without(ValueRange::of_kind(Kind::String), &yes);
    Test::exact(yes, no)
}

fn is_nan(value: &Value) -> bool {
    value.as_number().is_some_and(|number| number.as_f64().is_nan())
}

pub(super) fn compared(operator: BinaryOperator, value: &Value) -> Test {
    use BinaryOperator::*;
    match operator {
        Equal => any_of(std::slice::from_ref(value)),
        NotEqual => any_of(std::slice::from_ref(value)).negated(),
        _ if matches!(value.kind(), Kind::Undefined | Kind::Array | Kind::Object) => Test::never(),
        _ if is_nan(value) => Test::exact(Vec::new(), vec![ValueRange::of_kind(Kind::Number)]),
        Less => split(ValueRange::below(Bound::Excluded(value.clone())), value.kind()),
        LessEqual => split(ValueRange::below(Bound::Included(value.clone())), value.kind()),
        Greater => split(ValueRange::above(Bound::Excluded(value.clone())), value.kind()),
        _ => split(ValueRange::above(Bound::Included(value.clone())), value.kind()),
    }
}

/// True in the range, false for other values of its kind.
fn split(range: ValueRange, kind: Kind) -> Test {
    let yes = union(vec![range]);
    let no = without(ValueRange::of_kind(kind), &yes);
    Test::exact(yes, no)
}

/// Equal to one of the values. Undefined equals nothing, and makes the result undefined if nothing matches; NaN
/// equals nothing.
pub(super) fn any_of<V: Borrow<Value>>(values: &[V]) -> Test {
    let values = || values.iter().map(Borrow::borrow);
    let equal = values().filter(|value| !value.is_undefined() && !is_nan(value)).map(equal_to);
    let yes = union(equal.collect());
    let nested = values().any(|value: &Value| matches!(value.kind(), Kind::Array | Kind::Object));
    let no = match values().any(Value::is_undefined) {
        true => Vec::new(),
        // An array other than the given one is not equal to it.
        false if nested => vec![ValueRange::defined()],
        false => without(ValueRange::defined(), &yes),
    };
    Test { yes, no, exact: !nested }
}

fn equal_to(value: &Value) -> ValueRange {
    match value.kind() {
        kind @ (Kind::Array | Kind::Object) => ValueRange::of_kind(kind),
        _ => ValueRange::point(value.clone()),
    }
}
