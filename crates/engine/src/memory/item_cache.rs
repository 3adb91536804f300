//! Cache of items as point reads return them, bounded by bytes.
//!
//! Invariant: a hit never returns a version older than one that any read has already returned. A write removes its item
//! **before** its commit can become visible. Nobody inserts the item again until the write has ended: [`ItemCache::insert`] compares
//! the [`WriteSlot`] of the key with the clock as it was before the snapshot, under the slot's mutex. A hit reads none of this.
//!
//! Keys are the keys of id rows: container, effective partition key, id. Two partition keys with the same hash have the same
//! cache key, so the reader compares the partition key of the cached item.

use std::hash::BuildHasher;
use std::sync::Arc;

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use quire_resource::{ItemTtl, PartitionKey};

use crate::memory::write_clock::{WriteClock, WriteSlot, WriteTime};
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};
use crate::sync::{Mutex, RandomState, shards};

const SLOTS: usize = shards(1024);
/// The memory of an entry besides its body and key.
const ENTRY_BYTES: usize = 256;
/// An item that takes more than this part of the cache is not inserted.
const SHARE_MAX: usize = 16;

/// An item as a point read returns it.
#[derive(Debug)]
pub(crate) struct CachedItem {
    pub body: Bytes,
    pub etag: Arc<str>,
    pub lsn: u64,
    /// Seconds, by the clock.
    pub written: i64,
    pub ttl: ItemTtl,
    pub json_bytes: u32,
    pub rid: u64,
    pub partition_key: PartitionKey,
}

pub(crate) struct ItemCache {
    entries: Option<Cache<Box<[u8]>, Arc<CachedItem>, ByBytes>>,
    entry_bytes_max: usize,
    clock: Arc<WriteClock>,
    slots: Vec<Mutex<WriteSlot>>,
    hasher: RandomState,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Box<[u8]>, Arc<CachedItem>> for ByBytes {
    fn weight(&self, key: &Box<[u8]>, item: &Arc<CachedItem>) -> u64 {
        (key.len() + item.body.len() + ENTRY_BYTES) as u64
    }
}

impl ItemCache {
    /// `bytes_max` of 0 switches it off.
    pub fn new(bytes_max: usize, clock: Arc<WriteClock>) -> ItemCache {
        let items_expected = bytes_max / (1024 + ENTRY_BYTES);
        let entries =
            (bytes_max > 0).then(|| Cache::with_weighter(items_expected, bytes_max as u64, ByBytes));
        let slots = (0..SLOTS).map(|_| Mutex::default()).collect();
        let entry_bytes_max = bytes_max / SHARE_MAX;
        ItemCache { entries, entry_bytes_max, clock, slots, hasher: RandomState::default() }
    }

    pub fn is_off(&self) -> bool {
        self.entries.is_none()
    }

    pub fn get(&self, key: &[u8]) -> Option<Arc<CachedItem>> {
        self.entries.as_ref()?.get(key)
    }

    /// Whether the cache still has this very entry: no write of the item has become visible since it was inserted.
    pub fn has(&self, key: &[u8], item: &Arc<CachedItem>) -> bool {
        let cached = self.entries.as_ref().and_then(|entries| entries.peek(key));
        cached.is_some_and(|cached| Arc::ptr_eq(&cached, item))
    }

    /// Inserts what a snapshot showed, unless the item may have changed since. `read_at`: the clock before the snapshot.
    pub fn insert(&self, key: &[u8], item: Arc<CachedItem>, read_at: WriteTime) {
        let Some(entries) = &self.entries else { return };
        #[cfg(feature = "schedules")]
        if is_put_back(Race::AnswerKeptUnchecked) {
            return entries.insert(key.into(), item);
        }
        if item.body.len() > self.entry_bytes_max {
            return;
        }
        let slot = self.slot(key).lock();
        if slot.is_unchanged_since(read_at) {
            entries.insert(key.into(), item);
        }
    }

    /// Call it before a write of the item can become visible.
    pub fn begin_write(&self, key: &[u8]) {
        let mut slot = self.slot(key).lock();
        slot.begin_write();
        #[cfg(feature = "schedules")]
        if is_put_back(Race::AnswerDroppedLate) {
            return;
        }
        if let Some(entries) = &self.entries {
            entries.remove(key);
        }
    }

    /// Call it when the outcome of that write is certain, and before it is reported.
    pub fn end_write(&self, key: &[u8]) {
        let mut slot = self.slot(key).lock();
        #[cfg(feature = "schedules")]
        if let (true, Some(entries)) = (is_put_back(Race::AnswerDroppedLate), &self.entries) {
            entries.remove(key);
        }
        slot.end_write(self.clock.advance());
    }

    /// Hits, misses, bytes, entries.
    pub fn statistics(&self) -> [u64; 4] {
        match &self.entries {
            Some(entries) => [entries.hits(), entries.misses(), entries.weight(), entries.len() as u64],
            None => [0; 4],
        }
    }

    fn slot(&self, key: &[u8]) -> &Mutex<WriteSlot> {
        &self.slots[self.hasher.hash_one(key) as usize % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(bytes_max: usize) -> ItemCache {
        ItemCache::new(bytes_max, Arc::default())
    }

    fn item(lsn: u64) -> Arc<CachedItem> {
        Arc::new(CachedItem {
            body: Bytes::from_static(b"{}"),
            etag: Arc::from("e"),
            lsn,
            written: 0,
            ttl: ItemTtl::Inherit,
            json_bytes: 2,
            rid: 1,
            partition_key: PartitionKey(Vec::new()),
        })
    }

    #[test]
    fn a_read_fills_it_and_a_write_empties_it() {
        let cache = cache(1 << 20);
        cache.insert(b"k", item(1), cache.clock.now());
        assert_eq!(cache.get(b"k").map(|item| item.lsn), Some(1));
        cache.begin_write(b"k");
        cache.end_write(b"k");
        assert!(cache.get(b"k").is_none());
    }

    #[test]
    fn nothing_read_before_or_during_a_write_gets_in() {
        let cache = cache(1 << 20);
        let before = cache.clock.now();
        cache.begin_write(b"k");
        let during = cache.clock.now();
        cache.insert(b"k", item(1), before);
        cache.insert(b"k", item(1), during);
        assert!(cache.get(b"k").is_none());
        cache.end_write(b"k");
        cache.insert(b"k", item(1), before);
        cache.insert(b"k", item(1), during);
        assert!(cache.get(b"k").is_none());
        cache.insert(b"k", item(2), cache.clock.now());
        assert_eq!(cache.get(b"k").map(|item| item.lsn), Some(2));
    }

    #[test]
    fn no_bytes_means_no_cache() {
        let cache = cache(0);
        cache.insert(b"k", item(1), cache.clock.now());
        assert!(cache.get(b"k").is_none());
        assert_eq!(cache.statistics(), [0; 4]);
    }
}
