//! Declarations over items that are there: a link's index beside a scan, owned values beside a bulk rewrite, and the writers
//! meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::LiveServer;
use serde_json::json;

use super::{CONNECTIONS, Client, Size, book, counted, key_header, link};
use crate::client::run_each;
use crate::process::{cpu, forget_peak, peak_bytes, resident_bytes};
use crate::table::Table;

const BOOKS: &str = "dbs/built/colls/books";
const AUTHORS: u64 = 1_000;
const LOADERS: u64 = 8;

pub fn run(quire: &LiveServer, size: Size, table: &mut Table) -> Result<()> {
    let mut client = Client::open(quire.port)?;
    client.library("built")?;
    client.authors("built", AUTHORS)?;
    fill(quire.port, size)?;
    let (rewrite, rewrite_cpu) = with_cpu(quire, || fill(quire.port, size))?; // every item again
    let (scan, scan_cpu) = with_cpu(quire, || scan(quire.port, size))?;
    let mut client = Client::open(quire.port)?; // the other one was idle for too long
    forget_peak(quire)?;
    let resident = resident_bytes(quire)?;
    let (profile, profile_cpu) = with_cpu(quire, || profiled(&mut client))?;
    let grown = peak_bytes(quire)?.saturating_sub(resident) as f64 / f64::from(1 << 20);
    table.at_most("memory of a profile of all items", grown, 64.0, " MB");
    let ratio = profile.as_secs_f64() / scan.as_secs_f64();
    table.at_most("profile of all items, to a scan (time)", ratio, 3.0, "x");
    table.at_most("profile of all items, to a scan (CPU)", profile_cpu / scan_cpu, 3.0, "x");
    change(&mut client, size.items / 100)?;
    let (refresh, refresh_cpu) = with_cpu(quire, || profiled(&mut client))?;
    table.at_most("profile after changes of 1 %, to a profile (CPU)", refresh_cpu / profile_cpu, 0.25, "x");
    table.note("profiles", format!("{profile:.1?} anew, {refresh:.1?} after changes of 1 %"));
    client.put_model("built", &json!({ "version": 1, "links": [link()] }))?;
    let (index, index_cpu) = with_cpu(quire, || client.wait_for_jobs())?;
    let ratio = scan.as_secs_f64() / index.as_secs_f64();
    table.at_least("build of a link's index, to a scan (rate)", ratio, 0.3, "x");
    table.at_least(
        "build of a link's index, to a scan (items for the same CPU)",
        scan_cpu / index_cpu,
        0.3,
        "x",
    );
    let per_item = |seconds: f64| 1e6 * seconds / size.items as f64;
    let shown = format!("{:.2} us of CPU an item, scan {:.2} us", per_item(index_cpu), per_item(scan_cpu));
    table.note("index of a link", shown);
    // The names on the books differ, so that every one of them is written.
    client.put_model("built", &with_other_field())?;
    let (values, values_cpu) = with_cpu(quire, || client.wait_for_jobs())?;
    let ratio = rewrite.as_secs_f64() / values.as_secs_f64();
    table.at_least("build of owned values, to a bulk rewrite (rate)", ratio, 0.3, "x");
    let ratio = rewrite_cpu / values_cpu;
    table.at_least("build of owned values, to a bulk rewrite (items for the same CPU)", ratio, 0.3, "x");
    let alone = writers(quire, size, "alone", None)?;
    client.put_model("built", &json!({ "version": 1, "links": [link()] }))?;
    client.put_model("built", &counted())?;
    let is_built = Arc::new(AtomicBool::new(false));
    let waiter = std::thread::spawn({
        let (port, is_built) = (quire.port, Arc::clone(&is_built));
        move || -> Result<()> {
            Client::open(port)?.wait_for_jobs()?;
            is_built.store(true, Ordering::Relaxed);
            Ok(())
        }
    });
    let beside = writers(quire, size, "beside", Some(&is_built))?;
    waiter.join().expect("the thread does not panic")?;
    table.at_least("writers beside a build, to alone (rate)", beside / alone, 0.7, "x");
    let shown = format!(
        "{} items: scan {scan:.1?}, profile {profile:.1?}, index {index:.1?}, rewrite {rewrite:.1?}, values {values:.1?}, writers {alone:.0}/s and {beside:.0}/s",
        size.items
    );
    table.note("builds", shown);
    Ok(())
}

/// The same declarations with another field, which no book has yet.
fn with_other_field() -> serde_json::Value {
    let mut model = counted();
    model["copies"][0]["fields"] = json!({ "name": "t.name", "born": "t.born" });
    model
}

/// What something takes, and the server's CPU meanwhile in seconds; a tick at least.
pub fn with_cpu(quire: &LiveServer, work: impl FnOnce() -> Result<Duration>) -> Result<(Duration, f64)> {
    let before = cpu(quire)?;
    let time = work()?;
    Ok((time, (cpu(quire)? - before).as_secs_f64().max(0.01)))
}

/// Writes some of the books again.
fn change(client: &mut Client, count: u64) -> Result<()> {
    client.fill(BOOKS, count, |number| book(&format!("b{}", number * 97), number % AUTHORS))
}

fn profiled(client: &mut Client) -> Result<Duration> {
    let link = "_quire/dbs/built/profile";
    client.send("POST", link, ("_quire", link), &json!({}))?;
    client.wait_for_jobs()
}

fn fill(port: u16, size: Size) -> Result<Duration> {
    fill_books(port, BOOKS, size)
}

/// Writes all books of a container, by several clients.
pub fn fill_books(port: u16, container: &str, size: Size) -> Result<Duration> {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| -> Result<()> {
        let work = || -> Result<()> {
            let mut client = Client::open(port)?;
            loop {
                let first = next.fetch_add(super::IN_A_BATCH, Ordering::Relaxed);
                if first >= size.items {
                    return Ok(());
                }
                let numbers = first..(first + super::IN_A_BATCH).min(size.items);
                let items: Vec<_> =
                    numbers.map(|number| book(&format!("b{number}"), number % AUTHORS)).collect();
                client.bulk(container, "Upsert", &items)?;
            }
        };
        let threads: Vec<_> = (0..LOADERS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a client thread does not panic"))
    })?;
    Ok(started.elapsed())
}

fn scan(port: u16, size: Size) -> Result<Duration> {
    let (signer, mut connection) = (Signer::well_known(), Connection::open(port)?);
    let (started, mut next, mut items) = (Instant::now(), String::new(), 0);
    loop {
        let headers = format!("x-ms-max-item-count: 1000\r\n{next}");
        let answer = connection.exchange(&signer.request(
            "GET",
            &format!("/{BOOKS}/docs"),
            ("docs", BOOKS),
            &headers,
            b"",
        ))?;
        ensure!(answer.status == 200, "a page answered {}", answer.status);
        items +=
            answer.header("x-ms-item-count").and_then(|count| count.parse::<u64>().ok()).unwrap_or_default();
        match answer.header("x-ms-continuation") {
            Some(value) => next = format!("x-ms-continuation: {value}\r\n"),
            None => break,
        }
    }
    ensure!(items == size.items, "{items} items were listed");
    Ok(started.elapsed())
}

/// The rate of writers of other items of the container, for a while or until something is done.
fn writers(quire: &LiveServer, size: Size, label: &str, until: Option<&AtomicBool>) -> Result<f64> {
    writers_to(quire, BOOKS, size, (label, until))
}

pub fn writers_to(
    quire: &LiveServer,
    container: &'static str,
    size: Size,
    (label, until): (&str, Option<&AtomicBool>),
) -> Result<f64> {
    let (mut requests, mut elapsed) = (0, Duration::ZERO);
    loop {
        let label = format!("{label}-{requests}");
        let load = run_each(quire.port, CONNECTIONS, size.round, 201, |_| {
            let label = label.clone();
            Arc::new(move |number| {
                let id = format!("{label}-{number}");
                let body = book(&id, number % AUTHORS).to_string();
                let path = format!("/{container}/docs");
                Signer::well_known().request(
                    "POST",
                    &path,
                    ("docs", container),
                    &key_header(&id),
                    body.as_bytes(),
                )
            })
        })?;
        (requests, elapsed) = (requests + load.requests, elapsed + load.elapsed);
        if until.is_none_or(|done| done.load(Ordering::Relaxed)) {
            return Ok(requests as f64 / elapsed.as_secs_f64());
        }
    }
}
