//! The feed benchmark: reading the change feed beside a scan, what readers and the sweep cost writers, empty polls.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::LiveServer;
use serde_json::json;

use crate::client::run as load;
use crate::process::cpu;
use crate::table::Table;

const ITEMS: &str = "dbs/bench/colls/items";
const WRITTEN: &str = "dbs/bench/colls/written";
const EXPIRING: &str = "dbs/bench/colls/expiring";
const KEYS: u64 = 1000;
const WRITERS: usize = 16;
const IN_A_BATCH: u64 = 100;
/// What a load leaves to the storage to do.
const SETTLED_AFTER: Duration = Duration::from_secs(20);
const FEED: &str = "a-im: Incremental feed\r\nx-ms-max-item-count: 1000\r\n";

/// How much is done: all of it, or a little to see that it runs.
#[derive(Clone, Copy)]
pub struct Size {
    rounds: usize,
    round: Duration,
    items: u64,
    expired: u64,
}

pub const FULL: Size = Size { rounds: 5, round: Duration::from_secs(3), items: 100_000, expired: 1_000_000 };
pub const SMALL: Size = Size { rounds: 1, round: Duration::from_millis(500), items: 2_000, expired: 2_000 };

pub fn run(binary: &Path, size: Size) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let quire = LiveServer::quire(binary, &folder.path().join("data"), &["--partitions", "1"])?;
    set_up(quire.port)?;
    fill(quire.port, ITEMS, size.items)?;
    let mut table = Table::default();
    whole(&quire, size, &mut table)?;
    polls(&quire, size, &mut table)?;
    with_a_reader(&quire, size, &mut table)?;
    with_the_sweep(&quire, size, &mut table)?;
    table.print();
    Ok(())
}

fn set_up(port: u16) -> Result<()> {
    let signer = Signer::well_known();
    let mut connection = Connection::open(port)?;
    let request = signer.request("POST", "/dbs", ("dbs", ""), "", br#"{"id":"bench"}"#);
    ensure!(connection.status(&request)? == 201, "the database is not created");
    for (id, more) in [("items", ""), ("written", ""), ("expiring", r#","defaultTtl":100000"#)] {
        let body = definition(id, more);
        let request = signer.request("POST", "/dbs/bench/colls", ("colls", "dbs/bench"), "", body.as_bytes());
        ensure!(connection.status(&request)? == 201, "container {id} is not created");
    }
    Ok(())
}

fn definition(id: &str, more: &str) -> String {
    format!(r#"{{"id":"{id}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{more}}}"#)
}

/// All its items have expired from now on.
fn expire(port: u16) -> Result<()> {
    let body = definition("expiring", r#","defaultTtl":1"#);
    let request = Signer::well_known().request(
        "PUT",
        &format!("/{EXPIRING}"),
        ("colls", EXPIRING),
        "",
        body.as_bytes(),
    );
    ensure!(Connection::open(port)?.status(&request)? == 200, "the container is not replaced");
    Ok(())
}

fn item(number: u64) -> serde_json::Value {
    json!({
        "id": number.to_string(), "pk": format!("k{}", number / IN_A_BATCH % KEYS), "number": number,
        "name": format!("item {number}"), "text": "letters window harbour copper ".repeat(8),
    })
}

fn key_header(number: u64) -> String {
    format!("x-ms-documentdb-partitionkey: [\"k{}\"]\r\n", number / IN_A_BATCH % KEYS)
}

fn create(signer: &Signer, container: &str, number: u64) -> Vec<u8> {
    let body = item(number).to_string();
    let path = format!("/{container}/docs");
    signer.request("POST", &path, ("docs", container), &key_header(number), body.as_bytes())
}

/// In batches, over several connections.
fn fill(port: u16, container: &'static str, count: u64) -> Result<()> {
    const THREADS: u64 = 8;
    let started = Instant::now();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            std::thread::spawn(move || -> Result<()> {
                let signer = Signer::well_known();
                let mut connection = Connection::open(port)?;
                for first in
                    (0..count).step_by(IN_A_BATCH as usize).skip(thread as usize).step_by(THREADS as usize)
                {
                    let numbers = first..(first + IN_A_BATCH).min(count);
                    let creates = numbers
                        .map(|number| json!({"operationType": "Create", "resourceBody": item(number)}));
                    let body = serde_json::Value::from_iter(creates).to_string();
                    let headers = format!(
                        "{}x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: True\r\n",
                        key_header(first)
                    );
                    let path = format!("/{container}/docs");
                    let request =
                        signer.request("POST", &path, ("docs", container), &headers, body.as_bytes());
                    let status = connection.status(&request)?;
                    ensure!(status == 200, "a batch answered {status}");
                }
                Ok(())
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a client thread does not panic")?;
    }
    eprintln!("loaded {count} items in {:.1?}", started.elapsed());
    Ok(())
}

/// Reads all pages; how many items came, in which time, and the CPU time that the server took for each.
fn read_all(quire: &LiveServer, headers: &str, position: &str, header_of: &str) -> Result<(u64, f64)> {
    let signer = Signer::well_known();
    let mut connection = Connection::open(quire.port)?;
    let (mut next, mut items) = (String::new(), 0);
    let before = cpu(quire)?;
    loop {
        let headers = format!("{headers}{next}");
        let request = signer.request("GET", &format!("/{ITEMS}/docs"), ("docs", ITEMS), &headers, b"");
        let answer = connection.exchange(&request)?;
        if answer.status == 304 {
            break;
        }
        ensure!(answer.status == 200, "a page answered {}", answer.status);
        items += answer
            .header("x-ms-item-count")
            .and_then(|count| count.parse::<u64>().ok())
            .context("a count")?;
        match answer.header(position) {
            Some(value) => next = format!("{header_of}: {value}\r\n"),
            None => break,
        }
    }
    let used = cpu(quire)? - before;
    Ok((items, used.as_secs_f64() * 1e6 / items as f64))
}

fn whole(quire: &LiveServer, size: Size, table: &mut Table) -> Result<()> {
    let (mut ratios, mut shown) = (Vec::new(), String::new());
    for _ in 0..size.rounds {
        let list = "x-ms-max-item-count: 1000\r\n";
        let (listed, scan) = read_all(quire, list, "x-ms-continuation", "x-ms-continuation")?;
        let (fed, feed) = read_all(quire, FEED, "etag", "if-none-match")?;
        ensure!(listed == size.items && fed == size.items, "{listed} items listed, {fed} in the feed");
        shown = format!("{feed:.1} us of CPU for an item, a scan {scan:.1}");
        ratios.push(scan / feed);
    }
    table.at_least("feed from the beginning, beside a scan (CPU per item)", median(ratios), 0.7, "x");
    table.note("the last of these", shown);
    Ok(())
}

fn polls(quire: &LiveServer, size: Size, table: &mut Table) -> Result<()> {
    let this = std::env::current_exe()?;
    let floor = LiveServer::start(&this, &["floor", "signed"])?;
    let signer = Signer::well_known();
    let headers = format!("{FEED}if-none-match: \"{}\"\r\n", u64::MAX);
    let poll = signer.request("GET", &format!("/{ITEMS}/docs"), ("docs", ITEMS), &headers, b"");
    // The floor knows one request, of the same length nearly.
    let link = format!("{ITEMS}/docs/0");
    let read = signer.request("GET", &format!("/{link}"), ("docs", &link), &headers, b"");
    let (mut ratios, mut shown) = (Vec::new(), String::new());
    for _ in 0..size.rounds {
        let per_request = |server: &LiveServer, status, request: &[u8]| -> Result<f64> {
            let (before, request) = (cpu(server)?, request.to_vec());
            let done = load(server.port, 1, size.round, status, Box::new(move |_| request.clone()))?;
            Ok((cpu(server)? - before).as_secs_f64() * 1e6 / done.requests as f64)
        };
        let (bare, polled) = (per_request(&floor, 200, &read)?, per_request(quire, 304, &poll)?);
        shown = format!("{polled:.1} us of CPU, a bare server {bare:.1}");
        ratios.push(polled / bare);
    }
    table.at_most("an empty poll, beside a bare HTTP server (CPU)", median(ratios), 2.0, "x");
    table.note("the last of these", shown);
    Ok(())
}

/// New items per second by all writers.
fn write_rate(quire: &LiveServer, size: Size, label: u64) -> Result<f64> {
    let signer = Signer::well_known();
    let first = label * 10_000_000;
    let next = Box::new(move |number| create(&signer, WRITTEN, first + number));
    Ok(load(quire.port, WRITERS, size.round, 201, next)?.rate())
}

/// The rate of writers with something else going on, as a share of their rate alone: the median of rounds in turn.
fn share(quire: &LiveServer, size: Size, label: u64, mut beside: impl FnMut(bool)) -> Result<f64> {
    let mut shares = Vec::new();
    for round in 0..size.rounds as u64 {
        let alone = write_rate(quire, size, label + 2 * round)?;
        beside(true);
        let together = write_rate(quire, size, label + 2 * round + 1)?;
        beside(false);
        shares.push(together / alone);
    }
    Ok(median(shares))
}

/// A reader that follows the feed, a poll as soon as the last one is answered with a pause of a millisecond.
fn with_a_reader(quire: &LiveServer, size: Size, table: &mut Table) -> Result<()> {
    let (reads, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let reader = {
        let (port, reads, stop) = (quire.port, Arc::clone(&reads), Arc::clone(&stop));
        std::thread::spawn(move || -> Result<u64> {
            let signer = Signer::well_known();
            let mut connection = Connection::open(port)?;
            let (mut position, mut received) = ("*".to_owned(), 0);
            while !stop.load(Ordering::Relaxed) {
                if !reads.load(Ordering::Relaxed) {
                    position = "*".to_owned();
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                let headers = format!("{FEED}if-none-match: {position}\r\nx-quire-wait-ms: 100\r\n");
                let request =
                    signer.request("GET", &format!("/{WRITTEN}/docs"), ("docs", WRITTEN), &headers, b"");
                let answer = connection.exchange(&request)?;
                position = answer.header("etag").context("an etag")?.to_owned();
                received +=
                    answer.header("x-ms-item-count").and_then(|count| count.parse().ok()).unwrap_or(0);
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(received)
        })
    };
    let share = share(quire, size, 1, |on| reads.store(on, Ordering::Relaxed))?;
    stop.store(true, Ordering::Relaxed);
    let received = reader.join().expect("the reader does not panic")?;
    table.at_least("writers with one live feed reader, beside alone", share, 0.95, "x");
    table.note("changes returned to the reader", received.to_string());
    Ok(())
}

fn with_the_sweep(quire: &LiveServer, size: Size, table: &mut Table) -> Result<()> {
    fill(quire.port, EXPIRING, size.expired)?;
    std::thread::sleep(SETTLED_AFTER);
    let rates = |label: u64| -> Result<Vec<f64>> {
        (0..size.rounds as u64).map(|round| write_rate(quire, size, label + round)).collect()
    };
    let alone = rates(100)?;
    let removed_before = removed(quire)?;
    expire(quire.port)?;
    let together = rates(200)?;
    let removed = removed(quire)? - removed_before;
    let share = median(together) / median(alone);
    table.at_least("writers with the sweep of expired items running, beside alone", share, 0.95, "x");
    table.note("items that it removed meanwhile", removed.to_string());
    Ok(())
}

fn removed(quire: &LiveServer) -> Result<u64> {
    let signer = Signer::well_known();
    let mut connection = Connection::open(quire.port)?;
    let signed = ("_quire", "_quire/metrics");
    let answer = connection.exchange(&signer.request("GET", "/_quire/metrics", signed, "", b""))?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let line = text.lines().find(|line| line.contains("expired_items_removed") && !line.starts_with('#'));
    let figure = line.and_then(|line| line.rsplit(' ').next()).context("a figure of the sweep")?;
    Ok(figure.parse::<f64>()? as u64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
