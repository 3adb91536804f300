//! What a query depends on of its container: policies and user-defined functions.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use quire_resource::ContainerDefinition;
use quire_sql::functions::TextStatistics;
use quire_sql::{
    Allowance, Environment, Externals, Item, Parameters, Query, RankStatistics, Schema, Spend, SqlError,
    UserFunctions,
};
use quire_value::{Value, text};

fn value(json: &str) -> Value {
    text::parse(json.as_bytes(), quire_value::Limits::default()).expect("JSON")
}

fn container() -> ContainerDefinition {
    let json = value(
        r#"{"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash"},
            "vectorEmbeddingPolicy": {"vectorEmbeddings": [
              {"path": "/far", "dataType": "float32", "dimensions": 2, "distanceFunction": "euclidean"},
              {"path": "/deep/dot", "dataType": "int8", "dimensions": 2, "distanceFunction": "dotproduct"}]},
            "fullTextPolicy": {"defaultLanguage": "de-DE", "fullTextPaths": [
              {"path": "/text"}, {"path": "/deep/text", "language": "fr-FR"}]}}"#,
    );
    ContainerDefinition::create(&json).expect("a container")
}

fn rows(query: &str, items: &[&str]) -> String {
    let definition = container();
    let query = Query::compile_for(query, &Parameters::default(), Schema::of(&definition)).expect(query);
    let items: Vec<Value> = items.iter().map(|item| value(item)).collect();
    Value::Array(query.rows(&items).expect("rows")).to_json()
}

const VECTORS: &[&str] = &[
    r#"{"id": "1", "far": [9, 9], "deep": {"dot": [9, 9]}}"#,
    r#"{"id": "2", "far": [1, 0], "deep": {"dot": [1, 0]}}"#,
    r#"{"id": "3"}"#,
];

#[test]
fn the_vector_policy_tells_how_to_compare() {
    assert_eq!(rows("SELECT VALUE VectorDistance(c.far, [1, 1]) FROM c WHERE c.id = '2'", VECTORS), "[1]");
    assert_eq!(
        rows("SELECT VALUE VectorDistance([1, 1], c.deep.dot) FROM c WHERE c.id = '1'", VECTORS),
        "[18]"
    );
    assert_eq!(
        rows("SELECT VALUE c.id FROM c ORDER BY VectorDistance(c.far, [0, 0])", VECTORS),
        r#"["3","2","1"]"#
    );
    assert_eq!(
        rows("SELECT VALUE c.id FROM c ORDER BY VectorDistance(c.deep['dot'], [1, 1])", VECTORS),
        r#"["1","2","3"]"#
    );
}

#[test]
fn options_win_over_the_policy() {
    let query = "SELECT VALUE VectorDistance(c.far, [2, 0], true, {distanceFunction: 'cosine'}) FROM c WHERE c.id = '2'";
    assert_eq!(rows(query, VECTORS), "[1]");
}

#[test]
fn the_plan_sorts_as_the_policy_says() {
    let definition = container();
    for (path, expected) in [("c.far", "Ascending"), ("c.deep.dot", "Descending"), ("c.other", "Descending")]
    {
        let text = format!("SELECT TOP 1 * FROM c ORDER BY VectorDistance({path}, [1, 1])");
        let query =
            Query::compile_for(&text, &Parameters::default(), Schema::of(&definition)).expect("compiles");
        assert_eq!(
            format!("{:?}", query.plan().expect("a plan").info.expect("no ranks").order_by),
            format!("[{expected}]")
        );
    }
}

const TEXTS: &[&str] = &[
    r#"{"id": "1", "text": "die Häuser der Straße", "deep": {"text": "l'avion et les chevaux"}, "plain": "the houses"}"#,
];

#[test]
fn the_full_text_policy_tells_the_language() {
    // German keeps "die" and has its own plurals; the other path is English, which removes "the".
    let query = "SELECT VALUE [FullTextContains(c.text, 'Haus'), FullTextContains(c.text, 'die'), \
         FullTextContains(c.deep.text, 'cheval'), FullTextContains(c.deep.text, 'avion'), \
         FullTextContains(c.plain, 'house'), FullTextContains(c.plain, 'the'), FullTextContains('die Häuser', 'Haus')] FROM c";
    assert_eq!(rows(query, TEXTS), "[[true,true,true,true,true,false,false]]");
    assert_eq!(rows("SELECT VALUE _FullTextWordCount(c.text) FROM c", TEXTS), "[4]");
    assert_eq!(
        rows("SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'Haus')", TEXTS),
        r#"["1"]"#
    );
}

#[test]
fn statistics_of_all_items_can_be_given() {
    let query = "SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'cat', 'dog')";
    let query = || Query::compile(query, &Parameters::default(), &[]).expect("compiles");
    let items: Vec<Value> =
        [r#"{"id": "cat", "text": "cat"}"#, r#"{"id": "dog", "text": "dog"}"#].map(value).to_vec();
    let first = |query: Query| query.rows(&items).expect("rows").remove(0).to_json();
    let statistics = |cats: u64, dogs: u64| RankStatistics {
        document_count: 100,
        texts: vec![TextStatistics { total_word_count: 100, hit_counts: vec![cats, dogs] }],
    };
    assert_eq!(first(query()), r#""cat""#, "equal scores keep the order of the items");
    assert_eq!(first(query().with_rank_statistics(statistics(90, 1))), r#""dog""#);
    assert_eq!(first(query().with_rank_statistics(statistics(1, 90))), r#""cat""#);
}

#[test]
fn rank_statistics_cover_all_items() {
    let paths = ["/pk".parse().expect("a path")];
    let keys = |text: &str| {
        let query = Query::compile(text, &Parameters::default(), &[]).expect("compiles");
        query.partition_key_filter(&paths).is_some()
    };
    assert!(keys("SELECT * FROM c WHERE c.pk = 1"));
    assert!(keys("SELECT * FROM c WHERE c.pk = 1 ORDER BY RANK VectorDistance(c.v, [1])"));
    assert!(!keys("SELECT * FROM c WHERE c.pk = 1 ORDER BY RANK FullTextScore(c.t, 'a')"));
}

/// Functions of numbers, by their position in [`NAMES`].
struct Numbers;

const NAMES: [&str; 4] = ["double", "count", "fail", "forever"];

impl UserFunctions for Numbers {
    fn find(&self, name: &str) -> Option<usize> {
        NAMES.iter().position(|known| *known == name)
    }

    fn call(&self, function: usize, arguments: &[Value], spend: &mut Spend<'_>) -> Result<Value, SqlError> {
        match NAMES[function] {
            "double" => Ok(arguments[0].as_i64().map_or(Value::Undefined, |number| Value::from(2 * number))),
            "count" => Ok(Value::from(arguments.len() as i64)),
            "fail" => Err(SqlError::UserFunction { name: "fail".into(), message: "no".into() }),
            _ => loop {
                spend(1_000)?;
            },
        }
    }
}

fn call(text: &str) -> Result<String, SqlError> {
    let schema = Schema::default().with_functions(&Numbers);
    let allowance = Allowance::default().with_item_steps(100_000);
    let query = Query::compile_for(text, &Parameters::default(), schema)?
        .with_environment(Environment { allowance, ..Environment::default() });
    let items = [r#"{"id": "1", "n": 4}"#, r#"{"id": "2", "n": "x"}"#, r#"{"id": "3"}"#].map(value);
    Ok(Value::Array(query.rows_with(Externals::functions(&Numbers), &items)?).to_json())
}

#[test]
fn user_defined_functions_are_called() {
    for (text, expected) in [
        ("SELECT VALUE udf.double(21)", "[42]"),
        ("SELECT VALUE udf.count()", "[0]"),
        ("SELECT VALUE udf.count(1, null, [], {})", "[4]"),
        // Undefined is a valid argument.
        ("SELECT VALUE udf.count(c.n) FROM c", "[1,1,1]"),
        ("SELECT VALUE udf.count(c.n, undefined, c.n) FROM c", "[3,3,3]"),
        ("SELECT c.id, udf.double(c.n) AS d FROM c", r#"[{"id":"1","d":8},{"id":"2"},{"id":"3"}]"#),
        ("SELECT VALUE c.id FROM c WHERE udf.double(c.n) = 8", r#"["1"]"#),
        ("SELECT VALUE udf.double(udf.double(c.n)) + 1 FROM c", "[17]"),
        ("SELECT udf.count(c.n) AS k, COUNT(1) AS n FROM c GROUP BY udf.count(c.n)", r#"[{"k":1,"n":3}]"#),
        ("SELECT VALUE SUM(udf.double(c.n)) FROM c", "[8]"),
        ("SELECT VALUE true OR udf.fail()", "[true]"),
    ] {
        assert_eq!(call(text).as_deref(), Ok(expected), "{text}");
    }
}

/// Functions that run collected calls before the items are evaluated.
#[derive(Default)]
struct BatchedFunctions {
    /// Arguments of calls, and how often each was enqueued, run and used.
    enqueued: RefCell<HashMap<String, usize>>,
    run: RefCell<HashMap<String, usize>>,
    used: RefCell<HashMap<String, usize>>,
    /// Calls that were not collected before.
    not_collected: Cell<usize>,
}

impl BatchedFunctions {
    fn key(function: usize, arguments: &[Value]) -> String {
        format!("{function} {}", Value::Array(arguments.to_vec()).to_json())
    }
}

impl UserFunctions for BatchedFunctions {
    fn find(&self, name: &str) -> Option<usize> {
        Numbers.find(name)
    }

    fn call(&self, function: usize, arguments: &[Value], spend: &mut Spend<'_>) -> Result<Value, SqlError> {
        let key = BatchedFunctions::key(function, arguments);
        match self.run.borrow_mut().get_mut(&key) {
            Some(left) if *left > 0 => *left -= 1,
            _ => self.not_collected.set(self.not_collected.get() + 1),
        }
        Numbers.call(function, arguments, spend)
    }

    fn value_or_enqueue(&self, function: usize, arguments: &[Value]) -> Option<Value> {
        let key = BatchedFunctions::key(function, arguments);
        let used = self.used.borrow().get(&key).copied().unwrap_or(0);
        if used < self.run.borrow().get(&key).copied().unwrap_or(0) {
            *self.used.borrow_mut().entry(key).or_default() += 1;
            return Numbers.call(function, arguments, &mut |_| Ok(())).ok();
        }
        *self.enqueued.borrow_mut().entry(key).or_default() += 1;
        None
    }
}

#[test]
fn calls_are_collected() {
    let items = [
        r#"{"id": "1", "n": 4, "list": [1, 2, 3]}"#,
        r#"{"id": "2", "n": "x", "list": []}"#,
        r#"{"id": "3", "n": 4, "list": [{"a": [5, 6]}, 7]}"#,
        r#"{"id": "4"}"#,
    ]
    .map(value);
    for (text, rounds) in [
        ("SELECT VALUE udf.double(c.n) FROM c", 1),
        ("SELECT c.id, udf.double(c.n) AS a, udf.count(c.n) AS b FROM c", 2),
        ("SELECT VALUE udf.double(udf.double(c.n)) FROM c", 3),
        ("SELECT VALUE c.id FROM c WHERE udf.double(c.n) = 8 AND udf.count(c.id) = 1", 2),
        ("SELECT VALUE udf.double(x) FROM c JOIN x IN c.list", 1),
        ("SELECT VALUE udf.double(y) FROM c JOIN x IN c.list JOIN y IN x.a WHERE udf.count(x) = 1", 2),
        ("SELECT VALUE ARRAY(SELECT VALUE udf.double(x) FROM x IN c.list) FROM c", 1),
        ("SELECT VALUE udf.count(ARRAY(SELECT VALUE udf.double(x) FROM x IN c.list)) FROM c", 2),
        ("SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE x FROM x IN c.list WHERE udf.double(x) = 4)", 1),
        ("SELECT VALUE (SELECT VALUE SUM(udf.double(x)) FROM x IN c.list) FROM c", 1),
        ("SELECT VALUE IIF(udf.count(c.n) = 1, udf.double(c.n), udf.fail()) FROM c", 2),
        ("SELECT udf.count(c.n) AS k, SUM(udf.double(c.n)) AS s FROM c GROUP BY udf.count(c.n)", 3),
        ("SELECT DISTINCT VALUE udf.double(c.n) FROM c", 1),
    ] {
        let functions = BatchedFunctions::default();
        let schema = Schema::default().with_functions(&functions);
        let query = Query::compile_for(text, &Parameters::default(), schema).expect(text);
        let evaluator = query.start_with(Externals::functions(&functions)).expect(text);
        for _ in 0..rounds {
            functions.used.borrow_mut().clear();
            items.iter().for_each(|item| evaluator.collect_calls(&Item::value(item)));
            let mut run = functions.run.borrow_mut();
            functions
                .enqueued
                .borrow_mut()
                .drain()
                .for_each(|(key, count)| *run.entry(key).or_default() += count);
        }
        let rows = query.rows_with(Externals::functions(&functions), &items).expect(text);
        assert_eq!(rows, query.rows_with(Externals::functions(&Numbers), &items).expect(text), "{text}");
        assert_eq!(functions.not_collected.get(), 0, "{text}");
    }
}

#[test]
fn their_failures_are_the_querys() {
    let failure = call("SELECT VALUE udf.fail(1)").expect_err("fails");
    assert_eq!(failure.to_string(), "the user-defined function 'udf.fail' failed: no");
    assert!(matches!(call("SELECT VALUE udf.forever(1)"), Err(SqlError::Budget { .. })));
}

#[test]
fn unknown_functions_are_reported_at_compile_time() {
    for text in ["SELECT VALUE udf.Double(1)", "SELECT VALUE udf.unheard(1) FROM c WHERE false"] {
        let Err(SqlError::Compile(diagnostics)) = call(text) else { panic!("{text}") };
        assert_eq!((diagnostics.len(), diagnostics[0].code), (1, "SC2006"), "{text}");
    }
    let none = Query::compile("SELECT VALUE udf.double(1)", &Parameters::default(), &[]);
    assert!(matches!(none, Err(SqlError::Compile(_))), "without any functions");
}

#[test]
fn a_run_without_the_functions_is_refused() {
    let schema = Schema::default().with_functions(&Numbers);
    let query =
        Query::compile_for("SELECT VALUE udf.double(1)", &Parameters::default(), schema).expect("compiles");
    assert!(matches!(query.rows([]), Err(SqlError::Refused(_))));
}
