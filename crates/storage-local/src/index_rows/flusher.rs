//! Flushes sorted runs to tables.
//!
//! One thread, in commit order: when enough rows are in memory it merges them into fjall by ingestion, each space
//! with a checkpoint row in the same ingestion, publishes a read view without them, and drops the packed rows up to
//! there. On opening, the packed rows above a space's checkpoint become its first run.
//!
//! Ingestion writes tables without journal and memtable, registers them under their own sequence number, newer than
//! all others, and holds the journal's lock only while it registers. It supports deletes. It covers one keyspace, so
//! every space has its own checkpoint.
//!
//! The checkpoint row sorts after every key that a commit may have and is hidden from readers. A packed row up to the
//! checkpoint is obsolete, so packed rows are dropped table by table when all rows of a table are obsolete; deleting
//! them one by one would cost as much as writing them. The newest table always stays while there are journals: fjall
//! derives from it which of them it still needs.

use crate::error::{OpenError, corrupt, failed, reading};
use crate::health::is_transient;
use crate::index_rows::packed::{EMPTY, Spaces, packed_key, packed_sequence, unpack};
use crate::index_rows::read_view::{ReadViews, RunLayer};
use crate::index_rows::run::{Merge, Run, RunBuilder};
use crate::store::Store;
use crate::threads::PanicPoint;
use crate::{OpenStore, error};
use fjall::{AbstractTree, Keyspace, Readable, Snapshot};
use parking_lot::Mutex;
use quire_storage::memory::CAPS;
use quire_storage::{Direction, SPACE_COUNT, Space, StorageError};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One byte longer than any key of a commit, and greater than all of them.
pub(crate) const CHECKPOINT_KEY: [u8; CAPS.key_bytes_max + 1] = [0xFF; CAPS.key_bytes_max + 1];

const FLUSH_WAIT_MAX: Duration = Duration::from_secs(2);
const RETRY_WAIT_MIN: Duration = Duration::from_millis(20);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(2);
const FLUSH_CHECK: Duration = Duration::from_millis(1);
const WORTH_REMOVING_BYTES: u64 = 1 << 16;

/// The rows of a store that were not flushed.
pub(crate) struct Unflushed {
    pub(crate) layer: RunLayer,
    /// Spaces that ever had index rows.
    pub(crate) merged: Spaces,
    /// The newest checkpoint or packed row, if it is beyond the end of the log.
    beyond: Option<u64>,
    /// Packed rows that were read, and the number of them that were not in tables.
    pub(crate) packed_rows: u64,
    pub(crate) unflushed_rows: u64,
}

/// Reads the packed rows above the checkpoints. `newest`: the last commit of the log.
pub(crate) fn load(store: &Store, newest: u64) -> Result<Unflushed, OpenError> {
    let snapshot = store.database.snapshot();
    let mut checkpoints = [None; SPACE_COUNT as usize];
    for (space, checkpoint) in (0..).zip(&mut checkpoints) {
        *checkpoint = read_checkpoint(store.space(Space(space))?, &snapshot)?;
    }
    let spaces = || (0..).map(Space).zip(checkpoints);
    let has_checkpoint = spaces().filter(|(_, checkpoint)| checkpoint.is_some());
    let mut merged = has_checkpoint.fold(Spaces::default(), |merged, (space, _)| merged.with(space));
    let mut beyond = checkpoints.into_iter().flatten().filter(|sequence| *sequence > newest).max();
    let (mut builders, mut last_sequence) = (<[RunBuilder; SPACE_COUNT as usize]>::default(), 0);
    let (mut packed_rows, mut unflushed_rows) = (0, 0);
    for row in snapshot.iter(&store.packed) {
        packed_rows += 1;
        let (key, value) = row.into_inner().map_err(reading)?;
        let damaged = || corrupt("a row of packed index rows is damaged");
        let sequence = packed_sequence(&key).ok_or_else(damaged)?;
        if sequence > newest {
            beyond = beyond.max(Some(sequence));
            continue;
        }
        let open =
            spaces().filter(|(_, checkpoint)| checkpoint.is_none_or(|checkpoint| checkpoint < sequence));
        let wanted = open.fold(Spaces::default(), |wanted, (space, _)| wanted.with(space));
        let runs = unpack(&value, wanted).ok_or_else(damaged)?;
        unflushed_rows += u64::from(runs.iter().any(|run| run.len() > 0));
        merged =
            (0..).map(Space).zip(&runs).filter(|(_, run)| run.len() > 0).fold(merged, |m, (s, _)| m.with(s));
        builders.iter_mut().zip(&runs).for_each(|(builder, run)| builder.append(run));
        last_sequence = sequence;
    }
    let mut layer = RunLayer::default();
    layer.push(builders.map(RunBuilder::finish_newest), last_sequence);
    Ok(Unflushed { layer, merged, beyond, packed_rows, unflushed_rows })
}

fn read_checkpoint(keyspace: &Keyspace, snapshot: &Snapshot) -> Result<Option<u64>, OpenError> {
    let Some(bytes) = snapshot.get(keyspace, CHECKPOINT_KEY).map_err(reading)? else { return Ok(None) };
    let bytes = (&*bytes).try_into().map_err(|_| corrupt("the checkpoint of a space is damaged"))?;
    Ok(Some(u64::from_le_bytes(bytes)))
}

impl Unflushed {
    /// Refuses a log that ends before what was flushed from it; with `accept_loss`, deletes what is beyond its end.
    pub(crate) fn check(&self, store: &Store, newest: u64, accept_loss: bool) -> Result<(), OpenError> {
        match self.beyond {
            None => Ok(()),
            Some(acknowledged) if !accept_loss => {
                Err(OpenError::LogEndsEarly { acknowledged, found: newest })
            }
            Some(_) => {
                delete_beyond(store, newest).map_err(|error| failed("forgetting lost commits", error).into())
            }
        }
    }
}

/// New commits reuse the sequences of lost ones, so nothing may be left under those.
fn delete_beyond(store: &Store, newest: u64) -> Result<(), fjall::Error> {
    let snapshot = store.database.snapshot();
    for space in (0..SPACE_COUNT).map(Space) {
        let Ok(keyspace) = store.space(space) else { continue };
        if snapshot.contains_key(keyspace, CHECKPOINT_KEY)? {
            ingest(store, keyspace, &[], newest)?;
        }
    }
    let beyond = (Bound::Excluded(packed_key(newest)), Bound::Unbounded);
    let mut ingestion = store.packed.start_ingestion()?;
    for row in snapshot.range(&store.packed, beyond) {
        ingestion.write_tombstone(row.key()?)?;
    }
    store.end_ingestion(|| ingestion.finish())
}

/// Flushes everything that is in memory, on this thread.
pub(crate) fn flush_all(views: &ReadViews, store: &Store) -> Result<(), StorageError> {
    while let Some(layer) = views.freeze() {
        flush(&layer, views, store)?;
    }
    Ok(())
}

fn flush(layer: &RunLayer, views: &ReadViews, store: &Store) -> Result<(), StorageError> {
    let start = Instant::now();
    // A panic inside would leave writers waiting forever.
    let ingested = catch_unwind(AssertUnwindSafe(|| ingest_layer(layer, store)));
    ingested
        .unwrap_or(Err(fjall::Error::Poisoned))
        .map_err(|error| failed("writing index rows to tables", error))?;
    views.drop_frozen(&store.database, layer.last_sequence);
    let (rows, took) = (layer.rows, start.elapsed());
    tracing::debug!(rows, ?took, "index rows are in tables");
    drop_packed(store, Bound::Excluded(packed_key(layer.last_sequence)));
    Ok(())
}

/// Flushes a memtable to tables, off the commit path. Waits, but not forever: a following ingestion flushes the rest.
pub(crate) fn flush_memtable(keyspace: &Keyspace) -> Result<(), fjall::Error> {
    let tree = &keyspace.tree;
    let Some(newest) = tree.get_highest_memtable_seqno() else { return Ok(()) };
    keyspace.rotate_memtable()?;
    let start = Instant::now();
    while tree.get_highest_persisted_seqno() < Some(newest) && start.elapsed() < FLUSH_WAIT_MAX {
        std::thread::sleep(FLUSH_CHECK);
    }
    Ok(())
}

/// Removes all packed rows that are in the tables of their spaces, also from the newest table. The last of them
/// stays, without its rows: the newest row of the keyspace must be one that stays.
pub(crate) fn drop_flushed(store: &Store, views: &ReadViews) -> Result<(), StorageError> {
    let last = packed_key(views.flushed_sequence());
    let removing = |error| failed("removing packed rows", error);
    flush_memtable(&store.packed).map_err(removing)?;
    if last == packed_key(0) || store.packed.tree.disk_space() < WORTH_REMOVING_BYTES {
        return Ok(());
    }
    let snapshot = store.database.snapshot();
    let mut ingestion = store.packed.start_ingestion().map_err(removing)?;
    for row in snapshot.range(&store.packed, ..last) {
        row.key().and_then(|key| ingestion.write_tombstone(key)).map_err(removing)?;
    }
    ingestion.write(last, EMPTY).map_err(removing)?;
    store.end_ingestion(|| ingestion.finish()).map_err(removing)?;
    store.packed.major_compact().map_err(removing)
}

/// Drops tables whose packed rows are all in the tables of their spaces.
pub(crate) fn drop_packed(store: &Store, end: Bound<[u8; 8]>) {
    if let Err(error) = store.packed.tree.drop_range::<[u8; 8], _>((Bound::Unbounded, end)) {
        tracing::warn!(%error, "old packed rows are not dropped yet");
    }
}

fn ingest_layer(layer: &RunLayer, store: &Store) -> Result<(), fjall::Error> {
    for (space, runs) in (0..).map(Space).zip(&layer.spaces).filter(|(_, runs)| !runs.is_empty()) {
        let Ok(keyspace) = store.space(space) else { continue };
        ingest(store, keyspace, runs, layer.last_sequence)?;
    }
    Ok(())
}

fn ingest(
    store: &Store,
    keyspace: &Keyspace,
    runs: &[Arc<Run>],
    checkpoint: u64,
) -> Result<(), fjall::Error> {
    let mut ingestion = keyspace.start_ingestion()?;
    for (key, value) in Merge::new(runs, (Bound::Unbounded, Bound::Unbounded), Direction::Forward) {
        match value {
            Some(value) => ingestion.write(key, value)?,
            None => ingestion.write_tombstone(key)?,
        }
    }
    ingestion.write(&CHECKPOINT_KEY[..], checkpoint.to_le_bytes())?;
    store.end_ingestion(|| ingestion.finish())
}

/// The flusher thread.
pub(crate) struct Flusher {
    views: Arc<ReadViews>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Flusher {
    pub(crate) fn start(open: &Arc<OpenStore>) -> Result<Flusher, OpenError> {
        let (views, waiting, open) = (open.views.clone(), open.views.clone(), Arc::downgrade(open));
        let thread =
            std::thread::Builder::new().name("quire-flush".into()).spawn(move || run_caught(&waiting, &open));
        let thread = thread.map_err(error::opening("starting the thread that flushes index rows"))?;
        Ok(Flusher { views, thread: Mutex::new(Some(thread)) })
    }

    /// Waits for a running flush.
    pub(crate) fn end(&self) {
        self.views.end();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::warn!("the thread that flushes index rows had failed");
        }
    }
}

/// After a panic the store refuses writes until the thread that watches it has reopened it. The rows are in the journal.
fn run_caught(views: &ReadViews, open: &Weak<OpenStore>) {
    let Some(totals) = open.upgrade().map(|open| open.totals.clone()) else { return };
    if totals.run_thread("quire-flush", || run(views, open)).is_err()
        && let Some(open) = open.upgrade()
    {
        open.state.refuse_writes("flush of index rows");
    }
}

fn run(views: &ReadViews, open: &Weak<OpenStore>) {
    while let Some(layer) = views.wait_to_freeze() {
        let Some(open) = open.upgrade() else { return };
        open.totals.panic_if_wanted(PanicPoint::Flush);
        let mut wait = RETRY_WAIT_MIN;
        loop {
            match flush(&layer, views, &open.store) {
                Ok(()) => break,
                // The rows are in the journal and in memory: nothing is lost by waiting.
                Err(error) if is_transient(&error) => {
                    tracing::warn!(%error, "index rows are not flushed yet");
                    if !views.sleep_unless_ended(wait) {
                        return;
                    }
                    wait = RETRY_WAIT_MAX.min(wait * 2);
                }
                Err(error) => {
                    tracing::error!(%error, "index rows could not be flushed, no more writes until reopened");
                    return open.state.poison("flush of index rows", false);
                }
            }
        }
        open.state.counters.run_flushes.fetch_add(1, Ordering::Relaxed);
    }
}
