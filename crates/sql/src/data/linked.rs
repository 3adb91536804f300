//! Items of other containers, as links lead to them. Rows share them: most are written as they are stored, and become
//! values only where an expression looks into them.

use std::cell::OnceCell;
use std::rc::Rc;

use quire_value::Value;

use super::Item;
use super::datum::{Datum, ValueRef, approximate_size};

/// An item of another container. Contract: all methods show the same item.
pub trait LinkedItem {
    /// As it is stored.
    fn item(&self) -> Item<'_>;

    /// As a value, made once.
    fn value(&self) -> &Value;

    /// Appends compact JSON text.
    fn write_json(&self, out: &mut Vec<u8>);

    /// The estimated memory of its value.
    fn approximate_size(&self) -> usize;
}

impl LinkedItem for Value {
    fn item(&self) -> Item<'_> {
        Item::value(self)
    }

    fn value(&self) -> &Value {
        self
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        Value::write_json(self, out);
    }

    fn approximate_size(&self) -> usize {
        approximate_size(self)
    }
}

/// A property of the item, without a value of the whole.
pub(super) fn linked_member(linked: &dyn LinkedItem, name: &str) -> Value {
    ValueRef::of(&linked.item()).member(name).into_value()
}

/// An array of items.
pub(crate) struct LinkedArray {
    items: Vec<Rc<dyn LinkedItem>>,
    value: OnceCell<Value>,
}

impl LinkedArray {
    pub fn new(items: Vec<Rc<dyn LinkedItem>>) -> LinkedArray {
        LinkedArray { items, value: OnceCell::new() }
    }

    pub fn value(&self) -> &Value {
        self.value.get_or_init(|| self.copy())
    }

    fn copy(&self) -> Value {
        Value::Array(self.items.iter().map(|item| item.item().to_value()).collect())
    }

    pub fn into_value(mut self) -> Value {
        self.value.take().unwrap_or_else(|| self.copy())
    }

    pub fn element(mut self, index: usize) -> Datum<'static> {
        if index < self.items.len() { Datum::Linked(self.items.swap_remove(index)) } else { Datum::UNDEFINED }
    }

    pub fn approximate_size(&self) -> usize {
        self.items.iter().map(|item| item.approximate_size()).sum()
    }

    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (at, item) in self.items.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            item.write_json(out);
        }
        out.push(b']');
    }
}
