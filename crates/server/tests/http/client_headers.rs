//! Headers and statuses that clients look at, on every kind of request that has them.

use crate::client::{Answer, Client, sign_link};

const DOCS: &str = "/dbs/d/colls/c/docs";
const COLL: &str = "/dbs/d/colls/c";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");
const UPSERT: (&str, &str) = ("x-ms-documentdb-is-upsert", "True");
const BATCH: (&str, &str) = ("x-ms-cosmos-is-batch-request", "True");
const ATOMIC: (&str, &str) = ("x-ms-cosmos-batch-atomic", "True");
const QUERY: (&str, &str) = ("x-ms-documentdb-isquery", "True");
const CROSS: (&str, &str) = ("x-ms-documentdb-query-enablecrosspartition", "True");
const FEED: (&str, &str) = ("a-im", "Incremental feed");
const ALL_VERSIONS: (&str, &str) = ("a-im", "Full-Fidelity Feed");
const RANGE: &str = "x-ms-documentdb-partitionkeyrangeid";
const PATCH: &str = r#"[{"op":"set","path":"/n","value":2}]"#;

fn with_items(partitions: u32) -> Client {
    let client = Client::start(partitions);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
        "changeFeedPolicy":{"retentionDuration":10}}"#;
    client.must(201, "POST", "/dbs/d/colls", &[], container);
    for number in 0..3 {
        client.must(201, "POST", DOCS, &[KEY], &format!(r#"{{"id":"i{number}","pk":"p","n":{number}}}"#));
    }
    client
}

fn range_of_key(client: &Client) -> String {
    let item = client.must(200, "GET", &format!("{DOCS}/i0"), &[KEY], "");
    item.header(RANGE).expect("a range").to_owned()
}

/// Clients parse it as a number: an answer without it is an exception of theirs.
#[test]
fn every_feed_has_an_item_count() {
    for partitions in [1, 5] {
        let client = with_items(partitions);
        let range = range_of_key(&client);
        let in_range = (RANGE, range.as_str());
        client.must(201, "POST", &format!("{COLL}/udfs"), &[], r#"{"id":"u","body":"1"}"#);
        let all = r#"{"query":"SELECT * FROM c"}"#;
        let start = ("if-none-match", "\"0\"");
        for (method, path, headers, body, count) in [
            ("GET", DOCS, vec![in_range, FEED], "", "3"),
            ("GET", DOCS, vec![KEY, FEED], "", "3"),
            ("GET", DOCS, vec![in_range, ALL_VERSIONS, start], "", "3"),
            ("GET", DOCS, vec![in_range, FEED, ("x-ms-max-item-count", "2")], "", "2"),
            ("GET", DOCS, vec![KEY], "", "3"),
            ("GET", DOCS, vec![in_range], "", "3"),
            ("POST", DOCS, vec![KEY, QUERY], all, "3"),
            ("POST", DOCS, vec![KEY, QUERY], r#"{"query":"SELECT * FROM c WHERE false"}"#, "0"),
            ("GET", "/dbs", vec![], "", "1"),
            ("POST", "/dbs", vec![QUERY], all, "1"),
            ("GET", "/dbs/d/colls", vec![], "", "1"),
            ("POST", "/dbs/d/colls", vec![QUERY], all, "1"),
            ("GET", "/dbs/d/users", vec![], "", "0"),
            ("GET", "/offers", vec![], "", "1"),
            ("GET", &format!("{COLL}/udfs"), vec![], "", "1"),
            ("GET", &format!("{COLL}/sprocs"), vec![], "", "0"),
            ("GET", &format!("{COLL}/conflicts"), vec![], "", "0"),
        ] {
            let answer = client.must(200, method, path, &headers, body);
            assert_eq!(answer.header("x-ms-item-count"), Some(count), "{method} {path} {headers:?}");
        }
    }
}

#[test]
fn writes_of_every_script_name_quota_and_usage() {
    let client = Client::with_container(5);
    let trigger = r#","triggerType":"Pre","triggerOperation":"All""#;
    for (kind, rest) in [("sprocs", ""), ("udfs", ""), ("triggers", trigger)] {
        let (all, one) = (format!("{COLL}/{kind}"), format!("{COLL}/{kind}/s"));
        let body = format!(r#"{{"id":"s","body":"() => 1"{rest}}}"#);
        for (status, method, path, headers, body) in [
            (201, "POST", &all, vec![], body.as_str()),
            (409, "POST", &all, vec![], &body),
            (200, "POST", &all, vec![UPSERT], &body),
            (200, "PUT", &one, vec![], &body),
            (412, "PUT", &one, vec![("if-match", "\"x\"")], &body),
            (204, "DELETE", &one, vec![], ""),
            (404, "PUT", &one, vec![], &body),
        ] {
            let answer = client.must(status, method, path, &headers, body);
            for name in ["x-ms-resource-quota", "x-ms-resource-usage"] {
                assert!(answer.header(name).is_some(), "{status} {method} {path}: no {name}");
            }
        }
    }
}

#[test]
fn a_missing_item_has_no_content_path() {
    let client = with_items(5);
    let (none, self_link) = (format!("{DOCS}/none"), self_link(&client));
    for (method, headers, body) in [
        ("GET", vec![KEY], ""),
        ("PUT", vec![KEY], r#"{"id":"none","pk":"p"}"#),
        ("PATCH", vec![KEY], PATCH),
        ("DELETE", vec![KEY], ""),
        ("DELETE", vec![KEY, ("if-match", "\"x\"")], ""),
    ] {
        let missing = client.must(404, method, &none, &headers, body);
        assert_eq!(missing.header("x-ms-content-path"), None, "{method}");
        assert_eq!(missing.header("x-ms-substatus"), None, "{method}");
        assert!(missing.body.contains("Resource Not Found"), "{method}: {}", missing.body);
    }
    client.must(204, "DELETE", &format!("{DOCS}/i0"), &[KEY], "");
    for method in ["GET", "DELETE"] {
        let missing = item_by_rid(&client, method, &self_link, "");
        assert_eq!((missing.status, missing.header("x-ms-content-path")), (404, None), "{method}");
    }
}

fn self_link(client: &Client) -> String {
    let item = client.must(200, "GET", &format!("{DOCS}/i0"), &[KEY], "").body;
    item.split("\"_self\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a link").to_owned()
}

fn item_by_rid(client: &Client, method: &str, link: &str, body: &str) -> Answer {
    let rid = link.trim_end_matches('/').rsplit('/').next().expect("a rid");
    let token = sign_link(method, "docs", &rid.to_ascii_lowercase());
    client.send_as(&token, method, &format!("/{link}"), &[KEY], body.as_bytes())
}

/// By name, sub-status 0 at the gateway, whatever is asked of items.
#[test]
fn items_of_a_missing_container() {
    let client = with_items(5);
    let docs = "/dbs/d/colls/none/docs";
    let (one, item) = (format!("{docs}/a"), r#"{"id":"a","pk":"p"}"#);
    let creates = r#"[{"operationType":"Create","resourceBody":{"id":"b","pk":"p"}}]"#;
    let all = r#"{"query":"SELECT * FROM c"}"#;
    let bulk = ("x-ms-cosmos-batch-atomic", "False");
    for (method, path, headers, body) in [
        ("GET", one.as_str(), vec![KEY], ""),
        ("PUT", &one, vec![KEY], item),
        ("PATCH", &one, vec![KEY], PATCH),
        ("DELETE", &one, vec![KEY], ""),
        ("POST", docs, vec![KEY], item),
        ("POST", docs, vec![KEY, UPSERT], item),
        ("POST", docs, vec![KEY, BATCH, ATOMIC], creates),
        ("POST", docs, vec![(RANGE, "0"), BATCH, bulk], creates),
        ("POST", docs, vec![KEY, QUERY], all),
        ("POST", docs, vec![(RANGE, "0"), QUERY], all),
        ("POST", docs, vec![QUERY, CROSS], all),
        ("GET", docs, vec![], ""),
        ("GET", docs, vec![FEED], ""),
        ("GET", docs, vec![(RANGE, "0"), FEED], ""),
    ] {
        let answer = client.must(404, method, path, &headers, body);
        assert_eq!(answer.header("x-ms-substatus"), None, "{method} {path} {headers:?}");
        assert!(answer.body.contains("Resource Not Found"), "{}", answer.body);
    }
}

#[test]
fn metrics_are_sent_with_every_page() {
    for partitions in [1, 5] {
        let client = with_items(partitions);
        let range = range_of_key(&client);
        for scope in [KEY, (RANGE, range.as_str()), CROSS] {
            for form in ["x-ms-cosmos-populateindexmetrics", "x-ms-cosmos-populateindexmetrics-v2"] {
                for filter in ["c.n = 99", "false", "c.n >= 0", "c.none = 1"] {
                    let body = format!(r#"{{"query":"SELECT * FROM c WHERE {filter}"}}"#);
                    let page = client.must(200, "POST", DOCS, &[QUERY, scope, (form, "True")], &body);
                    let metrics = page.header("x-ms-cosmos-index-utilization");
                    assert!(metrics.is_some(), "{partitions} {scope:?} {form} {filter}");
                }
            }
        }
        let headers = [QUERY, (RANGE, range.as_str()), ("x-ms-cosmos-populateindexmetrics-v2", "True")];
        for aggregate in ["SUM", "AVG", "MIN", "MAX", "COUNT"] {
            let body = format!(r#"{{"query":"SELECT VALUE {aggregate}(c.n) FROM c"}}"#);
            let page = client.must(200, "POST", DOCS, &headers, &body);
            let metrics = page.header("x-ms-cosmos-index-utilization").expect("index metrics");
            let metrics = percent_encoding::percent_decode_str(metrics).decode_utf8_lossy();
            assert!(metrics.contains("/n/?"), "{aggregate}: {metrics}");
        }
        let headers = [QUERY, KEY, ("x-ms-documentdb-populatequerymetrics", "True")];
        let load = |query: &str| {
            let page = client.must(200, "POST", DOCS, &headers, &format!(r#"{{"query":"{query}"}}"#));
            let metrics = page.header("x-ms-documentdb-query-metrics").expect("metrics").to_owned();
            let time = metrics.split(';').find_map(|part| part.strip_prefix("documentLoadTimeInMs="));
            time.and_then(|time| time.parse::<f64>().ok()).unwrap_or_else(|| panic!("no time in {metrics}"))
        };
        assert!(load("SELECT * FROM c") >= 0.01);
        assert!(load("SELECT c.id FROM c WHERE c.n = 1") >= 0.01);
    }
}

#[test]
fn a_failed_batch_costs_the_sum_of_its_operations() {
    let client = with_items(5);
    let bulk = ("x-ms-cosmos-batch-atomic", "False");
    let go_on = ("x-ms-cosmos-batch-continue-on-error", "True");
    let range = range_of_key(&client);
    let operations = r#"[{"operationType":"Upsert","partitionKey":"[\"p\"]","resourceBody":{"id":"i0","pk":"p"}},
        {"operationType":"Read","partitionKey":"[\"p\"]","id":"i1"},
        {"operationType":"Create","partitionKey":"[\"p\"]","resourceBody":{"id":"i1","pk":"p"}},
        {"operationType":"Delete","partitionKey":"[\"p\"]","id":"none"}]"#;
    for headers in [vec![KEY, BATCH, ATOMIC], vec![(RANGE, range.as_str()), BATCH, bulk, go_on]] {
        let answer = client.must(207, "POST", DOCS, &headers, operations);
        let total: f64 = answer.header("x-ms-request-charge").expect("a charge").parse().expect("a number");
        let charges = answer.body.split("\"requestCharge\":").skip(1);
        let sum: f64 = charges
            .map(|rest| rest.split([',', '}']).next().expect("a number").parse::<f64>().expect("a number"))
            .sum();
        assert!(total > 10.0 && (total - sum).abs() < 0.01, "{total} is not {sum}: {}", answer.body);
    }
}

#[test]
fn system_properties_are_left_out_of_every_answer() {
    let client = with_items(5);
    let plain = ("x-ms-exclude-system-properties", "true");
    let one = format!("{DOCS}/i0");
    let range = range_of_key(&client);
    let (item, star) = (r#"{"id":"i0","pk":"p","n":7}"#, r#"{"query":"SELECT * FROM c"}"#);
    let bulk = ("x-ms-cosmos-batch-atomic", "False");
    let bulk_read = r#"[{"operationType":"Read","id":"i0","partitionKey":"[\"p\"]"}]"#;
    client.must(204, "DELETE", &format!("{DOCS}/i2"), &[KEY], "");
    for (status, method, path, headers, body) in [
        (200, "GET", one.as_str(), vec![KEY, plain], ""),
        (200, "PUT", &one, vec![KEY, plain], item),
        (200, "POST", DOCS, vec![KEY, plain, UPSERT], item),
        (201, "POST", DOCS, vec![KEY, plain], r#"{"id":"new","pk":"p"}"#),
        (200, "PATCH", &one, vec![KEY, plain], PATCH),
        (200, "GET", DOCS, vec![plain], ""),
        (200, "GET", DOCS, vec![plain, KEY], ""),
        (200, "POST", DOCS, vec![plain, KEY, QUERY], star),
        (200, "POST", DOCS, vec![plain, (RANGE, range.as_str()), QUERY], star),
        (200, "POST", DOCS, vec![plain, CROSS, QUERY], star),
        (200, "GET", DOCS, vec![plain, (RANGE, range.as_str()), FEED], ""),
        (
            200,
            "GET",
            DOCS,
            vec![plain, (RANGE, range.as_str()), ALL_VERSIONS, ("if-none-match", "\"0\"")],
            "",
        ),
        (200, "POST", DOCS, vec![plain, KEY, BATCH, ATOMIC], r#"[{"operationType":"Read","id":"i0"}]"#),
        (200, "POST", DOCS, vec![plain, (RANGE, range.as_str()), BATCH, bulk], bulk_read),
    ] {
        let answer = client.must(status, method, path, &headers, body);
        assert!(answer.body.contains("\"pk\":\"p\""), "{method} {path} {headers:?}: {}", answer.body);
        let rows = answer.body.split_once("\"Documents\":").map_or(answer.body.as_str(), |(_, rows)| rows);
        for name in ["_rid", "_self", "_etag", "_ts", "_attachments"] {
            assert!(!rows.contains(&format!("\"{name}\"")), "{method} {path} {headers:?}: {name} in {rows}");
        }
    }
    let whole = ("x-ms-exclude-system-properties", "false");
    assert!(client.must(200, "GET", &one, &[KEY, whole], "").body.contains("\"_ts\""));
}

/// Seconds: what changed within the second of the date is not after it.
#[test]
fn changes_after_a_date_in_every_scope() {
    for partitions in [1, 5] {
        let client = with_items(partitions);
        let range = range_of_key(&client);
        for scope in [KEY, (RANGE, range.as_str())] {
            let since = |date: &str| {
                let answer = client.send("GET", DOCS, &[FEED, scope, ("if-modified-since", date)], "");
                (answer.status, answer.header("x-ms-item-count").map(str::to_owned))
            };
            assert_eq!(since(crate::client::DATE).0, 304, "{scope:?}");
            assert_eq!(since("Sun, 15 Nov 2026 18:32:03 GMT"), (200, Some("3".to_owned())), "{scope:?}");
        }
    }
}

#[test]
fn versions_and_limits_are_checked_on_every_request() {
    let client = with_items(1);
    let one = format!("{DOCS}/i0");
    let star = r#"{"query":"SELECT * FROM c"}"#;
    for (method, path, headers, body) in [
        ("GET", one.as_str(), vec![KEY], ""),
        ("GET", DOCS, vec![], ""),
        ("GET", DOCS, vec![FEED], ""),
        ("POST", DOCS, vec![KEY, QUERY], star),
        ("POST", DOCS, vec![KEY], r#"{"id":"new","pk":"p"}"#),
        ("GET", COLL, vec![], ""),
        ("GET", "/dbs", vec![], ""),
    ] {
        let headers = [&headers[..], &[("x-ms-version", "2015-01-01")]].concat();
        let answer = client.must(400, method, path, &headers, body);
        assert!(answer.body.contains("2015-01-01"), "{method} {path}: {}", answer.body);
    }
    client.must(404, "GET", &format!("{DOCS}/new"), &[KEY], "");
    let limit = "x-ms-documentdb-responsecontinuationtokenlimitinkb";
    for scope in [KEY, (RANGE, "0"), CROSS] {
        let refused = client.must(400, "POST", DOCS, &[QUERY, scope, (limit, "0")], star);
        let words = "continuation token limit specified is not large enough";
        assert!(refused.body.contains(words), "{}", refused.body);
        client.must(200, "POST", DOCS, &[QUERY, scope, (limit, "1")], star);
    }
    for header in
        ["x-ms-cosmos-supported-serialization-formats", "x-ms-documentdb-content-serialization-format"]
    {
        for (method, path, headers, body) in
            [("POST", DOCS, vec![KEY, QUERY], star), ("GET", DOCS, vec![], ""), ("GET", &one, vec![KEY], "")]
        {
            let headers = [&headers[..], &[(header, "Cbor")]].concat();
            let answer = client.must(400, method, path, &headers, body);
            assert!(answer.body.contains("Cbor"), "{method} {path} {header}: {}", answer.body);
        }
    }
}

#[test]
fn containers_of_a_shared_database_say_so_in_every_answer() {
    let client = Client::start(1);
    client.must(201, "POST", "/dbs", &[("x-ms-offer-throughput", "1000")], r#"{"id":"d"}"#);
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    let share = |answer: Answer| answer.header("x-ms-share-throughput").map(str::to_owned);
    for (status, method, path) in [(201, "POST", "/dbs/d/colls"), (200, "PUT", COLL), (200, "GET", COLL)] {
        let body = if method == "GET" { "" } else { body };
        assert_eq!(share(client.must(status, method, path, &[], body)).as_deref(), Some("true"), "{method}");
    }
    let own = body.replace("\"c\"", "\"own\"");
    let throughput = [("x-ms-offer-throughput", "400")];
    assert_eq!(share(client.must(201, "POST", "/dbs/d/colls", &throughput, &own)), None);
    for (method, body) in [("PUT", own.as_str()), ("GET", "")] {
        assert_eq!(share(client.must(200, method, "/dbs/d/colls/own", &[], body)), None, "{method}");
    }
}

/// `{container},{range}`, as the second generation of clients writes it.
#[test]
fn ranges_as_old_clients_write_them() {
    let client = with_items(5);
    let range = range_of_key(&client);
    let rid = client.must(200, "GET", COLL, &[], "").body;
    let rid =
        rid.split("\"_rid\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a rid").to_owned();
    let (written, old) = (format!("{rid},{range}"), ("x-ms-version", "2018-09-17"));
    let in_range = (RANGE, written.as_str());
    let count = r#"{"query":"SELECT VALUE COUNT(1) FROM c"}"#;
    let bulk = r#"[{"operationType":"Read","id":"i0","partitionKey":"[\"p\"]"}]"#;
    for (method, path, headers, body) in [
        ("GET", DOCS, vec![in_range, old], ""),
        ("GET", DOCS, vec![in_range, old, FEED], ""),
        ("POST", DOCS, vec![in_range, old, QUERY], count),
        ("POST", DOCS, vec![in_range, old, BATCH, ("x-ms-cosmos-batch-atomic", "False")], bulk),
        ("POST", "/dbs/d/colls/c/sprocs/__.sys.echo", vec![in_range, old], "[1]"),
    ] {
        let answer = client.must(200, method, path, &headers, body);
        assert_eq!(answer.header(RANGE), Some(range.as_str()), "{method} {path} {headers:?}");
    }
    let gone = format!("{rid},77");
    client.must(410, "POST", DOCS, &[(RANGE, gone.as_str()), old, QUERY], count);
}

/// What the account document promises is what counts.
#[test]
fn limits_of_queries_are_those_of_the_account() {
    let client = with_items(1);
    let joins = |count: usize| {
        let joins: String = (0..count).map(|n| format!(" JOIN t{n} IN c.list")).collect();
        format!(r#"{{"query":"SELECT VALUE COUNT(1) FROM c{joins}"}}"#)
    };
    client.must(200, "POST", DOCS, &[KEY, QUERY], &joins(10));
    client.must(400, "POST", DOCS, &[KEY, QUERY], &joins(11));
    let text = |length: usize| {
        let query = "SELECT VALUE '' FROM c";
        let filled = query.replace("''", &format!("'{}'", "x".repeat(length - query.len())));
        format!(r#"{{"query":"{filled}"}}"#)
    };
    client.must(200, "POST", DOCS, &[KEY, QUERY], &text(524_288));
    client.must(400, "POST", DOCS, &[KEY, QUERY], &text(524_289));
}

/// The second generation of clients addresses everything by rids once it has read a resource.
#[test]
fn every_operation_by_rid() {
    let client = with_items(5);
    client.must(201, "POST", &format!("{COLL}/sprocs"), &[], r#"{"id":"s","body":"() => 1"}"#);
    let rid = client.must(200, "GET", COLL, &[], "").body;
    let container = rid.split("\"_self\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a link");
    let rid = container.trim_end_matches('/').rsplit('/').next().expect("a rid").to_ascii_lowercase();
    let range = range_of_key(&client);
    let in_range = (RANGE, range.as_str());
    let bulk = ("x-ms-cosmos-batch-atomic", "False");
    let creates = r#"[{"operationType":"Create","resourceBody":{"id":"b","pk":"p"}}]"#;
    let reads = r#"[{"operationType":"Read","id":"b","partitionKey":"[\"p\"]"}]"#;
    let count = r#"{"query":"SELECT VALUE COUNT(1) FROM c"}"#;
    let plan = ("x-ms-cosmos-is-query-plan-request", "True");
    let features = ("x-ms-cosmos-supported-query-features", "Aggregate");
    let item = r#"{"id":"new","pk":"p"}"#;
    for (status, method, kind, headers, body) in [
        (201, "POST", "docs", vec![KEY], item),
        (409, "POST", "docs", vec![KEY], item),
        (200, "POST", "docs", vec![KEY, UPSERT], item),
        (200, "POST", "docs", vec![KEY, BATCH, ATOMIC], creates),
        (200, "POST", "docs", vec![in_range, BATCH, bulk], reads),
        (200, "POST", "docs", vec![KEY, QUERY], count),
        (200, "POST", "docs", vec![in_range, QUERY], count),
        (200, "POST", "docs", vec![plan, features], count),
        (200, "GET", "docs", vec![], ""),
        (200, "GET", "docs", vec![in_range, FEED], ""),
        (200, "GET", "pkranges", vec![], ""),
        (200, "GET", "sprocs", vec![], ""),
        (200, "GET", "conflicts", vec![], ""),
        (201, "POST", "udfs", vec![], r#"{"id":"u","body":"1"}"#),
    ] {
        let token = sign_link(method, kind, &rid);
        let answer =
            client.send_as(&token, method, &format!("/{container}{kind}"), &headers, body.as_bytes());
        assert_eq!(answer.status, status, "{method} {kind} {headers:?}: {}", answer.body);
    }
    let link = self_link(&client);
    for (status, method, body) in [
        (200, "GET", ""),
        (200, "PUT", r#"{"id":"renamed","pk":"p","n":1}"#),
        (200, "PATCH", PATCH),
        (200, "GET", ""),
        (204, "DELETE", ""),
        (404, "PATCH", PATCH),
    ] {
        let answer = item_by_rid(&client, method, &link, body);
        assert_eq!(answer.status, status, "{method}: {}", answer.body);
    }
}
