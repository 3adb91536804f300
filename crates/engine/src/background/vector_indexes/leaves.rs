//! Writes changes to leaves, joins changes into the row of a leaf, and divides leaves.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use quire_storage::Snapshot;

use super::follow::{FollowedIndex, IndexFollower, IndexWrites};
use crate::api::EngineError;
use crate::indexes::vectors::block::VectorBlock;
use crate::indexes::vectors::codes::QuantizedVector;
use crate::indexes::vectors::leaf::{LeafChanges, read_changes, read_row};
use crate::indexes::vectors::tree::block_max;

/// Of what a leaf can have, the part that changes may be before they are joined into its row. Every change writes those before
/// it again, and joining them writes the leaf: an eighth is where both are about equally much.
const CHANGES_PART: usize = 8;
const CHANGES_MIN: usize = 2;

/// In a commit that is larger leaves only get changes.
const COMMIT_BYTES: usize = 8 << 20;

/// A leaf keeps so many of its vectors, however near others are.
const LEAF_MIN: usize = 8;

impl IndexFollower<'_> {
    pub fn write_leaves(
        &self,
        snapshot: &dyn Snapshot,
        followed_index: &mut FollowedIndex,
        writes: &mut IndexWrites,
    ) -> Result<(), EngineError> {
        let changes_max = (block_max(followed_index.dimensions()) / CHANGES_PART).max(CHANGES_MIN);
        while let Some((leaf, pending)) = writes.pending.pop_first() {
            for (rid, coded) in pending {
                self.change(snapshot, followed_index, writes, leaf, (rid, coded.as_ref()))?;
            }
            let waiting = writes.changes.get(&leaf).map_or(0, LeafChanges::len);
            if waiting > changes_max && writes.bytes < COMMIT_BYTES {
                self.join(snapshot, followed_index, writes, leaf)?;
            }
        }
        Ok(())
    }

    /// Adds to the changes of a leaf.
    fn change(
        &self,
        snapshot: &dyn Snapshot,
        followed_index: &FollowedIndex,
        writes: &mut IndexWrites,
        leaf: u64,
        (rid, coded): (u64, Option<&QuantizedVector>),
    ) -> Result<(), EngineError> {
        let vector_bytes = followed_index.dimensions() + size_of::<u64>();
        let changes = match writes.changes.entry(leaf) {
            Entry::Occupied(changes) => changes.into_mut(),
            Entry::Vacant(place) => {
                let changes = read_changes(snapshot, self.keys(), leaf, followed_index.dimensions())?;
                writes.bytes += changes.len() * vector_bytes;
                place.insert(changes)
            }
        };
        changes.set(rid, coded);
        writes.bytes += vector_bytes;
        Ok(())
    }

    /// Joins what has changed into the row of a leaf.
    fn join(
        &self,
        snapshot: &dyn Snapshot,
        followed_index: &mut FollowedIndex,
        writes: &mut IndexWrites,
        leaf: u64,
    ) -> Result<(), EngineError> {
        let dimensions = followed_index.dimensions();
        let mut block = read_row(snapshot, self.keys(), leaf, dimensions)?;
        if let Some(changes) = writes.changes.insert(leaf, LeafChanges::new(dimensions)) {
            changes.apply(&mut block);
        }
        if block.len() <= block_max(dimensions) {
            writes.put(self.keys().leaf_row(leaf), block.encode());
            return Ok(());
        }
        let parts = followed_index.tree.split_leaf(leaf, block);
        let parts = self.move_to_nearest(snapshot, followed_index, writes, parts)?;
        for (part, block) in parts {
            if part != leaf {
                writes.places.extend(block.ids.iter().map(|rid| (*rid, Some(part))));
            }
            writes.put(self.keys().leaf_row(part), block.encode());
        }
        Ok(())
    }

    /// Moves vectors of new leaves to where they are nearer.
    fn move_to_nearest(
        &self,
        snapshot: &dyn Snapshot,
        followed_index: &FollowedIndex,
        writes: &mut IndexWrites,
        parts: Vec<(u64, VectorBlock)>,
    ) -> Result<BTreeMap<u64, VectorBlock>, EngineError> {
        let mut stays: BTreeMap<u64, VectorBlock> = BTreeMap::new();
        let mut leaves: Vec<(u64, u64, QuantizedVector)> = Vec::new();
        for (part, block) in parts {
            let mut left = block.len();
            let mut stay = VectorBlock::new(block.dimensions);
            for at in 0..block.len() {
                let (rid, coded) = (block.ids[at], block.get(at));
                let nearest = followed_index.tree.nearest_leaf(&coded);
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
            if let Some(block) = stays.get_mut(&to) {
                block.push(rid, &coded);
            } else if let Some(pending) = writes.pending.get_mut(&to) {
                pending.push((rid, Some(coded)));
            } else {
                self.change(snapshot, followed_index, writes, to, (rid, Some(&coded)))?;
            }
        }
        Ok(stays)
    }

    /// The rows of changes, when all of them are known.
    pub fn write_changes(&self, writes: &mut IndexWrites) {
        for (leaf, changes) in std::mem::take(&mut writes.changes) {
            let key = self.keys().leaf_changes(leaf);
            match changes.len() {
                0 => writes.delete(key),
                _ => writes.put(key, changes.encode()),
            }
        }
    }
}
