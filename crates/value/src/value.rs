//! The value tree, for query evaluation and small resources.

use std::collections::HashMap;

use crate::order::SMALL_OBJECT_LEN_MAX;
use crate::{Number, text};

/// Equality (`PartialEq`) is query equality: numbers by exact value, objects regardless of property order.
#[derive(Clone, Debug, Default)]
pub enum Value {
    #[default]
    Undefined,
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Value>),
    Object(Object),
}

/// In the order of values.
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
        match self {
            Value::Undefined => Kind::Undefined,
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Bool,
            Value::Number(_) => Kind::Number,
            Value::String(_) => Kind::String,
            Value::Array(_) => Kind::Array,
            Value::Object(_) => Kind::Object,
        }
    }
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }
    pub fn as_number(&self) -> Option<Number> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }
    pub fn as_i64(&self) -> Option<i64> {
        self.as_number()?.as_i64()
    }
    pub fn as_u64(&self) -> Option<u64> {
        self.as_number()?.as_u64()
    }
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(elements) => Some(elements),
            _ => None,
        }
    }
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }
    pub fn as_object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }
    pub fn into_string(self) -> Option<String> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
    pub fn into_array(self) -> Option<Vec<Value>> {
        match self {
            Value::Array(elements) => Some(elements),
            _ => None,
        }
    }
    pub fn into_object(self) -> Option<Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }
    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined)
    }
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
    /// Property of an object; `None` for anything else.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object()?.get(name)
    }
    /// Element of an array; `None` for anything else.
    pub fn at(&self, index: usize) -> Option<&Value> {
        self.as_array()?.get(index)
    }
    /// Moves the value out and leaves `undefined`.
    pub fn take(&mut self) -> Value {
        std::mem::take(self)
    }
    /// The estimated memory of the value, for limits.
    pub fn approximate_size(&self) -> usize {
        let inside = match self {
            Value::Undefined | Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(elements) => elements.iter().map(Value::approximate_size).sum(),
            Value::Object(object) => object.approximate_size(),
        };
        size_of::<Value>() + inside
    }
    /// At most the length of its JSON text: cheap, for limits.
    pub fn json_len_min(&self) -> usize {
        match self {
            Value::Undefined => 0,
            Value::Null | Value::Bool(_) | Value::Number(_) => 1,
            Value::String(text) => text.len() + 2,
            Value::Array(elements) => elements.iter().map(|element| element.json_len_min() + 1).sum(),
            Value::Object(object) => {
                let members = object.iter().filter(|(_, value)| !matches!(value, Value::Undefined));
                members.map(|(name, value)| name.len() + 3 + value.json_len_min()).sum()
            }
        }
    }
    /// Compact JSON text. `undefined` members are left out; a bare `undefined` writes nothing.
    pub fn to_json(&self) -> String {
        let mut out = Vec::new();
        self.write_json(&mut out);
        String::from_utf8(out).expect("strings are UTF-8 and everything else is ASCII")
    }
    /// Appends what [`Value::to_json`] gives. Numbers without a JSON form (NaN, infinity) count as `undefined`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Value::Undefined => {}
            Value::Null => out.extend_from_slice(b"null"),
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Number(number) if number.is_finite() => number.write_json(out),
            Value::Number(_) => {}
            Value::String(text) => text::write_string(text, out),
            Value::Array(elements) => write_elements(elements, out),
            Value::Object(object) => object.write_json(out),
        }
    }
    /// Whether the value has a JSON form: `undefined`, NaN and infinity have none.
    pub(crate) fn is_json(&self) -> bool {
        match self {
            Value::Undefined => false,
            Value::Number(number) => number.is_finite(),
            _ => true,
        }
    }
}

fn write_elements(elements: &[Value], out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, element) in elements.iter().filter(|element| element.is_json()).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        element.write_json(out);
    }
    out.push(b']');
}

impl Object {
    pub fn new() -> Object {
        Object::default()
    }
    pub fn with_capacity(capacity: usize) -> Object {
        Object(Vec::with_capacity(capacity))
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.0.iter_mut().find(|(own, _)| own == name).map(|(_, value)| value)
    }
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
    /// Sets in place when the name exists, appends otherwise.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        let name = name.into();
        match self.get_mut(&name) {
            Some(place) => *place = value.into(),
            None => self.0.push((name, value.into())),
        }
    }
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let index = self.0.iter().position(|(own, _)| own == name)?;
        Some(self.0.remove(index).1)
    }
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value)> {
        self.0.iter_mut().map(|(name, value)| (name.as_str(), value))
    }
    /// The estimated memory of the members.
    pub fn approximate_size(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + size_of::<Value>() + value.approximate_size()).sum()
    }
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
    fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (index, (name, value)) in self.iter().filter(|(_, value)| value.is_json()).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            text::write_string(name, out);
            out.push(b':');
            value.write_json(out);
        }
        out.push(b'}');
    }
}

/// As [`Object::set`] for each: a repeated name keeps its position and takes the last value.
impl<N: Into<String>, V: Into<Value>> FromIterator<(N, V)> for Object {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(members: I) -> Object {
        let mut object = Object::new();
        object.extend(members);
        object
    }
}

impl<N: Into<String>, V: Into<Value>> Extend<(N, V)> for Object {
    fn extend<I: IntoIterator<Item = (N, V)>>(&mut self, members: I) {
        let mut members = members.into_iter();
        for (name, value) in members.by_ref() {
            self.set(name, value);
            if self.len() > SMALL_OBJECT_LEN_MAX {
                break;
            }
        }
        extend_large(self, members.map(|(name, value)| (name.into(), value.into())));
    }
}

// With an index of the names, because a linear search for each new member would be quadratic.
fn extend_large(object: &mut Object, members: impl Iterator<Item = (String, Value)>) {
    let mut members = members.peekable();
    if members.peek().is_none() {
        return;
    }
    let mut places: HashMap<String, usize> =
        object.names().enumerate().map(|(place, name)| (name.to_owned(), place)).collect();
    for (name, value) in members {
        match places.get(&name) {
            Some(place) => object.0[*place].1 = value,
            None => {
                places.insert(name.clone(), object.len());
                object.0.push((name, value));
            }
        }
    }
}

impl IntoIterator for Object {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
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
impl From<Number> for Value {
    fn from(number: Number) -> Value {
        Value::Number(number)
    }
}
impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Number(value.into())
    }
}
impl From<i32> for Value {
    fn from(value: i32) -> Value {
        Value::Number(value.into())
    }
}
impl From<u32> for Value {
    fn from(value: u32) -> Value {
        Value::Number(value.into())
    }
}
impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Number(value.into())
    }
}
impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Number(value.into())
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
/// `None` is `undefined`, not `null`.
impl<V: Into<Value>> From<Option<V>> for Value {
    fn from(value: Option<V>) -> Value {
        value.map_or(Value::Undefined, Into::into)
    }
}
impl FromIterator<Value> for Value {
    fn from_iter<I: IntoIterator<Item = Value>>(elements: I) -> Value {
        Value::Array(elements.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(value: impl Into<Value>, expect: Expect) {
        expect.assert_eq(&value.into().to_json());
    }

    #[test]
    fn what_has_no_json_form_is_left_out() {
        let hidden = [Value::Undefined, f64::NAN.into(), f64::INFINITY.into()];
        let elements = [vec![1.into()], hidden.to_vec(), vec![2.into()]].concat();
        check(elements, expect!["[1,2]"]);
        let members = [("a", Value::Undefined), ("b", 1.into()), ("c", f64::NAN.into()), ("d", Value::Null)];
        check(Object::from_iter(members), expect![[r#"{"b":1,"d":null}"#]]);
        check(Value::Undefined, expect![""]);
        check(f64::NAN, expect![""]);
    }

    #[test]
    fn strings_are_escaped() {
        check("plain", expect![[r#""plain""#]]);
        check(
            "a\"b\\c\u{8}\u{c}\n\r\t\u{0}\u{1f}\u{7f}/é\u{1F600} and a long enough tail to leave the first block",
            expect![[
                r#""a\"b\\c\b\f\n\r\t\u0000\u001f/é😀 and a long enough tail to leave the first block""#
            ]],
        );
    }

    #[test]
    fn setting_keeps_the_place() {
        let mut object: Object = [("a", 1), ("b", 2), ("a", 3)].into_iter().collect();
        object.set("b", "x");
        object.set("c", true);
        check(object.clone(), expect![[r#"{"a":3,"b":"x","c":true}"#]]);
        assert_eq!(object.remove("b"), Some("x".into()));
        assert_eq!(object.remove("b"), None);
        check(object, expect![[r#"{"a":3,"c":true}"#]]);
    }

    #[test]
    fn large_objects_keep_the_last_of_a_repeated_name() {
        let members = (0..200_000).map(|i| (format!("name{}", i % 100_000), i));
        let object: Object = members.collect();
        assert_eq!(object.len(), 100_000);
        assert_eq!(object.get("name0"), Some(&100_000.into()));
        assert_eq!(object.names().nth(7), Some("name7"));
    }

    #[test]
    fn take_leaves_undefined() {
        let mut value = Value::from("x");
        assert_eq!(value.take(), Value::from("x"));
        assert!(value.is_undefined());
    }
}
