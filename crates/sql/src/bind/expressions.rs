//! Binds expressions.

use std::sync::Arc;

use quire_value::{Number, Object, Path, Segment, Value};

use crate::data::approximate_size;
use crate::functions::{self, FoundFunction, Function, Implementation};
use crate::syntax::ast::{self, ExprKind, SubqueryForm, UnaryOperator};
use crate::syntax::diagnostic::Problem;
use crate::syntax::lexer::Span;
use crate::text::Language;
use crate::text::like::Pattern;

use super::bound::{Expr, Query, Step, sorted_constants};
use super::from::{ScopeEntry, ScopeEntryKind};
use super::{Binder, FOLDED_BYTES_MAX, QueryPosition, USER_DEFINED_CALLS_MAX};

impl Binder<'_> {
    pub(super) fn expr(&mut self, expr: &ast::Expr) -> Expr {
        if !self.spend(1) {
            return Expr::undefined();
        }
        match &*expr.kind {
            ExprKind::Literal(value) => Expr::constant(value.clone()),
            ExprKind::Parameter(name) => Expr::Constant(self.parameter(name)),
            ExprKind::Identifier(name) => self.identifier(name, expr.span),
            ExprKind::Path { base, steps } => {
                let base = self.expr(base);
                self.path(base, steps, expr.span)
            }
            ExprKind::Array(items) => {
                let items = self.exprs(items);
                self.folded_array(items)
            }
            ExprKind::Object(properties) => {
                let bound = properties.iter().map(|(name, value)| (name.clone(), self.expr(value)));
                let properties = bound.collect();
                self.folded_object(properties)
            }
            ExprKind::Unary { operators, operand } => {
                Expr::Unary { operators: operators.clone(), operand: self.boxed(operand) }
            }
            ExprKind::Chain { first, rest } => Expr::Chain {
                first: self.boxed(first),
                rest: rest.iter().map(|(operator, operand)| (*operator, self.expr(operand))).collect(),
            },
            ExprKind::And(items) => Expr::And(self.exprs(items)),
            ExprKind::Or(items) => Expr::Or(self.exprs(items)),
            ExprKind::Coalesce(items) => Expr::Coalesce(self.exprs(items)),
            ExprKind::In { needle, items, negated } => self.in_list(needle, items, *negated),
            ExprKind::Like { text, pattern, escape, negated } => {
                self.like(text, pattern, escape.as_ref(), *negated)
            }
            ExprKind::Between { value, low, high, negated } => Expr::Between {
                value: self.boxed(value),
                low: self.boxed(low),
                high: self.boxed(high),
                negated: *negated,
            },
            ExprKind::Conditional { branches, otherwise } => Expr::Conditional {
                branches: branches.iter().map(|(test, value)| (self.expr(test), self.expr(value))).collect(),
                otherwise: self.boxed(otherwise),
            },
            ExprKind::Call { name, arguments } => self.call(name, arguments, expr.span),
            ExprKind::UserDefinedCall { name, arguments } => self.user_defined_call(name, arguments),
            ExprKind::Subquery { form, query } => self.subquery(*form, query),
            ExprKind::Let { name, value, body } => self.let_in(name, value, body),
        }
    }

    fn boxed(&mut self, expr: &ast::Expr) -> Box<Expr> {
        Box::new(self.expr(expr))
    }

    pub(super) fn exprs(&mut self, exprs: &[ast::Expr]) -> Vec<Expr> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    /// An alias in scope, or one of the two number names that the grammar does not list.
    pub(super) fn identifier(&mut self, name: &str, span: Span) -> Expr {
        if let Some(level) = self.resolve(name) {
            return self.variable(level, span);
        }
        match name {
            "NaN" => return Expr::constant(Number::Double(f64::NAN)),
            "Infinity" => return Expr::constant(Number::Double(f64::INFINITY)),
            _ => self.report(Problem::UnresolvedIdentifier(name.to_owned()), span),
        }
        Expr::undefined()
    }

    fn in_list(&mut self, needle: &ast::Expr, items: &[ast::Expr], negated: bool) -> Expr {
        let needle = self.boxed(needle);
        let items = self.exprs(items);
        let sorted = sorted_constants(&items);
        Expr::In { needle, items, sorted, negated }
    }

    fn like(
        &mut self,
        text: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&(String, Span)>,
        negated: bool,
    ) -> Expr {
        let escape = escape.and_then(|(text, span)| self.escape_character(text, *span));
        let text = self.boxed(text);
        let pattern = self.boxed(pattern);
        let constant = pattern.as_constant().and_then(Value::as_str);
        let compiled = constant.and_then(|constant| self.pattern(constant, escape));
        Expr::Like { text, pattern, escape, compiled, negated }
    }

    /// Compiled with the query, within the memory limit. Further patterns are compiled in the run.
    fn pattern(&mut self, pattern: &str, escape: Option<char>) -> Option<Pattern> {
        self.take(Pattern::bytes_max(pattern)).then_some(())?;
        let result = Pattern::new(pattern, escape, &mut |steps| self.meter.spend(steps));
        self.note(result)
    }

    fn escape_character(&mut self, text: &str, span: Span) -> Option<char> {
        let mut characters = text.chars();
        let escape = characters.next();
        if escape.is_none() || characters.next().is_some() {
            self.report(Problem::EscapeNotOneCharacter, span);
        }
        escape
    }

    fn call(&mut self, name: &ast::Identifier, arguments: &[ast::Expr], span: Span) -> Expr {
        // RRF is a function only in ORDER BY RANK.
        let function = functions::find(&name.name).filter(|function| !function.is_rank_fusion());
        let Some(function) = function else {
            self.report(Problem::UnknownFunction(name.name.clone()), name.span);
            self.exprs(arguments);
            return Expr::undefined();
        };
        self.check_arity(function, arguments.len(), span);
        match function.implementation {
            Implementation::Aggregate(aggregate) => self.aggregate_call(aggregate, arguments, span),
            Implementation::Ranking => {
                self.report(Problem::ScoreOutsideRank(function.name()), span);
                Expr::undefined()
            }
            Implementation::Conditional => self.conditional(arguments),
            Implementation::Link(direction) => self.follow_call(function, direction, arguments, span),
            Implementation::Scalar(_) if function.is_vector() => self.vector_call(function, arguments),
            Implementation::Scalar(_) => self.scalar_call(function, arguments),
        }
    }

    fn scalar_call(&mut self, function: &'static Function, arguments: &[ast::Expr]) -> Expr {
        self.volatilities.push(function.volatility());
        let mut arguments = self.exprs(arguments);
        if function.takes_language {
            let language = arguments.first().map_or_else(Default::default, |text| self.language_of(text));
            arguments.push(Expr::constant(language.code()));
        }
        Expr::Call { function, arguments }
    }

    /// By the container's full-text policy.
    pub(super) fn language_of(&self, text: &Expr) -> Language {
        self.item_path(text).map_or_else(Language::default, |path| self.schema.language(&path))
    }

    /// The path in the item, if the expression is a path of names.
    pub(super) fn item_path(&self, expr: &Expr) -> Option<Path> {
        let Expr::Path { base, steps, .. } = expr else { return None };
        let names = steps.iter().map(|step| match step {
            Step::Name(name) => Some(Segment::Name(name.clone())),
            Step::Index(_) => None,
        });
        self.is_item(base).then(|| names.collect::<Option<Vec<_>>>().map(Path)).flatten()
    }

    /// `IIF(a, b, c)`; the arity is checked already.
    fn conditional(&mut self, arguments: &[ast::Expr]) -> Expr {
        let mut arguments = self.exprs(arguments).into_iter();
        match (arguments.next(), arguments.next(), arguments.next()) {
            (Some(test), Some(value), Some(otherwise)) => {
                Expr::Conditional { branches: vec![(test, value)], otherwise: Box::new(otherwise) }
            }
            _ => Expr::undefined(),
        }
    }

    pub(super) fn check_arity(&mut self, function: &Function, count: usize, span: Span) {
        let (min, max) = function.arity();
        if count < min || max.is_some_and(|max| count > max) {
            self.report(Problem::Arity { name: function.name(), min, max }, span);
        }
    }

    fn user_defined_call(&mut self, name: &ast::Identifier, arguments: &[ast::Expr]) -> Expr {
        self.user_defined_calls += 1;
        if self.user_defined_calls == USER_DEFINED_CALLS_MAX + 1 {
            let span = Span { start: 0, end: self.text.len() };
            self.report(Problem::TooManyUserDefinedFunctionCalls(USER_DEFINED_CALLS_MAX), span);
        }
        let arguments = self.exprs(arguments);
        match self.schema.functions.and_then(|functions| functions.find(&name.name)) {
            Some(number) => {
                let function = FoundFunction { name: name.name.clone(), number };
                Expr::UserCall { function, arguments }
            }
            None => {
                self.report(Problem::UnknownUserFunction(name.name.clone()), name.span);
                Expr::undefined()
            }
        }
    }

    fn subquery(&mut self, form: SubqueryForm, query: &ast::Query) -> Expr {
        let mut query = self.query(query, QueryPosition::Nested);
        if form == SubqueryForm::All {
            negate_filter(&mut query);
        }
        Expr::Subquery { form, query: Box::new(query) }
    }

    fn let_in(&mut self, name: &ast::Identifier, value: &ast::Expr, body: &ast::Expr) -> Expr {
        let value = self.boxed(value);
        self.scope.push(ScopeEntry { name: Some(name.name.clone()), kind: ScopeEntryKind::Let, place: None });
        let body = self.boxed(body);
        self.scope.pop();
        Expr::Let { value, body }
    }
}

impl Binder<'_> {
    /// Constructors of constants become constants: built once, and comparable before the run. This copies parameters,
    /// so beyond [`FOLDED_BYTES_MAX`] they stay constructors.
    fn folded_array(&mut self, items: Vec<Expr>) -> Expr {
        if !items.iter().all(|item| item.as_constant().is_some()) || !self.may_fold(items.iter()) {
            return Expr::Array(items);
        }
        Expr::constant(items.into_iter().filter_map(into_constant).collect::<Value>())
    }

    fn folded_object(&mut self, properties: Vec<(String, Expr)>) -> Expr {
        let mut values = properties.iter().map(|(_, value)| value);
        if !values.all(|value| value.as_constant().is_some())
            || !self.may_fold(properties.iter().map(|(_, value)| value))
        {
            return Expr::Object(properties);
        }
        let constant = |(name, value): (String, Expr)| Some((name, into_constant(value)?));
        Expr::constant(properties.into_iter().filter_map(constant).collect::<Object>())
    }

    /// Only shared values are copied.
    fn may_fold<'e>(&mut self, constants: impl Iterator<Item = &'e Expr>) -> bool {
        let shared = constants.filter_map(Expr::shared_constant).filter(|value| Arc::strong_count(value) > 1);
        let bytes = shared.map(|value| approximate_size(value)).fold(0, usize::saturating_add);
        let folded = self.folded_bytes.saturating_add(bytes);
        let fits = folded <= FOLDED_BYTES_MAX;
        if fits {
            self.folded_bytes = folded;
        }
        fits
    }
}

/// `None` for undefined.
fn into_constant(expr: Expr) -> Option<Value> {
    let Expr::Constant(value) = expr else { return None };
    Some(Arc::unwrap_or_clone(value)).filter(|value| !value.is_undefined())
}

/// `ALL(q)` is true when no row fails the condition of `q`.
fn negate_filter(query: &mut Query) {
    let condition = query.filter.take().unwrap_or(Expr::constant(true));
    query.filter = Some(Expr::Unary { operators: vec![UnaryOperator::Not], operand: Box::new(condition) });
}
