//! ORDER BY RANK: from scores to ranks, from ranks to an order.
//!
//! The query that runs selects, for every item, the inputs of its scores and, where WHERE is true, the row. So one
//! pass also counts the statistics of all texts that BM25 needs, and scores are computed after the last item. Rules
//! shared with clients that do the same over several partitions: equal scores share a rank, ranks start at 1 and have
//! no gaps, a row without a score ranks last, and the fused score is the sum of weight / (60 + rank).

use std::cmp::Ordering;
use std::collections::HashSet;

use quire_value::{Number, Value};

use crate::bind::bound::{Expr, Query, Ranking, Score};
use crate::functions::{FULL_TEXT_COUNTS, TextStatistics, full_text_score};
use crate::text::Language;

const RANK_OFFSET: f64 = 60.0;

/// Statistics of all items that the scores of an ORDER BY RANK need, as the statistics query of a plan counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankStatistics {
    pub document_count: u64,
    /// One per `FullTextScore`, in the order written.
    pub texts: Vec<TextStatistics>,
}

#[derive(Clone)]
pub(crate) struct Ranked {
    /// The query as it was written.
    pub written: Query,
    ranking: Ranking,
    /// `None`: counted from the items.
    pub statistics: Option<RankStatistics>,
}

impl Ranked {
    /// Rewrites the query to select `{"scores": {"0": …}, "row": [row]}`.
    pub fn new(query: &mut Query, ranking: Ranking) -> Ranked {
        let scored = scored(query, &ranking);
        let written = std::mem::replace(query, scored);
        Ranked { written, ranking, statistics: None }
    }

    /// The rows of the written query, best first, from the rows of the rewritten query.
    pub fn rows(&self, rows: Vec<Value>) -> Vec<Value> {
        let counted;
        let statistics = match &self.statistics {
            Some(statistics) => statistics,
            None => {
                counted = self.count(&rows);
                &counted
            }
        };
        let mut candidates: Vec<Candidate> =
            rows.into_iter().filter_map(|row| self.candidate(row, statistics)).collect();
        if self.ranking.is_fused {
            self.fuse(&mut candidates);
        } else {
            candidates.sort_by(|left, right| compare(&left.scores, &right.scores, 0, false));
        }
        apply_distinct_and_limit(&self.written, candidates.into_iter().map(|candidate| candidate.row))
    }

    /// Whether all items must be read, not only those that match WHERE.
    pub fn needs_statistics(&self) -> bool {
        self.statistics.is_none() && self.texts().next().is_some()
    }

    fn texts(&self) -> impl Iterator<Item = (usize, usize)> {
        self.ranking.components.iter().enumerate().filter_map(|(index, component)| match &component.score {
            Score::Text { terms, .. } => Some((index, terms.len())),
            Score::Vector(_) => None,
        })
    }

    fn count(&self, rows: &[Value]) -> RankStatistics {
        let texts = self.texts().map(|(index, terms)| {
            let mut text = TextStatistics { total_word_count: 0, hit_counts: vec![0; terms] };
            for counts in rows.iter().filter_map(|row| score_part(row, index)?.as_array()) {
                let count = |value: &Value| value.as_number().and_then(Number::as_u64).unwrap_or(0);
                text.total_word_count += counts.first().map_or(0, count);
                for (hits, occurrences) in text.hit_counts.iter_mut().zip(&counts[1..]) {
                    *hits += u64::from(count(occurrences) > 0);
                }
            }
            text
        });
        RankStatistics { document_count: rows.len() as u64, texts: texts.collect() }
    }

    /// `None` for an item that does not match WHERE.
    fn candidate(&self, mut row: Value, statistics: &RankStatistics) -> Option<Candidate> {
        let mut texts = statistics.texts.iter();
        let mut scores = Vec::with_capacity(self.ranking.components.len());
        for (index, component) in self.ranking.components.iter().enumerate() {
            let part = score_part(&row, index);
            scores.push(match &component.score {
                Score::Text { .. } => {
                    let text = texts.next();
                    text_score(part, statistics.document_count, text)
                }
                Score::Vector(_) => part.and_then(Value::as_number).map(Number::as_f64),
            });
        }
        let Value::Object(object) = &mut row else { return None };
        match object.remove("row") {
            Some(Value::Array(row)) => row.into_iter().next().map(|row| Candidate { scores, row }),
            _ => None,
        }
    }

    fn fuse(&self, candidates: &mut Vec<Candidate>) {
        let scores: Vec<&[Option<f64>]> =
            candidates.iter().map(|candidate| candidate.scores.as_slice()).collect();
        let weights: Vec<f64> = self.ranking.components.iter().map(|component| component.weight).collect();
        let fused = fused_scores(&scores, &weights);
        let mut scored: Vec<(f64, Candidate)> = fused.into_iter().zip(std::mem::take(candidates)).collect();
        scored.sort_by(|(left, _), (right, _)| right.total_cmp(left));
        candidates.extend(scored.into_iter().map(|(_, candidate)| candidate));
    }
}

/// RRF scores of rows, one score per component: the sum of weight / (60 + rank).
pub fn fused_scores(rows: &[&[Option<f64>]], weights: &[f64]) -> Vec<f64> {
    let mut fused = vec![0.0; rows.len()];
    for (index, weight) in weights.iter().enumerate() {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        let by_score = |left: &usize, right: &usize| compare(rows[*left], rows[*right], index, *weight < 0.0);
        order.sort_by(by_score);
        let mut rank = 1;
        for (position, row) in order.iter().enumerate() {
            if position > 0 && by_score(&order[position - 1], row).is_ne() {
                rank += 1;
            }
            fused[*row] += rank_contribution(*weight, rank);
        }
    }
    fused
}

/// The contribution of one rank to a fused score.
pub fn rank_contribution(weight: f64, rank: u64) -> f64 {
    weight.abs() / (RANK_OFFSET + rank as f64)
}

struct Candidate {
    scores: Vec<Option<f64>>,
    row: Value,
}

/// Best first; rows without a score last.
fn compare(left: &[Option<f64>], right: &[Option<f64>], index: usize, lowest_first: bool) -> Ordering {
    match (left[index], right[index]) {
        (Some(left), Some(right)) if lowest_first => left.total_cmp(&right),
        (Some(left), Some(right)) => right.total_cmp(&left),
        (left, right) => right.is_some().cmp(&left.is_some()),
    }
}

fn score_part(row: &Value, index: usize) -> Option<&Value> {
    row.get("scores")?.get(&index.to_string())
}

/// BM25 score from the number of words and of occurrences.
fn text_score(counts: Option<&Value>, documents: u64, text: Option<&TextStatistics>) -> Option<f64> {
    let counts: Option<Vec<f64>> =
        counts?.as_array()?.iter().map(|count| count.as_number().map(Number::as_f64)).collect();
    let counts = counts?;
    let (words, occurrences) = counts.split_first()?;
    let (total, hits) = text.map_or((0, &[][..]), |text| (text.total_word_count, &text.hit_counts));
    let hits: Vec<f64> = hits.iter().map(|hits| *hits as f64).collect();
    Some(full_text_score(documents as f64, total as f64, &hits, *words, occurrences))
}

fn scored(query: &Query, ranking: &Ranking) -> Query {
    let scores = ranking.components.iter().enumerate();
    let scores =
        scores.map(|(index, component)| (index.to_string(), score_parts(&component.score))).collect();
    let row = Expr::Array(vec![query.projection.clone()]);
    let row = match &query.filter {
        Some(filter) => Expr::Conditional {
            branches: vec![(filter.clone(), row)],
            otherwise: Box::new(Expr::undefined()),
        },
        None => row,
    };
    let parts = vec![("scores".to_owned(), Expr::Object(scores)), ("row".to_owned(), row)];
    let counts_all = ranking.components.iter().any(|component| matches!(component.score, Score::Text { .. }));
    Query {
        filter: query.filter.clone().filter(|_| !counts_all),
        projection: Expr::Object(parts),
        distinct: false,
        offset: 0,
        limit: None,
        ..query.clone()
    }
}

fn score_parts(score: &Score) -> Expr {
    match score {
        Score::Vector(expr) => expr.clone(),
        Score::Text { text, terms, language } => text_counts(text.clone(), terms.clone(), *language),
    }
}

/// Number of words of a text, and number of occurrences of each term.
pub(crate) fn text_counts(text: Expr, terms: Vec<Value>, language: Language) -> Expr {
    let arguments = vec![text, Expr::constant(Value::Array(terms)), Expr::constant(language.code())];
    Expr::Call { function: &FULL_TEXT_COUNTS, arguments }
}

/// Applies DISTINCT, OFFSET and LIMIT.
fn apply_distinct_and_limit(query: &Query, rows: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    let offset = usize::try_from(query.offset).unwrap_or(usize::MAX);
    let limit = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let rows = rows.filter(|row| !query.distinct || seen.insert(row.clone()));
    rows.skip(offset).take(limit).collect()
}
