//! A storage that shows every call to a function before it is done, so that tests count, delay and break calls.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use quire_storage::layer::StorageLayer;
use quire_storage::{
    Commit, CommitError, Committed, KeyRange, Removal, Scan, Snapshot, Space, Storage, StorageError, Visit,
};

/// A call that is about to be done.
pub enum Call<'a> {
    BeforeSnapshot,
    /// The snapshot was taken, but is not handed out yet.
    SnapshotTaken,
    Get(Space, &'a [u8]),
    Visit(&'a Scan),
    /// A row that a scan is about to show.
    Row,
    Commit(&'a Commit),
    RemoveRange(Space),
}

type Hook = dyn Fn(&Call<'_>) + Send + Sync;

pub struct HookedStorage {
    inner: Arc<dyn Storage>,
    shared: Arc<Calls>,
}

/// What was called so far.
pub struct Calls {
    hook: RwLock<Arc<Hook>>,
    pub snapshots: AtomicU64,
    pub scans: AtomicU64,
    /// Rows that scans have shown.
    pub rows: AtomicU64,
    pub commits: AtomicU64,
}

struct HookedSnapshot {
    inner: Box<dyn Snapshot>,
    shared: Arc<Calls>,
}

impl HookedStorage {
    pub fn new(inner: Arc<dyn Storage>) -> HookedStorage {
        let (snapshots, scans, rows, commits) = Default::default();
        let hook = RwLock::new(Arc::new(|_: &Call<'_>| ()) as Arc<Hook>);
        HookedStorage { inner, shared: Arc::new(Calls { hook, snapshots, scans, rows, commits }) }
    }

    pub fn calls(&self) -> Arc<Calls> {
        Arc::clone(&self.shared)
    }
}

impl Calls {
    pub fn set_hook(&self, hook: impl Fn(&Call<'_>) + Send + Sync + 'static) {
        *self.hook.write() = Arc::new(hook);
    }

    pub fn count(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::SeqCst)
    }

    fn call(&self, call: &Call<'_>) {
        let counter = match call {
            Call::SnapshotTaken => Some(&self.snapshots),
            Call::BeforeSnapshot | Call::Get(..) | Call::RemoveRange(_) => None,
            Call::Visit(_) => Some(&self.scans),
            Call::Row => Some(&self.rows),
            Call::Commit(_) => Some(&self.commits),
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        let hook = Arc::clone(&self.hook.read());
        hook(call);
    }
}

impl StorageLayer for HookedStorage {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StorageError> {
        self.shared.call(&Call::BeforeSnapshot);
        let inner = self.inner.snapshot()?;
        self.shared.call(&Call::SnapshotTaken);
        Ok(Box::new(HookedSnapshot { inner, shared: Arc::clone(&self.shared) }))
    }
    fn commit(&self, commit: Commit) -> Result<Committed, CommitError> {
        self.shared.call(&Call::Commit(&commit));
        self.inner.commit(commit)
    }
    fn remove_range(&self, space: Space, range: &KeyRange) -> Result<Removal, StorageError> {
        self.shared.call(&Call::RemoveRange(space));
        self.inner.remove_range(space, range)
    }
}

impl Snapshot for HookedSnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.shared.call(&Call::Get(space, key));
        self.inner.get(space, key)
    }
    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
        keys.iter().for_each(|key| self.shared.call(&Call::Get(space, key)));
        self.inner.multi_get(space, keys)
    }
    fn visit(&self, scan: &Scan, visit: &mut Visit<'_>) -> Result<bool, StorageError> {
        self.shared.call(&Call::Visit(scan));
        self.inner.visit(scan, &mut |key, value| {
            self.shared.call(&Call::Row);
            visit(key, value)
        })
    }
}
