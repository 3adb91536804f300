//! Conversion from and to text.

use quire_value::{Kind, Limits, Value, text};

use super::{Call, Function, IndexUse, exactly, f};

pub(super) const FUNCTIONS: &[Function] = &[
    f(&["ToString", "TO_STRING"], exactly(1), to_string, IndexUse::None),
    f(&["StringToNumber", "STRING_TO_NUMBER"], exactly(1), |call| parse(call, Kind::Number), IndexUse::None),
    f(&["StringToBoolean", "STRING_TO_BOOLEAN"], exactly(1), |call| parse(call, Kind::Bool), IndexUse::None),
    f(&["StringToNull", "STRING_TO_NULL"], exactly(1), |call| parse(call, Kind::Null), IndexUse::None),
    f(&["StringToArray", "STRING_TO_ARRAY"], exactly(1), |call| parse(call, Kind::Array), IndexUse::None),
    f(&["StringToObject", "STRING_TO_OBJECT"], exactly(1), |call| parse(call, Kind::Object), IndexUse::None),
];

/// Bytes of an escaped control character in JSON text.
const ESCAPED_BYTES_MAX: usize = 6;

fn to_string(call: &Call<'_>) -> Option<Value> {
    match call.value(0)? {
        Value::String(text) => Some(Value::from(text.as_str())),
        Value::Number(number) if number.as_f64().is_nan() => Some(Value::from("NaN")),
        Value::Number(number) if number.as_f64().is_infinite() => {
            Some(Value::from(if number.as_f64() > 0.0 { "Infinity" } else { "-Infinity" }))
        }
        value => {
            let bytes = crate::data::approximate_size(value).saturating_mul(ESCAPED_BYTES_MAX);
            call.copy_bytes(bytes)?;
            Some(Value::String(value.to_json()))
        }
    }
}

/// Parses JSON text of a value of that kind. White space around it is allowed.
fn parse(call: &Call<'_>, kind: Kind) -> Option<Value> {
    let text = call.string(0)?;
    call.spend_bytes(text.len().saturating_mul(4))?;
    // `[1,1,…` has a value in every second character; only arrays and objects are larger than their text.
    if matches!(kind, Kind::Array | Kind::Object) {
        call.build(text.len().saturating_mul(size_of::<Value>()))?;
    }
    text::parse(text.as_bytes(), Limits::default()).ok().filter(|value| value.kind() == kind)
}
