//! Reading the visible items of a scope from one snapshot: in place, in the order of partitions and child ids, or by
//! child id.

use std::collections::HashSet;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Instant;

use quire_storage::{Direction, KeyRange, Scan, Snapshot};

use super::meter::PageMeter;
use super::view::View;
use super::window::{Spot, Window, under};
use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::items::visibility::Moment;
use crate::memory::row_spans::{Draft, Place, Seen, Stretches};
use crate::runtime::Shared;
use crate::store::item_row::Row;
use crate::store::keys;

/// Rows shown by one call of the storage: it may hold a lock meanwhile.
const ROWS_MAX: usize = 1024;
const ROWS_SHOWN: usize = 256;
const BYTES_MAX: usize = 4 << 20;
/// What reading an item takes, in steps of the meter.
const ITEM_STEPS: u64 = 64;
/// The same for finding the first row of a range in an index, and for a row of it.
const SEEK_STEPS: u64 = 128;
const INDEX_ROW_STEPS: u64 = 16;

pub(crate) struct Reader<'a> {
    pub container: &'a Container,
    pub snapshot: Arc<dyn Snapshot>,
    pub windows: &'a [Window<'a>],
    pub meter: PageMeter,
    pub moment: Moment,
    hidden: Arc<HashSet<u64>>,
    stretches: &'a Stretches,
    seen: Seen,
}

/// An item, lent for the moment of a call.
pub(crate) struct Found<'a> {
    pub spot: Spot,
    pub row: Row<'a>,
}

/// What a visitor says about the item it was shown.
pub(crate) enum Next {
    More,
    Enough,
    /// It has no room for this one: the next page reads it again.
    NotThis,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Everything was shown.
    Done,
    /// The visitor had enough.
    Stopped,
    /// The budget is spent; this is next.
    Paused(Spot),
}

/// Moves the end at which a range is read.
pub(crate) fn go_on(range: &mut KeyRange, direction: Direction, from: Bound<Vec<u8>>) {
    match direction {
        Direction::Forward => range.start = from,
        Direction::Backward => range.end = from,
    }
}

pub(crate) type Visit<'v> = dyn FnMut(&Found<'_>) -> Result<Next, EngineError> + 'v;

impl<'a> Reader<'a> {
    pub fn new(
        shared: &'a Shared,
        container: &'a Container,
        view: &View,
        windows: &'a [Window<'a>],
        meter: PageMeter,
    ) -> Reader<'a> {
        let (snapshot, moment) = (Arc::clone(&view.snapshot), view.moment.clone());
        let (stretches, seen) = (&shared.stretches, view.stretches_seen);
        let hidden = Arc::clone(&view.hidden);
        Reader { container, snapshot, windows, meter, moment, hidden, stretches, seen }
    }

    /// Whether items are left out that the storage and its indexes have.
    pub fn hides_items(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// The window in which a spot lies that an earlier page reached; a partition that is no more is `PartitionGone`.
    pub fn window_of(&self, from: Option<Spot>) -> Result<usize, EngineError> {
        let Some(spot) = from else { return Ok(0) };
        let found = self.windows.iter().position(|window| window.reaches(spot));
        found.ok_or_else(|| EngineError::PartitionGone { id: spot.partition.to_string() })
    }

    /// Shows every visible item of the windows, from a spot on.
    pub fn scan(&mut self, from: Option<Spot>, visit: &mut Visit<'_>) -> Result<End, EngineError> {
        let first = self.window_of(from)?;
        let mut rid = from.map(|spot| spot.rid);
        for window in &self.windows[first..] {
            match self.scan_window(window, rid.take(), visit)? {
                End::Done => {}
                end => return Ok(end),
            }
        }
        Ok(End::Done)
    }

    /// The same by child id alone, where windows share ids at their edges; forward, or backward from an id.
    pub fn scan_by_rid(
        &mut self,
        from: u64,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<End, EngineError> {
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
                    Row::parse(bytes)?;
                    match self.show(rid, bytes, visit)? {
                        End::Done => {}
                        end => return Ok(end),
                    }
                }
                let Some((last, _)) = page.rows.into_iter().next_back().filter(|_| page.more) else { break };
                go_on(&mut range, direction, Bound::Excluded(last));
            }
        }
        Ok(End::Done)
    }

    /// Items in the windows, as far as `limit`; true if these are all. Edges of partitions are not looked at.
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

    /// The child ids of all windows, ascending and without overlaps.
    pub fn intervals(&self) -> Vec<(u64, u64)> {
        let mut intervals: Vec<(u64, u64)> = Vec::new();
        for (low, high) in self.windows.iter().map(Window::rids) {
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

    fn scan_window(
        &mut self,
        window: &Window<'_>,
        from: Option<u64>,
        visit: &mut Visit<'_>,
    ) -> Result<End, EngineError> {
        self.meter.enter(window.partition.layout.id);
        let (first, last) = window.rids();
        let mut at = from.unwrap_or(first).max(first);
        while at <= last {
            let reached = match self.place(window, at) {
                Place::Kept(stretch) => {
                    for (rid, bytes) in stretch.from(at).take_while(|&(rid, _)| rid <= last) {
                        match self.show_row(window, rid, (Row::trusted(bytes)?, bytes.len()), visit)? {
                            End::Done => {}
                            end => return Ok(end),
                        }
                    }
                    stretch.end()
                }
                Place::Gap { end, room } => match self.scan_gap(window, (at, end.min(last)), room, visit)? {
                    (End::Done, reached) => reached,
                    (end, _) => return Ok(end),
                },
            };
            at = reached.saturating_add(1);
        }
        Ok(End::Done)
    }

    /// A single logical partition is a short range of rows anyway.
    fn place(&self, window: &Window<'_>, rid: u64) -> Place {
        match window.prefixes {
            (first, last) if first == last => Place::Gap { end: u64::MAX, room: false },
            _ => self.stretches.find(self.container.number, rid, self.seen),
        }
    }

    /// Items from the storage, kept as a stretch where there is `room`. Also says how far it came: to the end, or to
    /// where the stretch is complete.
    fn scan_gap(
        &mut self,
        window: &Window<'_>,
        (first, last): (u64, u64),
        room: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(End, u64), EngineError> {
        let number = self.container.number;
        let mut draft = room.then(|| Draft::new(first));
        let mut range = KeyRange {
            start: Bound::Included(keys::item(number, first)),
            end: Bound::Included(keys::item(number, last)),
        };
        loop {
            let (mut shown, mut outcome, mut complete) = (None, Ok(End::Done), false);
            let scan = scan(keys::ITEMS, range.clone(), Direction::Forward, ROWS_MAX, false);
            let Reader { container, snapshot, meter, moment, hidden, .. } = self;
            let sight = Sight { container, moment, hidden };
            let more = snapshot.visit(&scan, &mut |key, bytes| {
                let rid = keys::rid_of_item_key(key).ok_or_else(|| corrupt("item key"));
                outcome = rid.and_then(|rid| {
                    let row = Row::parse(bytes)?;
                    let end = show_row(sight, meter, window, rid, (row, bytes.len()), visit)?;
                    if matches!(end, End::Done) {
                        shown = Some(rid);
                        complete = draft.as_mut().is_some_and(|draft| draft.push(rid, bytes));
                    }
                    Ok(end)
                });
                if complete || !matches!(outcome, Ok(End::Done)) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })?;
            let end = outcome?;
            let finished = matches!(end, End::Done) && !complete && !more;
            if finished || complete || !matches!(end, End::Done) {
                let reached = if finished { last } else { shown.unwrap_or(first) };
                if let Some(draft) = draft.filter(|_| finished || shown.is_some()) {
                    self.stretches.keep(number, draft, reached, finished, self.seen);
                }
                return Ok((end, reached));
            }
            let Some(shown) = shown else { return Ok((end, last)) };
            range.start = Bound::Excluded(keys::item(number, shown));
        }
    }

    fn show_row(
        &mut self,
        window: &Window<'_>,
        rid: u64,
        row: (Row<'_>, usize),
        visit: &mut Visit<'_>,
    ) -> Result<End, EngineError> {
        let sight = Sight { container: self.container, moment: &self.moment, hidden: &self.hidden };
        show_row(sight, &mut self.meter, window, rid, row, visit)
    }

    /// The rows of items, in the order asked for; one that is gone is `None`. Their checksums held.
    pub fn fetch(&mut self, rids: &[u64]) -> Result<Vec<Option<Arc<[u8]>>>, EngineError> {
        let started = Instant::now();
        let number = self.container.number;
        let mut rows = self.stretches.rows(number, rids, self.seen);
        let unknown: Vec<usize> = (0..rids.len()).filter(|&at| rows[at].is_none()).collect();
        if !unknown.is_empty() {
            let keys: Vec<Vec<u8>> = unknown.iter().map(|&at| keys::item(number, rids[at])).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            for (&at, bytes) in unknown.iter().zip(self.snapshot.multi_get(keys::ITEMS, &keys)?) {
                if let Some(bytes) = bytes {
                    Row::parse(&bytes)?;
                    rows[at] = Some(Arc::from(bytes));
                }
            }
            let read = unknown.iter().filter_map(|&at| Some((rids[at], rows[at].as_ref()?)));
            self.stretches.keep_rows(number, read, self.seen);
        }
        self.meter.load_time += started.elapsed();
        Ok(rows)
    }

    /// Shows an item that was fetched, if it is visible and in this window.
    pub fn show_in(
        &mut self,
        window: &Window<'_>,
        rid: u64,
        bytes: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<End, EngineError> {
        let row = Row::trusted(bytes)?;
        if !window.accepts(&self.container.definition.partition_key, rid, &row)? {
            self.meter.count(bytes.len());
            return Ok(End::Done);
        }
        let found = Found { spot: window.spot(rid), row };
        let sight = Sight { container: self.container, moment: &self.moment, hidden: &self.hidden };
        show(sight, &mut self.meter, &found, bytes.len(), visit)
    }

    /// The same whatever the page has cost: for items that must come with those before them.
    pub fn show_always(
        &mut self,
        window: &Window<'_>,
        rid: u64,
        bytes: &[u8],
        visit: &mut dyn FnMut(&Found<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let row = Row::trusted(bytes)?;
        self.meter.spend(ITEM_STEPS)?;
        self.meter.count(bytes.len());
        let is_in = window.accepts(&self.container.definition.partition_key, rid, &row)?;
        let sight = Sight { container: self.container, moment: &self.moment, hidden: &self.hidden };
        if !is_in || sight.lacks(rid, &row) {
            return Ok(());
        }
        visit(&Found { spot: window.spot(rid), row })
    }

    /// Shows an item that was fetched in any window.
    pub fn show(&mut self, rid: u64, bytes: &[u8], visit: &mut Visit<'_>) -> Result<End, EngineError> {
        let row = Row::trusted(bytes)?;
        let Reader { container, windows, meter, moment, hidden, .. } = self;
        for window in under(windows, rid) {
            if window.accepts(&container.definition.partition_key, rid, &row)? {
                let found = Found { spot: window.spot(rid), row };
                let sight = Sight { container, moment, hidden };
                return show(sight, meter, &found, bytes.len(), visit);
            }
        }
        meter.count(bytes.len());
        Ok(End::Done)
    }

    /// Whether an item that was fetched is in a window and not to be seen.
    pub fn is_hidden_in_scope(&self, rid: u64, bytes: &[u8]) -> Result<bool, EngineError> {
        let row = Row::trusted(bytes)?;
        let sight = Sight { container: self.container, moment: &self.moment, hidden: &self.hidden };
        if !sight.lacks(rid, &row) {
            return Ok(false);
        }
        for window in under(self.windows, rid) {
            if window.accepts(&self.container.definition.partition_key, rid, &row)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where an item with this id can be, if it is in a window at all.
    pub fn spot_of(&self, rid: u64) -> Option<Spot> {
        under(self.windows, rid).next().map(|window| window.spot(rid))
    }

    /// Whether an item with this id can be in a window.
    pub fn can_hold(&self, rid: u64) -> bool {
        under(self.windows, rid).next().is_some()
    }

    /// Visits rows of an index, keys only, at most so many. True if there are more.
    pub fn index_rows(
        &mut self,
        range: KeyRange,
        direction: Direction,
        rows_max: usize,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, EngineError> {
        self.meter.spend(SEEK_STEPS)?;
        let started = Instant::now();
        let (mut rows, mut outcome) = (0, Ok(()));
        let scan = scan(keys::INDEX, range, direction, rows_max, true);
        let meter = &self.meter;
        let more = self.snapshot.visit(&scan, &mut |key, _| {
            rows += 1;
            outcome = meter.spend(INDEX_ROW_STEPS);
            if outcome.is_err() { ControlFlow::Break(()) } else { visit(key) }
        })?;
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

/// What decides whether an item is seen.
#[derive(Clone, Copy)]
struct Sight<'a> {
    container: &'a Container,
    moment: &'a Moment,
    hidden: &'a HashSet<u64>,
}

impl Sight<'_> {
    fn lacks(self, rid: u64, row: &Row<'_>) -> bool {
        self.container.is_gone(row, self.moment) || (!self.hidden.is_empty() && self.hidden.contains(&rid))
    }
}

/// Shows the row of an item if it belongs to the window.
fn show_row(
    sight: Sight<'_>,
    meter: &mut PageMeter,
    window: &Window<'_>,
    rid: u64,
    (row, bytes): (Row<'_>, usize),
    visit: &mut Visit<'_>,
) -> Result<End, EngineError> {
    if !window.accepts(&sight.container.definition.partition_key, rid, &row)? {
        meter.spend(ITEM_STEPS)?;
        meter.count(bytes);
        return Ok(End::Done);
    }
    show(sight, meter, &Found { spot: window.spot(rid), row }, bytes, visit)
}

/// Shows an item of a window, unless it has expired or the budget is spent.
fn show(
    sight: Sight<'_>,
    meter: &mut PageMeter,
    found: &Found<'_>,
    bytes: usize,
    visit: &mut Visit<'_>,
) -> Result<End, EngineError> {
    if meter.is_spent() {
        return Ok(End::Paused(found.spot));
    }
    meter.spend(ITEM_STEPS)?;
    meter.count(bytes);
    if sight.lacks(found.spot.rid, &found.row) {
        return Ok(End::Done);
    }
    match visit(found)? {
        Next::More => Ok(End::Done),
        Next::Enough => Ok(End::Stopped),
        Next::NotThis => {
            meter.put_back(bytes);
            Ok(End::Stopped)
        }
    }
}
