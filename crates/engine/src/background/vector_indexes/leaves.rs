//! Writes changes to leaves, joins changes into the row of a leaf, and divides leaves.

use std::collections::BTreeMap;

use quire_storage::{KeyRange, Scan, Snapshot};

use super::follow::{FollowedIndex, IndexFollower, IndexWrites};
use crate::api::EngineError;
use crate::indexes::vectors::block::VectorBlock;
use crate::indexes::vectors::codes::QuantizedVector;
use crate::indexes::vectors::leaf::{read_leaf, set};
use crate::indexes::vectors::tree::block_max;
use crate::store::keys::LOOKUPS;
use crate::store::scan;

/// Changes of a leaf before they are joined into its row.
const CHANGES_MAX: usize = 16;

/// A commit that is larger only adds small rows.
const COMMIT_BYTES: usize = 8 << 20;

/// A leaf keeps so many of its vectors, however near others are.
const LEAF_MIN: usize = 8;

impl IndexFollower<'_> {
    pub fn write_leaves(
        &self,
        snapshot: &dyn Snapshot,
        known: &mut FollowedIndex,
        writes: &mut IndexWrites,
    ) -> Result<(), EngineError> {
        while let Some((leaf, changes)) = writes.pending.pop_first() {
            let waiting = match known.waiting.get(&leaf) {
                Some(waiting) => *waiting,
                None => self.count_changes(snapshot, leaf)?,
            };
            if waiting + changes.len() > CHANGES_MAX && writes.bytes < COMMIT_BYTES {
                self.join(snapshot, known, writes, leaf, changes)?;
                continue;
            }
            known.waiting.insert(leaf, waiting + changes.len());
            for (rid, coded) in changes {
                self.write_change(writes, leaf, rid, coded.as_ref());
            }
        }
        Ok(())
    }

    fn write_change(&self, writes: &mut IndexWrites, leaf: u64, rid: u64, coded: Option<&QuantizedVector>) {
        let value = coded.map_or_else(Vec::new, |coded| VectorBlock::of(rid, coded).encode());
        writes.put(self.keys().leaf_change(leaf, rid), value);
    }

    fn count_changes(&self, snapshot: &dyn Snapshot, leaf: u64) -> Result<usize, EngineError> {
        let range = KeyRange::prefix(&self.keys().leaf_changes(leaf));
        Ok(snapshot.scan(&Scan { keys_only: true, ..scan(LOOKUPS, range) })?.rows.len())
    }

    /// Joins what has changed into the row of a leaf.
    fn join(
        &self,
        snapshot: &dyn Snapshot,
        known: &mut FollowedIndex,
        writes: &mut IndexWrites,
        leaf: u64,
        changes: Vec<(u64, Option<QuantizedVector>)>,
    ) -> Result<(), EngineError> {
        let dimensions = known.state.identity.dimensions as usize;
        let (mut block, joined) = read_leaf(snapshot, self.keys(), leaf, dimensions)?;
        joined.iter().for_each(|rid| writes.delete(self.keys().leaf_change(leaf, *rid)));
        changes.into_iter().for_each(|(rid, coded)| set(&mut block, rid, coded.as_ref()));
        known.waiting.insert(leaf, 0);
        if block.len() <= block_max(dimensions) {
            writes.put(self.keys().leaf_row(leaf), block.encode());
            return Ok(());
        }
        let parts = known.tree.split_leaf(leaf, block);
        for (part, _) in &parts {
            known.waiting.insert(*part, 0);
        }
        let parts = self.settle(known, writes, parts);
        for (part, block) in parts {
            if part != leaf {
                writes.places.extend(block.ids.iter().map(|rid| (*rid, Some(part))));
            }
            writes.put(self.keys().leaf_row(part), block.encode());
        }
        Ok(())
    }

    /// Moves vectors of new leaves to where they are nearer.
    fn settle(
        &self,
        known: &mut FollowedIndex,
        writes: &mut IndexWrites,
        parts: Vec<(u64, VectorBlock)>,
    ) -> BTreeMap<u64, VectorBlock> {
        let mut stays: BTreeMap<u64, VectorBlock> = BTreeMap::new();
        let mut leaves: Vec<(u64, u64, QuantizedVector)> = Vec::new();
        let ids: Vec<u64> = parts.iter().map(|(part, _)| *part).collect();
        for (part, block) in parts {
            let mut left = block.len();
            let mut stay = VectorBlock::new(block.dimensions);
            for at in 0..block.len() {
                let (rid, coded) = (block.ids[at], block.get(at));
                let nearest = known.tree.nearest_leaf(&coded);
                if nearest == part || left <= LEAF_MIN {
                    stay.push(rid, &coded);
                } else {
                    left -= 1;
                    leaves.push((rid, nearest, coded));
                }
            }
            stays.insert(part, stay);
        }
        for (rid, to, coded) in leaves {
            writes.places.insert(rid, Some(to));
            if let Some(block) = stays.get_mut(&to).filter(|_| ids.contains(&to)) {
                block.push(rid, &coded);
            } else if let Some(pending) = writes.pending.get_mut(&to) {
                pending.push((rid, Some(coded)));
            } else {
                self.write_change(writes, to, rid, Some(&coded));
                if let Some(waiting) = known.waiting.get_mut(&to) {
                    *waiting += 1;
                }
            }
        }
        stays
    }
}
