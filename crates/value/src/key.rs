//! Ordered key encoding: comparing encoded bytes compares values.

use crate::Value;

pub fn encode(_value: &Value, _key: &mut Vec<u8>) {
    todo!()
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt key: {reason}")]
pub struct KeyError {
    pub reason: &'static str,
}

/// Decodes one value from the front and returns what follows it.
pub fn decode(_key: &[u8]) -> Result<(Value, &[u8]), KeyError> {
    todo!()
}
