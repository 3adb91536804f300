//! ORDER BY over several partitions, resumed by a client that merges the partitions itself.
//!
//! Such a client runs the query of the plan on every range, merges by `orderByItems`, and continues after a row by naming its
//! position in a `resumeFilter`. [`Merge`] is such a client: its rows must be the same when it stops after every row and
//! starts again.

use std::cmp::Ordering;

use quire_resource::{ChildKind, ResourceId};
use quire_value::hash::{self, ValueHash};
use quire_value::{Limits, Object, Value, text};

use crate::client::{Answer, Client};

const DOCS: &str = "/dbs/d/colls/c/docs";
const QUERY: (&str, &str) = ("x-ms-documentdb-isquery", "True");
const PLACEHOLDER: &str = "{documentdb-formattableorderbyquery-filter}";

/// Ties, all kinds, numbers that doubles cannot hold, strings that an index cuts.
const VALUES: [&str; 22] = [
    "",
    "null",
    "false",
    "true",
    "0",
    "-1.5",
    "7",
    "7",
    "7",
    "9007199254740992",
    "9007199254740993",
    "\"\"",
    "\"a\"",
    "\"a\"",
    "[]",
    "[1,\"a\",null]",
    "[[],{}]",
    "[9007199254740993]",
    "{}",
    "{\"a\":1,\"b\":[true,{\"c\":\"x\"}]}",
    "{\"b\":1}",
    "",
];

fn parse(json: &str) -> Value {
    text::parse(json.as_bytes(), Limits::default()).expect("JSON")
}

fn text_at(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).expect("a text").to_owned()
}

fn rows_of(answer: &Answer) -> Vec<Value> {
    parse(&answer.body).get("Documents").and_then(Value::as_array).expect("rows").to_vec()
}

/// A container with composite indexes for the queries below, and an item for each value and tie.
fn with_values(partitions: u32) -> Client {
    let client = Client::start(partitions);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
        "indexingPolicy":{"includedPaths":[{"path":"/*"},{"path":"/doubled/*"}],"excludedPaths":[],"compositeIndexes":[
            [{"path":"/a"},{"path":"/b","order":"descending"},{"path":"/c"}],
            [{"path":"/a"},{"path":"/b"},{"path":"/c"}],
            [{"path":"/b","order":"descending"},{"path":"/d","order":"descending"}],
            [{"path":"/b"},{"path":"/d","order":"descending"}],
            [{"path":"/b"},{"path":"/d"},{"path":"/e"}],
            [{"path":"/b"},{"path":"/d","order":"descending"},{"path":"/e"}]]},
        "computedProperties":[{"name":"doubled","query":"SELECT VALUE c.a * 2 FROM c"}]}"#;
    client.must(201, "POST", "/dbs/d/colls", &[], container);
    let long = format!("\"{}\"", "x".repeat(200));
    let longer = format!("\"{}\"", "x".repeat(201));
    let values = VALUES.iter().copied().chain([long.as_str(), longer.as_str(), long.as_str()]);
    for (number, value) in values.enumerate() {
        let pk = format!("[\"{}\"]", number % 7);
        let mut body = format!(
            r#"{{"id":"i{number}","pk":"{}","b":{},"c":{number},"d":{},"e":{},"list":[1,2]"#,
            number % 7,
            number % 3,
            number % 2,
            number / 13
        );
        if !value.is_empty() {
            body.push_str(&format!(r#","a":{value}"#));
        }
        body.push('}');
        client.must(201, "POST", DOCS, &[("x-ms-documentdb-partitionkey", &pk)], &body);
    }
    client
}

/// A client that merges the rows of all ranges.
struct Merge<'a> {
    client: &'a Client,
    query: String,
    descending: Vec<bool>,
    ranges: Vec<String>,
}

/// A row, its range, and how many rows of its item came before it.
#[derive(Clone, Debug)]
struct MergedRow {
    range: usize,
    row: Value,
    nth: usize,
}

impl<'a> Merge<'a> {
    fn new(client: &'a Client, query: &str) -> Merge<'a> {
        let headers = [
            QUERY,
            ("x-ms-cosmos-is-query-plan-request", "True"),
            (
                "x-ms-cosmos-supported-query-features",
                "OrderBy, MultipleOrderBy, Top, Distinct, OffsetAndLimit",
            ),
        ];
        let body = Value::Object([("query", query)].into_iter().collect()).to_json();
        let plan = parse(&client.must(200, "POST", DOCS, &headers, &body).body);
        let info = plan.get("queryInfo").expect("a plan");
        let rewritten = info.get("rewrittenQuery").and_then(Value::as_str).expect("a query");
        assert!(rewritten.contains(PLACEHOLDER), "{rewritten}");
        let directions = info.get("orderBy").and_then(Value::as_array).expect("an order");
        let ranges = parse(&client.must(200, "GET", "/dbs/d/colls/c/pkranges", &[], "").body);
        let ranges = ranges.get("PartitionKeyRanges").and_then(Value::as_array).expect("ranges").iter();
        Merge {
            client,
            query: rewritten.replace(PLACEHOLDER, "true"),
            descending: directions.iter().map(|word| word.as_str() == Some("Descending")).collect(),
            ranges: ranges.map(|range| text_at(range, "id")).collect(),
        }
    }

    fn send(&self, range: usize, filter: Option<Value>, headers: &[(&str, &str)]) -> Answer {
        let mut body: Object = [("query", self.query.as_str())].into_iter().collect();
        if let Some(filter) = filter {
            body.set("resumeFilter", filter);
        }
        let mut all = vec![QUERY, ("x-ms-documentdb-partitionkeyrangeid", self.ranges[range].as_str())];
        all.extend(headers);
        self.client.send("POST", DOCS, &all, &Value::Object(body).to_json())
    }

    /// All rows of a range, page by page.
    fn range(&self, range: usize, filter: Option<Value>, page_size: &str) -> Vec<Value> {
        let (mut rows, mut token) = (Vec::new(), None::<String>);
        loop {
            let mut headers = vec![("x-ms-max-item-count", page_size)];
            headers.extend(token.as_deref().map(|token| ("x-ms-continuation", token)));
            let page = self.send(range, filter.clone(), &headers);
            assert_eq!(page.status, 200, "{}: {}", self.query, page.body);
            let info =
                format!(r#"{{"reverseRidEnabled":false,"reverseIndexScan":{}}}"#, self.ties_descending());
            assert_eq!(page.header("x-ms-cosmos-query-execution-info"), Some(&info[..]), "{}", self.query);
            rows.extend(rows_of(&page));
            token = page.header("x-ms-continuation").map(str::to_owned);
            if token.is_none() {
                return rows;
            }
        }
    }

    fn merged(&self, ranges: Vec<Vec<Value>>) -> Vec<MergedRow> {
        let mut all = Vec::new();
        for (range, rows) in ranges.into_iter().enumerate() {
            for pair in rows.windows(2) {
                let ties = child_id(&pair[0]).cmp(&child_id(&pair[1]));
                let ties = if self.ties_descending() { ties.reverse() } else { ties };
                assert!(
                    self.compare(&pair[0], &pair[1]).then(ties).is_le(),
                    "{} is before {}",
                    pair[0].to_json(),
                    pair[1].to_json()
                );
            }
            for row in rows {
                let nth = all.iter().filter(|before: &&MergedRow| rid(&before.row) == rid(&row)).count();
                all.push(MergedRow { range, row, nth });
            }
        }
        // Stable: of equal rows, that of the lower range comes first.
        all.sort_by(|left, right| self.compare(&left.row, &right.row));
        all
    }

    fn compare(&self, left: &Value, right: &Value) -> Ordering {
        let (left, right) = (order_values(left), order_values(right));
        let each = left.iter().zip(&right).zip(&self.descending);
        let each = each.map(|((left, right), descending)| {
            let order = left.total_cmp(right);
            if *descending { order.reverse() } else { order }
        });
        each.fold(Ordering::Equal, Ordering::then)
    }

    /// Some clients take it from the first column, others from the answer.
    fn ties_descending(&self) -> bool {
        self.descending[0]
    }

    fn all_rows(&self) -> Vec<MergedRow> {
        self.merged((0..self.ranges.len()).map(|range| self.range(range, None, "-1")).collect())
    }

    /// The rows after a row.
    fn rows_after(&self, last: &MergedRow, page_size: &str) -> Vec<MergedRow> {
        let values: Vec<Value> = order_values(&last.row).iter().map(resume_value).collect();
        let ranges = (0..self.ranges.len()).map(|range| {
            let mut filter: Object = [("value", Value::Array(values.clone()))].into_iter().collect();
            if range == last.range {
                filter.set("rid", rid(&last.row));
            }
            filter.set("exclude", range < last.range);
            let rows = self.range(range, Some(filter.into()), page_size);
            if range != last.range {
                return rows;
            }
            // The client skips what it has seen of the item.
            let seen = last.nth + 1;
            assert!(rows.iter().take(seen).all(|row| rid(row) == rid(&last.row)), "{}", self.query);
            rows[seen..].to_vec()
        });
        self.merged(ranges.collect())
    }
}

fn rid(row: &Value) -> &str {
    row.get("_rid").and_then(Value::as_str).expect("a row of the plan has its _rid")
}

/// As clients compare it.
fn child_id(row: &Value) -> u64 {
    match ResourceId::parse(rid(row)) {
        Ok(ResourceId::Child { kind: ChildKind::Item, child, .. }) => child,
        other => panic!("{other:?} is no item"),
    }
}

fn order_values(row: &Value) -> Vec<Value> {
    let items = row.get("orderByItems").and_then(Value::as_array).expect("a row of the plan has its order");
    items.iter().map(|item| item.get("item").cloned().unwrap_or_default()).collect()
}

fn resume_value(value: &Value) -> Value {
    let hashed = |kind: &str, ValueHash { low, high }: ValueHash| {
        let members = [
            ("type", Value::from(kind)),
            ("low", Value::from(low.cast_signed())),
            ("high", Value::from(high.cast_signed())),
        ];
        Value::Object(members.into_iter().collect())
    };
    match value {
        Value::Undefined => Value::Array(Vec::new()),
        Value::Array(_) => hashed("array", hash::of_value(value)),
        Value::Object(_) => hashed("object", hash::of_value(value)),
        scalar => scalar.clone(),
    }
}

fn payloads(rows: &[MergedRow]) -> Vec<String> {
    rows.iter().map(|merged| merged.row.get("payload").map(Value::to_json).unwrap_or_default()).collect()
}

fn check(client: &Client, query: &str, count: usize) {
    let merge = Merge::new(client, query);
    let all = merge.all_rows();
    assert_eq!(all.len(), count, "{query}");
    for (nth, last) in all.iter().enumerate() {
        let page_size = ["-1", "1", "3"][nth % 3];
        let rest = merge.rows_after(last, page_size);
        assert_eq!(payloads(&rest), payloads(&all[nth + 1..]), "{query} behind row {nth}");
    }
}

#[test]
fn resumed_after_every_row_the_result_is_the_same() {
    for partitions in [1, 5] {
        let client = with_values(partitions);
        for (query, count) in [
            ("SELECT c.id FROM c ORDER BY c.a", 25),
            ("SELECT c.id FROM c ORDER BY c.a DESC", 25),
            ("SELECT c.id FROM c ORDER BY c.b", 25),
            ("SELECT c.id FROM c ORDER BY c.b DESC", 25),
            ("SELECT c.id FROM c WHERE c.b > 0 ORDER BY c.b DESC", 16),
            ("SELECT c.id FROM c ORDER BY c.a, c.b DESC, c.c", 25),
            ("SELECT c.id FROM c ORDER BY c.a DESC, c.b, c.c DESC", 25),
            ("SELECT c.id FROM c ORDER BY c.a, c.b, c.c", 25),
            ("SELECT c.id FROM c ORDER BY c.b, c.d", 25),
            ("SELECT c.id FROM c ORDER BY c.b DESC, c.d DESC", 25),
            ("SELECT c.id FROM c ORDER BY c.b, c.d DESC", 25),
            ("SELECT c.id FROM c ORDER BY c.b DESC, c.d", 25),
            ("SELECT c.id FROM c WHERE c.c > 3 ORDER BY c.b DESC, c.d", 21),
            // Twelve triples of values for 25 items.
            ("SELECT c.id FROM c ORDER BY c.b, c.d, c.e", 25),
            ("SELECT c.id FROM c ORDER BY c.b DESC, c.d DESC, c.e DESC", 25),
            ("SELECT c.id FROM c ORDER BY c.b, c.d DESC, c.e", 25),
            ("SELECT c.id FROM c ORDER BY c.b DESC, c.d, c.e DESC", 25),
            ("SELECT c.id FROM c ORDER BY c._ts", 25),
            ("SELECT c.id FROM c ORDER BY c._ts DESC", 25),
            ("SELECT c.id, n FROM c JOIN n IN c.list ORDER BY c.b", 50),
            ("SELECT c.id, n FROM c JOIN n IN c.list ORDER BY c.b DESC", 50),
            ("SELECT c.id FROM c ORDER BY c.doubled", 25),
            ("SELECT c.id FROM c ORDER BY c.doubled DESC", 25),
            ("SELECT DISTINCT c.id FROM c ORDER BY c.id", 25),
            // Through a subquery that hands the item on, or names its parts.
            ("SELECT VALUE s FROM (SELECT * FROM c WHERE c.c > 3) s ORDER BY s.id", 21),
            ("SELECT VALUE s.id FROM (SELECT VALUE c FROM c) s ORDER BY s.a DESC", 25),
            (
                "SELECT VALUE r.I FROM (SELECT c.id AS I, c.b AS F, c.d AS N FROM c) r ORDER BY r.F, r.N DESC",
                25,
            ),
            (
                "SELECT VALUE r.I FROM (SELECT VALUE {I: c.id, F: c.b, N: c.d} FROM c) r ORDER BY r.F DESC, r.N",
                25,
            ),
            ("SELECT DISTINCT c.id, c.b FROM c ORDER BY c.b DESC", 25),
        ] {
            check(&client, query, count);
        }
    }
}

/// With a `rid`, the row of that item is the first one, or is left out where the client says so. Of an item that is not
/// there any more the position remains.
#[test]
fn the_row_itself_is_left_out_on_request() {
    for partitions in [1, 5] {
        let client = with_values(partitions);
        for query in [
            "SELECT c.id FROM c ORDER BY c.b",
            "SELECT c.id FROM c ORDER BY c.b DESC",
            "SELECT c.id FROM c ORDER BY c.a, c.b, c.c",
        ] {
            let merge = Merge::new(&client, query);
            for range in 0..merge.ranges.len() {
                let all = merge.range(range, None, "-1");
                for (nth, row) in all.iter().enumerate() {
                    let values: Vec<Value> = order_values(row).iter().map(resume_value).collect();
                    let from = |exclude: bool| {
                        let mut filter: Object =
                            [("value", Value::Array(values.clone()))].into_iter().collect();
                        filter.set("rid", rid(row));
                        filter.set("exclude", exclude);
                        merge.range(range, Some(filter.into()), "2")
                    };
                    assert_eq!(from(false), all[nth..], "{query} from row {nth}");
                    assert_eq!(from(true), all[nth + 1..], "{query} after row {nth}");
                }
            }
        }
    }
}

/// By partition key and by a range of effective keys as well as by range id.
#[test]
fn filters_hold_in_every_scope() {
    let client = with_values(5);
    let merge = Merge::new(&client, "SELECT c.id FROM c ORDER BY c.b DESC");
    let one = [("x-ms-documentdb-partitionkey", "[\"3\"]")];
    let part = [("x-ms-start-epk", ""), ("x-ms-end-epk", "0C")];
    for scope in [&one[..], &part] {
        let rows = |filter: Option<Object>| {
            let mut body: Object = [("query", merge.query.as_str())].into_iter().collect();
            if let Some(filter) = filter {
                body.set("resumeFilter", filter);
            }
            let headers = [&[QUERY], scope].concat();
            rows_of(&client.must(200, "POST", DOCS, &headers, &Value::Object(body).to_json()))
        };
        let all = rows(None);
        assert!(all.len() > 2, "{scope:?}");
        for (nth, row) in all.iter().enumerate() {
            let mut filter: Object = [("value", Value::Array(order_values(row)))].into_iter().collect();
            filter.set("rid", rid(row));
            filter.set("exclude", true);
            assert_eq!(rows(Some(filter)), all[nth + 1..], "{scope:?} after row {nth}");
        }
    }
}

/// `exclude` is false where a client leaves it out.
#[test]
fn a_filter_without_exclude_includes_its_values() {
    let client = with_values(1);
    let merge = Merge::new(&client, "SELECT c.id FROM c ORDER BY c.c");
    let all = merge.range(0, None, "-1");
    let filter: Object = [("value", Value::Array(vec![Value::from(20)]))].into_iter().collect();
    assert_eq!(merge.range(0, Some(filter.into()), "-1"), all[20..]);
}

/// On the range with the most rows: ascending and descending, with ties, with and without a `rid`.
#[test]
fn of_filter_and_token_the_later_position_counts() {
    for (partitions, token_at) in [(1, 10), (5, 3)] {
        let client = with_values(partitions);
        for query in [
            "SELECT c.c FROM c ORDER BY c.c",
            "SELECT c.c FROM c ORDER BY c.c DESC",
            "SELECT DISTINCT c.c FROM c ORDER BY c.c",
            "SELECT c.c FROM c ORDER BY c.b, c.d DESC, c.e",
        ] {
            let merge = Merge::new(&client, query);
            let ranges = (0..merge.ranges.len()).map(|range| merge.range(range, None, "-1"));
            let (range, all) = ranges.enumerate().max_by_key(|(_, rows)| rows.len()).expect("a range");
            assert!(all.len() > token_at + 2, "{query}: {} rows", all.len());
            let size = token_at.to_string();
            let first = merge.send(range, None, &[("x-ms-max-item-count", &size)]);
            let token = first.header("x-ms-continuation").expect("more").to_owned();
            for (from, row) in all.iter().enumerate() {
                let values: Vec<Value> = order_values(row).iter().map(resume_value).collect();
                let is_equal = |other: &&Value| order_values(other) == order_values(row);
                let ties_before = all[..from].iter().rev().take_while(is_equal).count();
                let ties_after = all[from + 1..].iter().take_while(is_equal).count();
                for (rid, exclude, begins_at) in [
                    (None, false, from - ties_before),
                    (None, true, from + ties_after + 1),
                    (Some(rid(row)), false, from),
                    (Some(rid(row)), true, from + 1),
                ] {
                    let mut filter: Object = [("value", Value::Array(values.clone()))].into_iter().collect();
                    filter.set("exclude", exclude);
                    if let Some(rid) = rid {
                        filter.set("rid", rid);
                    }
                    let page = merge.send(range, Some(filter.into()), &[("x-ms-continuation", &token)]);
                    let expected = &all[begins_at.max(token_at)..];
                    assert_eq!(
                        rows_of(&page),
                        expected,
                        "{query} from {from} {rid:?} {exclude}: {}",
                        page.body
                    );
                }
            }
        }
    }
}

#[test]
fn invalid_resume_filters_are_refused() {
    let client = with_values(1);
    let ordered = "SELECT c._rid, [{\\\"item\\\": c.a}] AS orderByItems, c AS payload FROM c ORDER BY c.a";
    let plain = "SELECT * FROM c";
    for (query, filter) in [
        (ordered, r#"{"value":[1,2]}"#),
        (ordered, r#"{"value":[]}"#),
        (ordered, r#"{"value":7}"#),
        (ordered, r#"{}"#),
        (ordered, r#"7"#),
        (ordered, r#"{"value":[[1]]}"#),
        (ordered, r#"{"value":[{"type":"array","low":1}]}"#),
        (ordered, r#"{"value":[{"type":"map","low":1,"high":2}]}"#),
        (ordered, r#"{"value":[1],"rid":"nonsense"}"#),
        (ordered, r#"{"value":[1],"rid":"AAAAAQ=="}"#),
        (ordered, r#"{"value":[1],"rid":7}"#),
        (ordered, r#"{"value":[1],"exclude":"yes"}"#),
        (plain, r#"{"value":[1]}"#),
    ] {
        let body = format!(r#"{{"query":"{query}","resumeFilter":{filter}}}"#);
        let headers = [QUERY, ("x-ms-documentdb-partitionkeyrangeid", "0")];
        let answer = client.send("POST", DOCS, &headers, &body);
        assert_eq!(answer.status, 400, "{query} {filter}: {}", answer.body);
        assert!(answer.body.contains("resumeFilter"), "{}", answer.body);
    }
}

/// An older client writes the position into the filter of the query and sends the token back.
#[test]
fn a_token_holds_when_the_filter_in_the_text_changes() {
    let client = with_values(1);
    let rid = client.must(200, "GET", "/dbs/d/colls/c", &[], "");
    let rid = text_at(&parse(&rid.body), "_rid");
    let range = format!("{rid},0");
    let old = [
        QUERY,
        ("x-ms-version", "2018-09-17"),
        ("x-ms-documentdb-partitionkeyrangeid", range.as_str()),
        ("x-ms-max-item-count", "5"),
    ];
    let text = |filter: &str, order: &str| {
        format!(r#"{{"query":"SELECT VALUE c.c FROM c WHERE ({filter}) ORDER BY {order}"}}"#)
    };
    let first = client.must(200, "POST", DOCS, &old, &text("true", "c.c"));
    assert_eq!(rows_of(&first), (0..5).map(Value::from).collect::<Vec<_>>());
    let token = first.header("x-ms-continuation").expect("more").to_owned();
    let with = |token: &str, body: &str| {
        let headers = [&old[..], &[("x-ms-continuation", token)]].concat();
        client.send("POST", DOCS, &headers, body)
    };
    let next = with(&token, &text("c.c >= 4", "c.c"));
    assert_eq!(next.status, 200, "{}", next.body);
    assert_eq!(rows_of(&next), (5..10).map(Value::from).collect::<Vec<_>>());
    // Bound to the columns, their directions, and the range.
    for order in ["c.b", "c.c DESC"] {
        assert_eq!(with(&token, &text("true", order)).status, 400, "{order}");
    }
    let counted = r#"{"query":"SELECT c.b, COUNT(1) AS n FROM c GROUP BY c.b"}"#;
    let one = [&old[..3], &[("x-ms-max-item-count", "1")]].concat();
    let token =
        client.must(200, "POST", DOCS, &one, counted).header("x-ms-continuation").expect("more").to_owned();
    let other = with(&token, r#"{"query":"SELECT c.a, COUNT(1) AS n FROM c GROUP BY c.a"}"#);
    assert_eq!(other.status, 400, "a count of rows belongs to one text: {}", other.body);
}
