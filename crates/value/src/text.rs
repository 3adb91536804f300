//! JSON text: strict in, compact out, property order kept.

use crate::Value;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub depth_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { depth_max: 128 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("malformed JSON at byte {offset}: {reason}")]
    Malformed { offset: usize, reason: String },
    #[error("more than {depth_max} levels of nesting")]
    TooDeep { depth_max: usize },
    #[error("duplicate property name {name:?}")]
    DuplicateName { name: String },
    #[error("number out of range at byte {offset}")]
    NumberOutOfRange { offset: usize },
}

/// Parses one JSON value with nothing after it but white space. Lone surrogates become U+FFFD.
pub fn parse(_text: &[u8], _limits: Limits) -> Result<Value, ParseError> {
    todo!()
}

/// Appends a JSON string literal, quotes included.
pub fn write_string(_text: &str, _out: &mut Vec<u8>) {
    todo!()
}
