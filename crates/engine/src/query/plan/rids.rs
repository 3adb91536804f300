//! Ordered sets of child ids from indexes, read on demand.
//!
//! Rows of one value are in the order of child ids, so a seek needs no memory. Everything else that an index finds is
//! collected and sorted first.

use std::ops::{Bound, ControlFlow};

use quire_storage::{Direction, KeyRange};

use super::super::partition_scope::{ItemPosition, PartitionScope};
use crate::api::EngineError;
use crate::query::reader::{ItemVisitor, ScanEnd, ScopeReader, continue_range};
use crate::store::keys;

/// Rows per read of a seek: first few, since many results are short, then more.
const SEEK_ROWS_FIRST: usize = 32;
const SEEK_ROWS_MAX: usize = 1024;
/// Items per fetch, and their estimated bytes.
const FETCH_FIRST: usize = 16;
const FETCH_MAX: usize = 256;
const FETCH_BYTES_MAX: u64 = 8 << 20;

/// Child ids, ascending.
pub(crate) enum RidSet {
    /// Collected and sorted.
    Sorted {
        rids: Vec<u64>,
        at: usize,
    },
    /// The rows of one value in an index.
    Seek(IndexSeek),
    Union(Vec<RidSet>),
}

pub(crate) struct IndexSeek {
    /// Everything in the row's key before the child id.
    prefix: Vec<u8>,
    rows: Vec<u64>,
    at: usize,
    rows_next: usize,
    /// No rows after those that were read.
    ended: bool,
}

impl RidSet {
    pub fn sorted(mut rids: Vec<u64>) -> RidSet {
        rids.sort_unstable();
        rids.dedup();
        RidSet::Sorted { rids, at: 0 }
    }

    pub fn seek(prefix: Vec<u8>) -> RidSet {
        RidSet::Seek(IndexSeek { prefix, rows: Vec::new(), at: 0, rows_next: SEEK_ROWS_FIRST, ended: false })
    }

    /// The first id from `from` on. `from` never decreases from call to call.
    pub fn next(&mut self, reader: &mut ScopeReader<'_>, from: u64) -> Result<Option<u64>, EngineError> {
        match self {
            RidSet::Sorted { rids, at } => {
                *at += rids[*at..].partition_point(|&rid| rid < from);
                Ok(rids.get(*at).copied())
            }
            RidSet::Seek(seek) => seek.next(reader, from),
            RidSet::Union(parts) => {
                let mut least = None;
                for part in parts {
                    let rid = part.next(reader, from)?;
                    least = match (least, rid) {
                        (Some(least), Some(rid)) => Some(rid.min(least)),
                        (least, rid) => least.or(rid),
                    };
                }
                Ok(least)
            }
        }
    }

    /// Visits the items from a position on. `expected`: the number of items that probably fill the page.
    pub fn visit(
        &mut self,
        reader: &mut ScopeReader<'_>,
        from: Option<ItemPosition>,
        expected: usize,
        visit: &mut ItemVisitor<'_>,
    ) -> Result<ScanEnd, EngineError> {
        let first = reader.scope_index(from)?;
        let mut from = from.map(|position| position.rid);
        let mut batch = FETCH_FIRST.min(expected.saturating_add(1));
        for scope in &reader.scopes[first..] {
            reader.meter.enter(scope.partition.layout.id);
            let end = self.visit_scope(reader, scope, from.take(), &mut batch, visit)?;
            if end != ScanEnd::Done {
                return Ok(end);
            }
        }
        Ok(ScanEnd::Done)
    }

    fn visit_scope(
        &mut self,
        reader: &mut ScopeReader<'_>,
        scope: &PartitionScope<'_>,
        from: Option<u64>,
        batch: &mut usize,
        visit: &mut ItemVisitor<'_>,
    ) -> Result<ScanEnd, EngineError> {
        let (low, high) = scope.rids();
        let mut from = from.map_or(low, |from| from.max(low));
        // Two scopes may share ids at their edge, so the next scope starts at or before the last id.
        self.rewind_to(from);
        let mut rids = Vec::new();
        loop {
            self.take(reader, from, high, *batch, &mut rids)?;
            let Some(&last) = rids.last() else { return Ok(ScanEnd::Done) };
            let is_last_batch = rids.len() < *batch;
            for (&rid, bytes) in rids.iter().zip(reader.fetch(&rids)?) {
                let Some(bytes) = bytes else { continue };
                let end = reader.show_in(scope, rid, &bytes, visit)?;
                if end != ScanEnd::Done {
                    return Ok(end);
                }
            }
            from = last + 1;
            *batch = next_batch(*batch, reader);
            if is_last_batch {
                return Ok(ScanEnd::Done);
            }
        }
    }

    fn rewind_to(&mut self, from: u64) {
        match self {
            RidSet::Sorted { rids, at } => *at = rids.partition_point(|&rid| rid < from),
            RidSet::Seek(seek) => {
                if seek.rows.first().is_none_or(|&first| first > from) {
                    seek.rows.clear();
                    seek.ended = false;
                }
                seek.at = 0;
            }
            RidSet::Union(parts) => {
                parts.iter_mut().for_each(|part| part.rewind_to(from));
            }
        }
    }

    /// At most so many, up to `high`, into `rids`.
    fn take(
        &mut self,
        reader: &mut ScopeReader<'_>,
        mut from: u64,
        high: u64,
        count: usize,
        rids: &mut Vec<u64>,
    ) -> Result<(), EngineError> {
        rids.clear();
        rids.reserve(count);
        while rids.len() < count {
            match self.next(reader, from)? {
                Some(rid) if rid <= high => rids.push(rid),
                _ => break,
            }
            from = rids[rids.len() - 1] + 1;
        }
        Ok(())
    }
}

/// Visits listed items in the order of the list.
pub(crate) fn visit_listed(
    reader: &mut ScopeReader<'_>,
    rids: &mut dyn Iterator<Item = u64>,
    expected: usize,
    visit: &mut ItemVisitor<'_>,
) -> Result<ScanEnd, EngineError> {
    let mut batch = FETCH_FIRST.min(expected.saturating_add(1));
    loop {
        let rids: Vec<u64> = rids.take(batch).collect();
        if rids.is_empty() {
            return Ok(ScanEnd::Done);
        }
        for (&rid, bytes) in rids.iter().zip(reader.fetch(&rids)?) {
            let Some(bytes) = bytes else { continue };
            let end = reader.show(rid, &bytes, visit)?;
            if end != ScanEnd::Done {
                return Ok(end);
            }
        }
        batch = next_batch(batch, reader);
    }
}

/// Visits the items of the rows with a prefix, by child id in either direction.
pub(crate) fn visit_rows(
    reader: &mut ScopeReader<'_>,
    prefix: &[u8],
    (from, direction): (u64, Direction),
    expected: usize,
    visit: &mut ItemVisitor<'_>,
) -> Result<ScanEnd, EngineError> {
    let row = |rid: u64| [prefix, &rid.to_be_bytes()].concat();
    let mut batch = FETCH_FIRST.min(expected.saturating_add(1));
    for (low, high) in reader.intervals_from(from, direction) {
        let mut range = KeyRange { start: Bound::Included(row(low)), end: Bound::Included(row(high)) };
        loop {
            let mut rids = Vec::with_capacity(batch);
            let more = reader.index_rows(range.clone(), direction, batch, &mut |key| {
                rids.extend(key.last_chunk().map(|rid| u64::from_be_bytes(*rid)));
                ControlFlow::Continue(())
            })?;
            for (&rid, bytes) in rids.iter().zip(reader.fetch(&rids)?) {
                let Some(bytes) = bytes else { continue };
                let end = reader.show(rid, &bytes, visit)?;
                if end != ScanEnd::Done {
                    return Ok(end);
                }
            }
            let Some(&last) = rids.last().filter(|_| more) else { break };
            continue_range(&mut range, direction, Bound::Excluded(row(last)));
            batch = next_batch(batch, reader);
        }
    }
    Ok(ScanEnd::Done)
}

/// Twice the last batch, unless items are large.
pub(crate) fn next_batch(last: usize, reader: &ScopeReader<'_>) -> usize {
    let average = reader.meter.bytes / reader.meter.items.max(1);
    let fitting = usize::try_from(FETCH_BYTES_MAX / average.max(1)).unwrap_or(FETCH_MAX);
    (2 * last).min(FETCH_MAX).min(fitting).max(1)
}

impl IndexSeek {
    fn next(&mut self, reader: &mut ScopeReader<'_>, from: u64) -> Result<Option<u64>, EngineError> {
        self.at += self.rows[self.at..].partition_point(|&rid| rid < from);
        if self.at == self.rows.len() && !self.ended {
            self.read(reader, from)?;
        }
        Ok(self.rows.get(self.at).copied())
    }

    fn read(&mut self, reader: &mut ScopeReader<'_>, from: u64) -> Result<(), EngineError> {
        let range = KeyRange {
            start: Bound::Included([&self.prefix[..], &from.to_be_bytes()].concat()),
            end: Bound::Included([&self.prefix[..], &[0xFF; 8]].concat()),
        };
        self.rows.clear();
        self.at = 0;
        let (rows, start) = (&mut self.rows, self.prefix.len());
        let more = reader.index_rows(range, Direction::Forward, self.rows_next, &mut |key| {
            rows.extend(key.get(start..).and_then(keys::number));
            ControlFlow::Continue(())
        })?;
        self.ended = !more;
        self.rows_next = (4 * self.rows_next).min(SEEK_ROWS_MAX);
        Ok(())
    }
}
