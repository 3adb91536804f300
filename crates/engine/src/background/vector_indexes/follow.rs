//! Adds changed items to an index, in slices: each is one commit with the new positions of the index.
//!
//! A changed vector goes into a small row beside the row of its leaf. When a leaf has many changes they are joined into its row,
//! which is when it may become two; then every vector of it is asked once more whether another leaf is nearer, since
//! vectors that belong together came to lie apart while there were few leaves.

use std::collections::BTreeMap;

use quire_storage::{Op, Snapshot};

use super::lifecycle::{commit_as_read, put_state};
use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::indexes::vectors::block::VectorBlockRef;
use crate::indexes::vectors::codes::QuantizedVector;
use crate::indexes::vectors::feed::changed_behind;
use crate::indexes::vectors::leaf::{LEAF_NO_VECTOR, LEAF_UNUSABLE, LeafChanges, class_of};
use crate::indexes::vectors::state::{VectorIndexIdentity, VectorIndexPhase, VectorIndexState};
use crate::indexes::vectors::tree::VectorTree;
use crate::partition::Partition;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, CATALOG, Counts, ITEMS, LOOKUPS, VectorKeys};
use crate::store::{PartitionLayout, for_each_row};

/// Items of a slice.
const SLICE_ITEMS: usize = 1024;
/// Items read together.
const FETCH_ITEMS: usize = 128;

/// An index in the memory of the thread that changes it.
pub(crate) struct FollowedIndex {
    pub state: VectorIndexState,
    pub tree: VectorTree,
    /// The last item that was checked for deleted items.
    pub swept: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IndexFollowStep {
    /// So many items were brought in or taken out.
    Done(usize),
    /// The index has everything.
    Idle,
    /// It is to be made again.
    Sparse,
}

pub(crate) struct IndexFollower<'a> {
    pub shared: &'a Shared,
    pub container: &'a Container,
    pub number: u32,
}

/// The vector of an item.
enum ItemVector {
    Coded(QuantizedVector),
    Unusable,
    None,
}

/// The changes of a slice.
#[derive(Default)]
pub(super) struct IndexWrites {
    pub rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    pub bytes: usize,
    pub places: BTreeMap<u64, Option<u64>>,
    /// By leaf: items that come, or leave.
    pub pending: BTreeMap<u64, Vec<(u64, Option<QuantizedVector>)>>,
    /// By leaf: all changes that will not be in its row.
    pub changes: BTreeMap<u64, LeafChanges>,
}

impl IndexWrites {
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.bytes += key.len() + value.len();
        self.rows.insert(key, Some(value));
    }

    pub fn delete(&mut self, key: Vec<u8>) {
        self.rows.insert(key, None);
    }
}

impl FollowedIndex {
    /// Memory, about.
    pub fn bytes(&self) -> usize {
        self.tree.bytes()
    }

    pub fn dimensions(&self) -> usize {
        self.state.identity.dimensions as usize
    }

    fn load(
        snapshot: &dyn Snapshot,
        keys: VectorKeys,
        state: VectorIndexState,
    ) -> Result<FollowedIndex, EngineError> {
        let dimensions = state.identity.dimensions as usize;
        let mut tree = VectorTree::new(state.identity.distance, dimensions);
        (tree.root, tree.height, tree.next_node, tree.leaves) =
            (state.root, state.height, state.next_node, state.leaves);
        for_each_row(snapshot, LOOKUPS, &keys.nodes(), |key, value| {
            let node = VectorKeys::node_of(key).ok_or_else(|| corrupt("key of a node"))?;
            tree.load(node, VectorBlockRef::parse(value, dimensions)?.to_block());
            Ok(())
        })?;
        Ok(FollowedIndex { state, tree, swept: None })
    }
}

impl IndexFollower<'_> {
    pub fn keys(&self) -> VectorKeys {
        VectorKeys { container: self.container.number, index: self.number }
    }

    /// Runs one slice. `following` is used if it matches the storage, and is dropped after a failure.
    pub fn step(&self, following: &mut Option<FollowedIndex>) -> Result<IndexFollowStep, EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        self.container.partitions.check_current(&*snapshot)?;
        let key = keys::vector_index(self.container.number, self.number);
        let state = snapshot.get(CATALOG, &key)?.ok_or_else(|| corrupt("a vector index without its row"))?;
        let state = VectorIndexState::decode(&state)?;
        let followed_index =
            following.take().filter(|followed_index| followed_index.state.commits == state.commits);
        let mut followed_index = match followed_index {
            Some(followed_index) => followed_index,
            None => FollowedIndex::load(&*snapshot, self.keys(), state)?,
        };
        let step = self.slice(&*snapshot, &mut followed_index)?;
        *following = Some(followed_index);
        Ok(step)
    }

    fn slice(
        &self,
        snapshot: &dyn Snapshot,
        followed_index: &mut FollowedIndex,
    ) -> Result<IndexFollowStep, EngineError> {
        for partition in self.container.partitions.all() {
            let from = followed_index.state.position(&partition.layout);
            let number = self.container.number;
            let (rows, more) = changed_behind(snapshot, number, &partition.layout, from, SLICE_ITEMS)?;
            let end = if more {
                rows.last().map_or(from, |(lsn, _)| *lsn)
            } else {
                counts(snapshot, number, partition)?.lsn.max(from)
            };
            if end > from {
                let rids: Vec<u64> = rows.iter().map(|(_, rid)| *rid).collect();
                return self.add_changed_items(snapshot, followed_index, &rids, (partition, end));
            }
        }
        if followed_index.state.phase == VectorIndexPhase::Building {
            return self.finish(followed_index);
        }
        self.sweep(snapshot, followed_index)
    }

    /// It has everything that there was when the snapshot was taken.
    fn finish(&self, followed_index: &mut FollowedIndex) -> Result<IndexFollowStep, EngineError> {
        followed_index.state.phase = VectorIndexPhase::Following;
        self.commit(followed_index, IndexWrites::default())?;
        Ok(IndexFollowStep::Done(0))
    }

    fn add_changed_items(
        &self,
        snapshot: &dyn Snapshot,
        followed_index: &mut FollowedIndex,
        rids: &[u64],
        (partition, end): (&Partition, u64),
    ) -> Result<IndexFollowStep, EngineError> {
        let mut writes = IndexWrites::default();
        for rids in rids.chunks(FETCH_ITEMS) {
            let places = self.places(snapshot, rids)?;
            let vectors = self.vectors(snapshot, &followed_index.state.identity, rids)?;
            for ((rid, place), vector) in rids.iter().zip(places).zip(vectors) {
                self.move_item(followed_index, &mut writes, *rid, place, vector);
            }
        }
        self.write_leaves(snapshot, followed_index, &mut writes)?;
        let layouts: Vec<PartitionLayout> = self.container.partitions.layout();
        followed_index.state.set_position(&layouts, partition.layout.id, end);
        self.commit(followed_index, writes)?;
        Ok(IndexFollowStep::Done(rids.len()))
    }

    /// Where items are in the index.
    fn places(&self, snapshot: &dyn Snapshot, rids: &[u64]) -> Result<Vec<Option<u64>>, EngineError> {
        let keys: Vec<Vec<u8>> = rids.iter().map(|rid| self.keys().place(*rid)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let places = snapshot.multi_get(LOOKUPS, &keys)?.into_iter();
        let place = |value: Vec<u8>| keys::number(&value).ok_or_else(|| corrupt("where a vector is"));
        places.map(|value| value.map(place).transpose()).collect()
    }

    /// Deleted items have none.
    fn vectors(
        &self,
        snapshot: &dyn Snapshot,
        identity: &VectorIndexIdentity,
        rids: &[u64],
    ) -> Result<Vec<ItemVector>, EngineError> {
        let keys: Vec<Vec<u8>> = rids.iter().map(|rid| keys::item(self.container.number, *rid)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let vector = |value: Option<Vec<u8>>| {
            let Some(value) = value else { return Ok(ItemVector::None) };
            let vector = identity.read(ItemRow::parse(&value)?.node()?);
            Ok(vector.map_or(ItemVector::None, |vector| {
                QuantizedVector::new(&vector).map_or(ItemVector::Unusable, ItemVector::Coded)
            }))
        };
        snapshot.multi_get(ITEMS, &keys)?.into_iter().map(vector).collect()
    }

    fn move_item(
        &self,
        followed_index: &mut FollowedIndex,
        writes: &mut IndexWrites,
        rid: u64,
        from: Option<u64>,
        vector: ItemVector,
    ) {
        let to = match vector {
            ItemVector::Coded(coded) => {
                let leaf = followed_index.tree.nearest_leaf(&coded);
                writes.pending.entry(leaf).or_default().push((rid, Some(coded)));
                leaf
            }
            ItemVector::Unusable => LEAF_UNUSABLE,
            ItemVector::None => LEAF_NO_VECTOR,
        };
        if from.is_none() {
            followed_index.state.items += 1;
        }
        if from != Some(to) {
            self.remove_entry(writes, rid, from);
            if let Some(class) = class_of(to) {
                writes.put(self.keys().unindexed(class, rid), Vec::new());
            }
            writes.places.insert(rid, Some(to));
        }
    }

    pub fn remove_entry(&self, writes: &mut IndexWrites, rid: u64, from: Option<u64>) {
        match from.map(|place| (place, class_of(place))) {
            None => {}
            Some((_, Some(class))) => writes.delete(self.keys().unindexed(class, rid)),
            Some((leaf, None)) => writes.pending.entry(leaf).or_default().push((rid, None)),
        }
    }

    pub fn commit(
        &self,
        followed_index: &mut FollowedIndex,
        mut writes: IndexWrites,
    ) -> Result<(), EngineError> {
        self.write_changes(&mut writes);
        for (rid, place) in std::mem::take(&mut writes.places) {
            match place {
                Some(place) => writes.put(self.keys().place(rid), keys::number_value(place)),
                None => writes.delete(self.keys().place(rid)),
            }
        }
        for (node, block) in followed_index.tree.take_changed() {
            writes.put(self.keys().node(node), block.encode());
        }
        let state = &mut followed_index.state;
        (state.root, state.height, state.next_node, state.leaves) = (
            followed_index.tree.root,
            followed_index.tree.height,
            followed_index.tree.next_node,
            followed_index.tree.leaves,
        );
        let read = state.commits;
        state.commits += 1;
        let mut ops: Vec<Op> = Vec::with_capacity(writes.rows.len() + 1);
        ops.extend(writes.rows.into_iter().map(|(key, value)| match value {
            Some(value) => Op::Put { space: LOOKUPS, key, value },
            None => Op::Delete { space: LOOKUPS, key },
        }));
        ops.push(put_state(self.container.number, self.number, state));
        commit_as_read(self.shared, self.container, self.number, (&state.identity, read), ops)
    }
}

pub(super) fn counts(
    snapshot: &dyn Snapshot,
    container: u32,
    partition: &Partition,
) -> Result<Counts, EngineError> {
    let value = snapshot.get(CATALOG, &keys::counts(container, partition.layout.id))?;
    let counts = |value: Vec<u8>| Counts::decode(&value).ok_or_else(|| corrupt("counts of a partition"));
    Ok(value.map(counts).transpose()?.unwrap_or_default())
}
