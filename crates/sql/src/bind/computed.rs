//! Computed properties: `SELECT VALUE e FROM c`, evaluated per item and deterministic.

use crate::error::SqlError;
use crate::functions;
use crate::limits::{Allowance, Meter};
use crate::syntax::ast::{self, Collection, Expr, ExprKind, Query, Selection};
use crate::syntax::parser;

use super::{Bound, Parameters, Schema, aggregate_of, bind, bound};

/// Names of system properties.
const SYSTEM_NAMES: &[&str] = &["id", "_rid", "_ts", "_self", "_etag", "_attachments", "_lsn"];

/// Maximum per container.
const COMPUTED_PROPERTIES_MAX: usize = 20;

/// Checks a computed property definition. The error text is the service's.
pub fn check_computed_property(name: &str, query: &str) -> Result<(), SqlError> {
    compile(name, query, Schema::default(), &Allowance::default().meter()).map(|_| ())
}

/// The expression of a computed property, bound to the item at level 0.
pub(crate) fn compile(
    name: &str,
    query: &str,
    schema: Schema<'_>,
    meter: &Meter,
) -> Result<bound::Expr, SqlError> {
    if name.is_empty() || SYSTEM_NAMES.contains(&name) {
        return Err(refused(name, "the name is reserved"));
    }
    let syntax = parser::parse(query).map_err(|diagnostic| SqlError::Compile(vec![diagnostic]))?;
    check(&syntax).map_err(|reason| refused(name, reason))?;
    let Bound { query, is_deterministic, .. } =
        bind(&syntax, query, &Parameters::default(), &[], schema, meter)?;
    if !is_deterministic {
        return Err(refused(name, "its query cannot call functions of time or random numbers"));
    }
    Ok(query.projection)
}

/// Checks all computed properties of a container: each of them, their number, their names, and that none uses
/// another.
pub fn check_computed_properties(properties: &[(String, String)]) -> Result<(), SqlError> {
    if properties.len() > COMPUTED_PROPERTIES_MAX {
        let text = format!("A container can have at most {COMPUTED_PROPERTIES_MAX} computed properties.");
        return Err(SqlError::Refused(text));
    }
    let names: Vec<&str> = properties.iter().map(|(name, _)| name.as_str()).collect();
    for (index, (name, query)) in properties.iter().enumerate() {
        check_computed_property(name, query)?;
        if names[..index].contains(&name.as_str()) {
            return Err(refused(name, "the name is used twice"));
        }
        if uses_computed(query, &names)? {
            return Err(refused(name, "its query cannot use computed properties"));
        }
    }
    Ok(())
}

fn uses_computed(query: &str, names: &[&str]) -> Result<bool, SqlError> {
    let syntax = parser::parse(query).map_err(|diagnostic| SqlError::Compile(vec![diagnostic]))?;
    let (parameters, meter) = (Parameters::default(), Allowance::default().meter());
    let mut bound = bind(&syntax, query, &parameters, names, Schema::default(), &meter)?.query;
    let mut found = false;
    bound.for_each_expr_mut(&mut |expr| found = found || contains_computed(expr));
    Ok(found)
}

fn contains_computed(expr: &mut bound::Expr) -> bool {
    let mut found = matches!(expr, bound::Expr::Computed { .. });
    expr.for_each_child_mut(&mut |child| found = found || contains_computed(child));
    found
}

fn refused(name: &str, reason: &str) -> SqlError {
    SqlError::Refused(format!("The computed property '{name}' is not valid: {reason}."))
}

fn check(query: &Query) -> Result<(), &'static str> {
    let Some(from) = &query.from else { return Err("its query must have a FROM clause") };
    let whole_item = match from.sources.as_slice() {
        [source] => {
            !source.iterate
                && matches!(&source.collection, Collection::Path { steps, .. } if steps.is_empty())
        }
        _ => return Err("its query cannot have a JOIN"),
    };
    let Selection::Value(expr) = &query.select.selection else {
        return Err("its query must be SELECT VALUE");
    };
    let forbidden = [
        (!whole_item, "its query must select from the whole item"),
        (query.select.distinct, "its query cannot have DISTINCT"),
        (query.select.top.is_some(), "its query cannot have TOP"),
        (query.filter.is_some(), "its query cannot have a WHERE clause"),
        (!query.group_by.is_empty(), "its query cannot have a GROUP BY clause"),
        (query.order_by.is_some(), "its query cannot have an ORDER BY clause"),
        (query.offset_limit.is_some(), "its query cannot have an OFFSET LIMIT clause"),
        (expr.any(&is_forbidden_subquery), "its query cannot have subqueries"),
        (expr.any(&|inner| aggregate_of(inner).is_some()), "its query cannot have aggregates"),
        (expr.any(&is_user_defined), "its query cannot call user-defined functions"),
        (expr.any(&is_spatial), "its query cannot call spatial functions"),
        (expr.any(&is_link), "its query cannot follow links"),
        (expr.any(&is_parameter), "its query cannot have parameters"),
    ];
    match forbidden.into_iter().find(|(found, _)| *found) {
        Some((_, reason)) => Err(reason),
        None => Ok(()),
    }
}

/// Only ARRAY subqueries are allowed.
fn is_forbidden_subquery(expr: &Expr) -> bool {
    matches!(&*expr.kind, ExprKind::Subquery { form, .. } if *form != ast::SubqueryForm::Array)
}

fn is_user_defined(expr: &Expr) -> bool {
    matches!(&*expr.kind, ExprKind::UserDefinedCall { .. })
}

fn is_parameter(expr: &Expr) -> bool {
    matches!(&*expr.kind, ExprKind::Parameter(_))
}

fn called(expr: &Expr) -> Option<&'static functions::Function> {
    match &*expr.kind {
        ExprKind::Call { name, .. } => functions::find(&name.name),
        _ => None,
    }
}

fn is_link(expr: &Expr) -> bool {
    called(expr).is_some_and(functions::Function::follows)
}

fn is_spatial(expr: &Expr) -> bool {
    called(expr).is_some_and(functions::Function::is_spatial)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_computed_property_may_be() {
        for query in [
            "SELECT VALUE LOWER(c.name) FROM c",
            "SELECT VALUE r.price * (1 - r.discount) FROM root r",
            "SELECT VALUE ARRAY(SELECT VALUE t FROM t IN c.tags) FROM c",
        ] {
            check_computed_property("cp", query).unwrap_or_else(|error| panic!("{query}: {error}"));
        }
    }

    #[test]
    fn what_it_may_not_be() {
        for query in [
            "SELECT VALUE 1",
            "SELECT c.a FROM c",
            "SELECT VALUE c.a FROM c WHERE c.b",
            "SELECT VALUE c.a FROM c JOIN x IN c.b",
            "SELECT VALUE x FROM x IN c.b",
            "SELECT VALUE s FROM c.sub s",
            "SELECT DISTINCT VALUE c.a FROM c",
            "SELECT TOP 1 VALUE c.a FROM c",
            "SELECT VALUE c.a FROM c ORDER BY c.a",
            "SELECT VALUE c.a FROM c GROUP BY c.a",
            "SELECT VALUE c.a FROM c OFFSET 0 LIMIT 1",
            "SELECT VALUE EXISTS(SELECT 1) FROM c",
            "SELECT VALUE (SELECT VALUE 1) FROM c",
            "SELECT VALUE COUNT(1) FROM c",
            "SELECT VALUE RAND() FROM c",
            "SELECT VALUE ARRAY(SELECT VALUE NOW()) FROM c",
            "SELECT VALUE udf.f(c) FROM c",
            "SELECT VALUE ST_AREA(c.a) FROM c",
            "SELECT VALUE FOLLOW(c, 'l') FROM c",
            "SELECT VALUE ARRAY(SELECT VALUE REFERRERS(c, 'l')) FROM c",
            "SELECT VALUE @p FROM c",
            "SELECT VALUE d.x FROM c",
            "SELECT",
        ] {
            check_computed_property("cp", query).expect_err(query);
        }
        check_computed_property("_ts", "SELECT VALUE c.a FROM c").expect_err("a system name");
    }

    #[test]
    fn together_they_are_few_differ_and_do_not_use_each_other() {
        let property = |name: &str, query: &str| (name.to_owned(), query.to_owned());
        let one = property("a", "SELECT VALUE c.x FROM c");
        check_computed_properties(&[one.clone(), property("b", "SELECT VALUE c.y.a FROM c")]).expect("two");
        check_computed_properties(&[one.clone(), one.clone()]).expect_err("twice the same name");
        check_computed_properties(&[one.clone(), property("b", "SELECT VALUE [c['a']] FROM c")])
            .expect_err("one uses the other");
        let many: Vec<_> = (0..21).map(|n| property(&format!("p{n}"), "SELECT VALUE c.x FROM c")).collect();
        check_computed_properties(&many).expect_err("too many");
    }
}
