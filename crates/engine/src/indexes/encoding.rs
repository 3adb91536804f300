//! Index rows as bytes: values in order, ranges of keys, and back.
//!
//! | part     | bytes                                                                                          |
//! |----------|------------------------------------------------------------------------------------------------|
//! | container, index id | 4, 8                                                                                |
//! | rid prefix | 3, only in partition-first kinds: the prefix of the item's rid                               |
//! | value    | `quire_value::key` of a scalar; composite: of every component, descending ones inverted        |
//! | rid      | 8                                                                                              |
//!
//! A string longer than the limit of its kind is **cut**: its first bytes, escaped as usual, then `00 02` in place of
//! `00 01`, which sorts right after the string that is exactly those bytes. An array or object is a **marker**: its
//! tag alone. Neither says what the value is, so neither ever stands in for the item.

use std::ops::Bound;

use quire_storage::{KeyRange, successor};
use quire_value::{Kind, Node, Value, key};

use super::IndexId;
use crate::store::keys;

/// Bytes of a string that a range row keeps.
pub(crate) const RANGE_STRING_MAX: usize = 96;
/// Bytes of a string that a component of a composite row keeps.
pub(crate) const COMPOSITE_STRING_MAX: usize = 56;

/// Ends a cut string instead of `00 01`.
const CUT_END: [u8; 2] = [0x00, 0x02];
/// Bytes of a rid prefix in partition-first rows.
pub(crate) const PREFIX_BYTES: usize = 3;
/// Container and index id.
const HEAD_BYTES: usize = 12;
const RID_BYTES: usize = 8;

/// Appends a value as rows have it: cut beyond `limit` bytes, arrays and objects as markers, `undefined` as its tag.
pub(crate) fn encode_value(value: &Value, limit: usize, out: &mut Vec<u8>) {
    match value {
        Value::String(text) => encode_string(text, limit, out),
        Value::Array(_) => out.push(key::ARRAY),
        Value::Object(_) => out.push(key::OBJECT),
        scalar => key::encode(scalar, out),
    }
}

/// The same for a place in a stored item.
pub(crate) fn encode_node(node: Node<'_>, limit: usize, out: &mut Vec<u8>) {
    match node.kind() {
        Kind::Undefined => out.push(key::UNDEFINED),
        Kind::Null => out.push(key::NULL),
        Kind::Bool => key::encode_bool(node.as_bool().unwrap_or_default(), out),
        Kind::Number => match node.as_number() {
            Some(number) => key::encode_number(number, out),
            None => out.push(key::UNDEFINED),
        },
        Kind::String => encode_string(node.as_str().unwrap_or_default(), limit, out),
        Kind::Array => out.push(key::ARRAY),
        Kind::Object => out.push(key::OBJECT),
    }
}

fn encode_string(text: &str, limit: usize, out: &mut Vec<u8>) {
    if text.len() <= limit {
        return key::encode_string(text, out);
    }
    out.push(key::STRING);
    for &byte in &text.as_bytes()[..limit] {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend(CUT_END);
}

/// A row of an index, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexRow<'a> {
    pub index: IndexId,
    /// What stands between index id and rid: in partition-first rows the rid prefix first.
    pub middle: &'a [u8],
    pub rid: u64,
}

/// `None`: not the key of an index row.
pub(crate) fn parse_row(key: &[u8]) -> Option<IndexRow<'_>> {
    let index = IndexId(keys::number(key.get(4..HEAD_BYTES)?)?);
    let middle = key.get(HEAD_BYTES..key.len().checked_sub(RID_BYTES)?)?;
    let rid = keys::number(&key[key.len() - RID_BYTES..])?;
    Some(IndexRow { index, middle, rid })
}

/// Whether an encoded value of a range row is a string that was cut.
pub(crate) fn is_cut(value: &[u8]) -> bool {
    value.first() == Some(&key::STRING) && value.ends_with(&CUT_END)
}

/// Whether an encoded value of a range row stands for an array or object.
pub(crate) fn is_marker(value: &[u8]) -> bool {
    matches!(value, [key::ARRAY] | [key::OBJECT])
}

/// Values of an index, as encoded bytes. A bound may be the beginning of a value, or of a composite one.
#[derive(Clone, Debug)]
pub(crate) struct EncodedRange {
    /// Of a partition-first index: the rid prefix.
    pub prefix: Option<u32>,
    pub low: Bound<Vec<u8>>,
    pub high: Bound<Vec<u8>>,
}

/// Keys of all rows of an index whose values lie in a range.
pub(crate) fn key_range(container: u32, index: IndexId, range: &EncodedRange) -> KeyRange {
    let head = index_head(container, index, range.prefix);
    let at = |value: &[u8]| [head.as_slice(), value].concat();
    let after = |value: &[u8]| successor(&at(value)).map_or(Bound::Unbounded, Bound::Excluded);
    let start = match &range.low {
        Bound::Unbounded => Bound::Included(head.clone()),
        Bound::Included(value) => Bound::Included(at(value)),
        Bound::Excluded(value) => match after(value) {
            Bound::Excluded(key) => Bound::Included(key),
            // No index id begins with 32 set bits and a value of nothing but set bits: there is no key after it.
            _ => Bound::Excluded(at(value)),
        },
    };
    let end = match &range.high {
        Bound::Unbounded => after(&[]),
        Bound::Included(value) => after(value),
        Bound::Excluded(value) => Bound::Excluded(at(value)),
    };
    KeyRange { start, end }
}

/// Keys of the rows of one value whose rids lie in `first..=last`: equality inside a logical or physical partition.
pub(crate) fn point_range(container: u32, index: IndexId, value: &[u8], first: u64, last: u64) -> KeyRange {
    let at = |rid: u64| [&index_head(container, index, None), value, &rid.to_be_bytes()].concat();
    KeyRange { start: Bound::Included(at(first)), end: Bound::Included(at(last)) }
}

/// Everything in the keys of an index before the value, with room for one.
pub(crate) fn index_head(container: u32, index: IndexId, prefix: Option<u32>) -> Vec<u8> {
    /// Most values are shorter.
    const VALUE_BYTES: usize = 48;
    let mut head = Vec::with_capacity(HEAD_BYTES + PREFIX_BYTES + VALUE_BYTES);
    head.extend(keys::container_prefix(container));
    head.extend(index.0.to_be_bytes());
    if let Some(prefix) = prefix {
        head.extend(prefix_bytes(prefix));
    }
    head
}

pub(crate) fn prefix_bytes(prefix: u32) -> [u8; PREFIX_BYTES] {
    let [_, bytes @ ..] = prefix.to_be_bytes();
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(value: impl Into<Value>, limit: usize) -> Vec<u8> {
        let mut out = Vec::new();
        encode_value(&value.into(), limit, &mut out);
        out
    }

    fn row(value: &[u8], rid: u64) -> Vec<u8> {
        [&index_head(7, IndexId(9), None), value, &rid.to_be_bytes()].concat()
    }

    fn contains(range: &KeyRange, key: &[u8]) -> bool {
        let above = match &range.start {
            Bound::Included(start) => key >= start.as_slice(),
            Bound::Excluded(start) => key > start.as_slice(),
            Bound::Unbounded => true,
        };
        let below = match &range.end {
            Bound::Included(end) => key <= end.as_slice(),
            Bound::Excluded(end) => key < end.as_slice(),
            Bound::Unbounded => true,
        };
        above && below
    }

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        assert_eq!(encoded("ab", 2), b"\x40ab\x00\x01");
        assert_eq!(encoded("abc", 2), b"\x40ab\x00\x02");
        assert_eq!(encoded("\0bc", 2), b"\x40\x00\xFFb\x00\x02");
        assert_eq!(encoded(Vec::<Value>::new(), 2), [0x50]);
        assert_eq!(encoded(quire_value::Object::new(), 2), [0x60]);
        assert_eq!(prefix_bytes(0x12_3456), [0x12, 0x34, 0x56]);
        let key = row(b"\x10", 5);
        assert_eq!(key, [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0x10, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(parse_row(&key), Some(IndexRow { index: IndexId(9), middle: b"\x10", rid: 5 }));
        assert_eq!(parse_row(&key[..15]), None);
    }

    #[test]
    fn cut_strings_and_markers_are_told_from_others() {
        assert!(is_cut(&encoded("abc", 2)) && !is_cut(&encoded("ab", 2)));
        assert!(!is_cut(&encoded("a\u{0}", 2)));
        assert!(is_marker(&[0x50]) && !is_marker(&encoded(5, 9)));
    }

    proptest! {
        #[test]
        fn rows_sort_as_their_values_up_to_the_cut(a in "[a-c\0]{0,6}", b in "[a-c\0]{0,6}") {
            let order = encoded(a.as_str(), 3).cmp(&encoded(b.as_str(), 3));
            if order.is_eq() {
                prop_assert_eq!(a.len().min(4), b.len().min(4));
                prop_assert_eq!(&a.as_bytes()[..a.len().min(3)], &b.as_bytes()[..b.len().min(3)]);
            } else {
                prop_assert_eq!(order, a.cmp(&b));
            }
        }

        #[test]
        fn ranges_hold_the_rows_of_their_values(value in -3i64..4, low in -3i64..4, high in -3i64..4, rid: u64) {
            let key = row(&encoded(value, 9), rid);
            let range = |low, high| key_range(7, IndexId(9), &EncodedRange { prefix: None, low, high });
            let (from, to) = (encoded(low, 9), encoded(high, 9));
            let closed = range(Bound::Included(from.clone()), Bound::Included(to.clone()));
            prop_assert_eq!(contains(&closed, &key), low <= value && value <= high);
            let open = range(Bound::Excluded(from.clone()), Bound::Excluded(to));
            prop_assert_eq!(contains(&open, &key), low < value && value < high);
            prop_assert!(contains(&range(Bound::Unbounded, Bound::Unbounded), &key));
            let point = point_range(7, IndexId(9), &from, rid, rid);
            prop_assert_eq!(contains(&point, &key), low == value);
        }
    }
}
