//! Effective partition keys: where a key lies in a container's hash space.

use crate::{PartitionKeyDefinition, PartitionKeyKind};

/// Bytes whose upper-case hex is the EPK of the protocol; ordered bytewise like the hex. `""` is the minimum.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EffectivePartitionKey(pub Vec<u8>);

/// Half-open; the maximum is the single byte `FF`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpkRange {
    pub min: EffectivePartitionKey,
    pub max: EffectivePartitionKey,
}

impl EffectivePartitionKey {
    pub fn to_hex(&self) -> String {
        todo!()
    }
    /// Accepts an odd number of digits too (clients write bounds by hand).
    pub fn from_hex(_text: &str) -> Option<EffectivePartitionKey> {
        todo!()
    }
}

impl EpkRange {
    pub fn full() -> EpkRange {
        todo!()
    }
    pub fn contains(&self, _key: &EffectivePartitionKey) -> bool {
        todo!()
    }
    pub fn intersect(&self, _other: &EpkRange) -> Option<EpkRange> {
        todo!()
    }
    /// Everything under a hierarchical prefix: `[H, H FF)`.
    pub fn of_prefix(_prefix: &EffectivePartitionKey) -> EpkRange {
        todo!()
    }
    /// `count` ranges that tile "" .. "FF", evenly over the space that `definition`'s hash really uses.
    pub fn split_evenly(_definition: &PartitionKeyDefinition, _count: usize) -> Vec<EpkRange> {
        todo!()
    }
    /// Smallest and largest 24-bit item rid prefix (see `PartitionKeyDefinition::rid_prefix`) that can occur in this range.
    pub fn rid_prefixes(&self, _kind: PartitionKeyKind, _version: u8) -> (u32, u32) {
        todo!()
    }
}
