//! ORDER BY on a subquery in FROM that only renames parts of an item.
//!
//! `SELECT VALUE s.id FROM (SELECT c.id, c.n FROM c WHERE c.n > 1) AS s ORDER BY s.n` becomes `SELECT VALUE c.id FROM
//! c WHERE c.n > 1 ORDER BY c.n`. So it sorts by a path of the item, which an index and several partitions support.
//! Only queries with ORDER BY are rewritten, and only where no name changes its meaning.

use std::sync::Arc;

use crate::functions::{self, Volatility};
use crate::syntax::ast::{
    Collection, Expr, ExprKind, From, Identifier, OrderBy, Query, SelectItem, Selection, Source, Step,
};

use super::{aggregate_of, select_names};

/// The query, without its subquery in FROM if that is possible. `computed` are names of computed properties: items have
/// them, rows of a subquery that hands the item on do not.
pub(crate) fn flatten(query: Arc<Query>, computed: &[&str]) -> Arc<Query> {
    let is_sorted = query.order_by.as_ref().is_some_and(|order_by| !order_by.rank);
    if !is_sorted {
        return query;
    }
    match flat(&query, computed) {
        Some(flat) => flatten(Arc::new(flat), computed),
        None => query,
    }
}

fn flat(query: &Query, computed: &[&str]) -> Option<Query> {
    let (first, joined) = query.from.as_ref()?.sources.split_first()?;
    let (Collection::Subquery(inner), Some(alias), false) = (&first.collection, &first.alias, first.iterate)
    else {
        return None;
    };
    if !is_plain(inner) {
        return None;
    }
    let names: Vec<&str> = inner.from.as_ref()?.sources.iter().filter_map(name_of).collect();
    if names.len() != inner.from.as_ref()?.sources.len() || declares(query, &names) {
        return None;
    }
    let value = row_of(inner, names.first()?)?;
    let replace = Replace { alias: &alias.name, value: &value, computed };
    let mut sources = inner.from.as_ref()?.sources.clone();
    for source in joined {
        sources.push(replace.source(source)?);
    }
    let mut filters: Vec<Expr> = inner.filter.iter().cloned().collect();
    if matches!(inner.select.selection, Selection::Value(_)) {
        filters.push(is_defined(&value));
    }
    if let Some(filter) = &query.filter {
        filters.push(replace.expr(filter)?);
    }
    let mut select = query.select.clone();
    select.selection = match &query.select.selection {
        Selection::Star(span) if sources.len() == 1 => match &*value.kind {
            ExprKind::Identifier(_) => Selection::Star(*span),
            _ => Selection::Value(value.clone()),
        },
        Selection::Star(_) => return None,
        Selection::Value(expr) => Selection::Value(replace.expr(expr)?),
        Selection::Items(items) => Selection::Items(replace.items(items)?),
    };
    let order_by = query.order_by.as_ref()?;
    let mut items = Vec::new();
    for item in &order_by.items {
        items.push(crate::syntax::ast::OrderItem {
            expr: replace.expr(&item.expr)?,
            direction: item.direction,
        });
    }
    Some(Query {
        select,
        from: Some(From { sources }),
        filter: joined_filter(filters),
        group_by: query.group_by.iter().map(|key| replace.expr(key)).collect::<Option<_>>()?,
        order_by: Some(OrderBy { items, rank: false, span: order_by.span }),
        offset_limit: query.offset_limit.clone(),
        span: query.span,
    })
}

/// Whether every row of the subquery comes from one combination of its sources.
fn is_plain(inner: &Query) -> bool {
    let exprs: Vec<&Expr> = match &inner.select.selection {
        Selection::Star(_) => Vec::new(),
        Selection::Value(expr) => vec![expr],
        Selection::Items(items) => items.iter().map(|item| &item.expr).collect(),
    };
    let is_repeatable = |expr: &Expr| {
        !expr.any(&|expr| match &*expr.kind {
            ExprKind::Call { name, .. } => {
                aggregate_of(expr).is_some()
                    || functions::find(&name.name)
                        .is_none_or(|function| function.volatility() != Volatility::Deterministic)
            }
            ExprKind::UserDefinedCall { .. } | ExprKind::Subquery { .. } => true,
            _ => false,
        })
    };
    !inner.select.distinct
        && inner.select.top.is_none()
        && inner.group_by.is_empty()
        && inner.order_by.is_none()
        && inner.offset_limit.is_none()
        && exprs.into_iter().all(is_repeatable)
}

/// The expression of a row of the subquery.
fn row_of(inner: &Query, item: &str) -> Option<Expr> {
    match &inner.select.selection {
        Selection::Star(span) if inner.from.as_ref()?.sources.len() == 1 => {
            Some(Expr::new(ExprKind::Identifier(item.to_owned()), *span))
        }
        Selection::Star(_) => None,
        Selection::Value(expr) => Some(expr.clone()),
        Selection::Items(items) => {
            let names = select_names(items);
            let is_unique = |(at, name): (usize, &String)| !names[..at].contains(name);
            if !names.iter().enumerate().all(is_unique) {
                return None;
            }
            let members = names.iter().cloned().zip(items.iter().map(|item| item.expr.clone()));
            Some(Expr::new(ExprKind::Object(members.collect()), inner.span))
        }
    }
}

fn is_defined(value: &Expr) -> Expr {
    let name = Identifier { name: "IS_DEFINED".to_owned(), span: value.span };
    Expr::new(ExprKind::Call { name, arguments: vec![value.clone()] }, value.span)
}

fn joined_filter(mut filters: Vec<Expr>) -> Option<Expr> {
    match filters.len() {
        0 | 1 => filters.pop(),
        _ => {
            let span = filters[0].span;
            Some(Expr::new(ExprKind::And(filters), span))
        }
    }
}

fn name_of(source: &Source) -> Option<&str> {
    if let Some(alias) = &source.alias {
        return Some(&alias.name);
    }
    match &source.collection {
        Collection::Path { root, steps } => match steps.last() {
            None => Some(&root.name),
            Some(Step::Member(name) | Step::Quoted(name)) => Some(name),
            Some(Step::Index(_)) => None,
        },
        _ => None,
    }
}

/// Whether the outer query uses a name of the sources of the subquery: they would be confused.
fn declares(query: &Query, names: &[&str]) -> bool {
    let outer: Vec<&Source> = query.from.iter().flat_map(|from| from.sources.iter().skip(1)).collect();
    let alias = query.from.as_ref().and_then(|from| name_of(from.sources.first()?));
    let is_inner = |name: &str| names.contains(&name) && Some(name) != alias;
    let uses_inner =
        |expr: &Expr| expr.any(&|expr| matches!(&*expr.kind, ExprKind::Identifier(name) if is_inner(name)));
    outer.iter().any(|source| name_of(source).is_some_and(|name| names.contains(&name)))
        || outer.iter().any(|source| !matches!(source.collection, Collection::Path { .. }))
        || exprs(query).any(|expr| has_scope(expr) || uses_inner(expr))
}

/// Every expression of the query itself.
fn exprs(query: &Query) -> impl Iterator<Item = &Expr> {
    let selected: Vec<&Expr> = match &query.select.selection {
        Selection::Star(_) => Vec::new(),
        Selection::Value(expr) => vec![expr],
        Selection::Items(items) => items.iter().map(|item| &item.expr).collect(),
    };
    let sorted = query.order_by.iter().flat_map(|order_by| order_by.items.iter().map(|item| &item.expr));
    selected.into_iter().chain(&query.filter).chain(&query.group_by).chain(sorted)
}

/// Subqueries and LET declare names; such a query is not rewritten.
fn has_scope(expr: &Expr) -> bool {
    expr.any(&|expr| matches!(&*expr.kind, ExprKind::Subquery { .. } | ExprKind::Let { .. }))
}

/// Replaces the name of a row by its expression.
struct Replace<'q> {
    alias: &'q str,
    value: &'q Expr,
    computed: &'q [&'q str],
}

impl Replace<'_> {
    fn items(&self, items: &[SelectItem]) -> Option<Vec<SelectItem>> {
        let names = select_names(items);
        let named = items.iter().zip(names).map(|(item, name)| {
            let alias = if name.starts_with('$') { item.alias.clone() } else { Some(name) };
            Some(SelectItem { expr: self.expr(&item.expr)?, alias })
        });
        named.collect()
    }

    /// A path of another source, or of a row that is a path itself.
    fn source(&self, source: &Source) -> Option<Source> {
        let Collection::Path { root, steps } = &source.collection else { return None };
        if root.name != self.alias {
            return Some(source.clone());
        }
        let path = self.path(steps, source.span)?;
        let (root, steps) = match &*path.kind {
            ExprKind::Identifier(name) => (name, Vec::new()),
            ExprKind::Path { base, steps } => match &*base.kind {
                ExprKind::Identifier(name) => (name, steps.clone()),
                _ => return None,
            },
            _ => return None,
        };
        let root = Identifier { name: root.clone(), span: source.span };
        let alias = source.alias.clone().or_else(|| {
            let name = name_of(source)?.to_owned();
            Some(Identifier { name, span: source.span })
        });
        Some(Source { collection: Collection::Path { root, steps }, alias, ..source.clone() })
    }

    fn expr(&self, expr: &Expr) -> Option<Expr> {
        match &*expr.kind {
            ExprKind::Identifier(name) if name == self.alias => Some(self.value.clone()),
            ExprKind::Path { base, steps } => match &*base.kind {
                ExprKind::Identifier(name) if name == self.alias => self.path(steps, expr.span),
                _ => self.children(expr),
            },
            _ => self.children(expr),
        }
    }

    fn children(&self, expr: &Expr) -> Option<Expr> {
        let mut changed = expr.clone();
        let mut is_done = true;
        changed.for_each_child_mut(&mut |child| match self.expr(child) {
            Some(new) => *child = new,
            None => is_done = false,
        });
        is_done.then_some(changed)
    }

    /// A member of a written-out object is the expression of that member.
    fn path(&self, steps: &[Step], span: crate::syntax::lexer::Span) -> Option<Expr> {
        let mut value = self.value.clone();
        let mut steps = steps;
        while let (ExprKind::Object(members), Some(Step::Member(name) | Step::Quoted(name))) =
            (&*value.kind, steps.first())
        {
            let Some((_, member)) = members.iter().find(|(own, _)| own == name) else { break };
            value = member.clone();
            steps = &steps[1..];
        }
        if steps.is_empty() {
            return Some(value);
        }
        if matches!(&*value.kind, ExprKind::Identifier(_)) && self.may_be_computed(&steps[0]) {
            return None;
        }
        let kind = match *value.kind {
            ExprKind::Path { base, steps: mut own } => {
                own.extend(steps.iter().cloned());
                ExprKind::Path { base, steps: own }
            }
            kind => ExprKind::Path { base: Expr::new(kind, value.span), steps: steps.to_vec() },
        };
        Some(Expr::new(kind, span))
    }

    fn may_be_computed(&self, step: &Step) -> bool {
        match step {
            Step::Member(name) | Step::Quoted(name) => self.computed.contains(&name.as_str()),
            Step::Index(_) => !self.computed.is_empty(),
        }
    }
}
