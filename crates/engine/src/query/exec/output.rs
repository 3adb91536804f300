//! Rows of a page with OFFSET and LIMIT, and how many were sent.

use std::ops::ControlFlow;

use quire_sql::Row;
use quire_value::Value;

use super::super::page::PageRows;
use super::evaluate::ItemEvaluator;
use crate::api::EngineError;
use crate::query::follow::PageLinks;
use crate::query::reader::FoundItem;
use crate::recording::record_returned;

pub(crate) struct PageOutput {
    pub rows: PageRows,
    pub offset: u64,
    pub limit: u64,
    /// Rows that OFFSET has skipped.
    pub skipped: u64,
    /// Rows of this page and those before it.
    pub sent: u64,
}

pub(crate) enum SendOutcome {
    All,
    /// The page is full; `row` rows of the item were sent.
    Full {
        row: u64,
    },
    /// LIMIT is reached.
    Limit,
}

impl PageOutput {
    /// Sends the rows of an item after the first `done`.
    pub fn send(
        &mut self,
        evaluator: &ItemEvaluator<'_>,
        found: &FoundItem<'_>,
        done: u64,
    ) -> Result<SendOutcome, EngineError> {
        evaluator.followed.start_item();
        let before = self.sent;
        let sent = self.send_each(done, evaluator.followed, |emit| evaluator.rows_of(found, emit))?;
        if self.sent > before {
            record_returned(found.position.rid);
        }
        Ok(sent)
    }

    /// The same for the part of an item that an index row has.
    pub fn send_part(
        &mut self,
        evaluator: &ItemEvaluator<'_>,
        part: &Value,
        done: u64,
    ) -> Result<SendOutcome, EngineError> {
        self.send_each(done, evaluator.followed, |emit| evaluator.rows_of_part(part, emit))
    }

    fn send_each(
        &mut self,
        done: u64,
        followed: &PageLinks<'_>,
        rows: impl FnOnce(&mut dyn FnMut(&Row<'_>) -> ControlFlow<()>) -> Result<(), EngineError>,
    ) -> Result<SendOutcome, EngineError> {
        let mut sent = SendOutcome::All;
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
        Ok(if self.is_finished() { SendOutcome::Limit } else { sent })
    }

    fn send_row(
        &mut self,
        value: &Row<'_>,
        followed: &PageLinks<'_>,
        row: &mut u64,
        sent: &mut SendOutcome,
    ) -> ControlFlow<()> {
        if self.skipped < self.offset {
            self.skipped += 1;
        } else if self.is_finished() {
            *sent = SendOutcome::Limit;
            return ControlFlow::Break(());
        } else if (self.rows.count() == 0 || !followed.exceeds()) && self.rows.push_row(value) {
            self.sent += 1;
            followed.row_sent();
        } else {
            *sent = SendOutcome::Full { row: *row };
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
