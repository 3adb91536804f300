//! Profiles and advice over HTTP: from stored items to a finding, dismissed and opened again.

use serde_json::{Value, json};

use crate::client::{Answer, Client};

const PROFILE: &str = "/_quire/dbs/d/profile";
const ADVICE: &str = "/_quire/dbs/d/advice";

fn container(client: &Client, id: &str, key: &str) {
    let body = format!(r#"{{"id":"{id}","partitionKey":{{"paths":["{key}"],"kind":"Hash","version":2}}}}"#);
    client.must(201, "POST", "/dbs/d/colls", &[], &body);
}

fn create(client: &Client, container: &str, key: &str, item: &Value) {
    let key = json!([key]).to_string();
    let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
    client.must(201, "POST", &format!("/dbs/d/colls/{container}/docs"), &headers, &item.to_string());
}

/// 300 orders of 100 customers; the customers of 15 orders are not there.
fn shop() -> Client {
    let client = Client::start(1);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    container(&client, "customers", "/id");
    container(&client, "orders", "/city");
    container(&client, "empty", "/pk");
    for n in 0..100 {
        let id = format!("c-{n}");
        let item = json!({"id": id, "name": format!("Secret Name {n}"), "since": 2000 + n % 20});
        create(&client, "customers", &id, &item);
    }
    for n in 0..300 {
        let customer = if n % 20 == 7 { format!("gone-{}", n % 5) } else { format!("c-{}", n % 100) };
        let city = ["Graz", "Linz", "Wien"][n % 3];
        let item = json!({"id": format!("o-{n}"), "city": city, "customerId": customer, "total": n * 7 % 90});
        create(&client, "orders", city, &item);
    }
    client
}

fn body(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

fn profile(client: &Client, container: &str) -> Value {
    body(&client.must(200, "GET", &format!("/_quire/dbs/d/colls/{container}/profile"), &[], ""))
}

#[test]
fn a_profile_is_what_is_stored() {
    let client = shop();
    client.must(404, "GET", "/_quire/dbs/d/colls/orders/profile", &[], "");
    assert_eq!(body(&client.must(200, "GET", PROFILE, &[], "")), json!({"database": "d", "containers": []}));
    let job = client.run_job(PROFILE, "");
    assert_eq!((&job["kind"], &job["database"]), (&json!("profile"), &json!("d")));
    assert_eq!(job["progress"]["done"], 800);
    let orders = profile(&client, "orders");
    assert_eq!(orders["items"]["count"], 300);
    assert_eq!((&orders["revision"], &orders["partitions"]), (&json!(1), &json!(1)));
    assert_eq!(orders["partitionKey"]["values"], 3);
    let reference = &orders["references"][0];
    assert_eq!(
        (&reference["path"], &reference["to"]["container"]),
        (&json!("/customerId"), &json!("customers"))
    );
    assert_eq!(reference["dangling"], 0.05);
    assert_eq!(profile(&client, "empty")["items"], json!({"count": 0, "scanned": 0, "bytes": 0}));
    let customers = profile(&client, "customers");
    assert_eq!(customers["items"]["count"], 100);
    assert!(!customers.to_string().contains("Secret"), "{customers}");
    let all = body(&client.must(200, "GET", PROFILE, &[], ""));
    assert_eq!(all["containers"], json!([customers, profile(&client, "empty"), orders]));
}

#[test]
fn a_sample_is_scanned_of_what_is_larger() {
    let client = shop();
    client.run_job(PROFILE, r#"{"containers":["orders"],"scanMax":100}"#);
    let items = profile(&client, "orders")["items"].clone();
    let scanned = items["scanned"].as_u64().expect("a number");
    assert_eq!(items["count"], 300);
    assert!((50..=150).contains(&scanned), "{scanned}");
    client.must(404, "GET", "/_quire/dbs/d/colls/customers/profile", &[], "");
    // Advice does not go by a smaller sample than usual.
    client.run_job(ADVICE, "");
    assert_eq!(profile(&client, "orders")["revision"], 2);
    assert_eq!(profile(&client, "orders")["items"]["scanned"], 300);
}

#[test]
fn advice_finds_what_is_wrong_and_remembers_what_was_decided() {
    let client = shop();
    let before = body(&client.must(200, "GET", ADVICE, &[], ""));
    assert_eq!((&before["revision"], &before["findings"]), (&json!(0), &json!([])));
    let job = client.run_job(ADVICE, r#"{"thresholds":{"minItems":100}}"#);
    assert_eq!((&job["kind"], &job["result"]["findings"]), (&json!("advice"), &json!(1)));
    let list = body(&client.must(200, "GET", ADVICE, &[], ""));
    assert_eq!((&list["database"], &list["revision"]), (&json!("d"), &json!(1)));
    assert_eq!(list["looked"]["containers"], 3);
    let finding = &list["findings"][0];
    assert_eq!(finding["rule"], "dangling-references");
    assert_eq!((&finding["container"], &finding["path"]), (&json!("orders"), &json!("/customerId")));
    assert_eq!(finding["state"], "open");
    let (id, example) = (finding["id"].as_str().expect("an id"), &finding["evidence"]["examples"][0]);
    assert_eq!(finding["before"]["id"], example["id"]);
    assert!(finding["before"]["customerId"].as_str().is_some_and(|id| id.starts_with("gone-")), "{finding}");
    let dismiss = format!("{ADVICE}/{id}/dismiss");
    client.must(400, "POST", &dismiss, &[], "{}");
    let dismissed = body(&client.must(200, "POST", &dismiss, &[], r#"{"reason":"kept for the record"}"#));
    assert_eq!(
        (&dismissed["state"], &dismissed["reason"]),
        (&json!("dismissed"), &json!("kept for the record"))
    );
    client.run_job(ADVICE, r#"{"thresholds":{"minItems":100}}"#);
    let again = body(&client.must(200, "GET", ADVICE, &[], ""));
    assert_eq!((&again["revision"], &again["findings"][0]["state"]), (&json!(2), &json!("dismissed")));
    let opened = body(&client.must(200, "POST", &format!("{ADVICE}/{id}/reopen"), &[], ""));
    assert_eq!((&opened["state"], &opened["reason"]), (&json!("open"), &Value::Null));
    // What is corrected is found no more.
    for n in 0..5 {
        create(&client, "customers", &format!("gone-{n}"), &json!({"id": format!("gone-{n}"), "name": "n"}));
    }
    client.run_job(ADVICE, r#"{"thresholds":{"minItems":100}}"#);
    assert_eq!(body(&client.must(200, "GET", ADVICE, &[], ""))["findings"], json!([]));
}

/// Prices are texts in some items, and queries filter by them.
#[test]
fn a_finding_is_applied_and_gone() {
    let client = shop();
    for n in 300..600 {
        let price = if n % 10 == 0 { json!(n.to_string()) } else { json!(n) };
        let item = json!({"id": format!("o-{n}"), "city": "Graz", "price": price, "customerId": "c-1"});
        create(&client, "orders", "Graz", &item);
    }
    let headers = [
        ("x-ms-documentdb-isquery", "true"),
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-query-enablecrosspartition", "true"),
    ];
    let query = r#"{"query":"SELECT * FROM c WHERE c.price = 450","parameters":[]}"#;
    let queries = |client: &Client| {
        (0..20).for_each(|_| drop(client.must(200, "POST", "/dbs/d/colls/orders/docs", &headers, query)));
    };
    let order = r#"{"thresholds":{"minItems":100,"minOperations":10}}"#;
    let drift = |client: &Client| {
        client.run_job(ADVICE, order);
        let list = body(&client.must(200, "GET", ADVICE, &[], ""));
        let findings = list["findings"].as_array().expect("a list").clone();
        findings.into_iter().find(|finding| finding["rule"] == "type-drift")
    };
    queries(&client);
    let finding = drift(&client).expect("a finding");
    assert_eq!(finding["apply"]["request"]["body"]["kind"], "retype", "{finding}");
    let apply = format!("{ADVICE}/{}/apply", finding["id"].as_str().expect("an id"));
    let dry = body(&client.must(200, "POST", &apply, &[("x-quire-dry-run", "true")], ""));
    assert_eq!(dry["wouldConvert"], 30, "{dry}");
    client.must(400, "POST", &apply, &[], r#"{"finish":"later"}"#);
    let job = client.run_job(&apply, r#"{"finish":"auto"}"#);
    assert_eq!((&job["kind"], &job["about"]["finding"]), (&json!("apply"), &finding["id"]));
    assert_eq!((&job["result"]["refactoring"], &job["result"]["state"]), (&json!("r-1"), &json!("finished")));
    let list = body(&client.must(200, "GET", ADVICE, &[], ""));
    let accepted = list["findings"].as_array().expect("a list").iter().find(|own| own["id"] == finding["id"]);
    assert_eq!(accepted.map(|own| &own["state"]), Some(&json!("accepted")));
    queries(&client);
    assert_eq!(drift(&client), None);
    let refactoring = body(&client.must(200, "GET", "/_quire/dbs/d/refactorings/r-1", &[], ""));
    assert_eq!((&refactoring["state"], &refactoring["converted"]), (&json!("finished"), &json!(30)));
}

/// The finding of a rule, of a list that is made now.
fn finding_of(client: &Client, order: &str, rule: &str) -> Option<Value> {
    client.run_job(ADVICE, order);
    let list = body(&client.must(200, "GET", ADVICE, &[], ""));
    let findings = list["findings"].as_array().expect("a list").clone();
    findings.into_iter().find(|finding| finding["rule"] == rule)
}

fn apply_path(finding: &Value) -> String {
    format!("{ADVICE}/{}/apply", finding["id"].as_str().expect("an id"))
}

fn undo(client: &Client, job: &Value) -> Value {
    // 200 where it is done by then.
    let answer =
        client.send("POST", &format!("/_quire/jobs/{}/undo", job["id"].as_str().expect("an id")), &[], "");
    assert!([200, 202].contains(&answer.status), "{}", answer.body);
    let path = format!("/_quire/jobs/{}?waitMs=60000", body(&answer)["id"].as_str().expect("an id"));
    let undone = body(&client.must(200, "GET", &path, &[], ""));
    assert_eq!(undone["state"], "done", "{undone}");
    undone
}

const DRY: [(&str, &str); 1] = [("x-quire-dry-run", "true")];
const SMALL: &str = r#"{"thresholds":{"minItems":100,"minOperations":10,"minSavedPerDay":0,"minSavedShare":0,"viewMinItems":100}}"#;

#[test]
fn declarations_of_a_finding_are_added_to_the_model_as_it_is() {
    let client = shop();
    let finding = finding_of(&client, SMALL, "dangling-references").expect("a finding");
    // What applies it is not part of what is shown.
    let members: Vec<&String> = finding["apply"].as_object().expect("an object").keys().collect();
    assert_eq!(members, ["kind", "request", "steps"]);
    // Meanwhile another client declares a link of that name.
    let own = json!({"name": "orders-customer", "from": {"container": "orders", "path": "/sellerId"}, "to": {"container": "customers"}});
    client.must(201, "PUT", "/_quire/dbs/d/model", &[], &json!({"version": 1, "links": [own]}).to_string());
    client.must(200, "GET", "/_quire/dbs/d/model", &[], "");
    let dry = body(&client.must(200, "POST", &apply_path(&finding), &DRY, ""));
    assert_eq!(dry["_changes"]["added"], json!(["orders-customer-2"]), "{dry}");
    assert_eq!(dry["estimates"][0]["dangling"], 15, "{dry}");
    let model = || body(&client.must(200, "GET", "/_quire/dbs/d/model", &[], ""));
    assert_eq!(model()["links"].as_array().map(Vec::len), Some(1));
    let job = client.run_job(&apply_path(&finding), "");
    assert_eq!(job["result"]["declarations"], json!(["orders-customer-2"]), "{job}");
    assert_eq!(model()["links"][1]["from"]["path"], "/customerId");
    assert_eq!(body(&client.must(200, "GET", ADVICE, &[], ""))["findings"][0]["state"], "accepted");
    assert_eq!(finding_of(&client, SMALL, "dangling-references"), None);
    undo(&client, &job);
    assert_eq!(model()["links"].as_array().map(Vec::len), Some(1));
    let again = finding_of(&client, SMALL, "dangling-references").expect("it is there again");
    assert_eq!(again["state"], "open");
    let undone = format!("/_quire/jobs/{}/undo", job["id"].as_str().expect("an id"));
    client.must(409, "POST", &undone, &[], "");
}

#[test]
fn a_policy_of_a_finding_is_changed_where_it_differs() {
    let client = shop();
    let composite =
        |order: &str| json!([{"path": "/city", "order": order}, {"path": "/total", "order": order}]);
    let policy = |excluded: &str| {
        json!({"indexingMode": "consistent", "automatic": true, "includedPaths": [{"path": "/*"}],
            "excludedPaths": [{"path": excluded}], "compositeIndexes": [composite("ascending"), composite("descending")]})
    };
    let definition = |excluded: &str| {
        let key = json!({"paths": ["/city"], "kind": "Hash", "version": 2});
        json!({"id": "orders", "partitionKey": key, "indexingPolicy": policy(excluded)}).to_string()
    };
    client.must(200, "PUT", "/dbs/d/colls/orders", &[], &definition("/a/?"));
    let finding = finding_of(&client, SMALL, "composite-redundant").expect("a finding");
    client.must(200, "PUT", "/dbs/d/colls/orders", &[], &definition("/b/?"));
    let stored = || body(&client.must(200, "GET", "/dbs/d/colls/orders", &[], ""))["indexingPolicy"].clone();
    let before = stored();
    let dry = body(&client.must(200, "POST", &apply_path(&finding), &DRY, ""));
    assert_eq!((&dry["container"], &dry["before"]["indexingPolicy"]), (&json!("orders"), &before));
    assert_eq!(dry["after"]["indexingPolicy"]["compositeIndexes"].as_array().map(Vec::len), Some(1));
    assert_eq!(stored(), before);
    let job = client.run_job(&apply_path(&finding), r#"{"finish":"auto"}"#);
    let after = stored();
    assert_eq!(after["compositeIndexes"].as_array().map(Vec::len), Some(1), "{after}");
    assert!(after["excludedPaths"].to_string().contains("/b/?"), "{after}");
    assert_eq!(finding_of(&client, SMALL, "composite-redundant"), None);
    undo(&client, &job);
    assert_eq!(stored(), before);
}

#[test]
fn a_computed_property_and_a_view_of_a_finding_are_made() {
    let client = Client::start(3);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    container(&client, "people", "/id");
    for n in 0..400 {
        let id = format!("p-{n}");
        let item = json!({"id": id, "name": format!("Name {n}"), "city": format!("City {}", n % 120)});
        create(&client, "people", &id, &item);
    }
    // The load is no part of the workload.
    client.must(204, "DELETE", "/_quire/dbs/d/workload", &[], "");
    let headers = [
        ("x-ms-documentdb-isquery", "true"),
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-query-enablecrosspartition", "true"),
    ];
    let ask = |query: &str| {
        let body = json!({"query": query, "parameters": []}).to_string();
        client.must(200, "POST", "/dbs/d/colls/people/docs", &headers, &body);
    };
    (0..20).for_each(|n| ask(&format!("SELECT * FROM c WHERE LOWER(c.name) = 'name {n}'")));
    (0..40).for_each(|n| ask(&format!("SELECT * FROM c WHERE c.city = 'City {n}'")));
    let finding = finding_of(&client, SMALL, "function-hides-index").expect("a finding");
    let view = finding_of(&client, SMALL, "second-path").expect("a finding");
    let computed =
        || body(&client.must(200, "GET", "/dbs/d/colls/people", &[], ""))["computedProperties"].clone();
    let job = client.run_job(&apply_path(&finding), r#"{"finish":"auto"}"#);
    assert_eq!(computed(), json!([{"name": "lowername", "query": "SELECT VALUE LOWER(c.name) FROM c"}]));
    undo(&client, &job);
    assert_eq!(computed().as_array().map_or(0, Vec::len), 0);
    let name = view["apply"]["request"]["body"]["id"].as_str().expect("a name").to_owned();
    let dry = body(&client.must(200, "POST", &apply_path(&view), &DRY, ""));
    assert_eq!((&dry["before"], &dry["after"]["id"]), (&Value::Null, &json!(name)));
    client.must(404, "GET", &format!("/dbs/d/colls/{name}"), &[], "");
    let job = client.run_job(&apply_path(&view), "");
    let key = [headers[0], headers[1], ("x-ms-documentdb-partitionkey", r#"["City 7"]"#)];
    let query = r#"{"query":"SELECT VALUE c.id FROM c","parameters":[]}"#;
    let answer = body(&client.must(200, "POST", &format!("/dbs/d/colls/{name}/docs"), &key, query));
    assert_eq!(answer["_count"], 4, "{answer}");
    client.must(409, "POST", &apply_path(&view), &[], "");
    assert_eq!(finding_of(&client, SMALL, "second-path"), None);
    undo(&client, &job);
    client.must(404, "GET", &format!("/dbs/d/colls/{name}"), &[], "");
}

/// A finding for people is not applied: deep nesting.
#[test]
fn steps_are_for_people() {
    let client = Client::start(1);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    container(&client, "trees", "/id");
    let mut tree = json!(1);
    (0..70).for_each(|_| tree = json!({"n": tree}));
    for n in 0..120 {
        create(&client, "trees", &format!("t-{n}"), &json!({"id": format!("t-{n}"), "root": tree}));
    }
    let finding = finding_of(&client, SMALL, "deep-nesting").expect("a finding");
    for headers in [&[][..], &DRY[..]] {
        let refused = client.must(409, "POST", &apply_path(&finding), headers, "");
        assert!(refused.body.contains("NothingToApply"), "{}", refused.body);
    }
    assert_eq!(
        finding_of(&client, SMALL, "deep-nesting").map(|own| own["state"].clone()),
        Some(json!("open"))
    );
}

#[test]
fn invalid_advice_requests_are_reported() {
    let client = Client::start(1);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    for (path, order) in [
        (PROFILE, "[]"),
        (PROFILE, r#"{"containers":"c"}"#),
        (PROFILE, r#"{"scanMax":0}"#),
        (PROFILE, r#"{"scanmax":1}"#),
        (ADVICE, "7"),
        (ADVICE, r#"{"standsForDays":0}"#),
        (ADVICE, r#"{"standsForDays":"7"}"#),
        (ADVICE, r#"{"thresholds":{"minThings":1}}"#),
        (ADVICE, r#"{"thresholds":{"minItems":-1}}"#),
        (ADVICE, r#"{"containers":[1]}"#),
        (ADVICE, r#"{"days":1}"#),
    ] {
        client.must(400, "POST", path, &[], order);
    }
    for path in [PROFILE, ADVICE] {
        client.must(404, "POST", path, &[], r#"{"containers":["missing"]}"#);
        client.must(404, "POST", &path.replace("/d/", "/other/"), &[], "");
        client.must(404, "GET", &path.replace("/d/", "/other/"), &[], "");
    }
    for (act, body) in [("apply", ""), ("dismiss", r#"{"reason":"x"}"#), ("reopen", "")] {
        client.must(404, "POST", &format!("{ADVICE}/a-1/{act}"), &[], body);
    }
    client.must(400, "POST", &format!("{ADVICE}/a-1/apply"), &[], r#"{"reason":"x"}"#);
    // An empty database has nothing to say.
    client.run_job(ADVICE, "");
    assert_eq!(body(&client.must(200, "GET", ADVICE, &[], ""))["findings"], json!([]));
}

/// A finding outlives its container only until the next evaluation, and nothing can be applied to it.
#[test]
fn a_finding_whose_container_is_gone() {
    let client = shop();
    client.run_job(ADVICE, r#"{"thresholds":{"minItems":100}}"#);
    let list = body(&client.must(200, "GET", ADVICE, &[], ""));
    let id = list["findings"][0]["id"].as_str().expect("an id").to_owned();
    client.must(204, "DELETE", "/dbs/d/colls/orders", &[], "");
    let list = body(&client.must(200, "GET", ADVICE, &[], ""));
    let finding = list["findings"].as_array().expect("a list").iter().find(|own| own["id"] == id.as_str());
    assert!(finding.is_none_or(|own| own["before"].is_null()), "{list}");
    let applied = client.send("POST", &format!("{ADVICE}/{id}/apply"), &[], "");
    assert!((400..500).contains(&applied.status), "{} {}", applied.status, applied.body);
    client.run_job(ADVICE, r#"{"thresholds":{"minItems":100}}"#);
    let list = body(&client.must(200, "GET", ADVICE, &[], ""));
    assert_eq!(list["findings"], json!([]));
    client.must(404, "POST", &format!("{ADVICE}/{id}/dismiss"), &[], r#"{"reason":"gone"}"#);
}
