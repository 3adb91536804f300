//! Index rows of an item, and what a write changes about them.

use std::cmp::Ordering;
use std::sync::Arc;

use quire_sql::WriteMeter;
use quire_storage::Op;
use quire_value::{Node, Number, key};
use smallvec::SmallVec;

use super::encoding::{RANGE_STRING_MAX, encode_node, prefix_bytes};
use super::{IndexId, IndexName};
use crate::store::keys::{self, INDEX};

/// Bytes of an encoded number.
const NUMBER_BYTES: usize = 11;
/// Memory of a row besides its bytes here: its span, and its operation in a commit with a key of its own.
const ROW_BYTES: usize = 128;
/// With fewer rows than this none are removed before all are there.
const COMPACTED_ROWS_MIN: usize = 1 << 18;
/// While rows are added they are counted in pieces.
const COUNTED_PIECE: usize = 1 << 20;

/// The rows of one item, as the middles of their keys (index id and value): sorted, each once.
#[derive(Default)]
pub(crate) struct RowSet {
    bytes: Vec<u8>,
    /// Where each row ends in `bytes`, until `finish`; then where it begins and ends, sorted by content.
    spans: Vec<(u32, u32)>,
    /// Rows that contain `_ts`, which is not known before the commit.
    late: Vec<RowWithTsHole>,
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

/// A row with holes for `_ts`.
struct RowWithTsHole {
    middle: Vec<u8>,
    /// Where each hole begins, and whether it is descending.
    holes: SmallVec<[(usize, bool); 1]>,
}

/// What a write does to the index rows of one item.
#[derive(Default)]
pub(crate) struct IndexChange {
    pub added: Vec<Vec<u8>>,
    pub removed: Vec<Vec<u8>>,
    late: Vec<RowWithTsHole>,
    ts_rows_before: Vec<Vec<u8>>,
    /// How many rows each index gains, where that is not 0; and what is counted without rows.
    pub counts: Vec<(IndexId, i64)>,
    /// Indexes to be listed with this write.
    pub names: Vec<Arc<IndexName>>,
}

impl RowSet {
    pub fn new() -> RowSet {
        RowSet { bytes: Vec::with_capacity(1024), spans: Vec::with_capacity(48), ..RowSet::default() }
    }

    pub fn name(&mut self, name: &Arc<IndexName>) {
        let is_last = || self.names.last().is_some_and(|last| Arc::ptr_eq(last, name));
        if !name.is_listed() && !is_last() {
            self.names.push(Arc::clone(name));
        }
    }

    /// A value-first row.
    pub fn push(&mut self, index: IndexId, node: Node<'_>) {
        self.begin(index);
        encode_node(node, RANGE_STRING_MAX, &mut self.bytes);
        self.end();
    }

    /// A partition-first row.
    pub fn push_in_partition(&mut self, index: IndexId, rid: u64, node: Node<'_>) {
        self.begin(index);
        self.bytes.extend(prefix_bytes(keys::rid_prefix(rid)));
        encode_node(node, RANGE_STRING_MAX, &mut self.bytes);
        self.end();
    }

    pub fn push_encoded(&mut self, index: IndexId, parts: [&[u8]; 2]) {
        self.begin(index);
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.end();
    }

    /// A row whose value has holes for `_ts` of 11 bytes each.
    pub fn push_ts_row(&mut self, index: IndexId, parts: [&[u8]; 2], holes: &[(usize, bool)]) {
        let head_bytes = size_of::<u64>() + parts[0].len();
        let holes = holes.iter().map(|(at, descending)| (head_bytes + at, *descending)).collect();
        self.late
            .push(RowWithTsHole { middle: [&index.0.to_be_bytes(), parts[0], parts[1]].concat(), holes });
    }

    /// A row without a value, which is not counted.
    pub fn push_uncounted(&mut self, index: IndexId) {
        self.begin(index);
        self.end();
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

    fn begin(&mut self, index: IndexId) {
        self.bytes.extend_from_slice(&index.0.to_be_bytes());
    }

    fn end(&mut self) {
        let start = self.spans.last().map_or(0, |(_, end)| *end);
        if self.is_stopped {
            return self.bytes.truncate(start as usize);
        }
        let end = u32::try_from(self.bytes.len()).expect("an item of 2 MB has far less than 4 GB of rows");
        self.spans.push((start, end));
        if self.spans.len() >= COMPACTED_ROWS_MIN.max(self.compacted_at) {
            self.compact();
        }
        let size = self.bytes.len() + size_of_val(&*self.spans);
        if size >= self.counted + COUNTED_PIECE {
            self.count(size);
        }
    }

    /// Values of computed properties may have millions of elements, of which many are the same.
    fn compact(&mut self) {
        self.sort();
        let mut bytes = Vec::with_capacity(self.rows().map(<[u8]>::len).sum());
        for span in &mut self.spans {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(&self.bytes[span.0 as usize..span.1 as usize]);
            *span = (start, bytes.len() as u32);
        }
        self.bytes = bytes;
        self.compacted_at = 2 * self.spans.len();
    }

    fn count(&mut self, size: usize) {
        match size.checked_sub(self.counted) {
            Some(more) => self.is_stopped |= !WriteMeter::retain_bytes(more),
            None => WriteMeter::release(self.counted - size),
        }
        self.counted = size;
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let row = |span: &(u32, u32)| &bytes[span.0 as usize..span.1 as usize];
        self.spans.sort_unstable_by(|a, b| row(a).cmp(row(b)));
        self.spans.dedup_by(|a, b| row(a) == row(b));
    }

    /// To be called when all rows are there.
    pub fn finish(&mut self) {
        self.sort();
        let size = self.bytes.capacity() + self.spans.len() * ROW_BYTES;
        self.count(size);
    }

    fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|&(start, end)| &self.bytes[start as usize..end as usize])
    }

    /// All rows of a stored item.
    pub fn into_rows(self, ts: i64) -> Vec<Vec<u8>> {
        let mut rows: Vec<Vec<u8>> = self.rows().map(<[u8]>::to_vec).collect();
        rows.extend(self.late.into_iter().map(|late| late.fill(ts)));
        rows
    }
}

impl RowWithTsHole {
    fn fill(mut self, ts: i64) -> Vec<u8> {
        let mut number = Vec::with_capacity(NUMBER_BYTES);
        key::encode_number(Number::Int(ts), &mut number);
        for (at, descending) in self.holes {
            let hole = &mut self.middle[at..at + NUMBER_BYTES];
            hole.copy_from_slice(&number);
            if descending {
                hole.iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        self.middle
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
        let nothing = RowSet::default();
        let old_rows = old.as_ref().map_or(&nothing, |(rows, _)| rows);
        let new_rows = new.as_ref().unwrap_or(&nothing);
        change.compare(old_rows, new_rows);
        let uncounted = old_rows.uncounted.iter().chain(&new_rows.uncounted).copied();
        let uncounted: SmallVec<[IndexId; 4]> = uncounted.collect();
        let weights = |rows: &RowSet, sign: i64| -> Vec<(IndexId, i64)> {
            rows.weights.iter().map(|(index, weight)| (*index, sign * *weight as i64)).collect()
        };
        let weights = [weights(old_rows, -1), weights(new_rows, 1)].concat();
        if let Some((old, ts)) = old {
            change.ts_rows_before = old.late.into_iter().map(|late| late.fill(ts)).collect();
        }
        if let Some(new) = new {
            (change.late, change.names) = (new.late, new.names);
        }
        change.count(&uncounted, weights);
        change
    }

    /// A sorted merge.
    fn compare(&mut self, old: &RowSet, new: &RowSet) {
        self.added.reserve(new.spans.len().saturating_sub(old.spans.len()));
        let (mut old, mut new) = (old.rows().peekable(), new.rows().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.cmp(new),
            };
            match order {
                Ordering::Less => self.removed.extend(old.next().map(<[u8]>::to_vec)),
                Ordering::Greater => self.added.extend(new.next().map(<[u8]>::to_vec)),
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
            let middle = late.fill(ts);
            match self.ts_rows_before.iter().position(|before| *before == middle) {
                Some(same) => drop(self.ts_rows_before.swap_remove(same)),
                None => self.added.push(middle),
            }
        }
        self.removed.append(&mut self.ts_rows_before);
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
        let late = self.late.iter().map(|late| &late.middle).chain(&self.ts_rows_before);
        let middles = self.added.iter().chain(&self.removed).chain(late);
        middles.map(|middle| middle.len() + 12).sum()
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
            assert!(rows.spans.len() <= COMPACTED_ROWS_MIN && rows.bytes.len() <= 16 * COMPACTED_ROWS_MIN);
        }
        rows.finish();
        few.finish();
        assert!(rows.rows().eq(few.rows()) && rows.rows().count() == 100_000);
    }
}
