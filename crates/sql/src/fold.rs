//! Folds what needs no item into constants, once at compile time. What fails (division by zero) or takes long is left for the
//! run, which fails only where it comes to it.

use quire_value::Value;

use crate::bound::{Expr, Query};
use crate::environment::{Environment, Limits};
use crate::exec::{self, Run};
use crate::functions::{Implementation, Nature, Patterns};
use crate::like::Pattern;
use crate::user_functions::NoFunctions;

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
    let surroundings =
        exec::surroundings(&Environment { limits, ..Environment::default() }, &patterns, &NoFunctions);
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
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind;
    use crate::{Parameters, Schema, parser};

    fn projection(text: &str) -> Expr {
        let syntax = parser::parse(text).expect("parses");
        let mut query =
            bind::bind(&syntax, text, &Parameters::default(), &[], Schema::default()).expect("binds").query;
        fold_query(&mut query);
        query.projection
    }

    #[test]
    fn what_needs_no_item_is_a_constant() {
        let check = |text: &str, expected: &str| {
            let folded = projection(&format!("SELECT VALUE {text} FROM c"));
            assert_eq!(folded.as_constant().map(Value::to_json).as_deref(), Some(expected), "{text}");
        };
        check("1 + 2 * 3", "7");
        check("LOWER('ABC') || 'd'", r#""abcd""#);
        check("{a: [1 + 1], b: undefined}", r#"{"a":[2]}"#);
        check("{a: {b: 1}}.a.b = 1 AND 2 IN (1, 1 + 1)", "true");
        check("'a' || 'b' LIKE 'a' || '%'", "true");
        check("1 / 0 > 1", "true");
        check("DateTimeToTicks('1970-01-01T00:00:01.0000000Z')", "10000000");
    }

    #[test]
    fn what_fails_or_changes_stays() {
        for text in ["RAND()", "GetCurrentTicks()", "c.a", "(SELECT VALUE 1)", "COUNT(1)"] {
            assert!(projection(&format!("SELECT VALUE {text} FROM c")).as_constant().is_none(), "{text}");
        }
    }

    #[test]
    fn constants_beside_paths_are_prepared() {
        let Expr::In { sorted, .. } = projection("SELECT VALUE c.a IN (1 + 1, 1) FROM c") else { panic!() };
        assert_eq!(sorted, Some(vec![Value::from(1), Value::from(2)]));
        let Expr::Like { compiled, .. } = projection("SELECT VALUE c.a LIKE 'a' || '%' FROM c") else {
            panic!()
        };
        assert!(compiled.is_some());
    }
}
