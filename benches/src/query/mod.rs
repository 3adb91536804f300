//! The query benchmark: a live server, PostgreSQL 15 with jsonb and @vercel/cosmosdb-server over the same seeded items,
//! answers compared, turn about in one run.
//!
//! Our side and the JavaScript server get the same requests over one kept-alive HTTP connection per client. PostgreSQL is
//! driven by its own load generator over TCP with prepared statements. Nobody declares an index on our side.

mod growth; // one query over more and more items
mod people; // the items
mod space; // what indexing costs
mod workload; // the queries

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::Live;
use serde_json::Value;

pub use self::growth::run as growth;
use self::people::{PEOPLE, Person, draw};
pub use self::space::run as space;
use self::workload::{CREATE, CREATE_BOUNDS, Compared, POSTGRES_INDEXES, WORKLOADS, Workload, insert_script};
use crate::client::{Next, run as load};
use crate::postgres::Postgres;

const CONTAINER: &str = "dbs/bench/colls/people";
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(2);
const CONNECTIONS: [usize; 2] = [1, 16];
/// Of each query, before it is timed.
const COMPARED_ANSWERS: u64 = 8;

pub fn run(binary: &Path, javascript_server: Option<&Path>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let quire = Live::quire(binary, &folder.path().join("data"), &[])?;
    let postgres = Postgres::start_tuned()?.context("PostgreSQL 15 is needed")?;
    load_quire(quire.port, 0..PEOPLE)?;
    load_postgres(&postgres)?;
    let vercel = javascript_server.map(start_javascript_server).transpose()?;
    let mut table = Ratios::default();
    for workload in WORKLOADS {
        compare(workload, quire.port, &postgres)?;
    }
    for workload in WORKLOADS {
        let mut line = Line::new(workload.name, workload.bounds);
        for round in 0..ROUNDS as u64 {
            for (column, connections) in CONNECTIONS.into_iter().enumerate() {
                let theirs = postgres.query_rate(&script(workload), connections)?;
                let ours = load(quire.port, connections, ROUND, 200, requests(workload, round))?.rate();
                line.push(column, ours, theirs);
            }
        }
        if let Some(vercel) = &vercel {
            line.vercel = javascript_rates(workload, vercel, &postgres);
            table.differs.extend(line.vercel[0].is_none().then_some(workload.name));
        }
        table.push(line);
    }
    table.push(creates(&quire, &postgres, vercel.as_ref())?);
    table.print();
    Ok(())
}

/// Nothing where it answers wrongly or not within the client's patience. It runs on one thread, so a query of a second
/// is asked once.
fn javascript_rates(workload: &'static Workload, vercel: &Live, postgres: &Postgres) -> [Option<f64>; 2] {
    let started = Instant::now();
    if !agrees(workload, vercel.port, postgres, 1).unwrap_or(false) {
        return [None; 2];
    }
    if started.elapsed() > Duration::from_secs(1) {
        return [Some(1.0 / started.elapsed().as_secs_f64()), None];
    }
    CONNECTIONS.map(|connections| {
        load(vercel.port, connections, ROUND, 200, requests(workload, 9)).ok().map(|load| load.rate())
    })
}

/// Last, since they change what the queries run over.
fn creates(quire: &Live, postgres: &Postgres, vercel: Option<&Live>) -> Result<Line> {
    let mut line = Line::new(CREATE, CREATE_BOUNDS);
    let script = insert_script(&template());
    for round in 0..ROUNDS as u64 {
        for (column, connections) in CONNECTIONS.into_iter().enumerate() {
            let theirs = postgres.query_rate(&script, connections)?;
            let first = PEOPLE + (1 + 2 * round + column as u64) * 10_000_000;
            let ours = load(quire.port, connections, ROUND, 201, new_people(first))?.rate();
            line.push(column, ours, theirs);
        }
    }
    if let Some(vercel) = vercel {
        for (column, connections) in CONNECTIONS.into_iter().enumerate() {
            let first = PEOPLE + (100 + column as u64) * 10_000_000;
            line.vercel[column] =
                load(vercel.port, connections, ROUND, 201, new_people(first)).ok().map(|load| load.rate());
        }
    }
    Ok(line)
}

/// The JSON of a person with places for what [`insert_script`] draws.
fn template() -> String {
    let person = Person::numbered(7);
    let mut json = person.json().replace(&person.id, "new-%1$s");
    let mut place = |found: String, argument: &str| json = json.replace(&found, argument);
    place(format!("\"team-{}\"", person.team), "\"team-%2$s\"");
    place(format!("\"city-{}\"", person.city), "\"city-%3$s\"");
    place(format!("\"score\":{}", person.score), "\"score\":%4$s");
    for index in 0..3 {
        place(format!("\"tag-{}\"", person.tags[index]), &format!("\"tag-%{}$s\"", 5 + index));
        place(format!("\"sku-{}\"", person.skus[index]), &format!("\"sku-%{}$s\"", 8 + index));
    }
    // The load generator takes a word behind a colon for a variable, also inside a text.
    json.replace("08:30:00", "08\\u003a30\\u003a00").replace("\":", "\": ")
}

fn start_javascript_server(package: &Path) -> Result<Live> {
    let script = package.join("lib/cli.js");
    let script = script.to_str().context("a UTF-8 path")?;
    let server = Live::start(Path::new("node"), &[script, "-p", "0", "--host", "127.0.0.1", "--no-ssl"])?;
    load_quire(server.port, 0..PEOPLE)?;
    Ok(server)
}

/// The seeded people into a server that runs already, to look at it by hand.
pub fn fill_running(port: u16) -> Result<()> {
    load_quire(port, 0..PEOPLE)
}

/// A container with the default policy, and the people in it.
fn load_quire(port: u16, people: std::ops::Range<u64>) -> Result<()> {
    create_container(port, "")?;
    fill(port, people)
}

fn create_container(port: u16, policy: &str) -> Result<()> {
    let signer = Signer::well_known();
    let mut connection = Connection::open(port)?;
    let database = signer.request("POST", "/dbs", ("dbs", ""), JSON, br#"{"id":"bench"}"#);
    ensure!(connection.status(&database)? == 201, "the database is not created");
    let definition = format!(
        r#"{{"id":"people","partitionKey":{{"paths":["/tenant"],"kind":"Hash","version":2}}{policy}}}"#
    );
    let request =
        signer.request("POST", "/dbs/bench/colls", ("colls", "dbs/bench"), JSON, definition.as_bytes());
    ensure!(connection.status(&request)? == 201, "the container is not created");
    Ok(())
}

fn fill(port: u16, people: std::ops::Range<u64>) -> Result<()> {
    create_all(port, people, create)
}

/// One request for each number, over 16 connections.
fn create_all(port: u16, numbers: std::ops::Range<u64>, make: fn(&Signer, u64) -> Vec<u8>) -> Result<()> {
    const THREADS: u64 = 16;
    let started = Instant::now();
    let count = numbers.end - numbers.start;
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let numbers = numbers.clone();
            std::thread::spawn(move || -> Result<()> {
                let signer = Signer::well_known();
                let mut connection = Connection::open(port)?;
                for number in numbers.skip(thread as usize).step_by(THREADS as usize) {
                    let status = connection.status(&make(&signer, number))?;
                    ensure!(status == 201, "creating item {number} answered {status}");
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

const JSON: &str = "content-type: application/json\r\n";

fn create(signer: &Signer, number: u64) -> Vec<u8> {
    let person = Person::numbered(number);
    let headers = format!("{JSON}x-ms-documentdb-partitionkey: [\"{}\"]\r\n", person.tenant);
    let path = format!("/{CONTAINER}/docs");
    signer.request("POST", &path, ("docs", CONTAINER), &headers, person.json().as_bytes())
}

fn new_people(first: u64) -> Next {
    let signer = Signer::well_known();
    Box::new(move |number| create(&signer, first + number))
}

fn load_postgres(postgres: &Postgres) -> Result<()> {
    postgres.sql(
        "DROP TABLE items; CREATE TABLE items (id text PRIMARY KEY COLLATE \"C\", body jsonb NOT NULL)",
    )?;
    postgres.sql("CREATE SEQUENCE numbers")?;
    let rows: String = (0..PEOPLE)
        .map(|number| {
            let person = Person::numbered(number);
            format!("{}\t{}\n", person.id, person.json())
        })
        .collect();
    postgres.copy("items", &rows)?;
    POSTGRES_INDEXES.iter().try_for_each(|index| postgres.sql(index))?;
    postgres.sql("VACUUM ANALYZE items")?;
    postgres.sql("CHECKPOINT")
}

fn script(workload: &Workload) -> String {
    let parameter = match workload.parameter_below {
        0 => String::new(),
        below => format!("\\set p random(0, {})\n", below - 1),
    };
    format!("{parameter}{};\n", workload.theirs)
}

fn query(signer: &Signer, workload: &Workload, drawn: u64) -> Vec<u8> {
    let body = match workload.parameter_below {
        0 => format!(r#"{{"query":"{}","parameters":[]}}"#, workload.ours),
        _ => format!(
            r#"{{"query":"{}","parameters":[{{"name":"@p","value":{}}}]}}"#,
            workload.ours,
            (workload.parameter)(drawn)
        ),
    };
    const HEADERS: &str = "content-type: application/query+json\r\nx-ms-documentdb-isquery: true\r\n\
        x-ms-documentdb-query-enablecrosspartition: true\r\nx-ms-documentdb-partitionkeyrangeid: 0\r\n\
        x-ms-max-item-count: -1\r\n";
    signer.request("POST", &format!("/{CONTAINER}/docs"), ("docs", CONTAINER), HEADERS, body.as_bytes())
}

fn requests(workload: &'static Workload, round: u64) -> Next {
    let signer = Signer::well_known();
    let below = workload.parameter_below.max(1);
    Box::new(move |number| query(&signer, workload, draw(round * 1_000_000 + number, 777, below)))
}

/// Some answers of both sides must be the same before anything is timed.
fn compare(workload: &Workload, port: u16, postgres: &Postgres) -> Result<()> {
    ensure!(agrees(workload, port, postgres, COMPARED_ANSWERS)?, "{}: the answers differ", workload.name);
    Ok(())
}

fn agrees(workload: &Workload, port: u16, postgres: &Postgres, answers: u64) -> Result<bool> {
    let signer = Signer::well_known();
    let mut connection = Connection::open(port)?;
    for sample in 0..answers.min(workload.parameter_below.max(1)) {
        let drawn = draw(sample, 778, workload.parameter_below.max(1));
        let answer = connection.exchange(&query(&signer, workload, drawn))?;
        if answer.status != 200 {
            eprintln!("{}: {} {}", workload.name, answer.status, String::from_utf8_lossy(&answer.body));
            return Ok(false);
        }
        let body: Value = serde_json::from_slice(&answer.body)?;
        let ours: Vec<Value> = body["Documents"].as_array().context("no Documents")?.clone();
        let text = postgres.rows(&workload.theirs.replace(":p", &drawn.to_string()))?;
        let theirs = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        if shown(workload, &ours) != shown(workload, &theirs) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn shown(workload: &Workload, rows: &[Value]) -> Vec<String> {
    let one = |row: &Value| match workload.compared {
        Compared::Ids => row["id"].to_string(),
        Compared::Rows => {
            let members = row.as_object().into_iter().flatten();
            let mut members: Vec<String> =
                members.map(|(name, value)| format!("{name}={}", plain(value))).collect();
            members.sort();
            members.join(" ")
        }
    };
    let mut rows: Vec<String> = rows.iter().map(one).collect();
    rows.sort();
    rows
}

/// Averages differ in the last digits, and 1 may be written 1.0.
fn plain(value: &Value) -> String {
    value.as_f64().map_or_else(|| value.to_string(), |number| format!("{number:.6}"))
}

struct Line {
    name: &'static str,
    bounds: (f64, f64),
    /// Ratios, our rates and theirs by round, at 1 and at 16 connections.
    rounds: [Vec<(f64, f64)>; 2],
    vercel: [Option<f64>; 2],
}

impl Line {
    fn new(name: &'static str, bounds: (f64, f64)) -> Line {
        Line { name, bounds, rounds: Default::default(), vercel: [None; 2] }
    }

    fn push(&mut self, column: usize, ours: f64, theirs: f64) {
        eprintln!("{} at {}: {ours:.0}/s to {theirs:.0}/s", self.name, CONNECTIONS[column]);
        self.rounds[column].push((ours, theirs));
    }

    /// Median of the ratios, and the rates of that round.
    fn median(&self, column: usize) -> (f64, f64, f64) {
        let mut rounds = self.rounds[column].clone();
        rounds.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
        let (ours, theirs) = rounds[rounds.len() / 2];
        (ours / theirs, ours, theirs)
    }

    fn print(&self) {
        let bounds = [self.bounds.0, self.bounds.1];
        for (column, connections) in CONNECTIONS.into_iter().enumerate() {
            let (ratio, ours, theirs) = self.median(column);
            let met = if ratio >= bounds[column] { "yes" } else { "**no**" };
            let vercel = self.vercel[column]
                .map_or("–".to_owned(), |rate| format!("{rate:.1}/s ({:.0}x)", ours / rate));
            let name = if column == 0 { self.name } else { "" };
            println!(
                "| {name} | {connections} | {ours:.0}/s | {theirs:.0}/s | {ratio:.2}x | {} | {met} | {vercel} |",
                bounds[column]
            );
        }
    }
}

#[derive(Default)]
struct Ratios {
    lines: Vec<Line>,
    /// Where the JavaScript server gives another answer than PostgreSQL, or none within 30 s.
    differs: Vec<&'static str>,
}

impl Ratios {
    fn push(&mut self, line: Line) {
        self.lines.push(line);
    }

    fn print(&self) {
        println!(
            "| query | connections | Quire | PostgreSQL 15 | ratio | at least | met | cosmosdb-server (ratio) |\n\
             |---|---|---|---|---|---|---|---|"
        );
        self.lines.iter().for_each(Line::print);
        if !self.differs.is_empty() {
            println!("\ncosmosdb-server answers otherwise, or not within 30 s: {}", self.differs.join("; "));
        }
    }
}
