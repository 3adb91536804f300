//! Keeps a storage available when a resource is short for a while: file descriptors, memory, disk space.
//!
//! fjall's workers open files as they flush and compact, and stop permanently at the first error. Nothing is lost by
//! that:
//! their data is in the journal, and they never change acknowledged data. So a thread here
//! - holds a reserve of descriptors, and releases it when others have taken all of them;
//! - detects that the workers have stopped, waits until there are descriptors and space, and reopens the store for
//!   its users. Until then commits are refused as [`StorageError::Unavailable`]; none of them was written.
//!
//! A failed write or sync of the journal is different: whether the batch was written is unknown, and only a caller
//! that reopens the storage can find out. It poisons the storage.

use crate::directory::{Directory, create_file};
use crate::error::{self, is_full, is_resource_missing};
use crate::index_rows::flusher::Flusher;
use crate::threads::{PanicPoint, StorageTotals};
use crate::{LocalOptions, OpenError, OpenStore};
use parking_lot::{Condvar, Mutex, RwLock};
use quire_storage::StorageError;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Checking whether the workers are alive takes the journal's lock.
const CHECKS_PER_WORKER_CHECK: u32 = 4;
/// Flushing or compacting a table takes a few; a compaction opens all tables that it merges.
const RESERVED_DESCRIPTORS: usize = 32;
const PROBED_DESCRIPTORS: usize = 4;
const PROBED_BYTES: usize = 1 << 20;
const RETRY_WAIT_MIN: Duration = Duration::from_millis(100);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(5);
/// Between a panic of this thread and its next start.
const RESTART_WAIT: Duration = Duration::from_millis(500);
/// How long a user waits for a store that is being reopened.
const USER_WAIT_MAX: Duration = Duration::from_secs(10);
const USER_WAIT_STEP: Duration = Duration::from_millis(5);

/// Whether the store is open.
pub(crate) enum StoreState {
    OpenStore(Arc<OpenStore>),
    /// Being reopened.
    Recovering,
    Closed,
}

/// The part of a storage that is replaced on reopening.
pub(crate) struct CurrentStore {
    opened: RwLock<StoreState>,
    flusher: Mutex<Option<Flusher>>,
    path: PathBuf,
    options: LocalOptions,
    pub(crate) totals: Arc<StorageTotals>,
}

pub(crate) struct Health {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    ended: Mutex<bool>,
    changed: Condvar,
}

impl CurrentStore {
    pub(crate) fn new(open: OpenStore, options: LocalOptions) -> Result<CurrentStore, OpenError> {
        let (path, totals) = (open.directory.path().to_owned(), open.totals.clone());
        let open = Arc::new(open);
        // A loss that happens now was not accepted by the caller.
        let options = LocalOptions { accept_loss: false, ..options };
        let flusher = Mutex::new(Some(Flusher::start(&open)?));
        Ok(CurrentStore { opened: RwLock::new(StoreState::OpenStore(open)), flusher, path, options, totals })
    }

    pub(crate) fn get(&self) -> Result<Arc<OpenStore>, StorageError> {
        let start = Instant::now();
        loop {
            match &*self.opened.read() {
                StoreState::OpenStore(open) => return Ok(open.clone()),
                StoreState::Closed => return Err(StorageError::Closed),
                StoreState::Recovering if start.elapsed() > USER_WAIT_MAX => {
                    return Err(StorageError::Unavailable { during: "flush" });
                }
                StoreState::Recovering => {}
            }
            std::thread::sleep(USER_WAIT_STEP);
        }
    }

    /// The open store, without waiting.
    pub(crate) fn peek(&self) -> Option<Arc<OpenStore>> {
        match &*self.opened.read() {
            StoreState::OpenStore(open) => Some(open.clone()),
            StoreState::Recovering | StoreState::Closed => None,
        }
    }

    fn is_recovering(&self) -> bool {
        matches!(&*self.opened.read(), StoreState::Recovering)
    }

    /// Takes the open store; users no longer find it.
    pub(crate) fn close(&self) -> Option<Arc<OpenStore>> {
        match std::mem::replace(&mut *self.opened.write(), StoreState::Closed) {
            StoreState::OpenStore(open) => Some(open),
            StoreState::Recovering | StoreState::Closed => None,
        }
    }

    pub(crate) fn end_flusher(&self) {
        if let Some(flusher) = self.flusher.lock().take() {
            flusher.end();
        }
    }
}

impl Health {
    pub(crate) fn start(current: &Arc<CurrentStore>) -> Result<Health, OpenError> {
        let (shared, current) = (Arc::new(Shared::default()), current.clone());
        let watching = shared.clone();
        let spawned = std::thread::Builder::new()
            .name("quire-health".into())
            .spawn(move || watch_always(&watching, &current));
        let thread = spawned.map_err(error::opening("starting the thread that watches the store"))?;
        Ok(Health { shared, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn end(&self) {
        *self.shared.ended.lock() = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::warn!("the thread that watches the store had failed");
        }
    }
}

impl Shared {
    /// Sleeps; false when the thread must end.
    fn sleep_unless_ended(&self, time: Duration) -> bool {
        let mut ended = self.ended.lock();
        if !*ended {
            self.changed.wait_for(&mut ended, time);
        }
        !*ended
    }
}

/// Starts again after a panic.
fn watch_always(shared: &Shared, current: &CurrentStore) {
    while current.totals.run_thread("quire-health", || watch(shared, current)).is_err() {
        if !shared.sleep_unless_ended(RESTART_WAIT) {
            return;
        }
    }
}

fn watch(shared: &Shared, current: &CurrentStore) {
    let mut reserve = DescriptorReserve::default();
    // A panic interrupted it.
    if current.is_recovering() && !reopen_when_possible(shared, current) {
        return;
    }
    reserve.fill();
    let mut checks = 0u32;
    while shared.sleep_unless_ended(CHECK_INTERVAL) {
        current.totals.panic_if_wanted(PanicPoint::Watch);
        reserve.check();
        checks = checks.wrapping_add(1);
        let Some(open) = current.peek() else { continue };
        let is_stopped = open.state.is_halted()
            || checks.is_multiple_of(CHECKS_PER_WORKER_CHECK) && open.store.is_poisoned();
        if is_stopped && !open.state.is_poisoned() {
            open.state.refuse_writes("flush");
            recover(shared, current, open, &mut reserve);
        }
    }
}

/// Reopens the store when the needed resources are available.
fn recover(shared: &Shared, current: &CurrentStore, open: Arc<OpenStore>, reserve: &mut DescriptorReserve) {
    tracing::error!(
        "background work of the store has stopped; it is opened again, until then nothing is written"
    );
    let mut retry = Retry::new(shared);
    reserve.release();
    while let Err(error) = probe(&current.path) {
        if !retry.wait(&error) {
            return;
        }
    }
    // A batch that is being written now has failed already, or never will.
    *current.opened.write() = StoreState::Recovering;
    current.end_flusher();
    while Arc::strong_count(&open) > 1 {
        if !shared.sleep_unless_ended(USER_WAIT_STEP) {
            return;
        }
    }
    drop(open);
    if reopen_when_possible(shared, current) {
        reserve.fill();
    }
}

/// False when the thread must end.
fn reopen_when_possible(shared: &Shared, current: &CurrentStore) -> bool {
    let mut retry = Retry::new(shared);
    while let Err(error) = reopen(current) {
        if !retry.wait(&error) {
            return false;
        }
    }
    tracing::info!("the store is open again");
    true
}

/// Growing waits between attempts.
struct Retry<'a> {
    shared: &'a Shared,
    wait: Duration,
}

impl Retry<'_> {
    fn new(shared: &Shared) -> Retry<'_> {
        Retry { shared, wait: RETRY_WAIT_MIN }
    }

    /// False when the thread must end.
    fn wait(&mut self, reason: &dyn std::fmt::Display) -> bool {
        tracing::warn!(%reason, "the store cannot be opened again yet");
        let goes_on = self.shared.sleep_unless_ended(self.wait);
        self.wait = RETRY_WAIT_MAX.min(self.wait * 2);
        goes_on
    }
}

fn reopen(current: &CurrentStore) -> Result<(), OpenError> {
    current.totals.panic_if_wanted(PanicPoint::Reopen);
    let mut open = OpenStore::from_directory(Directory::lock(&current.path)?, &current.options)?;
    open.totals = current.totals.clone();
    let open = Arc::new(open);
    current.totals.recoveries.fetch_add(1, Ordering::Relaxed);
    *current.flusher.lock() = Some(Flusher::start(&open)?);
    *current.opened.write() = StoreState::OpenStore(open);
    Ok(())
}

/// Whether files can be opened and written.
fn probe(path: &Path) -> io::Result<()> {
    drop(open_many(2 * PROBED_DESCRIPTORS)?);
    let name = path.join("probe");
    let written = create_file(&name).and_then(|mut file| {
        file.write_all(&vec![0; PROBED_BYTES])?;
        file.sync_all()
    });
    std::fs::remove_file(&name).and(written)
}

/// Descriptors held in reserve.
#[derive(Default)]
struct DescriptorReserve(Vec<File>);

impl DescriptorReserve {
    fn fill(&mut self) {
        if let Ok(files) = open_many(RESERVED_DESCRIPTORS + PROBED_DESCRIPTORS) {
            self.0 = files;
            self.0.truncate(RESERVED_DESCRIPTORS);
        }
    }

    fn release(&mut self) {
        self.0.clear();
    }

    fn check(&mut self) {
        match open_many(PROBED_DESCRIPTORS) {
            Ok(_) if self.0.is_empty() => self.fill(),
            Ok(_) => {}
            Err(error) if is_resource_missing(&error) && !self.0.is_empty() => {
                tracing::warn!("no file descriptors are left; releasing the reserved descriptors");
                self.release();
            }
            Err(_) => {}
        }
    }
}

fn open_many(count: usize) -> io::Result<Vec<File>> {
    (0..count).map(|_| File::open("/dev/null")).collect()
}

/// Retries an operation that failed for lack of descriptors or memory.
pub(crate) fn retried<T>(mut run: impl FnMut() -> Result<T, fjall::Error>) -> Result<T, fjall::Error> {
    const WAITS_MS: [u64; 5] = [1, 5, 20, 60, 150];
    for wait in WAITS_MS {
        match run() {
            Err(fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)))
                if is_resource_missing(&error) =>
            {
                std::thread::sleep(Duration::from_millis(wait));
            }
            result => return result,
        }
    }
    run()
}

/// Whether a retry may succeed.
pub(crate) fn is_transient(error: &StorageError) -> bool {
    match error {
        StorageError::DiskFull { .. } => true,
        StorageError::Io { source, .. } => is_resource_missing(source) || is_full(source),
        _ => false,
    }
}

/// Whether the disk has space for commits and the work that follows from them.
pub(crate) struct DiskSpace {
    path: PathBuf,
    reserved_bytes: u64,
    was_enough: AtomicBool,
}

/// On a small disk, at most this fraction is kept free.
const RESERVED_PART: u64 = 16;

impl DiskSpace {
    pub(crate) fn new(path: &Path, reserved_bytes: u64) -> DiskSpace {
        DiskSpace { path: path.into(), reserved_bytes, was_enough: AtomicBool::new(true) }
    }

    /// Asks the operating system every time, which takes a microsecond.
    pub(crate) fn is_enough(&self) -> bool {
        let now = self.measure();
        match (self.was_enough.swap(now, Ordering::Relaxed), now) {
            (false, true) => tracing::info!("there is space on the disk again"),
            (true, false) => {
                tracing::error!(path = %self.path.display(), "the disk is full: commits are refused until there is space");
            }
            _ => {}
        }
        now
    }

    fn measure(&self) -> bool {
        // If the free space is unknown, the write decides.
        rustix::fs::statvfs(&self.path).map_or(true, |disk| {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let all = disk.f_blocks.saturating_mul(disk.f_frsize);
            free >= self.reserved_bytes.min(all / RESERVED_PART)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;
    use crate::LocalStorage;
    use quire_storage::{Commit, Op, RowList, Space, Storage, Token};

    const WAITED_MAX: Duration = Duration::from_secs(120);

    fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_done() {
            assert!(start.elapsed() < WAITED_MAX, "waited too long until {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn figure(storage: &LocalStorage, name: &str) -> Option<u64> {
        storage.statistics().into_iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Enough index rows for a flush.
    fn commit(storage: &LocalStorage, number: u64) -> bool {
        let added = (0..20u8).map(|index| [index]).collect();
        let suffix = number.to_be_bytes().to_vec();
        let ops =
            vec![Op::Rows { space: Space(3), prefix: vec![7], suffix, added, removed: RowList::default() }];
        storage.commit(Commit { guards: vec![], token: Token(number.into()), ops }).is_ok()
    }

    fn check_rows(storage: &LocalStorage, numbers: std::ops::RangeInclusive<u64>) {
        let snapshot = storage.snapshot().unwrap();
        for number in numbers {
            let row = [&[7, 3][..], &number.to_be_bytes()].concat();
            assert!(snapshot.get(Space(3), &row).unwrap().is_some(), "commit {number} is lost");
        }
    }

    /// The thread that watches the store panics, then the flusher, then the first of them again while it reopens the store.
    #[test]
    fn threads_that_panic_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let options = LocalOptions { run_rows_max: 10, ..LocalOptions::default() };
        let storage = LocalStorage::open(folder.path().join("data"), options).unwrap();
        let totals = storage.current.totals.clone();
        let panics = || totals.thread_panics.load(Ordering::Relaxed);
        totals.panic_once(PanicPoint::Watch);
        wait_until("the watching thread panics", || panics() == 1);
        let mut number = 0;
        for (recoveries, point) in [(1, None), (2, Some(PanicPoint::Reopen))] {
            let before = panics();
            point.into_iter().for_each(|point| totals.panic_once(point));
            totals.panic_once(PanicPoint::Flush);
            wait_until("the flusher panics", || {
                number += u64::from(commit(&storage, number + 1));
                panics() > before
            });
            wait_until("the store is reopened", || figure(&storage, "recoveries") == Some(recoveries));
            wait_until("writes go on", || commit(&storage, number + 1));
            number += 1;
            check_rows(&storage, 1..=number);
        }
        assert_eq!(figure(&storage, "storage_thread_panics"), Some(4));
        storage.close().unwrap();
    }
}
