//! Binary JSON request bodies, as the Rust and .NET clients send items by default, turned into JSON text.
//!
//! A body that starts with `0x80` (no JSON text can) is a tree of tagged values:
//!
//! | tag         | value                                                                                         |
//! |-------------|-----------------------------------------------------------------------------------------------|
//! | `00`–`1F`   | the integer itself                                                                            |
//! | `20`–`3F`   | one of 32 well-known strings                                                                  |
//! | `40`–`67`   | a string of a per-container dictionary, which no client has: refused                          |
//! | `71`–`74`   | base64 text: group count (1 or 2 bytes), padding byte, raw bytes; `73`/`74` URL-safe          |
//! | `75`–`77`   | GUID text, lower case, upper case, lower case in double quotes: 16 bytes, low nibble first     |
//! | `78`–`7A`   | 4-bit text over lower hex, upper hex, date-time characters: length byte, nibbles low first     |
//! | `7B`–`7D`   | 4/5/6-bit text above a base character: length byte, base byte, bits low first                 |
//! | `7E`,`7F`   | 7-bit text: length (1 or 2 bytes), bits low first                                             |
//! | `80`–`BF`   | text of `tag & 7F` bytes                                                                      |
//! | `C0`–`C2`   | text with a length of 1, 2, 4 bytes                                                           |
//! | `C3`–`C6`   | the string at an offset (1, 2, 3, 4 bytes) from the start of the body                         |
//! | `C7`–`CC`   | u64, u8, i16, i32, i64, f64                                                                   |
//! | `CD`–`CE`   | f32, f64                                                                                      |
//! | `D0`–`D2`   | null, false, true                                                                             |
//! | `D3`        | GUID, as text                                                                                 |
//! | `D7`–`DC`   | u8, i8, i16, i32, i64, u32                                                                    |
//! | `DD`–`DF`   | bytes with a length of 1, 2, 4 bytes, as base64 text                                          |
//! | `E0`–`E7`   | array: empty, of one, by byte length (1, 2, 4), by byte length and count (1, 2, 4)            |
//! | `E8`–`EF`   | object, likewise; members are name string, value                                              |
//! | `F0`,`F1`   | array of equal numbers: their tag, count (1 or 2 bytes), bare values                          |
//! | `F2`,`F3`   | array of such arrays: inner array tag, number tag, inner count, outer count, bare values      |
//!
//! All numbers are little-endian. Only the shape is checked here; names, depth and sizes of the item are checked
//! where its text is parsed.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use quire_value::{Number, text};

/// What no request may expand to, whatever it refers to how often.
const TEXT_BYTES_MAX: usize = 8 << 20;
/// A little above the depth that items may have, so that the item's own check reports it.
const DEPTH_MAX: usize = 160;

const PREAMBLE: u8 = 0x80;

const WELL_KNOWN: [&str; 32] = [
    "$s",
    "$t",
    "$v",
    "_attachments",
    "_etag",
    "_rid",
    "_self",
    "_ts",
    "attachments/",
    "coordinates",
    "geometry",
    "GeometryCollection",
    "id",
    "url",
    "Value",
    "label",
    "LineString",
    "link",
    "MultiLineString",
    "MultiPoint",
    "MultiPolygon",
    "name",
    "Name",
    "Type",
    "Point",
    "Polygon",
    "properties",
    "type",
    "value",
    "Feature",
    "FeatureCollection",
    "_id",
];
const LOWER_HEX: &[u8; 16] = b"0123456789abcdef";
const UPPER_HEX: &[u8; 16] = b"0123456789ABCDEF";
const DATE_TIME: &[u8; 16] = b" 0123456789:-.TZ";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("binary JSON at byte {offset}: {reason}")]
pub(crate) struct BinaryError {
    pub offset: usize,
    pub reason: &'static str,
}

pub(crate) fn is_binary(body: &[u8]) -> bool {
    body.first() == Some(&PREAMBLE)
}

/// The JSON text of a binary body.
pub(crate) fn to_text(body: &[u8]) -> Result<Vec<u8>, BinaryError> {
    let mut reader = Reader { body, at: 1, out: Vec::with_capacity(body.len() * 2) };
    if !is_binary(body) {
        return reader.fail("not a binary body");
    }
    reader.value(0)?;
    if reader.at != body.len() {
        return reader.fail("bytes after the value");
    }
    Ok(reader.out)
}

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

type Read<T> = Result<T, BinaryError>;

impl<'a> Reader<'a> {
    fn fail<T>(&self, reason: &'static str) -> Read<T> {
        Err(BinaryError { offset: self.at, reason })
    }

    fn take(&mut self, length: usize) -> Read<&'a [u8]> {
        let taken = self.at.checked_add(length).and_then(|end| self.body.get(self.at..end));
        let Some(bytes) = taken else { return self.fail("the body ends early") };
        self.at += length;
        Ok(bytes)
    }

    fn bytes<const N: usize>(&mut self) -> Read<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("take returns N bytes"))
    }

    fn byte(&mut self) -> Read<u8> {
        Ok(self.bytes::<1>()?[0])
    }

    /// A length or offset of 1 to 4 bytes.
    fn length(&mut self, width: usize) -> Read<usize> {
        let mut wide = [0; 8];
        wide[..width].copy_from_slice(self.take(width)?);
        Ok(u64::from_le_bytes(wide) as usize)
    }

    fn value(&mut self, depth: usize) -> Read<()> {
        if depth > DEPTH_MAX {
            return self.fail("nested too deeply");
        }
        if self.out.len() > TEXT_BYTES_MAX {
            return self.fail("expands to too much text");
        }
        match self.byte()? {
            0xD0 => self.out.extend(b"null"),
            0xD1 => self.out.extend(b"false"),
            0xD2 => self.out.extend(b"true"),
            0xE0 => self.out.extend(b"[]"),
            0xE8 => self.out.extend(b"{}"),
            0xE1 => self.array_of_one(depth)?,
            0xE9 => self.object_of_one(depth)?,
            tag @ 0xE2..=0xE7 => self.sequence(tag - 0xE2, [b'[', b']'], depth, Reader::value)?,
            tag @ 0xEA..=0xEF => self.sequence(tag - 0xEA, [b'{', b'}'], depth, Reader::member)?,
            tag @ (0xF0 | 0xF1) => self.numbers(usize::from(tag - 0xF0) + 1)?,
            tag @ (0xF2 | 0xF3) => self.arrays_of_numbers(usize::from(tag - 0xF2) + 1)?,
            tag if is_number(tag) => self.number(tag)?,
            tag => {
                let string = self.string(tag)?;
                text::write_string(&string, &mut self.out);
            }
        }
        Ok(())
    }

    fn array_of_one(&mut self, depth: usize) -> Read<()> {
        self.out.push(b'[');
        self.value(depth + 1)?;
        self.out.push(b']');
        Ok(())
    }

    fn object_of_one(&mut self, depth: usize) -> Read<()> {
        self.out.push(b'{');
        self.member(depth + 1)?;
        self.out.push(b'}');
        Ok(())
    }

    fn member(&mut self, depth: usize) -> Read<()> {
        let tag = self.byte()?;
        if is_number(tag) || tag >= 0xD0 {
            return self.fail("a property name is not a string");
        }
        let name = self.string(tag)?;
        text::write_string(&name, &mut self.out);
        self.out.push(b':');
        self.value(depth)
    }

    /// `form` 0 to 2: byte length of 1, 2, 4 bytes; 3 to 5: byte length and count.
    fn sequence(
        &mut self,
        form: u8,
        brackets: [u8; 2],
        depth: usize,
        part: fn(&mut Self, usize) -> Read<()>,
    ) -> Read<()> {
        let width = 1 << (form % 3);
        let length = self.length(width)?;
        let expected = if form >= 3 { Some(self.length(width)?) } else { None };
        let end = self.at.saturating_add(length);
        let mut count = 0;
        self.out.push(brackets[0]);
        while self.at < end {
            if count > 0 {
                self.out.push(b',');
            }
            part(self, depth + 1)?;
            count += 1;
        }
        if self.at != end || expected.is_some_and(|expected| expected != count) {
            return self.fail("a length or count is wrong");
        }
        self.out.push(brackets[1]);
        Ok(())
    }

    fn numbers(&mut self, width: usize) -> Read<()> {
        let tag = self.number_tag()?;
        let count = self.length(width)?;
        self.bare_numbers(tag, count)
    }

    fn arrays_of_numbers(&mut self, width: usize) -> Read<()> {
        if self.byte()? != 0xEF + width as u8 {
            return self.fail("not an array of number arrays");
        }
        let tag = self.number_tag()?;
        let inner = self.length(width)?;
        let outer = self.length(width)?;
        self.out.push(b'[');
        for index in 0..outer {
            if index > 0 {
                self.out.push(b',');
            }
            self.bare_numbers(tag, inner)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn number_tag(&mut self) -> Read<u8> {
        match self.byte()? {
            tag @ (0xD7..=0xDC | 0xCD | 0xCE) => Ok(tag),
            _ => self.fail("not a number in an array of numbers"),
        }
    }

    fn bare_numbers(&mut self, tag: u8, count: usize) -> Read<()> {
        self.out.push(b'[');
        for index in 0..count {
            if index > 0 {
                self.out.push(b',');
            }
            self.number(tag)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn number(&mut self, tag: u8) -> Read<()> {
        let number = match tag {
            0x00..=0x1F => Number::Int(i64::from(tag)),
            0xC7 => Number::from_u64(u64::from_le_bytes(self.bytes()?)),
            0xC8 | 0xD7 => Number::Int(i64::from(self.byte()?)),
            0xD8 => Number::Int(i64::from(self.byte()? as i8)),
            0xC9 | 0xD9 => Number::Int(i64::from(i16::from_le_bytes(self.bytes()?))),
            0xCA | 0xDA => Number::Int(i64::from(i32::from_le_bytes(self.bytes()?))),
            0xCB | 0xDB => Number::Int(i64::from_le_bytes(self.bytes()?)),
            0xDC => Number::Int(i64::from(u32::from_le_bytes(self.bytes()?))),
            0xCD => Number::Double(f64::from(f32::from_le_bytes(self.bytes()?))),
            _ => Number::Double(f64::from_le_bytes(self.bytes()?)), // CC, CE
        };
        if !number.as_f64().is_finite() {
            return self.fail("a number is not finite");
        }
        number.write_json(&mut self.out);
        Ok(())
    }

    fn string(&mut self, tag: u8) -> Read<String> {
        match tag {
            0x20..=0x3F => Ok(WELL_KNOWN[usize::from(tag - 0x20)].to_owned()),
            0x71 | 0x72 => self.base64(usize::from(tag - 0x70), &STANDARD),
            0x73 | 0x74 => self.base64(usize::from(tag - 0x72), &URL_SAFE),
            0x75 => self.guid_text(LOWER_HEX),
            0x76 => self.guid_text(UPPER_HEX),
            0x77 => Ok(format!("\"{}\"", self.guid_text(LOWER_HEX)?)),
            0x78 => self.nibbles(LOWER_HEX),
            0x79 => self.nibbles(UPPER_HEX),
            0x7A => self.nibbles(DATE_TIME),
            0x7B..=0x7D => self.packed(usize::from(tag - 0x7B) + 4, 1, true),
            0x7E | 0x7F => self.packed(7, usize::from(tag - 0x7D), false),
            0x80..=0xBF => self.utf8(usize::from(tag & 0x7F)),
            0xC0..=0xC2 => {
                let length = self.length(1 << (tag - 0xC0))?;
                self.utf8(length)
            }
            0xC3..=0xC6 => self.referred(usize::from(tag - 0xC2)),
            0xD3 => self.guid(),
            0xDD..=0xDF => {
                let length = self.length(1 << (tag - 0xDD))?;
                Ok(STANDARD.encode(self.take(length)?))
            }
            0x40..=0x67 => self.fail("strings of a dictionary are not supported"),
            _ => self.fail("unknown tag"),
        }
    }

    fn utf8(&mut self, length: usize) -> Read<String> {
        let bytes = self.take(length)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => self.fail("a string is not UTF-8"),
        }
    }

    fn referred(&mut self, width: usize) -> Read<String> {
        let target = self.length(width)?;
        let after = std::mem::replace(&mut self.at, target);
        let tag = self.byte()?;
        if !(0x20..=0xC2).contains(&tag) {
            return self.fail("a reference does not lead to a string");
        }
        let string = self.string(tag)?;
        self.at = after;
        Ok(string)
    }

    fn base64(&mut self, width: usize, engine: &impl Engine) -> Read<String> {
        let groups = self.length(width)?;
        let padding = self.byte()?;
        // Above 2 it is the complement: the padding was left out of the text.
        let (padding, shown) = if padding > 2 { (!padding, false) } else { (padding, true) };
        let Some(characters) = (groups * 4).checked_sub(usize::from(padding)) else {
            return self.fail("base64 text shorter than its padding");
        };
        let mut encoded = engine.encode(self.take(characters * 3 / 4)?);
        if !shown {
            encoded.truncate(characters);
        }
        Ok(encoded)
    }

    fn guid_text(&mut self, digits: &[u8; 16]) -> Read<String> {
        let mut out = String::with_capacity(36);
        for (index, byte) in self.bytes::<16>()?.into_iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                out.push('-');
            }
            out.push(char::from(digits[usize::from(byte & 0x0F)]));
            out.push(char::from(digits[usize::from(byte >> 4)]));
        }
        Ok(out)
    }

    /// A GUID value: its first three groups are little-endian.
    fn guid(&mut self) -> Read<String> {
        let bytes = self.bytes::<16>()?;
        let mut out = String::with_capacity(36);
        for (position, index) in
            [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15].into_iter().enumerate()
        {
            if matches!(position, 4 | 6 | 8 | 10) {
                out.push('-');
            }
            let byte: u8 = bytes[index];
            out.push(char::from(LOWER_HEX[usize::from(byte >> 4)]));
            out.push(char::from(LOWER_HEX[usize::from(byte & 0x0F)]));
        }
        Ok(out)
    }

    fn nibbles(&mut self, characters: &[u8; 16]) -> Read<String> {
        let length = usize::from(self.byte()?);
        let bytes = self.take(length.div_ceil(2))?;
        let nibble = |index: usize| (bytes[index / 2] >> (4 * (index % 2))) & 0x0F;
        Ok((0..length).map(|index| char::from(characters[usize::from(nibble(index))])).collect())
    }

    fn packed(&mut self, bits: usize, width: usize, has_base: bool) -> Read<String> {
        let length = self.length(width)?;
        let base = if has_base { self.byte()? } else { 0 };
        let bytes = self.take((length * bits).div_ceil(8))?;
        let mut out = String::with_capacity(length);
        for index in 0..length {
            let (byte, shift) = (index * bits / 8, index * bits % 8);
            let window = u16::from(bytes[byte]) | u16::from(bytes.get(byte + 1).copied().unwrap_or(0)) << 8;
            let character = ((window >> shift) & ((1 << bits) - 1)) as u8;
            match character.checked_add(base).filter(u8::is_ascii) {
                Some(character) => out.push(char::from(character)),
                None => return self.fail("a packed character is not ASCII"),
            }
        }
        Ok(out)
    }
}

fn is_number(tag: u8) -> bool {
    matches!(tag, 0x00..=0x1F | 0xC7..=0xCE | 0xD7..=0xDC)
}

#[cfg(test)]
mod tests {
    use quire_storage::random::Random;

    use super::*;

    fn check(bytes: &[u8], expected: &str) {
        let body = [&[PREAMBLE], bytes].concat();
        let found = match to_text(&body) {
            Ok(text) => String::from_utf8(text).unwrap(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn scalars() {
        check(&[0xD0], "null");
        check(&[0xD2], "true");
        check(&[0x1F], "31");
        check(&[0xC8, 200], "200");
        check(&[0xC9, 0x18, 0xFC], "-1000");
        check(&[0xCB, 255, 255, 255, 255, 255, 255, 255, 127], "9223372036854775807");
        check(&[0xC7, 255, 255, 255, 255, 255, 255, 255, 255], "18446744073709551615");
        check(&[0xCC, 0, 0, 0, 0, 0, 0, 0xF8, 0x3F], "1.5");
        check(&[0xCC, 0, 0, 0, 0, 0, 0, 0xF8, 0x7F], "binary JSON at byte 10: a number is not finite");
    }

    #[test]
    fn strings() {
        check(&[0x2C], "\"id\"");
        check(&[0x82, b'h', b'i'], "\"hi\"");
        check(&[0xC0, 1, b'"'], r#""\"""#);
        check(&[0x78, 3, 0x21, 0x0F], "\"12f\"");
        check(&[0x7A, 4, 0x12, 0x3B], "\"10:2\"");
        check(&[0x7B, 2, b'a', 0x10], "\"ab\"");
        check(&[0x7E, 3, 0xE1, 0xF1, 0x18], "\"acc\"");
        check(&[0x71, 1, 1, b'h', b'i'], "\"aGk=\"");
        check(&[0x71, 1, !1, b'h', b'i'], "\"aGk\"");
        check(&[0x45], "binary JSON at byte 2: strings of a dictionary are not supported");
    }

    #[test]
    fn containers() {
        check(&[0xE0], "[]");
        check(&[0xE1, 5], "[5]");
        check(&[0xE2, 2, 1, 2], "[1,2]");
        check(&[0xE5, 2, 2, 1, 2], "[1,2]");
        check(&[0xEA, 4, 0x2C, 0x81, b'x', 0x81], "binary JSON at byte 7: the body ends early");
        check(&[0xEA, 3, 0x2C, 0x81, b'x'], r#"{"id":"x"}"#);
        check(&[0xE2, 4, 0x81, b'q', 0xC3, 3], r#"["q","q"]"#);
        check(&[0xF0, 0xD7, 3, 1, 2, 255], "[1,2,255]");
        check(&[0xF2, 0xF0, 0xD8, 2, 2, 1, 2, 3, 255], "[[1,2],[3,-1]]");
        check(&[0xE2, 1, 0xC9, 0, 0], "binary JSON at byte 6: a length or count is wrong");
    }

    /// 60 KB of text, referred to 200 times.
    #[test]
    fn references_do_not_expand_without_bound() {
        let text = [&[0xC1][..], &60_000u16.to_le_bytes(), &[b'x'; 60_000]].concat();
        let parts = [text, [0xC3, 6].repeat(200)].concat();
        let length = u32::try_from(parts.len()).expect("short").to_le_bytes();
        let body = [&[PREAMBLE, 0xE4][..], &length, &parts].concat();
        assert_eq!(to_text(&body).map_err(|error| error.reason), Err("expands to too much text"));
    }

    #[test]
    fn hostile_bodies_are_errors() {
        check(&[0xE1; 400], "binary JSON at byte 162: nested too deeply");
        check(&[0xC3, 1], "binary JSON at byte 2: a reference does not lead to a string");
        check(&[0xE4, 255, 255, 255, 255], "binary JSON at byte 6: the body ends early");
        let mut random = Random(1);
        for _ in 0..20_000 {
            let mut body = vec![PREAMBLE];
            body.extend((0..random.below(40)).map(|_| random.next_u64() as u8));
            to_text(&body).ok();
        }
    }
}
