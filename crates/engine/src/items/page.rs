//! Pages: how large one may be, what it says about itself; lists of items.

use std::time::Instant;

use super::body::Links;
use super::continuation::{self, Binding, Resume};
use super::row::Row;
use super::scan::{self, ScanBudget, Scanner, Step, Window};
use crate::api::{Answer, Page, PageRequest, Position, QueryMetrics};
use crate::shared::Shared;
use crate::{Container, EngineError, charge};

/// What the service sends when a client names no size.
const ROWS_DEFAULT: usize = 1000;
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Rows of a page as they are written.
pub(crate) struct Rows {
    text: Vec<u8>,
    count: usize,
    count_max: usize,
}

/// A page without its continuation, and what it cost.
pub(crate) struct Filled {
    pub rows: Rows,
    pub loaded_count: u64,
    pub loaded_bytes: u64,
    pub partitions: usize,
    pub next: Option<Resume>,
}

impl Rows {
    pub fn new(request: &PageRequest) -> Result<Rows, EngineError> {
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
        Ok(Rows { text: vec![b'['], count: 0, count_max })
    }

    /// Writes one more row; false, and nothing written, when the page has no room for it. A first row always has.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.count >= self.count_max {
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
        true
    }

    pub fn count(&self) -> usize {
        self.count
    }
}

pub(crate) fn list_items(shared: &Shared, container: &Container, request: &PageRequest) -> Answer<Page> {
    answer_page(shared, container, request, |windows| {
        let binding = Binding::new(container, None, &request.scope);
        let from = match continuation::open(shared, &binding, request)? {
            None => None,
            Some(Resume::List(spot)) => Some(spot),
            Some(_) => return Err(EngineError::BadContinuation),
        };
        let scanner = Scanner::new(shared, container, windows, from, ScanBudget::PAGE)?;
        Ok((fill_list(container, request, scanner)?, binding, 0))
    })
}

fn fill_list(
    container: &Container,
    request: &PageRequest,
    mut scanner: Scanner<'_>,
) -> Result<Filled, EngineError> {
    let links = Links::new(container);
    let mut rows = Rows::new(request)?;
    scanner.expect(rows.count_max);
    let next = loop {
        let found = match scanner.next()? {
            Step::Item(found) => found,
            Step::Pause(spot) => break Some(Resume::List(spot)),
            Step::End => break None,
        };
        let row = Row::parse(&found.bytes)?;
        let node = row.node()?;
        if !rows.push(|text| links.write_json(node, found.spot.rid, &row.stamp, text)) {
            scanner.put_back(&found);
            break Some(Resume::List(found.spot));
        }
    };
    Ok(Filled::new(rows, &scanner, next))
}

impl Filled {
    pub fn new(rows: Rows, scanner: &Scanner<'_>, next: Option<Resume>) -> Filled {
        Filled {
            rows,
            loaded_count: scanner.rows,
            loaded_bytes: scanner.bytes,
            partitions: scanner.partitions,
            next,
        }
    }
}

/// The frame of lists and queries: scope, session, position, metrics, charge. `fill` also gives the microseconds it
/// took to compile.
pub(crate) fn answer_page<'a>(
    shared: &Shared,
    container: &'a Container,
    request: &PageRequest,
    fill: impl FnOnce(&[Window<'a>]) -> Result<(Filled, Binding, u64), EngineError>,
) -> Answer<Page> {
    let started = Instant::now();
    let (mut position, mut charge) = (None, charge::REFUSED);
    let result = prepare(container, request, &mut position).and_then(|windows| fill(&windows));
    let result = result.map(|(filled, binding, compile_micros)| {
        let Filled { rows: Rows { mut text, count, .. }, .. } = filled;
        text.push(b']');
        charge = charge::page(filled.partitions.max(1), filled.loaded_count, count, text.len());
        let elapsed = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let metrics = QueryMetrics {
            loaded_count: filled.loaded_count,
            loaded_bytes: filled.loaded_bytes,
            output_count: count as u64,
            output_bytes: text.len() as u64,
            compile_micros,
            execute_micros: elapsed.saturating_sub(compile_micros),
            ..QueryMetrics::default()
        };
        let continuation = filled.next.map(|next| continuation::seal(shared, &binding, next));
        Page { rows: text, count, continuation, metrics, explain: None }
    });
    Answer { charge, position, result }
}

/// The windows of the scope, each as far as the session asks. The position is that of the only partition, if it is
/// one; what covers several is described by `Container::positions`.
fn prepare<'a>(
    container: &'a Container,
    request: &PageRequest,
    position: &mut Option<Position>,
) -> Result<Vec<Window<'a>>, EngineError> {
    container.check_open()?;
    let windows = scan::windows(container, &request.scope)?;
    for window in &windows {
        if windows.len() == 1 {
            *position = Some(window.partition.position()?);
        }
        let reached = window.partition.position_for(request.session.as_ref())?;
        if windows.len() == 1 {
            *position = Some(reached);
        }
    }
    Ok(windows)
}
