//! What-if over HTTP: what the rules predict, beside what a replay measures.

use serde_json::{Value, json};

use crate::client::{Answer, Client};

const ADVICE: &str = "/_quire/dbs/d/advice";
const WHAT_IF: &str = "/_quire/dbs/d/what-if";
/// Small enough for tests; nothing is too small to be listed.
const OPTIONS: &str = r#"{"standsForDays":14,"thresholds":{"minItems":50,"minOperations":50,"indexMinOperations":50,
    "minSavedShare":0,"minSavedPerDay":0,"viewMinItems":50,"analyticsMinItems":1000000}}"#;

fn body(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

struct Shop {
    client: Client,
}

impl Shop {
    fn new(partitions: u32) -> Shop {
        let client = Client::start(partitions);
        client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
        Shop { client }
    }

    fn container(&self, id: &str, policy: Value) {
        let mut body = json!({"id": id, "partitionKey": {"paths": ["/id"], "kind": "Hash", "version": 2}});
        if policy.is_object() {
            body["indexingPolicy"] = policy;
        }
        self.client.must(201, "POST", "/dbs/d/colls", &[], &body.to_string());
    }

    fn item(&self, verb: &str, container: &str, item: &Value) {
        let id = item["id"].as_str().expect("an id");
        let key = json!([id]).to_string();
        let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
        let path = format!("/dbs/d/colls/{container}/docs");
        match verb {
            "POST" => self.client.must(201, "POST", &path, &headers, &item.to_string()),
            _ => self.client.must(200, verb, &format!("{path}/{id}"), &headers, &item.to_string()),
        };
    }

    fn read(&self, container: &str, id: &str, action: &str) {
        let key = json!([id]).to_string();
        let headers = [("x-ms-documentdb-partitionkey", key.as_str()), ("x-quire-action", action)];
        self.client.must(200, "GET", &format!("/dbs/d/colls/{container}/docs/{id}"), &headers, "");
    }

    fn query(&self, container: &str, text: &str, value: &Value, action: &str) {
        let mut headers = vec![
            ("x-ms-documentdb-isquery", "true"),
            ("content-type", "application/query+json"),
            ("x-ms-documentdb-query-enablecrosspartition", "true"),
            ("x-quire-action", action),
        ];
        // Clients ask the partitions one by one for what has to be merged.
        if text.contains("COUNT") {
            headers.push(("x-ms-documentdb-partitionkeyrangeid", "0"));
        }
        let query = json!({"query": text, "parameters": [{"name": "@v", "value": value}]}).to_string();
        self.client.must(200, "POST", &format!("/dbs/d/colls/{container}/docs"), &headers, &query);
    }

    /// Items are there; what is recorded begins now.
    fn begin(&self) {
        self.client.must(204, "DELETE", "/_quire/dbs/d/workload", &[], "");
    }

    fn finding(&self, rule: &str) -> Value {
        self.client.run_job(ADVICE, OPTIONS);
        let list = body(&self.client.must(200, "GET", ADVICE, &[], ""));
        let findings = list["findings"].as_array().expect("a list");
        let found = findings.iter().find(|finding| finding["rule"] == rule);
        found.unwrap_or_else(|| panic!("no finding of {rule}: {list}")).clone()
    }

    fn what_if(&self, order: &Value) -> Value {
        let job = self.client.run_job(WHAT_IF, &order.to_string());
        assert_eq!((&job["kind"], &job["state"]), (&json!("what-if"), &json!("done")), "{job}");
        job["result"].clone()
    }
}

/// A workload that one rule has something to say about.
type Case = (&'static str, fn() -> Shop);

/// Every rule with a price and something to apply. A kind of refactoring is added here when it can be made.
const CASES: &[Case] = &[
    ("index-unused", index_unused),
    ("index-not-needed", index_not_needed),
    ("index-on-vectors", index_on_vectors),
    ("large-array", large_array),
    ("index-missing", index_missing),
    ("function-hides-index", function_hides_index),
    ("second-path", second_path),
    ("copy-missing", copy_missing),
    ("repeated-aggregate", repeated_aggregate),
    ("embed-together", embed_together),
    ("embed-together", embed_in_target),
    ("hot-and-cold", hot_and_cold),
    ("extract-part", extract_part),
    ("history-in-item", history_in_item),
];

fn person(n: usize, age: usize) -> Value {
    json!({"id": format!("p{n}"), "name": format!("Name {}", n % 40), "city": format!("City {}", n % 20), "age": age,
        "note": "nobody looks for this", "tags": ["a", "b", "c"], "address": {"street": format!("Street {n}"), "zip": n}})
}

fn people(policy: Value) -> Shop {
    people_in(1, policy)
}

fn people_in(partitions: u32, policy: Value) -> Shop {
    let shop = Shop::new(partitions);
    shop.container("people", policy);
    (0..200).for_each(|n| shop.item("POST", "people", &person(n, 20)));
    shop.begin();
    shop
}

fn index_unused() -> Shop {
    let shop = people(Value::Null);
    (0..60).for_each(|n| shop.item("PUT", "people", &person(n, 30)));
    (0..20).for_each(|n| shop.item("POST", "people", &person(1_000 + n, 40)));
    (0..40).for_each(|n| shop.read("people", &format!("p{n}"), "r"));
    (0..20).for_each(|n| {
        shop.query("people", "SELECT * FROM c WHERE c.city = @v", &json!(format!("City {n}")), "q");
    });
    shop
}

fn index_not_needed() -> Shop {
    let shop = people(Value::Null);
    (0..60).for_each(|n| shop.item("PUT", "people", &person(n, 30)));
    (0..20).for_each(|n| shop.item("POST", "people", &person(1_000 + n, 40)));
    (0..40).for_each(|n| shop.read("people", &format!("p{n}"), "r"));
    shop
}

fn index_on_vectors() -> Shop {
    let shop = Shop::new(1);
    shop.container("texts", Value::Null);
    let item = |n: usize, version: usize| {
        let vector: Vec<f64> = (0..128).map(|at| (n * 131 + at * 17 + version) as f64 / 1_000.0).collect();
        json!({"id": format!("t{n}"), "vector": vector, "title": format!("Title {n}")})
    };
    (0..60).for_each(|n| shop.item("POST", "texts", &item(n, 0)));
    shop.begin();
    (0..60).for_each(|n| shop.item("PUT", "texts", &item(n, 1)));
    (0..20).for_each(|n| {
        shop.query("texts", "SELECT * FROM c WHERE c.title = @v", &json!(format!("Title {n}")), "q");
    });
    shop
}

fn large_array() -> Shop {
    let shop = Shop::new(1);
    shop.container("series", Value::Null);
    let item = |n: usize, name: &str| {
        let values: Vec<usize> = (0..1_050).map(|at| (n * 7 + at) % 100).collect();
        json!({"id": format!("s{n}"), "name": name, "values": values})
    };
    (0..60).for_each(|n| shop.item("POST", "series", &item(n, "old")));
    shop.begin();
    (0..120).for_each(|n| shop.item("PUT", "series", &item(n % 60, &format!("new {n}"))));
    shop
}

fn index_missing() -> Shop {
    let policy = json!({"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/city/?"}]});
    let shop = people(policy);
    (0..60).for_each(|n| {
        shop.query("people", "SELECT * FROM c WHERE c.city = @v", &json!(format!("City {}", n % 20)), "q");
    });
    shop
}

fn function_hides_index() -> Shop {
    let shop = people(Value::Null);
    (0..60).for_each(|n| {
        let name = json!(format!("name {}", n % 40));
        shop.query("people", "SELECT * FROM c WHERE LOWER(c.name) = @v", &name, "q");
    });
    shop
}

fn second_path() -> Shop {
    let shop = people_in(5, Value::Null);
    (0..80).for_each(|n| {
        shop.query("people", "SELECT * FROM c WHERE c.city = @v", &json!(format!("City {}", n % 20)), "q");
    });
    (0..10).for_each(|n| shop.item("PUT", "people", &person(n, 30)));
    shop
}

fn customers(count: usize) -> Shop {
    let shop = Shop::new(1);
    shop.container("customers", Value::Null);
    shop.container("orders", Value::Null);
    for n in 0..count {
        shop.item(
            "POST",
            "customers",
            &json!({"id": format!("c{n}"), "name": format!("Name {n}"), "since": n}),
        );
    }
    shop
}

fn order(n: usize, customer: usize, total: usize) -> Value {
    json!({"id": format!("o{n}"), "customerId": format!("c{customer}"), "total": total, "state": "sent"})
}

fn copy_missing() -> Shop {
    let shop = customers(60);
    (0..240).for_each(|n| shop.item("POST", "orders", &order(n, n % 60, n)));
    shop.begin();
    for n in 0..150 {
        let action = format!("a{n}");
        shop.read("orders", &format!("o{n}"), &action);
        let text = "SELECT c.name FROM c WHERE c.id = @v";
        shop.query("customers", text, &json!(format!("c{}", n % 60)), &action);
    }
    (0..4).for_each(|n| {
        shop.item(
            "PUT",
            "customers",
            &json!({"id": format!("c{n}"), "name": format!("Other {n}"), "since": n}),
        );
    });
    shop
}

fn repeated_aggregate() -> Shop {
    let shop = customers(20);
    (0..2_200).for_each(|n| shop.item("POST", "orders", &order(n, n % 20, n)));
    shop.begin();
    for n in 0..120 {
        let text = "SELECT VALUE COUNT(1) FROM c WHERE c.customerId = @v";
        shop.query("orders", text, &json!(format!("c{}", n % 20)), "q");
    }
    (0..5).for_each(|n| shop.item("POST", "orders", &order(9_000 + n, n, 1)));
    shop
}

/// A profile is read after its user.
fn embed_together() -> Shop {
    let shop = Shop::new(1);
    shop.container("users", Value::Null);
    shop.container("profiles", Value::Null);
    for n in 0..150 {
        let about = format!("What user {n} says of themselves. ").repeat(6);
        shop.item("POST", "profiles", &json!({"id": format!("pr{n}"), "about": about}));
        let user = json!({"id": format!("u{n}"), "name": format!("Name {n}"), "profileId": format!("pr{n}")});
        shop.item("POST", "users", &user);
    }
    shop.begin();
    for n in 0..150 {
        let action = format!("a{n}");
        shop.read("users", &format!("u{n}"), &action);
        shop.read("profiles", &format!("pr{n}"), &action);
    }
    shop
}

/// The lines of an order are asked for after it was read.
fn embed_in_target() -> Shop {
    let shop = Shop::new(1);
    shop.container("orders", Value::Null);
    shop.container("lines", Value::Null);
    for n in 0..150 {
        shop.item("POST", "orders", &json!({"id": format!("o{n}"), "customer": format!("Name {n}")}));
        for line in 0..=n % 3 {
            let line = json!({"id": format!("l{n}-{line}"), "orderId": format!("o{n}"), "article": format!("a{line}"), "count": line});
            shop.item("POST", "lines", &line);
        }
    }
    shop.begin();
    for n in 0..150 {
        let action = format!("a{n}");
        shop.read("orders", &format!("o{n}"), &action);
        let text = "SELECT * FROM c WHERE c.orderId = @v";
        shop.query("lines", text, &json!(format!("o{n}")), &action);
    }
    shop
}

/// Words that nobody takes for binary data.
fn words(n: usize, count: usize) -> String {
    (0..count).map(|at| format!("word{} ", (n * 31 + at * 7) % 97)).collect()
}

/// A machine's state changes, its manual never does.
fn hot_and_cold() -> Shop {
    let shop = Shop::new(1);
    shop.container("machines", Value::Null);
    let machine = |n: usize, state: &str| {
        let chapters: Vec<Value> =
            (0..4).map(|at| json!({"title": format!("Chapter {at}"), "text": words(n + at, 700)})).collect();
        json!({"id": format!("m{n}"), "state": state, "manual": {"language": "en", "chapters": chapters}})
    };
    (0..60).for_each(|n| shop.item("POST", "machines", &machine(n, "new")));
    shop.begin();
    (0..150).for_each(|n| shop.item("PUT", "machines", &machine(n % 60, &format!("state {n}"))));
    (0..20).for_each(|n| shop.read("machines", &format!("m{n}"), "r"));
    shop
}

/// Of a player either the settings change or the figures.
fn extract_part() -> Shop {
    let shop = Shop::new(1);
    shop.container("players", Value::Null);
    let player = |n: usize, name: &str, wins: usize| {
        let levels: Vec<Value> =
            (0..12).map(|at| json!({"wins": wins + at, "note": words(n + at, 40)})).collect();
        json!({"id": format!("p{n}"), "name": name, "biography": words(n, 500), "figures": {"levels": levels}})
    };
    (0..60).for_each(|n| shop.item("POST", "players", &player(n, "first", 1)));
    shop.begin();
    (0..60).for_each(|n| shop.item("PUT", "players", &player(n, "first", 2)));
    (0..60).for_each(|n| shop.item("PUT", "players", &player(n, &format!("second {n}"), 2)));
    (0..10).for_each(|n| shop.read("players", &format!("p{n}"), "r"));
    shop
}

/// A contract gets an entry for each of its versions.
fn history_in_item() -> Shop {
    let shop = Shop::new(1);
    shop.container("contracts", Value::Null);
    let contract = |n: usize, more: usize| {
        let version = |at: usize| {
            json!({"title": format!("Contract {n}"), "owner": format!("Owner {}", at % 9), "price": at, "state": "signed",
                "at": format!("2024-03-{:02}T10:00:00Z", at % 28 + 1)})
        };
        let history: Vec<Value> = (0..60 + n * 7 % 200 + more).map(version).collect();
        let mut item = version(300 + more);
        item["id"] = json!(format!("c{n}"));
        item["history"] = json!(history);
        item
    };
    (0..80).for_each(|n| shop.item("POST", "contracts", &contract(n, 0)));
    shop.begin();
    (0..160).for_each(|n| shop.item("PUT", "contracts", &contract(n % 80, 1 + n / 80)));
    (0..20).for_each(|n| shop.read("contracts", &format!("c{n}"), "r"));
    shop
}

/// The price of every rule is right: a replay of the same requests saves as much.
#[test]
fn predictions_match_measured_charges() {
    let mut wrong = Vec::new();
    for (rule, case) in CASES {
        let shop = case();
        let finding = shop.finding(rule);
        let result = shop.what_if(&json!({"finding": finding["id"]}));
        let error = result["error"].as_f64().unwrap_or(f64::INFINITY);
        println!(
            "{rule:24} predicted {:>10} measured {:>10} error {error}",
            result["predicted"], result["measured"]
        );
        assert_eq!(result["predicted"], finding["effect"]["chargePerDay"]["saved"]);
        if error > 0.10 {
            wrong.push(format!("{rule}: {result}\n{finding}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The same for the refactorings of the demo: parts that become items, arrays that become windows and references, join items that
/// become arrays.
#[test]
fn predictions_for_the_demo_match_measured_charges() {
    let client = Client::start(1);
    client.run_job("/_quire/demo", "");
    client.run_job("/_quire/dbs/demo/advice", "{}");
    let list = body(&client.must(200, "GET", "/_quire/dbs/demo/advice", &[], ""));
    let findings = list["findings"].as_array().expect("a list");
    let (mut wrong, mut kinds) = (Vec::new(), Vec::new());
    for finding in findings {
        let (rule, kind) = (&finding["rule"], &finding["apply"]["request"]["body"]["kind"]);
        if finding["effect"]["chargePerDay"]["saved"].as_f64().unwrap_or(0.0) <= 0.0 || kind.is_null() {
            continue;
        }
        let order = json!({"finding": finding["id"], "seconds": 3600}).to_string();
        let job = client.run_job("/_quire/dbs/demo/what-if", &order);
        let result = &job["result"];
        let error = result["error"].as_f64().unwrap_or(f64::INFINITY);
        println!(
            "{rule:24} predicted {:>10} measured {:>10} error {error}",
            result["predicted"], result["measured"]
        );
        kinds.push(kind.as_str().unwrap_or_default().to_owned());
        if error > 0.10 {
            wrong.push(format!("{rule}: {result}\n{finding}"));
        }
    }
    kinds.sort();
    kinds.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(kinds, ["extract", "flip", "merge-join-items", "split-array"]);
}

#[test]
fn a_change_is_tried_and_nothing_stays() {
    let shop = index_unused();
    let client = &shop.client;
    let finding = shop.finding("index-unused");
    let items =
        client.must(200, "GET", "/dbs/d/colls/people/docs", &[("x-ms-max-item-count", "-1")], "").body;
    let result = shop.what_if(&json!({"finding": finding["id"]}));
    assert_eq!(result["sample"], json!({"items": 220, "share": 1}));
    assert_eq!((&result["replayed"], &result["skipped"]), (&json!(140), &json!({"feed": 1})));
    // The same change, given as what it is, has the same price.
    let definition = &finding["apply"]["request"]["body"];
    let given = shop.what_if(&json!({"container": definition}));
    assert_eq!(given["predicted"], result["predicted"]);
    assert_eq!((&given["measured"], &given["operations"]), (&result["measured"], &result["operations"]));
    // Another seed makes up other values; another policy has no price.
    let other = json!({"container": {"id": "people", "partitionKey": {"paths": ["/id"], "kind": "Hash", "version": 2},
        "indexingPolicy": {"indexingMode": "none", "automatic": false}}, "seed": 9});
    let other = shop.what_if(&other);
    assert_eq!((&other["predicted"], &other["error"]), (&Value::Null, &Value::Null));
    // The originals with their etags, and the databases, are as they were.
    assert_eq!(
        client.must(200, "GET", "/dbs/d/colls/people/docs", &[("x-ms-max-item-count", "-1")], "").body,
        items
    );
    let databases = body(&client.must(200, "GET", "/dbs", &[], ""));
    assert_eq!(databases["_count"], 1, "{databases}");
}

#[test]
fn kept_databases_are_the_servers_own() {
    let shop = index_not_needed();
    let finding = shop.finding("index-not-needed");
    let job = shop.client.run_job(WHAT_IF, &json!({"finding": finding["id"], "keep": true}).to_string());
    let names =
        ["now", "then"].map(|side| format!("_quire-what-if-{}-{side}", job["id"].as_str().expect("an id")));
    for name in &names {
        let found = body(&shop.client.must(200, "GET", &format!("/dbs/{name}/colls/people"), &[], ""));
        let mode = if name.ends_with("now") { "consistent" } else { "none" };
        assert_eq!(found["indexingPolicy"]["indexingMode"], mode, "{found}");
        shop.client.must(409, "POST", "/_quire/jobs/j-1/pause", &[], "");
        shop.client.must(400, "POST", "/dbs", &[], &json!({"id": format!("{name}2")}).to_string());
        shop.client.must(204, "DELETE", &format!("/dbs/{name}"), &[], "");
    }
}

#[test]
fn invalid_what_if_requests_are_reported() {
    let shop = Shop::new(1);
    shop.container("people", Value::Null);
    let client = &shop.client;
    for (order, status, says) in [
        ("", 400, ""),
        ("[]", 400, "The body must be an object."),
        ("{}", 400, "One of 'finding', 'refactoring', 'model' and 'container' must be given"),
        (r#"{"finding":"a-1","model":{}}"#, 400, "and only one"),
        (r#"{"finding":"a-1"}"#, 404, ""),
        (r#"{"finding":"a-1","seconds":0}"#, 400, "'seconds' must be an integer from 1 to 3600."),
        (r#"{"model":{"version":1},"seconds":0}"#, 400, "'seconds' must be an integer from 1 to 3600."),
        (r#"{"model":{"version":1,"links":[{}]}}"#, 400, "ModelInvalid"),
        (r#"{"refactoring":{"kind":"tidy-up","container":"people"}}"#, 400, "RefactoringInvalid"),
        (r#"{"container":{"id":"other","partitionKey":{"paths":["/id"]}}}"#, 404, ""),
    ] {
        let answer = client.must(status, "POST", WHAT_IF, &[], order);
        assert!(answer.body.contains(says), "{order}: {}", answer.body);
    }
    client.must(404, "POST", "/_quire/dbs/other/what-if", &[], r#"{"finding":"a-1"}"#);
    // Nothing was recorded, and nothing is there: that, too, has a result.
    let result = shop.what_if(&json!({"model": {"version": 1}}));
    assert_eq!((&result["replayed"], &result["measured"]), (&json!(0), &json!(0)));
}
