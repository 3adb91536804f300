//! Bodies that clients send and words that they look for, in every kind of request.

use crate::client::{Answer, Client, sign_link};

const DOCS: &str = "/dbs/d/colls/c/docs";
const COLL: &str = "/dbs/d/colls/c";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");
const UPSERT: (&str, &str) = ("x-ms-documentdb-is-upsert", "True");
const BATCH: (&str, &str) = ("x-ms-cosmos-is-batch-request", "True");
const ATOMIC: (&str, &str) = ("x-ms-cosmos-batch-atomic", "True");
const BULK: (&str, &str) = ("x-ms-cosmos-batch-atomic", "False");
const QUERY: (&str, &str) = ("x-ms-documentdb-isquery", "True");
const CROSS: (&str, &str) = ("x-ms-documentdb-query-enablecrosspartition", "True");
const RANGE: (&str, &str) = ("x-ms-documentdb-partitionkeyrangeid", "0");
const HASH: &str = r#""partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}"#;

fn database() -> Client {
    let client = Client::start(1);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    client
}

fn query(client: &Client, status: u16, headers: &[(&str, &str)], text: &str) -> Answer {
    let body: quire_value::Object = [("query", text)].into_iter().collect();
    let headers = [&[QUERY], headers].concat();
    client.must(status, "POST", DOCS, &headers, &quire_value::Value::Object(body).to_json())
}

#[test]
fn raw_control_characters_are_kept_in_every_body() {
    let client = Client::with_container(1);
    let one = format!("{DOCS}/a");
    let item = |n: u32| format!("{{\"id\":\"a\",\"pk\":\"p\",\"n\":{n},\"s\":\"x\ty\r\nz\"}}");
    let stored = |n: u32| {
        let read = client.must(200, "GET", &one, &[KEY], "").body;
        assert!(read.contains(&format!(r#""n":{n},"s":"x\ty\r\nz""#)), "{read}");
    };
    client.must(201, "POST", DOCS, &[KEY], &item(1));
    stored(1);
    client.must(200, "PUT", &one, &[KEY], &item(2));
    stored(2);
    client.must(200, "POST", DOCS, &[KEY, UPSERT], &item(3));
    stored(3);
    let patch = "[{\"op\":\"set\",\"path\":\"/n\",\"value\":4},{\"op\":\"set\",\"path\":\"/s\",\"value\":\"x\ty\r\nz\"}]";
    client.must(200, "PATCH", &one, &[KEY], patch);
    stored(4);
    let operation = |n: u32| format!("[{{\"operationType\":\"Upsert\",\"resourceBody\":{}}}]", item(n));
    client.must(200, "POST", DOCS, &[KEY, BATCH, ATOMIC], &operation(5));
    stored(5);
    let bulk = operation(6).replace("\"resourceBody\"", "\"partitionKey\":\"[\\\"p\\\"]\",\"resourceBody\"");
    client.must(200, "POST", DOCS, &[RANGE, BATCH, BULK], &bulk);
    stored(6);
    let parameters = "{\"query\":\"SELECT VALUE c.n FROM c\n\tWHERE c.s = @s\",\"parameters\":[{\"name\":\"@s\",\"value\":\"x\ty\r\nz\"}]}";
    assert!(client.must(200, "POST", DOCS, &[QUERY, KEY], parameters).body.contains("[6]"));
    let script = "{\"id\":\"s\",\"body\":\"function (s) {\r\n\t__.response.setBody(s.length);\n}\"}";
    let made = client.must(201, "POST", &format!("{COLL}/sprocs"), &[], script);
    assert!(made.body.contains(r#"function (s) {\r\n\t__"#), "{}", made.body);
    assert_eq!(client.must(200, "POST", &format!("{COLL}/sprocs/s"), &[KEY], "[\"x\ty\r\nz\"]").body, "6");
    let insert = (
        "/dbs/d/colls/c/sprocs/__.sys.commonBulkInsert",
        "[[{\"id\":\"bulk\",\"pk\":\"p\",\"s\":\"x\ty\"}]]",
    );
    client.must(200, "POST", insert.0, &[KEY], insert.1);
    assert!(client.must(200, "GET", &format!("{DOCS}/bulk"), &[KEY], "").body.contains(r#""s":"x\ty""#));
    let trigger = r#"{"id":"t","body":"function () { const b = __.request.getBody(); b.n = 7; __.request.setBody(b); }","triggerType":"Pre","triggerOperation":"All"}"#;
    client.must(201, "POST", &format!("{COLL}/triggers"), &[], trigger);
    client.must(200, "PUT", &one, &[KEY, ("x-ms-documentdb-pre-trigger-include", "t")], &item(0));
    stored(7);
    let marked = format!("\u{feff}{}", item(0));
    client.must(200, "PUT", &one, &[KEY], &marked);
    client.must(200, "PUT", &one, &[KEY, ("x-ms-documentdb-pre-trigger-include", "t")], &marked);
    stored(7);
    client.must(200, "POST", DOCS, &[KEY, BATCH, ATOMIC], &format!("\u{feff}{}", operation(8)));
    stored(8);
    // What is no tab and no line end is refused.
    for (status, method, path, headers, body) in [
        (400, "PUT", one.as_str(), vec![KEY], "{\"id\":\"a\",\"pk\":\"p\",\"s\":\"\u{2}\"}"),
        (400, "POST", DOCS, vec![KEY, QUERY], "{\"query\":\"SELECT '\u{2}'\"}"),
    ] {
        client.must(status, method, path, &headers, body);
    }
}

/// Unique within its logical partition: the second item of a key.
#[test]
fn a_unique_key_may_be_the_partition_key() {
    let client = database();
    let unique = r#","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/pk"]}]}"#;
    client.must(201, "POST", "/dbs/d/colls", &[], &format!(r#"{{"id":"c",{HASH}{unique}}}"#));
    client.must(201, "POST", DOCS, &[KEY], r#"{"id":"a","pk":"p"}"#);
    client.must(409, "POST", DOCS, &[KEY], r#"{"id":"b","pk":"p"}"#);
    let other = ("x-ms-documentdb-partitionkey", "[\"q\"]");
    client.must(201, "POST", DOCS, &[other], r#"{"id":"b","pk":"q"}"#);
    // The policy is the container's for ever.
    for body in [
        format!(r#"{{"id":"c",{HASH}}}"#),
        format!(r#"{{"id":"c",{HASH},"uniqueKeyPolicy":{{"uniqueKeys":[{{"paths":["/n"]}}]}}}}"#),
    ] {
        client.must(403, "PUT", COLL, &[], &body);
    }
    client.must(200, "PUT", COLL, &[], &format!(r#"{{"id":"c",{HASH}{unique}}}"#));
}

#[test]
fn system_keys_and_old_index_forms_come_back_as_they_should() {
    let client = database();
    let system = r#"{"id":"c","partitionKey":{"paths":["/_partitionKey"],"kind":"Hash","version":2,"systemKey":true}}"#;
    client.must(201, "POST", "/dbs/d/colls", &[], system);
    for (method, body) in [("GET", ""), ("PUT", system)] {
        assert!(client.must(200, method, COLL, &[], body).body.contains(r#""systemKey":true"#), "{method}");
    }
    let old = format!(
        r#"{{"id":"old",{HASH},"indexingPolicy":{{"includedPaths":[{{"path":"/*","indexes":[{{"kind":"Hash","dataType":"String","precision":3}}]}}],
            "spatialIndexes":[{{"path":"/g/*"}},{{"path":"/h/*","types":["Point"]}}]}}}}"#
    );
    let made = client.must(201, "POST", "/dbs/d/colls", &[], &old);
    let replaced = client.must(200, "PUT", "/dbs/d/colls/old", &[], &old);
    let read = client.must(200, "GET", "/dbs/d/colls/old", &[], "");
    for body in [made.body, replaced.body, read.body] {
        assert!(!body.contains("precision") && !body.contains("\"indexes\""), "{body}");
        assert!(
            body.contains(r#"{"path":"/g/*","types":["Point","LineString","Polygon","MultiPolygon"]}"#),
            "{body}"
        );
        assert!(body.contains(r#"{"path":"/h/*","types":["Point"]}"#), "{body}");
    }
}

#[test]
fn the_path_of_the_time_to_live_is_checked() {
    let client = database();
    let ttl = r#","defaultTtl":100,"ttlPropertyPath":"/made""#;
    client.must(201, "POST", "/dbs/d/colls", &[], &format!(r#"{{"id":"c",{HASH}{ttl}}}"#));
    for path in ["\"made\"", "\"\"", "7", "\"/made/?\""] {
        let bad = format!(r#"{{"id":"bad",{HASH},"defaultTtl":100,"ttlPropertyPath":{path}}}"#);
        client.must(400, "POST", "/dbs/d/colls", &[], &bad);
    }
    let read = client.must(200, "GET", COLL, &[], "");
    assert!(read.body.contains(r#""ttlPropertyPath":"/made""#), "{}", read.body);
}

#[test]
fn a_time_to_live_is_checked_in_every_write() {
    for members in ["", r#","defaultTtl":-1"#, r#","defaultTtl":60"#] {
        let client = database();
        client.must(201, "POST", "/dbs/d/colls", &[], &format!(r#"{{"id":"c",{HASH}{members}}}"#));
        client.must(201, "POST", DOCS, &[KEY], r#"{"id":"a","pk":"p"}"#);
        let one = format!("{DOCS}/a");
        for ttl in ["0", "-2", "1.5", "\"5\"", "true", "2147483648"] {
            let item = format!(r#"{{"id":"a","pk":"p","ttl":{ttl}}}"#);
            let patch = format!(r#"[{{"op":"add","path":"/ttl","value":{ttl}}}]"#);
            let new = item.replace("\"a\"", "\"b\"");
            client.must(400, "POST", DOCS, &[KEY], &new);
            client.must(400, "POST", DOCS, &[KEY, UPSERT], &new);
            client.must(400, "PUT", &one, &[KEY], &item);
            client.must(400, "PATCH", &one, &[KEY], &patch);
            let batch = format!(r#"[{{"operationType":"Create","resourceBody":{new}}}]"#);
            let refused = client.must(207, "POST", DOCS, &[KEY, BATCH, ATOMIC], &batch);
            assert!(refused.body.contains("\"statusCode\":400"), "{ttl}: {}", refused.body);
        }
        for ttl in ["-1", "1", "2147483647"] {
            client.must(200, "PUT", &one, &[KEY], &format!(r#"{{"id":"a","pk":"p","ttl":{ttl}}}"#));
        }
        client.must(404, "GET", &format!("{DOCS}/b"), &[KEY], "");
    }
}

#[test]
fn duplicate_names_are_refused_in_every_body() {
    let client = Client::with_container(1);
    client.must(201, "POST", DOCS, &[KEY], r#"{"id":"a","pk":"p"}"#);
    let one = format!("{DOCS}/a");
    for twice in [r#"{"id":"a","pk":"p","n":1,"n":2}"#, r#"{"id":"a","pk":"p","o":[{"x":1,"x":1}]}"#] {
        client.must(400, "POST", DOCS, &[KEY], &twice.replace("\"a\"", "\"b\""));
        client.must(400, "POST", DOCS, &[KEY, UPSERT], twice);
        client.must(400, "PUT", &one, &[KEY], twice);
        let batch = format!(r#"[{{"operationType":"Upsert","resourceBody":{twice}}}]"#);
        let refused = client.must(207, "POST", DOCS, &[KEY, BATCH, ATOMIC], &batch);
        assert!(refused.body.contains("\"statusCode\":400"), "{}", refused.body);
        let patch = format!(r#"[{{"op":"set","path":"/x","value":{twice}}}]"#);
        client.must(400, "PATCH", &one, &[KEY], &patch);
    }
    client.must(400, "POST", "/dbs", &[], r#"{"id":"e","id":"f"}"#);
    assert!(!client.must(200, "GET", &one, &[KEY], "").body.contains("\"n\""));
}

/// Integers of 64 bits stay what they are, everything else is a double.
#[test]
fn numbers_as_they_come_back() {
    let client = Client::with_container(1);
    let sent = "[1.0,-0.0,9223372036854775807,-9223372036854775808,18446744073709551615,18446744073709551616,1e2,0.1,1E+300,100.50]";
    let kept = "[1,0,9223372036854775807,-9223372036854775808,18446744073709551615,1.8446744073709552e+19,100,0.1,1e+300,100.5]";
    client.must(201, "POST", DOCS, &[KEY], &format!(r#"{{"id":"a","pk":"p","n":{sent}}}"#));
    let body = client.must(200, "GET", &format!("{DOCS}/a"), &[KEY], "").body;
    let found = body.split("\"n\":").nth(1).and_then(|rest| rest.split(']').next()).expect("numbers");
    assert_eq!(format!("{found}]"), kept);
    // By value, and exact.
    for (n, filter, count) in [
        ("9007199254740993", "c.m = 9007199254740992", 0),
        ("9007199254740993", "c.m = 9007199254740993", 1),
        ("9007199254740993", "c.m > 9007199254740992", 1),
        ("18446744073709551615", "c.m = 18446744073709551614", 0),
        ("1.0", "c.m = 1", 1),
    ] {
        client.must(200, "POST", DOCS, &[KEY, UPSERT], &format!(r#"{{"id":"a","pk":"p","m":{n}}}"#));
        let rows = query(&client, 200, &[KEY], &format!("SELECT VALUE 7 FROM c WHERE {filter}"));
        assert_eq!(rows.body.matches("[7]").count(), count, "{n}: {filter}");
    }
    // In a partition key the double counts.
    let large = ("x-ms-documentdb-partitionkey", "[9007199254740992]");
    let larger = ("x-ms-documentdb-partitionkey", "[9007199254740993]");
    client.must(201, "POST", DOCS, &[larger], r#"{"id":"k","pk":9007199254740993}"#);
    client.must(200, "GET", &format!("{DOCS}/k"), &[large], "");
}

#[test]
fn bodies_that_json_cannot_represent() {
    let client = Client::with_container(1);
    client.must(201, "POST", DOCS, &[KEY], r#"{"id":"a","pk":"p","zero":0}"#);
    for text in ["1 / c.zero", "-1 / c.zero", "LOG(c.zero)", "SQRT(-1)", "EXP(1000)", "[1, {a: 0 / c.zero}]"]
    {
        for scope in [KEY, RANGE, CROSS] {
            let refused = query(&client, 400, &[scope], &format!("SELECT VALUE {text} FROM c"));
            assert_eq!(refused.header("x-ms-substatus"), Some("4001"), "{text}");
            let words = "The response content contains a numeric value that cannot be represented in JSON (e.g. Infinity and NaN).";
            assert!(refused.body.contains(words), "{text}: {}", refused.body);
        }
        let inside = format!("SELECT VALUE c.id FROM c WHERE NOT IS_FINITE_NUMBER({text})");
        assert!(query(&client, 200, &[KEY], &inside).body.contains(r#"["a"]"#), "{text}");
    }
    assert!(query(&client, 200, &[KEY], "SELECT VALUE c.id FROM c WHERE 1 / c.zero < 5").body.contains("[]"));
}

/// A value that no key can be is the undefined key.
#[test]
fn objects_and_arrays_are_no_partition_keys() {
    for partitions in [1, 5] {
        let client = Client::with_container(partitions);
        let undefined = ("x-ms-documentdb-partitionkey", "[{}]");
        for (id, pk) in [("object", ",\"pk\":{\"a\":1}"), ("array", ",\"pk\":[1]"), ("none", "")] {
            client.must(201, "POST", DOCS, &[undefined], &format!(r#"{{"id":"{id}"{pk}}}"#));
            client.must(200, "GET", &format!("{DOCS}/{id}"), &[undefined], "");
        }
        client.must(409, "POST", DOCS, &[undefined], r#"{"id":"object","pk":[2]}"#);
        client.must(201, "POST", DOCS, &[], r#"{"id":"inferred","pk":{}}"#);
        let rows = query(&client, 200, &[undefined], "SELECT VALUE COUNT(1) FROM c");
        assert!(rows.body.contains("[4]"), "{}", rows.body);
    }
}

#[test]
fn indexers_that_are_computed_are_refused() {
    let client = Client::with_container(1);
    client.must(201, "POST", DOCS, &[KEY], r#"{"id":"a","pk":"p","list":[5,6],"i":1,"n":1}"#);
    let parameters = r#","parameters":[{"name":"@values","value":[1,2]},{"name":"@name","value":"n"},{"name":"@i","value":1}]"#;
    for scope in [KEY, RANGE, CROSS] {
        for text in ["[1, 2, 3][c.i]", "@values[c.i % 2]", "c.list[c.n - 1]", "c.list[@i + 0]"] {
            let body = format!(r#"{{"query":"SELECT VALUE {text} FROM c"{parameters}}}"#);
            let refused = client.must(400, "POST", DOCS, &[QUERY, scope], &body);
            assert!(refused.body.contains("SC2990"), "{text}: {}", refused.body);
            let words = "The specified query includes 'member indexer' which is currently not supported";
            assert!(refused.body.contains(words), "{text}: {}", refused.body);
        }
        for (text, value) in [("c[@name]", "1"), ("c.list[@i]", "6"), ("c.list[0]", "5"), ("c['n']", "1")] {
            let body = format!(r#"{{"query":"SELECT VALUE {text} FROM c"{parameters}}}"#);
            let page = client.must(200, "POST", DOCS, &[QUERY, scope], &body);
            assert!(page.body.contains(&format!("[{value}]")), "{text}: {}", page.body);
        }
    }
}

#[test]
fn words_of_refused_orders() {
    let client = database();
    let policy = r#","indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/out/*"}]}"#;
    client.must(201, "POST", "/dbs/d/colls", &[], &format!(r#"{{"id":"c",{HASH}{policy}}}"#));
    client.must(201, "POST", DOCS, &[KEY], r#"{"id":"a","pk":"p","l":[1]}"#);
    for scope in [KEY, RANGE] {
        for (text, words) in [
            (
                "SELECT VALUE t FROM c JOIN t IN c.l ORDER BY t",
                "Order-by over correlated collections is not supported.",
            ),
            ("SELECT * FROM root ORDER BY DOCUMENTID(root)", "Unsupported ORDER BY clause."),
            (
                "SELECT * FROM c ORDER BY c.out",
                "The index path corresponding to the specified order-by item is excluded.",
            ),
            (
                "SELECT * FROM c ORDER BY c.a, c.b",
                "The order by query does not have a corresponding composite index that it can be served from.",
            ),
            (
                "SELECT TOP 1 * FROM c ORDER BY VectorDistance(c.v, [1, 0]) ASC",
                "Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported.",
            ),
            (
                "SELECT TOP 1 * FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'x'), RRF(FullTextScore(c.t, 'y'), FullTextScore(c.t, 'z')))",
                "'RRF' is not a recognized built-in function name.",
            ),
        ] {
            let refused = query(&client, 400, &[scope], text);
            assert!(refused.body.contains(words), "{text}: {}", refused.body);
        }
    }
}

/// Everything behind the last `/docs/` is the id, and the signature is over it.
#[test]
fn raw_question_marks_in_every_verb() {
    let client = Client::with_container(5);
    for id in ["a?b", "?", "x?a=b&c", "q?"] {
        let item = |n: u32| format!(r#"{{"id":"{id}","pk":"p","n":{n}}}"#);
        client.must(201, "POST", DOCS, &[KEY], &item(0));
        let (path, link) = (format!("{DOCS}/{id}"), format!("dbs/d/colls/c/docs/{id}"));
        for (status, method, body) in [
            (200, "GET", String::new()),
            (200, "PUT", item(1)),
            (200, "PATCH", r#"[{"op":"incr","path":"/n","value":1}]"#.to_owned()),
            (204, "DELETE", String::new()),
            (404, "GET", String::new()),
        ] {
            let token = sign_link(method, "docs", &link);
            let answer = client.send_as(&token, method, &path, &[KEY], body.as_bytes());
            assert_eq!(answer.status, status, "{method} {id}: {}", answer.body);
            assert!(method != "PATCH" || answer.body.contains("\"n\":2"), "{}", answer.body);
        }
    }
}

/// One partition for every 10,000 of the maximum.
#[test]
fn partitions_by_autoscale_throughput() {
    let client = database();
    for (maximum, count) in [(1000, "1"), (10_000, "1"), (20_000, "2"), (50_000, "5")] {
        let settings = format!(r#"{{"maxThroughput":{maximum}}}"#);
        let body = format!(r#"{{"id":"c{maximum}",{HASH}}}"#);
        client.must(
            201,
            "POST",
            "/dbs/d/colls",
            &[("x-ms-cosmos-offer-autopilot-settings", &settings)],
            &body,
        );
        let ranges = client.must(200, "GET", &format!("/dbs/d/colls/c{maximum}/pkranges"), &[], "");
        assert_eq!(ranges.header("x-ms-item-count"), Some(count), "{maximum}");
    }
}

/// Whole, on the offer of a container and of a database, when made, read and replaced.
#[test]
fn autoscale_settings_come_back_whole() {
    let client = Client::start(1);
    let settings = |percent: u32| {
        format!(
            r#"{{"maxThroughput":4000,"autoUpgradePolicy":{{"throughputPolicy":{{"incrementPercent":{percent}}}}}}}"#
        )
    };
    let header = "x-ms-cosmos-offer-autopilot-settings";
    client.must(201, "POST", "/dbs", &[(header, &settings(5))], r#"{"id":"d"}"#);
    client.must(201, "POST", "/dbs/d/colls", &[(header, &settings(5))], &format!(r#"{{"id":"c",{HASH}}}"#));
    let offers = client.must(200, "GET", "/offers", &[], "").body;
    assert_eq!(offers.matches(&settings(5)).count(), 2, "{offers}");
    let rids: Vec<&str> =
        offers.split("\"id\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(rids.len(), 2);
    for rid in rids {
        let path = format!("/offers/{rid}");
        let offer = client.must(200, "GET", &path, &[], "").body;
        let replaced = client.must(200, "PUT", &path, &[], &offer.replace(&settings(5), &settings(20))).body;
        assert!(replaced.contains(&settings(20)), "{replaced}");
        assert!(client.must(200, "GET", &path, &[], "").body.contains(&settings(20)));
    }
}

#[test]
fn a_procedure_without_a_body_answers_with_an_empty_text() {
    let client = Client::with_container(1);
    client.must(
        201,
        "POST",
        &format!("{COLL}/sprocs"),
        &[],
        r#"{"id":"s","body":"function () { return 7; }"}"#,
    );
    assert_eq!(client.must(200, "POST", &format!("{COLL}/sprocs/s"), &[KEY], "[]").body, "\"\"");
}

/// All versions are kept where the policy says so, and nowhere else.
#[test]
fn all_versions_need_a_policy() {
    for (policy, status) in [
        ("", 400),
        (r#","changeFeedPolicy":{"retentionDuration":10}"#, 304),
        (r#","changeFeedPolicy":{"logRetentionDuration":10}"#, 304),
    ] {
        let client = database();
        let made = client.must(201, "POST", "/dbs/d/colls", &[], &format!(r#"{{"id":"c",{HASH}{policy}}}"#));
        assert_eq!(made.body.contains(r#"etentionDuration":10"#), status == 304, "{}", made.body);
        client.must(status, "GET", DOCS, &[("a-im", "Full-Fidelity Feed"), ("if-none-match", "*")], "");
        client.must(304, "GET", DOCS, &[("a-im", "Incremental feed"), ("if-none-match", "*")], "");
    }
}
