//! An author with many books gets another name: the answer, the copies, and what others notice of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::LiveServer;
use serde_json::Value;

use super::{Client, Size, author, book, counted, key_header, median};
use crate::process::cpu;
use crate::table::Table;

const AUTHORS: &str = "dbs/renamed/colls/authors";
const BOOKS: &str = "dbs/renamed/colls/books";
/// Written by others meanwhile.
const OTHER: &str = "dbs/plain/colls/authors";
const WRITERS: usize = 4;

pub fn run(quire: &LiveServer, size: Size, table: &mut Table) -> Result<()> {
    let mut client = Client::open(quire.port)?;
    client.library("renamed")?;
    client.fill(AUTHORS, 2, author)?;
    client.fill(BOOKS, size.books, |number| book(&format!("b{number}"), 0))?;
    client.put_model("renamed", &counted())?;
    client.wait_for_jobs()?;
    let (mut ratios, mut used) = (Vec::new(), Vec::new());
    for round in 0..size.rounds {
        let plain = median(
            (0..20)
                .map(|number| rename(quire, 1, &format!("Other {round} {number}")))
                .collect::<Result<_>>()?,
        );
        let before = cpu(quire)?;
        let renamed = rename(quire, 0, &format!("Renamed {round}"))?;
        client.wait_for_jobs()?;
        used.push((cpu(quire)? - before).as_secs_f64());
        check(quire, &format!("Renamed {round}"))?;
        ratios.push(renamed / plain);
    }
    table.at_most("renaming an author of many books, to one of none (time)", median(ratios), 2.0, "x");
    table.at_most("server time until all copies are right", median(used), 3.0, " s");
    let alone = writers(quire, size, || Ok(()))?;
    let beside = writers(quire, size, || {
        rename(quire, 0, "Renamed beside writers")?;
        Client::open(quire.port)?.wait_for_jobs().map(drop)
    })?;
    let more = (beside.as_secs_f64() - alone.as_secs_f64()) * 1e3;
    table.at_most("p99.9 of other writers meanwhile, above alone", more, 50.0, " ms");
    table.note("p99.9 of other writers", format!("alone {alone:.1?}, meanwhile {beside:.1?}"));
    Ok(())
}

/// How long the answer takes, in microseconds.
fn rename(quire: &LiveServer, number: u64, name: &str) -> Result<f64> {
    let mut item = author(number);
    item["name"] = Value::from(name);
    let id = format!("a{number}");
    let link = format!("{AUTHORS}/docs/{id}");
    let body = item.to_string();
    let request = Signer::well_known().request(
        "PUT",
        &format!("/{link}"),
        ("docs", &link),
        &key_header(&id),
        body.as_bytes(),
    );
    let mut connection = Connection::open(quire.port)?;
    let started = Instant::now();
    let answer = connection.exchange(&request)?;
    ensure!(answer.status == 200, "{} {}", answer.status, String::from_utf8_lossy(&answer.body));
    Ok(started.elapsed().as_secs_f64() * 1e6)
}

/// The last book has the author's name.
fn check(quire: &LiveServer, name: &str) -> Result<()> {
    let link = format!("{BOOKS}/docs/b1");
    let request =
        Signer::well_known().request("GET", &format!("/{link}"), ("docs", &link), &key_header("b1"), b"");
    let answer = Connection::open(quire.port)?.exchange(&request)?;
    let book: Value = serde_json::from_slice(&answer.body)?;
    ensure!(book["author"]["name"] == name, "the copy is {}", book["author"]["name"]);
    Ok(())
}

/// The p99.9 of writers of another database while something is done, and for at least two rounds.
fn writers(quire: &LiveServer, size: Size, meanwhile: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let stop = AtomicBool::new(false);
    let times = std::thread::scope(|scope| -> Result<Vec<Duration>> {
        let threads: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let stop = &stop;
                    move || write(quire.port, writer, stop)
                })
            })
            .collect();
        let started = Instant::now();
        let done = meanwhile();
        std::thread::sleep((2 * size.round).saturating_sub(started.elapsed()));
        stop.store(true, Ordering::Relaxed);
        let mut times = Vec::new();
        for thread in threads {
            times.extend(thread.join().expect("a client thread does not panic")?);
        }
        done?;
        Ok(times)
    });
    let mut times = times?;
    times.sort_unstable();
    times.get(times.len() * 999 / 1000).copied().context("no request was answered")
}

fn write(port: u16, writer: usize, stop: &AtomicBool) -> Result<Vec<Duration>> {
    let (signer, mut connection, mut times) = (Signer::well_known(), Connection::open(port)?, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let id = format!("a{writer}");
        let link = format!("{OTHER}/docs/{id}");
        let body = author(writer as u64).to_string();
        let request =
            signer.request("PUT", &format!("/{link}"), ("docs", &link), &key_header(&id), body.as_bytes());
        let sent = Instant::now();
        ensure!(connection.status(&request)? == 200, "a write was refused");
        times.push(sent.elapsed());
    }
    Ok(times)
}
