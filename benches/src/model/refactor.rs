//! Refactorings beside a bulk rewrite of the same items, the writers meanwhile, and a what-if of recorded requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quire_testkit::http::{Address, Signer};
use quire_testkit::live::LiveServer;
use serde_json::{Value, json};

use super::builds::{fill_books, with_cpu, writers_to};
use super::{Client, Size};
use crate::client::{LoadEnd, NextRequest, run_until};
use crate::table::Table;

const BOOKS: &str = "dbs/reshaped/colls/books";
const REFACTORINGS: &str = "_quire/dbs/reshaped/refactorings";
/// Of a what-if, as the contract has it.
const OPERATIONS: u64 = 5_000;
const WHAT_IF_SECONDS: f64 = 60.0;
const STATE_WAIT: Duration = Duration::from_millis(5);

pub fn run(quire: &LiveServer, size: Size, table: &mut Table) -> Result<()> {
    let mut client = Client::open(quire.port)?;
    client.library("reshaped")?;
    fill_books(quire.port, BOOKS, size)?;
    let (rewrite, rewrite_cpu) = with_cpu(quire, || fill_books(quire.port, BOOKS, size))?;
    let orders = [
        ("rename", json!({ "kind": "rename", "container": "books", "from": "/title", "to": "/name" })),
        ("retype", json!({ "kind": "retype", "container": "books", "path": "/year", "as": "string" })),
        (
            "extract",
            json!({ "kind": "extract", "container": "books", "path": "/author", "key": "/id", "into": "writers" }),
        ),
    ];
    // Last of all a model names the container.
    let alone = writers_to(quire, BOOKS, size, ("alone", None))?;
    let is_done = Arc::new(AtomicBool::new(false));
    let waiter = std::thread::spawn({
        let (port, is_done) = (quire.port, Arc::clone(&is_done));
        let order = json!({ "kind": "rename", "container": "books", "from": "/about", "to": "/text" });
        move || -> Result<()> {
            let done = refactored(&mut Client::open(port)?, 1, &order);
            is_done.store(true, Ordering::Relaxed);
            done.map(drop)
        }
    });
    let beside = writers_to(quire, BOOKS, size, ("beside", Some(&is_done)))?;
    waiter.join().expect("the thread does not panic")?;
    table.at_least("writers beside a rename, to alone (rate)", beside / alone, 0.7, "x");
    what_if(quire, &mut client, size, table)?;
    for (number, (kind, order)) in orders.iter().enumerate() {
        let (time, cpu) = with_cpu(quire, || refactored(&mut client, number + 2, order))?;
        let ratio = rewrite.as_secs_f64() / time.as_secs_f64();
        table.at_least(&format!("{kind}, to a bulk rewrite (rate)"), ratio, 0.3, "x");
        table.at_least(
            &format!("{kind}, to a bulk rewrite (items for the same CPU)"),
            rewrite_cpu / cpu,
            0.3,
            "x",
        );
    }
    Ok(())
}

/// Until it is finished: both steps together.
fn refactored(client: &mut Client, number: usize, order: &Value) -> Result<Duration> {
    let started = std::time::Instant::now();
    client.send("POST", REFACTORINGS, ("_quire", REFACTORINGS), order)?;
    let own = format!("{REFACTORINGS}/r-{number}");
    wait_for(client, &own, "expanded")?;
    let finish = format!("{own}/finish");
    client.send("POST", &finish, ("_quire", &finish), &Value::Null)?;
    wait_for(client, &own, "finished")?;
    Ok(started.elapsed())
}

fn wait_for(client: &mut Client, own: &str, wanted: &str) -> Result<()> {
    loop {
        let answer = client.send("GET", own, ("_quire", own), &Value::Null)?;
        let found: Value = serde_json::from_slice(&answer.body)?;
        ensure!(found["state"] != "blocked", "it is blocked: {found}");
        if found["state"] == wanted {
            return Ok(());
        }
        std::thread::sleep(STATE_WAIT);
    }
}

/// Of the last recorded requests, which are reads and replaces.
fn what_if(quire: &LiveServer, client: &mut Client, size: Size, table: &mut Table) -> Result<()> {
    let items = size.items;
    let next: NextRequest = Arc::new(move |number| {
        let id = format!("b{}", number * 7 % items);
        let link = format!("{BOOKS}/docs/{id}");
        let (verb, headers, body) = match number % 3 {
            0 => ("GET", super::key_header(&id), String::new()),
            _ => {
                let patch = json!({ "operations": [{ "op": "set", "path": "/pages", "value": number }] });
                let content = "content-type: application/json_patch+json\r\n";
                ("PATCH", format!("{}{content}", super::key_header(&id)), patch.to_string())
            }
        };
        Signer::well_known().request(verb, &format!("/{link}"), ("docs", &link), &headers, body.as_bytes())
    });
    // Some of them are the bench's own looks.
    let (address, until) = (Address::local(quire.port), LoadEnd::Requests(OPERATIONS + OPERATIONS / 10));
    run_until(&address, 1, until, 200..=200, |_| Arc::clone(&next))?;
    let refactoring = json!({ "kind": "rename", "container": "books", "from": "/pages", "to": "/pageCount" });
    let order = json!({ "refactoring": refactoring, "operations": OPERATIONS, "seconds": 3_600 });
    let link = "_quire/dbs/reshaped/what-if";
    let (time, cpu) = with_cpu(quire, || {
        client.send("POST", link, ("_quire", link), &order)?;
        client.wait_for_jobs()
    })?;
    let jobs = client.jobs()?;
    let job = jobs.iter().find(|job| job["kind"] == "what-if").context("a job")?;
    let replayed = job["result"]["replayed"].as_u64().unwrap_or_default();
    let what = format!("what-if of {replayed} operations");
    table.at_most(&what, time.as_secs_f64(), WHAT_IF_SECONDS, " s");
    table.note("CPU of it", format!("{cpu:.1} s"));
    Ok(())
}
