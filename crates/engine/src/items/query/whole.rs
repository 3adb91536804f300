//! Queries that need all items before their first row: aggregates, GROUP BY, DISTINCT, ORDER BY over no plain paths.
//!
//! Every page runs the query again and skips the rows that were sent; what takes longer than a minute, or more memory
//! than a query may hold, is refused.

use std::ops::ControlFlow;

use quire_resource::{ChildKind, ResourceId};
use quire_sql::{Row, Sink, SqlError};
use quire_value::Value;

use super::super::continuation::{Place, Resume, order_hash, sort_key_bytes};
use super::super::page::Rows;
use super::super::scan::{End, Next, Reader, Visit};
use super::candidates::Candidates;
use super::evaluate::Evaluator;
use super::index_only::Fed;
use super::lookahead::visit_ahead;
use super::order::{Start, Ties, key_of_values};
use super::{Run, no_order};
use crate::EngineError;

/// Where the items come from.
pub(super) enum Feed {
    Items(Candidates),
    Index(Fed),
}

/// Where the page begins. Rows that say where they stand in the order (`_rid` and `orderByItems`, as plans ask for them) are
/// resumed by that place, which holds when the filter changes; all others by their number.
pub(super) struct WholeStart {
    sent: u64,
    /// Of a query with ORDER BY: where it begins among rows that say where they stand.
    order: Option<RowOrder>,
    start: Start,
}

/// The order of rows that say where they stand in it.
struct RowOrder {
    container: ResourceId,
    descending: Vec<bool>,
    ties: Ties,
    hash: u64,
    key_bytes_max: usize,
}

/// Where the next page begins.
pub(super) enum WholeNext {
    Row(u64),
    Place { order: u64, place: Place },
}

impl WholeStart {
    pub fn of(run: &Run<'_>, resume: &Option<Resume>) -> Result<WholeStart, EngineError> {
        let columns = run.query.order_columns();
        let order = (!columns.is_empty()).then(|| RowOrder {
            container: run.container.resource.rid,
            descending: columns.iter().map(|(_, descending)| *descending).collect(),
            ties: Ties::new(run.query.ties_fall()),
            hash: order_hash(columns.iter().map(|(text, descending)| (text.as_str(), *descending))),
            key_bytes_max: sort_key_bytes(run.request),
        });
        let (mut start, mut sent) = (Start::Beginning, 0);
        match (resume, &order) {
            (None, _) => {}
            (Some(Resume::Block { query, sent: rows, .. }), _) if *query == run.identity => sent = *rows,
            (Some(Resume::Sorted { order, place, .. }), Some(own)) if *order == own.hash => {
                let Place { key, rid, row, .. } = place.clone();
                start = Start::At { key, tie: own.ties.turn(rid), row };
            }
            _ => return Err(EngineError::BadContinuation),
        }
        match (&run.request.resume, &order) {
            (None, _) => {}
            (Some(filter), Some(order)) => {
                start = start.later(Start::named(filter, &order.descending, order.ties)?)
            }
            (Some(_), None) => return Err(no_order()),
        }
        Ok(WholeStart { sent, order, start })
    }
}

impl RowOrder {
    /// Sort key and tie of a row; `None`: it does not say.
    fn place_of(&self, row: &Row<'_>) -> Option<(Vec<u8>, u64)> {
        let row = row.to_value();
        let items = row.get("orderByItems")?.as_array()?;
        if items.len() != self.descending.len() {
            return None;
        }
        let undefined = Value::Undefined;
        let values = items.iter().map(|item| item.get("item").unwrap_or(&undefined));
        let key = key_of_values(values.zip(self.descending.iter().copied()));
        match (ResourceId::parse(row.get("_rid")?.as_str()?).ok()?, self.container) {
            (
                ResourceId::Child { database, container, kind: ChildKind::Item, child },
                ResourceId::Container { database: own_database, container: own_container },
            ) if (database, container) == (own_database, own_container) => Some((key, self.ties.turn(child))),
            _ => None,
        }
    }
}

/// The rows of a page; where the next one begins, if there is one.
pub(super) fn whole(
    reader: &mut Reader<'_>,
    evaluator: &Evaluator<'_>,
    source: &mut Feed,
    rows: &mut Rows,
    from: WholeStart,
) -> Result<Option<WholeNext>, EngineError> {
    let WholeStart { sent, mut order, start } = from;
    let is_placed = !matches!(start, Start::Beginning);
    let (mut number, mut next, mut is_unplaced) = (0u64, None, false);
    let mut checked = Ok(());
    // The place of the last row, and how many rows came from it.
    let mut last: Option<((Vec<u8>, u64), u64)> = None;
    let feed = &mut |sink: &mut Sink<'_>| match source {
        Feed::Items(candidates) => feed(reader, evaluator, candidates, sink),
        Feed::Index(fed) => fed.feed(reader, evaluator, sink),
    };
    evaluator.run(feed, &mut |row| {
        let place = order.as_ref().and_then(|order| order.place_of(row));
        let nth = match (&place, &mut last) {
            (Some(place), Some((before, count))) if place == before => {
                *count += 1;
                *count
            }
            _ => 0,
        };
        if let Some(place) = place.clone().filter(|_| nth == 0) {
            last = Some((place, 0));
        }
        let is_before = match &place {
            Some((key, tie)) => !start.admits(key, *tie) || nth < start.rows_done(key, *tie),
            None => false,
        };
        if place.is_none() {
            is_unplaced = is_placed;
            order = None;
        }
        if is_unplaced {
            return ControlFlow::Break(());
        }
        number += 1;
        if number <= sent || is_before {
            return ControlFlow::Continue(());
        }
        checked = row.check();
        if checked.is_err() {
            return ControlFlow::Break(());
        }
        if rows.push_row(row) {
            return ControlFlow::Continue(());
        }
        next = Some(match (&order, place) {
            (Some(order), Some((key, tie))) if key.len() <= order.key_bytes_max => {
                let rid = order.ties.turn(tie);
                WholeNext::Place { order: order.hash, place: Place { key, cut: None, rid, row: nth } }
            }
            _ => WholeNext::Row(number - 1),
        });
        ControlFlow::Break(())
    })?;
    checked?;
    if is_unplaced {
        let message =
            "A resumeFilter needs rows with '_rid' and 'orderByItems', as the plan of the query asks for.";
        return Err(EngineError::BadRequest { message: message.to_owned() });
    }
    Ok(next)
}

fn feed(
    reader: &mut Reader<'_>,
    evaluator: &Evaluator<'_>,
    candidates: &mut Candidates,
    sink: &mut Sink<'_>,
) -> Result<(), EngineError> {
    let walk = &mut |reader: &mut Reader<'_>, from, visit: &mut Visit<'_>| {
        candidates.visit(reader, from, usize::MAX, visit)
    };
    let end = visit_ahead(reader, evaluator, None, usize::MAX, &|_| Ok(true), walk, &mut |found| {
        let flow = evaluator.with_item(found, |item| sink(item, 1))?;
        Ok(if flow.is_break() { Next::Enough } else { Next::More })
    })?;
    reader.meter.matched = reader.meter.items;
    match end {
        End::Paused(_) => Err(SqlError::Budget { what: "a minute" }.into()),
        End::Done | End::Stopped => Ok(()),
    }
}
