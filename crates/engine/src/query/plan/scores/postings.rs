//! What a full-text index has of the texts in scope: occurrences of terms, lengths.

use std::collections::HashMap;
use std::ops::{Bound, ControlFlow};

use quire_sql::SearchedText;
use quire_sql::functions::TextStatistics;
use quire_storage::{Direction, KeyRange};

use super::scope::TextScope;
use crate::api::EngineError;
use crate::indexes::ScoringIndex;
use crate::query::exec::evaluate::ItemEvaluator;
use crate::query::plan::SEEK;
use crate::query::plan::snapshot_indexes::SnapshotIndexes;
use crate::query::reader::ScopeReader;

/// Rows of an index that one call of the reader gathers.
const READ_ROWS_MAX: usize = 16 << 10;

/// The memory of an occurrence while it is collected, sorted and scored.
const POSTING_BYTES: usize = 64;

/// A text of the items in scope, as its index has it.
pub(super) struct TextPostings {
    pub index: ScoringIndex,
    pub statistics: TextStatistics,
    /// Where a term occurs, by child id and then by term.
    pub postings: Vec<Posting>,
    /// Every item in scope has such a text.
    pub is_in_all: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Posting {
    pub rid: u64,
    pub term: u32,
    pub occurrences: u32,
}

/// The number of items in scope and the index's data of the texts; `None`: the index is not exact.
pub(super) fn read_texts(
    reader: &mut ScopeReader<'_>,
    snapshot_indexes: &SnapshotIndexes<'_>,
    evaluator: &ItemEvaluator<'_>,
    searched: &[&SearchedText],
) -> Result<Option<(u64, Vec<TextPostings>, TextScope)>, EngineError> {
    let indexes: Option<Vec<ScoringIndex>> = searched
        .iter()
        .map(|text| {
            snapshot_indexes.scoring_index(&text.path).filter(|index| index.language == text.language)
        })
        .collect();
    let Some(indexes) = indexes else { return Ok(None) };
    // Words that match approximately may be anywhere in the index.
    if searched.iter().flat_map(|text| &text.terms).any(|term| term.distance > 0) {
        return Ok(None);
    }
    let Some(mut scope) = TextScope::of(reader, snapshot_indexes)? else { return Ok(None) };
    let mut texts = Vec::with_capacity(searched.len());
    for (searched, index) in searched.iter().zip(indexes) {
        let Some((words, is_in_all)) = scope.words(reader, snapshot_indexes, index)? else { return Ok(None) };
        let gone = scope.words_of_deleted_items(reader, evaluator, searched)?;
        let mut text = TextPostings {
            index,
            statistics: TextStatistics {
                total_word_count: words.saturating_sub(gone),
                hit_counts: Vec::with_capacity(searched.terms.len()),
            },
            postings: Vec::new(),
            is_in_all,
        };
        for (at, term) in searched.terms.iter().enumerate() {
            let found = match term.words.as_slice() {
                [] => Vec::new(),
                [word] => scope.occurrences(reader, snapshot_indexes, index, word)?,
                words => {
                    match scope.phrase(reader, snapshot_indexes, evaluator, (index, searched, term), words)? {
                        Some(found) => found,
                        None => return Ok(None),
                    }
                }
            };
            text.statistics.hit_counts.push(found.len() as u64);
            let posting = |(rid, occurrences)| Posting { rid, term: at as u32, occurrences };
            text.postings.extend(found.into_iter().map(posting));
        }
        text.postings.sort_unstable_by_key(|posting| (posting.rid, posting.term));
        texts.push(text);
    }
    let items = scope.items.saturating_sub(scope.gone.len() as u64);
    Ok(Some((items, texts, scope)))
}

/// The number of words in the texts of these items, which are in order.
pub(super) fn lengths(
    reader: &mut ScopeReader<'_>,
    indexes: &SnapshotIndexes<'_>,
    index: ScoringIndex,
    rids: &[u64],
) -> Result<HashMap<u64, u32>, EngineError> {
    let mut lengths = HashMap::with_capacity(rids.len());
    let (Some(first), Some(last)) = (rids.first(), rids.last()) else { return Ok(lengths) };
    reader.meter.retain_bytes(rids.len() * POSTING_BYTES)?;
    let rows = indexes.rows(index.lengths).unwrap_or(u64::MAX);
    let mut add = |value: &[u8], rid: u64| {
        lengths.extend(value.last_chunk().map(|length| (rid, u32::from_be_bytes(*length))));
    };
    if rids.len() as f64 * SEEK < rows as f64 {
        for rid in rids {
            each_length(reader, indexes, index, (*rid, *rid), &mut |value, rid| {
                add(value, rid);
                ControlFlow::Break(())
            })?;
        }
    } else {
        each_length(reader, indexes, index, (*first, *last), &mut |value, rid| {
            if rids.binary_search(&rid).is_ok() {
                add(value, rid);
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok(lengths)
}

/// The rows of the lengths of items from one child id to another, in their order.
pub(super) fn each_length(
    reader: &mut ScopeReader<'_>,
    indexes: &SnapshotIndexes<'_>,
    index: ScoringIndex,
    (first, last): (u64, u64),
    visit: &mut dyn FnMut(&[u8], u64) -> ControlFlow<()>,
) -> Result<(), EngineError> {
    let mut keys = indexes.length_keys_in(index.lengths, (first, last));
    loop {
        let (mut after, mut is_enough) = (None, false);
        let rows_max = if first == last { 1 } else { READ_ROWS_MAX };
        let more = reader.index_rows(keys.clone(), Direction::Forward, rows_max, &mut |key| {
            let Some((value, rid)) = key.split_last_chunk() else { return ControlFlow::Continue(()) };
            after = Some(key.to_vec());
            let flow = visit(value, u64::from_be_bytes(*rid));
            is_enough = flow.is_break();
            flow
        })?;
        let Some(after) = after.filter(|_| more && !is_enough) else { return Ok(()) };
        keys.start = Bound::Excluded(after);
    }
}

/// All rows of a range, in the memory of the page.
pub(super) fn gather(
    reader: &mut ScopeReader<'_>,
    mut keys: KeyRange,
    mut take: impl FnMut(&[u8], u64),
) -> Result<(), EngineError> {
    loop {
        let (mut after, mut rows) = (None, 0);
        let more = reader.index_rows(keys.clone(), Direction::Forward, READ_ROWS_MAX, &mut |key| {
            if let Some((value, rid)) = key.split_last_chunk() {
                take(value, u64::from_be_bytes(*rid));
            }
            rows += 1;
            let after = after.get_or_insert_with(Vec::new);
            after.clear();
            after.extend_from_slice(key);
            ControlFlow::Continue(())
        })?;
        reader.meter.retain_bytes(rows * POSTING_BYTES)?;
        let Some(after) = after.filter(|_| more) else { return Ok(()) };
        keys.start = Bound::Excluded(after);
    }
}
