//! The items with the highest scores of one text.

use quire_sql::functions::full_text_score;

use super::postings::{TextPostings, lengths};
use super::scope::TextScope;
use super::scored_items::{ScoredItems, is_same_prefix};
use crate::api::EngineError;
use crate::query::exec::evaluate::ItemEvaluator;
use crate::query::partition_scope::is_in_several;
use crate::query::plan::snapshot_indexes::SnapshotIndexes;
use crate::query::reader::ScopeReader;

/// Statistics of a score.
pub(super) struct ScoreStatistics<'a> {
    pub documents: f64,
    pub total_words: f64,
    pub hits: &'a [f64],
}

/// The items with the best scores, then those without a term in their own order, until enough of them give rows;
/// `None`: some of the rows come from items that the index does not have.
pub(super) fn best(
    reader: &mut ScopeReader<'_>,
    indexes: &SnapshotIndexes<'_>,
    evaluator: &ItemEvaluator<'_>,
    text: &TextPostings,
    scope: &TextScope,
    statistics: &ScoreStatistics<'_>,
    needed: usize,
) -> Result<Option<Vec<u64>>, EngineError> {
    let Some(scored) = scored(reader, indexes, text, statistics)? else { return Ok(None) };
    let mut chosen = ScoredItems::new(reader, evaluator, needed);
    let mut rest = scored.as_slice();
    while !rest.is_empty() && !chosen.is_enough() {
        let (batch, left) = rest.split_at(chosen.batch().min(rest.len()));
        // Where scopes share a prefix, items are ordered by scope: items with equal scores stay together.
        let together = batch.last().map_or(0, |(score, last)| {
            let is_next = |rid: u64| is_same_prefix(rid, *last) && is_in_several(chosen.reader.scopes, rid);
            left.iter().take_while(|(other, rid)| other == score && is_next(*rid)).count()
        });
        let (batch, left) = rest.split_at(batch.len() + together);
        let rids: Vec<u64> = batch.iter().map(|(_, rid)| *rid).collect();
        chosen.add_matching(&rids)?;
        rest = left;
    }
    if chosen.is_enough() {
        return Ok(Some(chosen.finish()));
    }
    let mut with_terms: Vec<u64> = scored.into_iter().map(|(_, rid)| rid).collect();
    with_terms.sort_unstable();
    let is_complete = chosen.fill(indexes, text, scope, &with_terms)?;
    Ok(is_complete.then(|| chosen.finish()))
}

/// Every item with a term and its score, the highest first and then by child id; `None`: some score is not above 0.
pub(super) fn scored(
    reader: &mut ScopeReader<'_>,
    indexes: &SnapshotIndexes<'_>,
    text: &TextPostings,
    statistics: &ScoreStatistics<'_>,
) -> Result<Option<Vec<(f64, u64)>>, EngineError> {
    let terms = text.statistics.hit_counts.len();
    let groups = || text.postings.chunk_by(|left, right| left.rid == right.rid);
    let rids: Vec<u64> = groups().map(|postings| postings[0].rid).collect();
    let lengths = lengths(reader, indexes, text.index, &rids)?;
    let mut scored = Vec::with_capacity(rids.len());
    let mut occurrences = vec![0.0; terms];
    for postings in groups() {
        reader.meter.spend(terms as u64)?;
        occurrences.fill(0.0);
        for posting in postings {
            occurrences[posting.term as usize] = f64::from(posting.occurrences);
        }
        let Some(words) = lengths.get(&postings[0].rid) else { return Ok(None) };
        let ScoreStatistics { documents, total_words, hits } = statistics;
        let score = full_text_score(*documents, *total_words, hits, f64::from(*words), &occurrences);
        if score.is_nan() || score <= 0.0 {
            return Ok(None);
        }
        scored.push((score, postings[0].rid));
    }
    scored
        .sort_by(|(left, left_rid), (right, right_rid)| right.total_cmp(left).then(left_rid.cmp(right_rid)));
    Ok(Some(scored))
}
