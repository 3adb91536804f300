//! Values of user-defined functions, as they pass between the query language and a script: in this process as they are,
//! to a worker process as bytes.
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

/// Arrays and objects are JSON text: building them member by member would call setters on tampered prototypes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Passed<'a> {
    Undefined,
    Null,
    Bool(bool),
    Int(i32),
    Float(f64),
    Text(Cow<'a, str>),
    Json(Cow<'a, str>),
}

/// What a function may return and no JSON value can hold. The position is its code between processes.
const REFUSED: [&str; 5] =
    ["text with half a character", "a function", "a symbol", "a BigInt", "a value nested too deeply"];

pub(crate) fn refused(code: u8) -> Option<ScriptError> {
    REFUSED.get(usize::from(code)).map(|what| ScriptError::Result { what })
}

pub(crate) fn refused_code(what: &str) -> u8 {
    REFUSED.iter().position(|other| *other == what).unwrap_or(0) as u8
}

impl<'a> Passed<'a> {
    pub(crate) fn of(value: &'a Value) -> Passed<'a> {
        match value {
            Value::Undefined => Passed::Undefined,
            Value::Null => Passed::Null,
            Value::Bool(value) => Passed::Bool(*value),
            Value::Number(number) => match number.as_i64().and_then(|value| i32::try_from(value).ok()) {
                Some(value) => Passed::Int(value),
                None => Passed::Float(number.as_f64()),
            },
            Value::String(text) => Passed::Text(Cow::Borrowed(text)),
            Value::Array(_) | Value::Object(_) => Passed::Json(Cow::Owned(value.to_json())),
        }
    }

    /// The value in the query language. Text of a worker process is not trusted to be JSON.
    pub(crate) fn into_value(self) -> Result<Value, ScriptError> {
        Ok(match self {
            Passed::Undefined => Value::Undefined,
            Passed::Null => Value::Null,
            Passed::Bool(value) => Value::from(value),
            Passed::Int(value) => Value::from(value),
            Passed::Float(number) if number.is_finite() => Value::Number(Number::from(number).normalized()),
            Passed::Float(_) => Value::Undefined,
            Passed::Text(text) => Value::String(text.into_owned()),
            Passed::Json(json) => text::parse(json.as_bytes(), text::Limits::default())
                .map_err(|_| ScriptError::Result { what: "a value nested too deeply" })?,
        })
    }

    pub(crate) fn to_script<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<rquickjs::Value<'js>> {
        Ok(match self {
            Passed::Undefined => rquickjs::Value::new_undefined(ctx.clone()),
            Passed::Null => rquickjs::Value::new_null(ctx.clone()),
            Passed::Bool(value) => rquickjs::Value::new_bool(ctx.clone(), *value),
            Passed::Int(value) => rquickjs::Value::new_int(ctx.clone(), *value),
            Passed::Float(value) => rquickjs::Value::new_float(ctx.clone(), *value),
            Passed::Text(text) => rquickjs::String::from_str(ctx.clone(), text)?.into_value(),
            Passed::Json(json) => ctx.json_parse(json.as_bytes())?,
        })
    }

    /// The inner error is that of a value that has no JSON form.
    pub(crate) fn from_script<'js>(
        ctx: &Ctx<'js>,
        value: rquickjs::Value<'js>,
    ) -> rquickjs::Result<Result<Passed<'static>, ScriptError>> {
        let refused = |what| Ok(Err(ScriptError::Result { what }));
        Ok(Ok(match value.type_of() {
            Type::Undefined | Type::Uninitialized => Passed::Undefined,
            Type::Null => Passed::Null,
            Type::Bool => Passed::Bool(value.as_bool().unwrap_or_default()),
            Type::Int => Passed::Int(value.as_int().unwrap_or_default()),
            Type::Float => Passed::Float(value.as_float().unwrap_or(f64::NAN)),
            Type::String => match value.get::<String>() {
                Ok(text) => Passed::Text(Cow::Owned(text)),
                Err(rquickjs::Error::Utf8(_)) => return refused("text with half a character"),
                Err(error) => return Err(error),
            },
            Type::Function | Type::Constructor => return refused("a function"),
            Type::Symbol => return refused("a symbol"),
            Type::BigInt => return refused("a BigInt"),
            _ => match ctx.json_stringify(value)? {
                Some(json) => Passed::Json(Cow::Owned(json.to_string()?)),
                None => Passed::Undefined,
            },
        }))
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Passed::Undefined => bytes.push(0),
            Passed::Null => bytes.push(1),
            Passed::Bool(value) => bytes.push(2 + u8::from(*value)),
            Passed::Int(value) => {
                bytes.push(4);
                bytes.extend(value.to_le_bytes());
            }
            Passed::Float(value) => {
                bytes.push(5);
                bytes.extend(value.to_le_bytes());
            }
            Passed::Text(text) => encode_text(6, text, bytes),
            Passed::Json(json) => encode_text(7, json, bytes),
        }
    }

    /// Takes one value from the front; `None` when there is none.
    pub(crate) fn decode(bytes: &mut &'a [u8]) -> Option<Passed<'a>> {
        Some(match take(bytes, 1)?[0] {
            0 => Passed::Undefined,
            1 => Passed::Null,
            2 => Passed::Bool(false),
            3 => Passed::Bool(true),
            4 => Passed::Int(i32::from_le_bytes(take(bytes, 4)?.try_into().ok()?)),
            5 => Passed::Float(f64::from_le_bytes(take(bytes, 8)?.try_into().ok()?)),
            6 => Passed::Text(Cow::Borrowed(take_text(bytes)?)),
            7 => Passed::Json(Cow::Borrowed(take_text(bytes)?)),
            _ => return None,
        })
    }
}

/// Longer than any value can be: what is longer is cut, and then is no value.
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
            Passed::Undefined,
            Passed::Null,
            Passed::Bool(true),
            Passed::Bool(false),
            Passed::Int(-7),
            Passed::Float(0.5),
            Passed::Text("ü".into()),
            Passed::Json("[1]".into()),
        ] {
            let mut bytes = Vec::new();
            value.encode(&mut bytes);
            let mut rest = &bytes[..];
            assert_eq!(Passed::decode(&mut rest), Some(value.clone()));
            assert!(rest.is_empty());
            for length in 0..bytes.len() {
                assert_eq!(Passed::decode(&mut &bytes[..length]), None, "{value:?} cut at {length}");
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
