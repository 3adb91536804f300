//! The embedded storage engine: one directory, one process, on fjall.
//!
//! [`LocalStorage`] keeps the contract of `quire-storage` on files. fjall provides the journal, the sorted tables
//! and their snapshots. What is ours: one sync for everybody who is waiting ([`group`]), a checksummed chain of
//! commit records that notices a torn or cut journal ([`record`], [`chain`], [`journal`]), a note of the last
//! acknowledged commit ([`acknowledged`]), the lock and the format of the directory ([`directory`]).
//!
//! Nothing is visible before it is durable: a batch is journalled, synced, entered and published in that order, by
//! fjall's own batch durability. A failed write or sync poisons: reads go on, writes are refused until reopened.
//!
//! Tokens are remembered for the newest [`quire_storage::TOKENS_KEPT`] commits, whatever their age, in the commit
//! records themselves; older records are pruned behind a checkpoint that keeps the chain checkable.

mod acknowledged;
mod chain;
mod directory;
mod error;
mod group;
mod journal;
mod reclaim;
mod record;
mod snapshot;
mod state;
mod store;
mod verify;

pub use directory::FORMAT_VERSION;
pub use error::OpenError;
pub use verify::Verified;

use acknowledged::Acknowledged;
use directory::{Condition, Directory};
use fjall::AbstractTree;
use group::{Answer, Group, ReadyRow, Work, poisoned};
use parking_lot::RwLock;
use quire_storage::memory::CAPS;
use quire_storage::rows::{Row, unfold};
use quire_storage::{
    Caps, Commit, CommitError, Committed, KeyRange, PartitionId, Position, Snapshot, Space, Storage,
    StorageError, Token,
};
use reclaim::Reclaim;
use state::{Ledger, State};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::Store;

/// How a directory is opened.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// Blocks of tables kept in memory, filled as they are read.
    pub cache_bytes: u64,
    /// Journals together, beyond which memtables are flushed to let go of the oldest; at least 64 MB.
    pub journal_bytes_max: u64,
    /// Size at which a space's memtable is written to a table. Decided when the directory is created.
    pub memtable_bytes: u64,
    /// Open although acknowledged commits are missing.
    pub accept_loss: bool,
}

impl Default for LocalOptions {
    fn default() -> Self {
        LocalOptions {
            cache_bytes: 32 << 20,
            journal_bytes_max: 64 << 20,
            memtable_bytes: 16 << 20,
            accept_loss: false,
        }
    }
}

/// A data directory, open.
pub struct LocalStorage {
    open: RwLock<Option<Arc<Open>>>,
    group: Group,
    reclaim: Reclaim,
}

/// Everything that ends with closing, shared with snapshots.
pub(crate) struct Open {
    store: Store,
    state: State,
    closed: AtomicBool,
    directory: Directory,
}

impl LocalStorage {
    /// Opens a directory, or creates one where there is none.
    pub fn open(path: impl AsRef<Path>, options: LocalOptions) -> Result<LocalStorage, OpenError> {
        let open = Open::from_path(path.as_ref(), &options)?;
        Ok(LocalStorage {
            open: RwLock::new(Some(Arc::new(open))),
            group: Group::default(),
            reclaim: Reclaim::default(),
        })
    }

    fn opened(&self) -> Result<Arc<Open>, StorageError> {
        self.open.read().clone().ok_or(StorageError::Closed)
    }

    fn submit(&self, open: &Open, work: Work) -> Result<Answer, CommitError> {
        if let Some(during) = open.state.poisoned() {
            return Err(poisoned(during).into());
        }
        self.group.submit(work, &open.store, &open.state)
    }
}

impl Open {
    fn from_path(path: &Path, options: &LocalOptions) -> Result<Open, OpenError> {
        let (directory, condition) = Directory::lock(path)?;
        match condition {
            Condition::Fresh => Open::create(directory, options),
            Condition::Existing => Open::recover(directory, options),
        }
    }

    fn create(directory: Directory, options: &LocalOptions) -> Result<Open, OpenError> {
        directory.begin()?;
        let store = Store::create(&directory.store(), options)?;
        let acknowledged = Acknowledged::create(&directory.acknowledged())?;
        directory.finish()?;
        Open::load(directory, store, acknowledged)
    }

    fn recover(directory: Directory, options: &LocalOptions) -> Result<Open, OpenError> {
        let cut = journal::cut_damaged_tail(&directory.store(), directory.path())?;
        let store = Store::open(&directory.store(), options)?;
        let found = chain::load(&store.ledger, &store.database.snapshot())?.chain.newest.sequence;
        let mut acknowledged = match Acknowledged::open(&directory.acknowledged())? {
            Some((_, acknowledged)) if acknowledged > found && !options.accept_loss => {
                return Err(OpenError::LogEndsEarly { acknowledged, found });
            }
            Some((_, acknowledged)) if acknowledged > found => {
                tracing::warn!(acknowledged, found, "acknowledged commits are missing, going on as told");
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
        acknowledged.settle(found).map_err(error::opening("writing the record of acknowledged commits"))?;
        Open::load(directory, store, acknowledged)
    }

    fn load(directory: Directory, store: Store, acknowledged: Acknowledged) -> Result<Open, OpenError> {
        let loaded = chain::load(&store.ledger, &store.database.snapshot())?;
        let ledger = Ledger { chain: loaded.chain, tokens: loaded.tokens, prepared: loaded.positions };
        let state = State::new(ledger, acknowledged);
        Ok(Open { store, state, closed: AtomicBool::new(false), directory })
    }

    fn check_open(&self) -> Result<(), StorageError> {
        if self.closed.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// Flushes, so that the next opening has nothing to replay.
    fn settle(&self) -> Result<(), StorageError> {
        let io = |source| StorageError::Io { doing: "closing".into(), source };
        if let Some(during) = self.state.poisoned() {
            return Err(poisoned(during));
        }
        self.store.flush().map_err(|_| poisoned("flush on closing"))?;
        self.state.settle().map_err(io)
    }

    /// Ends fjall, then empties its journal if everything is in tables.
    fn end(self) -> Result<(), StorageError> {
        let Open { store, directory, .. } = self;
        let flushed = store.is_flushed();
        drop(store);
        if flushed {
            journal::empty_active(&directory.store()).map_err(|error| match error {
                OpenError::Io { doing, source } => StorageError::Io { doing, source },
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

    fn commit(&self, mut commit: Commit) -> Result<Committed, CommitError> {
        let open = self.opened()?;
        let rows = unfold(&mut commit, &CAPS)?;
        let bytes = rows.iter().map(|row| row.key.len() + row.value.as_ref().map_or(0, Vec::len)).sum();
        let rows = rows.into_iter().map(|row| ready(row, &open.store)).collect::<Result<_, _>>()?;
        match self.submit(&open, Work::Commit { guards: commit.guards, token: commit.token, rows, bytes })? {
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
        self.opened().is_ok_and(|open| open.state.poisoned().is_none())
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let Ok(open) = self.opened() else { return Vec::new() };
        let (database, figures) = (&open.store.database, &open.state.figures);
        let read = |figure: &std::sync::atomic::AtomicU64| figure.load(Ordering::Relaxed);
        let sum = |value: fn(&fjall::Keyspace) -> u64| open.store.keyspaces().map(value).sum();
        vec![
            ("commits", read(&figures.commits)),
            ("batches", read(&figures.batches)),
            // Every batch is one sync, so commits / batches is the mean group size.
            ("syncs", read(&figures.batches)),
            ("bytes_committed", read(&figures.bytes)),
            ("stalled_microseconds", read(&figures.stalled_microseconds)),
            ("sequence", open.state.sequence()),
            ("partitions", open.state.partition_count() as u64),
            ("commit_records", open.state.ledger.lock().chain.records() as u64),
            ("poisoned", u64::from(open.state.poisoned().is_some())),
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
            ("reclaims", read(&figures.reclaims)),
            ("cache_bytes", database.cache_size()),
            ("cache_bytes_max", database.cache_capacity()),
        ]
    }

    fn compact(&self, space: Space, _range: KeyRange) {
        if let Ok(open) = self.opened() {
            self.reclaim.hint(space, &open);
        }
    }

    fn close(&self) -> Result<(), StorageError> {
        self.group.close();
        let Some(open) = self.open.write().take() else { return Ok(()) };
        open.closed.store(true, Ordering::Release);
        self.reclaim.end();
        open.settle()?;
        // Snapshots that are still held keep the files and the lock until they go.
        Arc::into_inner(open).map_or(Ok(()), Open::end)
    }
}

impl Drop for LocalStorage {
    fn drop(&mut self) {
        self.reclaim.end();
    }
}

fn ready(row: Row, store: &Store) -> Result<ReadyRow, StorageError> {
    let keyspace = store.space(row.space)?.clone();
    Ok(ReadyRow { keyspace, key: row.key.into(), value: row.value.map(Into::into) })
}
