//! The base benchmark: point reads, durable writes, start, memory, size.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::LiveServer;

use crate::client::{Load, Next, run as load};
use crate::disk;
use crate::postgres::Postgres;
use crate::process::{cpu, resident_bytes};
use crate::table::Table;

const CONTAINER: &str = "dbs/bench/colls/items";
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(3);
const REOPENED_ITEMS: u64 = 100_000;

pub fn run(binary: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut table = Table::default();
    let server = start(binary, folder.path())?;
    table.at_most("ready on an empty directory", server.ready_after.as_secs_f64() * 1000.0, 100.0, " ms");
    idle(&server, &mut table)?;
    set_up(&server)?;
    reads(&server, &mut table)?;
    writes(&server, folder.path(), &mut table)?;
    fill(&server)?;
    server.kill()?;
    let reopened = start(binary, folder.path())?;
    table.at_most("reopened with 100,000 items after kill -9", reopened.ready_after.as_secs_f64(), 2.0, " s");
    table.note("resident after reopening", format!("{:.1} MB", resident_bytes(&reopened)? as f64 / 1e6));
    table.at_most("size of the binary", std::fs::metadata(binary)?.len() as f64 / 1e6, 40.0, " MB");
    table.print();
    Ok(())
}

fn start(binary: &Path, folder: &Path) -> Result<LiveServer> {
    let data = folder.join("data");
    LiveServer::start(
        binary,
        &["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().context("a UTF-8 path")?],
    )
}

fn idle(server: &LiveServer, table: &mut Table) -> Result<()> {
    std::thread::sleep(Duration::from_secs(1));
    let before = cpu(server)?;
    std::thread::sleep(Duration::from_secs(5));
    let used = (cpu(server)? - before).as_secs_f64() / 5.0 * 100.0;
    table.at_most("resident when idle", resident_bytes(server)? as f64 / 1e6, 60.0, " MB");
    table.at_most("CPU when idle", used, 0.5, " %");
    Ok(())
}

/// A container without indexing and one item of 1 KB.
fn set_up(server: &LiveServer) -> Result<()> {
    let signer = Signer::well_known();
    let mut connection = Connection::open(server.port)?;
    let database = signer.request("POST", "/dbs", ("dbs", ""), "", br#"{"id":"bench"}"#);
    ensure!(connection.status(&database)? == 201, "the database is not created");
    let definition = br#"{"id":"items","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"indexingPolicy":{"indexingMode":"none","automatic":false}}"#;
    let container = signer.request("POST", "/dbs/bench/colls", ("colls", "dbs/bench"), "", definition);
    ensure!(connection.status(&container)? == 201, "the container is not created");
    ensure!(connection.status(&create(&signer, 0))? == 201, "the item is not created");
    Ok(())
}

fn item(number: u64) -> Vec<u8> {
    let padding = "abcdefghij".repeat(9);
    let members: String = (0..9).map(|index| format!(",\"field{index}\":\"{number} {padding}\"")).collect();
    format!("{{\"id\":\"{number}\",\"pk\":\"p{}\",\"number\":{number}{members}}}", number % 1000).into_bytes()
}

fn key_header(number: u64) -> String {
    format!("x-ms-documentdb-partitionkey: [\"p{}\"]\r\n", number % 1000)
}

fn create(signer: &Signer, number: u64) -> Vec<u8> {
    signer.request(
        "POST",
        &format!("/{CONTAINER}/docs"),
        ("docs", CONTAINER),
        &key_header(number),
        &item(number),
    )
}

fn on_item(signer: &Signer, verb: &str, number: u64, body: &[u8]) -> Vec<u8> {
    let link = format!("{CONTAINER}/docs/{number}");
    signer.request(verb, &format!("/{link}"), ("docs", &link), &key_header(number), body)
}

struct Measurement {
    load: Load,
    cpu_micros: f64,
}

fn measured(server: &LiveServer, connections: usize, status: u16, next: Next) -> Result<Measurement> {
    let before = cpu(server)?;
    let load = load(server.port, connections, ROUND, status, next)?;
    let used = cpu(server)? - before;
    let cpu_micros = used.as_secs_f64() * 1e6 / load.requests as f64;
    Ok(Measurement { load, cpu_micros })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn reads(server: &LiveServer, table: &mut Table) -> Result<()> {
    let this = std::env::current_exe()?;
    let plain = LiveServer::start(&this, &["floor", "plain"])?;
    let signed = LiveServer::start(&this, &["floor", "signed"])?;
    let request = on_item(&Signer::well_known(), "GET", 0, b"");
    let (mut cpu, mut rate, mut shown) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..ROUNDS {
        let one = |server: &LiveServer| {
            let request = request.clone();
            measured(server, 16, 200, Box::new(move |_| request.clone()))
        };
        let (floor, bare, ours) = (one(&signed)?, one(&plain)?, one(server)?);
        cpu.push(ours.cpu_micros / floor.cpu_micros);
        rate.push(ours.load.rate() / bare.load.rate());
        shown = format!(
            "{:.1} us against {:.1} us (floor), {:.0}/s against {:.0}/s (plain)",
            ours.cpu_micros,
            floor.cpu_micros,
            ours.load.rate(),
            bare.load.rate()
        );
    }
    table.at_most("point read: server CPU per request, to the signed floor", median(cpu), 1.5, "x");
    table.at_least("point read: rate at 16 connections, to a plain hyper GET", median(rate), 0.6, "x");
    table.note("point read: last round", shown);
    Ok(())
}

/// Replaced over and over.
const EXISTING: u64 = 2_000_000;
const EXISTING_COUNT: u64 = 64;

fn writes(server: &LiveServer, folder: &Path, table: &mut Table) -> Result<()> {
    let signed = LiveServer::start(&std::env::current_exe()?, &["floor", "signed"])?;
    let durable = LiveServer::start(&std::env::current_exe()?, &["floor", "durable"])?;
    in_parallel(server.port, 1, EXISTING, EXISTING_COUNT, create, 201)?;
    let floors = Floors { server, signed: &signed, durable: &durable, folder };
    floors.durable("create", 201, creates, table)?;
    floors.durable("replace", 200, replaces, table)?;
    floors.beside_postgres(table)?;
    deletes(server, folder, &signed, table)
}

/// Creates new items from a number on that no round has used.
fn creates(round: u64) -> Next {
    let signer = Signer::well_known();
    Box::new(move |number| create(&signer, (round + 1) * 100_000_000 + number))
}

fn replaces(_round: u64) -> Next {
    let signer = Signer::well_known();
    Box::new(move |number| {
        let number = EXISTING + number % EXISTING_COUNT;
        on_item(&signer, "PUT", number, &item(number))
    })
}

struct Floors<'a> {
    server: &'a LiveServer,
    signed: &'a LiveServer,
    durable: &'a LiveServer,
    folder: &'a Path,
}

impl Floors<'_> {
    fn durable(&self, name: &str, status: u16, make: fn(u64) -> Next, table: &mut Table) -> Result<()> {
        let (mut single, mut scaling, mut together) = (Vec::new(), Vec::new(), Vec::new());
        let mut shown = String::new();
        for round in 0..ROUNDS as u64 {
            let sync = disk::append_and_sync(self.folder, 1200, 2000)?;
            let request = on_item(&Signer::well_known(), "PUT", 0, &item(0));
            let repeated = || -> Next {
                let request = request.clone();
                Box::new(move |_| request.clone())
            };
            let http = load(self.signed.port, 1, Duration::from_secs(1), 200, repeated())?.latency_p50;
            let both = load(self.durable.port, 1, ROUND, 200, repeated())?.rate();
            let one = load(self.server.port, 1, ROUND, status, make(round * 2))?.rate();
            let many = load(self.server.port, 16, ROUND, status, make(round * 2 + 1))?.rate();
            single.push(one * (sync + http).as_secs_f64());
            together.push(one / both);
            scaling.push(many / one);
            shown = format!(
                "{one:.0}/s at 1, {many:.0}/s at 16, {both:.0}/s bare; fdatasync p50 {sync:.0?}, HTTP p50 {http:.0?}"
            );
        }
        let what = |what: &str| format!("durable {name}: {what}");
        table.at_least(&what("rate at 1 connection, to 1 / (fdatasync + HTTP)"), median(single), 0.8, "x");
        let bare = format!("{:.2}x", median(together));
        table.note(&what("rate at 1 connection, to a bare hyper server that appends and syncs"), bare);
        table.at_least(&what("rate at 16 connections, to 1"), median(scaling), 3.0, "x");
        table.note(&what("last round"), shown);
        Ok(())
    }
}

impl Floors<'_> {
    fn beside_postgres(&self, table: &mut Table) -> Result<()> {
        let Some(postgres) = Postgres::start()? else {
            table.note("durable create, to PostgreSQL 15", "not installed here".to_owned());
            return Ok(());
        };
        for connections in [1, 16] {
            let (mut ratios, mut shown) = (Vec::new(), String::new());
            for round in 0..ROUNDS as u64 {
                let theirs = postgres.insert_rate(connections)?;
                let next = creates(1000 + connections as u64 * 10 + round);
                let ours = load(self.server.port, connections, ROUND, 201, next)?.rate();
                ratios.push(ours / theirs);
                shown = format!("last round {ours:.0}/s to {theirs:.0}/s");
            }
            let what =
                format!("durable create at {connections} connection(s), to an insert into PostgreSQL 15");
            table.note(&what, format!("{:.2}x ({shown})", median(ratios)));
        }
        Ok(())
    }
}

/// Deletes need items to delete, so they are counted instead of timed out.
fn deletes(server: &LiveServer, folder: &Path, signed: &LiveServer, table: &mut Table) -> Result<()> {
    let (mut single, mut scaling, mut shown) = (Vec::new(), Vec::new(), String::new());
    for round in 0..ROUNDS as u64 {
        let first = 9_000_000_000 + round * 100_000;
        let (ones, manies) = (1500, 8000);
        in_parallel(server.port, 16, first, ones + manies, create, 201)?;
        let sync = disk::append_and_sync(folder, 200, 2000)?;
        let request = on_item(&Signer::well_known(), "GET", 0, b"");
        let http = load(signed.port, 1, Duration::from_secs(1), 200, Box::new(move |_| request.clone()))?
            .latency_p50;
        let delete = |signer: &Signer, number: u64| on_item(signer, "DELETE", number, b"");
        let one = ones as f64 / in_parallel(server.port, 1, first, ones, delete, 204)?.as_secs_f64();
        let many =
            manies as f64 / in_parallel(server.port, 16, first + ones, manies, delete, 204)?.as_secs_f64();
        single.push(one * (sync + http).as_secs_f64());
        scaling.push(many / one);
        shown = format!("{one:.0}/s at 1, {many:.0}/s at 16");
    }
    table.at_least(
        "durable delete: rate at 1 connection, to 1 / (fdatasync + HTTP)",
        median(single),
        0.8,
        "x",
    );
    table.at_least("durable delete: rate at 16 connections, to 1", median(scaling), 3.0, "x");
    table.note("durable delete: last round", shown);
    Ok(())
}

/// Sends one request for each number in `first..first + count`, spread over the connections.
fn in_parallel(
    port: u16,
    connections: u64,
    first: u64,
    count: u64,
    make: fn(&Signer, u64) -> Vec<u8>,
    status: u16,
) -> Result<Duration> {
    let started = Instant::now();
    let threads: Vec<_> = (0..connections)
        .map(|thread| {
            std::thread::spawn(move || -> Result<()> {
                let signer = Signer::well_known();
                let mut connection = Connection::open(port)?;
                for number in (first + thread..first + count).step_by(connections as usize) {
                    let found = connection.status(&make(&signer, number))?;
                    ensure!(found == status, "expected status {status}, got {found}");
                }
                Ok(())
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a client thread does not panic")?;
    }
    Ok(started.elapsed())
}

fn fill(server: &LiveServer) -> Result<()> {
    in_parallel(server.port, 32, 5_000_000_000, REOPENED_ITEMS, create, 201)?;
    Ok(())
}
