//! No query text may overflow the stack, hang or panic.

use std::ops::ControlFlow;
use std::time::Duration;

use quire_sql::{Allowance, Environment, Parameters, Query, SqlError};
use quire_value::Value;
use rustix::time::{ClockId, clock_gettime};

fn run(text: &str) -> Result<Vec<Value>, SqlError> {
    let query = Query::compile(text, &Parameters::default(), &[])?;
    let environment = Environment { now_ticks: Some(0), ..Environment::default() };
    query.with_environment(environment).rows([])
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
                Ok(rows) => assert!(rows.len() == 1 && levels < 5_000, "{open} {levels}: {rows:?}"),
                Err(SqlError::Compile(diagnostics)) => {
                    assert_eq!(diagnostics[0].code, "SC3006", "{open} {levels}");
                    assert!(levels > 10, "{open} {levels}");
                }
                Err(other) => panic!("{open} {levels}: {other:?}"),
            }
        }
    }
}

fn item() -> Value {
    let elements: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let json = format!(
        "{{\"id\":\"1\",\"l\":[{}],\"s\":\"{}\",\"t\":\"{}\"}}",
        elements.join(","),
        "ab".repeat(50_000),
        "x y ".repeat(25_000)
    );
    quire_value::text::parse(json.as_bytes(), quire_value::Limits::default()).expect("an item")
}

/// Each of these would need hours or terabytes.
#[test]
fn huge_results_end_with_an_error() {
    let allowance = Allowance::limited(1_000_000, 16 << 20);
    for text in [
        "SELECT VALUE 1 FROM c JOIN a IN c.l JOIN b IN c.l JOIN d IN c.l JOIN e IN c.l",
        "SELECT VALUE COUNT(1) FROM c JOIN a IN c.l JOIN b IN c.l JOIN d IN c.l",
        "SELECT c FROM c JOIN a IN c.l JOIN b IN c.l ORDER BY c.id",
        "SELECT VALUE ARRAY(SELECT VALUE [c, a] FROM a IN c.l) FROM c JOIN b IN c.l",
        "SELECT VALUE MAKELIST(c) FROM c JOIN a IN c.l",
        "SELECT VALUE REPLACE(c.s, 'a', c.s) FROM c",
        "SELECT VALUE StringJoin(StringSplit(c.s, 'a'), c.s) FROM c",
        "SELECT VALUE EXISTS(SELECT VALUE 1 FROM a IN c.l JOIN b IN c.l JOIN d IN c.l WHERE a + b + d < 0) FROM c",
        "SELECT VALUE FullTextContains(c.t, c.t) FROM c JOIN a IN c.l",
        "SELECT VALUE c.id FROM c JOIN a IN c.l WHERE FullTextContainsAny(c.t, {'term': c.t, 'distance': 2})",
        "SELECT VALUE VectorDistance(c.l, c.l) FROM c JOIN a IN c.l JOIN b IN c.l",
        "SELECT DISTINCT VALUE [a, b, d] FROM c JOIN a IN c.l JOIN b IN c.l JOIN d IN c.l",
        "SELECT a, b, d, COUNT(1) FROM c JOIN a IN c.l JOIN b IN c.l JOIN d IN c.l GROUP BY a, b, d",
    ] {
        let query = Query::compile(text, &Parameters::default(), &[]).expect(text);
        let query =
            query.with_environment(Environment { allowance: allowance.clone(), ..Environment::default() });
        let error = query.rows([&item()]).expect_err(text);
        assert!(matches!(error, SqlError::Budget { .. } | SqlError::QueryMemory { .. }), "{text}: {error}");
    }
    let chain = format!("SELECT VALUE c.s{} FROM c", " || c.s".repeat(20_000));
    let query = Query::compile(&chain, &Parameters::default(), &[]).expect("a long chain");
    query
        .with_environment(Environment { allowance: allowance.clone(), ..Environment::default() })
        .rows([&item()])
        .expect_err("too much text");
}

/// A thousand rows of one item are within the limits.
#[test]
fn ordinary_joins_fit() {
    let query =
        Query::compile("SELECT VALUE a FROM c JOIN a IN c.l JOIN b IN c.l", &Parameters::default(), &[])
            .expect("compiles");
    assert_eq!(query.rows([&item()]).expect("a million rows").len(), 1_000_000);
}

/// The time must be given: a query that reads it is refused without.
#[test]
fn the_time_must_be_given() {
    let query =
        Query::compile("SELECT VALUE GetCurrentTicks()", &Parameters::default(), &[]).expect("compiles");
    assert!(matches!(query.rows([]), Err(SqlError::Refused(_))));
}

/// Threads may share a query.
#[test]
fn queries_are_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<Query>();
}

/// An error of the item scan ends the query, and is returned unchanged.
#[test]
fn errors_of_the_scan_are_returned() {
    #[derive(Debug, PartialEq)]
    enum Failure {
        Source,
        Sql,
    }
    impl From<SqlError> for Failure {
        fn from(_: SqlError) -> Failure {
            Failure::Sql
        }
    }
    let query =
        Query::compile("SELECT VALUE COUNT(1) FROM c", &Parameters::default(), &[]).expect("compiles");
    assert_eq!(
        query.run(&mut |_| Err(Failure::Source), &mut |_| ControlFlow::Continue(())),
        Err(Failure::Source)
    );
}

/// The largest texts, and how each ends. Eight times the text takes about eight times the CPU time, not 64 times.
#[test]
fn long_texts_take_linear_time() {
    const NOT_JSON: &str = "The response content contains a numeric value that cannot be represented in JSON (e.g. Infinity and NaN).";
    let list = |count: usize, part: &dyn Fn(usize) -> String| (0..count).map(part).collect::<String>();
    type Text<'a> = &'a dyn Fn(usize) -> String;
    let forms: [(Text<'_>, &str); 12] = [
        (&|n| format!("SELECT 1{} FROM c", ", 1".repeat(n / 3)), "1 rows"),
        (&|n| format!("SELECT NaN{} FROM c", ", NaN".repeat(n / 5)), NOT_JSON),
        (
            &|n| {
                format!("SELECT c.a{} FROM c GROUP BY c.b{}", ", c.a".repeat(n / 10), ", c.b".repeat(n / 10))
            },
            "SC3007",
        ),
        (&|n| format!("SELECT {} COUNT(1) FROM c", list(n / 20, &|n| format!("SUM({n}), "))), "SC3008"),
        (&|n| format!("SELECT 1 FROM c{}", " JOIN c".repeat(n / 7)), "SC3002"),
        (&|n| format!("SELECT 1 FROM c{}", list(n / 20, &|n| format!(" JOIN a{n} IN c.l"))), "SC3002"),
        (&|n| format!("SELECT {} 1", "x, ".repeat(n / 3)), "SC2001"),
        (&|n| format!("SELECT VALUE {{{}a: 1}}", list(n / 20, &|n| format!("a{n}: {n}, "))), "1 rows"),
        (
            &|n| {
                format!(
                    "SELECT VALUE 1 FROM c WHERE c.id IN ('a'{}) AND true{}",
                    ", 'b'".repeat(n / 10),
                    " AND c.id = 'c'".repeat(n / 30)
                )
            },
            "0 rows",
        ),
        (&|n| format!("SELECT VALUE c.z{} FROM c", " ?? c.z".repeat(n / 7)), "0 rows"),
        (&|n| format!("SELECT VALUE c.s LIKE '{}' FROM c", "%a_".repeat(n / 3)), "1 rows"),
        (&|n| format!("SELECT * FROM c ORDER BY c.a{}", ", c.a".repeat(n / 5)), "1 rows"),
    ];
    let item = item();
    for (form, expected) in forms {
        let (short, long) = (form(12_500), form(100_000));
        let shown = &long[..40];
        let (outcome, long_time) =
            (0..2).map(|_| compiled_and_run(&long, &item)).min_by_key(|(_, time)| *time).unwrap();
        assert_eq!(outcome, expected, "{shown}");
        let short_time = (0..3).map(|_| compiled_and_run(&short, &item).1).min().unwrap();
        assert!(
            long_time < 24 * short_time + Duration::from_millis(5),
            "{shown}: {short_time:?}, {long_time:?}"
        );
    }
}

/// The result, and the CPU time of this thread.
fn compiled_and_run(text: &str, item: &Value) -> (String, Duration) {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("not before its start");
    let started = now();
    let outcome = match Query::compile(text, &Parameters::default(), &[]) {
        Ok(query) => {
            query.partition_key_prefixes(&["/id", "/pk"].map(|path| path.parse().expect("a path")));
            let planned = query.plan().map(|_| ());
            let rows = planned.and_then(|()| query.rows([item]));
            rows.map_or_else(|error| error.to_string(), |rows| format!("{} rows", rows.len()))
        }
        Err(SqlError::Compile(diagnostics)) => diagnostics[0].code.to_string(),
        Err(error) => error.to_string(),
    };
    (outcome, now() - started)
}
