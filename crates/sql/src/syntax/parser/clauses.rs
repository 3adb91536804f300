//! The clauses of a query.

use crate::syntax::ast::{
    Collection, Count, CountKind, Direction, ExprKind, From, OffsetLimit, OrderBy, OrderItem, Query, Select,
    SelectItem, Selection, Source, Step, Top,
};
use crate::syntax::lexer::{Keyword, Symbol, TokenKind, integer_value};

use super::{Parsed, Parser};

impl Parser<'_> {
    /// `select [FROM from] [WHERE expr] [GROUP BY …] [ORDER BY …] [OFFSET n LIMIT n]`
    pub(super) fn query(&mut self) -> Parsed<Query> {
        let start = self.span();
        let select = self.select()?;
        let from = if self.accept_keyword(Keyword::From) { Some(self.from()?) } else { None };
        let filter = if self.accept_keyword(Keyword::Where) { Some(self.expr()?) } else { None };
        let group_by = self.group_by()?;
        let order_by = self.order_by()?;
        let offset_limit = self.offset_limit()?;
        let span = start.to(self.last_span());
        Ok(Query { select, from, filter, group_by, order_by, offset_limit, span })
    }

    fn select(&mut self) -> Parsed<Select> {
        self.expect_keyword(Keyword::Select)?;
        let distinct = self.accept_keyword(Keyword::Distinct);
        let top = if self.is_keyword(Keyword::Top) { Some(self.top()?) } else { None };
        Ok(Select { distinct, top, selection: self.selection()? })
    }

    fn top(&mut self) -> Parsed<Top> {
        let start = self.span();
        self.advance();
        let count = match self.kind() {
            TokenKind::Double(_) => {
                self.advance();
                Count { kind: CountKind::Fraction, span: self.last_span() }
            }
            _ => self.count()?,
        };
        Ok(Top { count, span: start.to(self.last_span()) })
    }

    /// An integer or a parameter.
    fn count(&mut self) -> Parsed<Count> {
        let span = self.span();
        let kind = match self.kind() {
            TokenKind::Integer(value) => CountKind::Integer(*value),
            TokenKind::Parameter => CountKind::Parameter(self.text_of(span).to_owned()),
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(Count { kind, span })
    }

    fn selection(&mut self) -> Parsed<Selection> {
        if self.accept_symbol(Symbol::Star) {
            return Ok(Selection::Star(self.last_span()));
        }
        if self.accept_keyword(Keyword::Value) {
            return Ok(Selection::Value(self.expr()?));
        }
        Ok(Selection::Items(self.list(Self::select_item)?))
    }

    fn select_item(&mut self) -> Parsed<SelectItem> {
        let expr = self.expr()?;
        let explicit = self.accept_keyword(Keyword::As);
        let alias = match self.kind() {
            TokenKind::String(text) => {
                let text = text.clone();
                self.advance();
                Some(text)
            }
            _ if explicit || self.is_identifier(0) => Some(self.expect_identifier()?.name),
            _ => None,
        };
        Ok(SelectItem { expr, alias })
    }

    fn from(&mut self) -> Parsed<From> {
        let mut sources = vec![self.source()?];
        while self.accept_keyword(Keyword::Join) {
            sources.push(self.source()?);
        }
        Ok(From { sources })
    }

    /// `ident IN collection | collection [[AS] ident]`
    fn source(&mut self) -> Parsed<Source> {
        let start = self.span();
        if self.is_identifier(0) && self.ahead(1).kind == TokenKind::Keyword(Keyword::In) {
            let alias = Some(self.expect_identifier()?);
            self.advance();
            let collection = self.collection_or_call()?;
            return Ok(Source { collection, alias, iterate: true, span: start.to(self.last_span()) });
        }
        let collection = self.collection()?;
        let explicit = self.accept_keyword(Keyword::As);
        let alias = if explicit || self.is_identifier(0) { Some(self.expect_identifier()?) } else { None };
        Ok(Source { collection, alias, iterate: false, span: start.to(self.last_span()) })
    }

    fn collection_or_call(&mut self) -> Parsed<Collection> {
        if self.is_identifier(0) && self.ahead(1).kind == TokenKind::Symbol(Symbol::ParenOpen) {
            return Ok(Collection::Call(self.primary()?));
        }
        self.collection()
    }

    /// `ident { "." ident | "[" (int | string) "]" } | "(" query ")"`
    fn collection(&mut self) -> Parsed<Collection> {
        if self.accept_symbol(Symbol::ParenOpen) {
            let query = self.nested(Self::query)?;
            self.expect_symbol(Symbol::ParenClose)?;
            return Ok(Collection::Subquery(Box::new(query)));
        }
        let root = self.expect_identifier()?;
        let mut steps = Vec::new();
        loop {
            if self.accept_symbol(Symbol::Dot) {
                steps.push(Step::Member(self.expect_identifier()?.name));
            } else if self.accept_symbol(Symbol::BracketOpen) {
                steps.push(self.literal_index()?);
                self.expect_symbol(Symbol::BracketClose)?;
            } else {
                return Ok(Collection::Path { root, steps });
            }
        }
    }

    fn literal_index(&mut self) -> Parsed<Step> {
        let span = self.span();
        let step = match self.kind() {
            TokenKind::String(name) => Step::Quoted(name.clone()),
            TokenKind::Integer(value) => {
                let number = integer_value(*value, self.text_of(span));
                Step::Index(crate::syntax::ast::Expr::new(
                    ExprKind::Literal(quire_value::Value::Number(number)),
                    span,
                ))
            }
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(step)
    }

    fn group_by(&mut self) -> Parsed<Vec<crate::syntax::ast::Expr>> {
        if !self.accept_keyword(Keyword::Group) {
            return Ok(Vec::new());
        }
        self.expect_keyword(Keyword::By)?;
        self.list(Self::expr)
    }

    fn order_by(&mut self) -> Parsed<Option<OrderBy>> {
        let start = self.span();
        if !self.accept_keyword(Keyword::Order) {
            return Ok(None);
        }
        self.expect_keyword(Keyword::By)?;
        let rank = self.starts_rank();
        let items = if rank {
            self.advance();
            vec![self.rank_item()?]
        } else {
            self.list(Self::order_item)?
        };
        Ok(Some(OrderBy { items, rank, span: start.to(self.last_span()) }))
    }

    /// `RANK f(…)`, where `rank` could also be an alias: `ORDER BY rank.x`.
    fn starts_rank(&self) -> bool {
        let next = &self.ahead(1).kind;
        self.is_keyword(Keyword::Rank)
            && (self.is_identifier(1)
                || matches!(next, TokenKind::Keyword(Keyword::Left | Keyword::Right | Keyword::Udf)))
    }

    fn rank_item(&mut self) -> Parsed<OrderItem> {
        if self.ahead(1).kind != TokenKind::Symbol(Symbol::ParenOpen) {
            self.advance();
            return Err(self.unexpected());
        }
        let expr = self.primary()?;
        Ok(OrderItem { expr, direction: self.direction() })
    }

    fn order_item(&mut self) -> Parsed<OrderItem> {
        let expr = self.expr()?;
        Ok(OrderItem { expr, direction: self.direction() })
    }

    fn direction(&mut self) -> Option<Direction> {
        if self.accept_keyword(Keyword::Asc) {
            Some(Direction::Ascending)
        } else if self.accept_keyword(Keyword::Desc) {
            Some(Direction::Descending)
        } else {
            None
        }
    }

    fn offset_limit(&mut self) -> Parsed<Option<OffsetLimit>> {
        let start = self.span();
        if !self.accept_keyword(Keyword::Offset) {
            return Ok(None);
        }
        let offset = self.count()?;
        self.expect_keyword(Keyword::Limit)?;
        let limit = self.count()?;
        Ok(Some(OffsetLimit { offset, limit, span: start.to(self.last_span()) }))
    }
}
