//! Text to tokens, each with its byte span.
//!
//! The lexer never fails. Text that is not a token becomes [`TokenKind::Invalid`], and the parser reports it when it
//! reaches it. So the error that is reported is the first one in the text.

use quire_value::Number;

/// Byte range in the query text, end exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    pub fn to(self, end: Span) -> Span {
        Span { start: self.start, end: end.end }
    }
}

#[derive(Clone, Debug)]
pub struct Token {
    pub kind: TokenKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TokenKind {
    Identifier,
    Keyword(Keyword),
    /// `@name`, the span includes the `@`
    Parameter,
    /// A string literal with its escapes resolved.
    String(String),
    /// `None` for an integer that does not fit into 64 bits: it becomes a double.
    Integer(Option<u64>),
    Double(f64),
    Symbol(Symbol),
    Invalid,
    End,
}

macro_rules! keywords {
    ($($variant:ident $text:literal),* $(,)?) => {
        /// Reserved words, in any case.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Keyword { $($variant),* }

        const KEYWORDS: &[(&str, Keyword)] = &[$(($text, Keyword::$variant)),*];
    };
}

keywords! {
    And "AND", Array "ARRAY", As "AS", Asc "ASC", Between "BETWEEN", By "BY", Case "CASE", Cast "CAST",
    Convert "CONVERT", Cross "CROSS", Desc "DESC", Distinct "DISTINCT", Else "ELSE", End "END",
    Escape "ESCAPE", Exists "EXISTS", False "FALSE", For "FOR", From "FROM", Group "GROUP",
    Having "HAVING", In "IN", Inner "INNER", Insert "INSERT", Into "INTO", Is "IS", Join "JOIN",
    Left "LEFT", Let "LET", Like "LIKE", Limit "LIMIT", Not "NOT", Null "NULL", Offset "OFFSET",
    On "ON", Or "OR", Order "ORDER", Outer "OUTER", Over "OVER", Rank "RANK", Right "RIGHT",
    Select "SELECT", Set "SET", Then "THEN", Top "TOP", True "TRUE", Udf "UDF",
    Undefined "UNDEFINED", Update "UPDATE", Value "VALUE", When "WHEN", Where "WHERE", With "WITH",
}

macro_rules! symbols {
    ($($variant:ident $text:literal),* $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Symbol { $($variant),* }

        /// Longest first, so that the first match is the longest.
        const SYMBOLS: &[(&str, Symbol)] = &[$(($text, Symbol::$variant)),*];
    };
}

symbols! {
    ShiftRightUnsigned ">>>",
    NotEqual "!=", LessGreater "<>", LessEqual "<=", GreaterEqual ">=", ShiftLeft "<<", ShiftRight ">>",
    Concat "||", Coalesce "??",
    Equal "=", Less "<", Greater ">", Plus "+", Minus "-", Star "*", Slash "/", Percent "%", Ampersand "&",
    Pipe "|", Caret "^", Tilde "~", Bang "!", Question "?", Colon ":", Comma ",", Dot ".",
    ParenOpen "(", ParenClose ")", BracketOpen "[", BracketClose "]", BraceOpen "{", BraceClose "}",
}

pub fn is_keyword(word: &str) -> bool {
    keyword(word).is_some()
}

/// `[A-Za-z_][A-Za-z0-9_]*`
pub fn is_identifier(word: &str) -> bool {
    word.bytes().next().is_some_and(starts_identifier) && word.bytes().all(continues_identifier)
}

/// The last token is always [`TokenKind::End`] with an empty span at the end of the text.
pub fn tokenize(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { text, position: 0 };
    let mut tokens = Vec::with_capacity(text.len() / 4 + 1);
    loop {
        let token = lexer.next_token();
        let end = token.kind == TokenKind::End;
        tokens.push(token);
        if end {
            return tokens;
        }
    }
}

fn keyword(word: &str) -> Option<Keyword> {
    KEYWORDS.iter().find(|(text, _)| text.eq_ignore_ascii_case(word)).map(|(_, keyword)| *keyword)
}

fn starts_identifier(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

fn continues_identifier(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

struct Lexer<'t> {
    text: &'t str,
    position: usize,
}

impl Lexer<'_> {
    fn next_token(&mut self) -> Token {
        self.skip_space_and_comments();
        let start = self.position;
        let kind = match self.peek(0) {
            None => TokenKind::End,
            Some(b'\'' | b'"') => self.string(),
            Some(b'@') => self.parameter(),
            Some(byte) if starts_identifier(byte) => self.word(),
            Some(byte) if byte.is_ascii_digit() => self.number(),
            Some(b'.') if self.peek(1).is_some_and(|byte| byte.is_ascii_digit()) => self.number(),
            Some(_) => self.symbol(),
        };
        Token { kind, span: Span { start, end: self.position } }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.position + ahead).copied()
    }

    fn skip_space_and_comments(&mut self) {
        loop {
            match self.peek(0) {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.position += 1,
                Some(b'-') if self.peek(1) == Some(b'-') => self.skip_line(),
                _ => return,
            }
        }
    }

    fn skip_line(&mut self) {
        self.skip_while(|byte| byte != b'\n');
    }

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.peek(0).is_some_and(&wanted) {
            self.position += 1;
        }
    }

    fn word(&mut self) -> TokenKind {
        let start = self.position;
        self.skip_while(continues_identifier);
        keyword(&self.text[start..self.position]).map_or(TokenKind::Identifier, TokenKind::Keyword)
    }

    fn parameter(&mut self) -> TokenKind {
        self.position += 1;
        let start = self.position;
        if self.peek(0).is_some_and(starts_identifier) {
            self.skip_while(continues_identifier);
        }
        if start == self.position { TokenKind::Invalid } else { TokenKind::Parameter }
    }

    fn symbol(&mut self) -> TokenKind {
        let rest = &self.text[self.position..];
        if let Some((text, symbol)) = SYMBOLS.iter().find(|(text, _)| rest.starts_with(text)) {
            self.position += text.len();
            return TokenKind::Symbol(*symbol);
        }
        self.position += rest.chars().next().map_or(0, char::len_utf8);
        TokenKind::Invalid
    }

    fn number(&mut self) -> TokenKind {
        let prefix = self.peek(0) == Some(b'0') && matches!(self.peek(1), Some(b'x' | b'X'));
        if prefix && self.peek(2).is_some_and(|byte| byte.is_ascii_hexdigit()) {
            return self.hexadecimal();
        }
        let start = self.position;
        self.skip_while(|byte| byte.is_ascii_digit());
        let mut integer = true;
        if self.peek(0) == Some(b'.') {
            integer = false;
            self.position += 1;
            self.skip_while(|byte| byte.is_ascii_digit());
        }
        if self.skip_exponent() {
            integer = false;
        }
        let text = &self.text[start..self.position];
        if integer {
            return TokenKind::Integer(text.parse().ok());
        }
        text.parse().map_or(TokenKind::Invalid, TokenKind::Double)
    }

    fn skip_exponent(&mut self) -> bool {
        if !matches!(self.peek(0), Some(b'e' | b'E')) {
            return false;
        }
        let sign = usize::from(matches!(self.peek(1), Some(b'+' | b'-')));
        if !self.peek(1 + sign).is_some_and(|byte| byte.is_ascii_digit()) {
            return false;
        }
        self.position += 1 + sign;
        self.skip_while(|byte| byte.is_ascii_digit());
        true
    }

    fn hexadecimal(&mut self) -> TokenKind {
        self.position += 2;
        let start = self.position;
        self.skip_while(|byte| byte.is_ascii_hexdigit());
        TokenKind::Integer(u64::from_str_radix(&self.text[start..self.position], 16).ok())
    }

    /// If the literal does not end, the token is the rest of the text.
    fn string(&mut self) -> TokenKind {
        let quote = self.peek(0);
        self.position += 1;
        let mut units = StringLiteral::default();
        let mut valid = true;
        loop {
            let start = self.position;
            self.skip_while(|byte| Some(byte) != quote && byte != b'\\');
            units.push_str(&self.text[start..self.position]);
            match self.peek(0) {
                None => return TokenKind::Invalid,
                Some(b'\\') => valid &= self.escape(&mut units),
                Some(_) => break,
            }
        }
        self.position += 1;
        if valid { TokenKind::String(units.finish()) } else { TokenKind::Invalid }
    }

    fn escape(&mut self, units: &mut StringLiteral) -> bool {
        let Some(byte) = self.peek(1) else {
            self.position += 1;
            return false;
        };
        let plain = match byte {
            b'\'' | b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(units),
            _ => {
                let rest = &self.text[self.position + 1..];
                self.position += 1 + rest.chars().next().map_or(0, char::len_utf8);
                return false;
            }
        };
        self.position += 2;
        units.push_char(plain);
        true
    }

    fn unicode_escape(&mut self, units: &mut StringLiteral) -> bool {
        let digits = self.text.get(self.position + 2..self.position + 6);
        let hexadecimal = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match hexadecimal.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
            Some(unit) => {
                self.position += 6;
                units.push_unit(unit);
                true
            }
            None => {
                self.position += 2;
                false
            }
        }
    }
}

/// A string literal under construction. A high surrogate may wait for its low surrogate.
#[derive(Default)]
struct StringLiteral {
    text: String,
    high: Option<u16>,
}

impl StringLiteral {
    fn push_str(&mut self, text: &str) {
        if !text.is_empty() {
            self.flush();
            self.text.push_str(text);
        }
    }

    fn push_char(&mut self, character: char) {
        self.flush();
        self.text.push(character);
    }

    fn push_unit(&mut self, unit: u16) {
        if let (Some(high), 0xDC00..=0xDFFF) = (self.high, unit) {
            self.high = None;
            self.text
                .extend(char::decode_utf16([high, unit]).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
            return;
        }
        self.flush();
        match unit {
            0xD800..=0xDBFF => self.high = Some(unit),
            _ => self.text.push(char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER)),
        }
    }

    /// A surrogate without its pair has no UTF-8 form.
    fn flush(&mut self) {
        if self.high.take().is_some() {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
    }

    fn finish(mut self) -> String {
        self.flush();
        self.text
    }
}

/// The value of an integer literal: exact when it fits 64 bits, a double otherwise.
pub fn integer_value(integer: Option<u64>, text: &str) -> Number {
    match integer {
        Some(value) => Number::from_u64(value),
        None => Number::Double(large_integer(text)),
    }
}

fn large_integer(text: &str) -> f64 {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => {
            digits.chars().fold(0.0, |sum, c| sum * 16.0 + f64::from(c.to_digit(16).unwrap_or(0)))
        }
        None => text.parse().unwrap_or(f64::INFINITY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind> {
        tokenize(text).into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn words_numbers_and_symbols() {
        assert_eq!(
            kinds("select _a1 @p 1 0x10 .5 5. 1e3 >>> <>"),
            [
                TokenKind::Keyword(Keyword::Select),
                TokenKind::Identifier,
                TokenKind::Parameter,
                TokenKind::Integer(Some(1)),
                TokenKind::Integer(Some(16)),
                TokenKind::Double(0.5),
                TokenKind::Double(5.0),
                TokenKind::Double(1000.0),
                TokenKind::Symbol(Symbol::ShiftRightUnsigned),
                TokenKind::Symbol(Symbol::LessGreater),
                TokenKind::End,
            ]
        );
    }

    #[test]
    fn strings_resolve_escapes_and_join_surrogates() {
        assert_eq!(kinds(r#"'a\'\n\u0041'"#)[0], TokenKind::String("a'\nA".to_owned()));
        assert_eq!(kinds(r#""\ud83d\ude00""#)[0], TokenKind::String("😀".to_owned()));
        assert_eq!(kinds(r#""\ud83dx""#)[0], TokenKind::String("\u{fffd}x".to_owned()));
        assert_eq!(kinds(r#"'\q'"#)[0], TokenKind::Invalid);
        assert_eq!(kinds("'open")[0], TokenKind::Invalid);
        assert_eq!(kinds("'open\\")[0], TokenKind::Invalid);
    }

    #[test]
    fn comments_and_unusual_characters() {
        assert_eq!(kinds("-- all of it"), [TokenKind::End]);
        assert_eq!(kinds("é"), [TokenKind::Invalid, TokenKind::End]);
        assert_eq!(kinds("@"), [TokenKind::Invalid, TokenKind::End]);
    }
}
