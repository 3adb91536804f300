//! Operators, lowest precedence first. `NOT` has a higher precedence than every binary operator, as in the service.

use quire_value::{Number, Value};

use crate::syntax::ast::{BinaryOperator, Expr, ExprKind, UnaryOperator};
use crate::syntax::lexer::{Keyword, Symbol, TokenKind};

use super::{Parsed, Parser};

impl Parser<'_> {
    /// `coalesce ["?" expr ":" expr]`
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        self.nested(Self::conditional)
    }

    fn conditional(&mut self) -> Parsed<Expr> {
        let first = self.coalesce()?;
        if !self.is_symbol(Symbol::Question) {
            return Ok(first);
        }
        let start = first.span;
        let mut branches = Vec::new();
        let mut last = first;
        while self.accept_symbol(Symbol::Question) {
            let value = self.expr()?;
            self.expect_symbol(Symbol::Colon)?;
            branches.push((last, value));
            last = self.coalesce()?;
        }
        let span = start.to(last.span);
        Ok(Expr::new(ExprKind::Conditional { branches, otherwise: last }, span))
    }

    fn coalesce(&mut self) -> Parsed<Expr> {
        let first = self.or()?;
        if !self.is_symbol(Symbol::Coalesce) {
            return Ok(first);
        }
        let start = first.span;
        let mut operands = vec![first];
        while self.accept_symbol(Symbol::Coalesce) {
            operands.push(self.or()?);
        }
        Ok(Expr::new(ExprKind::Coalesce(operands), start.to(self.last_span())))
    }

    fn or(&mut self) -> Parsed<Expr> {
        let first = self.and()?;
        if !self.is_keyword(Keyword::Or) {
            return Ok(first);
        }
        let start = first.span;
        let mut operands = vec![first];
        while self.accept_keyword(Keyword::Or) {
            operands.push(self.and()?);
        }
        Ok(Expr::new(ExprKind::Or(operands), start.to(self.last_span())))
    }

    fn and(&mut self) -> Parsed<Expr> {
        let first = self.in_like_between()?;
        if !self.is_keyword(Keyword::And) {
            return Ok(first);
        }
        let start = first.span;
        let mut operands = vec![first];
        while self.accept_keyword(Keyword::And) {
            operands.push(self.in_like_between()?);
        }
        Ok(Expr::new(ExprKind::And(operands), start.to(self.last_span())))
    }

    /// BETWEEN is parsed at this level, not beside AND and OR: an extension of the service's grammar.
    fn in_like_between(&mut self) -> Parsed<Expr> {
        let left = self.comparison()?;
        let negated = self.is_keyword(Keyword::Not);
        let operator = self.ahead(usize::from(negated)).kind.clone();
        let TokenKind::Keyword(operator @ (Keyword::In | Keyword::Like | Keyword::Between)) = operator else {
            return Ok(left);
        };
        self.advance();
        if negated {
            self.advance();
        }
        let start = left.span;
        let kind = match operator {
            Keyword::In => self.in_list(left, negated)?,
            Keyword::Like => self.like(left, negated)?,
            _ => self.between(left, negated)?,
        };
        Ok(Expr::new(kind, start.to(self.last_span())))
    }

    fn in_list(&mut self, needle: Expr, negated: bool) -> Parsed<ExprKind> {
        self.expect_symbol(Symbol::ParenOpen)?;
        let items = self.list(Self::expr)?;
        self.expect_symbol(Symbol::ParenClose)?;
        Ok(ExprKind::In { needle, items, negated })
    }

    fn like(&mut self, text: Expr, negated: bool) -> Parsed<ExprKind> {
        let pattern = self.comparison()?;
        let mut escape = None;
        if self.accept_keyword(Keyword::Escape) {
            let TokenKind::String(character) = self.kind() else { return Err(self.unexpected()) };
            escape = Some((character.clone(), self.span()));
            self.advance();
        }
        Ok(ExprKind::Like { text, pattern, escape, negated })
    }

    fn between(&mut self, value: Expr, negated: bool) -> Parsed<ExprKind> {
        let low = self.comparison()?;
        self.expect_keyword(Keyword::And)?;
        let high = self.comparison()?;
        Ok(ExprKind::Between { value, low, high, negated })
    }

    pub(super) fn comparison(&mut self) -> Parsed<Expr> {
        self.binary(Level::Comparison)
    }

    /// Operators of this precedence level and higher, left to right. One function for the four levels: four functions
    /// would use four stack frames at every bracket.
    fn binary(&mut self, loosest: Level) -> Parsed<Expr> {
        let mut left = self.unary()?;
        let mut open = None;
        while let TokenKind::Symbol(symbol) = self.kind() {
            let Some((level, operator)) = binary_operator(*symbol).filter(|(level, _)| *level >= loosest)
            else {
                break;
            };
            self.advance();
            let right = self.operand(level)?;
            left = extend_chain(left, open == Some(level), operator, right);
            open = Some(level);
        }
        Ok(left)
    }

    /// The right operand of an operator: everything with a higher precedence.
    fn operand(&mut self, level: Level) -> Parsed<Expr> {
        match level {
            Level::Comparison => self.binary(Level::Concatenation),
            Level::Concatenation => self.binary(Level::Additive),
            Level::Additive => self.binary(Level::Multiplicative),
            Level::Multiplicative => self.unary(),
        }
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let start = self.span();
        let mut operators = Vec::new();
        while let Some(operator) = unary_operator(self.kind()) {
            operators.push(operator);
            self.advance();
        }
        let operand = self.postfix()?;
        if operators.is_empty() {
            return Ok(operand);
        }
        let span = start.to(operand.span);
        Ok(fold_sign(operators, operand, span))
    }
}

/// `-5` is a literal. It is the only way to write the smallest integer.
fn fold_sign(mut operators: Vec<UnaryOperator>, operand: Expr, span: crate::syntax::lexer::Span) -> Expr {
    if let (Some(UnaryOperator::Minus), ExprKind::Literal(Value::Number(number))) =
        (operators.last(), &*operand.kind)
    {
        let literal = Expr::new(ExprKind::Literal(Value::Number(negate(*number))), span);
        operators.pop();
        if operators.is_empty() {
            return literal;
        }
        return Expr::new(ExprKind::Unary { operators, operand: literal }, span);
    }
    Expr::new(ExprKind::Unary { operators, operand }, span)
}

fn negate(number: Number) -> Number {
    match number {
        Number::Int(value) => value.checked_neg().map_or(Number::Double(-(value as f64)), Number::Int),
        Number::Unsigned(value) if value == 1 << 63 => Number::Int(i64::MIN),
        other => Number::Double(-other.as_f64()),
    }
}

fn unary_operator(kind: &TokenKind) -> Option<UnaryOperator> {
    match kind {
        TokenKind::Keyword(Keyword::Not) | TokenKind::Symbol(Symbol::Bang) => Some(UnaryOperator::Not),
        TokenKind::Symbol(Symbol::Minus) => Some(UnaryOperator::Minus),
        TokenKind::Symbol(Symbol::Plus) => Some(UnaryOperator::Plus),
        TokenKind::Symbol(Symbol::Tilde) => Some(UnaryOperator::BitNot),
        _ => None,
    }
}

/// Lowest precedence first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// With the shifts.
    Comparison,
    Concatenation,
    /// With the bit operators, unlike C.
    Additive,
    Multiplicative,
}

fn binary_operator(symbol: Symbol) -> Option<(Level, BinaryOperator)> {
    use BinaryOperator::*;
    Some(match symbol {
        Symbol::Equal => (Level::Comparison, Equal),
        Symbol::NotEqual | Symbol::LessGreater => (Level::Comparison, NotEqual),
        Symbol::Less => (Level::Comparison, Less),
        Symbol::LessEqual => (Level::Comparison, LessEqual),
        Symbol::Greater => (Level::Comparison, Greater),
        Symbol::GreaterEqual => (Level::Comparison, GreaterEqual),
        Symbol::ShiftLeft => (Level::Comparison, ShiftLeft),
        Symbol::ShiftRight => (Level::Comparison, ShiftRight),
        Symbol::ShiftRightUnsigned => (Level::Comparison, ShiftRightUnsigned),
        Symbol::Concat => (Level::Concatenation, Concat),
        Symbol::Plus => (Level::Additive, Add),
        Symbol::Minus => (Level::Additive, Subtract),
        Symbol::Ampersand => (Level::Additive, BitAnd),
        Symbol::Pipe => (Level::Additive, BitOr),
        Symbol::Caret => (Level::Additive, BitXor),
        Symbol::Star => (Level::Multiplicative, Multiply),
        Symbol::Slash => (Level::Multiplicative, Divide),
        Symbol::Percent => (Level::Multiplicative, Modulo),
        _ => return None,
    })
}

/// Appends to the chain in `left` if its level is still open; starts a new chain otherwise.
fn extend_chain(mut left: Expr, open: bool, operator: BinaryOperator, right: Expr) -> Expr {
    let span = left.span.to(right.span);
    match &mut *left.kind {
        ExprKind::Chain { rest, .. } if open => {
            rest.push((operator, right));
            left.span = span;
            left
        }
        _ => Expr::new(ExprKind::Chain { first: left, rest: vec![(operator, right)] }, span),
    }
}
