//! The visible items of a scope, by partition and then by child id.
//!
//! A partition's items are one range of child ids, since the top 24 bits order like the effective partition key.
//! Only at the two edges of the range can an item of a neighbour lie between them; and since hashes collide, a
//! partition key asked for is compared with the item's own.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::{Duration, Instant};

use quire_resource::{EpkRange, PartitionKey, PartitionKeyDefinition};
use quire_storage::{Direction, KeyRange, Scan, Snapshot};

use super::place::canonical;
use super::row::{self, Row};
use crate::api::Scope;
use crate::partition::Partition;
use crate::shared::Shared;
use crate::{Container, EngineError, keys};

/// Rows fetched at a time: first few, since many pages are short, then more.
const ROWS_FIRST: usize = 64;
const ROWS_MAX: usize = 1024;
const BYTES_MAX: usize = 1 << 20;

/// The part of a scope that lies in one partition.
pub(crate) struct Window<'a> {
    pub partition: &'a Partition,
    range: EpkRange,
    /// First and last prefix of child ids.
    prefixes: (u32, u32),
    /// Only items of one of these keys; all if there are none.
    keys: Vec<KeyFilter>,
}

#[derive(Clone)]
pub(crate) struct KeyFilter {
    key: PartitionKey,
    encoded: Vec<u8>,
    complete: bool,
}

/// How much a page may read before it has to stop, whatever it found.
#[derive(Clone, Copy)]
pub(crate) struct ScanBudget {
    pub rows: u64,
    pub bytes: u64,
    pub time: Duration,
}

impl ScanBudget {
    /// For a page that can stop anywhere. Rows and bytes come first, so that the same request usually does the same.
    pub const PAGE: ScanBudget = ScanBudget { rows: 100_000, bytes: 128 << 20, time: Duration::from_secs(3) };
    /// For a query that needs all items before its first row.
    pub const WHOLE: ScanBudget =
        ScanBudget { rows: u64::MAX, bytes: u64::MAX, time: Duration::from_secs(60) };
}

pub(crate) struct Scanner<'a> {
    container: &'a Container,
    snapshot: Box<dyn Snapshot>,
    windows: &'a [Window<'a>],
    current: usize,
    /// Rows fetched and not yet looked at.
    fetched: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// What is left of the current window.
    rest: Option<KeyRange>,
    rows_next: usize,
    now_seconds: i64,
    budget: ScanBudget,
    started: Instant,
    /// Rows and bytes read.
    pub rows: u64,
    pub bytes: u64,
    /// Partitions looked into.
    pub partitions: usize,
}

/// A place in the order of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub partition: u32,
    pub rid: u64,
}

pub(crate) enum Step {
    Item(Found),
    /// The budget is spent; this is next.
    Pause(Spot),
    End,
}

pub(crate) struct Found {
    pub spot: Spot,
    pub bytes: Vec<u8>,
}

/// What of the container a request covers. A partition id that is not there is `PartitionGone`.
pub(crate) fn windows<'a>(container: &'a Container, scope: &Scope) -> Result<Vec<Window<'a>>, EngineError> {
    let definition = &container.definition.partition_key;
    let asked = match &scope.partition_key {
        Some(key) => Some(KeyFilter::new(definition, key)?),
        None => None,
    };
    let mut range = scope.range.clone().unwrap_or_else(EpkRange::full);
    if let Some(filter) = &asked
        && !filter.complete
    {
        let under = EpkRange::of_prefix(&definition.effective(&filter.key));
        let Some(both) = range.intersect(&under) else { return Ok(Vec::new()) };
        range = both;
    }
    let partitions = partitions(container, scope.partition_id.as_deref())?;
    let window = |partition: &'a Partition| Window::new(definition, partition, &range, asked.as_ref());
    Ok(partitions.iter().filter_map(window).collect())
}

fn partitions<'a>(container: &'a Container, id: Option<&str>) -> Result<&'a [Partition], EngineError> {
    let all = container.partitions.all();
    let Some(id) = id else { return Ok(all) };
    let found = all.iter().position(|partition| partition.name == id);
    found.map(|index| &all[index..=index]).ok_or_else(|| EngineError::PartitionGone { id: id.to_owned() })
}

/// The parts of windows in which items of these keys can lie. Windows of one partition come in the order of their
/// prefixes, and a prefix comes once, so the order of items stays what it is.
pub(crate) fn narrowed<'a>(
    container: &'a Container,
    windows: &[Window<'a>],
    keys: Vec<KeyFilter>,
) -> Vec<Window<'a>> {
    let definition = &container.definition.partition_key;
    let mut narrow: BTreeMap<(usize, u32), Vec<KeyFilter>> = BTreeMap::new();
    for key in keys {
        let epk = definition.effective(&key.key);
        let prefix = epk.rid_prefix(definition.kind, definition.version);
        let under = EpkRange::of_prefix(&epk);
        for (index, window) in windows.iter().enumerate() {
            let inside = if key.complete {
                window.range.contains(&epk)
            } else {
                window.range.intersect(&under).is_some()
            };
            if inside {
                narrow.entry((index, prefix)).or_default().push(key.clone());
            }
        }
    }
    let window = |((index, prefix), keys): ((usize, u32), Vec<KeyFilter>)| {
        let Window { partition, range, .. } = &windows[index];
        Window { partition, range: range.clone(), prefixes: (prefix, prefix), keys }
    };
    narrow.into_iter().map(window).collect()
}

impl KeyFilter {
    /// Of a complete key or a hierarchical prefix.
    pub fn new(definition: &PartitionKeyDefinition, key: &PartitionKey) -> Result<KeyFilter, EngineError> {
        definition.check_prefix(key)?;
        let complete = definition.check_complete(key).is_ok();
        let key = canonical(definition, key.clone());
        let mut encoded = Vec::new();
        key.encode(&mut encoded);
        Ok(KeyFilter { key, encoded, complete })
    }

    fn accepts(&self, row: &Row<'_>) -> Result<bool, EngineError> {
        if self.complete {
            return row.has_partition_key(&self.key, &self.encoded);
        }
        Ok(self.key.is_prefix_of(&row.partition_key()?))
    }
}

impl<'a> Window<'a> {
    fn new(
        definition: &PartitionKeyDefinition,
        partition: &'a Partition,
        range: &EpkRange,
        asked: Option<&KeyFilter>,
    ) -> Option<Window<'a>> {
        let range = partition.layout.range.intersect(range)?;
        let mut prefixes = range.rid_prefixes(definition.kind, definition.version);
        if let Some(KeyFilter { key, complete: true, .. }) = asked {
            let epk = definition.effective(key);
            if !range.contains(&epk) {
                return None;
            }
            let prefix = epk.rid_prefix(definition.kind, definition.version);
            prefixes = (prefix, prefix);
        }
        Some(Window { partition, range, prefixes, keys: asked.cloned().into_iter().collect() })
    }

    fn rows(&self, container: u32, from: Option<u64>) -> KeyRange {
        keys::items(container, self.prefixes.0, self.prefixes.1, from)
    }

    fn accepts(
        &self,
        definition: &PartitionKeyDefinition,
        rid: u64,
        row: &Row<'_>,
    ) -> Result<bool, EngineError> {
        if self.keys.is_empty() {
            return self.covers(definition, rid, row);
        }
        for filter in &self.keys {
            if filter.accepts(row)? {
                // A complete key lies in the range as a whole; under a prefix the range may cut.
                return Ok(filter.complete || self.covers(definition, rid, row)?);
            }
        }
        Ok(false)
    }

    fn covers(
        &self,
        definition: &PartitionKeyDefinition,
        rid: u64,
        row: &Row<'_>,
    ) -> Result<bool, EngineError> {
        let prefix = keys::rid_prefix(rid);
        if prefix != self.prefixes.0 && prefix != self.prefixes.1 {
            return Ok(true);
        }
        Ok(self.range.contains(&definition.effective(&row.partition_key()?)))
    }

    /// Whether items at the spot or after it can be in this window.
    fn reaches(&self, spot: Spot) -> bool {
        self.partition.layout.id == spot.partition && keys::rid_prefix(spot.rid) <= self.prefixes.1
    }
}

impl<'a> Scanner<'a> {
    /// From a spot on, which an earlier page reached; a partition that is no more is `PartitionGone`.
    pub fn new(
        shared: &Shared,
        container: &'a Container,
        windows: &'a [Window<'a>],
        from: Option<Spot>,
        budget: ScanBudget,
    ) -> Result<Scanner<'a>, EngineError> {
        let current = match from {
            None => 0,
            Some(spot) => {
                let found = windows.iter().position(|window| window.reaches(spot));
                found.ok_or_else(|| EngineError::PartitionGone { id: spot.partition.to_string() })?
            }
        };
        let rest =
            windows.get(current).map(|window| window.rows(container.number, from.map(|spot| spot.rid)));
        Ok(Scanner {
            container,
            snapshot: shared.storage.snapshot()?,
            windows,
            current,
            fetched: VecDeque::new(),
            partitions: usize::from(rest.is_some()),
            rest,
            rows_next: ROWS_FIRST,
            now_seconds: shared.now_seconds(),
            budget,
            started: Instant::now(),
            rows: 0,
            bytes: 0,
        })
    }

    /// No more than so many items are asked for, so more rows need not be fetched at first.
    pub fn expect(&mut self, items: usize) {
        self.rows_next = self.rows_next.min(items.saturating_add(1));
    }

    pub fn next(&mut self) -> Result<Step, EngineError> {
        while let Some(window) = self.windows.get(self.current) {
            let Some((key, bytes)) = self.fetched.pop_front() else {
                if !self.fetch()? {
                    self.next_window();
                }
                continue;
            };
            let rid = keys::rid_of_item_key(&key).ok_or_else(|| row::corrupt("item key"))?;
            let spot = Spot { partition: window.partition.layout.id, rid };
            if self.is_spent() {
                return Ok(Step::Pause(spot));
            }
            self.rows += 1;
            self.bytes += bytes.len() as u64;
            let row = Row::parse(&bytes)?;
            let visible = !self.container.is_expired(&row, self.now_seconds);
            if visible && window.accepts(&self.container.definition.partition_key, rid, &row)? {
                return Ok(Step::Item(Found { spot, bytes }));
            }
        }
        Ok(Step::End)
    }

    /// The item was not used: the next page reads it.
    pub fn put_back(&mut self, found: &Found) {
        self.rows -= 1;
        self.bytes -= found.bytes.len() as u64;
    }

    /// False when the window has no more rows.
    fn fetch(&mut self) -> Result<bool, EngineError> {
        let Some(range) = self.rest.take() else { return Ok(false) };
        let mut page = self.snapshot.scan(&Scan {
            space: keys::ITEMS,
            range: range.clone(),
            direction: Direction::Forward,
            rows_max: self.rows_next,
            bytes_max: BYTES_MAX,
            keys_only: false,
        })?;
        self.rows_next = (2 * self.rows_next).min(ROWS_MAX);
        if let Some((last, _)) = page.rows.last().filter(|_| page.more) {
            self.rest = Some(KeyRange { start: Bound::Excluded(last.clone()), end: range.end });
        }
        self.fetched.extend(page.rows.drain(..));
        Ok(!self.fetched.is_empty())
    }

    fn next_window(&mut self) {
        let before = self.windows.get(self.current).map(|window| window.partition.layout.id);
        self.current += 1;
        let after = self.windows.get(self.current).map(|window| window.partition.layout.id);
        self.rest = self.windows.get(self.current).map(|window| window.rows(self.container.number, None));
        self.partitions += usize::from(after.is_some() && after != before);
    }

    fn is_spent(&self) -> bool {
        // At least one row per page, or a client would never get on.
        self.rows > 0
            && (self.rows >= self.budget.rows
                || self.bytes >= self.budget.bytes
                || self.started.elapsed() >= self.budget.time)
    }
}
