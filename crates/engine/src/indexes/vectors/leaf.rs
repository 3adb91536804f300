//! The rows of a leaf, and where an item is in an index.

use quire_storage::Snapshot;

use super::block::{VectorBlock, VectorBlockRef};
use super::codes::QuantizedVector;
use super::{APART_NONE, APART_ODD};
use crate::api::{EngineError, corrupt};
use crate::store::for_each_row;
use crate::store::keys::{LOOKUPS, VectorKeys};

/// Where an item is that is not in a leaf. Leaves are numbered from 1 on.
pub(crate) const PLACE_NONE: u64 = 0;

pub(crate) const PLACE_ODD: u64 = u64::MAX;

pub(crate) fn class_of(place: u64) -> Option<u8> {
    match place {
        PLACE_NONE => Some(APART_NONE),
        PLACE_ODD => Some(APART_ODD),
        _ => None,
    }
}

pub(crate) fn set(block: &mut VectorBlock, rid: u64, coded: Option<&QuantizedVector>) {
    if let Some(at) = block.position(rid) {
        block.swap_remove(at);
    }
    if let Some(coded) = coded {
        block.push(rid, coded);
    }
}

/// The vectors of a leaf, and the items whose changes are not in its row.
pub(crate) fn read_leaf(
    snapshot: &dyn Snapshot,
    keys: VectorKeys,
    leaf: u64,
    dimensions: usize,
) -> Result<(VectorBlock, Vec<u64>), EngineError> {
    let mut changes: Vec<(u64, Option<QuantizedVector>)> = Vec::new();
    let mut block = VectorBlock::new(dimensions);
    for_each_row(snapshot, LOOKUPS, &keys.leaf(leaf), |key, value| {
        let (_, change) = VectorKeys::leaf_of(key).ok_or_else(|| corrupt("key of a leaf"))?;
        match change {
            Some(rid) if value.is_empty() => changes.push((rid, None)),
            Some(rid) => {
                let one = VectorBlockRef::parse(value, dimensions)?.to_block();
                changes.push((rid, (one.len() == 1).then(|| one.get(0))));
            }
            None => block = VectorBlockRef::parse(value, dimensions)?.to_block(),
        }
        Ok(())
    })?;
    changes.iter().for_each(|(rid, coded)| set(&mut block, *rid, coded.as_ref()));
    Ok((block, changes.into_iter().map(|(rid, _)| rid).collect()))
}
