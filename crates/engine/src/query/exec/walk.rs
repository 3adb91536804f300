//! ORDER BY straight from an index, in either direction.
//!
//! Index rows come by value and then by child id, both ascending when the index is read forward and both descending
//! when it is read backward. If the ties of the query have the other direction, as in `a, b` from an index over `a
//! DESC, b DESC`, the rows of one value are reversed. Rows whose value is not exact (a truncated string, an array or
//! object) form a group, which is sorted by the items themselves. Items without a row come before the rows of an
//! ascending order and after those of a descending one. Such items have rows of their own if the container was sorted
//! by the path before (see `indexes::missing`); until then all items are read to find them.

use std::ops::Bound;

use quire_storage::{Direction, KeyRange};
use quire_value::{Path, key};

use super::evaluate::EvaluationNeed;
use super::index_walk::{
    IndexEntry, IndexWalk, MissingValues, count_exact, earlier, from_value, groups, later, read,
};
use super::lookahead::visit_ahead;
use super::order::SortStart;
use super::output::{PageOutput, SendOutcome};
use super::sort::SortedQuery;
use crate::api::{EngineError, corrupt};
use crate::query::continuation::Resume;
use crate::query::meter::ScanBudget;
use crate::query::partition_scope::ItemPosition;
use crate::query::plan::candidates::Candidates;
use crate::query::plan::index_only::part_of;
use crate::query::plan::rids::RidSet;
use crate::query::reader::{FoundItem, ItemVisitor, ScanEnd, ScopeReader, VisitNext, continue_range};

/// Rows read at a time: first few, since many pages are short, then more.
const ROWS_FIRST: usize = 64;

const ROWS_MAX: usize = 1024;

/// A page requests rows for missing values when it has read this many items, and this many for each item that it found.
const MISSING_ITEMS_READ_MIN: u64 = 256;

const MISSING_READ_FACTOR: u64 = 4;

/// `Some`: the page ends, and the next one starts there, if there is one.
type PageEnd = Option<Option<Resume>>;

impl SortedQuery<'_, '_> {
    /// Sends the items as the index has them.
    pub fn walk(
        &mut self,
        reader: &mut ScopeReader<'_>,
        walk: &IndexWalk,
        output: &mut PageOutput,
    ) -> Result<Option<Resume>, EngineError> {
        if output.is_finished() {
            return Ok(None);
        }
        let is_in_missing = matches!(&self.start, SortStart::At { key, .. } if walk.is_missing(key));
        let is_behind_missing = matches!(&self.start, SortStart::At { .. }) && !is_in_missing;
        let mut ended = None;
        if walk.includes_missing() && !walk.backward && !is_behind_missing {
            ended = self.walk_missing(reader, walk, output)?;
        }
        if ended.is_none() && !(walk.backward && is_in_missing) {
            ended = self.walk_rows(reader, walk, output)?;
        }
        if ended.is_none() && walk.includes_missing() && walk.backward {
            ended = self.walk_missing(reader, walk, output)?;
        }
        Ok(ended.flatten())
    }

    /// Items without a row, by child id.
    fn walk_missing(
        &mut self,
        reader: &mut ScopeReader<'_>,
        walk: &IndexWalk,
        output: &mut PageOutput,
    ) -> Result<PageEnd, EngineError> {
        let missing = walk.missing_key();
        let ties = self.order.ties;
        let from = ties.rid_or_tie(match &self.start {
            SortStart::At { key, tie, .. } if *key == missing => *tie,
            _ => 0,
        });
        let (mut full_at, mut matched, mut found_missing) = (None, 0, 0);
        let (wanted, items_before) = (output.wanted(), reader.meter.items);
        let (order, evaluator, start) = (self.order, self.evaluator, &self.start);
        let is_wanted = |found: &FoundItem<'_>| Ok(order.key_of(evaluator, found)? == missing);
        let visit_items = &mut |reader: &mut ScopeReader<'_>,
                                position: Option<ItemPosition>,
                                visit: &mut ItemVisitor<'_>| {
            let from = position.map_or(from, |position| position.rid);
            walk.visit_items(reader, from, ties.direction(), wanted, visit)
        };
        let end = visit_ahead(
            reader,
            (evaluator, EvaluationNeed::Rows),
            None,
            wanted,
            &is_wanted,
            visit_items,
            &mut |found| {
                let tie = ties.rid_or_tie(found.position.rid);
                if order.key_of(evaluator, found)? != missing {
                    return Ok(VisitNext::More);
                }
                found_missing += 1;
                let before = output.counted();
                let sent = output.send(evaluator, found, start.rows_done(&missing, tie))?;
                matched += u64::from(output.counted() > before);
                Ok(match sent {
                    SendOutcome::All => VisitNext::More,
                    SendOutcome::Limit => VisitNext::Enough,
                    SendOutcome::Full { row } => {
                        full_at = Some((tie, row));
                        VisitNext::NotThis
                    }
                })
            },
        )?;
        reader.meter.matched += matched;
        if matches!(walk.missing, MissingValues::Scan) && walk.among.is_none() {
            self.wants_missing = is_costly(reader.meter.items - items_before, found_missing);
        }
        let place = match end {
            ScanEnd::Done => return Ok(None),
            ScanEnd::Stopped => full_at,
            ScanEnd::Paused(position) => {
                let tie = ties.rid_or_tie(position.rid);
                Some((tie, self.start.rows_done(&missing, tie)))
            }
        };
        Ok(Some(place.map(|(tie, row)| self.resume(output, &missing, tie, row))))
    }

    fn walk_rows(
        &mut self,
        reader: &mut ScopeReader<'_>,
        walk: &IndexWalk,
        output: &mut PageOutput,
    ) -> Result<PageEnd, EngineError> {
        let mut first = match &self.start {
            SortStart::At { key, tie, .. } if !walk.is_missing(key) => {
                let mut value = walk.stored(key)?;
                // The bytes after the inexact part do not order the rows of the group either.
                if let Some(length) = walk.exact_length(&value)? {
                    value.truncate(length);
                }
                Some((value, self.order.ties.rid_or_tie(*tie)))
            }
            _ => None,
        };
        let mut ranges = walk.ranges.clone();
        if walk.backward {
            ranges.reverse();
        }
        for range in ranges {
            let range = match &first {
                None => Some(range),
                Some((value, _)) => from_value(walk, range, value),
            };
            let Some(range) = range else { continue };
            let ended = if walk.direction() == self.order.ties.direction() {
                self.walk_forward_ties(reader, walk, range, first.take(), output)?
            } else {
                self.walk_reversed_ties(reader, walk, range, first.take(), output)?
            };
            if ended.is_some() {
                return Ok(ended);
            }
        }
        Ok(None)
    }

    /// Rows in the order of the index.
    fn walk_forward_ties(
        &mut self,
        reader: &mut ScopeReader<'_>,
        walk: &IndexWalk,
        mut range: KeyRange,
        first: Option<IndexEntry>,
        output: &mut PageOutput,
    ) -> Result<PageEnd, EngineError> {
        if let Some((value, rid)) = first
            && walk.exact_length(&value)?.is_none()
        {
            let from = Bound::Included(walk.row(&value, rid));
            match walk.direction() {
                Direction::Forward => range.start = later(range.start, from),
                Direction::Backward => range.end = earlier(range.end, from),
            }
        }
        let mut rows_next = ROWS_FIRST.min(output.wanted().saturating_add(1));
        loop {
            let (entries, more) = read(reader, walk, &range, walk.direction(), rows_next)?;
            rows_next = (4 * rows_next).min(ROWS_MAX);
            let plain = count_exact(walk, &entries)?;
            if let Some(end) = self.send_rows(reader, walk, &entries[..plain], output)? {
                return Ok(Some(end));
            }
            match (entries.get(plain), entries.last()) {
                // The first row whose value is not exact.
                (Some((value, _)), _) => {
                    let group = &value[..walk.exact_length(value)?.unwrap_or(value.len())];
                    if let Some(end) = self.send_group(reader, walk, group, output)? {
                        return Ok(Some(end));
                    }
                    if !walk.leave(&mut range, group) {
                        return Ok(None);
                    }
                }
                (None, Some((value, rid))) if more => {
                    continue_range(&mut range, walk.direction(), Bound::Excluded(walk.row(value, *rid)));
                }
                _ => return Ok(None),
            }
            if let Some(end) = self.pause(reader, output) {
                return Ok(Some(Some(end)));
            }
        }
    }

    /// Rows in the order of the index, with the rows of one value reversed.
    fn walk_reversed_ties(
        &mut self,
        reader: &mut ScopeReader<'_>,
        walk: &IndexWalk,
        mut range: KeyRange,
        first: Option<IndexEntry>,
        output: &mut PageOutput,
    ) -> Result<PageEnd, EngineError> {
        // The rows of the value at which the last page ended are read in the other direction.
        if let Some((value, rid)) = first {
            if let Some(end) = self.send_value(reader, walk, &value, rid, output)? {
                return Ok(Some(end));
            }
            if !walk.leave(&mut range, &value) {
                return Ok(None);
            }
        }
        let mut rows_next = ROWS_FIRST.min(output.wanted().saturating_add(2));
        loop {
            let (entries, more) = read(reader, walk, &range, walk.direction(), rows_next)?;
            rows_next = (4 * rows_next).min(ROWS_MAX);
            let groups = groups(walk, &entries)?;
            let mut rest = &entries[..];
            for (nth, (value, count, exact)) in groups.iter().enumerate() {
                let is_partial = more && nth + 1 == groups.len();
                if is_partial && groups.len() > 1 {
                    break; // it comes with the next rows
                }
                let (rows, behind) = rest.split_at(*count);
                rest = behind;
                let ended = if is_partial || !exact {
                    self.send_value(reader, walk, value, self.order.ties.rid_or_tie(0), output)?
                } else {
                    let rows: Vec<IndexEntry> = rows.iter().rev().cloned().collect();
                    self.send_rows(reader, walk, &rows, output)?
                };
                if ended.is_some() {
                    return Ok(ended);
                }
                if *exact {
                    self.passed = Some((walk.sort_key(value), u64::MAX));
                }
                if !walk.leave(&mut range, value) {
                    return Ok(None);
                }
            }
            if !more {
                return Ok(None);
            }
            if let Some(end) = self.pause(reader, output) {
                return Ok(Some(Some(end)));
            }
        }
    }

    /// All rows of one value in the order of the query, from a child id on.
    fn send_value(
        &mut self,
        reader: &mut ScopeReader<'_>,
        walk: &IndexWalk,
        value: &[u8],
        from: u64,
        output: &mut PageOutput,
    ) -> Result<PageEnd, EngineError> {
        if walk.exact_length(value)?.is_some() {
            return self.send_group(reader, walk, value, output);
        }
        let mut range = walk.group(value);
        let direction = self.order.ties.direction();
        continue_range(&mut range, direction, Bound::Included(walk.row(value, from)));
        let mut rows_next = ROWS_FIRST.min(output.wanted().saturating_add(1));
        loop {
            let (entries, more) = read(reader, walk, &range, direction, rows_next)?;
            rows_next = (4 * rows_next).min(ROWS_MAX);
            if let Some(end) = self.send_rows(reader, walk, &entries, output)? {
                return Ok(Some(end));
            }
            let Some((_, last)) = entries.last().filter(|_| more) else { return Ok(None) };
            continue_range(&mut range, direction, Bound::Excluded(walk.row(value, *last)));
            if let Some(end) = self.pause(reader, output) {
                return Ok(Some(Some(end)));
            }
        }
    }

    /// Rows with exact values, in the order of the query.
    fn send_rows(
        &mut self,
        reader: &mut ScopeReader<'_>,
        walk: &IndexWalk,
        rows: &[IndexEntry],
        output: &mut PageOutput,
    ) -> Result<PageEnd, EngineError> {
        let ties = self.order.ties;
        let wanted = rows.iter().filter(|(_, rid)| walk.is_among(*rid) && reader.may_contain(*rid));
        let ended = match &walk.covers {
            Some(path) => self.send_parts(walk, path, wanted, output)?,
            None => {
                let items: Vec<IndexEntry> =
                    wanted.map(|(value, rid)| (walk.sort_key(value), ties.rid_or_tie(*rid))).collect();
                self.send_items(reader, &items, output)?
            }
        };
        if let Some((value, rid)) = rows.last() {
            self.passed = Some((walk.sort_key(value), ties.rid_or_tie(*rid)));
        }
        Ok(ended)
    }

    /// Sends index rows instead of their items.
    fn send_parts<'e>(
        &mut self,
        walk: &IndexWalk,
        path: &Path,
        rows: impl Iterator<Item = &'e IndexEntry>,
        output: &mut PageOutput,
    ) -> Result<PageEnd, EngineError> {
        let ties = self.order.ties;
        let decode = |(stored, rid): &IndexEntry| {
            let (value, _) = key::decode(stored).map_err(|error| corrupt(error.reason))?;
            Ok((walk.sort_key(stored), ties.rid_or_tie(*rid), part_of(path, value)))
        };
        let parts = rows.map(decode).collect::<Result<Vec<_>, EngineError>>()?;
        let mut prepared = 0;
        for (at, (key, tie, part)) in parts.iter().enumerate() {
            if output.is_finished() {
                return Ok(Some(None));
            }
            if at == prepared {
                prepared = parts.len().min(at.saturating_add(output.wanted().max(1)));
                self.evaluator.prepare_parts(parts[at..prepared].iter().map(|(_, _, part)| part))?;
            }
            let done = self.start.rows_done(key, *tie);
            match output.send_part(self.evaluator, part, done)? {
                SendOutcome::All => self.prefix_counter.pass(key),
                SendOutcome::Limit => return Ok(Some(None)),
                SendOutcome::Full { row } => return Ok(Some(Some(self.resume(output, key, *tie, row)))),
            }
        }
        Ok(None)
    }

    /// Items whose rows have no exact values. All of them are read before the first is sent, whatever the budget.
    fn send_group(
        &mut self,
        reader: &mut ScopeReader<'_>,
        walk: &IndexWalk,
        value: &[u8],
        output: &mut PageOutput,
    ) -> Result<PageEnd, EngineError> {
        let (mut rids, mut held_bytes) = (Vec::new(), 0);
        let mut range = walk.group(value);
        loop {
            let (entries, more) = read(reader, walk, &range, Direction::Forward, ROWS_MAX)?;
            let bytes = entries.len() * size_of::<u64>();
            reader.meter.retain_bytes(bytes)?;
            held_bytes += bytes;
            let wanted = entries.iter().map(|(_, rid)| *rid);
            rids.extend(wanted.filter(|rid| walk.is_among(*rid) && reader.may_contain(*rid)));
            let Some((value, rid)) = entries.last().filter(|_| more) else { break };
            range.start = Bound::Excluded(walk.row(value, *rid));
        }
        let budget = reader.meter.set_budget(ScanBudget::WHOLE);
        let smallest = self.gather(reader, &mut Candidates::Rids(RidSet::sorted(rids)), output)?;
        if smallest.last_seen.is_some() {
            self.passed.clone_from(&smallest.last_seen);
        }
        let next = self.send(reader, smallest, output)?;
        reader.meter.release(held_bytes);
        reader.meter.set_budget(budget);
        Ok((next.is_some() || output.is_finished()).then_some(next))
    }

    /// The start of the next page, if the budget of this one is spent.
    fn pause(&self, reader: &ScopeReader<'_>, output: &PageOutput) -> Option<Resume> {
        let (key, tie) = self.passed.as_ref().filter(|_| reader.meter.is_spent())?;
        Some(self.resume(output, key, *tie, u64::MAX))
    }
}

/// Whether a page read so many items to find those without a value that index rows for them would have been cheaper.
pub(crate) fn is_costly(items_read: u64, missing: u64) -> bool {
    items_read >= MISSING_ITEMS_READ_MIN && items_read / MISSING_READ_FACTOR >= missing
}
