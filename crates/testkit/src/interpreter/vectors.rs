//! Vector distances, and the orders that scores make: VectorDistance, FullTextScore, RRF.

use quire_sql::ast::{Direction, Expr, ExprKind, OrderItem};

use super::functions::plain_name;
use super::json::{Json, JsonOrUndefined};
use super::queries::{NameScope, TupleGroup};
use super::{Interpreter, QueryFailure, QueryResult, full_text};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    Cosine,
    DotProduct,
    Euclidean,
}

/// `(vector, vector [, brute force [, options]])`
pub fn distance(values: &[Json]) -> Option<(Metric, f64)> {
    let numbers = |value: &Json| value.as_array()?.iter().map(Json::as_f64).collect::<Option<Vec<f64>>>();
    let (left, right) = (numbers(values.first()?)?, numbers(values.get(1)?)?);
    if let Some(brute_force) = values.get(2) {
        brute_force.as_bool()?;
    }
    if left.len() != right.len() {
        return None;
    }
    let metric = metric(values.get(3))?;
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).fold(0.0, |sum, (x, y)| sum + x * y);
    let distance = match metric {
        Metric::DotProduct => dot(&left, &right),
        Metric::Euclidean => {
            let apart: Vec<f64> = left.iter().zip(&right).map(|(x, y)| x - y).collect();
            dot(&apart, &apart).sqrt()
        }
        Metric::Cosine => {
            let lengths = (dot(&left, &left) * dot(&right, &right)).sqrt();
            if lengths == 0.0 {
                return None;
            }
            (dot(&left, &right) / lengths).clamp(-1.0, 1.0)
        }
    };
    distance.is_finite().then_some((metric, distance))
}

fn metric(options: Option<&Json>) -> Option<Metric> {
    let Some(options) = options else { return Some(Metric::Cosine) };
    let named = |(name, _): &&(String, Json)| name.eq_ignore_ascii_case("distanceFunction");
    let Some((_, name)) = options.as_object()?.iter().find(named) else { return Some(Metric::Cosine) };
    match name.as_str()?.to_ascii_lowercase().as_str() {
        "cosine" => Some(Metric::Cosine),
        "dotproduct" => Some(Metric::DotProduct),
        "euclidean" => Some(Metric::Euclidean),
        _ => None,
    }
}

/// Turned so that more is closer.
pub fn score(values: &[Json]) -> Option<f64> {
    let (metric, distance) = distance(values)?;
    Some(if metric == Metric::Euclidean { -distance } else { distance })
}

/// A part of ORDER BY RANK.
struct RankComponent<'q> {
    call: &'q Expr,
    weight: f64,
}

/// Scores and distances, the best of which come first whatever is written.
pub fn is_score(expr: &Expr) -> bool {
    match &*expr.kind {
        ExprKind::Call { name, .. } => {
            ["VECTORDISTANCE", "_VECTORSCORE", "_FULLTEXTSCORE"].contains(&plain_name(&name.name).as_str())
        }
        _ => false,
    }
}

impl Interpreter {
    /// A sort key, and whether it descends. Distances go from the nearest on, internal scores from the best on, and
    /// what has no score is last.
    pub(super) fn sort_key(
        &self,
        item: &OrderItem,
        scope: &NameScope,
    ) -> QueryResult<(JsonOrUndefined, bool)> {
        let value = self.evaluate(&item.expr, scope)?;
        let written = item.direction == Some(Direction::Descending);
        let ExprKind::Call { name, arguments } = &*item.expr.kind else { return Ok((value, written)) };
        match plain_name(&name.name).as_str() {
            "VECTORDISTANCE" => {
                let options = match arguments.get(3) {
                    Some(options) => self.evaluate(options, scope)?,
                    None => None,
                };
                Ok((value, metric(options.as_ref()) != Some(Metric::Euclidean)))
            }
            "_VECTORSCORE" | "_FULLTEXTSCORE" => {
                let descending = item.direction != Some(Direction::Ascending);
                let worst = if descending { f64::NEG_INFINITY } else { f64::INFINITY };
                Ok((Some(value.unwrap_or(Json::Double(worst))), descending))
            }
            _ => Ok((value, written)),
        }
    }

    pub(super) fn ranked(&self, expr: &Expr, groups: Vec<TupleGroup>) -> QueryResult<Vec<TupleGroup>> {
        let ExprKind::Call { name, arguments } = &*expr.kind else {
            return Err(QueryFailure::Unknown("RANK of no call".to_owned()));
        };
        self.note(&plain_name(&name.name));
        let is_fused = plain_name(&name.name) == "RRF";
        let components = if is_fused {
            self.components(arguments)?
        } else {
            vec![RankComponent { call: expr, weight: 1.0 }]
        };
        let mut totals = vec![0.0; groups.len()];
        for component in &components {
            let scores = self.scores(component.call, &groups)?;
            let ranks = ranks(&scores, component.weight < 0.0);
            for (total, rank) in totals.iter_mut().zip(ranks) {
                *total += component.weight.abs() / (60.0 + rank as f64);
            }
        }
        let mut order: Vec<(f64, TupleGroup)> = totals.into_iter().zip(groups).collect();
        order.sort_by(|(left, _), (right, _)| right.total_cmp(left));
        Ok(order.into_iter().map(|(_, group)| group).collect())
    }

    /// The last argument may be the weights.
    fn components<'q>(&self, arguments: &'q [Expr]) -> QueryResult<Vec<RankComponent<'q>>> {
        let is_score = |expr: &Expr| matches!(&*expr.kind, ExprKind::Call { .. });
        let weights = match arguments.last() {
            Some(last) if !is_score(last) => self.evaluate(last, &NameScope::default())?,
            _ => None,
        };
        let weights: Vec<f64> = weights
            .as_ref()
            .and_then(Json::as_array)
            .unwrap_or_default()
            .iter()
            .filter_map(Json::as_f64)
            .collect();
        let calls = arguments.iter().filter(|argument| is_score(argument));
        let weight = |nth: usize| weights.get(nth).copied().unwrap_or(1.0);
        Ok(calls.enumerate().map(|(nth, call)| RankComponent { call, weight: weight(nth) }).collect())
    }

    fn scores(&self, call: &Expr, groups: &[TupleGroup]) -> QueryResult<Vec<Option<f64>>> {
        let ExprKind::Call { name, arguments } = &*call.kind else {
            return Err(QueryFailure::Unknown("a score that is no call".to_owned()));
        };
        self.note(&plain_name(&name.name));
        if plain_name(&name.name) == "VECTORDISTANCE" {
            let mut scores = Vec::new();
            for group in groups {
                let values: Option<Vec<Json>> = arguments
                    .iter()
                    .map(|argument| self.evaluate(argument, &group.first))
                    .collect::<QueryResult<Vec<JsonOrUndefined>>>()?
                    .into_iter()
                    .collect();
                scores.push(values.and_then(|values| score(&values)));
            }
            return Ok(scores);
        }
        let terms = self.terms(&arguments[1..])?;
        let texts: Vec<JsonOrUndefined> = groups
            .iter()
            .map(|group| self.evaluate(&arguments[0], &group.first))
            .collect::<QueryResult<_>>()?;
        // Statistics are of all items, those that WHERE leaves out as well.
        let alias = root_of(&arguments[0]);
        let mut all = Vec::new();
        for item in &self.items {
            let scope = NameScope::default().with(alias.clone(), Some(item.clone()), true);
            all.push(self.evaluate(&arguments[0], &scope)?);
        }
        let statistics = full_text::TextStatistics::of(&all, &terms);
        Ok(texts.iter().map(|text| statistics.score(text.as_ref()?.as_str()?, &terms)).collect())
    }

    fn terms(&self, arguments: &[Expr]) -> QueryResult<Vec<Json>> {
        let terms: Vec<JsonOrUndefined> = arguments
            .iter()
            .map(|term| self.evaluate(term, &NameScope::default()))
            .collect::<QueryResult<_>>()?;
        let terms: Vec<Json> = terms.into_iter().flatten().collect();
        match terms.as_slice() {
            [Json::Array(terms)] => Ok(terms.clone()),
            _ => Ok(terms),
        }
    }
}

fn root_of(expr: &Expr) -> Option<String> {
    match &*expr.kind {
        ExprKind::Identifier(name) => Some(name.clone()),
        ExprKind::Path { base, .. } => root_of(base),
        _ => None,
    }
}

/// From 1, without gaps; equal scores share one; no score is the last.
fn ranks(scores: &[Option<f64>], lowest_first: bool) -> Vec<usize> {
    let mut distinct: Vec<f64> = scores.iter().flatten().copied().collect();
    distinct.sort_by(f64::total_cmp);
    distinct.dedup();
    if !lowest_first {
        distinct.reverse();
    }
    let rank = |score: &Option<f64>| match score {
        Some(score) => 1 + distinct.iter().position(|other| other == score).unwrap_or(distinct.len()),
        None => 1 + distinct.len(),
    };
    scores.iter().map(rank).collect()
}
