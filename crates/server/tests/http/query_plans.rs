//! Plans for clients that run a query on several partitions themselves, and what they run.

use expect_test::expect;

use crate::client::{Answer, Client};
use crate::queries::{CROSS, DOCS, PLAN, QUERY, with_items, with_items_up_to};

const EVERYTHING: &str = "Aggregate, Distinct, GroupBy, MultipleAggregates, MultipleOrderBy, OffsetAndLimit, OrderBy, Top, \
    NonValueAggregate, DCount, NonStreamingOrderBy, CountIf, HybridSearch, WeightedRankFusion";

#[test]
fn plans() {
    let one = with_items(1);
    let ordered = r#"{"query":"SELECT * FROM c ORDER BY c.n"}"#;
    one.check("POST", DOCS, &[PLAN], ordered, expect![[r#"
        400
        content-length: 286
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"Query contains 1 or more unsupported features. Upgrade your SDK to a version that does support the requested features:\nQuery contained OrderBy, which the calling client does not support.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
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
    // The same plan for every part of the container.
    let features = ("x-ms-cosmos-supported-query-features", EVERYTHING);
    for query in [
        "SELECT TOP 3 * FROM c ORDER BY c.n",
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT DISTINCT VALUE c.n FROM c",
        "SELECT c.n, COUNT(1) AS k FROM c GROUP BY c.n",
        "SELECT VALUE c.n FROM c",
        "SELECT VALUE MAKELIST(c.n) FROM c",
    ] {
        let body = format!("{{\"query\":\"{query}\"}}");
        let info = |headers: &[(&str, &str)]| {
            let headers: Vec<(&str, &str)> =
                [PLAN, features].into_iter().chain(headers.iter().copied()).collect();
            let plan = several.must(200, "POST", DOCS, &headers, &body).body;
            plan.split("\"queryRanges\"").next().expect("a part").to_owned()
        };
        let plain = info(&[]);
        assert_eq!(plain.contains("\"hasSelectValue\":true"), query.contains("VALUE"), "{plain}");
        assert_eq!(info(&[("x-ms-documentdb-partitionkey", "[\"1\"]")]), plain, "{query}");
        assert_eq!(info(&[("x-ms-documentdb-partitionkeyrangeid", "1")]), plain, "{query}");
        assert_eq!(info(&[("x-ms-start-epk", ""), ("x-ms-end-epk", "1F")]), plain, "{query}");
    }
}

/// Some clients refuse a plan with both, and overflow by a count beyond 31 bits.
#[test]
fn a_plan_of_ranks_has_no_query_info() {
    let client = with_items(3);
    let features = ("x-ms-cosmos-supported-query-features", EVERYTHING);
    let body =
        r#"{"query":"SELECT c.id FROM c ORDER BY RANK FullTextScore(c.a, 'x') OFFSET 1 LIMIT 2147483647"}"#;
    let plan = client.must(200, "POST", DOCS, &[PLAN, features], body).body;
    assert!(!plan.contains("\"queryInfo\":") && plan.contains("\"hybridSearchQueryInfo\":{"), "{plan}");
    assert!(plan.contains("\"skip\":1,\"take\":2147483647"), "{plan}");
    assert!(plan.contains("LIMIT 2147483647\"") && !plan.contains("2147483648"), "{plan}");
}

/// A subquery in FROM that needs all items: no client could merge it, so it is served here.
#[test]
fn subqueries_over_all_partitions_are_served_whole() {
    for partitions in [1, 3] {
        let client = with_items(partitions);
        for (query, expected) in [
            ("SELECT VALUE r FROM (SELECT DISTINCT VALUE c.n > 1 FROM c) AS r WHERE r", "[true]"),
            ("SELECT VALUE r.id FROM (SELECT DISTINCT VALUE root FROM root) AS r WHERE r.n = 2", "[\"i2\"]"),
            ("SELECT VALUE s.m FROM (SELECT MAX(c.n) AS m FROM c) AS s", "[3]"),
            (
                "SELECT VALUE g.k FROM (SELECT c.n > 1 AS big, COUNT(1) AS k FROM c GROUP BY c.n > 1) AS g WHERE g.k > 1 AND g.big",
                "[2]",
            ),
        ] {
            let body = format!("{{\"query\":\"{query}\"}}");
            let page = client.must(200, "POST", DOCS, &[QUERY, CROSS], &body);
            assert!(page.body.contains(&format!("\"Documents\":{expected}")), "{query}: {}", page.body);
            // Every range by itself answers, too.
            client.must(200, "POST", DOCS, &[QUERY, ("x-ms-documentdb-partitionkeyrangeid", "0")], &body);
            // A client that plans first asks only what the plan names, and gets the same rows.
            let (rewritten, ranges) = planned_query(&client, &[PLAN], &body);
            let asked = if rewritten.is_empty() { body.clone() } else { query_body(&rewritten) };
            assert_eq!(ranges, if partitions == 1 { ["FF"] } else { [""] }, "{query}");
            for range in 0..partitions {
                let range = range.to_string();
                let headers = [QUERY, ("x-ms-documentdb-partitionkeyrangeid", range.as_str())];
                let page = client.must(200, "POST", DOCS, &headers, &asked);
                if range == "0" {
                    assert!(
                        page.body.contains(&format!("\"Documents\":{expected}")),
                        "{query}: {}",
                        page.body
                    );
                } else {
                    // The plan does not name it: the range of a client with a feed range, which answers for itself.
                    assert_eq!(page.body, client.must(200, "POST", DOCS, &headers, &body).body, "{query}");
                }
            }
            // Where the plan is of one partition, the text stays.
            for narrow in
                [("x-ms-documentdb-partitionkey", "[\"1\"]"), ("x-ms-documentdb-partitionkeyrangeid", "0")]
            {
                assert_eq!(planned_query(&client, &[PLAN, narrow], &body).0, "", "{query}");
            }
        }
    }
}

/// Clients with a feed range ask for a plan without it, and send the text of the plan to their range.
#[test]
fn feed_ranges_of_subqueries_over_all_partitions_answer_for_themselves() {
    let client = with_items_up_to(3, 60);
    let body = query_body("SELECT VALUE s.k FROM (SELECT COUNT(1) AS k FROM c) AS s");
    let (rewritten, _) = planned_query(&client, &[PLAN], &body);
    let marked = query_body(&rewritten);
    let count = |headers: &[(&str, &str)], body: &str| -> u64 {
        let answer = client.must(200, "POST", DOCS, headers, body).body;
        let list = answer.split("\"Documents\":[").nth(1).and_then(|rest| rest.split(']').next());
        list.expect("rows").parse().unwrap_or_else(|_| panic!("no count in {answer}"))
    };
    const ID: &str = "x-ms-documentdb-partitionkeyrangeid";
    const KIND: (&str, &str) = ("x-ms-read-key-type", "EffectivePartitionKeyRange");
    // Parts of partitions, as clients name them: the first begins where the plan does.
    let mut sum = 0;
    for (id, start, end) in [("0", "", "08"), ("0", "08", "1555"), ("1", "20", "24"), ("2", "30", "FF")] {
        let headers = [QUERY, KIND, (ID, id), ("x-ms-start-epk", start), ("x-ms-end-epk", end)];
        let expected = count(&headers, &body);
        assert_eq!(count(&headers, &marked), expected, "{start}..{end}");
        sum += expected;
    }
    assert!((1..60).contains(&sum), "{sum}");
    // Whole partitions but the plan's.
    for id in ["1", "2"] {
        let headers = [QUERY, KIND, (ID, id)];
        assert_eq!(count(&headers, &marked), count(&headers, &body), "{id}");
    }
    assert_eq!(count(&[QUERY, (ID, "0")], &marked), 60, "the plan's partition answers for all");
}

/// The first partition answers for all; what it is split into answers once.
#[test]
fn subqueries_over_all_partitions_go_on_after_a_split() {
    let client = with_items_up_to(3, 30);
    let body = query_body("SELECT VALUE r.n FROM (SELECT DISTINCT VALUE root FROM root) AS r");
    let (rewritten, _) = planned_query(&client, &[PLAN], &body);
    let body = query_body(&rewritten);
    let page = |range: &str, token: &str| {
        let mut headers =
            vec![QUERY, ("x-ms-documentdb-partitionkeyrangeid", range), ("x-ms-max-item-count", "1")];
        if !token.is_empty() {
            headers.push(("x-ms-continuation", token));
        }
        client.send("POST", DOCS, &headers, &body)
    };
    let mut rows = Vec::new();
    let mut add = |answer: &Answer| {
        let list = answer.body.split("\"Documents\":[").nth(1).and_then(|rest| rest.split(']').next());
        rows.extend(list.expect("rows").split(',').filter(|row| !row.is_empty()).map(str::to_owned));
        answer.header("x-ms-continuation").unwrap_or_default().to_owned()
    };
    let first = page("0", "");
    let token = add(&first);
    assert!(!token.is_empty(), "{}", first.body);
    client.must(200, "POST", "/_quire/dbs/d/colls/c/partitions/0/split", &[], "");
    assert_eq!(page("0", &token).status, 410);
    for child in ["3", "4"] {
        let mut token = token.clone();
        while !token.is_empty() {
            token = add(&page(child, &token));
        }
    }
    rows.sort_by_key(|row| row.parse::<usize>().expect("a number"));
    assert_eq!(rows, (0..30).map(|n| n.to_string()).collect::<Vec<_>>());
}

fn query_body(query: &str) -> String {
    serde_json::json!({ "query": query }).to_string()
}

/// The rewritten query of a plan, and where its ranges end.
fn planned_query(client: &Client, headers: &[(&str, &str)], body: &str) -> (String, Vec<String>) {
    let plan = client.must(200, "POST", DOCS, headers, body).body;
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("a plan");
    let ranges = plan["queryRanges"].as_array().expect("ranges");
    let ends = ranges.iter().map(|range| range["max"].as_str().expect("an end").to_owned());
    (plan["queryInfo"]["rewrittenQuery"].as_str().expect("a text").to_owned(), ends.collect())
}

/// The ranges of a plan as `min..max`, `max]` where it is included.
fn ranges(client: &Client, container: &str, filter: &str) -> String {
    let path = format!("/dbs/d/colls/{container}/docs");
    let body = format!("{{\"query\":\"SELECT * FROM c WHERE {filter}\"}}");
    let plan = client.must(200, "POST", &path, &[PLAN], &body).body;
    let list =
        plan.split("\"queryRanges\":[").nth(1).and_then(|rest| rest.split(']').next()).expect("ranges");
    let mut shown = Vec::new();
    for range in list.split("},") {
        let member = |name: &str| {
            let text = range.split(&format!("\"{name}\":")).nth(1).expect("a member");
            text.split([',', '}']).next().expect("a value").trim_matches('"').to_owned()
        };
        assert_eq!(member("isMinInclusive"), "true");
        let (min, max) = (member("min"), member("max"));
        let end = if member("isMaxInclusive") == "true" { "]" } else { "" };
        shown.push(if min == max { format!("{min}{end}") } else { format!("{min}..{max}{end}") });
    }
    shown.join(" ")
}

#[test]
fn plans_name_the_ranges() {
    let client = Client::with_container(3);
    let levels = r#"{"id":"h","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2}}"#;
    client.must(201, "POST", "/dbs/d/colls", &[], levels);
    let (one, five) = ("20CD98B339BA78A5D0CF6953B87070B0", "19C08621B135968252FB34B4CF66F811");
    let undefined = "11622DAA78F835834610ABE56EFF5CB5";
    let (yes, no) = ("0E711127C5B5A8E4726AC6DD306A3E59", "2FE1BE91E90A3439635E0E9E37361EF2");
    for (filter, expected) in [
        ("c.pk = 1", format!("{one}]")),
        ("c.pk IN (1, 5)", format!("{five}] {one}]")),
        ("(c.pk = 1 OR c.pk = 5) AND c.x > 3 AND c.pk = 5", format!("{five}]")),
        ("c.pk", format!("{yes}]")),
        ("NOT c.pk", format!("{no}]")),
        ("c.pk = []", format!("{undefined}]")),
        ("c.pk > 1", "..FF".to_owned()),
        ("c.pk = 1 OR c.x = 2", "..FF".to_owned()),
        ("STARTSWITH(c.pk, 'a')", "..FF".to_owned()),
        ("true", "..FF".to_owned()),
        // Nothing can match. One partition is queried all the same, because a count of nothing is a row.
        ("false", "]".to_owned()),
        ("c.pk = 1 AND c.pk = 2", "]".to_owned()),
    ] {
        assert_eq!(ranges(&client, "c", filter), expected, "{filter}");
    }
    // Conditions that only a few keys can satisfy.
    for (filter, keys) in [
        ("c.pk LIKE 'a!%' ESCAPE '!'", "'a%'"),
        ("ABS(c.pk) = 1", "-1, 1"),
        ("IS_BOOL(c.pk)", "true, false"),
        ("ARRAY_CONTAINS([1, 2, 3], c.pk)", "1, 2, 3"),
    ] {
        let points = ranges(&client, "c", &format!("c.pk IN ({keys})"));
        assert_eq!(points.matches(']').count(), keys.split(", ").count(), "{points}");
        assert_eq!(ranges(&client, "c", filter), points, "{filter}");
    }
    let (redmond, washington) = ("22E342F38A486A088463DFF7838A5963", "0993BF58F91772DCE970FC68F36E9F40");
    for (filter, expected) in [
        ("c.a = 'redmond' AND c.b = 'wa'", format!("{redmond}{washington}]")),
        ("c.a = 'redmond'", format!("{redmond}..{redmond}FF")),
        ("c.a IN ('redmond', 1)", format!("{one}..{one}FF {redmond}..{redmond}FF")),
        ("c.a = 'redmond' OR (c.a = 'redmond' AND c.b = 'wa')", format!("{redmond}..{redmond}FF")),
        ("c.b = 'wa'", "..FF".to_owned()),
    ] {
        assert_eq!(ranges(&client, "h", filter), expected, "{filter}");
    }
}

#[test]
fn a_query_of_one_key_skips_by_itself() {
    let client = with_items(3);
    let body = r#"{"query":"SELECT * FROM c WHERE c.pk = '1' OFFSET 1 LIMIT 2"}"#;
    let plan = client.must(200, "POST", DOCS, &[PLAN], body).body;
    assert!(
        plan.contains(r#""offset":null,"limit":null,"#) && plan.contains(r#""rewrittenQuery":"","#),
        "{plan}"
    );
    let features = ("x-ms-cosmos-supported-query-features", "OffsetAndLimit,Distinct");
    let body = r#"{"query":"SELECT DISTINCT * FROM c WHERE c.pk = '1' OFFSET 1 LIMIT 2"}"#;
    let plan = client.must(200, "POST", DOCS, &[PLAN, features], body).body;
    assert!(plan.contains(r#""offset":1,"limit":2,"#), "{plan}");
}
