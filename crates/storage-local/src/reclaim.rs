//! Getting back the space of deleted rows.
//!
//! fjall drops tombstones as it compacts by level, but a range that is deleted and never written again may wait for
//! long, and scans wade through its tombstones. A hint makes a thread look, once the hints have paused: where at
//! least a quarter of a space's rows are tombstones it is compacted as a whole. That rewrites the space and holds up
//! its other compactions, so it is done seldom, and only below a size; beyond it levels do the work in time. fjall can
//! compact a keyspace as a whole or drop whole tables; it has no way to compact a range.

use crate::Open;
use fjall::{AbstractTree, Keyspace};
use parking_lot::{Condvar, Mutex};
use quire_storage::{SPACE_COUNT, Space};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const QUIET: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(300);
const WORTH_TOMBSTONES_MIN: u64 = 10_000;
const DISK_BYTES_MAX: u64 = 1 << 30;

#[derive(Default)]
pub(crate) struct Reclaim {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Default)]
struct Wanted {
    /// When the last hint came, and when the space was last compacted.
    spaces: [(Option<Instant>, Option<Instant>); SPACE_COUNT as usize],
    ended: bool,
}

impl Reclaim {
    pub(crate) fn hint(&self, space: Space, open: &Arc<Open>) {
        match self.shared.wanted.lock().spaces.get_mut(usize::from(space.0)) {
            Some((hinted, _)) => *hinted = Some(Instant::now()),
            None => return,
        }
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (shared, open) = (self.shared.clone(), Arc::downgrade(open));
            let spawned =
                std::thread::Builder::new().name("quire-reclaim".into()).spawn(move || run(&shared, &open));
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

fn run(shared: &Shared, open: &Weak<Open>) {
    while let Some(space) = next_space(shared) {
        let Some(open) = open.upgrade() else { return };
        let Ok(keyspace) = open.store.space(space) else { continue };
        // Deletes that are still in memory have left nothing to reclaim yet.
        open.views.flush_and_wait(&open.state);
        if compact(keyspace) {
            open.state.figures.reclaims.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Waits for a space whose hints have paused and that was not compacted lately; `None` to end.
fn next_space(shared: &Shared) -> Option<Space> {
    let mut wanted = shared.wanted.lock();
    loop {
        if wanted.ended {
            return None;
        }
        let now = Instant::now();
        let due = |(hinted, compacted): &(Option<Instant>, Option<Instant>)| {
            let quiet = (*hinted)? + QUIET;
            Some(compacted.map_or(quiet, |compacted| quiet.max(compacted + PAUSE)))
        };
        let next = (0..).zip(&wanted.spaces).filter_map(|(space, slot)| Some((due(slot)?, space))).min();
        match next {
            Some((time, space)) if time <= now => {
                wanted.spaces[usize::from(space)] = (None, Some(now));
                return Some(Space(space));
            }
            Some((time, _)) => drop(shared.changed.wait_until(&mut wanted, time)),
            None => shared.changed.wait(&mut wanted),
        }
    }
}

fn compact(keyspace: &Keyspace) -> bool {
    let tree = &keyspace.tree;
    let (tombstones, rows, bytes) =
        (tree.tombstone_count(), tree.approximate_len() as u64, tree.disk_space());
    if tombstones < WORTH_TOMBSTONES_MIN || tombstones * 4 < rows || bytes > DISK_BYTES_MAX {
        return false;
    }
    let start = Instant::now();
    match keyspace.major_compact() {
        Ok(()) => {
            let (before, after) = (bytes, tree.disk_space());
            tracing::info!(space = %**keyspace.name(), before, after, took = ?start.elapsed(), "space reclaimed");
            true
        }
        Err(error) => {
            tracing::error!(%error, "reclaiming space failed");
            false
        }
    }
}
