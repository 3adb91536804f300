//! Ordered key encoding: comparing encoded bytes compares values.
//!
//! Invariants, each a property test:  1. `a.cmp(b) == encode(a).cmp(encode(b))` where neither is an array or object, and
//!    for [`encode_sort`] wherever hashes differ;  2. `decode(encode(a)) == a`;
//! 3. no encoding is a prefix of another, so a composite key is plain concatenation;  4. equal values have one
//!    encoding, and `decode` accepts no other.
//!
//! | tag  | value     | payload                                                                    |
//! |------|-----------|----------------------------------------------------------------------------|
//! | 0x05 | undefined | none (0x10 null, 0x20 false, 0x21 true likewise)                           |
//! | 0x30 | number    | 8 bytes: the largest double not above it, bits in order; 2 bytes: the rest |
//! | 0x40 | string    | UTF-8 with 0x00 written as 0x00 0xFF, then 0x00 0x01                       |
//! | 0x50 | array     | elements, then 0x01                                                        |
//! | 0x60 | object    | name (as a string, with its tag) and value pairs in name order, then 0x01  |
//!
//! Arrays and objects are ordered by their hash, so [`encode_sort`] writes the tag and the 16 bytes of the hash
//! instead. Such a key sorts, but cannot be decoded; a key of [`encode`] can be decoded, but does not sort.
//!
//! Tags are on disk: never renumber. The gaps leave room for new types. "Bits in order" are big-endian, with the sign bit
//! flipped for positive doubles and all bits flipped for negative ones; -0 is 0 and NaN, which is never stored, is all zeros.

use crate::hash::{self, ValueHash};
use crate::order::{from_ordered_bits, ordered_bits};
use crate::{Number, Object, Value};

// Public because index rows use them in their own encoding.
pub const UNDEFINED: u8 = 0x05;
pub const NULL: u8 = 0x10;
const FALSE: u8 = 0x20;
const TRUE: u8 = 0x21;
pub const NUMBER: u8 = 0x30;
pub const STRING: u8 = 0x40;
pub const ARRAY: u8 = 0x50;
pub const OBJECT: u8 = 0x60;
const END: u8 = 0x01;
const HASH_BYTES: usize = 16;

/// Levels of arrays and objects that `decode` follows; more than any item or query can build.
const DEPTH_MAX: usize = 512;

pub fn encode(value: &Value, key: &mut Vec<u8>) {
    match value {
        Value::Undefined => key.push(UNDEFINED),
        Value::Null => key.push(NULL),
        Value::Bool(value) => encode_bool(*value, key),
        Value::Number(number) => encode_number(*number, key),
        Value::String(text) => encode_string(text, key),
        Value::Array(elements) => encode_array(elements, key),
        Value::Object(object) => encode_object(object, key),
    }
}

/// Appends a key that compares like the value.
pub fn encode_sort(value: &Value, key: &mut Vec<u8>) {
    match value {
        Value::Array(_) => encode_hash(ARRAY, hash::of_value(value), key),
        Value::Object(_) => encode_hash(OBJECT, hash::of_value(value), key),
        scalar => encode(scalar, key),
    }
}

/// The sort key of an array or object of which only the hash is known; the tag says which of the two.
pub fn encode_hash(tag: u8, hash: ValueHash, key: &mut Vec<u8>) {
    key.push(tag);
    key.extend_from_slice(&hash.to_bytes());
}

/// The first value of what [`encode_sort`] wrote, and the bytes after it. An array or object is returned empty.
pub fn decode_sort(key: &[u8]) -> Result<(Value, &[u8]), KeyError> {
    let empty = match key.first() {
        Some(&ARRAY) => Value::Array(Vec::new()),
        Some(&OBJECT) => Value::Object(Object::new()),
        _ => return decode(key),
    };
    let rest = key.get(1 + HASH_BYTES..).ok_or(KeyError { reason: "ends too soon" })?;
    Ok((empty, rest))
}

pub fn encode_bool(value: bool, key: &mut Vec<u8>) {
    key.push(if value { TRUE } else { FALSE });
}

pub fn encode_number(number: Number, key: &mut Vec<u8>) {
    // `rest` is nonzero only for integers beyond 2^53, so 1 and 1.0 share a key and no digit is lost.
    let (floor, rest) = number.floor_to_double();
    key.push(NUMBER);
    key.extend_from_slice(&ordered_bits(floor).to_be_bytes());
    key.extend_from_slice(&rest.to_be_bytes());
}

pub fn encode_string(text: &str, key: &mut Vec<u8>) {
    key.reserve(text.len() + 3);
    key.push(STRING);
    let mut rest = text.as_bytes();
    while let Some(zero) = memchr::memchr(0, rest) {
        key.extend_from_slice(&rest[..=zero]);
        key.push(0xFF);
        rest = &rest[zero + 1..];
    }
    key.extend_from_slice(rest);
    key.extend_from_slice(&[0x00, END]);
}

fn encode_array(elements: &[Value], key: &mut Vec<u8>) {
    key.push(ARRAY);
    for element in elements {
        encode(element, key);
    }
    key.push(END);
}

fn encode_object(object: &Object, key: &mut Vec<u8>) {
    key.push(OBJECT);
    for (name, value) in object.sorted() {
        encode_string(name, key);
        encode(value, key);
    }
    key.push(END);
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt key: {reason}")]
pub struct KeyError {
    pub reason: &'static str,
}

/// Decodes one value from the front and returns what follows it.
pub fn decode(key: &[u8]) -> Result<(Value, &[u8]), KeyError> {
    let mut decoder = Decoder { rest: key, depth_left: DEPTH_MAX };
    let value = decoder.value().map_err(|reason| KeyError { reason })?;
    Ok((value, decoder.rest))
}

struct Decoder<'a> {
    rest: &'a [u8],
    depth_left: usize,
}

impl Decoder<'_> {
    fn value(&mut self) -> Result<Value, &'static str> {
        let [tag] = self.take()?;
        Ok(match tag {
            UNDEFINED => Value::Undefined,
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            NUMBER => Value::Number(self.number()?),
            STRING => Value::String(self.string()?),
            ARRAY => Value::Array(self.nested(Decoder::elements)?),
            OBJECT => Value::Object(self.nested(Decoder::members)?),
            _ => return Err("unknown tag"),
        })
    }

    fn number(&mut self) -> Result<Number, &'static str> {
        let ordered = u64::from_be_bytes(self.take()?);
        let rest = u16::from_be_bytes(self.take()?);
        let floor = from_ordered_bits(ordered);
        if ordered_bits(floor) != ordered {
            return Err("a double that is not in its one form");
        }
        Number::from_floor(floor, rest).ok_or("a rest that belongs to no integer")
    }

    fn string(&mut self) -> Result<String, &'static str> {
        let mut bytes = Vec::new();
        loop {
            let zero = memchr::memchr(0, self.rest).ok_or("a string without an end")?;
            bytes.extend_from_slice(&self.rest[..zero]);
            self.rest = &self.rest[zero + 1..];
            match self.take()? {
                [0xFF] => bytes.push(0),
                [END] => break,
                _ => return Err("unknown escape in a string"),
            }
        }
        String::from_utf8(bytes).map_err(|_| "a string that is not UTF-8")
    }

    fn elements(&mut self) -> Result<Vec<Value>, &'static str> {
        let mut elements = Vec::new();
        while !self.at_end() {
            elements.push(self.value()?);
        }
        Ok(elements)
    }

    fn members(&mut self) -> Result<Object, &'static str> {
        let mut members: Vec<(String, Value)> = Vec::new();
        while !self.at_end() {
            let name = match self.take()? {
                [STRING] => self.string()?,
                _ => return Err("a property name that is not a string"),
            };
            if members.last().is_some_and(|(last, _)| *last >= name) {
                return Err("property names out of order");
            }
            members.push((name, self.value()?));
        }
        Ok(Object(members))
    }

    fn nested<T>(
        &mut self,
        inside: impl FnOnce(&mut Self) -> Result<T, &'static str>,
    ) -> Result<T, &'static str> {
        self.depth_left = self.depth_left.checked_sub(1).ok_or("too many levels of nesting")?;
        let value = inside(self)?;
        self.depth_left += 1;
        Ok(value)
    }

    /// Steps over the end mark of an array or object.
    fn at_end(&mut self) -> bool {
        let rest = self.rest.strip_prefix(&[END]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or("ends too soon")?;
        self.rest = rest;
        Ok(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(json: &str, expect: Expect) {
        let value = crate::text::parse(json.as_bytes(), Default::default()).unwrap();
        let mut key = Vec::new();
        encode(&value, &mut key);
        let hex: Vec<String> = key.iter().map(|byte| format!("{byte:02x}")).collect();
        expect.assert_eq(&hex.join(" "));
        assert_eq!(decode(&key), Ok((value, &[][..])));
    }

    fn check_corrupt(key: &[u8], expect: Expect) {
        expect.assert_eq(&decode(key).unwrap_err().to_string());
    }

    // The bytes are on disk: a change here is a change of format.
    #[test]
    fn golden_bytes() {
        check("null", expect!["10"]);
        check("false", expect!["20"]);
        check("true", expect!["21"]);
        check("0", expect!["30 80 00 00 00 00 00 00 00 00 00"]);
        check("-0.0", expect!["30 80 00 00 00 00 00 00 00 00 00"]);
        check("1", expect!["30 bf f0 00 00 00 00 00 00 00 00"]);
        check("1.0", expect!["30 bf f0 00 00 00 00 00 00 00 00"]);
        check("-1.5", expect!["30 40 07 ff ff ff ff ff ff 00 00"]);
        check("9007199254740993", expect!["30 c3 40 00 00 00 00 00 00 00 01"]);
        check("-9007199254740993", expect!["30 3c bf ff ff ff ff ff fe 00 01"]);
        check("18446744073709551615", expect!["30 c3 ef ff ff ff ff ff ff 07 ff"]);
        check(r#""""#, expect!["40 00 01"]);
        check(r#""a\u0000b""#, expect!["40 61 00 ff 62 00 01"]);
        check(r#""é""#, expect!["40 c3 a9 00 01"]);
        check("[]", expect!["50 01"]);
        check("[[],null]", expect!["50 50 01 10 01"]);
        check("{}", expect!["60 01"]);
        check(
            r#"{"b":1,"a":""}"#,
            expect!["60 40 61 00 01 40 00 01 40 62 00 01 30 bf f0 00 00 00 00 00 00 00 00 01"],
        );
        let mut undefined = Vec::new();
        encode(&Value::Undefined, &mut undefined);
        assert_eq!(undefined, [0x05]);
    }

    #[test]
    fn sort_keys_of_arrays_are_their_hashes() {
        let mut key = Vec::new();
        encode_sort(&Value::from(vec![Value::Null]), &mut key);
        encode_sort(&Value::from(7), &mut key);
        let (array, rest) = decode_sort(&key).unwrap();
        assert_eq!((array, key.len() - rest.len()), (Value::from(vec![]), 17));
        assert_eq!(decode_sort(rest), Ok((Value::from(7), &[][..])));
        assert!(decode_sort(&key[..16]).is_err());
    }

    #[test]
    fn corrupt_keys() {
        check_corrupt(&[], expect!["corrupt key: ends too soon"]);
        check_corrupt(&[0x07], expect!["corrupt key: unknown tag"]);
        check_corrupt(&[0x30, 0, 0], expect!["corrupt key: ends too soon"]);
        check_corrupt(
            &[0x30, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
            expect!["corrupt key: a double that is not in its one form"],
        );
        check_corrupt(
            &[0x30, 0xbf, 0xf0, 0, 0, 0, 0, 0, 0, 0, 1],
            expect!["corrupt key: a rest that belongs to no integer"],
        );
        check_corrupt(&[0x40, b'a'], expect!["corrupt key: a string without an end"]);
        check_corrupt(&[0x40, 0, 2], expect!["corrupt key: unknown escape in a string"]);
        check_corrupt(&[0x40, 0xff, 0, 1], expect!["corrupt key: a string that is not UTF-8"]);
        check_corrupt(&[0x50, 0x10], expect!["corrupt key: ends too soon"]);
        check_corrupt(&[0x60, 0x10], expect!["corrupt key: a property name that is not a string"]);
        check_corrupt(
            &[0x60, 0x40, 0, 1, 0x10, 0x40, 0, 1, 0x10, 1],
            expect!["corrupt key: property names out of order"],
        );
        check_corrupt(&[0x50; 10_000], expect!["corrupt key: too many levels of nesting"]);
    }

    #[test]
    fn nan_comes_before_every_number() {
        let (mut nan, mut infinity) = (Vec::new(), Vec::new());
        encode_number(Number::Double(f64::NAN), &mut nan);
        encode_number(Number::Double(f64::NEG_INFINITY), &mut infinity);
        assert!(nan < infinity);
        assert_eq!(decode(&nan).unwrap().0, Value::from(f64::NAN));
    }
}
