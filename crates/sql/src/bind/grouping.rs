//! Aggregates and GROUP BY.
//!
//! A grouped query has one more level on top of its sources: the group. The select list is first bound against the
//! sources; then every part that matches a key becomes that key, and a remaining use of a source is an error.

use crate::functions::Aggregate;
use crate::syntax::ast::{self, ExprKind};
use crate::syntax::diagnostic::Problem;
use crate::syntax::lexer::Span;

use super::bound::{AggregateCall, Expr, Grouping, OrderItem, Step};
use super::from::{ScopeEntry, ScopeEntryKind};
use super::{AGGREGATES_MAX, Binder, ClauseKind, GROUP_BY_EXPRESSIONS_MAX, aggregate_of};

/// The aggregates of the grouped query being bound.
pub(super) struct GroupFrame {
    /// Level of the group.
    level: usize,
    aggregates: Vec<AggregateCall>,
}

pub(super) fn is_grouped(query: &ast::Query) -> bool {
    !query.group_by.is_empty() || selected(query).any(has_aggregate)
}

fn selected(query: &ast::Query) -> impl Iterator<Item = &ast::Expr> {
    let (value, items) = match &query.select.selection {
        ast::Selection::Star(_) => (None, None),
        ast::Selection::Value(expr) => (Some(expr), None),
        ast::Selection::Items(items) => (None, Some(items)),
    };
    value.into_iter().chain(items.into_iter().flatten().map(|item| &item.expr))
}

fn has_aggregate(expr: &ast::Expr) -> bool {
    expr.any(&|inner| aggregate_of(inner).is_some())
}

fn has_subquery(expr: &ast::Expr) -> bool {
    expr.any(&|inner| matches!(&*inner.kind, ExprKind::Subquery { .. }))
}

impl Binder<'_> {
    pub(super) fn grouped(
        &mut self,
        query: &ast::Query,
        outer_level: usize,
    ) -> (Option<Grouping>, Vec<OrderItem>, Expr) {
        if query.group_by.len() > GROUP_BY_EXPRESSIONS_MAX {
            self.report(Problem::TooManyGroupByExpressions(GROUP_BY_EXPRESSIONS_MAX), query.span);
        }
        let keys = query.group_by.iter().take(GROUP_BY_EXPRESSIONS_MAX);
        let keys: Vec<Expr> = keys.map(|key| self.group_key(key)).collect();
        let level = self.scope.len();
        self.scope.push(ScopeEntry { name: None, kind: ScopeEntryKind::Group, place: None });
        let order_by = self.grouped_order_by(query, &keys, outer_level, level);
        self.frames.push(GroupFrame { level, aggregates: Vec::new() });
        let mut projection =
            self.with_clause_kind(ClauseKind::Select, |binder| binder.grouped_projection(query, outer_level));
        let aggregates = self.frames.pop().map_or(Vec::new(), |frame| frame.aggregates);
        let sources = outer_level..level;
        let left_over = self.replace_keys(&mut projection, &keys, &sources, level);
        for span in left_over {
            let text = self.text_of(span);
            self.report(Problem::NotGroupedInSelect(text), span);
        }
        (Some(Grouping { keys, aggregates }), order_by, projection)
    }

    fn grouped_projection(&mut self, query: &ast::Query, outer_level: usize) -> Expr {
        if let ast::Selection::Star(span) = &query.select.selection {
            self.report(Problem::StarWithGroupBy, *span);
            return Expr::undefined();
        }
        self.projection(query, outer_level)
    }

    fn group_key(&mut self, key: &ast::Expr) -> Expr {
        let has_subquery = has_subquery(key);
        if has_subquery {
            self.report(Problem::SubqueryInGroupBy, key.span);
        }
        let has_property = key.any(&|inner| matches!(&*inner.kind, ExprKind::Identifier(_)));
        if !has_property && !has_subquery && !has_aggregate(key) {
            self.report(Problem::GroupByWithoutProperty, key.span);
        }
        self.clause("GROUP BY", key)
    }

    /// With GROUP BY, only keys can be sorted by; with aggregates alone there is one row and nothing to sort.
    fn grouped_order_by(
        &mut self,
        query: &ast::Query,
        keys: &[Expr],
        outer_level: usize,
        level: usize,
    ) -> Vec<OrderItem> {
        let Some(order_by) = &query.order_by else { return Vec::new() };
        if order_by.rank {
            self.refuse("ORDER BY RANK beside GROUP BY or aggregates is not supported");
            return Vec::new();
        }
        let mut items = Vec::new();
        for item in &order_by.items {
            let mut expr = self.clause("ORDER BY", &item.expr);
            if query.group_by.is_empty() {
                continue;
            }
            for span in self.replace_keys(&mut expr, keys, &(outer_level..level), level) {
                let text = self.text_of(span);
                self.report(Problem::NotGroupedInOrderBy(text), span);
            }
            items.push(OrderItem { expr, descending: item.direction == Some(ast::Direction::Descending) });
        }
        items
    }

    pub(super) fn aggregate_call(
        &mut self,
        aggregate: Aggregate,
        arguments: &[ast::Expr],
        span: Span,
    ) -> Expr {
        match self.clause_kind {
            ClauseKind::AggregateArgument => return Expr::undefined(), // the outer call reports it
            ClauseKind::Clause(clause) => self.report(Problem::AggregateNotAllowed(clause), span),
            ClauseKind::Select => {}
        }
        if arguments.iter().any(has_aggregate) {
            self.report(Problem::NestedAggregate, span);
        }
        let arguments: Vec<Expr> = arguments
            .iter()
            .map(|argument| {
                self.with_clause_kind(ClauseKind::AggregateArgument, |binder| binder.expr(argument))
            })
            .collect();
        match (arguments.into_iter().next(), self.clause_kind) {
            (Some(argument), ClauseKind::Select) => {
                self.register(AggregateCall { aggregate, argument }, span)
            }
            _ => Expr::undefined(),
        }
    }

    /// Equal aggregates of equal expressions are computed once.
    fn register(&mut self, call: AggregateCall, span: Span) -> Expr {
        // Each is compared with every other one.
        let known = self.frames.last().map_or(0, |frame| frame.aggregates.len());
        if !self.spend(known as u64) {
            return Expr::undefined();
        }
        let Some(frame) = self.frames.last_mut() else { return Expr::undefined() };
        let index = match frame.aggregates.iter().position(|known| *known == call) {
            Some(index) => index,
            None if frame.aggregates.len() == AGGREGATES_MAX => {
                self.report(Problem::TooManyAggregates(AGGREGATES_MAX), span);
                return Expr::undefined();
            }
            None => {
                frame.aggregates.push(call);
                frame.aggregates.len() - 1
            }
        };
        Expr::Aggregate { level: frame.level, index }
    }
}

impl Binder<'_> {
    /// Replaces keys, and paths below a key. Returns the uses of sources outside of keys.
    fn replace_keys(
        &mut self,
        expr: &mut Expr,
        keys: &[Expr],
        sources: &std::ops::Range<usize>,
        level: usize,
    ) -> Vec<Span> {
        let mut left_over = Vec::new();
        replace(expr, &mut |expr| {
            // Each is compared with every key, also as a prefix.
            !self.spend(2 * keys.len() as u64) || replace_one(expr, keys, sources, level, &mut left_over)
        });
        left_over
    }
}

/// Visits parents before children; `change` returns whether it handled everything inside.
fn replace(expr: &mut Expr, change: &mut dyn FnMut(&mut Expr) -> bool) {
    if !change(expr) {
        expr.for_each_child_mut(&mut |child| replace(child, change));
    }
}

fn replace_one(
    expr: &mut Expr,
    keys: &[Expr],
    sources: &std::ops::Range<usize>,
    level: usize,
    left_over: &mut Vec<Span>,
) -> bool {
    if let Some(index) = keys.iter().position(|key| key == expr) {
        *expr = Expr::GroupKey { level, index };
        return true;
    }
    if replace_prefix(expr, keys, level) {
        return false; // an index after the prefix may still use a source
    }
    match expr {
        Expr::Variable { level, origin } | Expr::Computed { level, origin, .. }
            if sources.contains(level) =>
        {
            left_over.push(origin.0);
            true
        }
        Expr::Follow(follow) if sources.contains(&follow.item) => {
            left_over.push(follow.origin.0);
            true
        }
        Expr::Path { base, origin, .. } => match **base {
            Expr::Variable { level, .. } | Expr::Computed { level, .. } if sources.contains(&level) => {
                left_over.push(origin.0);
                true
            }
            _ => false,
        },
        _ => false,
    }
}

/// `c.a.b` where `c.a` is a key.
fn replace_prefix(expr: &mut Expr, keys: &[Expr], level: usize) -> bool {
    let Expr::Path { base, steps, .. } = expr else { return false };
    let covered = keys.iter().enumerate().filter_map(|(index, key)| {
        let length = covered_steps(key, base, steps)?;
        Some((length, index))
    });
    let Some((length, index)) = covered.max() else { return false };
    **base = Expr::GroupKey { level, index };
    steps.drain(..length);
    true
}

fn covered_steps(key: &Expr, base: &Expr, steps: &[Step]) -> Option<usize> {
    match key {
        Expr::Path { base: key_base, steps: key_steps, .. } => {
            (**key_base == *base && steps.starts_with(key_steps)).then_some(key_steps.len())
        }
        key => (key == base).then_some(0),
    }
}
