//! Partition keys: values of one or several components, their header text and their form on disk.

use std::hash::{Hash, Hasher};

use quire_value::{Limits, Number, Value, text};

use super::epk;
use super::{PATHS_MAX, PartitionKeyError};

/// Equality and hash treat numbers as doubles with one zero, like the effective key.
#[derive(Clone, Debug)]
pub enum Component {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    String(String),
}

/// A value of the key, complete or a prefix. Equality: numbers as f64, strings by bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKey(pub Vec<Component>);

impl PartitionKey {
    /// From the header `x-ms-documentdb-partitionkey`: a JSON array; `{}` is undefined.
    pub fn from_header(header: &str) -> Result<PartitionKey, PartitionKeyError> {
        if let Some(text) = plain_text(header) {
            return Ok(PartitionKey(vec![Component::String(text.to_owned())]));
        }
        let error = || PartitionKeyError::BadHeader { text: header.to_owned() };
        let value = text::parse(header.as_bytes(), Limits::default()).map_err(|_| error())?;
        let elements = value.as_array().ok_or_else(error)?;
        let components = elements.iter().map(component_of_header).collect::<Option<Vec<_>>>();
        components.map(PartitionKey).ok_or_else(error)
    }

    /// ASCII only, so it can be sent in a header.
    pub fn to_header(&self) -> String {
        let mut header = Vec::from(*b"[");
        for (index, component) in self.0.iter().enumerate() {
            if index > 0 {
                header.push(b',');
            }
            component.write_json(&mut header);
        }
        header.push(b']');
        escape_to_ascii(&String::from_utf8_lossy(&header))
    }

    /// Compact binary form for item headers on disk, self-delimiting:
    ///
    /// ```text
    /// count: u8, then per component a tag and its payload
    /// 00 undefined | 01 null | 02 false | 03 true
    /// 05 number, 8 bytes: the double's bits little-endian, zero without sign
    /// 08 string, length as u16 little-endian, UTF-8
    /// ```
    ///
    /// The tags are the protocol's type markers. They are on disk: never renumber.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.0.len()).expect("a definition has at most 3 paths"));
        for component in &self.0 {
            component.encode(out);
        }
    }

    /// The key at the front of `bytes`, and the bytes after it.
    pub fn decode(bytes: &[u8]) -> Result<(PartitionKey, &[u8]), PartitionKeyError> {
        let (&count, mut rest) = bytes.split_first().ok_or(TRUNCATED)?;
        if usize::from(count) > PATHS_MAX {
            return Err(PartitionKeyError::Corrupt { reason: "more components than a definition can have" });
        }
        let mut components = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let (component, after) = Component::decode(rest)?;
            components.push(component);
            rest = after;
        }
        Ok((PartitionKey(components), rest))
    }

    /// True when `self` (maybe shorter) is a prefix of `other`.
    pub fn is_prefix_of(&self, other: &PartitionKey) -> bool {
        other.0.starts_with(&self.0)
    }
}

/// The key as clients write it: `["a",1]`.
impl std::fmt::Display for PartitionKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.to_header())
    }
}

const TRUNCATED: PartitionKeyError = PartitionKeyError::Corrupt { reason: "cut short" };

impl Component {
    /// The value of the component in a query; undefined stays undefined.
    pub fn to_value(&self) -> Value {
        match self {
            Component::Undefined => Value::Undefined,
            Component::Null => Value::Null,
            Component::Bool(value) => Value::Bool(*value),
            Component::Number(value) => Value::from(*value),
            Component::String(value) => Value::from(value.as_str()),
        }
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Component::Undefined => out.extend(b"{}"),
            Component::Null => out.extend(b"null"),
            Component::Bool(true) => out.extend(b"true"),
            Component::Bool(false) => out.extend(b"false"),
            Component::Number(value) => Number::Double(*value).write_json(out),
            Component::String(value) => text::write_string(value, out),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Component::Undefined => out.push(epk::UNDEFINED),
            Component::Null => out.push(epk::NULL),
            Component::Bool(false) => out.push(epk::FALSE),
            Component::Bool(true) => out.push(epk::TRUE),
            Component::Number(value) => {
                out.push(epk::NUMBER);
                out.extend(one_zero(*value).to_bits().to_le_bytes());
            }
            Component::String(value) => {
                out.push(epk::STRING);
                out.extend(u16::try_from(value.len()).expect("lengths are checked before").to_le_bytes());
                out.extend(value.as_bytes());
            }
        }
    }

    fn decode(bytes: &[u8]) -> Result<(Component, &[u8]), PartitionKeyError> {
        let (&tag, rest) = bytes.split_first().ok_or(TRUNCATED)?;
        match tag {
            epk::UNDEFINED => Ok((Component::Undefined, rest)),
            epk::NULL => Ok((Component::Null, rest)),
            epk::FALSE => Ok((Component::Bool(false), rest)),
            epk::TRUE => Ok((Component::Bool(true), rest)),
            epk::NUMBER => {
                let (bits, rest) = rest.split_first_chunk().ok_or(TRUNCATED)?;
                Ok((Component::Number(f64::from_bits(u64::from_le_bytes(*bits))), rest))
            }
            epk::STRING => {
                let (length, rest) = rest.split_first_chunk().ok_or(TRUNCATED)?;
                let (value, rest) =
                    rest.split_at_checked(usize::from(u16::from_le_bytes(*length))).ok_or(TRUNCATED)?;
                let value = std::str::from_utf8(value)
                    .map_err(|_| PartitionKeyError::Corrupt { reason: "a string that is not UTF-8" })?;
                Ok((Component::String(value.to_owned()), rest))
            }
            _ => Err(PartitionKeyError::Corrupt { reason: "unknown component tag" }),
        }
    }
}

fn component_of_header(value: &Value) -> Option<Component> {
    match value {
        Value::Null => Some(Component::Null),
        Value::Bool(value) => Some(Component::Bool(*value)),
        Value::Number(number) => Some(Component::Number(number.as_f64())),
        Value::String(text) => Some(Component::String(text.clone())),
        Value::Object(object) if object.is_empty() => Some(Component::Undefined),
        Value::Object(_) | Value::Array(_) | Value::Undefined => None,
    }
}

fn escape_to_ascii(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if matches!(character, ' '..='~') {
            escaped.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

impl PartialEq for Component {
    fn eq(&self, other: &Component) -> bool {
        match (self, other) {
            (Component::Undefined, Component::Undefined) | (Component::Null, Component::Null) => true,
            (Component::Bool(a), Component::Bool(b)) => a == b,
            (Component::Number(a), Component::Number(b)) => one_zero(*a).to_bits() == one_zero(*b).to_bits(),
            (Component::String(a), Component::String(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Component {}

impl Hash for Component {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Component::Undefined | Component::Null => {}
            Component::Bool(value) => value.hash(state),
            Component::Number(value) => one_zero(*value).to_bits().hash(state),
            Component::String(value) => value.hash(state),
        }
    }
}

/// `-0.0` and `0.0` are one value, so one key.
pub(crate) fn one_zero(number: f64) -> f64 {
    number + 0.0
}
/// The text of `["text"]`, where it has nothing that JSON escapes: the header that most requests have.
fn plain_text(header: &str) -> Option<&str> {
    let text = header.strip_prefix("[\"")?.strip_suffix("\"]")?;
    text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\').then_some(text)
}
