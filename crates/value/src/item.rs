//! Binary item form, read in place.
//!
//! Invariants, each a property test:  1. `from_bytes(item.as_bytes())` accepts what was written, and accepts nothing else: one
//! value (with its property order) has one form;  2. `from_json(text)` is `from_value(parse(text))`;  3. reading never panics and
//! takes time linear in the bytes, whatever they are.
//!
//! An item is a header and the root's content, all integers little-endian:
//!
//! | bytes | content                              |
//! |-------|--------------------------------------|
//! | 1     | format, [`FORMAT`]                   |
//! | 4     | position of the root value           |
//! | ..    | what is inside the root, then the root value, which ends the item |
//!
//! A value starts with a tag. What is inside an array or object comes before it, in original order, and is found by its distance
//! back from the tag. So a value can be copied elsewhere as it is, a tag is written when everything about it is known, and following
//! distances always ends.
//!
//! | tag        | value                  | payload                                                                     |
//! |------------|------------------------|-----------------------------------------------------------------------------|
//! | 0x00       | undefined              | none; only as the root                                                      |
//! | 0x01..0x03 | null, false, true      | none                                                                        |
//! | 0x08..0x0b | integer                | i8, i16, i32 or i64, the shortest that holds it                             |
//! | 0x0c       | integer above i64::MAX | u64                                                                         |
//! | 0x0d       | double, finite         | f64                                                                         |
//! | 0x10       | string of 64..255 bytes | u8 length, UTF-8                                                           |
//! | 0x11       | longer string          | u32 length, UTF-8                                                           |
//! | 0x18, 0x19 | array                  | count; distance to each element                                             |
//! | 0x1a, 0x1b | object                 | count; (name hash, distance to the member) sorted by hash, then name; for each member in original order its row in that table |
//! | 0x40..0x7f | string of 0..63 bytes  | UTF-8 (the tag holds the length)                                            |
//! | 0x80..0xff | integer 0..127         | none (the tag holds it)                                                     |
//!
//! A member is its name (u8 length below 255, or 255 and a u32 length; then UTF-8) and right after it its value. Counts, hashes and
//! distances of an array or object are 16 bits wide (tags 0x18, 0x1a) when its farthest distance fits, else 32 (0x19, 0x1b); the hash is
//! the upper bits of [`name_hash`]. Rows are numbered in 1, 2 or 4 bytes, the fewest for the count.
//!
//! Positions, tags and the hash are on disk: never change them, take a new format byte.

mod build;
mod check;
mod node;

use crate::{Limits, ParseError, Value};

pub use node::Node;

/// First byte of every item.
const FORMAT: u8 = 1;
const HEADER_LEN: usize = 5;

const UNDEFINED: u8 = 0x00;
const NULL: u8 = 0x01;
const FALSE: u8 = 0x02;
const TRUE: u8 = 0x03;
const INT_8: u8 = 0x08;
const INT_16: u8 = 0x09;
const INT_32: u8 = 0x0a;
const INT_64: u8 = 0x0b;
const UNSIGNED: u8 = 0x0c;
const DOUBLE: u8 = 0x0d;
const STRING_8: u8 = 0x10;
const STRING_32: u8 = 0x11;
const ARRAY_16: u8 = 0x18;
const ARRAY_32: u8 = 0x19;
const OBJECT_16: u8 = 0x1a;
const OBJECT_32: u8 = 0x1b;
const SHORT_STRING: u8 = 0x40;
const SHORT_STRING_LEN_MAX: usize = 63;
const SMALL_INT: u8 = 0x80;

/// Length byte of a name whose length follows in 4 bytes.
const LONG_NAME: u8 = 0xff;

/// Levels of arrays and objects that are read; more than the parser lets in or a query can build.
const DEPTH_MAX: usize = 512;

/// An owned, well-formed item.
#[derive(Clone)]
pub struct Item(Vec<u8>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt item: {reason}")]
pub struct CorruptItem {
    pub reason: &'static str,
}

impl Item {
    /// Parses request text directly, without a tree in between. The root may be any JSON value.
    pub fn from_json(text: &[u8], limits: Limits) -> Result<Item, ParseError> {
        Item::from_json_object_without(text, limits, &[])
    }

    /// Leaves out some properties of the root, which are checked like the rest of the text and then dropped.
    pub fn from_json_object_without(
        text: &[u8],
        limits: Limits,
        dropped_root_names: &[&str],
    ) -> Result<Item, ParseError> {
        build::from_json(text, limits, dropped_root_names).map(Item).map_err(|refusal| *refusal)
    }

    /// Leaves out what has no JSON form (`undefined`, NaN, infinity) in arrays and objects.
    pub fn from_value(value: &Value) -> Item {
        Item(build::from_value(value))
    }

    /// Checks the whole structure, so that reading in place can trust every offset.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Item, CorruptItem> {
        check::check(&bytes).map_err(|reason| CorruptItem { reason })?;
        Ok(Item(bytes))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub fn root(&self) -> Node<'_> {
        Node::of(&self.0).expect("an item has a header")
    }
}

impl std::fmt::Debug for Item {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.root().fmt(formatter)
    }
}

/// Distances and hashes of one array or object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    Narrow,
    Wide,
}

impl Width {
    fn for_distance(distance: usize) -> Width {
        if distance <= usize::from(u16::MAX) { Width::Narrow } else { Width::Wide }
    }

    fn bytes(self) -> usize {
        match self {
            Width::Narrow => 2,
            Width::Wide => 4,
        }
    }

    /// The part of a name's hash that the table stores.
    fn cut(self, hash: u32) -> u32 {
        match self {
            Width::Narrow => hash >> 16,
            Width::Wide => hash,
        }
    }
}

/// Bytes of a row number in an object of `count` members.
fn row_bytes(count: usize) -> usize {
    match count {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

/// The hash that sorts an object's members: eight bytes at a time, each folded in by a multiplication. Fixed forever by a golden test.
/// It need not resist an attacker: members of equal hash are sorted by name, so lookups stay logarithmic.
fn name_hash(name: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |hash: u64, word: u64| {
        let mixed = (hash ^ word).wrapping_mul(FACTOR);
        mixed ^ (mixed >> 32)
    };
    let mut hash = (name.len() as u64).wrapping_mul(FACTOR);
    let (words, _) = name.as_chunks::<8>();
    for word in words {
        hash = fold(hash, u64::from_le_bytes(*word));
    }
    (fold(hash, last_word(name)).wrapping_mul(FACTOR) >> 32) as u32
}

/// The last eight bytes; of a shorter name its four first and four last, or its first, middle and last byte.
fn last_word(name: &[u8]) -> u64 {
    let four = |bytes: &[u8; 4]| u64::from(u32::from_le_bytes(*bytes));
    match (name.last_chunk::<8>(), name.first_chunk::<4>(), name.last_chunk::<4>()) {
        (Some(word), _, _) => u64::from_le_bytes(*word),
        (None, Some(first), Some(last)) => four(first) | four(last) << 32,
        _ => match name {
            [] => 0,
            [first, ..] => {
                let (middle, last) = (name[name.len() / 2], name[name.len() - 1]);
                u64::from(*first) | u64::from(middle) << 8 | u64::from(last) << 16
            }
        },
    }
}

#[cfg(test)]
mod tests;
