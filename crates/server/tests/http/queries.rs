use expect_test::expect;

use crate::client::Client;

const DOCS: &str = "/dbs/d/colls/c/docs";
const QUERY: (&str, &str) = ("x-ms-documentdb-isquery", "True");
const PLAN: (&str, &str) = ("x-ms-cosmos-is-query-plan-request", "True");

fn with_items(partitions: u32) -> Client {
    let client = Client::with_container(partitions);
    for number in 0..4 {
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
        &[QUERY],
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
    let by_type = [("content-type", "application/query+json")];
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
        x-ms-request-charge: 2.86
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
fn metrics_when_asked_for() {
    let client = with_items(1);
    let headers = [
        QUERY,
        ("x-ms-documentdb-populatequerymetrics", "True"),
        ("x-ms-cosmos-populateindexmetrics", "True"),
    ];
    let answer = client.must(200, "POST", DOCS, &headers, r#"{"query":"SELECT * FROM c"}"#);
    let metrics = answer.header("x-ms-documentdb-query-metrics").expect("metrics");
    assert!(metrics.starts_with("totalExecutionTimeInMs=") && !metrics.ends_with(';'), "{metrics}");
    assert!(metrics.contains(";retrievedDocumentCount=4;"), "{metrics}");
    assert!(metrics.contains(";outputDocumentCount=4;"), "{metrics}");
    let index = answer.header("x-ms-cosmos-index-utilization").expect("index metrics");
    assert!(index.starts_with("eyJ"), "base64 of JSON: {index}");
    let v2 = [QUERY, ("x-ms-cosmos-populateindexmetrics-V2", "true")];
    let answer = client.must(200, "POST", DOCS, &v2, r#"{"query":"SELECT * FROM c"}"#);
    let index = answer.header("x-ms-cosmos-index-utilization").expect("index metrics");
    assert!(index.starts_with("%7B%22UtilizedIndexes"), "URL-encoded JSON: {index}");
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
        client.check("POST", DOCS, &[QUERY], body, expect);
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
    let sized = |size| [QUERY, ("x-ms-max-item-count", size)];
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
        let headers = [QUERY, ("x-ms-max-item-count", "1"), ("x-ms-continuation", continuation.as_str())];
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

#[test]
fn whole_queries_over_several_partitions() {
    let client = with_items(3);
    let ordered = r#"{"query":"SELECT VALUE c.n FROM c ORDER BY c.n DESC"}"#;
    let page = client.must(200, "POST", DOCS, &[QUERY], ordered);
    assert!(page.body.contains("\"Documents\":[3,2,1,0]"), "{}", page.body);
    let counted = r#"{"query":"SELECT VALUE COUNT(1) FROM c"}"#;
    let page = client.must(200, "POST", DOCS, &[QUERY], counted);
    assert!(page.body.contains("\"Documents\":[4]"), "{}", page.body);
}

#[test]
fn plans() {
    let one = with_items(1);
    let ordered = r#"{"query":"SELECT * FROM c ORDER BY c.n"}"#;
    one.check("POST", DOCS, &[PLAN], ordered, expect![[r#"
        200
        content-length: 450
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-request-charge: 0

        {"partitionedQueryExecutionInfoVersion":2,"queryInfo":{"distinctType":"None","top":null,"offset":null,"limit":null,"orderBy":[],"orderByExpressions":[],"groupByExpressions":[],"groupByAliases":[],"aggregates":[],"groupByAliasToAggregateType":{},"rewrittenQuery":"","hasSelectValue":false,"dCountInfo":null,"hasNonStreamingOrderBy":false},"queryRanges":[{"min":"","max":"FF","isMinInclusive":true,"isMaxInclusive":false}],"hybridSearchQueryInfo":null}
    "#]]);
    one.check("POST", DOCS, &[PLAN], r#"{"query":"SELECT FROM c"}"#, expect![[r#"
        400
        content-length: 304
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-request-charge: 0

        {"code":"BadRequest","message":"Gateway Failed to Retrieve Query Plan: Message: {\"errors\":[{\"severity\":\"Error\",\"location\":{\"start\":7,\"end\":11},\"code\":\"SC1001\",\"message\":\"Syntax error, incorrect syntax near 'FROM'.\"}]}\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);

    let several = with_items(3);
    let top = r#"{"query":"SELECT TOP 3 c.id FROM c"}"#;
    several.check("POST", DOCS, &[PLAN], top, expect![[r#"
        400
        content-length: 282
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"Query contains 1 or more unsupported features. Upgrade your SDK to a version that does support the requested features:\nQuery contained Top, which the calling client does not support.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    let features = ("x-ms-cosmos-supported-query-features", "OrderBy, Top");
    let plan = several.must(200, "POST", DOCS, &[PLAN, features], top);
    assert!(plan.body.contains("\"top\":3,"), "{}", plan.body);
    several.check("POST", DOCS, &[PLAN, features], ordered, expect![[r#"
        200
        content-length: 603
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-request-charge: 0

        {"partitionedQueryExecutionInfoVersion":2,"queryInfo":{"distinctType":"None","top":null,"offset":null,"limit":null,"orderBy":["Ascending"],"orderByExpressions":["c.n"],"groupByExpressions":[],"groupByAliases":[],"aggregates":[],"groupByAliasToAggregateType":{},"rewrittenQuery":"SELECT c._rid, [{\"item\": c.n}] AS orderByItems, c AS payload\nFROM c\nWHERE ({documentdb-formattableorderbyquery-filter})\nORDER BY c.n","hasSelectValue":false,"dCountInfo":null,"hasNonStreamingOrderBy":false},"queryRanges":[{"min":"","max":"FF","isMinInclusive":true,"isMaxInclusive":false}],"hybridSearchQueryInfo":null}
    "#]]);
    let limited =
        r#"{"query":"SELECT c.id FROM c OFFSET 1 LIMIT @n","parameters":[{"name":"@n","value":2}]}"#;
    let features = ("x-ms-cosmos-supported-query-features", "OffsetAndLimit,OrderBy");
    let plan = several.must(200, "POST", DOCS, &[PLAN, features], limited);
    let info = "\"top\":null,\"offset\":1,\"limit\":2,";
    let rewritten = r#""rewrittenQuery":"SELECT c.id\nFROM c\nOFFSET 0 LIMIT 3""#;
    assert!(plan.body.contains(info) && plan.body.contains(rewritten), "{}", plan.body);
    for (query, feature) in [
        ("SELECT DISTINCT c.n FROM c ORDER BY c.n", "Distinct"),
        ("SELECT c.n, COUNT(1) FROM c GROUP BY c.n", "GroupBy"),
        ("SELECT VALUE SUM(c.n) FROM c", "Aggregate"),
    ] {
        let answer =
            several.must(400, "POST", DOCS, &[PLAN, features], &format!("{{\"query\":\"{query}\"}}"));
        let message = format!("Query contained {feature}, which the calling client does not support.");
        assert!(answer.body.contains(&message), "{}", answer.body);
    }
    several.must(200, "POST", DOCS, &[PLAN], r#"{"query":"SELECT c.id FROM c WHERE c.n > 1"}"#);
    several.must(200, "POST", DOCS, &[PLAN, ("x-ms-documentdb-partitionkey", "[\"1\"]")], ordered);
}
