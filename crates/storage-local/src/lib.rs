//! The embedded storage engine: one directory, one process, on fjall.
//!
//! [`LocalStorage`] implements the contract of `quire-storage` on files. fjall provides the journal, the sorted
//! tables and their snapshots. Our own parts: group commit ([`commit`]), a checksummed chain of commit records that
//! detects a torn or cut journal ([`log`]), a file with the last acknowledged commit ([`log::acknowledged`]), the
//! lock and the format of the directory ([`directory`]), and a faster path for index rows: one packed row in the
//! journal ([`index_rows::packed`]), sorted runs in memory ([`index_rows::run`], [`index_rows::read_view`]), bulk
//! writes to tables ([`index_rows::flusher`]). [`health`] keeps it available when descriptors or space are short for
//! a while.
//!
//! Nothing is visible before it is durable: a batch is journalled, synced, written to memtables and published, in
//! that order, by fjall's batch durability. A failed write or sync poisons the storage: reads work, writes are
//! refused until it is reopened.
//!
//! Tokens are remembered for the newest [`quire_storage::TOKENS_KEPT`] commits, of any age, in the commit records
//! themselves; older records are pruned behind a checkpoint that keeps the chain verifiable.

mod commit; // group commit
mod directory; // the lock and the format of the directory
mod error;
mod health; // availability while descriptors or space are short
mod index_rows; // packed in the journal, sorted runs in memory, bulk writes to tables
mod log; // the chain of commit records, and detection of a damaged journal
mod removal; // removal of key ranges, and reclamation of their space
#[cfg(feature = "schedules")]
pub mod schedules; // group commit under an explorer of schedules
mod snapshot;
mod store; // keyspaces and their options
mod sync; // locks, or those of the explorer
mod template; // a new store, created once and copied
mod threads; // panics of threads
mod verify;

pub use directory::FORMAT_VERSION;
pub use error::OpenError;
pub use index_rows::read_view::IndexRows;
pub use verify::VerifiedDirectory;

use commit::group::{Answer, GroupCommit, ReadyRow, Work};
use commit::state::{Ledger, OpeningCounters, StorageState};
use directory::{Directory, DirectoryCondition};
use fjall::AbstractTree;
use health::{CurrentStore, DiskSpace, Health};
use index_rows::flusher::{self, Unflushed};
use index_rows::packed::{DeltaBuilder, Spaces};
use index_rows::read_view::ReadViews;
use log::acknowledged::Acknowledged;
use log::chain::{self, LoadedLedger};
use log::journal;
use quire_storage::memory::CAPS;
use quire_storage::rows::{self, Row, rows_of_commit};
use quire_storage::{
    Caps, Commit, CommitError, Committed, KeyRange, PartitionId, Position, Removal, Snapshot, Space, Storage,
    StorageError, Token,
};
use removal::Removals;
use removal::reclaim::Reclaim;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store::Store;
use threads::StorageTotals;

/// Options for opening a directory.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// Cache of table blocks.
    pub cache_bytes: u64,
    /// Total size of journals, beyond which memtables are flushed to release the oldest; at least 64 MB.
    pub journal_bytes_max: u64,
    /// Size at which a space's memtable is flushed. Fixed when the directory is created.
    pub memtable_bytes: u64,
    /// How index rows ([`quire_storage::Op::Rows`]) are stored until they are in tables; may change at every opening.
    pub index_rows: IndexRows,
    /// Packed index rows held in memory before they are written to tables; at most 16 million.
    pub run_rows_max: usize,
    /// Tables kept open between reads; at least 10. Files being written come on top.
    pub open_tables_max: usize,
    /// Disk space that commits leave free for tables and compactions. At most a sixteenth of the disk.
    pub disk_bytes_reserved: u64,
    /// Open even if acknowledged commits are missing.
    pub accept_loss: bool,
}

impl Default for LocalOptions {
    fn default() -> Self {
        LocalOptions {
            cache_bytes: 32 << 20,
            journal_bytes_max: 64 << 20,
            memtable_bytes: 16 << 20,
            index_rows: IndexRows::Packed,
            run_rows_max: 1_000_000,
            open_tables_max: 900,
            disk_bytes_reserved: 256 << 20,
            accept_loss: false,
        }
    }
}

/// An open data directory.
pub struct LocalStorage {
    current: Arc<CurrentStore>,
    group: GroupCommit,
    reclaim: Reclaim,
    health: Health,
}

/// Everything that ends with closing, shared with snapshots.
pub(crate) struct OpenStore {
    views: Arc<ReadViews>,
    store: Store,
    state: StorageState,
    removals: Removals,
    totals: Arc<StorageTotals>,
    disk_space: DiskSpace,
    closed: AtomicBool,
    directory: Directory,
}

impl LocalStorage {
    /// Opens a directory, or creates one.
    pub fn open(path: impl AsRef<Path>, options: LocalOptions) -> Result<LocalStorage, OpenError> {
        LocalStorage::start(OpenStore::from_directory(Directory::lock(path.as_ref())?, &options)?, options)
    }

    /// Creates a directory that is filled by a long operation and useless before it is complete, such as a restore.
    /// Until it is closed and [completed](Self::complete), it cannot be opened, also after a crash.
    pub fn create_unfinished(
        path: impl AsRef<Path>,
        options: LocalOptions,
    ) -> Result<LocalStorage, OpenError> {
        let directory = Directory::lock_unfinished(path.as_ref())?;
        LocalStorage::start(OpenStore::from_directory(directory, &options)?, options)
    }

    /// Allows a directory that was [created unfinished](Self::create_unfinished) and closed to be opened.
    pub fn complete(path: impl AsRef<Path>) -> Result<(), OpenError> {
        Directory::complete(path.as_ref())
    }

    fn start(open: OpenStore, options: LocalOptions) -> Result<LocalStorage, OpenError> {
        let current = Arc::new(CurrentStore::new(open, options)?);
        let health = Health::start(&current)?;
        Ok(LocalStorage { current, group: GroupCommit::default(), reclaim: Reclaim::default(), health })
    }

    fn opened(&self) -> Result<Arc<OpenStore>, StorageError> {
        self.current.get()
    }

    fn submit(&self, open: &OpenStore, work: Work) -> Result<Answer, CommitError> {
        open.state.check_writable()?;
        self.group.submit(work, open)
    }
}

impl OpenStore {
    fn from_directory(
        (directory, condition): (Directory, DirectoryCondition),
        options: &LocalOptions,
    ) -> Result<OpenStore, OpenError> {
        match condition {
            DirectoryCondition::Fresh => OpenStore::create(directory, options),
            DirectoryCondition::Existing { format } => OpenStore::recover(directory, format, options),
        }
    }

    fn create(directory: Directory, options: &LocalOptions) -> Result<OpenStore, OpenError> {
        directory.begin()?;
        let store = Store::create(&directory.store(), options)?;
        let acknowledged = Acknowledged::create(&directory.acknowledged())?;
        directory.finish()?;
        let loaded = chain::load(&store.ledger, &store.database.snapshot())?;
        let unflushed = flusher::load(&store, 0)?;
        let opening = OpeningCounters::default();
        OpenStore::load(directory, store, acknowledged, loaded, unflushed, opening, options)
    }

    fn recover(directory: Directory, format: u32, options: &LocalOptions) -> Result<OpenStore, OpenError> {
        let mut timer = Timer::start();
        let journal::Journals { bytes: journal_bytes, cut } =
            journal::cut_damaged_tail(&directory.store(), directory.path())?;
        let check = timer.restart();
        let store = OpenStore::recover_store(&directory, format, options)?;
        let replay = timer.restart();
        let loaded = chain::load(&store.ledger, &store.database.snapshot())?;
        let chain = timer.restart();
        let found = loaded.chain.newest.sequence;
        let unflushed = flusher::load(&store, found)?;
        let (index_rows, load) = (unflushed.layer.rows, timer.restart());
        tracing::info!(journal_bytes, index_rows, ?check, ?replay, ?chain, ?load, "data directory read");
        let opening = OpeningCounters { journal_bytes, ..OpeningCounters::default() };
        unflushed.check(&store, found, options.accept_loss)?;
        let mut acknowledged = match Acknowledged::open(&directory.acknowledged())? {
            Some((_, acknowledged)) if acknowledged > found && !options.accept_loss => {
                return Err(OpenError::LogEndsEarly { acknowledged, found });
            }
            Some((_, acknowledged)) if acknowledged > found => {
                tracing::warn!(
                    acknowledged,
                    found,
                    "acknowledged commits are missing, continuing because of --accept-loss"
                );
                Acknowledged::create(&directory.acknowledged())?
            }
            Some((acknowledged, _)) => {
                if let Some(cut) = cut {
                    std::fs::remove_file(&cut).map_err(error::opening("removing an unfinished batch"))?;
                }
                acknowledged
            }
            None if !options.accept_loss => return Err(OpenError::AcknowledgedUnreadable),
            None => Acknowledged::create(&directory.acknowledged())?,
        };
        acknowledged
            .sync_floor(found)
            .map_err(error::opening("writing the record of acknowledged commits"))?;
        OpenStore::load(directory, store, acknowledged, loaded, unflushed, opening, options)
    }

    fn recover_store(directory: &Directory, format: u32, options: &LocalOptions) -> Result<Store, OpenError> {
        if format == FORMAT_VERSION {
            return Store::open(&directory.store(), options);
        }
        let store = Store::upgrade(&directory.store(), options)?;
        directory.finish()?;
        tracing::info!(from = format, to = FORMAT_VERSION, "data directory upgraded");
        Ok(store)
    }

    fn load(
        directory: Directory,
        store: Store,
        acknowledged: Acknowledged,
        loaded: LoadedLedger,
        unflushed: Unflushed,
        mut opening: OpeningCounters,
        options: &LocalOptions,
    ) -> Result<OpenStore, OpenError> {
        opening.records = loaded.chain.records() as u64;
        (opening.packed_rows, opening.unflushed_rows) = (unflushed.packed_rows, unflushed.unflushed_rows);
        opening.index_rows = unflushed.layer.rows as u64;
        let ledger = Ledger { chain: loaded.chain, tokens: loaded.tokens, prepared: loaded.positions };
        let state = StorageState::new(ledger, acknowledged, opening);
        let views = ReadViews::new(&store.database, options, unflushed.merged, unflushed.layer);
        if options.index_rows == IndexRows::Plain {
            flusher::flush_all(&views, &store)?;
        }
        let (removals, totals, closed) = Default::default();
        let disk_space = DiskSpace::new(directory.path(), options.disk_bytes_reserved);
        Ok(OpenStore {
            views: Arc::new(views),
            store,
            state,
            removals,
            totals,
            disk_space,
            closed,
            directory,
        })
    }

    fn check_open(&self) -> Result<(), StorageError> {
        if self.closed.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// Flushes, so that the next opening has nothing to replay.
    fn flush_everything(&self) -> Result<(), StorageError> {
        let io = |source| error::io_failed("closing", source);
        self.state.check_writable()?;
        flusher::flush_all(&self.views, &self.store)?;
        self.store.flush().map_err(|_| StorageError::Poisoned { during: "flush on closing" })?;
        if self.store.is_flushed() {
            flusher::drop_packed(&self.store, Bound::Unbounded);
        }
        self.state.sync_acknowledged().map_err(io)
    }

    /// Closes fjall, then empties its journal if everything is in tables.
    fn end(self) -> Result<(), StorageError> {
        let OpenStore { views, store, directory, .. } = self;
        let flushed = store.is_flushed();
        drop(views);
        drop(store);
        if flushed {
            journal::empty_active(&directory.store()).map_err(|error| match error {
                OpenError::Io { doing, source } => error::io_failed(&doing, source),
                error => StorageError::Corrupt { what: error.to_string() },
            })?;
        }
        Ok(())
    }
}

impl Storage for LocalStorage {
    fn caps(&self) -> &Caps {
        &CAPS
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StorageError> {
        Ok(Box::new(snapshot::LocalSnapshot::new(self.opened()?)))
    }

    fn commit(&self, commit: Commit) -> Result<Committed, CommitError> {
        let open = self.opened()?;
        let work = prepare(commit, &open)?;
        match self.submit(&open, work)? {
            Answer::Committed(committed) => Ok(committed),
            Answer::Fenced(_) => unreachable!("a commit is answered as a commit"),
        }
    }

    fn position(&self, partition: PartitionId) -> Result<Option<Position>, StorageError> {
        Ok(self.opened()?.state.position(partition))
    }

    fn fence(&self, partition: PartitionId, epoch: u64) -> Result<Position, StorageError> {
        let open = self.opened()?;
        match self.submit(&open, Work::Fence { partition, epoch }) {
            Ok(Answer::Fenced(position)) => Ok(position),
            Err(CommitError::Storage(error)) => Err(error),
            answer => unreachable!("a fence is answered as a fence, not {answer:?}"),
        }
    }

    fn resolve(&self, token: Token) -> Result<Option<Committed>, StorageError> {
        Ok(self.opened()?.state.resolve(token))
    }

    fn is_writable(&self) -> bool {
        self.current.peek().is_some_and(|open| open.state.poisoned().is_none() && open.disk_space.is_enough())
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let Some(open) = self.current.peek() else { return Vec::new() };
        let (database, counters, runs) = (&open.store.database, &open.state.counters, open.views.counters());
        let read = |figure: &std::sync::atomic::AtomicU64| figure.load(Ordering::Relaxed);
        let sum = |value: fn(&fjall::Keyspace) -> u64| open.store.keyspaces().map(value).sum();
        vec![
            ("commits", read(&counters.commits)),
            ("batches", read(&counters.batches)),
            // Every batch is one sync, so commits / batches is the mean group size.
            ("syncs", read(&counters.batches)),
            ("bytes_committed", read(&counters.bytes)),
            ("stalled_microseconds", read(&counters.stalled_microseconds)),
            ("sequence", open.state.sequence()),
            ("partitions", open.state.partition_count() as u64),
            ("commit_records", open.state.ledger.lock().chain.records() as u64),
            ("poisoned", u64::from(open.state.is_poisoned())),
            ("recoveries", read(&open.totals.recoveries)),
            ("storage_thread_panics", read(&open.totals.thread_panics)),
            ("disk_full", u64::from(!open.disk_space.is_enough())),
            ("journals", database.journal_count() as u64),
            ("journal_bytes", database.journal_disk_space().unwrap_or(0)),
            ("disk_bytes", database.disk_space().unwrap_or(0)),
            ("memtable_bytes", database.write_buffer_size()),
            ("pending_flushes", database.outstanding_flushes() as u64),
            ("tables", sum(|keyspace| keyspace.tree.table_count() as u64)),
            ("tombstones", sum(|keyspace| keyspace.tree.tombstone_count())),
            ("compactions", database.compactions_completed() as u64),
            ("compactions_running", database.active_compactions() as u64),
            ("compaction_microseconds", database.time_compacting().as_micros() as u64),
            ("reclaims", read(&counters.reclaims)),
            ("ranges_removed", read(&counters.removals)),
            ("runs", runs.runs),
            ("run_rows", runs.rows),
            ("run_bytes", runs.bytes),
            ("run_flushes", read(&counters.run_flushes)),
            ("merged_rows", read(&counters.merged_rows)),
            ("merged_rows_per_commit_max", read(&counters.merged_rows_max)),
            ("opened_journal_bytes", counters.opening.journal_bytes),
            ("opened_records", counters.opening.records),
            ("opened_packed_rows", counters.opening.packed_rows),
            ("opened_unflushed_rows", counters.opening.unflushed_rows),
            ("opened_index_rows", counters.opening.index_rows),
            ("storage_cache_bytes", database.cache_size()),
            ("storage_cache_max_bytes", database.cache_capacity()),
        ]
    }

    fn compact(&self, space: Space, _range: KeyRange) {
        if let Ok(open) = self.opened() {
            self.reclaim.hint(space, &open);
        }
    }

    fn remove_range(&self, space: Space, range: &KeyRange) -> Result<Removal, StorageError> {
        self.removal_step(space, range)
    }

    fn close(&self) -> Result<(), StorageError> {
        self.group.close();
        self.health.end();
        let Some(open) = self.current.close() else { return Ok(()) };
        open.closed.store(true, Ordering::Release);
        self.reclaim.end();
        self.current.end_flusher();
        open.flush_everything()?;
        // Snapshots that are still in use keep the files and the lock.
        Arc::into_inner(open).map_or(Ok(()), OpenStore::end)
    }
}

impl Drop for LocalStorage {
    fn drop(&mut self) {
        self.health.end();
        self.reclaim.end();
        self.current.end_flusher();
    }
}

/// How long the parts of something take.
struct Timer(Instant);

impl Timer {
    fn start() -> Timer {
        Timer(Instant::now())
    }

    fn restart(&mut self) -> Duration {
        let before = std::mem::replace(&mut self.0, Instant::now());
        self.0 - before
    }
}

/// Checks a commit and does the part of its work that needs no leader.
fn prepare(mut commit: Commit, open: &OpenStore) -> Result<Work, CommitError> {
    let bytes = rows::check(&commit, &CAPS)?;
    let merged = open.views.merged_with(Spaces::with_rows(&commit.ops));
    let mut delta = DeltaBuilder::default();
    commit.ops.retain(|op| {
        let is_merged = merged.contains(op.space());
        if is_merged {
            delta.op(op);
        }
        !is_merged
    });
    let delta = delta.finish();
    delta.check(&CAPS)?;
    let rows = rows_of_commit(&mut commit, &CAPS)?;
    let rows = rows.into_iter().map(|row| ready(row, &open.store)).collect::<Result<_, _>>()?;
    Ok(Work::Commit { guards: commit.guards, token: Some(commit.token), rows, delta: Box::new(delta), bytes })
}

fn ready(row: Row, store: &Store) -> Result<ReadyRow, StorageError> {
    let (space, keyspace) = (row.space, store.space(row.space)?.clone());
    Ok(ReadyRow { space, keyspace, key: row.key.into(), value: row.value.map(Into::into) })
}
