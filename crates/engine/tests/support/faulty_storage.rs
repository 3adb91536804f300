//! A storage that loses answers and dies when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use quire_storage::memory::MemoryStorage;
use quire_storage::{
    Caps, Commit, CommitError, Committed, KeyRange, PartitionId, Position, Removal, Snapshot, Space, Storage,
    StorageError, Token,
};

/// What becomes of the next commit.
pub const PASS: u64 = 0;
pub const LOSE_ANSWER: u64 = 1;
pub const LOSE_COMMIT: u64 = 2;
/// Happens when somebody asks how it ended.
pub const LATE: u64 = 3;
pub const PANIC: u64 = 4;

/// Loses answers, and while it is dark does not say what became of a token.
pub struct FaultyStorage {
    inner: MemoryStorage,
    pub fault: AtomicU64,
    pub dark: AtomicBool,
    pub slow: AtomicBool,
    late: Mutex<Option<Commit>>,
}

impl FaultyStorage {
    pub fn new() -> Arc<FaultyStorage> {
        let (fault, dark, slow) = (AtomicU64::new(PASS), AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(FaultyStorage { inner: MemoryStorage::new(), fault, dark, slow, late: Mutex::default() })
    }
}

impl Storage for FaultyStorage {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StorageError> {
        self.inner.snapshot()
    }
    fn commit(&self, commit: Commit) -> Result<Committed, CommitError> {
        let token = commit.token;
        if self.slow.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
        match self.fault.swap(PASS, Ordering::SeqCst) {
            PASS => self.inner.commit(commit),
            LOSE_ANSWER => self.inner.commit(commit).and(Err(CommitError::Unknown { token })),
            LOSE_COMMIT => Err(CommitError::Unknown { token }),
            LATE => {
                *self.late.lock() = Some(commit);
                Err(CommitError::Unknown { token })
            }
            _ => panic!("the storage died, as it was told to"),
        }
    }
    fn position(&self, partition: PartitionId) -> Result<Option<Position>, StorageError> {
        self.inner.position(partition)
    }
    fn fence(&self, partition: PartitionId, epoch: u64) -> Result<Position, StorageError> {
        self.inner.fence(partition, epoch)
    }
    fn resolve(&self, token: Token) -> Result<Option<Committed>, StorageError> {
        if self.dark.load(Ordering::SeqCst) {
            let source = std::io::Error::other("dark");
            return Err(StorageError::Io { doing: "asking".to_owned(), source });
        }
        if let Some(commit) = self.late.lock().take() {
            self.inner.commit(commit).expect("nobody was in between");
        }
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
    fn remove_range(&self, space: Space, range: &KeyRange) -> Result<Removal, StorageError> {
        self.inner.remove_range(space, range)
    }
    fn close(&self) -> Result<(), StorageError> {
        self.inner.close()
    }
}
