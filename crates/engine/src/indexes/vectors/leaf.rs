//! The rows of a leaf, and where an item is in an index.
//!
//! A leaf has one row with its vectors and, while there are changes that are not in it, one row of changes. Both are read by
//! key: a filter tells the storage which of its tables have one, where a scan would read a block of each table.
//!
//! Row of changes: format byte 1, count of removed items 4, as many child ids of 8 bytes, and the vectors that are new or
//! other ones as a block (see [`super::block`]). Numbers are little-endian. No item is in both.

use quire_storage::Snapshot;

use super::block::{VectorBlock, VectorBlockRef};
use super::codes::QuantizedVector;
use super::{UNINDEXED_NO_VECTOR, UNINDEXED_UNUSABLE};
use crate::api::{EngineError, corrupt};
use crate::store::keys::{LOOKUPS, VectorKeys};

/// Where an item is that is not in a leaf. Leaves are numbered from 1 on.
pub(crate) const LEAF_NO_VECTOR: u64 = 0;

pub(crate) const LEAF_UNUSABLE: u64 = u64::MAX;

const FORMAT: u8 = 1;
const ID_BYTES: usize = 8;

pub(crate) fn class_of(place: u64) -> Option<u8> {
    match place {
        LEAF_NO_VECTOR => Some(UNINDEXED_NO_VECTOR),
        LEAF_UNUSABLE => Some(UNINDEXED_UNUSABLE),
        _ => None,
    }
}

/// What has changed in a leaf since its row was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeafChanges {
    /// Items that are no longer in the leaf.
    pub removed: Vec<u64>,
    /// Vectors that are new in the leaf, or other ones.
    pub added: VectorBlock,
}

/// The same, read in place.
#[derive(Clone, Copy)]
pub(crate) struct LeafChangesRef<'a> {
    removed: &'a [u8],
    pub added: VectorBlockRef<'a>,
}

impl LeafChanges {
    pub fn new(dimensions: usize) -> LeafChanges {
        LeafChanges { removed: Vec::new(), added: VectorBlock::new(dimensions) }
    }

    pub fn len(&self) -> usize {
        self.removed.len() + self.added.len()
    }

    /// An item comes with a vector, or leaves.
    pub fn set(&mut self, rid: u64, coded: Option<&QuantizedVector>) {
        set(&mut self.added, rid, coded);
        self.removed.retain(|other| *other != rid);
        if coded.is_none() {
            self.removed.push(rid);
        }
    }

    /// Makes the row of the leaf what it is with these changes.
    pub fn apply(&self, block: &mut VectorBlock) {
        self.removed.iter().for_each(|rid| set(block, *rid, None));
        (0..self.added.len()).for_each(|at| set(block, self.added.ids[at], Some(&self.added.get(at))));
    }

    pub fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.removed.len()).expect("a slice has a few thousand items");
        let mut value = vec![FORMAT];
        value.extend(count.to_le_bytes());
        self.removed.iter().for_each(|rid| value.extend(rid.to_le_bytes()));
        value.extend(self.added.encode());
        value
    }
}

impl<'a> LeafChangesRef<'a> {
    pub fn parse(value: &'a [u8], dimensions: usize) -> Result<LeafChangesRef<'a>, EngineError> {
        let (removed, added) = split(value).ok_or_else(|| corrupt("changes of a leaf"))?;
        Ok(LeafChangesRef { removed, added: VectorBlockRef::parse(added, dimensions)? })
    }

    fn removed(self) -> impl Iterator<Item = u64> {
        let (ids, _) = self.removed.as_chunks::<ID_BYTES>();
        ids.iter().map(|id| u64::from_le_bytes(*id))
    }

    /// The items that the leaf's row is not right about.
    pub fn rids(self) -> impl Iterator<Item = u64> {
        self.removed().chain((0..self.added.len()).map(move |at| self.added.id(at)))
    }

    pub fn to_changes(self) -> LeafChanges {
        LeafChanges { removed: self.removed().collect(), added: self.added.to_block() }
    }
}

/// The removed items, and the block behind them.
fn split(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[format], rest) = value.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let count = u32::from_le_bytes(*count) as usize;
    let parts = rest.split_at_checked(count.checked_mul(ID_BYTES)?)?;
    (format == FORMAT).then_some(parts)
}

fn set(block: &mut VectorBlock, rid: u64, coded: Option<&QuantizedVector>) {
    if let Some(at) = block.position(rid) {
        block.swap_remove(at);
    }
    if let Some(coded) = coded {
        block.push(rid, coded);
    }
}

/// The row of a leaf, without its changes.
pub(crate) fn read_row(
    snapshot: &dyn Snapshot,
    keys: VectorKeys,
    leaf: u64,
    dimensions: usize,
) -> Result<VectorBlock, EngineError> {
    match snapshot.get(LOOKUPS, &keys.leaf_row(leaf))? {
        Some(value) => Ok(VectorBlockRef::parse(&value, dimensions)?.to_block()),
        None => Ok(VectorBlock::new(dimensions)),
    }
}

pub(crate) fn read_changes(
    snapshot: &dyn Snapshot,
    keys: VectorKeys,
    leaf: u64,
    dimensions: usize,
) -> Result<LeafChanges, EngineError> {
    match snapshot.get(LOOKUPS, &keys.leaf_changes(leaf))? {
        Some(value) => Ok(LeafChangesRef::parse(&value, dimensions)?.to_changes()),
        None => Ok(LeafChanges::new(dimensions)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(code: u8) -> QuantizedVector {
        QuantizedVector { scale: 0.5, norm: 2.0, residual: 0.25, codes: vec![code, 0x81] }
    }

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        let mut changes = LeafChanges::new(2);
        changes.set(7, None);
        changes.set(9, Some(&coded(0x7F)));
        let value = changes.encode();
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        let block = "0101000000090000000000000000000000000000400000803e0000003f7f81";
        assert_eq!(hex, format!("01 01000000 0700000000000000 {block}").replace(' ', ""));
        let again = LeafChangesRef::parse(&value, 2).unwrap();
        assert_eq!(again.rids().collect::<Vec<u64>>(), [7, 9]);
        assert_eq!(again.to_changes(), changes);
        for cut in 0..value.len() {
            assert!(LeafChangesRef::parse(&value[..cut], 2).is_err(), "{cut}");
        }
    }

    #[test]
    fn the_last_change_of_an_item_counts() {
        let mut changes = LeafChanges::new(2);
        changes.set(1, Some(&coded(1)));
        changes.set(1, None);
        changes.set(2, None);
        changes.set(2, Some(&coded(2)));
        changes.set(3, Some(&coded(3)));
        changes.set(3, Some(&coded(4)));
        assert_eq!((changes.len(), &changes.removed, &changes.added.ids), (3, &vec![1], &vec![2, 3]));
        let mut block = VectorBlock::new(2);
        (0..4).for_each(|rid| block.push(rid, &coded(0)));
        changes.apply(&mut block);
        let mut vectors: Vec<(u64, u8)> =
            block.ids.iter().enumerate().map(|(at, rid)| (*rid, block.codes_of(at)[0])).collect();
        vectors.sort_unstable();
        assert_eq!(vectors, [(0, 0), (2, 2), (3, 4)]);
    }
}
