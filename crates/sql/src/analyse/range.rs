//! Ranges of values in their total order, and sets of them.
//!
//! A set is a list of ranges: ascending, disjoint and never adjacent. Kinds follow each other without gaps (nothing
//! lies between `null` and `false`), so `IS_NULL(x) OR IS_BOOL(x)` is one range.
//!
//! Arrays and objects are not distinguished: no bound lies inside them. `[]` and `{}` as a bound mean the start of
//! all arrays and of all objects.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Bound;

use quire_value::{Kind, Number, Object, Value};

/// Values between two bounds, in the total order of values. `undefined` is the first value.
///
/// `low` is never unbounded, `high` only after all objects. Whole kinds are written as: numbers `(true, "")`, strings
/// `["", [])`, arrays `[[], {})`, objects `[{}, ∞)`. No array or object but `[]` and `{}` is a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueRange {
    pub low: Bound<Value>,
    pub high: Bound<Value>,
}

/// A position between values: before or after a value, or after all values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RangeEnd<'v> {
    Before(&'v Value),
    After(&'v Value),
    End,
}

impl Ord for RangeEnd<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.parts(), other.parts()) {
            (Some((left, left_after)), Some((right, right_after))) => {
                cmp_positions(left, right).then(left_after.cmp(&right_after))
            }
            (left, right) => right.is_some().cmp(&left.is_some()),
        }
    }
}

/// All arrays have one position, and so have all objects.
fn cmp_positions(left: &Value, right: &Value) -> Ordering {
    match (left.kind(), right.kind()) {
        (Kind::Array, Kind::Array) | (Kind::Object, Kind::Object) => Ordering::Equal,
        _ => left.total_cmp(right),
    }
}

impl PartialOrd for RangeEnd<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'v> RangeEnd<'v> {
    fn parts(self) -> Option<(&'v Value, bool)> {
        match self {
            RangeEnd::Before(value) => Some((value, false)),
            RangeEnd::After(value) => Some((value, true)),
            RangeEnd::End => None,
        }
    }

    fn is_at_most(self, other: RangeEnd<'_>) -> bool {
        self <= other
            || matches!((other, self), (RangeEnd::After(last), RangeEnd::Before(next)) if follows(last, next))
    }
}

/// Whether nothing lies between two values of neighbouring kinds.
fn follows(last: &Value, next: &Value) -> bool {
    matches!(
        (last, next),
        (Value::Undefined, Value::Null)
            | (Value::Null, Value::Bool(false))
            | (Value::Bool(false), Value::Bool(true))
    )
}

impl ValueRange {
    pub fn point(value: Value) -> ValueRange {
        ValueRange { low: Bound::Included(value.clone()), high: Bound::Included(value) }
    }

    /// All values of a kind.
    pub fn of_kind(kind: Kind) -> ValueRange {
        let (low, high) = match kind {
            Kind::Undefined => return ValueRange::point(Value::Undefined),
            Kind::Null => return ValueRange::point(Value::Null),
            Kind::Bool => (Bound::Included(Value::Bool(false)), Bound::Included(Value::Bool(true))),
            Kind::Number => (Bound::Excluded(Value::Bool(true)), Bound::Excluded(Value::from(""))),
            Kind::String => (Bound::Included(Value::from("")), Bound::Excluded(Value::Array(Vec::new()))),
            Kind::Array => {
                (Bound::Included(Value::Array(Vec::new())), Bound::Excluded(Value::Object(Object::new())))
            }
            Kind::Object => (Bound::Included(Value::Object(Object::new())), Bound::Unbounded),
        };
        ValueRange { low, high }
    }

    /// Everything but `undefined`.
    pub fn defined() -> ValueRange {
        ValueRange { low: Bound::Included(Value::Null), high: Bound::Unbounded }
    }

    /// `undefined` included.
    pub fn everything() -> ValueRange {
        ValueRange { low: Bound::Included(Value::Undefined), high: Bound::Unbounded }
    }

    /// Null, booleans, numbers and strings.
    pub fn scalars() -> ValueRange {
        ValueRange { low: Bound::Included(Value::Null), high: ValueRange::of_kind(Kind::String).high }
    }

    /// Strings with this prefix.
    pub fn prefix(prefix: &str) -> ValueRange {
        let high = match behind_prefix(prefix) {
            Some(next) => Bound::Excluded(Value::String(next)),
            None => ValueRange::of_kind(Kind::String).high,
        };
        ValueRange { low: Bound::Included(Value::from(prefix)), high }
    }

    /// Values of the bound's kind below it. The bound is a scalar.
    pub fn below(high: Bound<Value>) -> ValueRange {
        match kind_of(&high) {
            Some(kind) => ValueRange { low: ValueRange::of_kind(kind).low, high },
            None => ValueRange::everything(),
        }
    }

    /// Values of the bound's kind above it. The bound is a scalar.
    pub fn above(low: Bound<Value>) -> ValueRange {
        match kind_of(&low) {
            Some(kind) => ValueRange { high: ValueRange::of_kind(kind).high, low },
            None => ValueRange::everything(),
        }
    }

    /// The value, if the range has exactly one.
    pub fn as_point(&self) -> Option<&Value> {
        match (&self.low, &self.high) {
            (Bound::Included(low), Bound::Included(high)) if low == high => Some(low),
            _ => None,
        }
    }

    pub fn contains(&self, value: &Value) -> bool {
        self.low_end() <= RangeEnd::Before(value) && RangeEnd::After(value) <= self.high_end()
    }

    /// Contains undefined.
    pub fn has_undefined(&self) -> bool {
        self.contains(&Value::Undefined)
    }

    /// Contains arrays or objects.
    pub fn has_nested(&self) -> bool {
        RangeEnd::Before(&Value::Array(Vec::new())) < self.high_end()
    }

    fn low_end(&self) -> RangeEnd<'_> {
        match &self.low {
            Bound::Included(value) => RangeEnd::Before(value),
            Bound::Excluded(value) => RangeEnd::After(value),
            Bound::Unbounded => RangeEnd::Before(&Value::Undefined),
        }
    }

    fn high_end(&self) -> RangeEnd<'_> {
        match &self.high {
            Bound::Included(value) => RangeEnd::After(value),
            Bound::Excluded(value) => RangeEnd::Before(value),
            Bound::Unbounded => RangeEnd::End,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.high_end() <= self.low_end() || self.is_between_neighbours()
    }

    /// An empty range such as `(null, false)`.
    fn is_between_neighbours(&self) -> bool {
        matches!((&self.low, &self.high), (Bound::Excluded(low), Bound::Excluded(high)) if follows(low, high))
    }
}

fn kind_of(bound: &Bound<Value>) -> Option<Kind> {
    match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(value.kind()),
        Bound::Unbounded => None,
    }
}

/// The first string after all strings with the prefix, if there is one.
fn behind_prefix(prefix: &str) -> Option<String> {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        let next = if last == '\u{D7FF}' { Some('\u{E000}') } else { char::from_u32(last as u32 + 1) };
        if let Some(next) = next {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}

/// The union of ranges in any order.
pub(super) fn union(mut ranges: Vec<ValueRange>) -> Vec<ValueRange> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by(|left, right| left.low_end().cmp(&right.low_end()));
    let mut joined: Vec<ValueRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.low_end().is_at_most(last.high_end()) => {
                if last.high_end() < range.high_end() {
                    last.high = range.high;
                }
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// The intersection of two sets.
pub(crate) fn intersection(left: &[ValueRange], right: &[ValueRange]) -> Vec<ValueRange> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    let mut both = Vec::new();
    while let (Some(one), Some(other)) = (left.peek(), right.peek()) {
        let low = if one.low_end() < other.low_end() { &other.low } else { &one.low };
        let one_ends_first = one.high_end() < other.high_end();
        let high = if one_ends_first { &one.high } else { &other.high };
        both.push(ValueRange { low: low.clone(), high: high.clone() });
        if one_ends_first {
            left.next();
        } else {
            right.next();
        }
    }
    union(both)
}

/// The range without the set.
pub(super) fn without(range: ValueRange, excluded: &[ValueRange]) -> Vec<ValueRange> {
    let mut rest = Vec::with_capacity(excluded.len() + 1);
    let mut low = range.low;
    for hole in excluded {
        rest.push(ValueRange { low, high: flipped(&hole.low) });
        low = flipped(&hole.high);
        if low == Bound::Unbounded {
            return intersect_all(rest, &range.high);
        }
    }
    rest.push(ValueRange { low, high: range.high.clone() });
    intersect_all(rest, &range.high)
}

/// Cuts all ranges at `high`.
fn intersect_all(ranges: Vec<ValueRange>, high: &Bound<Value>) -> Vec<ValueRange> {
    let whole = ValueRange { low: Bound::Included(Value::Undefined), high: high.clone() };
    intersection(&union(ranges), &[whole])
}

fn flipped(bound: &Bound<Value>) -> Bound<Value> {
    match bound {
        Bound::Included(value) => Bound::Excluded(value.clone()),
        Bound::Excluded(value) => Bound::Included(value.clone()),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// `= 5`, `> 5`, `string`, `[1, 5)`: for people.
impl fmt::Display for ValueRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == ValueRange::defined() {
            return formatter.write_str("defined");
        }
        if *self == ValueRange::scalars() {
            return formatter.write_str("scalar");
        }
        if let Some(kind) = KINDS.iter().find(|(kind, _)| ValueRange::of_kind(*kind) == *self) {
            return formatter.write_str(kind.1);
        }
        if let Some(value) = self.as_point() {
            return write!(formatter, "= {}", DisplayValue(value));
        }
        let within = |bound: &Bound<Value>| kind_of(bound).map(ValueRange::of_kind);
        match (&self.low, &self.high) {
            (Bound::Included(low), high) if within(&self.low).is_some_and(|kind| kind.high == *high) => {
                write!(formatter, ">= {}", DisplayValue(low))
            }
            (Bound::Excluded(low), high) if within(&self.low).is_some_and(|kind| kind.high == *high) => {
                write!(formatter, "> {}", DisplayValue(low))
            }
            (low, Bound::Included(high)) if within(&self.high).is_some_and(|kind| kind.low == *low) => {
                write!(formatter, "<= {}", DisplayValue(high))
            }
            (low, Bound::Excluded(high)) if within(&self.high).is_some_and(|kind| kind.low == *low) => {
                write!(formatter, "< {}", DisplayValue(high))
            }
            (low, high) => {
                match low {
                    Bound::Included(low) => write!(formatter, "[{}", DisplayValue(low))?,
                    Bound::Excluded(low) => write!(formatter, "({}", DisplayValue(low))?,
                    Bound::Unbounded => formatter.write_str("(")?,
                }
                match high {
                    Bound::Included(high) => write!(formatter, ", {}]", DisplayValue(high)),
                    Bound::Excluded(high) => write!(formatter, ", {})", DisplayValue(high)),
                    Bound::Unbounded => formatter.write_str(", ∞)"),
                }
            }
        }
    }
}

const KINDS: &[(Kind, &str)] = &[
    (Kind::Undefined, "undefined"),
    (Kind::Null, "null"),
    (Kind::Bool, "boolean"),
    (Kind::Number, "number"),
    (Kind::String, "string"),
    (Kind::Array, "array"),
    (Kind::Object, "object"),
];

/// A value, with `undefined` and values without JSON form written out.
struct DisplayValue<'v>(&'v Value);

impl fmt::Display for DisplayValue<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Undefined => formatter.write_str("undefined"),
            Value::Number(Number::Double(number)) if !number.is_finite() => write!(formatter, "{number}"),
            value => formatter.write_str(&value.to_json()),
        }
    }
}
