//! Queries that need all items before their first row: aggregates, GROUP BY, DISTINCT, ORDER BY over no plain paths.
//!
//! Rows that have no room in the page are [held](crate::memory::results) for the next ones, which show what the items were when the
//! query was computed. A page whose rows are not held any more runs the query again and skips the rows that were
//! sent. A first page that ends before all items were read (DISTINCT) leaves the rest to the second: many clients never
//! ask for it. What takes longer than a minute is refused.
//!
//! A held row: 1 byte whether the row says where it stands in an order, then if so the tie, the number among the rows of
//! that place (8 bytes each, big-endian), the length of the sort key (4 bytes) and the key; then its text.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use quire_resource::{ChildKind, ResourceId};
use quire_sql::{ItemSink, QueryTemp, Row, SqlError};
use quire_storage::Token;
use quire_value::Value;

use super::super::continuation::{HeldRow, Place, QueryIdentity, Resume, order_hash, sort_key_bytes};
use super::super::page::Rows;
use super::evaluate::{Evaluator, Need};
use super::lookahead::visit_ahead;
use super::order::{Start, Ties, key_of_values};
use crate::api::{EngineError, corrupt};
use crate::memory::results::{HeldResult, ResultKey, ResultReader, ResultWriter};
use crate::query::follow::{ITEMS_MAX, followed_in};
use crate::query::meter::PageMeter;
use crate::query::plan::candidates::Candidates;
use crate::query::plan::index_only::Fed;
use crate::query::reader::{End, Next, Reader, Visit};
use crate::query::{Run, no_order};
use crate::runtime::Shared;
use crate::store::random_token;

/// Where the items come from.
pub(crate) enum Feed {
    Items(Candidates),
    Index(Fed),
    /// The items that give the rows up to the end of the page, and not those behind it.
    First(Candidates),
    /// The aggregates themselves.
    Counted(Vec<Value>),
}

/// Where the page begins. Rows that say where they stand in the order (`_rid` and `orderByItems`, as plans ask for them) are
/// resumed by that place, which holds when the filter changes; all others by their number.
pub(crate) struct WholeStart {
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
pub(crate) enum WholeNext {
    Row { sent: u64, result: Option<u64> },
    Place { order: u64, place: Place, held: Option<HeldRow> },
}

/// What is done with rows that have no room in the page.
pub(crate) struct Holding<'h> {
    pub shared: &'h Shared,
    pub temp: Option<&'h Arc<QueryTemp>>,
    pub identity: &'h QueryIdentity<'h>,
    /// How far each partition was before the snapshot.
    pub positions: Vec<(u32, u64)>,
    /// The client has asked for a further page.
    pub is_resumed: bool,
}

impl WholeStart {
    /// The number of rows before the page; `None`: not told by the place where it begins.
    pub fn sent(&self) -> Option<u64> {
        matches!(self.start, Start::Beginning).then_some(self.sent)
    }

    pub fn of(run: &Run<'_>, resume: &Option<Resume>) -> Result<WholeStart, EngineError> {
        let columns = run.query.order_columns();
        let order = (!columns.is_empty()).then(|| RowOrder {
            container: run.container.resource.rid,
            descending: columns.iter().map(|(_, descending)| *descending).collect(),
            ties: Ties::new(run.query.ties_descending()),
            hash: order_hash(columns.iter().map(|(text, descending)| (text.as_str(), *descending))),
            key_bytes_max: sort_key_bytes(run.request),
        });
        let (mut start, mut sent) = (Start::Beginning, 0);
        match (resume, &order) {
            (None, _) => {}
            (Some(Resume::Block { query, sent: rows, .. }), _) if *query == run.identity.hash() => {
                sent = *rows
            }
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

/// Sort key and tie of a row, and how many rows of that place came before it.
type Standing = ((Vec<u8>, u64), u64);

impl RowOrder {
    /// Where the next page begins, at this row.
    fn next(&self, ((key, tie), nth): Standing, held: Option<HeldRow>) -> Option<WholeNext> {
        if key.len() > self.key_bytes_max {
            return None;
        }
        let place = Place { key, cut: None, rid: self.ties.turn(tie), row: nth };
        Some(WholeNext::Place { order: self.hash, place, held })
    }
}

/// The rows of a page; where the next one begins, if there is one.
pub(crate) fn whole(
    reader: &mut Reader<'_>,
    evaluator: &Evaluator<'_>,
    source: &mut Feed,
    rows: &mut Rows,
    from: WholeStart,
    holding: Option<&Holding<'_>>,
) -> Result<Option<WholeNext>, EngineError> {
    let WholeStart { sent, mut order, start } = from;
    let is_placed = !matches!(start, Start::Beginning);
    let (mut number, mut is_unplaced) = (0u64, false);
    let mut checked = Ok(());
    // The first row that has no room: how many came before it, and where it stands.
    let mut next: Option<(u64, Option<Standing>)> = None;
    let mut held: Option<ResultWriter> = None;
    let mut is_held_whole = true;
    // The place of the last row, and how many rows came from it.
    let mut last: Option<Standing> = None;
    // What follows the rows of the page is not among these items.
    let holding = holding.filter(|_| !matches!(source, Feed::First(_)));
    let counted = match source {
        Feed::Counted(aggregates) => Some(std::mem::take(aggregates)),
        _ => None,
    };
    // Rows that are items: how many follow from those of the page.
    let (is_followed, mut followed) = (evaluator.followed.adds_members(), 0);
    let is_fed = Cell::new(false);
    let feed = &mut |sink: &mut ItemSink<'_>| {
        match source {
            Feed::Items(candidates) | Feed::First(candidates) => feed(reader, evaluator, candidates, sink)?,
            Feed::Index(fed) => fed.feed(reader, evaluator, sink)?,
            Feed::Counted(_) => {}
        }
        is_fed.set(true);
        Ok(())
    };
    let mut emit = |row: &Row<'_>| {
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
        let row_checked = row.check();
        let standing = place.map(|place| (place, nth));
        if next.is_none() {
            checked = row_checked;
            if checked.is_err() {
                return ControlFlow::Break(());
            }
            let follows = follows_of(row, is_followed);
            if (rows.count() == 0 || followed + follows <= ITEMS_MAX) && rows.push_row(row) {
                followed += follows;
                return ControlFlow::Continue(());
            }
            next = Some((number - 1, standing.clone()));
            held = holding
                .filter(|holding| !rows.has_failed() && (holding.is_resumed || is_fed.get()))
                .map(|holding| ResultWriter::new(holding.identity.result_owner(), number - 1, holding.temp));
        } else if row_checked.is_err() {
            // The page that comes to it says so.
            is_held_whole = false;
            return ControlFlow::Break(());
        }
        let is_held = held.as_mut().is_some_and(|held| push_held(held, standing.as_ref(), row));
        if !is_held {
            held = None;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    let ran = match counted {
        Some(aggregates) => evaluator.run_with_aggregates(aggregates, &mut emit),
        None => evaluator.run(feed, &mut emit),
    };
    match ran {
        Err(error @ EngineError::Cancelled) => return Err(error),
        // The page itself is there.
        Err(_) if next.is_some() => held = None,
        ran => ran?,
    }
    checked?;
    if is_followed {
        evaluator.followed.set_sent(followed);
    }
    if is_unplaced {
        let message =
            "A resumeFilter needs rows with '_rid' and 'orderByItems', as the plan of the query asks for.";
        return Err(EngineError::BadRequest { message: message.to_owned() });
    }
    let Some((sent, standing)) = next else { return Ok(None) };
    let result = match (held, holding) {
        (Some(held), Some(holding)) => hold(holding, held, is_held_whole)?,
        _ => None,
    };
    let held = result.map(|result| HeldRow { result, number: sent });
    let placed = order.zip(standing).and_then(|(order, standing)| order.next(standing, held));
    Ok(Some(placed.unwrap_or(WholeNext::Row { sent, result })))
}

/// Items that a row has as a member, where rows get one.
fn follows_of(row: &Row<'_>, is_followed: bool) -> u64 {
    if is_followed { followed_in(&row.to_value()) } else { 0 }
}

/// The number of the result, if it is held.
fn hold(holding: &Holding<'_>, held: ResultWriter, is_whole: bool) -> Result<Option<u64>, EngineError> {
    let Ok(held) = held.finish(is_whole) else { return Ok(None) };
    let Token(random) = random_token()?;
    let number = random as u64;
    holding.shared.results.hold(ResultKey::Rows(number), Arc::new(held));
    Ok(Some(number))
}

/// False where there is no room.
fn push_held(held: &mut ResultWriter, standing: Option<&Standing>, row: &Row<'_>) -> bool {
    let mut head = vec![u8::from(standing.is_some())];
    if let Some(((key, tie), nth)) = standing {
        head.extend(tie.to_be_bytes());
        head.extend(nth.to_be_bytes());
        head.extend((key.len() as u32).to_be_bytes());
        head.extend_from_slice(key);
    }
    let mut text = Vec::new();
    row.write_json(&mut text);
    held.push([&head, &text]).unwrap_or(false)
}

/// Where a held row stands, and its text.
fn read_held(record: &[u8]) -> Option<(Option<Standing>, &[u8])> {
    let (&is_placed, rest) = record.split_first()?;
    if is_placed == 0 {
        return Some((None, rest));
    }
    let (tie, rest) = rest.split_first_chunk()?;
    let (nth, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (key, text) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((Some(((key.to_vec(), u64::from_be_bytes(*tie)), u64::from_be_bytes(*nth))), text))
}

/// Fills the page with rows of a held result, from a row that it has.
pub(crate) fn held_page(
    meter: &PageMeter,
    reader: &mut ResultReader<'_>,
    result: (u64, &HeldResult),
    rows: &mut Rows,
    from: &WholeStart,
) -> Result<Option<WholeNext>, EngineError> {
    let (number, held) = result;
    loop {
        let sent = reader.number;
        let Some(record) = reader.next()? else { break };
        meter.spend(1 + record.len() as u64 / 16)?;
        let (standing, text) = read_held(record).ok_or_else(|| corrupt("held row"))?;
        if rows.push(|out| out.extend_from_slice(text)) {
            continue;
        }
        let next = HeldRow { result: number, number: sent };
        let placed =
            from.order.as_ref().zip(standing).and_then(|(order, standing)| order.next(standing, Some(next)));
        return Ok(Some(placed.unwrap_or(WholeNext::Row { sent, result: Some(number) })));
    }
    // What follows was not held: it is computed.
    Ok((!held.is_complete).then_some(WholeNext::Row { sent: reader.number, result: None }))
}

fn feed(
    reader: &mut Reader<'_>,
    evaluator: &Evaluator<'_>,
    candidates: &mut Candidates,
    sink: &mut ItemSink<'_>,
) -> Result<(), EngineError> {
    let walk = &mut |reader: &mut Reader<'_>, from, visit: &mut Visit<'_>| {
        candidates.visit(reader, from, usize::MAX, visit)
    };
    let end =
        visit_ahead(reader, (evaluator, Need::Rows), None, usize::MAX, &|_| Ok(true), walk, &mut |found| {
            let flow = evaluator.with_item(found, |item| sink(item, 1))?;
            Ok(if flow.is_break() { Next::Enough } else { Next::More })
        })?;
    reader.meter.matched = reader.meter.items;
    match end {
        End::Paused(_) => Err(SqlError::Budget { what: "a minute" }.into()),
        End::Done | End::Stopped => Ok(()),
    }
}
