//! Folds expressions that need no item into constants, once at compile time. An expression that fails (division by
//! zero) or takes long is left for the run, which fails only if it evaluates it.

use quire_value::Value;

use crate::bind::bound::{Expr, Query, sorted_constants};
use crate::data::approximate_size;
use crate::functions::{Externals, Implementation, RegexCache, Volatility};
use crate::limits::Allowance;

use super::{Environment, Execution, eval_context};

/// Step limit for all constants of a query together.
const STEPS_MAX: u64 = 100_000;
/// What a constant may take beyond what it is made of: a short text can stand for a large value, and constants are held
/// as long as the expression (a model, a computed property).
const GROWTH_BYTES_MAX: usize = 1_024;

pub(crate) fn fold_query(query: &mut Query, allowance: &Allowance) {
    with_run(allowance, |run| query.for_each_expr_mut(&mut |expr| fold(expr, run)));
}

pub(crate) fn fold_expr(expr: &mut Expr, allowance: &Allowance) {
    with_run(allowance, |run| fold(expr, run));
}

/// If the allowance is exhausted or the query is cancelled, expressions stay unchanged: the next check reports it.
fn with_run(allowance: &Allowance, work: impl FnOnce(&Execution<'_>)) {
    let allowance = allowance.clone().with_item_steps(STEPS_MAX);
    let patterns = RegexCache::default();
    let context = eval_context(&Environment::within(allowance), &[], &patterns, Externals::NONE);
    work(&Execution::new(&context, &[], None));
}

/// Folds children first.
fn fold(expr: &mut Expr, run: &Execution<'_>) {
    let (mut constant, mut bytes) = (true, 0);
    expr.for_each_child_mut(&mut |child| {
        fold(child, run);
        match child.as_constant() {
            Some(value) => bytes += approximate_size(value),
            None => constant = false,
        }
    });
    if constant && depends_on_children_only(expr) {
        if let Ok(value) = run.constant(expr)
            && approximate_size(&value) <= bytes + GROWTH_BYTES_MAX
        {
            *expr = Expr::constant(value);
        }
        return;
    }
    prepare(expr, run);
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
                && function.volatility() == Volatility::Deterministic
                && matches!(function.implementation, Implementation::Scalar(_))
        }
        _ => false,
    }
}

/// Prepares what the binder prepares for constants, for expressions that have become constants.
fn prepare(expr: &mut Expr, run: &Execution<'_>) {
    match expr {
        Expr::In { items, sorted: sorted @ None, .. } => {
            *sorted = sorted_constants(items);
        }
        Expr::Like { pattern, escape, compiled: compiled @ None, .. } => {
            let constant = pattern.as_constant().and_then(Value::as_str);
            *compiled = constant.and_then(|constant| run.pattern(constant, *escape).ok());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind;
    use crate::bind::{Parameters, Schema};
    use crate::syntax::parser;

    fn projection(text: &str) -> Expr {
        let syntax = parser::parse(text).expect("parses");
        let (allowance, parameters) = (Allowance::default(), Parameters::default());
        let bound = bind::bind(&syntax, text, &parameters, &[], Schema::default(), &allowance.meter());
        let mut query = bound.expect("binds").query;
        fold_query(&mut query, &allowance);
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
    fn a_short_text_does_not_stand_for_a_large_constant() {
        for text in ["REPLICATE('a', 9000)", "LENGTH(REPLACE(REPLICATE('a', 2000), 'a', 'bb'))"] {
            assert!(projection(&format!("SELECT VALUE {text} FROM c")).as_constant().is_none(), "{text}");
        }
        let list = format!("[{}]", vec!["1"; 5_000].join(","));
        assert!(projection(&format!("SELECT VALUE {list} FROM c")).as_constant().is_some());
    }

    #[test]
    fn constants_beside_paths_are_prepared() {
        let Expr::In { sorted, .. } = projection("SELECT VALUE c.a IN (1 + 1, 1) FROM c") else { panic!() };
        assert_eq!(sorted, Some(vec![Value::from(1).into(), Value::from(2).into()]));
        let Expr::Like { compiled, .. } = projection("SELECT VALUE c.a LIKE 'a' || '%' FROM c") else {
            panic!()
        };
        assert!(compiled.is_some());
    }
}
