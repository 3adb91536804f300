//! ORDER BY straight from an index, in either direction.
//!
//! Rows come by value and then by child id, both rising when the index is read forward and both falling when it is read
//! backward. Where ties of the query go the other way, as in `a, b` from an index over `a DESC, b DESC`, the rows of one
//! value are turned around. Rows that do not say what their value is (a cut string, an array or object) are a group
//! for the items themselves to sort. Items without a row come before the rows of an ascending order and after those of a
//! descending one. They have rows of their own where the path was sorted by before (see `indexes::missing`); until then they
//! are found by reading all items.

use std::ops::Bound;

use quire_storage::{Direction, KeyRange};
use quire_value::{Path, key};

use super::evaluate::Need;
use super::index_walk::{Entry, Missing, Walk, count_known, earlier, from_value, groups, later, read};
use super::lookahead::visit_ahead;
use super::order::Start;
use super::output::{Output, Sent};
use super::sort::Sorted;
use crate::api::{EngineError, corrupt};
use crate::query::continuation::Resume;
use crate::query::meter::ScanBudget;
use crate::query::plan::candidates::Candidates;
use crate::query::plan::index_only::part_of;
use crate::query::plan::rids::Rids;
use crate::query::reader::{End, Found, Next, Reader, Visit, go_on};
use crate::query::window::Spot;

/// Rows read at a time: first few, since many pages are short, then more.
const ROWS_FIRST: usize = 64;

const ROWS_MAX: usize = 1024;

/// Rows for missing values are kept from the time on when a page has read so many items, and so many for each that it found.
const MISSING_ITEMS_READ_MIN: u64 = 256;

const MISSING_READ_FACTOR: u64 = 4;

/// `Some`: the page ends, and the next one starts there, if there is one.
type Ended = Option<Option<Resume>>;

impl Sorted<'_, '_> {
    /// Sends the items as the index has them.
    pub fn walk(
        &mut self,
        reader: &mut Reader<'_>,
        walk: &Walk,
        output: &mut Output,
    ) -> Result<Option<Resume>, EngineError> {
        if output.is_finished() {
            return Ok(None);
        }
        let is_in_missing = matches!(&self.start, Start::At { key, .. } if walk.is_missing(key));
        let is_behind_missing = matches!(&self.start, Start::At { .. }) && !is_in_missing;
        let mut ended = None;
        if walk.can_miss() && !walk.backward && !is_behind_missing {
            ended = self.walk_missing(reader, walk, output)?;
        }
        if ended.is_none() && !(walk.backward && is_in_missing) {
            ended = self.walk_rows(reader, walk, output)?;
        }
        if ended.is_none() && walk.can_miss() && walk.backward {
            ended = self.walk_missing(reader, walk, output)?;
        }
        Ok(ended.flatten())
    }

    /// Items without a row, by child id.
    fn walk_missing(
        &mut self,
        reader: &mut Reader<'_>,
        walk: &Walk,
        output: &mut Output,
    ) -> Result<Ended, EngineError> {
        let missing = walk.missing_key();
        let ties = self.order.ties;
        let from = ties.turn(match &self.start {
            Start::At { key, tie, .. } if *key == missing => *tie,
            _ => 0,
        });
        let (mut full_at, mut matched, mut found_missing) = (None, 0, 0);
        let (wanted, items_before) = (output.wanted(), reader.meter.items);
        let (order, evaluator, start) = (self.order, self.evaluator, &self.start);
        let is_wanted = |found: &Found<'_>| Ok(order.key_of(evaluator, found)? == missing);
        let visit_items = &mut |reader: &mut Reader<'_>, spot: Option<Spot>, visit: &mut Visit<'_>| {
            let from = spot.map_or(from, |spot| spot.rid);
            walk.visit_items(reader, from, ties.direction(), wanted, visit)
        };
        let end = visit_ahead(
            reader,
            (evaluator, Need::Rows),
            None,
            wanted,
            &is_wanted,
            visit_items,
            &mut |found| {
                let tie = ties.turn(found.spot.rid);
                if order.key_of(evaluator, found)? != missing {
                    return Ok(Next::More);
                }
                found_missing += 1;
                let before = output.counted();
                let sent = output.send(evaluator, found, start.rows_done(&missing, tie))?;
                matched += u64::from(output.counted() > before);
                Ok(match sent {
                    Sent::All => Next::More,
                    Sent::Limit => Next::Enough,
                    Sent::Full { row } => {
                        full_at = Some((tie, row));
                        Next::NotThis
                    }
                })
            },
        )?;
        reader.meter.matched += matched;
        if matches!(walk.missing, Missing::Scan) && walk.among.is_none() {
            self.wants_missing = is_costly(reader.meter.items - items_before, found_missing);
        }
        let place = match end {
            End::Done => return Ok(None),
            End::Stopped => full_at,
            End::Paused(spot) => {
                let tie = ties.turn(spot.rid);
                Some((tie, self.start.rows_done(&missing, tie)))
            }
        };
        Ok(Some(place.map(|(tie, row)| self.resume(output, &missing, tie, row))))
    }

    fn walk_rows(
        &mut self,
        reader: &mut Reader<'_>,
        walk: &Walk,
        output: &mut Output,
    ) -> Result<Ended, EngineError> {
        let mut first = match &self.start {
            Start::At { key, tie, .. } if !walk.is_missing(key) => {
                let mut value = walk.stored(key)?;
                // What is behind the part that is not known does not tell rows of the group apart either.
                if let Some(length) = walk.known(&value)? {
                    value.truncate(length);
                }
                Some((value, self.order.ties.turn(*tie)))
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
                self.walk_straight(reader, walk, range, first.take(), output)?
            } else {
                self.walk_turned(reader, walk, range, first.take(), output)?
            };
            if ended.is_some() {
                return Ok(ended);
            }
        }
        Ok(None)
    }

    /// Rows as the index has them.
    fn walk_straight(
        &mut self,
        reader: &mut Reader<'_>,
        walk: &Walk,
        mut range: KeyRange,
        first: Option<Entry>,
        output: &mut Output,
    ) -> Result<Ended, EngineError> {
        if let Some((value, rid)) = first
            && walk.known(&value)?.is_none()
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
            let plain = count_known(walk, &entries)?;
            if let Some(end) = self.send_rows(reader, walk, &entries[..plain], output)? {
                return Ok(Some(end));
            }
            match (entries.get(plain), entries.last()) {
                // The first row that does not tell its value.
                (Some((value, _)), _) => {
                    let group = &value[..walk.known(value)?.unwrap_or(value.len())];
                    if let Some(end) = self.send_group(reader, walk, group, output)? {
                        return Ok(Some(end));
                    }
                    if !walk.leave(&mut range, group) {
                        return Ok(None);
                    }
                }
                (None, Some((value, rid))) if more => {
                    go_on(&mut range, walk.direction(), Bound::Excluded(walk.row(value, *rid)));
                }
                _ => return Ok(None),
            }
            if let Some(end) = self.pause(reader, output) {
                return Ok(Some(Some(end)));
            }
        }
    }

    /// Rows as the index has them, those of one value turned around.
    fn walk_turned(
        &mut self,
        reader: &mut Reader<'_>,
        walk: &Walk,
        mut range: KeyRange,
        first: Option<Entry>,
        output: &mut Output,
    ) -> Result<Ended, EngineError> {
        // The value at which the last page ended is read the other way from there.
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
                    self.send_value(reader, walk, value, self.order.ties.turn(0), output)?
                } else {
                    let rows: Vec<Entry> = rows.iter().rev().cloned().collect();
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
        reader: &mut Reader<'_>,
        walk: &Walk,
        value: &[u8],
        from: u64,
        output: &mut Output,
    ) -> Result<Ended, EngineError> {
        if walk.known(value)?.is_some() {
            return self.send_group(reader, walk, value, output);
        }
        let mut range = walk.group(value);
        let direction = self.order.ties.direction();
        go_on(&mut range, direction, Bound::Included(walk.row(value, from)));
        let mut rows_next = ROWS_FIRST.min(output.wanted().saturating_add(1));
        loop {
            let (entries, more) = read(reader, walk, &range, direction, rows_next)?;
            rows_next = (4 * rows_next).min(ROWS_MAX);
            if let Some(end) = self.send_rows(reader, walk, &entries, output)? {
                return Ok(Some(end));
            }
            let Some((_, last)) = entries.last().filter(|_| more) else { return Ok(None) };
            go_on(&mut range, direction, Bound::Excluded(walk.row(value, *last)));
            if let Some(end) = self.pause(reader, output) {
                return Ok(Some(Some(end)));
            }
        }
    }

    /// Rows that tell their values, in the order of the query.
    fn send_rows(
        &mut self,
        reader: &mut Reader<'_>,
        walk: &Walk,
        rows: &[Entry],
        output: &mut Output,
    ) -> Result<Ended, EngineError> {
        let ties = self.order.ties;
        let wanted = rows.iter().filter(|(_, rid)| walk.is_among(*rid) && reader.can_hold(*rid));
        let ended = match &walk.covers {
            Some(path) => self.send_parts(walk, path, wanted, output)?,
            None => {
                let items: Vec<Entry> =
                    wanted.map(|(value, rid)| (walk.sort_key(value), ties.turn(*rid))).collect();
                self.send_items(reader, &items, output)?
            }
        };
        if let Some((value, rid)) = rows.last() {
            self.passed = Some((walk.sort_key(value), ties.turn(*rid)));
        }
        Ok(ended)
    }

    /// Rows instead of their items.
    fn send_parts<'e>(
        &mut self,
        walk: &Walk,
        path: &Path,
        rows: impl Iterator<Item = &'e Entry>,
        output: &mut Output,
    ) -> Result<Ended, EngineError> {
        let ties = self.order.ties;
        let decode = |(stored, rid): &Entry| {
            let (value, _) = key::decode(stored).map_err(|error| corrupt(error.reason))?;
            Ok((walk.sort_key(stored), ties.turn(*rid), part_of(path, value)))
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
                Sent::All => self.trail.pass(key),
                Sent::Limit => return Ok(Some(None)),
                Sent::Full { row } => return Ok(Some(Some(self.resume(output, key, *tie, row)))),
            }
        }
        Ok(None)
    }

    /// Items whose rows do not tell their values apart. Nothing is sent before all were looked at, so no budget ends it.
    fn send_group(
        &mut self,
        reader: &mut Reader<'_>,
        walk: &Walk,
        value: &[u8],
        output: &mut Output,
    ) -> Result<Ended, EngineError> {
        let mut rids = Vec::new();
        let mut range = walk.group(value);
        loop {
            let (entries, more) = read(reader, walk, &range, Direction::Forward, ROWS_MAX)?;
            let wanted = entries.iter().map(|(_, rid)| *rid);
            rids.extend(wanted.filter(|rid| walk.is_among(*rid) && reader.can_hold(*rid)));
            let Some((value, rid)) = entries.last().filter(|_| more) else { break };
            range.start = Bound::Excluded(walk.row(value, *rid));
        }
        let budget = reader.meter.set_budget(ScanBudget::WHOLE);
        let smallest = self.gather(reader, &mut Candidates::Rids(Rids::sorted(rids)), output)?;
        if smallest.last_seen.is_some() {
            self.passed.clone_from(&smallest.last_seen);
        }
        let next = self.send(reader, smallest, output)?;
        reader.meter.set_budget(budget);
        Ok((next.is_some() || output.is_finished()).then_some(next))
    }

    /// Where the next page starts, if this one has read enough.
    fn pause(&self, reader: &Reader<'_>, output: &Output) -> Option<Resume> {
        let (key, tie) = self.passed.as_ref().filter(|_| reader.meter.is_spent())?;
        Some(self.resume(output, key, *tie, u64::MAX))
    }
}

/// Whether so many items were read for so few without a value that rows for these would have been better.
pub(crate) fn is_costly(items_read: u64, missing: u64) -> bool {
    items_read >= MISSING_ITEMS_READ_MIN && items_read / MISSING_READ_FACTOR >= missing
}
