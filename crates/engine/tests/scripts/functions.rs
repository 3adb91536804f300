//! User-defined functions in queries.

use quire_engine::{EngineError, PageRequest, Parameters, ScriptError, SqlError};

use crate::{Bench, failure, on_every_storage};

impl Bench {
    fn query(&self, text: &str) -> Result<String, EngineError> {
        let page = self.0.page(Some(text), &PageRequest::default())?;
        Ok(String::from_utf8(page.rows).unwrap())
    }
}

fn filled(bench: &Bench) {
    for number in 0..6 {
        let tags = if number % 2 == 0 { r#"["even","x"]"# } else { r#"["odd"]"# };
        bench
            .0
            .create(&format!(r#"{{"id":"{number}","pk":"p","name":{number},"n":{number},"tags":{tags}}}"#))
            .unwrap();
    }
    bench.function("twice", "function (x) { return 2 * x; }");
    bench.function("same", "function (a, b) { return a === b; }");
    bench.function("first", "a => a[0]");
    bench.function("undefinedOf", "function (x) { return x > 2 ? x : undefined; }");
    bench.function("whole", "function (item) { return {id: item.id, keys: Object.keys(item).length}; }");
}

#[test]
fn they_stand_wherever_an_expression_does() {
    on_every_storage(|bench| {
        filled(bench);
        for (query, expected) in [
            ("SELECT VALUE udf.twice(c.n) FROM c WHERE c.n < 2", "[0,2]"),
            ("SELECT VALUE c.n FROM c WHERE udf.twice(c.n) = 8", "[4]"),
            ("SELECT VALUE c.n FROM c WHERE c.n > 1 AND udf.same(udf.first(c.tags), 'odd')", "[3,5]"),
            ("SELECT VALUE t FROM c JOIN t IN c.tags WHERE udf.same(t, 'x') AND c.n = 0", r#"["x"]"#),
            ("SELECT VALUE udf.undefinedOf(c.n) FROM c", "[3,4,5]"),
            ("SELECT c.n, udf.undefinedOf(c.n) AS u FROM c WHERE c.n = 2", r#"[{"n":2}]"#),
            ("SELECT VALUE udf.twice(c.missing) FROM c", "[]"),
            ("SELECT VALUE COUNT(1) FROM c WHERE udf.same(udf.first(c.tags), 'even')", "[3]"),
            ("SELECT VALUE SUM(udf.twice(c.n)) FROM c", "[30]"),
            ("SELECT VALUE c.n FROM c WHERE udf.same(c.n, 1) OR udf.same(c.n, 2) ORDER BY c.n DESC", "[2,1]"),
            ("SELECT VALUE udf.whole(c).id FROM c WHERE c.n = 1", r#"["1"]"#),
            ("SELECT DISTINCT VALUE udf.first(c.tags) FROM c", r#"["even","odd"]"#),
            ("SELECT VALUE udf.twice(21)", "[42]"),
            (
                "SELECT udf.first(c.tags) AS tag, COUNT(1) AS n FROM c GROUP BY udf.first(c.tags)",
                r#"[{"tag":"even","n":3},{"tag":"odd","n":3}]"#,
            ),
        ] {
            assert_eq!(bench.query(query).expect(query), expected, "{query}");
        }
    });
}

#[test]
fn in_pages_as_at_once() {
    let bench = Bench::new();
    filled(&bench);
    for query in
        ["SELECT VALUE udf.twice(c.n) FROM c", "SELECT VALUE udf.twice(c.n) FROM c ORDER BY c.n DESC"]
    {
        let whole = bench.0.all(Some(query), &Default::default(), 100);
        assert_eq!(whole.len(), 6);
        assert_eq!(bench.0.all(Some(query), &Default::default(), 1), whole, "{query}");
    }
}

#[test]
fn errors_of_functions_are_errors_of_the_page() {
    let bench = Bench::short_limits();
    filled(&bench);
    bench.function("number", "function () { throw new Error(32766, 'x'); }");
    bench.function("text", "function () { throw 'just text'; }");
    bench.function("broken", "function ( {");
    bench.function("endless", "function () { while (true) {} }");
    bench.function("deep", "function f(x) { return f(x + 1); }");
    bench.function("cycle", "function () { var a = []; a.push(a); return a; }");
    bench.function("context", "function () { return getContext(); }");
    bench.function("other", "function (x) { return udf.twice(x); }");
    let query = |name: &str| bench.query(&format!("SELECT VALUE udf.{name}(c.n) FROM c"));
    assert!(failure(query("number")).starts_with("32766 "));
    assert!(failure(query("text")).contains("just text"));
    assert!(failure(query("broken")).contains("compiling"));
    for wrong in ["deep", "cycle", "context", "other"] {
        assert!(matches!(query(wrong), Err(EngineError::Script(_))), "{wrong}");
    }
    match query("endless") {
        Err(EngineError::Script(failure)) => assert_eq!(failure.error, ScriptError::TimedOut),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.query("SELECT VALUE udf.twice(1)").unwrap(), "[2]", "others go on");
    // Not called, so it does no harm.
    assert_eq!(bench.query("SELECT VALUE udf.broken(1) FROM c WHERE c.n > 99").unwrap(), "[]");
}

#[test]
fn unknown_names_and_too_many_calls() {
    let bench = Bench::new();
    filled(&bench);
    let compile_error = |query: &str| match bench.query(query) {
        Err(EngineError::Sql(SqlError::Compile(found))) => found[0].code,
        other => panic!("{other:?}"),
    };
    assert_eq!(compile_error("SELECT VALUE udf.none(1)"), "SC2006");
    assert_eq!(compile_error("SELECT VALUE udf.TWICE(1)"), "SC2006", "names are case sensitive");
    let calls = |count: usize| format!("SELECT VALUE [{}]", vec!["udf.twice(1)"; count].join(","));
    assert_eq!(compile_error(&calls(11)), "SC3005");
    bench.query(&calls(10)).unwrap();
}

#[test]
fn they_come_and_go_with_the_catalog() {
    let bench = Bench::new();
    filled(&bench);
    assert_eq!(bench.query("SELECT VALUE udf.twice(2)").unwrap(), "[4]");
    bench.function("twice", "function (x) { return x + x + 1; }");
    assert_eq!(bench.query("SELECT VALUE udf.twice(2)").unwrap(), "[5]");
    let kind = quire_engine::ScriptKind::UserDefinedFunction;
    bench.0.engine.catalog().delete_script("db", "c", kind, "twice", &Default::default()).unwrap();
    assert!(bench.query("SELECT VALUE udf.twice(2)").is_err());
}

#[test]
fn plans_know_them() {
    let bench = Bench::new();
    filled(&bench);
    let plan = |text: &str| {
        bench.0.engine.query_plan(
            &bench.0.container,
            text,
            &Parameters::default(),
            &Default::default(),
            &Default::default(),
        )
    };
    let planned = plan("SELECT VALUE udf.twice(c.n) FROM c").unwrap();
    assert!(planned.plan.features.is_empty() && planned.plan.info.is_some_and(|info| info.has_select_value));
    assert!(plan("SELECT VALUE udf.none(c.n) FROM c").is_err());
}

#[test]
fn nothing_is_left_for_the_next_query() {
    let bench = Bench::new();
    bench.function(
        "leak",
        "function () { var seen = typeof left; left = 1; Array.prototype.extra = 1; return seen + [].extra; }",
    );
    for _ in 0..3 {
        assert_eq!(bench.query("SELECT VALUE udf.leak()").unwrap(), r#"["undefined1"]"#);
    }
    bench.function("look", "function () { return typeof [].extra; }");
    assert_eq!(bench.query("SELECT VALUE udf.look()").unwrap(), r#"["undefined"]"#);
}

#[test]
fn calls_are_part_of_the_charge() {
    let bench = Bench::new();
    filled(&bench);
    let charge = |text: &str| {
        let request = PageRequest::default();
        bench.0.engine.query_items(&bench.0.container, text, &Parameters::default(), &request).charge
    };
    let (plain, calling) = (charge("SELECT VALUE c.n FROM c"), charge("SELECT VALUE udf.twice(c.n) FROM c"));
    assert!((calling - plain - 0.06).abs() < 0.011, "{plain} {calling}");
}

#[test]
fn queries_of_scripts_call_them_too() {
    let bench = Bench::new();
    filled(&bench);
    let text = "c.queryDocuments(link, 'SELECT VALUE udf.twice(c.n) FROM c WHERE udf.same(c.n, 2)', (e, r) => done(r))";
    assert_eq!(bench.run(text).unwrap(), "[4]");
    bench.function("number", "function () { throw new Error(32766, 'x'); }");
    let text = "c.queryDocuments(link, 'SELECT VALUE udf.number()', e => done(e.number))";
    assert_eq!(bench.run(text).unwrap(), "400");
}
