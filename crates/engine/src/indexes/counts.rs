//! How many rows each index of a partition has, and how many words the texts of a full-text index, kept with every commit.
//!
//! Up to 256 indexes of a partition are counted, in the order in which they were first seen, 32 to a row, so that the
//! paths which items have together are written together and a commit writes only the rows that changed. The place of
//! an index that has no rows left is given away. When all places are taken a partition is *overflowed* for good: an
//! index without a place may then have any number of rows.
//!
//! A row: format 1, then for each place the index id in 8 bytes and its rows as a variable-length number (7 bits per
//! byte, lowest first, the top bit on all but the last).

use std::collections::HashMap;

use quire_storage::{Op, Snapshot};

use super::IndexId;
use crate::api::{EngineError, corrupt};
use crate::store::keys::{self, CATALOG, Counts};

const FORMAT: u8 = 1;
const PLACES_PER_ROW: usize = 32;
const PLACES_MAX: usize = 256;

/// The counted indexes of a partition, as its sequencer keeps them.
#[derive(Debug, Default)]
pub(crate) struct CountedIndexes {
    places: Vec<(IndexId, u64)>,
    by_index: HashMap<IndexId, usize>,
    /// One bit per row.
    changed: u8,
    /// Places whose index has no rows.
    free: Vec<usize>,
    /// Some index has no place, so an index that is not here may have rows.
    pub overflowed: bool,
}

impl CountedIndexes {
    /// `counts` are those of the same partition in the same snapshot.
    pub fn read(
        snapshot: &dyn Snapshot,
        container: u32,
        partition: u32,
        counts: &Counts,
    ) -> Result<CountedIndexes, EngineError> {
        let rows: Vec<Vec<u8>> = index_counts_keys(container, partition).collect();
        let keys: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        let overflowed = counts.indexes_overflowed;
        let mut counted = CountedIndexes { overflowed, ..CountedIndexes::default() };
        for value in snapshot.multi_get(CATALOG, &keys)?.into_iter().map_while(|value| value) {
            let places = decode(&value).ok_or_else(|| corrupt("counts of indexes"))?;
            for (index, rows) in places {
                let place = counted.places.len();
                counted.places.push((index, rows));
                if rows == 0 {
                    counted.free.push(place);
                } else {
                    counted.by_index.insert(index, place);
                }
            }
        }
        Ok(counted)
    }

    pub fn add(&mut self, index: IndexId, rows: i64) {
        let Some(place) = self.by_index.get(&index).copied().or_else(|| self.take_place(index)) else {
            self.overflowed = true;
            return;
        };
        let count = &mut self.places[place].1;
        *count = count.saturating_add_signed(rows);
        if *count == 0 {
            self.by_index.remove(&index);
            self.free.push(place);
        }
        self.changed |= 1 << (place / PLACES_PER_ROW);
    }

    fn take_place(&mut self, index: IndexId) -> Option<usize> {
        if self.overflowed {
            return None;
        }
        let place = match self.free.pop() {
            Some(place) => {
                self.places[place] = (index, 0);
                place
            }
            None if self.places.len() < PLACES_MAX => {
                self.places.push((index, 0));
                self.places.len() - 1
            }
            None => return None,
        };
        self.by_index.insert(index, place);
        Some(place)
    }

    /// Rows to be put for what changed since the last call.
    pub fn ops(&mut self, container: u32, partition: u32, ops: &mut Vec<Op>) {
        let changed = std::mem::take(&mut self.changed);
        for (row, places) in self.places.chunks(PLACES_PER_ROW).enumerate() {
            if changed & (1 << row) != 0 {
                let key = keys::index_counts(container, partition, row as u8);
                ops.push(Op::Put { space: CATALOG, key, value: encode(places) });
            }
        }
    }

    /// Indexes that have rows.
    pub fn iter(&self) -> impl Iterator<Item = (IndexId, u64)> {
        self.places.iter().copied().filter(|(_, rows)| *rows > 0)
    }
}

/// All rows that the counts of a partition can have.
pub(crate) fn index_counts_keys(container: u32, partition: u32) -> impl Iterator<Item = Vec<u8>> {
    (0..PLACES_MAX / PLACES_PER_ROW).map(move |row| keys::index_counts(container, partition, row as u8))
}

/// What a snapshot says a partition holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexCounts {
    pub items: u64,
    /// Items without any index rows.
    pub unindexed_items: u64,
    rows: HashMap<IndexId, u64>,
    overflowed: bool,
}

impl IndexCounts {
    /// `None`: not counted.
    pub fn rows(&self, index: IndexId) -> Option<u64> {
        match self.rows.get(&index) {
            Some(rows) => Some(*rows),
            None if self.overflowed => None,
            None => Some(0),
        }
    }

    /// Items without a row in an index that has at most one per item.
    pub fn missing(&self, index: IndexId) -> Option<u64> {
        Some(self.items.saturating_sub(self.rows(index)?))
    }
}

/// Counts of a partition in a snapshot.
pub(crate) fn row_counts(
    snapshot: &dyn Snapshot,
    container: u32,
    partition: u32,
) -> Result<IndexCounts, EngineError> {
    let counts = match snapshot.get(CATALOG, &keys::counts(container, partition))? {
        Some(value) => Counts::decode(&value).ok_or_else(|| corrupt("counts of a partition"))?,
        None => Counts::default(),
    };
    let counted = CountedIndexes::read(snapshot, container, partition, &counts)?;
    Ok(IndexCounts {
        items: counts.items,
        unindexed_items: counts.unindexed_items,
        rows: counted.iter().collect(),
        overflowed: counts.indexes_overflowed,
    })
}

fn encode(places: &[(IndexId, u64)]) -> Vec<u8> {
    let mut value = Vec::with_capacity(1 + 12 * places.len());
    value.push(FORMAT);
    for (index, rows) in places {
        value.extend(index.0.to_be_bytes());
        let mut rest = *rows;
        while rest >= 0x80 {
            value.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        value.push(rest as u8);
    }
    value
}

fn decode(value: &[u8]) -> Option<Vec<(IndexId, u64)>> {
    let mut rest = value.strip_prefix(&[FORMAT])?;
    let mut places = Vec::with_capacity(PLACES_PER_ROW);
    while let Some((index, tail)) = rest.split_first_chunk() {
        let end = tail.iter().position(|byte| byte & 0x80 == 0).filter(|end| *end < 10)?;
        let rows = tail[..=end].iter().rev().fold(0, |rows: u64, byte| rows << 7 | u64::from(byte & 0x7F));
        places.push((IndexId(u64::from_be_bytes(*index)), rows));
        rest = &tail[end + 1..];
    }
    (rest.is_empty() && places.len() <= PLACES_PER_ROW).then_some(places)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        let value = encode(&[(IndexId(0x0102), 5), (IndexId(3), 300)]);
        assert_eq!(value, [1, 0, 0, 0, 0, 0, 0, 1, 2, 5, 0, 0, 0, 0, 0, 0, 0, 3, 0xAC, 2]);
    }

    #[test]
    fn places_are_given_away_until_they_run_out() {
        let mut counted = CountedIndexes::default();
        for index in 0..PLACES_MAX as u64 {
            counted.add(IndexId(index), 1);
        }
        counted.add(IndexId(7), -1);
        counted.add(IndexId(999), 2);
        assert!(!counted.overflowed);
        let found = |counted: &CountedIndexes, id| counted.iter().find(|(index, _)| *index == IndexId(id));
        assert_eq!(found(&counted, 999), Some((IndexId(999), 2)));
        let mut ops = Vec::new();
        counted.ops(1, 2, &mut ops);
        assert_eq!(ops.len(), PLACES_MAX / PLACES_PER_ROW);
        counted.add(IndexId(40), 1);
        ops.clear();
        counted.ops(1, 2, &mut ops);
        assert_eq!(ops.len(), 1);
        counted.add(IndexId(7), 1);
        assert!(counted.overflowed);
        counted.add(IndexId(8), -1);
        counted.add(IndexId(7), 1); // may have had rows before: not counted from here
        assert_eq!(found(&counted, 7), None);
    }

    proptest! {
        #[test]
        fn counts_survive_and_garbage_does_not(places in prop::collection::vec((any::<u64>(), any::<u64>()), 0..32), cut: prop::sample::Index) {
            let places: Vec<(IndexId, u64)> = places.into_iter().map(|(index, rows)| (IndexId(index), rows)).collect();
            let value = encode(&places);
            prop_assert_eq!(decode(&value), Some(places.clone()));
            let cut = cut.index(value.len());
            prop_assert_ne!(decode(&value[..cut]), Some(places));
        }
    }
}
