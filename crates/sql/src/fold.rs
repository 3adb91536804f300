//! Folds what needs no item into constants, once at compile time. What fails (division by zero) or takes long is left for the
//! run, which fails only where it comes to it.

use quire_value::Value;

use crate::bound::{Expr, Query, Step};
use crate::environment::{Environment, Limits};
use crate::exec::{self, Run};
use crate::functions::{Implementation, Nature, Patterns};
use crate::like::Pattern;

/// For all constants of a query together.
const STEPS_MAX: u64 = 100_000;

pub(crate) fn fold_query(query: &mut Query) {
    with_run(|run| query.for_each_expr_mut(&mut |expr| fold(expr, run)));
}

pub(crate) fn fold_expr(expr: &mut Expr) {
    with_run(|run| fold(expr, run));
}

fn with_run(work: impl FnOnce(&Run<'_>)) {
    let limits = Limits { item_steps_max: STEPS_MAX, ..Limits::default() };
    let patterns = Patterns::default();
    let surroundings = exec::surroundings(&Environment { limits, ..Environment::default() }, &patterns);
    work(&Run::new(&surroundings, &[], None));
}

/// From the inside out.
fn fold(expr: &mut Expr, run: &Run<'_>) {
    let mut constant = true;
    expr.for_each_child_mut(&mut |child| {
        fold(child, run);
        constant = constant && child.as_constant().is_some();
    });
    if constant && depends_on_children_only(expr) {
        if let Ok(value) = run.constant(expr) {
            *expr = Expr::Constant(value);
        }
        return;
    }
    prepare(expr);
}

fn depends_on_children_only(expr: &Expr) -> bool {
    match expr {
        Expr::Path { .. } | Expr::Array(_) | Expr::Object(_) | Expr::Unary { .. } | Expr::Chain { .. } => {
            true
        }
        Expr::And(_) | Expr::Or(_) | Expr::In { .. } | Expr::Like { .. } | Expr::Between { .. } => true,
        Expr::Coalesce(_) | Expr::Conditional { .. } => true,
        // Spatial functions depend on the container as well.
        Expr::Call { function, .. } => {
            !function.is_spatial()
                && function.nature() == Nature::Plain
                && matches!(function.implementation, Implementation::Scalar(_))
        }
        _ => false,
    }
}

/// What the binder prepares where it sees constants, for those that have become some.
fn prepare(expr: &mut Expr) {
    match expr {
        Expr::In { items, sorted: sorted @ None, .. } => {
            let constants: Option<Vec<Value>> =
                items.iter().map(|item| item.as_constant().cloned()).collect();
            *sorted = constants.map(|mut values| {
                values.sort_by(Value::total_cmp);
                values
            });
        }
        Expr::Like { pattern, escape, compiled: compiled @ None, .. } => {
            let constant = pattern.as_constant().and_then(Value::as_str);
            *compiled = constant.map(|constant| Pattern::new(constant, *escape));
        }
        Expr::Path { steps, .. } => {
            for step in steps {
                if let Step::Index(Expr::Constant(Value::String(name))) = step {
                    *step = Step::Name(std::mem::take(name));
                }
            }
        }
        _ => {}
    }
}
