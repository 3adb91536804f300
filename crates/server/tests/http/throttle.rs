//! Provisioned throughput that is enforced.

use std::time::Duration;

use crate::client::{Answer, Client};

const PK: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");
const CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;

/// Costs about 1000 request units.
fn create(client: &Client, container: &str, id: u32) -> Answer {
    let body = format!(r#"{{"id":"{id}","pk":"p","pad":"{}"}}"#, "x".repeat(2_000_000));
    client.send("POST", &format!("/dbs/d/colls/{container}/docs"), &[PK], &body)
}

fn assert_throttled(answer: &Answer) -> Duration {
    assert_eq!((answer.status, answer.header("x-ms-substatus")), (429, Some("3200")), "{}", answer.body);
    assert_eq!(answer.header("x-ms-session-token"), None);
    let wait: u64 = answer.header("x-ms-retry-after-ms").and_then(|ms| ms.parse().ok()).expect("a time");
    assert!((1..=3000).contains(&wait), "{wait}");
    Duration::from_millis(wait)
}

#[test]
fn a_container_has_its_own_throughput() {
    let client = Client::start_with(1, |config| config.enforce_throughput = true);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    client.must(201, "POST", "/dbs/d/colls", &[("x-ms-offer-throughput", "400")], CONTAINER);
    client.must(201, "POST", "/dbs/d/colls", &[], &CONTAINER.replace("\"c\"", "\"other\""));
    assert_eq!(create(&client, "c", 1).status, 201);
    let wait = assert_throttled(&create(&client, "c", 2));
    assert_throttled(&client.send("GET", "/dbs/d/colls/c/docs/1", &[PK], ""));
    // The container itself can be read, and the other one has a balance of its own.
    client.must(200, "GET", "/dbs/d/colls/c", &[], "");
    assert_eq!(create(&client, "other", 1).status, 201);
    std::thread::sleep(wait + Duration::from_millis(20));
    client.must(200, "GET", "/dbs/d/colls/c/docs/1", &[PK], "");
}

#[test]
fn containers_share_the_throughput_of_their_database() {
    let client = Client::start_with(1, |config| config.enforce_throughput = true);
    client.must(201, "POST", "/dbs", &[("x-ms-offer-throughput", "400")], r#"{"id":"d"}"#);
    client.must(201, "POST", "/dbs/d/colls", &[], CONTAINER);
    client.must(201, "POST", "/dbs/d/colls", &[], &CONTAINER.replace("\"c\"", "\"other\""));
    assert_eq!(create(&client, "c", 1).status, 201);
    assert_throttled(&create(&client, "other", 1));
}

#[test]
fn nothing_is_refused_by_default() {
    let client = Client::start(1);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    client.must(201, "POST", "/dbs/d/colls", &[("x-ms-offer-throughput", "400")], CONTAINER);
    assert!((0..3).all(|id| create(&client, "c", id).status == 201));
}

/// A procedure is not refused while it runs: its writes are no longer accepted.
#[test]
fn a_procedure_spends_what_there_is() {
    let client = Client::start_with(1, |config| config.enforce_throughput = true);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    client.must(201, "POST", "/dbs/d/colls", &[("x-ms-offer-throughput", "400")], CONTAINER);
    let script = "function () { var c = getContext().getCollection(), n = 0; (function next() { \
        if (c.createDocument(c.getSelfLink(), {pk: 'p', n: n}, next)) n++; \
        getContext().getResponse().setBody(n); })(); }";
    client.must(201, "POST", "/dbs/d/colls/c/sprocs", &[], &format!(r#"{{"id":"fill","body":"{script}"}}"#));
    let answer = client.send("POST", "/dbs/d/colls/c/sprocs/fill", &[PK], "[]");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let created: u32 = answer.body.parse().expect("a number");
    assert!((10..80).contains(&created), "{created}");
    let charge: f64 =
        answer.header("x-ms-request-charge").and_then(|charge| charge.parse().ok()).expect("a charge");
    assert!((380.0..450.0).contains(&charge), "{charge}");
}
