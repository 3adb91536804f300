//! Demo data: what the advisor says about it.

use serde_json::{Value, json};

use crate::client::Client;

const DEMO: &str = "/_quire/demo";
const ADVICE: &str = "/_quire/dbs/demo/advice";

const SIX: [(&str, &str, &str); 6] = [
    ("growing-references", "publishers", "/books"),
    ("hot-copy", "portfolios", "/holdings/*/stock"),
    ("join-items", "bookWriters", ""),
    ("rollup-wrong", "authors", "/countOfBooks"),
    ("stale-copies", "books", "/authors/*/name"),
    ("unbounded-array", "posts", "/comments"),
];

fn body(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn findings(client: &Client) -> Vec<Value> {
    client.run_job(ADVICE, "");
    let list = body(&client.must(200, "GET", ADVICE, &[], "").body);
    list["findings"].as_array().expect("a list").clone()
}

fn names(findings: &[Value]) -> Vec<(String, String, String)> {
    let text = |finding: &Value, member: &str| finding[member].as_str().expect("a text").to_owned();
    let mut all: Vec<_> =
        findings.iter().map(|own| (text(own, "rule"), text(own, "container"), text(own, "path"))).collect();
    all.sort();
    all
}

#[test]
fn it_has_six_findings_and_none_about_people() {
    let client = Client::start(1);
    let job = client.run_job(DEMO, "");
    assert_eq!((&job["kind"], &job["database"]), (&json!("demo"), &json!("demo")));
    let filled = job["result"].clone();
    assert_eq!(filled["database"], "demo");
    assert_eq!(filled["containers"].as_object().map(|all| all.len()), Some(10), "{filled}");
    let found = findings(&client);
    let expected =
        SIX.map(|(rule, container, path)| (rule.to_owned(), container.to_owned(), path.to_owned()));
    let shown: Vec<String> = found.iter().map(Value::to_string).collect();
    assert_eq!(names(&found), expected, "{}", shown.join("\n"));
    for finding in &found {
        assert!(finding["before"].is_object(), "{finding}");
        assert_ne!(finding["apply"]["kind"], "steps", "{finding}");
    }
    // A second one is refused and changes nothing.
    let refused = client.must(409, "POST", DEMO, &[], "");
    assert!(refused.body.contains("Conflict"), "{}", refused.body);
    assert_eq!(names(&findings(&client)), expected);
    // The same data and requests in every fill.
    let again = client.run_job(DEMO, r#"{"database":"other"}"#)["result"].clone();
    assert_eq!((&again["containers"], &again["requests"]), (&filled["containers"], &filled["requests"]));
    let workload = |database: &str| {
        body(&client.must(200, "GET", &format!("/_quire/dbs/{database}/workload"), &[], "").body)["operations"].clone()
    };
    assert_eq!(workload("demo"), workload("other"));
    for wrong in ["[]", r#"{"database":7}"#, r#"{"seed":1}"#] {
        client.must(400, "POST", DEMO, &[], wrong);
    }
    assert_eq!(json!(filled["requests"].as_u64() > Some(10_000)), json!(true), "{filled}");
}
