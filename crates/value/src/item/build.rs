//! Writing an item, from text or from a value, in one pass.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::*;
use crate::text::{self, NameSeed};
use crate::{Number, Object};

pub(super) fn from_json(text: &[u8], limits: Limits, dropped: &[&str]) -> Result<Vec<u8>, ParseError> {
    let mut builder = Builder::with_capacity(text.len() + text.len() / 4);
    let seed = ItemSeed { builder: &mut builder, name: None, dropped, depth_left: limits.depth(), limits };
    match text::read(text, seed) {
        Ok(root) => Ok(builder.finish(root)),
        Err(error) => Err(builder.failure.unwrap_or(error)),
    }
}

pub(super) fn from_value(value: &Value) -> Vec<u8> {
    let mut builder = Builder::with_capacity(0);
    let root = if value.is_json() { builder.value(None, value) } else { builder.scalar(None, &[UNDEFINED]) };
    builder.finish(root)
}

struct Builder {
    bytes: Vec<u8>,
    /// Elements and members of the arrays and objects that are still open, innermost last.
    open: Vec<Part>,
    /// Reused by every object: (hash, place in original order) packed into one sortable number.
    rows: Vec<u64>,
    /// Why the text is refused; see `text::fail`.
    failure: Option<ParseError>,
}

/// A written element or member.
#[derive(Clone, Copy)]
struct Part {
    hash: u32,
    at: u32,
}

impl Builder {
    fn with_capacity(capacity: usize) -> Builder {
        let mut bytes = Vec::with_capacity(capacity + HEADER_LEN);
        bytes.extend_from_slice(&[FORMAT, 0, 0, 0, 0]);
        Builder { bytes, open: Vec::new(), rows: Vec::new(), failure: None }
    }

    fn finish(mut self, root: u32) -> Vec<u8> {
        self.bytes[1..HEADER_LEN].copy_from_slice(&root.to_le_bytes());
        self.bytes
    }

    /// Starts a value here, with its name if it is a member. Gives the position that the parent has to know.
    fn begin(&mut self, name: Option<&str>) -> u32 {
        let at = u32::try_from(self.bytes.len()).expect("an item stays below 4 GB");
        let Some(name) = name else { return at };
        match u8::try_from(name.len()) {
            Ok(len) if len != LONG_NAME => self.bytes.push(len),
            _ => {
                self.bytes.push(LONG_NAME);
                self.length(name.len());
            }
        }
        self.bytes.extend_from_slice(name.as_bytes());
        at
    }

    fn length(&mut self, len: usize) {
        let len = u32::try_from(len).expect("an item stays below 4 GB");
        self.bytes.extend_from_slice(&len.to_le_bytes());
    }

    fn scalar(&mut self, name: Option<&str>, encoded: &[u8]) -> u32 {
        let at = self.begin(name);
        self.bytes.extend_from_slice(encoded);
        at
    }

    fn tagged<const N: usize>(&mut self, name: Option<&str>, tag: u8, payload: [u8; N]) -> u32 {
        let at = self.scalar(name, &[tag]);
        self.bytes.extend_from_slice(&payload);
        at
    }

    fn bool(&mut self, name: Option<&str>, value: bool) -> u32 {
        self.scalar(name, &[if value { TRUE } else { FALSE }])
    }

    fn number(&mut self, name: Option<&str>, number: Number) -> u32 {
        match number {
            Number::Int(value) => self.int(name, value),
            Number::Unsigned(value) => self.tagged(name, UNSIGNED, value.to_le_bytes()),
            Number::Double(value) => self.tagged(name, DOUBLE, value.to_le_bytes()),
        }
    }

    fn int(&mut self, name: Option<&str>, value: i64) -> u32 {
        if let 0..=0x7f = value {
            self.scalar(name, &[SMALL_INT | value as u8])
        } else if let Ok(value) = i8::try_from(value) {
            self.tagged(name, INT_8, value.to_le_bytes())
        } else if let Ok(value) = i16::try_from(value) {
            self.tagged(name, INT_16, value.to_le_bytes())
        } else if let Ok(value) = i32::try_from(value) {
            self.tagged(name, INT_32, value.to_le_bytes())
        } else {
            self.tagged(name, INT_64, value.to_le_bytes())
        }
    }

    fn string(&mut self, name: Option<&str>, text: &str) -> u32 {
        let at = self.begin(name);
        match text.len() {
            len @ 0..=SHORT_STRING_LEN_MAX => self.bytes.push(SHORT_STRING | len as u8),
            len @ 0..=0xff => self.bytes.extend_from_slice(&[STRING_8, len as u8]),
            len => {
                self.bytes.push(STRING_32);
                self.length(len);
            }
        }
        self.bytes.extend_from_slice(text.as_bytes());
        at
    }

    fn value(&mut self, name: Option<&str>, value: &Value) -> u32 {
        match value {
            Value::Undefined => unreachable!("left out by the caller"),
            Value::Null => self.scalar(name, &[NULL]),
            Value::Bool(value) => self.bool(name, *value),
            Value::Number(number) => self.number(name, *number),
            Value::String(text) => self.string(name, text),
            Value::Array(elements) => self.array(name, elements),
            Value::Object(object) => self.object(name, object),
        }
    }

    fn array(&mut self, name: Option<&str>, elements: &[Value]) -> u32 {
        let first = self.open.len();
        for element in elements.iter().filter(|element| element.is_json()) {
            let at = self.value(None, element);
            self.open.push(Part { hash: 0, at });
        }
        self.end_array(name, first)
    }

    fn object(&mut self, name: Option<&str>, object: &Object) -> u32 {
        let first = self.open.len();
        for (member, value) in object.iter().filter(|(_, value)| value.is_json()) {
            let at = self.value(Some(member), value);
            self.open.push(Part { hash: name_hash(member.as_bytes()), at });
        }
        self.end_object(name, first).expect("the names of an object are unique")
    }

    /// Closes the array whose elements are the open parts from `first` on.
    fn end_array(&mut self, name: Option<&str>, first: usize) -> u32 {
        let begin = self.begin(name);
        let at = self.bytes.len();
        let width = self.width(first, at);
        self.bytes.push(if width == Width::Narrow { ARRAY_16 } else { ARRAY_32 });
        self.wide(self.open.len() - first, width);
        for index in first..self.open.len() {
            self.wide(at - self.open[index].at as usize, width);
        }
        self.open.truncate(first);
        begin
    }

    /// The same for an object. Fails with a name that occurs twice.
    fn end_object(&mut self, name: Option<&str>, first: usize) -> Result<u32, String> {
        let begin = self.begin(name);
        let at = self.bytes.len();
        let width = self.width(first, at);
        let count = self.open.len() - first;
        self.sort_rows(first, width)?;
        self.bytes.push(if width == Width::Narrow { OBJECT_16 } else { OBJECT_32 });
        self.wide(count, width);
        self.reserve_rows(count, width);
        self.write_rows(first, at, width);
        self.open.truncate(first);
        Ok(begin)
    }

    // The first part is the farthest.
    fn width(&self, first: usize, at: usize) -> Width {
        Width::for_distance(self.open.get(first).map_or(0, |part| at - part.at as usize))
    }

    fn wide(&mut self, value: usize, width: Width) {
        match width {
            Width::Narrow => self.bytes.extend_from_slice(&(value as u16).to_le_bytes()),
            Width::Wide => self.bytes.extend_from_slice(&(value as u32).to_le_bytes()),
        }
    }

    fn sort_rows(&mut self, first: usize, width: Width) -> Result<(), String> {
        let parts = &self.open[first..];
        let packed =
            parts.iter().zip(0_u64..).map(|(part, place)| u64::from(width.cut(part.hash)) << 32 | place);
        self.rows.clear();
        self.rows.extend(packed);
        self.rows.sort_unstable();
        let bytes = &self.bytes;
        for tied in
            self.rows.chunk_by_mut(|left, right| left >> 32 == right >> 32).filter(|run| run.len() > 1)
        {
            let name_of = |row: &u64| written_name(bytes, parts[*row as u32 as usize].at as usize);
            tied.sort_unstable_by_key(name_of);
            if let Some(pair) = tied.windows(2).find(|pair| name_of(&pair[0]) == name_of(&pair[1])) {
                return Err(String::from_utf8_lossy(name_of(&pair[0])).into_owned());
            }
        }
        Ok(())
    }

    fn reserve_rows(&mut self, count: usize, width: Width) {
        self.bytes.reserve(count * (2 * width.bytes() + row_bytes(count)));
    }

    fn write_rows(&mut self, first: usize, at: usize, width: Width) {
        for index in 0..self.rows.len() {
            let row = self.rows[index];
            let part = self.open[first + row as u32 as usize];
            self.wide((row >> 32) as usize, width);
            self.wide(at - part.at as usize, width);
        }
        let row_bytes = row_bytes(self.rows.len());
        let start = self.bytes.len();
        self.bytes.resize(start + self.rows.len() * row_bytes, 0);
        for (number, row) in (0_u32..).zip(&self.rows) {
            let place = start + *row as u32 as usize * row_bytes;
            self.bytes[place..place + row_bytes].copy_from_slice(&number.to_le_bytes()[..row_bytes]);
        }
    }
}

/// The name of a member that the builder wrote.
fn written_name(bytes: &[u8], at: usize) -> &[u8] {
    let (start, len) = match bytes[at] {
        LONG_NAME => {
            let len = bytes[at + 1..].first_chunk().copied().map_or(0, u32::from_le_bytes);
            (at + 5, len as usize)
        }
        len => (at + 1, usize::from(len)),
    };
    &bytes[start..start + len]
}

/// Writes one value of the text; its own name goes in front of it, after what is inside it.
struct ItemSeed<'b, 'n> {
    builder: &'b mut Builder,
    name: Option<&'n str>,
    dropped: &'n [&'n str],
    depth_left: usize,
    limits: Limits,
}

impl ItemSeed<'_, '_> {
    fn descend<E: Error>(&mut self) -> Result<(), E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => self.depth_left = depth_left,
            None => return Err(text::fail(&mut self.builder.failure, self.limits.too_deep())),
        }
        Ok(())
    }

    fn inner<'s>(&'s mut self, name: Option<&'s str>) -> ItemSeed<'s, 's> {
        let ItemSeed { builder, depth_left, limits, .. } = self;
        ItemSeed { builder, name, dropped: &[], depth_left: *depth_left, limits: *limits }
    }

    #[cold]
    fn duplicate<E: Error>(&mut self, name: String) -> E {
        text::fail(&mut self.builder.failure, ParseError::DuplicateName { name })
    }
}

impl<'de> DeserializeSeed<'de> for ItemSeed<'_, '_> {
    type Value = u32;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u32, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemSeed<'_, '_> {
    type Value = u32;
    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }
    fn visit_unit<E: Error>(self) -> Result<u32, E> {
        Ok(self.builder.scalar(self.name, &[NULL]))
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<u32, E> {
        Ok(self.builder.bool(self.name, value))
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<u32, E> {
        Ok(self.builder.int(self.name, value))
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<u32, E> {
        Ok(self.builder.number(self.name, Number::from_u64(value)))
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<u32, E> {
        Ok(self.builder.number(self.name, Number::Double(value)))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<u32, E> {
        Ok(self.builder.string(self.name, text))
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut sequence: A) -> Result<u32, A::Error> {
        self.descend()?;
        let first = self.builder.open.len();
        while let Some(at) = sequence.next_element_seed(self.inner(None))? {
            self.builder.open.push(Part { hash: 0, at });
        }
        Ok(self.builder.end_array(self.name, first))
    }
    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<u32, A::Error> {
        self.descend()?;
        let first = self.builder.open.len();
        let mut dropped = Vec::new();
        while let Some(name) = map.next_key_seed(NameSeed)? {
            let start = self.builder.bytes.len();
            let at = map.next_value_seed(self.inner(Some(&name)))?;
            if !self.dropped.contains(&&*name) {
                self.builder.open.push(Part { hash: name_hash(name.as_bytes()), at });
                continue;
            }
            self.builder.bytes.truncate(start);
            if dropped.contains(&name) {
                return Err(self.duplicate(name.into_owned()));
            }
            dropped.push(name);
        }
        self.builder.end_object(self.name, first).map_err(|name| self.duplicate(name))
    }
}
