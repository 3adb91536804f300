//! The owned value tree, for query evaluation and small resources.

use crate::Number;

/// Equality (`PartialEq`) is query equality: numbers by exact value, objects regardless of property order.
#[derive(Clone, Debug)]
pub enum Value {
    Undefined,
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Value>),
    Object(Object),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Undefined,
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

/// Properties in insertion order, names unique.
#[derive(Clone, Debug, Default)]
pub struct Object(pub(crate) Vec<(String, Value)>);

impl Value {
    pub fn kind(&self) -> Kind {
        todo!()
    }
    pub fn as_str(&self) -> Option<&str> {
        todo!()
    }
    pub fn as_bool(&self) -> Option<bool> {
        todo!()
    }
    pub fn as_number(&self) -> Option<Number> {
        todo!()
    }
    pub fn as_i64(&self) -> Option<i64> {
        todo!()
    }
    pub fn as_array(&self) -> Option<&[Value]> {
        todo!()
    }
    pub fn as_object(&self) -> Option<&Object> {
        todo!()
    }
    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined)
    }
    /// Property of an object; `None` for anything else.
    pub fn get(&self, _name: &str) -> Option<&Value> {
        todo!()
    }
    /// Compact JSON text. `undefined` members are left out; a bare `undefined` writes nothing.
    pub fn to_json(&self) -> String {
        todo!()
    }
    pub fn write_json(&self, _out: &mut Vec<u8>) {
        todo!()
    }
}

impl Object {
    pub fn new() -> Object {
        Object::default()
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn get(&self, _name: &str) -> Option<&Value> {
        todo!()
    }
    /// Sets in place when the name exists, appends otherwise.
    pub fn set(&mut self, _name: impl Into<String>, _value: impl Into<Value>) {
        todo!()
    }
    pub fn remove(&mut self, _name: &str) -> Option<Value> {
        todo!()
    }
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
    // also: FromIterator<(String, Value)>, IntoIterator
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.to_owned())
    }
}
impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text)
    }
}
impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}
impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Number(Number::Int(value))
    }
}
impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Number(Number::Double(value))
    }
}
impl From<Object> for Value {
    fn from(object: Object) -> Value {
        Value::Object(object)
    }
}
impl From<Vec<Value>> for Value {
    fn from(elements: Vec<Value>) -> Value {
        Value::Array(elements)
    }
}
