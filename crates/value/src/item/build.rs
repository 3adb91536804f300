//! Writes an item, from text or from a value, in one pass.

use super::*;
use crate::text::{Reader, Refusal, Token};
use crate::{Number, Object};

pub(super) fn from_json(text: &[u8], limits: Limits, dropped: &[&str]) -> Result<Vec<u8>, Refusal> {
    let builder = Builder::with_capacity(text.len() + text.len() / 4, PARTS_EXPECTED);
    let mut writer = Writer { reader: Reader::new(text)?, builder, limits };
    let root = writer.value(None, dropped, limits.depth())?;
    writer.reader.end()?;
    Ok(writer.builder.finish(root))
}

pub(super) fn from_value(value: &Value) -> Vec<u8> {
    let mut builder = Builder::with_capacity(0, 0);
    let root = if value.is_json() { builder.value(None, value) } else { builder.scalar(None, &[UNDEFINED]) };
    builder.finish(root)
}

struct Builder {
    bytes: Vec<u8>,
    /// Elements and members of the arrays and objects that are still open, innermost last.
    open: Vec<Part>,
    /// Reused by every object: hash and original position, packed into one sortable number.
    rows: Vec<u64>,
}

/// Room for the members of most items.
const PARTS_EXPECTED: usize = 32;

/// A written element or member.
#[derive(Clone, Copy)]
struct Part {
    hash: u32,
    at: u32,
}

impl Builder {
    fn with_capacity(bytes: usize, parts: usize) -> Builder {
        let (open, rows) = (Vec::with_capacity(parts), Vec::with_capacity(parts));
        let mut bytes = Vec::with_capacity(bytes + HEADER_LEN);
        bytes.extend_from_slice(&[FORMAT, 0, 0, 0, 0]);
        Builder { bytes, open, rows }
    }

    fn finish(mut self, root: u32) -> Vec<u8> {
        self.bytes[1..HEADER_LEN].copy_from_slice(&root.to_le_bytes());
        self.bytes
    }

    /// Starts a value here, with its name if it is a member. Returns the position that the parent needs.
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

    /// Closes an object. Fails with a name that occurs twice.
    fn end_object(&mut self, name: Option<&str>, first: usize) -> Result<u32, String> {
        let begin = self.begin(name);
        let at = self.bytes.len();
        let width = self.width(first, at);
        let count = self.open.len() - first;
        self.sort_rows(first, width)?;
        self.bytes.push(if width == Width::Narrow { OBJECT_16 } else { OBJECT_32 });
        self.wide(count, width);
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

    fn write_rows(&mut self, first: usize, at: usize, width: Width) {
        let (entry_bytes, row_bytes) = (2 * width.bytes(), row_bytes(self.rows.len()));
        let start = self.bytes.len();
        self.bytes.resize(start + self.rows.len() * (entry_bytes + row_bytes), 0);
        let (table, order) = self.bytes[start..].split_at_mut(self.rows.len() * entry_bytes);
        for ((entry, row), number) in table.chunks_exact_mut(entry_bytes).zip(&self.rows).zip(0..) {
            let place = *row as u32 as usize;
            let (hash, distance) = entry.split_at_mut(width.bytes());
            put(hash, (row >> 32) as u32);
            put(distance, at as u32 - self.open[first + place].at);
            put(&mut order[place * row_bytes..][..row_bytes], number);
        }
    }
}

/// Writes the low bytes of a number into `place`.
fn put(place: &mut [u8], value: u32) {
    let [a, b, c, d] = value.to_le_bytes();
    match place {
        [first] => *first = a,
        [first, second] => (*first, *second) = (a, b),
        place => place.copy_from_slice(&[a, b, c, d]),
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

/// Turns text into an item, token by token.
struct Writer<'a> {
    reader: Reader<'a>,
    builder: Builder,
    limits: Limits,
}

impl Writer<'_> {
    /// Writes the next value. Its name is written in front of it, after its contents.
    fn value(&mut self, name: Option<&str>, dropped: &[&str], depth_left: usize) -> Result<u32, Refusal> {
        match self.reader.value()? {
            Token::Null => Ok(self.builder.scalar(name, &[NULL])),
            Token::Bool(value) => Ok(self.builder.bool(name, value)),
            Token::Number(number) => Ok(self.builder.number(name, number)),
            Token::String(text) => Ok(self.builder.string(name, text)),
            Token::Array => self.array(name, self.limits.descend(depth_left)?),
            Token::Object => self.object(name, dropped, self.limits.descend(depth_left)?),
        }
    }

    fn array(&mut self, name: Option<&str>, depth_left: usize) -> Result<u32, Refusal> {
        let first = self.builder.open.len();
        let mut more = self.reader.first_element()?;
        while more {
            let at = self.value(None, &[], depth_left)?;
            self.builder.open.push(Part { hash: 0, at });
            more = self.reader.next_element()?;
        }
        Ok(self.builder.end_array(name, first))
    }

    fn object(&mut self, name: Option<&str>, dropped: &[&str], depth_left: usize) -> Result<u32, Refusal> {
        let first = self.builder.open.len();
        let mut seen = Vec::new();
        let mut next = self.reader.first_name()?;
        while let Some(member) = next {
            let start = self.builder.bytes.len();
            let at = self.value(Some(&member), &[], depth_left)?;
            if !dropped.contains(&&*member) {
                self.builder.open.push(Part { hash: name_hash(member.as_bytes()), at });
            } else if seen.contains(&member) {
                return Err(duplicate(member.into_owned()));
            } else {
                self.builder.bytes.truncate(start);
                seen.push(member);
            }
            next = self.reader.next_name()?;
        }
        self.builder.end_object(name, first).map_err(duplicate)
    }
}

#[cold]
fn duplicate(name: String) -> Refusal {
    Box::new(ParseError::DuplicateName { name })
}
