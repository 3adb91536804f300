//! The model of a database over HTTP: its life, its preconditions, and every error of a body with its pointer.

use expect_test::expect;
use serde_json::{Value, json};

use crate::client::{Answer, Client};

const MODEL: &str = "/_quire/dbs/d/model";
const LIBRARY: &str = r#"{"version":1,
    "links":[{"name":"book-authors","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}}],
    "copies":[{"name":"author-on-book","link":"book-authors","fields":{"name":"t.name"}}],
    "rollups":[{"name":"count-of-books","link":"book-authors","op":"count","into":"/countOfBooks"}]}"#;

fn container(client: &Client, id: &str, key: &str, more: &str) {
    let body =
        format!(r#"{{"id":"{id}","partitionKey":{{"paths":["{key}"],"kind":"Hash","version":2}}{more}}}"#);
    client.must(201, "POST", "/dbs/d/colls", &[], &body);
}

fn client() -> Client {
    let client = Client::start(2);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    container(&client, "books", "/id", r#","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/isbn"]}]}"#);
    container(&client, "authors", "/id", "");
    container(&client, "publishers", "/region", "");
    container(&client, "posts", "/id", "");
    container(&client, "pages", "/postId", "");
    client
}

fn body(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

#[test]
fn create_read_replace_delete_a_model() {
    let client = client();
    let empty = body(&client.must(200, "GET", MODEL, &[], ""));
    assert_eq!((&empty["version"], &empty["revision"]), (&json!(1), &json!(0)));
    let put = body(&client.must(201, "PUT", MODEL, &[], LIBRARY));
    assert_eq!(put["_jobs"].as_array().map(Vec::len), Some(1));
    let lists =
        ["added", "removed", "rebuilt", "changed", "unchanged"].map(|list| put["_changes"][list].clone());
    let added = json!(["book-authors", "author-on-book", "count-of-books"]);
    assert_eq!(lists, [added, json!([]), json!([]), json!([]), json!([])]);
    assert_eq!((&put["_warnings"], put["_ts"].is_i64()), (&json!([]), true));
    let read = client.must(200, "GET", MODEL, &[], "");
    let mut members: Vec<String> = body(&read).as_object().expect("an object").keys().cloned().collect();
    members.sort_unstable();
    expect!["_etag _ts copies links revision rollups version"].assert_eq(&members.join(" "));
    let etag = read.header("etag").expect("an etag").to_owned();
    assert_eq!(body(&read)["_etag"], json!(etag));
    client.must(304, "GET", MODEL, &[("if-none-match", &etag)], "");
    // What was read can be put again, and changes nothing.
    let again = body(&client.must(200, "PUT", MODEL, &[("if-match", &etag)], &read.body));
    assert_eq!((&again["_etag"], &again["revision"], &again["_jobs"]), (&json!(etag), &json!(1), &json!([])));
    let unchanged = json!(["book-authors", "author-on-book", "count-of-books"]);
    assert_eq!(again["_changes"]["unchanged"], unchanged);
    let other = r#"{"version":1,"onWrite":"refuse"}"#;
    let changed = body(&client.must(200, "PUT", MODEL, &[], other));
    assert_eq!((&changed["revision"], &changed["_changes"]["removed"]), (&json!(2), &unchanged));
    client.must(412, "DELETE", MODEL, &[("if-match", &etag)], "");
    assert_eq!(client.must(204, "DELETE", MODEL, &[], "").body, "");
    assert_eq!(body(&client.must(200, "GET", MODEL, &[], ""))["revision"], 0);
    client.must(204, "DELETE", MODEL, &[], "");
}

#[test]
fn preconditions() {
    let client = client();
    client.must(412, "PUT", MODEL, &[("if-match", "\"x\"")], LIBRARY);
    client.must(412, "PUT", MODEL, &[("if-match", "*")], LIBRARY);
    client.must(201, "PUT", MODEL, &[("if-none-match", "*")], LIBRARY);
    client.must(412, "PUT", MODEL, &[("if-none-match", "*")], LIBRARY);
    let etag = body(&client.must(200, "GET", MODEL, &[], ""))["_etag"].as_str().expect("an etag").to_owned();
    let other = r#"{"version":1,"fanOutMax":7}"#;
    client.must(200, "PUT", MODEL, &[("if-match", etag.trim_matches('"'))], other);
    client.must(412, "PUT", MODEL, &[("if-match", &etag)], LIBRARY);
    assert_eq!(body(&client.must(200, "GET", MODEL, &[], ""))["fanOutMax"], 7);
}

#[test]
fn a_missing_model_is_not_found() {
    let client = client();
    for (method, path) in [("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "/status")] {
        let path = format!("/_quire/dbs/nowhere/model{path}");
        let answer = client.must(404, method, &path, &[], r#"{"version":1}"#);
        assert_eq!(body(&answer)["code"], "NotFound");
    }
    client.must(400, "PUT", MODEL, &[], "{");
    client.must(405, "PATCH", MODEL, &[], "{}");
}

#[test]
fn a_container_in_use_stays_and_a_database_goes() {
    let client = client();
    client.must(201, "PUT", MODEL, &[], LIBRARY);
    let refused = body(&client.must(409, "DELETE", "/dbs/d/colls/books", &[], ""));
    assert_eq!(refused["code"], "ModelInUse");
    client.must(204, "DELETE", "/dbs/d/colls/posts", &[], "");
    client.must(204, "DELETE", "/dbs/d", &[], "");
    client.must(404, "GET", MODEL, &[], "");
}

/// `code at: message` of each error of a body that is refused, after the sum of them.
fn errors(client: &Client, model: &str) -> Vec<String> {
    let refused = body(&client.must(400, "PUT", MODEL, &[], model));
    assert_eq!(refused["code"], "ModelInvalid");
    let errors = refused["errors"].as_array().expect("errors");
    let text = |error: &Value, member: &str| error[member].as_str().expect("text").to_owned();
    let (count, first) = (errors.len(), text(&errors[0], "message"));
    let word = if count == 1 { "error" } else { "errors" };
    let message = text(&refused, "message");
    assert!(
        message.starts_with(&format!("The model has {count} {word}. The first: {first}\r\n")),
        "{message}"
    );
    let line = |error| format!("{} {}: {}", text(error, "code"), text(error, "at"), text(error, "message"));
    errors.iter().map(line).collect()
}

const LINK: &str =
    r#"{"name":"l","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}}"#;

/// One body for every code of the contract. All forms of their messages are tried in `quire-model`.
#[test]
fn every_code_with_its_pointer_and_message() {
    let client = client();
    client.must(
        201,
        "POST",
        "/dbs/d/colls",
        &[],
        r#"{"id":"view","partitionKey":{"paths":["/id"],"kind":"Hash","version":2},
        "materializedViewDefinition":{"sourceCollectionId":"books","definition":"SELECT * FROM c"}}"#,
    );
    let links = |links: &str| format!(r#"{{"version":1,"links":[{links}]}}"#);
    let linked = |more: &str| format!(r#"{{"version":1,"links":[{LINK}],{more}}}"#);
    let to =
        |to: &str| links(&format!(r#"{{"name":"l","from":{{"container":"books","path":"/p"}},"to":{to}}}"#));
    let many = (0..101).map(|n| LINK.replace("\"l\"", &format!("\"l{n}\""))).collect::<Vec<_>>().join(",");
    let cases: &[(String, &str)] = &[
        (r#"{"version":1,"x":2}"#.to_owned(), "BadValue /x: 'x' is not known here."),
        (r#"{"version":2}"#.to_owned(), "BadValue /version: 'version' must be 1."),
        ("{}".to_owned(), "BadValue : 'version' is missing."),
        (links(&LINK.replace("\"l\"", "\"L\"")), "BadName /links/0/name: 'L' is not a name: [a-z][a-z0-9-]{0,63}."),
        (links(&format!("{LINK},{LINK}")), "DuplicateName /links/1/name: The name 'l' is used twice."),
        (to(r#"{"container":"x"}"#), "UnknownContainer /links/0/to/container: There is no container 'x' in the database 'd'."),
        (linked(r#""mirrors":[{"name":"m","link":"x","into":"/m"}]"#), "UnknownLink /mirrors/0/link: There is no link 'x'."),
        (to(r#"{"container":"view"}"#), "ViewInModel /links/0/to/container: 'view' is a view; its items cannot take part in a model."),
        (links(&LINK.replace("/authors/*/id", "/a/*/b/*/c/*/d")), "BadPath /links/0/from/path: '/a/*/b/*/c/*/d' is not a path: it has more than two '*'."),
        (to(r#"{"container":"publishers"}"#), "PartitionKeyRoute /links/0/to: The link 'l' does not say where the partition key of 'publishers' comes from: 'to.partitionKey' needs 1 entries, or \"lookup\"."),
        (to(r#"{"container":"publishers","partitionKey":[{"path":"/x/*/y"}]}"#), "RouteNotBeside /links/0/to/partitionKey/0/path: '/x/*/y' is not beside '/p': up to its last '*' it must be the same."),
        (linked(r#""mirrors":[{"name":"m","link":"l","into":"/m","value":"r.+"}]"#), "BadExpression /mirrors/0/value: SC1001 at 2: Syntax error, incorrect syntax near '+'."),
        (linked(r#""mirrors":[{"name":"m","link":"l","into":"/m","value":"RAND()"}]"#), "ExpressionNotAllowed /mirrors/0/value: The function RAND cannot be used in a model."),
        (linked(r#""mirrors":[{"name":"m","link":"l","into":"/m"},{"name":"n","link":"l","into":"/m/x"}]"#), "OwnedTwice /mirrors/1/into: '/m/x' of 'authors' is owned by 'm' and by 'n'."),
        (linked(r#""mirrors":[{"name":"m","link":"l","into":"/id"}]"#), "OwnedNotAllowed /mirrors/0/into: '/id' of 'authors' cannot be owned: it is the id."),
        (linked(r#""copies":[{"name":"c","link":"l","fields":{"n":"t.m"}}],"mirrors":[{"name":"m","link":"l","into":"/m"}]"#), "OwnedIsRead /copies/0/fields/n: 'c' reads '/m' of 'authors', which 'm' maintains."),
        (format!(r#"{{"version":1,"links":[{}],"copies":[{{"name":"c","link":"l","fields":{{"n":"t.n"}}}}]}}"#, LINK.replace("/*/id", "/*")), "CopyNeedsObject /copies/0: The link 'l' ends in array elements; a copy needs an object beside the reference."),
        (links(&LINK.replace("}}", r#"},"integrity":"enforced","onDelete":"allow"}"#)), "EnforcedAllows /links/0/onDelete: An enforced link cannot have onDelete \"allow\"."),
        (links(&LINK.replace("/authors/*/id", "/isbn").replace("}}", r#"},"onDelete":"remove"}"#)), "RemoveNotAllowed /links/0/onDelete: '/isbn' of 'books' cannot be removed: it is a unique key."),
        (links(&format!(r#"{},{{"name":"r","from":{{"container":"posts","path":"/b"}},"to":{{"container":"books"}},"onDelete":"restrict"}}"#, LINK.replace("}}", r#"},"onDelete":"cascade"}"#))), "CascadeRestricted /links/0/onDelete: 'l' cannot cascade: items of 'books' are restricted by 'r'."),
        (r#"{"version":1,"windows":[{"name":"w","container":"posts","path":"/w","keep":3,"pages":{"container":"books","path":"/c","parent":"/postId","number":"/page","size":100}}]}"#.to_owned(), "BadWindow /windows/0/pages/container: The window 'w': the key path '/id' of 'books' is neither '/postId' nor a key path of 'posts'."),
        (links(&many), "TooMany /links: Links: at most 100."),
    ];
    for (model, expected) in cases {
        let found = errors(&client, model);
        assert!(found.iter().any(|error| error.starts_with(expected)), "{model}\n{expected}\n{found:#?}");
    }
    let model = body(&client.must(200, "GET", MODEL, &[], ""));
    assert_eq!((&model["revision"], model.as_object().map(serde_json::Map::len)), (&json!(0), Some(4)));
}

fn create(client: &Client, container: &str, item: &Value) {
    client.must(201, "POST", &format!("/dbs/d/colls/{container}/docs"), &[], &item.to_string());
}

fn read(client: &Client, container: &str, id: &str) -> Answer {
    let key = json!([id]).to_string();
    let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
    client.must(200, "GET", &format!("/dbs/d/colls/{container}/docs/{id}"), &headers, "")
}

/// Waits for a job; what it came to.
fn finish(client: &Client, id: &str) -> Value {
    loop {
        let job = body(&client.must(200, "GET", &format!("/_quire/jobs/{id}?waitMs=5000"), &[], ""));
        if job["state"] != "waiting" && job["state"] != "running" {
            return job;
        }
    }
}

fn put_and_build(client: &Client, model: &str) -> Value {
    let answer = client.send("PUT", MODEL, &[], model);
    assert!(answer.status < 300, "{}", answer.body);
    let put = body(&answer);
    finish(client, put["_jobs"][0].as_str().expect("a job"))
}

#[test]
fn a_dry_run_says_what_a_put_then_does() {
    let client = client();
    create(&client, "authors", &json!({"id": "a1", "name": "Ann"}));
    for number in 0..3 {
        create(
            &client,
            "books",
            &json!({"id": format!("b{number}"), "authors": [{"id": "a1"}, {"id": "gone"}]}),
        );
    }
    let dry = [("x-quire-dry-run", "true")];
    let run = body(&client.must(200, "PUT", MODEL, &dry, LIBRARY));
    assert_eq!(run["_changes"]["added"], json!(["book-authors", "author-on-book", "count-of-books"]));
    let estimates = run["estimates"].as_array().expect("estimates");
    let shown: Vec<String> = estimates
        .iter()
        .map(|own| {
            format!("{} {} {} {}", own["declaration"], own["wouldChange"], own["references"], own["dangling"])
        })
        .collect();
    assert_eq!(shown, [r#""book-authors" 0 6 3"#, r#""author-on-book" 3 6 3"#, r#""count-of-books" 1 0 0"#]);
    assert_eq!(estimates[0]["fanOut"], json!({"p50": 3, "p95": 3, "max": 3}));
    client.must(400, "PUT", MODEL, &dry, "{}");
    client.must(412, "PUT", MODEL, &[dry[0], ("if-match", "\"x\"")], LIBRARY);
    assert_eq!(body(&client.must(200, "GET", MODEL, &[], ""))["revision"], 0);
    let job = put_and_build(&client, LIBRARY);
    assert_eq!((&job["kind"], &job["state"]), (&json!("build"), &json!("done")));
    let built = job["result"]["declarations"].as_array().expect("declarations");
    let changed =
        |name: &str| built.iter().find(|own| own["declaration"] == name).map(|own| own["changed"].clone());
    assert_eq!(changed("author-on-book"), Some(json!(3)));
    assert_eq!(changed("count-of-books"), Some(json!(1)));
    assert_eq!(body(&read(&client, "books", "b0"))["authors"][0]["name"], "Ann");
    assert_eq!(body(&read(&client, "authors", "a1"))["countOfBooks"], 3);
    let status = body(&client.must(200, "GET", "/_quire/dbs/d/model/status", &[], ""));
    let states: Vec<&Value> =
        status["declarations"].as_array().expect("a list").iter().map(|own| &own["state"]).collect();
    assert_eq!(states, ["active", "active", "active"]);
    assert_eq!(
        (&status["revision"], &status["pending"], &status["unswept"]),
        (&json!(1), &json!([]), &json!(0))
    );
}

#[test]
fn checks_and_repairs() {
    let client = client();
    create(&client, "authors", &json!({"id": "a1", "name": "Ann"}));
    create(&client, "books", &json!({"id": "b1", "authors": [{"id": "a1", "name": "?"}, {"id": "gone"}]}));
    let check = format!("{MODEL}/check");
    let order =
        json!({"model": serde_json::from_str::<Value>(LIBRARY).expect("JSON"), "examples": 1}).to_string();
    let started = client.must(202, "POST", &check, &[], &order);
    let location = started.header("location").expect("a location").to_owned();
    let id = location.strip_prefix("/_quire/jobs/").expect("a job").to_owned();
    let result = finish(&client, &id)["result"].clone();
    assert_eq!(
        (&result["clean"], &result["items"], &result["references"]),
        (&json!(false), &json!(2), &json!(2))
    );
    let findings = result["findings"].as_array().expect("findings");
    let shown: Vec<String> = findings
        .iter()
        .map(|own| format!("{} {} {}", own["declaration"], own["problem"], own["count"]))
        .collect();
    let expected =
        [r#""book-authors" "dangling" 1"#, r#""author-on-book" "drift" 1"#, r#""count-of-books" "drift" 1"#];
    assert_eq!(shown, expected);
    let example = json!({"container": "books", "id": "b1", "partitionKey": ["b1"], "path": "/authors/0/name", "found": "?", "expected": "Ann"});
    assert_eq!(findings[1]["examples"], json!([example]));
    put_and_build(&client, LIBRARY);
    let run = |verb: &str, order: &str| {
        let started = body(&client.must(202, "POST", &format!("{MODEL}/{verb}"), &[], order));
        finish(&client, started["id"].as_str().expect("an id"))["result"].clone()
    };
    assert_eq!(run("check", "")["findings"].as_array().map(Vec::len), Some(1));
    assert_eq!(run("repair", "")["repaired"], 0);
    assert_eq!(run("repair", r#"{"dangling":"remove"}"#)["repaired"], 1);
    assert_eq!(run("check", "{}")["clean"], true);
    let status = body(&client.must(200, "GET", "/_quire/dbs/d/model/status", &[], ""));
    let (link, copy) = (&status["declarations"][0], &status["declarations"][1]);
    assert_eq!((&link["references"], &copy["references"]), (&json!(1), &Value::Null));
    assert_eq!((&link["lastCheck"]["dangling"], &copy["lastCheck"]["drift"]), (&json!(0), &json!(0)));
    assert_eq!(link["lastCheck"]["at"], "2026-11-15T18:32:04.000Z");
    assert_eq!(body(&read(&client, "books", "b1"))["authors"], json!([{"id": "a1", "name": "Ann"}]));
    for (verb, order) in [
        ("check", r#"{"dangling":"remove"}"#),
        ("check", r#"{"declarations":["other"]}"#),
        ("check", r#"{"declarations":"l"}"#),
        ("check", r#"{"examples":1001}"#),
        ("check", "[]"),
        ("repair", r#"{"dangling":"drop"}"#),
        ("repair", r#"{"model":{"version":1}}"#),
    ] {
        client.must(400, "POST", &format!("{MODEL}/{verb}"), &[], order);
    }
    client.must(404, "POST", "/_quire/dbs/nowhere/model/check", &[], "");
}

/// A target with more referrers than one request writes: the answer says so, and the copies follow.
#[test]
fn what_is_left_to_a_job_is_shown_and_done() {
    let client = client();
    create(&client, "authors", &json!({"id": "a1", "name": "Ann"}));
    for number in 0..40 {
        create(&client, "books", &json!({"id": format!("b{number}"), "authors": [{"id": "a1"}]}));
    }
    put_and_build(&client, &LIBRARY.replace(r#""version":1,"#, r#""version":1,"fanOutMax":3,"#));
    let key = [("x-ms-documentdb-partitionkey", r#"["a1"]"#)];
    client.must(200, "PUT", "/dbs/d/colls/authors/docs/a1", &key, r#"{"id":"a1","name":"Zoe"}"#);
    let jobs = body(&client.must(200, "GET", "/_quire/jobs", &[], ""));
    let job = jobs["jobs"]
        .as_array()
        .expect("jobs")
        .iter()
        .find(|job| job["kind"] == "fan-out")
        .expect("a job")
        .clone();
    let id = job["id"].as_str().expect("an id");
    for control in ["pause", "cancel"] {
        let refused = body(&client.must(409, "POST", &format!("/_quire/jobs/{id}/{control}"), &[], ""));
        assert_eq!(refused["code"], "JobNotCancellable");
    }
    assert_eq!(finish(&client, id)["state"], "done");
    for number in 0..40 {
        let book = read(&client, "books", &format!("b{number}"));
        assert_eq!(
            (body(&book)["authors"][0]["name"].clone(), book.header("x-quire-model-pending")),
            (json!("Zoe"), None)
        );
    }
}

/// The newest comments stay in the post, the others are in pages that are read as any items.
#[test]
fn windows() {
    let client = client();
    let model = r#"{"version":1,"windows":[{"name":"recent","container":"posts","path":"/comments","keep":2,"key":"/id",
        "pages":{"container":"pages","path":"/all","parent":"/postId","number":"/page","size":10},"count":"/commentCount"}]}"#;
    let put = body(&client.must(201, "PUT", MODEL, &[], model));
    let job = put["_jobs"][0].as_str().expect("a job").to_owned();
    let built = body(&client.must(200, "GET", &format!("/_quire/jobs/{job}?waitMs=20000"), &[], ""));
    assert_eq!(built["state"], "done");
    let key = [("x-ms-documentdb-partitionkey", r#"["p"]"#)];
    let made = r#"{"id":"p","comments":[{"id":1},{"id":2},{"id":3}],"commentCount":77}"#;
    let made = body(&client.must(201, "POST", "/dbs/d/colls/posts/docs", &key, made));
    assert_eq!((&made["comments"], &made["commentCount"]), (&json!([{"id":2},{"id":3}]), &json!(3)));
    let add = r#"{"operations":[{"op":"add","path":"/comments/-","value":{"id":4}}]}"#;
    let added = body(&client.must(200, "PATCH", "/dbs/d/colls/posts/docs/p", &key, add));
    assert_eq!((&added["comments"], &added["commentCount"]), (&json!([{"id":3},{"id":4}]), &json!(4)));
    let page = "/dbs/d/colls/pages/docs/recent:p:00000000";
    let read = body(&client.must(200, "GET", page, &key, ""));
    assert_eq!(
        (&read["all"], &read["postId"], &read["page"]),
        (&json!([{"id":1},{"id":2}]), &json!("p"), &json!(0))
    );
    let refused = client.must(403, "DELETE", page, &key, "");
    assert_eq!(refused.header("x-ms-substatus"), Some("6108"));
    assert!(refused.body.contains("WindowPage: pages of 'recent' are made and removed by the window."));
    let taken = r#"{"operations":[{"op":"remove","path":"/all/0"}]}"#;
    client.must(200, "PATCH", page, &key, taken);
    let post = body(&client.must(200, "GET", "/dbs/d/colls/posts/docs/p", &key, ""));
    assert_eq!(post["commentCount"], 3);
    client.must(204, "DELETE", "/dbs/d/colls/posts/docs/p", &key, "");
    client.must(404, "GET", page, &key, "");
}
