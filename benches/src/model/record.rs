//! What recording requests costs: one server records, another does not, and they take turns.

use std::path::Path;

use anyhow::Result;
use quire_testkit::http::Signer;
use quire_testkit::live::LiveServer;
use serde_json::json;

use super::{Client, Size, book, key_header, median};
use crate::client::run as load;
use crate::process::cpu;
use crate::table::Table;

const BOOKS: &str = "dbs/recorded/colls/books";
const ITEMS: u64 = 1_000;
const CONNECTIONS: usize = 4;
/// More than elsewhere: a difference of two percent has to show.
const ROUNDS: usize = 3;

pub fn run(binary: &Path, size: Size, table: &mut Table) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let start = |name: &str| -> Result<LiveServer> {
        let quire = LiveServer::quire(binary, &folder.path().join(name), &["--record", name])?;
        let mut client = Client::open(quire.port)?;
        client.library("recorded")?;
        client.fill(BOOKS, ITEMS, |number| book(&format!("b{number}"), number))?;
        Ok(quire)
    };
    let servers = [start("on")?, start("off")?];
    let (mut reads, mut creates, mut queries) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..size.rounds * ROUNDS {
        reads.push(ratio(&servers, |quire| read(quire, size))?);
        creates.push(ratio(&servers, |quire| create(quire, size, round))?);
        queries.push(ratio(&servers, |quire| query(quire, size))?);
    }
    for (what, ratios) in [("point reads", reads), ("creates", creates), ("queries", queries)] {
        let what = format!("{what} that are recorded, to those that are not (CPU)");
        table.at_most(&what, median(ratios), 1.02, "x");
    }
    Ok(())
}

fn ratio(servers: &[LiveServer; 2], measure: impl Fn(&LiveServer) -> Result<f64>) -> Result<f64> {
    Ok(measure(&servers[0])? / measure(&servers[1])?)
}

/// CPU of a request in microseconds.
fn measured(
    quire: &LiveServer,
    size: Size,
    status: u16,
    next: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static,
) -> Result<f64> {
    let before = cpu(quire)?;
    let done = load(quire.port, CONNECTIONS, size.round, status, Box::new(next))?;
    Ok((cpu(quire)? - before).as_secs_f64() * 1e6 / done.requests as f64)
}

fn read(quire: &LiveServer, size: Size) -> Result<f64> {
    measured(quire, size, 200, |number| {
        let id = format!("b{}", number % ITEMS);
        let link = format!("{BOOKS}/docs/{id}");
        Signer::well_known().request("GET", &format!("/{link}"), ("docs", &link), &key_header(&id), b"")
    })
}

fn create(quire: &LiveServer, size: Size, round: usize) -> Result<f64> {
    measured(quire, size, 201, move |number| {
        let id = format!("c{round}-{number}");
        let body = book(&id, number).to_string();
        let path = format!("/{BOOKS}/docs");
        Signer::well_known().request("POST", &path, ("docs", BOOKS), &key_header(&id), body.as_bytes())
    })
}

fn query(quire: &LiveServer, size: Size) -> Result<f64> {
    measured(quire, size, 200, |number| {
        let headers = "x-ms-documentdb-isquery: True\r\nx-ms-documentdb-query-enablecrosspartition: True\r\n\
                       content-type: application/query+json\r\n";
        let name = format!("Author {}", number % ITEMS);
        let query = json!({ "query": "SELECT * FROM c WHERE c.author.name = @name",
            "parameters": [{ "name": "@name", "value": name }] });
        let path = format!("/{BOOKS}/docs");
        let body = query.to_string();
        Signer::well_known().request("POST", &path, ("docs", BOOKS), headers, body.as_bytes())
    })
}
