//! Sorting without an index: of all candidates, the first few behind where the page starts.
//!
//! A page never holds more than it needs, so every page reads the candidates again. That takes the whole time a query
//! has; it is the way of last resort, and of small results.

use std::cell::RefCell;
use std::collections::BinaryHeap;

use quire_sql::{Reservation, SqlError};

use super::super::continuation::{Resume, sort_key_bytes};
use super::super::scan::{End, Found, Next, Reader, Visit};
use super::candidates::Candidates;
use super::evaluate::Evaluator;
use super::lookahead::{prepare_fetched, visit_ahead};
use super::order::{Order, Start, Trail};
use super::output::{Output, Sent};
use crate::EngineError;
use crate::api::PageRequest;

/// Sort keys held at a time. What has no room comes with the next page.
const HELD_BYTES_MAX: usize = 32 << 20;
const HELD_ITEMS_MAX: usize = 100_000;
/// What a held key costs besides its bytes.
const ENTRY_BYTES: usize = 48;
/// Memory is taken in pieces.
const MEMORY_PIECE_BYTES: usize = 64 << 10;
const FETCH_ITEMS: usize = 64;

/// The smallest of what was pushed, by sort key and tie.
pub(super) struct Smallest {
    keep: usize,
    bytes: usize,
    entries: BinaryHeap<(Vec<u8>, u64)>,
    /// Some were left out.
    is_cut: bool,
    /// The last of all that were looked at.
    pub last_seen: Option<(Vec<u8>, u64)>,
    memory: Reservation,
}

impl Smallest {
    pub fn new(keep: usize, memory: Reservation) -> Smallest {
        Smallest {
            memory,
            keep: keep.clamp(2, HELD_ITEMS_MAX),
            bytes: 0,
            entries: BinaryHeap::new(),
            is_cut: false,
            last_seen: None,
        }
    }

    fn see(&mut self, key: &[u8], tie: u64) {
        if self.last_seen.as_ref().is_none_or(|(last, last_tie)| (&last[..], *last_tie) < (key, tie)) {
            self.last_seen = Some((key.to_vec(), tie));
        }
    }

    /// Whether it would be kept.
    fn takes(&self, key: &[u8], tie: u64) -> bool {
        let is_full =
            self.entries.len() >= self.keep || self.bytes >= HELD_BYTES_MAX && self.entries.len() > 1;
        !is_full || self.entries.peek().is_none_or(|(last, last_tie)| (key, tie) < (&last[..], *last_tie))
    }

    fn push(&mut self, key: Vec<u8>, tie: u64) -> Result<(), EngineError> {
        self.bytes += key.len() + ENTRY_BYTES;
        if self.bytes > self.memory.bytes() {
            self.memory.grow_to(self.bytes + MEMORY_PIECE_BYTES)?;
        }
        self.entries.push((key, tie));
        while self.entries.len() > self.keep || self.bytes > HELD_BYTES_MAX && self.entries.len() > 2 {
            if let Some((key, _)) = self.entries.pop() {
                self.bytes -= key.len() + ENTRY_BYTES;
                self.is_cut = true;
            }
        }
        Ok(())
    }
}

/// What sorted queries share.
pub(super) struct Sorted<'r, 'q> {
    pub order: &'r Order,
    pub evaluator: &'r Evaluator<'q>,
    pub start: Start,
    pub trail: Trail,
    /// Everything up to here was looked at.
    pub passed: Option<(Vec<u8>, u64)>,
    /// Rows for items that lack the sort key would have served.
    pub wants_missing: bool,
}

impl<'r, 'q> Sorted<'r, 'q> {
    pub fn new(
        order: &'r Order,
        evaluator: &'r Evaluator<'q>,
        reader: &mut Reader<'_>,
        request: &PageRequest,
        resume: Option<&super::super::continuation::Place>,
    ) -> Result<Sorted<'r, 'q>, EngineError> {
        let mut start = Start::of(resume, order, evaluator, reader)?;
        let trail = Trail::new(sort_key_bytes(request), &start, resume);
        if let Some(filter) = &request.resume {
            let descending: Vec<bool> = order.keys.iter().map(|key| key.descending).collect();
            start = start.later(Start::named(filter, &descending, order.ties)?);
        }
        Ok(Sorted { order, evaluator, start, trail, passed: None, wants_missing: false })
    }

    /// Sorts what the candidates show and sends it. `None`: everything was sent.
    pub fn sort(
        &mut self,
        reader: &mut Reader<'_>,
        candidates: &mut Candidates,
        output: &mut Output,
    ) -> Result<Option<Resume>, EngineError> {
        let smallest = self.gather(reader, candidates, output)?;
        self.send(reader, smallest, output)
    }

    /// The first candidates behind the start that give rows, one more than the page can need.
    pub fn gather(
        &self,
        reader: &mut Reader<'_>,
        candidates: &mut Candidates,
        output: &Output,
    ) -> Result<Smallest, EngineError> {
        let surplus = usize::try_from(self.start.surplus()).unwrap_or(usize::MAX);
        let keep = output.wanted().saturating_add(surplus).saturating_add(1);
        let smallest = RefCell::new(Smallest::new(keep, reader.meter.reserve()?));
        let ties = self.order.ties;
        let is_wanted = |found: &Found<'_>| {
            let (key, tie) = (self.order.key_of(self.evaluator, found)?, ties.turn(found.spot.rid));
            Ok(self.start.admits(&key, tie) && smallest.borrow().takes(&key, tie))
        };
        let walk = &mut |reader: &mut Reader<'_>, from, visit: &mut Visit<'_>| {
            candidates.visit(reader, from, usize::MAX, visit)
        };
        let end = visit_ahead(reader, self.evaluator, None, usize::MAX, &is_wanted, walk, &mut |found| {
            let key = self.order.key_of(self.evaluator, found)?;
            let tie = ties.turn(found.spot.rid);
            let mut smallest = smallest.borrow_mut();
            smallest.see(&key, tie);
            if self.start.admits(&key, tie) {
                if smallest.takes(&key, tie) {
                    if self.evaluator.has_rows(found)? {
                        smallest.push(key, tie)?;
                    }
                } else {
                    smallest.is_cut = true;
                }
            }
            Ok(Next::More)
        })?;
        match end {
            End::Paused(_) => Err(SqlError::Budget { what: "a minute" }.into()),
            End::Done | End::Stopped => Ok(smallest.into_inner()),
        }
    }

    pub fn send(
        &mut self,
        reader: &mut Reader<'_>,
        smallest: Smallest,
        output: &mut Output,
    ) -> Result<Option<Resume>, EngineError> {
        let is_cut = smallest.is_cut;
        let entries = smallest.entries.into_sorted_vec();
        let surplus = usize::try_from(self.start.surplus()).unwrap_or(usize::MAX);
        let early = entries.iter().take(surplus).take_while(|(key, _)| self.start.is_surplus(key)).count();
        let entries = &entries[early..];
        // The last one only says where to go on.
        let (last, now) = match entries.split_last() {
            Some((last, now)) if is_cut => (Some(last), now),
            _ => (None, entries),
        };
        if let Some(resume) = self.send_items(reader, now, output)? {
            return Ok(resume);
        }
        Ok(last.map(|(key, tie)| self.resume(output, key, *tie, 0)))
    }

    /// Sends items in this order. `Some`: the page ends here, and the next one starts there, if there is one.
    pub fn send_items(
        &mut self,
        reader: &mut Reader<'_>,
        items: &[(Vec<u8>, u64)],
        output: &mut Output,
    ) -> Result<Option<Option<Resume>>, EngineError> {
        for items in items.chunks(FETCH_ITEMS) {
            let rids: Vec<u64> = items.iter().map(|(_, tie)| self.order.ties.turn(*tie)).collect();
            let rows = reader.fetch(&rids)?;
            let mut prepared = 0;
            for (at, (key, tie)) in items.iter().enumerate() {
                if at == prepared {
                    prepared = items.len().min(at + output.wanted().max(1));
                    prepare_fetched(reader, self.evaluator, &rids[at..prepared], &rows[at..prepared])?;
                }
                let Some(bytes) = &rows[at] else { continue };
                if let Some(end) = self.send_item(reader, key, *tie, bytes, output)? {
                    return Ok(Some(end));
                }
            }
        }
        Ok(None)
    }

    /// Sends the rows of one item; the same answer.
    pub fn send_item(
        &mut self,
        reader: &mut Reader<'_>,
        key: &[u8],
        tie: u64,
        bytes: &[u8],
        output: &mut Output,
    ) -> Result<Option<Option<Resume>>, EngineError> {
        if output.is_finished() {
            return Ok(Some(None));
        }
        let done = self.start.rows_done(key, tie);
        let (mut sent, before) = (Sent::All, output.counted());
        let end = reader.show(self.order.ties.turn(tie), bytes, &mut |found| {
            sent = output.send(self.evaluator, found, done)?;
            Ok(if matches!(sent, Sent::Full { .. }) { Next::NotThis } else { Next::More })
        })?;
        reader.meter.matched += u64::from(output.counted() > before);
        if let End::Paused(_) = end {
            return Ok(Some(Some(self.resume(output, key, tie, done))));
        }
        match sent {
            Sent::All => {
                self.trail.pass(key);
                Ok(None)
            }
            Sent::Limit => Ok(Some(None)),
            Sent::Full { row } => Ok(Some(Some(self.resume(output, key, tie, row)))),
        }
    }

    pub fn resume(&self, output: &Output, key: &[u8], tie: u64, row: u64) -> Resume {
        let place = self.trail.place(key, self.order.ties.turn(tie), row);
        let (skipped, sent) = (output.skipped, output.sent);
        Resume::Sorted { order: self.order.hash, skipped, sent, place }
    }
}
