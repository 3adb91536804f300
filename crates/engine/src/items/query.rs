//! SQL over a container's items.
//!
//! A streaming query stops anywhere and goes on there. A blocking one (ORDER BY, aggregates, GROUP BY, DISTINCT)
//! reads everything for every page and skips the rows that were sent.

use std::ops::ControlFlow;
use std::time::Instant;

use quire_resource::{Component, PartitionKey};
use quire_sql::{Environment, Evaluator, Item, Limits, Parameters, Query, Shape, Sink, SqlError};
use quire_storage::Token;
use quire_value::Value;

use super::body::{Links, Stamped};
use super::continuation::{self, Binding, Resume};
use super::page::{Filled, Rows, answer_page};
use super::row::Row;
use super::scan::{Found, KeyFilter, ScanBudget, Scanner, Spot, Step, Window, narrowed};
use crate::api::{Answer, Page, PageRequest, Scope};
use crate::query_plan::check_crossing;
use crate::sequencer::random_token;
use crate::shared::Shared;
use crate::{Container, EngineError};

/// Rows, groups and sort buffers of one query at a time.
const HELD_BYTES_MAX: usize = 128 << 20;
/// Beyond this many partition keys in a filter the container is read from end to end.
const KEYS_MAX: usize = 2000;

pub(crate) fn query_items(
    shared: &Shared,
    container: &Container,
    text: &str,
    parameters: &Parameters,
    request: &PageRequest,
) -> Answer<Page> {
    answer_page(shared, container, request, |windows| {
        let started = Instant::now();
        let query = Query::compile(text, parameters, &container.definition.computed_properties)?
            .with_environment(environment(shared, container)?);
        let compile_micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        check_crossing(container, &query, request)?;
        let binding = Binding::new(container, Some((text, parameters)), &request.scope);
        let resume = continuation::open(shared, &binding, request)?;
        let narrow =
            keys_of(container, &query, &request.scope).map(|keys| narrowed(container, windows, keys));
        let windows = narrow.as_deref().unwrap_or(windows);
        let run = Run { shared, container, request, query: &query, windows, links: Links::new(container) };
        let filled = match (query.shape(), resume) {
            (Shape::Streaming { offset, limit }, None) => run.stream(offset, limit, Progress::default()),
            (Shape::Streaming { offset, limit }, Some(Resume::Stream { spot, row, skipped, sent })) => {
                run.stream(offset, limit, Progress { from: Some(spot), row, skipped, sent })
            }
            (Shape::Blocking | Shape::Constant, None) => run.block(0),
            (Shape::Blocking | Shape::Constant, Some(Resume::Block { sent })) => run.block(sent),
            _ => Err(EngineError::BadContinuation),
        };
        Ok((filled?, binding, compile_micros))
    })
}

fn environment(shared: &Shared, container: &Container) -> Result<Environment, EngineError> {
    const TICKS_PER_MS: i64 = 10_000;
    let Token(random) = random_token()?;
    Ok(Environment {
        now_ticks: Some(shared.clock.now_ms().saturating_mul(TICKS_PER_MS)),
        random_seed: random as u64,
        geospatial: container.definition.geospatial,
        limits: Limits { held_bytes_max: HELD_BYTES_MAX, ..Limits::default() },
    })
}

/// The partition keys that the filter of a query leaves, unless the scope names one anyway; `None` for all.
fn keys_of(container: &Container, query: &Query, scope: &Scope) -> Option<Vec<KeyFilter>> {
    if scope.partition_key.is_some() {
        return None;
    }
    let definition = &container.definition.partition_key;
    let keys = query.partition_key_prefixes(&definition.paths).filter(|keys| keys.len() <= KEYS_MAX)?;
    let keys: Vec<PartitionKey> = keys.iter().map(|values| key_of_values(values)).collect::<Option<_>>()?;
    // A key that no item can have finds none.
    Some(keys.iter().filter_map(|key| KeyFilter::new(definition, key).ok()).collect())
}

pub(crate) fn key_of_values(values: &[Value]) -> Option<PartitionKey> {
    let component = |value: &Value| match value {
        Value::Undefined => Some(Component::Undefined),
        Value::Null => Some(Component::Null),
        Value::Bool(value) => Some(Component::Bool(*value)),
        Value::Number(number) => Some(Component::Number(number.as_f64())),
        Value::String(text) => Some(Component::String(text.clone())),
        Value::Array(_) | Value::Object(_) => None,
    };
    values.iter().map(component).collect::<Option<Vec<_>>>().map(PartitionKey)
}

struct Run<'a> {
    shared: &'a Shared,
    container: &'a Container,
    request: &'a PageRequest,
    query: &'a Query,
    windows: &'a [Window<'a>],
    links: Links,
}

/// How far a streaming query has come.
#[derive(Clone, Copy, Default)]
struct Progress {
    from: Option<Spot>,
    /// Rows of the item at `from` that are done with.
    row: u64,
    /// Rows that OFFSET has taken.
    skipped: u64,
    sent: u64,
}

impl Run<'_> {
    fn stream(&self, offset: u64, limit: Option<u64>, mut progress: Progress) -> Result<Filled, EngineError> {
        let mut scanner = self.scanner(progress.from, ScanBudget::PAGE)?;
        let mut rows = Rows::new(self.request)?;
        let mut evaluator = self.query.start()?;
        let limit = limit.unwrap_or(u64::MAX);
        while progress.sent < limit {
            let found = match scanner.next()? {
                Step::Item(found) => found,
                Step::Pause(spot) => {
                    // Rows of an earlier item are no concern of this one.
                    let row = if progress.from == Some(spot) { progress.row } else { 0 };
                    let next = Progress { from: Some(spot), row, ..progress };
                    return Ok(Filled::new(rows, &scanner, next.resume()));
                }
                Step::End => break,
            };
            if progress.from != Some(found.spot) {
                progress = Progress { from: Some(found.spot), row: 0, ..progress };
            }
            if !self.send_rows_of(&mut evaluator, &found, offset, limit, &mut progress, &mut rows)? {
                scanner.put_back(&found);
                return Ok(Filled::new(rows, &scanner, progress.resume()));
            }
        }
        Ok(Filled::new(rows, &scanner, None))
    }

    /// False when the page is full.
    fn send_rows_of(
        &self,
        evaluator: &mut Evaluator<'_>,
        found: &Found,
        offset: u64,
        limit: u64,
        progress: &mut Progress,
        rows: &mut Rows,
    ) -> Result<bool, EngineError> {
        let row = Row::parse(&found.bytes)?;
        let system = self.system(found, &row);
        let mut done = progress.row;
        let mut has_room = true;
        evaluator.rows_of(&Item::stored(row.node()?, &system), &mut |row| {
            if done > 0 {
                done -= 1;
                return ControlFlow::Continue(());
            }
            if progress.skipped < offset {
                progress.skipped += 1;
            } else if progress.sent == limit {
                return ControlFlow::Break(());
            } else if rows.push(|text| row.write_json(text)) {
                progress.sent += 1;
            } else {
                has_room = false;
                return ControlFlow::Break(());
            }
            progress.row += 1;
            ControlFlow::Continue(())
        })?;
        Ok(has_room)
    }

    fn block(&self, sent: u64) -> Result<Filled, EngineError> {
        let mut scanner = self.scanner(None, ScanBudget::WHOLE)?;
        let mut rows = Rows::new(self.request)?;
        let (mut done, mut has_room) = (sent, true);
        let feed = &mut |sink: &mut Sink<'_>| loop {
            match scanner.next()? {
                Step::Item(found) => {
                    let row = Row::parse(&found.bytes)?;
                    if sink(&Item::stored(row.node()?, &self.system(&found, &row)), 1).is_break() {
                        return Ok(());
                    }
                }
                Step::Pause(_) => return Err(SqlError::Budget { what: "a minute" }.into()),
                Step::End => return Ok(()),
            }
        };
        self.query.run::<EngineError>(feed, &mut |row| {
            if done > 0 {
                done -= 1;
                return ControlFlow::Continue(());
            }
            has_room = rows.push(|text| row.write_json(text));
            if has_room { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let next = (!has_room).then_some(Resume::Block { sent: sent + rows.count() as u64 });
        Ok(Filled::new(rows, &scanner, next))
    }

    fn scanner(&self, from: Option<Spot>, budget: ScanBudget) -> Result<Scanner<'_>, EngineError> {
        Scanner::new(self.shared, self.container, self.windows, from, budget)
    }

    fn system(&self, found: &Found, row: &Row<'_>) -> Stamped<'_> {
        Stamped { links: &self.links, child: found.spot.rid, stamp: row.stamp }
    }
}

impl Progress {
    fn resume(self) -> Option<Resume> {
        let Progress { from, row, skipped, sent } = self;
        from.map(|spot| Resume::Stream { spot, row, skipped, sent })
    }
}
