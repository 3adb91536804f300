//! An index in the order of a query: its rows, and which of their values are exact.

use std::ops::{Bound, ControlFlow};

use quire_storage::{Direction, KeyRange, successor};
use quire_value::{Path, Value, key};

use super::order::flip;
use crate::api::{EngineError, corrupt};
use crate::indexes::encode_value;
use crate::query::plan::rids::{visit_listed, visit_rows};
use crate::query::reader::{ItemVisitor, ScanEnd, ScopeReader, continue_range};

const RID_BYTES: usize = 8;

/// An index in the order of a query.
pub(crate) struct IndexWalk {
    /// Container, index id, and in a partition-first index the prefix of the logical partition.
    pub head: Vec<u8>,
    /// Whether each value of a row is stored with its bits flipped.
    pub flipped: Vec<bool>,
    /// The first bytes of a string that a row stores.
    pub string_max: usize,
    /// The index is read from its end.
    pub backward: bool,
    /// The parts of the index to read, in the order in which they are stored.
    pub ranges: Vec<KeyRange>,
    pub missing: MissingValues,
    /// Only these items can match; sorted.
    pub among: Option<Vec<u64>>,
    /// The path of the index, if the query reads nothing else and each row provably represents its item.
    pub covers: Option<Path>,
}

/// Where the items without an index row are found.
pub(crate) enum MissingValues {
    /// There are none, or they cannot match.
    None,
    /// Among all items.
    Scan,
    /// By the rows with this prefix.
    Rows(Vec<u8>),
}

/// A row's value as it is stored, and the item.
pub(super) type IndexEntry = (Vec<u8>, u64);

impl IndexWalk {
    /// The sort key of a row whose value is exact.
    pub fn sort_key(&self, stored: &[u8]) -> Vec<u8> {
        let mut key = stored.to_vec();
        if self.backward {
            flip(&mut key);
        }
        key
    }

    /// The value that a row has for a sort key.
    pub fn stored(&self, sort_key: &[u8]) -> Result<Vec<u8>, EngineError> {
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

    /// `None`: the row has its whole value. Otherwise the bytes up to the part that is truncated or missing.
    pub fn exact_length(&self, stored: &[u8]) -> Result<Option<usize>, EngineError> {
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

    pub fn at(&self, value: &[u8]) -> Vec<u8> {
        [&self.head[..], value].concat()
    }

    pub fn row(&self, value: &[u8], rid: u64) -> Vec<u8> {
        [&self.head[..], value, &rid.to_be_bytes()].concat()
    }

    pub fn is_among(&self, rid: u64) -> bool {
        self.among.as_ref().is_none_or(|among| among.binary_search(&rid).is_ok())
    }

    pub fn direction(&self) -> Direction {
        if self.backward { Direction::Backward } else { Direction::Forward }
    }

    /// Visits the items that can match, by child id.
    pub fn visit_items(
        &self,
        reader: &mut ScopeReader<'_>,
        from: u64,
        direction: Direction,
        expected: usize,
        visit: &mut ItemVisitor<'_>,
    ) -> Result<ScanEnd, EngineError> {
        match (&self.among, direction) {
            (None, _) => match &self.missing {
                MissingValues::Rows(prefix) => visit_rows(reader, prefix, (from, direction), expected, visit),
                MissingValues::Scan | MissingValues::None => reader.scan_by_rid(from, direction, visit),
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

    /// Continues after the rows whose values have this prefix; false: no row follows.
    pub fn leave(&self, range: &mut KeyRange, value: &[u8]) -> bool {
        let at = self.at(value);
        let from =
            if self.backward { Some(Bound::Excluded(at)) } else { successor(&at).map(Bound::Included) };
        let Some(from) = from else { return false };
        continue_range(range, self.direction(), from);
        true
    }

    /// Rows whose values have this prefix.
    pub fn group(&self, value: &[u8]) -> KeyRange {
        KeyRange::prefix(&self.at(value))
    }

    /// Whether a sort key is that of items that have no row.
    pub fn is_missing(&self, sort_key: &[u8]) -> bool {
        self.includes_missing() && *sort_key == self.missing_key()
    }

    /// Whether items that have no row can match.
    pub fn includes_missing(&self) -> bool {
        !matches!(self.missing, MissingValues::None)
    }

    /// The sort key of items that have no row.
    pub fn missing_key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        key::encode(&Value::Undefined, &mut key);
        self.sort_key(&key)
    }
}

/// The length of the first value in a row and whether it is the whole value.
pub(super) fn part(stored: &[u8], flipped: bool) -> Option<(usize, bool)> {
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

/// The part of `range` from a value on; `None`: all of it is before the value.
pub(super) fn from_value(walk: &IndexWalk, range: KeyRange, value: &[u8]) -> Option<KeyRange> {
    let KeyRange { start, end } = range;
    let group = walk.group(value);
    let range = if walk.backward {
        KeyRange { start, end: earlier(end, group.end) }
    } else {
        KeyRange { start: later(start, group.start), end }
    };
    (!range.is_empty()).then_some(range)
}

pub(super) fn later(left: Bound<Vec<u8>>, right: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match (&left, &right) {
        (Bound::Unbounded, _) => right,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(other)) if other > from => right,
        _ => left,
    }
}

pub(super) fn earlier(left: Bound<Vec<u8>>, right: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match (&left, &right) {
        (Bound::Unbounded, _) => right,
        (Bound::Included(to) | Bound::Excluded(to), Bound::Excluded(other)) if other <= to => right,
        (Bound::Included(to) | Bound::Excluded(to), Bound::Included(other)) if other < to => right,
        _ => left,
    }
}

/// One page of rows; true if there are more.
pub(super) fn read(
    reader: &mut ScopeReader<'_>,
    walk: &IndexWalk,
    range: &KeyRange,
    direction: Direction,
    rows_max: usize,
) -> Result<(Vec<IndexEntry>, bool), EngineError> {
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

/// Neighbouring rows with the same value, or with values that are not exact and equal as far as stored: the value, the
/// number of rows, and whether it is exact.
pub(super) fn groups(
    walk: &IndexWalk,
    entries: &[IndexEntry],
) -> Result<Vec<(Vec<u8>, usize, bool)>, EngineError> {
    let mut groups: Vec<(Vec<u8>, usize, bool)> = Vec::new();
    for (value, _) in entries {
        if let Some((last, count, exact)) = groups.last_mut()
            && (if *exact { last == value } else { value.starts_with(last) })
        {
            *count += 1;
            continue;
        }
        let known = walk.exact_length(value)?;
        let length = known.unwrap_or(value.len());
        groups.push((value[..length].to_vec(), 1, known.is_none()));
    }
    Ok(groups)
}

/// The number of rows before the first whose value is not exact.
pub(super) fn count_exact(walk: &IndexWalk, entries: &[IndexEntry]) -> Result<usize, EngineError> {
    for (nth, (value, _)) in entries.iter().enumerate() {
        if walk.exact_length(value)?.is_some() {
            return Ok(nth);
        }
    }
    Ok(entries.len())
}
