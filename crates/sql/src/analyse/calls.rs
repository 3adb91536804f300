//! Conditions from functions: functions as predicates, and functions of a path compared with constants.
//!
//! This module implements what the table of functions declares in `IndexUse`.

use std::ops::Bound;

use quire_value::{Kind, Number, Path, Value};

use crate::bind::bound::Expr;
use crate::functions::Function;
use crate::syntax::ast::BinaryOperator;

use super::condition::{Condition, FullTextCondition, FullTextTerm, SpatialCondition, SpatialRelation};
use super::item_path::ItemPath;
use super::predicate::{
    ConditionFinder, FoundCondition, ValueTest, any_of, compared, is_defined, strings_in,
};
use super::range::{ValueRange, intersection, union, without};

/// Whether the function returns `true`, `false` or undefined for all arguments.
pub(super) fn is_predicate(function: &Function) -> bool {
    let name = function.name();
    name.starts_with("IS_")
        || name.starts_with("ARRAY_CONTAINS")
        || name.starts_with("FullTextContains")
        || matches!(name, "STARTSWITH" | "ENDSWITH" | "CONTAINS" | "StringEquals" | "RegexMatch")
        || matches!(name, "CONTAINS_ANY_CS" | "CONTAINS_ANY_CI" | "CONTAINS_ALL_CS" | "CONTAINS_ALL_CI")
        || matches!(name, "ST_WITHIN" | "ST_INTERSECTS" | "ST_ISVALID" | "SetEqual")
}

fn strings() -> ValueRange {
    ValueRange::of_kind(Kind::String)
}

fn numbers() -> ValueRange {
    ValueRange::of_kind(Kind::Number)
}

/// True or false only for values of one kind; nothing else is known.
fn only(kind: ValueRange) -> ValueTest {
    ValueTest::inexact(kind.clone(), kind)
}

impl ConditionFinder<'_> {
    /// The condition for a call to return `wanted`.
    pub(super) fn call(&mut self, function: &Function, arguments: &[Expr], wanted: bool) -> FoundCondition {
        match function.name() {
            "ARRAY_CONTAINS" => self.array_contains(arguments, wanted),
            "ARRAY_CONTAINS_ANY" => self.array_contains_several(arguments, false, wanted),
            "ARRAY_CONTAINS_ALL" => self.array_contains_several(arguments, true, wanted),
            "ST_WITHIN" | "ST_INTERSECTS" => self.spatial(function, arguments, wanted),
            "FullTextContains" | "FullTextContainsAll" => self.full_text(arguments, true, wanted),
            "FullTextContainsAny" => self.full_text(arguments, false, wanted),
            _ => self.tested(function, arguments, wanted).unwrap_or(FoundCondition::UNKNOWN),
        }
    }

    /// Tests of the first argument.
    fn tested(&self, function: &Function, arguments: &[Expr], wanted: bool) -> Option<FoundCondition> {
        let test = match function.name() {
            "IS_DEFINED" => is_defined(),
            "IS_NULL" => is_kind(Kind::Null),
            "IS_BOOL" => is_kind(Kind::Bool),
            "IS_NUMBER" => is_kind(Kind::Number),
            "IS_STRING" => is_kind(Kind::String),
            "IS_ARRAY" => is_kind(Kind::Array),
            "IS_OBJECT" => is_kind(Kind::Object),
            "IS_PRIMITIVE" => everything_else(ValueRange::scalars()),
            "IS_INTEGER" | "IS_FINITE_NUMBER" => ValueTest::inexact(numbers(), ValueRange::everything()),
            "IS_DATETIME" => ValueTest::inexact(strings(), ValueRange::everything()),
            "STARTSWITH" => self.string_test(arguments, ValueRange::prefix),
            "StringEquals" => self.string_test(arguments, |text| ValueRange::point(Value::from(text))),
            "RegexMatch" => ValueTest::inexact(self.regex_range(arguments), strings()),
            "CONTAINS" | "ENDSWITH" => only(strings()),
            "CONTAINS_ANY_CS" | "CONTAINS_ANY_CI" | "CONTAINS_ALL_CS" | "CONTAINS_ALL_CI" => only(strings()),
            _ => return None,
        };
        self.test_of(arguments.first()?, test, wanted)
    }

    fn constant_at(&self, arguments: &[Expr], index: usize) -> Option<Value> {
        self.constant_of(arguments.get(index)?)
    }

    /// A test with a second string, optionally case-insensitive.
    fn string_test(&self, arguments: &[Expr], range: impl Fn(&str) -> ValueRange) -> ValueTest {
        let ignore_case = match arguments.get(2).map(|argument| self.constant_of(argument)) {
            None => false,
            Some(Some(Value::Bool(ignore_case))) => ignore_case,
            Some(Some(_)) => return ValueTest::never(),
            Some(None) => return only(strings()),
        };
        match self.constant_at(arguments, 1) {
            Some(Value::String(text)) if !ignore_case => strings_in(vec![range(&text)]),
            Some(Value::String(_)) | None => only(strings()),
            Some(_) => ValueTest::never(),
        }
    }

    /// `^abc…` without modifiers matches texts that begin with `abc`.
    fn regex_range(&self, arguments: &[Expr]) -> ValueRange {
        match (self.constant_at(arguments, 1), arguments.len()) {
            (Some(Value::String(pattern)), 2) => ValueRange::prefix(&anchored_text(&pattern)),
            _ => strings(),
        }
    }

    /// An array at a path contains a constant, or a constant array contains the value at a path.
    fn array_contains(&mut self, arguments: &[Expr], wanted: bool) -> FoundCondition {
        let partial = match arguments.get(2).map(|argument| self.constant_of(argument)) {
            None | Some(Some(Value::Undefined)) => Some(false),
            Some(Some(Value::Bool(partial))) => Some(partial),
            Some(Some(_)) => return FoundCondition::NOTHING,
            Some(None) => None,
        };
        let [array, element, ..] = arguments else { return FoundCondition::UNKNOWN };
        match (self.constant_of(array), self.constant_of(element)) {
            (Some(Value::Array(values)), _) => {
                let mut test = any_of(&values);
                if partial != Some(false) {
                    // A partial match: an element contains all members of the object.
                    test.yes = union([test.yes, vec![ValueRange::of_kind(Kind::Object)]].concat());
                    test.no = vec![ValueRange::defined()];
                    test.exact = false;
                }
                self.test_of(element, test, wanted).unwrap_or(FoundCondition::UNKNOWN)
            }
            (Some(_), _) => FoundCondition::NOTHING,
            (None, Some(value)) => self.array_has(array, &value, partial, wanted),
            (None, None) => self.is_array(array),
        }
    }

    fn array_contains_several(&mut self, arguments: &[Expr], all: bool, wanted: bool) -> FoundCondition {
        let Some((array, values)) = arguments.split_first() else { return FoundCondition::UNKNOWN };
        let is_array = self.is_array(array);
        if !wanted {
            return is_array;
        }
        let mut found = Vec::new();
        for value in values {
            match self.constant_of(value) {
                Some(Value::Undefined) if all => return FoundCondition::NOTHING,
                Some(Value::Undefined) => {}
                Some(value) => found.push(self.array_has(array, &value, Some(false), true)),
                None => found.push(is_array.clone()),
            }
        }
        if all { FoundCondition::all_of(found) } else { FoundCondition::any_of(found) }
    }

    /// True or false only for arrays.
    fn is_array(&self, array: &Expr) -> FoundCondition {
        let found = self.test_of(array, only(ValueRange::of_kind(Kind::Array)), true);
        found.unwrap_or(FoundCondition::UNKNOWN)
    }

    fn array_has(&self, array: &Expr, value: &Value, partial: Option<bool>, wanted: bool) -> FoundCondition {
        if value.is_undefined() {
            return FoundCondition::NOTHING;
        }
        let Some(item_path) = self.item_path(array).filter(|item_path| !item_path.segments.is_empty()) else {
            return self.is_array(array);
        };
        if !wanted {
            return self.is_array(array);
        }
        let names = item_path.is_names();
        match element_equal(item_path.elements(), value) {
            Condition::All => self.is_array(array),
            // With a single scalar, the element is in the array exactly when it is in the index.
            Condition::Range(mut range) => {
                range.exact =
                    names && partial.is_some() && !matches!(value, Value::Array(_) | Value::Object(_));
                let exact = range.exact;
                FoundCondition { condition: Condition::Range(range), exact }
            }
            condition => FoundCondition::inexact(condition),
        }
    }

    /// A function of a path compared with a constant.
    pub(super) fn call_comparison(
        &mut self,
        function: &Function,
        arguments: &[Expr],
        operator: BinaryOperator,
        value: &Value,
        wanted: bool,
    ) -> FoundCondition {
        let compared = compared(operator, value);
        let result = if wanted { compared.yes } else { compared.no };
        let argument = match function.name() {
            "FLOOR" | "CEILING" | "ROUND" | "TRUNC" => around(&within_kind(&result, Kind::Number)),
            "ABS" => absolute(&within_kind(&result, Kind::Number)),
            "LEFT" => beginning(&within_kind(&result, Kind::String)),
            "SUBSTRING" if self.constant_at(arguments, 1) == Some(Value::from(0)) => {
                beginning(&within_kind(&result, Kind::String))
            }
            "RIGHT" | "SUBSTRING" | "MONTH" | "DAY" => strings_if(!result.is_empty()),
            "YEAR" => year(&within_kind(&result, Kind::Number)),
            "ST_DISTANCE" => return self.distance(arguments, &within_kind(&result, Kind::Number)),
            _ => return FoundCondition::UNKNOWN,
        };
        let test = ValueTest { yes: argument, no: Vec::new(), exact: false };
        let found = arguments.first().and_then(|argument| self.test_of(argument, test, true));
        found.unwrap_or(FoundCondition::UNKNOWN)
    }

    /// The path among two arguments, and the constant; whether the path comes first.
    fn path_and_constant(&self, arguments: &[Expr]) -> Option<(Path, Value, bool)> {
        let [left, right, ..] = arguments else { return None };
        let names = |expr: &Expr| {
            let item_path: ItemPath = self.item_path(expr)?;
            (item_path.is_names() && !item_path.segments.is_empty()).then_some(Path(item_path.segments))
        };
        match (names(left), self.constant_of(right)) {
            (Some(path), Some(value)) => Some((path, value, true)),
            _ => Some((names(right)?, self.constant_of(left)?, false)),
        }
    }

    fn spatial(&self, function: &Function, arguments: &[Expr], wanted: bool) -> FoundCondition {
        let Some((path, region, path_first)) = self.path_and_constant(arguments).filter(|_| wanted) else {
            return FoundCondition::UNKNOWN;
        };
        let relation = match (function.name(), path_first) {
            ("ST_INTERSECTS", _) => SpatialRelation::Intersects,
            (_, true) => SpatialRelation::Within,
            (_, false) => SpatialRelation::Contains,
        };
        FoundCondition::inexact(Condition::Spatial(SpatialCondition { path, region, relation }))
    }

    /// A distance within the ranges of numbers: at most the largest of them.
    fn distance(&self, arguments: &[Expr], distances: &[ValueRange]) -> FoundCondition {
        let Some((path, region, _)) = self.path_and_constant(arguments) else {
            return FoundCondition::UNKNOWN;
        };
        match distances.last().map(|range| &range.high) {
            None => FoundCondition::NOTHING,
            Some(Bound::Included(Value::Number(high)) | Bound::Excluded(Value::Number(high))) => {
                let relation = SpatialRelation::Near(high.as_f64());
                FoundCondition::inexact(Condition::Spatial(SpatialCondition { path, region, relation }))
            }
            Some(_) => FoundCondition::UNKNOWN,
        }
    }

    /// The last argument is the language, which the binder adds.
    fn full_text(&self, arguments: &[Expr], all: bool, wanted: bool) -> FoundCondition {
        let [text, terms @ .., _language] = arguments else { return FoundCondition::UNKNOWN };
        let Some(item_path) = self.item_path(text) else { return FoundCondition::UNKNOWN };
        let terms: Option<Vec<FullTextTerm>> = terms.iter().map(|term| self.full_text_term(term)).collect();
        match terms {
            Some(terms) if wanted && item_path.is_names() && !item_path.segments.is_empty() => {
                let path = Path(item_path.segments);
                FoundCondition::inexact(Condition::FullText(FullTextCondition { path, terms, all }))
            }
            _ => self.test(&item_path, only(strings()), true),
        }
    }

    fn full_text_term(&self, term: &Expr) -> Option<FullTextTerm> {
        match self.constant_of(term)? {
            Value::String(text) => Some(FullTextTerm { text, distance: 0 }),
            Value::Object(term) => Some(FullTextTerm {
                text: term.get("term")?.as_str()?.to_owned(),
                distance: term.get("distance").map_or(Some(0), Value::as_u64)?,
            }),
            _ => None,
        }
    }
}

/// Never undefined: false for values of another kind.
fn is_kind(kind: Kind) -> ValueTest {
    everything_else(ValueRange::of_kind(kind))
}

fn everything_else(yes: ValueRange) -> ValueTest {
    let no = without(ValueRange::everything(), std::slice::from_ref(&yes));
    ValueTest::exact(vec![yes], no)
}

/// The index condition for an element that equals the value, or for an object with its members.
fn element_equal(element: ItemPath, value: &Value) -> Condition {
    match value {
        Value::Array(elements) => {
            let inner = elements.iter().map(|value| element_equal(element.clone().elements(), value));
            Condition::all_of(inner.collect::<Vec<_>>())
        }
        Value::Object(members) => {
            let inner = members.iter().map(|(name, value)| element_equal(element.clone().name(name), value));
            Condition::all_of(inner.collect::<Vec<_>>())
        }
        Value::Undefined => Condition::All,
        scalar => Condition::range(element.segments, vec![ValueRange::point(scalar.clone())], false),
    }
}

fn within_kind(ranges: &[ValueRange], kind: Kind) -> Vec<ValueRange> {
    intersection(ranges, &[ValueRange::of_kind(kind)])
}

fn strings_if(possible: bool) -> Vec<ValueRange> {
    if possible { vec![strings()] } else { Vec::new() }
}

fn number_at(bound: &Bound<Value>) -> Option<Number> {
    match bound {
        Bound::Included(Value::Number(number)) | Bound::Excluded(Value::Number(number)) => Some(*number),
        _ => None,
    }
}

/// Numbers that differ by less than one. Large integers are their own result, and adding one may not change them.
fn around(ranges: &[ValueRange]) -> Vec<ValueRange> {
    let moved = |number: Number, by: f64| Number::Double(number.as_f64() + by);
    let widened = |range: &ValueRange| ValueRange {
        low: number_at(&range.low)
            .map_or(numbers().low, |low| Bound::Included(Value::Number(moved(low, -1.0).min(low)))),
        high: number_at(&range.high)
            .map_or(numbers().high, |high| Bound::Included(Value::Number(moved(high, 1.0).max(high)))),
    };
    union(ranges.iter().map(widened).collect())
}

/// Numbers whose absolute value is in the ranges: the ranges and their mirror images.
fn absolute(ranges: &[ValueRange]) -> Vec<ValueRange> {
    let mirrored = |range: &ValueRange| ValueRange {
        low: number_at(&range.high).map_or(numbers().low, |high| negative(high, f64::next_down)),
        high: number_at(&range.low).map_or(numbers().high, |low| negative(low, f64::next_up)),
    };
    let positive = ValueRange { low: Bound::Included(Value::from(0)), high: numbers().high };
    let ranges = intersection(ranges, &[positive]);
    let mut both: Vec<ValueRange> = ranges.iter().map(mirrored).collect();
    both.extend(ranges);
    union(both)
}

/// For an integer that a double cannot represent, the next double.
fn negative(number: Number, beyond: fn(f64) -> f64) -> Bound<Value> {
    let negative = match number {
        Number::Int(value) => value.checked_neg().map(Number::Int),
        _ => None,
    };
    Bound::Included(Value::Number(negative.unwrap_or_else(|| Number::Double(beyond(-number.as_f64())))))
}

/// Strings that begin with one of the points; any string if there are ranges other than points.
fn beginning(results: &[ValueRange]) -> Vec<ValueRange> {
    let prefix = |range: &ValueRange| match range.as_point() {
        Some(Value::String(text)) => ValueRange::prefix(text),
        _ => strings(),
    };
    union(results.iter().map(prefix).collect())
}

/// Date-time strings begin with four digits of the year. An offset may move the last day of a year into the next
/// year, and the first day into the previous one.
fn year(results: &[ValueRange]) -> Vec<ValueRange> {
    let prefixes = |range: &ValueRange| match range.as_point().and_then(Value::as_i64) {
        Some(year @ 1..=9_998) => vec![
            ValueRange::prefix(&format!("{:04}-12-31", year - 1)),
            ValueRange::prefix(&format!("{year:04}-")),
            ValueRange::prefix(&format!("{:04}-01-01", year + 1)),
        ],
        _ => vec![strings()],
    };
    union(results.iter().flat_map(prefixes).collect())
}

/// The literal text at the start of an anchored pattern.
fn anchored_text(pattern: &str) -> String {
    let Some(rest) = pattern.strip_prefix('^').filter(|rest| !rest.contains('|')) else {
        return String::new();
    };
    let is_plain = |character: &char| {
        character.is_alphanumeric() || matches!(character, ' ' | '_' | '-' | '/' | ':' | '@' | '#')
    };
    let mut text: String = rest.chars().take_while(is_plain).collect();
    // A repetition applies to the last character, and may be zero times.
    if rest[text.len()..].starts_with(['*', '?', '{', '+']) {
        text.pop();
    }
    text
}
