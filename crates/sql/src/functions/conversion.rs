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

fn to_string(call: &Call<'_>) -> Option<Value> {
    match call.value(0)? {
        Value::String(text) => Some(Value::from(text.as_str())),
        Value::Number(number) if number.as_f64().is_nan() => Some(Value::from("NaN")),
        Value::Number(number) if number.as_f64().is_infinite() => {
            Some(Value::from(if number.as_f64() > 0.0 { "Infinity" } else { "-Infinity" }))
        }
        value => {
            let text = value.to_json();
            call.spend_bytes(text.len())?;
            Some(Value::String(text))
        }
    }
}

/// JSON text of a value of that kind, white space around it allowed.
fn parse(call: &Call<'_>, kind: Kind) -> Option<Value> {
    let text = call.string(0)?;
    call.spend_bytes(text.len().saturating_mul(4))?;
    text::parse(text.as_bytes(), Limits::default()).ok().filter(|value| value.kind() == kind)
}
