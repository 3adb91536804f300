//! A hash index from keys to positions in a list, without copies of the keys: GROUP BY and aggregates of distinct
//! values.

use std::hash::{BuildHasher, Hasher, RandomState};

use hashbrown::HashTable;

use super::datum::Datum;

/// Positions in a list, by keys.
#[derive(Default)]
pub(crate) struct KeyIndex {
    random: RandomState,
    positions: HashTable<(u64, usize)>,
}

impl KeyIndex {
    /// Bytes of an entry, with the free entries of a hash table.
    pub const SLOT_BYTES: usize = 2 * std::mem::size_of::<(u64, usize)>();

    pub fn hash(&self, keys: &[Datum<'_>]) -> u64 {
        let mut hasher = self.random.build_hasher();
        keys.iter().for_each(|key| key.value_ref().hash_with(&self.random, &mut hasher));
        hasher.finish()
    }

    /// `matches`: whether the entry at a position has the keys.
    pub fn find(&self, hash: u64, matches: impl Fn(usize) -> bool) -> Option<usize> {
        self.positions
            .find(hash, |(known, position)| *known == hash && matches(*position))
            .map(|(_, position)| *position)
    }

    pub fn clear(&mut self) {
        self.positions.clear();
    }

    pub fn insert(&mut self, hash: u64, position: usize) {
        self.positions.insert_unique(hash, (hash, position), |(hash, _)| *hash);
    }
}
