//! What every part of an open engine needs: storage, clock, locks, cache, secret.

use std::sync::Arc;

use quire_storage::Storage;

use crate::api::{Clock, Options};
use crate::cache::ItemCache;
use crate::locks::LockTable;

pub(crate) struct Shared {
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
    pub cache: ItemCache,
    pub locks: LockTable,
    /// Made with the store: MACs of continuations and resource tokens.
    pub secret: [u8; 32],
    /// 1 in a new store, one more after every restore.
    pub incarnation: u32,
    pub options: Options,
}

impl Shared {
    pub fn new(
        storage: Arc<dyn Storage>,
        options: Options,
        secret: [u8; 32],
        incarnation: u32,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            clock: Arc::clone(&options.clock),
            cache: ItemCache::new(options.cache_bytes),
            locks: LockTable::new(),
            storage,
            secret,
            incarnation,
            options,
        })
    }

    /// The version part of session tokens: `-1` until a first restore.
    pub fn session_version(&self) -> i64 {
        if self.incarnation <= 1 { -1 } else { i64::from(self.incarnation) }
    }

    pub fn now_seconds(&self) -> i64 {
        self.clock.now_ms().div_euclid(1000)
    }

    /// Figures of the data plane for `/_quire/metrics`; the storage's own are not among them.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        todo!()
    }
}
