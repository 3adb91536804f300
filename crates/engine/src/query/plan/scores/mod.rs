//! Scores of texts from a full-text index: the statistics that ORDER BY RANK needs of all texts, the items with the
//! best scores, and the counts that clients of several partitions request.
//!
//! The index shows how many texts have a term, how often it occurs in each and how long they are, as of the page's
//! snapshot. From that the items are chosen that can be among the rows of the page; the query is run over these, so
//! scores, ranks and their order are always those of the items. Invariant: the rows of a page are the same, byte for
//! byte, as if every item of the scope had been read. What the index cannot show exactly is computed by reading every item.
//!
//! Items that have expired and are not removed yet still have their rows: they are looked up by time and taken off. An
//! item without any of the terms has a score of 0, and one without a text has none; they come last, in their own order.

mod best; // the items with the highest scores
mod postings; // what an index has of the texts
mod scope; // which rows are about items in scope
mod scored_items; // the items that a page looks at

use quire_sql::functions::{TextStatistics, full_text_score};
use quire_sql::{
    RankSearch, RankStatistics, ScoreOrder, SearchedText, SqlError, TextCount, TextStatisticsSearch,
    fused_scores, rank_contribution,
};
use quire_value::{Node as ItemNode, Value};

use self::best::{ScoreStatistics, best};
use self::postings::{TextPostings, read_texts};
use self::scope::TextScope;
use self::scored_items::ScoredItems;
use super::candidates::Candidates;
use super::explain::PlanNode;
use super::rids::RidSet;
use super::snapshot_indexes::SnapshotIndexes;
use crate::api::EngineError;
use crate::query::exec::evaluate::ItemEvaluator;
use crate::query::meter::ScanBudget;
use crate::query::reader::{ScanEnd, ScopeReader};

/// Items fetched at a time.
const FETCH_ITEMS: usize = 256;

/// The texts in the scope of a page.
pub(crate) struct RankedTexts {
    pub statistics: RankStatistics,
    search: RankSearch,
    /// One per component; `None` of a distance.
    texts: Vec<Option<TextPostings>>,
    scope: TextScope,
}

impl RankedTexts {
    /// `None`: no index has the scores.
    pub fn of(
        reader: &mut ScopeReader<'_>,
        indexes: &SnapshotIndexes<'_>,
        evaluator: &ItemEvaluator<'_>,
        search: RankSearch,
    ) -> Result<Option<RankedTexts>, EngineError> {
        if search.components.iter().all(|component| component.text.is_none()) {
            return Ok(None);
        }
        unless_too_large(RankedTexts::read(reader, indexes, evaluator, search))
    }

    fn read(
        reader: &mut ScopeReader<'_>,
        indexes: &SnapshotIndexes<'_>,
        evaluator: &ItemEvaluator<'_>,
        search: RankSearch,
    ) -> Result<Option<RankedTexts>, EngineError> {
        let searched: Vec<&SearchedText> =
            search.components.iter().filter_map(|component| component.text.as_ref()).collect();
        let Some((items, read, scope)) = read_texts(reader, indexes, evaluator, &searched)? else {
            return Ok(None);
        };
        let statistics = RankStatistics {
            document_count: items,
            texts: read.iter().map(|text| text.statistics.clone()).collect(),
        };
        let mut read = read.into_iter();
        let texts = search.components.iter().map(|component| {
            component.text.as_ref()?;
            read.next()
        });
        let texts = texts.collect();
        Ok(Some(RankedTexts { statistics, search, texts, scope }))
    }

    /// The items that can be among the first `rows` rows, without those that OFFSET skips; `None`: any item can.
    pub fn candidates(
        &self,
        reader: &mut ScopeReader<'_>,
        indexes: &SnapshotIndexes<'_>,
        evaluator: &ItemEvaluator<'_>,
        rows: usize,
    ) -> Result<Option<(Candidates, PlanNode)>, EngineError> {
        if self.search.distinct {
            return Ok(None);
        }
        let limit =
            self.search.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let offset = usize::try_from(self.search.offset).unwrap_or(usize::MAX);
        let needed = rows.min(limit).saturating_add(offset);
        let budget = reader.meter.set_budget(ScanBudget::WHOLE);
        let rids = unless_too_large(match self.texts.as_slice() {
            [Some(text)] if !self.search.is_fused => {
                let hits = doubles(&text.statistics.hit_counts);
                let statistics = ScoreStatistics {
                    documents: self.statistics.document_count as f64,
                    total_words: text.statistics.total_word_count as f64,
                    hits: &hits,
                };
                best(reader, indexes, evaluator, text, &self.scope, &statistics, needed)
            }
            _ => self.fused(reader, indexes, evaluator, needed),
        });
        reader.meter.set_budget(budget);
        Ok(rids?.map(|rids| chosen_node(&self.label(), needed, rids)))
    }

    fn label(&self) -> String {
        let texts = self.search.components.iter().filter_map(|component| component.text.as_ref());
        let paths: Vec<String> = texts.map(|text| text.path.to_string()).collect();
        paths.join(", ")
    }

    /// Items with none of the terms rank after all others by every score. Only whether there is such an item, and its
    /// best possible score, matters to the items before it.
    fn fused(
        &self,
        reader: &mut ScopeReader<'_>,
        indexes: &SnapshotIndexes<'_>,
        evaluator: &ItemEvaluator<'_>,
        needed: usize,
    ) -> Result<Option<Vec<u64>>, EngineError> {
        let weights: Vec<f64> = self.search.components.iter().map(|component| component.weight).collect();
        let texts: Option<Vec<&TextPostings>> = self.texts.iter().map(Option::as_ref).collect();
        let searched: Option<Vec<&SearchedText>> =
            self.search.components.iter().map(|component| component.text.as_ref()).collect();
        // Every item has a rank by distance, and with a negative weight the items without a term come first.
        let (Some(texts), Some(searched)) = (texts, searched) else { return Ok(None) };
        if weights.iter().any(|weight| *weight < 0.0) {
            return Ok(None);
        }
        let mut with_terms: Vec<u64> =
            texts.iter().flat_map(|text| text.postings.iter().map(|posting| posting.rid)).collect();
        with_terms.sort_unstable();
        with_terms.dedup();
        if self.scope.costs_more(with_terms.len(), indexes) {
            return Ok(None);
        }
        let mut scored: Vec<Vec<Option<f64>>> = Vec::with_capacity(with_terms.len());
        reader.meter.retain_bytes(with_terms.len() * texts.len() * size_of::<Option<f64>>())?;
        let mut chosen = ScoredItems::new(reader, evaluator, needed);
        for rids in with_terms.chunks(FETCH_ITEMS) {
            chosen.add_each_matching(rids, |_, item| {
                let score = |at: usize| self.score_of(evaluator, searched[at], at, item);
                scored.push((0..searched.len()).map(score).collect::<Result<_, _>>()?);
                Ok(())
            })?;
        }
        for (at, text) in texts.iter().enumerate() {
            let is_score = |score: fn(Option<f64>) -> bool| scored.iter().any(|scores| score(scores[at]));
            if is_score(|score| score.is_none())
                && !is_score(|score| score == Some(0.0))
                && !chosen.add_witness(indexes, text, &self.scope, &with_terms)?
            {
                return Ok(None);
            }
        }
        // A witness of one text has no term of any text; its score for the others does not come before.
        let witnesses: Vec<u64> = chosen.rids[scored.len()..].to_vec();
        for rid in witnesses {
            let mut scores = None;
            chosen.evaluate_rows(rid, |item| {
                let score = |at: usize| self.score_of(evaluator, searched[at], at, item);
                scores = Some((0..searched.len()).map(score).collect::<Result<Vec<_>, _>>()?);
                Ok(())
            })?;
            scored.extend(scores);
        }
        let rows: Vec<&[Option<f64>]> = scored.iter().map(Vec::as_slice).collect();
        let bound: f64 = (0..weights.len()).fold(0.0, |sum, at| {
            let mut positive: Vec<f64> =
                scored.iter().filter_map(|scores| scores[at]).filter(|score| *score > 0.0).collect();
            positive.sort_by(f64::total_cmp);
            positive.dedup();
            sum + rank_contribution(weights[at], positive.len() as u64 + 1)
        });
        let before = fused_scores(&rows, &weights).into_iter().filter(|score| *score > bound).count();
        Ok((before >= needed).then(|| chosen.finish()))
    }

    fn score_of(
        &self,
        evaluator: &ItemEvaluator<'_>,
        searched: &SearchedText,
        at: usize,
        item: ItemNode<'_>,
    ) -> Result<Option<f64>, EngineError> {
        let Some(text) = searched.path.find_in(item).and_then(ItemNode::as_str) else { return Ok(None) };
        let counts = doubles(&evaluator.text_counts(searched, text)?);
        let (Some((words, occurrences)), Some(of)) = (counts.split_first(), &self.texts[at]) else {
            return Ok(None);
        };
        let TextStatistics { total_word_count, hit_counts } = &of.statistics;
        let documents = self.statistics.document_count as f64;
        let hits = doubles(hit_counts);
        Ok(Some(full_text_score(documents, *total_word_count as f64, &hits, *words, occurrences)))
    }
}

/// The items that can be among the first rows of a query that sorts by a score with given statistics.
pub(crate) fn score_candidates(
    reader: &mut ScopeReader<'_>,
    indexes: &SnapshotIndexes<'_>,
    evaluator: &ItemEvaluator<'_>,
    order: &ScoreOrder,
    needed: usize,
) -> Result<Option<(Candidates, PlanNode)>, EngineError> {
    let budget = reader.meter.set_budget(ScanBudget::WHOLE);
    let found = (|| {
        let Some((_, texts, scope)) = read_texts(reader, indexes, evaluator, &[&order.text])? else {
            return Ok(None);
        };
        let statistics =
            ScoreStatistics { documents: order.documents, total_words: order.total_words, hits: &order.hits };
        match texts.as_slice() {
            [text] => best(reader, indexes, evaluator, text, &scope, &statistics, needed),
            _ => Ok(None),
        }
    })();
    reader.meter.set_budget(budget);
    Ok(unless_too_large(found)?.map(|rids| chosen_node(&order.text.path.to_string(), needed, rids)))
}

/// The aggregates of a query that is made of counts.
pub(crate) fn counted(
    reader: &mut ScopeReader<'_>,
    indexes: &SnapshotIndexes<'_>,
    evaluator: &ItemEvaluator<'_>,
    search: &TextStatisticsSearch,
) -> Result<Option<(Vec<Value>, PlanNode)>, EngineError> {
    let searched: Vec<&SearchedText> = search.texts.iter().collect();
    let found = unless_too_large(read_texts(reader, indexes, evaluator, &searched))?;
    let Some((items, texts, _)) = found else { return Ok(None) };
    let value = |count: &TextCount| match *count {
        TextCount::Items => Value::from(items),
        TextCount::Words { text } => Value::from(texts[text].statistics.total_word_count as f64),
        TextCount::Hits { text, term } => Value::from(texts[text].statistics.hit_counts[term]),
    };
    let paths: Vec<String> = searched.iter().map(|text| text.path.to_string()).collect();
    let node = PlanNode::new(format!("Counts of full-text index {}, index only", paths.join(", ")));
    Ok(Some((search.counts.iter().map(value).collect(), node)))
}

fn chosen_node(paths: &str, needed: usize, rids: Vec<u64>) -> (Candidates, PlanNode) {
    let node = PlanNode::new(format!("Best of full-text index {paths}"))
        .with_rows(needed as u64, Some(rids.len() as u64));
    (Candidates::Rids(RidSet::sorted(rids)), PlanNode::new("Fetch items by child id").with(node))
}

fn doubles(counts: &[u64]) -> Vec<f64> {
    counts.iter().map(|count| *count as f64).collect()
}

/// Reading every item may need less memory.
fn unless_too_large<T>(result: Result<Option<T>, EngineError>) -> Result<Option<T>, EngineError> {
    match result {
        Err(EngineError::Sql(SqlError::QueryMemory { .. })) => Ok(None),
        other => other,
    }
}

fn check(end: ScanEnd) -> Result<(), EngineError> {
    match end {
        ScanEnd::Paused(_) => Err(SqlError::Budget { what: "a minute" }.into()),
        ScanEnd::Done | ScanEnd::Stopped => Ok(()),
    }
}
