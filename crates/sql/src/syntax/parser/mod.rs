//! Recursive descent, one function per grammar rule. Parsing stops at the first error.
//!
//! Depth grows only with brackets and is limited by [`DEPTH_MAX`]; everything else loops.

mod clauses; // SELECT, FROM, GROUP BY, ORDER BY, OFFSET LIMIT
mod expressions; // operators by precedence
mod primary; // literals, constructors, calls, subqueries, paths

use crate::syntax::ast::{Expr, Identifier, Query};
use crate::syntax::diagnostic::{Diagnostic, Problem};
use crate::syntax::lexer::{Keyword, Span, Symbol, Token, TokenKind, tokenize};

/// Nesting limit of brackets, calls and subqueries. Each level uses stack in every later stage.
pub(crate) const DEPTH_MAX: usize = 128;

/// Characters of query text, as the account document announces.
pub(crate) const TEXT_LENGTH_MAX: usize = 524_288;

pub(crate) type Parsed<T> = Result<T, Box<Diagnostic>>;

pub fn parse(text: &str) -> Result<Query, Diagnostic> {
    parse_whole(text, |parser| parser.query())
}

/// One expression and nothing else.
pub(crate) fn parse_expression(text: &str) -> Result<Expr, Diagnostic> {
    parse_whole(text, |parser| parser.expr())
}

fn parse_whole<T>(text: &str, rule: impl FnOnce(&mut Parser<'_>) -> Parsed<T>) -> Result<T, Diagnostic> {
    // The length in bytes is a cheap upper bound that most texts pass.
    if text.len() > TEXT_LENGTH_MAX && text.encode_utf16().count() > TEXT_LENGTH_MAX {
        let span = Span { start: 0, end: text.len() };
        return Err(Diagnostic::new(Problem::TextTooLong(TEXT_LENGTH_MAX), span));
    }
    let mut parser = Parser { text, tokens: tokenize(text), position: 0, depth: 0 };
    parser.whole(rule).map_err(|diagnostic| *diagnostic)
}

pub(crate) struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token>,
    position: usize,
    depth: usize,
}

impl Parser<'_> {
    fn whole<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        let parsed = rule(self)?;
        match self.kind() {
            TokenKind::End => Ok(parsed),
            _ => Err(self.unexpected()),
        }
    }

    fn token(&self) -> &Token {
        self.ahead(0)
    }

    /// Beyond the end, the end token.
    fn ahead(&self, count: usize) -> &Token {
        &self.tokens[(self.position + count).min(self.tokens.len() - 1)]
    }

    fn kind(&self) -> &TokenKind {
        &self.token().kind
    }

    fn span(&self) -> Span {
        self.token().span
    }

    /// Span of the token just consumed.
    fn last_span(&self) -> Span {
        self.tokens[self.position.saturating_sub(1)].span
    }

    fn text_of(&self, span: Span) -> &str {
        &self.text[span.start..span.end]
    }

    fn advance(&mut self) {
        self.position = (self.position + 1).min(self.tokens.len() - 1);
    }

    fn is_keyword(&self, keyword: Keyword) -> bool {
        *self.kind() == TokenKind::Keyword(keyword)
    }

    fn is_symbol(&self, symbol: Symbol) -> bool {
        *self.kind() == TokenKind::Symbol(symbol)
    }

    fn accept_keyword(&mut self, keyword: Keyword) -> bool {
        let found = self.is_keyword(keyword);
        if found {
            self.advance();
        }
        found
    }

    fn accept_symbol(&mut self, symbol: Symbol) -> bool {
        let found = self.is_symbol(symbol);
        if found {
            self.advance();
        }
        found
    }

    fn expect_keyword(&mut self, keyword: Keyword) -> Parsed<()> {
        if self.accept_keyword(keyword) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn expect_symbol(&mut self, symbol: Symbol) -> Parsed<()> {
        if self.accept_symbol(symbol) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// `LET` and `RANK` are ordinary names where a name is expected.
    fn is_identifier(&self, ahead: usize) -> bool {
        matches!(
            self.ahead(ahead).kind,
            TokenKind::Identifier | TokenKind::Keyword(Keyword::Let | Keyword::Rank)
        )
    }

    fn expect_identifier(&mut self) -> Parsed<Identifier> {
        if !self.is_identifier(0) {
            return Err(self.unexpected());
        }
        let span = self.span();
        self.advance();
        Ok(Identifier { name: self.text_of(span).to_owned(), span })
    }

    fn unexpected(&self) -> Box<Diagnostic> {
        let token = self.token();
        let text = self.text_of(token.span).to_owned();
        let problem = match token.kind {
            TokenKind::End => Problem::UnexpectedEnd,
            TokenKind::Invalid => Problem::InvalidToken(text),
            _ => Problem::UnexpectedToken(text),
        };
        Box::new(Diagnostic::new(problem, token.span))
    }

    /// Every recursive rule passes through here.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == DEPTH_MAX {
            return Err(Box::new(Diagnostic::new(Problem::TooDeep(DEPTH_MAX), self.span())));
        }
        self.depth += 1;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    /// `first { "," first }`
    fn list<T>(&mut self, mut rule: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![rule(self)?];
        while self.accept_symbol(Symbol::Comma) {
            items.push(rule(self)?);
        }
        Ok(items)
    }

    /// A list that may be empty, up to its closing bracket.
    fn list_until<T>(&mut self, close: Symbol, rule: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        if self.accept_symbol(close) {
            return Ok(Vec::new());
        }
        let items = self.list(rule)?;
        self.expect_symbol(close)?;
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let diagnostic = parse(text).expect_err("the text is wrong");
        format!("{} {}..{} {}", diagnostic.code, diagnostic.start, diagnostic.end, diagnostic.message)
    }

    #[test]
    fn deep_brackets_are_an_error_and_not_an_overflow() {
        for (open, close) in [("(", ")"), ("[", "]"), ("ABS(", ")"), ("{a:", "}"), ("(SELECT ", ")")] {
            let text = format!("SELECT {}1{}", open.repeat(5_000), close.repeat(5_000));
            assert!(error(&text).starts_with("SC3006"), "{open}");
            let allowed = format!("SELECT {}1{}", open.repeat(60), close.repeat(60));
            parse(&allowed).expect("sixty levels are allowed");
        }
    }

    #[test]
    fn long_chains_are_flat() {
        for operator in [" AND ", " OR ", " + ", " = ", " * ", " || ", " ?? ", ".", " ? 1 : "] {
            let text = format!("SELECT c{} FROM c", format!("{operator}x").repeat(20_000));
            parse(&text).unwrap_or_else(|diagnostic| panic!("{operator}: {diagnostic:?}"));
        }
        parse(&format!("SELECT {} 1", "NOT ".repeat(50_000))).expect("prefix operators are a list");
        parse(&format!("SELECT 1 IN (1{})", ", 1".repeat(50_000))).expect("an IN list is a list");
    }

    #[test]
    fn the_offending_token_is_named_as_typed() {
        assert_eq!(error("SELECT FROM c"), "SC1001 7..11 Syntax error, incorrect syntax near 'FROM'.");
        assert_eq!(
            error("SELECT c.order FROM c"),
            "SC1001 9..14 Syntax error, incorrect syntax near 'order'."
        );
        assert_eq!(error("SELECT"), "SC1002 6..6 Syntax error, unexpected end-of-file.");
        assert_eq!(error("SELECT 1;"), "SC1010 8..9 Syntax error, invalid token ';'.");
    }
}
