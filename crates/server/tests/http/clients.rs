//! What clients look for in answers, and forms of requests that only some of them send.

use std::sync::Arc;

use quire_storage::memory::MemoryStorage;
use quire_value::{Limits, Value, text};

use crate::client::{Answer, Client, MovedClock};

const DOCS: &str = "/dbs/d/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");
const QUERY: (&str, &str) = ("x-ms-documentdb-isquery", "True");
const CROSS: (&str, &str) = ("x-ms-documentdb-query-enablecrosspartition", "True");
const FEED: (&str, &str) = ("a-im", "Incremental feed");

fn parse(json: &str) -> Value {
    text::parse(json.as_bytes(), Limits::default()).expect("JSON")
}

fn with_items() -> Client {
    let client = Client::with_container(1);
    for number in 0..3 {
        client.must(201, "POST", DOCS, &[KEY], &format!(r#"{{"id":"i{number}","pk":"p","n":{number}}}"#));
    }
    client
}

fn database() -> Client {
    with_database(Client::start(1))
}

fn database_by(clock: &Arc<MovedClock>) -> Client {
    with_database(Client::start_by(clock.clone(), Arc::new(MemoryStorage::new()), 1, |_| ()))
}

fn with_database(client: Client) -> Client {
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    client
}

fn container(client: &Client, status: u16, id: &str, members: &str) -> Answer {
    let body =
        format!(r#"{{"id":"{id}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{members}}}"#);
    client.must(status, "POST", "/dbs/d/colls", &[], &body)
}

#[test]
fn quota_and_path_of_items() {
    let client = with_items();
    let found = client.must(200, "GET", &format!("{DOCS}/i0"), &[KEY], "");
    assert!(found.header("x-ms-resource-quota").is_some_and(|quota| quota.contains("documentsCount=-1")));
    assert!(found.header("x-ms-resource-usage").is_some_and(|usage| usage.contains("documentsCount=3;")));
    assert!(found.header("x-ms-content-path").is_some());
    for (method, body) in [("GET", ""), ("PUT", r#"{"id":"x","pk":"p"}"#), ("DELETE", "")] {
        let missing = client.must(404, method, &format!("{DOCS}/x"), &[KEY], body);
        assert_eq!(missing.header("x-ms-content-path"), None, "{method}");
        assert!(missing.body.contains("Resource Not Found"), "{}", missing.body);
    }
    let stale = [KEY, ("if-match", "\"x\"")];
    let refused = client.must(412, "PUT", &format!("{DOCS}/i0"), &stale, r#"{"id":"i0","pk":"p"}"#);
    assert!(refused.body.contains("One of the specified pre-condition is not met"), "{}", refused.body);
}

#[test]
fn a_missing_container_of_items_has_no_substatus_by_name() {
    let client = with_items();
    for (method, path, headers, body) in [
        ("GET", "/dbs/d/colls/none/docs/a", &[KEY][..], ""),
        ("POST", "/dbs/d/colls/none/docs", &[KEY], r#"{"id":"a","pk":"p"}"#),
        ("POST", "/dbs/d/colls/none/docs", &[QUERY, CROSS], r#"{"query":"SELECT * FROM c"}"#),
        ("GET", "/dbs/d/colls/none/docs", &[FEED], ""),
        ("GET", "/dbs/none/colls/c/docs", &[], ""),
    ] {
        let answer = client.must(404, method, path, headers, body);
        assert_eq!(answer.header("x-ms-substatus"), None, "{method} {path}: {}", answer.body);
        assert!(answer.body.contains("Resource Not Found"), "{}", answer.body);
    }
    let scripts = client.must(404, "GET", "/dbs/d/colls/none/sprocs", &[], "");
    assert_eq!(scripts.header("x-ms-substatus"), Some("1003"));
}

#[test]
fn metrics_of_empty_pages_and_sums() {
    let client = with_items();
    let headers = [
        QUERY,
        KEY,
        ("x-ms-cosmos-populateindexmetrics-v2", "True"),
        ("x-ms-documentdb-populatequerymetrics", "True"),
    ];
    let utilization = |query: &str| {
        let answer = client.must(200, "POST", DOCS, &headers, &format!(r#"{{"query":"{query}"}}"#));
        let text = answer.header("x-ms-cosmos-index-utilization").expect("index metrics").to_owned();
        percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    assert!(utilization("SELECT * FROM c WHERE c.n = 99").contains("/n/?"));
    assert!(utilization("SELECT VALUE SUM(c.n) FROM c").contains("/n/?"));
    assert!(utilization("SELECT AVG(c.n) AS a, MAX(c.m.x) AS b FROM c").contains("/m/x/?"));
    let answer = client.must(200, "POST", DOCS, &headers, r#"{"query":"SELECT * FROM c"}"#);
    let metrics = answer.header("x-ms-documentdb-query-metrics").expect("metrics");
    let load =
        metrics.split(';').find_map(|part| part.strip_prefix("documentLoadTimeInMs=")).expect("a time");
    assert!(load.parse::<f64>().expect("a number") >= 0.01, "{metrics}");
}

#[test]
fn a_failed_batch_costs_what_its_operations_cost() {
    let client = with_items();
    let headers = [KEY, ("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-atomic", "True")];
    let batch = r#"[{"operationType":"Create","resourceBody":{"id":"new","pk":"p"}},
        {"operationType":"Create","resourceBody":{"id":"i0","pk":"p"}},
        {"operationType":"Delete","id":"i1"}]"#;
    let answer = client.must(207, "POST", DOCS, &headers, batch);
    let total: f64 =
        answer.header("x-ms-request-charge").and_then(|text| text.parse().ok()).expect("a charge");
    let results = parse(&answer.body);
    let charges = results.as_array().expect("results").iter();
    let sum: f64 = charges
        .map(|result| {
            result.get("requestCharge").and_then(Value::as_number).map_or(0.0, |charge| charge.as_f64())
        })
        .sum();
    assert!(total > 5.0 && (total - sum).abs() < 0.01, "{total} is not {sum}");
}

/// Dates have seconds: what changed within the second of the date is not after it.
#[test]
fn changes_after_a_date() {
    let client = with_items();
    let since = |date: &str| client.send("GET", DOCS, &[FEED, ("if-modified-since", date)], "").status;
    assert_eq!(since(crate::client::DATE), 304);
    assert_eq!(since("Sun, 15 Nov 2026 18:32:03 GMT"), 200);
    assert!(client.must(200, "GET", DOCS, &[FEED], "").header("x-ms-item-count") == Some("3"));
}

#[test]
fn previous_versions_of_deletes_only() {
    let client = database();
    container(&client, 201, "c", r#","changeFeedPolicy":{"retentionDuration":10}"#);
    let all = ("a-im", "Full-Fidelity Feed");
    let start = client.must(304, "GET", DOCS, &[all, ("if-none-match", "*")], "");
    let start = start.header("etag").expect("a position").to_owned();
    client.must(201, "POST", DOCS, &[KEY], r#"{"id":"a","pk":"p","n":1}"#);
    client.must(200, "PUT", &format!("{DOCS}/a"), &[KEY], r#"{"id":"a","pk":"p","n":2}"#);
    client.must(204, "DELETE", &format!("{DOCS}/a"), &[KEY], "");
    let read = |headers: &[(&str, &str)]| {
        let headers = [&[all, ("if-none-match", start.as_str())], headers].concat();
        let answer = client.must(200, "GET", DOCS, &headers, "");
        let changes =
            parse(&answer.body).get("Documents").and_then(Value::as_array).expect("changes").to_vec();
        changes.iter().map(|change| change.get("previous").is_some()).collect::<Vec<_>>()
    };
    assert_eq!(read(&[]), [false, false, true]);
    assert_eq!(read(&[("x-quire-all-previous-images", "true")]), [false, true, true]);
}

#[test]
fn answers_without_system_properties() {
    let client = with_items();
    let plain = ("x-ms-exclude-system-properties", "true");
    let item = client.must(200, "GET", &format!("{DOCS}/i0"), &[KEY, plain], "");
    assert_eq!(item.body, r#"{"id":"i0","pk":"p","n":0}"#);
    assert!(item.header("etag").is_some());
    let made = client.must(201, "POST", DOCS, &[KEY, plain], r#"{"id":"x","pk":"p"}"#);
    assert_eq!(made.body, r#"{"id":"x","pk":"p"}"#);
    let list = client.must(200, "GET", DOCS, &[plain], "");
    assert!(
        list.body.contains(r#"{"id":"i1","pk":"p","n":1}"#) && !list.body.contains("_ts"),
        "{}",
        list.body
    );
    let rows =
        client.must(200, "POST", DOCS, &[QUERY, KEY, plain], r#"{"query":"SELECT * FROM c WHERE c.n = 1"}"#);
    assert!(rows.body.contains(r#"[{"id":"i1","pk":"p","n":1}]"#), "{}", rows.body);
    assert!(client.must(200, "GET", &format!("{DOCS}/i0"), &[KEY], "").body.contains("_ts"));
}

#[test]
fn unknown_versions_and_formats() {
    let client = with_items();
    let item = format!("{DOCS}/i0");
    for version in ["2014-08-21", "2018-09-17", "2020-07-15", "2020-11-05", "2031-01-01"] {
        client.must(200, "GET", &item, &[KEY, ("x-ms-version", version)], "");
    }
    for version in ["2015-01-01", "latest", "", "2020-7-15"] {
        let answer = client.must(400, "GET", &item, &[KEY, ("x-ms-version", version)], "");
        assert!(answer.body.contains("Invalid API version"), "{}", answer.body);
    }
    for header in
        ["x-ms-cosmos-supported-serialization-formats", "x-ms-documentdb-content-serialization-format"]
    {
        let answer = client.must(400, "GET", &item, &[KEY, (header, "JsonText,Cbor")], "");
        assert!(answer.body.contains("Cbor"), "{}", answer.body);
        client.must(200, "GET", &item, &[KEY, (header, "JsonText")], "");
    }
    let small = [QUERY, KEY, ("x-ms-documentdb-responsecontinuationtokenlimitinkb", "0")];
    let refused = client.must(400, "POST", DOCS, &small, r#"{"query":"SELECT * FROM c"}"#);
    assert!(
        refused.body.contains("continuation token limit specified is not large enough"),
        "{}",
        refused.body
    );
}

#[test]
fn binary_answers_for_clients_that_accept_nothing_else() {
    let client = with_items();
    let formats = "x-ms-cosmos-supported-serialization-formats";
    let item = format!("{DOCS}/i0");
    let text = client.must(200, "GET", &item, &[KEY, (formats, "JsonText,CosmosBinary")], "");
    assert!(text.body.starts_with('{'));
    let binary = client.must(200, "GET", &item, &[KEY, (formats, "CosmosBinary")], "");
    assert_eq!((binary.bytes[0], binary.bytes[1]), (0x80, 0xEA), "an object by its length");
    let name_and_value = [&[0x82][..], b"id", &[0x82], b"i0"].concat();
    assert!(binary.bytes.windows(6).any(|window| window == name_and_value));
    assert_eq!(binary.header("x-ms-documentdb-content-serialization-format"), Some("CosmosBinary"));
    let rows = client.must(
        200,
        "POST",
        DOCS,
        &[QUERY, KEY, (formats, "CosmosBinary")],
        r#"{"query":"SELECT * FROM c"}"#,
    );
    assert_eq!(rows.bytes[0], 0x80);
    // What was written in binary can be read in binary.
    let again = client.send_as(&crate::client::sign("PUT", &item), "PUT", &item, &[KEY], &binary.bytes);
    assert_eq!(again.status, 200, "{}", again.body);
    // Errors are text.
    assert!(
        client
            .must(404, "GET", &format!("{DOCS}/no"), &[KEY, (formats, "CosmosBinary")], "")
            .body
            .starts_with('{')
    );
}

#[test]
fn containers_that_share_throughput_say_so() {
    let client = Client::start(1);
    client.must(201, "POST", "/dbs", &[("x-ms-offer-throughput", "1000")], r#"{"id":"d"}"#);
    let share = |answer: &Answer| answer.header("x-ms-share-throughput").map(str::to_owned);
    assert_eq!(share(&container(&client, 201, "shared", "")).as_deref(), Some("true"));
    assert_eq!(share(&client.must(200, "GET", "/dbs/d/colls/shared", &[], "")).as_deref(), Some("true"));
    let own = r#"{"id":"own","partitionKey":{"paths":["/pk"]}}"#;
    let own = client.must(201, "POST", "/dbs/d/colls", &[("x-ms-offer-throughput", "400")], own);
    assert_eq!(share(&own), None);
}

#[test]
fn offers_of_old_clients() {
    let client = Client::with_container(1);
    let offer = parse(&client.must(200, "GET", "/offers", &[], "").body);
    let offer = offer.get("Offers").and_then(|offers| offers.at(0)).expect("an offer").clone();
    let path = format!("/offers/{}", offer.get("_rid").and_then(Value::as_str).expect("a rid"));
    for kind in [Some(""), Some("S1"), Some("Invalid"), None] {
        let mut body = offer.as_object().expect("an object").clone();
        body.remove("offerType");
        if let Some(kind) = kind {
            body.set("offerType", kind);
        }
        body.set("content", parse(r#"{"offerThroughput":600}"#));
        let replaced = client.must(200, "PUT", &path, &[], &Value::Object(body).to_json());
        assert!(replaced.body.contains(r#""offerType":"Invalid""#), "{kind:?}: {}", replaced.body);
    }
}

#[test]
fn upgrade_policies_come_back() {
    let client = database();
    for percent in [0, 10] {
        let settings = format!(
            r#"{{"maxThroughput":4000,"autoUpgradePolicy":{{"throughputPolicy":{{"incrementPercent":{percent}}}}}}}"#
        );
        let body = format!(r#"{{"id":"c{percent}","partitionKey":{{"paths":["/pk"]}}}}"#);
        client.must(
            201,
            "POST",
            "/dbs/d/colls",
            &[("x-ms-cosmos-offer-autopilot-settings", &settings)],
            &body,
        );
        let offers = client.must(200, "GET", "/offers", &[], "");
        assert!(offers.body.contains(&format!(r#""offerAutopilotSettings":{settings}"#)), "{}", offers.body);
    }
}

#[test]
fn partitions_by_throughput() {
    let client = database();
    for (throughput, count) in [("400", 1), ("10000", 2), ("15000", 3), ("20000", 4), ("30000", 5)] {
        let body = format!(r#"{{"id":"c{throughput}","partitionKey":{{"paths":["/pk"]}}}}"#);
        client.must(201, "POST", "/dbs/d/colls", &[("x-ms-offer-throughput", throughput)], &body);
        let ranges = client.must(200, "GET", &format!("/dbs/d/colls/c{throughput}/pkranges"), &[], "");
        assert_eq!(ranges.header("x-ms-item-count"), Some(count.to_string().as_str()), "{throughput}");
    }
}

#[test]
fn raw_tabs_and_line_ends_in_strings() {
    let client = Client::with_container(1);
    let made = client.must(201, "POST", DOCS, &[KEY], "{\"id\":\"a\",\"pk\":\"p\",\"s\":\"x\ty\r\nz\"}");
    assert!(made.body.contains(r#""s":"x\ty\r\nz""#), "{}", made.body);
    let read = client.must(200, "GET", &format!("{DOCS}/a"), &[KEY], "");
    assert_eq!(parse(&read.body).get("s").and_then(Value::as_str), Some("x\ty\r\nz"));
    let query = "{\"query\":\"SELECT VALUE c.id\r\n\tFROM c\nWHERE c.s = 'x\\\\ty\\\\r\\\\nz'\"}";
    assert!(client.must(200, "POST", DOCS, &[QUERY, KEY], query).body.contains(r#"["a"]"#));
    client.must(400, "POST", DOCS, &[KEY], "{\"id\":\"b\",\"pk\":\"p\",\"s\":\"\u{1}\"}");
}

#[test]
fn definitions_that_clients_send() {
    let client = database();
    let unique = r#","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/pk"]},{"paths":["/pk","/n"]}]}"#;
    container(&client, 201, "unique", unique);
    let spatial = r#","indexingPolicy":{"spatialIndexes":[{"path":"/loc/*"}],"includedPaths":[{"path":"/*","indexes":[{"kind":"Range","dataType":"String","precision":-1}]}]}"#;
    let made = container(&client, 201, "spatial", spatial);
    assert!(
        made.body.contains(r#""types":["Point","LineString","Polygon","MultiPolygon"]"#),
        "{}",
        made.body
    );
    assert!(!made.body.contains("indexes\":[{\"kind"), "{}", made.body);
    let boxed = r#","indexingPolicy":{"spatialIndexes":[{"path":"/loc/*","types":["Point"],"boundingBox":{"xmin":0,"ymin":0,"xmax":1,"ymax":1}}]}"#;
    assert!(container(&client, 400, "boxed", boxed).body.contains("boundingBox"));
    container(&client, 201, "plane", &format!(r#","geospatialConfig":{{"type":"Geometry"}}{boxed}"#));
    for language in ["1033", "\"1031\"", "\"fr-FR\""] {
        let id = format!("text{}", language.trim_matches('"'));
        let policy = format!(
            r#","fullTextPolicy":{{"defaultLanguage":{language},"fullTextPaths":[{{"path":"/t","language":{language}}}]}}"#
        );
        assert!(container(&client, 201, &id, &policy).body.contains(&format!(r#""language":{language}"#)));
    }
    container(&client, 400, "unknown", r#","fullTextPolicy":{"defaultLanguage":7,"fullTextPaths":[]}"#);
    let twice = r#","computedProperties":[{"name":"lowerName","query":"SELECT VALUE LOWER(c.name) FROM c"},{"name":"lowerName","query":"SELECT VALUE c.n FROM c"}]"#;
    let twice = parse(&container(&client, 400, "twice", twice).body);
    let message = twice.get("message").and_then(Value::as_str).expect("a message");
    assert!(
        message.contains(
            r#"{"Errors":["Computed property name 'lowerName' cannot be used in multiple definitions."]}"#
        ),
        "{message}"
    );
    let system =
        r#"{"id":"system","partitionKey":{"paths":["/_partitionKey"],"kind":"Hash","systemKey":true}}"#;
    assert!(client.must(201, "POST", "/dbs/d/colls", &[], system).body.contains(r#""systemKey":true"#));
    let many =
        r#"{"id":"many","partitionKey":{"paths":["/a","/b","/c","/d"],"kind":"MultiHash","version":2}}"#;
    assert!(
        client.must(400, "POST", "/dbs/d/colls", &[], many).body.contains("Too many partition key paths")
    );
}

#[test]
fn time_to_live_from_a_property() {
    let clock = MovedClock::new();
    let client = database_by(&clock);
    container(&client, 201, "c", r#","defaultTtl":100,"ttlPropertyPath":"/made""#);
    container(&client, 400, "bad", r#","defaultTtl":100,"ttlPropertyPath":"made""#);
    let read = client.must(200, "GET", "/dbs/d/colls/c", &[], "");
    assert!(read.body.contains(r#""ttlPropertyPath":"/made""#), "{}", read.body);
    // A minute before the time of the test, and no time at all.
    for (id, made) in [("young", "1794767464"), ("text", "\"yesterday\"")] {
        let body = format!(r#"{{"id":"{id}","pk":"p","made":{made}}}"#);
        client.must(201, "POST", DOCS, &[KEY], &body);
    }
    client.must(200, "GET", &format!("{DOCS}/young"), &[KEY], "");
    client.must(200, "GET", &format!("{DOCS}/text"), &[KEY], "");
    // The one counts from the time at the path, the other from its last write.
    clock.advance_clock(41);
    client.must(404, "GET", &format!("{DOCS}/young"), &[KEY], "");
    client.must(200, "GET", &format!("{DOCS}/text"), &[KEY], "");
    clock.advance_clock(60);
    client.must(404, "GET", &format!("{DOCS}/text"), &[KEY], "");
}

#[test]
fn client_encryption_policies() {
    let clock = MovedClock::new();
    let client = database_by(&clock);
    let policy = |key: &str| {
        format!(
            r#","clientEncryptionPolicy":{{"includedPaths":[{{"path":"/s","clientEncryptionKeyId":"{key}","encryptionType":"Randomized","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256"}}],"policyFormatVersion":1}}"#
        )
    };
    let refused = container(&client, 400, "c", &policy("unknownKey"));
    assert!(
        refused.body.contains("ClientEncryptionKey with id '[unknownKey]' does not exist."),
        "{}",
        refused.body
    );
    let key = r#"{"id":"key","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256","wrappedDataEncryptionKey":"AA==","keyWrapMetadata":{"type":"t","name":"n","value":"v","algorithm":"RSA-OAEP"}}"#;
    let made = client.must(201, "POST", "/dbs/d/clientencryptionkeys", &[], key);
    assert!(made.body.contains(r#""_cts":1794767524"#), "{}", made.body);
    // The time of creation stays.
    clock.advance_clock(10);
    let rewrapped = client.must(200, "PUT", "/dbs/d/clientencryptionkeys/key", &[], key);
    assert!(rewrapped.body.contains(r#""_cts":1794767524"#), "{}", rewrapped.body);
    assert!(rewrapped.body.contains(r#""_ts":1794767534"#), "{}", rewrapped.body);
    container(&client, 201, "c", &policy("key"));
    let other = policy("key").replace("Randomized", "Deterministic");
    for members in [String::new(), other] {
        let body =
            format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{members}}}"#);
        let refused = client.must(400, "PUT", "/dbs/d/colls/c", &[], &body);
        assert!(refused.body.contains("client encryption policy"), "{}", refused.body);
    }
    let same = format!(
        r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{}}}"#,
        policy("key")
    );
    client.must(200, "PUT", "/dbs/d/colls/c", &[], &same);
}

#[test]
fn long_keys_of_version_one() {
    let client = database();
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash"}}"#;
    client.must(201, "POST", "/dbs/d/colls", &[], body);
    // They begin with the same 101 bytes, so they have the same hash.
    let keys: Vec<String> = ["a", "b"].iter().map(|end| format!("{}{end}", "x".repeat(500))).collect();
    for (number, key) in keys.iter().enumerate() {
        let header = format!("[\"{key}\"]");
        let body = format!(r#"{{"id":"same","pk":"{key}","n":{number}}}"#);
        client.must(201, "POST", DOCS, &[("x-ms-documentdb-partitionkey", &header)], &body);
    }
    for (number, key) in keys.iter().enumerate() {
        let header = format!("[\"{key}\"]");
        let scope = ("x-ms-documentdb-partitionkey", header.as_str());
        let read = client.must(200, "GET", &format!("{DOCS}/same"), &[scope], "");
        assert!(read.body.contains(&format!(r#""n":{number}"#)), "{}", read.body);
        let rows = client.must(200, "POST", DOCS, &[QUERY, scope], r#"{"query":"SELECT VALUE c.n FROM c"}"#);
        assert!(rows.body.contains(&format!("[{number}]")), "{}", rows.body);
    }
    let long = "x".repeat(2049);
    let header = format!("[\"{long}\"]");
    let body = format!(r#"{{"id":"z","pk":"{long}"}}"#);
    client.must(400, "POST", DOCS, &[("x-ms-documentdb-partitionkey", &header)], &body);
    let scope = ("x-ms-documentdb-partitionkey", "[\"short\"]");
    client.must(201, "POST", DOCS, &[scope], r#"{"id":"same","pk":"short"}"#);
    client.must(
        204,
        "DELETE",
        &format!("{DOCS}/same"),
        &[("x-ms-documentdb-partitionkey", &format!("[\"{}\"]", keys[0]))],
        "",
    );
    client.must(
        200,
        "GET",
        &format!("{DOCS}/same"),
        &[("x-ms-documentdb-partitionkey", &format!("[\"{}\"]", keys[1]))],
        "",
    );
}

#[test]
fn containers_from_before_partition_keys() {
    let client = database();
    let old = ("x-ms-version", "2018-09-17");
    client.must(400, "POST", "/dbs/d/colls", &[], r#"{"id":"c"}"#);
    let made = client.must(201, "POST", "/dbs/d/colls", &[old], r#"{"id":"c"}"#);
    assert!(made.body.contains(r#""systemKey":true"#), "{}", made.body);
    client.must(201, "POST", DOCS, &[old], r#"{"id":"a","n":1}"#);
    client.must(200, "GET", &format!("{DOCS}/a"), &[old], "");
    client.must(200, "PUT", &format!("{DOCS}/a"), &[old], r#"{"id":"a","n":2}"#);
    let ordered = r#"{"query":"SELECT VALUE c.n FROM c ORDER BY c.n"}"#;
    assert!(client.must(200, "POST", DOCS, &[old, QUERY], ordered).body.contains("[2]"));
    // Newer clients name the system key.
    for key in ["[]", "[{}]"] {
        client.must(200, "GET", &format!("{DOCS}/a"), &[("x-ms-documentdb-partitionkey", key)], "");
    }
    client.must(204, "DELETE", &format!("{DOCS}/a"), &[old], "");
}

/// As the Java SDK writes it.
#[test]
fn versions_of_partition_keys_by_name() {
    let client = database();
    let definition = r#"{"id":"c","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":"V2"}}"#;
    let made = client.must(201, "POST", "/dbs/d/colls", &[], definition);
    assert!(made.body.contains(r#""version":2"#), "{}", made.body);
    client.must(400, "POST", "/dbs/d/colls", &[], &definition.replace("V2", "V3"));
}

#[test]
fn ids_with_a_raw_question_mark() {
    let client = Client::with_container(1);
    for id in ["a?b", "?", "what?where=/docs/", "x?a=b&c"] {
        client.must(201, "POST", DOCS, &[KEY], &format!(r#"{{"id":"{id}","pk":"p"}}"#));
        if id.contains('/') {
            continue;
        }
        let path = format!("{DOCS}/{id}");
        let link = format!("dbs/d/colls/c/docs/{id}");
        let token = crate::client::sign_link("GET", "docs", &link);
        let read = client.send_as(&token, "GET", &path, &[KEY], b"");
        assert_eq!(read.status, 200, "{id}: {}", read.body);
        assert!(read.body.contains(&format!(r#""id":"{id}""#)), "{}", read.body);
        let token = crate::client::sign_link("DELETE", "docs", &link);
        assert_eq!(client.send_as(&token, "DELETE", &path, &[KEY], b"").status, 204);
    }
}

/// What `If-None-Match` means on a write is unverified, so it is not examined.
#[test]
fn writes_do_not_look_at_if_none_match() {
    let client = with_items();
    let any = ("if-none-match", "*");
    let upsert = [KEY, any, ("x-ms-documentdb-is-upsert", "True")];
    client.must(200, "POST", DOCS, &upsert, r#"{"id":"i0","pk":"p","n":7}"#);
    client.must(201, "POST", DOCS, &upsert, r#"{"id":"new","pk":"p"}"#);
    client.must(200, "PUT", &format!("{DOCS}/i0"), &[KEY, any], r#"{"id":"i0","pk":"p","n":8}"#);
    client.must(204, "DELETE", &format!("{DOCS}/i0"), &[KEY, any], "");
}

#[test]
fn texts_of_refusals() {
    let client = Client::with_container(1);
    let long = format!(r#"{{"id":"{}","pk":"p"}}"#, "x".repeat(1024));
    assert!(client.must(400, "POST", DOCS, &[KEY], &long).body.contains("less than '1024' characters."));
    let conflicts = "/dbs/d/colls/c/conflicts";
    let query = r#"{"query":"SELECT * FROM c"}"#;
    client.must(400, "POST", conflicts, &[QUERY], query);
    client.must(200, "POST", conflicts, &[QUERY, CROSS], query);
    client.must(200, "POST", conflicts, &[QUERY, KEY], query);
    let deep = r#"{"id":"deep","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2}}"#;
    client.must(201, "POST", "/dbs/d/colls", &[], deep);
    let batch = [
        ("x-ms-documentdb-partitionkey", "[\"x\"]"),
        ("x-ms-cosmos-is-batch-request", "True"),
        ("x-ms-cosmos-batch-atomic", "True"),
    ];
    let operations = r#"[{"operationType":"Create","resourceBody":{"id":"1","a":"x","b":"y"}}]"#;
    let refused = client.must(400, "POST", "/dbs/d/colls/deep/docs", &batch, operations);
    let words = "Partition key provided either doesn't correspond to definition in the collection or doesn't match \
                 partition key field values specified in the document.";
    assert!(refused.body.contains(words), "{}", refused.body);
    assert_eq!(refused.header("x-ms-substatus"), Some("1001"));
    for ttl in ["0", "-2", "\"5\""] {
        client.must(400, "POST", DOCS, &[KEY], &format!(r#"{{"id":"t","pk":"p","ttl":{ttl}}}"#));
    }
}
