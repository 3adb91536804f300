//! A condition that indexes can tell, read bit by bit: the child ids of any of its parts.

use std::ops::{Bound, ControlFlow};

use quire_storage::Direction;

use super::explain::Node;
use super::known::{Known, Part};
use super::{ROUND_FACTOR, SEEK};
use crate::api::EngineError;
use crate::indexes::IndexId;
use crate::query::reader::Reader;

/// Rows of an index that one call of the reader gathers.
const READ_ROWS_MAX: usize = 64 << 10;

/// A condition that indexes can tell: the items of any of its parts.
pub(super) struct Union {
    pub label: String,
    pub parts: Vec<Part>,
    /// The part being read, and where.
    pub at: usize,
    pub from: Option<Vec<u8>>,
    pub rids: Vec<u64>,
    /// Bytes of the query's memory.
    pub held: usize,
    pub cost: u64,
    pub indexes: Vec<IndexId>,
}

impl Union {
    pub fn new(label: String) -> Union {
        let (parts, rids, indexes) = (Vec::new(), Vec::new(), Vec::new());
        Union { label, parts, at: 0, from: None, rids, held: 0, cost: 0, indexes }
    }

    pub fn is_seek(&self) -> bool {
        self.parts.iter().all(|part| part.seek.is_some())
    }

    pub fn is_read(&self) -> bool {
        self.at == self.parts.len()
    }

    /// Goes on reading until it has cost so much; true at the end.
    pub fn read(&mut self, reader: &mut Reader<'_>, cost_max: u64) -> Result<bool, EngineError> {
        while !self.is_read() && self.cost < cost_max {
            let part = &self.parts[self.at];
            let mut keys = part.keys.clone();
            match self.from.take() {
                Some(from) => keys.start = Bound::Excluded(from),
                None => self.cost += SEEK as u64,
            }
            let rows_max = usize::try_from(cost_max.saturating_sub(self.cost).max(1)).unwrap_or(usize::MAX);
            let rows_max = rows_max.min(READ_ROWS_MAX);
            let (mut found, mut last, mut rows) = (Vec::new(), Vec::new(), 0);
            let more = reader.index_rows(keys, Direction::Forward, rows_max, &mut |key| {
                found.extend(key.last_chunk().map(|rid| u64::from_be_bytes(*rid)));
                rows += 1;
                last.clear();
                last.extend_from_slice(key);
                ControlFlow::Continue(())
            })?;
            reader.meter.keep(found.len() * size_of::<u64>())?;
            self.held += found.len() * size_of::<u64>();
            self.rids.extend(found.into_iter().filter(|rid| reader.can_hold(*rid)));
            self.cost += rows;
            if more && rows > 0 {
                self.from = Some(last);
            } else {
                self.at += 1;
            }
        }
        Ok(self.is_read())
    }

    /// What was read so far.
    pub fn forget(&mut self, reader: &Reader<'_>) {
        reader.meter.release(std::mem::take(&mut self.held));
        (self.rids, self.from, self.at, self.cost) = (Vec::new(), None, 0, 0);
    }

    pub fn settle(&mut self) {
        self.rids.sort_unstable();
        self.rids.dedup();
    }

    /// Between what was seen and all there can be, in the middle of their orders of magnitude.
    pub fn estimate(&self, known: &Known<'_>) -> u64 {
        let seen = self.rids.len() as u64;
        if self.is_read() {
            return seen;
        }
        let mut indexes = self.indexes.clone();
        indexes.sort();
        indexes.dedup();
        let rows = indexes.iter().map(|index| known.rows(*index).unwrap_or(u64::MAX));
        let most =
            rows.fold(0, u64::saturating_add).max(seen.saturating_mul(ROUND_FACTOR)).min(u64::from(u32::MAX));
        ((seen.max(1) as f64) * most as f64).sqrt() as u64
    }

    pub fn node(&self, known: &Known<'_>) -> Node {
        let what = if self.is_seek() { "Seek" } else { "Range" };
        let actual = self.is_read().then_some(self.rids.len() as u64);
        Node::new(format!("{what} {}", self.label)).with_rows(self.estimate(known), actual)
    }
}
