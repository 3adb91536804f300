//! Sorting without an index.
//!
//! A first page keeps the first few of all candidates. A client that requests a second page will probably request more:
//! so the second page sorts the positions of all items after it, on disk if they do not fit into memory, and puts them
//! into the [result cache](crate::memory::result_cache). Later pages fetch the items of these positions, each from its
//! own snapshot. The latest feed lists the items that were written since: these are left out of the cached order and
//! sorted separately. So a page shows the same rows as if it had sorted everything again. Where the order cannot be
//! cached, every page keeps the first few, like the first page.

use std::cell::RefCell;
use std::collections::{BTreeSet, BinaryHeap, HashSet};
use std::sync::Arc;

use quire_sql::{Reservation, Sorter, SqlError, StepLimit};

use super::super::continuation::{Resume, sort_key_bytes};
use super::blocking::ResultCaching;
use super::evaluate::{EvaluationNeed, ItemEvaluator};
use super::lookahead::{prepare_fetched, visit_ahead};
use super::order::{PrefixCounter, SortOrder, SortStart};
use super::output::{PageOutput, SendOutcome};
use crate::api::{EngineError, PageRequest, corrupt};
use crate::memory::result_cache::{CachedResult, QueryDigest, ResultKey, ResultWriter};
use crate::query::plan::candidates::Candidates;
use crate::query::reader::{FoundItem, ItemVisitor, ScanEnd, ScopeReader, VisitNext};
use crate::store::{keys, latest_feed_scan};

/// Bytes of sort keys in memory. Keys that do not fit come with the next page.
const HELD_BYTES_MAX: usize = 32 << 20;
const HELD_ITEMS_MAX: usize = 100_000;
/// The memory of a key besides its bytes.
const ENTRY_BYTES: usize = 48;
/// Memory is taken in pieces.
const MEMORY_PIECE_BYTES: usize = 64 << 10;
const FETCH_ITEMS: usize = 64;
/// With more changed items the order is sorted again.
const CHANGED_MAX: usize = 4096;

/// The smallest of what was pushed, by sort key and tie.
pub(crate) struct TopItems {
    keep: usize,
    bytes: usize,
    entries: BinaryHeap<(Vec<u8>, u64)>,
    /// Some were left out.
    is_cut: bool,
    /// The last item that was pushed, kept or not.
    pub last_seen: Option<(Vec<u8>, u64)>,
    memory: Reservation,
}

impl TopItems {
    pub fn new(keep: usize, memory: Reservation) -> TopItems {
        TopItems {
            memory,
            keep: keep.clamp(2, HELD_ITEMS_MAX),
            bytes: 0,
            entries: BinaryHeap::new(),
            is_cut: false,
            last_seen: None,
        }
    }

    fn add_candidate(&mut self, key: &[u8], tie: u64) {
        if self.last_seen.as_ref().is_none_or(|(last, last_tie)| (&last[..], *last_tie) < (key, tie)) {
            self.last_seen = Some((key.to_vec(), tie));
        }
    }

    /// Whether it would be kept.
    fn takes(&self, key: &[u8], tie: u64) -> bool {
        let is_full =
            self.entries.len() >= self.keep || self.bytes >= HELD_BYTES_MAX && self.entries.len() > 1;
        !is_full || self.entries.peek().is_none_or(|(last, last_tie)| (key, tie) < (&last[..], *last_tie))
    }

    fn push(&mut self, key: Vec<u8>, tie: u64) -> Result<(), EngineError> {
        self.bytes += key.len() + ENTRY_BYTES;
        if self.bytes > self.memory.bytes() {
            self.memory.grow_to(self.bytes + MEMORY_PIECE_BYTES)?;
        }
        self.entries.push((key, tie));
        while self.entries.len() > self.keep || self.bytes > HELD_BYTES_MAX && self.entries.len() > 2 {
            if let Some((key, _)) = self.entries.pop() {
                self.bytes -= key.len() + ENTRY_BYTES;
                self.is_cut = true;
            }
        }
        Ok(())
    }
}

/// Items that were written since an order was cached, and the positions of those that give rows.
#[derive(Default)]
struct ChangedItems {
    rids: HashSet<u64>,
    places: BTreeSet<(Vec<u8>, u64)>,
}

/// Sort key and tie in one byte string that compares like positions.
fn record_of(key: &[u8], tie: u64) -> Vec<u8> {
    [key, &tie.to_be_bytes()].concat()
}

/// What sorted queries share.
pub(crate) struct SortedQuery<'r, 'q> {
    pub order: &'r SortOrder,
    pub evaluator: &'r ItemEvaluator<'q>,
    pub start: SortStart,
    pub prefix_counter: PrefixCounter,
    /// All items up to this position were processed.
    pub passed: Option<(Vec<u8>, u64)>,
    /// Index rows for items without the sort key would have made the walk cheaper.
    pub wants_missing: bool,
}

impl<'r, 'q> SortedQuery<'r, 'q> {
    pub fn new(
        order: &'r SortOrder,
        evaluator: &'r ItemEvaluator<'q>,
        reader: &mut ScopeReader<'_>,
        request: &PageRequest,
        resume: Option<&super::super::continuation::SortPosition>,
    ) -> Result<SortedQuery<'r, 'q>, EngineError> {
        let mut start = SortStart::of(resume, order, evaluator, reader)?;
        let trail = PrefixCounter::new(sort_key_bytes(request), &start, resume);
        if let Some(filter) = &request.resume {
            let descending: Vec<bool> = order.keys.iter().map(|key| key.descending).collect();
            start = start.later(SortStart::named(filter, &descending, order.ties)?);
        }
        Ok(SortedQuery { order, evaluator, start, prefix_counter: trail, passed: None, wants_missing: false })
    }

    /// Sorts the candidates and sends them. `None`: everything was sent.
    pub fn sort(
        &mut self,
        reader: &mut ScopeReader<'_>,
        candidates: &mut Candidates,
        output: &mut PageOutput,
    ) -> Result<Option<Resume>, EngineError> {
        let smallest = self.gather(reader, candidates, output)?;
        self.send(reader, smallest, output)
    }

    /// The first candidates after the start that give rows, one more than the page can need.
    pub fn gather(
        &self,
        reader: &mut ScopeReader<'_>,
        candidates: &mut Candidates,
        output: &PageOutput,
    ) -> Result<TopItems, EngineError> {
        let surplus = usize::try_from(self.start.skip_count()).unwrap_or(usize::MAX);
        let keep = output.wanted().saturating_add(surplus).saturating_add(1);
        let smallest = RefCell::new(TopItems::new(keep, reader.meter.reserve()?));
        let ties = self.order.ties;
        let is_wanted = |found: &FoundItem<'_>| {
            let (key, tie) = (self.order.key_of(self.evaluator, found)?, ties.rid_or_tie(found.position.rid));
            Ok(self.start.admits(&key, tie) && smallest.borrow().takes(&key, tie))
        };
        let walk = &mut |reader: &mut ScopeReader<'_>, from, visit: &mut ItemVisitor<'_>| {
            candidates.visit(reader, from, usize::MAX, visit)
        };
        let end = visit_ahead(
            reader,
            (self.evaluator, EvaluationNeed::Existence),
            None,
            usize::MAX,
            &is_wanted,
            walk,
            &mut |found| {
                let key = self.order.key_of(self.evaluator, found)?;
                let tie = ties.rid_or_tie(found.position.rid);
                let mut smallest = smallest.borrow_mut();
                smallest.add_candidate(&key, tie);
                if self.start.admits(&key, tie) {
                    if smallest.takes(&key, tie) {
                        if self.evaluator.has_rows(found)? {
                            smallest.push(key, tie)?;
                        }
                    } else {
                        smallest.is_cut = true;
                    }
                }
                Ok(VisitNext::More)
            },
        )?;
        match end {
            ScanEnd::Paused(_) => Err(SqlError::Budget { what: "a minute" }.into()),
            ScanEnd::Done | ScanEnd::Stopped => Ok(smallest.into_inner()),
        }
    }

    pub fn send(
        &mut self,
        reader: &mut ScopeReader<'_>,
        smallest: TopItems,
        output: &mut PageOutput,
    ) -> Result<Option<Resume>, EngineError> {
        let is_cut = smallest.is_cut;
        let entries = smallest.entries.into_sorted_vec();
        let surplus = usize::try_from(self.start.skip_count()).unwrap_or(usize::MAX);
        let early = entries.iter().take(surplus).take_while(|(key, _)| self.start.is_surplus(key)).count();
        let entries = &entries[early..];
        // The last one is only the start of the next page.
        let (last, now) = match entries.split_last() {
            Some((last, now)) if is_cut => (Some(last), now),
            _ => (None, entries),
        };
        if let Some(resume) = self.send_items(reader, now, output)? {
            return Ok(resume);
        }
        Ok(last.map(|(key, tie)| self.resume(output, key, *tie, 0)))
    }

    /// Sends items in this order. `Some`: the page ends here, and the next one starts there, if there is one.
    pub fn send_items(
        &mut self,
        reader: &mut ScopeReader<'_>,
        items: &[(Vec<u8>, u64)],
        output: &mut PageOutput,
    ) -> Result<Option<Option<Resume>>, EngineError> {
        for items in items.chunks(FETCH_ITEMS) {
            let rids: Vec<u64> = items.iter().map(|(_, tie)| self.order.ties.rid_or_tie(*tie)).collect();
            let rows = reader.fetch(&rids)?;
            let mut prepared = 0;
            for (at, (key, tie)) in items.iter().enumerate() {
                if at == prepared {
                    prepared = items.len().min(at + output.wanted().max(1));
                    prepare_fetched(reader, self.evaluator, &rids[at..prepared], &rows[at..prepared])?;
                }
                let Some(bytes) = &rows[at] else { continue };
                if let Some(end) = self.send_item(reader, key, *tie, bytes, output)? {
                    return Ok(Some(end));
                }
            }
        }
        Ok(None)
    }

    /// Sends the rows of one item; the same answer.
    pub fn send_item(
        &mut self,
        reader: &mut ScopeReader<'_>,
        key: &[u8],
        tie: u64,
        bytes: &[u8],
        output: &mut PageOutput,
    ) -> Result<Option<Option<Resume>>, EngineError> {
        if output.is_finished() {
            return Ok(Some(None));
        }
        let done = self.start.rows_done(key, tie);
        let (mut sent, before) = (SendOutcome::All, output.counted());
        let end = reader.show(self.order.ties.rid_or_tie(tie), bytes, &mut |found| {
            sent = output.send(self.evaluator, found, done)?;
            Ok(if matches!(sent, SendOutcome::Full { .. }) { VisitNext::NotThis } else { VisitNext::More })
        })?;
        reader.meter.matched += u64::from(output.counted() > before);
        if let ScanEnd::Paused(_) = end {
            return Ok(Some(Some(self.resume(output, key, tie, done))));
        }
        match sent {
            SendOutcome::All => {
                self.prefix_counter.pass(key);
                Ok(None)
            }
            SendOutcome::Limit => Ok(Some(None)),
            SendOutcome::Full { row } => Ok(Some(Some(self.resume(output, key, tie, row)))),
        }
    }

    /// Fills the page from the cached order, which is built if it is not there. `None`: it cannot be cached.
    pub fn sort_with_cache(
        &mut self,
        reader: &mut ScopeReader<'_>,
        candidates: &mut Candidates,
        output: &mut PageOutput,
        holding: &ResultCaching<'_>,
    ) -> Result<Option<Option<Resume>>, EngineError> {
        let SortStart::At { key, tie, .. } = &self.start else { return Ok(None) };
        // A last page needs no more than its own rows.
        if output.limit - output.sent <= output.rows.room() as u64 {
            return Ok(None);
        }
        let from = record_of(key, *tie);
        let owner = holding.identity.result_owner();
        let (results, key) = (&holding.shared.result_cache, ResultKey::Order(owner));
        let found = results.find(key, &owner).filter(|held| held.first_key <= from);
        if let Some(held) = found
            && let Some(changed) = self.changed(reader, &held)?
        {
            return self.send_cached(reader, &held, &from, changed, output).map(Some);
        }
        match self.order_all(reader, candidates, from.clone(), (holding, owner)) {
            Ok(Some(held)) => {
                let held = Arc::new(held);
                results.insert(key, Arc::clone(&held));
                self.send_cached(reader, &held, &from, ChangedItems::default(), output).map(Some)
            }
            Ok(None) => Ok(None),
            Err(EngineError::Sql(error)) if error.is_out_of_space() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The positions of all items that give rows, from one position on. `None`: they do not fit.
    fn order_all(
        &self,
        reader: &mut ScopeReader<'_>,
        candidates: &mut Candidates,
        from: Vec<u8>,
        (holding, owner): (&ResultCaching<'_>, QueryDigest),
    ) -> Result<Option<CachedResult>, EngineError> {
        let meter = reader.meter.unlimited();
        let sorter = RefCell::new(Sorter::new(&meter, StepLimit::PerRecord));
        let ties = self.order.ties;
        let is_wanted = |found: &FoundItem<'_>| {
            Ok(self
                .start
                .admits(&self.order.key_of(self.evaluator, found)?, ties.rid_or_tie(found.position.rid)))
        };
        let walk = &mut |reader: &mut ScopeReader<'_>, from, visit: &mut ItemVisitor<'_>| {
            candidates.visit(reader, from, usize::MAX, visit)
        };
        let end = visit_ahead(
            reader,
            (self.evaluator, EvaluationNeed::Existence),
            None,
            usize::MAX,
            &is_wanted,
            walk,
            &mut |found| {
                let (key, tie) =
                    (self.order.key_of(self.evaluator, found)?, ties.rid_or_tie(found.position.rid));
                if self.start.admits(&key, tie) && self.evaluator.has_rows(found)? {
                    sorter.borrow_mut().push(&record_of(&key, tie), &[])?;
                }
                Ok(VisitNext::More)
            },
        )?;
        if let ScanEnd::Paused(_) = end {
            return Err(SqlError::Budget { what: "a minute" }.into());
        }
        let mut places = sorter.into_inner().finish()?;
        let mut held = ResultWriter::ordered(owner, from, holding.positions.clone(), holding.temp);
        while let Some((place, _)) = places.next_record()? {
            if !held.push([place, &[]])? {
                return Ok(None);
            }
        }
        Ok(Some(held.finish(true)?))
    }

    /// The items that were written since an order was cached. `None`: too many to sort for every page.
    fn changed(
        &self,
        reader: &mut ScopeReader<'_>,
        held: &CachedResult,
    ) -> Result<Option<ChangedItems>, EngineError> {
        let mut changed = ChangedItems::default();
        for (partition, lsn) in &held.positions {
            let scan = latest_feed_scan(reader.container.number, *partition, *lsn, CHANGED_MAX + 1);
            let page = reader.snapshot.scan(&scan)?;
            reader.meter.index_rows += page.rows.len() as u64;
            reader.meter.spend(page.rows.len() as u64)?;
            let rids = page.rows.iter().filter_map(|(_, rid)| keys::number(rid));
            changed.rids.extend(rids.filter(|rid| reader.may_contain(*rid)));
            if page.more || changed.rids.len() > CHANGED_MAX {
                return Ok(None);
            }
        }
        let rids: Vec<u64> = changed.rids.iter().copied().collect();
        for rids in rids.chunks(FETCH_ITEMS) {
            for (rid, bytes) in rids.iter().zip(reader.fetch(rids)?) {
                let Some(bytes) = bytes else { continue };
                reader.show(*rid, &bytes, &mut |found| {
                    let (key, tie) =
                        (self.order.key_of(self.evaluator, found)?, self.order.ties.rid_or_tie(*rid));
                    if self.start.admits(&key, tie) && self.evaluator.has_rows(found)? {
                        changed.places.insert((key, tie));
                    }
                    Ok(VisitNext::More)
                })?;
            }
        }
        Ok(Some(changed))
    }

    fn send_cached(
        &mut self,
        reader: &mut ScopeReader<'_>,
        held: &CachedResult,
        from: &[u8],
        mut changed: ChangedItems,
        output: &mut PageOutput,
    ) -> Result<Option<Resume>, EngineError> {
        let mut records = held.read_from(from);
        let mut next: Option<(Vec<u8>, u64)> = None;
        loop {
            let mut places = Vec::with_capacity(FETCH_ITEMS);
            while places.len() < FETCH_ITEMS {
                while next.is_none() {
                    let Some(record) = records.next()? else { break };
                    reader.meter.spend(1)?;
                    let (key, tie) = record.split_last_chunk().ok_or_else(|| corrupt("held place"))?;
                    let tie = u64::from_be_bytes(*tie);
                    let is_changed = changed.rids.contains(&self.order.ties.rid_or_tie(tie));
                    next = (record >= from && !is_changed).then(|| (key.to_vec(), tie));
                }
                let first_changed = changed.places.first();
                let place = match (&next, first_changed) {
                    (Some(place), Some(other)) if other < place => changed.places.pop_first(),
                    (None, Some(_)) => changed.places.pop_first(),
                    _ => next.take(),
                };
                let Some(place) = place else { break };
                places.push(place);
            }
            if places.is_empty() {
                return Ok(None);
            }
            if let Some(end) = self.send_items(reader, &places, output)? {
                return Ok(end);
            }
        }
    }

    pub fn resume(&self, output: &PageOutput, key: &[u8], tie: u64, row: u64) -> Resume {
        let place = self.prefix_counter.place(key, self.order.ties.rid_or_tie(tie), row);
        let (skipped, sent) = (output.skipped, output.sent);
        Resume::Sorted { order: self.order.hash, skipped, sent, place, cached_row: None }
    }
}
