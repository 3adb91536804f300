//! Session tokens: an answer names exactly one range, and a token that is ahead of the server matters to reads only.

use crate::client::{Answer, Client};

const DOCS: &str = "/dbs/d/colls/c/docs";
const COLL: &str = "/dbs/d/colls/c";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");
const UPSERT: (&str, &str) = ("x-ms-documentdb-is-upsert", "True");
const BATCH: (&str, &str) = ("x-ms-cosmos-is-batch-request", "True");
const ATOMIC: (&str, &str) = ("x-ms-cosmos-batch-atomic", "True");
const QUERY: (&str, &str) = ("x-ms-documentdb-isquery", "True");
const CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
const ITEM: &str = r#"{"id":"a","pk":"p","n":1}"#;
const TRIGGER: &str = r#"{"id":"s","body":"() => 1","triggerType":"Pre","triggerOperation":"All"}"#;
const SCRIPT: &str = r#"{"id":"s","body":"() => 1"}"#;
const PATCH: &str = r#"[{"op":"set","path":"/n","value":2}]"#;
const CREATES: &str = r#"[{"operationType":"Create","resourceBody":{"id":"b","pk":"p"}}]"#;

/// The range of the one token that an answer has.
fn range_of(answer: &Answer, what: &str) -> String {
    let token = answer.header("x-ms-session-token").unwrap_or_else(|| panic!("{what}: no token"));
    let (range, rest) = token.split_once(':').unwrap_or_else(|| panic!("{what}: {token}"));
    let lsn = rest.strip_prefix("-1#").unwrap_or_else(|| panic!("{what}: {token}"));
    assert!(lsn.parse::<u64>().is_ok(), "{what}: {token}");
    range.to_owned()
}

#[test]
fn containers_and_scripts_name_range_zero() {
    for partitions in [1, 5] {
        let client = Client::start(partitions);
        client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
        let check = |status: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
            let answer = client.must(status, method, path, headers, body);
            let what = format!("{method} {path} with {partitions} partitions");
            assert_eq!(range_of(&answer, &what), "0", "{what}");
        };
        check(201, "POST", "/dbs/d/colls", &[], CONTAINER);
        check(200, "PUT", COLL, &[], CONTAINER);
        check(200, "GET", COLL, &[], "");
        for (kind, body) in [("sprocs", SCRIPT), ("udfs", SCRIPT), ("triggers", TRIGGER)] {
            let (all, one) = (format!("{COLL}/{kind}"), format!("{COLL}/{kind}/s"));
            check(201, "POST", &all, &[], body);
            check(409, "POST", &all, &[], body);
            check(200, "POST", &all, &[UPSERT], body);
            check(200, "PUT", &one, &[], body);
            check(200, "GET", &one, &[], "");
            check(200, "GET", &all, &[], "");
            check(204, "DELETE", &one, &[], "");
            check(404, "DELETE", &one, &[], "");
            check(201, "POST", &all, &[UPSERT], body);
        }
    }
}

/// Whatever is done to an item of a key names the range of that key.
#[test]
fn operations_on_items_name_the_range_of_their_key() {
    let client = Client::with_container(5);
    client.must(201, "POST", &format!("{COLL}/sprocs"), &[], SCRIPT);
    let mut seen = Vec::new();
    for key in ["p", "q", "r", "s", "t", "u", "v", "w"] {
        let header = format!("[\"{key}\"]");
        let own = ("x-ms-documentdb-partitionkey", header.as_str());
        let item = ITEM.replace("\"p\"", &format!("\"{key}\""));
        let one = format!("{DOCS}/a");
        let range = range_of(&client.must(201, "POST", DOCS, &[own], &item), "create");
        let bulk = format!(
            r#"[{{"operationType":"Read","id":"a","partitionKey":"[\"{key}\"]"}},{{"operationType":"Read","id":"no","partitionKey":"[\"{key}\"]"}}]"#
        );
        let in_range = ("x-ms-documentdb-partitionkeyrangeid", range.as_str());
        let count = r#"{"query":"SELECT VALUE COUNT(1) FROM c"}"#;
        for (status, method, path, headers, body) in [
            (409, "POST", DOCS, vec![own], item.as_str()),
            (200, "POST", DOCS, vec![own, UPSERT], &item),
            (200, "PUT", &one, vec![own], &item),
            (412, "PUT", &one, vec![own, ("if-match", "\"x\"")], &item),
            (200, "PATCH", &one, vec![own], PATCH),
            (200, "GET", &one, vec![own], ""),
            (404, "GET", &format!("{DOCS}/no"), vec![own], ""),
            (200, "POST", DOCS, vec![own, BATCH, ATOMIC], r#"[{"operationType":"Read","id":"a"}]"#),
            (207, "POST", DOCS, vec![own, BATCH, ATOMIC], r#"[{"operationType":"Read","id":"no"}]"#),
            (
                207,
                "POST",
                DOCS,
                vec![
                    in_range,
                    BATCH,
                    ("x-ms-cosmos-batch-atomic", "False"),
                    ("x-ms-cosmos-batch-continue-on-error", "True"),
                ],
                &bulk,
            ),
            (200, "POST", &format!("{COLL}/sprocs/s"), vec![own], "[]"),
            (200, "POST", DOCS, vec![own, QUERY], count),
            (200, "POST", DOCS, vec![in_range, QUERY], count),
            (200, "GET", DOCS, vec![own], ""),
            (200, "GET", DOCS, vec![own, ("a-im", "Incremental feed")], ""),
            (200, "GET", DOCS, vec![in_range, ("a-im", "Incremental feed")], ""),
            (204, "DELETE", &one, vec![own], ""),
        ] {
            let answer = client.must(status, method, path, &headers, body);
            assert_eq!(range_of(&answer, path), range, "{method} {path} {headers:?}");
        }
        seen.push(range);
    }
    seen.sort();
    seen.dedup();
    assert!(seen.len() > 1, "all keys are in range {seen:?}");
}

/// Page by page, over all ranges and without a range of its own.
#[test]
fn a_page_over_all_ranges_names_the_range_of_its_rows() {
    let client = Client::with_container(5);
    let mut ranges = std::collections::BTreeMap::new();
    for key in ["p", "q", "r", "s", "t", "u", "v", "w"] {
        let header = format!("[\"{key}\"]");
        let own = ("x-ms-documentdb-partitionkey", header.as_str());
        let item = format!(r#"{{"id":"{key}","pk":"{key}"}}"#);
        let made = client.must(201, "POST", DOCS, &[own], &item);
        ranges.insert(key, range_of(&made, "create"));
    }
    let cross = ("x-ms-documentdb-query-enablecrosspartition", "True");
    let (mut token, mut seen) = (None::<String>, Vec::new());
    loop {
        let mut headers = vec![QUERY, cross, ("x-ms-max-item-count", "1")];
        headers.extend(token.as_deref().map(|token| ("x-ms-continuation", token)));
        let page = client.must(200, "POST", DOCS, &headers, r#"{"query":"SELECT VALUE c.pk FROM c"}"#);
        let served = range_of(&page, "query");
        let rows = page.body.split("\"Documents\":[").nth(1).and_then(|rest| rest.split(']').next());
        for key in rows.expect("rows").split(',').filter(|row| !row.is_empty()) {
            let key = key.trim_matches('"');
            assert_eq!(ranges[key], served, "{key}");
            seen.push(key.to_owned());
        }
        token = page.header("x-ms-continuation").map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    seen.sort();
    assert_eq!(seen, ["p", "q", "r", "s", "t", "u", "v", "w"]);
    // Rows of all ranges at once: one range all the same.
    let whole = r#"{"query":"SELECT VALUE r FROM (SELECT DISTINCT VALUE c.pk FROM c) AS r"}"#;
    range_of(&client.must(200, "POST", DOCS, &[QUERY, cross], whole), "whole");
}

/// After a restore, clients hold tokens from the future.
#[test]
fn no_write_checks_the_session() {
    for partitions in [1, 5] {
        let client = Client::with_container(partitions);
        let ahead = "0:-1#1000,1:-1#1000,2:-1#1000,3:-1#1000,4:-1#1000";
        let ahead = ("x-ms-session-token", ahead);
        let one = format!("{DOCS}/a");
        let bulk =
            r#"[{"operationType":"Upsert","partitionKey":"[\"p\"]","resourceBody":{"id":"a","pk":"p"}}]"#;
        let made = client.must(201, "POST", DOCS, &[KEY, ahead], ITEM);
        let range = made.header("x-ms-documentdb-partitionkeyrangeid").expect("a range").to_owned();
        let in_range = ("x-ms-documentdb-partitionkeyrangeid", range.as_str());
        for (status, method, path, headers, body) in [
            (200, "POST", DOCS, vec![KEY, ahead, UPSERT], ITEM),
            (200, "PUT", &one, vec![KEY, ahead], ITEM),
            (200, "PATCH", &one, vec![KEY, ahead], PATCH),
            (200, "POST", DOCS, vec![KEY, ahead, BATCH, ATOMIC], CREATES),
            (200, "POST", DOCS, vec![in_range, ahead, BATCH, ("x-ms-cosmos-batch-atomic", "False")], bulk),
            (204, "DELETE", &one, vec![KEY, ahead], ""),
            (201, "POST", &format!("{COLL}/sprocs"), vec![ahead], SCRIPT),
            (200, "PUT", &format!("{COLL}/sprocs/s"), vec![ahead], SCRIPT),
            (200, "POST", &format!("{COLL}/sprocs/s"), vec![KEY, ahead], "[]"),
            (200, "POST", &format!("{COLL}/sprocs/__.sys.commonBulkInsert"), vec![KEY, ahead], "[[]]"),
            (200, "POST", &format!("{COLL}/sprocs/__.sys.commonBulkInsert"), vec![in_range, ahead], "[[]]"),
            (204, "DELETE", &format!("{COLL}/sprocs/s"), vec![ahead], ""),
            (200, "PUT", COLL, vec![ahead], CONTAINER),
            (200, "POST", &format!("{COLL}/operations/partitionkeydelete"), vec![KEY, ahead], ""),
        ] {
            client.must(status, method, path, &headers, body);
        }
        let count = r#"{"query":"SELECT VALUE COUNT(1) FROM c"}"#;
        let reads = r#"[{"operationType":"Create","resourceBody":{"id":"z","pk":"p"}},{"operationType":"Read","id":"z"}]"#;
        for (method, path, headers, body) in [
            ("GET", one.as_str(), vec![KEY, ahead], ""),
            ("GET", DOCS, vec![KEY, ahead], ""),
            ("GET", DOCS, vec![in_range, ahead, ("a-im", "Incremental feed")], ""),
            ("POST", DOCS, vec![KEY, ahead, QUERY], count),
            ("POST", DOCS, vec![in_range, ahead, QUERY], count),
            ("POST", DOCS, vec![KEY, ahead, BATCH, ATOMIC], reads),
        ] {
            let refused = client.must(404, method, path, &headers, body);
            assert_eq!(refused.header("x-ms-substatus"), Some("1002"), "{method} {path}");
            let words = "The read session is not available for the input session token.";
            assert!(refused.body.contains(words), "{}", refused.body);
        }
        client.must(404, "GET", &format!("{DOCS}/z"), &[KEY], "");
    }
}

#[test]
fn malformed_tokens_are_named_everywhere() {
    let client = Client::with_container(1);
    client.must(201, "POST", DOCS, &[KEY], ITEM);
    let bad = ("x-ms-session-token", "invalidtoken");
    let one = format!("{DOCS}/a");
    for (method, path, headers, body) in [
        ("GET", one.as_str(), vec![KEY, bad], ""),
        ("PUT", &one, vec![KEY, bad], ITEM),
        ("PATCH", &one, vec![KEY, bad], PATCH),
        ("DELETE", &one, vec![KEY, bad], ""),
        ("GET", DOCS, vec![bad], ""),
        ("GET", DOCS, vec![bad, ("a-im", "Incremental feed")], ""),
        ("POST", DOCS, vec![KEY, bad], ITEM),
        ("POST", DOCS, vec![KEY, bad, UPSERT], ITEM),
        ("POST", DOCS, vec![KEY, bad, QUERY], r#"{"query":"SELECT * FROM c"}"#),
        ("POST", DOCS, vec![KEY, bad, BATCH, ATOMIC], CREATES),
    ] {
        let refused = client.must(400, method, path, &headers, body);
        let words = "The session token provided 'invalidtoken' is invalid.";
        assert!(refused.body.contains(words), "{method} {path} {headers:?}: {}", refused.body);
    }
    assert!(client.must(200, "GET", &one, &[KEY], "").body.contains("\"n\":1"));
}
