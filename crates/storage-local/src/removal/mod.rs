//! Removal of the rows of a key range.
//!
//! A small range is deleted by one ordinary commit. A larger one bypasses journal and memtables:
//!
//! 1. What is in memory goes to tables: sorted runs and memtables are flushed, off the commit path.
//! 2. A marker row is ingested. It is the newest row of its keyspace, and it outlives the removal; fjall tells from the
//!    newest row in tables which part of the journal a keyspace still needs, so nothing that was flushed before is replayed,
//!    whatever tables are dropped.
//! 3. Tables that lie wholly in the range are dropped. This costs one version of the table list, not their rows.
//! 4. What is left of the range is in tables that it shares with others, such as fresh ones. Their rows are covered
//!    with tombstones, also by ingestion, a bounded number per step.
//!
//! After step 3 an older version of a row can become visible, if only its newer version or its tombstone was in a
//! dropped table. So the contract does not define what a reader sees of the range until step 4 is done.
//!
//! After an interruption at any point, the next call starts from step 1 and finds less to do: no state has to be
//! stored.

pub mod reclaim; // reclamation of the space of deleted rows

use crate::commit::group::{Answer, Work};
use crate::error::failed;
use crate::index_rows::flusher::flush_memtable;
use crate::snapshot::before_checkpoint;
use crate::store::Store;
use crate::{LocalStorage, OpenStore, prepare};
use fjall::{AbstractTree, Keyspace};
use parking_lot::Mutex;
use quire_storage::memory::CAPS;
use quire_storage::{
    Commit, CommitError, Direction, KeyRange, Op, Removal, Scan, Space, Storage, StorageError, Token,
};
use std::collections::HashMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Greater than every key of a commit and than the checkpoint row; hidden from readers.
const MARKER_KEY: [u8; CAPS.key_bytes_max + 2] = [0xFF; CAPS.key_bytes_max + 2];
/// Ranges of up to this many rows are deleted by a commit.
const COMMIT_ROWS_MAX: usize = 2000;
/// Tombstones per step: a table of a few megabytes, since the journal's lock is held while it is completed.
const STEP_ROWS_MAX: usize = 100_000;
/// A step waits for compaction while this many runs are in level 0, well below the limit at which writers wait.
const LEVEL_0_RUNS_MAX: usize = 8;
const STEP_WAIT_MAX: Duration = Duration::from_millis(100);

/// Ranges whose tables were dropped.
#[derive(Default)]
pub(crate) struct Removals(Mutex<HashMap<(Space, KeyRange), RemovalPosition>>);

/// The position from which tombstones are still missing.
type RemovalPosition = Bound<Vec<u8>>;

impl LocalStorage {
    pub(crate) fn removal_step(&self, space: Space, range: &KeyRange) -> Result<Removal, StorageError> {
        let open = self.opened()?;
        let keyspace = open.store.space(space)?.clone();
        open.state.check_writable()?;
        if range.is_empty() {
            return Ok(Removal::Done);
        }
        let key = (space, range.clone());
        let from = open.removals.0.lock().get(&key).cloned();
        let Some(from) = from else {
            if self.remove_by_commit(&open, space, range)? {
                return Ok(self.removed(&open, space));
            }
            drop_tables(&open, &keyspace, range)?;
            open.removals.0.lock().insert(key, range.start.clone());
            return Ok(Removal::More);
        };
        if !wait_for_compaction(&keyspace) {
            return Ok(Removal::More);
        }
        let rest = KeyRange { start: from, end: range.end.clone() };
        match add_tombstones(self, &open, &keyspace, space, rest)? {
            Some(last) => {
                open.removals.0.lock().insert(key, Bound::Excluded(last));
                Ok(Removal::More)
            }
            None => {
                open.removals.0.lock().remove(&key);
                Ok(self.removed(&open, space))
            }
        }
    }

    fn removed(&self, open: &Arc<OpenStore>, space: Space) -> Removal {
        open.state.counters.removals.fetch_add(1, Ordering::Relaxed);
        self.reclaim.hint(space, open);
        Removal::Done
    }

    /// Whether the range had few enough rows for a commit.
    fn remove_by_commit(
        &self,
        open: &OpenStore,
        space: Space,
        range: &KeyRange,
    ) -> Result<bool, StorageError> {
        let scan = keys(space, range.clone(), COMMIT_ROWS_MAX);
        let page = self.snapshot()?.scan(&scan)?;
        if page.more {
            return Ok(false);
        }
        if page.rows.is_empty() {
            return Ok(true);
        }
        let ops = page.rows.into_iter().map(|(key, _)| Op::Delete { space, key }).collect();
        let work = prepare(Commit { guards: vec![], token: Token(0), ops }, open).map(Work::without_token);
        match work.and_then(|work| self.submit(open, work)) {
            Ok(Answer::Committed(_) | Answer::Fenced(_)) => Ok(true),
            Err(CommitError::Storage(error)) => Err(error),
            Err(error) => Err(StorageError::Corrupt { what: error.to_string() }),
        }
    }
}

fn keys(space: Space, range: KeyRange, rows_max: usize) -> Scan {
    let direction = Direction::Forward;
    Scan { space, range, direction, rows_max, bytes_max: usize::MAX, keys_only: true }
}

/// Steps 1 to 3.
fn drop_tables(open: &OpenStore, keyspace: &Keyspace, range: &KeyRange) -> Result<(), StorageError> {
    open.views.flush_and_wait(&open.state);
    open.state.check_writable()?;
    flush_memtable(keyspace).map_err(|error| failed("flushing a range that is removed", error))?;
    mark(&open.store, keyspace)?;
    let end = before_checkpoint(range.end.as_ref().map(Vec::as_slice));
    let bounds = (range.start.as_ref().map(Vec::as_slice), end);
    let dropped = keyspace.tree.drop_range::<&[u8], _>(bounds);
    dropped.map_err(|error| failed("dropping tables", error.into()))?;
    open.views.refresh(&open.store.database);
    Ok(())
}

/// Makes the newest row of a keyspace in tables one that is never dropped.
pub(crate) fn mark(store: &Store, keyspace: &Keyspace) -> Result<(), StorageError> {
    let written = keyspace.start_ingestion().and_then(|mut ingestion| {
        ingestion.write(&MARKER_KEY[..], [])?;
        store.end_ingestion(|| ingestion.finish())
    });
    written.map_err(|error| failed("marking a range as removed", error))
}

/// Whether level 0 has room for another table.
fn wait_for_compaction(keyspace: &Keyspace) -> bool {
    let start = Instant::now();
    while keyspace.tree.l0_run_count() > LEVEL_0_RUNS_MAX {
        if start.elapsed() > STEP_WAIT_MAX {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Covers the first rows with tombstones. Returns the last one if there may be more.
fn add_tombstones(
    storage: &LocalStorage,
    open: &OpenStore,
    keyspace: &Keyspace,
    space: Space,
    range: KeyRange,
) -> Result<Option<Vec<u8>>, StorageError> {
    let covering = |error| failed("removing rows of a range", error);
    let snapshot = storage.snapshot()?;
    // An empty ingestion would leave an empty file.
    if snapshot.scan(&keys(space, range.clone(), 1))?.rows.is_empty() {
        return Ok(None);
    }
    let mut ingestion = keyspace.start_ingestion().map_err(covering)?;
    let (mut last, mut written) = (Vec::new(), Ok(()));
    let more = snapshot.visit(&keys(space, range, STEP_ROWS_MAX), &mut |key, _| {
        written = ingestion.write_tombstone(key);
        last.clear();
        last.extend_from_slice(key);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written.map_err(covering)?;
    open.store.end_ingestion(|| ingestion.finish()).map_err(covering)?;
    open.views.refresh(&open.store.database);
    Ok(more.then_some(last))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;
    use crate::LocalOptions;
    use std::process::Command;

    const FOLDER: &str = "QUIRE_TEST_MARKING_FOLDER";
    const CHILD: &str = "removal::tests::a_commit_fails_and_a_marker_is_written";
    const COMMITS_MAX: u64 = 1000;

    /// Rows of two spaces.
    fn commit(number: u64) -> Commit {
        let put = |space| Op::Put { space, key: number.to_be_bytes().to_vec(), value: vec![7; 100] };
        Commit { guards: vec![], token: Token(number.into()), ops: vec![put(Space(1)), put(Space(2))] }
    }

    fn count(storage: &LocalStorage, space: Space) -> usize {
        let page = storage.snapshot().unwrap().scan(&keys(space, KeyRange::all(), usize::MAX)).unwrap();
        page.rows.len()
    }

    /// What has failed is there completely or not at all when the store is opened again.
    #[test]
    fn no_marker_is_written_behind_a_failed_commit() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new("strace");
        child.args(["-f", "-o", "/dev/null", "-e", "trace=fdatasync"]);
        child.args(["-e", "inject=fdatasync:error=EIO:when=25"]);
        child.arg(std::env::current_exe().unwrap());
        child.args([CHILD, "--exact", "--nocapture", "--test-threads=1"]).env(FOLDER, folder.path());
        let output = child.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("failed as expected"), "{printed}");
        let storage = LocalStorage::open(folder.path(), LocalOptions::default()).unwrap();
        assert_eq!(count(&storage, Space(1)), count(&storage, Space(2)));
    }

    #[test]
    fn a_commit_fails_and_a_marker_is_written() {
        let Some(folder) = std::env::var_os(FOLDER) else { return };
        let storage = LocalStorage::open(folder, LocalOptions::default()).unwrap();
        let open = storage.opened().unwrap();
        let refused = (1..COMMITS_MAX).find(|number| storage.commit(commit(*number)).is_err());
        assert!(refused.is_some_and(|number| number > 1));
        let marked = mark(&open.store, open.store.space(Space(1)).unwrap());
        assert!(marked.is_err(), "a marker behind a commit that has failed");
        println!("failed as expected");
    }
}
