//! 64-bit integers: exact, wrapping around on overflow.

use quire_value::Value;

use super::{Call, Function, IndexUse, exactly, f};

pub(super) const FUNCTIONS: &[Function] = &[
    f(&["IntAdd"], exactly(2), |call| binary(call, |a, b| Some(a.wrapping_add(b))), IndexUse::None),
    f(&["IntSub"], exactly(2), |call| binary(call, |a, b| Some(a.wrapping_sub(b))), IndexUse::None),
    f(
        &["IntMul", "IntMultiply"],
        exactly(2),
        |call| binary(call, |a, b| Some(a.wrapping_mul(b))),
        IndexUse::None,
    ),
    f(&["IntDiv"], exactly(2), |call| binary(call, divide), IndexUse::None),
    f(&["IntMod"], exactly(2), |call| binary(call, modulo), IndexUse::None),
    f(&["IntBitAnd", "IntBitwiseAnd"], exactly(2), |call| binary(call, |a, b| Some(a & b)), IndexUse::None),
    f(&["IntBitOr", "IntBitwiseOr"], exactly(2), |call| binary(call, |a, b| Some(a | b)), IndexUse::None),
    f(&["IntBitXor", "IntBitwiseXor"], exactly(2), |call| binary(call, |a, b| Some(a ^ b)), IndexUse::None),
    f(
        &["IntBitNot", "IntBitwiseNot"],
        exactly(1),
        |call| Some(Value::from(!call.integer(0)?)),
        IndexUse::None,
    ),
    f(&["IntBitLeftShift", "IntBitwiseLeftShift"], exactly(2), |call| binary(call, left), IndexUse::None),
    f(&["IntBitRightShift", "IntBitwiseRightShift"], exactly(2), |call| binary(call, right), IndexUse::None),
];

fn binary(call: &Call<'_>, function: fn(i64, i64) -> Option<i64>) -> Option<Value> {
    Some(Value::from(function(call.integer(0)?, call.integer(1)?)?))
}

fn divide(dividend: i64, divisor: i64) -> Option<i64> {
    (divisor != 0).then(|| dividend.wrapping_div(divisor))
}

fn modulo(dividend: i64, divisor: i64) -> Option<i64> {
    (divisor != 0).then(|| dividend.wrapping_rem(divisor))
}

fn left(value: i64, count: i64) -> Option<i64> {
    shift_count(count).map(|count| value << count)
}

fn right(value: i64, count: i64) -> Option<i64> {
    shift_count(count).map(|count| value >> count)
}

/// `None` for other counts: the result is undefined.
fn shift_count(count: i64) -> Option<u32> {
    u32::try_from(count).ok().filter(|count| *count < 64)
}
