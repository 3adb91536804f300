//! Child ids of items, by the keys of their id rows, as readers found them.
//!
//! These are guesses: an item may have been deleted since, and its id given to another one, and two keys may have one hash.
//! Whoever uses one reads the item's row from a snapshot and compares its id and partition key. A row that has both is the
//! item, since no snapshot has two items with one id in one logical partition. Otherwise the id row decides.

use std::hash::{BuildHasher, RandomState};

use quick_cache::sync::Cache;

/// What an entry takes, with its share of the tables.
const ENTRY_BYTES: usize = 64;

pub(crate) struct ItemIds {
    ids: Cache<u64, u64>,
    hasher: RandomState,
    is_off: bool,
}

impl ItemIds {
    pub fn new(bytes_max: usize) -> ItemIds {
        let entries_max = bytes_max / ENTRY_BYTES;
        ItemIds { ids: Cache::new(entries_max.max(1)), hasher: RandomState::new(), is_off: entries_max == 0 }
    }

    /// The child id that the item with this id row had.
    pub fn get(&self, id_key: &[u8]) -> Option<u64> {
        if self.is_off { None } else { self.ids.get(&self.hasher.hash_one(id_key)) }
    }

    pub fn insert(&self, id_key: &[u8], rid: u64) {
        if !self.is_off {
            self.ids.insert(self.hasher.hash_one(id_key), rid);
        }
    }

    pub fn bytes(&self) -> usize {
        self.ids.len() * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_is_kept_and_no_more_than_fit() {
        let ids = ItemIds::new(100 * ENTRY_BYTES);
        for (id_key, rid) in [("a", 1), ("b", 2), ("a", 3)] {
            ids.insert(id_key.as_bytes(), rid);
        }
        assert_eq!((ids.get(b"a"), ids.get(b"b"), ids.get(b"c")), (Some(3), Some(2), None));
        (0..10_000u64).for_each(|rid| ids.insert(&rid.to_be_bytes(), rid));
        assert!(ids.bytes() <= 100 * ENTRY_BYTES, "{}", ids.bytes());
        let off = ItemIds::new(0);
        off.insert(b"a", 1);
        assert_eq!(off.get(b"a"), None);
    }
}
