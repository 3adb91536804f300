//! Reclamation of the space of deleted rows.
//!
//! fjall drops tombstones as it compacts levels, but a range that is deleted and never written again may wait for
//! long, and scans read through its tombstones. A hint starts a thread that checks after the hints have paused: it
//! flushes memory, and if at least a quarter of a space's rows are tombstones it compacts the whole space. That
//! rewrites the remaining rows and delays the space's other compactions, so a pause in proportion to its duration
//! follows, and it is done only below a size limit; above it, levels do the work in time. fjall can compact a whole
//! keyspace or drop whole tables; it cannot compact a range.
//!
//! fjall deletes the files of tables only when it drops the version of the table list that has them, which it checks
//! when it flushes. So an idle storage is made to check ([`release_files`]).

use crate::index_rows::flusher::{self, flush_memtable};
use crate::removal::mark;
use crate::threads::PanicPoint;
use crate::{OpenStore, error};
use fjall::{AbstractTree, Keyspace};
use parking_lot::{Condvar, Mutex};
use quire_storage::{SPACE_COUNT, Space, StorageError};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const QUIET: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_secs(10);
/// After a compaction, the space is not compacted for this many times its duration.
const PAUSE_FACTOR: u32 = 30;
const WORTH_TOMBSTONES_MIN: u64 = 100;
/// Maximum size after compaction, and before.
const LEFT_BYTES_MAX: u64 = 1 << 30;
const DISK_BYTES_MAX: u64 = 8 << 30;

#[derive(Default)]
pub(crate) struct Reclaim {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    wanted: Mutex<HintTimes>,
    changed: Condvar,
}

#[derive(Default)]
struct HintTimes {
    /// Time of the last hint, and time before which the space is not compacted again.
    spaces: [(Option<Instant>, Option<Instant>); SPACE_COUNT as usize],
    ended: bool,
}

impl Reclaim {
    pub(crate) fn hint(&self, space: Space, open: &Arc<OpenStore>) {
        match self.shared.wanted.lock().spaces.get_mut(usize::from(space.0)) {
            Some((hinted, _)) => *hinted = Some(Instant::now()),
            None => return,
        }
        let mut thread = self.thread.lock();
        // The thread ends when the storage is reopened.
        if thread.as_ref().is_none_or(JoinHandle::is_finished) {
            let (shared, open) = (self.shared.clone(), Arc::downgrade(open));
            let spawned = std::thread::Builder::new()
                .name("quire-reclaim".into())
                .spawn(move || run_caught(&shared, &open));
            match spawned {
                Ok(handle) => *thread = Some(handle),
                Err(error) => tracing::warn!(%error, "no thread to reclaim space"),
            }
        }
        self.shared.changed.notify_one();
    }

    pub(crate) fn end(&self) {
        self.shared.wanted.lock().ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::warn!("the thread that reclaims space had failed");
        }
    }
}

/// After a panic the next hint starts the thread again.
fn run_caught(shared: &Shared, open: &Weak<OpenStore>) {
    let Some(totals) = open.upgrade().map(|open| open.totals.clone()) else { return };
    drop(totals.run_thread("quire-reclaim", || run(shared, open)));
}

fn run(shared: &Shared, open: &Weak<OpenStore>) {
    while let Some(space) = next_space(shared) {
        let Some(open) = open.upgrade() else { return };
        open.totals.panic_if_wanted(PanicPoint::Reclaim);
        let start = Instant::now();
        match reclaim(&open, space) {
            Ok(true) => drop(open.state.counters.reclaims.fetch_add(1, Ordering::Relaxed)),
            Ok(false) => {}
            Err(error) => tracing::warn!(space = space.0, %error, "space is not reclaimed yet"),
        }
        let pause = PAUSE_MIN.max(start.elapsed() * PAUSE_FACTOR);
        shared.wanted.lock().spaces[usize::from(space.0)].1 = Some(Instant::now() + pause);
    }
}

/// Waits for a space whose hints have paused and that was not compacted recently; `None` to end.
fn next_space(shared: &Shared) -> Option<Space> {
    let mut wanted = shared.wanted.lock();
    loop {
        if wanted.ended {
            return None;
        }
        let now = Instant::now();
        let due = |(hinted, not_before): &(Option<Instant>, Option<Instant>)| {
            let quiet = (*hinted)? + QUIET;
            Some(not_before.map_or(quiet, |not_before| quiet.max(not_before)))
        };
        let next = (0..).zip(&wanted.spaces).filter_map(|(space, slot)| Some((due(slot)?, space))).min();
        match next {
            Some((time, space)) if time <= now => {
                wanted.spaces[usize::from(space)].0 = None;
                return Some(Space(space));
            }
            Some((time, _)) => drop(shared.changed.wait_until(&mut wanted, time)),
            None => shared.changed.wait(&mut wanted),
        }
    }
}

/// Whether the space was compacted.
fn reclaim(open: &OpenStore, space: Space) -> Result<bool, StorageError> {
    let keyspace = open.store.space(space)?;
    // Deletes that are still in memory have nothing to reclaim yet.
    open.views.flush_and_wait(&open.state);
    if open.state.poisoned().is_some() {
        return Ok(false);
    }
    let flushed = flush_memtable(keyspace);
    flushed.map_err(|error| error::failed("flushing deleted rows", error))?;
    let compacted = compact(keyspace)?;
    flusher::drop_flushed(&open.store, &open.views)?;
    release_files(open, keyspace)?;
    Ok(compacted)
}

fn compact(keyspace: &Keyspace) -> Result<bool, StorageError> {
    let tree = &keyspace.tree;
    let (tombstones, rows, bytes) =
        (tree.tombstone_count(), tree.approximate_len() as u64, tree.disk_space());
    // A tombstone removes one row.
    let left = u128::from(bytes) * u128::from(rows.saturating_sub(2 * tombstones)) / u128::from(rows.max(1));
    if tombstones < WORTH_TOMBSTONES_MIN
        || tombstones * 4 < rows
        || left > u128::from(LEFT_BYTES_MAX)
        || bytes > DISK_BYTES_MAX
    {
        return Ok(false);
    }
    let start = Instant::now();
    keyspace.major_compact().map_err(|error| error::failed("compacting a space", error))?;
    let (before, after) = (bytes, tree.disk_space());
    tracing::debug!(space = %**keyspace.name(), before, after, took = ?start.elapsed(), "space reclaimed");
    Ok(true)
}

/// Deletes the files of tables that no reader needs. A version of the table list is dropped after another one has
/// followed and no snapshot is as old.
fn release_files(open: &OpenStore, keyspace: &Keyspace) -> Result<(), StorageError> {
    let database = &open.store.database;
    mark(&open.store, keyspace)?;
    open.views.refresh(database);
    mark(&open.store, keyspace)?;
    let oldest = database.supervisor.snapshot_tracker.get_seqno_safe_to_gc();
    for keyspace in open.store.keyspaces() {
        let mut versions = keyspace.tree.get_version_history_lock();
        let released = versions.maintenance(keyspace.path(), oldest);
        released.map_err(|error| error::failed("deleting unused files", error.into()))?;
    }
    Ok(())
}
