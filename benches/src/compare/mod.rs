//! The comparison: the same workloads over HTTP against a live server and, if one is named, another server of the same
//! protocol, and by its own load generator over TCP with prepared statements against PostgreSQL 15 with jsonb.
//!
//! Answers are compared before anything is timed. Rounds are taken in turn, and the side that begins changes. Every timing begins
//! when both sides have nothing left to do in the background. Nobody declares an index on our side.

mod agree; // the same answers on both sides
mod options; // the command line
mod ours; // requests
mod report; // JSON and Markdown
mod theirs; // PostgreSQL's table, indexes and scripts
mod workload; // the sixteen
mod zipf; // numbers by Zipf's law

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quire_testkit::http::Address;
use quire_testkit::live::LiveServer;

use self::agree::Sides;
use self::options::Options;
use self::report::{Line, Report};
pub use self::workload::named;
use self::workload::{Operation, Workload};
use crate::client::{Load, LoadEnd, run_until};
use crate::people::{PEOPLE, load as load_people};
use crate::postgres::Postgres;
use crate::process::{cpu_with_children, finish_background_work};

pub fn run(binary: &Path, arguments: &[&str]) -> Result<()> {
    let options = Options::parse(arguments)?;
    let folder = tempfile::tempdir()?;
    let quire = LiveServer::quire(binary, &folder.path().join("data"), &["--partitions", "1"])?;
    let postgres = Postgres::start_tuned()?.context("PostgreSQL 15 is needed")?;
    let mut servers = vec![Server::quire(&quire)];
    servers.extend(options.cosmos.iter().map(|(address, process)| Server {
        name: "other",
        address: address.clone(),
        process: *process,
    }));
    theirs::load(&postgres)?;
    for server in &servers {
        ours::load(&server.address)?;
    }
    // Only one of the servers can have its writes compared: PostgreSQL makes each of them once.
    for workload in &options.workloads {
        Sides::new(&servers[0].address, &postgres)?.compare(workload)?;
    }
    let mut comparison = Comparison { options: &options, servers, postgres, timings: 0 };
    let mut report = Report::new(&options);
    for workload in &options.workloads {
        for connections in &options.connections {
            report.push(comparison.line(workload, *connections)?);
        }
    }
    report.write()
}

/// The seeded people into a server that runs already, to look at it by hand.
pub fn fill_running(port: u16) -> Result<()> {
    load_people(&Address::local(port), 0..PEOPLE)
}

/// A container with what all workloads need.
pub fn load(port: u16) -> Result<()> {
    ours::load(&Address::local(port))
}

/// One workload on our side alone, for so long; every timing has a number of its own.
pub fn drive(
    port: u16,
    workload: &'static Workload,
    connections: usize,
    duration: Duration,
    timing: u64,
) -> Result<Load> {
    let address = Address::local(port);
    let until = match workload.operation {
        Operation::Delete => LoadEnd::Requests(deletes_in(duration)),
        _ => LoadEnd::Elapsed(duration),
    };
    let next = ours::requests(workload, timing);
    run_until(&address, connections, until, 200..=204, |_| next.clone())
}

/// What [`drive`] needs beside what is loaded.
pub fn prepare(port: u16, workload: &Workload, duration: Duration, timing: u64) -> Result<()> {
    match workload.operation {
        Operation::Delete => ours::prepare_deletes(&Address::local(port), timing, deletes_in(duration)),
        _ => Ok(()),
    }
}

fn deletes_in(duration: Duration) -> u64 {
    4_000 * duration.as_secs().max(1)
}

/// A server of the protocol.
struct Server {
    name: &'static str,
    address: Address,
    /// Whose processor time is read; that of a server elsewhere is not known.
    process: Option<u32>,
}

impl Server {
    fn quire(live: &LiveServer) -> Server {
        Server { name: "Quire", address: Address::local(live.port), process: Some(live.child.id()) }
    }
}

/// What one side did in one timing.
#[derive(Clone, Copy)]
pub struct Measurement {
    pub rate: f64,
    pub cpu_micros: Option<f64>,
    pub latency_p50: Duration,
    pub latency_p99: Duration,
}

struct Comparison<'a> {
    options: &'a Options,
    servers: Vec<Server>,
    postgres: Postgres,
    /// Timings so far: each draws other numbers.
    timings: u64,
}

impl Comparison<'_> {
    fn line(&mut self, workload: &'static Workload, connections: usize) -> Result<Line> {
        let mut line = Line::new(workload, connections);
        for round in 0..self.options.rounds {
            self.timings += 1;
            let postgres_first = round % 2 == 0;
            let mut theirs = postgres_first.then(|| self.theirs(workload, connections)).transpose()?;
            let mut ours = Vec::new();
            for server in &self.servers {
                ours.push((server.name, self.ours(server, workload, connections)?));
            }
            if theirs.is_none() {
                theirs = Some(self.theirs(workload, connections)?);
            }
            line.push(ours, theirs.context("PostgreSQL was measured")?);
        }
        Ok(line)
    }

    /// Items that are deleted in one timing: each can be deleted once, so they are counted, not timed.
    fn deletes(&self, connections: usize) -> u64 {
        let a_second: u64 = if connections == 1 { 1_000 } else { 4_000 };
        let per_connection = (a_second * self.options.seconds).div_ceil(connections as u64);
        per_connection * connections as u64
    }

    fn ours(&self, server: &Server, workload: &'static Workload, connections: usize) -> Result<Measurement> {
        let mut until = LoadEnd::Elapsed(Duration::from_secs(self.options.seconds));
        if let Operation::Delete = workload.operation {
            let count = self.deletes(connections);
            ours::prepare_deletes(&server.address, self.timings, count)?;
            until = LoadEnd::Requests(count);
        }
        if let Some(process) = server.process {
            finish_background_work(process)?;
        }
        let cpu = || server.process.map(cpu_with_children).transpose();
        let before = cpu()?;
        let next = ours::requests(workload, self.timings);
        let load = run_until(&server.address, connections, until, 200..=204, |_| next.clone())?;
        let used = before.zip(cpu()?).map(|(before, after)| after - before);
        Ok(Measurement {
            rate: load.rate(),
            cpu_micros: used.map(|used| used.as_secs_f64() * 1e6 / load.requests as f64),
            latency_p50: load.latency_p50,
            latency_p99: load.latency_p99,
        })
    }

    fn theirs(&self, workload: &Workload, connections: usize) -> Result<Measurement> {
        let mut until = LoadEnd::Elapsed(Duration::from_secs(self.options.seconds));
        let deletes = matches!(workload.operation, Operation::Delete);
        if deletes {
            let count = self.deletes(connections);
            theirs::prepare_deletes(&self.postgres, 1 + self.timings * 10_000_000, count)?;
            until = LoadEnd::Requests(count);
        }
        theirs::finish_background_work(&self.postgres)?;
        finish_background_work(self.postgres.process()?)?;
        let scripts = theirs::scripts(&workload.operation);
        let scripts: Vec<(String, u32)> =
            scripts.iter().map(|script| (script.text(), script.weight)).collect();
        let before = cpu_with_children(self.postgres.process()?)?;
        let load = self.postgres.load(&scripts, connections, until)?;
        let used = cpu_with_children(self.postgres.process()?)? - before;
        let left = if deletes { theirs::left_to_delete(&self.postgres)? } else { 0 };
        ensure!(left == 0, "PostgreSQL did not delete {left} items");
        Ok(Measurement {
            rate: load.rate(),
            cpu_micros: Some(used.as_secs_f64() * 1e6 / load.requests as f64),
            latency_p50: load.latency_p50,
            latency_p99: load.latency_p99,
        })
    }
}
