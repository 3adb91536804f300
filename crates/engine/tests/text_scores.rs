//! Scores of texts from a full-text index: the same rows as if every item was read, byte for byte, and found without
//! doing so.

mod support;

use quire_engine::{Page, PageRequest, Scope};
use quire_value::Value;
use support::fixture::{Fixture, Random, json, pk, request};

const HASH: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
const TEXTS: &str = r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/text/?"}],
        "fullTextIndexes":[{"path":"/text"},{"path":"/title"}]},
    "fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/text","language":"en-US"},
        {"path":"/title","language":"de-DE"}]}"#;

const WORDS: [&str; 12] =
    ["red", "green", "running", "runs", "the", "boats", "boat", "bicycle", "being", "beings", "blue", "who"];

/// Texts of few words, so that terms are shared, repeated and missing.
fn item(random: &mut Random, id: u64, with_ttl: bool) -> String {
    let mut members = vec![format!(r#""id":"{id}","pk":"p{}","n":{}"#, id % 9, random.below(6))];
    for (name, words_max) in [("text", 7), ("title", 3)] {
        let text: Vec<&str> =
            (0..random.below(words_max)).map(|_| WORDS[random.below(WORDS.len() as u64) as usize]).collect();
        match random.below(9) {
            0 => {}
            1 => members.push(format!(r#""{name}":7"#)),
            _ => members.push(format!(r#""{name}":"{}""#, text.join(" "))),
        }
    }
    match random.below(5) {
        0 => {}
        _ => members.push(format!(r#""v":[{},{}]"#, random.below(4), 1 + random.below(4))),
    }
    if with_ttl {
        match random.below(4) {
            0 => members.push(r#""ttl":5"#.to_owned()),
            1 => members.push(r#""ttl":-1"#.to_owned()),
            _ => {}
        }
    }
    format!("{{{}}}", members.join(","))
}

/// Written, replaced and deleted at random; some items have expired and are still there.
fn filled(seed: u64, partitions: u32, ttl: Option<i64>) -> Fixture {
    let members = match ttl {
        Some(seconds) => format!(r#"{TEXTS},"defaultTtl":{seconds}"#),
        None => TEXTS.to_owned(),
    };
    let fixture = Fixture::with_key(HASH, &members, partitions);
    let mut random = Random(seed);
    for turn in 0..160 {
        let id = random.below(90);
        match random.below(5) {
            0 => drop(fixture.delete(&id.to_string(), &format!(r#"["p{}"]"#, id % 9))),
            _ => drop(fixture.upsert(&item(&mut random, id, ttl.is_some())).expect("written")),
        }
        if turn % 40 == 0 {
            fixture.clock.advance(3);
        }
    }
    fixture.clock.advance(3);
    fixture
}

/// Whether an index alone gives the rows of each.
const QUERIES: &[(&str, bool)] = &[
    ("SELECT TOP 5 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'red')", true),
    ("SELECT TOP 5 * FROM c ORDER BY RANK FullTextScore(c.text, 'run', 'boat', 'red')", true),
    ("SELECT TOP 5 c.id, c.n FROM c ORDER BY RANK FullTextScore(c.text, ['red', 'blue'])", true),
    ("SELECT TOP 4 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'green boat')", true),
    ("SELECT TOP 4 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'boat the boat', 'blue')", true),
    ("SELECT TOP 4 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'beings')", true),
    ("SELECT TOP 70 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'bicycle')", true),
    ("SELECT TOP 3 VALUE c.id FROM c WHERE c.n > 3 ORDER BY RANK FullTextScore(c.text, 'red')", true),
    ("SELECT TOP 3 VALUE c.v FROM c WHERE c.n > 3 ORDER BY RANK FullTextScore(c.text, 'red')", true),
    ("SELECT TOP 9 VALUE c.id FROM c WHERE c.pk = 'p3' ORDER BY RANK FullTextScore(c.text, 'red')", true),
    (
        "SELECT VALUE c.id FROM c WHERE FullTextContains(c.text, 'red') ORDER BY RANK FullTextScore(c.text, 'red') \
         OFFSET 2 LIMIT 5",
        true,
    ),
    ("SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.title, 'runs') OFFSET 2 LIMIT 4", true),
    ("SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'red')", true),
    ("SELECT TOP 5 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'the')", true),
    ("SELECT TOP 5 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'nowhere')", true),
    ("SELECT DISTINCT TOP 3 VALUE c.n FROM c ORDER BY RANK FullTextScore(c.text, 'red')", false),
    (
        r#"SELECT TOP 5 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, {"term": "boot", "distance": 1}, 'red')"#,
        false,
    ),
    (
        "SELECT TOP 3 VALUE c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'red'), FullTextScore(c.title, 'boat'))",
        true,
    ),
    (
        "SELECT TOP 30 VALUE c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'red'), FullTextScore(c.title, 'boat'))",
        false,
    ),
    (
        "SELECT TOP 3 VALUE c.id FROM c WHERE c.n < 4 ORDER BY RANK \
         RRF(FullTextScore(c.text, 'bicycle'), FullTextScore(c.title, 'blue', 'green'), [1, 7])",
        true,
    ),
    (
        "SELECT TOP 3 VALUE c.id FROM c ORDER BY RANK \
         RRF(FullTextScore(c.text, 'bicycle'), FullTextScore(c.title, 'blue'), [0, 2.5])",
        true,
    ),
    (
        "SELECT TOP 6 VALUE c.id FROM c ORDER BY RANK \
         RRF(FullTextScore(c.text, 'red'), FullTextScore(c.text, 'blue'), [1, -1])",
        false,
    ),
    (
        "SELECT TOP 6 VALUE c.id FROM c WHERE c.n > 1 ORDER BY RANK \
         RRF(FullTextScore(c.text, 'red'), VectorDistance(c.v, [1, 2]))",
        false,
    ),
    (
        "SELECT TOP 6 VALUE c.id FROM c ORDER BY RANK \
         RRF(FullTextScore(c.text, 'red', 'blue'), VectorDistance(c.v, [1, 2]), [3, 1])",
        false,
    ),
    // As plans have them.
    (
        r#"SELECT COUNT(1) AS documentCount, [{"totalWordCount": SUM(_FullTextWordCount(c.text)), "hitCounts":
            [COUNTIF(FullTextContains(c.text, "red")), COUNTIF(FullTextContains(c.text, "green boat"))]},
            {"totalWordCount": SUM(_FullTextWordCount(c.title)), "hitCounts": [COUNTIF(FullTextContains(c.title, "the")),
            COUNTIF(FullTextContains(c.title, "nowhere"))]}] AS fullTextStatistics FROM c"#,
        true,
    ),
    (
        r#"SELECT TOP 7 c._rid, [{"item": _FullTextScore(c.text, ["red", "blue"], 80, 300, [30, 20]) ?? -1}] AS
            orderByItems, {"payload": c.id} AS payload FROM c WHERE (true) ORDER BY
            _FullTextScore(c.text, ["red", "blue"], 80, 300, [30, 20]) DESC"#,
        true,
    ),
    (
        r#"SELECT c._rid, [{"item": _FullTextScore(c.text, ["red"], 80, 300, [30]) ?? -1}] AS orderByItems FROM c
            WHERE c.n > 2 ORDER BY _FullTextScore(c.text, ["red"], 80, 300, [30]) DESC OFFSET 1 LIMIT 40"#,
        true,
    ),
];

fn pages(fixture: &Fixture, text: &str, first: &dyn Fn() -> PageRequest) -> String {
    let (mut rows, mut next) = (String::new(), first());
    for _ in 0..1_000 {
        let page = fixture.page(Some(text), &next).unwrap_or_else(|error| panic!("{text}: {error}"));
        rows.push_str(&String::from_utf8(page.rows).expect("JSON"));
        match page.continuation {
            Some(token) => next = PageRequest { continuation: Some(token), ..first() },
            None => return rows,
        }
    }
    panic!("{text} does not end");
}

/// Rows of pages of any size, joined.
fn unpaged(rows: &str) -> String {
    rows.replace("][", ",").replace("[,", "[").replace(",]", "]")
}

#[test]
fn ranks_from_the_index_are_those_of_a_scan() {
    let (mut used, mut compared) = (vec![0; QUERIES.len()], 0);
    for seed in 0..8 {
        let partitions = [1, 3, 5][seed as usize % 3];
        let ttl = [None, Some(-1), Some(6), None][seed as usize % 4];
        let fixture = filled(seed, partitions, ttl);
        let mut scopes =
            vec![Scope::default(), Scope { partition_key: Some(pk(r#"["p3"]"#)), ..Scope::default() }];
        let partitions = fixture.container.partitions().into_iter();
        scopes.extend(
            partitions.map(|partition| Scope { partition_id: Some(partition.id), ..Scope::default() }),
        );
        for (nth, (text, _)) in QUERIES.iter().enumerate() {
            for scope in &scopes {
                let with = |page_size: i64, index_use: bool, index_preferred: bool| {
                    move || PageRequest {
                        index_use,
                        index_preferred,
                        ..request(scope.clone(), page_size, None)
                    }
                };
                let expected = pages(&fixture, text, &with(-1, false, false));
                for (page_size, is_preferred) in [(-1, true), (-1, false), (5, nth % 2 == 0)] {
                    let found = pages(&fixture, text, &with(page_size, true, is_preferred));
                    let found = if page_size < 0 { found } else { unpaged(&found) };
                    assert_eq!(found, expected, "seed {seed}, {scope:?}, pages of {page_size}: {text}");
                    compared += 1;
                }
                let explained = PageRequest { explain: true, ..with(-1, true, true)() };
                let page = fixture.page(Some(text), &explained).expect(text);
                used[nth] += u32::from(page.explain.expect("a plan").contains("full-text index"));
            }
        }
    }
    assert!(compared > 2_000, "{compared}");
    for ((text, can_use), used) in QUERIES.iter().zip(used) {
        assert!(used > 0 || !can_use, "no index was ever used for {text}");
    }
}

fn explained(fixture: &Fixture, text: &str, index_use: bool) -> Page {
    let request = PageRequest { explain: true, index_metrics: true, index_use, ..PageRequest::default() };
    fixture.page(Some(text), &request).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// 20,000 items, of which 50 have the word.
#[test]
fn what_has_no_term_is_not_read() {
    let fixture = Fixture::with_key(HASH, TEXTS, 2);
    for id in 0..20_000 {
        let rare = if id % 400 == 7 { "zebra" } else { "horse" };
        let text = format!("{rare} number{} grass {}", id % 50, ["meadow", "stable"][id % 2]);
        let body = format!(r#"{{"id":"{id}","pk":"{}","text":"{text}","n":{}}}"#, id % 97, id % 10);
        fixture.create(&body).expect("created");
    }
    let check = |text: &str, items_max: u64, index_rows_max: u64| {
        let page = explained(&fixture, text, true);
        let scanned = explained(&fixture, text, false);
        let explain = page.explain.unwrap_or_default();
        assert_eq!(page.rows, scanned.rows, "{text}");
        assert!(explain.contains("full-text index"), "{text}\n{explain}");
        let (items, rows) = (page.metrics.loaded_count, page.metrics.index_rows);
        assert!(
            items <= items_max && rows <= index_rows_max,
            "{text}: {items} items, {rows} rows\n{explain}"
        );
        assert!(scanned.metrics.loaded_count >= 20_000, "{text}");
    };
    let rank = "ORDER BY RANK FullTextScore(c.text, 'zebras')";
    check(&format!("SELECT TOP 10 VALUE c.id FROM c {rank}"), 10, 150);
    check(&format!("SELECT TOP 50 c.id FROM c {rank}"), 50, 150);
    // What follows has a score of 0, in the order of the items.
    check(&format!("SELECT TOP 60 VALUE c.id FROM c {rank}"), 60, 300);
    check(&format!("SELECT VALUE c.id FROM c {rank} OFFSET 20 LIMIT 10"), 30, 150);
    check(&format!("SELECT TOP 10 VALUE c.id FROM c WHERE c.n = 7 {rank}"), 20, 150);
    check(
        "SELECT TOP 10 VALUE c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'zebra'), FullTextScore(c.text, 'zebra number7'))",
        200,
        1_200,
    );
    // A common word is scored by its index rows: the items that are not among the first are not read.
    check(
        "SELECT TOP 10 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'meadow', 'zebra')",
        10,
        31_000,
    );
    check(
        r#"SELECT COUNT(1) AS documentCount, [{"totalWordCount": SUM(_FullTextWordCount(c.text)),
            "hitCounts": [COUNTIF(FullTextContains(c.text, "zebra"))]}] AS fullTextStatistics FROM c"#,
        0,
        60,
    );
    check(
        r#"SELECT TOP 120 c._rid, [{"item": _FullTextScore(c.text, ["zebra"], 20000, 80000, [50]) ?? -1}] AS orderByItems,
            {"payload": c.id} AS payload FROM c WHERE (true) ORDER BY _FullTextScore(c.text, ["zebra"], 20000, 80000, [50]) DESC"#,
        120,
        400,
    );
    let tenant = Scope { partition_key: Some(pk(r#"["7"]"#)), ..Scope::default() };
    let in_tenant = |index_use| {
        let request =
            PageRequest { index_use, explain: true, scope: tenant.clone(), ..PageRequest::default() };
        fixture
            .page(Some("SELECT TOP 5 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'number7')"), &request)
    };
    let (found, scanned) = (in_tenant(true).expect("a page"), in_tenant(false).expect("a page"));
    assert_eq!(found.rows, scanned.rows);
    assert!(found.metrics.loaded_count <= 5 && scanned.metrics.loaded_count > 200, "{:?}", found.explain);
    assert!(found.metrics.index_rows < 600, "{:?}", found.explain);
    let statistics = explained(
        &fixture,
        r#"SELECT VALUE [COUNT(1), SUM(_FullTextWordCount(c.text)), COUNTIF(FullTextContains(c.text, "zebra"))] FROM c"#,
        true,
    );
    assert_eq!(json(std::str::from_utf8(&statistics.rows).expect("JSON")), json("[[20000,80000,50]]"));
    assert_eq!(statistics.metrics.loaded_count, 0);
    let metrics = explained(&fixture, &format!("SELECT TOP 1 VALUE c.id FROM c {rank}"), true).index_metrics;
    let metrics = metrics.expect("asked for").to_json_v2();
    let utilized = metrics.get("UtilizedIndexes").and_then(|indexes| indexes.get("SingleIndexes"));
    assert_eq!(utilized.map(Value::to_json).as_deref(), Some(r#"[{"IndexSpec":"/text"}]"#));
}
