//! Index rows of an item, and what a write changes about them.

use std::cmp::Ordering;
use std::sync::Arc;

use quire_sql::WriteMeter;
use quire_storage::{Op, RowList};
use quire_value::{Node, Number, key};
use smallvec::SmallVec;

use super::encoding::{RANGE_STRING_MAX, encode_node, prefix_bytes};
use super::{IndexId, IndexName};
use crate::store::keys::{self, INDEX};

/// Bytes of an encoded number.
pub(super) const NUMBER_BYTES: usize = 11;
/// Memory of a row besides its bytes here: its span, and its operation in a commit with a key of its own.
const ROW_BYTES: usize = 128;
/// Container and rid in the key of a row.
const KEY_ENDS_BYTES: usize = 12;
/// With fewer rows than this none are removed before all are there.
const COMPACTED_ROWS_MIN: usize = 1 << 18;
/// While rows are added they are counted in pieces.
const COUNTED_PIECE: usize = 1 << 20;

/// The rows of one item, as the middles of their keys (index id and value): sorted when they are finished, each once.
#[derive(Default)]
pub(crate) struct RowSet {
    rows: RowList,
    /// Rows that contain `_ts`, which is not known before the commit.
    late: LateRows,
    /// Indexes that are not known to be listed yet.
    names: Vec<Arc<IndexName>>,
    /// Indexes whose rows are not counted.
    uncounted: SmallVec<[IndexId; 0]>,
    /// Scalars that were indexed, duplicates included.
    pub scalars: usize,
    /// What is counted without rows: by id, not 0.
    weights: Vec<(IndexId, u64)>,
    /// Bytes that are counted in the memory of the write.
    counted: usize,
    /// Rows that are there twice are removed when there are so many, and then when there are twice as many.
    compacted_at: usize,
    /// There was too little memory: no row is added any more, and the write is refused.
    is_stopped: bool,
}

/// Mostly those of `/_ts`, by value and by partition.
type LateRows = SmallVec<[RowWithTsHole; 2]>;

/// A row with holes for `_ts`.
struct RowWithTsHole {
    middle: SmallVec<[u8; 32]>,
    /// Where each hole begins, and whether it is descending.
    holes: SmallVec<[(usize, bool); 1]>,
}

/// What a write does to the index rows of one item.
#[derive(Default)]
pub(crate) struct IndexChange {
    pub added: RowList,
    pub removed: RowList,
    late: LateRows,
    ts_rows_before: RowList,
    /// How many rows each index gains, where that is not 0; and what is counted without rows.
    pub counts: Vec<(IndexId, i64)>,
    /// Indexes to be listed with this write.
    pub names: Vec<Arc<IndexName>>,
}

impl RowSet {
    pub fn new() -> RowSet {
        RowSet { rows: RowList::with_capacity(48, 1024), ..RowSet::default() }
    }

    pub fn name(&mut self, name: &Arc<IndexName>) {
        let is_last = || self.names.last().is_some_and(|last| Arc::ptr_eq(last, name));
        if !name.is_listed() && !is_last() {
            self.names.push(Arc::clone(name));
        }
    }

    /// A value-first row.
    pub fn push(&mut self, index: IndexId, node: Node<'_>) {
        self.add(index, |bytes| encode_node(node, RANGE_STRING_MAX, bytes));
    }

    /// A partition-first row.
    pub fn push_in_partition(&mut self, index: IndexId, rid: u64, node: Node<'_>) {
        self.add(index, |bytes| {
            bytes.extend(prefix_bytes(keys::rid_prefix(rid)));
            encode_node(node, RANGE_STRING_MAX, bytes);
        });
    }

    pub fn push_encoded(&mut self, index: IndexId, parts: [&[u8]; 2]) {
        self.add(index, |bytes| parts.iter().for_each(|part| bytes.extend_from_slice(part)));
    }

    /// A row whose value has holes for `_ts` of 11 bytes each.
    pub fn push_ts_row(&mut self, index: IndexId, parts: [&[u8]; 2], holes: &[(usize, bool)]) {
        let head_bytes = size_of::<u64>() + parts[0].len();
        let holes = holes.iter().map(|(at, descending)| (head_bytes + at, *descending)).collect();
        let mut middle = SmallVec::from_slice(&index.0.to_be_bytes());
        parts.iter().for_each(|part| middle.extend_from_slice(part));
        self.late.push(RowWithTsHole { middle, holes });
    }

    /// A row without a value, which is not counted.
    pub fn push_uncounted(&mut self, index: IndexId) {
        self.add(index, |_| {});
        self.uncounted.push(index);
    }

    /// Adds to a count that has no rows.
    pub fn add_to_count(&mut self, index: IndexId, weight: u64) {
        if weight > 0 {
            self.weights.push((index, weight));
        }
    }

    /// What is counted without rows.
    pub fn weights(&self) -> &[(IndexId, u64)] {
        &self.weights
    }

    fn add(&mut self, index: IndexId, write_value: impl FnOnce(&mut Vec<u8>)) {
        if self.is_stopped {
            return;
        }
        self.rows.push_written(|bytes| {
            bytes.extend_from_slice(&index.0.to_be_bytes());
            write_value(bytes);
        });
        // Values of computed properties may have millions of elements, of which many are the same.
        if self.rows.len() >= COMPACTED_ROWS_MIN.max(self.compacted_at) {
            self.rows.sort_and_dedup();
            self.rows.compact();
            self.compacted_at = 2 * self.rows.len();
        }
        let size = self.rows.size_bytes();
        if size >= self.counted + COUNTED_PIECE {
            self.count(size);
        }
    }

    fn count(&mut self, size: usize) {
        match size.checked_sub(self.counted) {
            Some(more) => self.is_stopped |= !WriteMeter::retain_bytes(more),
            None => WriteMeter::release(self.counted - size),
        }
        self.counted = size;
    }

    /// To be called when all rows are there.
    pub fn finish(&mut self) {
        self.rows.sort_and_dedup();
        let size = self.rows.size_bytes() + self.rows.len() * ROW_BYTES;
        self.count(size);
    }

    /// All rows of a stored item.
    pub fn into_rows(self, ts: i64) -> RowList {
        let mut rows = self.rows;
        self.late.iter().for_each(|late| late.push_filled(ts, &mut rows));
        rows
    }
}

impl RowWithTsHole {
    fn push_filled(&self, ts: i64, rows: &mut RowList) {
        rows.push_written(|bytes| {
            let start = bytes.len();
            bytes.extend_from_slice(&self.middle);
            let number = bytes.len();
            key::encode_number(Number::Int(ts), bytes);
            for (at, descending) in &self.holes {
                let hole = start + at;
                bytes.copy_within(number.., hole);
                if *descending {
                    bytes[hole..hole + NUMBER_BYTES].iter_mut().for_each(|byte| *byte = !*byte);
                }
            }
            bytes.truncate(number);
        });
    }
}

/// A hole for `_ts` in a row's value.
pub(crate) fn reserve_ts_hole(value: &mut Vec<u8>) -> usize {
    let at = value.len();
    value.resize(at + NUMBER_BYTES, 0);
    at
}

impl IndexChange {
    /// From the rows of a stored version (with its `_ts`) to those of a new one. Rows that stay are not touched.
    pub fn between(old: Option<(RowSet, i64)>, new: Option<RowSet>) -> IndexChange {
        let mut change = IndexChange::default();
        let (old, ts) = old.unwrap_or_default();
        let new = new.unwrap_or_default();
        let uncounted = old.uncounted.iter().chain(&new.uncounted).copied();
        let uncounted: SmallVec<[IndexId; 4]> = uncounted.collect();
        let weights = |rows: &RowSet, sign: i64| -> Vec<(IndexId, i64)> {
            rows.weights.iter().map(|(index, weight)| (*index, sign * *weight as i64)).collect()
        };
        let weights = [weights(&old, -1), weights(&new, 1)].concat();
        if old.rows.is_empty() {
            change.added = new.rows;
        } else {
            change.compare(&old.rows, &new.rows);
        }
        old.late.iter().for_each(|late| late.push_filled(ts, &mut change.ts_rows_before));
        (change.late, change.names) = (new.late, new.names);
        change.count(&uncounted, weights);
        change
    }

    /// A sorted merge.
    fn compare(&mut self, old: &RowList, new: &RowList) {
        let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.cmp(new),
            };
            match order {
                Ordering::Less => self.removed.extend(old.next()),
                Ordering::Greater => self.added.extend(new.next()),
                Ordering::Equal => {
                    old.next();
                    new.next();
                }
            }
        }
    }

    fn count(&mut self, uncounted: &[IndexId], weights: Vec<(IndexId, i64)>) {
        let mut counts: Vec<(IndexId, i64)> = Vec::with_capacity(self.added.len() + weights.len() + 2);
        let mut add = |middle: &[u8], by: i64| {
            let index = index_of(middle);
            match counts.last_mut() {
                Some((last, count)) if *last == index => *count += by,
                _ => counts.push((index, by)),
            }
        };
        self.added.iter().for_each(|middle| add(middle, 1));
        self.late.iter().for_each(|late| add(&late.middle, 1));
        let may_cancel = !self.removed.is_empty() || !self.ts_rows_before.is_empty() || weights.len() > 1;
        if may_cancel {
            self.removed.iter().for_each(|middle| add(middle, -1));
            self.ts_rows_before.iter().for_each(|middle| add(middle, -1));
        }
        counts.extend(weights);
        if may_cancel {
            counts = merged(counts);
        }
        if !uncounted.is_empty() {
            counts.retain(|(index, _)| !uncounted.contains(index));
        }
        self.counts = counts;
    }

    /// Fills in what the commit decides.
    pub fn stamp(&mut self, ts: i64) {
        for late in std::mem::take(&mut self.late) {
            late.push_filled(ts, &mut self.added);
            if self.added.last().is_some_and(|row| self.ts_rows_before.remove(row)) {
                self.added.pop();
            }
        }
        self.removed.append(std::mem::take(&mut self.ts_rows_before));
    }

    /// After `stamp`: the op, if anything changes.
    pub fn into_op(self, container: u32, rid: u64) -> Option<Op> {
        let IndexChange { added, removed, .. } = self;
        if added.is_empty() && removed.is_empty() {
            return None;
        }
        let (prefix, suffix) = (keys::container_prefix(container).to_vec(), rid.to_be_bytes().to_vec());
        Some(Op::Rows { space: INDEX, prefix, suffix, added, removed })
    }

    /// Rows that are added or removed at most.
    pub fn len(&self) -> usize {
        self.added.len() + self.removed.len() + self.late.len() + self.ts_rows_before.len()
    }

    /// Bytes of their keys at most.
    pub fn bytes(&self) -> usize {
        let late: usize = self.late.iter().map(|late| late.middle.len()).sum();
        let rows = self.added.row_bytes() + self.removed.row_bytes() + self.ts_rows_before.row_bytes();
        late + rows + self.len() * KEY_ENDS_BYTES
    }
}

fn index_of(middle: &[u8]) -> IndexId {
    IndexId(middle.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)))
}

fn merged(mut counts: Vec<(IndexId, i64)>) -> Vec<(IndexId, i64)> {
    counts.sort_unstable_by_key(|(index, _)| *index);
    counts.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
    counts.retain(|(_, count)| *count != 0);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rows_take_no_memory() {
        let (mut rows, mut few) = (RowSet::new(), RowSet::new());
        for number in 0_u32..3_000_000 {
            let value = (number % 100_000).to_be_bytes();
            rows.push_encoded(IndexId(7), [&value, b"x"]);
            if number < 100_000 {
                few.push_encoded(IndexId(7), [&value, b"x"]);
            }
            assert!(
                rows.rows.len() <= COMPACTED_ROWS_MIN && rows.rows.size_bytes() <= 25 * COMPACTED_ROWS_MIN
            );
        }
        rows.finish();
        few.finish();
        assert!(rows.rows == few.rows && rows.rows.len() == 100_000);
    }
}
