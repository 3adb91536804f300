//! Queries with indexes: the same rows in the same order as without, found with less reading; places in a result that
//! hold while items, policies and stores change.

mod support;

use quire_engine::{EngineError, Page, PageRequest, Parameters, Precondition, Scope};
use quire_value::{Limits, Value, text};
use support::ends_at_every_check;
use support::fixture::{Fixture, Random, pk, request};

const HASH: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
const COMPOSITE: &str = r#""indexingPolicy":{"includedPaths":[{"path":"/*"},{"path":"/both/?","order":"both"}],
    "excludedPaths":[{"path":"/out/*"}],
    "compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"descending"}],
        [{"path":"/b","order":"descending"},{"path":"/a","order":"descending"}]]}"#;

/// Random values at a few paths: all kinds, ties, missing ones, strings longer than an index keeps.
fn item(random: &mut Random, id: u64) -> String {
    let mut value = || match random.below(12) {
        0 => "null".to_owned(),
        1 => "true".to_owned(),
        2 => "false".to_owned(),
        3 => "[1,\"x\"]".to_owned(),
        4 => format!("{{\"z\":{}}}", random.below(3)),
        5 => format!("\"{}{}\"", "long ".repeat(30), random.below(4)),
        6 => format!("\"{}{}{}\"", "long ".repeat(30), "more ".repeat(200), random.below(4)),
        7 => format!("\"s{}\"", random.below(6)),
        8 => format!("{}.5", random.below(5)),
        _ => format!("{}", random.below(8)),
    };
    let mut members = Vec::new();
    for name in ["a", "b", "both", "out"] {
        let value = value();
        members.push((name, value));
    }
    members.retain(|_| random.below(6) > 0);
    let members: Vec<String> =
        members.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    let tags: Vec<String> = (0..random.below(4))
        .map(|_| format!("{{\"t\":{},\"u\":\"u{}\"}}", random.below(4), random.below(3)))
        .collect();
    let members = [members.join(","), format!("\"tags\":[{}]", tags.join(","))].join(",");
    let members = members.trim_start_matches(',');
    format!(r#"{{"id":"{id}","pk":"p{}",{members}}}"#, id % 5)
}

fn filled(partitions: u32, members: &str, items: u64, seed: u64) -> Fixture {
    let fixture = Fixture::with_key(HASH, members, partitions);
    let mut random = Random(seed);
    for id in 0..items {
        let body = item(&mut random, id);
        fixture.create(&body).unwrap_or_else(|error| panic!("{body}: {error}"));
    }
    fixture
}

const SORTED: &[&str] = &[
    "SELECT VALUE c.id FROM c ORDER BY c.a",
    "SELECT VALUE c.id FROM c ORDER BY c.a DESC",
    "SELECT VALUE c.id FROM c ORDER BY c.both DESC",
    "SELECT VALUE c.id FROM c WHERE c.a >= 2 ORDER BY c.a",
    "SELECT VALUE c.id FROM c WHERE c.a > 1 AND c.a < 6 ORDER BY c.a DESC",
    "SELECT VALUE c.id FROM c WHERE IS_STRING(c.a) ORDER BY c.a",
    "SELECT VALUE c.id FROM c WHERE IS_STRING(c.a) ORDER BY c.a DESC",
    "SELECT VALUE c.id FROM c WHERE c.b = 3 ORDER BY c.a",
    "SELECT VALUE c.id FROM c WHERE c.b = 3 ORDER BY c.a DESC",
    "SELECT VALUE c.id FROM c WHERE c.out != 3 ORDER BY c.a DESC",
    "SELECT VALUE [c.id, t.t] FROM c JOIN t IN c.tags ORDER BY c.a",
    "SELECT VALUE [c.id, t.t] FROM c JOIN t IN c.tags WHERE t.t = 2 ORDER BY c.a DESC OFFSET 3 LIMIT 9",
    "SELECT TOP 7 VALUE c.id FROM c ORDER BY c.b",
    "SELECT VALUE c.id FROM c ORDER BY c.b OFFSET 11 LIMIT 5",
    "SELECT VALUE c.id FROM c ORDER BY c.a ASC, c.b DESC",
    "SELECT VALUE c.id FROM c ORDER BY c.a DESC, c.b ASC",
    "SELECT VALUE c.id FROM c ORDER BY c.b DESC, c.a DESC",
    "SELECT VALUE c.id FROM c WHERE c.a = 3 ORDER BY c.a ASC, c.b DESC",
    "SELECT VALUE c.id FROM c WHERE c.b >= 's2' ORDER BY c.b DESC, c.a DESC",
    "SELECT VALUE c.id FROM c ORDER BY c._ts DESC",
    "SELECT VALUE c.id FROM c ORDER BY c.id",
    "SELECT VALUE c.id FROM c ORDER BY c.nowhere DESC",
    "SELECT VALUE c.id FROM c WHERE c.id > '3' ORDER BY c.id DESC",
    "SELECT c.a FROM c ORDER BY c.a",
    "SELECT VALUE c.id FROM c WHERE c.a = 3 ORDER BY c.b",
    "SELECT VALUE c.id FROM c WHERE c.a = 3 ORDER BY c.b DESC",
    "SELECT VALUE c.id FROM c WHERE c.b = 's1' ORDER BY c.a",
    "SELECT VALUE c.id FROM c WHERE c.b = 2 AND c.out > 1 ORDER BY c.a DESC",
    "SELECT VALUE c.a FROM c ORDER BY c.a DESC OFFSET 3 LIMIT 40",
    "SELECT VALUE 1 FROM c ORDER BY c.b",
];

const UNSORTED: &[&str] = &[
    "SELECT VALUE c.id FROM c WHERE c.a = 3",
    "SELECT VALUE c.id FROM c WHERE c.a = 3 AND c.b = 4",
    "SELECT VALUE c.id FROM c WHERE c.a IN (1, 's1', null, true)",
    "SELECT VALUE c.id FROM c WHERE c.a = 3 OR c.b = 's1'",
    "SELECT VALUE c.id FROM c WHERE c.a = 3 OR c.out = 1",
    "SELECT VALUE c.id FROM c WHERE c.a != 3",
    "SELECT VALUE c.id FROM c WHERE NOT IS_DEFINED(c.a)",
    "SELECT VALUE c.id FROM c WHERE STARTSWITH(c.a, 'long')",
    "SELECT VALUE c.id FROM c WHERE CONTAINS(c.a, 's')",
    "SELECT VALUE c.id FROM c WHERE IS_ARRAY(c.a) OR IS_OBJECT(c.b)",
    "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.t = 2)",
    "SELECT VALUE [c.id, t.u] FROM c JOIN t IN c.tags WHERE t.t = 2 AND t.u = 'u1'",
    "SELECT VALUE c.id FROM c WHERE c.id IN ('3', '9', '27', 'nobody')",
    "SELECT VALUE c.id FROM c WHERE c.pk = 'p1' AND c.a > 2",
    "SELECT VALUE c.id FROM c WHERE c.pk = 'p1' AND c.both > 2 OFFSET 1 LIMIT 4",
    "SELECT VALUE COUNT(1) FROM c",
    "SELECT VALUE COUNT(c.a) FROM c",
    "SELECT VALUE COUNT(1) FROM c WHERE c.a > 2",
    "SELECT VALUE COUNT(1) FROM c WHERE IS_OBJECT(c.a)",
    "SELECT VALUE COUNT(1) FROM c WHERE IS_ARRAY(c.a)",
    "SELECT VALUE COUNT(1) FROM c WHERE NOT IS_ARRAY(c.a)",
    "SELECT VALUE COUNT(1) FROM c WHERE NOT IS_OBJECT(c.a)",
    "SELECT VALUE COUNT(1) FROM c WHERE c.a >= 3 OR IS_OBJECT(c.a)",
    "SELECT VALUE COUNT(1) FROM c WHERE NOT IS_PRIMITIVE(c.a)",
    "SELECT VALUE COUNT(c.a) FROM c WHERE c.a != 3",
    "SELECT COUNT(1) AS n, MAX(c.a) AS m FROM c WHERE c.a >= 3 OR IS_OBJECT(c.a)",
    "SELECT VALUE MIN(c.a) FROM c WHERE c.a < 's'",
    "SELECT VALUE MAX(c.a) FROM c WHERE IS_NUMBER(c.a)",
    "SELECT MIN(c.a) AS low, MAX(c.a) AS high, COUNT(c.a) AS n, COUNT(1) AS m FROM c",
    "SELECT VALUE MIN(c.nowhere) FROM c",
    "SELECT VALUE SUM(c.a) FROM c WHERE IS_NUMBER(c.a)",
    "SELECT DISTINCT VALUE c.a FROM c",
    "SELECT DISTINCT TOP 4 VALUE c.a FROM c",
    "SELECT DISTINCT VALUE c.a FROM c WHERE c.a > 2",
    "SELECT c.a, COUNT(1) AS n FROM c GROUP BY c.a",
    "SELECT c.b, COUNT(1) AS n, MAX(c.b) AS m FROM c GROUP BY c.b OFFSET 2 LIMIT 5",
    "SELECT COUNT(1) AS n FROM c GROUP BY c.a",
    "SELECT c.a, MAX(c.b) AS m FROM c WHERE c.a >= 1 GROUP BY c.a",
    "SELECT VALUE COUNTIF(c.a = 3) FROM c",
];

fn page(fixture: &Fixture, text: &str, request: &PageRequest) -> Page {
    let answer = fixture.engine.query_items(&fixture.container, text, &Parameters::default(), request);
    answer.result.unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn values(page: &Page) -> Vec<Value> {
    let values = text::parse(&page.rows, Limits::default()).expect("pages are JSON");
    values.as_array().expect("pages are arrays").to_vec()
}

/// All pages, joined; `between` may change things.
fn joined(
    fixture: &mut Fixture,
    text: &str,
    mut next: PageRequest,
    between: &mut dyn FnMut(&mut Fixture, usize),
) -> Vec<Value> {
    let mut rows = Vec::new();
    for nth in 0.. {
        let page = page(fixture, text, &next);
        rows.extend(values(&page));
        match page.continuation {
            Some(token) => {
                assert!(token.len() <= next.continuation_bytes_max, "a token of {} bytes", token.len());
                next.continuation = Some(token);
            }
            None => break,
        }
        between(fixture, nth);
    }
    rows
}

fn without(scope: &Scope, size: i64) -> PageRequest {
    PageRequest { index_use: false, ..request(scope.clone(), size, None) }
}

fn with(scope: &Scope, size: i64) -> PageRequest {
    request(scope.clone(), size, None)
}

#[test]
fn indexes_change_nothing_but_the_work() {
    for (partitions, seed, keeps_missing) in [(1, 1, false), (5, 2, false), (1, 3, true), (5, 4, true)] {
        let mut fixture = filled(partitions, COMPOSITE, 120, seed);
        if keeps_missing {
            support::fixture::index_missing_values(&fixture, &["/a", "/b", "/both", "/nowhere"]);
        }
        let one = Scope { partition_key: Some(pk(r#"["p2"]"#)), ..Scope::default() };
        let part = Scope { partition_id: Some("0".to_owned()), ..Scope::default() };
        for scope in [Scope::default(), one, part] {
            for text in SORTED.iter().chain(UNSORTED) {
                let expected = joined(&mut fixture, text, without(&scope, -1), &mut |_, _| {});
                for size in [-1, 1, 7] {
                    let found = joined(&mut fixture, text, with(&scope, size), &mut |_, _| {});
                    assert_eq!(found, expected, "{text} in {scope:?} by {size}, seed {seed}");
                    let chosen = PageRequest { index_preferred: false, ..with(&scope, size) };
                    let found = joined(&mut fixture, text, chosen, &mut |_, _| {});
                    assert_eq!(found, expected, "{text} in {scope:?} by {size}, chosen, seed {seed}");
                }
                let found = joined(&mut fixture, text, without(&scope, 3), &mut |_, _| {});
                assert_eq!(found, expected, "{text} in {scope:?} without indexes, seed {seed}");
            }
        }
    }
}

/// Whatever finds the items: clients' tests compare the order of insertion within a logical partition.
#[test]
fn rows_without_an_order_come_by_rid() {
    let mut fixture = filled(1, COMPOSITE, 80, 3);
    for text in [
        "SELECT VALUE DocumentId(c) FROM c",
        "SELECT VALUE DocumentId(c) FROM c WHERE c.a >= 2",
        "SELECT VALUE DocumentId(c) FROM c WHERE c.a >= 2 OR c.b = 3",
        "SELECT VALUE DocumentId(c) FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.t = 2)",
    ] {
        for size in [-1, 3] {
            let rids = joined(&mut fixture, text, with(&Scope::default(), size), &mut |_, _| {});
            assert!(rids.len() > 3 && rids.is_sorted(), "{text}: {rids:?}");
        }
    }
}

/// Pages of one, every other one made without indexes: a token names a place, not an index.
#[test]
fn tokens_hold_with_and_without_indexes_and_over_restarts() {
    let mut fixture = filled(3, COMPOSITE, 60, 7);
    for text in SORTED.iter().chain(UNSORTED) {
        let expected = joined(&mut fixture, text, without(&Scope::default(), -1), &mut |_, _| {});
        let mut rows = Vec::new();
        let mut token = None;
        for nth in 0.. {
            let next =
                PageRequest { index_use: nth % 2 == 0, continuation: token, ..with(&Scope::default(), 1) };
            let page = page(&fixture, text, &next);
            rows.extend(values(&page));
            token = page.continuation;
            if token.is_none() {
                break;
            }
            if nth % 16 == 5 {
                fixture = Fixture::again(fixture.storage.clone(), fixture.clock.clone());
            }
        }
        assert_eq!(rows, expected, "{text}");
    }
}

/// The policy gives and takes indexes between the pages.
#[test]
fn tokens_hold_while_the_policy_changes() {
    let definition = |policy: &str| {
        let body = format!(r#"{{"id":"c","partitionKey":{HASH},"indexingPolicy":{policy}}}"#);
        text::parse(body.as_bytes(), Limits::default()).expect("JSON")
    };
    let policies = [
        r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[]}"#,
        r#"{"includedPaths":[{"path":"/a/?"}],"excludedPaths":[{"path":"/*"}]}"#,
        r#"{"includedPaths":[{"path":"/*"},{"path":"/a/?","order":"partition"}],"excludedPaths":[{"path":"/b/?"}]}"#,
    ];
    let mut fixture = filled(2, "", 40, 21);
    let mut changes = 0;
    for text in [
        "SELECT VALUE c.id FROM c ORDER BY c.a DESC",
        "SELECT VALUE c.id FROM c WHERE c.b >= 2 ORDER BY c.a",
        "SELECT VALUE c.id FROM c WHERE c.b >= 2",
        "SELECT VALUE c.id FROM c WHERE c.a = 3 OR c.b = 3",
        "SELECT c.a, COUNT(1) AS n FROM c GROUP BY c.a",
        "SELECT DISTINCT VALUE c.b FROM c",
    ] {
        let expected = joined(&mut fixture, text, without(&Scope::default(), -1), &mut |_, _| {});
        let found = joined(&mut fixture, text, with(&Scope::default(), 2), &mut |fixture, nth| {
            let body = definition(policies[nth % policies.len()]);
            // Refused while too many changes are under way.
            let replaced =
                fixture.engine.catalog().replace_container("db", "c", &body, &Precondition::default());
            changes += usize::from(replaced.is_ok());
            fixture.container = fixture.engine.catalog().container("db", "c").expect("there");
        });
        assert_eq!(found, expected, "{text}");
    }
    assert!(changes > 10);
}

/// Items that were sent are deleted, and others come: no other row is lost or comes twice.
#[test]
fn changes_between_pages_move_no_other_rows() {
    for text in SORTED.iter().filter(|text| text.contains("c.id FROM") && !text.contains("OFFSET")) {
        let mut fixture = filled(2, COMPOSITE, 50, 11);
        let expected = joined(&mut fixture, text, with(&Scope::default(), -1), &mut |_, _| {});
        let expected: Vec<String> = expected.iter().map(Value::to_json).collect();
        let mut random = Random(5);
        let mut rows: Vec<String> = Vec::new();
        let mut token = None;
        let mut new = 1000;
        loop {
            let next = PageRequest { continuation: token, ..with(&Scope::default(), 2) };
            let page = page(&fixture, text, &next);
            rows.extend(values(&page).iter().map(Value::to_json));
            token = page.continuation;
            if token.is_none() {
                break;
            }
            // The last one sent goes: the place must not hang on it.
            if let Some(last) = rows.last().filter(|_| random.below(2) == 0) {
                let id = last.trim_matches('"');
                if let Ok(number) = id.parse::<u64>() {
                    drop(fixture.delete(id, &format!("[\"p{}\"]", number % 5)));
                }
            }
            new += 1;
            fixture.create(&item(&mut random, new)).expect("created");
        }
        let old: Vec<String> = rows
            .into_iter()
            .filter(|row| row.trim_matches('"').parse::<u64>().is_ok_and(|id| id < 1000))
            .collect();
        if text.contains("TOP") {
            continue; // new ones may have taken the room of old ones
        }
        assert_eq!(old, expected, "{text}");
    }
}

/// A filter on a computed property reads the index of that, and not the one of another property under its name.
#[test]
fn computed_properties_are_found_by_their_index() {
    let members = r#""computedProperties":[{"name":"low","query":"SELECT VALUE LOWER(c.name) FROM c"},
        {"name":"twice","query":"SELECT VALUE c.n * 2 FROM c"},{"name":"other","query":"SELECT VALUE c.low FROM c"}],
        "indexingPolicy":{"includedPaths":[{"path":"/*"},{"path":"/low/?"},{"path":"/twice/?"}]}"#;
    let fixture = Fixture::with_key(HASH, members, 2);
    for n in 0..500 {
        let name = if n % 100 == 7 { "Name Seven".to_owned() } else { format!("NAME {n}") };
        let body = format!(r#"{{"id":"{n}","pk":"p{}","n":{n},"name":"{name}","low":"name 3"}}"#, n % 20);
        fixture.create(&body).expect("created");
    }
    let found = |text: &str| {
        let chosen = PageRequest { explain: true, ..PageRequest::default() };
        let page = page(&fixture, text, &chosen);
        (page.count, page.metrics.loaded_count, page.explain.unwrap_or_default())
    };
    for (text, count, loaded_max) in [
        ("SELECT * FROM c WHERE c.low = 'name seven'", 5, 5),
        ("SELECT * FROM c WHERE c.low = 'name 3'", 1, 1),
        ("SELECT * FROM c WHERE c.low IN ('name 3', 'name 4')", 2, 2),
        ("SELECT * FROM c WHERE c.low > 'name 98' AND c.low <= 'name 99'", 1, 6),
        ("SELECT * FROM c WHERE c.low = 'name seven' AND c.n < 100", 1, 5),
        ("SELECT * FROM c WHERE c.pk = 'p3' AND c.low = 'name 3'", 1, 1),
        // Whether that fails is known only when it is evaluated.
        ("SELECT * FROM c WHERE c.twice = 8", 1, 500),
        // What is stored under the name of a computed property has no index.
        ("SELECT * FROM c WHERE c.other = 'name 3'", 500, 500),
    ] {
        let (rows, loaded, explain) = found(text);
        assert_eq!(rows, count, "{text}\n{explain}");
        assert!(loaded <= loaded_max, "{text}: {loaded} items\n{explain}");
    }
    let (_, _, explain) = found("SELECT * FROM c WHERE c.low = 'name seven'");
    assert!(explain.contains("/low"), "{explain}");
}

#[test]
fn an_index_reads_what_it_finds() {
    let fixture = Fixture::with_key(HASH, "", 2);
    for n in 0..2000 {
        let body = format!(
            r#"{{"id":"{n}","pk":"p{}","n":{n},"few":{},"half":{},"tags":["t{}"]}}"#,
            n % 20,
            n % 500,
            n % 2 == 0,
            n % 400
        );
        fixture.create(&body).expect("created");
    }
    let metrics = |text: &str| {
        let chosen = PageRequest { explain: true, ..PageRequest::default() };
        let page = page(&fixture, text, &chosen);
        (page.metrics.loaded_count, page.metrics.index_rows, page.count, page.explain.unwrap_or_default())
    };
    let check = |text: &str, items_max: u64, rows_max: u64, count: usize, plan: &str| {
        let (items, rows, found, explain) = metrics(text);
        assert!(items <= items_max && rows <= rows_max, "{text}: {items} items, {rows} rows\n{explain}");
        assert_eq!(found, count, "{text}\n{explain}");
        assert!(explain.contains(plan), "{text}: {plan:?} is not in\n{explain}");
    };
    check("SELECT * FROM c WHERE c.few = 7", 4, 8, 4, "Seek /few = 7");
    check("SELECT * FROM c WHERE c.n >= 100 AND c.n < 105", 5, 10, 5, "Range /n");
    check("SELECT * FROM c WHERE c.few = 7 AND c.half = true", 4, 200, 0, "Seek /few = 7");
    check("SELECT TOP 5 * FROM c WHERE c.n > 1000 ORDER BY c.n", 6, 20, 5, "Walk range index /n ASC forward");
    check("SELECT TOP 5 VALUE c.n FROM c ORDER BY c.n", 0, 20, 5, "index only");
    check("SELECT TOP 5 * FROM c ORDER BY c.n DESC", 6, 20, 5, "Walk range index /n DESC backward");
    check("SELECT * FROM c WHERE ARRAY_CONTAINS(c.tags, 't3')", 5, 10, 5, "/tags/[] = \"t3\"");
    check("SELECT VALUE c.id FROM c JOIN t IN c.tags WHERE t = 't3'", 5, 20, 5, "/tags/[] = \"t3\"");
    check("SELECT * FROM c WHERE c.id = '77'", 1, 4, 1, "Seek /id");
    check("SELECT VALUE COUNT(1) FROM c", 0, 0, 1, "kept with every write");
    check("SELECT VALUE MAX(c.n) FROM c", 0, 4, 1, "Ends of index /n");
    check("SELECT VALUE COUNT(1) FROM c WHERE c.n < 50", 0, 60, 1, "index only");
    check(
        "SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'p3'",
        0,
        110,
        1,
        "Rows of index /pk = \"p3\", index only",
    );
    let one_key = Scope { partition_key: Some(pk(r#"["p3"]"#)), ..Scope::default() };
    let counted = PageRequest { explain: true, ..with(&one_key, -1) };
    let counted = page(&fixture, "SELECT VALUE COUNT(1) FROM c", &counted);
    assert_eq!(values(&counted), [Value::from(100)]);
    assert_eq!(counted.metrics.loaded_count, 0, "{:?}", counted.explain);
    check("SELECT c.half, COUNT(1) AS n FROM c GROUP BY c.half", 0, 2100, 2, "index only");
    check("SELECT * FROM c WHERE c.half = true", 2000, 2000, 1000, "Scan of all items");
    check("SELECT TOP 3 * FROM c WHERE c.few = 7 ORDER BY c.n", 8, 200, 3, "Sort");
}

#[test]
fn regions_and_words_are_found_by_their_indexes() {
    let members = r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],
            "spatialIndexes":[{"path":"/at/*","types":["Point","Polygon"]}],"fullTextIndexes":[{"path":"/text"}]},
        "fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/text","language":"en-US"}]}"#;
    let mut fixture = Fixture::with_key(HASH, members, 2);
    let words = ["red", "green", "running", "runner", "the", "boats", "boat", "bicycle"];
    let mut random = Random(3);
    for id in 0..200 {
        let text: Vec<&str> = (0..random.below(6)).map(|_| words[random.below(8) as usize]).collect();
        let (x, y) = (random.below(3600) as f64 / 10.0 - 180.0, random.below(1700) as f64 / 10.0 - 85.0);
        let at = match random.below(10) {
            0 => "5".to_owned(),
            1 => format!(
                r#"{{"type":"Polygon","coordinates":[[[{x},0],[{},0],[{x},10],[{x},0]]]}}"#,
                x / 2.0 + 1.0
            ),
            _ => format!(r#"{{"type":"Point","coordinates":[{x},{y}]}}"#),
        };
        let body = format!(r#"{{"id":"{id}","pk":"p{}","text":"{}","at":{at}}}"#, id % 7, text.join(" "));
        fixture.create(&body).unwrap_or_else(|error| panic!("{body}: {error}"));
    }
    let region = r#"{"type":"Polygon","coordinates":[[[-20,-30],[60,-30],[60,40],[-20,40],[-20,-30]]]}"#;
    let texts = [
        format!("SELECT VALUE c.id FROM c WHERE ST_WITHIN(c.at, {region})"),
        format!("SELECT VALUE c.id FROM c WHERE ST_INTERSECTS(c.at, {region})"),
        r#"SELECT VALUE c.id FROM c WHERE ST_DISTANCE(c.at, {"type":"Point","coordinates":[10,20]}) < 3000000"#.to_owned(),
        r#"SELECT VALUE c.id FROM c WHERE ST_DISTANCE(c.at, {"type":"Point","coordinates":[10,2000]}) < 3000000"#.to_owned(),
        "SELECT VALUE c.id FROM c WHERE FullTextContains(c.text, 'runs')".to_owned(),
        "SELECT VALUE c.id FROM c WHERE FullTextContains(c.text, 'green boat')".to_owned(),
        "SELECT VALUE c.id FROM c WHERE FullTextContainsAll(c.text, 'red', 'boat')".to_owned(),
        "SELECT VALUE c.id FROM c WHERE FullTextContainsAny(c.text, 'red', 'bicycles') AND c.pk = 'p2'".to_owned(),
        "SELECT VALUE c.id FROM c WHERE FullTextContains(c.text, 'red') OR ST_ISVALID(c.at) = false".to_owned(),
        "SELECT VALUE c.id FROM c WHERE FullTextContainsAny(c.text, 'the', 'red')".to_owned(),
        "SELECT VALUE c.id FROM c WHERE FullTextContains(c.text, 'the')".to_owned(),
    ];
    for (nth, text) in texts.iter().enumerate() {
        let expected = joined(&mut fixture, text, without(&Scope::default(), -1), &mut |_, _| {});
        let found = joined(&mut fixture, text, with(&Scope::default(), 3), &mut |_, _| {});
        assert_eq!(found, expected, "{text}");
        let explained = PageRequest { explain: true, ..with(&Scope::default(), -1) };
        let page = page(&fixture, text, &explained);
        let uses_index = page.metrics.loaded_count < 150;
        assert!(uses_index || nth >= 8, "{text}\n{}", page.explain.unwrap_or_default());
        assert!(nth == 3 || nth == 10 || !expected.is_empty(), "{text}");
    }
}

#[test]
fn an_order_that_the_policy_cannot_serve_is_refused() {
    let fixture = filled(1, COMPOSITE, 5, 3);
    let refused = |text: &str| {
        let answer = fixture.page(Some(text), &with(&Scope::default(), -1));
        assert!(matches!(answer, Err(EngineError::Sql(_))), "{text}");
    };
    refused("SELECT * FROM c ORDER BY c.out");
    refused("SELECT * FROM c ORDER BY c.a, c.b");
    refused("SELECT * FROM c ORDER BY c.a, c.both");
}

#[test]
fn a_cancelled_query_ends() {
    let fixture = filled(1, COMPOSITE, 1_500, 3);
    for text in ["SELECT * FROM c", "SELECT * FROM c ORDER BY c.a", "SELECT DISTINCT c.a, c.b FROM c"] {
        ends_at_every_check(text, 4, |cancel| {
            let request = PageRequest { cancel, ..with(&Scope::default(), -1) };
            fixture.page(Some(text), &request)
        });
    }
}

/// What expired is in no answer, whatever an index still has of it.
#[test]
fn expired_items_are_in_no_index_answer() {
    let fixture = Fixture::with_key(HASH, r#""defaultTtl":-1"#, 2);
    for n in 0..20 {
        let ttl = if n % 2 == 0 { r#","ttl":5"# } else { "" };
        fixture.create(&format!(r#"{{"id":"{n}","pk":"{n}","n":{n}{ttl}}}"#)).expect("created");
    }
    fixture.clock.advance(10);
    for (text, expected) in [
        ("SELECT VALUE COUNT(1) FROM c", "[10]"),
        ("SELECT VALUE MIN(c.n) FROM c", "[1]"),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.n >= 10", "[5]"),
        ("SELECT VALUE c.n FROM c WHERE c.n > 15 ORDER BY c.n DESC", "[19,17]"),
    ] {
        let page = page(&fixture, text, &with(&Scope::default(), -1));
        assert_eq!(String::from_utf8_lossy(&page.rows), expected, "{text}");
    }
}
