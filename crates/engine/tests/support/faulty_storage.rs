//! A storage that loses answers and panics as a test says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use quire_storage::layer::StorageLayer;
use quire_storage::memory::MemoryStorage;
use quire_storage::{Commit, CommitError, Committed, Storage, StorageError, Token};

/// What becomes of the next commit.
pub const PASS: u64 = 0;
pub const LOSE_ANSWER: u64 = 1;
pub const LOSE_COMMIT: u64 = 2;
/// Is committed when its outcome is asked for.
pub const LATE: u64 = 3;
pub const PANIC: u64 = 4;

/// Loses answers, and does not resolve tokens while `dark` is set.
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

impl StorageLayer for FaultyStorage {
    fn below(&self) -> &dyn Storage {
        &self.inner
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
            _ => panic!("the storage died, as the test wants"),
        }
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
}
