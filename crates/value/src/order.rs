//! Equality, hash and total order of values.
//!
//! Order: undefined < null < boolean < number < string < array < object. Strings by code point; arrays among arrays and
//! objects among objects by their [`crate::hash`], because clients merge by it. Of those that share a hash, arrays by
//! element, objects as their members sorted by name.
//!
//! Invariants, each a property test:
//! 1. `a == b` exactly when `a.total_cmp(b)` is `Equal`, and then their hashes agree.
//! 2. Numbers compare by exact mathematical value: 2^53 and 2^53 + 1 differ, `1` equals `1.0`, `-0` equals `0`.
//!    NaN equals itself and comes first, so that values can be keys of a map; the evaluator answers `NaN = NaN` itself.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use crate::{Number, Object, Value, hash};

/// Objects up to this size are compared by a linear search for each name.
pub(crate) const SMALL_OBJECT_LEN_MAX: usize = 16;

impl Number {
    /// By exact mathematical value; `-0` equals `0`; NaN first (it never leaves the evaluator).
    pub fn total_cmp(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Int(left), Number::Int(right)) => left.cmp(&right),
            _ => cmp_floors(self.floor_to_double(), other.floor_to_double()),
        }
    }
}

// The floor is the largest double below, so different floors decide; for equal floors the rest decides.
fn cmp_floors(left: (f64, u16), right: (f64, u16)) -> Ordering {
    match left.0.partial_cmp(&right.0) {
        Some(ordering) => ordering.then(left.1.cmp(&right.1)),
        None => right.0.is_nan().cmp(&left.0.is_nan()),
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.total_cmp(*other).is_eq()
    }
}

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Number) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Number) -> Ordering {
        self.total_cmp(*other)
    }
}

impl Hash for Number {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (floor, rest) = self.floor_to_double();
        ordered_bits(floor).hash(state);
        rest.hash(state);
    }
}

/// Bits of a double that compare like the double: one zero, one NaN below everything.
pub(crate) fn ordered_bits(value: f64) -> u64 {
    if value.is_nan() {
        return 0;
    }
    let bits = (value + 0.0).to_bits(); // -0.0 + 0.0 is 0.0
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// Inverse of [`ordered_bits`].
pub(crate) fn from_ordered_bits(ordered: u64) -> f64 {
    f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered })
}

impl Value {
    pub fn total_cmp(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
            (Value::Number(left), Value::Number(right)) => left.total_cmp(*right),
            (Value::String(left), Value::String(right)) => left.cmp(right),
            (Value::Array(left), Value::Array(right)) => self.hash_cmp(other).then_with(|| left.cmp(right)),
            (Value::Object(left), Value::Object(right)) => self.hash_cmp(other).then_with(|| left.cmp(right)),
            _ => self.kind().cmp(&other.kind()),
        }
    }

    fn hash_cmp(&self, other: &Value) -> Ordering {
        hash::of_value(self).cmp(&hash::of_value(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Bool(left), Value::Bool(right)) => left == right,
            (Value::Number(left), Value::Number(right)) => left == right,
            (Value::String(left), Value::String(right)) => left == right,
            (Value::Array(left), Value::Array(right)) => left == right,
            (Value::Object(left), Value::Object(right)) => left == right,
            _ => self.kind() == other.kind(),
        }
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        self.total_cmp(other)
    }
}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind().hash(state);
        match self {
            Value::Undefined | Value::Null => {}
            Value::Bool(value) => value.hash(state),
            Value::Number(number) => number.hash(state),
            Value::String(text) => text.hash(state),
            Value::Array(elements) => elements.hash(state),
            Value::Object(object) => object.hash(state),
        }
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        if self.len() != other.len() {
            return false;
        }
        if self.len() <= SMALL_OBJECT_LEN_MAX {
            return self.iter().all(|(name, value)| other.get(name) == Some(value));
        }
        let others: HashMap<&str, &Value> = other.iter().collect();
        self.iter().all(|(name, value)| others.get(name) == Some(&value))
    }
}

impl Eq for Object {}

impl PartialOrd for Object {
    fn partial_cmp(&self, other: &Object) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Object {
    fn cmp(&self, other: &Object) -> Ordering {
        self.sorted().into_iter().cmp(other.sorted())
    }
}

impl Hash for Object {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        for member in self.sorted() {
            member.hash(state);
        }
    }
}

impl Object {
    /// Members in name order.
    pub(crate) fn sorted(&self) -> Vec<(&str, &Value)> {
        let mut members: Vec<_> = self.iter().collect();
        members.sort_unstable_by_key(|(name, _)| *name);
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    fn check(left: &str, right: &str, expected: Ordering) {
        let parse = |text: &str| text::parse(text.as_bytes(), Default::default()).unwrap();
        assert_eq!(parse(left).total_cmp(&parse(right)), expected, "{left} to {right}");
        assert_eq!(parse(left) == parse(right), expected.is_eq(), "{left} and {right}");
    }

    #[test]
    fn kinds_are_ordered() {
        let ladder = ["null", "false", "true", "-1e300", "0", "1e300", "\"\"", "\"a\"", "[]", "{}"];
        for pair in ladder.windows(2) {
            check(pair[0], pair[1], Ordering::Less);
            check(pair[1], pair[0], Ordering::Greater);
        }
        assert!(Value::Undefined < Value::Null);
    }

    #[test]
    fn numbers_compare_exactly() {
        check("9007199254740992", "9007199254740993", Ordering::Less);
        check("9007199254740992.0", "9007199254740993", Ordering::Less);
        check("9007199254740994.0", "9007199254740993", Ordering::Greater);
        check("1", "1.0", Ordering::Equal);
        check("-0.0", "0", Ordering::Equal);
        check("18446744073709551615", "18446744073709551616", Ordering::Less);
        check("9223372036854775807", "9223372036854775808", Ordering::Less);
        check("9223372036854775808", "9223372036854775808.0", Ordering::Equal);
        check("-9223372036854775809", "-9223372036854775808", Ordering::Equal); // the first is a double
        let nan = Number::Double(f64::NAN);
        assert!(nan < Number::Double(f64::NEG_INFINITY) && nan < Number::Int(i64::MIN) && nan == nan);
    }

    #[test]
    fn arrays_and_objects_are_ordered_by_hash() {
        let bytes = |low: i64| low.to_le_bytes();
        let expected = bytes(-6706074647855398782).cmp(&bytes(-4707906972912397491));
        check("[]", r#"[1,"a",null]"#, expected);
        let expected = bytes(1457042291250783704).cmp(&bytes(-5654460812679602126));
        check("{}", r#"{"a":1,"b":[true,{"c":"x"}]}"#, expected);
        // Equal hashes, since clients read such integers as doubles.
        check("[18446744073709551614]", "[18446744073709551615]", Ordering::Less);
    }

    #[test]
    fn objects_compare_regardless_of_order() {
        check(r#"{"a":1,"b":[2]}"#, r#"{"b":[2.0],"a":1}"#, Ordering::Equal);
        let member = |i: i64| (format!("name{i}"), Value::from(i));
        let up: Object = (0..50_000).map(member).collect();
        let down: Object = (0..50_000).rev().map(member).collect();
        assert_eq!(up, down);
    }
}
