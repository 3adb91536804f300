//! How much a value weighs, for budgets: near enough, and cheap.

use quire_value::Value;

pub(crate) fn approximate_size(value: &Value) -> usize {
    const NODE_BYTES: usize = std::mem::size_of::<Value>();
    let inside = match value {
        Value::Undefined | Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(elements) => elements.iter().map(approximate_size).sum(),
        Value::Object(object) => {
            object.iter().map(|(name, value)| name.len() + NODE_BYTES + approximate_size(value)).sum()
        }
    };
    NODE_BYTES + inside
}
