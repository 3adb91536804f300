//! Rows on their way to the page: OFFSET, LIMIT, and how far it has come.

use std::ops::ControlFlow;

use quire_sql::Row;
use quire_value::Value;

use super::super::page::Rows;
use super::evaluate::Evaluator;
use crate::api::EngineError;
use crate::query::follow::PageLinks;
use crate::query::reader::Found;
use crate::recording::note_returned;

pub(crate) struct Output {
    pub rows: Rows,
    pub offset: u64,
    pub limit: u64,
    /// Rows that OFFSET has taken.
    pub skipped: u64,
    /// Rows of this page and those before it.
    pub sent: u64,
}

pub(crate) enum Sent {
    All,
    /// The page is full; so many rows of the item are done with.
    Full {
        row: u64,
    },
    /// LIMIT is reached: nothing follows.
    Limit,
}

impl Output {
    /// Sends the rows of an item behind the first `done`.
    pub fn send(
        &mut self,
        evaluator: &Evaluator<'_>,
        found: &Found<'_>,
        done: u64,
    ) -> Result<Sent, EngineError> {
        evaluator.followed.start_item();
        let before = self.sent;
        let sent = self.send_each(done, evaluator.followed, |emit| evaluator.rows_of(found, emit))?;
        if self.sent > before {
            note_returned(found.spot.rid);
        }
        Ok(sent)
    }

    /// The same for what an index knows of an item.
    pub fn send_part(
        &mut self,
        evaluator: &Evaluator<'_>,
        part: &Value,
        done: u64,
    ) -> Result<Sent, EngineError> {
        self.send_each(done, evaluator.followed, |emit| evaluator.rows_of_part(part, emit))
    }

    fn send_each(
        &mut self,
        done: u64,
        followed: &PageLinks<'_>,
        rows: impl FnOnce(&mut dyn FnMut(&Row<'_>) -> ControlFlow<()>) -> Result<(), EngineError>,
    ) -> Result<Sent, EngineError> {
        let mut sent = Sent::All;
        let mut row = 0;
        let mut checked = Ok(());
        rows(&mut |value| {
            let is_done = row < done;
            row += u64::from(is_done);
            if is_done {
                return ControlFlow::Continue(());
            }
            checked = if self.skipped < self.offset { Ok(()) } else { value.check() };
            if checked.is_err() {
                return ControlFlow::Break(());
            }
            self.send_row(value, followed, &mut row, &mut sent)
        })?;
        checked?;
        Ok(if self.is_finished() { Sent::Limit } else { sent })
    }

    fn send_row(
        &mut self,
        value: &Row<'_>,
        followed: &PageLinks<'_>,
        row: &mut u64,
        sent: &mut Sent,
    ) -> ControlFlow<()> {
        if self.skipped < self.offset {
            self.skipped += 1;
        } else if self.is_finished() {
            *sent = Sent::Limit;
            return ControlFlow::Break(());
        } else if (self.rows.count() == 0 || !followed.exceeds()) && self.rows.push_row(value) {
            self.sent += 1;
            followed.row_sent();
        } else {
            *sent = Sent::Full { row: *row };
            return ControlFlow::Break(());
        }
        *row += 1;
        ControlFlow::Continue(())
    }

    pub fn is_finished(&self) -> bool {
        self.sent >= self.limit
    }

    /// Items that are enough to fill the page, if each gives a row.
    pub fn wanted(&self) -> usize {
        let left = (self.limit - self.sent).min(self.rows.room() as u64);
        usize::try_from((self.offset - self.skipped).saturating_add(left)).unwrap_or(usize::MAX)
    }

    /// Rows that have been counted, skipped ones included.
    pub fn counted(&self) -> u64 {
        self.sent + self.skipped
    }
}
