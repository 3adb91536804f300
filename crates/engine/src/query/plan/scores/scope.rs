//! The rows of a full-text index that belong to items in scope.

use std::collections::{HashMap, HashSet};
use std::ops::{Bound, ControlFlow};

use quire_sql::{SearchTerm, SearchedText, ValueRange};
use quire_storage::{Direction, KeyRange, Scan};
use quire_value::{Node as ItemNode, Path, Value};

use super::postings::{each_length, gather};
use super::{FETCH_ITEMS, check};
use crate::api::EngineError;
use crate::indexes::ScoringIndex;
use crate::query::exec::evaluate::ItemEvaluator;
use crate::query::partition_scope::PartitionScope;
use crate::query::plan::index_only::{edges, key_rows};
use crate::query::plan::snapshot_indexes::{SnapshotIndexes, encoded};
use crate::query::plan::{FETCH, ITEM};
use crate::query::reader::{ScopeReader, VisitNext};
use crate::store::keys;

/// Items that may have expired; where there are more, every item is read.
const EXPIRED_MAX: usize = 1024;

/// The most by which the clock may have been set back when an item was written.
const CLOCK_STEP_SECONDS: i64 = 60;

/// The rows of an index that belong to items in scope.
pub(super) struct TextScope {
    /// Expired, but not removed.
    pub gone: HashSet<u64>,
    /// Prefixes that items of a neighbouring partition can have.
    pub edges: Vec<u32>,
    /// Under an edge: whether the item is in scope.
    pub judged: HashMap<u64, bool>,
    /// The items of the one logical partition in scope, in order; `None`: whole partitions are.
    pub members: Option<Vec<u64>>,
    /// Those that are gone included.
    pub items: u64,
}

impl TextScope {
    /// `None`: the snapshot hides items that the index still has.
    pub fn of(
        reader: &mut ScopeReader<'_>,
        indexes: &SnapshotIndexes<'_>,
    ) -> Result<Option<TextScope>, EngineError> {
        if reader.visibility_point.hides_keys() || reader.hides_items() {
            return Ok(None);
        }
        let members = if reader.scopes.iter().all(PartitionScope::is_whole) {
            None
        } else {
            let Some((_, _, keys)) = key_rows(reader, indexes) else { return Ok(None) };
            let mut members = Vec::new();
            gather(reader, keys, |_, rid| members.push(rid))?;
            Some(members)
        };
        let Some(expired) = may_be_expired(reader, indexes)? else { return Ok(None) };
        let mut gone = HashSet::new();
        for rids in expired.chunks(FETCH_ITEMS) {
            for (rid, bytes) in rids.iter().zip(reader.fetch(rids)?) {
                if let Some(bytes) = bytes
                    && reader.is_hidden_in_scope(*rid, &bytes)?
                {
                    gone.insert(*rid);
                }
            }
        }
        let (items, edges) = match &members {
            Some(members) => (members.len() as u64, Vec::new()),
            None => (indexes.items(), edges(reader)),
        };
        Ok(Some(TextScope { gone, edges, judged: HashMap::new(), members, items }))
    }

    /// Whether fetching this many items costs more than reading all of them in order.
    pub fn costs_more(&self, items: usize, indexes: &SnapshotIndexes<'_>) -> bool {
        !indexes.is_preferred() && items as f64 * FETCH > self.items as f64 * ITEM
    }

    /// Words in all texts, and whether every item has one; `None`: not counted.
    pub fn words(
        &self,
        reader: &mut ScopeReader<'_>,
        indexes: &SnapshotIndexes<'_>,
        index: ScoringIndex,
    ) -> Result<Option<(u64, bool)>, EngineError> {
        let Some(members) = &self.members else {
            return Ok(indexes.rows(index.words).map(|words| (words, indexes.has_all(index.lengths))));
        };
        let (Some(first), Some(last)) = (members.first(), members.last()) else { return Ok(Some((0, true))) };
        let (mut words, mut texts) = (0, 0);
        each_length(reader, indexes, index, (*first, *last), &mut |value, rid| {
            if members.binary_search(&rid).is_ok() {
                words += value.last_chunk().map_or(0, |words| u64::from(u32::from_be_bytes(*words)));
                texts += 1;
            }
            ControlFlow::Continue(())
        })?;
        Ok(Some((words, texts == members.len())))
    }

    /// Words in the texts of items that are gone.
    pub fn words_of_deleted_items(
        &self,
        reader: &mut ScopeReader<'_>,
        evaluator: &ItemEvaluator<'_>,
        searched: &SearchedText,
    ) -> Result<u64, EngineError> {
        let rids: Vec<u64> = self.gone.iter().copied().collect();
        let bare = SearchedText { terms: Vec::new(), ..searched.clone() };
        let mut words = 0;
        for rids in rids.chunks(FETCH_ITEMS) {
            for bytes in reader.fetch(rids)?.into_iter().flatten() {
                let row = crate::store::item_row::ItemRow::trusted(&bytes)?;
                if let Some(text) = searched.path.find_in(row.node()?).and_then(ItemNode::as_str) {
                    words += evaluator.text_counts(&bare, text)?.first().copied().unwrap_or(0);
                }
            }
        }
        Ok(words)
    }

    /// In which texts a word occurs and how often, by child id.
    pub fn occurrences(
        &mut self,
        reader: &mut ScopeReader<'_>,
        indexes: &SnapshotIndexes<'_>,
        index: ScoringIndex,
        word: &str,
    ) -> Result<Vec<(u64, u32)>, EngineError> {
        let mut rids = Vec::new();
        let mut repeated: HashMap<u64, u32> = HashMap::new();
        for interval in reader.intervals() {
            let keys = indexes.term_keys_in(index.terms, word, interval);
            gather(reader, keys, |_, rid| rids.push(rid))?;
            let keys = indexes.term_keys_in(index.repeated, word, interval);
            gather(reader, keys, |value, rid| {
                repeated.extend(value.last_chunk().map(|count| (rid, u32::from_be_bytes(*count))));
            })?;
        }
        self.read_undecided(reader, &rids)?;
        rids.retain(|rid| self.contains(reader, *rid));
        Ok(rids.into_iter().map(|rid| (rid, repeated.get(&rid).copied().unwrap_or(1))).collect())
    }

    /// The same for a phrase: where all its words occur, the text is read. `None`: reading every item is cheaper.
    pub fn phrase(
        &mut self,
        reader: &mut ScopeReader<'_>,
        indexes: &SnapshotIndexes<'_>,
        evaluator: &ItemEvaluator<'_>,
        (index, searched, term): (ScoringIndex, &SearchedText, &SearchTerm),
        words: &[String],
    ) -> Result<Option<Vec<(u64, u32)>>, EngineError> {
        let mut unique: Vec<&String> = words.iter().collect();
        unique.sort();
        unique.dedup();
        let mut all: Option<Vec<u64>> = None;
        for word in unique {
            let found = self.occurrences(reader, indexes, index, word)?;
            all = Some(match all {
                None => found.into_iter().map(|(rid, _)| rid).collect(),
                Some(mut all) => {
                    all.retain(|rid| found.binary_search_by_key(rid, |(found, _)| *found).is_ok());
                    all
                }
            });
        }
        let all = all.unwrap_or_default();
        if self.costs_more(all.len(), indexes) {
            return Ok(None);
        }
        let only = SearchedText { terms: vec![term.clone()], ..searched.clone() };
        let mut found = Vec::new();
        for rids in all.chunks(FETCH_ITEMS) {
            for (rid, bytes) in rids.iter().zip(reader.fetch(rids)?) {
                let Some(bytes) = bytes else { continue };
                let mut occurrences = 0;
                let end = reader.show(*rid, &bytes, &mut |item| {
                    if let Some(text) = only.path.find_in(item.row.node()?).and_then(ItemNode::as_str) {
                        occurrences = evaluator.text_counts(&only, text)?.get(1).copied().unwrap_or(0);
                    }
                    Ok(VisitNext::More)
                })?;
                check(end)?;
                if occurrences > 0 {
                    found.push((*rid, u32::try_from(occurrences).unwrap_or(u32::MAX)));
                }
            }
        }
        Ok(Some(found))
    }

    /// Reads the items for which the index does not show whether they are in scope.
    pub fn read_undecided(&mut self, reader: &mut ScopeReader<'_>, rids: &[u64]) -> Result<(), EngineError> {
        let is_open =
            |rid: &u64| self.edges.contains(&keys::rid_prefix(*rid)) && !self.judged.contains_key(rid);
        let open: Vec<u64> = rids.iter().copied().filter(is_open).collect();
        for rids in open.chunks(FETCH_ITEMS) {
            for (rid, bytes) in rids.iter().zip(reader.fetch(rids)?) {
                let mut is_in = false;
                if let Some(bytes) = bytes {
                    let end = reader.show(*rid, &bytes, &mut |_| {
                        is_in = true;
                        Ok(VisitNext::More)
                    })?;
                    check(end)?;
                }
                self.judged.insert(*rid, is_in);
            }
        }
        Ok(())
    }

    /// After [`TextScope::read_undecided`].
    pub fn contains(&self, reader: &ScopeReader<'_>, rid: u64) -> bool {
        self.members
            .as_ref()
            .map_or_else(|| reader.may_contain(rid), |members| members.binary_search(&rid).is_ok())
            && !self.gone.contains(&rid)
            && (self.edges.is_empty() || self.judged.get(&rid).copied().unwrap_or(true))
    }
}

/// Child ids of items that may have expired by the time; `None`: too many.
pub(super) fn may_be_expired(
    reader: &mut ScopeReader<'_>,
    indexes: &SnapshotIndexes<'_>,
) -> Result<Option<Vec<u64>>, EngineError> {
    let Some(default) = reader.container.definition.default_ttl else { return Ok(Some(Vec::new())) };
    let (number, now) = (reader.container.number, reader.visibility_point.seconds);
    let range = KeyRange {
        start: Bound::Included(keys::expiry(number, 0, 0)),
        end: Bound::Included(keys::expiry(number, now, u64::MAX)),
    };
    let scan = Scan {
        space: keys::FEEDS,
        range,
        direction: Direction::Forward,
        rows_max: EXPIRED_MAX + 1,
        bytes_max: usize::MAX,
        keys_only: true,
    };
    let mut rids = Vec::new();
    reader.meter.spend(EXPIRED_MAX as u64)?;
    reader.snapshot.visit(&scan, &mut |key, _| {
        rids.extend(keys::rid_of_expiry_key(key));
        ControlFlow::Continue(())
    })?;
    if default > 0 {
        let path = Path(vec![quire_value::Segment::Name("_ts".to_owned())]);
        let Some(index) = indexes.range_index(&path, &[]) else { return Ok(None) };
        let latest = Value::from(now - i64::from(default) + CLOCK_STEP_SECONDS);
        let written = ValueRange { low: Bound::Unbounded, high: Bound::Included(latest) };
        let keys = indexes.keys(index, &encoded(&written, None));
        reader.index_rows(keys, Direction::Forward, EXPIRED_MAX + 1, &mut |key| {
            rids.extend(key.last_chunk().map(|rid| u64::from_be_bytes(*rid)));
            ControlFlow::Continue(())
        })?;
    }
    rids.sort_unstable();
    rids.dedup();
    Ok((rids.len() <= EXPIRED_MAX).then_some(rids))
}
