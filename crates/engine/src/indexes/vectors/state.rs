//! A vector index as its row in the catalog has it: what it is of, and how far it is.
//!
//! Format byte 2; phase 1; distance 1; dimensions 4; path behind its length in 2; root 8; height 4; next node 8; leaves 8;
//! items 8; commits 8; count of partitions 4, then each with its id 4 and LSN 8. Big-endian.

use quire_resource::{ContainerDefinition, DistanceFunction};
use quire_storage::Snapshot;
use quire_value::Path;

use super::tree::VectorTree;
use crate::api::{EngineError, corrupt};
use crate::store::keys::{self, CATALOG};
use crate::store::{PartitionLayout, for_each_row};

const FORMAT: u8 = 2;
/// Had a row for every change of a leaf. Such an index is removed, and another one is built in its place.
const FORMAT_BEFORE: u8 = 1;

/// What the vectors of an index are. Another identity is another index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VectorIndexIdentity {
    pub path: Path,
    pub dimensions: u32,
    pub distance: DistanceFunction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VectorIndexPhase {
    /// It has not had all items yet.
    Building = 1,
    /// It has had all items, and follows what changes.
    Following = 2,
    /// Its rows are being removed.
    Dropping = 3,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VectorIndexState {
    pub identity: VectorIndexIdentity,
    pub phase: VectorIndexPhase,
    pub root: u64,
    pub height: u32,
    pub next_node: u64,
    pub leaves: u64,
    /// Items that were brought in and not taken out, whether they have a vector or not.
    pub items: u64,
    /// Rises with every commit.
    pub commits: u64,
    /// By partition: all items up to the LSN are as the index has them.
    positions: Vec<(u32, u64)>,
}

impl VectorIndexIdentity {
    /// Of all indexes that a policy asks for.
    pub fn all(definition: &ContainerDefinition) -> impl Iterator<Item = VectorIndexIdentity> {
        let paths = definition.indexing.vector.iter().map(|index| &index.path);
        paths.filter_map(|path| VectorIndexIdentity::find(definition, path))
    }

    /// Of the index that a policy asks for over a path.
    pub fn find(definition: &ContainerDefinition, path: &Path) -> Option<VectorIndexIdentity> {
        definition.indexing.vector.iter().find(|index| index.path == *path)?;
        let embedding = definition.vector_embeddings.iter().find(|embedding| embedding.path == *path)?;
        let (dimensions, distance) = (embedding.dimensions, embedding.distance);
        Some(VectorIndexIdentity { path: path.clone(), dimensions, distance })
    }
}

impl VectorIndexState {
    pub fn new(identity: VectorIndexIdentity) -> VectorIndexState {
        let tree = VectorTree::new(identity.distance, identity.dimensions as usize);
        let VectorTree { root, height, next_node, leaves, .. } = tree;
        let (phase, items, commits, positions) = (VectorIndexPhase::Building, 0, 0, Vec::new());
        VectorIndexState { identity, phase, root, height, next_node, leaves, items, commits, positions }
    }

    /// Up to which LSN of a partition the index has its items; what it knows of the one that was split says it, too.
    pub fn position(&self, layout: &PartitionLayout) -> u64 {
        let of = |id: u32| self.positions.iter().find(|(partition, _)| *partition == id).map(|(_, lsn)| *lsn);
        of(layout.id).or_else(|| layout.parents.iter().rev().find_map(|parent| of(*parent))).unwrap_or(0)
    }

    /// Forgets the partitions that are no more.
    pub fn set_position(&mut self, layouts: &[PartitionLayout], partition: u32, lsn: u64) {
        let position = |layout: &PartitionLayout| {
            let lsn = if layout.id == partition { lsn } else { self.position(layout) };
            (layout.id, lsn)
        };
        self.positions = layouts.iter().map(position).collect();
    }

    pub fn encode(&self) -> Vec<u8> {
        let VectorIndexIdentity { path, dimensions, distance } = &self.identity;
        let path = path.to_string();
        let distance = match distance {
            DistanceFunction::Cosine => 1,
            DistanceFunction::DotProduct => 2,
            DistanceFunction::Euclidean => 3,
        };
        let mut value = vec![FORMAT, self.phase as u8, distance];
        value.extend(dimensions.to_be_bytes());
        value.extend(u16::try_from(path.len()).expect("paths of policies are short").to_be_bytes());
        value.extend(path.as_bytes());
        value.extend(self.root.to_be_bytes());
        value.extend(self.height.to_be_bytes());
        [self.next_node, self.leaves, self.items, self.commits]
            .iter()
            .for_each(|number| value.extend(number.to_be_bytes()));
        value.extend((self.positions.len() as u32).to_be_bytes());
        for (partition, lsn) in &self.positions {
            value.extend(partition.to_be_bytes());
            value.extend(lsn.to_be_bytes());
        }
        value
    }

    pub fn decode(value: &[u8]) -> Result<VectorIndexState, EngineError> {
        let mut rest = value;
        let state = VectorIndexState::take(&mut rest).filter(|_| rest.is_empty());
        state.ok_or_else(|| corrupt("the row of a vector index"))
    }

    fn take(rest: &mut &[u8]) -> Option<VectorIndexState> {
        let [format, phase, distance] = *take(rest)?;
        let phase = match phase {
            _ if format == FORMAT_BEFORE => VectorIndexPhase::Dropping,
            1 => VectorIndexPhase::Building,
            2 => VectorIndexPhase::Following,
            3 => VectorIndexPhase::Dropping,
            _ => return None,
        };
        let distance = match distance {
            1 => DistanceFunction::Cosine,
            2 => DistanceFunction::DotProduct,
            3 => DistanceFunction::Euclidean,
            _ => return None,
        };
        let dimensions = u32::from_be_bytes(*take(rest)?);
        let length = usize::from(u16::from_be_bytes(*take(rest)?));
        let (path, after) = rest.split_at_checked(length)?;
        *rest = after;
        let path = Path::parse(std::str::from_utf8(path).ok()?).ok()?;
        let root = u64::from_be_bytes(*take(rest)?);
        let height = u32::from_be_bytes(*take(rest)?);
        let [next_node, leaves, items, commits] = [take(rest)?, take(rest)?, take(rest)?, take(rest)?];
        let count = u32::from_be_bytes(*take(rest)?);
        let mut positions = Vec::new();
        for _ in 0..count {
            positions.push((u32::from_be_bytes(*take(rest)?), u64::from_be_bytes(*take(rest)?)));
        }
        matches!(format, FORMAT | FORMAT_BEFORE).then(|| VectorIndexState {
            identity: VectorIndexIdentity { path, dimensions, distance },
            phase,
            root,
            height,
            next_node: u64::from_be_bytes(*next_node),
            leaves: u64::from_be_bytes(*leaves),
            items: u64::from_be_bytes(*items),
            commits: u64::from_be_bytes(*commits),
            positions,
        })
    }
}

/// The vector indexes of a container, each with its number.
pub(crate) fn indexes_in(
    snapshot: &dyn Snapshot,
    container: u32,
) -> Result<Vec<(u32, VectorIndexState)>, EngineError> {
    let mut indexes = Vec::new();
    for_each_row(snapshot, CATALOG, &keys::vector_indexes_prefix(container), |key, value| {
        let (_, number) =
            keys::numbers_of_vector_index(key).ok_or_else(|| corrupt("key of a vector index"))?;
        indexes.push((number, VectorIndexState::decode(value)?));
        Ok(())
    })?;
    Ok(indexes)
}

/// Percent of the indexes that a policy asks for that is built, where the container has so many items.
pub(crate) fn progress(
    definition: &ContainerDefinition,
    indexes: &[(u32, VectorIndexState)],
    items: u64,
) -> u8 {
    let built = VectorIndexIdentity::all(definition).map(|identity| {
        let live = indexes.iter().filter(|(_, state)| state.phase != VectorIndexPhase::Dropping);
        match live.map(|(_, state)| state).find(|state| state.identity == identity) {
            Some(state) if state.phase == VectorIndexPhase::Following => 100,
            Some(state) => (state.items.saturating_mul(100) / items.max(1)).min(99) as u8,
            None => 0,
        }
    });
    built.min().unwrap_or(100)
}

/// The index that a policy asks for, unless it has no rows yet.
pub(crate) fn index_in(
    snapshot: &dyn Snapshot,
    container: u32,
    identity: &VectorIndexIdentity,
) -> Result<Option<(u32, VectorIndexState)>, EngineError> {
    let is_it = |(_, state): &(u32, VectorIndexState)| {
        state.identity == *identity && state.phase != VectorIndexPhase::Dropping
    };
    Ok(indexes_in(snapshot, container)?.into_iter().find(is_it))
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use quire_resource::EpkRange;

    use super::*;

    fn layout(id: u32, parents: &[u32]) -> PartitionLayout {
        PartitionLayout { id, range: EpkRange::full(), parents: parents.to_vec() }
    }

    fn state() -> VectorIndexState {
        let path = Path::parse("/v").expect("a path");
        VectorIndexState::new(VectorIndexIdentity {
            path,
            dimensions: 3,
            distance: DistanceFunction::Euclidean,
        })
    }

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        let mut state = state();
        state.set_position(&[layout(0, &[])], 0, 7);
        let value = state.encode();
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        let numbers =
            "0000000000000001 00000000 0000000000000002 0000000000000001 0000000000000000 0000000000000000";
        let expected = format!("020103 00000003 0002 2f76 {numbers} 00000001 00000000 0000000000000007");
        assert_eq!(hex, expected.replace(' ', ""));
        assert_eq!(VectorIndexState::decode(&value).expect("sound"), state);
        for cut in 0..value.len() {
            assert!(VectorIndexState::decode(&value[..cut]).is_err(), "{cut}");
        }
        for (format, phase) in [(1, Some(VectorIndexPhase::Dropping)), (2, Some(state.phase)), (3, None)] {
            let value: Vec<u8> = [&[format], &value[1..]].concat();
            assert_eq!(VectorIndexState::decode(&value).ok().map(|state| state.phase), phase, "{format}");
        }
    }

    #[test]
    fn children_begin_where_their_parent_was() {
        let mut state = state();
        state.set_position(&[layout(0, &[]), layout(1, &[])], 0, 7);
        let after = [layout(2, &[0]), layout(3, &[0]), layout(1, &[])];
        assert_eq!(after.each_ref().map(|layout| state.position(layout)), [7, 7, 0]);
        state.set_position(&after, 2, 9);
        assert_eq!(after.each_ref().map(|layout| state.position(layout)), [9, 7, 0]);
    }
}
