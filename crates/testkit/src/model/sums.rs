//! Exact sums, by whole numbers of the smallest double and decimal digits.

use num_bigint::BigInt;

use crate::interpreter::Json;

/// The exact sum of the numbers, over a count, rounded once: an integer that fits 64 bits, or the nearest finite double.
pub fn exact_sum<'j>(values: impl IntoIterator<Item = &'j Json>, count: u64) -> Json {
    let total: BigInt = values.into_iter().map(in_smallest).sum();
    let unit = (BigInt::from(1) << 1074u32) * BigInt::from(count);
    let (whole, rest) = (&total / &unit, &total % &unit);
    if rest == BigInt::default()
        && let Ok(value) = i128::try_from(&whole)
        && (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value)
    {
        return Json::Integer(value);
    }
    // Digits are divided out until what is left cannot be a tie; the parser of the standard library rounds.
    let scaled = &total * BigInt::from(10).pow(1200);
    let more = if &scaled % &unit == BigInt::default() { "0" } else { "1" };
    let text = format!("{}{more}e-1201", &scaled / &unit);
    let value: f64 = text.parse().expect("a number");
    Json::number(value.clamp(f64::MIN, f64::MAX))
}

fn in_smallest(value: &Json) -> BigInt {
    match value {
        Json::Integer(value) => BigInt::from(*value) << 1074u32,
        Json::Double(value) => {
            // Halving is exact as long as something is left to halve.
            let (mut value, mut shift) = (*value, 1074u32);
            while value.fract() != 0.0 && shift > 0 {
                value *= 2.0;
                shift -= 1;
            }
            let mut whole = BigInt::default();
            let mut factor = 0u32;
            while value.abs() >= 9e15 {
                // Powers of two leave the digits as they are.
                value /= 2.0;
                factor += 1;
            }
            whole += value as i64;
            (whole << factor) << shift
        }
        _ => BigInt::default(),
    }
}
