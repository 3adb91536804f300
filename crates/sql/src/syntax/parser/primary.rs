//! Literals, constructors, calls, subqueries and paths.

use quire_value::{Number, Value};

use crate::syntax::ast::{Expr, ExprKind, Identifier, Step, SubqueryForm};
use crate::syntax::lexer::{Keyword, Symbol, TokenKind, integer_value};

use super::{Parsed, Parser};

impl Parser<'_> {
    /// `primary { "." ident | "[" expr "]" }`
    pub(super) fn postfix(&mut self) -> Parsed<Expr> {
        let base = self.primary()?;
        let mut steps = Vec::new();
        loop {
            if self.accept_symbol(Symbol::Dot) {
                steps.push(Step::Member(self.expect_identifier()?.name));
            } else if self.accept_symbol(Symbol::BracketOpen) {
                steps.push(self.index()?);
            } else {
                break;
            }
        }
        if steps.is_empty() {
            return Ok(base);
        }
        let span = base.span.to(self.last_span());
        Ok(Expr::new(ExprKind::Path { base, steps }, span))
    }

    fn index(&mut self) -> Parsed<Step> {
        let index = self.expr()?;
        self.expect_symbol(Symbol::BracketClose)?;
        Ok(match *index.kind {
            ExprKind::Literal(Value::String(name)) => Step::Quoted(name),
            kind => Step::Index(Expr { kind: Box::new(kind), span: index.span }),
        })
    }

    pub(super) fn primary(&mut self) -> Parsed<Expr> {
        let start = self.span();
        let kind = match self.kind().clone() {
            TokenKind::Identifier => self.name_or_call()?,
            TokenKind::Parameter => self.parameter(),
            TokenKind::String(text) => self.literal(Value::String(text)),
            TokenKind::Integer(value) => {
                let number = integer_value(value, self.text_of(start));
                self.literal(Value::Number(number))
            }
            TokenKind::Double(value) => self.literal(Value::Number(Number::Double(value))),
            TokenKind::Keyword(keyword) => self.keyword_primary(keyword)?,
            TokenKind::Symbol(Symbol::ParenOpen) => return self.parenthesised(),
            TokenKind::Symbol(Symbol::BracketOpen) => {
                self.advance();
                ExprKind::Array(self.list_until(Symbol::BracketClose, Self::expr)?)
            }
            TokenKind::Symbol(Symbol::BraceOpen) => {
                self.advance();
                ExprKind::Object(self.list_until(Symbol::BraceClose, Self::property)?)
            }
            TokenKind::Symbol(_) | TokenKind::Invalid | TokenKind::End => return Err(self.unexpected()),
        };
        Ok(Expr::new(kind, start.to(self.last_span())))
    }

    fn literal(&mut self, value: Value) -> ExprKind {
        self.advance();
        ExprKind::Literal(value)
    }

    fn parameter(&mut self) -> ExprKind {
        let name = self.text_of(self.span()).to_owned();
        self.advance();
        ExprKind::Parameter(name)
    }

    fn keyword_primary(&mut self, keyword: Keyword) -> Parsed<ExprKind> {
        match keyword {
            Keyword::True => Ok(self.literal(Value::Bool(true))),
            Keyword::False => Ok(self.literal(Value::Bool(false))),
            Keyword::Null => Ok(self.literal(Value::Null)),
            Keyword::Undefined => Ok(self.literal(Value::Undefined)),
            Keyword::Exists => self.subquery_call(SubqueryForm::Exists),
            Keyword::Array => self.subquery_call(SubqueryForm::Array),
            Keyword::Udf => self.user_defined_call(),
            Keyword::Let | Keyword::Rank => self.name_or_call(),
            Keyword::Left | Keyword::Right => {
                let span = self.span();
                self.advance();
                let name = Identifier { name: self.text_of(span).to_owned(), span };
                self.call(name)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn name_or_call(&mut self) -> Parsed<ExprKind> {
        let name = self.expect_identifier()?;
        if !self.is_symbol(Symbol::ParenOpen) {
            return Ok(ExprKind::Identifier(name.name));
        }
        match subquery_word(&name.name) {
            Some(form) if self.ahead(1).kind == TokenKind::Keyword(Keyword::Select) => self.subquery(form),
            _ => self.call(name),
        }
    }

    fn call(&mut self, name: Identifier) -> Parsed<ExprKind> {
        self.expect_symbol(Symbol::ParenOpen)?;
        let arguments = self.list_until(Symbol::ParenClose, Self::expr)?;
        Ok(ExprKind::Call { name, arguments })
    }

    fn user_defined_call(&mut self) -> Parsed<ExprKind> {
        self.advance();
        self.expect_symbol(Symbol::Dot)?;
        let name = self.expect_identifier()?;
        self.expect_symbol(Symbol::ParenOpen)?;
        let arguments = self.list_until(Symbol::ParenClose, Self::expr)?;
        Ok(ExprKind::UserDefinedCall { name, arguments })
    }

    fn subquery_call(&mut self, form: SubqueryForm) -> Parsed<ExprKind> {
        self.advance();
        self.subquery(form)
    }

    fn subquery(&mut self, form: SubqueryForm) -> Parsed<ExprKind> {
        self.expect_symbol(Symbol::ParenOpen)?;
        let query = Box::new(self.nested(Self::query)?);
        self.expect_symbol(Symbol::ParenClose)?;
        Ok(ExprKind::Subquery { form, query })
    }

    /// `"(" expr ")" | "(" query ")" | "(" LET ident "=" cmp IN cmp ")"`; the span includes the brackets.
    fn parenthesised(&mut self) -> Parsed<Expr> {
        let start = self.span();
        if self.ahead(1).kind == TokenKind::Keyword(Keyword::Select) {
            let kind = self.subquery(SubqueryForm::Scalar)?;
            return Ok(Expr::new(kind, start.to(self.last_span())));
        }
        self.advance();
        let kind = if self.starts_let() { self.nested(Self::let_in)? } else { *self.expr()?.kind };
        self.expect_symbol(Symbol::ParenClose)?;
        Ok(Expr::new(kind, start.to(self.last_span())))
    }

    fn starts_let(&self) -> bool {
        self.is_keyword(Keyword::Let) && self.is_identifier(1)
    }

    fn let_in(&mut self) -> Parsed<ExprKind> {
        self.advance();
        let name = self.expect_identifier()?;
        self.expect_symbol(Symbol::Equal)?;
        let value = self.comparison()?;
        self.expect_keyword(Keyword::In)?;
        let body = self.comparison()?;
        Ok(ExprKind::Let { name, value, body })
    }

    /// `(string | ident) ":" expr`
    fn property(&mut self) -> Parsed<(String, Expr)> {
        let name = match self.kind() {
            TokenKind::String(name) => {
                let name = name.clone();
                self.advance();
                name
            }
            _ => self.expect_identifier()?.name,
        };
        self.expect_symbol(Symbol::Colon)?;
        Ok((name, self.expr()?))
    }
}

fn subquery_word(name: &str) -> Option<SubqueryForm> {
    [("ALL", SubqueryForm::All), ("FIRST", SubqueryForm::First), ("LAST", SubqueryForm::Last)]
        .into_iter()
        .find_map(|(word, form)| word.eq_ignore_ascii_case(name).then_some(form))
}
