//! The projection of a materialised view: `SELECT *`, or some top-level properties by name.

use crate::error::SqlError;
use crate::syntax::ast::{Collection, Expr, ExprKind, Query, SelectItem, Selection, Step};
use crate::syntax::parser;

/// Set for the items of a view themselves, so they cannot be projected.
const SYSTEM_NAMES: &[&str] = &["_rid", "_ts", "_self", "_etag", "_attachments", "_lsn"];

/// The properties that a materialised view copies from an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Projection {
    Everything,
    /// Top-level properties.
    Properties(Vec<String>),
}

impl Projection {
    /// Parses the definition of a view. Refuses everything but a list of top-level properties.
    pub fn parse(definition: &str) -> Result<Projection, SqlError> {
        let syntax = parser::parse(definition).map_err(|diagnostic| SqlError::Compile(vec![diagnostic]))?;
        read(&syntax).map_err(|reason| {
            SqlError::Refused(format!("The definition of the view is not valid: {reason}."))
        })
    }
}

fn read(query: &Query) -> Result<Projection, String> {
    check_clauses(query)?;
    let root = root(query)?;
    match &query.select.selection {
        Selection::Star(_) => Ok(Projection::Everything),
        Selection::Value(_) => Err("it cannot be SELECT VALUE".to_owned()),
        Selection::Items(items) => {
            let mut names: Vec<String> = Vec::with_capacity(items.len());
            for item in items {
                let name = property(item, root)?;
                if names.contains(&name) {
                    return Err(format!("the property '{name}' is selected twice"));
                }
                names.push(name);
            }
            Ok(Projection::Properties(names))
        }
    }
}

fn check_clauses(query: &Query) -> Result<(), String> {
    let forbidden = [
        (query.select.distinct, "DISTINCT"),
        (query.select.top.is_some(), "TOP"),
        (query.filter.is_some(), "a WHERE clause"),
        (!query.group_by.is_empty(), "a GROUP BY clause"),
        (query.order_by.is_some(), "an ORDER BY clause"),
        (query.offset_limit.is_some(), "an OFFSET LIMIT clause"),
    ];
    match forbidden.into_iter().find(|(found, _)| *found) {
        Some((_, what)) => Err(format!("it cannot have {what}")),
        None => Ok(()),
    }
}

/// The name of the item in the query.
fn root(query: &Query) -> Result<&str, String> {
    let from = query.from.as_ref().ok_or("it must have a FROM clause")?;
    let [source] = from.sources.as_slice() else { return Err("it cannot have a JOIN".to_owned()) };
    match &source.collection {
        Collection::Path { root, steps } if steps.is_empty() && !source.iterate => {
            Ok(source.alias.as_ref().map_or(root.name.as_str(), |alias| alias.name.as_str()))
        }
        _ => Err("it must select from the whole item".to_owned()),
    }
}

fn property(item: &SelectItem, root: &str) -> Result<String, String> {
    let name = top_level(&item.expr, root)
        .ok_or_else(|| format!("it can only select top-level properties, such as {root}.name"))?;
    if item.alias.as_ref().is_some_and(|alias| alias != name) {
        return Err(format!("the property '{name}' cannot have an alias"));
    }
    if SYSTEM_NAMES.contains(&name) {
        return Err(format!("the system property '{name}' cannot be selected"));
    }
    Ok(name.to_owned())
}

fn top_level<'a>(expr: &'a Expr, root: &str) -> Option<&'a str> {
    let ExprKind::Path { base, steps } = &*expr.kind else { return None };
    match (&*base.kind, steps.as_slice()) {
        (ExprKind::Identifier(base), [Step::Member(name) | Step::Quoted(name)]) if base == root => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_view_may_take() {
        for all in ["SELECT * FROM c", "select * from ROOT", "SELECT * FROM root r"] {
            assert_eq!(Projection::parse(all), Ok(Projection::Everything), "{all}");
        }
        for (text, names) in [
            ("SELECT c.a, c.b FROM c", &["a", "b"][..]),
            ("SELECT r.id, r[\"x y\"] FROM root r", &["id", "x y"]),
            ("SELECT c.a AS a FROM c", &["a"]),
        ] {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(Projection::parse(text), Ok(Projection::Properties(names)), "{text}");
        }
    }

    #[test]
    fn what_it_may_not() {
        for text in [
            "",
            "SELECT",
            "SELECT *",
            "SELECT c.a.b FROM c",
            "SELECT c.a[0] FROM c",
            "SELECT c FROM c",
            "SELECT d.a FROM c",
            "SELECT c.a AS b FROM c",
            "SELECT c.a, c.a FROM c",
            "SELECT c._ts FROM c",
            "SELECT 1 AS one FROM c",
            "SELECT LOWER(c.a) FROM c",
            "SELECT VALUE c.a FROM c",
            "SELECT DISTINCT c.a FROM c",
            "SELECT TOP 1 c.a FROM c",
            "SELECT * FROM c WHERE c.a = 1",
            "SELECT * FROM c ORDER BY c.a",
            "SELECT c.a FROM c GROUP BY c.a",
            "SELECT c.a FROM c OFFSET 0 LIMIT 1",
            "SELECT c.a FROM c JOIN x IN c.b",
            "SELECT x.a FROM x IN c.b",
            "SELECT s.a FROM c.sub s",
        ] {
            Projection::parse(text).expect_err(text);
        }
    }
}
