//! A storage that records which items are deleted while a backup runs, and which change while a partition is split.
//!
//! The feed lists writes but not deletes. The key of a deleted item is recorded before its commit is sent, so a reader
//! whose snapshot shows the delete finds the key here. A commit that fails leaves a key too many: the reader checks
//! every key against a snapshot.
//!
//! A [`TouchLog`] lists every item of a container whose row was put or deleted, also by index maintenance, which has no
//! LSN. Items of a commit in progress, or with an unknown outcome, stay in the list.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use quire_storage::layer::StorageLayer;
use quire_storage::{Commit, CommitError, Committed, Op, Storage};

use crate::store::keys::{ITEMS, container_prefix, rid_of_item_key};
use crate::sync::{Mutex, RwLock};

/// More keys than this are not kept: the backup has to give up.
const KEYS_MAX: usize = 4_000_000;

pub(crate) struct WatchedStorage {
    inner: Arc<dyn Storage>,
    /// Read-locked during every commit, so that starting waits for the commits under way.
    log: RwLock<Option<Arc<DeleteLog>>>,
    /// Likewise.
    touches: RwLock<Vec<Arc<TouchLog>>>,
}

/// Items of one container that may have changed.
pub(crate) struct TouchLog {
    container: u32,
    touched: Mutex<TouchedRids>,
}

#[derive(Default)]
struct TouchedRids {
    next: u64,
    /// By commit.
    in_progress: HashMap<u64, Vec<u64>>,
    done: Vec<u64>,
    overflowed: bool,
}

#[derive(Default)]
pub(crate) struct DeleteLog {
    entries: Mutex<DeletedRowKeys>,
}

#[derive(Default)]
struct DeletedRowKeys {
    keys: Vec<Vec<u8>>,
    overflowed: bool,
}

impl WatchedStorage {
    pub fn new(inner: Arc<dyn Storage>) -> WatchedStorage {
        WatchedStorage { inner, log: RwLock::new(None), touches: RwLock::default() }
    }

    /// From now on every item of the container that changes is remembered.
    pub fn watch(&self, container: u32) -> Arc<TouchLog> {
        let log = Arc::new(TouchLog { container, touched: Mutex::default() });
        self.touches.write().push(Arc::clone(&log));
        log
    }

    pub fn unwatch(&self, log: &Arc<TouchLog>) {
        self.touches.write().retain(|other| !Arc::ptr_eq(other, log));
    }

    /// From now on every delete is remembered. `None` when someone is watching already.
    pub fn start(&self) -> Option<Arc<DeleteLog>> {
        let mut log = self.log.write();
        if log.is_some() {
            return None;
        }
        Some(Arc::clone(log.insert(Arc::default())))
    }

    pub fn is_backup_running(&self) -> bool {
        self.log.read().is_some()
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

impl TouchLog {
    fn begin(&self, commit: &Commit) -> Option<u64> {
        let prefix = container_prefix(self.container);
        let item = |op: &Op| match op {
            Op::Put { space: ITEMS, key, .. } | Op::Delete { space: ITEMS, key }
                if key.starts_with(&prefix) =>
            {
                rid_of_item_key(key)
            }
            _ => None,
        };
        let rids: Vec<u64> = commit.ops.iter().filter_map(item).collect();
        if rids.is_empty() {
            return None;
        }
        let mut touched = self.touched.lock();
        touched.next += 1;
        let number = touched.next;
        touched.in_progress.insert(number, rids);
        Some(number)
    }

    fn end(&self, number: u64) {
        let mut touched = self.touched.lock();
        let Some(rids) = touched.in_progress.remove(&number) else { return };
        if touched.overflowed || touched.done.len() + rids.len() > KEYS_MAX {
            (touched.done, touched.overflowed) = (Vec::new(), true);
        } else {
            touched.done.extend(rids);
        }
    }

    /// What may have changed since the last time, each once: to be asked after the snapshot that shows it. `None` when it
    /// was too much.
    pub fn take(&self) -> Option<BTreeSet<u64>> {
        let mut touched = self.touched.lock();
        let mut rids: BTreeSet<u64> = std::mem::take(&mut touched.done).into_iter().collect();
        rids.extend(touched.in_progress.values().flatten());
        (!touched.overflowed).then_some(rids)
    }
}

impl DeletedRowKeys {
    fn extend(&mut self, keys: Vec<Vec<u8>>) {
        if self.keys.len() + keys.len() > KEYS_MAX {
            *self = DeletedRowKeys { keys: Vec::new(), overflowed: true };
        } else if !self.overflowed {
            self.keys.extend(keys);
        }
    }
}

impl StorageLayer for WatchedStorage {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }
    fn commit(&self, commit: Commit) -> Result<Committed, CommitError> {
        let log = self.log.read();
        if let Some(log) = &*log {
            log.record(&commit);
        }
        let touches = self.touches.read();
        let begun: Vec<Option<u64>> = touches.iter().map(|log| log.begin(&commit)).collect();
        let outcome = self.inner.commit(commit);
        // What is unknown may still happen.
        if !matches!(outcome, Err(CommitError::Unknown { .. })) {
            touches
                .iter()
                .zip(begun)
                .for_each(|(log, begun)| begun.into_iter().for_each(|begun| log.end(begun)));
        }
        outcome
    }
}
