//! ORDER BY straight from an index, in either direction.
//!
//! Rows come by value and then by child id, both rising when the index is read forward and both falling when it is read
//! backward. Where ties of the query go the other way, as in `a, b` from an index over `a DESC, b DESC`, the rows of one
//! value are turned around. Rows that do not say what their value is (a cut string, an array or object) are a group
//! for the items themselves to sort. Items without a row come before the rows of an ascending order and after those of a
//! descending one. They have rows of their own where the path was sorted by before (see `indexes::missing`); until then they
//! are found by reading all items.

use std::ops::{Bound, ControlFlow};

use quire_storage::{Direction, KeyRange, successor};
use quire_value::{Path, Value, key};

use super::super::continuation::Resume;
use super::super::scan::{End, Found, Next, Reader, ScanBudget, Visit, go_on};
use super::super::window::Spot;
use super::lookahead::visit_ahead;
use super::order::{Start, flip};
use super::output::{Output, Sent};
use super::sort::Sorted;
use crate::api::{EngineError, corrupt};
use crate::indexes::encode_value;
use crate::query::plan::candidates::Candidates;
use crate::query::plan::index_only::part_of;
use crate::query::plan::rids::{Rids, visit_listed, visit_rows};

/// Rows read at a time: first few, since many pages are short, then more.
const ROWS_FIRST: usize = 64;
const ROWS_MAX: usize = 1024;
const RID_BYTES: usize = 8;
/// Rows for missing values are kept from the time on when a page has read so many items, and so many for each that it found.
const MISSING_ITEMS_READ_MIN: u64 = 256;
const MISSING_READ_FACTOR: u64 = 4;

/// An index in the order of a query.
pub(crate) struct Walk {
    /// Container, index id, and in a partition-first index the prefix of the logical partition.
    pub head: Vec<u8>,
    /// Whether each value of a row is stored with its bits flipped.
    pub flipped: Vec<bool>,
    /// Bytes of a string that a row keeps.
    pub string_max: usize,
    /// The index is read from its end.
    pub backward: bool,
    /// The parts of the index to read, in the order in which they are stored.
    pub ranges: Vec<KeyRange>,
    pub missing: Missing,
    /// Only these items can match; sorted.
    pub among: Option<Vec<u64>>,
    /// The path of the index, when the query reads nothing else and the rows provably stand for their items.
    pub covers: Option<Path>,
}

/// Where items without a row are found.
pub(crate) enum Missing {
    /// There are none, or they cannot match.
    None,
    /// Among all items.
    Scan,
    /// By the rows that begin so.
    Rows(Vec<u8>),
}

/// A row's value as it is stored, and the item.
type Entry = (Vec<u8>, u64);
/// `Some`: the page ends, and the next one starts there, if there is one.
type Ended = Option<Option<Resume>>;

impl Walk {
    /// The sort key of a row that tells its value.
    fn sort_key(&self, stored: &[u8]) -> Vec<u8> {
        let mut key = stored.to_vec();
        if self.backward {
            flip(&mut key);
        }
        key
    }

    /// The value of a row that stands for a sort key.
    fn stored(&self, sort_key: &[u8]) -> Result<Vec<u8>, EngineError> {
        let mut rest = sort_key.to_vec();
        if self.backward {
            flip(&mut rest);
        }
        let mut stored = Vec::new();
        for &flipped in &self.flipped {
            if flipped {
                flip(&mut rest);
            }
            let (value, tail) = key::decode_sort(&rest).map_err(|_| EngineError::BadContinuation)?;
            let (start, tail) = (stored.len(), tail.to_vec());
            encode_value(&value, self.string_max, &mut stored);
            rest = tail;
            if flipped {
                flip(&mut stored[start..]);
                flip(&mut rest);
            }
        }
        Ok(stored)
    }

    /// How much of a row's value is known: `None` for all, else the bytes up to the part that is not.
    fn known(&self, stored: &[u8]) -> Result<Option<usize>, EngineError> {
        let mut at = 0;
        for &flipped in &self.flipped {
            let (length, exact) = part(&stored[at..], flipped).ok_or_else(|| corrupt("index row"))?;
            at += length;
            if !exact {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn at(&self, value: &[u8]) -> Vec<u8> {
        [&self.head[..], value].concat()
    }

    fn row(&self, value: &[u8], rid: u64) -> Vec<u8> {
        [&self.head[..], value, &rid.to_be_bytes()].concat()
    }

    fn is_among(&self, rid: u64) -> bool {
        self.among.as_ref().is_none_or(|among| among.binary_search(&rid).is_ok())
    }

    fn direction(&self) -> Direction {
        if self.backward { Direction::Backward } else { Direction::Forward }
    }

    /// Shows the items that can match at all, by child id.
    fn visit_items(
        &self,
        reader: &mut Reader<'_>,
        from: u64,
        direction: Direction,
        expected: usize,
        visit: &mut Visit<'_>,
    ) -> Result<End, EngineError> {
        match (&self.among, direction) {
            (None, _) => match &self.missing {
                Missing::Rows(prefix) => visit_rows(reader, prefix, (from, direction), expected, visit),
                Missing::Scan | Missing::None => reader.scan_by_rid(from, direction, visit),
            },
            (Some(among), Direction::Forward) => {
                let rids = &among[among.partition_point(|&rid| rid < from)..];
                visit_listed(reader, &mut rids.iter().copied(), expected, visit)
            }
            (Some(among), Direction::Backward) => {
                let rids = &among[..among.partition_point(|&rid| rid <= from)];
                visit_listed(reader, &mut rids.iter().rev().copied(), expected, visit)
            }
        }
    }

    /// Goes on behind the rows whose values begin so; false if there is nothing behind.
    fn leave(&self, range: &mut KeyRange, value: &[u8]) -> bool {
        let at = self.at(value);
        let from =
            if self.backward { Some(Bound::Excluded(at)) } else { successor(&at).map(Bound::Included) };
        let Some(from) = from else { return false };
        go_on(range, self.direction(), from);
        true
    }

    /// Rows whose values begin so.
    fn group(&self, value: &[u8]) -> KeyRange {
        KeyRange::prefix(&self.at(value))
    }

    /// Whether a sort key is that of items that have no row.
    fn is_missing(&self, sort_key: &[u8]) -> bool {
        self.can_miss() && *sort_key == self.missing_key()
    }

    /// Whether items that have no row can match.
    fn can_miss(&self) -> bool {
        !matches!(self.missing, Missing::None)
    }

    /// The sort key of items that have no row.
    fn missing_key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        key::encode(&Value::Undefined, &mut key);
        self.sort_key(&key)
    }
}

/// The length of the first value in a row and whether it is the whole value.
fn part(stored: &[u8], flipped: bool) -> Option<(usize, bool)> {
    let byte = |at: usize| stored.get(at).map(|byte| if flipped { !byte } else { *byte });
    let length = match byte(0)? {
        key::NUMBER => 11,
        key::STRING => {
            let mut at = 1;
            loop {
                match (byte(at)?, byte(at + 1)) {
                    (0, Some(0xFF)) => at += 2,
                    (0, Some(end)) => return Some((at + 2, end == 1)),
                    (0, None) => return None,
                    _ => at += 1,
                }
            }
        }
        key::ARRAY | key::OBJECT => return Some((1, false)),
        _ => 1,
    };
    (stored.len() >= length).then_some((length, true))
}

/// Where `range` goes on behind everything before a value; `None` if it lies before it as a whole.
fn from_value(walk: &Walk, range: KeyRange, value: &[u8]) -> Option<KeyRange> {
    let KeyRange { start, end } = range;
    let group = walk.group(value);
    let range = if walk.backward {
        KeyRange { start, end: earlier(end, group.end) }
    } else {
        KeyRange { start: later(start, group.start), end }
    };
    (!range.is_empty()).then_some(range)
}

fn later(left: Bound<Vec<u8>>, right: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match (&left, &right) {
        (Bound::Unbounded, _) => right,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(other)) if other > from => right,
        _ => left,
    }
}

fn earlier(left: Bound<Vec<u8>>, right: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match (&left, &right) {
        (Bound::Unbounded, _) => right,
        (Bound::Included(to) | Bound::Excluded(to), Bound::Excluded(other)) if other <= to => right,
        (Bound::Included(to) | Bound::Excluded(to), Bound::Included(other)) if other < to => right,
        _ => left,
    }
}

/// One page of rows; true if there are more.
fn read(
    reader: &mut Reader<'_>,
    walk: &Walk,
    range: &KeyRange,
    direction: Direction,
    rows_max: usize,
) -> Result<(Vec<Entry>, bool), EngineError> {
    let mut entries = Vec::new();
    let head = walk.head.len();
    let more = reader.index_rows(range.clone(), direction, rows_max, &mut |key| {
        if let Some((value, rid)) = key.get(head..).and_then(<[u8]>::split_last_chunk::<RID_BYTES>) {
            entries.push((value.to_vec(), u64::from_be_bytes(*rid)));
        }
        ControlFlow::Continue(())
    })?;
    Ok((entries, more))
}

/// Neighbouring rows that have one value, or cannot be told apart: the value, how many, and whether it is known.
fn groups(walk: &Walk, entries: &[Entry]) -> Result<Vec<(Vec<u8>, usize, bool)>, EngineError> {
    let mut groups: Vec<(Vec<u8>, usize, bool)> = Vec::new();
    for (value, _) in entries {
        if let Some((last, count, exact)) = groups.last_mut()
            && (if *exact { last == value } else { value.starts_with(last) })
        {
            *count += 1;
            continue;
        }
        let known = walk.known(value)?;
        let length = known.unwrap_or(value.len());
        groups.push((value[..length].to_vec(), 1, known.is_none()));
    }
    Ok(groups)
}

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
        let end = visit_ahead(reader, evaluator, None, wanted, &is_wanted, visit_items, &mut |found| {
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
        })?;
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

/// Rows before the first that does not tell its value.
fn count_known(walk: &Walk, entries: &[Entry]) -> Result<usize, EngineError> {
    for (nth, (value, _)) in entries.iter().enumerate() {
        if walk.known(value)?.is_some() {
            return Ok(nth);
        }
    }
    Ok(entries.len())
}
