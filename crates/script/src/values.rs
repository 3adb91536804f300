//! Values of user-defined functions, between the query language and a script: unchanged in this process, encoded for
//! a worker process.
//!
//! | tag | value              | payload                                     |
//! |-----|--------------------|---------------------------------------------|
//! | 0-3 | undefined, null, false, true | none                              |
//! | 4   | integer of 32 bits | 4 bytes                                     |
//! | 5   | number             | 8 bytes, a double                           |
//! | 6   | text               | length (4 bytes), UTF-8                     |
//! | 7   | array or object    | length (4 bytes), JSON                      |
//!
//! All numbers are little-endian. A worker and its server are the same binary, so there are no versions.

use std::borrow::Cow;

use quire_value::{Number, Value, text};
use rquickjs::{Ctx, Type};

use crate::ScriptError;

/// Arrays and objects are JSON text: building them member by member would call setters on changed prototypes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ScriptValue<'a> {
    Undefined,
    Null,
    Bool(bool),
    Int(i32),
    Float(f64),
    Text(Cow<'a, str>),
    Json(Cow<'a, str>),
}

/// Results without JSON form. The index is the code between processes.
const REFUSED: [&str; 5] =
    ["text with half a character", "a function", "a symbol", "a BigInt", "a value nested too deeply"];

pub(crate) fn refused(code: u8) -> Option<ScriptError> {
    REFUSED.get(usize::from(code)).map(|what| ScriptError::Result { what })
}

pub(crate) fn refused_code(what: &str) -> u8 {
    REFUSED.iter().position(|other| *other == what).unwrap_or(0) as u8
}

impl<'a> ScriptValue<'a> {
    pub(crate) fn of(value: &'a Value) -> ScriptValue<'a> {
        match value {
            Value::Undefined => ScriptValue::Undefined,
            Value::Null => ScriptValue::Null,
            Value::Bool(value) => ScriptValue::Bool(*value),
            Value::Number(number) => match number.as_i64().and_then(|value| i32::try_from(value).ok()) {
                Some(value) => ScriptValue::Int(value),
                None => ScriptValue::Float(number.as_f64()),
            },
            Value::String(text) => ScriptValue::Text(Cow::Borrowed(text)),
            Value::Array(_) | Value::Object(_) => ScriptValue::Json(Cow::Owned(value.to_json())),
        }
    }

    /// The value in the query language. Text from a worker process may be invalid JSON.
    pub(crate) fn into_value(self) -> Result<Value, ScriptError> {
        Ok(match self {
            ScriptValue::Undefined => Value::Undefined,
            ScriptValue::Null => Value::Null,
            ScriptValue::Bool(value) => Value::from(value),
            ScriptValue::Int(value) => Value::from(value),
            ScriptValue::Float(number) if number.is_finite() => {
                Value::Number(Number::from(number).normalized())
            }
            ScriptValue::Float(_) => Value::Undefined,
            ScriptValue::Text(text) => Value::String(text.into_owned()),
            ScriptValue::Json(json) => text::parse(json.as_bytes(), text::Limits::default())
                .map_err(|_| ScriptError::Result { what: "a value nested too deeply" })?,
        })
    }

    pub(crate) fn to_script<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<rquickjs::Value<'js>> {
        Ok(match self {
            ScriptValue::Undefined => rquickjs::Value::new_undefined(ctx.clone()),
            ScriptValue::Null => rquickjs::Value::new_null(ctx.clone()),
            ScriptValue::Bool(value) => rquickjs::Value::new_bool(ctx.clone(), *value),
            ScriptValue::Int(value) => rquickjs::Value::new_int(ctx.clone(), *value),
            ScriptValue::Float(value) => rquickjs::Value::new_float(ctx.clone(), *value),
            ScriptValue::Text(text) => rquickjs::String::from_str(ctx.clone(), text)?.into_value(),
            ScriptValue::Json(json) => ctx.json_parse(json.as_bytes())?,
        })
    }

    /// The inner error is for a value without JSON form.
    pub(crate) fn from_script<'js>(
        ctx: &Ctx<'js>,
        value: rquickjs::Value<'js>,
    ) -> rquickjs::Result<Result<ScriptValue<'static>, ScriptError>> {
        let refused = |what| Ok(Err(ScriptError::Result { what }));
        Ok(Ok(match value.type_of() {
            Type::Undefined | Type::Uninitialized => ScriptValue::Undefined,
            Type::Null => ScriptValue::Null,
            Type::Bool => ScriptValue::Bool(value.as_bool().unwrap_or_default()),
            Type::Int => ScriptValue::Int(value.as_int().unwrap_or_default()),
            Type::Float => ScriptValue::Float(value.as_float().unwrap_or(f64::NAN)),
            Type::String => match value.get::<String>() {
                Ok(text) => ScriptValue::Text(Cow::Owned(text)),
                Err(rquickjs::Error::Utf8(_)) => return refused("text with half a character"),
                Err(error) => return Err(error),
            },
            Type::Function | Type::Constructor => return refused("a function"),
            Type::Symbol => return refused("a symbol"),
            Type::BigInt => return refused("a BigInt"),
            _ => match ctx.json_stringify(value)? {
                Some(json) => ScriptValue::Json(Cow::Owned(json.to_string()?)),
                None => ScriptValue::Undefined,
            },
        }))
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            ScriptValue::Undefined => bytes.push(0),
            ScriptValue::Null => bytes.push(1),
            ScriptValue::Bool(value) => bytes.push(2 + u8::from(*value)),
            ScriptValue::Int(value) => {
                bytes.push(4);
                bytes.extend(value.to_le_bytes());
            }
            ScriptValue::Float(value) => {
                bytes.push(5);
                bytes.extend(value.to_le_bytes());
            }
            ScriptValue::Text(text) => encode_text(6, text, bytes),
            ScriptValue::Json(json) => encode_text(7, json, bytes),
        }
    }

    /// Decodes one value from the front; `None` if it is damaged.
    pub(crate) fn decode(bytes: &mut &'a [u8]) -> Option<ScriptValue<'a>> {
        Some(match take(bytes, 1)?[0] {
            0 => ScriptValue::Undefined,
            1 => ScriptValue::Null,
            2 => ScriptValue::Bool(false),
            3 => ScriptValue::Bool(true),
            4 => ScriptValue::Int(i32::from_le_bytes(take(bytes, 4)?.try_into().ok()?)),
            5 => ScriptValue::Float(f64::from_le_bytes(take(bytes, 8)?.try_into().ok()?)),
            6 => ScriptValue::Text(Cow::Borrowed(take_text(bytes)?)),
            7 => ScriptValue::Json(Cow::Borrowed(take_text(bytes)?)),
            _ => return None,
        })
    }
}

/// Text longer than any value is truncated, and then not valid.
fn encode_text(tag: u8, text: &str, bytes: &mut Vec<u8>) {
    bytes.push(tag);
    bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(text.as_bytes());
}

pub(crate) fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

pub(crate) fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?))
}

fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    let length = take_u32(bytes)? as usize;
    std::str::from_utf8(take(bytes, length)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were() {
        for value in [
            ScriptValue::Undefined,
            ScriptValue::Null,
            ScriptValue::Bool(true),
            ScriptValue::Bool(false),
            ScriptValue::Int(-7),
            ScriptValue::Float(0.5),
            ScriptValue::Text("ü".into()),
            ScriptValue::Json("[1]".into()),
        ] {
            let mut bytes = Vec::new();
            value.encode(&mut bytes);
            let mut rest = &bytes[..];
            assert_eq!(ScriptValue::decode(&mut rest), Some(value.clone()));
            assert!(rest.is_empty());
            for length in 0..bytes.len() {
                assert_eq!(ScriptValue::decode(&mut &bytes[..length]), None, "{value:?} cut at {length}");
            }
        }
    }

    #[test]
    fn every_refusal_has_its_code() {
        for (code, what) in REFUSED.iter().enumerate() {
            assert_eq!(refused(refused_code(what)), refused(code as u8));
        }
        assert_eq!(refused(REFUSED.len() as u8), None);
    }
}
