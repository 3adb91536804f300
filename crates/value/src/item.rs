//! Binary item form, read in place.

use crate::{Kind, Limits, Number, ParseError, Value};

/// An owned, well-formed item.
#[derive(Clone, Debug)]
pub struct Item(Vec<u8>);

/// A place inside an item.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    _bytes: &'a [u8],
    _offset: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt item: {reason}")]
pub struct CorruptItem {
    pub reason: &'static str,
}

impl Item {
    /// Straight from request text, without a tree in between. The root may be any JSON value.
    pub fn from_json(_text: &[u8], _limits: Limits) -> Result<Item, ParseError> {
        todo!()
    }
    pub fn from_value(_value: &Value) -> Item {
        todo!()
    }
    /// Checks the whole structure, so that reading in place can trust every offset.
    pub fn from_bytes(_bytes: Vec<u8>) -> Result<Item, CorruptItem> {
        todo!()
    }
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
    pub fn root(&self) -> Node<'_> {
        todo!()
    }
}

impl<'a> Node<'a> {
    /// Trusted bytes that [`Item::as_bytes`] produced (a checksum guards them on disk); a bad offset reads as undefined, never panics.
    pub fn of(_bytes: &'a [u8]) -> Result<Node<'a>, CorruptItem> {
        todo!()
    }
    pub fn kind(self) -> Kind {
        todo!()
    }
    pub fn as_str(self) -> Option<&'a str> {
        todo!()
    }
    pub fn as_bool(self) -> Option<bool> {
        todo!()
    }
    pub fn as_number(self) -> Option<Number> {
        todo!()
    }
    /// Members of an object or elements of an array; 0 otherwise.
    pub fn len(self) -> usize {
        todo!()
    }
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
    pub fn get(self, _name: &str) -> Option<Node<'a>> {
        todo!()
    }
    pub fn at(self, _index: usize) -> Option<Node<'a>> {
        todo!()
    }
    /// Members in original order.
    pub fn members(self) -> impl Iterator<Item = (&'a str, Node<'a>)> {
        std::iter::empty()
    }
    pub fn elements(self) -> impl Iterator<Item = Node<'a>> {
        std::iter::empty()
    }
    pub fn to_value(self) -> Value {
        todo!()
    }
    pub fn write_json(self, _out: &mut Vec<u8>) {
        todo!()
    }
    /// Length of the compact JSON text.
    pub fn json_len(self) -> usize {
        todo!()
    }
}
