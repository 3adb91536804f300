//! fjall, configured for this use: keyspaces, tuning, back-pressure, flushing.

use crate::LocalOptions;
use crate::error::{OpenError, corrupt, failed, opening};
use crate::template;
use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use parking_lot::Mutex;
use quire_storage::{SPACE_COUNT, Space, StorageError};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// The smallest journal limit that fjall accepts.
const JOURNAL_BYTES_MIN: u64 = 64 << 20;
/// The smallest number that fjall accepts.
const OPEN_TABLES_MIN: usize = 10;
/// Flushes and compactions share these; one keeps flushing while the other compacts.
const WORKER_THREADS: usize = 2;
/// fjall numbers keyspaces as they are created, from 1; 0 is its own. Then come the spaces, the ledger and, since
/// format 2, the packed rows.
const KEYSPACES: u8 = SPACE_COUNT + 2;
const LEDGER_MEMTABLE_BYTES: u64 = 4 << 20;
/// Spaces that are read by key, so that a filter saves reads: catalog, items, lookups.
const FILTERED_SPACES: [u8; 3] = [0, 1, 2];
/// fjall lets a writer sleep inside its commit at 4 sealed memtables or 20 runs in level 0, and forever if its
/// workers have stopped. We wait at lower limits, outside of the commit, where a failure is detected.
const SEALED_MEMTABLES_MAX: usize = 2;
const LEVEL_0_RUNS_MAX: usize = 16;
const FLUSH_TIME_MAX: Duration = Duration::from_secs(120);

pub(crate) struct Store {
    pub(crate) database: Database,
    spaces: Vec<Keyspace>,
    /// Commit records, positions, the checkpoint.
    pub(crate) ledger: Keyspace,
    /// Packed index rows by batch, until they are in tables.
    pub(crate) packed: Keyspace,
    /// Held while a batch is committed, and while an ingestion ends.
    pub(crate) committing: Mutex<()>,
}

impl Store {
    /// Creates a new store, and makes it durable.
    ///
    /// fjall syncs about twenty times for every keyspace that it creates. So the store is created in a memory file
    /// system if there is one, copied, and synced once.
    pub(crate) fn create(path: &Path, options: &LocalOptions) -> Result<Store, OpenError> {
        if let Some(made) = template::make(|path| Store::open_any(path, options).map(drop)) {
            made.copy_to(path).map_err(opening("setting up the store"))?;
            return Store::open_any(path, options);
        }
        Store::create_in_place(path, options)
    }

    fn create_in_place(path: &Path, options: &LocalOptions) -> Result<Store, OpenError> {
        let store = Store::open_any(path, options)?;
        Store::sync_folder(path)?;
        Ok(store)
    }

    /// Opens a store of format 1, which had no packed rows, and upgrades it.
    pub(crate) fn upgrade(path: &Path, options: &LocalOptions) -> Result<Store, OpenError> {
        Store::check_keyspaces(path, KEYSPACES - 1)?;
        Store::create_in_place(path, options)
    }

    fn sync_folder(path: &Path) -> Result<(), OpenError> {
        // fjall syncs each keyspace's folder, but not the parent folder: a power cut could lose all of them.
        let folder = File::open(path.join("keyspaces")).and_then(|folder| folder.sync_all());
        folder.map_err(opening("syncing the store"))
    }

    /// Opens a store that was set up completely.
    pub(crate) fn open(path: &Path, options: &LocalOptions) -> Result<Store, OpenError> {
        Store::check_keyspaces(path, KEYSPACES)?;
        Store::open_any(path, options)
    }

    /// fjall would silently create a missing keyspace as empty, and drop its journals.
    fn check_keyspaces(path: &Path, last: u8) -> Result<(), OpenError> {
        let is_missing = |number: &u8| !path.join(format!("keyspaces/{number}/current")).exists();
        match (0..=last).find(is_missing) {
            Some(number) => Err(corrupt(format!("keyspace {number} is missing from the store"))),
            None => Ok(()),
        }
    }

    fn open_any(path: &Path, options: &LocalOptions) -> Result<Store, OpenError> {
        // fjall panics when a journal and its tables do not match.
        let opened = catch_unwind(AssertUnwindSafe(|| Store::open_unchecked(path, options)));
        match opened {
            Ok(result) => result.map_err(|error| match error {
                fjall::Error::Locked => OpenError::Locked { path: path.into() },
                error => OpenError::from(failed("opening the store", error)),
            }),
            Err(_) => Err(corrupt("journal and tables do not fit together")),
        }
    }

    fn open_unchecked(path: &Path, options: &LocalOptions) -> Result<Store, fjall::Error> {
        let database = Database::builder(path)
            .cache_size(options.cache_bytes)
            .max_cached_files(Some(open_tables_max(options)))
            .max_journaling_size(options.journal_bytes_max.max(JOURNAL_BYTES_MIN))
            // Compression would happen under the journal's lock, and tables are compressed anyway.
            .journal_compression(CompressionType::None)
            // Each batch sets its own durability.
            .manual_journal_persist(true)
            .worker_threads(WORKER_THREADS)
            .open()?;
        let spaces = (0..SPACE_COUNT)
            .map(|space| {
                let tuned = || tuning(FILTERED_SPACES.contains(&space), options.memtable_bytes);
                database.keyspace(&format!("space-{space}"), tuned)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let ledger = database.keyspace("ledger", || tuning(false, LEDGER_MEMTABLE_BYTES))?;
        let packed = database.keyspace("packed", || tuning(false, options.memtable_bytes))?;
        Ok(Store { database, spaces, ledger, packed, committing: Mutex::new(()) })
    }

    pub(crate) fn space(&self, space: Space) -> Result<&Keyspace, StorageError> {
        self.spaces.get(usize::from(space.0)).ok_or(StorageError::UnknownSpace { space })
    }

    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = &Keyspace> {
        self.spaces.iter().chain([&self.ledger, &self.packed])
    }

    /// Ends an ingestion, unless a commit has failed. Such a batch is in the journal and in no memtable. fjall tells from the newest
    /// row in tables which part of the journal a keyspace needs: a table that is newer than the batch would take its rows from
    /// one keyspace, and opening would find the others.
    pub(crate) fn end_ingestion(
        &self,
        finish: impl FnOnce() -> Result<(), fjall::Error>,
    ) -> Result<(), fjall::Error> {
        let _alone = self.committing.lock();
        if self.is_poisoned() {
            return Err(fjall::Error::Poisoned);
        }
        finish()
    }

    /// fjall also stops accepting writes after a failed flush or compaction.
    pub(crate) fn is_poisoned(&self) -> bool {
        matches!(self.database.persist(PersistMode::Buffer), Err(fjall::Error::Poisoned))
    }

    /// Waits while flushing or compaction is behind. Returns the time waited, or an error if it will never catch up.
    pub(crate) fn wait_for_room(&self) -> Result<Duration, Poisoned> {
        if self.has_room() {
            return Ok(Duration::ZERO);
        }
        let start = Instant::now();
        while !self.has_room() {
            if self.is_poisoned() {
                return Err(Poisoned);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(start.elapsed())
    }

    fn has_room(&self) -> bool {
        self.keyspaces().all(|keyspace| {
            keyspace.tree.sealed_memtable_count() <= SEALED_MEMTABLES_MAX
                && keyspace.tree.l0_run_count() <= LEVEL_0_RUNS_MAX
        })
    }

    /// Writes all memtables to tables.
    pub(crate) fn flush(&self) -> Result<(), Poisoned> {
        for keyspace in self.keyspaces() {
            if keyspace.tree.active_memtable().size() > 0 {
                keyspace.rotate_memtable().map_err(|_| Poisoned)?;
            }
        }
        let start = Instant::now();
        while self.keyspaces().any(|keyspace| keyspace.tree.sealed_memtable_count() > 0) {
            if self.is_poisoned() || start.elapsed() > FLUSH_TIME_MAX {
                return Err(Poisoned);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether no data is only in the journal.
    pub(crate) fn is_flushed(&self) -> bool {
        self.database.journal_count() == 1
            && self.keyspaces().all(|keyspace| {
                keyspace.tree.sealed_memtable_count() == 0 && keyspace.tree.active_memtable().size() == 0
            })
    }
}

/// At most a part of the descriptors of this process, so that files can be written, too.
fn open_tables_max(options: &LocalOptions) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let part = usize::try_from(limit / 4).unwrap_or(usize::MAX);
    options.open_tables_max.min(part).max(OPEN_TABLES_MIN)
}

/// fjall accepts no more writes.
#[derive(Debug)]
pub(crate) struct Poisoned;

fn tuning(filtered: bool, memtable_bytes: u64) -> KeyspaceCreateOptions {
    let filter = match filtered {
        true => FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
        false => FilterPolicyEntry::None,
    };
    KeyspaceCreateOptions::default()
        .max_memtable_size(memtable_bytes)
        .manual_journal_persist(true)
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
        .filter_policy(FilterPolicy::all(filter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalStorage;
    use crate::log::acknowledged::Acknowledged;
    use quire_storage::{Commit, Op, RowList, Storage, Token};
    use std::fs;

    /// A directory in version 1 of the format: no keyspace of packed rows.
    #[test]
    fn format_1_is_upgraded() {
        let folder = tempfile::tempdir().unwrap();
        let options = LocalOptions::default();
        let database = Database::builder(folder.path().join("store")).open().unwrap();
        for space in 0..SPACE_COUNT {
            database.keyspace(&format!("space-{space}"), || tuning(false, options.memtable_bytes)).unwrap();
        }
        database.keyspace("ledger", || tuning(false, options.memtable_bytes)).unwrap();
        drop(database);
        drop(Acknowledged::create(&folder.path().join("acknowledged")).unwrap());
        fs::write(folder.path().join("lock"), b"").unwrap();
        fs::write(folder.path().join("format"), b"quire-db\x01\x00\x00\x00\x2b\xc9\xa2\x46").unwrap();
        for round in 0..3u8 {
            let storage = LocalStorage::open(folder.path(), options.clone()).unwrap();
            let rows = Op::Rows {
                space: Space(3),
                prefix: vec![1],
                suffix: vec![],
                added: vec![[round]].into(),
                removed: RowList::default(),
            };
            storage.commit(Commit { guards: vec![], token: Token(round.into()), ops: vec![rows] }).unwrap();
            assert!(
                (0..=round).all(|round| storage
                    .snapshot()
                    .unwrap()
                    .get(Space(3), &[1, round])
                    .unwrap()
                    .is_some())
            );
            if round == 1 {
                storage.close().unwrap();
            }
        }
        assert_eq!(fs::read(folder.path().join("format")).unwrap()[8], 2);
    }
}
