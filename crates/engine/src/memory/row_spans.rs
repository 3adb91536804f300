//! Stretches of neighbouring items, kept in memory as scans read them: a later scan walks bytes that lie side by side
//! instead of asking the storage for every row.
//!
//! Invariant: what a reader gets is what its snapshot has. Item ids fall into buckets; every write counts itself as under
//! way in the buckets of its items, and drops the stretches around them, **before** its commit can become visible, and
//! stamps the buckets with the next tick of one clock when it is through. A reader notes the clock before it takes its
//! snapshot. So a stretch that is there, whose buckets were last stamped no later than that, has not changed since, and
//! one that was read from the snapshot may be kept if nothing is under way in its buckets and none was stamped later.
//!
//! Single rows that were fetched by their ids are kept by the same rules.
//!
//! Stretches of a container do not overlap. When the memory is full, only those that no recent scan used make room.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::store::keys;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};
use crate::sync::{Mutex, RwLock};

/// By the top bits of the child id, so a stretch lies in few of them.
const BUCKETS: usize = 256;
const BUCKET_SHIFT: u32 = keys::RID_PREFIX_BITS + keys::RID_COUNTER_BITS - 8;
/// What a stretch takes besides its rows.
const STRETCH_BYTES: usize = 256;
/// What a single row takes besides itself.
const ROW_BYTES: usize = 64;
/// A stretch is complete at this size.
const ROWS_BYTES: usize = 256 << 10;
/// Smaller ones are not worth the place, unless nothing lies behind them.
const ROWS_BYTES_MIN: usize = 32 << 10;
/// A stretch that so many scans have passed by may go.
const IDLE_SCANS: u64 = 64;

pub(crate) struct Stretches {
    bytes_max: usize,
    bytes: AtomicUsize,
    /// Rises with every write that is through.
    clock: AtomicU64,
    scans: AtomicU64,
    /// The count of scans when idle stretches were last looked for.
    swept: AtomicU64,
    containers: RwLock<HashMap<u32, Arc<Mutex<Kept>>>>,
    /// By container and child id.
    rows: Cache<(u32, u64), KeptRow, ByBytes>,
}

/// One item's row.
#[derive(Clone)]
struct KeptRow {
    /// The stamp of its bucket when it was read.
    stamped: u64,
    row: Arc<[u8]>,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<(u32, u64), KeptRow> for ByBytes {
    fn weight(&self, _key: &(u32, u64), kept: &KeptRow) -> u64 {
        (ROW_BYTES + kept.row.len()) as u64
    }
}

/// The clock as it stood before a snapshot was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen(u64);

struct Kept {
    under_way: Box<[u32; BUCKETS]>,
    stamped: Box<[u64; BUCKETS]>,
    by_start: BTreeMap<u64, Arc<Stretch>>,
}

/// All items from `start` to `end`, both included.
pub(crate) struct Stretch {
    start: u64,
    end: u64,
    /// Latest stamp of its buckets when it was made.
    stamped: u64,
    /// Child id and where its row begins.
    index: Vec<(u64, u32)>,
    rows: Vec<u8>,
    used: AtomicU64,
}

/// A stretch as it is being read.
pub(crate) struct Draft {
    start: u64,
    index: Vec<(u64, u32)>,
    rows: Vec<u8>,
}

/// What a scan finds where it stands.
pub(crate) enum Place {
    Kept(Arc<Stretch>),
    /// Nothing up to here, which is before the next stretch; and whether there is room for a new one.
    Gap {
        end: u64,
        room: bool,
    },
}

impl Stretches {
    /// A third of the memory is for single rows.
    pub fn new(bytes_max: usize) -> Stretches {
        let rows_bytes = bytes_max / 3;
        Stretches {
            bytes_max: bytes_max - rows_bytes,
            rows: Cache::with_weighter(rows_bytes / 1024 + 1, rows_bytes as u64, ByBytes),
            bytes: AtomicUsize::new(0),
            clock: AtomicU64::new(0),
            scans: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            containers: RwLock::default(),
        }
    }

    /// To be called before the snapshot is taken.
    pub fn now(&self) -> Seen {
        self.scans.fetch_add(1, Ordering::Relaxed);
        Seen(self.clock.load(Ordering::Acquire))
    }

    /// Before the commit of a write to these items can become visible.
    pub fn begin_write(&self, container: u32, rids: &[u64]) {
        let kept = self.kept(container);
        let mut kept = kept.lock();
        for &rid in rids {
            kept.under_way[bucket(rid)] += 1;
            self.rows.remove(&(container, rid));
            if let Some(stretch) = kept.around(rid).map(|stretch| stretch.start) {
                kept.remove(stretch, &self.bytes);
            }
        }
    }

    /// After it is visible, or certainly never will be.
    pub fn end_write(&self, container: u32, rids: &[u64]) {
        let kept = self.kept(container);
        let mut kept = kept.lock();
        let stamp = self.clock.load(Ordering::Acquire) + 1;
        for &rid in rids {
            kept.under_way[bucket(rid)] -= 1;
            kept.stamped[bucket(rid)] = stamp;
        }
        // Other containers stamp at the same time: the clock only has to be past every stamp that was given.
        self.clock.fetch_max(stamp, Ordering::AcqRel);
    }

    /// What is known around an item id.
    pub fn find(&self, container: u32, rid: u64, seen: Seen) -> Place {
        let kept = self.kept(container);
        let kept = kept.lock();
        if let Some(stretch) = kept.around(rid) {
            if stretch.stamped <= seen.0 {
                stretch.used.store(self.scans.load(Ordering::Relaxed), Ordering::Relaxed);
                return Place::Kept(Arc::clone(stretch));
            }
            return Place::Gap { end: stretch.end, room: false };
        }
        let next = kept.by_start.range(rid..).next().map_or(u64::MAX, |(&start, _)| start - 1);
        Place::Gap { end: next, room: self.has_room(ROWS_BYTES) || self.may_sweep() }
    }

    /// Keeps what was read up to `end`, if it is still what the items are. `last`: nothing lies behind it.
    pub fn keep(&self, container: u32, draft: Draft, end: u64, last: bool, seen: Seen) {
        if draft.rows.len() < ROWS_BYTES_MIN && !last {
            return;
        }
        if !self.has_room(draft.rows.len()) {
            self.sweep();
        }
        let kept = self.kept(container);
        let mut kept = kept.lock();
        let buckets = bucket(draft.start)..=bucket(end);
        let quiet = kept.under_way[buckets.clone()].iter().all(|&count| count == 0);
        let stamped = kept.stamped[buckets].iter().copied().max().unwrap_or(0);
        #[cfg(feature = "schedules")]
        let (quiet, stamped) = (
            quiet || is_put_back(Race::SpanKeptBesideWrite),
            if is_put_back(Race::SpanKeptFromBefore) { 0 } else { stamped },
        );
        let overlaps =
            kept.around(draft.start).is_some() || kept.by_start.range(draft.start..=end).next().is_some();
        if !quiet || stamped > seen.0 || overlaps {
            return;
        }
        let Draft { start, mut index, mut rows } = draft;
        index.shrink_to_fit();
        rows.shrink_to_fit();
        let used = AtomicU64::new(self.scans.load(Ordering::Relaxed));
        let stretch = Stretch { start, end, stamped, index, rows, used };
        if self.has_room(stretch.bytes()) {
            self.bytes.fetch_add(stretch.bytes(), Ordering::Relaxed);
            kept.by_start.insert(start, Arc::new(stretch));
        }
    }

    /// Rows of items that are known, in the order asked for.
    pub fn rows(&self, container: u32, rids: &[u64], seen: Seen) -> Vec<Option<Arc<[u8]>>> {
        let known = |&rid: &u64| self.rows.get(&(container, rid)).filter(|kept| kept.stamped <= seen.0);
        let mut rows: Vec<Option<Arc<[u8]>>> =
            rids.iter().map(|rid| known(rid).map(|kept| kept.row)).collect();
        if rows.iter().any(Option::is_none) {
            let kept = self.kept(container);
            let kept = kept.lock();
            for (&rid, row) in rids.iter().zip(&mut rows).filter(|(_, row)| row.is_none()) {
                let stretch = kept.around(rid).filter(|stretch| stretch.stamped <= seen.0);
                *row = stretch.and_then(|stretch| stretch.get(rid)).map(Arc::from);
            }
        }
        rows
    }

    /// Keeps rows that were read from the snapshot, as far as they are still what the items are.
    pub fn keep_rows<'r>(
        &self,
        container: u32,
        rows: impl Iterator<Item = (u64, &'r Arc<[u8]>)>,
        seen: Seen,
    ) {
        let kept = self.kept(container);
        let kept = kept.lock();
        for (rid, row) in rows {
            let stamped = kept.stamped[bucket(rid)];
            if kept.under_way[bucket(rid)] == 0 && stamped <= seen.0 {
                self.rows.insert((container, rid), KeptRow { stamped, row: Arc::clone(row) });
            }
        }
    }

    /// The container takes no writes any more, in none of its partitions. A write whose outcome nobody knows may still
    /// count as under way: then the counts stay.
    pub fn forget(&self, container: u32) {
        let mut containers = self.containers.write();
        let Some(kept) = containers.get(&container).cloned() else { return };
        let mut kept = kept.lock();
        while let Some((&start, _)) = kept.by_start.first_key_value() {
            kept.remove(start, &self.bytes);
        }
        if kept.under_way.iter().all(|count| *count == 0) {
            containers.remove(&container);
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.rows.weight() as usize
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.load(Ordering::Relaxed) + bytes <= self.bytes_max
    }

    /// Not at every turn: it looks at everything.
    fn may_sweep(&self) -> bool {
        self.scans.load(Ordering::Relaxed) >= self.swept.load(Ordering::Relaxed) + IDLE_SCANS / 4
    }

    /// Lets go of what no recent scan used.
    fn sweep(&self) {
        if !self.may_sweep() {
            return;
        }
        let scans = self.scans.load(Ordering::Relaxed);
        self.swept.store(scans, Ordering::Relaxed);
        let containers: Vec<_> = self.containers.read().values().cloned().collect();
        containers.iter().for_each(|kept| kept.lock().remove_idle(scans, &self.bytes));
    }

    fn kept(&self, container: u32) -> Arc<Mutex<Kept>> {
        if let Some(kept) = self.containers.read().get(&container) {
            return Arc::clone(kept);
        }
        Arc::clone(self.containers.write().entry(container).or_default())
    }
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { under_way: Box::new([0; BUCKETS]), stamped: Box::new([0; BUCKETS]), by_start: BTreeMap::new() }
    }
}

impl Kept {
    fn around(&self, rid: u64) -> Option<&Arc<Stretch>> {
        self.by_start
            .range(..=rid)
            .next_back()
            .map(|(_, stretch)| stretch)
            .filter(|stretch| rid <= stretch.end)
    }

    fn remove(&mut self, start: u64, bytes: &AtomicUsize) {
        if let Some(stretch) = self.by_start.remove(&start) {
            bytes.fetch_sub(stretch.bytes(), Ordering::Relaxed);
        }
    }

    fn remove_idle(&mut self, scans: u64, bytes: &AtomicUsize) {
        let idle: Vec<u64> = self
            .by_start
            .values()
            .filter(|stretch| stretch.is_idle(scans))
            .map(|stretch| stretch.start)
            .collect();
        idle.into_iter().for_each(|start| self.remove(start, bytes));
    }
}

impl Stretch {
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Items from an id on, in order.
    pub fn from(&self, rid: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let first = self.index.partition_point(|&(other, _)| other < rid);
        (first..self.index.len()).map(|at| {
            let (rid, start) = self.index[at];
            let end = self.index.get(at + 1).map_or(self.rows.len(), |&(_, next)| next as usize);
            (rid, &self.rows[start as usize..end])
        })
    }

    fn get(&self, rid: u64) -> Option<&[u8]> {
        self.from(rid).next().filter(|&(found, _)| found == rid).map(|(_, row)| row)
    }

    fn bytes(&self) -> usize {
        STRETCH_BYTES + self.rows.len() + self.index.len() * size_of::<(u64, u32)>()
    }

    fn is_idle(&self, scans: u64) -> bool {
        self.used.load(Ordering::Relaxed) + IDLE_SCANS < scans
    }
}

impl Draft {
    pub fn new(start: u64) -> Draft {
        Draft { start, index: Vec::new(), rows: Vec::with_capacity(ROWS_BYTES) }
    }

    /// Adds the next item; true when the stretch is complete with it.
    pub fn push(&mut self, rid: u64, row: &[u8]) -> bool {
        self.index.push((rid, self.rows.len() as u32));
        self.rows.extend_from_slice(row);
        self.rows.len() >= ROWS_BYTES
    }
}

fn bucket(rid: u64) -> usize {
    ((rid >> BUCKET_SHIFT) as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    static BIG: [u8; ROWS_BYTES_MIN] = [7; ROWS_BYTES_MIN];

    fn draft(start: u64, rids: &[u64]) -> Draft {
        let mut draft = Draft::new(start);
        for &rid in rids {
            draft.push(rid, &BIG);
        }
        draft
    }

    fn ids(place: Place, from: u64) -> Option<Vec<u64>> {
        match place {
            Place::Kept(stretch) => Some(stretch.from(from).map(|(rid, _)| rid).collect()),
            Place::Gap { .. } => None,
        }
    }

    #[test]
    fn what_was_read_is_found_from_any_id_on() {
        let stretches = Stretches::new(1 << 20);
        let seen = stretches.now();
        stretches.keep(1, draft(0, &[3, 5, 9]), 9, false, seen);
        assert_eq!(ids(stretches.find(1, 0, seen), 0), Some(vec![3, 5, 9]));
        assert_eq!(ids(stretches.find(1, 4, seen), 4), Some(vec![5, 9]));
        assert_eq!(ids(stretches.find(1, 10, seen), 10), None);
        assert_eq!(ids(stretches.find(2, 4, seen), 4), None);
        assert!(matches!(stretches.find(1, 10, seen), Place::Gap { end: u64::MAX, room: true }));
    }

    #[test]
    fn a_write_drops_the_stretch_around_it() {
        let stretches = Stretches::new(1 << 20);
        let seen = stretches.now();
        stretches.keep(1, draft(0, &[3, 5, 9]), 9, false, seen);
        stretches.begin_write(1, &[4]);
        assert_eq!(ids(stretches.find(1, 0, seen), 0), None);
        assert_eq!(stretches.bytes(), 0);
        stretches.end_write(1, &[4]);
    }

    #[test]
    fn nothing_is_kept_beside_a_write_or_from_before_it() {
        let stretches = Stretches::new(1 << 20);
        let before = stretches.now();
        stretches.begin_write(1, &[4]);
        let during = stretches.now();
        stretches.keep(1, draft(0, &[3, 9]), 9, false, before);
        stretches.keep(1, draft(0, &[3, 9]), 9, false, during);
        stretches.end_write(1, &[4]);
        stretches.keep(1, draft(0, &[3, 9]), 9, false, before);
        stretches.keep(1, draft(0, &[3, 9]), 9, false, during);
        assert_eq!(ids(stretches.find(1, 0, stretches.now()), 0), None);
        let after = stretches.now();
        stretches.keep(1, draft(0, &[3, 4, 9]), 9, false, after);
        assert_eq!(ids(stretches.find(1, 0, after), 0), Some(vec![3, 4, 9]));
        // A reader whose snapshot is older does not get it.
        assert_eq!(ids(stretches.find(1, 0, before), 0), None);
    }

    #[test]
    fn single_rows_are_kept_by_the_same_rules() {
        let stretches = Stretches::new(1 << 20);
        let row: Arc<[u8]> = Arc::from(&b"row"[..]);
        let known = |rid: u64, seen: Seen| stretches.rows(1, &[rid], seen)[0].is_some();
        let before = stretches.now();
        stretches.keep_rows(1, [(5, &row)].into_iter(), before);
        assert!(known(5, before) && !known(6, before));
        stretches.begin_write(1, &[5]);
        assert!(!known(5, before));
        stretches.keep_rows(1, [(5, &row)].into_iter(), before);
        assert!(!known(5, before), "a write is under way");
        stretches.end_write(1, &[5]);
        stretches.keep_rows(1, [(5, &row)].into_iter(), before);
        assert!(!known(5, stretches.now()), "the snapshot is from before the write");
        let after = stretches.now();
        stretches.keep_rows(1, [(5, &row)].into_iter(), after);
        assert!(known(5, after) && !known(5, before));
        // Rows of stretches are found, too.
        stretches.keep(1, draft(10, &[10, 20]), 20, false, after);
        assert!(known(20, after) && !known(15, after));
    }

    #[test]
    fn stretches_do_not_overlap() {
        let stretches = Stretches::new(1 << 20);
        let seen = stretches.now();
        stretches.keep(1, draft(10, &[10, 20]), 20, false, seen);
        stretches.keep(1, draft(5, &[5, 12]), 12, false, seen);
        stretches.keep(1, draft(15, &[20, 30]), 30, false, seen);
        assert_eq!(ids(stretches.find(1, 5, seen), 5), None);
        assert!(matches!(stretches.find(1, 5, seen), Place::Gap { end: 9, .. }));
        assert_eq!(ids(stretches.find(1, 15, seen), 15), Some(vec![20]));
    }

    #[test]
    fn full_memory_takes_new_stretches_for_idle_ones_only() {
        let stretches = Stretches::new(3 * ROWS_BYTES_MIN / 2 * 3);
        let seen = stretches.now();
        stretches.keep(1, draft(0, &[1, 2]), 9, false, seen);
        stretches.keep(1, draft(10, &[11, 12]), 19, false, seen);
        assert_eq!(ids(stretches.find(1, 10, seen), 10), None);
        for _ in 0..=IDLE_SCANS {
            stretches.now();
        }
        stretches.keep(1, draft(10, &[11, 12]), 19, false, seen);
        assert_eq!(ids(stretches.find(1, 10, seen), 10), Some(vec![11, 12]));
        assert_eq!(ids(stretches.find(1, 0, seen), 0), None);
        stretches.forget(1);
        assert_eq!(stretches.bytes(), 0);
    }
}
