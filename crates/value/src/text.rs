//! JSON text: strict in, compact out, property order kept.
//!
//! In: one value, white space around it, a UTF-8 byte order mark before it. [`Reader`] cuts the text into tokens, which become a [`Value`] (here) or
//! a binary item (`item`) without another tree in between. Invariants, each tested against serde_json:
//! 1. What is accepted is JSON by RFC 8259 in valid UTF-8, except that a lone surrogate escape becomes U+FFFD, and that a
//!    string may contain raw tabs and line ends, as in the service ([`strict()`] has neither).
//! 2. Nesting is counted before descending, so no text overflows the stack.
//! 3. No object has two members of one name; finding that out is not quadratic.
//! 4. Integers that fit i64 or u64 are exact; every other number is the nearest finite double.

mod reader;
mod strict; // for other readers of JSON

use std::collections::HashSet;

use crate::order::SMALL_OBJECT_LEN_MAX;
use crate::{Object, Value};

pub(crate) use reader::{Reader, Refusal, Token};
pub use strict::strict;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Levels of arrays and objects; never more than [`Limits::DEPTH_CEILING`].
    pub depth_max: usize,
}

impl Limits {
    /// The limit of the stack.
    pub const DEPTH_CEILING: usize = 250;
    /// Longest accepted text; requests are refused long before.
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
    parse_whole(text, limits).map_err(|refusal| *refusal)
}

/// Appends a JSON string literal, quotes included.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    write_string_bytes(text.as_bytes(), out);
}

pub(crate) fn write_string_bytes(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = find_special(rest) {
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
    while let Some(at) = find_special(rest) {
        len += escape_len(rest[at]) - 1;
        rest = &rest[at + 1..];
    }
    len
}

impl Limits {
    pub(crate) fn depth(self) -> usize {
        self.depth_max.min(Limits::DEPTH_CEILING)
    }

    /// Counts one more level of nesting.
    pub(crate) fn descend(self, depth_left: usize) -> Result<usize, Refusal> {
        depth_left.checked_sub(1).ok_or_else(|| Box::new(ParseError::TooDeep { depth_max: self.depth() }))
    }
}

fn parse_whole(text: &[u8], limits: Limits) -> Result<Value, Refusal> {
    let mut reader = Reader::new(text)?;
    let value = parse_value(&mut reader, limits, limits.depth())?;
    reader.end()?;
    Ok(value)
}

fn parse_value(reader: &mut Reader<'_>, limits: Limits, depth_left: usize) -> Result<Value, Refusal> {
    match reader.value()? {
        Token::Null => Ok(Value::Null),
        Token::Bool(value) => Ok(Value::Bool(value)),
        Token::Number(number) => Ok(Value::Number(number)),
        Token::String(text) => Ok(Value::String(text.to_owned())),
        Token::Array => parse_elements(reader, limits, limits.descend(depth_left)?),
        Token::Object => parse_members(reader, limits, limits.descend(depth_left)?),
    }
}

fn parse_elements(reader: &mut Reader<'_>, limits: Limits, depth_left: usize) -> Result<Value, Refusal> {
    let mut elements = Vec::new();
    let mut more = reader.first_element()?;
    while more {
        elements.push(parse_value(reader, limits, depth_left)?);
        more = reader.next_element()?;
    }
    Ok(Value::Array(elements))
}

fn parse_members(reader: &mut Reader<'_>, limits: Limits, depth_left: usize) -> Result<Value, Refusal> {
    let mut members = Vec::new();
    let mut name = reader.first_name()?;
    while let Some(own) = name {
        members.push((own.into_owned(), parse_value(reader, limits, depth_left)?));
        name = reader.next_name()?;
    }
    match find_duplicate(&members) {
        Some(name) => Err(Box::new(ParseError::DuplicateName { name: name.to_owned() })),
        None => Ok(Value::Object(Object(members))),
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

/// First byte that cannot be part of a literal: a quote, a backslash or a control character.
#[inline]
fn find_special(text: &[u8]) -> Option<usize> {
    let (words, tail) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = special_bytes(u64::from_le_bytes(*word));
        if found != 0 {
            return Some(index * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    if tail.is_empty() {
        return None;
    }
    match text.last_chunk::<8>() {
        // Overlaps bytes that were already checked, so the lowest marked byte is in the tail.
        Some(word) => {
            let found = special_bytes(u64::from_le_bytes(*word));
            (found != 0).then(|| text.len() - 8 + found.trailing_zeros() as usize / 8)
        }
        None => tail.iter().position(|byte| matches!(byte, 0..0x20 | b'"' | b'\\')),
    }
}

/// Checks eight bytes at once: the top bit of each special byte is set. A borrow can also mark bytes above a special
/// one, so only the lowest counts.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = ONES << 7;
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = zero_bytes(word ^ (ONES * b'"' as u64));
    let backslash = zero_bytes(word ^ (ONES * b'\\' as u64));
    (control | quote | backslash) & TOPS
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
        check("[1e400]", expect!["number out of range at byte 1"]);
        check("-1e999", expect!["number out of range at byte 0"]);
        check("01", expect!["malformed JSON at byte 0: a number starts with 0"]);
        check("[1.]", expect!["malformed JSON at byte 3: expected a digit"]);
        check("[.5]", expect!["malformed JSON at byte 1: expected a value"]);
        check("[+1]", expect!["malformed JSON at byte 1: expected a value"]);
        check("-", expect!["malformed JSON at byte 1: expected a digit"]);
        check("NaN", expect!["malformed JSON at byte 0: expected a value"]);
    }

    #[test]
    fn strings() {
        check(r#""\u0041\ud83d\ude00\/\b\f\n\r\t\\\"""#, expect![[r#""A😀/\b\f\n\r\t\\\"""#]]);
        check(
            r#"["\ud800","\udc00x","\ud800\ud83d\ude00","\udbff\u0041","\ud800\n"]"#,
            expect![[r#"["�","�x","�😀","�A","�\n"]"#]],
        );
        check(r#"{"\ud800":1,"\udfff":2}"#, expect![[r#"duplicate property name "�""#]]);
        check(r#""\ud800\u00""#, expect!["malformed JSON at byte 8: expected four hexadecimal digits"]);
        check(r#""\x""#, expect!["malformed JSON at byte 2: unknown escape"]);
        check("\"a\u{1}b\"", expect!["malformed JSON at byte 2: a control character in a string"]);
        check(b"\"\xff\"", expect!["malformed JSON at byte 1: invalid UTF-8"]);
        check(b"\"\xed\xa0\x80\"", expect!["malformed JSON at byte 1: invalid UTF-8"]);
        check("\"open", expect!["malformed JSON at byte 5: the text ends inside a string"]);
    }

    #[test]
    fn malformed_text() {
        check("", expect!["malformed JSON at byte 0: the text ends where a value is expected"]);
        check(" ", expect!["malformed JSON at byte 1: the text ends where a value is expected"]);
        check("{} x", expect!["malformed JSON at byte 3: something follows the value"]);
        check("1 2", expect!["malformed JSON at byte 2: something follows the value"]);
        check("[1,]", expect!["malformed JSON at byte 3: expected a value"]);
        check("{\"a\":1,}", expect!["malformed JSON at byte 7: expected a property name in double quotes"]);
        check("{\"a\" 1}", expect!["malformed JSON at byte 5: expected ':'"]);
        check("{a:1}", expect!["malformed JSON at byte 1: expected a property name in double quotes"]);
        check("{'a':1}", expect!["malformed JSON at byte 1: expected a property name in double quotes"]);
        check("[1", expect!["malformed JSON at byte 2: expected ',' or ']'"]);
        check("]", expect!["malformed JSON at byte 0: expected a value"]);
        check("nul", expect!["malformed JSON at byte 0: expected a value"]);
        check("\u{feff}\u{feff}1", expect!["malformed JSON at byte 3: expected a value"]);
        check("1\u{a0}", expect!["malformed JSON at byte 1: something follows the value"]);
        check("// x\n1", expect!["malformed JSON at byte 0: expected a value"]);
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
