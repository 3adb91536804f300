//! The script benchmark: procedures beside batches and PostgreSQL, what a user-defined function costs, what a batch saves.
//!
//! One transaction everywhere: a book is inserted and the count of its author rises. PostgreSQL does it in a function and
//! by statements between BEGIN and COMMIT, driven by its own load generator over TCP with prepared statements. Its table has a
//! primary key and a GIN index over the documents, as every path is indexed on our side; figures without that
//! index stand beside it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::LiveServer;
use serde_json::{Value, json};

use crate::client::{Load, NextRequest, run_each};
use crate::postgres::Postgres;
use crate::process::cpu;
use crate::table::Table;

const CONTAINER: &str = "dbs/bench/colls/books";
/// What the functions are called for.
const PRICES: &str = "dbs/bench/colls/prices";
const CONNECTIONS: [usize; 2] = [1, 16];
const AUTHOR: &str = "ada";

/// How much is done: all of it, or a little to see that it runs.
#[derive(Clone, Copy)]
pub struct Size {
    rounds: usize,
    round: Duration,
    items: u64,
}

pub const FULL: Size = Size { rounds: 3, round: Duration::from_secs(3), items: 100_000 };
pub const SMALL: Size = Size { rounds: 1, round: Duration::from_millis(500), items: 2_000 };

pub fn run(binary: &Path, size: Size) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let quire = LiveServer::quire(binary, &folder.path().join("data"), &["--partitions", "1"])?;
    set_up(quire.port)?;
    let postgres = Postgres::start_tuned()?;
    if let Some(postgres) = &postgres {
        set_up_postgres(postgres)?;
    }
    let mut table = Table::default();
    procedures(&quire, postgres.as_ref(), size, &mut table)?;
    functions(&quire, size, &mut table)?;
    batches(&quire, size, &mut table)?;
    table.print();
    Ok(())
}

/// Inserts a book and counts it: as a user would write it.
const ADD_BOOK: &str = r#"function addBook(book, author) {
  const collection = getContext().getCollection();
  collection.readDocument(collection.getAltLink() + "/docs/" + author, (error, found) => {
    if (error) throw error;
    found.countOfBooks += 1;
    collection.replaceDocument(found._self, found);
    collection.createDocument(collection.getSelfLink(), book, (error, stored) => {
      if (error) throw error;
      getContext().getResponse().setBody(stored.id);
    });
  });
}"#;

fn set_up(port: u16) -> Result<()> {
    let signer = Signer::well_known();
    let mut connection = Connection::open(port)?;
    let mut post = |path: &str, signed: (&str, &str), headers: &str, body: Value| -> Result<()> {
        let body = body.to_string();
        let answer = connection.exchange(&signer.request("POST", path, signed, headers, body.as_bytes()))?;
        ensure!(answer.status == 201, "{path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        Ok(())
    };
    post("/dbs", ("dbs", ""), "", json!({ "id": "bench" }))?;
    for id in ["books", "prices"] {
        let key = json!({ "paths": ["/publisher"], "kind": "Hash", "version": 2 });
        post("/dbs/bench/colls", ("colls", "dbs/bench"), "", json!({ "id": id, "partitionKey": key }))?;
    }
    let procedure = json!({ "id": "addBook", "body": ADD_BOOK });
    post(&format!("/{CONTAINER}/sprocs"), ("sprocs", CONTAINER), "", procedure)?;
    let function = json!({ "id": "cheap", "body": "function cheap(price, most) { return price < most; }" });
    post(&format!("/{PRICES}/udfs"), ("udfs", PRICES), "", function)?;
    for publisher in 0..16 {
        let author =
            json!({ "id": AUTHOR, "publisher": name(publisher), "type": "author", "countOfBooks": 0 });
        post(&format!("/{CONTAINER}/docs"), ("docs", CONTAINER), &key_header(publisher), author)?;
    }
    Ok(())
}

fn name(publisher: usize) -> String {
    format!("publisher-{publisher}")
}

fn key_header(publisher: usize) -> String {
    format!("x-ms-documentdb-partitionkey: [\"{}\"]\r\n", name(publisher))
}

fn book(publisher: usize, id: &str) -> Value {
    json!({
        "id": id, "publisher": name(publisher), "type": "book", "title": "On Loops and Knots", "authors": [AUTHOR],
        "pages": 320, "year": 1987, "price": 24.5, "languages": ["en", "fr"], "about": "letters window harbour ".repeat(8),
    })
}

/// Which logical partitions the connections write to.
#[derive(Clone, Copy, PartialEq)]
enum Keys {
    OneEach,
    Shared,
}

impl Keys {
    fn publisher(self, connection: usize) -> usize {
        if self == Keys::Shared { 0 } else { connection }
    }

    fn shown(self) -> &'static str {
        if self == Keys::Shared { "one key for all" } else { "a key each" }
    }
}

fn procedures(quire: &LiveServer, postgres: Option<&Postgres>, size: Size, table: &mut Table) -> Result<()> {
    for (keys, connections) in
        [(Keys::OneEach, CONNECTIONS[0]), (Keys::OneEach, CONNECTIONS[1]), (Keys::Shared, CONNECTIONS[1])]
    {
        let mut figures = Figures::default();
        for round in 0..size.rounds {
            let label = |what: &str| format!("{what}{round}-{connections}-{}", keys.publisher(1));
            let procedure = measured(quire, connections, size, &label("p"), keys, call_procedure)?;
            let batch = measured(quire, connections, size, &label("b"), keys, send_batch)?;
            figures.push(procedure, batch);
            if let Some(postgres) = postgres {
                figures.beside(postgres, connections, keys)?;
            }
        }
        figures.print(connections, keys, table);
    }
    Ok(())
}

struct Measurement {
    rate: f64,
    cpu_micros: f64,
}

type MakeRequest = fn(&Signer, usize, &str) -> Vec<u8>;

/// The rate at which new books are added, one request each.
fn measured(
    quire: &LiveServer,
    connections: usize,
    size: Size,
    label: &str,
    keys: Keys,
    make: MakeRequest,
) -> Result<Measurement> {
    let before = cpu(quire)?;
    let load = run_each(quire.port, connections, size.round, 200, |connection| {
        let (signer, publisher, label) = (Signer::well_known(), keys.publisher(connection), label.to_owned());
        let next: NextRequest =
            Arc::new(move |number| make(&signer, publisher, &format!("{label}-{number}")));
        next
    })?;
    let used = cpu(quire)? - before;
    Ok(Measurement { rate: load.rate(), cpu_micros: used.as_secs_f64() * 1e6 / load.requests as f64 })
}

fn call_procedure(signer: &Signer, publisher: usize, id: &str) -> Vec<u8> {
    let link = format!("{CONTAINER}/sprocs/addBook");
    let body = json!([book(publisher, id), AUTHOR]).to_string();
    signer.request("POST", &format!("/{link}"), ("sprocs", &link), &key_header(publisher), body.as_bytes())
}

/// The same two operations.
fn send_batch(signer: &Signer, publisher: usize, id: &str) -> Vec<u8> {
    let count = json!({ "operations": [{ "op": "incr", "path": "/countOfBooks", "value": 1 }] });
    let operations = json!([
        { "operationType": "Patch", "id": AUTHOR, "resourceBody": count },
        { "operationType": "Create", "resourceBody": book(publisher, id) },
    ]);
    batch_request(signer, CONTAINER, publisher, &operations)
}

fn batch_request(signer: &Signer, container: &str, publisher: usize, operations: &Value) -> Vec<u8> {
    let headers = format!(
        "{}x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: True\r\n",
        key_header(publisher)
    );
    let body = operations.to_string();
    signer.request("POST", &format!("/{container}/docs"), ("docs", container), &headers, body.as_bytes())
}

fn set_up_postgres(postgres: &Postgres) -> Result<()> {
    postgres.sql("CREATE SEQUENCE numbers")?;
    for (table, index) in [("indexed", true), ("plain", false)] {
        postgres.sql(&format!(
            "CREATE TABLE {table} (publisher text COLLATE \"C\", id text COLLATE \"C\", body jsonb NOT NULL, \
             PRIMARY KEY (publisher, id))"
        ))?;
        if index {
            postgres.sql(&format!("CREATE INDEX ON {table} USING gin (body jsonb_path_ops)"))?;
        }
        postgres.sql(&format!(
            "INSERT INTO {table} SELECT 'publisher-' || n, '{AUTHOR}', \
             '{{\"type\":\"author\",\"countOfBooks\":0}}'::jsonb FROM generate_series(0, 15) AS n"
        ))?;
        postgres.sql(&format!(
            "CREATE FUNCTION add_book_{table}(whose text, book text, document jsonb) RETURNS text LANGUAGE plpgsql AS $$ \
             BEGIN {} {} RETURN book; END $$",
            count_statement(table, "whose"),
            insert_statement(table, "whose", "book", "document"),
        ))?;
    }
    Ok(())
}

fn count_statement(table: &str, publisher: &str) -> String {
    format!(
        "UPDATE {table} SET body = jsonb_set(body, '{{countOfBooks}}', to_jsonb((body->>'countOfBooks')::int + 1)) \
         WHERE publisher = {publisher} AND id = '{AUTHOR}';"
    )
}

fn insert_statement(table: &str, publisher: &str, id: &str, document: &str) -> String {
    format!("INSERT INTO {table} (publisher, id, body) VALUES ({publisher}, {id}, {document});")
}

/// The book's JSON as a literal. The load generator takes a word behind a colon for a variable, also inside a text.
fn literal() -> String {
    format!("'{}'::jsonb", book(0, "b").to_string().replace("\":", "\": "))
}

fn publisher_expression(keys: Keys) -> &'static str {
    if keys == Keys::Shared { "'publisher-0'" } else { "('publisher-' || (:client_id)::int)" }
}

const NEW_ID: &str = "('book-' || nextval('numbers'))";

fn function_script(table: &str, keys: Keys) -> String {
    format!("SELECT add_book_{table}({}, {NEW_ID}, {});\n", publisher_expression(keys), literal())
}

fn statements_script(table: &str, keys: Keys) -> String {
    let publisher = publisher_expression(keys);
    format!(
        "BEGIN;\n{}\n{}\nCOMMIT;\n",
        count_statement(table, publisher),
        insert_statement(table, publisher, NEW_ID, &literal())
    )
}

#[derive(Default)]
struct Figures {
    procedure: Vec<Measurement>,
    batch: Vec<Measurement>,
    /// PostgreSQL's function and statements with the index, and without.
    postgres: Vec<[f64; 4]>,
}

impl Figures {
    fn push(&mut self, procedure: Measurement, batch: Measurement) {
        self.procedure.push(procedure);
        self.batch.push(batch);
    }

    fn beside(&mut self, postgres: &Postgres, connections: usize, keys: Keys) -> Result<()> {
        let rate = |script: String| postgres.query_rate(&script, connections);
        self.postgres.push([
            rate(function_script("indexed", keys))?,
            rate(statements_script("indexed", keys))?,
            rate(function_script("plain", keys))?,
            rate(statements_script("plain", keys))?,
        ]);
        Ok(())
    }

    fn print(&self, connections: usize, keys: Keys, table: &mut Table) {
        let what = |rest: &str| format!("procedure at {connections} connection(s), {}: {rest}", keys.shown());
        let to_batch = median(self.procedure.iter().zip(&self.batch).map(|(p, b)| p.rate / b.rate));
        if connections == 16 && keys == Keys::OneEach {
            table.at_least(&what("rate, to the batch"), to_batch, 0.5, "x");
        } else {
            table.note(&what("rate, to the batch"), format!("{to_batch:.2}x"));
        }
        let to = |place: usize| {
            median(self.procedure.iter().zip(&self.postgres).map(|(p, theirs)| p.rate / theirs[place]))
        };
        if !self.postgres.is_empty() {
            let (function, statements) = ("rate, to PL/pgSQL", "rate, to BEGIN..COMMIT over the wire");
            if keys == Keys::OneEach {
                table.at_least(&what(function), to(0), 0.8, "x");
                table.at_least(&what(statements), to(1), 1.5, "x");
            } else {
                table.note(&what(function), format!("{:.2}x", to(0)));
                table.note(&what(statements), format!("{:.2}x", to(1)));
            }
            table.note(&what("the same without a GIN index"), format!("{:.2}x, {:.2}x", to(2), to(3)));
        }
        let last = |figures: &[Measurement]| {
            figures.last().map_or(String::new(), |last| {
                format!("{:.0}/s with {:.0} us of CPU", last.rate, last.cpu_micros)
            })
        };
        let theirs = self.postgres.last().map_or("PostgreSQL 15 is not installed here".to_owned(), |rates| {
            format!("PL/pgSQL {:.0}/s, BEGIN..COMMIT {:.0}/s", rates[0], rates[1])
        });
        let shown = format!("procedure {}, batch {}, {theirs}", last(&self.procedure), last(&self.batch));
        table.note(&what("last round"), shown);
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A function over every item, beside an expression that no index can answer either.
fn functions(quire: &LiveServer, size: Size, table: &mut Table) -> Result<()> {
    fill(quire.port, size.items)?;
    let plain = "SELECT VALUE COUNT(1) FROM c WHERE c.price + 0 < @most + 0";
    let called = "SELECT VALUE COUNT(1) FROM c WHERE udf.cheap(c.price, @most)";
    let (mut calls, mut shown) = (Vec::new(), String::new());
    for round in 0..size.rounds as u64 {
        let most = size.items * (4 + round) / 10;
        let (without, with) = (timed(quire, plain, most)?, timed(quire, called, most)?);
        ensure!(
            without.sum == with.sum,
            "the function finds {} items, the expression {}",
            with.sum,
            without.sum
        );
        calls.push((with.cpu.as_secs_f64() - without.cpu.as_secs_f64()) * 1e6 / size.items as f64);
        shown = format!(
            "{:.0?} of CPU with the function, {:.0?} without, over {} items, {} found",
            with.cpu, without.cpu, size.items, with.sum
        );
    }
    table.at_most(
        "user-defined function of two scalars in WHERE: CPU per call",
        median(calls.into_iter()),
        3.0,
        " us",
    );
    table.note("user-defined function: last round", shown);
    Ok(())
}

struct CountedInstructions {
    cpu: Duration,
    sum: i64,
}

/// Runs a counting query to its end, page by page. The clock of processes ticks in hundredths of a second, so it runs
/// several times.
fn timed(quire: &LiveServer, query: &str, most: u64) -> Result<CountedInstructions> {
    const TIMES: u32 = 5;
    count(quire.port, query, most)?;
    let before = cpu(quire)?;
    let mut sum = 0;
    for _ in 0..TIMES {
        sum = count(quire.port, query, most)?;
    }
    Ok(CountedInstructions { cpu: (cpu(quire)? - before) / TIMES, sum })
}

fn count(port: u16, query: &str, most: u64) -> Result<i64> {
    let signer = Signer::well_known();
    let mut connection = Connection::open(port)?;
    let body = json!({ "query": query, "parameters": [{ "name": "@most", "value": most }] }).to_string();
    let (mut sum, mut continuation) = (0, String::new());
    loop {
        let headers = format!(
            "content-type: application/query+json\r\nx-ms-documentdb-isquery: true\r\n\
             x-ms-documentdb-query-enablecrosspartition: true\r\nx-ms-documentdb-partitionkeyrangeid: 0\r\n\
             x-ms-max-item-count: -1\r\n{continuation}"
        );
        let request =
            signer.request("POST", &format!("/{PRICES}/docs"), ("docs", PRICES), &headers, body.as_bytes());
        let answer = connection.exchange(&request)?;
        ensure!(answer.status == 200, "{query}: {}", String::from_utf8_lossy(&answer.body));
        let rows: Value = serde_json::from_slice(&answer.body)?;
        sum += rows["Documents"].as_array().into_iter().flatten().filter_map(Value::as_i64).sum::<i64>();
        let token = answer.head.lines().find_map(|line| line.strip_prefix("x-ms-continuation: "));
        match token {
            Some(token) => continuation = format!("x-ms-continuation: {token}\r\n"),
            None => return Ok(sum),
        }
    }
}

/// Items with a price, a hundred to a batch.
fn fill(port: u16, items: u64) -> Result<()> {
    let signer = Signer::well_known();
    let mut connection = Connection::open(port)?;
    for first in (0..items).step_by(BATCH as usize) {
        let publisher = (first / BATCH) as usize % 100;
        let request = creating_batch(&signer, PRICES, publisher, &format!("i{first}"), first);
        let status = connection.status(&request)?;
        ensure!(status == 200, "a batch of prices answered {status}");
    }
    Ok(())
}

const BATCH: u64 = 100;

/// Every item has a price of its own, from `first` on: an index over prices must not spare calls.
fn creating_batch(signer: &Signer, container: &str, publisher: usize, label: &str, first: u64) -> Vec<u8> {
    let creates = (0..BATCH).map(|number| {
        let mut item = book(publisher, &format!("{label}-{number}"));
        item["price"] = json!(first + number);
        json!({ "operationType": "Create", "resourceBody": item })
    });
    batch_request(signer, container, publisher, &Value::Array(creates.collect()))
}

/// A hundred creates in a batch, beside a hundred requests, at one connection.
fn batches(quire: &LiveServer, size: Size, table: &mut Table) -> Result<()> {
    let (mut ratios, mut shown) = (Vec::new(), String::new());
    for round in 0..size.rounds {
        let before = syncs(quire.port)?;
        let one = run_each(quire.port, 1, size.round, 201, |_| creates(format!("s{round}")))?;
        let after_one = syncs(quire.port)?;
        let many = run_each(quire.port, 1, size.round, 200, |_| hundreds(format!("m{round}")))?;
        let after_many = syncs(quire.port)?;
        ratios.push(many.rate() * BATCH as f64 / one.rate());
        shown = format!(
            "{:.0} items/s in batches with {:.2} syncs a batch, {:.0} items/s singly with {:.2} syncs an item",
            many.rate() * BATCH as f64,
            per_request(after_many - after_one, &many),
            one.rate(),
            per_request(after_one - before, &one)
        );
    }
    table.at_least(
        "batch of 100 creates: items per second, to single creates",
        median(ratios.into_iter()),
        20.0,
        "x",
    );
    table.note("batch of 100 creates: last round", shown);
    Ok(())
}

/// From the server's own figures.
fn syncs(port: u16) -> Result<u64> {
    let request =
        Signer::well_known().request("GET", "/_quire/metrics", ("_quire", "_quire/metrics"), "", b"");
    let answer = Connection::open(port)?.exchange(&request)?;
    let text = String::from_utf8(answer.body)?;
    let line = text.lines().find_map(|line| line.strip_prefix("quire_syncs "));
    Ok(line.context("the metrics name no syncs")?.trim().parse()?)
}

fn per_request(syncs: u64, load: &Load) -> f64 {
    syncs as f64 / load.requests as f64
}

fn creates(label: String) -> NextRequest {
    let signer = Signer::well_known();
    Arc::new(move |number| {
        let body = book(0, &format!("{label}-{number}")).to_string();
        signer.request(
            "POST",
            &format!("/{CONTAINER}/docs"),
            ("docs", CONTAINER),
            &key_header(0),
            body.as_bytes(),
        )
    })
}

fn hundreds(label: String) -> NextRequest {
    let signer = Signer::well_known();
    Arc::new(move |number| creating_batch(&signer, CONTAINER, 0, &format!("{label}-{number}"), 0))
}
