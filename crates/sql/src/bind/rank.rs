//! ORDER BY RANK: one score, or several scores fused by RRF.

use std::sync::Arc;

use quire_value::{Number, Value};

use crate::data::approximate_size;
use crate::functions::{self, Function};
use crate::syntax::ast::{self, ExprKind};
use crate::syntax::diagnostic::Problem;

use super::bound::{Component, Expr, OrderItem, Ranking, Score};
use super::order::with_worst;
use super::{Binder, ClauseKind, RANK_SCORES_MAX};

impl Binder<'_> {
    /// Sort keys for a single score that depends on the item alone; otherwise the ranking decides the order.
    pub(super) fn rank(&mut self, query: &ast::Query, order_by: &ast::OrderBy) -> Vec<OrderItem> {
        self.check_ranked_sources(query);
        for item in &order_by.items {
            if item.direction.is_some() {
                self.report(Problem::RankDirection, order_by.span);
            }
        }
        let [item] = order_by.items.as_slice() else {
            self.report(Problem::RankNeedsScore, order_by.span);
            return Vec::new();
        };
        self.ranking =
            self.with_clause_kind(ClauseKind::Clause("ORDER BY RANK"), |binder| binder.ranking(&item.expr));
        match self.ranking.as_ref().map(|ranking| (ranking.is_fused, ranking.components.as_slice())) {
            Some((false, [Component { score: Score::Vector(score), .. }])) => {
                vec![OrderItem { expr: with_worst(score.clone(), true), descending: true }]
            }
            _ => Vec::new(),
        }
    }

    fn check_ranked_sources(&mut self, query: &ast::Query) {
        for source in query.from.iter().flat_map(|from| &from.sources) {
            if source.iterate {
                self.report(Problem::RankWithIn, source.span);
            } else if matches!(source.collection, ast::Collection::Subquery(_)) {
                self.report(Problem::RankWithSubquery, source.span);
            }
        }
        if let Some(joined) = query.from.as_ref().and_then(|from| from.sources.get(1)) {
            self.report(Problem::RankWithJoin, joined.span);
        }
    }

    fn ranking(&mut self, expr: &ast::Expr) -> Option<Ranking> {
        match called(expr) {
            Some((function, arguments)) if function.is_rank_fusion() => {
                self.check_arity(function, arguments.len(), expr.span);
                self.fusion(function, arguments, expr)
            }
            _ => {
                let components = vec![self.component(expr, 1.0)?];
                Some(Ranking { components, is_fused: false })
            }
        }
    }

    /// The last argument may be the weights.
    fn fusion(&mut self, function: &Function, arguments: &[ast::Expr], call: &ast::Expr) -> Option<Ranking> {
        let (scores, weights) = match arguments.split_last() {
            Some((last, scores)) if !matches!(&*last.kind, ExprKind::Call { .. }) => {
                let weights = self.weights(last).filter(|weights| weights.len() == scores.len());
                if weights.is_none() {
                    self.report(Problem::RankWeights, call.span);
                }
                (scores, weights?)
            }
            _ => (arguments, vec![1.0; arguments.len()]),
        };
        if scores.len() > RANK_SCORES_MAX {
            self.refuse(format!("RRF can fuse at most {RANK_SCORES_MAX} scores"));
            return None;
        }
        if scores.len() < function.arity().0 {
            self.check_arity(function, scores.len(), call.span);
        }
        let components = scores.iter().zip(weights).map(|(score, weight)| self.component(score, weight));
        let components: Vec<Option<Component>> = components.collect();
        Some(Ranking { components: components.into_iter().collect::<Option<_>>()?, is_fused: true })
    }

    fn component(&mut self, expr: &ast::Expr, weight: f64) -> Option<Component> {
        let score = match called(expr) {
            Some((function, arguments)) if function.is_score() => {
                self.check_arity(function, arguments.len(), expr.span);
                self.text_score(arguments, expr)?
            }
            Some((function, _)) if function.is_rank_fusion() => {
                self.report(Problem::UnknownFunction(function.name().to_owned()), expr.span);
                return None;
            }
            Some((function, _)) if function.is_distance() => Score::Vector(self.vector_score(expr)),
            None if matches!(&*expr.kind, ExprKind::Call { .. }) => {
                self.expr(expr); // reports the unknown name
                return None;
            }
            _ => {
                self.report(Problem::RankNeedsScore, expr.span);
                return None;
            }
        };
        Some(Component { score, weight })
    }

    /// Terms as separate arguments, or in one array.
    fn text_score(&mut self, arguments: &[ast::Expr], call: &ast::Expr) -> Option<Score> {
        let mut bound = self.exprs(arguments).into_iter();
        let text = bound.next()?;
        let bound: Option<Vec<Arc<Value>>> = bound.map(|term| term.shared_constant().cloned()).collect();
        let bytes = bound.iter().flatten().map(|term| approximate_size(term)).fold(0, usize::saturating_add);
        // The terms are copied, for the score and for the statistics.
        let constants = bound.filter(|_| self.take(bytes.saturating_mul(3)));
        let constants =
            constants.map(|terms| terms.iter().map(|term| (**term).clone()).collect::<Vec<Value>>());
        let Some(constants) = constants else {
            self.report(Problem::ScoreTermsNotConstant, call.span);
            return None;
        };
        let terms = match <[Value; 1]>::try_from(constants) {
            Ok([Value::Array(terms)]) => terms,
            Ok([term]) => vec![term],
            Err(terms) => terms,
        };
        if !terms.iter().all(|term| matches!(term, Value::String(_) | Value::Object(_))) {
            self.report(Problem::ScoreTermsNotConstant, call.span);
        }
        let language = self.language_of(&text);
        Some(Score::Text { text, terms, language })
    }

    /// An array of numbers, or of parameters that are numbers.
    fn weights(&mut self, expr: &ast::Expr) -> Option<Vec<f64>> {
        let mut constant = |expr: &ast::Expr| match &*expr.kind {
            ExprKind::Literal(value) => Some(Arc::new(value.clone())),
            ExprKind::Parameter(name) => Some(self.parameter(name)),
            _ => None,
        };
        let number = |weight: &Value| weight.as_number().map(Number::as_f64);
        match &*expr.kind {
            ExprKind::Array(weights) => {
                weights.iter().map(|weight| constant(weight).as_deref().and_then(number)).collect()
            }
            _ => constant(expr)?.as_array()?.iter().map(number).collect(),
        }
    }

    /// The same call, with the sign changed so that a larger value is closer.
    fn vector_score(&mut self, expr: &ast::Expr) -> Expr {
        match (self.expr(expr), functions::find("_VectorScore")) {
            (Expr::Call { arguments, .. }, Some(function)) => Expr::Call { function, arguments },
            (other, _) => other,
        }
    }
}

fn called(expr: &ast::Expr) -> Option<(&'static Function, &[ast::Expr])> {
    match &*expr.kind {
        ExprKind::Call { name, arguments } => Some((functions::find(&name.name)?, arguments)),
        _ => None,
    }
}
