//! ORDER BY: checks and binds sort keys.

use crate::functions::{Function, Metric};
use crate::syntax::ast;
use crate::syntax::diagnostic::Problem;

use super::Binder;
use super::bound::{Expr, OrderItem, Step};
use super::from::ScopeEntryKind;

/// As query plans write it: lower than any score; negated, greater than any distance.
const WORST_SCORE: f64 = -1.79769e308;

const CORRELATED: &str = "Order-by over correlated collections is not supported.";

impl Binder<'_> {
    pub(super) fn order_by(&mut self, query: &ast::Query, order_by: &ast::OrderBy) -> Vec<OrderItem> {
        if order_by.rank {
            return self.rank(query, order_by);
        }
        order_by.items.iter().map(|item| self.order_item(item)).collect()
    }

    fn order_item(&mut self, item: &ast::OrderItem) -> OrderItem {
        let errors = self.diagnostics.len() + self.refusals.len();
        let expr = self.clause("ORDER BY", &item.expr);
        if let Expr::Call { function, arguments } = &expr
            && function.is_sort_key()
        {
            let descending = self.sorts_descending(function, arguments, item);
            // A missing distance sorts like undefined, before all values; a missing score is the worst.
            let is_least = descending || function.is_distance();
            return OrderItem { expr: with_worst(expr, is_least), descending };
        }
        if errors == self.diagnostics.len() + self.refusals.len() {
            self.check_order_path(&expr, item);
        }
        OrderItem { expr, descending: item.direction == Some(ast::Direction::Descending) }
    }

    /// Most similar first, for every distance function; the scores of query plans may state another direction.
    fn sorts_descending(&mut self, function: &Function, arguments: &[Expr], item: &ast::OrderItem) -> bool {
        if !function.is_distance() {
            return item.direction != Some(ast::Direction::Ascending);
        }
        if item.direction.is_some() {
            self.report(Problem::DistanceDirection, item.expr.span);
        }
        let metric = arguments.get(3).and_then(|metric| Metric::of_name(metric.as_constant()?.as_str()?));
        !metric.is_some_and(Metric::smaller_is_closer)
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
                ScopeEntryKind::Item => !steps.is_empty(),
                ScopeEntryKind::Property => true,
                ScopeEntryKind::Correlated => return self.refuse(CORRELATED),
                ScopeEntryKind::Derived | ScopeEntryKind::Let | ScopeEntryKind::Group => false,
            },
            _ => false,
        };
        if !is_path || !literal_steps {
            self.report(Problem::OrderByNotPath, item.expr.span);
        }
    }
}

/// Replaces a missing score by one lower, or higher, than all others.
pub(super) fn with_worst(score: Expr, is_least: bool) -> Expr {
    let worst = if is_least { WORST_SCORE } else { -WORST_SCORE };
    Expr::Coalesce(vec![score, Expr::constant(worst)])
}
