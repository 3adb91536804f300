//! JSON text: strict in, compact out, property order kept.
//!
//! In: one value, white space around it, a UTF-8 byte order mark before it. sonic-rs walks the text and hands every token to a visitor, so
//! the text becomes a [`Value`] (here) or a binary item (`item`) without a tree of the parser's own in between.
//! Invariants, each tested against serde_json:
//! 1. What is accepted is JSON by RFC 8259 in valid UTF-8, except that a lone surrogate escape becomes U+FFFD.
//! 2. Nesting is counted before descending, so no text overflows the stack.
//! 3. No object has two members of one name; finding that out is not quadratic.
//! 4. Integers that fit i64 or u64 are exact; every other number is the nearest finite double.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::order::SMALL_OBJECT_LEN_MAX;
use crate::{Number, Object, Value};

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Levels of arrays and objects; never more than [`Limits::DEPTH_CEILING`].
    pub depth_max: usize,
}

impl Limits {
    /// What the stack and the tokenizer allow.
    pub const DEPTH_CEILING: usize = 250;
    /// Longest text accepted; requests are refused long before.
    pub const TEXT_BYTES_MAX: usize = 64 << 20;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { depth_max: 128 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("malformed JSON at byte {offset}: {reason}")]
    Malformed { offset: usize, reason: String },
    #[error("more than {depth_max} levels of nesting")]
    TooDeep { depth_max: usize },
    #[error("duplicate property name {name:?}")]
    DuplicateName { name: String },
    #[error("number out of range at byte {offset}")]
    NumberOutOfRange { offset: usize },
}

/// Parses one JSON value with nothing after it but white space. Lone surrogates become U+FFFD.
pub fn parse(text: &[u8], limits: Limits) -> Result<Value, ParseError> {
    let mut failure = None;
    let result = read(text, ValueSeed { depth_left: limits.depth(), limits, failure: &mut failure });
    result.map_err(|error| failure.unwrap_or(error))
}

/// Appends a JSON string literal, quotes included.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    write_string_bytes(text.as_bytes(), out);
}

pub(crate) fn write_string_bytes(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = find_escaped(rest) {
        out.extend_from_slice(&rest[..at]);
        write_escape(rest[at], out);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Length of what [`write_string`] appends.
pub(crate) fn string_len(text: &[u8]) -> usize {
    let mut len = text.len() + 2;
    let mut rest = text;
    while let Some(at) = find_escaped(rest) {
        len += escape_len(rest[at]) - 1;
        rest = &rest[at + 1..];
    }
    len
}

impl Limits {
    pub(crate) fn depth(self) -> usize {
        self.depth_max.min(Limits::DEPTH_CEILING)
    }

    pub(crate) fn too_deep(self) -> ParseError {
        ParseError::TooDeep { depth_max: self.depth() }
    }
}

/// Runs a visitor over the text, which has to be one JSON value.
pub(crate) fn read<'de, S: DeserializeSeed<'de>>(text: &'de [u8], seed: S) -> Result<S::Value, ParseError> {
    if text.len() > Limits::TEXT_BYTES_MAX {
        return Err(malformed(Limits::TEXT_BYTES_MAX, "text is too long"));
    }
    // Checked here because the tokenizer, told to replace lone surrogates, would replace invalid bytes too.
    let text = std::str::from_utf8(text).map_err(|error| malformed(error.valid_up_to(), "invalid UTF-8"))?;
    let json = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mark_len = text.len() - json.len();
    let mut deserializer = sonic_rs::Deserializer::from_str(json).utf8_lossy();
    let result = seed.deserialize(&mut deserializer);
    let result = result.and_then(|value| deserializer.end().map(|()| value));
    result.map_err(|error| describe(&error, mark_len))
}

fn malformed(offset: usize, reason: impl Into<String>) -> ParseError {
    ParseError::Malformed { offset, reason: reason.into() }
}

// The tokenizer's error has a position and a text, no code.
fn describe(error: &sonic_rs::Error, mark_len: usize) -> ParseError {
    let text = error.to_string();
    let offset = error.offset() + mark_len;
    if text.starts_with("Float number must be finite") {
        return ParseError::NumberOutOfRange { offset };
    }
    let reason = text.split(" at line ").next().unwrap_or_default();
    malformed(offset, lowercase_first(reason))
}

fn lowercase_first(text: &str) -> String {
    let second = text.chars().nth(1);
    match text.chars().next() {
        Some(first) if second.is_some_and(char::is_lowercase) => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

/// Leaves the precise error where the caller finds it, since the visitor's own error type only carries a sentence.
#[cold]
pub(crate) fn fail<E: Error>(failure: &mut Option<ParseError>, error: ParseError) -> E {
    failure.get_or_insert(error);
    E::custom("refused")
}

struct ValueSeed<'f> {
    depth_left: usize,
    limits: Limits,
    failure: &'f mut Option<ParseError>,
}

impl ValueSeed<'_> {
    /// The seed for what is inside an array or object.
    fn inner<E: Error>(self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(ValueSeed { depth_left, ..self }),
            None => Err(fail(self.failure, self.limits.too_deep())),
        }
    }

    fn again(&mut self) -> ValueSeed<'_> {
        ValueSeed { depth_left: self.depth_left, limits: self.limits, failure: self.failure }
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;
    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }
    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(Number::Int(value)))
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(Number::from_u64(value)))
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(Number::Double(value)))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut seed = self.inner()?;
        let mut elements = Vec::new();
        while let Some(element) = sequence.next_element_seed(seed.again())? {
            elements.push(element);
        }
        Ok(Value::Array(elements))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut seed = self.inner()?;
        let mut members = Vec::new();
        while let Some(name) = map.next_key_seed(NameSeed)? {
            members.push((name.into_owned(), map.next_value_seed(seed.again())?));
        }
        match find_duplicate(&members) {
            Some(name) => Err(fail(seed.failure, ParseError::DuplicateName { name: name.to_owned() })),
            None => Ok(Value::Object(Object(members))),
        }
    }
}

fn find_duplicate(members: &[(String, Value)]) -> Option<&str> {
    let names = members.iter().map(|(name, _)| name.as_str());
    if members.len() > SMALL_OBJECT_LEN_MAX {
        let mut seen = HashSet::with_capacity(members.len());
        return names.into_iter().find(|name| !seen.insert(*name));
    }
    names
        .enumerate()
        .find(|(at, name)| members[..*at].iter().any(|(seen, _)| seen == name))
        .map(|(_, name)| name)
}

/// A property name, borrowed from the text unless it has escapes.
pub(crate) struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Cow<'de, str>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for NameSeed {
    type Value = Cow<'de, str>;
    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a property name")
    }
    fn visit_str<E: Error>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }
}

fn must_escape(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

/// First byte that cannot stand in a literal as it is.
fn find_escaped(text: &[u8]) -> Option<usize> {
    // Whole blocks without a branch inside: the compiler turns each into a few vector instructions.
    const BLOCK: usize = 16;
    let mut at = 0;
    for block in text.chunks_exact(BLOCK) {
        if block.iter().fold(false, |found, byte| found | must_escape(*byte)) {
            break;
        }
        at += BLOCK;
    }
    text[at..].iter().position(|byte| must_escape(*byte)).map(|found| at + found)
}

fn write_escape(byte: u8, out: &mut Vec<u8>) {
    match short_escape(byte) {
        Some(letter) => out.extend_from_slice(&[b'\\', letter]),
        None => out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)]),
    }
}

fn escape_len(byte: u8) -> usize {
    if short_escape(byte).is_some() { 2 } else { 6 }
}

fn short_escape(byte: u8) -> Option<u8> {
    Some(match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => return None,
    })
}

fn hex(digit: u8) -> u8 {
    b"0123456789abcdef"[usize::from(digit)]
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: impl AsRef<[u8]>, expect: Expect) {
        expect.assert_eq(&match parse(text.as_ref(), Limits::default()) {
            Ok(value) => value.to_json(),
            Err(error) => error.to_string(),
        });
    }

    #[test]
    fn values() {
        check(
            " {\"b\" : [1, -2.50, 1e2, true , null],\r\n\t\"a\":\"x\"} ",
            expect![[r#"{"b":[1,-2.5,100,true,null],"a":"x"}"#]],
        );
        check("\u{feff}[\"\"]", expect![[r#"[""]"#]]);
    }

    #[test]
    fn numbers() {
        check(
            "[9223372036854775807,9223372036854775808,18446744073709551615]",
            expect!["[9223372036854775807,9223372036854775808,18446744073709551615]"],
        );
        check(
            "[18446744073709551616,-9223372036854775808,-9223372036854775809]",
            expect!["[1.8446744073709552e+19,-9223372036854775808,-9223372036854775808]"],
        );
        check(
            "[-0,-0.0,0e5,1E-400,1.7976931348623157e308,0.1e1]",
            expect!["[0,0,0,0,1.7976931348623157e+308,1]"],
        );
        check("[1e400]", expect!["number out of range at byte 5"]);
        check("-1e999", expect!["number out of range at byte 5"]);
        check(
            "01",
            expect!["malformed JSON at byte 1: JSON has non-whitespace trailing characters after the value"],
        );
        check("[1.]", expect!["malformed JSON at byte 2: invalid number"]);
        check("[.5]", expect!["malformed JSON at byte 1: invalid JSON value"]);
        check("[+1]", expect!["malformed JSON at byte 1: invalid JSON value"]);
        check("-", expect!["malformed JSON at byte 0: invalid number"]);
        check("NaN", expect!["malformed JSON at byte 0: invalid JSON value"]);
    }

    #[test]
    fn strings() {
        check(r#""\u0041\ud83d\ude00\/\b\f\n\r\t\\\"""#, expect![[r#""A😀/\b\f\n\r\t\\\"""#]]);
        check(
            r#"["\ud800","\udc00x","\ud800\ud83d\ude00","\udbff\u0041","\ud800\n"]"#,
            expect![[r#"["�","�x","�😀","�A","�\n"]"#]],
        );
        check(r#"{"\ud800":1,"\udfff":2}"#, expect![[r#"duplicate property name "�""#]]);
        check(r#""\ud800\u00""#, expect!["malformed JSON at byte 8: EOF while parsing"]);
        check(r#""\x""#, expect!["malformed JSON at byte 2: invalid escape chars"]);
        check(
            "\"a\nb\"",
            expect!["malformed JSON at byte 1: control character found while parsing a string"],
        );
        check(b"\"\xff\"", expect!["malformed JSON at byte 1: invalid UTF-8"]);
        check(b"\"\xed\xa0\x80\"", expect!["malformed JSON at byte 1: invalid UTF-8"]);
        check("\"open", expect!["malformed JSON at byte 4: EOF while parsing"]);
    }

    #[test]
    fn malformed_text() {
        check("", expect!["malformed JSON at byte 0: EOF while parsing"]);
        check(" ", expect!["malformed JSON at byte 0: EOF while parsing"]);
        check(
            "{} x",
            expect!["malformed JSON at byte 3: JSON has non-whitespace trailing characters after the value"],
        );
        check(
            "1 2",
            expect!["malformed JSON at byte 2: JSON has non-whitespace trailing characters after the value"],
        );
        check("[1,]", expect!["malformed JSON at byte 3: invalid JSON value"]);
        check(
            "{\"a\":1,}",
            expect!["malformed JSON at byte 7: JSON has a comma after the last value in an array or object"],
        );
        check(
            "{\"a\" 1}",
            expect!["malformed JSON at byte 5: expected this character to be a ':' while parsing"],
        );
        check("{a:1}", expect![[r#"malformed JSON at byte 1: expected this character to be '"' or '}'"#]]);
        check("{'a':1}", expect![[r#"malformed JSON at byte 1: expected this character to be '"' or '}'"#]]);
        check("[1", expect!["malformed JSON at byte 1: EOF while parsing"]);
        check("]", expect!["malformed JSON at byte 0: invalid JSON value"]);
        check("nul", expect!["malformed JSON at byte 0: EOF while parsing"]);
        check("\u{feff}\u{feff}1", expect!["malformed JSON at byte 3: invalid JSON value"]);
        check(
            "1\u{a0}",
            expect!["malformed JSON at byte 1: JSON has non-whitespace trailing characters after the value"],
        );
        check("// x\n1", expect!["malformed JSON at byte 0: invalid JSON value"]);
    }

    #[test]
    fn duplicate_names() {
        check(r#"{"a":1,"b":{"c":1,"c":2}}"#, expect![[r#"duplicate property name "c""#]]);
        check(r#"{"a":1,"\u0061":2}"#, expect![[r#"duplicate property name "a""#]]);
        let many: Vec<String> = (0..100_000).map(|i| format!("\"name{i}\":{i}")).collect();
        check(format!("{{{},\"name5\":0}}", many.join(",")), expect![[r#"duplicate property name "name5""#]]);
    }

    #[test]
    fn depth_is_limited_before_the_stack_is() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(128).as_bytes(), Limits::default()).is_ok());
        check(nested(129), expect!["more than 128 levels of nesting"]);
        check("[".repeat(2 << 20), expect!["more than 128 levels of nesting"]);
        check("{\"a\":".repeat(1 << 18), expect!["more than 128 levels of nesting"]);
        let ceiling = Limits { depth_max: usize::MAX };
        assert!(parse(nested(Limits::DEPTH_CEILING).as_bytes(), ceiling).is_ok());
        let beyond = parse(nested(Limits::DEPTH_CEILING + 1).as_bytes(), ceiling);
        assert_eq!(beyond, Err(ParseError::TooDeep { depth_max: Limits::DEPTH_CEILING }));
        assert_eq!(parse(b"[]", Limits { depth_max: 0 }), Err(ParseError::TooDeep { depth_max: 0 }));
        assert!(parse(b"1", Limits { depth_max: 0 }).is_ok());
    }

    #[test]
    fn string_len_is_what_is_written() {
        for text in
            ["", "plain", "a\"\\\n\u{1}é", "a long text with its one escape far behind the first block\n"]
        {
            let mut out = Vec::new();
            write_string(text, &mut out);
            assert_eq!(string_len(text.as_bytes()), out.len(), "{text:?}");
        }
    }
}
