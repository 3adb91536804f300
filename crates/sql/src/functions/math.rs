//! Mathematics in doubles. An undefined result is NaN, which is left out of the output.

use quire_value::{Number, Value, random};

use super::{Call, Function, IndexUse, Volatility, between, exactly, f};

pub(super) const FUNCTIONS: &[Function] = &[
    f(&["ABS"], exactly(1), abs, IndexUse::Range),
    f(&["CEILING"], exactly(1), |call| integral(call, f64::ceil), IndexUse::Range),
    f(&["FLOOR"], exactly(1), |call| integral(call, f64::floor), IndexUse::Range),
    f(&["ROUND"], exactly(1), |call| integral(call, f64::round), IndexUse::Range),
    f(&["TRUNC"], exactly(1), |call| integral(call, f64::trunc), IndexUse::Range),
    f(&["SIGN"], exactly(1), sign, IndexUse::None),
    f(&["SQRT"], exactly(1), |call| unary(call, f64::sqrt), IndexUse::None),
    f(&["SQUARE"], exactly(1), |call| unary(call, |x| x * x), IndexUse::None),
    f(&["POWER"], exactly(2), |call| binary(call, f64::powf), IndexUse::None),
    f(&["EXP"], exactly(1), |call| unary(call, f64::exp), IndexUse::None),
    f(&["LOG"], between(1, 2), log, IndexUse::None),
    f(&["LOG10"], exactly(1), |call| unary(call, f64::log10), IndexUse::None),
    f(&["SIN"], exactly(1), |call| unary(call, f64::sin), IndexUse::None),
    f(&["COS"], exactly(1), |call| unary(call, f64::cos), IndexUse::None),
    f(&["TAN"], exactly(1), |call| unary(call, f64::tan), IndexUse::None),
    f(&["COT"], exactly(1), |call| unary(call, |x| 1.0 / x.tan()), IndexUse::None),
    f(&["ASIN"], exactly(1), |call| unary(call, f64::asin), IndexUse::None),
    f(&["ACOS"], exactly(1), |call| unary(call, f64::acos), IndexUse::None),
    f(&["ATAN"], exactly(1), |call| unary(call, f64::atan), IndexUse::None),
    f(&["ATN2"], exactly(2), |call| binary(call, f64::atan2), IndexUse::None),
    f(&["DEGREES"], exactly(1), |call| unary(call, f64::to_degrees), IndexUse::None),
    f(&["RADIANS"], exactly(1), |call| unary(call, f64::to_radians), IndexUse::None),
    f(&["PI"], exactly(0), |_| Some(Value::from(std::f64::consts::PI)), IndexUse::None),
    f(&["RAND"], exactly(0), rand, IndexUse::None).with_volatility(Volatility::Random),
    f(&["NumberBin"], between(1, 2), number_bin, IndexUse::None),
];

fn unary(call: &Call<'_>, function: fn(f64) -> f64) -> Option<Value> {
    Some(Value::from(function(call.double(0)?)))
}

fn binary(call: &Call<'_>, function: fn(f64, f64) -> f64) -> Option<Value> {
    Some(Value::from(function(call.double(0)?, call.double(1)?)))
}

/// An exact integer is its own result: a double would lose digits.
fn integral(call: &Call<'_>, function: fn(f64) -> f64) -> Option<Value> {
    match call.number(0)? {
        Number::Double(value) => Some(Value::from(function(value))),
        exact => Some(Value::Number(exact)),
    }
}

fn abs(call: &Call<'_>) -> Option<Value> {
    match call.number(0)? {
        Number::Int(value) => Some(Value::Number(Number::from_u64(value.unsigned_abs()))),
        Number::Unsigned(value) => Some(Value::Number(Number::Unsigned(value))),
        Number::Double(value) => Some(Value::from(value.abs())),
    }
}

fn sign(call: &Call<'_>) -> Option<Value> {
    let value = call.double(0)?;
    Some(Value::from(if value == 0.0 || value.is_nan() { value.abs() } else { value.signum() }))
}

fn log(call: &Call<'_>) -> Option<Value> {
    let value = call.double(0)?;
    if call.len() == 1 {
        return Some(Value::from(value.ln()));
    }
    let base = call.double(1)?;
    // These two bases have exact functions, so that LOG(8, 2) is 3.
    let result = match base {
        2.0 => value.log2(),
        10.0 => value.log10(),
        _ => value.ln() / base.ln(),
    };
    Some(Value::from(result))
}

/// A number in [0, 1), a new one at every call.
fn rand(call: &Call<'_>) -> Option<Value> {
    let mut state = call.context.random.get();
    let number = random::next(&mut state);
    call.context.random.set(state);
    Some(Value::from(random::fraction(number)))
}

fn number_bin(call: &Call<'_>) -> Option<Value> {
    let value = call.double(0)?;
    let size = call.optional(1, 1.0, Call::double)?;
    if size == 0.0 {
        return None;
    }
    Some(Value::from((value / size).floor() * size))
}
