//! What is recorded of requests: counts, shapes and changes, no values; and what the rules make of it.

use serde_json::{Value, json};

use crate::client::{Answer, Client};

const WORKLOAD: &str = "/_quire/dbs/d/workload";
const ADVICE: &str = "/_quire/dbs/d/advice";
const POSTS: &str = "/dbs/d/colls/posts/docs";

fn body(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

fn workload(client: &Client) -> Value {
    body(&client.must(200, "GET", WORKLOAD, &[], ""))
}

fn client() -> Client {
    let client = Client::start(1);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    let posts = r#"{"id":"posts","partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#;
    client.must(201, "POST", "/dbs/d/colls", &[], posts);
    client
}

fn post(id: usize, comments: usize) -> String {
    let comment = |n: usize| json!({"by": format!("secret-{n}"), "text": format!("a comment {n}")});
    let comments: Vec<Value> = (0..comments).map(comment).collect();
    json!({"id": format!("p{id}"), "title": format!("hidden {id}"), "comments": comments}).to_string()
}

fn keyed(key: &str) -> [(&'static str, &str); 1] {
    [("x-ms-documentdb-partitionkey", key)]
}

#[test]
fn requests_are_counted_and_forgotten() {
    let client = client();
    let nothing = workload(&client);
    assert_eq!(nothing["recording"], true);
    assert_eq!(
        (&nothing["operations"], &nothing["kept"], &nothing["from"]),
        (&json!({}), &json!(0), &json!(null))
    );
    let key = r#"["p1"]"#;
    client.must(201, "POST", POSTS, &keyed(key), &post(1, 1));
    for _ in 0..3 {
        client.must(200, "GET", &format!("{POSTS}/p1"), &keyed(key), "");
    }
    client.must(404, "GET", &format!("{POSTS}/p2"), &keyed(r#"["p2"]"#), "");
    client.must(200, "PUT", &format!("{POSTS}/p1"), &keyed(key), &post(1, 2));
    let query = r#"{"query":"SELECT * FROM c WHERE c.title = 'hidden 1'","parameters":[]}"#;
    let headers = [
        ("x-ms-documentdb-isquery", "true"),
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-query-enablecrosspartition", "true"),
    ];
    client.must(200, "POST", POSTS, &headers, query);
    client.must(200, "POST", POSTS, &headers, &query.replace("hidden 1", "hidden 2"));
    client.must(204, "DELETE", &format!("{POSTS}/p1"), &keyed(key), "");
    let found = workload(&client);
    let expected = json!({"posts": {"read": 4, "create": 1, "replace": 1, "query": 2, "delete": 1}});
    assert_eq!(found["operations"], expected);
    assert_eq!((&found["kept"], &found["dropped"], &found["shapes"]), (&json!(9), &json!(0), &json!(1)));
    let lines = client.must(200, "GET", WORKLOAD, &[("accept", "application/x-ndjson")], "").body;
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a JSON value a line")).collect();
    assert_eq!(lines.len(), 9);
    let replaced = lines.iter().find(|line| line["operation"] == "replace").expect("the replace");
    let length = json!([{"path": "/comments", "before": 1, "after": 2}]);
    assert_eq!((&replaced["status"], &replaced["change"]["lengths"]), (&json!(200), &length));
    assert!(
        lines
            .iter()
            .filter(|line| line["operation"] == "query")
            .all(|line| line["query"]["shape"].is_string())
    );
    let text = json!(lines).to_string();
    assert!(!["hidden", "secret", "comment 0", "p1"].iter().any(|value| text.contains(value)), "{text}");
    client.run_job("/_quire/dbs/d/profile", "");
    let profile = body(&client.must(200, "GET", "/_quire/dbs/d/colls/posts/profile", &[], ""));
    assert_eq!(profile["recorded"]["operations"], 9);
    assert_eq!(profile["shapes"][0]["text"], "SELECT * FROM c WHERE (c.title = ?)");
    assert_eq!(profile["shapes"][0]["count"], 2);
    assert_eq!(profile["change"]["writes"], 1);
    assert_eq!(profile["change"]["paths"][0]["path"], "/comments");
    assert!(!profile.to_string().contains("hidden") && !profile.to_string().contains("secret"), "{profile}");
    client.must(204, "DELETE", WORKLOAD, &[], "");
    assert_eq!(workload(&client)["operations"], json!({}));
    let profile = body(&client.must(200, "GET", "/_quire/dbs/d/colls/posts/profile", &[], ""));
    assert_eq!((&profile["recorded"]["operations"], &profile["revision"]), (&json!(0), &json!(1)));
    assert_eq!((&profile["shapes"], &profile["operations"]), (&json!([]), &json!({})));
    assert_eq!(profile["change"], json!({"writes": 0, "paths": []}));
    client.must(404, "GET", "/_quire/dbs/other/workload", &[], "");
}

/// What a model maintains in the item is part of it; what it changes in others is not.
#[test]
fn writes_under_a_model_say_what_they_changed() {
    let client = client();
    let model = json!({"version": 1,
        "links": [{"name": "post-post", "from": {"container": "posts", "path": "/next"}, "to": {"container": "posts"}}],
        "rollups": [{"name": "count-of-referrers", "link": "post-post", "into": "/referrers", "op": "count"}]});
    let put = client.send("PUT", "/_quire/dbs/d/model", &[], &model.to_string());
    assert!(put.status < 300, "{}", put.body);
    client.must(201, "POST", POSTS, &keyed(r#"["p1"]"#), r#"{"id":"p1","title":"hidden"}"#);
    client.must(201, "POST", POSTS, &keyed(r#"["p2"]"#), r#"{"id":"p2","next":"p1"}"#);
    let changed = r#"{"id":"p2","next":"p1","title":"hidden"}"#;
    client.must(200, "PUT", &format!("{POSTS}/p2"), &keyed(r#"["p2"]"#), changed);
    client.must(204, "DELETE", &format!("{POSTS}/p2"), &keyed(r#"["p2"]"#), "");
    let lines = client.must(200, "GET", WORKLOAD, &[("accept", "application/x-ndjson")], "").body;
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a JSON value a line")).collect();
    let change = |operation: &str| {
        lines.iter().find(|line| line["operation"] == operation).expect(operation)["change"].clone()
    };
    assert_eq!(change("replace")["paths"], json!(["/title"]), "{lines:?}");
    assert!(change("replace")["sizeBefore"].is_number() && change("delete")["sizeAfter"].is_null());
    assert!(!json!(lines).to_string().contains("hidden"));
}

/// Writes that a request makes together have records of their own, once they are done.
#[test]
fn batches_bulk_requests_and_procedures_say_what_their_writes_changed() {
    const LINES: &str = "/dbs/d/colls/lines";
    const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["o"]"#);
    const BATCH: (&str, &str) = ("x-ms-cosmos-is-batch-request", "True");
    let client = client();
    let lines = r#"{"id":"lines","partitionKey":{"paths":["/order"],"kind":"Hash","version":2}}"#;
    client.must(201, "POST", "/dbs/d/colls", &[], lines);
    let docs = format!("{LINES}/docs");
    let batch = |status: u16, operations: &str| {
        let headers = [BATCH, ("x-ms-cosmos-batch-atomic", "True"), KEY];
        client.must(status, "POST", &docs, &headers, operations)
    };
    batch(
        200,
        r#"[{"operationType":"Create","resourceBody":{"id":"a","order":"o","n":1,"text":"hidden"}},
            {"operationType":"Create","resourceBody":{"id":"b","order":"o"}}]"#,
    );
    batch(
        200,
        r#"[{"operationType":"Patch","id":"a","resourceBody":{"operations":[{"op":"incr","path":"/n","value":1}]}},
            {"operationType":"Delete","id":"b"}]"#,
    );
    // Nothing of it is done.
    batch(
        207,
        r#"[{"operationType":"Create","resourceBody":{"id":"x","order":"o"}},
            {"operationType":"Create","resourceBody":{"id":"a","order":"o"}}]"#,
    );
    let bulk = [
        BATCH,
        ("x-ms-cosmos-batch-atomic", "False"),
        ("x-ms-cosmos-batch-continue-on-error", "True"),
        ("x-ms-documentdb-partitionkeyrangeid", "0"),
    ];
    let operations = r#"[{"operationType":"Replace","id":"a","partitionKey":"[\"o\"]","resourceBody":{"id":"a","order":"o","n":2,"text":"secret"}},
        {"operationType":"Create","partitionKey":"[\"o\"]","resourceBody":{"id":"c","order":"o"}},
        {"operationType":"Create","partitionKey":"[\"o\"]","resourceBody":{"id":"a","order":"o"}}]"#;
    client.must(207, "POST", &docs, &bulk, operations);
    let procedure = r#"{"id":"add","body":"function add() { const all = getContext().getCollection(); all.createDocument(all.getSelfLink(), { id: 's', order: 'o' }); all.createDocument(all.getSelfLink(), { id: 't', order: 'o' }); }"}"#;
    client.must(201, "POST", &format!("{LINES}/sprocs"), &[], procedure);
    client.must(200, "POST", &format!("{LINES}/sprocs/add"), &[KEY], "[]");
    let found = workload(&client);
    let expected = json!({"batch": 4, "create": 5, "replace": 2, "delete": 1, "procedure": 1});
    assert_eq!(found["operations"]["lines"], expected);
    let lines = client.must(200, "GET", WORKLOAD, &[("accept", "application/x-ndjson")], "").body;
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a JSON value a line")).collect();
    let changes = |operation: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["operation"] == operation).map(|line| &line["change"]).collect()
    };
    let paths: Vec<&Value> = changes("replace").into_iter().map(|change| &change["paths"]).collect();
    assert_eq!(paths, [&json!(["/n"]), &json!(["/text"])]);
    assert!(changes("create").iter().all(|change| change["sizeBefore"].is_null()), "{lines:?}");
    assert!(changes("delete").iter().all(|change| change["sizeAfter"].is_null()), "{lines:?}");
    let writes = lines.iter().filter(|line| !line["change"].is_null());
    assert!(
        writes.clone().all(|line| line["charge"].as_f64().is_some_and(|charge| charge > 1.0)),
        "{lines:?}"
    );
    assert_eq!(writes.count(), 8, "{lines:?}");
    let text = json!(lines).to_string();
    assert!(!["hidden", "secret"].iter().any(|value| text.contains(value)), "{text}");
    client.run_job("/_quire/dbs/d/profile", "");
    let profile = body(&client.must(200, "GET", "/_quire/dbs/d/colls/lines/profile", &[], ""));
    assert_eq!(profile["change"]["writes"], 2, "{profile}");
}

#[test]
fn an_array_that_grows_with_every_write_is_found() {
    let client = client();
    let send = |verb: &str, id: usize, comments: usize| {
        let (key, path) = (format!(r#"["p{id}"]"#), format!("{POSTS}/p{id}"));
        let (status, path) = if verb == "POST" { (201, POSTS) } else { (200, path.as_str()) };
        client.must(status, verb, path, &keyed(&key), &post(id, comments));
    };
    (0..30).for_each(|id| send("POST", id, 110 + 3 * id));
    for round in 1..5 {
        (0..30).for_each(|id| send("PUT", id, 110 + 3 * id + round));
    }
    let order = r#"{"thresholds":{"minItems":20,"minOperations":50,"minSavedShare":0.01}}"#;
    client.run_job(ADVICE, order);
    let list = body(&client.must(200, "GET", ADVICE, &[], ""));
    let rules: Vec<&Value> =
        list["findings"].as_array().expect("a list").iter().map(|finding| &finding["rule"]).collect();
    assert_eq!(rules, ["unbounded-array"], "{list}");
    let finding = &list["findings"][0];
    assert_eq!((&finding["path"], &finding["evidence"]["growing"]), (&json!("/comments"), &json!(1)));
    assert_eq!(finding["before"]["comments"].as_array().map(Vec::len), Some(3));
    assert_eq!(finding["after"][1]["container"], "posts-pages");
    // Without the record there is nothing to go by.
    client.must(204, "DELETE", WORKLOAD, &[], "");
    assert_eq!(body(&client.must(200, "GET", ADVICE, &[], ""))["findings"], json!([]));
    client.run_job(ADVICE, order);
    assert_eq!(body(&client.must(200, "GET", ADVICE, &[], ""))["findings"], json!([]));
}

#[test]
fn a_container_that_is_deleted_meanwhile_is_left_out() {
    let client = client();
    for n in 0..40 {
        client.must(201, "POST", POSTS, &keyed(&format!(r#"["p{n}"]"#)), &post(n, 5));
    }
    for round in 0..10 {
        let other = r#"{"id":"other","partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#;
        client.must(201, "POST", "/dbs/d/colls", &[], other);
        client.must(201, "POST", "/dbs/d/colls/other/docs", &keyed(r#"["p1"]"#), &post(1, 1));
        let started = client.must(202, "POST", "/_quire/dbs/d/profile", &[], "");
        client.must(204, "DELETE", "/dbs/d/colls/other", &[], "");
        let job = client.finished_job(&started);
        assert_eq!(job["state"], "done", "{job}");
        let profiles = body(&client.must(200, "GET", "/_quire/dbs/d/profile", &[], ""));
        let names: Vec<&Value> =
            profiles["containers"].as_array().expect("a list").iter().map(|own| &own["container"]).collect();
        assert_eq!(names, ["posts"], "round {round}");
    }
}

#[test]
fn the_pages_of_a_query_are_one_execution() {
    let client = client();
    for n in 0..5 {
        client.must(201, "POST", POSTS, &keyed(&format!(r#"["p{n}"]"#)), &post(n, 1));
    }
    let query = r#"{"query":"SELECT c.title FROM c","parameters":[]}"#;
    let (mut token, mut pages) = (None::<String>, 0);
    loop {
        let mut headers = vec![
            ("x-ms-documentdb-isquery", "true"),
            ("content-type", "application/query+json"),
            ("x-ms-documentdb-query-enablecrosspartition", "true"),
            ("x-ms-max-item-count", "2"),
        ];
        headers.extend(token.as_deref().map(|token| ("x-ms-continuation", token)));
        let answer = client.must(200, "POST", POSTS, &headers, query);
        pages += 1;
        token = answer.header("x-ms-continuation").map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    assert_eq!(pages, 3);
    client.run_job("/_quire/dbs/d/profile", "");
    let profile = body(&client.must(200, "GET", "/_quire/dbs/d/colls/posts/profile", &[], ""));
    let shape = &profile["shapes"][0];
    assert_eq!((&shape["count"], &shape["returned"]["p50"]), (&json!(1), &json!(5)), "{shape}");
    assert_eq!(profile["operations"]["query"]["count"], 3);
}

/// An action reads a post, then the author that it names: that is a sequence.
#[test]
fn reads_that_follow_others_are_found() {
    let client = client();
    let authors = r#"{"id":"authors","partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#;
    client.must(201, "POST", "/dbs/d/colls", &[], authors);
    for n in 0..40 {
        let (author, item) = (json!({"id": format!("a{n}"), "name": "x"}), format!("p{n}"));
        let key = format!(r#"["a{n}"]"#);
        client.must(201, "POST", "/dbs/d/colls/authors/docs", &keyed(&key), &author.to_string());
        let post = json!({"id": item, "authorId": format!("a{n}")}).to_string();
        client.must(201, "POST", POSTS, &keyed(&format!(r#"["{item}"]"#)), &post);
    }
    for n in 0..40 {
        let action = format!("view-{n}");
        let (post, author) = (format!(r#"["p{n}"]"#), format!(r#"["a{n}"]"#));
        let with = |key| [("x-quire-action", action.as_str()), ("x-ms-documentdb-partitionkey", key)];
        client.must(200, "GET", &format!("{POSTS}/p{n}"), &with(post.as_str()), "");
        client.must(200, "GET", &format!("/dbs/d/colls/authors/docs/a{n}"), &with(author.as_str()), "");
    }
    client.run_job("/_quire/dbs/d/profile", "");
    let profile = body(&client.must(200, "GET", "/_quire/dbs/d/colls/posts/profile", &[], ""));
    let sequence = &profile["sequences"][0];
    assert_eq!((&sequence["from"], &sequence["to"]), (&json!("/authorId"), &json!("authors")), "{profile}");
    assert_eq!((&sequence["count"], &sequence["share"]), (&json!(40), &json!(1)), "{sequence}");
}
