//! What readers see: a fjall snapshot and the sorted runs above it, published together.
//!
//! A batch is journalled and synced, then its rows become a run, then a [`View`] with both is published; readers take
//! the view that is current and never its two parts separately. Small runs are merged into larger ones, so that a
//! view has a few per size, and once there is enough of them the flusher takes all of it away into tables. A merge is
//! spread over many commits, each of which moves rows in proportion to its own.
//!
//! Invariants:
//! 1. A view's runs hold every row above its snapshot's checkpoint. They may hold rows that are in tables already: those
//!    are the same.
//! 2. `gate` is held from the journal write of a batch until its view is published, and by whoever takes a new fjall
//!    snapshot; so no snapshot shows a batch whose runs are not there. Nor half a batch, in either form: fjall's own
//!    flushes and compactions raise the sequence number that new snapshots see, also while a batch below it is still
//!    being entered into the memtables.
//! 3. Views are replaced under the lock of `shelf`, whose contents are the runs of the current view.

use crate::LocalOptions;
use crate::commit::state::State;
use crate::index_rows::packed::Spaces;
use crate::index_rows::run::{Bounds, Merge, Merging, Run};
use fjall::Database;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use quire_storage::{Direction, SPACE_COUNT, Space};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How index rows are kept until they are in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexRows {
    /// Journalled as one row per batch, held in sorted runs, written to tables in bulk.
    Packed,
    /// Journalled and entered into the memtable one by one.
    Plain,
}

const SPACES: usize = SPACE_COUNT as usize;
/// So many runs of about one size become one.
const MERGED_AT: usize = 4;
/// Runs this large wait for the flusher.
const MERGED_ROWS_MAX: usize = 1 << 18;
/// A row is moved some six times on its way to the largest run. So much is done for each that comes, and a little more.
const MERGED_PER_ROW: usize = 8;
const MERGED_PER_COMMIT_MIN: usize = 1000;
/// About five milliseconds.
const MERGED_PER_COMMIT_MAX: usize = 50_000;
const MERGED_PER_STEP: usize = 4000;
/// Rows take about this much in memory; fewer but larger ones are flushed earlier.
const ROW_BYTES: usize = 64;
/// What may be in memory at once, and so in one run on opening, stays below 4 GB.
const FLUSH_ROWS_MAX: usize = 16_000_000;
/// Writers wait when so many times more rows are in memory than are flushed at once.
const STALL_FACTOR: usize = 2;
const STALL_CHECK: Duration = Duration::from_millis(100);

pub(crate) struct View {
    pub(crate) snapshot: fjall::Snapshot,
    runs: [Vec<Arc<Run>>; SPACES],
}

pub(crate) struct Views {
    form: IndexRows,
    flush_rows: usize,
    /// Spaces that ever had index rows; they only become more, by the leader.
    merged: AtomicU8,
    flushed: AtomicU64,
    gate: Mutex<()>,
    shelf: Mutex<Shelf>,
    changed: Condvar,
    current: RwLock<Arc<View>>,
    /// Under way, by space, the newest last. Only the leader uses them.
    merges: Mutex<Vec<(usize, Merging)>>,
    /// Rows that came since the leader last merged.
    arrived: AtomicUsize,
}

#[derive(Default)]
struct Shelf {
    /// Being flushed.
    frozen: Option<Arc<Layer>>,
    active: Layer,
    /// Somebody waits for all of it to be in tables.
    flush_wanted: bool,
    ended: bool,
}

/// Runs of consecutive batches, by space, oldest first.
#[derive(Default)]
pub(crate) struct Layer {
    pub(crate) spaces: [Vec<Arc<Run>>; SPACES],
    pub(crate) rows: usize,
    bytes: usize,
    /// The batch of the newest run.
    pub(crate) last_sequence: u64,
}

/// The right to write a batch and to publish it.
pub(crate) struct Gate<'a> {
    views: &'a Views,
    _held: MutexGuard<'a, ()>,
}

/// Figures for metrics.
pub(crate) struct RunFigures {
    pub(crate) runs: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl View {
    pub(crate) fn runs(&self, space: Space) -> &[Arc<Run>] {
        self.runs.get(usize::from(space.0)).map_or(&[], Vec::as_slice)
    }

    /// What the runs say about a key: a value, that it is deleted, or nothing.
    pub(crate) fn in_runs(&self, space: Space, key: &[u8]) -> Option<Option<&[u8]>> {
        self.runs(space).iter().rev().find_map(|run| run.get(key))
    }

    pub(crate) fn merge(&self, space: Space, bounds: Bounds<'_>, direction: Direction) -> Merge<'_> {
        Merge::new(self.runs(space), bounds, direction)
    }
}

impl Views {
    /// `layer` holds what was not flushed before the store was opened.
    pub(crate) fn new(database: &Database, options: &LocalOptions, merged: Spaces, layer: Layer) -> Views {
        let shelf = Shelf { active: layer, ..Shelf::default() };
        let view = View { snapshot: database.snapshot(), runs: shelf.runs() };
        Views {
            form: options.index_rows,
            flush_rows: options.run_rows_max.clamp(1, FLUSH_ROWS_MAX),
            merged: AtomicU8::new(merged.0),
            flushed: AtomicU64::new(0),
            gate: Mutex::default(),
            shelf: Mutex::new(shelf),
            changed: Condvar::new(),
            current: RwLock::new(Arc::new(view)),
            merges: Mutex::default(),
            arrived: AtomicUsize::new(0),
        }
    }

    /// What a reader sees from now on.
    pub(crate) fn current(&self) -> Arc<View> {
        self.current.read().clone()
    }

    /// The spaces whose rows go through runs once these have had index rows, too.
    pub(crate) fn merged_with(&self, spaces: Spaces) -> Spaces {
        match self.form {
            IndexRows::Packed => Spaces(self.merged.load(Ordering::Acquire)).union(spaces),
            IndexRows::Plain => Spaces::default(),
        }
    }

    /// From now on these spaces go through runs, too. Only the leader calls this.
    pub(crate) fn add_merged(&self, spaces: Spaces) {
        self.merged.fetch_or(spaces.0, Ordering::AcqRel);
    }

    pub(crate) fn gate(&self) -> Gate<'_> {
        Gate { views: self, _held: self.gate.lock() }
    }

    /// Goes on with merging small runs, in proportion to the rows that have come; how many rows it moved. Only the leader
    /// calls this, after its answers, and the next one waits for it: so it is never more than a few milliseconds' work.
    pub(crate) fn merge_small(&self) -> usize {
        let arrived = self.arrived.swap(0, Ordering::Relaxed);
        let budget = MERGED_PER_COMMIT_MAX.min(arrived * MERGED_PER_ROW + MERGED_PER_COMMIT_MIN);
        let (mut moved, mut merges) = (0, self.merges.lock());
        loop {
            self.begin_merges(&mut merges);
            // The newest first: it is small, and soon done.
            let Some((_, merging)) = merges.last_mut() else { return moved };
            if moved >= budget {
                return moved;
            }
            let rows = merging.step((budget - moved).min(MERGED_PER_STEP));
            moved += rows;
            if rows == 0
                && let Some((space, merging)) = merges.pop()
            {
                let (parts, merged) = merging.finish();
                self.replace(space, &parts, Arc::new(merged));
            }
        }
    }

    /// Begins to merge where there are too many runs of one size, and forgets about those that the flusher has taken.
    fn begin_merges(&self, merges: &mut Vec<(usize, Merging)>) {
        let shelf = self.shelf.lock();
        let place = |space: usize, merging: &Merging| find(&shelf.active.spaces[space], merging.parts());
        merges.retain(|(space, merging)| place(*space, merging).is_some());
        for (space, runs) in shelf.active.spaces.iter().enumerate() {
            let ends = merges.iter().filter(|(other, _)| *other == space);
            let ends = ends.filter_map(|(_, merging)| Some(place(space, merging)? + merging.parts().len()));
            let free = &runs[ends.max().unwrap_or(0)..];
            let lengths: Vec<usize> = free.iter().map(|run| run.len()).collect();
            if let Some(range) = range_to_merge(&lengths) {
                merges.push((space, Merging::new(free[range].to_vec())));
            }
        }
    }

    /// Puts a merged run in the place of its parts, unless the flusher has taken them.
    fn replace(&self, space: usize, parts: &[Arc<Run>], merged: Arc<Run>) {
        let mut shelf = self.shelf.lock();
        let Shelf { active, .. } = &mut *shelf;
        let runs = &mut active.spaces[space];
        let Some(start) = find(runs, parts) else { return };
        let (rows, bytes) = sizes(parts);
        active.rows = active.rows - rows + merged.len();
        active.bytes = active.bytes - bytes + merged.size_bytes();
        runs.splice(start..start + parts.len(), [merged]);
        let mut current = self.current.write();
        *current = Arc::new(View { snapshot: current.snapshot.clone(), runs: shelf.runs() });
    }

    /// Waits while there is too much in memory. Says how long, or that it will not become less.
    pub(crate) fn wait_for_room(&self, state: &State) -> Result<Duration, crate::store::Poisoned> {
        let mut shelf = self.shelf.lock();
        let is_full =
            |shelf: &Shelf| shelf.frozen.is_some() && shelf.active.fills(self.flush_rows * STALL_FACTOR);
        if !is_full(&shelf) {
            return Ok(Duration::ZERO);
        }
        let start = Instant::now();
        while is_full(&shelf) {
            if state.poisoned().is_some() {
                return Err(crate::store::Poisoned);
            }
            self.changed.wait_for(&mut shelf, STALL_CHECK);
        }
        Ok(start.elapsed())
    }

    /// Waits until there is enough to flush, and takes it; `None` to end.
    pub(crate) fn wait_to_freeze(&self) -> Option<Arc<Layer>> {
        let mut shelf = self.shelf.lock();
        loop {
            if shelf.ended {
                return None;
            }
            let wanted = std::mem::take(&mut shelf.flush_wanted) && shelf.active.rows > 0;
            if wanted || shelf.active.fills(self.flush_rows) {
                return Some(shelf.freeze());
            }
            self.changed.wait(&mut shelf);
        }
    }

    /// Makes the flusher take what is in memory now, and waits for it; not when the storage closes or writes no more.
    pub(crate) fn flush_and_wait(&self, state: &State) {
        let mut shelf = self.shelf.lock();
        shelf.flush_wanted = shelf.active.rows > 0;
        self.changed.notify_all();
        while (shelf.flush_wanted || shelf.frozen.is_some()) && !shelf.ended && state.poisoned().is_none() {
            self.changed.wait_for(&mut shelf, STALL_CHECK);
        }
    }

    /// Takes everything there is to flush: what an earlier flush has left undone comes first.
    pub(crate) fn freeze(&self) -> Option<Arc<Layer>> {
        let mut shelf = self.shelf.lock();
        if shelf.frozen.is_some() {
            return shelf.frozen.clone();
        }
        (shelf.active.rows > 0).then(|| shelf.freeze())
    }

    /// The last batch whose rows, like those of all before it, are in tables; 0 before the first flush.
    pub(crate) fn flushed_sequence(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// The frozen layer, up to this batch, is in tables now.
    pub(crate) fn let_go(&self, database: &Database, last_sequence: u64) {
        self.flushed.store(last_sequence, Ordering::Release);
        let _gate = self.gate.lock();
        let mut shelf = self.shelf.lock();
        shelf.frozen = None;
        *self.current.write() = Arc::new(View { snapshot: database.snapshot(), runs: shelf.runs() });
        self.changed.notify_all();
    }

    /// Shows readers what was done to tables beside the commits, and lets go of older versions of them.
    pub(crate) fn refresh(&self, database: &Database) {
        let _gate = self.gate.lock();
        let shelf = self.shelf.lock();
        *self.current.write() = Arc::new(View { snapshot: database.snapshot(), runs: shelf.runs() });
    }

    /// Whether the flusher goes on after a while.
    pub(crate) fn waits(&self, time: Duration) -> bool {
        let mut shelf = self.shelf.lock();
        let end = Instant::now() + time;
        while !shelf.ended && Instant::now() < end {
            self.changed.wait_until(&mut shelf, end);
        }
        !shelf.ended
    }

    /// Ends the flusher.
    pub(crate) fn end(&self) {
        self.shelf.lock().ended = true;
        self.changed.notify_all();
    }

    pub(crate) fn figures(&self) -> RunFigures {
        let shelf = self.shelf.lock();
        let layers = [Some(&shelf.active), shelf.frozen.as_deref()];
        let sum = |of: fn(&Layer) -> usize| layers.iter().flatten().map(|layer| of(layer) as u64).sum();
        RunFigures {
            runs: sum(|layer| layer.spaces.iter().map(Vec::len).sum()),
            rows: sum(|layer| layer.rows),
            bytes: sum(|layer| layer.bytes),
        }
    }
}

impl Gate<'_> {
    /// Publishes a batch that is journalled, synced and visible in fjall.
    pub(crate) fn publish(self, database: &Database, runs: [Run; SPACES], sequence: u64) {
        let views = self.views;
        views.arrived.fetch_add(runs.iter().map(Run::len).sum(), Ordering::Relaxed);
        let mut shelf = views.shelf.lock();
        shelf.active.push(runs, sequence);
        *views.current.write() = Arc::new(View { snapshot: database.snapshot(), runs: shelf.runs() });
        if shelf.frozen.is_none() && shelf.active.fills(views.flush_rows) {
            views.changed.notify_all();
        }
    }
}

impl Shelf {
    fn runs(&self) -> [Vec<Arc<Run>>; SPACES] {
        std::array::from_fn(|space| {
            let frozen = self.frozen.iter().flat_map(|layer| &layer.spaces[space]);
            frozen.chain(&self.active.spaces[space]).cloned().collect()
        })
    }

    fn freeze(&mut self) -> Arc<Layer> {
        let layer = Arc::new(std::mem::take(&mut self.active));
        self.frozen = Some(layer.clone());
        layer
    }
}

impl Layer {
    pub(crate) fn push(&mut self, runs: [Run; SPACES], sequence: u64) {
        for (space, run) in self.spaces.iter_mut().zip(runs).filter(|(_, run)| run.len() > 0) {
            self.rows += run.len();
            self.bytes += run.size_bytes();
            self.last_sequence = sequence;
            space.push(Arc::new(run));
        }
    }

    fn fills(&self, rows: usize) -> bool {
        self.rows >= rows || self.bytes >= rows * ROW_BYTES
    }
}

/// Where some runs, one after the other, are among all.
fn find(runs: &[Arc<Run>], parts: &[Arc<Run>]) -> Option<usize> {
    let start = runs.iter().position(|run| parts.first().is_some_and(|part| Arc::ptr_eq(run, part)))?;
    let found = runs.get(start..start + parts.len())?;
    found.iter().zip(parts).all(|(run, part)| Arc::ptr_eq(run, part)).then_some(start)
}

fn sizes(runs: &[Arc<Run>]) -> (usize, usize) {
    runs.iter().fold((0, 0), |(rows, bytes), run| (rows + run.len(), bytes + run.size_bytes()))
}

/// Which runs to merge, given all their lengths from oldest to newest: the newest that are enough. Newer ones may have
/// come while a larger merge was under way.
fn range_to_merge(lengths: &[usize]) -> Option<std::ops::Range<usize>> {
    (1..=lengths.len()).rev().find_map(|end| {
        let count = count_to_merge(lengths[..end].iter().copied())?;
        Some(end - count..end)
    })
}

/// How many of the newest runs to merge, given all their lengths from oldest to newest.
fn count_to_merge(lengths: impl DoubleEndedIterator<Item = usize>) -> Option<usize> {
    let size = |length: usize| length.max(1).ilog2() / 2;
    let mut lengths = lengths.rev().take_while(|length| *length < MERGED_ROWS_MAX).peekable();
    let newest = size(*lengths.peek()?);
    let count = lengths.take_while(|length| size(*length) <= newest).count();
    (count >= MERGED_AT).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_stay_few() {
        let mut lengths: Vec<usize> = Vec::new();
        let (mut most, mut merged_rows) = (0, 0);
        for _ in 0..6000 {
            lengths.push(300);
            while let Some(count) = count_to_merge(lengths.iter().copied()) {
                let merged = lengths.split_off(lengths.len() - count).iter().sum();
                merged_rows += merged;
                lengths.push(merged);
            }
            most = most.max(lengths.len());
        }
        assert_eq!(lengths.iter().sum::<usize>(), 6000 * 300);
        assert!(most <= 24, "{most} runs");
        assert!(merged_rows <= 6000 * 300 * 6, "each row is moved {} times", merged_rows / 6000 / 300);
    }

    #[test]
    fn large_batches_do_not_strand_small_ones() {
        let mut lengths: Vec<usize> = Vec::new();
        for round in 0..1000usize {
            lengths.push([3, 5000, 40, 1][round % 4]);
            while let Some(count) = count_to_merge(lengths.iter().copied()) {
                let merged = lengths.split_off(lengths.len() - count).iter().sum();
                lengths.push(merged);
            }
            assert!(lengths.len() <= 24, "{lengths:?}");
        }
    }
}
