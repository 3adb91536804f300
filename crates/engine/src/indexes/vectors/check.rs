//! Consistency checks of the rows of vector indexes.

use std::collections::BTreeMap;

use quire_storage::Snapshot;

use super::block::VectorBlockRef;
use super::leaf::{LEAF_NO_VECTOR, LEAF_UNUSABLE, read_changes, read_row};
use super::state::{VectorIndexPhase, VectorIndexState, indexes_in};
use super::{UNINDEXED_NO_VECTOR, UNINDEXED_UNUSABLE};
use crate::api::{EngineError, corrupt};
use crate::store::for_each_row;
use crate::store::keys::{self, LOOKUPS, VectorKeys};

/// Checks the rows of a container's vector indexes; how many there are. Where items and their vectors are is checked
/// against the index itself: it may be behind its items.
pub(crate) fn check_rows(
    snapshot: &dyn Snapshot,
    container: u32,
    problem: &mut dyn FnMut(String),
) -> Result<u64, EngineError> {
    let mut count = 0;
    for_each_row(snapshot, LOOKUPS, &keys::vectors_prefix(container), |_, _| {
        count += 1;
        Ok(())
    })?;
    let mut known = 0;
    for (number, state) in indexes_in(snapshot, container)? {
        let keys = VectorKeys { container, index: number };
        if state.phase == VectorIndexPhase::Dropping {
            for_each_row(snapshot, LOOKUPS, &keys.prefix(), |_, _| {
                known += 1;
                Ok(())
            })?;
            continue;
        }
        let checked = VectorIndexCheck { snapshot, keys, state: &state, rows: 0, places: 0 };
        match checked.check()? {
            Ok(rows) => known += rows,
            Err(what) => {
                problem(format!("container {container}, vector index {number}: {what}"));
                return Ok(count);
            }
        }
    }
    if known != count {
        problem(format!("container {container} has {count} rows of vector indexes and {known} are known"));
    }
    Ok(count)
}

struct VectorIndexCheck<'a> {
    snapshot: &'a dyn Snapshot,
    keys: VectorKeys,
    state: &'a VectorIndexState,
    rows: u64,
    places: u64,
}

impl VectorIndexCheck<'_> {
    /// How many rows the index has, or what is wrong with it.
    fn check(mut self) -> Result<Result<u64, String>, EngineError> {
        let dimensions = self.state.identity.dimensions as usize;
        let (snapshot, keys) = (self.snapshot, self.keys);
        let mut children: Vec<u64> = vec![self.state.root];
        let mut nodes = 0;
        for_each_row(snapshot, LOOKUPS, &keys.nodes(), |_, value| {
            nodes += 1;
            let block = VectorBlockRef::parse(value, dimensions)?;
            children.extend((0..block.len()).map(|at| block.id(at)));
            Ok(())
        })?;
        children.sort_unstable();
        let is_tree = children.windows(2).all(|pair| pair[0] < pair[1]);
        if !is_tree || children.len() as u64 != nodes + self.state.leaves {
            return Ok(Err("its nodes are not a tree".to_owned()));
        }
        self.rows += nodes;
        let mut leaf_rows: BTreeMap<u64, u64> = BTreeMap::new();
        for_each_row(snapshot, LOOKUPS, &keys.leaves(), |key, _| {
            let (leaf, _) = VectorKeys::leaf_of(key).ok_or_else(|| corrupt("key of a leaf"))?;
            *leaf_rows.entry(leaf).or_default() += 1;
            Ok(())
        })?;
        let mut wrong = None;
        for (leaf, rows) in leaf_rows {
            self.rows += rows;
            if children.binary_search(&leaf).is_err() {
                wrong = Some(format!("leaf {leaf} is not in its tree"));
            }
            let mut block = read_row(snapshot, keys, leaf, dimensions)?;
            read_changes(snapshot, keys, leaf, dimensions)?.apply(&mut block);
            for rid in block.ids {
                wrong = self.check_place(rid, leaf)?.or(wrong);
            }
        }
        for (class, place) in [(UNINDEXED_NO_VECTOR, LEAF_NO_VECTOR), (UNINDEXED_UNUSABLE, LEAF_UNUSABLE)] {
            let mut unindexed = Vec::new();
            for_each_row(snapshot, LOOKUPS, &keys.unindexed_prefix(class), |key, _| {
                unindexed.extend(VectorKeys::rid_of_unindexed(key));
                Ok(())
            })?;
            for rid in unindexed {
                self.rows += 1;
                wrong = self.check_place(rid, place)?.or(wrong);
            }
        }
        if wrong.is_none() && self.places != self.state.items {
            wrong = Some(format!("it has {} items and says {}", self.places, self.state.items));
        }
        Ok(wrong.map_or(Ok(self.rows + self.places), Err))
    }

    /// Every entry is where the item's own row says.
    fn check_place(&mut self, rid: u64, place: u64) -> Result<Option<String>, EngineError> {
        self.places += 1;
        let found = self.snapshot.get(LOOKUPS, &self.keys.place(rid))?;
        let is_right = found.as_deref().and_then(keys::number) == Some(place);
        Ok((!is_right).then(|| format!("item {rid:x} is not where its row says")))
    }
}
