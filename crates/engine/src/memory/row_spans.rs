//! Spans of neighbouring item rows, cached as scans read them: a later scan reads consecutive bytes instead of asking the
//! storage for every row. Single rows that were fetched by child id are cached by the same rules.
//!
//! Invariant: a reader gets what its snapshot has. Child ids fall into buckets, each with a [`WriteSlot`]. A write removes the spans around its
//! items when it begins. So a cached span whose slots have no stamp later than the reader's [`WriteTime`] has not changed since. A
//! span that was read from the snapshot may be cached if its slots are unchanged since that time.
//!
//! Spans of a container do not overlap. When the memory is full, only spans that no recent scan used are removed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::memory::write_clock::{WriteClock, WriteSlot, WriteTime};
use crate::store::keys;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};
use crate::sync::{Mutex, RwLock};

/// By the top bits of the child id, so a span lies in few of them.
const BUCKETS: usize = 256;
const BUCKET_SHIFT: u32 = keys::RID_PREFIX_BITS + keys::RID_COUNTER_BITS - 8;
/// The memory of a span besides its rows.
const SPAN_BYTES: usize = 256;
/// The memory of a single row besides its bytes.
const ROW_BYTES: usize = 64;
/// A span is complete at this size.
const ROWS_BYTES: usize = 256 << 10;
/// Smaller spans are not cached, unless no item follows them.
const ROWS_BYTES_MIN: usize = 32 << 10;
/// A span that was not used for so many scans may be removed.
const IDLE_SCANS: u64 = 64;

pub(crate) struct RowSpans {
    bytes_max: usize,
    bytes: AtomicUsize,
    clock: Arc<WriteClock>,
    scans: AtomicU64,
    /// The count of scans when idle spans were last removed.
    swept: AtomicU64,
    containers: RwLock<HashMap<u32, Arc<Mutex<ContainerSpans>>>>,
    /// By container and child id.
    rows: Cache<(u32, u64), CachedRow, ByBytes>,
}

/// One item's row.
#[derive(Clone)]
struct CachedRow {
    /// The stamp of its bucket when it was read.
    stamp: WriteTime,
    row: Arc<[u8]>,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<(u32, u64), CachedRow> for ByBytes {
    fn weight(&self, _key: &(u32, u64), cached: &CachedRow) -> u64 {
        (ROW_BYTES + cached.row.len()) as u64
    }
}

struct ContainerSpans {
    slots: Box<[WriteSlot; BUCKETS]>,
    by_start: BTreeMap<u64, Arc<RowSpan>>,
}

/// All items from `start` to `end`, both included.
pub(crate) struct RowSpan {
    start: u64,
    end: u64,
    /// Latest stamp of its buckets when it was read.
    stamp: WriteTime,
    /// Child id and where its row begins.
    index: Vec<(u64, u32)>,
    rows: Vec<u8>,
    used: AtomicU64,
}

/// A span while it is read.
pub(crate) struct SpanBuilder {
    start: u64,
    index: Vec<(u64, u32)>,
    rows: Vec<u8>,
}

/// What the cache has from a child id on.
pub(crate) enum SpanLookup {
    Cached(Arc<RowSpan>),
    /// No rows up to `end`, which is before the next span. `room`: there is memory for a new span.
    Gap {
        end: u64,
        room: bool,
    },
}

impl RowSpans {
    /// A third of the memory is for single rows.
    pub fn new(bytes_max: usize, clock: Arc<WriteClock>) -> RowSpans {
        let rows_bytes = bytes_max / 3;
        RowSpans {
            bytes_max: bytes_max - rows_bytes,
            rows: Cache::with_weighter(rows_bytes / 1024 + 1, rows_bytes as u64, ByBytes),
            bytes: AtomicUsize::new(0),
            clock,
            scans: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            containers: RwLock::default(),
        }
    }

    /// Call it before the snapshot of a scan is taken.
    pub fn begin_scan(&self) -> WriteTime {
        self.scans.fetch_add(1, Ordering::Relaxed);
        self.clock.now()
    }

    /// Call it before the commit of a write to these items can become visible.
    pub fn begin_write(&self, container: u32, rids: &[u64]) {
        let spans = self.container(container);
        let mut spans = spans.lock();
        for &rid in rids {
            spans.slots[bucket(rid)].begin_write();
            self.rows.remove(&(container, rid));
            if let Some(start) = spans.span_of(rid).map(|span| span.start) {
                spans.remove(start, &self.bytes);
            }
        }
    }

    /// Call it when the commit is visible, or certainly never will be.
    pub fn end_write(&self, container: u32, rids: &[u64]) {
        let spans = self.container(container);
        let mut spans = spans.lock();
        let stamp = self.clock.advance();
        rids.iter().for_each(|&rid| spans.slots[bucket(rid)].end_write(stamp));
    }

    /// The cached span that contains a child id, or the gap there.
    pub fn find(&self, container: u32, rid: u64, read_at: WriteTime) -> SpanLookup {
        let spans = self.container(container);
        let spans = spans.lock();
        if let Some(span) = spans.span_of(rid) {
            if span.stamp <= read_at {
                span.used.store(self.scans.load(Ordering::Relaxed), Ordering::Relaxed);
                return SpanLookup::Cached(Arc::clone(span));
            }
            return SpanLookup::Gap { end: span.end, room: false };
        }
        let next = spans.by_start.range(rid..).next().map_or(u64::MAX, |(&start, _)| start - 1);
        SpanLookup::Gap { end: next, room: self.has_room(ROWS_BYTES) || self.may_sweep() }
    }

    /// Inserts what was read up to `end`, unless an item may have changed since. `last`: no item follows.
    pub fn insert(&self, container: u32, builder: SpanBuilder, end: u64, last: bool, read_at: WriteTime) {
        if builder.rows.len() < ROWS_BYTES_MIN && !last {
            return;
        }
        if !self.has_room(builder.rows.len()) {
            self.sweep();
        }
        let spans = self.container(container);
        let mut spans = spans.lock();
        let buckets = bucket(builder.start)..=bucket(end);
        let is_being_written = spans.slots[buckets.clone()].iter().any(WriteSlot::is_being_written);
        let stamp = spans.slots[buckets].iter().map(WriteSlot::stamp).max().unwrap_or(WriteTime::ZERO);
        #[cfg(feature = "schedules")]
        let (is_being_written, stamp) = (
            is_being_written && !is_put_back(Race::SpanKeptBesideWrite),
            if is_put_back(Race::SpanKeptFromBefore) { WriteTime::ZERO } else { stamp },
        );
        let overlaps = spans.span_of(builder.start).is_some()
            || spans.by_start.range(builder.start..=end).next().is_some();
        if is_being_written || stamp > read_at || overlaps {
            return;
        }
        let SpanBuilder { start, mut index, mut rows } = builder;
        index.shrink_to_fit();
        rows.shrink_to_fit();
        let used = AtomicU64::new(self.scans.load(Ordering::Relaxed));
        let span = RowSpan { start, end, stamp, index, rows, used };
        if self.has_room(span.bytes()) {
            self.bytes.fetch_add(span.bytes(), Ordering::Relaxed);
            spans.by_start.insert(start, Arc::new(span));
        }
    }

    /// The rows of items that are cached, in the order of the ids.
    pub fn rows(&self, container: u32, rids: &[u64], read_at: WriteTime) -> Vec<Option<Arc<[u8]>>> {
        let cached = |&rid: &u64| self.rows.get(&(container, rid)).filter(|cached| cached.stamp <= read_at);
        let mut rows: Vec<Option<Arc<[u8]>>> =
            rids.iter().map(|rid| cached(rid).map(|cached| cached.row)).collect();
        if rows.iter().any(Option::is_none) {
            let spans = self.container(container);
            let spans = spans.lock();
            for (&rid, row) in rids.iter().zip(&mut rows).filter(|(_, row)| row.is_none()) {
                let span = spans.span_of(rid).filter(|span| span.stamp <= read_at);
                *row = span.and_then(|span| span.get(rid)).map(Arc::from);
            }
        }
        rows
    }

    /// Inserts rows that were read from the snapshot, except those that may have changed since.
    pub fn insert_rows<'r>(
        &self,
        container: u32,
        rows: impl Iterator<Item = (u64, &'r Arc<[u8]>)>,
        read_at: WriteTime,
    ) {
        let spans = self.container(container);
        let spans = spans.lock();
        for (rid, row) in rows {
            let slot = spans.slots[bucket(rid)];
            if slot.is_unchanged_since(read_at) {
                let row = Arc::clone(row);
                self.rows.insert((container, rid), CachedRow { stamp: slot.stamp(), row });
            }
        }
    }

    /// Removes a container that takes no more writes in any partition. Its slots stay while a write whose outcome is unknown is in
    /// progress.
    pub fn remove_container(&self, container: u32) {
        let mut containers = self.containers.write();
        let Some(spans) = containers.get(&container).cloned() else { return };
        let mut spans = spans.lock();
        while let Some((&start, _)) = spans.by_start.first_key_value() {
            spans.remove(start, &self.bytes);
        }
        if !spans.slots.iter().any(WriteSlot::is_being_written) {
            containers.remove(&container);
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.rows.weight() as usize
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.load(Ordering::Relaxed) + bytes <= self.bytes_max
    }

    /// A sweep reads all spans, so it does not run for every scan.
    fn may_sweep(&self) -> bool {
        self.scans.load(Ordering::Relaxed) >= self.swept.load(Ordering::Relaxed) + IDLE_SCANS / 4
    }

    /// Removes what no recent scan used.
    fn sweep(&self) {
        if !self.may_sweep() {
            return;
        }
        let scans = self.scans.load(Ordering::Relaxed);
        self.swept.store(scans, Ordering::Relaxed);
        let containers: Vec<_> = self.containers.read().values().cloned().collect();
        containers.iter().for_each(|spans| spans.lock().remove_idle(scans, &self.bytes));
    }

    fn container(&self, container: u32) -> Arc<Mutex<ContainerSpans>> {
        if let Some(spans) = self.containers.read().get(&container) {
            return Arc::clone(spans);
        }
        Arc::clone(self.containers.write().entry(container).or_default())
    }
}

impl Default for ContainerSpans {
    fn default() -> ContainerSpans {
        ContainerSpans { slots: Box::new([WriteSlot::default(); BUCKETS]), by_start: BTreeMap::new() }
    }
}

impl ContainerSpans {
    fn span_of(&self, rid: u64) -> Option<&Arc<RowSpan>> {
        self.by_start.range(..=rid).next_back().map(|(_, span)| span).filter(|span| rid <= span.end)
    }

    fn remove(&mut self, start: u64, bytes: &AtomicUsize) {
        if let Some(span) = self.by_start.remove(&start) {
            bytes.fetch_sub(span.bytes(), Ordering::Relaxed);
        }
    }

    fn remove_idle(&mut self, scans: u64, bytes: &AtomicUsize) {
        let idle: Vec<u64> =
            self.by_start.values().filter(|span| span.is_idle(scans)).map(|span| span.start).collect();
        idle.into_iter().for_each(|start| self.remove(start, bytes));
    }
}

impl RowSpan {
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
        SPAN_BYTES + self.rows.len() + self.index.len() * size_of::<(u64, u32)>()
    }

    fn is_idle(&self, scans: u64) -> bool {
        self.used.load(Ordering::Relaxed) + IDLE_SCANS < scans
    }
}

impl SpanBuilder {
    pub fn new(start: u64) -> SpanBuilder {
        SpanBuilder { start, index: Vec::new(), rows: Vec::with_capacity(ROWS_BYTES) }
    }

    /// Adds the next item. True: the span is complete.
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

    fn builder(start: u64, rids: &[u64]) -> SpanBuilder {
        let mut builder = SpanBuilder::new(start);
        for &rid in rids {
            builder.push(rid, &BIG);
        }
        builder
    }

    fn ids(place: SpanLookup, from: u64) -> Option<Vec<u64>> {
        match place {
            SpanLookup::Cached(span) => Some(span.from(from).map(|(rid, _)| rid).collect()),
            SpanLookup::Gap { .. } => None,
        }
    }

    #[test]
    fn a_span_is_found_from_any_id_on() {
        let spans = RowSpans::new(1 << 20, Arc::default());
        let read_at = spans.begin_scan();
        spans.insert(1, builder(0, &[3, 5, 9]), 9, false, read_at);
        assert_eq!(ids(spans.find(1, 0, read_at), 0), Some(vec![3, 5, 9]));
        assert_eq!(ids(spans.find(1, 4, read_at), 4), Some(vec![5, 9]));
        assert_eq!(ids(spans.find(1, 10, read_at), 10), None);
        assert_eq!(ids(spans.find(2, 4, read_at), 4), None);
        assert!(matches!(spans.find(1, 10, read_at), SpanLookup::Gap { end: u64::MAX, room: true }));
    }

    #[test]
    fn a_write_removes_the_span_around_it() {
        let spans = RowSpans::new(1 << 20, Arc::default());
        let read_at = spans.begin_scan();
        spans.insert(1, builder(0, &[3, 5, 9]), 9, false, read_at);
        spans.begin_write(1, &[4]);
        assert_eq!(ids(spans.find(1, 0, read_at), 0), None);
        assert_eq!(spans.bytes(), 0);
        spans.end_write(1, &[4]);
    }

    #[test]
    fn nothing_is_kept_beside_a_write_or_from_before_it() {
        let spans = RowSpans::new(1 << 20, Arc::default());
        let before = spans.begin_scan();
        spans.begin_write(1, &[4]);
        let during = spans.begin_scan();
        spans.insert(1, builder(0, &[3, 9]), 9, false, before);
        spans.insert(1, builder(0, &[3, 9]), 9, false, during);
        spans.end_write(1, &[4]);
        spans.insert(1, builder(0, &[3, 9]), 9, false, before);
        spans.insert(1, builder(0, &[3, 9]), 9, false, during);
        assert_eq!(ids(spans.find(1, 0, spans.begin_scan()), 0), None);
        let after = spans.begin_scan();
        spans.insert(1, builder(0, &[3, 4, 9]), 9, false, after);
        assert_eq!(ids(spans.find(1, 0, after), 0), Some(vec![3, 4, 9]));
        // A reader whose snapshot is older does not get it.
        assert_eq!(ids(spans.find(1, 0, before), 0), None);
    }

    #[test]
    fn single_rows_are_kept_by_the_same_rules() {
        let spans = RowSpans::new(1 << 20, Arc::default());
        let row: Arc<[u8]> = Arc::from(&b"row"[..]);
        let is_cached = |rid: u64, read_at: WriteTime| spans.rows(1, &[rid], read_at)[0].is_some();
        let before = spans.begin_scan();
        spans.insert_rows(1, [(5, &row)].into_iter(), before);
        assert!(is_cached(5, before) && !is_cached(6, before));
        spans.begin_write(1, &[5]);
        assert!(!is_cached(5, before));
        spans.insert_rows(1, [(5, &row)].into_iter(), before);
        assert!(!is_cached(5, before), "a write is under way");
        spans.end_write(1, &[5]);
        spans.insert_rows(1, [(5, &row)].into_iter(), before);
        assert!(!is_cached(5, spans.begin_scan()), "the snapshot is from before the write");
        let after = spans.begin_scan();
        spans.insert_rows(1, [(5, &row)].into_iter(), after);
        assert!(is_cached(5, after) && !is_cached(5, before));
        // Rows of spans are found, too.
        spans.insert(1, builder(10, &[10, 20]), 20, false, after);
        assert!(is_cached(20, after) && !is_cached(15, after));
    }

    #[test]
    fn spans_do_not_overlap() {
        let spans = RowSpans::new(1 << 20, Arc::default());
        let read_at = spans.begin_scan();
        spans.insert(1, builder(10, &[10, 20]), 20, false, read_at);
        spans.insert(1, builder(5, &[5, 12]), 12, false, read_at);
        spans.insert(1, builder(15, &[20, 30]), 30, false, read_at);
        assert_eq!(ids(spans.find(1, 5, read_at), 5), None);
        assert!(matches!(spans.find(1, 5, read_at), SpanLookup::Gap { end: 9, .. }));
        assert_eq!(ids(spans.find(1, 15, read_at), 15), Some(vec![20]));
    }

    #[test]
    fn full_memory_takes_new_spans_for_idle_ones_only() {
        let spans = RowSpans::new(3 * ROWS_BYTES_MIN / 2 * 3, Arc::default());
        let read_at = spans.begin_scan();
        spans.insert(1, builder(0, &[1, 2]), 9, false, read_at);
        spans.insert(1, builder(10, &[11, 12]), 19, false, read_at);
        assert_eq!(ids(spans.find(1, 10, read_at), 10), None);
        for _ in 0..=IDLE_SCANS {
            spans.begin_scan();
        }
        spans.insert(1, builder(10, &[11, 12]), 19, false, read_at);
        assert_eq!(ids(spans.find(1, 10, read_at), 10), Some(vec![11, 12]));
        assert_eq!(ids(spans.find(1, 0, read_at), 0), None);
        spans.remove_container(1);
        assert_eq!(spans.bytes(), 0);
    }
}
