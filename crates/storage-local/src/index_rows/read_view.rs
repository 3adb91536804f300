//! Read views: a fjall snapshot and the sorted runs above it, published together.
//!
//! A batch is journalled and synced, then its rows become a run, then a [`ReadView`] with both is published. Readers
//! use the current read view and never its two parts separately. Small runs are merged into larger ones, so that a
//! view has a few per size, and when there are enough of them the flusher moves all of them into tables. A merge is
//! spread over many commits; each moves rows in proportion to its own.
//!
//! Invariants:
//! 1. The runs of a view contain every row above its snapshot's checkpoint. They may contain rows that are already in
//!    tables: those are the same.
//! 2. `gate` is held from the journal write of a batch until its view is published, and whenever a new fjall snapshot
//!    is taken. So no snapshot shows a batch whose runs are missing. Nor half a batch, in either form: fjall's own
//!    flushes and compactions raise the sequence number that new snapshots see, also while a batch below it is still
//!    being written into the memtables.
//! 3. Views are replaced under the lock of `layers`, which has the runs of the current view.

use crate::LocalOptions;
use crate::commit::state::StorageState;
use crate::index_rows::packed::Spaces;
use crate::index_rows::run::{Bounds, Merge, Run, RunMerge};
use fjall::Database;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use quire_storage::{Direction, SPACE_COUNT, Space};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How index rows are stored until they are in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexRows {
    /// Journalled as one row per batch, held in sorted runs, written to tables in bulk.
    Packed,
    /// Journalled and written into the memtable one by one.
    Plain,
}

const SPACES: usize = SPACE_COUNT as usize;
/// This many runs of about one size are merged.
const MERGED_AT: usize = 4;
/// Runs of this size are left for the flusher.
const MERGED_ROWS_MAX: usize = 1 << 18;
/// A row is moved about six times on its way to the largest run. This many are moved for each new row, which is a
/// little more.
const MERGED_PER_ROW: usize = 8;
const MERGED_PER_COMMIT_MIN: usize = 1000;
/// About five milliseconds of work.
const MERGED_PER_COMMIT_MAX: usize = 50_000;
const MERGED_PER_STEP: usize = 4000;
/// Estimated memory of a row; fewer but larger rows are flushed earlier.
const ROW_BYTES: usize = 64;
/// The limit of rows in memory, and so of one run on opening: below 4 GB.
const FLUSH_ROWS_MAX: usize = 16_000_000;
/// Writers wait when this many times more rows are in memory than one flush takes.
const STALL_FACTOR: usize = 2;
const STALL_CHECK: Duration = Duration::from_millis(100);

pub(crate) struct ReadView {
    pub(crate) snapshot: fjall::Snapshot,
    runs: [Vec<Arc<Run>>; SPACES],
}

pub(crate) struct ReadViews {
    form: IndexRows,
    flush_rows: usize,
    /// Spaces that ever had index rows. The leader adds spaces; none is ever removed.
    merged: AtomicU8,
    flushed: AtomicU64,
    gate: Mutex<()>,
    layers: Mutex<RunLayers>,
    changed: Condvar,
    current: RwLock<Arc<ReadView>>,
    /// Running merges, by space, the newest last. Only the leader uses them.
    merges: Mutex<Vec<(usize, RunMerge)>>,
    /// Rows added since the leader last merged.
    arrived: AtomicUsize,
}

#[derive(Default)]
struct RunLayers {
    /// Being flushed.
    frozen: Option<Arc<RunLayer>>,
    active: RunLayer,
    /// Someone waits until all of it is in tables.
    flush_wanted: bool,
    ended: bool,
}

/// Runs of consecutive batches, by space, oldest first.
#[derive(Default)]
pub(crate) struct RunLayer {
    pub(crate) spaces: [Vec<Arc<Run>>; SPACES],
    pub(crate) rows: usize,
    bytes: usize,
    /// The batch of its newest run.
    pub(crate) last_sequence: u64,
}

/// The right to write a batch and to publish it.
pub(crate) struct PublishGuard<'a> {
    views: &'a ReadViews,
    _held: MutexGuard<'a, ()>,
}

/// Counters for metrics.
pub(crate) struct RunCounters {
    pub(crate) runs: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl ReadView {
    pub(crate) fn runs(&self, space: Space) -> &[Arc<Run>] {
        self.runs.get(usize::from(space.0)).map_or(&[], Vec::as_slice)
    }

    /// The state of a key in the runs: a value, deleted, or `None` if they do not have it.
    pub(crate) fn in_runs(&self, space: Space, key: &[u8]) -> Option<Option<&[u8]>> {
        self.runs(space).iter().rev().find_map(|run| run.get(key))
    }

    pub(crate) fn merge(&self, space: Space, bounds: Bounds<'_>, direction: Direction) -> Merge<'_> {
        Merge::new(self.runs(space), bounds, direction)
    }
}

impl ReadViews {
    /// `layer`: what was not flushed before the store was opened.
    pub(crate) fn new(
        database: &Database,
        options: &LocalOptions,
        merged: Spaces,
        layer: RunLayer,
    ) -> ReadViews {
        let layers = RunLayers { active: layer, ..RunLayers::default() };
        let view = ReadView { snapshot: database.snapshot(), runs: layers.runs() };
        ReadViews {
            form: options.index_rows,
            flush_rows: options.run_rows_max.clamp(1, FLUSH_ROWS_MAX),
            merged: AtomicU8::new(merged.0),
            flushed: AtomicU64::new(0),
            gate: Mutex::default(),
            layers: Mutex::new(layers),
            changed: Condvar::new(),
            current: RwLock::new(Arc::new(view)),
            merges: Mutex::default(),
            arrived: AtomicUsize::new(0),
        }
    }

    /// The view for new readers.
    pub(crate) fn current(&self) -> Arc<ReadView> {
        self.current.read().clone()
    }

    /// The spaces kept in runs, when these have had index rows, too.
    pub(crate) fn merged_with(&self, spaces: Spaces) -> Spaces {
        match self.form {
            IndexRows::Packed => Spaces(self.merged.load(Ordering::Acquire)).union(spaces),
            IndexRows::Plain => Spaces::default(),
        }
    }

    /// Keeps these spaces in runs from now on. Only the leader calls this.
    pub(crate) fn add_merged(&self, spaces: Spaces) {
        self.merged.fetch_or(spaces.0, Ordering::AcqRel);
    }

    pub(crate) fn gate(&self) -> PublishGuard<'_> {
        PublishGuard { views: self, _held: self.gate.lock() }
    }

    /// Continues to merge small runs, in proportion to new rows. Returns the number of rows moved. Only the leader
    /// calls this, after its answers; the next leader waits for it, so it never takes more than a few milliseconds.
    pub(crate) fn merge_small(&self) -> usize {
        let arrived = self.arrived.swap(0, Ordering::Relaxed);
        let budget = MERGED_PER_COMMIT_MAX.min(arrived * MERGED_PER_ROW + MERGED_PER_COMMIT_MIN);
        let (mut moved, mut merges) = (0, self.merges.lock());
        loop {
            self.begin_merges(&mut merges);
            // The newest first: it is small and done soon.
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

    /// Starts merges where there are too many runs of one size, and drops merges whose runs the flusher has taken.
    fn begin_merges(&self, merges: &mut Vec<(usize, RunMerge)>) {
        let layers = self.layers.lock();
        let place = |space: usize, merging: &RunMerge| find(&layers.active.spaces[space], merging.parts());
        merges.retain(|(space, merging)| place(*space, merging).is_some());
        for (space, runs) in layers.active.spaces.iter().enumerate() {
            let ends = merges.iter().filter(|(other, _)| *other == space);
            let ends = ends.filter_map(|(_, merging)| Some(place(space, merging)? + merging.parts().len()));
            let free = &runs[ends.max().unwrap_or(0)..];
            let lengths: Vec<usize> = free.iter().map(|run| run.len()).collect();
            if let Some(range) = range_to_merge(&lengths) {
                merges.push((space, RunMerge::new(free[range].to_vec())));
            }
        }
    }

    /// Replaces runs by the merged run, unless the flusher has taken them.
    fn replace(&self, space: usize, parts: &[Arc<Run>], merged: Arc<Run>) {
        let mut layers = self.layers.lock();
        let RunLayers { active, .. } = &mut *layers;
        let runs = &mut active.spaces[space];
        let Some(start) = find(runs, parts) else { return };
        let (rows, bytes) = sizes(parts);
        active.rows = active.rows - rows + merged.len();
        active.bytes = active.bytes - bytes + merged.size_bytes();
        runs.splice(start..start + parts.len(), [merged]);
        let mut current = self.current.write();
        *current = Arc::new(ReadView { snapshot: current.snapshot.clone(), runs: layers.runs() });
    }

    /// Waits while there are too many rows in memory. Returns the time waited, or an error if they will not become
    /// fewer.
    pub(crate) fn wait_for_room(&self, state: &StorageState) -> Result<Duration, crate::store::Poisoned> {
        let mut layers = self.layers.lock();
        let is_full = |layers: &RunLayers| {
            layers.frozen.is_some() && layers.active.fills(self.flush_rows * STALL_FACTOR)
        };
        if !is_full(&layers) {
            return Ok(Duration::ZERO);
        }
        let start = Instant::now();
        while is_full(&layers) {
            if state.poisoned().is_some() {
                return Err(crate::store::Poisoned);
            }
            self.changed.wait_for(&mut layers, STALL_CHECK);
        }
        Ok(start.elapsed())
    }

    /// Waits until there is enough to flush, and freezes it; `None` to end.
    pub(crate) fn wait_to_freeze(&self) -> Option<Arc<RunLayer>> {
        let mut layers = self.layers.lock();
        loop {
            if layers.ended {
                return None;
            }
            let wanted = std::mem::take(&mut layers.flush_wanted) && layers.active.rows > 0;
            if wanted || layers.active.fills(self.flush_rows) {
                return Some(layers.freeze());
            }
            self.changed.wait(&mut layers);
        }
    }

    /// Makes the flusher take the current rows, and waits for it; returns early when the storage closes or refuses
    /// writes.
    pub(crate) fn flush_and_wait(&self, state: &StorageState) {
        let mut layers = self.layers.lock();
        layers.flush_wanted = layers.active.rows > 0;
        self.changed.notify_all();
        while (layers.flush_wanted || layers.frozen.is_some()) && !layers.ended && state.poisoned().is_none()
        {
            self.changed.wait_for(&mut layers, STALL_CHECK);
        }
    }

    /// Freezes everything there is to flush: what an earlier flush did not complete comes first.
    pub(crate) fn freeze(&self) -> Option<Arc<RunLayer>> {
        let mut layers = self.layers.lock();
        if layers.frozen.is_some() {
            return layers.frozen.clone();
        }
        (layers.active.rows > 0).then(|| layers.freeze())
    }

    /// The last batch that, with all batches before it, is in tables; 0 before the first flush.
    pub(crate) fn flushed_sequence(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// Drops the frozen layer, which is in tables up to this batch.
    pub(crate) fn drop_frozen(&self, database: &Database, last_sequence: u64) {
        self.flushed.store(last_sequence, Ordering::Release);
        let _gate = self.gate.lock();
        let mut layers = self.layers.lock();
        layers.frozen = None;
        *self.current.write() = Arc::new(ReadView { snapshot: database.snapshot(), runs: layers.runs() });
        self.changed.notify_all();
    }

    /// Publishes changes of tables that were not made by commits, and releases older versions of them.
    pub(crate) fn refresh(&self, database: &Database) {
        let _gate = self.gate.lock();
        let layers = self.layers.lock();
        *self.current.write() = Arc::new(ReadView { snapshot: database.snapshot(), runs: layers.runs() });
    }

    /// Sleeps; false when the flusher must end.
    pub(crate) fn sleep_unless_ended(&self, time: Duration) -> bool {
        let mut layers = self.layers.lock();
        let end = Instant::now() + time;
        while !layers.ended && Instant::now() < end {
            self.changed.wait_until(&mut layers, end);
        }
        !layers.ended
    }

    /// Ends the flusher.
    pub(crate) fn end(&self) {
        self.layers.lock().ended = true;
        self.changed.notify_all();
    }

    pub(crate) fn counters(&self) -> RunCounters {
        let layers = self.layers.lock();
        let layers = [Some(&layers.active), layers.frozen.as_deref()];
        let sum = |of: fn(&RunLayer) -> usize| layers.iter().flatten().map(|layer| of(layer) as u64).sum();
        RunCounters {
            runs: sum(|layer| layer.spaces.iter().map(Vec::len).sum()),
            rows: sum(|layer| layer.rows),
            bytes: sum(|layer| layer.bytes),
        }
    }
}

impl PublishGuard<'_> {
    /// Publishes a batch that is journalled, synced and visible in fjall.
    pub(crate) fn publish(self, database: &Database, runs: [Run; SPACES], sequence: u64) {
        let views = self.views;
        views.arrived.fetch_add(runs.iter().map(Run::len).sum(), Ordering::Relaxed);
        let mut layers = views.layers.lock();
        layers.active.push(runs, sequence);
        *views.current.write() = Arc::new(ReadView { snapshot: database.snapshot(), runs: layers.runs() });
        if layers.frozen.is_none() && layers.active.fills(views.flush_rows) {
            views.changed.notify_all();
        }
    }
}

impl RunLayers {
    fn runs(&self) -> [Vec<Arc<Run>>; SPACES] {
        std::array::from_fn(|space| {
            let frozen = self.frozen.iter().flat_map(|layer| &layer.spaces[space]);
            frozen.chain(&self.active.spaces[space]).cloned().collect()
        })
    }

    fn freeze(&mut self) -> Arc<RunLayer> {
        let layer = Arc::new(std::mem::take(&mut self.active));
        self.frozen = Some(layer.clone());
        layer
    }
}

impl RunLayer {
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

/// The position of consecutive runs among all.
fn find(runs: &[Arc<Run>], parts: &[Arc<Run>]) -> Option<usize> {
    let start = runs.iter().position(|run| parts.first().is_some_and(|part| Arc::ptr_eq(run, part)))?;
    let found = runs.get(start..start + parts.len())?;
    found.iter().zip(parts).all(|(run, part)| Arc::ptr_eq(run, part)).then_some(start)
}

fn sizes(runs: &[Arc<Run>]) -> (usize, usize) {
    runs.iter().fold((0, 0), |(rows, bytes), run| (rows + run.len(), bytes + run.size_bytes()))
}

/// The runs to merge, given all lengths from oldest to newest: the newest that are enough. Newer ones may have been
/// added during a larger merge.
fn range_to_merge(lengths: &[usize]) -> Option<std::ops::Range<usize>> {
    (1..=lengths.len()).rev().find_map(|end| {
        let count = count_to_merge(lengths[..end].iter().copied())?;
        Some(end - count..end)
    })
}

/// The number of newest runs to merge, given all lengths from oldest to newest.
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
