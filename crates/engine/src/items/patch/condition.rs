//! The condition of a patch: a query without SELECT, `FROM c WHERE c.open`, about the one item.

use quire_resource::ContainerDefinition;
use quire_sql::{Diagnostic, Environment, Item, Parameters, Query, Schema, SqlError, ast};

use super::bad_request;
use crate::api::EngineError;

/// Makes a query of the condition, which brings FROM and WHERE.
const SELECT: &str = "SELECT VALUE 1 ";
/// The error of a query that calls a function which the container does not have.
const UNKNOWN_USER_FUNCTION: &str = "SC2006";

/// Whether the item satisfies the condition; what is undefined does not.
pub(super) fn holds(
    condition: &str,
    item: &Item<'_>,
    definition: &ContainerDefinition,
    environment: Environment,
) -> Result<bool, EngineError> {
    check_start(condition)?;
    let text = format!("{SELECT}{condition}");
    let query =
        Query::compile_within(&text, &Parameters::default(), Schema::of(definition), &environment.allowance)
            .map_err(relocated)?;
    check_clauses(query.syntax())?;
    Ok(query.with_environment(environment).start()?.matches(item)?)
}

/// Nothing before FROM: it would become a part of what is selected.
fn check_start(condition: &str) -> Result<(), EngineError> {
    let trimmed = condition.trim_start();
    let (word, rest) = trimmed.split_at_checked(4).unwrap_or((trimmed, ""));
    let ends = rest.chars().next().is_none_or(|next| !next.is_alphanumeric() && next != '_');
    if word.eq_ignore_ascii_case("from") && ends { Ok(()) } else { Err(bad_form()) }
}

fn check_clauses(query: &ast::Query) -> Result<(), EngineError> {
    let is_plain = query.group_by.is_empty() && query.order_by.is_none() && query.offset_limit.is_none();
    if is_plain {
        return Ok(());
    }
    Err(bad_form())
}

fn bad_form() -> EngineError {
    bad_request("The condition of a patch must be of the form 'FROM c WHERE <predicate>'.")
}

/// Places in the condition, as its author knows it. User-defined functions are not run: the item is locked meanwhile.
fn relocated(error: SqlError) -> EngineError {
    let SqlError::Compile(diagnostics) = error else { return error.into() };
    if diagnostics.iter().any(|diagnostic| diagnostic.code == UNKNOWN_USER_FUNCTION) {
        let feature = "A user-defined function in the condition of a patch".to_owned();
        return EngineError::NotSupported { feature };
    }
    let moved = |diagnostic: Diagnostic| Diagnostic {
        start: diagnostic.start.saturating_sub(SELECT.len()),
        end: diagnostic.end.saturating_sub(SELECT.len()),
        ..diagnostic
    };
    SqlError::Compile(diagnostics.into_iter().map(moved).collect()).into()
}
