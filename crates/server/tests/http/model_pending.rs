//! Fan-out jobs that are not done yet, as answers show them. The jobs are held before they write the first referrer.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use quire_storage::memory::MemoryStorage;
use serde_json::{Value, json};

use crate::client::{Answer, Client};

#[path = "../../../engine/tests/support/hooked_storage.rs"]
mod hooked_storage;

#[path = "../support/wait.rs"]
mod wait;

use hooked_storage::{Call, HookedStorage};
use wait::wait_until;

const BOOKS: usize = 7;
const PENDING: &str = "x-quire-model-pending";

/// Where jobs wait.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    opened: Condvar,
}

#[derive(Default)]
struct GateState {
    is_closed: bool,
    /// Of jobs since it was closed.
    commits: usize,
}

impl Gate {
    fn set(&self, is_closed: bool) {
        *self.state.lock() = GateState { is_closed, commits: 0 };
        self.opened.notify_all();
    }

    /// Jobs count their items in a first commit, and are held at what they read next, without any lock.
    fn pass(&self, call: &Call<'_>) {
        if std::thread::current().name() != Some("quire-jobs") {
            return;
        }
        let mut state = self.state.lock();
        match call {
            Call::Commit(_) => state.commits += 1,
            Call::BeforeSnapshot => {
                while state.is_closed && state.commits > 0 {
                    self.opened.wait(&mut state);
                }
            }
            _ => {}
        }
    }
}

/// An author with some books, under a model that leaves them to jobs.
fn library(gate: &Arc<Gate>, on_delete: &str) -> Client {
    let storage = HookedStorage::new(Arc::new(MemoryStorage::new()));
    let own = Arc::clone(gate);
    storage.calls().set_hook(move |call| own.pass(call));
    let client = Client::start_on(Arc::new(storage), 2, |_| ());
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    for id in ["authors", "books", "others"] {
        let container =
            json!({ "id": id, "partitionKey": { "paths": ["/id"], "kind": "Hash", "version": 2 } });
        client.must(201, "POST", "/dbs/d/colls", &[], &container.to_string());
    }
    let model = json!({ "version": 1, "fanOutMax": 0,
        "links": [{ "name": "l", "from": { "container": "books", "path": "/author/id" },
            "to": { "container": "authors" }, "onDelete": on_delete }],
        "copies": [{ "name": "c", "link": "l", "fields": { "name": "t.name" } }] });
    client.must(201, "PUT", "/_quire/dbs/d/model", &[], &model.to_string());
    wait_until("all jobs are done", || unfinished_jobs(&client) == 0);
    client.must(
        201,
        "POST",
        "/dbs/d/colls/authors/docs",
        &[("x-ms-documentdb-partitionkey", r#"["a1"]"#)],
        r#"{"id":"a1","name":"Ann"}"#,
    );
    client.must(
        201,
        "POST",
        "/dbs/d/colls/others/docs",
        &[("x-ms-documentdb-partitionkey", r#"["o"]"#)],
        r#"{"id":"o"}"#,
    );
    for number in 0..BOOKS {
        let book = json!({ "id": format!("b{number}"), "author": { "id": "a1" } });
        let key = json!([book["id"]]).to_string();
        client.must(
            201,
            "POST",
            "/dbs/d/colls/books/docs",
            &[("x-ms-documentdb-partitionkey", &key)],
            &book.to_string(),
        );
    }
    client
}

fn unfinished_jobs(client: &Client) -> usize {
    let answer = client.must(200, "GET", "/_quire/jobs", &[], "");
    let jobs: Value = serde_json::from_str(&answer.body).expect("JSON");
    let is_done = |job: &Value| ["done", "failed", "cancelled"].iter().any(|state| job["state"] == *state);
    jobs["jobs"].as_array().expect("jobs").iter().filter(|job| !is_done(job)).count()
}

fn item(client: &Client, container: &str, id: &str) -> Answer {
    let key = json!([id]).to_string();
    client.send(
        "GET",
        &format!("/dbs/d/colls/{container}/docs/{id}"),
        &[("x-ms-documentdb-partitionkey", &key)],
        "",
    )
}

fn pending(answer: &Answer) -> Option<&str> {
    answer.header(PENDING)
}

#[test]
fn answers_say_how_many_items_are_still_to_be_rewritten() {
    let gate = Arc::new(Gate::default());
    let client = library(&gate, "allow");
    assert_eq!(pending(&item(&client, "books", "b0")), None, "nothing is pending");
    gate.set(true);
    let key = ("x-ms-documentdb-partitionkey", r#"["a1"]"#);
    client.must(200, "PUT", "/dbs/d/colls/authors/docs/a1", &[key], r#"{"id":"a1","name":"Bea"}"#);
    wait_until("the change of 7 items is pending", || pending(&item(&client, "books", "b0")) == Some("7"));
    let query = [
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-isquery", "true"),
        ("x-ms-documentdb-query-enablecrosspartition", "true"),
    ];
    let page = client.must(200, "POST", "/dbs/d/colls/books/docs", &query, r#"{"query":"SELECT * FROM c"}"#);
    assert_eq!(pending(&page), Some("7"), "a page of a query");
    assert_eq!(pending(&client.must(200, "GET", "/dbs/d/colls/books/docs", &[], "")), Some("7"), "a feed");
    let key = ("x-ms-documentdb-partitionkey", r#"["b0"]"#);
    let book = r#"{"id":"b0","author":{"id":"a1"}}"#;
    let written = client.must(200, "PUT", "/dbs/d/colls/books/docs/b0", &[key], book);
    assert_eq!(pending(&written), Some("7"), "a write");
    assert!(written.body.contains(r#""name":"Bea""#), "a referrer written meanwhile is right at once");
    for other in [item(&client, "others", "o"), item(&client, "authors", "a1")] {
        assert_eq!(pending(&other), None, "nothing is rewritten in other containers");
    }
    let status = client.must(200, "GET", "/_quire/dbs/d/model/status", &[], "");
    let status: Value = serde_json::from_str(&status.body).expect("JSON");
    let found = &status["pending"][0];
    assert_eq!(
        (&found["declaration"], &found["container"], &found["id"]),
        (&json!("l"), &json!("authors"), &json!("a1"))
    );
    assert_eq!(found["remaining"], 7);
    gate.set(false);
    wait_until("all jobs are done", || unfinished_jobs(&client) == 0);
    let book = item(&client, "books", "b6");
    assert!(pending(&book).is_none() && book.body.contains(r#""name":"Bea""#), "{}", book.body);
}

#[test]
fn what_was_deleted_comes_back_when_no_reference_is_left() {
    for (on_delete, left) in [("remove", BOOKS), ("cascade", 0)] {
        let gate = Arc::new(Gate::default());
        let client = library(&gate, on_delete);
        gate.set(true);
        let key = ("x-ms-documentdb-partitionkey", r#"["a1"]"#);
        client.must(204, "DELETE", "/dbs/d/colls/authors/docs/a1", &[key], "");
        let author = r#"{"id":"a1","name":"Bea"}"#;
        let refused = client.must(449, "POST", "/dbs/d/colls/authors/docs", &[key], author);
        assert_eq!(refused.header("x-ms-substatus"), Some("6106"));
        let job = client.must(200, "GET", "/_quire/jobs", &[], "");
        let jobs: Value = serde_json::from_str(&job.body).expect("JSON");
        let job = jobs["jobs"].as_array().expect("jobs").iter().find(|job| job["kind"] == "fan-out");
        let id = job.and_then(|job| job["id"].as_str()).expect("a job");
        let message = format!("DeletionPending: references to 'a1' are still being removed ({id}).");
        assert!(refused.body.contains(&message), "{}", refused.body);
        gate.set(false);
        wait_until("all jobs are done", || unfinished_jobs(&client) == 0);
        client.must(201, "POST", "/dbs/d/colls/authors/docs", &[key], author);
        let books: Value =
            serde_json::from_str(&client.must(200, "GET", "/dbs/d/colls/books/docs", &[], "").body)
                .expect("JSON");
        assert_eq!(books["_count"], left);
        assert!(
            books["Documents"].as_array().expect("items").iter().all(|book| book["author"]["id"].is_null())
        );
    }
}
