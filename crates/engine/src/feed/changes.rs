//! The change feed: every visible item once, at the place of its last write; or every version and delete.
//!
//! A position is an LSN per partition; all changes up to it have been returned. All writes of a transaction have one
//! LSN and are in one page, so a page may be longer than requested. As an ETag, a position is a single number where the
//! scope is in one partition, and `partition:number,…` where it is in several. A number without a partition applies to
//! the whole scope, and a partition that is not in the position takes the number of the one it was split from. Changes
//! before a split are still under the parent: a partition is read through its history, in which LSNs continue.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use quire_storage::{KeyRange, Scan, Snapshot};

use super::version_json::write_version;
use crate::api::charge::{self, PageCost};
use crate::api::{
    Answer, Changes, ChangesRequest, EngineError, FeedMode, FeedStart, PageRequest, Scope, corrupt,
};
use crate::catalog::Container;
use crate::catalog::containers::settle_versions;
use crate::items::body::SelfLinks;
use crate::partition::Partition;
use crate::partition::watch::ChangeWatch;
use crate::query::meter::{PageMeter, ScanBudget};
use crate::query::page::{self, ROWS_DEFAULT};
use crate::query::partition_scope::{self, PartitionScope};
use crate::query::read_snapshot::ReadSnapshot;
use crate::query::reader::ScopeReader;
use crate::runtime::{Shared, allowance};
use crate::store::item_row::ItemRow;
use crate::store::version_row::VersionRow;
use crate::store::{PartitionLayout, keys, latest_feed_scan};

const PAGE_BYTES_MAX: usize = 4 << 20;
/// Feed rows whose items are fetched together.
const ROWS_FETCHED: usize = 256;

pub(crate) fn read_changes(
    shared: &Shared,
    container: &Container,
    request: &ChangesRequest,
) -> Answer<Changes> {
    let (mut position, mut charge) = (None, charge::REFUSED);
    let result = page::prepare(container, &request.page, &mut position).and_then(|windows| {
        if request.mode == FeedMode::AllVersions {
            check_versions_are_kept(container, request)?;
            settle_versions(shared, container)?;
        }
        let start = start_of(request, &windows)?;
        let mut page = FeedPage::new(request, container);
        let (etag, more, cost) = read(shared, &mut page, request, &windows, start)?;
        page.text.push(b']');
        charge = charge::page(&cost, page.count, page.text.len());
        Ok((Changes { rows: page.text, count: page.count, etag, more }, windows))
    });
    let result = result.map(|(changes, windows)| {
        if let [window] = &windows[..] {
            position = window.partition.position().ok().or(position.take());
        }
        changes
    });
    Answer { charge, position, result }
}

/// Items as they are stored, in the order of their last writes.
pub(crate) struct ChangedRows {
    /// With their rids.
    pub rows: Vec<(u64, Vec<u8>)>,
    /// The position behind them.
    pub etag: String,
    /// Whether there were further ones.
    pub more: bool,
}

/// The items whose last write is behind a position, as many as fit, and at least those of one LSN.
pub(crate) fn read_changed_rows(
    shared: &Shared,
    container: &Container,
    start: FeedStart,
    (items_max, bytes_max): (usize, usize),
) -> Result<ChangedRows, EngineError> {
    let page = PageRequest { item_count_max: Some(items_max as i64), ..PageRequest::default() };
    let mode = FeedMode::Latest;
    let request = ChangesRequest { mode, page, start, since: None, all_previous_images: false };
    let windows = page::prepare(container, &request.page, &mut None)?;
    let start = start_of(&request, &windows)?;
    let mut page = FeedPage { bytes_max, stored: Some(Vec::new()), ..FeedPage::new(&request, container) };
    let (etag, more, _) = read(shared, &mut page, &request, &windows, start)?;
    Ok(ChangedRows { rows: page.stored.unwrap_or_default(), etag, more })
}

/// The LSN up to which each partition was returned.
fn start_of(request: &ChangesRequest, windows: &[PartitionScope<'_>]) -> Result<Vec<u64>, EngineError> {
    match &request.start {
        FeedStart::Beginning if request.mode == FeedMode::AllVersions => Err(too_early()),
        FeedStart::Beginning => Ok(vec![0; windows.len()]),
        FeedStart::Now => windows.iter().map(|window| window.partition.sequencer.lsn()).collect(),
        FeedStart::After(etag) => {
            let after_lsn = FeedPosition::parse(etag).ok_or(EngineError::BadContinuation)?;
            windows.iter().map(|window| after_lsn.within(window.partition)).collect()
        }
    }
}

fn check_versions_are_kept(container: &Container, request: &ChangesRequest) -> Result<(), EngineError> {
    if container.definition.change_feed_retention_minutes.is_none() {
        let message = "The container keeps no versions: its changeFeedPolicy names no retentionDuration.";
        return Err(EngineError::BadRequest { message: message.to_owned() });
    }
    if request.since.is_some() { Err(too_early()) } else { Ok(()) }
}

fn too_early() -> EngineError {
    let message = "You must read the change feed from within the retention period.";
    EngineError::BadRequest { message: message.to_owned() }
}

/// A position in the feed, as its ETag encodes it.
enum FeedPosition {
    Everywhere(u64),
    ByPartition(Vec<(u32, u64)>),
}

impl FeedPosition {
    fn parse(etag: &str) -> Option<FeedPosition> {
        let text = etag.trim().trim_start_matches("W/").trim_matches('"');
        if let Ok(lsn) = text.parse() {
            return Some(FeedPosition::Everywhere(lsn));
        }
        let part = |part: &str| {
            let (partition, lsn) = part.split_once(':')?;
            Some((partition.parse().ok()?, lsn.parse().ok()?))
        };
        text.split(',').map(part).collect::<Option<_>>().map(FeedPosition::ByPartition)
    }

    /// A position after the end is the end: later writes are returned. A partition that was split has no end of
    /// its own: its children go on.
    fn within(&self, partition: &Partition) -> Result<u64, EngineError> {
        let after_lsn = self.of(&partition.layout).ok_or(EngineError::BadContinuation)?;
        let reached = partition.sequencer.lsn()?;
        Ok(if partition.sequencer.is_moved() { after_lsn } else { after_lsn.min(reached) })
    }

    fn of(&self, layout: &PartitionLayout) -> Option<u64> {
        match self {
            FeedPosition::Everywhere(lsn) => Some(*lsn),
            FeedPosition::ByPartition(parts) => {
                let of = |id: u32| parts.iter().find(|(partition, _)| *partition == id).map(|(_, lsn)| *lsn);
                // The youngest ancestor has the latest position.
                of(layout.id).or_else(|| layout.parents.iter().rev().find_map(|parent| of(*parent)))
            }
        }
    }
}

fn etag_of(windows: &[PartitionScope<'_>], after_lsn: &[u64]) -> String {
    if let [lsn] = after_lsn {
        return format!("\"{lsn}\"");
    }
    let part = |(window, lsn): (&PartitionScope<'_>, &u64)| format!("{}:{lsn}", window.partition.layout.id);
    let parts: Vec<String> = windows.iter().zip(after_lsn).map(part).collect();
    format!("\"{}\"", parts.join(","))
}

/// What to wait for behind a position: the [`Changes::etag`] of an answer.
pub(crate) fn watch_changes(
    container: &Container,
    scope: &Scope,
    etag: &str,
) -> Result<ChangeWatch, EngineError> {
    let after_lsn = FeedPosition::parse(etag).ok_or(EngineError::BadContinuation)?;
    let windows = partition_scope::partition_scopes(container, scope)?;
    let watched = |window: &PartitionScope<'_>| {
        let all = container.partitions.all();
        let partition = all.iter().find(|partition| partition.layout.id == window.partition.layout.id);
        let partition = Arc::clone(partition.ok_or(EngineError::PartitionMoved)?);
        let lsn = after_lsn.within(&partition)?;
        Ok((partition, lsn))
    };
    Ok(ChangeWatch::new(windows.iter().map(watched).collect::<Result<_, EngineError>>()?))
}

/// Fills a page; the position behind it, whether there is more, and what it took.
fn read(
    shared: &Shared,
    page: &mut FeedPage<'_>,
    request: &ChangesRequest,
    windows: &[PartitionScope<'_>],
    mut after_lsn: Vec<u64>,
) -> Result<(String, bool, PageCost), EngineError> {
    let container = page.container;
    // Before the snapshot, which shows them. What it shows beyond is not published yet and is returned next time: a position never
    // names more than was reached.
    let ends: Vec<u64> =
        windows.iter().map(|window| window.partition.sequencer.lsn()).collect::<Result<_, _>>()?;
    let meter = PageMeter::new(ScanBudget::PAGE, &allowance::of_page(shared, &request.page.cancel));
    let mut reader =
        ScopeReader::new(shared, container, &ReadSnapshot::take(shared, container)?, windows, meter);
    let mut more = false;
    for ((window, after_lsn), end) in windows.iter().zip(&mut after_lsn).zip(ends) {
        reader.meter.enter(window.partition.layout.id);
        if request.mode == FeedMode::AllVersions
            && *after_lsn < versions_floor(&*reader.snapshot, container, window)?
        {
            return Err(too_early());
        }
        if let (FeedStart::Beginning, Some(since)) = (&request.start, request.since) {
            *after_lsn = first_since(&*reader.snapshot, container, window, since, end)?;
        }
        let reached = match request.mode {
            FeedMode::Latest | FeedMode::LatestWithMetadata => {
                page.fill(&mut reader, window, (*after_lsn, end))?
            }
            FeedMode::AllVersions => page.fill_versions(&mut reader, window, (*after_lsn, end))?,
        };
        match reached {
            FillEnd::End { last } => *after_lsn = (*after_lsn).max(end).max(last.unwrap_or(0)),
            FillEnd::Full { last } => {
                *after_lsn = (*after_lsn).max(last);
                more = true;
                break;
            }
        }
    }
    reader.meter.matched = page.count as u64;
    Ok((etag_of(windows, &after_lsn), more, reader.meter.cost()))
}

/// The LSN up to which versions of a partition are gone, there or where it comes from.
fn versions_floor(
    snapshot: &dyn Snapshot,
    container: &Container,
    window: &PartitionScope<'_>,
) -> Result<u64, EngineError> {
    let mut floor = 0;
    for partition in window.partition.layout.history() {
        let key = keys::versions_floor(container.number, partition);
        if let Some(value) = snapshot.get(keys::CATALOG, &key)? {
            floor = floor.max(keys::number(&value).ok_or_else(|| corrupt("where versions begin"))?);
        }
    }
    Ok(floor)
}

/// The position before the first change at or after a time. `_ts` never falls with the LSN, so it is searched for.
fn first_since(
    snapshot: &dyn Snapshot,
    container: &Container,
    window: &PartitionScope<'_>,
    since: i64,
    end: u64,
) -> Result<u64, EngineError> {
    let (mut before, mut after) = (0, end);
    while before < after {
        let middle = before + (after - before) / 2;
        // The first item whose LSN is beyond the middle.
        match next_item(snapshot, container, window, middle)? {
            Some((lsn, ts)) if ts < since => before = lsn.min(after).max(middle + 1),
            _ => after = middle,
        }
    }
    Ok(before)
}

fn next_item(
    snapshot: &dyn Snapshot,
    container: &Container,
    window: &PartitionScope<'_>,
    lsn: u64,
) -> Result<Option<(u64, i64)>, EngineError> {
    let mut first = None;
    for partition in window.partition.layout.history() {
        first =
            snapshot.scan(&latest_feed_scan(container.number, partition, lsn, 1))?.rows.into_iter().next();
        if first.is_some() {
            break;
        }
    }
    let Some((_, rid)) = &first else { return Ok(None) };
    let rid = keys::number(rid).ok_or_else(|| corrupt("feed row"))?;
    let bytes = snapshot.get(keys::ITEMS, &keys::item(container.number, rid))?;
    let bytes = bytes.ok_or_else(|| corrupt("feed row without an item"))?;
    let row = ItemRow::parse(&bytes)?;
    Ok(Some((row.stamp.lsn, row.stamp.ts)))
}

enum FillEnd {
    /// The window's end; the last LSN that was there, if any.
    End { last: Option<u64> },
    /// The page has no room for what comes after this LSN.
    Full { last: u64 },
}

struct FeedPage<'a> {
    container: &'a Container,
    links: SelfLinks,
    since: Option<i64>,
    mode: FeedMode,
    all_previous_images: bool,
    text: Vec<u8>,
    /// Rows of items in the place of their text.
    stored: Option<Vec<(u64, Vec<u8>)>>,
    /// Of texts or rows.
    bytes: usize,
    bytes_max: usize,
    count: usize,
    count_max: usize,
}

impl<'a> FeedPage<'a> {
    fn new(request: &ChangesRequest, container: &'a Container) -> FeedPage<'a> {
        let count_max = match request.page.item_count_max {
            None | Some(0) => ROWS_DEFAULT,
            Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
        };
        let (links, since) = (SelfLinks::new(container), request.since);
        let (mode, all_previous_images) = (request.mode, request.all_previous_images);
        let text = vec![b'['];
        FeedPage {
            container,
            links,
            since,
            mode,
            all_previous_images,
            text,
            stored: None,
            bytes: 0,
            bytes_max: PAGE_BYTES_MAX,
            count: 0,
            count_max,
        }
    }

    fn is_full(&self, meter: &PageMeter) -> bool {
        self.count >= self.count_max || self.bytes >= self.bytes_max || meter.is_spent()
    }

    fn fill(
        &mut self,
        reader: &mut ScopeReader<'_>,
        window: &PartitionScope<'_>,
        (after_lsn, end): (u64, u64),
    ) -> Result<FillEnd, EngineError> {
        let mut last = None;
        let mut from = after_lsn;
        loop {
            let (rows, more) = self.rows_behind(reader, window, from)?;
            // Of the last LSN there may be more rows than were read: it comes with the next ones.
            let cut = rows.last().map(|row| row.lsn).filter(|_| more);
            let rows = &rows[..rows.partition_point(|row| Some(row.lsn) != cut)];
            let rids: Vec<u64> = rows.iter().filter(|row| row.is_near).map(|row| row.rid).collect();
            let mut items = reader.fetch(&rids)?.into_iter();
            for row in rows {
                if row.lsn > end {
                    return Ok(FillEnd::End { last });
                }
                if last.is_some_and(|last| last != row.lsn) && self.is_full(&reader.meter) {
                    return Ok(FillEnd::Full { last: last.unwrap_or(after_lsn) });
                }
                last = Some(row.lsn);
                from = row.lsn;
                if !row.is_near {
                    reader.meter.index_rows += 1;
                    continue;
                }
                let bytes = items.next().flatten().ok_or_else(|| corrupt("feed row without an item"))?;
                self.show(reader, window, row, &bytes)?;
            }
            if !more {
                return Ok(FillEnd::End { last });
            }
        }
    }

    fn fill_versions(
        &mut self,
        reader: &mut ScopeReader<'_>,
        window: &PartitionScope<'_>,
        (after_lsn, end): (u64, u64),
    ) -> Result<FillEnd, EngineError> {
        let (mut last, mut from) = (None, after_lsn);
        loop {
            let (rows, more) = self.versions_behind(reader, window, from)?;
            let cut = rows.last().map(|(lsn, _)| *lsn).filter(|_| more);
            for (lsn, value) in &rows[..rows.partition_point(|(lsn, _)| Some(*lsn) != cut)] {
                if *lsn > end {
                    return Ok(FillEnd::End { last });
                }
                if last.is_some_and(|last| last != *lsn) && self.is_full(&reader.meter) {
                    return Ok(FillEnd::Full { last: last.unwrap_or(after_lsn) });
                }
                (last, from) = (Some(*lsn), *lsn);
                reader.meter.index_rows += 1;
                self.show_version(window, *lsn, &VersionRow::decode(value)?)?;
            }
            if !more {
                return Ok(FillEnd::End { last });
            }
        }
    }

    /// Some rows of the log behind an LSN, at least all of the first LSN there; whether there are more.
    fn versions_behind(
        &self,
        reader: &ScopeReader<'_>,
        window: &PartitionScope<'_>,
        after_lsn: u64,
    ) -> Result<(Vec<VersionLogRow>, bool), EngineError> {
        let (container, mut bytes_max) = (self.container, PAGE_BYTES_MAX);
        loop {
            let (mut rows, mut more, mut left) = (Vec::new(), false, bytes_max);
            for partition in window.partition.layout.history() {
                let range = KeyRange {
                    start: Bound::Excluded(keys::version(container.number, partition, after_lsn, u16::MAX)),
                    end: Bound::Included(keys::version(container.number, partition, u64::MAX, u16::MAX)),
                };
                let scan = latest_feed_scan(container.number, partition, 0, usize::MAX);
                let page = reader.snapshot.scan(&Scan { range, bytes_max: left, ..scan })?;
                for (key, value) in page.rows {
                    left = left.saturating_sub(value.len());
                    let lsn = keys::lsn_of_feed_key(&key).ok_or_else(|| corrupt("key of a version"))?;
                    rows.push((lsn, value));
                }
                // Without room left there may be more in what follows.
                more = page.more || (left == 0 && partition != window.partition.layout.id);
                if more {
                    break;
                }
            }
            let one_lsn = rows.first().map(|(lsn, _)| *lsn) == rows.last().map(|(lsn, _)| *lsn);
            if !more || !one_lsn {
                return Ok((rows, more));
            }
            bytes_max *= 4; // a transaction larger than what was read
        }
    }

    fn show_version(
        &mut self,
        window: &PartitionScope<'_>,
        lsn: u64,
        version: &VersionRow<'_>,
    ) -> Result<(), EngineError> {
        let definition = &self.container.definition.partition_key;
        let known = if version.current.is_empty() { version.previous } else { version.current };
        if !window.accepts(definition, version.rid, &ItemRow::parse(known)?)? {
            return Ok(());
        }
        if self.count > 0 {
            self.text.push(b',');
        }
        let all = self.all_previous_images;
        write_version(version, &self.links, &definition.paths, lsn, all, &mut self.text)?;
        self.bytes = self.text.len();
        self.count += 1;
        Ok(())
    }

    /// Some rows behind an LSN, at least all of the first LSN there; whether there are more.
    fn rows_behind(
        &self,
        reader: &ScopeReader<'_>,
        window: &PartitionScope<'_>,
        after_lsn: u64,
    ) -> Result<(Vec<FeedRow>, bool), EngineError> {
        let mut rows_max = ROWS_FETCHED.min(self.count_max.saturating_add(1)).max(2);
        loop {
            let (mut rows, mut bad, mut more) = (Vec::new(), false, false);
            for partition in window.partition.layout.history() {
                // One row at least, to learn whether there are more.
                let left = rows_max.saturating_sub(rows.len()).max(1);
                let scan = latest_feed_scan(self.container.number, partition, after_lsn, left);
                more = reader.snapshot.visit(&scan, &mut |key, value| {
                    match FeedRow::read(key, value, window) {
                        Some(row) => rows.push(row),
                        None => bad = true,
                    }
                    if bad { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                if more || bad {
                    break;
                }
            }
            if bad {
                return Err(corrupt("feed row"));
            }
            let one_lsn = rows.first().map(|row: &FeedRow| row.lsn) == rows.last().map(|row| row.lsn);
            if !more || !one_lsn {
                return Ok((rows, more));
            }
            rows_max *= 4; // a transaction larger than what was read
        }
    }

    fn show(
        &mut self,
        reader: &mut ScopeReader<'_>,
        window: &PartitionScope<'_>,
        row: &FeedRow,
        bytes: &[u8],
    ) -> Result<(), EngineError> {
        let (since, has_metadata) = (self.since, self.mode == FeedMode::LatestWithMetadata);
        let FeedPage { links, text, stored, bytes: all_bytes, count, .. } = self;
        reader.show_always(window, row.rid, bytes, &mut |found| {
            if since.is_some_and(|since| found.row.stamp.ts < since) {
                return Ok(());
            }
            if let Some(stored) = stored {
                stored.push((row.rid, bytes.to_vec()));
                *all_bytes += bytes.len();
                *count += 1;
                return Ok(());
            }
            if *count > 0 {
                text.push(b',');
            }
            if has_metadata {
                text.extend_from_slice(b"{\"current\":");
            }
            let stamp = &found.row.stamp;
            links.write_json(found.row.node()?, found.position.rid, stamp, text);
            text.pop();
            text.extend_from_slice(format!(",\"_lsn\":{}}}", stamp.lsn).as_bytes());
            if has_metadata {
                let metadata = format!(",\"metadata\":{{\"lsn\":{},\"crts\":{}}}}}", stamp.lsn, stamp.ts);
                text.extend_from_slice(metadata.as_bytes());
            }
            *all_bytes = text.len();
            *count += 1;
            Ok(())
        })
    }
}

/// LSN and value of a row of the log.
type VersionLogRow = (u64, Vec<u8>);

struct FeedRow {
    lsn: u64,
    rid: u64,
    /// Its item can be in the window.
    is_near: bool,
}

impl FeedRow {
    fn read(key: &[u8], value: &[u8], window: &PartitionScope<'_>) -> Option<FeedRow> {
        let lsn = keys::lsn_of_feed_key(key)?;
        let rid = keys::number(value)?;
        let (first, last) = window.rids();
        Some(FeedRow { lsn, rid, is_near: (first..=last).contains(&rid) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_resource::EpkRange;

    fn layout(id: u32, parents: &[u32]) -> PartitionLayout {
        PartitionLayout { id, range: EpkRange::full(), parents: parents.to_vec() }
    }

    #[test]
    fn a_position_names_its_partitions() {
        let everywhere = FeedPosition::parse("\"43\"").expect("a position");
        assert_eq!(everywhere.of(&layout(7, &[])), Some(43));
        let each = FeedPosition::parse("\"0:5,2:9\"").expect("a position");
        assert_eq!((each.of(&layout(0, &[])), each.of(&layout(2, &[]))), (Some(5), Some(9)));
        assert_eq!(each.of(&layout(3, &[])), None);
        assert_eq!(each.of(&layout(3, &[0, 2])), Some(9));
        for bad in ["", "x", "\"1:\"", "1:2,", "-1", "\"0:5,2\""] {
            assert!(FeedPosition::parse(bad).is_none(), "{bad}");
        }
    }
}
