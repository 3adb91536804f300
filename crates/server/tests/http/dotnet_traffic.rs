//! The .NET client in gateway mode, request by request as it was recorded: its start, writes, a query over all ranges, a batch;
//! and the same query as its predecessor sends it.

use serde_json::{Value, json};

use crate::client::{Answer, Client};

const COLL: &str = "/dbs/d/colls/c";
const DOCS: &str = "/dbs/d/colls/c/docs";

/// On every request.
const EVERY: [(&str, &str); 5] = [
    ("x-ms-version", "2020-07-15"),
    ("x-ms-client-id", "6f1d4c52-7a0e-4f0f-9d5a-1d2f0c9b7a31"),
    ("x-ms-noretry-449", "True"),
    ("x-ms-cosmos-sdk-supportedcapabilities", "9"),
    ("user-agent", "cosmos-netstandard-sdk/3.64.0|1|X64|Linux|.NET 8.0|N|"),
];
const FEATURES: &str = "Aggregate, Distinct, GroupBy, MultipleAggregates, MultipleOrderBy, OffsetAndLimit, OrderBy, Top, \
    NonValueAggregate, DCount, NonStreamingOrderBy, CountIf, HybridSearch, WeightedRankFusion, HybridSearchSkipOrderByRewrite";

struct Sender<'a> {
    client: &'a Client,
    every: &'a [(&'a str, &'a str)],
}

impl Sender<'_> {
    fn send(&self, status: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.client.must(status, method, path, &[self.every, headers].concat(), body)
    }
}

fn parse(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

/// Ids of the ranges, read until nothing is new.
fn ranges(sender: &Sender<'_>) -> Vec<String> {
    let incremental = ("A-IM", "Incremental Feed");
    let path = format!("{COLL}/pkranges");
    let first = sender.send(200, "GET", &path, &[incremental, ("x-ms-max-item-count", "-1")], "");
    let etag = first.header("etag").expect("an etag").to_owned();
    sender.send(304, "GET", &path, &[incremental, ("If-None-Match", &etag)], "");
    let list = parse(&first)["PartitionKeyRanges"].as_array().expect("ranges").clone();
    list.iter().map(|range| range["id"].as_str().expect("an id").to_owned()).collect()
}

fn create_items(sender: &Sender<'_>, count: usize) {
    for number in 0..count {
        let key = format!(r#"["k{number}"]"#);
        let headers = [
            ("x-ms-documentdb-partitionkey", key.as_str()),
            ("x-ms-documentdb-is-upsert", "False"),
            ("Prefer", "return=representation"),
            ("x-ms-cosmos-supported-serialization-formats", "JsonText,CosmosBinary"),
        ];
        let body = format!(r#"{{"id":"i{number}","pk":"k{number}","price":{}}}"#, number % 5);
        let made = sender.send(201, "POST", DOCS, &headers, &body);
        let token = made.header("x-ms-session-token").expect("a session token");
        assert_eq!(token.matches(':').count(), 1, "{token}");
    }
}

/// The rows of each range for the query of the plan, merged by price.
fn query_by_plan(sender: &Sender<'_>, ranges: &[String], in_range: impl Fn(&str) -> String) -> Vec<i64> {
    let text = "SELECT VALUE c.price FROM c ORDER BY c.price DESC";
    let plan_headers = [
        ("x-ms-cosmos-is-query-plan-request", "True"),
        ("x-ms-cosmos-supported-query-features", FEATURES),
        ("x-ms-cosmos-query-version", "1.0"),
        ("x-ms-documentdb-query-enablecrosspartition", "True"),
        ("Content-Type", "application/query+json"),
    ];
    let plan = parse(&sender.send(200, "POST", DOCS, &plan_headers, &json!({ "query": text }).to_string()));
    assert_eq!(plan["partitionedQueryExecutionInfoVersion"], 2);
    assert_eq!(plan["queryInfo"]["orderBy"], json!(["Descending"]));
    assert_eq!(plan["queryInfo"]["hasSelectValue"], true);
    let rewritten = plan["queryInfo"]["rewrittenQuery"].as_str().expect("a query");
    let query = rewritten.replace("{documentdb-formattableorderbyquery-filter}", "true");
    let mut prices = Vec::new();
    for range in ranges {
        let range = in_range(range);
        let headers = [
            ("x-ms-documentdb-isquery", "True"),
            ("Content-Type", "application/query+json"),
            ("x-ms-documentdb-partitionkeyrangeid", range.as_str()),
            ("x-ms-documentdb-populatequerymetrics", "True"),
            ("x-ms-documentdb-query-iscontinuationexpected", "False"),
            ("x-ms-documentdb-query-enablecrosspartition", "True"),
            ("x-ms-cosmos-query-optimisticdirectexecute", "False"),
            ("x-ms-cosmos-supported-serialization-formats", "JsonText,CosmosBinary"),
            ("x-ms-max-item-count", "-1"),
        ];
        let page = sender.send(200, "POST", DOCS, &headers, &json!({ "query": query }).to_string());
        assert!(page.header("x-ms-documentdb-query-metrics").is_some(), "{}", page.print());
        assert!(page.header("x-ms-item-count").is_some_and(|count| count.parse::<u64>().is_ok()));
        let rows = parse(&page)["Documents"].as_array().expect("rows").clone();
        let of_range: Vec<i64> = rows
            .iter()
            .map(|row| {
                assert_eq!(row["orderByItems"][0]["item"], row["payload"]);
                assert!(row["_rid"].is_string());
                row["payload"].as_i64().expect("a price")
            })
            .collect();
        assert!(of_range.is_sorted_by(|left, right| left >= right), "{of_range:?}");
        prices.extend(of_range);
    }
    prices.sort_by_key(|price| std::cmp::Reverse(*price));
    prices
}

#[test]
fn a_session_of_the_dotnet_client() {
    for partitions in [1, 5] {
        let client = Client::with_container(partitions);
        let sender = Sender { client: &client, every: &EVERY };
        sender.send(200, "GET", "/", &[("x-ms-cosmos-use-thinclient", "True")], "");
        let account = parse(&sender.send(200, "GET", "/", &[], ""));
        assert!(account["writableLocations"][0]["databaseAccountEndpoint"].is_string(), "{account}");
        sender.send(200, "GET", COLL, &[], "");
        let ranges = ranges(&sender);
        assert_eq!(ranges.len(), partitions as usize);
        create_items(&sender, 20);
        let expected: Vec<i64> = [4, 3, 2, 1, 0].iter().flat_map(|price| [*price; 4]).collect();
        assert_eq!(query_by_plan(&sender, &ranges, str::to_owned), expected);
        let batch = [
            ("x-ms-documentdb-partitionkey", r#"["k1"]"#),
            ("x-ms-cosmos-is-batch-request", "True"),
            ("x-ms-cosmos-batch-atomic", "True"),
            ("x-ms-cosmos-batch-ordered", "True"),
        ];
        let body = r#"[{"operationType":"Read","id":"i1"},{"operationType":"Delete","id":"i1"}]"#;
        let done = parse(&sender.send(200, "POST", DOCS, &batch, body));
        assert_eq!((&done[0]["statusCode"], &done[1]["statusCode"]), (&json!(200), &json!(204)));
    }
}

/// It writes a range as `{container rid},{range id}`.
#[test]
fn a_query_of_the_client_before() {
    let client = Client::with_container(5);
    let every = [("x-ms-version", "2018-09-17")];
    let sender = Sender { client: &client, every: &every };
    sender.send(200, "GET", "/", &[], "");
    let rid = parse(&sender.send(200, "GET", COLL, &[], ""))["_rid"].as_str().expect("a rid").to_owned();
    let ranges = ranges(&sender);
    create_items(&sender, 20);
    let prices = query_by_plan(&sender, &ranges, |range| format!("{rid},{range}"));
    assert_eq!(prices.len(), 20);
    assert_eq!((prices[0], prices[19]), (4, 0));
}
