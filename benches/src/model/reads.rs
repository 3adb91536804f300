//! Following links: on a point read, and over the items of a page.

use anyhow::{Result, ensure};
use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::LiveServer;
use serde_json::{Value, json};

use super::{Client, Size, author, key_header, median};
use crate::client::run as load;
use crate::process::cpu;
use crate::table::Table;

const BOOKS: &str = "dbs/followed/colls/books";
/// On one page.
const PAGE: u64 = 100;
/// Reads per figure: the kernel reports CPU time in steps of 10 ms.
const PAGES: usize = 500;

pub fn run(quire: &LiveServer, size: Size, table: &mut Table) -> Result<()> {
    set_up(quire)?;
    let (mut reads, mut few, mut many) = (Vec::new(), Vec::new(), Vec::new());
    let mut shown = String::new();
    for _ in 0..size.rounds {
        let (plain, followed) =
            (read(quire, size, "")?, read(quire, size, "x-quire-follow: book-author\r\n")?);
        reads.push(followed / plain);
        let page = |query: &str| pages(quire, query);
        let alone = page("SELECT c.id, c.title, c.author, c.others FROM c")?;
        let of_30 = page("SELECT c.id, c.title, c.author, c.others, FOLLOW(c, 'book-author') AS now FROM c")?;
        let of_300 =
            page("SELECT c.id, c.title, c.author, c.others, FOLLOW(c, 'book-others') AS now FROM c")?;
        few.push(of_30 / alone);
        many.push(of_300 / alone);
        shown = format!(
            "read {plain:.1} us, followed {followed:.1} us; page {alone:.0} us, of 30 {of_30:.0} us, of 300 {of_300:.0} us"
        );
    }
    table.at_most("point read with one followed link, to a point read (CPU)", median(reads), 2.0, "x");
    table.at_most("page of 100 with FOLLOW of 30 targets, to the page (CPU)", median(few), 2.0, "x");
    table.at_most("page of 100 with FOLLOW of 300 targets, to the page (CPU)", median(many), 5.0, "x");
    table.note("reads: last round", shown);
    Ok(())
}

fn set_up(quire: &LiveServer) -> Result<()> {
    let mut client = Client::open(quire.port)?;
    client.library("followed")?;
    client.fill("dbs/followed/colls/authors", 300, author)?;
    client.fill(BOOKS, PAGE, |number| {
        let others: Vec<Value> =
            (0..3).map(|other| json!({ "id": format!("a{}", number * 3 + other) })).collect();
        let mut book = super::book(&format!("b{number}"), number % 30);
        book["others"] = Value::Array(others);
        book
    })?;
    let others = json!({ "name": "book-others", "from": { "container": "books", "path": "/others/*/id" },
        "to": { "container": "authors" } });
    client.put_model("followed", &json!({ "version": 1, "links": [super::link(), others] }))?;
    client.wait_for_jobs()?;
    Ok(())
}

/// CPU for a point read, in microseconds.
fn read(quire: &LiveServer, size: Size, headers: &str) -> Result<f64> {
    let (before, headers) = (cpu(quire)?, headers.to_owned());
    let done = load(
        quire.port,
        4,
        size.round,
        200,
        Box::new(move |number| {
            let id = format!("b{}", number % PAGE);
            let link = format!("{BOOKS}/docs/{id}");
            let headers = format!("{}{headers}", key_header(&id));
            Signer::well_known().request("GET", &format!("/{link}"), ("docs", &link), &headers, b"")
        }),
    )?;
    Ok((cpu(quire)? - before).as_secs_f64() * 1e6 / done.requests as f64)
}

/// CPU for a page, in microseconds.
fn pages(quire: &LiveServer, query: &str) -> Result<f64> {
    let headers = "x-ms-documentdb-isquery: True\r\nx-ms-documentdb-query-enablecrosspartition: True\r\n\
                   content-type: application/query+json\r\nx-ms-max-item-count: 100\r\n";
    let body = json!({ "query": query }).to_string();
    let request = Signer::well_known().request(
        "POST",
        &format!("/{BOOKS}/docs"),
        ("docs", BOOKS),
        headers,
        body.as_bytes(),
    );
    let mut connection = Connection::open(quire.port)?;
    let before = cpu(quire)?;
    for _ in 0..PAGES {
        let answer = connection.exchange(&request)?;
        let rows = answer.header("x-ms-item-count").unwrap_or_default().to_owned();
        let text = String::from_utf8_lossy(&answer.body);
        ensure!(answer.status == 200 && rows == PAGE.to_string(), "{} {rows} {text}", answer.status);
    }
    Ok((cpu(quire)? - before).as_secs_f64() * 1e6 / PAGES as f64)
}
