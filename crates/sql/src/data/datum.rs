//! The value of an expression: a node of a stored item, a borrowed value or an owned value. Comparing, hashing,
//! following paths and writing JSON work in place and allocate nothing.
//!
//! Invariant, checked by a property test: a datum that is a node of a stored item behaves like the value of that
//! node.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::rc::Rc;

use quire_value::{Kind, Node, Number, Object, Value, hash};

use super::item::{Item, ItemForm, SYSTEM_PROPERTY_COUNT, Stored};
use super::linked::{LinkedArray, LinkedItem, linked_member};

/// A borrowed value.
#[derive(Clone, Copy)]
pub(crate) enum ValueRef<'a> {
    Node(Node<'a>),
    Value(&'a Value),
    /// A whole stored item: an object whose system properties follow the user's properties.
    Item(&'a Stored<'a>),
}

/// A value decoded for operators on scalars.
#[derive(Clone, Copy)]
pub(crate) enum Scalar<'a> {
    Undefined,
    Null,
    Bool(bool),
    Number(Number),
    Text(&'a [u8]),
    /// An array or object.
    Other,
}

/// Like `Cow<Value>`, but can also borrow from stored items.
pub(crate) enum Datum<'a> {
    Borrowed(ValueRef<'a>),
    Owned(Value),
    /// An item of another container: many rows may have it.
    Linked(Rc<dyn LinkedItem>),
    LinkedArray(Box<LinkedArray>),
}

impl Datum<'_> {
    pub const UNDEFINED: Datum<'static> = Datum::Owned(Value::Undefined);
}

impl<'a> Datum<'a> {
    #[inline]
    pub fn value_ref(&self) -> ValueRef<'_> {
        match self {
            Datum::Borrowed(view) => *view,
            Datum::Owned(value) => ValueRef::Value(value),
            Datum::Linked(item) => ValueRef::Value(item.value()),
            Datum::LinkedArray(items) => ValueRef::Value(items.value()),
        }
    }

    pub fn into_value(self) -> Value {
        match self {
            Datum::Borrowed(view) => view.to_value(),
            Datum::Owned(value) => value,
            Datum::Linked(item) => item.item().to_value(),
            Datum::LinkedArray(items) => items.into_value(),
        }
    }

    pub fn is_undefined(&self) -> bool {
        match self {
            Datum::Linked(_) | Datum::LinkedArray(_) => false,
            _ => self.value_ref().is_undefined(),
        }
    }

    /// See [`ValueRef::is_finite`].
    pub fn is_finite(&self) -> bool {
        match self {
            Datum::Linked(_) | Datum::LinkedArray(_) => true,
            _ => self.value_ref().is_finite(),
        }
    }

    /// See [`ValueRef::is_small`].
    pub fn is_small(&self, bytes_max: usize) -> bool {
        match self {
            Datum::Linked(_) | Datum::LinkedArray(_) => false,
            _ => self.value_ref().is_small(bytes_max),
        }
    }

    /// See [`ValueRef::is_json`].
    pub fn is_json(&self) -> bool {
        match self {
            Datum::Linked(_) | Datum::LinkedArray(_) => true,
            _ => self.value_ref().is_json(),
        }
    }

    /// Appends compact JSON text. Leaves out what has no JSON form.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Datum::Linked(item) => item.write_json(out),
            Datum::LinkedArray(items) => items.write_json(out),
            _ => self.value_ref().write_json(out),
        }
    }

    /// The estimated memory of an owned copy of the value.
    pub fn approximate_size(&self) -> usize {
        match self {
            Datum::Linked(item) => item.approximate_size(),
            Datum::LinkedArray(items) => items.approximate_size(),
            _ => self.value_ref().approximate_size(),
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        self.value_ref().as_bool()
    }

    /// A property of an object; undefined for anything else.
    #[inline]
    pub fn member(self, name: &str) -> Datum<'a> {
        match self {
            Datum::Borrowed(view) => view.member(name),
            Datum::Owned(Value::Object(mut object)) => {
                Datum::Owned(object.remove(name).unwrap_or(Value::Undefined))
            }
            Datum::Linked(item) => Datum::Owned(linked_member(&*item, name)),
            Datum::Owned(_) | Datum::LinkedArray(_) => Datum::UNDEFINED,
        }
    }

    /// An element of an array. Only integers from zero on are positions.
    pub fn element(self, index: Number) -> Datum<'a> {
        let Some(index) = index.as_u64().and_then(|index| usize::try_from(index).ok()) else {
            return Datum::UNDEFINED;
        };
        match self {
            Datum::Borrowed(view) => Datum::Borrowed(view.at(index)),
            Datum::Owned(Value::Array(mut elements)) if index < elements.len() => {
                Datum::Owned(elements.swap_remove(index))
            }
            Datum::LinkedArray(items) => items.element(index),
            Datum::Owned(_) | Datum::Linked(_) => Datum::UNDEFINED,
        }
    }
}

impl<'a> From<ValueRef<'a>> for Datum<'a> {
    fn from(view: ValueRef<'a>) -> Datum<'a> {
        Datum::Borrowed(view)
    }
}

impl<'a> ValueRef<'a> {
    pub const UNDEFINED: ValueRef<'static> = ValueRef::Value(&Value::Undefined);

    pub fn of(item: &'a Item<'a>) -> ValueRef<'a> {
        match &item.0 {
            ItemForm::Stored(stored) => ValueRef::Item(stored),
            ItemForm::Value(value) => ValueRef::Value(value),
        }
    }

    /// A whole item again.
    pub fn as_item(self) -> Option<Item<'a>> {
        match self {
            ValueRef::Item(stored) => Some(Item(ItemForm::Stored(*stored))),
            ValueRef::Value(value) => Some(Item(ItemForm::Value(value))),
            ValueRef::Node(_) => None,
        }
    }

    /// The node of a stored value, without system properties; `Err` with the value otherwise.
    #[inline]
    fn user(self) -> Result<Node<'a>, &'a Value> {
        match self {
            ValueRef::Node(node) => Ok(node),
            ValueRef::Value(value) => Err(value),
            ValueRef::Item(item) => Ok(item.user),
        }
    }

    #[inline]
    pub fn kind(self) -> Kind {
        self.user().map_or_else(Value::kind, Node::kind)
    }

    #[inline]
    pub fn scalar(self) -> Scalar<'a> {
        match self {
            ValueRef::Value(Value::Undefined) => Scalar::Undefined,
            ValueRef::Value(Value::Null) => Scalar::Null,
            ValueRef::Value(Value::Bool(value)) => Scalar::Bool(*value),
            ValueRef::Value(Value::Number(number)) => Scalar::Number(*number),
            ValueRef::Value(Value::String(text)) => Scalar::Text(text.as_bytes()),
            ValueRef::Value(_) | ValueRef::Item(_) => Scalar::Other,
            ValueRef::Node(node) => node_scalar(node),
        }
    }

    #[inline]
    pub fn is_undefined(self) -> bool {
        self.kind() == Kind::Undefined
    }

    #[inline]
    pub fn as_bool(self) -> Option<bool> {
        self.user().map_or_else(Value::as_bool, Node::as_bool)
    }

    pub fn as_number(self) -> Option<Number> {
        self.user().map_or_else(Value::as_number, Node::as_number)
    }

    pub fn as_str(self) -> Option<&'a str> {
        self.user().map_or_else(Value::as_str, Node::as_str)
    }

    /// The bytes of a string, for callers that need no characters.
    #[inline]
    pub fn as_text(self) -> Option<&'a [u8]> {
        self.user().map_or_else(|value| value.as_str().map(str::as_bytes), Node::as_text)
    }

    pub fn is_nan(self) -> bool {
        self.as_number().is_some_and(|number| number.as_f64().is_nan())
    }

    /// Whether the value contains no NaN and no infinity. Stored values never do.
    pub fn is_finite(self) -> bool {
        fn finite(value: &Value) -> bool {
            match value {
                Value::Number(number) => number.is_finite(),
                Value::Array(elements) => elements.iter().all(finite),
                Value::Object(object) => object.iter().all(|(_, value)| finite(value)),
                _ => true,
            }
        }
        self.user().map_or_else(finite, |_| true)
    }

    /// Whether it has a JSON form.
    pub fn is_json(self) -> bool {
        match self.kind() {
            Kind::Undefined => false,
            Kind::Number => self.as_number().is_some_and(Number::is_finite),
            _ => true,
        }
    }

    /// The number of members or elements; 0 otherwise.
    pub fn len(self) -> usize {
        let own = self.user().map_or_else(value_len, Node::len);
        own + if let ValueRef::Item(_) = self { SYSTEM_PROPERTY_COUNT } else { 0 }
    }

    #[inline]
    pub fn member(self, name: &str) -> Datum<'a> {
        let found = match self {
            ValueRef::Node(node) => node.get(name).map(ValueRef::Node),
            ValueRef::Value(value) => value.get(name).map(ValueRef::Value),
            ValueRef::Item(item) => return item_member(item, name),
        };
        Datum::Borrowed(found.unwrap_or(ValueRef::UNDEFINED))
    }

    fn at(self, index: usize) -> ValueRef<'a> {
        let found = match self.user() {
            Ok(node) => node.at(index).map(ValueRef::Node),
            Err(value) => value.at(index).map(ValueRef::Value),
        };
        found.unwrap_or(ValueRef::UNDEFINED)
    }

    /// The elements of an array; none for anything else.
    pub fn elements(self) -> impl Iterator<Item = ValueRef<'a>> {
        let (nodes, values) = match self.user() {
            Ok(node) => (Some(node.elements()), &[][..]),
            Err(value) => (None, value.as_array().unwrap_or_default()),
        };
        nodes.into_iter().flatten().map(ValueRef::Node).chain(values.iter().map(ValueRef::Value))
    }

    pub fn to_value(self) -> Value {
        match self {
            ValueRef::Node(node) => node.to_value(),
            ValueRef::Value(value) => value.clone(),
            ValueRef::Item(item) => item.to_value(),
        }
    }

    pub fn to_cow(self) -> Cow<'a, Value> {
        match self {
            ValueRef::Value(value) => Cow::Borrowed(value),
            view => Cow::Owned(view.to_value()),
        }
    }

    /// Appends compact JSON text. Leaves out what has no JSON form.
    pub fn write_json(self, out: &mut Vec<u8>) {
        match self {
            ValueRef::Node(node) => node.write_json(out),
            ValueRef::Value(value) => value.write_json(out),
            ValueRef::Item(item) => item.write_json(out),
        }
    }

    /// As `==` of values.
    pub fn equals(self, other: ValueRef<'_>) -> bool {
        match (self, other) {
            (ValueRef::Value(left), ValueRef::Value(right)) => left == right,
            (ValueRef::Item(_), _) | (_, ValueRef::Item(_)) => {
                self.kind() == other.kind() && *self.to_cow() == *other.to_cow()
            }
            _ => self.kind() == other.kind() && self.equals_of_kind(other),
        }
    }

    fn equals_of_kind(self, other: ValueRef<'_>) -> bool {
        match self.kind() {
            Kind::Undefined | Kind::Null => true,
            Kind::Bool => self.as_bool() == other.as_bool(),
            Kind::Number => self.as_number() == other.as_number(),
            Kind::String => self.as_text() == other.as_text(),
            Kind::Array => {
                self.len() == other.len()
                    && self.elements().zip(other.elements()).all(|(left, right)| left.equals(right))
            }
            Kind::Object => self.len() == other.len() && covers(self, other),
        }
    }

    /// As `total_cmp` of values.
    pub fn total_cmp(self, other: ValueRef<'_>) -> Ordering {
        let kind = self.kind();
        match kind.cmp(&other.kind()) {
            Ordering::Equal => {}
            different => return different,
        }
        match kind {
            Kind::Undefined | Kind::Null => Ordering::Equal,
            Kind::Bool => self.as_bool().cmp(&other.as_bool()),
            Kind::Number => self.as_number().cmp(&other.as_number()),
            Kind::String => self.as_text().cmp(&other.as_text()),
            Kind::Array | Kind::Object => self.to_cow().total_cmp(&other.to_cow()),
        }
    }

    /// The order of ORDER BY, the one of [`quire_value::key::encode_sort`]: arrays and objects by their hash alone, because
    /// a client that merges knows nothing else of them, and those that share a hash are ties.
    pub fn sort_cmp(self, other: ValueRef<'_>) -> Ordering {
        match (self.kind(), other.kind()) {
            (Kind::Array, Kind::Array) | (Kind::Object, Kind::Object) => {
                hash::of_value(&self.to_cow()).cmp(&hash::of_value(&other.to_cow()))
            }
            _ => self.total_cmp(other),
        }
    }

    /// Equal values have equal hashes, whatever the order of their properties.
    pub fn hash_with(self, random: &RandomState, state: &mut impl Hasher) {
        let kind = self.kind();
        kind.hash(state);
        match kind {
            Kind::Undefined | Kind::Null => {}
            Kind::Bool => self.as_bool().hash(state),
            Kind::Number => self.as_number().hash(state),
            Kind::String => self.as_text().hash(state),
            Kind::Array => {
                state.write_usize(self.len());
                self.elements().for_each(|element| element.hash_with(random, state));
            }
            Kind::Object => state.write_u64(object_hash(self, random)),
        }
    }

    /// The estimated memory of an owned copy of the value.
    pub fn approximate_size(self) -> usize {
        match self {
            ValueRef::Value(value) => value.approximate_size(),
            ValueRef::Node(node) => node_size(node),
            ValueRef::Item(item) => node_size(item.user) + SYSTEM_PROPERTIES_BYTES,
        }
    }

    /// A scalar, or a part of a stored item, of at most so many bytes. False for other arrays and objects.
    pub fn is_small(self, bytes_max: usize) -> bool {
        match self {
            ValueRef::Value(Value::Array(_) | Value::Object(_)) => false,
            ValueRef::Value(Value::String(text)) => text.len() <= bytes_max,
            ValueRef::Value(_) => true,
            ValueRef::Node(node) => node.len_bytes() <= bytes_max,
            ValueRef::Item(item) => item.user.len_bytes() <= bytes_max,
        }
    }
}

const NODE_BYTES: usize = std::mem::size_of::<Value>();
/// The approximate size of the names and texts of the system properties.
const SYSTEM_PROPERTIES_BYTES: usize = 400;

fn item_member<'a>(item: &'a Stored<'a>, name: &str) -> Datum<'a> {
    match name.starts_with('_').then(|| item.system.get(name)).flatten() {
        Some(own) => Datum::Owned(own),
        None => ValueRef::Node(item.user).member(name),
    }
}

#[inline]
fn node_scalar(node: Node<'_>) -> Scalar<'_> {
    if let Some(text) = node.as_text() {
        return Scalar::Text(text);
    }
    if let Some(number) = node.as_number() {
        return Scalar::Number(number);
    }
    match node.kind() {
        Kind::Null => Scalar::Null,
        Kind::Bool => node.as_bool().map_or(Scalar::Undefined, Scalar::Bool),
        Kind::Array | Kind::Object => Scalar::Other,
        _ => Scalar::Undefined,
    }
}

fn value_len(value: &Value) -> usize {
    match value {
        Value::Array(elements) => elements.len(),
        Value::Object(object) => object.len(),
        _ => 0,
    }
}

/// Whether every member of one object is in the other. At least one of them is a node: nodes find names fast.
fn covers(left: ValueRef<'_>, right: ValueRef<'_>) -> bool {
    let in_node = |node: Node<'_>, name: &str, value: ValueRef<'_>| {
        node.get(name).is_some_and(|member| ValueRef::Node(member).equals(value))
    };
    match (left.user(), right.user()) {
        (Ok(left), Ok(right)) => {
            left.members().all(|(name, value)| in_node(right, name, ValueRef::Node(value)))
        }
        (Ok(node), Err(value)) | (Err(value), Ok(node)) => value.as_object().is_some_and(|object| {
            object.iter().all(|(name, value)| in_node(node, name, ValueRef::Value(value)))
        }),
        (Err(left), Err(right)) => left == right,
    }
}

fn object_hash(object: ValueRef<'_>, random: &RandomState) -> u64 {
    match object {
        ValueRef::Node(node) => {
            sum_members(node.members().map(|(name, value)| (name, ValueRef::Node(value))), random)
        }
        ValueRef::Value(value) => sum_members(values_of(value), random),
        ValueRef::Item(item) => sum_members(values_of(&item.to_value()), random),
    }
}

fn values_of(value: &Value) -> impl Iterator<Item = (&str, ValueRef<'_>)> {
    value.as_object().into_iter().flat_map(Object::iter).map(|(name, value)| (name, ValueRef::Value(value)))
}

/// A sum, so that the order of the members does not matter.
pub(super) fn sum_members<'v>(
    members: impl Iterator<Item = (&'v str, ValueRef<'v>)>,
    random: &RandomState,
) -> u64 {
    let member_hash = |(name, value): (&str, ValueRef<'_>)| {
        let mut hasher = random.build_hasher();
        name.hash(&mut hasher);
        value.hash_with(random, &mut hasher);
        hasher.finish()
    };
    members.map(member_hash).fold(0, u64::wrapping_add)
}

fn node_size(node: Node<'_>) -> usize {
    let inside = match node.kind() {
        Kind::Undefined | Kind::Null | Kind::Bool | Kind::Number => 0,
        Kind::String => node.as_text().map_or(0, <[u8]>::len),
        Kind::Array => node.elements().map(node_size).sum(),
        Kind::Object => node.members().map(|(name, value)| name.len() + NODE_BYTES + node_size(value)).sum(),
    };
    NODE_BYTES + inside
}

/// The estimated memory of a value.
pub(crate) fn approximate_size(value: &Value) -> usize {
    ValueRef::Value(value).approximate_size()
}
