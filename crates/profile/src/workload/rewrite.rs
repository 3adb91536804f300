//! Queries after a change of the model: the same text with other paths.

use quire_sql::ast::{Collection, Expr, ExprKind, Identifier, Query, Selection, Step};
use quire_sql::parse;
use quire_value::Value;

use super::shape::{Aliases, aliases_of, path_of};
use crate::path;

/// What stands in the place of a path, or of a function of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// Another path.
    Path { from: String, to: String },
    /// What a link leads to, where the path was.
    Follow { from: String, link: String },
    /// A property that has the value of a function of one path.
    Function { name: String, of: String, to: String },
}

/// The query with every such path replaced; `None` where that cannot be said.
pub fn rewritten(text: &str, replacement: &Replacement) -> Option<String> {
    let mut query = parse(text).ok()?;
    let mut rewriter = Rewriter { replacement, is_possible: true };
    rewriter.query(&mut query, &Aliases::new());
    rewriter.is_possible.then(|| query.to_string().replace('\n', " "))
}

struct Rewriter<'a> {
    replacement: &'a Replacement,
    is_possible: bool,
}

impl Rewriter<'_> {
    fn query(&mut self, query: &mut Query, outer: &Aliases) {
        let aliases = aliases_of(query, outer);
        for source in query.from.iter_mut().flat_map(|from| &mut from.sources) {
            match &mut source.collection {
                Collection::Path { root, steps } => self.source(&root.name, steps, &aliases),
                Collection::Subquery(inner) => self.query(inner, &aliases),
                Collection::Call(expr) => self.expr(expr, &aliases),
            }
        }
        match &mut query.select.selection {
            Selection::Star(_) => {}
            Selection::Value(expr) => self.expr(expr, &aliases),
            Selection::Items(items) => items.iter_mut().for_each(|item| self.expr(&mut item.expr, &aliases)),
        }
        query.filter.iter_mut().for_each(|expr| self.expr(expr, &aliases));
        query.group_by.iter_mut().for_each(|expr| self.expr(expr, &aliases));
        let order = query.order_by.iter_mut().flat_map(|clause| &mut clause.items);
        order.for_each(|item| self.expr(&mut item.expr, &aliases));
    }

    /// A JOIN over the path or over something below it.
    fn source(&mut self, root: &str, steps: &mut Vec<Step>, aliases: &Aliases) {
        let Some(base) = aliases.get(root) else { return };
        match (self.replacement, split(base, steps, self.replacement.from())) {
            (Replacement::Path { to, .. }, Some(below)) => match relative(base, to) {
                Some(mut above) => {
                    above.extend(below);
                    *steps = above;
                }
                None => self.is_possible = false,
            },
            (Replacement::Follow { .. }, Some(_)) => self.is_possible = false,
            _ => {}
        }
    }

    fn expr(&mut self, expr: &mut Expr, aliases: &Aliases) {
        if let ExprKind::Subquery { query, .. } = &mut *expr.kind {
            return self.query(query, aliases);
        }
        if let Some(new) = self.replaced(expr, aliases) {
            *expr = new;
            return;
        }
        expr.for_each_child_mut(&mut |child| self.expr(child, aliases));
    }

    fn replaced(&mut self, expr: &Expr, aliases: &Aliases) -> Option<Expr> {
        match (self.replacement, &*expr.kind) {
            (Replacement::Function { name, of, to }, ExprKind::Call { name: own, arguments }) => {
                let [argument] = arguments.as_slice() else { return None };
                let is_same = own.name.eq_ignore_ascii_case(name) && path_of(argument, aliases)? == *of;
                let root = root_of(argument)?;
                is_same.then(|| path_expr(expr, root, relative("", to).unwrap_or_default()))
            }
            (Replacement::Path { from, to }, ExprKind::Path { base, steps }) => {
                let ExprKind::Identifier(root) = &*base.kind else { return None };
                let (above, below) = (aliases.get(root)?, split(aliases.get(root)?, steps, from)?);
                let Some(mut steps) = relative(above, to) else {
                    self.is_possible = false;
                    return None;
                };
                steps.extend(below);
                Some(path_expr(expr, root, steps))
            }
            (Replacement::Follow { from, link }, ExprKind::Path { base, steps }) => {
                let ExprKind::Identifier(root) = &*base.kind else { return None };
                let (above, below) = (aliases.get(root)?, split(aliases.get(root)?, steps, from)?);
                if path::parent(from) != above.as_str() {
                    self.is_possible = false;
                    return None;
                }
                Some(followed(expr, root, link, below))
            }
            _ => None,
        }
    }
}

impl Replacement {
    fn from(&self) -> &str {
        match self {
            Replacement::Path { from, .. } | Replacement::Follow { from, .. } => from,
            Replacement::Function { .. } => "\0",
        }
    }
}

/// The steps behind a path, where the steps lead there or below it.
fn split(base: &str, steps: &[Step], wanted: &str) -> Option<Vec<Step>> {
    let mut at = base.to_owned();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Member(name) | Step::Quoted(name) => at = path::join(&at, name),
            Step::Index(index) => match &*index.kind {
                ExprKind::Literal(Value::Number(_)) => at.push_str("/*"),
                _ => return None,
            },
        }
        if at == wanted {
            return Some(steps[number + 1..].to_vec());
        }
    }
    None
}

/// Steps from one path down to another.
fn relative(base: &str, to: &str) -> Option<Vec<Step>> {
    let below = to.strip_prefix(base).filter(|below| below.is_empty() || below.starts_with('/'))?;
    Some(path::names(below).into_iter().map(Step::Quoted).collect())
}

fn root_of(expr: &Expr) -> Option<&str> {
    match &*expr.kind {
        ExprKind::Path { base, .. } => root_of(base),
        ExprKind::Identifier(name) => Some(name),
        _ => None,
    }
}

fn path_expr(like: &Expr, root: &str, steps: Vec<Step>) -> Expr {
    let base = Expr::new(ExprKind::Identifier(root.to_owned()), like.span);
    Expr::new(ExprKind::Path { base, steps }, like.span)
}

fn followed(like: &Expr, root: &str, link: &str, below: Vec<Step>) -> Expr {
    let item = Expr::new(ExprKind::Identifier(root.to_owned()), like.span);
    let link = Expr::new(ExprKind::Literal(Value::from(link)), like.span);
    let name = Identifier { name: "FOLLOW".to_owned(), span: like.span };
    let call = Expr::new(ExprKind::Call { name, arguments: vec![item, link] }, like.span);
    match below.is_empty() {
        true => call,
        false => Expr::new(ExprKind::Path { base: call, steps: below }, like.span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, replacement: &Replacement, expected: Option<&str>) {
        assert_eq!(rewritten(text, replacement).as_deref(), expected, "{text}");
    }

    #[test]
    fn paths_are_replaced_wherever_they_are() {
        let own = |text: &str| text.to_owned();
        let rename = Replacement::Path { from: own("/fname"), to: own("/name/first") };
        check(
            "SELECT c.fname, c.fnames FROM c WHERE c.fname = @p0v AND c.x = 1 ORDER BY c.fname",
            &rename,
            Some(
                r#"SELECT c["name"]["first"], c.fnames FROM c WHERE ((c["name"]["first"] = @p0v) AND (c.x = 1)) ORDER BY c["name"]["first"]"#,
            ),
        );
        let window = Replacement::Path { from: own("/comments"), to: own("/recent") };
        check(
            "SELECT m.text FROM c JOIN m IN c.comments WHERE ARRAY_LENGTH(c.comments) > 3",
            &window,
            Some(r#"SELECT m.text FROM c JOIN m IN c["recent"] WHERE (ARRAY_LENGTH(c["recent"]) > 3)"#),
        );
        let follow = Replacement::Follow { from: own("/holdings/*/stock"), link: own("l") };
        check(
            "SELECT h.stock.open FROM c JOIN h IN c.holdings WHERE h.stock.symbol = @p0v",
            &follow,
            Some(
                r#"SELECT FOLLOW(h, "l").open FROM c JOIN h IN c.holdings WHERE (FOLLOW(h, "l").symbol = @p0v)"#,
            ),
        );
        check("SELECT c.holdings[0].stock FROM c", &follow, None);
        let lower = Replacement::Function { name: own("LOWER"), of: own("/name"), to: own("/lowername") };
        check(
            "SELECT * FROM c WHERE LOWER(c.name) = @p0v AND UPPER(c.name) != @p1v",
            &lower,
            Some(r#"SELECT * FROM c WHERE ((c["lowername"] = @p0v) AND (UPPER(c.name) != @p1v))"#),
        );
    }
}
