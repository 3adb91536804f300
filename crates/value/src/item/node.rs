//! Reads in place: every access is checked, none allocates.

use std::cmp::Ordering;
use std::fmt;

use super::*;
use crate::{Kind, Number, Object, text};

/// A value inside an item.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Node<'a> {
    /// Trusted bytes that [`Item::as_bytes`] produced (a checksum guards them on disk); a bad offset reads as undefined, never panics.
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Result<Node<'a>, CorruptItem> {
        match bytes {
            [FORMAT, a, b, c, d, ..] => Ok(Node { bytes, at: u32::from_le_bytes([*a, *b, *c, *d]) as usize }),
            [] => Err(CorruptItem { reason: "no bytes" }),
            [FORMAT, ..] => Err(CorruptItem { reason: "ends inside the header" }),
            _ => Err(CorruptItem { reason: "unknown format" }),
        }
    }

    #[inline]
    pub fn kind(self) -> Kind {
        match self.tag() {
            Some(NULL) => Kind::Null,
            Some(FALSE | TRUE) => Kind::Bool,
            Some(INT_8..=DOUBLE | SMALL_INT..) => Kind::Number,
            Some(STRING_8 | STRING_32 | SHORT_STRING..SMALL_INT) => Kind::String,
            Some(ARRAY_16 | ARRAY_32) => Kind::Array,
            Some(OBJECT_16 | OBJECT_32) => Kind::Object,
            _ => Kind::Undefined,
        }
    }

    pub fn as_str(self) -> Option<&'a str> {
        std::str::from_utf8(self.string_bytes()?).ok()
    }

    /// The UTF-8 bytes of a string, not validated again: comparing and searching need no `str`.
    #[inline]
    pub fn as_text(self) -> Option<&'a [u8]> {
        self.string_bytes()
    }

    #[inline]
    pub fn as_bool(self) -> Option<bool> {
        match self.tag()? {
            FALSE => Some(false),
            TRUE => Some(true),
            _ => None,
        }
    }

    #[inline]
    pub fn as_number(self) -> Option<Number> {
        Some(match self.tag()? {
            small @ SMALL_INT.. => Number::Int(i64::from(small - SMALL_INT)),
            INT_8 => Number::Int(i64::from(i8::from_le_bytes(self.payload()?))),
            INT_16 => Number::Int(i64::from(i16::from_le_bytes(self.payload()?))),
            INT_32 => Number::Int(i64::from(i32::from_le_bytes(self.payload()?))),
            INT_64 => Number::Int(i64::from_le_bytes(self.payload()?)),
            UNSIGNED => Number::from_u64(u64::from_le_bytes(self.payload()?)),
            DOUBLE => Number::Double(f64::from_le_bytes(self.payload()?)),
            _ => return None,
        })
    }

    /// Members of an object or elements of an array; 0 otherwise.
    pub fn len(self) -> usize {
        self.table().map_or(0, |table| table.count)
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub fn get(self, name: &str) -> Option<Node<'a>> {
        self.object()?.find(name.as_bytes())
    }

    #[inline]
    pub fn at(self, index: usize) -> Option<Node<'a>> {
        self.array()?.element(index)
    }

    /// Members in original order.
    pub fn members(self) -> impl Iterator<Item = (&'a str, Node<'a>)> {
        self.raw_members().filter_map(|(name, node)| Some((std::str::from_utf8(name).ok()?, node)))
    }

    pub fn elements(self) -> impl Iterator<Item = Node<'a>> {
        let array = self.array();
        let count = array.map_or(0, |array| array.count);
        (0..count).map_while(move |index| array?.element(index))
    }

    pub fn to_value(self) -> Value {
        Walk::default().value(self)
    }

    /// Appends compact JSON text; a root of `undefined` writes nothing.
    pub fn write_json(self, out: &mut Vec<u8>) {
        if self.kind() != Kind::Undefined {
            Walk::default().write(self, out);
        }
    }

    pub fn to_json(self) -> String {
        let mut out = Vec::new();
        self.write_json(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Length of the compact JSON text.
    pub fn json_len(self) -> usize {
        let mut length = Length(0);
        if self.kind() != Kind::Undefined {
            Walk::default().write(self, &mut length);
        }
        length.0
    }

    fn raw_members(self) -> impl Iterator<Item = (&'a [u8], Node<'a>)> {
        let object = self.object();
        let count = object.map_or(0, |object| object.count);
        (0..count).map_while(move |index| object?.member(index))
    }

    pub(super) fn position(self) -> usize {
        self.at
    }

    /// Bytes of the stored item that the node is a part of.
    pub fn len_bytes(self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(super) fn tag(self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn payload<const N: usize>(self) -> Option<[u8; N]> {
        read(self.bytes, self.at + 1)
    }

    #[inline]
    pub(super) fn string_bytes(self) -> Option<&'a [u8]> {
        let (start, len) = match self.tag()? {
            short @ SHORT_STRING..SMALL_INT => (self.at + 1, usize::from(short - SHORT_STRING)),
            STRING_8 => (self.at + 2, usize::from(u8::from_le_bytes(self.payload()?))),
            STRING_32 => (self.at + 5, u32::from_le_bytes(self.payload()?) as usize),
            _ => return None,
        };
        self.bytes.get(start..)?.get(..len)
    }

    #[inline]
    fn array(self) -> Option<Table<'a>> {
        matches!(self.tag()?, ARRAY_16 | ARRAY_32).then(|| self.table())?
    }

    #[inline]
    fn object(self) -> Option<Table<'a>> {
        matches!(self.tag()?, OBJECT_16 | OBJECT_32).then(|| self.table())?
    }

    #[inline]
    pub(super) fn table(self) -> Option<Table<'a>> {
        let width = match self.tag()? {
            ARRAY_16 | OBJECT_16 => Width::Narrow,
            ARRAY_32 | OBJECT_32 => Width::Wide,
            _ => return None,
        };
        let count = read_wide(self.bytes, self.at + 1, width)?;
        Some(Table { node: self, width, count, start: self.at + 1 + width.bytes() })
    }
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_json())
    }
}

#[inline]
fn read<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[inline]
fn read_wide(bytes: &[u8], at: usize, width: Width) -> Option<usize> {
    Some(match width {
        Width::Narrow => usize::from(u16::from_le_bytes(read(bytes, at)?)),
        Width::Wide => u32::from_le_bytes(read(bytes, at)?) as usize,
    })
}

/// The part of an array or object that follows its tag.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    node: Node<'a>,
    pub(super) width: Width,
    pub(super) count: usize,
    start: usize,
}

/// A name and the position of the value behind it.
pub(super) struct Member<'a> {
    pub(super) at: usize,
    pub(super) name: &'a [u8],
    pub(super) value_at: usize,
}

impl<'a> Table<'a> {
    #[inline]
    pub(super) fn element(self, index: usize) -> Option<Node<'a>> {
        (index < self.count)
            .then(|| self.back(self.start + index * self.width.bytes()))?
            .map(|at| self.node_at(at))
    }

    fn member(self, index: usize) -> Option<(&'a [u8], Node<'a>)> {
        let member = self.row_member(self.row(index)?)?;
        Some((member.name, self.node_at(member.value_at)))
    }

    fn find(self, name: &[u8]) -> Option<Node<'a>> {
        let hash = self.width.cut(name_hash(name));
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match self.hash(middle)?.cmp(&hash) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => {
                    let member = self.row_member(middle)?;
                    match member.name.cmp(name) {
                        Ordering::Less => low = middle + 1,
                        Ordering::Greater => high = middle,
                        Ordering::Equal => return Some(self.node_at(member.value_at)),
                    }
                }
            }
        }
        None
    }

    #[inline]
    pub(super) fn node_at(self, at: usize) -> Node<'a> {
        Node { bytes: self.node.bytes, at }
    }

    /// The row of a member, by its place in original order.
    pub(super) fn row(self, index: usize) -> Option<usize> {
        let rows = self.start + self.count * 2 * self.width.bytes();
        let bytes = self.node.bytes;
        let row = match row_bytes(self.count) {
            1 => usize::from(*bytes.get(rows + index)?),
            2 => usize::from(u16::from_le_bytes(read(bytes, rows + index * 2)?)),
            _ => u32::from_le_bytes(read(bytes, rows + index * 4)?) as usize,
        };
        (row < self.count).then_some(row)
    }

    #[inline]
    pub(super) fn hash(self, row: usize) -> Option<u32> {
        let at = self.start + row * 2 * self.width.bytes();
        read_wide(self.node.bytes, at, self.width).map(|hash| hash as u32)
    }

    #[inline]
    pub(super) fn row_member(self, row: usize) -> Option<Member<'a>> {
        let at = self.back(self.start + (row * 2 + 1) * self.width.bytes())?;
        let bytes = self.node.bytes;
        let (name_at, len) = match *bytes.get(at)? {
            LONG_NAME => (at + 5, u32::from_le_bytes(read(bytes, at + 1)?) as usize),
            len => (at + 1, usize::from(len)),
        };
        let name = bytes.get(name_at..)?.get(..len)?;
        let value_at = name_at + len;
        // Strictly before the object itself, or a corrupt name could lead back into it.
        (value_at < self.node.at).then_some(Member { at, name, value_at })
    }

    /// Position that a distance leads to: always before this table's own tag.
    #[inline]
    pub(super) fn back(self, at: usize) -> Option<usize> {
        match read_wide(self.node.bytes, at, self.width)? {
            0 => None,
            distance => self.node.at.checked_sub(distance),
        }
    }

    pub(super) fn position(self) -> usize {
        self.node.at
    }

    /// Where the table ends.
    pub(super) fn end(self, is_object: IsObject) -> usize {
        let width = self.width.bytes();
        match is_object {
            IsObject::No => self.start + self.count * width,
            IsObject::Yes => self.start + self.count * (2 * width + row_bytes(self.count)),
        }
    }
}

pub(super) enum IsObject {
    Yes,
    No,
}

/// Receives JSON text: a buffer, or a counter of its length.
trait Sink {
    fn raw(&mut self, text: &[u8]);
    fn string(&mut self, text: &[u8]);
}

impl Sink for Vec<u8> {
    fn raw(&mut self, text: &[u8]) {
        self.extend_from_slice(text);
    }
    fn string(&mut self, text: &[u8]) {
        text::write_string_bytes(text, self);
    }
}

struct Length(usize);

impl Sink for Length {
    fn raw(&mut self, text: &[u8]) {
        self.0 += text.len();
    }
    fn string(&mut self, text: &[u8]) {
        self.0 += text::string_len(text);
    }
}

/// A traversal of everything below a node, in original order. Values lie in that order, so a corrupt distance that
/// leads back to a visited value is detected, and the traversal ends after at most as many steps as there are bytes.
#[derive(Default)]
struct Walk {
    depth: usize,
    /// Everything before this position was visited.
    done: usize,
}

impl Walk {
    fn value(&mut self, node: Node<'_>) -> Value {
        match node.kind() {
            Kind::Undefined => Value::Undefined,
            Kind::Null => Value::Null,
            Kind::Bool => node.as_bool().into(),
            Kind::Number => node.as_number().into(),
            Kind::String => node.as_str().into(),
            Kind::Array => Value::Array(self.elements(node)),
            Kind::Object => Value::Object(self.members(node)),
        }
    }

    fn elements(&mut self, node: Node<'_>) -> Vec<Value> {
        let mut elements = Vec::new();
        self.inside(node.elements(), |element| *element, |walk, element| elements.push(walk.value(element)));
        elements
    }

    fn members(&mut self, node: Node<'_>) -> Object {
        let mut members = Vec::new();
        self.inside(
            node.members(),
            |(_, value)| *value,
            |walk, (name, value)| members.push((name.to_owned(), walk.value(value))),
        );
        Object(members)
    }

    fn write(&mut self, node: Node<'_>, out: &mut impl Sink) {
        match node.tag() {
            Some(TRUE) => out.raw(b"true"),
            Some(FALSE) => out.raw(b"false"),
            Some(ARRAY_16 | ARRAY_32) => self.write_elements(node, out),
            Some(OBJECT_16 | OBJECT_32) => self.write_members(node, out),
            _ => match (node.string_bytes(), node.as_number()) {
                (Some(text), _) => out.string(text),
                (_, Some(number)) => out.raw(number.format(&mut [0; 32])),
                _ => out.raw(b"null"), // or unreadable
            },
        }
    }

    fn write_elements(&mut self, node: Node<'_>, out: &mut impl Sink) {
        out.raw(b"[");
        let mut comma: &[u8] = b"";
        self.inside(
            node.elements(),
            |element| *element,
            |walk, element| {
                out.raw(comma);
                comma = b",";
                walk.write(element, out);
            },
        );
        out.raw(b"]");
    }

    fn write_members(&mut self, node: Node<'_>, out: &mut impl Sink) {
        out.raw(b"{");
        let mut comma: &[u8] = b"";
        self.inside(
            node.raw_members(),
            |(_, value)| *value,
            |walk, (name, value)| {
                out.raw(comma);
                comma = b",";
                out.string(name);
                out.raw(b":");
                walk.write(value, out);
            },
        );
        out.raw(b"}");
    }

    /// Visits the parts of an array or object that lie ahead.
    fn inside<'a, T>(
        &mut self,
        parts: impl Iterator<Item = T>,
        node_of: impl Fn(&T) -> Node<'a>,
        mut visit: impl FnMut(&mut Walk, T),
    ) {
        if self.depth == DEPTH_MAX {
            return;
        }
        self.depth += 1;
        for part in parts {
            let at = node_of(&part).at;
            if at < self.done {
                break;
            }
            visit(self, part);
            self.done = at + 1;
        }
        self.depth -= 1;
    }
}
