//! A storage that remembers which items were deleted while a backup runs.
//!
//! The feed says what was written but not what was deleted. An item's key is remembered before the commit that deletes
//! it is sent, so whoever takes a snapshot that shows the delete finds the key here. A commit that fails leaves a key
//! too many: a key here is a suspicion, to be checked against a snapshot.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use quire_storage::{
    Caps, Commit, CommitError, Committed, KeyRange, Op, PartitionId, Position, Snapshot, Space, Storage,
    StorageError, Token,
};

use crate::keys::ITEMS;

/// More keys than this are not kept: the backup has to give up.
const KEYS_MAX: usize = 4_000_000;

pub(crate) struct Watched {
    inner: Arc<dyn Storage>,
    /// Read-locked during every commit, so that starting waits for the commits under way.
    log: RwLock<Option<Arc<DeleteLog>>>,
}

#[derive(Default)]
pub(crate) struct DeleteLog {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    keys: Vec<Vec<u8>>,
    overflowed: bool,
}

impl Watched {
    pub fn new(inner: Arc<dyn Storage>) -> Watched {
        Watched { inner, log: RwLock::new(None) }
    }

    /// From now on every delete is remembered. `None` when someone is watching already.
    pub fn start(&self) -> Option<Arc<DeleteLog>> {
        let mut log = self.log.write();
        if log.is_some() {
            return None;
        }
        Some(Arc::clone(log.insert(Arc::default())))
    }

    pub fn stop(&self) {
        *self.log.write() = None;
    }
}

impl DeleteLog {
    fn record(&self, commit: &Commit) {
        let deleted = |op: &Op| match op {
            Op::Delete { space: ITEMS, key } => Some(key.clone()),
            _ => None,
        };
        let keys: Vec<Vec<u8>> = commit.ops.iter().filter_map(deleted).collect();
        if !keys.is_empty() {
            self.entries.lock().extend(keys);
        }
    }

    /// What was remembered since the last time; `None` when it was too much.
    pub fn take(&self) -> Option<Vec<Vec<u8>>> {
        let mut entries = self.entries.lock();
        (!entries.overflowed).then(|| std::mem::take(&mut entries.keys))
    }
}

impl Entries {
    fn extend(&mut self, keys: Vec<Vec<u8>>) {
        if self.keys.len() + keys.len() > KEYS_MAX {
            *self = Entries { keys: Vec::new(), overflowed: true };
        } else if !self.overflowed {
            self.keys.extend(keys);
        }
    }
}

impl Storage for Watched {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StorageError> {
        self.inner.snapshot()
    }
    fn commit(&self, commit: Commit) -> Result<Committed, CommitError> {
        let log = self.log.read();
        if let Some(log) = &*log {
            log.record(&commit);
        }
        self.inner.commit(commit)
    }
    fn position(&self, partition: PartitionId) -> Result<Option<Position>, StorageError> {
        self.inner.position(partition)
    }
    fn fence(&self, partition: PartitionId, epoch: u64) -> Result<Position, StorageError> {
        self.inner.fence(partition, epoch)
    }
    fn resolve(&self, token: Token) -> Result<Option<Committed>, StorageError> {
        self.inner.resolve(token)
    }
    fn is_writable(&self) -> bool {
        self.inner.is_writable()
    }
    fn statistics(&self) -> Vec<(&'static str, u64)> {
        self.inner.statistics()
    }
    fn compact(&self, space: Space, range: KeyRange) {
        self.inner.compact(space, range);
    }
    fn close(&self) -> Result<(), StorageError> {
        self.inner.close()
    }
}
