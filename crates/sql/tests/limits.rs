//! No query text may overflow the stack, hang or panic, whatever it says.

use quire_sql::{Environment, Parameters, Query, SqlError};
use quire_value::Value;

fn run(text: &str) -> Result<Vec<Value>, SqlError> {
    let query = Query::compile(text, &Parameters::default(), &[])?;
    let environment = Environment { now_ticks: Some(0), ..Environment::default() };
    query.with_environment(environment).run(&mut || Ok::<_, SqlError>(None))
}

fn nested(open: &str, core: &str, close: &str, levels: usize) -> String {
    format!("SELECT VALUE {}{core}{}", open.repeat(levels), close.repeat(levels))
}

#[test]
fn deep_queries_run_or_are_refused() {
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("ABS(", ")"),
        ("{a: ", "}"),
        ("(SELECT VALUE ", ")"),
        ("ARRAY(SELECT VALUE x FROM x IN (SELECT VALUE [", "]))"),
        ("EXISTS(SELECT VALUE 1 WHERE ", ")"),
        ("(1 = 1 ? ", " : 0)"),
        ("(LET x = 1 IN ", ")"),
        ("-(1 + 2 * (", "))"),
    ] {
        for levels in [10, 50, 90, 198, 199, 200, 5_000] {
            match run(&nested(open, "1", close, levels)) {
                Ok(rows) => assert!(rows.len() <= 1),
                Err(SqlError::Compile(diagnostics)) => {
                    assert_eq!(diagnostics[0].code, "SC3006", "{open} {levels}")
                }
                Err(other) => panic!("{open} {levels}: {other:?}"),
            }
        }
    }
}
