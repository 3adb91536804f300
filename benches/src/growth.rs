//! Whether the cost of an indexed query grows with its result or with the container.
//!
//! The same queries with the same number of results over 10,000 and over 1,000,000 items; server CPU per query.

use std::path::Path;

use anyhow::{Result, ensure};
use quire_testkit::http::{Address, Connection, Signer};
use quire_testkit::live::LiveServer;

use crate::people::{CONTAINER, JSON, create_all, create_container, draw, key_header};
use crate::process::{cpu, finish_background_work};
use crate::table::Table;

const SMALL: u64 = 10_000;
const LARGE: u64 = 1_000_000;
/// Items with the same value of `ten`.
const HITS: u64 = 10;
const QUERIES: u64 = 4_000;
const BOUND: f64 = 1.5;

struct Query {
    name: &'static str,
    text: &'static str,
}

/// `@p` is the value of `ten`, or of `number` for the ranges: the same number of rows whatever the size.
const INDEXED: &[Query] = &[
    Query { name: "equality, 10 items", text: "SELECT * FROM c WHERE c.ten = @p" },
    Query {
        name: "range + ORDER BY + TOP 20",
        text: "SELECT TOP 20 * FROM c WHERE c.number >= @p ORDER BY c.number",
    },
    Query { name: "array element, 10 items", text: "SELECT c.id FROM c WHERE ARRAY_CONTAINS(c.tags, @p)" },
    Query { name: "two conditions, 10 items", text: "SELECT c.id FROM c WHERE c.ten = @p AND c.half = true" },
    Query { name: "MAX from the index", text: "SELECT VALUE MAX(c.number) FROM c" },
];

pub fn run(binary: &Path) -> Result<()> {
    let mut table = Table::default();
    let (small, large) = (measured(binary, SMALL)?, measured(binary, LARGE)?);
    for ((query, small), large) in INDEXED.iter().zip(small).zip(large) {
        let what = format!("{}: CPU at {LARGE} items, to {SMALL}", query.name);
        table.at_most(&what, large / small, BOUND, "x");
        table.note(&format!("{}: CPU per query", query.name), format!("{small:.0} us, {large:.0} us"));
    }
    table.print();
    Ok(())
}

/// Microseconds of server CPU for each query.
fn measured(binary: &Path, items: u64) -> Result<Vec<f64>> {
    let folder = tempfile::tempdir()?;
    let server = LiveServer::quire(binary, &folder.path().join("data"), &[])?;
    let address = Address::local(server.port);
    create_container(&address, "")?;
    create_all(&address, 0..items, create)?;
    finish_background_work(server.child.id())?;
    INDEXED.iter().map(|query| per_query(&server, query, items)).collect()
}

fn per_query(server: &LiveServer, query: &Query, items: u64) -> Result<f64> {
    let signer = Signer::well_known();
    let mut connection = Connection::open(server.port)?;
    let mut ask = |number: u64| -> Result<()> {
        let drawn = draw(number, 5, items / HITS);
        let parameter = match query.text {
            text if text.contains("c.number >=") => (drawn * HITS).saturating_sub(100).to_string(),
            _ => drawn.to_string(),
        };
        let body =
            format!(r#"{{"query":"{}","parameters":[{{"name":"@p","value":{parameter}}}]}}"#, query.text);
        const HEADERS: &str = "content-type: application/query+json\r\nx-ms-documentdb-isquery: true\r\n\
            x-ms-documentdb-partitionkeyrangeid: 0\r\n";
        let path = format!("/{CONTAINER}/docs");
        let request = signer.request("POST", &path, ("docs", CONTAINER), HEADERS, body.as_bytes());
        let status = connection.status(&request)?;
        ensure!(status == 200, "{}: {status}", query.name);
        Ok(())
    };
    (0..QUERIES / 4).try_for_each(&mut ask)?;
    let before = cpu(server)?;
    (QUERIES..2 * QUERIES).try_for_each(&mut ask)?;
    Ok((cpu(server)? - before).as_secs_f64() * 1e6 / QUERIES as f64)
}

fn item(number: u64) -> String {
    let ten = number / HITS;
    let filling = "abcdefghij".repeat(60);
    format!(
        r#"{{"id":"{number}","tenant":"tenant-{}","number":{number},"ten":{ten},"half":{},"tags":[{ten},"t{}"],"address":{{"street":"street {}","city":"city {}"}},"text":"{filling}"}}"#,
        number % 1000,
        number.is_multiple_of(2),
        number % 5000,
        number % 20_000,
        number % 100,
    )
}

fn create(signer: &Signer, number: u64) -> Vec<u8> {
    let headers = format!("{JSON}{}", key_header(&format!("tenant-{}", number % 1000)));
    let path = format!("/{CONTAINER}/docs");
    signer.request("POST", &path, ("docs", CONTAINER), &headers, item(number).as_bytes())
}
