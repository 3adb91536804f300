//! Prepared queries: bound to any values, they are what a compilation with these values gives.
#![allow(clippy::unwrap_used)]

use quire_sql::{Environment, Parameters, PreparedQuery, Query, Unprepared};
use quire_testkit::random::{COMPUTED, PARAMETERS, QueryGenerator};
use quire_value::{Limits, Path, Value, text};

const RANDOM_QUERIES: usize = 12_000;
const RANDOM_SEED: u64 = 20_261_118;

/// Every text with the values of its parameters `@p` and `@q`, of all kinds.
const PREPARED: &[&str] = &[
    "SELECT * FROM c WHERE c.a = @p",
    "SELECT * FROM c WHERE @p = c.a",
    "SELECT * FROM c WHERE c.pk = @p AND c.a = @q",
    "SELECT c.id FROM c WHERE c.a = @p AND c.b.c = @q AND c.n > 3",
    "SELECT VALUE c.a FROM c WHERE c.a = @p",
    "SELECT VALUE COUNT(1) FROM c WHERE c.a = @p",
    "SELECT VALUE MAX(c.a) FROM c WHERE c.a = @p",
    "SELECT c.id, t FROM c JOIN t IN c.tags WHERE t = @p",
    "SELECT c.id, o.n FROM c JOIN o IN c.list WHERE o.s = @p AND c.a = @q",
    "SELECT c.id FROM c WHERE ARRAY_CONTAINS(c.tags, @p)",
    "SELECT c.id FROM c WHERE ARRAY_CONTAINS(c.tags, @p) AND c.a = @q",
    "SELECT s.x FROM (SELECT c.a AS x, c.n FROM c) AS s WHERE s.x = @p",
    "SELECT c.a, COUNT(1) AS n FROM c WHERE c.b.c = @p GROUP BY c.a",
    "SELECT DISTINCT VALUE c.n FROM c WHERE c.a = @p",
    "SELECT * FROM c WHERE c.a = @p AND (c.a = 1 OR c.n = 2)",
    "SELECT c.low FROM c WHERE c.a = @p",
];

/// The same where the values have an order: numbers and texts.
const ORDERED: &[&str] = &[
    "SELECT * FROM c WHERE c.a < @p",
    "SELECT * FROM c WHERE @p <= c.a",
    "SELECT TOP 2 * FROM c WHERE c.a >= @p ORDER BY c.a",
    "SELECT * FROM c WHERE c.a > @p AND c.a < @q",
    "SELECT * FROM c WHERE c.a BETWEEN @p AND @q",
    "SELECT * FROM c WHERE c.a BETWEEN @p AND @q AND c.a > 0 AND c.a != 5",
    "SELECT VALUE c.a FROM c WHERE c.a > @p AND c.n = 1 ORDER BY c.a DESC",
    "SELECT VALUE MIN(c.a) FROM c WHERE c.a >= @p",
    "SELECT c.id FROM c WHERE c.a > @p AND c.a > @p",
];

const SEARCHED: &[&str] = &[
    "SELECT c.id FROM c WHERE CONTAINS(c.a, @p)",
    "SELECT c.id FROM c WHERE ENDSWITH(c.a, @p) AND c.a > 'b'",
    "SELECT c.id FROM c WHERE CONTAINS(c.a, @p) AND c.a = @q",
];

/// Their compiled form depends on the values.
const UNPREPARED: &[&str] = &[
    "SELECT * FROM c WHERE c.a = @p + 1",
    "SELECT * FROM c WHERE c.a != @p",
    "SELECT * FROM c WHERE c.a IN (@p, @q)",
    "SELECT * FROM c WHERE c.a LIKE @p",
    "SELECT * FROM c WHERE c.a = @p OR c.n = 1",
    "SELECT * FROM c WHERE NOT (c.a = @p)",
    "SELECT * FROM c WHERE c.a = [@p]",
    "SELECT * FROM c WHERE c.a = c[@p]",
    "SELECT * FROM c WHERE @p",
    "SELECT * FROM c WHERE @p = 1 AND c.a = @q",
    "SELECT @p AS p FROM c WHERE c.a = @q",
    "SELECT VALUE {p: @p} FROM c",
    "SELECT TOP @p * FROM c",
    "SELECT * FROM c ORDER BY c.a OFFSET 0 LIMIT @p",
    "SELECT COUNT(1) AS n FROM c GROUP BY c.a = @p",
    "SELECT * FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = @p)",
    "SELECT * FROM c WHERE ARRAY_CONTAINS(@p, c.a)",
    "SELECT * FROM c WHERE ARRAY_CONTAINS(c.tags, @p) AND ARRAY_CONTAINS(c.tags, @q)",
    "SELECT * FROM c WHERE ARRAY_CONTAINS(c.tags, @p, true)",
    "SELECT * FROM c WHERE STARTSWITH(c.a, @p)",
    "SELECT * FROM c WHERE c = @p",
    "SELECT * FROM c WHERE c.low = @p",
    "SELECT * FROM c WHERE c.a = @p AND c._ts < GetCurrentTimestamp()",
    "SELECT * FROM c WHERE c.a = @p AND RAND() < 2",
    "SELECT * FROM c WHERE c.a = @p AND false AND c.n = @q",
];

fn json(text: &str) -> Value {
    text::parse(text.as_bytes(), Limits::default()).unwrap()
}

fn parameters(values: &[&str]) -> Parameters {
    let named = ["@p", "@q"].into_iter().zip(values);
    Parameters(named.map(|(name, value)| (name.to_owned(), json(value))).collect())
}

fn compiled(text: &str, values: &[&str]) -> Query {
    let computed = [("low".to_owned(), "SELECT VALUE LOWER(c.a) FROM c".to_owned())];
    Query::compile(text, &parameters(values), &computed).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn items() -> Vec<Value> {
    let values =
        ["1", "2", "-7", "1e300", "\"a\"", "\"b\"", "\"\"", "null", "true", "false", "[]", "{}", "[1]"];
    let item = |(number, value): (usize, &&str)| {
        json(&format!(
            r#"{{"id": "{number}", "pk": {value}, "a": {value}, "b": {{"c": {value}}}, "n": {}, "tags": [{value}, 1],
                "list": [{{"s": {value}, "n": {number}}}, {{"s": 2}}, 3]}}"#,
            number % 4
        ))
    };
    let mut items: Vec<Value> = values.iter().enumerate().map(item).collect();
    items.push(json(r#"{"id": "x", "n": 5}"#));
    items
}

/// Prepared with some values and bound to others, it is what is compiled with the others.
fn check(text: &str, first: &[&str], second: &[&str]) {
    let context = format!("{text} prepared with {first:?}, bound to {second:?}");
    let prepared = match PreparedQuery::new(&compiled(text, first)) {
        Ok(prepared) => prepared,
        // A range without values.
        Err(Unprepared::ForTheseValues) => return,
        Err(Unprepared::Always) => panic!("{context}: is not prepared"),
    };
    let bound = prepared.bind(&parameters(second), Environment::default()).unwrap();
    let kinds = |values: &[&str]| values.iter().map(|value| json(value).kind()).collect::<Vec<_>>();
    let Ok((query, analysis)) = bound else {
        assert!(kinds(first) != kinds(second), "{context}: is not bound");
        return;
    };
    let expected = compiled(text, second);
    assert_eq!(*analysis, expected.analysis(), "{context}");
    assert_eq!(query.analysis(), expected.analysis(), "{context}");
    assert_eq!(query.rows(&items()), expected.rows(&items()), "{context}");
    let paths: [Path; 1] = ["/pk".parse().unwrap()];
    assert_eq!(query.partition_key_filter(&paths), expected.partition_key_filter(&paths), "{context}");
    assert_eq!(format!("{:?}", query.plan()), format!("{:?}", expected.plan()), "{context}");
}

/// All pairs of values, for both parameters.
fn check_all(texts: &[&str], values: &[&str]) {
    for text in texts {
        for (number, first) in values.iter().enumerate() {
            for second in values {
                let other = values[(number * 7 + 3) % values.len()];
                check(text, &[first, other], &[second, other]);
                check(text, &[other, first], &[other, second]);
            }
        }
    }
}

#[test]
fn equality_with_scalars_of_every_kind() {
    check_all(
        PREPARED,
        &["1", "2", "-7.5", "9007199254740993", "\"a\"", "\"\"", "\"b\"", "null", "true", "false"],
    );
}

#[test]
fn ranges_of_numbers_and_texts() {
    check_all(ORDERED, &["1", "0", "-7", "5", "1e300"]);
    check_all(ORDERED, &["\"\"", "\"a\"", "\"b\"", "\"\u{10ffff}\""]);
}

#[test]
fn searches_in_texts() {
    check_all(SEARCHED, &["\"\"", "\"a\"", "\"b\"", "\"zz\""]);
}

#[test]
fn a_value_of_another_kind_or_a_long_one_is_not_bound() {
    let text = "SELECT * FROM c WHERE c.a = @p";
    let prepared = PreparedQuery::new(&compiled(text, &["1"])).unwrap_or_else(|why| panic!("{why:?}"));
    let is_bound = |values: &Parameters| prepared.bind(values, Environment::default()).unwrap().is_ok();
    assert!(is_bound(&parameters(&["2.5"])));
    for other in ["\"1\"", "null", "true", "[1]", "{}"] {
        assert!(!is_bound(&parameters(&[other])), "{other}");
    }
    assert!(!is_bound(&Parameters::default()));
    let texts = PreparedQuery::new(&compiled(text, &["\"a\""])).unwrap_or_else(|why| panic!("{why:?}"));
    let long = Parameters(vec![("@p".to_owned(), Value::from("x".repeat(1 << 20)))]);
    assert!(texts.bind(&long, Environment::default()).unwrap().is_err());
    let long = Query::compile(text, &long, &[]).unwrap();
    assert_eq!(PreparedQuery::new(&long).err(), Some(Unprepared::ForTheseValues));
}

#[test]
fn what_depends_on_values_in_other_ways_is_compiled_with_them() {
    for text in UNPREPARED {
        for value in ["1", "2"] {
            let values = [value, "1"];
            let why = PreparedQuery::new(&compiled(text, &values)).err();
            assert_eq!(why, Some(Unprepared::Always), "{text}");
        }
    }
    for value in ["[1]", "{\"a\": 1}"] {
        let query = compiled("SELECT * FROM c WHERE c.a = @p", &[value]);
        assert_eq!(PreparedQuery::new(&query).err(), Some(Unprepared::Always), "{value}");
    }
}

#[test]
fn a_missing_parameter_stays_missing() {
    let text = "SELECT * FROM c WHERE c.a = @p AND c.n = @missing";
    let prepared = PreparedQuery::new(&compiled(text, &["1"]));
    assert_eq!(prepared.err(), Some(Unprepared::Always), "nothing matches, whatever the value");
}

#[test]
fn a_text_without_parameters_is_prepared_as_it_is() {
    for text in [
        "SELECT * FROM c WHERE c.a IN (1, 2) AND c.n != 3",
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT c.a FROM c WHERE c.a LIKE 'a%' ORDER BY c.a",
        "SELECT 1 AS one",
    ] {
        check(text, &[], &[]);
    }
}

/// Other values of the same kinds.
fn others(value: &Value) -> Vec<Value> {
    let all = match value {
        Value::Number(_) => ["0", "-1", "2.5", "7", "1e300", "9007199254740993"].as_slice(),
        Value::String(_) => &["\"\"", "\"a\"", "\"abc\"", "\"z\"", "\"n\""],
        Value::Bool(_) => &["true", "false"],
        _ => &[],
    };
    if all.is_empty() { vec![value.clone()] } else { all.iter().map(|text| json(text)).collect() }
}

#[test]
fn random_queries_are_bound_as_they_are_compiled() {
    let mut random = QueryGenerator::new(RANDOM_SEED);
    let items: Vec<Value> = (0..40).map(|id| json(&random.item(id))).collect();
    let first: Vec<(String, Value)> =
        PARAMETERS.iter().map(|(name, value)| ((*name).to_owned(), json(value))).collect();
    let computed: Vec<(String, String)> =
        COMPUTED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let (mut prepared, mut with_parameters) = (0, 0);
    for _ in 0..RANDOM_QUERIES {
        let text = random.query().text;
        let Ok(query) = Query::compile(&text, &Parameters(first.clone()), &computed) else { continue };
        let Ok(found) = PreparedQuery::new(&query) else { continue };
        prepared += 1;
        with_parameters += usize::from(text.contains('@'));
        for round in 0..if text.contains('@') { 6 } else { 1 } {
            let other = |(name, value): &(String, Value)| {
                let others = others(value);
                (name.clone(), others[(round + name.len()) % others.len()].clone())
            };
            let second = Parameters(first.iter().map(other).collect());
            let (bound, analysis) = match found.bind(&second, Environment::default()).unwrap() {
                Ok(bound) => bound,
                Err(_) => panic!("{text}: not bound to {second:?}"),
            };
            let expected = Query::compile(&text, &second, &computed).unwrap();
            assert_eq!(*analysis, expected.analysis(), "{text} with {second:?}");
            assert_eq!(bound.rows(&items), expected.rows(&items), "{text} with {second:?}");
        }
    }
    println!("{prepared} of {RANDOM_QUERIES} are prepared, {with_parameters} of them with parameters");
    assert!(prepared > RANDOM_QUERIES / 4 && with_parameters > 10, "{prepared}, {with_parameters}");
}
