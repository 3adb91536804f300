//! GROUP BY with ORDER BY over several partitions, as a client runs it: it merges the rows of all ranges by their
//! `orderByItems` first, groups the payloads of the merged rows next, and groups leave in the order in which they
//! were first seen.

use std::cmp::Ordering;

use quire_value::{Limits, Value, text};

use crate::client::Client;

const DOCS: &str = "/dbs/d/colls/c/docs";
const QUERY: (&str, &str) = ("x-ms-documentdb-isquery", "True");
const PLACEHOLDER: &str = "{documentdb-formattableorderbyquery-filter}";
/// What the .NET client lists.
const FEATURES: &str = "Aggregate, Distinct, GroupBy, MultipleAggregates, MultipleOrderBy, OffsetAndLimit, OrderBy, Top, \
    NonValueAggregate, DCount, NonStreamingOrderBy, CountIf, HybridSearch, WeightedRankFusion, HybridSearchSkipOrderByRewrite";
const COMPOSITE: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
    "indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[],"compositeIndexes":[
        [{"path":"/k"},{"path":"/m","order":"descending"}]]}}"#;

fn parse(json: &str) -> Value {
    text::parse(json.as_bytes(), Limits::default()).expect("JSON")
}

/// Thirty items: `k` is a, b, c or missing, `m` is 0 or 1, `n` their number.
fn filled(partitions: u32) -> Client {
    let client = Client::start(partitions);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    client.must(201, "POST", "/dbs/d/colls", &[], COMPOSITE);
    for n in 0..30 {
        let k = ["\"a\"", "\"b\"", "\"c\"", ""][n % 4];
        let k = if k.is_empty() { String::new() } else { format!(r#""k":{k},"#) };
        let body = format!(r#"{{"id":"i{n}","pk":"{n}",{k}"m":{},"n":{n}}}"#, n / 4 % 2);
        let key = format!("[\"{n}\"]");
        client.must(201, "POST", DOCS, &[("x-ms-documentdb-partitionkey", &key)], &body);
    }
    client
}

fn plan(client: &Client, query: &str) -> Value {
    let headers = [
        QUERY,
        ("x-ms-cosmos-is-query-plan-request", "True"),
        ("x-ms-cosmos-supported-query-features", FEATURES),
    ];
    let body = client.must(200, "POST", DOCS, &headers, &format!(r#"{{"query":"{query}"}}"#)).body;
    parse(&body).get("queryInfo").expect("a plan").clone()
}

fn strings(info: &Value, name: &str) -> Vec<String> {
    let list = info.get(name).and_then(Value::as_array).unwrap_or_else(|| panic!("no {name}"));
    list.iter().map(|value| value.as_str().expect("a text").to_owned()).collect()
}

fn items(row: &Value, name: &str) -> Vec<Value> {
    let list =
        row.get(name).and_then(Value::as_array).unwrap_or_else(|| panic!("no {name} in {}", row.to_json()));
    list.iter().map(|item| item.get("item").cloned().unwrap_or_default()).collect()
}

fn ranges(client: &Client) -> Vec<String> {
    let ranges = parse(&client.must(200, "GET", "/dbs/d/colls/c/pkranges", &[], "").body);
    let ranges = ranges.get("PartitionKeyRanges").and_then(Value::as_array).expect("ranges").iter();
    ranges.map(|range| range.get("id").and_then(Value::as_str).expect("an id").to_owned()).collect()
}

/// All rows of a range, page by page.
fn rows(client: &Client, query: &str, range: &str) -> Vec<Value> {
    let (mut rows, mut token) = (Vec::new(), String::new());
    loop {
        let mut headers =
            vec![QUERY, ("x-ms-documentdb-partitionkeyrangeid", range), ("x-ms-max-item-count", "2")];
        if !token.is_empty() {
            headers.push(("x-ms-continuation", &token));
        }
        let body: quire_value::Object = [("query", query)].into_iter().collect();
        let page = client.must(200, "POST", DOCS, &headers, &Value::Object(body).to_json());
        rows.extend(parse(&page.body).get("Documents").and_then(Value::as_array).expect("rows").to_vec());
        match page.header("x-ms-continuation") {
            Some(next) => token = next.to_owned(),
            None => return rows,
        }
    }
}

/// What a client that merges makes of it: one line per group, `item`s summed up by `fold`.
fn merged(client: &Client, query: &str, fold: fn(&[Value]) -> String) -> Vec<String> {
    let info = plan(client, query);
    let descending: Vec<bool> = strings(&info, "orderBy").iter().map(|word| word == "Descending").collect();
    let rewritten = info.get("rewrittenQuery").and_then(Value::as_str).expect("a query");
    assert!(rewritten.contains(PLACEHOLDER), "{rewritten}");
    let rewritten = rewritten.replace(PLACEHOLDER, "true");
    let compare = |left: &Value, right: &Value| {
        let (left, right) = (items(left, "orderByItems"), items(right, "orderByItems"));
        let each = left.iter().zip(&right).zip(&descending);
        each.map(|((left, right), descending)| {
            let order = left.total_cmp(right);
            if *descending { order.reverse() } else { order }
        })
        .fold(Ordering::Equal, Ordering::then)
    };
    let mut all = Vec::new();
    for range in ranges(client) {
        let rows = rows(client, &rewritten, &range);
        assert!(rows.is_sorted_by(|left, right| compare(left, right).is_le()), "{query} in range {range}");
        all.extend(rows);
    }
    all.sort_by(compare);
    let mut groups: Vec<(String, Vec<Value>)> = Vec::new();
    for row in &all {
        let payload = row.get("payload").expect("a payload");
        let key = Value::Array(items(payload, "groupByItems")).to_json();
        let inner = payload.get("payload").expect("a payload of the group").clone();
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, rows)) => rows.push(inner),
            None => groups.push((key, vec![inner])),
        }
    }
    groups.into_iter().map(|(key, rows)| format!("{key} {}", fold(&rows))).collect()
}

fn number(value: &Value, path: &[&str]) -> f64 {
    let found = path.iter().try_fold(value, |value, name| value.get(name));
    found.and_then(Value::as_number).map_or(0.0, |number| number.as_f64())
}

#[test]
fn the_plan_names_orders_groups_and_aggregates() {
    for partitions in [1, 5] {
        let client = filled(partitions);
        let info = plan(
            &client,
            "SELECT c.k, COUNT(1) AS n, AVG(c.n) AS mean FROM c GROUP BY c.k ORDER BY c.k DESC",
        );
        assert_eq!(strings(&info, "orderBy"), ["Descending"]);
        assert_eq!(strings(&info, "orderByExpressions"), ["c.k"]);
        assert_eq!(strings(&info, "groupByExpressions"), ["c.k"]);
        assert_eq!(strings(&info, "groupByAliases"), ["k", "n", "mean"]);
        let kinds = info.get("groupByAliasToAggregateType").expect("kinds").to_json();
        assert_eq!(kinds, r#"{"k":null,"n":"Count","mean":"Average"}"#);
    }
}

#[test]
fn merged_groups_are_those_of_all_items() {
    for partitions in [1, 5] {
        let client = filled(partitions);
        let counts =
            |rows: &[Value]| rows.iter().map(|row| number(row, &["n", "item"])).sum::<f64>().to_string();
        let query = "SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k ORDER BY c.k DESC";
        let expected = ["[\"c\"] 7", "[\"b\"] 8", "[\"a\"] 8", "[] 7"];
        assert_eq!(merged(&client, query, counts), expected, "{partitions} partitions");
        let sums = |rows: &[Value]| {
            let sum = |part: &str| rows.iter().map(|row| number(row, &["s", "item", part])).sum::<f64>();
            format!("{}/{}", sum("sum"), sum("count"))
        };
        // 0+4+...+28, 1+5+...+29, 2+6+...+26, 3+7+...+27
        let query = "SELECT AVG(c.n) AS s FROM c GROUP BY c.k ORDER BY c.k";
        let expected = ["[] 105/7", "[\"a\"] 112/8", "[\"b\"] 120/8", "[\"c\"] 98/7"];
        assert_eq!(merged(&client, query, sums), expected, "{partitions} partitions");
        let query =
            "SELECT c.k, c.m, COUNT(1) AS n FROM c WHERE c.n >= 6 GROUP BY c.k, c.m ORDER BY c.k, c.m DESC";
        let expected = [
            "[1] 3",
            "[0] 3",
            "[\"a\",1] 3",
            "[\"a\",0] 3",
            "[\"b\",1] 3",
            "[\"b\",0] 3",
            "[\"c\",1] 3",
            "[\"c\",0] 3",
        ];
        let found = merged(&client, query, counts);
        assert_eq!(found, expected, "{partitions} partitions");
    }
}
