//! The model benchmark: what links, copies and counts cost writers and readers, beside the same without a model and beside
//! PostgreSQL with a foreign key and a trigger.
//!
//! Three databases have the same containers: `plain` without a model, `linked` with an enforced link from books to their
//! author, `counted` with the link, the author's name on every book and the number of books on the author.

mod builds; // declarations over items that are there
mod creates; // adding books
mod reads; // following links
mod record; // what recording requests costs
mod refactor; // items in another form
mod rename; // an author with many books

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quire_testkit::http::{Connection, Response, Signer};
use quire_testkit::live::LiveServer;
use serde_json::{Value, json};

use crate::table::Table;

/// How much is done: all of it, or a little to see that it runs.
#[derive(Clone, Copy)]
pub struct Size {
    rounds: usize,
    round: Duration,
    authors: u64,
    /// Of the author that is renamed.
    books: u64,
    /// That declarations are built over.
    items: u64,
}

pub const FULL: Size =
    Size { rounds: 5, round: Duration::from_secs(2), authors: 10_000, books: 10_000, items: 1_000_000 };
pub const SMALL: Size =
    Size { rounds: 1, round: Duration::from_millis(400), authors: 200, books: 300, items: 3_000 };

impl Size {
    /// Declarations are built over so many items.
    pub fn with_items(self, items: u64) -> Size {
        Size { items, ..self }
    }
}

const CONNECTIONS: usize = 16;
const IN_A_BATCH: u64 = 100;
const JOB_WAIT: Duration = Duration::from_secs(1800);

const PARTS: [&str; 6] = ["creates", "reads", "rename", "builds", "record", "refactor"];

/// All parts, or those that are named.
pub fn run(binary: &Path, size: Size, parts: &[&str]) -> Result<()> {
    let unknown = parts.iter().find(|part| !PARTS.contains(part));
    ensure!(unknown.is_none(), "no such part; there are {}", PARTS.join(", "));
    let is_asked = |part: &str| parts.is_empty() || parts.contains(&part);
    let folder = tempfile::tempdir()?;
    let quire = LiveServer::quire(binary, &folder.path().join("data"), &[])?;
    let mut table = Table::default();
    if is_asked("creates") {
        creates::run(&quire, size, &mut table)?;
    }
    if is_asked("reads") {
        reads::run(&quire, size, &mut table)?;
    }
    if is_asked("rename") {
        rename::run(&quire, size, &mut table)?;
    }
    if is_asked("builds") {
        builds::run(&quire, size, &mut table)?;
    }
    if is_asked("record") {
        record::run(binary, size, &mut table)?;
    }
    if is_asked("refactor") {
        refactor::run(&quire, size, &mut table)?;
    }
    table.print();
    Ok(())
}

/// Who asks for what is not measured.
struct Client {
    signer: Signer,
    connection: Connection,
}

impl Client {
    fn open(port: u16) -> Result<Client> {
        Ok(Client { signer: Signer::well_known(), connection: Connection::open(port)? })
    }

    fn send(&mut self, verb: &str, link: &str, signed: (&str, &str), body: &Value) -> Result<Response> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = self.signer.request(verb, &format!("/{link}"), signed, "", body.as_bytes());
        let answer = self.connection.exchange(&request)?;
        let text = String::from_utf8_lossy(&answer.body);
        ensure!((200..300).contains(&answer.status), "{verb} {link}: {} {text}", answer.status);
        Ok(answer)
    }

    /// A database with authors and books.
    fn library(&mut self, database: &str) -> Result<()> {
        self.send("POST", "dbs", ("dbs", ""), &json!({ "id": database }))?;
        for id in ["authors", "books"] {
            let key = json!({ "paths": ["/id"], "kind": "Hash", "version": 2 });
            let body = json!({ "id": id, "partitionKey": key });
            let owner = format!("dbs/{database}");
            self.send("POST", &format!("{owner}/colls"), ("colls", &owner), &body)?;
        }
        Ok(())
    }

    fn put_model(&mut self, database: &str, model: &Value) -> Result<()> {
        let link = format!("_quire/dbs/{database}/model");
        self.send("PUT", &link, ("_quire", &link), model).map(drop)
    }

    fn jobs(&mut self) -> Result<Vec<Value>> {
        let answer = self.send("GET", "_quire/jobs", ("_quire", "_quire/jobs"), &Value::Null)?;
        let body: Value = serde_json::from_slice(&answer.body)?;
        body["jobs"].as_array().cloned().context("a list of jobs")
    }

    /// How long it took until no job was running.
    fn wait_for_jobs(&mut self) -> Result<Duration> {
        let started = Instant::now();
        loop {
            let jobs = self.jobs()?;
            let failed = jobs.iter().find(|job| job["state"] == "failed");
            ensure!(failed.is_none(), "a job failed: {}", failed.unwrap_or(&Value::Null));
            let is_done = |job: &Value| job["state"] == "done" || job["state"] == "cancelled";
            if jobs.iter().all(is_done) {
                return Ok(started.elapsed());
            }
            ensure!(started.elapsed() < JOB_WAIT, "jobs do not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Operations in bulk, each in a logical partition of its own.
    fn bulk(&mut self, container: &str, operation: &str, items: &[Value]) -> Result<()> {
        let operations = items.iter().map(|item| {
            let key = json!([item["id"]]).to_string();
            json!({ "operationType": operation, "partitionKey": key, "resourceBody": item })
        });
        let body = Value::from_iter(operations).to_string();
        let headers = "x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: False\r\n\
                       x-ms-cosmos-batch-continue-on-error: True\r\nx-ms-documentdb-partitionkeyrangeid: 0\r\n";
        let path = format!("/{container}/docs");
        let request = self.signer.request("POST", &path, ("docs", container), headers, body.as_bytes());
        let answer = self.connection.exchange(&request)?;
        let text = String::from_utf8_lossy(&answer.body);
        ensure!(answer.status == 200, "{container}: {} {text}", answer.status);
        Ok(())
    }

    fn authors(&mut self, database: &str, count: u64) -> Result<()> {
        self.fill(&format!("dbs/{database}/colls/authors"), count, author)
    }

    fn fill(&mut self, container: &str, count: u64, make: impl Fn(u64) -> Value) -> Result<()> {
        for first in (0..count).step_by(IN_A_BATCH as usize) {
            let items: Vec<Value> = (first..(first + IN_A_BATCH).min(count)).map(&make).collect();
            self.bulk(container, "Upsert", &items)?;
        }
        Ok(())
    }
}

fn link() -> Value {
    json!({ "name": "book-author", "from": { "container": "books", "path": "/author/id" },
        "to": { "container": "authors" }, "integrity": "enforced" })
}

fn counted() -> Value {
    json!({ "version": 1, "links": [link()],
        "copies": [{ "name": "name-on-book", "link": "book-author", "fields": { "name": "t.name" } }],
        "rollups": [{ "name": "count-of-books", "link": "book-author", "op": "count", "into": "/countOfBooks" }] })
}

fn author(number: u64) -> Value {
    json!({ "id": format!("a{number}"), "name": format!("Author {number}"), "born": 1900 + number % 90,
        "about": "letters window harbour ".repeat(4) })
}

fn book(id: &str, author: u64) -> Value {
    json!({ "id": id, "title": "On Loops and Knots", "author": { "id": format!("a{author}"), "name": format!("Author {author}") },
        "pages": 320, "year": 1987, "price": 24.5, "languages": ["en", "fr"], "about": "letters window harbour ".repeat(8) })
}

fn key_header(id: &str) -> String {
    format!("x-ms-documentdb-partitionkey: [\"{id}\"]\r\n")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
