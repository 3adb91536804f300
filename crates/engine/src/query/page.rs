//! Pages: their size, their metrics, and lists of items.

use std::time::{Duration, Instant};

use quire_sql::{Allowance, IndexMetrics, Reservation, Row, SqlError};

use super::continuation::{self, PageStart, Resume, TokenBinding};
use super::partition_scope::{self, ItemPosition, PartitionScope};
use super::read_snapshot::ReadSnapshot;
use crate::api::charge::{self, PageCost};
use crate::api::{Answer, EngineError, Page, PageRequest, QueryMetrics, SessionPosition};
use crate::catalog::Container;
use crate::items::body::SelfLinks;
use crate::partition::Partition;
use crate::query::meter::{PageMeter, ScanBudget};
use crate::query::reader::{ScanEnd, ScopeReader, VisitNext};
use crate::runtime::{Shared, allowance};

/// The page size of the service when a client names none.
pub(crate) const ROWS_DEFAULT: usize = 1000;
const PAGE_BYTES_MAX: usize = 4 << 20;
/// Room for a few items, so that small pages need not grow.
const TEXT_BYTES_FIRST: usize = 16 << 10;
/// Memory for the text of a row of at most this size is reserved when it is written, not before.
const ROW_BYTES_SMALL: usize = 8 << 10;
/// Memory for the text of a page is reserved in blocks of this size.
const TEXT_PIECE_BYTES: usize = 64 << 10;

/// The text of a page, the bytes of its rows and their number, and its memory reservation.
pub(crate) type FinishedRows = (Vec<u8>, (usize, usize), Option<Reservation>);

/// Rows of a page as they are written.
pub(crate) struct PageRows {
    text: Vec<u8>,
    /// Bytes of the text before the rows.
    head_bytes: usize,
    count: usize,
    count_max: usize,
    /// The partition of the last row, if rows come from single partitions.
    pub served_by: Option<u32>,
    /// The memory of the text, reserved until the response is made.
    memory: Option<Reservation>,
    failure: Option<SqlError>,
}

/// A page without its continuation, and what it cost.
pub(crate) struct FilledPage {
    pub rows: PageRows,
    pub cost: PageCost,
    pub next: Option<Resume>,
    pub ties_descending: bool,
    pub explain: Option<String>,
    pub index_metrics: Option<IndexMetrics>,
}

impl FilledPage {
    pub fn nothing(request: &PageRequest) -> Result<FilledPage, EngineError> {
        Ok(FilledPage::new(PageRows::new(request, None)?, PageCost::default()))
    }

    /// A last page, of rows without an order.
    pub fn new(rows: PageRows, cost: PageCost) -> FilledPage {
        FilledPage { rows, cost, next: None, ties_descending: false, explain: None, index_metrics: None }
    }
}

impl PageRows {
    pub fn new(request: &PageRequest, allowance: Option<&Allowance>) -> Result<PageRows, EngineError> {
        let count_max = match request.item_count_max {
            None | Some(0) => ROWS_DEFAULT,
            Some(-1) => usize::MAX,
            Some(count) => usize::try_from(count).map_err(|_| EngineError::BadRequest {
                message: format!(
                    "The input PageSize {count} is invalid. Ensure to pass a valid page size which must be a positive \
                     integer or -1 for a dynamic page size"
                ),
            })?,
        };
        let memory = allowance.map(|allowance| allowance.memory().reserve(0)).transpose()?;
        let mut text = Vec::with_capacity(TEXT_BYTES_FIRST);
        text.extend_from_slice(&request.head);
        text.push(b'[');
        let head_bytes = request.head.len();
        Ok(PageRows { text, head_bytes, count: 0, count_max, served_by: None, memory, failure: None })
    }

    /// Writes a row of a query.
    pub fn push_row(&mut self, row: &Row<'_>) -> bool {
        if row.is_small(ROW_BYTES_SMALL) || self.reserve_for(row.approximate_size()) {
            self.push(|text| row.write_json(text))
        } else {
            false
        }
    }

    /// Before a row of about this size is written.
    fn reserve_for(&mut self, row_bytes: usize) -> bool {
        // The text of a row is hardly ever longer than twice this.
        row_bytes <= TEXT_PIECE_BYTES
            || self.reserve(self.text.len().saturating_add(row_bytes.saturating_mul(2)))
    }

    /// Records the failure if the query may not use so much memory; the page then ends with it.
    fn reserve(&mut self, bytes: usize) -> bool {
        let Some(memory) = &mut self.memory else { return true };
        if bytes <= memory.bytes() {
            return true;
        }
        let pieces = bytes.checked_next_multiple_of(TEXT_PIECE_BYTES).unwrap_or(bytes);
        self.failure = memory.grow_to(pieces).err();
        self.failure.is_none()
    }

    pub fn finish(mut self) -> Result<FinishedRows, EngineError> {
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        self.text.push(b']');
        if let Some(memory) = &mut self.memory {
            memory.shrink_to(self.text.capacity());
        }
        let bytes = self.text.len() - self.head_bytes;
        Ok((self.text, (bytes, self.count), self.memory))
    }

    /// Writes one more row. False: the page is full, and nothing was written. A first row always fits.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.count >= self.count_max || self.failure.is_some() {
            return false;
        }
        let before = self.text.len();
        if self.count > 0 {
            self.text.push(b',');
        }
        write(&mut self.text);
        if self.count > 0 && self.text.len() - self.head_bytes > PAGE_BYTES_MAX {
            self.text.truncate(before);
            return false;
        }
        self.count += 1;
        self.reserve(self.text.capacity())
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether the page ends with an error instead of rows.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The number of rows that still fit.
    pub fn room(&self) -> usize {
        self.count_max - self.count
    }
}

pub(crate) fn list_items(shared: &Shared, container: &Container, request: &PageRequest) -> Answer<Page> {
    answer_page(shared, container, request, |scopes, resume| {
        let from = match resume {
            None => None,
            Some(Resume::List(position)) => Some(position),
            Some(_) => return Err(EngineError::BadContinuation),
        };
        let allowance = allowance::of_page(shared, &request.cancel);
        let meter = PageMeter::new(ScanBudget::PAGE, &allowance);
        let read_snapshot = ReadSnapshot::take(shared, container)?;
        let mut reader = ScopeReader::new(shared, container, &read_snapshot, scopes, meter);
        fill_list(&mut reader, from, PageRows::new(request, Some(&allowance))?)
    })
}

fn fill_list(
    reader: &mut ScopeReader<'_>,
    from: Option<ItemPosition>,
    mut rows: PageRows,
) -> Result<FilledPage, EngineError> {
    let links = SelfLinks::new(reader.container);
    let mut full_at = None;
    let end = reader.scan(from, &mut |found| {
        let node = found.row.node()?;
        if rows.push(|text| links.write_json(node, found.position.rid, &found.row.stamp, text)) {
            rows.served_by = Some(found.position.partition);
            return Ok(VisitNext::More);
        }
        full_at = Some(found.position);
        Ok(VisitNext::NotThis)
    })?;
    reader.meter.matched = reader.meter.items;
    let next = match end {
        ScanEnd::Done => None,
        ScanEnd::Stopped => full_at.map(Resume::List),
        ScanEnd::Paused(position) => Some(Resume::List(position)),
    };
    Ok(FilledPage { next, ..FilledPage::new(rows, reader.meter.cost()) })
}

/// What lists and queries share: scope, session, position, continuation, metrics, charge.
pub(crate) fn answer_page<'a>(
    shared: &Shared,
    container: &'a Container,
    request: &PageRequest,
    fill: impl FnOnce(&[PartitionScope<'a>], Option<Resume>) -> Result<FilledPage, EngineError>,
) -> Answer<Page> {
    let started = Instant::now();
    let (mut position, mut charge) = (None, charge::REFUSED);
    let result = container.check_open().and_then(|()| {
        let PageStart { scopes, resume, binding, is_elsewhere } =
            continuation::start(shared, container, request)?;
        check_session_reached(&scopes, request, &mut position)?;
        let filled = if is_elsewhere { FilledPage::nothing(request)? } else { fill(&scopes, resume)? };
        let next = next_partition(container, &scopes, filled.next.as_ref());
        let served_by = filled.rows.served_by.and_then(|id| descendant(container, id)).or(next);
        if let (None, Some(partition)) = (&position, served_by) {
            position = Some(partition.position()?);
        }
        let range = next.map(|partition| partition.layout.range.clone());
        let FilledPage { rows, cost, next, ties_descending, explain, index_metrics } = filled;
        Ok((rows.finish()?, (cost, next, ties_descending, explain, index_metrics), binding, range))
    });
    let result = result.map(|((text, (bytes, count), memory), filled, binding, range)| {
        let (cost, next, ties_descending, explain, index_metrics) = filled;
        charge = charge::page(&cost, count, bytes);
        let metrics = metrics(&cost, count, bytes, started.elapsed());
        let continuation = next.map(|next| {
            let binding = binding.unwrap_or_else(|| TokenBinding::new(container, &request.scope));
            continuation::seal(shared, &binding, &next)
        });
        Page {
            rows: text,
            count,
            continuation,
            range,
            ties_descending,
            metrics,
            explain,
            index_metrics,
            followed: cost.follow.sent,
            memory,
        }
    });
    Answer { charge, position, result }
}

/// The partition in which the next page begins, or the last.
fn next_partition<'a>(
    container: &'a Container,
    scopes: &[PartitionScope<'a>],
    next: Option<&Resume>,
) -> Option<&'a Partition> {
    let position = match next {
        Some(Resume::List(position) | Resume::Stream { position, .. }) => Some(position.partition),
        _ => None,
    };
    let begins = position.and_then(|id| descendant(container, id));
    begins.or_else(|| scopes.last().map(|scope| scope.partition))
}

/// A partition, or the first of those it was split into.
fn descendant(container: &Container, id: u32) -> Option<&Partition> {
    let all = container.partitions.all();
    all.iter().map(|partition| &**partition).find(|partition| partition.layout.descends_from(id))
}

pub(crate) fn metrics(cost: &PageCost, count: usize, bytes: usize, elapsed: Duration) -> QueryMetrics {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    QueryMetrics {
        loaded_count: cost.items,
        loaded_bytes: cost.bytes,
        output_count: count as u64,
        output_bytes: bytes as u64,
        compile_micros: micros(cost.compile),
        execute_micros: micros(elapsed.saturating_sub(cost.compile)),
        plan_micros: micros(cost.plan),
        index_rows: cost.index_rows,
        index_micros: micros(cost.index),
        load_micros: micros(cost.load),
        write_micros: 0,
        index_hit_ratio: if cost.items == 0 { 1.0 } else { cost.matched as f64 / cost.items as f64 },
    }
}

/// The partition scopes of a request. Each partition has reached the LSN of the session.
pub(crate) fn prepare<'a>(
    container: &'a Container,
    request: &PageRequest,
    position: &mut Option<SessionPosition>,
) -> Result<Vec<PartitionScope<'a>>, EngineError> {
    container.check_open()?;
    let scopes = partition_scope::partition_scopes(container, &request.scope)?;
    check_session_reached(&scopes, request, position)?;
    Ok(scopes)
}

/// Checks that each partition has reached the LSN of the session. The position is that of the partition, if there is
/// only one.
fn check_session_reached(
    scopes: &[PartitionScope<'_>],
    request: &PageRequest,
    position: &mut Option<SessionPosition>,
) -> Result<(), EngineError> {
    for scope in scopes {
        for partition in scope.partitions() {
            let is_named = scopes.len() == 1;
            match partition.position_for(request.session.as_ref()) {
                Ok(reached) if is_named && std::ptr::eq(partition, scope.partition) => {
                    *position = Some(reached);
                }
                Ok(_) => {}
                Err(error) => {
                    if is_named {
                        *position = Some(scope.partition.position()?);
                    }
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}
