//! ORDER BY: what can be sorted by.

use crate::ast::{self, ExprKind};
use crate::bound::{Expr, OrderItem, Step};
use crate::diagnostic::Problem;
use crate::functions;

use super::from::EntryKind;
use super::{Binder, Place};

const CORRELATED: &str = "Order-by over correlated collections is not supported.";

impl Binder<'_> {
    pub(super) fn order_by(&mut self, query: &ast::Query, order_by: &ast::OrderBy) -> Vec<OrderItem> {
        if order_by.rank {
            self.rank(query, order_by);
            return Vec::new();
        }
        order_by.items.iter().map(|item| self.order_item(item)).collect()
    }

    fn order_item(&mut self, item: &ast::OrderItem) -> OrderItem {
        let errors = self.diagnostics.len() + self.refusals.len();
        let expr = self.clause("ORDER BY", &item.expr);
        if errors == self.diagnostics.len() + self.refusals.len() {
            self.check_order_path(&expr, item);
        }
        OrderItem { expr, descending: item.direction == Some(ast::Direction::Descending) }
    }

    fn check_order_path(&mut self, expr: &Expr, item: &ast::OrderItem) {
        let (base, steps): (&Expr, &[Step]) = match expr {
            Expr::Path { base, steps, .. } => (base, steps),
            other => (other, &[]),
        };
        let literal_steps = steps.iter().all(|step| match step {
            Step::Name(_) => true,
            Step::Index(index) => index.as_constant().is_some_and(|value| value.as_number().is_some()),
        });
        let is_path = match base {
            Expr::Computed { .. } => true,
            Expr::Variable { level, .. } => match self.scope[*level].kind {
                EntryKind::Item => !steps.is_empty(),
                EntryKind::Property => true,
                EntryKind::Correlated => return self.refuse(CORRELATED),
                EntryKind::Derived | EntryKind::Let | EntryKind::Group => false,
            },
            Expr::Call { function, .. } => function.name() == "DocumentId" && steps.is_empty(),
            _ => false,
        };
        if !is_path || !literal_steps {
            self.report(Problem::OrderByNotPath, item.expr.span);
        }
    }

    fn rank(&mut self, query: &ast::Query, order_by: &ast::OrderBy) {
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
        for item in &order_by.items {
            self.check_score(&item.expr);
            self.with_place(Place::Rank, |binder| binder.expr(&item.expr));
        }
        self.refuse("the ORDER BY RANK clause is not supported yet");
    }

    fn check_score(&mut self, expr: &ast::Expr) {
        let ExprKind::Call { name, arguments } = &*expr.kind else { return };
        let Some(function) = functions::find(&name.name) else { return };
        if function.is_rank_fusion() {
            return self.check_fusion(arguments, expr);
        }
        if !function.is_ranking() {
            self.report(Problem::RankNeedsScore, expr.span);
        }
    }

    fn check_fusion(&mut self, arguments: &[ast::Expr], call: &ast::Expr) {
        let is_weights = |argument: &ast::Expr| matches!(&*argument.kind, ExprKind::Array(_));
        let scores = arguments.iter().filter(|argument| !is_weights(argument)).count();
        let Some(position) = arguments.iter().position(is_weights) else { return };
        let ExprKind::Array(weights) = &*arguments[position].kind else { return };
        let literal = |weight: &ast::Expr| matches!(&*weight.kind, ExprKind::Literal(value) if value.as_number().is_some());
        let last = position + 1 == arguments.len();
        if !last || weights.len() != scores || !weights.iter().all(literal) {
            self.report(Problem::RankWeights, call.span);
        }
    }
}
