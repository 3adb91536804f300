//! What of a query follows links, and what of WHERE can be decided before.

use crate::error::SqlError;

use super::bound::{Expr, FollowPlan, Input, Query, Source};

/// Members of rows that clients merge, in any order: the item is the payload, or the payload's payload.
const MERGED_ROW: &[&str] = &["_rid", "orderByItems", "payload"];
const SCORED_PAYLOAD: &[&str] = &["componentScores", "payload"];
const PAYLOAD: &str = "payload";

/// `None`: the query follows no links.
pub(crate) fn follow_plan(query: &mut Query) -> Option<FollowPlan> {
    let first = query.sources.iter_mut().position(source_follows);
    let filter_follows = query.filter.as_mut().is_some_and(follows);
    let mut rows_follow = false;
    query.for_each_expr_mut(&mut |expr| rows_follow = rows_follow || follows(expr));
    if !rows_follow {
        return None;
    }
    let levels = first.unwrap_or(query.sources.len())..query.sources.len();
    let (early, late): (Vec<Expr>, Vec<Expr>) =
        conjuncts(query.filter.clone()).into_iter().partition(|part| {
            let mut part = part.clone();
            !follows(&mut part) && (levels.is_empty() || !depends_on(&mut part, &levels))
        });
    Some(FollowPlan {
        sources: levels.start,
        early: conjunction(early),
        late: conjunction(late),
        decides_rows: first.is_some() || filter_follows,
    })
}

fn conjuncts(filter: Option<Expr>) -> Vec<Expr> {
    match filter {
        None => Vec::new(),
        Some(Expr::And(parts)) => parts.into_iter().flat_map(|part| conjuncts(Some(part))).collect(),
        Some(other) => vec![other],
    }
}

fn conjunction(mut parts: Vec<Expr>) -> Option<Expr> {
    if parts.len() > 1 { Some(Expr::And(parts)) } else { parts.pop() }
}

pub(crate) fn follows(expr: &mut Expr) -> bool {
    let mut found = matches!(expr, Expr::Follow(_) | Expr::WithFollowed { .. });
    expr.for_each_child_mut(&mut |child| found = found || follows(child));
    found
}

fn source_follows(source: &mut Source) -> bool {
    match &mut source.input {
        Input::Container => false,
        Input::Expr(expr) => follows(expr),
        Input::Subquery(query) => {
            let mut found = false;
            query.for_each_expr_mut(&mut |expr| found = found || follows(expr));
            found
        }
    }
}

/// Whether a part of the filter cannot be evaluated before these levels are there: it uses them, or has levels of its own,
/// which come after them.
fn depends_on(expr: &mut Expr, levels: &std::ops::Range<usize>) -> bool {
    let mut found = match expr {
        Expr::Variable { level, .. } | Expr::Computed { level, .. } => levels.contains(level),
        Expr::Subquery { .. } | Expr::Let { .. } => true,
        _ => false,
    };
    expr.for_each_child_mut(&mut |child| found = found || depends_on(child, levels));
    found
}

/// Gives every row that is an item, or has one for a client that merges, what follows from it.
pub(crate) fn add_followed(query: &mut Query) -> Result<(), SqlError> {
    let is_item = |expr: &Expr| match expr {
        Expr::Variable { level, .. } => query
            .sources
            .get(*level)
            .is_some_and(|source| matches!(source.input, Input::Container) && !source.iterate),
        _ => false,
    };
    let mut projection = query.projection.clone();
    let item = match &mut projection {
        whole @ Expr::Variable { .. } => Some(whole),
        merged => match payload(merged, MERGED_ROW) {
            Some(scored @ Expr::Object(_)) => payload(scored, SCORED_PAYLOAD),
            item => item,
        },
    };
    let Some(item) = item.filter(|item| query.grouping.is_none() && is_item(item)) else {
        return Err(SqlError::FollowNeedsItems);
    };
    if let Expr::Variable { level, origin } = *item {
        *item = Expr::WithFollowed { level, origin };
    }
    query.projection = projection;
    Ok(())
}

fn payload<'e>(row: &'e mut Expr, names: &[&str]) -> Option<&'e mut Expr> {
    let Expr::Object(members) = row else { return None };
    let mut own: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    own.sort_unstable();
    if own != names {
        return None;
    }
    members.iter_mut().find(|(name, _)| name == PAYLOAD).map(|(_, payload)| payload)
}
