//! Queries over HTTP: answers, headers, pages, errors.

use expect_test::expect;

use crate::client::Client;

pub const DOCS: &str = "/dbs/d/colls/c/docs";
pub const QUERY: (&str, &str) = ("x-ms-documentdb-isquery", "True");
pub const CROSS: (&str, &str) = ("x-ms-documentdb-query-enablecrosspartition", "True");
pub const ANYWHERE: [(&str, &str); 2] = [QUERY, CROSS];
pub const PLAN: (&str, &str) = ("x-ms-cosmos-is-query-plan-request", "True");

pub fn with_items(partitions: u32) -> Client {
    with_items_up_to(partitions, 4)
}

pub fn with_items_up_to(partitions: u32, count: usize) -> Client {
    let client = Client::with_container(partitions);
    for number in 0..count {
        let pk = format!("[\"{number}\"]");
        let body = format!(r#"{{"id":"i{number}","pk":"{number}","n":{number}}}"#);
        client.must(201, "POST", DOCS, &[("x-ms-documentdb-partitionkey", &pk)], &body);
    }
    client
}

#[test]
fn a_query_and_its_headers() {
    let client = with_items(1);
    let query = r#"{"query":"SELECT c.id FROM c WHERE c.n >= @n","parameters":[{"name":"@n","value":2}]}"#;
    client.check(
        "POST",
        DOCS,
        &ANYWHERE,
        query,
        expect![[r#"
        200
        content-length: 72
        content-type: application/json
        lsn: 4
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 4
        x-ms-cosmos-query-execution-info: {"reverseRidEnabled":false,"reverseIndexScan":false}
        x-ms-cosmos-quorum-acked-llsn: 4
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 4
        x-ms-item-count: 2
        x-ms-quorum-acked-lsn: 4
        x-ms-request-charge: 2.96
        x-ms-session-token: 0:-1#4

        {"_rid":"AAAAAYAAAAE=","Documents":[{"id":"i2"},{"id":"i3"}],"_count":2}
    "#]],
    );
    let by_type = [("content-type", "application/query+json"), CROSS];
    client.check(
        "POST",
        DOCS,
        &by_type,
        r#"{"query":"SELECT VALUE c.n FROM c WHERE c.n = 3"}"#,
        expect![[r#"
            200
            content-length: 50
            content-type: application/json
            lsn: 4
            x-ms-alt-content-path: dbs/d/colls/c
            x-ms-content-path: AAAAAYAAAAE=
            x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
            x-ms-cosmos-llsn: 4
            x-ms-cosmos-query-execution-info: {"reverseRidEnabled":false,"reverseIndexScan":false}
            x-ms-cosmos-quorum-acked-llsn: 4
            x-ms-documentdb-partitionkeyrangeid: 0
            x-ms-global-committed-lsn: 4
            x-ms-item-count: 1
            x-ms-quorum-acked-lsn: 4
            x-ms-request-charge: 2.67
            x-ms-session-token: 0:-1#4

            {"_rid":"AAAAAYAAAAE=","Documents":[3],"_count":1}
        "#]],
    );
    let scoped = [QUERY, ("x-ms-documentdb-partitionkey", "[\"1\"]")];
    client.check(
        "POST",
        DOCS,
        &scoped,
        r#"{"query":"SELECT VALUE c.n FROM c"}"#,
        expect![[r#"
        200
        content-length: 50
        content-type: application/json
        lsn: 4
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 4
        x-ms-cosmos-query-execution-info: {"reverseRidEnabled":false,"reverseIndexScan":false}
        x-ms-cosmos-quorum-acked-llsn: 4
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 4
        x-ms-item-count: 1
        x-ms-quorum-acked-lsn: 4
        x-ms-request-charge: 2.67
        x-ms-session-token: 0:-1#4

        {"_rid":"AAAAAYAAAAE=","Documents":[1],"_count":1}
    "#]],
    );
}

#[test]
fn advice_is_not_given() {
    let client = with_items(1);
    let query = r#"{"query":"SELECT VALUE c.id FROM c WHERE CONTAINS(c.id, '1')"}"#;
    let plain = client.must(200, "POST", DOCS, &ANYWHERE, query);
    let headers = [&ANYWHERE[..], &[("x-ms-cosmos-populatequeryadvice", "True")]].concat();
    let with_advice = client.must(200, "POST", DOCS, &headers, query);
    assert_eq!((with_advice.header("x-ms-cosmos-query-advice"), &with_advice.body), (None, &plain.body));
}

#[test]
fn metrics_on_request() {
    let client = with_items(1);
    let headers = [
        QUERY,
        CROSS,
        ("x-ms-documentdb-populatequerymetrics", "True"),
        ("x-ms-cosmos-populateindexmetrics", "True"),
    ];
    let answer = client.must(200, "POST", DOCS, &headers, r#"{"query":"SELECT * FROM c"}"#);
    let metrics = answer.header("x-ms-documentdb-query-metrics").expect("metrics");
    assert!(metrics.starts_with("totalExecutionTimeInMs=") && !metrics.ends_with(';'), "{metrics}");
    assert!(metrics.contains(";retrievedDocumentCount=4;"), "{metrics}");
    assert!(metrics.contains(";outputDocumentCount=4;"), "{metrics}");
    // Nothing is filtered, so no index serves it; the next one is served by one.
    let index = answer.header("x-ms-cosmos-index-utilization").expect("index metrics");
    expect![[r#"{"UtilizedSingleIndexes":[],"PotentialSingleIndexes":[],"UtilizedCompositeIndexes":[],"PotentialCompositeIndexes":[]}"#]].assert_eq(&from_base64(index));
    let filtered = r#"{"query":"SELECT * FROM c WHERE c.n >= 1"}"#;
    let answer = client.must(200, "POST", DOCS, &headers, filtered);
    let index = answer.header("x-ms-cosmos-index-utilization").expect("index metrics");
    expect![[r#"{"UtilizedSingleIndexes":[{"FilterExpression":"","IndexSpec":"/n/?","FilterPreciseSet":true,"IndexPreciseSet":true,"IndexImpactScore":"High"}],"PotentialSingleIndexes":[],"UtilizedCompositeIndexes":[],"PotentialCompositeIndexes":[]}"#]].assert_eq(&from_base64(index));
    let v2 = [QUERY, CROSS, ("x-ms-cosmos-populateindexmetrics-V2", "true")];
    let answer = client.must(200, "POST", DOCS, &v2, filtered);
    let index = answer.header("x-ms-cosmos-index-utilization").expect("index metrics");
    let index = percent_encoding::percent_decode_str(index).decode_utf8_lossy().into_owned();
    expect![[r#"{"UtilizedIndexes":{"SingleIndexes":[{"IndexSpec":"/n/?"}],"CompositeIndexes":[]},"PotentialIndexes":{"SingleIndexes":[],"CompositeIndexes":[]}}"#]].assert_eq(&index);
    let answer = client.must(200, "POST", DOCS, &ANYWHERE, filtered);
    assert_eq!(answer.header("x-ms-cosmos-index-utilization"), None);
}

fn from_base64(text: &str) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
    String::from_utf8(bytes).expect("text")
}

#[test]
fn bad_queries() {
    let client = with_items(1);
    for (body, expect) in [
        (
            r#"{"query":"SELECT FROM c"}"#,
            expect![[r#"
                400
                content-length: 265
                content-type: application/json
                lsn: 4
                x-ms-alt-content-path: dbs/d/colls/c
                x-ms-content-path: AAAAAYAAAAE=
                x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
                x-ms-cosmos-llsn: 4
                x-ms-cosmos-quorum-acked-llsn: 4
                x-ms-documentdb-partitionkeyrangeid: 0
                x-ms-global-committed-lsn: 4
                x-ms-quorum-acked-lsn: 4
                x-ms-request-charge: 1
                x-ms-session-token: 0:-1#4

                {"code":"BadRequest","message":"Message: {\"errors\":[{\"severity\":\"Error\",\"location\":{\"start\":7,\"end\":11},\"code\":\"SC1001\",\"message\":\"Syntax error, incorrect syntax near 'FROM'.\"}]}\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
            "#]],
        ),
        (
            r#"{"query":""}"#,
            expect![[r#"
                400
                content-length: 258
                content-type: application/json
                lsn: 4
                x-ms-alt-content-path: dbs/d/colls/c
                x-ms-content-path: AAAAAYAAAAE=
                x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
                x-ms-cosmos-llsn: 4
                x-ms-cosmos-quorum-acked-llsn: 4
                x-ms-documentdb-partitionkeyrangeid: 0
                x-ms-global-committed-lsn: 4
                x-ms-quorum-acked-lsn: 4
                x-ms-request-charge: 1
                x-ms-session-token: 0:-1#4

                {"code":"BadRequest","message":"Message: {\"errors\":[{\"severity\":\"Error\",\"location\":{\"start\":0,\"end\":0},\"code\":\"SC1002\",\"message\":\"Syntax error, unexpected end-of-file.\"}]}\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
            "#]],
        ),
        (
            r#"{"query":"SELECT BADFUNC(c.x) FROM c"}"#,
            expect![[r#"
                400
                content-length: 275
                content-type: application/json
                lsn: 4
                x-ms-alt-content-path: dbs/d/colls/c
                x-ms-content-path: AAAAAYAAAAE=
                x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
                x-ms-cosmos-llsn: 4
                x-ms-cosmos-quorum-acked-llsn: 4
                x-ms-documentdb-partitionkeyrangeid: 0
                x-ms-global-committed-lsn: 4
                x-ms-quorum-acked-lsn: 4
                x-ms-request-charge: 1
                x-ms-session-token: 0:-1#4

                {"code":"BadRequest","message":"Message: {\"errors\":[{\"severity\":\"Error\",\"location\":{\"start\":7,\"end\":14},\"code\":\"SC2005\",\"message\":\"'BADFUNC' is not a recognized built-in function name.\"}]}\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
            "#]],
        ),
        (
            r#"{"query":7}"#,
            expect![[r#"
            400
            content-length: 148
            content-type: application/json
            x-ms-request-charge: 1

            {"code":"BadRequest","message":"The 'query' of the request body must be a string.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
        "#]],
        ),
        (
            r#"{"parameters":[]}"#,
            expect![[r#"
            400
            content-length: 185
            content-type: application/json
            x-ms-request-charge: 1

            {"code":"BadRequest","message":"The input content is invalid because the required properties - 'query; ' - are missing\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
        "#]],
        ),
        (
            r#"{"query":"SELECT 1","parameters":{}}"#,
            expect![[r#"
            400
            content-length: 153
            content-type: application/json
            x-ms-request-charge: 1

            {"code":"BadRequest","message":"The 'parameters' of the request body must be an array.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
        "#]],
        ),
        (
            r#"{"query":"SELECT 1","parameters":[{"value":1}]}"#,
            expect![[r#"
            400
            content-length: 157
            content-type: application/json
            x-ms-request-charge: 1

            {"code":"BadRequest","message":"Every query parameter must have a 'name' that is a string.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
        "#]],
        ),
        (
            r#"{"query":"SELECT 1","parameters":[{"name":"x"}]}"#,
            expect![[r#"
            400
            content-length: 163
            content-type: application/json
            x-ms-request-charge: 1

            {"code":"BadRequest","message":"Specified parameter name 'x' is invalid: it must begin with '@'.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
        "#]],
        ),
        (
            r#"{"query":"SELECT 1","parameters":[{"name":"@x"},{"name":"@x"}]}"#,
            expect![[r#"
            400
            content-length: 139
            content-type: application/json
            x-ms-request-charge: 1

            {"code":"BadRequest","message":"Specified duplicate parameter name '@x'.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
        "#]],
        ),
        (
            "SELECT 1",
            expect![[r#"
                400
                content-length: 218
                content-type: application/json
                x-ms-request-charge: 1

                {"code":"BadRequest","message":"The request payload is invalid. Ensure to provide a valid request payload. (malformed JSON at byte 0: expected a value)\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
            "#]],
        ),
    ] {
        client.check("POST", DOCS, &ANYWHERE, body, expect);
    }
    // The same body without the header or the content type is an item.
    client.check("POST", DOCS, &[], r#"{"query":"SELECT 1"}"#, expect![[r#"
        400
        content-length: 182
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The input content is invalid because the required properties - 'id; ' - are missing\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}

#[test]
fn page_sizes() {
    let client = with_items(2);
    let all = r#"{"query":"SELECT VALUE c.n FROM c"}"#;
    let sized = |size| [QUERY, CROSS, ("x-ms-max-item-count", size)];
    for size in ["-1", "0", "4", "5000"] {
        let page = client.must(200, "POST", DOCS, &sized(size), all);
        assert_eq!(
            (page.header("x-ms-item-count"), page.header("x-ms-continuation")),
            (Some("4"), None),
            "{size}"
        );
    }
    for size in ["abc", "-2", "1.5", ""] {
        let answer = client.send("POST", DOCS, &sized(size), all);
        assert!(
            answer.status == 400 && answer.body.contains("The input PageSize"),
            "{size}: {}",
            answer.body
        );
    }
    let mut rows = Vec::new();
    let mut continuation = String::new();
    loop {
        let headers =
            [QUERY, CROSS, ("x-ms-max-item-count", "1"), ("x-ms-continuation", continuation.as_str())];
        let page = client.must(200, "POST", DOCS, &headers, all);
        let list = page.body.split("\"Documents\":[").nth(1).and_then(|rest| rest.split(']').next());
        rows.extend(list.unwrap_or_default().split(',').filter(|row| !row.is_empty()).map(str::to_owned));
        match page.header("x-ms-continuation") {
            Some(token) => continuation = token.to_owned(),
            None => break,
        }
    }
    rows.sort();
    assert_eq!(rows, ["0", "1", "2", "3"]);
}

/// Queries that the gateway leaves to clients, with one partition or several.
#[test]
fn queries_that_clients_merge() {
    for partitions in [1, 3] {
        let client = with_items(partitions);
        for query in [
            "SELECT VALUE c.n FROM c ORDER BY c.n DESC",
            "SELECT TOP 2 * FROM c",
            "SELECT * FROM c OFFSET 1 LIMIT 2",
            "SELECT DISTINCT c.n FROM c",
            "SELECT VALUE COUNT(1) FROM c",
            "SELECT * FROM c WHERE c.pk = '1' ORDER BY c.n",
        ] {
            let body = format!("{{\"query\":\"{query}\"}}");
            let answer = client.must(400, "POST", DOCS, &ANYWHERE, &body);
            assert_eq!(answer.header("x-ms-substatus"), Some("1004"), "{query}");
            let info = "\"additionalErrorInfo\":\"{\\\"partitionedQueryExecutionInfoVersion\\\":2,";
            assert!(answer.body.contains(info), "{}", answer.body);
            // With a key or a partition the server runs it.
            client.must(200, "POST", DOCS, &[QUERY, ("x-ms-documentdb-partitionkey", "[\"1\"]")], &body);
            client.must(200, "POST", DOCS, &[QUERY, ("x-ms-documentdb-partitionkeyrangeid", "0")], &body);
        }
        for query in ["SELECT COUNT(1) FROM c", "SELECT c.pk, MAX(c.n) AS n FROM c GROUP BY c.pk"] {
            let body = format!("{{\"query\":\"{query}\"}}");
            let answer = client.must(400, "POST", DOCS, &ANYWHERE, &body);
            assert_eq!(answer.header("x-ms-substatus"), None);
            let message = "Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates.";
            assert!(answer.body.contains(message), "{}", answer.body);
            client.must(200, "POST", DOCS, &[QUERY, ("x-ms-documentdb-partitionkey", "[\"1\"]")], &body);
        }
    }
    with_items(1).check(
        "POST",
        DOCS,
        &ANYWHERE,
        r#"{"query":"SELECT TOP 1 * FROM c"}"#,
        expect![[r#"
            400
            content-length: 961
            content-type: application/json
            lsn: 4
            x-ms-alt-content-path: dbs/d/colls/c
            x-ms-content-path: AAAAAYAAAAE=
            x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
            x-ms-cosmos-llsn: 4
            x-ms-cosmos-quorum-acked-llsn: 4
            x-ms-documentdb-partitionkeyrangeid: 0
            x-ms-global-committed-lsn: 4
            x-ms-quorum-acked-lsn: 4
            x-ms-request-charge: 1
            x-ms-session-token: 0:-1#4
            x-ms-substatus: 1004

            {"code":"BadRequest","message":"The provided cross partition query can not be directly served by the gateway. This is a first chance (internal) exception that all newer clients will know how to handle gracefully. This exception is traced, but unless you see it bubble up as an exception (which only happens on older SDK clients), then you can safely ignore this message.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT","additionalErrorInfo":"{\"partitionedQueryExecutionInfoVersion\":2,\"queryInfo\":{\"distinctType\":\"None\",\"top\":1,\"offset\":null,\"limit\":null,\"orderBy\":[],\"orderByExpressions\":[],\"groupByExpressions\":[],\"groupByAliases\":[],\"aggregates\":[],\"groupByAliasToAggregateType\":{},\"rewrittenQuery\":\"\",\"hasSelectValue\":false,\"dCountInfo\":null,\"hasNonStreamingOrderBy\":false},\"queryRanges\":[{\"min\":\"\",\"max\":\"FF\",\"isMinInclusive\":true,\"isMaxInclusive\":false}],\"hybridSearchQueryInfo\":null}"}
        "#]],
    );
}

#[test]
fn queries_over_everything_say_so() {
    let client = with_items(3);
    let refused = |query: &str, headers: &[(&str, &str)]| {
        let answer = client.send("POST", DOCS, headers, &format!("{{\"query\":\"{query}\"}}"));
        assert!(
            answer.status == 200 || answer.body.contains("Cross partition query is required but disabled."),
            "{}",
            answer.body
        );
        answer.status == 400
    };
    assert!(refused("SELECT * FROM c", &[QUERY]));
    assert!(refused("SELECT * FROM c", &[QUERY, ("x-ms-documentdb-query-enablecrosspartition", "False")]));
    assert!(refused("SELECT * FROM c WHERE c.pk IN ('1', '2')", &[QUERY]));
    assert!(!refused("SELECT * FROM c", &ANYWHERE));
    assert!(!refused("SELECT * FROM c WHERE c.pk = '1'", &[QUERY]));
    assert!(!refused("SELECT 1", &[QUERY]));
    assert!(!refused("SELECT * FROM c", &[QUERY, ("x-ms-documentdb-partitionkeyrangeid", "2")]));
    // Ranges count by the partitions they touch.
    let range = |end| [QUERY, ("x-ms-start-epk", ""), ("x-ms-end-epk", end)];
    assert!(!refused("SELECT * FROM c", &range("10")));
    assert!(refused("SELECT * FROM c", &range("FF")));
}

/// Every partition returns its part; the parts are disjoint and complete.
#[test]
fn partitions_and_ranges_cut_the_container() {
    let client = with_items(3);
    let count = |headers: &[(&str, &str)]| -> usize {
        let body = r#"{"query":"SELECT VALUE COUNT(1) FROM c"}"#;
        let page = client.must(200, "POST", DOCS, headers, body);
        let rows = page.body.split("\"Documents\":[").nth(1).and_then(|rest| rest.split(']').next());
        rows.and_then(|count| count.parse().ok()).expect("a count")
    };
    let by_id = |id| count(&[QUERY, ("x-ms-documentdb-partitionkeyrangeid", id)]);
    assert_eq!(by_id("0") + by_id("1") + by_id("2"), 4);
    let within = |id, start, end| {
        let kind = ("x-ms-read-key-type", "EffectivePartitionKeyRange");
        let id = ("x-ms-documentdb-partitionkeyrangeid", id);
        count(&[QUERY, kind, id, ("x-ms-start-epk", start), ("x-ms-end-epk", end)])
    };
    for id in ["0", "1", "2"] {
        assert_eq!(within(id, "", "FF"), by_id(id));
        assert_eq!(within(id, "", "1F") + within(id, "1F", "FF"), by_id(id));
    }
    let gone = [QUERY, ("x-ms-documentdb-partitionkeyrangeid", "7")];
    let answer = client.must(410, "POST", DOCS, &gone, r#"{"query":"SELECT 1"}"#);
    assert_eq!(answer.header("x-ms-substatus"), Some("1002"));
}

/// Index metrics name the partition key of a request that has one.
#[test]
fn index_metrics_name_the_partition_key() {
    let client = with_items(3);
    let headers =
        [QUERY, ("x-ms-documentdb-partitionkey", "[\"1\"]"), ("x-ms-cosmos-populateindexmetrics-v2", "true")];
    let page = client.must(200, "POST", DOCS, &headers, r#"{"query":"SELECT * FROM c"}"#);
    let metrics = page.header("x-ms-cosmos-index-utilization").expect("metrics");
    let metrics = percent_encoding::percent_decode_str(metrics).decode_utf8_lossy();
    assert!(metrics.contains(r#""SingleIndexes":[{"IndexSpec":"/pk/?"}]"#), "{metrics}");
}

#[test]
fn headers_of_our_own() {
    let client = with_items(3);
    let whole = [QUERY, ("x-quire-whole", "true")];
    let groups = r#"{"query":"SELECT VALUE COUNT(1) FROM c GROUP BY c.n > 1"}"#;
    let page = client.must(200, "POST", DOCS, &whole, groups);
    assert!(page.body.contains("\"Documents\":[2,2]"), "{}", page.body);
    let ordered = r#"{"query":"SELECT VALUE c.n FROM c WHERE c.n >= 1 ORDER BY c.n DESC"}"#;
    let page = client.must(200, "POST", DOCS, &whole, ordered);
    assert!(page.body.contains("\"Documents\":[3,2,1],\"_count\":3}"), "{}", page.body);
    assert_eq!(page.header("x-quire-explain"), None);
    let explained = [QUERY, ("x-quire-whole", "true"), ("x-quire-explain", "True")];
    let page = client.must(200, "POST", DOCS, &explained, ordered);
    let text =
        page.body.split("\"_count\":3,\"_explain\":\"").nth(1).and_then(|rest| rest.strip_suffix("\"}"));
    let text =
        text.unwrap_or_else(|| panic!("no plan in {}", page.body)).replace("\\n", "\n").replace("\\\"", "\"");
    let header = page.header("x-quire-explain").expect("a small plan is a header, too");
    assert_eq!(percent_encoding::percent_decode_str(header).decode_utf8_lossy(), text);
    assert!(text.contains("/n"), "{text}");
}

/// Clients store one session token per range: they cannot store one that names several, or none.
#[test]
fn an_answer_names_exactly_one_range() {
    let client = Client::with_container(5);
    for number in 0..20 {
        let pk = format!("[\"{number}\"]");
        let body = format!(r#"{{"id":"i{number}","pk":"{number}","n":{number}}}"#);
        client.must(201, "POST", DOCS, &[("x-ms-documentdb-partitionkey", &pk)], &body);
    }
    let is_one = |token: Option<&str>| token.is_some_and(|token| token.matches(':').count() == 1);
    for (method, path) in [("GET", "/dbs/d/colls/c"), ("GET", "/dbs/d/colls/c/pkranges"), ("GET", DOCS)] {
        let answer = client.must(200, method, path, &[], "");
        assert!(is_one(answer.header("x-ms-session-token")), "{path}: {answer:?}");
    }
    let feed = client.must(200, "GET", DOCS, &[("a-im", "Incremental feed")], "");
    assert!(is_one(feed.header("x-ms-session-token")), "{feed:?}");
    // One row at a time: each page names the range that its row came from, and the token is the gateway's.
    let (mut token, mut seen) = (String::new(), 0);
    loop {
        let headers = [QUERY, CROSS, ("x-ms-max-item-count", "1"), ("x-ms-continuation", token.as_str())];
        let page = client.must(200, "POST", DOCS, &headers, r#"{"query":"SELECT * FROM c"}"#);
        let session = page.header("x-ms-session-token").expect("a session token");
        let range = session.split(':').next().unwrap_or_default();
        let documents = page.body.split("\"pk\":\"").nth(1).and_then(|rest| rest.split('"').next());
        if let Some(pk) = documents {
            let key = format!("[\"{pk}\"]");
            let own = [("x-ms-documentdb-partitionkey", key.as_str())];
            let item = client.must(200, "GET", &format!("{DOCS}/i{pk}"), &own, "");
            assert_eq!(item.header("x-ms-documentdb-partitionkeyrangeid"), Some(range));
            seen += 1;
        }
        match page.header("x-ms-continuation") {
            Some(next) => token = next.to_owned(),
            None => break,
        }
        assert!(token.starts_with(r#"{"token":""#), "{token}");
        assert!(token.contains(r#""range":{"min":""#) && token.contains(r#""max":""#), "{token}");
    }
    assert_eq!(seen, 20);
    // A request may name all of them.
    let all = [QUERY, CROSS, ("x-ms-session-token", "0:-1#1,1:-1#0,2:-1#1")];
    client.must(200, "POST", DOCS, &all, r#"{"query":"SELECT * FROM c"}"#);
}
