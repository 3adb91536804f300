//! Fault rules: which requests they match, how often they fire, and what the client gets.

use crate::client::Client;

const DOCS: &str = "/dbs/d/colls/c/docs";
const FAULTS: &str = "/_quire/faults";
const PK: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");

fn faulty() -> Client {
    let client = Client::start_with(1, |config| config.enable_faults = true);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    client.must(201, "POST", "/dbs/d/colls", &[], container);
    client
}

#[test]
fn off_unless_switched_on() {
    let client = Client::start(1);
    let answer = client.send("GET", FAULTS, &[], "");
    assert_eq!(answer.status, 403);
    assert!(answer.body.contains("--enable-faults"), "{}", answer.body);
}

#[test]
fn a_rule_fires_for_what_it_names() {
    let client = faulty();
    let rule = r#"{"operations":["create"],"container":"c","partitionKey":["p"],"skip":1,"count":2,
        "status":429,"subStatus":3200,"retryAfterMs":7}"#;
    let added = client.must(201, "POST", FAULTS, &[], rule);
    assert!(added.body.contains(r#""id":"1""#), "{}", added.body);
    let create = |id: u32| client.send("POST", DOCS, &[PK], &format!(r#"{{"id":"{id}","pk":"p"}}"#));
    assert_eq!(create(1).status, 201);
    let failed = create(2);
    assert_eq!((failed.status, failed.header("x-ms-substatus")), (429, Some("3200")));
    assert_eq!(failed.header("x-ms-retry-after-ms"), Some("7"));
    let other = ("x-ms-documentdb-partitionkey", "[\"q\"]");
    client.must(201, "POST", DOCS, &[other], r#"{"id":"1","pk":"q"}"#);
    client.must(200, "GET", "/dbs/d/colls/c/docs/1", &[PK], "");
    assert_eq!((create(2).status, create(2).status), (429, 201));
    let listed = client.must(200, "GET", FAULTS, &[], "");
    assert!(listed.body.contains(r#""matched":3,"fired":2"#), "{}", listed.body);
    client.must(204, "DELETE", "/_quire/faults/1", &[], "");
    client.must(404, "DELETE", "/_quire/faults/1", &[], "");
    assert_eq!(client.must(200, "GET", FAULTS, &[], "").body, r#"{"faults":[]}"#);
    client.must(400, "POST", FAULTS, &[], r#"{"status":99}"#);
    client.must(405, "PUT", FAULTS, &[], "{}");
}

#[test]
fn an_answer_is_dropped_after_the_request_was_served() {
    let client = faulty();
    client.must(201, "POST", FAULTS, &[], r#"{"operations":["create"],"after":true,"status":503,"count":1}"#);
    client.must(503, "POST", DOCS, &[PK], r#"{"id":"1","pk":"p"}"#);
    client.must(200, "GET", "/dbs/d/colls/c/docs/1", &[PK], "");
    client.must(201, "POST", FAULTS, &[], r#"{"operations":["create"],"cut":true,"delayMs":5}"#);
    assert!(client.try_send("POST", DOCS, &[PK], r#"{"id":"2","pk":"p"}"#).is_none());
    client.must(204, "DELETE", FAULTS, &[], "");
    client.must(404, "GET", "/dbs/d/colls/c/docs/2", &[PK], "");
    client.must(201, "POST", DOCS, &[PK], r#"{"id":"2","pk":"p"}"#);
}
