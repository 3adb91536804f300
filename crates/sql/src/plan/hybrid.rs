//! ORDER BY RANK over several partitions. The client sums word and hit counts of all partitions, inserts the sums
//! into one query per score, runs each on every partition, and ranks the rows.

use quire_value::{Number, Value};

use crate::bind::bound::{Ranking, Score};
use crate::error::SqlError;
use crate::functions;
use crate::syntax::ast::{Direction, Expr, ExprKind};
use crate::syntax::print::List;

use super::{Feature, Planner, QueryInfo, append, refused};

const DOCUMENT_COUNT: &str = "{documentdb-formattablehybridsearchquery-totaldocumentcount}";
const WORD_COUNT: &str = "documentdb-formattablehybridsearchquery-totalwordcount";
const HIT_COUNTS: &str = "documentdb-formattablehybridsearchquery-hitcountsarray";

/// The client ranks the rows that the components return, so each component returns more rows than requested.
const CANDIDATES_MIN: u64 = 120;
/// Some clients read the counts of a plan as signed 32-bit numbers.
const CANDIDATES_MAX: u64 = i32::MAX as u64;

/// `hybridSearchQueryInfo` on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HybridSearch {
    pub global_statistics_query: String,
    pub components: Vec<QueryInfo>,
    /// Absolute values: the sign is in the order of the component. Empty: all are 1.
    pub component_weights: Vec<Number>,
    pub skip: Option<u64>,
    pub take: Option<u64>,
    pub requires_global_statistics: bool,
}

/// The value for a missing score when a component sorts in this direction.
pub(super) fn worst_score(direction: Direction) -> &'static str {
    match direction {
        Direction::Ascending => "1.79769e+308",
        Direction::Descending => "-1.79769e+308",
    }
}

pub(super) fn hybrid_features(hybrid: &HybridSearch) -> Vec<Feature> {
    let mut features = vec![Feature::HybridSearch];
    if !hybrid.component_weights.is_empty() {
        features.push(Feature::WeightedRankFusion);
    }
    features
}

/// A score in the text of a component query.
struct ScoreText {
    text: String,
    direction: Direction,
    is_text: bool,
}

impl ScoreText {
    fn or_worst(&self) -> String {
        match (self.is_text, self.direction) {
            (true, Direction::Descending) => format!("({} ?? -1)", self.text),
            (_, direction) => format!("({} ?? {})", self.text, worst_score(direction)),
        }
    }

    /// A vector score sorts best first.
    fn order(&self) -> &'static str {
        match (self.is_text, self.direction) {
            (_, Direction::Ascending) => " ASC",
            (true, Direction::Descending) => " DESC",
            (false, Direction::Descending) => "",
        }
    }
}

impl Planner<'_> {
    pub(super) fn hybrid(&self, ranking: &Ranking) -> Result<HybridSearch, SqlError> {
        if self.syntax.select.distinct {
            return Err(refused("DISTINCT beside ORDER BY RANK"));
        }
        let alias =
            self.item_alias().ok_or_else(|| refused("ORDER BY RANK without an alias for the item"))?;
        let calls = self.ranked_calls();
        let scores = score_texts(&calls, ranking);
        let counts = self.counts();
        let weights = ranking.components.iter().map(|component| component.weight);
        let has_weights = weights.clone().any(|weight| weight != 1.0);
        Ok(HybridSearch {
            global_statistics_query: self.statistics_query(&calls, ranking),
            components: scores.iter().map(|score| self.component(alias, score, &scores)).collect(),
            component_weights: if has_weights {
                weights.map(|weight| Number::from(weight.abs())).collect()
            } else {
                Vec::new()
            },
            skip: counts.offset,
            take: counts.top.or(counts.limit),
            requires_global_statistics: scores.iter().any(|score| score.is_text),
        })
    }

    /// The calls of the scores, as written.
    fn ranked_calls(&self) -> Vec<&Expr> {
        let items = self.syntax.order_by.as_ref().map_or(&[][..], |order_by| &order_by.items);
        let Some(item) = items.first() else { return Vec::new() };
        match &*item.expr.kind {
            ExprKind::Call { name, arguments }
                if functions::find(&name.name).is_some_and(functions::Function::is_rank_fusion) =>
            {
                arguments.iter().collect()
            }
            _ => vec![&item.expr],
        }
    }

    fn statistics_query(&self, calls: &[&Expr], ranking: &Ranking) -> String {
        let texts =
            calls.iter().zip(&ranking.components).filter_map(|(call, component)| match &component.score {
                Score::Text { terms, .. } => {
                    let path = arguments(call).first()?;
                    let hits: Vec<String> = terms
                        .iter()
                        .map(|term| format!("COUNTIF(FullTextContains({path}, {}))", term.to_json()))
                        .collect();
                    Some(format!(
                        "{{\"totalWordCount\": SUM(_FullTextWordCount({path})), \"hitCounts\": [{}]}}",
                        List(&hits)
                    ))
                }
                Score::Vector(_) => None,
            });
        let texts: Vec<String> = texts.collect();
        format!("SELECT COUNT(1) AS documentCount, [{}] AS fullTextStatistics{}", List(&texts), self.from())
    }

    fn component(&self, alias: &str, score: &ScoreText, scores: &[ScoreText]) -> QueryInfo {
        let counts = self.counts();
        let wanted = counts.offset.unwrap_or(0).saturating_add(counts.top.or(counts.limit).unwrap_or(0));
        let candidates = wanted.saturating_mul(2).clamp(CANDIDATES_MIN, CANDIDATES_MAX);
        let mut info = QueryInfo {
            top: counts.top.map(|_| candidates),
            offset: counts.offset.map(|_| 0),
            limit: counts.limit.map(|_| candidates),
            order_by: vec![score.direction],
            order_by_expressions: vec![score.text.clone()],
            has_non_streaming_order_by: true,
            ..QueryInfo::default()
        };
        let mut text = "SELECT ".to_owned();
        if let Some(top) = info.top {
            append(&mut text, format_args!("TOP {top} "));
        }
        let all: Vec<String> = scores.iter().map(ScoreText::or_worst).collect();
        append(
            &mut text,
            format_args!(
                "{alias}._rid, [{{\"item\": {}}}] AS orderByItems, {{\"payload\": {}, \"componentScores\": [{}]}} AS payload",
                score.or_worst(),
                self.payload(alias),
                List(&all)
            ),
        );
        append(&mut text, format_args!("{}\nWHERE {}", self.from(), self.resumable_filter()));
        append(&mut text, format_args!("\nORDER BY {}{}", score.text, score.order()));
        text.push_str(&self.window(&info));
        info.rewritten_query = text;
        info
    }
}

fn arguments(call: &Expr) -> &[Expr] {
    match &*call.kind {
        ExprKind::Call { arguments, .. } => arguments,
        _ => &[],
    }
}

/// Placeholders are numbered by full-text score.
fn score_texts(calls: &[&Expr], ranking: &Ranking) -> Vec<ScoreText> {
    let mut texts = 0;
    let mut score_text = |(call, component): (&&Expr, &crate::bind::bound::Component)| {
        let direction = if component.weight < 0.0 { Direction::Ascending } else { Direction::Descending };
        match &component.score {
            Score::Text { terms, .. } => {
                let index = texts;
                texts += 1;
                let terms = Value::Array(terms.clone()).to_json();
                let text = format!(
                    "_FullTextScore({}, {terms}, {DOCUMENT_COUNT}, {{{WORD_COUNT}-{index}}}, {{{HIT_COUNTS}-{index}}})",
                    List(&arguments(call)[..1]),
                );
                ScoreText { text, direction, is_text: true }
            }
            Score::Vector(_) => {
                let text = format!("_VectorScore({})", List(arguments(call)));
                ScoreText { text, direction, is_text: false }
            }
        }
    };
    calls.iter().zip(&ranking.components).map(&mut score_text).collect()
}
