//! Conditions from expressions.
//!
//! Logic has three values, so there are two conditions for an expression: for `true` and for `false`. NOT swaps them.
//! Each condition holds at least for all items for which the expression has that value, for any elements of the
//! sources in scope. An expression that is not analysed allows every item.

use std::borrow::Borrow;
use std::ops::Bound;
use std::sync::Arc;

use quire_value::{Kind, Object, Value};

use crate::bind::bound::{Expr, Input, Query, Step};
use crate::functions::Aggregate;
use crate::syntax::ast::{BinaryOperator, SubqueryForm, UnaryOperator};
use crate::text::like::{LikeShape, Pattern};

use super::condition::{ComputedRange, Condition};
use super::item_path::{Binding, ItemPath, Levels};
use super::range::{ValueRange, intersection, union, without};

/// A condition, and whether it holds for no other items (it is exact).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FoundCondition {
    pub condition: Condition,
    pub exact: bool,
}

impl FoundCondition {
    pub const UNKNOWN: FoundCondition = FoundCondition { condition: Condition::All, exact: false };
    pub const ALL: FoundCondition = FoundCondition { condition: Condition::All, exact: true };
    pub const NOTHING: FoundCondition = FoundCondition { condition: Condition::Nothing, exact: true };

    pub fn inexact(mut condition: Condition) -> FoundCondition {
        condition.set_inexact();
        let exact = condition == Condition::Nothing;
        FoundCondition { condition, exact }
    }

    pub fn all_of(found: impl IntoIterator<Item = FoundCondition>) -> FoundCondition {
        let (conditions, exact): (Vec<_>, Vec<_>) =
            found.into_iter().map(|found| (found.condition, found.exact)).unzip();
        FoundCondition::joined(Condition::all_of(conditions), &exact)
    }

    pub fn any_of(found: impl IntoIterator<Item = FoundCondition>) -> FoundCondition {
        let (conditions, exact): (Vec<_>, Vec<_>) =
            found.into_iter().map(|found| (found.condition, found.exact)).unzip();
        FoundCondition::joined(Condition::any_of(conditions), &exact)
    }

    fn joined(condition: Condition, exact: &[bool]) -> FoundCondition {
        let exact = condition == Condition::Nothing || exact.iter().all(|exact| *exact);
        FoundCondition { condition, exact }
    }
}

/// The values at one path for which a test is true, and for which it is false.
pub(super) struct ValueTest {
    pub yes: Vec<ValueRange>,
    pub no: Vec<ValueRange>,
    /// Exact sets, not only supersets.
    pub exact: bool,
}

impl ValueTest {
    pub fn exact(yes: Vec<ValueRange>, no: Vec<ValueRange>) -> ValueTest {
        ValueTest { yes, no, exact: true }
    }

    pub fn inexact(yes: ValueRange, no: ValueRange) -> ValueTest {
        ValueTest { yes: vec![yes], no: vec![no], exact: false }
    }

    /// Always undefined.
    pub fn never() -> ValueTest {
        ValueTest::exact(Vec::new(), Vec::new())
    }

    pub fn negated(self) -> ValueTest {
        ValueTest { yes: self.no, no: self.yes, exact: self.exact }
    }

    /// The test of `value ?? default`.
    fn with_default(self, default: &Value) -> ValueTest {
        let replaced = |ranges: Vec<ValueRange>| {
            let missing = ranges.iter().any(|range| range.contains(default));
            let mut ranges = intersection(&ranges, &[ValueRange::defined()]);
            if missing {
                ranges.push(ValueRange::point(Value::Undefined));
            }
            union(ranges)
        };
        ValueTest { yes: replaced(self.yes), no: replaced(self.no), exact: self.exact }
    }
}

/// Derives conditions from the expressions of one query.
pub(super) struct ConditionFinder<'q> {
    pub levels: Levels,
    pub computed: &'q [Expr],
    pub computed_names: &'q [String],
    /// Evaluates expressions that depend on no item.
    pub constant: &'q dyn Fn(&Expr) -> Option<Value>,
}

impl<'q> ConditionFinder<'q> {
    pub fn new(
        query: &'q crate::query::Query,
        constant: &'q dyn Fn(&Expr) -> Option<Value>,
    ) -> ConditionFinder<'q> {
        let compiled = &query.compiled;
        ConditionFinder {
            levels: Levels::default(),
            computed: &compiled.computed,
            computed_names: &compiled.computed_names,
            constant,
        }
    }
}

impl ConditionFinder<'_> {
    /// The condition for a query in the current scope to have a row: from its sources, its filter and its projection.
    /// Its levels stay in scope, so that its row can be examined.
    pub fn rows(&mut self, query: &Query) -> FoundCondition {
        let tuples = self.tuples(query);
        match &query.grouping {
            // Aggregates over no rows also give a row, but no item contributes to it.
            Some(grouping) if grouping.keys.is_empty() && !query.reads_container() => FoundCondition::UNKNOWN,
            Some(_) => tuples,
            None => FoundCondition::all_of([tuples, self.defined(&query.projection)]),
        }
    }

    /// The condition for a combination of its sources to match the filter.
    fn tuples(&mut self, query: &Query) -> FoundCondition {
        let mut found = Vec::new();
        for source in &query.sources {
            found.push(self.source(&source.input, source.iterate));
        }
        if let Some(filter) = &query.filter {
            found.push(self.when(filter, true));
        }
        FoundCondition::all_of(found)
    }

    /// Adds the source to the scope. Exact when it gives one tuple.
    fn source(&mut self, input: &Input, iterate: bool) -> FoundCondition {
        let (binding, found) = match input {
            Input::Container => (Binding::ItemPath(ItemPath::item()), FoundCondition::ALL),
            Input::Expr(expr) => (self.binding(expr), FoundCondition::ALL),
            Input::Subquery(query) => self.derived(query),
        };
        let present = match (&binding, iterate) {
            (Binding::ItemPath(item_path), true) => {
                let array = ValueTest::inexact(ValueRange::of_kind(Kind::Array), ValueRange::everything());
                self.test(item_path, array, true)
            }
            (Binding::ItemPath(item_path), false) => self.test(item_path, is_defined(), true),
            (Binding::Members(_), false) => FoundCondition::ALL,
            _ => FoundCondition::UNKNOWN,
        };
        self.levels.push(if iterate { binding.element() } else { binding });
        FoundCondition::all_of([found, present])
    }

    fn derived(&mut self, query: &Query) -> (Binding, FoundCondition) {
        let outer = self.levels.len();
        let found = self.rows(query);
        let binding = match &query.grouping {
            Some(_) => Binding::Unknown,
            None => self.binding(&query.projection),
        };
        self.levels.truncate(outer);
        let exact = found.exact && !query.distinct && query.grouping.is_none();
        (binding, FoundCondition { exact, ..found })
    }

    fn binding(&self, expr: &Expr) -> Binding {
        self.levels.binding(expr, self.computed)
    }

    pub fn constant_of(&self, expr: &Expr) -> Option<Value> {
        (self.constant)(expr)
    }

    pub fn item_path(&self, expr: &Expr) -> Option<ItemPath> {
        match self.binding(expr) {
            Binding::ItemPath(item_path) => Some(item_path),
            Binding::Unknown | Binding::Members(_) => None,
        }
    }

    /// The condition for the expression to be defined.
    fn defined(&self, expr: &Expr) -> FoundCondition {
        match expr {
            Expr::Object(_) | Expr::Array(_) | Expr::WithFollowed { .. } => FoundCondition::ALL,
            Expr::Constant(value) if value.is_undefined() => FoundCondition::NOTHING,
            Expr::Constant(_) => FoundCondition::ALL,
            expr => match self.item_path(expr) {
                Some(item_path) => self.test(&item_path, is_defined(), true),
                None => FoundCondition::UNKNOWN,
            },
        }
    }

    /// The condition for the expression to be `wanted`, not the other truth value, undefined, or a value of another
    /// type.
    pub fn when(&mut self, expr: &Expr, wanted: bool) -> FoundCondition {
        if let Some(value) = (self.constant)(expr) {
            return if value.as_bool() == Some(wanted) {
                FoundCondition::ALL
            } else {
                FoundCondition::NOTHING
            };
        }
        match expr {
            Expr::And(items) => self.logic(items, wanted, wanted),
            Expr::Or(items) => self.logic(items, wanted, !wanted),
            Expr::Unary { operators, operand } => {
                match operators.iter().all(|operator| *operator == UnaryOperator::Not) {
                    true => self.when(operand, wanted == (operators.len() % 2 == 0)),
                    false => FoundCondition::NOTHING, // a number
                }
            }
            Expr::Chain { first, rest } => match rest.as_slice() {
                [(operator, right)] => self.comparison(first, *operator, right, wanted),
                _ => FoundCondition::UNKNOWN,
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
                None => FoundCondition::inexact(self.logic(items, wanted, false).condition),
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
            Expr::Array(_) | Expr::Object(_) => FoundCondition::NOTHING,
            Expr::Variable { .. } | Expr::Computed { .. } | Expr::Path { .. } => match self.item_path(expr) {
                Some(item_path) => self.test(&item_path, is_true(), wanted),
                None => FoundCondition::UNKNOWN,
            },
            Expr::Constant(_) | Expr::Parameter(_) => FoundCondition::UNKNOWN,
            Expr::GroupKey { .. } | Expr::Aggregate { .. } => FoundCondition::UNKNOWN,
            Expr::UserCall { .. } | Expr::Follow(_) => FoundCondition::UNKNOWN,
            Expr::WithFollowed { .. } => FoundCondition::NOTHING,
        }
    }

    /// All of them have the value, or any of them.
    fn logic(&mut self, items: &[Expr], wanted: bool, all: bool) -> FoundCondition {
        let found: Vec<FoundCondition> = items.iter().map(|item| self.when(item, wanted)).collect();
        if all { FoundCondition::all_of(found) } else { FoundCondition::any_of(found) }
    }

    /// The condition of a test of an expression: a path, or a path with a default.
    pub fn test_of(&self, expr: &Expr, test: ValueTest, wanted: bool) -> Option<FoundCondition> {
        if let Some(item_path) = self.item_path(expr) {
            return Some(self.test(&item_path, test, wanted));
        }
        if let Some(name) = self.computed_name(expr) {
            let ranges = if wanted { test.yes } else { test.no };
            return Some(FoundCondition::inexact(computed_range(name, ranges)?));
        }
        let Expr::Coalesce(items) = expr else { return None };
        let [first, default] = items.as_slice() else { return None };
        // NaN has a position in the total order, but every comparison with it is false.
        let default = self.constant_of(default).filter(|default| !is_nan(default))?;
        let item_path = self.item_path(first)?;
        Some(self.test(&item_path, test.with_default(&default), wanted))
    }

    /// The computed property that an expression is, where each item's value is known when it is written.
    fn computed_name(&self, expr: &Expr) -> Option<&str> {
        let Expr::Computed { level, index, .. } = expr else { return None };
        let is_known = self.levels.is_item(*level) && self.computed.get(*index).is_some_and(is_total);
        self.computed_names.get(*index).filter(|_| is_known).map(String::as_str)
    }

    /// The condition of a test of the value at a path.
    pub fn test(&self, item_path: &ItemPath, test: ValueTest, wanted: bool) -> FoundCondition {
        let ranges = if wanted { test.yes } else { test.no };
        if ranges.is_empty() {
            return FoundCondition::NOTHING;
        }
        if item_path.segments.is_empty() {
            // The item itself is an object.
            let object = Value::Object(Object::new());
            let possible = ranges.iter().any(|range| range.contains(&object));
            return if possible {
                FoundCondition { condition: Condition::All, exact: test.exact }
            } else {
                FoundCondition::NOTHING
            };
        }
        if item_path.is_names() {
            let condition = Condition::range(item_path.segments.clone(), ranges, test.exact);
            return FoundCondition { condition, exact: test.exact };
        }
        if ranges.iter().any(|range| range.has_undefined() || range.has_nested()) {
            return FoundCondition::UNKNOWN;
        }
        FoundCondition::inexact(Condition::range(item_path.segments.clone(), ranges, false))
    }

    fn comparison(
        &mut self,
        left: &Expr,
        operator: BinaryOperator,
        right: &Expr,
        wanted: bool,
    ) -> FoundCondition {
        if !is_comparison(operator) {
            return FoundCondition::NOTHING; // a number or a string
        }
        for (expr, operator, other) in [(left, operator, right), (right, mirrored(operator), left)] {
            let Some(value) = (self.constant)(other) else { continue };
            return match self.test_of(expr, compared(operator, &value), wanted) {
                Some(found) => found,
                None => self.computed_comparison(expr, operator, &value, wanted),
            };
        }
        FoundCondition::UNKNOWN
    }

    /// A comparison of an expression other than a path with a constant.
    fn computed_comparison(
        &mut self,
        expr: &Expr,
        operator: BinaryOperator,
        value: &Value,
        wanted: bool,
    ) -> FoundCondition {
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
            _ => return FoundCondition::UNKNOWN,
        };
        match value {
            Value::Undefined => FoundCondition::NOTHING,
            Value::Bool(truth) if equal => self.when(expr, *truth),
            // Not equal, and a boolean: the other truth value.
            Value::Bool(truth) if is_predicate(expr) => self.when(expr, !*truth),
            _ => FoundCondition::UNKNOWN,
        }
    }

    /// A number of tuples other than zero.
    fn count_comparison(&mut self, query: &Query, test: &ValueTest, wanted: bool) -> FoundCondition {
        let ranges = if wanted { &test.yes } else { &test.no };
        if ranges.iter().any(|range| range.contains(&Value::from(0))) {
            return FoundCondition::UNKNOWN;
        }
        let outer = self.levels.len();
        let found = self.tuples(query);
        self.levels.truncate(outer);
        FoundCondition::inexact(found.condition)
    }

    fn membership(
        &mut self,
        needle: &Expr,
        items: &[Expr],
        sorted: Option<&[Arc<Value>]>,
        wanted: bool,
    ) -> FoundCondition {
        if let Some(found) = sorted.and_then(|values| self.test_of(needle, any_of(values), wanted)) {
            return found;
        }
        let mut found = Vec::with_capacity(items.len());
        for item in items {
            found.push(self.comparison(needle, BinaryOperator::Equal, item, wanted));
        }
        if wanted { FoundCondition::any_of(found) } else { FoundCondition::all_of(found) }
    }

    fn between(&mut self, value: &Expr, low: &Expr, high: &Expr, wanted: bool) -> FoundCondition {
        let above = self.comparison(value, BinaryOperator::GreaterEqual, low, wanted);
        let below = self.comparison(value, BinaryOperator::LessEqual, high, wanted);
        if wanted { FoundCondition::all_of([above, below]) } else { FoundCondition::any_of([above, below]) }
    }

    fn like(
        &mut self,
        text: &Expr,
        pattern: &Expr,
        compiled: Option<&Pattern>,
        wanted: bool,
    ) -> FoundCondition {
        let Some(item_path) = self.item_path(text) else { return FoundCondition::UNKNOWN };
        let strings = ValueRange::of_kind(Kind::String);
        let test = match (compiled, pattern) {
            (Some(pattern), _) => match (pattern.prefix(), pattern.shape()) {
                (prefix, LikeShape::Text) => strings_in(vec![ValueRange::point(Value::String(prefix))]),
                (prefix, LikeShape::Prefix) => strings_in(vec![ValueRange::prefix(&prefix)]),
                (prefix, LikeShape::Other) => ValueTest::inexact(ValueRange::prefix(&prefix), strings),
            },
            (None, Expr::Constant(_)) => ValueTest::never(), // not a string
            (None, _) => ValueTest::inexact(strings.clone(), strings),
        };
        self.test(&item_path, test, wanted)
    }

    fn conditional(&mut self, branches: &[(Expr, Expr)], otherwise: &Expr, wanted: bool) -> FoundCondition {
        let mut found = vec![self.when(otherwise, wanted)];
        for (test, value) in branches {
            let chosen = self.when(test, true);
            found.push(FoundCondition::all_of([chosen, self.when(value, wanted)]));
        }
        FoundCondition::inexact(FoundCondition::any_of(found).condition)
    }

    fn subquery(&mut self, form: SubqueryForm, query: &Query, wanted: bool) -> FoundCondition {
        let outer = self.levels.len();
        let found = match (form, wanted) {
            (SubqueryForm::Exists, true) | (SubqueryForm::All, false) => self.rows(query),
            (SubqueryForm::Exists, false) | (SubqueryForm::All, true) => FoundCondition::UNKNOWN,
            (SubqueryForm::Array, _) => FoundCondition::NOTHING,
            (SubqueryForm::Scalar | SubqueryForm::First | SubqueryForm::Last, _) => {
                let rows = self.rows(query);
                match &query.grouping {
                    Some(_) => FoundCondition::UNKNOWN,
                    None => FoundCondition::all_of([rows, self.when(&query.projection, wanted)]),
                }
            }
        };
        self.levels.truncate(outer);
        FoundCondition::inexact(found.condition)
    }
}

/// `SELECT VALUE COUNT(…)`, without GROUP BY.
/// Nothing where a missing value satisfies it, or an array or object: no index has these.
fn computed_range(name: &str, ranges: Vec<ValueRange>) -> Option<Condition> {
    if ranges.is_empty() {
        return Some(Condition::Nothing);
    }
    let is_scalar = |range: &ValueRange| !range.has_undefined() && !range.has_nested();
    ranges.iter().all(is_scalar).then(|| Condition::Computed(ComputedRange { name: name.to_owned(), ranges }))
}

/// Whether the value never fails, within any limits: an item without a row of the index has no value then.
fn is_total(expr: &Expr) -> bool {
    match expr {
        Expr::Constant(_) | Expr::Variable { .. } => true,
        Expr::Path { base, steps, .. } => {
            is_total(base) && steps.iter().all(|step| matches!(step, Step::Name(_)))
        }
        Expr::Call { function, arguments } => {
            matches!(function.name(), "LOWER" | "UPPER" | "TRIM" | "LTRIM" | "RTRIM" | "LENGTH")
                && arguments.iter().all(is_total)
        }
        _ => false,
    }
}

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
pub(crate) fn mirrored(operator: BinaryOperator) -> BinaryOperator {
    use BinaryOperator::*;
    match operator {
        Less => Greater,
        LessEqual => GreaterEqual,
        Greater => Less,
        GreaterEqual => LessEqual,
        other => other,
    }
}

fn is_true() -> ValueTest {
    ValueTest::exact(vec![ValueRange::point(Value::Bool(true))], vec![ValueRange::point(Value::Bool(false))])
}

pub(super) fn is_defined() -> ValueTest {
    ValueTest::exact(vec![ValueRange::defined()], vec![ValueRange::point(Value::Undefined)])
}

/// True for the given strings, false for all other strings.
pub(super) fn strings_in(yes: Vec<ValueRange>) -> ValueTest {
    let no = without(ValueRange::of_kind(Kind::String), &yes);
    ValueTest::exact(yes, no)
}

fn is_nan(value: &Value) -> bool {
    value.as_number().is_some_and(|number| number.as_f64().is_nan())
}

pub(super) fn compared(operator: BinaryOperator, value: &Value) -> ValueTest {
    use BinaryOperator::*;
    match operator {
        Equal => any_of(std::slice::from_ref(value)),
        NotEqual => any_of(std::slice::from_ref(value)).negated(),
        _ if matches!(value.kind(), Kind::Undefined | Kind::Array | Kind::Object) => ValueTest::never(),
        _ if is_nan(value) => ValueTest::exact(Vec::new(), vec![ValueRange::of_kind(Kind::Number)]),
        Less => split(ValueRange::below(Bound::Excluded(value.clone())), value.kind()),
        LessEqual => split(ValueRange::below(Bound::Included(value.clone())), value.kind()),
        Greater => split(ValueRange::above(Bound::Excluded(value.clone())), value.kind()),
        _ => split(ValueRange::above(Bound::Included(value.clone())), value.kind()),
    }
}

/// The values for which a comparison with a scalar is true, unless there are none. As [`compared`] has it.
pub(crate) fn compared_range(operator: BinaryOperator, value: &Value) -> Option<ValueRange> {
    use BinaryOperator::*;
    let range = match operator {
        Equal => ValueRange::point(value.clone()),
        Less => ValueRange::below(Bound::Excluded(value.clone())),
        LessEqual => ValueRange::below(Bound::Included(value.clone())),
        Greater => ValueRange::above(Bound::Excluded(value.clone())),
        GreaterEqual => ValueRange::above(Bound::Included(value.clone())),
        _ => return None,
    };
    (!range.is_empty()).then_some(range)
}

/// True in the range, false for other values of its kind.
fn split(range: ValueRange, kind: Kind) -> ValueTest {
    let yes = union(vec![range]);
    let no = without(ValueRange::of_kind(kind), &yes);
    ValueTest::exact(yes, no)
}

/// Equal to one of the values. Undefined equals nothing, and makes the result undefined if nothing matches; NaN
/// equals nothing.
pub(super) fn any_of<V: Borrow<Value>>(values: &[V]) -> ValueTest {
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
    ValueTest { yes, no, exact: !nested }
}

fn equal_to(value: &Value) -> ValueRange {
    match value.kind() {
        kind @ (Kind::Array | Kind::Object) => ValueRange::of_kind(kind),
        _ => ValueRange::point(value.clone()),
    }
}
