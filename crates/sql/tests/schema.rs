//! What a query takes from its container: policies and user-defined functions.

use quire_resource::ContainerDefinition;
use quire_sql::functions::TextStatistics;
use quire_sql::{
    Environment, Limits, Parameters, Query, RankStatistics, Schema, Spend, SqlError, UserFunctions,
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
        assert_eq!(format!("{:?}", query.plan().expect("a plan").info.order_by), format!("[{expected}]"));
    }
}

const TEXTS: &[&str] = &[
    r#"{"id": "1", "text": "die Häuser der Straße", "deep": {"text": "l'avion et les chevaux"}, "plain": "the houses"}"#,
];

#[test]
fn the_full_text_policy_tells_the_language() {
    // German keeps "die", and its plurals are not those of English; elsewhere it is English, which drops "the".
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
fn ranks_are_told_from_all_items() {
    let paths = ["/pk".parse().expect("a path")];
    let keys = |text: &str| {
        let query = Query::compile(text, &Parameters::default(), &[]).expect("compiles");
        query.partition_key_filter(&paths).is_some()
    };
    assert!(keys("SELECT * FROM c WHERE c.pk = 1"));
    assert!(keys("SELECT * FROM c WHERE c.pk = 1 ORDER BY RANK VectorDistance(c.v, [1])"));
    assert!(!keys("SELECT * FROM c WHERE c.pk = 1 ORDER BY RANK FullTextScore(c.t, 'a')"));
}

/// Functions of numbers, by their place in [`NAMES`].
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
    let limits = Limits { item_steps_max: 100_000, ..Limits::default() };
    let query = Query::compile_for(text, &Parameters::default(), schema)?
        .with_environment(Environment { limits, ..Environment::default() });
    let items = [r#"{"id": "1", "n": 4}"#, r#"{"id": "2", "n": "x"}"#, r#"{"id": "3"}"#].map(value);
    Ok(Value::Array(query.rows_calling(&Numbers, &items)?).to_json())
}

#[test]
fn user_defined_functions_are_called() {
    for (text, expected) in [
        ("SELECT VALUE udf.double(21)", "[42]"),
        ("SELECT VALUE udf.count()", "[0]"),
        ("SELECT VALUE udf.count(1, null, [], {})", "[4]"),
        // Not called when an argument is undefined.
        ("SELECT VALUE udf.count(c.n) FROM c", "[1,1]"),
        ("SELECT c.id, udf.double(c.n) AS d FROM c", r#"[{"id":"1","d":8},{"id":"2"},{"id":"3"}]"#),
        ("SELECT VALUE c.id FROM c WHERE udf.double(c.n) = 8", r#"["1"]"#),
        ("SELECT VALUE udf.double(udf.double(c.n)) + 1 FROM c", "[17]"),
        (
            "SELECT udf.count(c.n) AS k, COUNT(1) AS n FROM c GROUP BY udf.count(c.n)",
            r#"[{"k":1,"n":2},{"n":1}]"#,
        ),
        ("SELECT VALUE SUM(udf.double(c.n)) FROM c", "[8]"),
        ("SELECT VALUE true OR udf.fail()", "[true]"),
        ("SELECT VALUE udf.fail(c.missing) FROM c", "[]"),
    ] {
        assert_eq!(call(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn their_failures_are_the_querys() {
    let failure = call("SELECT VALUE udf.fail(1)").expect_err("fails");
    assert_eq!(failure.to_string(), "the user-defined function 'udf.fail' failed: no");
    assert!(matches!(call("SELECT VALUE udf.forever(1)"), Err(SqlError::Budget { .. })));
}

#[test]
fn unknown_functions_are_found_out_at_once() {
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
