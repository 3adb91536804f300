//! Strategies for values: every kind, with the numbers, strings and names where mistakes live.

use proptest::collection::vec;
use proptest::prelude::*;
use quire_value::{Number, Object, Path, Segment, Value};

/// Any JSON value, nested a few levels, without `undefined`.
pub fn any_value() -> impl Strategy<Value = Value> {
    any_scalar().prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..8).prop_map(Value::Array),
            vec((any_name(), inner), 0..8).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Any JSON value without an inside.
pub fn any_scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        4 => any_number().prop_map(Value::Number),
        4 => any_string().prop_map(Value::String),
    ]
}

/// Any object, as an item is one.
pub fn any_object() -> impl Strategy<Value = Object> {
    vec((any_name(), any_value()), 0..12).prop_map(|members| members.into_iter().collect())
}

/// Any finite number, often near a limit of a type.
pub fn any_number() -> impl Strategy<Value = Number> {
    let edge = prop::sample::select(vec![1_i128 << 31, 1 << 53, 1 << 63, 1 << 64, 0x80, 0x8000, 0]);
    let near = (edge, -3_i128..=3, any::<bool>()).prop_map(|(edge, step, negative)| {
        let value = if negative { -edge + step } else { edge + step };
        match (i64::try_from(value), u64::try_from(value)) {
            (Ok(value), _) => Number::Int(value),
            (_, Ok(value)) => Number::Unsigned(value),
            _ => Number::Double(value as f64),
        }
    });
    let integral = any::<i64>().prop_map(|value| Number::Double(value as f64));
    prop_oneof![
        2 => (-100_i64..1000).prop_map(Number::Int),
        2 => near,
        1 => any::<i64>().prop_map(Number::Int),
        1 => any::<u64>().prop_map(Number::from_u64),
        1 => integral,
        3 => prop::num::f64::NORMAL.prop_map(Number::Double),
        1 => (prop::num::f64::SUBNORMAL | prop::num::f64::ZERO).prop_map(Number::Double),
        2 => (-10_000_i32..10_000).prop_map(|value| Number::Double(f64::from(value) / 8.0)),
    ]
}

/// Any string: plain ones, ones that need escapes, and lengths around 64 and 256 bytes.
pub fn any_string() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z]{0,12}",
        2 => "[\\x00-\\x22\\\\é\u{fffd}\u{e000}\u{1f600}]{0,6}",
        1 => any::<String>(),
        1 => "[a-c\\n]{60,70}|[a-c]{250,260}",
    ]
}

/// A property name, from a small set often enough that two objects share names.
pub fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[a-d]{1,2}",
        2 => "[a-z_]{1,12}",
        1 => any_string(),
    ]
}

/// Any path that a policy may hold.
pub fn any_path() -> impl Strategy<Value = Path> {
    let segment = prop_oneof![4 => any_name().prop_map(Segment::Name), 1 => Just(Segment::Elements)];
    let last = prop::sample::select(vec![None, Some(Segment::Scalar), Some(Segment::Wildcard)]);
    (vec(segment, 0..5), last)
        .prop_map(|(segments, last)| Path(segments.into_iter().chain(last).collect()))
        .prop_filter("a path has a segment", |path| !path.0.is_empty())
}
