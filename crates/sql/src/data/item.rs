//! The input of a query: items in their stored form, or as values.

use quire_value::{Kind, Node, Object, Value};

/// An item of the container. Cheap to create and to copy: nothing is decoded before an expression needs it.
#[derive(Clone, Copy)]
pub struct Item<'a>(pub(super) ItemForm<'a>);

#[derive(Clone, Copy)]
pub(super) enum ItemForm<'a> {
    Stored(Stored<'a>),
    Value(&'a Value),
}

#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub(super) user: Node<'a>,
    pub(super) system: &'a dyn SystemProperties,
}

impl<'a> Item<'a> {
    /// The user's properties in binary form, and the system properties.
    pub fn stored(user: Node<'a>, system: &'a dyn SystemProperties) -> Item<'a> {
        Item(ItemForm::Stored(Stored { user, system }))
    }

    /// A whole item, or the part of it that the query reads.
    pub fn value(value: &'a Value) -> Item<'a> {
        Item(ItemForm::Value(value))
    }

    /// The user's properties in binary form, where it is stored.
    pub fn node(&self) -> Option<Node<'a>> {
        match self.0 {
            ItemForm::Stored(stored) => Some(stored.user),
            ItemForm::Value(_) => None,
        }
    }

    pub fn to_value(&self) -> Value {
        match self.0 {
            ItemForm::Stored(stored) => stored.to_value(),
            ItemForm::Value(value) => value.clone(),
        }
    }

    /// Appends compact JSON text.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self.0 {
            ItemForm::Stored(stored) => stored.write_json(out),
            ItemForm::Value(value) => value.write_json(out),
        }
    }
}

/// The properties that the engine adds to every item (`_rid`, `_self`, `_etag`, `_attachments`, `_ts`), created on
/// demand. Contract: all names start with `_`, the three methods agree, and no user property has such a name.
pub trait SystemProperties {
    fn get(&self, name: &str) -> Option<Value>;

    /// Appends the members as JSON, with a comma before each: `,"_rid":"…",…`.
    fn write_members(&self, out: &mut Vec<u8>);

    /// Sets all of them, in the order in which they are written.
    fn set_members(&self, object: &mut Object);
}

/// The number of system properties; only used for size estimates.
pub(super) const SYSTEM_PROPERTY_COUNT: usize = 5;

impl Stored<'_> {
    pub(super) fn to_value(self) -> Value {
        let mut value = self.user.to_value();
        if let Value::Object(object) = &mut value {
            self.system.set_members(object);
        }
        value
    }

    pub(super) fn write_json(self, out: &mut Vec<u8>) {
        let start = out.len();
        self.user.write_json(out);
        if self.user.kind() != Kind::Object {
            return;
        }
        out.pop();
        let members = out.len();
        self.system.write_members(out);
        if members == start + 1 && out.get(members) == Some(&b',') {
            out.remove(members); // no comma before the first member
        }
        out.push(b'}');
    }
}
