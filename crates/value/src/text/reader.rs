//! The tokenizer: strict JSON, one token at a time, no tree and no recursion of its own.
//!
//! Our own code because it handles network input. sonic-rs was tried and was no faster here: a serde visitor uses
//! little of its vector code on baseline x86-64. It needs unsafe code, kilobytes of stack per level in unoptimized
//! builds, and describes an error by scanning the text from its start once per open level.

use std::borrow::Cow;

use super::{Limits, ParseError, find_special};
use crate::Number;

pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Length of the byte order mark, which `text` does not include.
    mark_len: usize,
    /// Buffer of a string with escapes while it is the current token.
    unescaped: String,
}

/// The start of a value; all of it, unless it is an array or object.
pub(crate) enum Token<'t> {
    Null,
    Bool(bool),
    Number(Number),
    String(&'t str),
    Array,
    Object,
}

enum Scanned<'a> {
    /// As it stands in the text.
    Plain(&'a str),
    /// In `unescaped`.
    Unescaped,
}

/// Boxed, because every token returns a small result.
pub(crate) type Refusal = Box<ParseError>;
type Result<T> = std::result::Result<T, Refusal>;

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Reader<'a>> {
        if bytes.len() > Limits::TEXT_BYTES_MAX {
            return Err(malformed(Limits::TEXT_BYTES_MAX, "the text is too long"));
        }
        let whole =
            std::str::from_utf8(bytes).map_err(|error| malformed(error.valid_up_to(), "invalid UTF-8"))?;
        let text = whole.strip_prefix('\u{feff}').unwrap_or(whole);
        Ok(Reader { text, at: 0, mark_len: whole.len() - text.len(), unescaped: String::new() })
    }

    /// The next value. After [`Token::Array`] its elements follow, after [`Token::Object`] its members.
    pub(crate) fn value(&mut self) -> Result<Token<'_>> {
        match self.skip_space() {
            Some(b'"') => Ok(match self.string()? {
                Scanned::Plain(text) => Token::String(text),
                Scanned::Unescaped => Token::String(&self.unescaped),
            }),
            Some(b'-' | b'0'..=b'9') => self.number().map(Token::Number),
            Some(b'{') => Ok(self.step(Token::Object)),
            Some(b'[') => Ok(self.step(Token::Array)),
            Some(b't') => self.literal("true", Token::Bool(true)),
            Some(b'f') => self.literal("false", Token::Bool(false)),
            Some(b'n') => self.literal("null", Token::Null),
            Some(_) => Err(self.error("expected a value")),
            None => Err(self.error("the text ends where a value is expected")),
        }
    }

    /// Whether an array has an element, right after its start.
    pub(crate) fn first_element(&mut self) -> Result<bool> {
        match self.skip_space() {
            Some(b']') => Ok(self.step(false)),
            _ => Ok(true),
        }
    }

    /// Whether an array has another element.
    pub(crate) fn next_element(&mut self) -> Result<bool> {
        match self.skip_space() {
            Some(b',') => Ok(self.step(true)),
            Some(b']') => Ok(self.step(false)),
            _ => Err(self.error("expected ',' or ']'")),
        }
    }

    /// Name of an object's first member, right after its start.
    pub(crate) fn first_name(&mut self) -> Result<Option<Cow<'a, str>>> {
        match self.skip_space() {
            Some(b'}') => Ok(self.step(None)),
            _ => self.name().map(Some),
        }
    }

    /// Name of an object's next member.
    pub(crate) fn next_name(&mut self) -> Result<Option<Cow<'a, str>>> {
        match self.skip_space() {
            Some(b',') => {
                self.at += 1;
                self.skip_space();
                self.name().map(Some)
            }
            Some(b'}') => Ok(self.step(None)),
            _ => Err(self.error("expected ',' or '}'")),
        }
    }

    /// Makes sure that nothing but white space follows.
    pub(crate) fn end(&mut self) -> Result<()> {
        match self.skip_space() {
            None => Ok(()),
            Some(_) => Err(self.error("something follows the value")),
        }
    }

    fn name(&mut self) -> Result<Cow<'a, str>> {
        if self.peek() != Some(b'"') {
            return Err(self.error("expected a property name in double quotes"));
        }
        let name = match self.string()? {
            Scanned::Plain(text) => Cow::Borrowed(text),
            Scanned::Unescaped => Cow::Owned(self.unescaped.clone()),
        };
        match self.skip_space() {
            Some(b':') => Ok(self.step(name)),
            _ => Err(self.error("expected ':'")),
        }
    }

    fn literal(&mut self, literal: &str, token: Token<'static>) -> Result<Token<'static>> {
        if !self.rest().starts_with(literal.as_bytes()) {
            return Err(self.error("expected a value"));
        }
        self.at += literal.len();
        Ok(token)
    }

    #[inline]
    fn string(&mut self) -> Result<Scanned<'a>> {
        let start = self.at + 1;
        self.at = start;
        match self.find_special()? {
            b'"' => {
                let text = &self.text[start..self.at];
                self.at += 1;
                Ok(Scanned::Plain(text))
            }
            _ => self.escaped_string(start),
        }
    }

    // At the first backslash, tab or line end of a string that begins at `start`. Tabs and line ends are not JSON,
    // but the service accepts them; they are escaped when written.
    fn escaped_string(&mut self, mut start: usize) -> Result<Scanned<'a>> {
        self.unescaped.clear();
        loop {
            self.unescaped.push_str(&self.text[start..self.at]);
            self.at += 1;
            match self.text.as_bytes()[self.at - 1] {
                b'"' => return Ok(Scanned::Unescaped),
                b'\\' => self.escape()?,
                control => self.unescaped.push(char::from(control)),
            }
            start = self.at;
            self.find_special()?;
        }
    }

    /// Moves to the quote, backslash, tab or line end that comes next inside a string.
    #[inline]
    fn find_special(&mut self) -> Result<u8> {
        let found = find_special(self.rest());
        self.at = found.map_or(self.text.len(), |distance| self.at + distance);
        match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'\t' | b'\r' | b'\n')) => Ok(byte),
            Some(_) => Err(self.error("a control character in a string")),
            None => Err(self.error("the text ends inside a string")),
        }
    }

    // After the backslash.
    fn escape(&mut self) -> Result<()> {
        let char = match self.peek() {
            Some(b'u') => return self.unicode_escape(),
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(_) => return Err(self.error("unknown escape")),
            None => return Err(self.error("the text ends inside a string")),
        };
        self.unescaped.push(char);
        self.at += 1;
        Ok(())
    }

    // At the `u`. Half of a surrogate pair alone becomes U+FFFD; what follows it is read on its own.
    fn unicode_escape(&mut self) -> Result<()> {
        let unit = self.hex_at(self.at + 1).ok_or_else(|| self.error("expected four hexadecimal digits"))?;
        self.at += 5;
        let char = match unit {
            0xd800..0xdc00 => match self.low_surrogate() {
                Some(low) => {
                    self.at += 6;
                    char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
                }
                None => None,
            },
            unit => char::from_u32(unit),
        };
        self.unescaped.push(char.unwrap_or(char::REPLACEMENT_CHARACTER));
        Ok(())
    }

    fn low_surrogate(&self) -> Option<u32> {
        let is_escape = self.rest().starts_with(b"\\u");
        is_escape.then(|| self.hex_at(self.at + 2))?.filter(|unit| (0xdc00..0xe000).contains(unit))
    }

    fn hex_at(&self, at: usize) -> Option<u32> {
        let digits = self.text.as_bytes().get(at..at + 4)?;
        digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
    }

    fn number(&mut self) -> Result<Number> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        self.at += usize::from(negative);
        let integer = self.integer()?;
        if !matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            match integer {
                Some(value) if !negative => return Ok(Number::from_u64(value)),
                Some(value) if value <= 1 << 63 => return Ok(Number::Int((value as i64).wrapping_neg())),
                _ => return self.double(start),
            }
        }
        self.fraction()?;
        self.exponent()?;
        self.double(start)
    }

    /// The digits before the point; `None` when they do not fit.
    fn integer(&mut self) -> Result<Option<u64>> {
        let start = self.at;
        let mut value = Some(0_u64);
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            value = value.and_then(|value| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
            self.at += 1;
        }
        match (self.at - start, self.text.as_bytes().get(start)) {
            (0, _) => Err(self.error("expected a digit")),
            (2.., Some(b'0')) => Err(malformed(self.mark_len + start, "a number starts with 0")),
            _ => Ok(value),
        }
    }

    fn fraction(&mut self) -> Result<()> {
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        Ok(())
    }

    fn exponent(&mut self) -> Result<()> {
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<()> {
        let count = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { Err(self.error("expected a digit")) } else { Ok(()) }
    }

    fn double(&self, start: usize) -> Result<Number> {
        match self.text[start..self.at].parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Number::Double(value)),
            _ => Err(Box::new(ParseError::NumberOutOfRange { offset: self.mark_len + start })),
        }
    }

    #[inline]
    fn skip_space(&mut self) -> Option<u8> {
        loop {
            match self.peek() {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other,
            }
        }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    #[inline]
    fn step<T>(&mut self, result: T) -> T {
        self.at += 1;
        result
    }

    #[cold]
    fn error(&self, reason: &str) -> Refusal {
        malformed(self.mark_len + self.at, reason)
    }
}

#[cold]
fn malformed(offset: usize, reason: &str) -> Refusal {
    Box::new(ParseError::Malformed { offset, reason: reason.to_owned() })
}
