//! Pages: how large one may be, what it says about itself; lists of items.

use std::time::{Duration, Instant};

use quire_sql::{Allowance, IndexMetrics, Reservation, Row, SqlError};

use super::continuation::{self, Binding, Resume, Started};
use super::view::View;
use super::window::{self, Spot, Window};
use crate::api::charge::{self, Cost};
use crate::api::{Answer, EngineError, Page, PageRequest, Position, QueryMetrics};
use crate::catalog::Container;
use crate::items::body::Links;
use crate::partition::Partition;
use crate::query::meter::{PageMeter, ScanBudget};
use crate::query::reader::{End, Next, Reader};
use crate::runtime::{Shared, allowance};

/// What the service sends when a client names no size.
pub(crate) const ROWS_DEFAULT: usize = 1000;
const PAGE_BYTES_MAX: usize = 4 << 20;
/// Memory for the text of a page is taken in pieces.
const TEXT_PIECE_BYTES: usize = 64 << 10;

/// Rows of a page as they are written.
pub(crate) struct Rows {
    text: Vec<u8>,
    count: usize,
    count_max: usize,
    /// The partition that the last row came from, where one is known.
    pub served_by: Option<u32>,
    /// Of the text, in the memory of its query; it stays until the answer is sent.
    memory: Option<Reservation>,
    failure: Option<SqlError>,
}

/// A page without its continuation, and what it cost.
pub(crate) struct Filled {
    pub rows: Rows,
    pub cost: Cost,
    pub next: Option<Resume>,
    pub ties_descending: bool,
    pub explain: Option<String>,
    pub index_metrics: Option<IndexMetrics>,
}

impl Filled {
    fn nothing(request: &PageRequest) -> Result<Filled, EngineError> {
        Ok(Filled::new(Rows::new(request, None)?, Cost::default()))
    }

    /// Rows in no order, and none to come.
    pub fn new(rows: Rows, cost: Cost) -> Filled {
        Filled { rows, cost, next: None, ties_descending: false, explain: None, index_metrics: None }
    }
}

impl Rows {
    pub fn new(request: &PageRequest, allowance: Option<&Allowance>) -> Result<Rows, EngineError> {
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
        Ok(Rows { text: vec![b'['], count: 0, count_max, served_by: None, memory, failure: None })
    }

    /// Writes a row of a query.
    pub fn push_row(&mut self, row: &Row<'_>) -> bool {
        let bytes = row.approximate_size();
        // The text of a row is hardly ever longer than twice this.
        if bytes > TEXT_PIECE_BYTES && !self.reserve(self.text.len().saturating_add(bytes.saturating_mul(2)))
        {
            return false;
        }
        self.push(|text| row.write_json(text))
    }

    /// Notes the failure when the query may not hold so much; the page then ends with it.
    fn reserve(&mut self, bytes: usize) -> bool {
        let Some(memory) = &mut self.memory else { return true };
        if bytes <= memory.bytes() {
            return true;
        }
        let pieces = bytes.checked_next_multiple_of(TEXT_PIECE_BYTES).unwrap_or(bytes);
        self.failure = memory.grow_to(pieces).err();
        self.failure.is_none()
    }

    /// The text of the page and the memory that it holds.
    fn finish(mut self) -> Result<(Vec<u8>, usize, Option<Reservation>), EngineError> {
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        self.text.push(b']');
        if let Some(memory) = &mut self.memory {
            memory.shrink_to(self.text.capacity());
        }
        Ok((self.text, self.count, self.memory))
    }

    /// Writes one more row; false, and nothing written, when the page has no room for it. A first row always has.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.count >= self.count_max || self.failure.is_some() {
            return false;
        }
        let before = self.text.len();
        if self.count > 0 {
            self.text.push(b',');
        }
        write(&mut self.text);
        if self.count > 0 && self.text.len() > PAGE_BYTES_MAX {
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

    /// How many more rows the page takes at most.
    pub fn room(&self) -> usize {
        self.count_max - self.count
    }
}

pub(crate) fn list_items(shared: &Shared, container: &Container, request: &PageRequest) -> Answer<Page> {
    answer_page(shared, container, request, |windows, resume| {
        let from = match resume {
            None => None,
            Some(Resume::List(spot)) => Some(spot),
            Some(_) => return Err(EngineError::BadContinuation),
        };
        let allowance = allowance::of_page(shared, &request.cancel);
        let meter = PageMeter::new(ScanBudget::PAGE, &allowance);
        let view = View::now(shared, container)?;
        let mut reader = Reader::new(shared, container, &view, windows, meter);
        fill_list(&mut reader, from, Rows::new(request, Some(&allowance))?)
    })
}

fn fill_list(reader: &mut Reader<'_>, from: Option<Spot>, mut rows: Rows) -> Result<Filled, EngineError> {
    let links = Links::new(reader.container);
    let mut full_at = None;
    let end = reader.scan(from, &mut |found| {
        let node = found.row.node()?;
        if rows.push(|text| links.write_json(node, found.spot.rid, &found.row.stamp, text)) {
            rows.served_by = Some(found.spot.partition);
            return Ok(Next::More);
        }
        full_at = Some(found.spot);
        Ok(Next::NotThis)
    })?;
    reader.meter.matched = reader.meter.items;
    let next = match end {
        End::Done => None,
        End::Stopped => full_at.map(Resume::List),
        End::Paused(spot) => Some(Resume::List(spot)),
    };
    Ok(Filled { next, ..Filled::new(rows, reader.meter.cost()) })
}

/// The frame of lists and queries: scope, session, position, continuation, metrics, charge.
pub(crate) fn answer_page<'a>(
    shared: &Shared,
    container: &'a Container,
    request: &PageRequest,
    fill: impl FnOnce(&[Window<'a>], Option<Resume>) -> Result<Filled, EngineError>,
) -> Answer<Page> {
    let started = Instant::now();
    let (mut position, mut charge) = (None, charge::REFUSED);
    let result = container.check_open().and_then(|()| {
        let Started { windows, resume, binding, is_elsewhere } =
            continuation::start(shared, container, request)?;
        reach(&windows, request, &mut position)?;
        let filled = if is_elsewhere { Filled::nothing(request)? } else { fill(&windows, resume)? };
        let next = next_partition(container, &windows, filled.next.as_ref());
        let served_by = filled.rows.served_by.and_then(|id| descendant(container, id)).or(next);
        if let (None, Some(partition)) = (&position, served_by) {
            position = Some(partition.position()?);
        }
        let range = next.map(|partition| partition.layout.range.clone());
        let Filled { rows, cost, next, ties_descending, explain, index_metrics } = filled;
        Ok((rows.finish()?, (cost, next, ties_descending, explain, index_metrics), binding, range))
    });
    let result = result.map(|((text, count, memory), filled, binding, range)| {
        let (cost, next, ties_descending, explain, index_metrics) = filled;
        charge = charge::page(&cost, count, text.len());
        let metrics = metrics(&cost, count, text.len(), started.elapsed());
        let continuation = next.map(|next| {
            let binding = binding.unwrap_or_else(|| Binding::new(container, &request.scope));
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
    windows: &[Window<'a>],
    next: Option<&Resume>,
) -> Option<&'a Partition> {
    let spot = match next {
        Some(Resume::List(spot) | Resume::Stream { spot, .. }) => Some(spot.partition),
        _ => None,
    };
    let begins = spot.and_then(|id| descendant(container, id));
    begins.or_else(|| windows.last().map(|window| window.partition))
}

/// A partition, or the first of those it was split into.
fn descendant(container: &Container, id: u32) -> Option<&Partition> {
    let all = container.partitions.all();
    all.iter().map(|partition| &**partition).find(|partition| partition.layout.descends_from(id))
}

pub(crate) fn metrics(cost: &Cost, count: usize, bytes: usize, elapsed: Duration) -> QueryMetrics {
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

/// The windows of the scope, each as far as the session asks.
pub(crate) fn prepare<'a>(
    container: &'a Container,
    request: &PageRequest,
    position: &mut Option<Position>,
) -> Result<Vec<Window<'a>>, EngineError> {
    container.check_open()?;
    let windows = window::windows(container, &request.scope)?;
    reach(&windows, request, position)?;
    Ok(windows)
}

/// Checks that each window is as far as the session asks. The position is that of the only partition, if it is one.
fn reach(
    windows: &[Window<'_>],
    request: &PageRequest,
    position: &mut Option<Position>,
) -> Result<(), EngineError> {
    for window in windows {
        if windows.len() == 1 {
            *position = Some(window.partition.position()?);
        }
        for partition in window.partitions() {
            let reached = partition.position_for(request.session.as_ref())?;
            if windows.len() == 1 && std::ptr::eq(partition, window.partition) {
                *position = Some(reached);
            }
        }
    }
    Ok(())
}
