//! Transactions over several containers, an extension: requests, answers and refusals.

use crate::client::Client;

const TRANSACTION: &str = "/_quire/dbs/d/transaction";

fn client() -> Client {
    let client = Client::start_with(5, |config| config.enable_transactions = true);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    for id in ["books", "authors"] {
        let body = format!(r#"{{"id":"{id}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#);
        client.must(201, "POST", "/dbs/d/colls", &[], &body);
    }
    client
}

fn read(client: &Client, container: &str, key: &str, id: &str) -> (u16, String) {
    let key = format!("[\"{key}\"]");
    let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
    let answer = client.send("GET", &format!("/dbs/d/colls/{container}/docs/{id}"), &headers, "");
    (answer.status, answer.body)
}

#[test]
fn off_unless_switched_on() {
    let client = Client::start(1);
    let answer = client.send("POST", TRANSACTION, &[], r#"{"operations":[]}"#);
    assert_eq!(answer.status, 403);
    assert!(answer.body.contains("--enable-transactions"), "{}", answer.body);
}

#[test]
fn containers_change_together() {
    let client = client();
    let body = r#"{"operations":[
        {"operationType":"Create","container":"authors","partitionKey":["ada"],"resourceBody":{"id":"ada","pk":"ada","books":0}},
        {"operationType":"Upsert","container":"books","resourceBody":{"id":"b1","pk":"x"}}]}"#;
    let answer = client.must(200, "POST", TRANSACTION, &[], body);
    assert_eq!(answer.body.matches(r#""statusCode":201"#).count(), 2, "{}", answer.body);
    assert!(answer.body.contains(r#""sessionTokens":{"authors":""#), "{}", answer.body);
    assert!(answer.header("x-ms-request-charge").is_some());
    let body = r#"{"operations":[
        {"operationType":"Check","container":"books","id":"b1","partitionKey":["x"]},
        {"operationType":"Patch","container":"authors","id":"ada","partitionKey":["ada"],
            "resourceBody":{"operations":[{"op":"incr","path":"/books","value":1}]}},
        {"operationType":"Read","container":"authors","id":"ada","partitionKey":"[\"ada\"]"},
        {"operationType":"Create","container":"books","resourceBody":{"id":"b2","pk":"y","author":"ada"}},
        {"operationType":"Delete","container":"books","id":"b1","partitionKey":["x"]}]}"#;
    let answer = client.must(200, "POST", TRANSACTION, &[], body);
    assert_eq!(answer.body.matches(r#""books":1"#).count(), 2, "{}", answer.body);
    let (status, item) = read(&client, "authors", "ada", "ada");
    assert_eq!(status, 200);
    // The items in the answer are as they are stored.
    assert!(answer.body.contains(&item), "{item} in {}", answer.body);
    assert_eq!(read(&client, "books", "x", "b1").0, 404);
    assert!(answer.body.contains(&read(&client, "books", "y", "b2").1));
    let minimal = client.must(
        200,
        "POST",
        TRANSACTION,
        &[("Prefer", "return=minimal")],
        r#"{"operations":[{"operationType":"Read","container":"authors","id":"ada","partitionKey":["ada"]}]}"#,
    );
    assert!(!minimal.body.contains("resourceBody") && minimal.body.contains("eTag"), "{}", minimal.body);
    let body = r#"{"operations":[
        {"operationType":"Upsert","container":"books","resourceBody":{"id":"b3","pk":"z"},"minimalReturnPreference":true},
        {"operationType":"Upsert","container":"books","resourceBody":{"id":"b4","pk":"z"}}]}"#;
    let answer = client.must(200, "POST", TRANSACTION, &[], body);
    assert!(!answer.body.contains("b3") && answer.body.contains("b4"), "{}", answer.body);
}

#[test]
fn one_failure_fails_all() {
    let client = client();
    let body = r#"{"operations":[
        {"operationType":"Create","container":"books","resourceBody":{"id":"b1","pk":"x"}},
        {"operationType":"Replace","container":"authors","id":"eve","partitionKey":["eve"],"resourceBody":{"id":"eve","pk":"eve"}},
        {"operationType":"Create","container":"books","resourceBody":{"id":"b2","pk":"y"}}]}"#;
    let answer = client.must(207, "POST", TRANSACTION, &[], body);
    assert_eq!(answer.body.matches(r#""statusCode":424"#).count(), 2, "{}", answer.body);
    assert!(answer.body.contains(r#"{"statusCode":404,"requestCharge":0,"message":""#), "{}", answer.body);
    assert_eq!(read(&client, "books", "x", "b1").0, 404);
    // A read that is not modified does not undo the rest.
    client.must(200, "POST", TRANSACTION, &[], r#"{"operations":[{"operationType":"Create","container":"books","resourceBody":{"id":"b1","pk":"x"}}]}"#);
    let body = r#"{"operations":[
        {"operationType":"Read","container":"books","id":"b1","partitionKey":["x"],"ifNoneMatch":"*"},
        {"operationType":"Create","container":"books","resourceBody":{"id":"b2","pk":"y"}}]}"#;
    let answer = client.must(207, "POST", TRANSACTION, &[], body);
    assert!(answer.body.contains(r#""statusCode":304"#) && answer.body.contains(r#""statusCode":201"#));
    assert_eq!(read(&client, "books", "y", "b2").0, 200);
}

#[test]
fn invalid_requests_are_explained() {
    let client = client();
    let check = |body: &str, expected: &str| {
        let answer = client.must(400, "POST", TRANSACTION, &[], body);
        assert!(answer.body.contains(expected), "{body}: {}", answer.body);
    };
    check("", "The transaction is not valid: EOF");
    check("[]", "operations");
    check(r#"{"operations":[]}"#, "no operations");
    check(r#"{"operations":[1]}"#, "expected an operation at line 1 column");
    let of_operation = |operation: &str, why: &str| {
        let body = format!(r#"{{"operations":[{operation}]}}"#);
        check(&body, &format!("Operation 1 of the transaction is not valid: {why}."));
    };
    of_operation(r#"{"operationType":"Fly"}"#, "'Fly' is no operation type");
    of_operation(r#"{"operationType":"Create","container":"books"}"#, "it has no resourceBody");
    of_operation(r#"{"operationType":"Read","container":"books"}"#, "it has no id");
    of_operation(r#"{"operationType":"Create","resourceBody":{}}"#, "it has no container");
    let body = "it reads, deletes or checks, and has a resourceBody";
    of_operation(r#"{"operationType":"Read","container":"books","id":"a","resourceBody":{}}"#, body);
    check(r#"{"operations":[{"operationType":"Create","colour":"red"}]}"#, "unknown field `colour`");
    check(r#"{"operations":[{"operationType":"Create","resourceType":"docs"}]}"#, "`resourceType`");
    check(
        r#"{"operations":[{"operationType":"Read","container":"books","id":"a","partitionKey":{}}]}"#,
        "Partition key {} is invalid",
    );
    client.must(405, "GET", TRANSACTION, &[], "");
    client.must(
        404,
        "POST",
        "/_quire/dbs/nowhere/transaction",
        &[],
        r#"{"operations":[{"operationType":"Read","container":"books","id":"a","partitionKey":["p"]}]}"#,
    );
}

/// An answer is held in memory as a whole: a hundred items of 2 MB are not answered.
#[test]
fn answers_are_bounded() {
    let client = client();
    let text = "x".repeat(1_500_000);
    let item = format!(r#"{{"id":"a","pk":"p","text":"{text}"}}"#);
    let headers = [("x-ms-documentdb-partitionkey", r#"["p"]"#)];
    client.must(201, "POST", "/dbs/d/colls/books/docs", &headers, &item);
    let read = r#"{"operationType":"Read","container":"books","id":"a","partitionKey":["p"]}"#;
    let patch = r#"{"operationType":"Patch","container":"books","id":"a","partitionKey":["p"],
        "resourceBody":{"operations":[{"op":"incr","path":"/n","value":1}]}}"#;
    for (operation, count, status) in [(read, 2, 200), (read, 3, 207), (patch, 2, 200), (patch, 100, 207)] {
        let body = format!(r#"{{"operations":[{}]}}"#, vec![operation; count].join(","));
        let answer = client.must(status, "POST", TRANSACTION, &[], &body);
        let is_refused = answer.body.contains(r#""statusCode":413,"subStatusCode":3402"#);
        assert_eq!(is_refused, status == 207, "{count}: {}", &answer.body[..answer.body.len().min(300)]);
        // Who does not want the items gets an answer.
        let minimal = [("Prefer", "return=minimal")];
        client.must(200, "POST", TRANSACTION, &minimal, &body.replace("incr", "add"));
    }
    let (_, stored) = self::read(&client, "books", "p", "a");
    assert!(stored.contains(r#""n":1,"#), "{}", &stored[stored.len() - 300..]);
}
