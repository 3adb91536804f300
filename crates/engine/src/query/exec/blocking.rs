//! Blocking queries: they need all items before their first row. These are aggregates, GROUP BY, DISTINCT and ORDER BY
//! over anything but plain paths.
//!
//! Rows that do not fit into the page go into the [result cache](crate::memory::result_cache) for the next pages, which
//! show the items as they were when the query ran. A page whose rows are no longer cached runs the query again and
//! skips the rows that were sent. A first page that ends before all items were read (DISTINCT) leaves the rest to the
//! second: many clients never request it. A query that runs longer than a minute is refused.
//!
//! A cached row: 1 byte whether the row has a position in an order; if so the tie, the number among the rows of that
//! position (8 bytes each, big-endian), the length of the sort key (4 bytes) and the key; then its text.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use quire_resource::{ChildKind, ResourceId};
use quire_sql::{ItemSink, QueryTemp, Row, SqlError};
use quire_storage::Token;
use quire_value::Value;

use super::super::continuation::{
    CachedRowRef, QueryIdentity, Resume, SortPosition, order_hash, sort_key_bytes,
};
use super::super::page::PageRows;
use super::evaluate::{EvaluationNeed, ItemEvaluator};
use super::lookahead::visit_ahead;
use super::order::{SortStart, TieOrder, key_of_values};
use crate::api::{EngineError, corrupt};
use crate::memory::result_cache::{CachedResult, ResultKey, ResultReader, ResultWriter};
use crate::query::follow::{ITEMS_MAX, followed_in};
use crate::query::meter::PageMeter;
use crate::query::plan::candidates::Candidates;
use crate::query::plan::index_only::IndexInput;
use crate::query::reader::{ItemVisitor, ScanEnd, ScopeReader, VisitNext};
use crate::query::{PageExecution, no_order};
use crate::runtime::Shared;
use crate::store::random_token;

/// Where the items come from.
pub(crate) enum BlockingInput {
    Items(Candidates),
    Index(IndexInput),
    /// The items whose rows fill the page and the pages before it.
    First(Candidates),
    /// The aggregates themselves.
    Counted(Vec<Value>),
}

/// Where the page begins. Rows that have their position (`_rid` and `orderByItems`, as plans request them) resume at
/// that position, which stays valid when the filter changes. All other rows resume by their number.
pub(crate) struct BlockingStart {
    sent: u64,
    /// Of a query with ORDER BY whose rows have their positions.
    order: Option<RowOrder>,
    start: SortStart,
}

/// The order of rows that have their positions.
struct RowOrder {
    container: ResourceId,
    descending: Vec<bool>,
    ties: TieOrder,
    hash: u64,
    key_bytes_max: usize,
}

/// Where the next page begins.
pub(crate) enum BlockingNext {
    Row { sent: u64, result: Option<u64> },
    Place { order: u64, place: SortPosition, held: Option<CachedRowRef> },
}

/// How rows that do not fit into the page are cached.
pub(crate) struct ResultCaching<'h> {
    pub shared: &'h Shared,
    pub temp: Option<&'h Arc<QueryTemp>>,
    pub identity: &'h QueryIdentity<'h>,
    /// The LSN of each partition before the snapshot.
    pub positions: Vec<(u32, u64)>,
    /// The request continues an earlier page.
    pub is_resumed: bool,
}

impl BlockingStart {
    /// The number of rows before the page; `None`: the position does not contain it.
    pub fn sent(&self) -> Option<u64> {
        matches!(self.start, SortStart::Beginning).then_some(self.sent)
    }

    pub fn of(run: &PageExecution<'_>, resume: &Option<Resume>) -> Result<BlockingStart, EngineError> {
        let columns = run.query.order_columns();
        let order = (!columns.is_empty()).then(|| RowOrder {
            container: run.container.resource.rid,
            descending: columns.iter().map(|(_, descending)| *descending).collect(),
            ties: TieOrder::new(run.query.ties_descending()),
            hash: order_hash(columns.iter().map(|(text, descending)| (text.as_str(), *descending))),
            key_bytes_max: sort_key_bytes(run.request),
        });
        let (mut start, mut sent) = (SortStart::Beginning, 0);
        match (resume, &order) {
            (None, _) => {}
            (Some(Resume::Block { query, sent: rows, .. }), _) if *query == run.identity.hash() => {
                sent = *rows
            }
            (Some(Resume::Sorted { order, place, .. }), Some(own)) if *order == own.hash => {
                let SortPosition { key, rid, row, .. } = place.clone();
                start = SortStart::At { key, tie: own.ties.rid_or_tie(rid), row };
            }
            _ => return Err(EngineError::BadContinuation),
        }
        match (&run.request.resume, &order) {
            (None, _) => {}
            (Some(filter), Some(order)) => {
                start = start.later(SortStart::named(filter, &order.descending, order.ties)?)
            }
            (Some(_), None) => return Err(no_order()),
        }
        Ok(BlockingStart { sent, order, start })
    }
}

impl RowOrder {
    /// Sort key and tie of a row; `None`: the row has no position.
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
            ) if (database, container) == (own_database, own_container) => {
                Some((key, self.ties.rid_or_tie(child)))
            }
            _ => None,
        }
    }
}

/// Sort key and tie of a row, and the number of rows before it with the same key and tie.
type RowPosition = ((Vec<u8>, u64), u64);

impl RowOrder {
    /// Where the next page begins, at this row.
    fn next(&self, ((key, tie), nth): RowPosition, held: Option<CachedRowRef>) -> Option<BlockingNext> {
        if key.len() > self.key_bytes_max {
            return None;
        }
        let place = SortPosition { key, truncated: None, rid: self.ties.rid_or_tie(tie), row: nth };
        Some(BlockingNext::Place { order: self.hash, place, held })
    }
}

/// The rows of a page; where the next one begins, if there is one.
pub(crate) fn run_blocking(
    reader: &mut ScopeReader<'_>,
    evaluator: &ItemEvaluator<'_>,
    source: &mut BlockingInput,
    rows: &mut PageRows,
    from: BlockingStart,
    holding: Option<&ResultCaching<'_>>,
) -> Result<Option<BlockingNext>, EngineError> {
    let BlockingStart { sent, mut order, start } = from;
    let is_placed = !matches!(start, SortStart::Beginning);
    let (mut number, mut is_unplaced) = (0u64, false);
    let mut checked = Ok(());
    // The first row that does not fit: the number of rows before it, and its position.
    let mut next: Option<(u64, Option<RowPosition>)> = None;
    let mut held: Option<ResultWriter> = None;
    let mut is_held_whole = true;
    // The position of the last row, and the number of rows with it.
    let mut last: Option<RowPosition> = None;
    // The rows of the next page are not from these items.
    let holding = holding.filter(|_| !matches!(source, BlockingInput::First(_)));
    let counted = match source {
        BlockingInput::Counted(aggregates) => Some(std::mem::take(aggregates)),
        _ => None,
    };
    // Rows that are items: how many follow from those of the page.
    let (is_followed, mut followed) = (evaluator.followed.adds_members(), 0);
    let is_fed = Cell::new(false);
    let feed = &mut |sink: &mut ItemSink<'_>| {
        match source {
            BlockingInput::Items(candidates) | BlockingInput::First(candidates) => {
                feed(reader, evaluator, candidates, sink)?
            }
            BlockingInput::Index(fed) => fed.feed(reader, evaluator, sink)?,
            BlockingInput::Counted(_) => {}
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
            // The page that reaches the failure reports it.
            is_held_whole = false;
            return ControlFlow::Break(());
        }
        let is_held = held.as_mut().is_some_and(|held| push_cached(held, standing.as_ref(), row));
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
        // The rows of this page are complete.
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
        (Some(held), Some(holding)) => cache_rows(holding, held, is_held_whole)?,
        _ => None,
    };
    let held = result.map(|result| CachedRowRef { result, number: sent });
    let placed = order.zip(standing).and_then(|(order, standing)| order.next(standing, held));
    Ok(Some(placed.unwrap_or(BlockingNext::Row { sent, result })))
}

/// Items that a row has as a member, where rows get one.
fn follows_of(row: &Row<'_>, is_followed: bool) -> u64 {
    if is_followed { followed_in(&row.to_value()) } else { 0 }
}

/// The number of the cached result, if there is one.
fn cache_rows(
    holding: &ResultCaching<'_>,
    held: ResultWriter,
    is_whole: bool,
) -> Result<Option<u64>, EngineError> {
    let Ok(held) = held.finish(is_whole) else { return Ok(None) };
    let Token(random) = random_token()?;
    let number = random as u64;
    holding.shared.result_cache.insert(ResultKey::Rows(number), Arc::new(held));
    Ok(Some(number))
}

/// False: it does not fit.
fn push_cached(held: &mut ResultWriter, standing: Option<&RowPosition>, row: &Row<'_>) -> bool {
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

/// The position of a cached row, and its text.
fn read_cached(record: &[u8]) -> Option<(Option<RowPosition>, &[u8])> {
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

/// Fills the page from a cached result, beginning with a row that it contains.
pub(crate) fn cached_page(
    meter: &PageMeter,
    reader: &mut ResultReader<'_>,
    result: (u64, &CachedResult),
    rows: &mut PageRows,
    from: &BlockingStart,
) -> Result<Option<BlockingNext>, EngineError> {
    let (number, held) = result;
    loop {
        let sent = reader.number;
        let Some(record) = reader.next()? else { break };
        meter.spend(1 + record.len() as u64 / 16)?;
        let (standing, text) = read_cached(record).ok_or_else(|| corrupt("held row"))?;
        if rows.push(|out| out.extend_from_slice(text)) {
            continue;
        }
        let next = CachedRowRef { result: number, number: sent };
        let placed =
            from.order.as_ref().zip(standing).and_then(|(order, standing)| order.next(standing, Some(next)));
        return Ok(Some(placed.unwrap_or(BlockingNext::Row { sent, result: Some(number) })));
    }
    // The rows after these were not cached: the query computes them.
    Ok((!held.is_complete).then_some(BlockingNext::Row { sent: reader.number, result: None }))
}

fn feed(
    reader: &mut ScopeReader<'_>,
    evaluator: &ItemEvaluator<'_>,
    candidates: &mut Candidates,
    sink: &mut ItemSink<'_>,
) -> Result<(), EngineError> {
    let walk = &mut |reader: &mut ScopeReader<'_>, from, visit: &mut ItemVisitor<'_>| {
        candidates.visit(reader, from, usize::MAX, visit)
    };
    let end = visit_ahead(
        reader,
        (evaluator, EvaluationNeed::Rows),
        None,
        usize::MAX,
        &|_| Ok(true),
        walk,
        &mut |found| {
            let flow = evaluator.with_item(found, |item| sink(item, 1))?;
            Ok(if flow.is_break() { VisitNext::Enough } else { VisitNext::More })
        },
    )?;
    reader.meter.matched = reader.meter.items;
    match end {
        ScanEnd::Paused(_) => Err(SqlError::Budget { what: "a minute" }.into()),
        ScanEnd::Done | ScanEnd::Stopped => Ok(()),
    }
}
