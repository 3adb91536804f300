//! Reads the visible items of a scope from one snapshot: in place, in the order of partitions and child ids, or by
//! child id.

use std::collections::HashSet;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Instant;

use quire_storage::{Direction, KeyRange, Scan, Snapshot};

use super::meter::PageMeter;
use super::partition_scope::{ItemPosition, PartitionScope, scopes_of_rid};
use super::read_snapshot::ReadSnapshot;
use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::items::visibility::VisibilityPoint;
use crate::memory::row_spans::{RowSpans, SpanBuilder, SpanLookup};
use crate::memory::write_clock::WriteTime;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys;

/// Rows per call of the storage, which may hold a lock during the call.
const ROWS_MAX: usize = 1024;
const ROWS_SHOWN: usize = 256;
const BYTES_MAX: usize = 4 << 20;
/// The cost of reading an item, in steps of the meter.
const ITEM_STEPS: u64 = 64;
/// The same for finding the first row of a range in an index, and for a row of it.
const SEEK_STEPS: u64 = 128;
const INDEX_ROW_STEPS: u64 = 16;

pub(crate) struct ScopeReader<'a> {
    pub container: &'a Container,
    pub snapshot: Arc<dyn Snapshot>,
    pub scopes: &'a [PartitionScope<'a>],
    pub meter: PageMeter,
    pub visibility_point: VisibilityPoint,
    hidden: Arc<HashSet<u64>>,
    row_spans: &'a RowSpans,
    write_time: WriteTime,
}

/// An item, borrowed for one call of a visitor.
pub(crate) struct FoundItem<'a> {
    pub position: ItemPosition,
    pub row: ItemRow<'a>,
}

/// The answer of a visitor to an item.
pub(crate) enum VisitNext {
    More,
    Enough,
    /// The item does not fit: the next page reads it again.
    NotThis,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScanEnd {
    /// All items were visited.
    Done,
    /// The visitor stopped.
    Stopped,
    /// The budget is spent. The next page begins here.
    Paused(ItemPosition),
}

/// Moves the end of a range from which it is read.
pub(crate) fn continue_range(range: &mut KeyRange, direction: Direction, from: Bound<Vec<u8>>) {
    match direction {
        Direction::Forward => range.start = from,
        Direction::Backward => range.end = from,
    }
}

pub(crate) type ItemVisitor<'v> = dyn FnMut(&FoundItem<'_>) -> Result<VisitNext, EngineError> + 'v;

impl<'a> ScopeReader<'a> {
    pub fn new(
        shared: &'a Shared,
        container: &'a Container,
        read_snapshot: &ReadSnapshot,
        scopes: &'a [PartitionScope<'a>],
        meter: PageMeter,
    ) -> ScopeReader<'a> {
        let (snapshot, visibility_point) =
            (Arc::clone(&read_snapshot.snapshot), read_snapshot.visibility_point.clone());
        let (row_spans, write_time) = (&shared.row_spans, read_snapshot.write_time);
        let hidden = Arc::clone(&read_snapshot.hidden);
        ScopeReader { container, snapshot, scopes, meter, visibility_point, hidden, row_spans, write_time }
    }

    /// Whether the transaction of this snapshot has deleted items that the storage and its indexes still have.
    pub fn hides_items(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// The index of the scope that contains the position of an earlier page. `PartitionGone`: the partition no longer
    /// exists.
    pub fn scope_index(&self, from: Option<ItemPosition>) -> Result<usize, EngineError> {
        let Some(position) = from else { return Ok(0) };
        let found = self.scopes.iter().position(|scope| scope.reaches(position));
        found.ok_or_else(|| EngineError::PartitionGone { id: position.partition.to_string() })
    }

    /// Visits every visible item of the scopes, from a position on.
    pub fn scan(
        &mut self,
        from: Option<ItemPosition>,
        visit: &mut ItemVisitor<'_>,
    ) -> Result<ScanEnd, EngineError> {
        let first = self.scope_index(from)?;
        let mut rid = from.map(|position| position.rid);
        for scope in &self.scopes[first..] {
            match self.scan_scope(scope, rid.take(), visit)? {
                ScanEnd::Done => {}
                end => return Ok(end),
            }
        }
        Ok(ScanEnd::Done)
    }

    /// The same by child id alone, where scopes share ids at their edges; forward, or backward from an id.
    pub fn scan_by_rid(
        &mut self,
        from: u64,
        direction: Direction,
        visit: &mut ItemVisitor<'_>,
    ) -> Result<ScanEnd, EngineError> {
        for (low, high) in self.intervals_from(from, direction) {
            let mut range = KeyRange {
                start: Bound::Included(keys::item(self.container.number, low)),
                end: Bound::Included(keys::item(self.container.number, high)),
            };
            loop {
                let scan = scan(keys::ITEMS, range.clone(), direction, ROWS_SHOWN, false);
                let page = self.snapshot.scan(&scan)?;
                for (key, bytes) in &page.rows {
                    let rid = keys::rid_of_item_key(key).ok_or_else(|| corrupt("item key"))?;
                    ItemRow::parse(bytes)?;
                    match self.show(rid, bytes, visit)? {
                        ScanEnd::Done => {}
                        end => return Ok(end),
                    }
                }
                let Some((last, _)) = page.rows.into_iter().next_back().filter(|_| page.more) else { break };
                continue_range(&mut range, direction, Bound::Excluded(last));
            }
        }
        Ok(ScanEnd::Done)
    }

    /// The number of items in the scopes, at most `limit`; true if these are all. Does not check items at the edges of
    /// partitions.
    pub fn count_items(&mut self, limit: u64) -> Result<(u64, bool), EngineError> {
        let mut count = 0;
        for (low, high) in self.intervals() {
            let range = KeyRange {
                start: Bound::Included(keys::item(self.container.number, low)),
                end: Bound::Included(keys::item(self.container.number, high)),
            };
            let left = usize::try_from(limit - count).unwrap_or(usize::MAX);
            let scan = Scan {
                bytes_max: usize::MAX,
                ..scan(keys::ITEMS, range, Direction::Forward, left.max(1), true)
            };
            let mut outcome = Ok(());
            let meter = &self.meter;
            let more = self.snapshot.visit(&scan, &mut |_, _| {
                count += 1;
                outcome = meter.spend(1);
                if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            outcome?;
            if more || count >= limit {
                return Ok((count, false));
            }
        }
        Ok((count, true))
    }

    /// The child ids of all scopes, ascending and without overlaps.
    pub fn intervals(&self) -> Vec<(u64, u64)> {
        let mut intervals: Vec<(u64, u64)> = Vec::new();
        for (low, high) in self.scopes.iter().map(PartitionScope::rids) {
            match intervals.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => intervals.push((low, high)),
            }
        }
        intervals
    }

    /// The same from an id on, in the order in which they are read.
    pub fn intervals_from(&self, from: u64, direction: Direction) -> Vec<(u64, u64)> {
        let mut intervals = self.intervals();
        if direction == Direction::Backward {
            intervals.reverse();
        }
        let clipped = intervals.into_iter().map(|(low, high)| match direction {
            Direction::Forward => (low.max(from), high),
            Direction::Backward => (low, high.min(from)),
        });
        clipped.filter(|(low, high)| low <= high).collect()
    }

    fn scan_scope(
        &mut self,
        scope: &PartitionScope<'_>,
        from: Option<u64>,
        visit: &mut ItemVisitor<'_>,
    ) -> Result<ScanEnd, EngineError> {
        self.meter.enter(scope.partition.layout.id);
        let (first, last) = scope.rids();
        let mut at = from.unwrap_or(first).max(first);
        while at <= last {
            let reached = match self.cached_span(scope, at) {
                SpanLookup::Cached(span) => {
                    for (rid, bytes) in span.from(at).take_while(|&(rid, _)| rid <= last) {
                        match self.show_row(scope, rid, (ItemRow::trusted(bytes)?, bytes.len()), visit)? {
                            ScanEnd::Done => {}
                            end => return Ok(end),
                        }
                    }
                    span.end()
                }
                SpanLookup::Gap { end, room } => {
                    match self.scan_gap(scope, (at, end.min(last)), room, visit)? {
                        (ScanEnd::Done, reached) => reached,
                        (end, _) => return Ok(end),
                    }
                }
            };
            at = reached.saturating_add(1);
        }
        Ok(ScanEnd::Done)
    }

    /// A single logical partition is a short range of rows, which is not cached.
    fn cached_span(&self, scope: &PartitionScope<'_>, rid: u64) -> SpanLookup {
        match scope.prefixes {
            (first, last) if first == last => SpanLookup::Gap { end: u64::MAX, room: false },
            _ => self.row_spans.find(self.container.number, rid, self.write_time),
        }
    }

    /// Reads items from the storage, and caches them as a span if `room`. Also returns the last child id: that of the
    /// end, or of the complete span.
    fn scan_gap(
        &mut self,
        scope: &PartitionScope<'_>,
        (first, last): (u64, u64),
        room: bool,
        visit: &mut ItemVisitor<'_>,
    ) -> Result<(ScanEnd, u64), EngineError> {
        let number = self.container.number;
        let mut draft = room.then(|| SpanBuilder::new(first));
        let mut range = KeyRange {
            start: Bound::Included(keys::item(number, first)),
            end: Bound::Included(keys::item(number, last)),
        };
        loop {
            let (mut shown, mut outcome, mut complete) = (None, Ok(ScanEnd::Done), false);
            let scan = scan(keys::ITEMS, range.clone(), Direction::Forward, ROWS_MAX, false);
            let ScopeReader { container, snapshot, meter, visibility_point, hidden, .. } = self;
            let visibility = Visibility { container, visibility_point, hidden };
            let more = snapshot.visit(&scan, &mut |key, bytes| {
                let rid = keys::rid_of_item_key(key).ok_or_else(|| corrupt("item key"));
                outcome = rid.and_then(|rid| {
                    let row = ItemRow::parse(bytes)?;
                    let end = show_row(visibility, meter, scope, rid, (row, bytes.len()), visit)?;
                    if matches!(end, ScanEnd::Done) {
                        shown = Some(rid);
                        complete = draft.as_mut().is_some_and(|draft| draft.push(rid, bytes));
                    }
                    Ok(end)
                });
                if complete || !matches!(outcome, Ok(ScanEnd::Done)) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })?;
            let end = outcome?;
            let finished = matches!(end, ScanEnd::Done) && !complete && !more;
            if finished || complete || !matches!(end, ScanEnd::Done) {
                let reached = if finished { last } else { shown.unwrap_or(first) };
                if let Some(draft) = draft.filter(|_| finished || shown.is_some()) {
                    self.row_spans.insert(number, draft, reached, finished, self.write_time);
                }
                return Ok((end, reached));
            }
            let Some(shown) = shown else { return Ok((end, last)) };
            range.start = Bound::Excluded(keys::item(number, shown));
        }
    }

    fn show_row(
        &mut self,
        scope: &PartitionScope<'_>,
        rid: u64,
        row: (ItemRow<'_>, usize),
        visit: &mut ItemVisitor<'_>,
    ) -> Result<ScanEnd, EngineError> {
        let visibility = Visibility {
            container: self.container,
            visibility_point: &self.visibility_point,
            hidden: &self.hidden,
        };
        show_row(visibility, &mut self.meter, scope, rid, row, visit)
    }

    /// The rows of items in the order of `rids`; `None`: deleted. Their checksums are verified.
    pub fn fetch(&mut self, rids: &[u64]) -> Result<Vec<Option<Arc<[u8]>>>, EngineError> {
        let started = Instant::now();
        let number = self.container.number;
        let mut rows = self.row_spans.rows(number, rids, self.write_time);
        let unknown: Vec<usize> = (0..rids.len()).filter(|&at| rows[at].is_none()).collect();
        if !unknown.is_empty() {
            let keys: Vec<Vec<u8>> = unknown.iter().map(|&at| keys::item(number, rids[at])).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            for (&at, bytes) in unknown.iter().zip(self.snapshot.multi_get(keys::ITEMS, &keys)?) {
                if let Some(bytes) = bytes {
                    ItemRow::parse(&bytes)?;
                    rows[at] = Some(Arc::from(bytes));
                }
            }
            let read = unknown.iter().filter_map(|&at| Some((rids[at], rows[at].as_ref()?)));
            self.row_spans.insert_rows(number, read, self.write_time);
        }
        self.meter.load_time += started.elapsed();
        Ok(rows)
    }

    /// Visits an item that was fetched, if it is visible and in this scope.
    pub fn show_in(
        &mut self,
        scope: &PartitionScope<'_>,
        rid: u64,
        bytes: &[u8],
        visit: &mut ItemVisitor<'_>,
    ) -> Result<ScanEnd, EngineError> {
        let row = ItemRow::trusted(bytes)?;
        if !scope.accepts(&self.container.definition.partition_key, rid, &row)? {
            self.meter.count(bytes.len());
            return Ok(ScanEnd::Done);
        }
        let found = FoundItem { position: scope.position(rid), row };
        let visibility = Visibility {
            container: self.container,
            visibility_point: &self.visibility_point,
            hidden: &self.hidden,
        };
        show(visibility, &mut self.meter, &found, bytes.len(), visit)
    }

    /// The same without the budget: for items that must be in the same page as those before them.
    pub fn show_always(
        &mut self,
        scope: &PartitionScope<'_>,
        rid: u64,
        bytes: &[u8],
        visit: &mut dyn FnMut(&FoundItem<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let row = ItemRow::trusted(bytes)?;
        self.meter.spend(ITEM_STEPS)?;
        self.meter.count(bytes.len());
        let is_in = scope.accepts(&self.container.definition.partition_key, rid, &row)?;
        let visibility = Visibility {
            container: self.container,
            visibility_point: &self.visibility_point,
            hidden: &self.hidden,
        };
        if !is_in || visibility.is_hidden(rid, &row) {
            return Ok(());
        }
        visit(&FoundItem { position: scope.position(rid), row })
    }

    /// Visits an item that was fetched, in whichever scope contains it.
    pub fn show(
        &mut self,
        rid: u64,
        bytes: &[u8],
        visit: &mut ItemVisitor<'_>,
    ) -> Result<ScanEnd, EngineError> {
        let row = ItemRow::trusted(bytes)?;
        let ScopeReader { container, scopes, meter, visibility_point, hidden, .. } = self;
        for scope in scopes_of_rid(scopes, rid) {
            if scope.accepts(&container.definition.partition_key, rid, &row)? {
                let found = FoundItem { position: scope.position(rid), row };
                let visibility = Visibility { container, visibility_point, hidden };
                return show(visibility, meter, &found, bytes.len(), visit);
            }
        }
        meter.count(bytes.len());
        Ok(ScanEnd::Done)
    }

    /// Whether an item that was fetched is in a scope but not visible.
    pub fn is_hidden_in_scope(&self, rid: u64, bytes: &[u8]) -> Result<bool, EngineError> {
        let row = ItemRow::trusted(bytes)?;
        let visibility = Visibility {
            container: self.container,
            visibility_point: &self.visibility_point,
            hidden: &self.hidden,
        };
        if !visibility.is_hidden(rid, &row) {
            return Ok(false);
        }
        for scope in scopes_of_rid(self.scopes, rid) {
            if scope.accepts(&self.container.definition.partition_key, rid, &row)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The position of an item with this id, if a scope can contain it.
    pub fn position_of(&self, rid: u64) -> Option<ItemPosition> {
        scopes_of_rid(self.scopes, rid).next().map(|scope| scope.position(rid))
    }

    /// Whether a scope can contain an item with this id.
    pub fn may_contain(&self, rid: u64) -> bool {
        scopes_of_rid(self.scopes, rid).next().is_some()
    }

    /// Visits rows of an index, keys only, at most so many. True if there are more.
    pub fn index_rows(
        &mut self,
        mut range: KeyRange,
        direction: Direction,
        rows_max: usize,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, EngineError> {
        self.index_rows_in(&mut range, direction, rows_max, visit)
    }

    /// The same of a range that the caller needs again. It is not changed.
    pub fn index_rows_in(
        &mut self,
        range: &mut KeyRange,
        direction: Direction,
        rows_max: usize,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, EngineError> {
        const NOTHING: KeyRange = KeyRange { start: Bound::Unbounded, end: Bound::Unbounded };
        self.meter.spend(SEEK_STEPS)?;
        let started = Instant::now();
        let (mut rows, mut outcome) = (0, Ok(()));
        let scan = scan(keys::INDEX, std::mem::replace(range, NOTHING), direction, rows_max, true);
        let meter = &self.meter;
        let more = self.snapshot.visit(&scan, &mut |key, _| {
            rows += 1;
            outcome = meter.spend(INDEX_ROW_STEPS);
            if outcome.is_err() { ControlFlow::Break(()) } else { visit(key) }
        });
        *range = scan.range;
        let more = more?;
        outcome?;
        self.meter.index_rows += rows;
        self.meter.index_time += started.elapsed();
        Ok(more)
    }
}

fn scan(
    space: quire_storage::Space,
    range: KeyRange,
    direction: Direction,
    rows_max: usize,
    keys_only: bool,
) -> Scan {
    Scan { space, range, direction, rows_max, bytes_max: BYTES_MAX, keys_only }
}

/// What decides whether an item is visible.
#[derive(Clone, Copy)]
struct Visibility<'a> {
    container: &'a Container,
    visibility_point: &'a VisibilityPoint,
    hidden: &'a HashSet<u64>,
}

impl Visibility<'_> {
    fn is_hidden(self, rid: u64, row: &ItemRow<'_>) -> bool {
        self.container.is_invisible(row, self.visibility_point)
            || (!self.hidden.is_empty() && self.hidden.contains(&rid))
    }
}

/// Visits the row of an item if it belongs to the scope.
fn show_row(
    visibility: Visibility<'_>,
    meter: &mut PageMeter,
    scope: &PartitionScope<'_>,
    rid: u64,
    (row, bytes): (ItemRow<'_>, usize),
    visit: &mut ItemVisitor<'_>,
) -> Result<ScanEnd, EngineError> {
    if !scope.accepts(&visibility.container.definition.partition_key, rid, &row)? {
        meter.spend(ITEM_STEPS)?;
        meter.count(bytes);
        return Ok(ScanEnd::Done);
    }
    show(visibility, meter, &FoundItem { position: scope.position(rid), row }, bytes, visit)
}

/// Visits an item of a scope, unless it has expired or the budget is spent.
fn show(
    visibility: Visibility<'_>,
    meter: &mut PageMeter,
    found: &FoundItem<'_>,
    bytes: usize,
    visit: &mut ItemVisitor<'_>,
) -> Result<ScanEnd, EngineError> {
    if meter.is_spent() {
        return Ok(ScanEnd::Paused(found.position));
    }
    meter.spend(ITEM_STEPS)?;
    meter.count(bytes);
    if visibility.is_hidden(found.position.rid, &found.row) {
        return Ok(ScanEnd::Done);
    }
    match visit(found)? {
        VisitNext::More => Ok(ScanEnd::Done),
        VisitNext::Enough => Ok(ScanEnd::Stopped),
        VisitNext::NotThis => {
            meter.unread(bytes);
            Ok(ScanEnd::Stopped)
        }
    }
}
