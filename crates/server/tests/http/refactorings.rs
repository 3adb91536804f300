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
fn invalid_refactorings_are_reported() {
    let client = people();
    let wrong = json!({"kind": "rename", "container": "c", "from": "/id", "to": "/key"}).to_string();
    let refused = body(&client.must(400, "POST", REFACTORINGS, &[], &wrong));
    assert_eq!(
        (&refused["code"], &refused["errors"][0]["at"]),
        (&json!("RefactoringInvalid"), &json!("/from"))
    );
    client.must(400, "POST", REFACTORINGS, &[], "[");
    client.must(404, "POST", REFACTORINGS, &[], r#"{"kind":"rename","container":"x","from":"/a","to":"/b"}"#);
    client.must(404, "GET", &format!("{REFACTORINGS}/r-1"), &[], "");
    client.must(404, "POST", &format!("{REFACTORINGS}/r-1/undo"), &[], "");
    client.must(404, "GET", "/_quire/dbs/other/refactorings", &[], "");
}

/// Containers by name, with the partition key `/id`, and their items.
fn filled(containers: &[(&str, Vec<Value>)]) -> Client {
    let client = Client::start(1);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    for (name, items) in containers {
        let key = json!({"paths": ["/id"], "kind": "Hash", "version": 2});
        client.must(201, "POST", "/dbs/d/colls", &[], &json!({"id": name, "partitionKey": key}).to_string());
        items.iter().for_each(|item| drop(write(&client, 201, name, item)));
    }
    client
}

fn write(client: &Client, status: u16, container: &str, item: &Value) -> Answer {
    let key = json!([item["id"]]).to_string();
    let headers = [("x-ms-documentdb-partitionkey", key.as_str()), ("x-ms-documentdb-is-upsert", "true")];
    client.must(status, "POST", &format!("/dbs/d/colls/{container}/docs"), &headers, &item.to_string())
}

/// An item without what the server adds.
fn found(client: &Client, container: &str, id: &str) -> Value {
    let (path, key) = (format!("/dbs/d/colls/{container}/docs/{id}"), json!([id]).to_string());
    let mut item = body(&client.must(200, "GET", &path, &[("x-ms-documentdb-partitionkey", &key)], ""));
    let members = item.as_object_mut().expect("an item");
    members.retain(|name, _| !name.starts_with('_'));
    item
}

#[test]
fn a_part_becomes_an_item() {
    let stock = json!({"symbol": "ABC", "open": 1});
    let portfolio = |id: &str| json!({"id": id, "holdings": [{"n": 1, "stock": stock}]});
    let client = filled(&[("portfolios", vec![portfolio("a"), portfolio("b")])]);
    let order =
        json!({"kind": "extract", "container": "portfolios", "path": "/holdings/*/stock", "key": "/symbol",
        "into": "stocks", "reference": "stockId", "oldWriters": "through"})
        .to_string();
    let dry = body(&client.must(200, "POST", REFACTORINGS, &[("x-quire-dry-run", "true")], &order));
    assert_eq!((&dry["wouldConvert"], &dry["wouldMake"]), (&json!(2), &json!(1)), "{dry}");
    let job = client.run_job(REFACTORINGS, &order);
    assert_eq!(job["result"]["state"], "expanded", "{job}");
    let both = json!({"n": 1, "stock": stock, "stockId": "ABC"});
    assert_eq!(found(&client, "portfolios", "a")["holdings"], json!([both]));
    assert_eq!(found(&client, "stocks", "ABC"), json!({"id": "ABC", "symbol": "ABC", "open": 1}));
    let model = client.must(409, "PUT", "/_quire/dbs/d/model", &[], r#"{"version":1}"#);
    assert!(model.body.contains("RefactoringRunning"), "{}", model.body);
    // An old writer changes the part: the item has it, and so has the other portfolio.
    let changed = json!({"id": "a", "holdings": [{"n": 1, "stock": {"symbol": "ABC", "open": 2}}]});
    write(&client, 200, "portfolios", &changed);
    assert_eq!(found(&client, "stocks", "ABC")["open"], 2);
    assert_eq!(found(&client, "portfolios", "b")["holdings"][0]["stock"]["open"], 2);
    client.run_job(&format!("{REFACTORINGS}/r-1/finish"), "");
    assert_eq!(found(&client, "portfolios", "a")["holdings"], json!([{"n": 1, "stockId": "ABC"}]));
    client.run_job(&format!("{REFACTORINGS}/r-1/undo"), "");
    assert_eq!(found(&client, "portfolios", "a"), changed);
    let invalid =
        body(&client.must(400, "POST", REFACTORINGS, &[], r#"{"kind":"extract","container":"portfolios"}"#));
    assert_eq!(invalid["code"], "RefactoringInvalid", "{invalid}");
}

#[test]
fn an_array_of_ids_becomes_references_to_its_owner() {
    let titles = ["t1", "t2"].map(|id| json!({"id": id, "name": id})).to_vec();
    let publisher = json!({"id": "p", "books": ["t2", "t1"]});
    let client = filled(&[("titles", titles), ("publishers", vec![publisher.clone()])]);
    let order =
        json!({"kind": "flip", "container": "publishers", "path": "/books", "to": "titles", "into": "/pubId"})
            .to_string();
    let dry = body(&client.must(200, "POST", REFACTORINGS, &[("x-quire-dry-run", "true")], &order));
    assert_eq!(dry["wouldConvert"], json!(1), "{dry}");
    client.run_job(REFACTORINGS, &order);
    assert_eq!(found(&client, "titles", "t1")["pubId"], "p");
    assert_eq!(found(&client, "publishers", "p")["books"], json!(["t1", "t2"]));
    let refused = write(&client, 400, "publishers", &json!({"id": "p", "books": ["t1"]}));
    assert!(refused.body.contains("PathOwned"), "{}", refused.body);
    client.run_job(&format!("{REFACTORINGS}/r-1/finish"), "");
    assert_eq!(found(&client, "publishers", "p"), json!({"id": "p"}));
    client.run_job(&format!("{REFACTORINGS}/r-1/undo"), "");
    assert_eq!(found(&client, "publishers", "p"), publisher);
    assert_eq!(found(&client, "titles", "t1"), json!({"id": "t1", "name": "t1"}));
}

#[test]
fn join_items_become_arrays() {
    let join = json!({"id": "j", "writerId": "w1", "workId": "k1"});
    let client = filled(&[
        ("writers", vec![json!({"id": "w1"})]),
        ("works", vec![json!({"id": "k1"})]),
        ("bookWriters", vec![join.clone()]),
    ]);
    let mut order = json!({"kind": "merge-join-items", "container": "bookWriters", "left": "/writerId",
        "right": "/workId", "into": ["/works", "/writers"]});
    client.run_job(REFACTORINGS, &order.to_string());
    assert_eq!(found(&client, "writers", "w1"), json!({"id": "w1", "works": ["k1"]}));
    assert_eq!(found(&client, "works", "k1"), json!({"id": "k1", "writers": ["w1"]}));
    client.run_job(&format!("{REFACTORINGS}/r-1/finish"), "");
    assert_eq!(found(&client, "works", "k1"), json!({"id": "k1", "writers": ["w1"]}));
    client.must(
        404,
        "GET",
        "/dbs/d/colls/bookWriters/docs/j",
        &[("x-ms-documentdb-partitionkey", r#"["j"]"#)],
        "",
    );
    client.run_job(&format!("{REFACTORINGS}/r-1/undo"), "");
    assert_eq!(found(&client, "bookWriters", "j"), join);
    for (id, share) in [("x", 3), ("y", 4)] {
        let item = json!({"id": id, "writerId": "w1", "workId": "k1", "share": share});
        write(&client, 201, "bookWriters", &item);
    }
    let refused = body(&client.must(400, "POST", REFACTORINGS, &[], &order.to_string()));
    assert_eq!(refused["errors"][0]["code"], "FurtherData", "{refused}");
    order["drop"] = json!(["share"]);
    client.run_job(REFACTORINGS, &order.to_string());
}

#[test]
fn an_array_is_split_into_pages() {
    let comments: Vec<Value> = (0..25).map(|n| json!({"id": format!("c{n}")})).collect();
    let post = json!({"id": "p", "comments": comments});
    let client = filled(&[("posts", vec![post.clone()])]);
    let order = json!({"kind": "split-array", "container": "posts", "path": "/comments", "keep": 3, "key": "/id",
        "rename": "/recentComments", "pages": {"container": "posts-pages", "path": "/comments", "parent": "/itemId",
        "number": "/page", "size": 10}})
    .to_string();
    client.run_job(REFACTORINGS, &order);
    assert_eq!(found(&client, "posts", "p")["comments"], json!(comments[22..]));
    client.run_job(&format!("{REFACTORINGS}/r-1/finish"), "");
    assert_eq!(found(&client, "posts", "p"), json!({"id": "p", "recentComments": comments[22..]}));
    client.run_job(&format!("{REFACTORINGS}/r-1/undo"), "");
    assert_eq!(found(&client, "posts", "p"), post);
    client.must(404, "GET", "/dbs/d/colls/posts-pages", &[], "");
}

#[test]
fn an_item_becomes_a_part_of_the_one_that_refers_to_it() {
    let profile = |bio: &str| json!({"id": "p1", "bio": bio});
    let user = json!({"id": "u1", "profileId": "p1"});
    let client = filled(&[("profiles", vec![profile("old")]), ("users", vec![user.clone()])]);
    let order = json!({"kind": "embed", "link": "user-profile", "into": "/profile"}).to_string();
    let unknown = body(&client.must(400, "POST", REFACTORINGS, &[], &order));
    assert_eq!(
        (&unknown["errors"][0]["code"], &unknown["errors"][0]["at"]),
        (&json!("UnknownLink"), &json!("/link"))
    );
    let model = json!({"version": 1, "links": [{"name": "user-profile", "from": {"container": "users", "path": "/profileId"},
        "to": {"container": "profiles"}, "integrity": "enforced"}]});
    client.must(201, "PUT", "/_quire/dbs/d/model", &[], &model.to_string());
    let dry = body(&client.must(200, "POST", REFACTORINGS, &[("x-quire-dry-run", "true")], &order));
    assert_eq!((&dry["container"], &dry["wouldConvert"]), (&json!("users"), &json!(1)), "{dry}");
    assert_eq!((&dry["wouldDelete"], &dry["wouldLeave"]), (&json!(1), &json!(0)), "{dry}");
    assert_eq!(dry["examples"][0]["after"][0]["item"]["profile"], profile("old"), "{dry}");
    let job = client.run_job(REFACTORINGS, &order);
    assert_eq!((&job["container"], &job["result"]["state"]), (&json!("users"), &json!("expanded")), "{job}");
    write(&client, 200, "profiles", &profile("new"));
    assert_eq!(found(&client, "users", "u1")["profile"], profile("new"));
    let own = json!({"id": "u1", "profileId": "p1", "profile": profile("mine")});
    assert_eq!(body(&write(&client, 400, "users", &own))["code"], "BadRequest");
    let held = client.must(409, "PUT", "/_quire/dbs/d/model", &[], r#"{"version":1}"#);
    assert!(held.body.contains("RefactoringRunning"), "{}", held.body);
    client.run_job(&format!("{REFACTORINGS}/r-1/finish"), "");
    let key = [("x-ms-documentdb-partitionkey", r#"["p1"]"#)];
    client.must(404, "GET", "/dbs/d/colls/profiles/docs/p1", &key, "");
    write(&client, 200, "users", &own);
    client.run_job(&format!("{REFACTORINGS}/r-1/undo"), "");
    assert_eq!(found(&client, "users", "u1"), user);
    assert_eq!(found(&client, "profiles", "p1"), profile("mine"));
    let back = body(&client.must(200, "GET", "/_quire/dbs/d/model", &[], ""));
    assert_eq!(back["links"], model["links"]);
}
