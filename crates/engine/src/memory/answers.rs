//! Ready answers of point reads, bounded by bytes.
//!
//! Invariant: a hit never answers with a version older than one that any read has already seen. A write therefore
//! removes its item **before** its commit can become visible, and until it is through nobody may put the item back:
//! the shard of the key counts the writes under way and those that are done, a reader notes both before it takes its
//! snapshot, and [`ItemCache::insert`] compares them under the shard's mutex. A hit touches none of this.
//!
//! Keys are the keys of id rows: container, effective partition key, id. Keys of two partition keys with one hash
//! are one key, so the reader compares the partition key of what it finds.

use std::hash::BuildHasher;
use std::sync::Arc;

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use quire_resource::{ItemTtl, PartitionKey};

#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};
use crate::sync::{Mutex, RandomState, shards};

const SHARDS: usize = shards(1024);
/// What an entry costs besides its body and key.
const ENTRY_BYTES: usize = 256;
/// A larger item would push out too many others.
const SHARE_MAX: usize = 16;

/// An item ready to be sent.
#[derive(Debug)]
pub(crate) struct CachedItem {
    pub body: Bytes,
    pub etag: Arc<str>,
    pub lsn: u64,
    /// By the clock.
    pub written: i64,
    pub ttl: ItemTtl,
    pub json_bytes: u32,
    pub rid: u64,
    pub partition_key: PartitionKey,
}

pub(crate) struct ItemCache {
    entries: Option<Cache<Box<[u8]>, Arc<CachedItem>, ByBytes>>,
    entry_bytes_max: usize,
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
}

/// What a reader saw before its snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    shard: usize,
    done: u64,
    quiet: bool,
}

#[derive(Clone, Copy, Default)]
struct Shard {
    under_way: u32,
    done: u64,
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
    pub fn new(bytes_max: usize) -> ItemCache {
        let items_expected = bytes_max / (1024 + ENTRY_BYTES);
        let entries =
            (bytes_max > 0).then(|| Cache::with_weighter(items_expected, bytes_max as u64, ByBytes));
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        ItemCache { entries, entry_bytes_max: bytes_max / SHARE_MAX, shards, hasher: RandomState::default() }
    }

    pub fn is_off(&self) -> bool {
        self.entries.is_none()
    }

    pub fn get(&self, key: &[u8]) -> Option<Arc<CachedItem>> {
        self.entries.as_ref()?.get(key)
    }

    /// Whether this very answer is there: no write of the item has become visible since it was put there.
    pub fn has(&self, key: &[u8], item: &Arc<CachedItem>) -> bool {
        let kept = self.entries.as_ref().and_then(|entries| entries.peek(key));
        kept.is_some_and(|kept| Arc::ptr_eq(&kept, item))
    }

    /// To be called before the snapshot whose result is to be inserted.
    pub fn look(&self, key: &[u8]) -> Seen {
        let shard = self.shard_of(key);
        let Shard { under_way, done } = *self.shards[shard].lock();
        Seen { shard, done, quiet: under_way == 0 }
    }

    /// Keeps what a snapshot showed, unless a write of the shard came in between.
    pub fn insert(&self, key: &[u8], item: Arc<CachedItem>, seen: Seen) {
        let Some(entries) = &self.entries else { return };
        #[cfg(feature = "schedules")]
        if is_put_back(Race::AnswerKeptUnchecked) {
            return entries.insert(key.into(), item);
        }
        if !seen.quiet || item.body.len() > self.entry_bytes_max {
            return;
        }
        let shard = self.shards[seen.shard].lock();
        if shard.under_way == 0 && shard.done == seen.done {
            entries.insert(key.into(), item);
        }
    }

    /// To be called before a write of the item can become visible.
    pub fn begin_write(&self, key: &[u8]) {
        let mut shard = self.shards[self.shard_of(key)].lock();
        shard.under_way += 1;
        #[cfg(feature = "schedules")]
        if is_put_back(Race::AnswerDroppedLate) {
            return;
        }
        if let Some(entries) = &self.entries {
            entries.remove(key);
        }
    }

    /// To be called when the outcome of that write is certain, and before anyone is told of it.
    pub fn end_write(&self, key: &[u8]) {
        let mut shard = self.shards[self.shard_of(key)].lock();
        shard.under_way -= 1;
        #[cfg(feature = "schedules")]
        if let (true, Some(entries)) = (is_put_back(Race::AnswerDroppedLate), &self.entries) {
            entries.remove(key);
        }
        shard.done += 1;
    }

    /// Hits, misses, bytes, entries.
    pub fn statistics(&self) -> [u64; 4] {
        match &self.entries {
            Some(entries) => [entries.hits(), entries.misses(), entries.weight(), entries.len() as u64],
            None => [0; 4],
        }
    }

    fn shard_of(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % SHARDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let cache = ItemCache::new(1 << 20);
        cache.insert(b"k", item(1), cache.look(b"k"));
        assert_eq!(cache.get(b"k").map(|item| item.lsn), Some(1));
        cache.begin_write(b"k");
        cache.end_write(b"k");
        assert!(cache.get(b"k").is_none());
    }

    #[test]
    fn nothing_read_before_or_during_a_write_gets_in() {
        let cache = ItemCache::new(1 << 20);
        let before = cache.look(b"k");
        cache.begin_write(b"k");
        let during = cache.look(b"k");
        cache.insert(b"k", item(1), before);
        cache.insert(b"k", item(1), during);
        assert!(cache.get(b"k").is_none());
        cache.end_write(b"k");
        cache.insert(b"k", item(1), before);
        cache.insert(b"k", item(1), during);
        assert!(cache.get(b"k").is_none());
        cache.insert(b"k", item(2), cache.look(b"k"));
        assert_eq!(cache.get(b"k").map(|item| item.lsn), Some(2));
    }

    #[test]
    fn no_bytes_means_no_cache() {
        let cache = ItemCache::new(0);
        cache.insert(b"k", item(1), cache.look(b"k"));
        assert!(cache.get(b"k").is_none());
        assert_eq!(cache.statistics(), [0; 4]);
    }
}
