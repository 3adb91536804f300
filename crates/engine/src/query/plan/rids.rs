//! Sets of child ids in their order, as indexes tell them: read as far as they are asked for.
//!
//! Rows of one value lie in the order of their child ids, so a seek needs no memory. Everything else that an index
//! finds is gathered and sorted first.

use std::ops::{Bound, ControlFlow};

use quire_storage::{Direction, KeyRange};

use super::super::window::{Spot, Window};
use crate::api::EngineError;
use crate::query::reader::{End, Reader, Visit, go_on};
use crate::store::keys;

/// Rows of a seek read at a time: first few, since many results are short, then more.
const SEEK_ROWS_FIRST: usize = 32;
const SEEK_ROWS_MAX: usize = 1024;
/// Items fetched at a time, and their bytes as far as they can be told.
const FETCH_FIRST: usize = 16;
const FETCH_MAX: usize = 256;
const FETCH_BYTES_MAX: u64 = 8 << 20;

/// Child ids, ascending.
pub(crate) enum Rids {
    /// Gathered and sorted.
    Sorted {
        rids: Vec<u64>,
        at: usize,
    },
    /// The rows of one value in an index.
    Seek(Seek),
    Union(Vec<Rids>),
}

pub(crate) struct Seek {
    /// Everything in the row's key before the child id.
    prefix: Vec<u8>,
    rows: Vec<u64>,
    at: usize,
    rows_next: usize,
    /// No rows behind those that were read.
    ended: bool,
}

impl Rids {
    pub fn sorted(mut rids: Vec<u64>) -> Rids {
        rids.sort_unstable();
        rids.dedup();
        Rids::Sorted { rids, at: 0 }
    }

    pub fn seek(prefix: Vec<u8>) -> Rids {
        Rids::Seek(Seek { prefix, rows: Vec::new(), at: 0, rows_next: SEEK_ROWS_FIRST, ended: false })
    }

    /// The first that is not below `from`. Never goes back: `from` rises from call to call.
    pub fn next(&mut self, reader: &mut Reader<'_>, from: u64) -> Result<Option<u64>, EngineError> {
        match self {
            Rids::Sorted { rids, at } => {
                *at += rids[*at..].partition_point(|&rid| rid < from);
                Ok(rids.get(*at).copied())
            }
            Rids::Seek(seek) => seek.next(reader, from),
            Rids::Union(parts) => {
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

    /// Shows the items, from a spot on. `expected` items are enough for the visitor, as far as it knows.
    pub fn visit(
        &mut self,
        reader: &mut Reader<'_>,
        from: Option<Spot>,
        expected: usize,
        visit: &mut Visit<'_>,
    ) -> Result<End, EngineError> {
        let first = reader.window_of(from)?;
        let mut from = from.map(|spot| spot.rid);
        let mut batch = FETCH_FIRST.min(expected.saturating_add(1));
        for window in &reader.windows[first..] {
            reader.meter.enter(window.partition.layout.id);
            let end = self.visit_window(reader, window, from.take(), &mut batch, visit)?;
            if end != End::Done {
                return Ok(end);
            }
        }
        Ok(End::Done)
    }

    fn visit_window(
        &mut self,
        reader: &mut Reader<'_>,
        window: &Window<'_>,
        from: Option<u64>,
        batch: &mut usize,
        visit: &mut Visit<'_>,
    ) -> Result<End, EngineError> {
        let (low, high) = window.rids();
        let mut from = from.map_or(low, |from| from.max(low));
        // Two windows may share the ids at their edge, so the walk goes back a little.
        self.rewind_to(from);
        loop {
            let rids = self.take(reader, from, high, *batch)?;
            let Some(&last) = rids.last() else { return Ok(End::Done) };
            for (&rid, bytes) in rids.iter().zip(reader.fetch(&rids)?) {
                let Some(bytes) = bytes else { continue };
                let end = reader.show_in(window, rid, &bytes, visit)?;
                if end != End::Done {
                    return Ok(end);
                }
            }
            from = last + 1;
            *batch = next_batch(*batch, reader);
        }
    }

    fn rewind_to(&mut self, from: u64) {
        match self {
            Rids::Sorted { rids, at } => *at = rids.partition_point(|&rid| rid < from),
            Rids::Seek(seek) => {
                if seek.rows.first().is_none_or(|&first| first > from) {
                    seek.rows.clear();
                    seek.ended = false;
                }
                seek.at = 0;
            }
            Rids::Union(parts) => {
                parts.iter_mut().for_each(|part| part.rewind_to(from));
            }
        }
    }

    /// At most so many, up to `high`.
    fn take(
        &mut self,
        reader: &mut Reader<'_>,
        mut from: u64,
        high: u64,
        count: usize,
    ) -> Result<Vec<u64>, EngineError> {
        let mut rids = Vec::with_capacity(count);
        while rids.len() < count {
            match self.next(reader, from)? {
                Some(rid) if rid <= high => rids.push(rid),
                _ => break,
            }
            from = rids[rids.len() - 1] + 1;
        }
        Ok(rids)
    }
}

/// Shows listed items in the order of the list.
pub(crate) fn visit_listed(
    reader: &mut Reader<'_>,
    rids: &mut dyn Iterator<Item = u64>,
    expected: usize,
    visit: &mut Visit<'_>,
) -> Result<End, EngineError> {
    let mut batch = FETCH_FIRST.min(expected.saturating_add(1));
    loop {
        let rids: Vec<u64> = rids.take(batch).collect();
        if rids.is_empty() {
            return Ok(End::Done);
        }
        for (&rid, bytes) in rids.iter().zip(reader.fetch(&rids)?) {
            let Some(bytes) = bytes else { continue };
            let end = reader.show(rid, &bytes, visit)?;
            if end != End::Done {
                return Ok(end);
            }
        }
        batch = next_batch(batch, reader);
    }
}

/// Shows the items of the rows below a prefix, by child id in either direction.
pub(crate) fn visit_rows(
    reader: &mut Reader<'_>,
    prefix: &[u8],
    (from, direction): (u64, Direction),
    expected: usize,
    visit: &mut Visit<'_>,
) -> Result<End, EngineError> {
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
                if end != End::Done {
                    return Ok(end);
                }
            }
            let Some(&last) = rids.last().filter(|_| more) else { break };
            go_on(&mut range, direction, Bound::Excluded(row(last)));
            batch = next_batch(batch, reader);
        }
    }
    Ok(End::Done)
}

/// As many as the last time twice, unless items are large.
pub(crate) fn next_batch(last: usize, reader: &Reader<'_>) -> usize {
    let average = reader.meter.bytes / reader.meter.items.max(1);
    let fitting = usize::try_from(FETCH_BYTES_MAX / average.max(1)).unwrap_or(FETCH_MAX);
    (2 * last).min(FETCH_MAX).min(fitting).max(1)
}

impl Seek {
    fn next(&mut self, reader: &mut Reader<'_>, from: u64) -> Result<Option<u64>, EngineError> {
        self.at += self.rows[self.at..].partition_point(|&rid| rid < from);
        if self.at == self.rows.len() && !self.ended {
            self.read(reader, from)?;
        }
        Ok(self.rows.get(self.at).copied())
    }

    fn read(&mut self, reader: &mut Reader<'_>, from: u64) -> Result<(), EngineError> {
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
