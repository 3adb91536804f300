//! Mathematics, in doubles but for 64-bit integers.

use super::json::{Json, JsonOrUndefined};

/// `None`: no function of this family.
pub fn call(name: &str, values: &[Json]) -> Option<JsonOrUndefined> {
    let integers = ["INTADD", "INTSUB", "INTMUL", "INTMULTIPLY", "INTDIV", "INTMOD"];
    if integers.contains(&name) || name.starts_with("INTBIT") {
        return Some(integer(name, values));
    }
    let x = values.first().and_then(Json::as_f64);
    let y = values.get(1).and_then(Json::as_f64);
    let one = |function: fn(f64) -> f64| Some(x.map(|x| Json::number(function(x))));
    let two = |function: fn(f64, f64) -> f64| Some(x.zip(y).map(|(x, y)| Json::number(function(x, y))));
    // Whole numbers keep all their digits.
    let whole = |function: fn(f64) -> f64| match values.first() {
        Some(Json::Integer(value)) => Some(Some(Json::Integer(*value))),
        _ => Some(x.map(|x| Json::number(function(x)))),
    };
    match name {
        "ABS" => match values.first() {
            Some(Json::Integer(value)) => Some(Some(Json::Integer(value.abs()))),
            _ => one(f64::abs),
        },
        "CEILING" => whole(f64::ceil),
        "FLOOR" => whole(f64::floor),
        "ROUND" => whole(f64::round),
        "TRUNC" => whole(f64::trunc),
        "SIGN" => one(|x| {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                x * 0.0
            }
        }),
        "SQRT" => one(f64::sqrt),
        "SQUARE" => one(|x| x * x),
        "POWER" => two(f64::powf),
        "EXP" => one(f64::exp),
        "LOG" if values.len() == 1 => one(f64::ln),
        "LOG" => two(|x, base| x.ln() / base.ln()),
        "LOG10" => one(f64::log10),
        "SIN" => one(f64::sin),
        "COS" => one(f64::cos),
        "TAN" => one(f64::tan),
        "COT" => one(|x| x.cos() / x.sin()),
        "ASIN" => one(f64::asin),
        "ACOS" => one(f64::acos),
        "ATAN" => one(f64::atan),
        "ATN2" => two(f64::atan2),
        "DEGREES" => one(|x| x * 180.0 / std::f64::consts::PI),
        "RADIANS" => one(|x| x * std::f64::consts::PI / 180.0),
        "PI" => Some(Some(Json::Double(std::f64::consts::PI))),
        "NUMBERBIN" => Some(x.and_then(|x| {
            let size = match values.get(1) {
                Some(size) => size.as_f64()?,
                None => 1.0,
            };
            (size != 0.0).then(|| Json::number((x / size).floor() * size))
        })),
        _ => None,
    }
}

/// Two's complement, without a carry.
fn integer(name: &str, values: &[Json]) -> JsonOrUndefined {
    let x = values.first()?.as_i64()?;
    let y = match values.get(1) {
        Some(y) => y.as_i64()?,
        None => 0,
    };
    let shift = u32::try_from(y).ok().filter(|shift| *shift < 64);
    let result = match name.replace("BITWISE", "BIT").as_str() {
        "INTADD" => x.wrapping_add(y),
        "INTSUB" => x.wrapping_sub(y),
        "INTMUL" | "INTMULTIPLY" => x.wrapping_mul(y),
        "INTDIV" if y != 0 => x.wrapping_div(y),
        "INTMOD" if y != 0 => x.wrapping_rem(y),
        "INTBITAND" => x & y,
        "INTBITOR" => x | y,
        "INTBITXOR" => x ^ y,
        "INTBITNOT" => !x,
        "INTBITLEFTSHIFT" => x.wrapping_shl(shift?),
        "INTBITRIGHTSHIFT" => x.wrapping_shr(shift?),
        _ => return None,
    };
    Some(Json::Integer(i128::from(result)))
}
