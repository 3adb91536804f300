//! Computed properties: `SELECT VALUE e FROM c`, item by item and always with the same result.

use crate::ast::{self, Collection, Expr, ExprKind, Query, Selection};
use crate::bind::{self, Bound};
use crate::bound;
use crate::functions::{self, Nature};
use crate::{Parameters, SqlError, parser};

/// Names that every item has already.
const SYSTEM_NAMES: &[&str] = &["id", "_rid", "_ts", "_self", "_etag", "_attachments", "_lsn"];

/// Checks a computed property definition (sql.md 9.1); the text of the error is the service's.
pub fn check_computed_property(name: &str, query: &str) -> Result<(), SqlError> {
    compile(name, query).map(|_| ())
}

/// The expression of a computed property, bound to the item at level 0.
pub(crate) fn compile(name: &str, query: &str) -> Result<bound::Expr, SqlError> {
    if name.is_empty() || SYSTEM_NAMES.contains(&name) {
        return Err(refused(name, "the name is reserved"));
    }
    let syntax = parser::parse(query).map_err(|diagnostic| SqlError::Compile(vec![diagnostic]))?;
    check(&syntax).map_err(|reason| refused(name, reason))?;
    let Bound { query, .. } = bind::bind(&syntax, query, &Parameters::default(), &[])?;
    Ok(query.projection)
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
        (expr.any(&|inner| bind::aggregate_of(inner).is_some()), "its query cannot have aggregates"),
        (expr.any(&is_user_defined), "its query cannot call user-defined functions"),
        (expr.any(&is_not_constant), "its query cannot call functions of time or chance"),
        (expr.any(&is_spatial), "its query cannot call spatial functions"),
        (expr.any(&is_parameter), "its query cannot have parameters"),
    ];
    match forbidden.into_iter().find(|(found, _)| *found) {
        Some((_, reason)) => Err(reason),
        None => Ok(()),
    }
}

/// ARRAY is the one form that is allowed.
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

fn is_not_constant(expr: &Expr) -> bool {
    called(expr).is_some_and(|function| function.nature() != Nature::Plain)
}

fn is_spatial(expr: &Expr) -> bool {
    called(expr).is_some_and(functions::Function::is_spatial)
}
