//! Queries that need all items before their first row: aggregates, GROUP BY, DISTINCT, ORDER BY over no plain paths.
//!
//! Every page runs the query again and skips the rows that were sent; what takes longer than a minute, or more memory
//! than a query may hold, is refused.

use std::ops::ControlFlow;

use quire_sql::{Sink, SqlError};

use super::super::page::Rows;
use super::super::scan::{End, Next, Reader};
use super::candidates::Candidates;
use super::evaluate::Evaluator;
use super::index_only::Fed;
use crate::EngineError;

/// Where the items come from.
pub(super) enum Feed {
    Items(Candidates),
    Index(Fed),
}

/// How many rows have been sent then, when there are more.
pub(super) fn whole(
    reader: &mut Reader<'_>,
    evaluator: &Evaluator<'_>,
    source: &mut Feed,
    rows: &mut Rows,
    sent: u64,
) -> Result<Option<u64>, EngineError> {
    let (mut done, mut has_room) = (sent, true);
    let feed = &mut |sink: &mut Sink<'_>| match source {
        Feed::Items(candidates) => feed(reader, evaluator, candidates, sink),
        Feed::Index(fed) => fed.feed(reader, evaluator, sink),
    };
    evaluator.run(feed, &mut |row| {
        if done > 0 {
            done -= 1;
            return ControlFlow::Continue(());
        }
        has_room = rows.push(|text| row.write_json(text));
        if has_room { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok((!has_room).then_some(sent + rows.count() as u64))
}

fn feed(
    reader: &mut Reader<'_>,
    evaluator: &Evaluator<'_>,
    candidates: &mut Candidates,
    sink: &mut Sink<'_>,
) -> Result<(), EngineError> {
    let end = candidates.visit(reader, None, usize::MAX, &mut |found| {
        let flow = evaluator.with_item(found, |item| sink(item, 1))?;
        Ok(if flow.is_break() { Next::Enough } else { Next::More })
    })?;
    reader.meter.matched = reader.meter.items;
    match end {
        End::Paused(_) => Err(SqlError::Budget { what: "a minute" }.into()),
        End::Done | End::Stopped => Ok(()),
    }
}
