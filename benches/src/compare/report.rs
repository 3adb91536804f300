//! The figures as Markdown and as JSON. A ratio is the median of its rounds, and rate, processor time and latencies beside it are
//! those of that round.

use anyhow::Result;
use serde_json::{Value, json};

use super::Measurement;
use super::options::Options;
use super::workload::Workload;

/// Where targets are given.
const TARGET_CONNECTIONS: [usize; 2] = [1, 16];

pub struct Line {
    workload: &'static Workload,
    connections: usize,
    rounds: Vec<Round>,
}

struct Round {
    /// Quire, then another server if there is one.
    servers: Vec<(&'static str, Measurement)>,
    postgres: Measurement,
}

impl Round {
    fn ratio(&self, server: usize) -> f64 {
        self.servers[server].1.rate / self.postgres.rate
    }
}

impl Line {
    pub fn new(workload: &'static Workload, connections: usize) -> Line {
        Line { workload, connections, rounds: Vec::new() }
    }

    pub fn push(&mut self, servers: Vec<(&'static str, Measurement)>, postgres: Measurement) {
        let round = Round { servers, postgres };
        eprintln!(
            "{} at {}: {:.2}x; {}; PostgreSQL {}",
            self.workload.title,
            self.connections,
            round.ratio(0),
            shown(&round.servers[0].1),
            shown(&round.postgres)
        );
        self.rounds.push(round);
    }

    fn target(&self) -> Option<f64> {
        let place = TARGET_CONNECTIONS.iter().position(|connections| *connections == self.connections)?;
        Some(self.workload.targets[place])
    }

    /// The round with the median ratio of a server.
    fn median(&self, server: usize) -> &Round {
        let mut rounds: Vec<&Round> = self.rounds.iter().collect();
        rounds.sort_by(|a, b| a.ratio(server).total_cmp(&b.ratio(server)));
        rounds[rounds.len() / 2]
    }

    fn is_met(&self) -> Option<bool> {
        self.target().map(|target| self.median(0).ratio(0) >= target)
    }

    fn markdown(&self) -> Vec<String> {
        let servers = self.rounds[0].servers.len();
        (0..servers).map(|server| self.markdown_of(server)).collect()
    }

    fn markdown_of(&self, server: usize) -> String {
        let round = self.median(server);
        let (name, measured) = &round.servers[server];
        let (mut target, mut met) = (String::new(), "");
        if server == 0 {
            target = self.target().map_or(String::new(), |target| format!("{target}"));
            met = self.is_met().map_or("", |met| if met { "yes" } else { "**no**" });
        }
        let title = if server == 0 { self.workload.title.to_owned() } else { format!("… {name}") };
        let theirs = &round.postgres;
        format!(
            "| {title} | {} | {:.2}x | {target} | {met} | {:.0} | {:.0} | {} | {} | {} | {} |",
            self.connections,
            round.ratio(server),
            measured.rate,
            theirs.rate,
            micros(measured.cpu_micros),
            micros(theirs.cpu_micros),
            latencies(measured),
            latencies(theirs),
        )
    }

    fn json(&self) -> Value {
        let rounds: Vec<Value> = self.rounds.iter().map(json_of_round).collect();
        json!({
            "workload": self.workload.name,
            "connections": self.connections,
            "target": self.target(),
            "ratio": self.median(0).ratio(0),
            "met": self.is_met(),
            "rounds": rounds,
        })
    }
}

fn json_of_round(round: &Round) -> Value {
    let mut sides: Vec<Value> =
        round.servers.iter().map(|(name, measured)| json_of_side(name, measured)).collect();
    sides.push(json_of_side("PostgreSQL", &round.postgres));
    Value::Array(sides)
}

fn json_of_side(name: &str, measured: &Measurement) -> Value {
    json!({
        "side": name,
        "rate": measured.rate,
        "cpuMicros": measured.cpu_micros,
        "p50Micros": measured.latency_p50.as_secs_f64() * 1e6,
        "p99Micros": measured.latency_p99.as_secs_f64() * 1e6,
    })
}

fn shown(measured: &Measurement) -> String {
    format!("{:.0}/s with {} us of CPU", measured.rate, micros(measured.cpu_micros))
}

fn micros(figure: Option<f64>) -> String {
    figure.map_or("–".to_owned(), |micros| format!("{micros:.0}"))
}

fn latencies(measured: &Measurement) -> String {
    format!("{} / {}", measured.latency_p50.as_micros(), measured.latency_p99.as_micros())
}

pub struct Report<'a> {
    options: &'a Options,
    lines: Vec<Line>,
}

const HEADING: &str = "| workload | connections | ratio | to reach | met | rate/s | PostgreSQL rate/s | CPU us | PostgreSQL CPU us | p50 / p99 us | PostgreSQL p50 / p99 us |\n\
    |---|---|---|---|---|---|---|---|---|---|---|";

impl Report<'_> {
    pub fn new(options: &Options) -> Report<'_> {
        Report { options, lines: Vec::new() }
    }

    pub fn push(&mut self, line: Line) {
        self.lines.push(line);
    }

    /// Prints the table and writes `compare.md` and `compare.json`.
    pub fn write(&self) -> Result<()> {
        let (rounds, seconds) = (self.options.rounds, self.options.seconds);
        let table: Vec<String> = self.lines.iter().flat_map(Line::markdown).collect();
        let met = self.lines.iter().filter(|line| line.is_met() == Some(true)).count();
        let targets = self.lines.iter().filter(|line| line.is_met().is_some()).count();
        let markdown = format!(
            "{HEADING}\n{}\n\n{met} of {targets} targets met; {rounds} round(s) of {seconds} s.\n",
            table.join("\n")
        );
        println!("{markdown}");
        let lines: Vec<Value> = self.lines.iter().map(Line::json).collect();
        let json = json!({ "rounds": rounds, "seconds": seconds, "lines": lines });
        std::fs::create_dir_all(&self.options.out)?;
        std::fs::write(self.options.out.join("compare.md"), markdown)?;
        std::fs::write(self.options.out.join("compare.json"), format!("{json:#}\n"))?;
        eprintln!("written to {}", self.options.out.display());
        Ok(())
    }
}
