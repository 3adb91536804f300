//! A condition that indexes can answer, read in portions: the child ids of any of its parts.

use std::ops::{Bound, ControlFlow};

use quire_storage::Direction;
use smallvec::SmallVec;

use super::explain::PlanNode;
use super::snapshot_indexes::{IndexPart, SnapshotIndexes};
use super::{ROUND_FACTOR, SEEK};
use crate::api::EngineError;
use crate::indexes::IndexId;
use crate::query::reader::ScopeReader;

/// Rows of an index that one call of the reader gathers.
const READ_ROWS_MAX: usize = 64 << 10;

/// Room for a short result.
const ROWS_EXPECTED: usize = 32;
const KEY_BYTES_EXPECTED: usize = 64;

/// `None` where nobody asks.
pub(super) type Label = Option<String>;

/// A condition that indexes can answer: the items of any of its parts.
pub(super) struct ConditionUnion {
    /// What it answers, for those who ask how a query is run.
    pub label: Label,
    pub parts: Vec<IndexPart>,
    /// The part being read, and whether it was begun.
    pub at: usize,
    is_begun: bool,
    /// The last key that was read of it.
    last: SmallVec<[u8; KEY_BYTES_EXPECTED]>,
    pub rids: Vec<u64>,
    /// Bytes of the query's memory.
    pub held_bytes: usize,
    pub cost: u64,
    pub indexes: SmallVec<[IndexId; 1]>,
}

impl ConditionUnion {
    pub fn new(label: Label) -> ConditionUnion {
        let (parts, rids, indexes) = (Vec::new(), Vec::new(), SmallVec::new());
        ConditionUnion {
            label,
            parts,
            at: 0,
            is_begun: false,
            last: SmallVec::new(),
            rids,
            held_bytes: 0,
            cost: 0,
            indexes,
        }
    }

    pub fn add_parts(&mut self, parts: Vec<IndexPart>) {
        if self.parts.is_empty() {
            self.parts = parts;
        } else {
            self.parts.extend(parts);
        }
    }

    pub fn is_seek(&self) -> bool {
        self.parts.iter().all(|part| part.seek().is_some())
    }

    pub fn is_read(&self) -> bool {
        self.at == self.parts.len()
    }

    /// Continues reading up to this cost; true at the end.
    pub fn read(&mut self, reader: &mut ScopeReader<'_>, cost_max: u64) -> Result<bool, EngineError> {
        while !self.is_read() && self.cost < cost_max {
            let ConditionUnion { parts, last, rids, .. } = self;
            let keys = &mut parts[self.at].keys;
            let start = if self.is_begun {
                Some(std::mem::replace(&mut keys.start, Bound::Excluded(last.to_vec())))
            } else {
                self.cost += SEEK as u64;
                None
            };
            let rows_max = usize::try_from(cost_max.saturating_sub(self.cost).max(1)).unwrap_or(usize::MAX);
            let rows_max = rows_max.min(READ_ROWS_MAX);
            rids.reserve(ROWS_EXPECTED.min(rows_max));
            let (before, mut rows) = (rids.len(), 0);
            let more = reader.index_rows_in(keys, Direction::Forward, rows_max, &mut |key| {
                rids.extend(key.last_chunk().map(|rid| u64::from_be_bytes(*rid)));
                rows += 1;
                last.clear();
                last.extend_from_slice(key);
                ControlFlow::Continue(())
            });
            if let Some(start) = start {
                keys.start = start;
            }
            let more = more?;
            let bytes = (rids.len() - before) * size_of::<u64>();
            reader.meter.retain_bytes(bytes)?;
            self.held_bytes += bytes;
            let mut kept = before;
            for at in before..rids.len() {
                if reader.may_contain(rids[at]) {
                    rids[kept] = rids[at];
                    kept += 1;
                }
            }
            rids.truncate(kept);
            self.cost += rows;
            self.is_begun = more && rows > 0;
            if !self.is_begun {
                self.at += 1;
            }
        }
        Ok(self.is_read())
    }

    /// Drops what was read so far.
    pub fn reset(&mut self, reader: &ScopeReader<'_>) {
        reader.meter.release(std::mem::take(&mut self.held_bytes));
        (self.rids, self.is_begun, self.at, self.cost) = (Vec::new(), false, 0, 0);
    }

    pub fn sort_and_dedup(&mut self) {
        self.rids.sort_unstable();
        self.rids.dedup();
    }

    /// The geometric mean of what was read and the most there can be.
    pub fn estimate(&self, snapshot_indexes: &SnapshotIndexes<'_>) -> u64 {
        let seen = self.rids.len() as u64;
        if self.is_read() {
            return seen;
        }
        let mut indexes = self.indexes.clone();
        indexes.sort();
        indexes.dedup();
        let rows = indexes.iter().map(|index| snapshot_indexes.rows(*index).unwrap_or(u64::MAX));
        let most =
            rows.fold(0, u64::saturating_add).max(seen.saturating_mul(ROUND_FACTOR)).min(u64::from(u32::MAX));
        ((seen.max(1) as f64) * most as f64).sqrt() as u64
    }

    pub fn node(&self, snapshot_indexes: &SnapshotIndexes<'_>) -> PlanNode {
        let Some(label) = &self.label else { return PlanNode::new("") };
        let what = if self.is_seek() { "Seek" } else { "Range" };
        let actual = self.is_read().then_some(self.rids.len() as u64);
        PlanNode::new(format!("{what} {label}")).with_rows(self.estimate(snapshot_indexes), actual)
    }
}
