//! Plans for clients that run a query over several partitions themselves.
//!
//! Only what needs no merging by value is planned: each partition runs the query and the client strings the rows
//! together, at most cutting them. That is exact for any query that one partition answers alone, and for filters
//! and projections everywhere. The rest is refused by name rather than planned wrongly.

use quire_sql::ast::{self, ExprKind, Selection};
use quire_sql::{Parameters, Query, Shape, functions};

use crate::{Container, Engine, EngineError, Scope};

/// What the client does with the rows of all partitions, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryPlan {
    /// Stop after so many.
    pub top: Option<u64>,
    /// Skip so many, then stop after so many.
    pub offset_limit: Option<(u64, u64)>,
    /// What each partition runs instead of the text.
    pub rewritten: Option<String>,
}

impl Engine {
    pub fn query_plan(
        &self,
        container: &Container,
        text: &str,
        parameters: &Parameters,
        scope: &Scope,
    ) -> Result<QueryPlan, EngineError> {
        let query = Query::compile(text, parameters, &container.definition.computed_properties)?;
        if is_one_partition(container, scope) {
            return Ok(QueryPlan::default());
        }
        match query.shape() {
            Shape::Streaming { offset, limit } => Ok(cut(query.syntax(), text, offset, limit)),
            // Every partition gives the same row.
            Shape::Constant => Ok(QueryPlan { top: Some(1), ..QueryPlan::default() }),
            Shape::Blocking => {
                let feature = format!("A query plan for {} over several partitions", clauses(query.syntax()));
                Err(EngineError::NotSupported { feature })
            }
        }
    }
}

fn is_one_partition(container: &Container, scope: &Scope) -> bool {
    let definition = &container.definition.partition_key;
    let is_complete = |key| definition.check_complete(key).is_ok();
    scope.partition_key.as_ref().is_some_and(is_complete)
        || scope.partition_id.is_some()
        || container.partitions().len() == 1
}

/// Each partition gives as many rows as could be wanted of it alone.
fn cut(syntax: &ast::Query, text: &str, offset: u64, limit: Option<u64>) -> QueryPlan {
    let (Some(clause), Some(limit)) = (&syntax.offset_limit, limit) else {
        return QueryPlan { top: limit, ..QueryPlan::default() };
    };
    let (before, after) = (&text[..clause.span.start], &text[clause.span.end..]);
    let rewritten = format!("{before}OFFSET 0 LIMIT {}{after}", offset.saturating_add(limit));
    QueryPlan { offset_limit: Some((offset, limit)), rewritten: Some(rewritten), ..QueryPlan::default() }
}

/// The parts of a query that need the rows of all partitions together.
fn clauses(syntax: &ast::Query) -> String {
    let aggregates = match &syntax.select.selection {
        Selection::Star(_) => false,
        Selection::Value(expr) => has_aggregate(expr),
        Selection::Items(items) => items.iter().any(|item| has_aggregate(&item.expr)),
    };
    let parts = [
        (syntax.order_by.is_some(), "ORDER BY"),
        (syntax.select.distinct, "DISTINCT"),
        (!syntax.group_by.is_empty(), "GROUP BY"),
        (aggregates, "aggregates"),
    ];
    let found: Vec<&str> = parts.into_iter().filter(|(there, _)| *there).map(|(_, name)| name).collect();
    if found.is_empty() { "a subquery over all items".to_owned() } else { found.join(", ") }
}

fn has_aggregate(expr: &ast::Expr) -> bool {
    expr.any(&|expr| match &*expr.kind {
        ExprKind::Call { name, .. } => {
            functions::find(&name.name).is_some_and(|function| function.is_aggregate())
        }
        _ => false,
    })
}
