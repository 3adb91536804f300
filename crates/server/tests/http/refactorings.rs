//! Refactorings over HTTP: dry run, expand, finish, undo, and what is refused.

use serde_json::{Value, json};

use crate::client::{Answer, Client};

const REFACTORINGS: &str = "/_quire/dbs/d/refactorings";
const DOCS: &str = "/dbs/d/colls/c/docs";

fn body(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

fn people() -> Client {
    let client = Client::start(1);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    let container = r#"{"id":"c","partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#;
    client.must(201, "POST", "/dbs/d/colls", &[], container);
    for n in 0..20 {
        let (key, item) = (format!(r#"["p{n}"]"#), json!({"id": format!("p{n}"), "fname": format!("n{n}")}));
        client.must(201, "POST", DOCS, &[("x-ms-documentdb-partitionkey", &key)], &item.to_string());
    }
    client
}

fn read(client: &Client, id: &str) -> Value {
    let key = format!(r#"["{id}"]"#);
    body(&client.must(200, "GET", &format!("{DOCS}/{id}"), &[("x-ms-documentdb-partitionkey", &key)], ""))
}

#[test]
fn a_property_gets_another_name_and_its_old_one_again() {
    let client = people();
    assert_eq!(body(&client.must(200, "GET", REFACTORINGS, &[], "")), json!({"refactorings": []}));
    let order = json!({"kind": "rename", "container": "c", "from": "/fname", "to": "/firstName"}).to_string();
    let dry = body(&client.must(200, "POST", REFACTORINGS, &[("x-quire-dry-run", "true")], &order));
    assert_eq!((&dry["items"], &dry["wouldConvert"]), (&json!(20), &json!(20)), "{dry}");
    assert_eq!(dry["examples"].as_array().map(Vec::len), Some(3));
    assert_eq!(read(&client, "p3")["fname"], "n3");
    let job = client.run_job(REFACTORINGS, &order);
    assert_eq!((&job["kind"], &job["container"]), (&json!("refactoring"), &json!("c")));
    assert_eq!(job["result"]["state"], "expanded");
    assert_eq!(
        (&read(&client, "p3")["firstName"], &read(&client, "p3")["fname"]),
        (&json!("n3"), &Value::Null)
    );
    let found = body(&client.must(200, "GET", &format!("{REFACTORINGS}/r-1"), &[], ""));
    assert_eq!((&found["kind"], &found["converted"]), (&json!("rename"), &json!(20)), "{found}");
    let running = client.must(409, "POST", REFACTORINGS, &[], &order);
    assert!(running.body.contains("RefactoringRunning"), "{}", running.body);
    client.run_job(&format!("{REFACTORINGS}/r-1/finish"), "");
    let again = client.must(409, "POST", &format!("{REFACTORINGS}/r-1/finish"), &[], "");
    assert!(again.body.contains("RefactoringState"), "{}", again.body);
    client.run_job(&format!("{REFACTORINGS}/r-1/undo"), "");
    assert_eq!(
        (&read(&client, "p3")["fname"], &read(&client, "p3")["firstName"]),
        (&json!("n3"), &Value::Null)
    );
    let all = body(&client.must(200, "GET", REFACTORINGS, &[], ""));
    assert_eq!(all["refactorings"][0]["state"], "undone", "{all}");
}

#[test]
fn what_is_wrong_with_a_refactoring_is_said() {
    let client = people();
    let wrong = json!({"kind": "rename", "container": "c", "from": "/id", "to": "/key"}).to_string();
    let refused = body(&client.must(400, "POST", REFACTORINGS, &[], &wrong));
    assert_eq!(
        (&refused["code"], &refused["errors"][0]["at"]),
        (&json!("RefactoringInvalid"), &json!("/from"))
    );
    let later = client.must(400, "POST", REFACTORINGS, &[], r#"{"kind":"extract","container":"c"}"#);
    assert!(later.body.contains("Refactoring of the kind 'extract'"), "{}", later.body);
    client.must(400, "POST", REFACTORINGS, &[], "[");
    client.must(404, "POST", REFACTORINGS, &[], r#"{"kind":"rename","container":"x","from":"/a","to":"/b"}"#);
    client.must(404, "GET", &format!("{REFACTORINGS}/r-1"), &[], "");
    client.must(404, "POST", &format!("{REFACTORINGS}/r-1/undo"), &[], "");
    client.must(404, "GET", "/_quire/dbs/other/refactorings", &[], "");
}
