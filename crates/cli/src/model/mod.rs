//! `quire model` and `quire links`: what the items of a database declare about each other.
//!
//! Everything is asked of a running server. Results go to standard output, notes and progress to standard error.

pub mod server; // requests to the server, and waiting for its jobs
pub mod shown; // results as text

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hyper::Method;
use quire_value::{Limits, Object, Value, text};

use self::server::Server;
use crate::client::ServerArguments;
use crate::{EXIT_FOUND, output};

#[derive(clap::Args)]
pub struct ModelArguments {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(clap::Subcommand)]
enum ModelCommand {
    /// Print the model
    Get(GetArguments),
    /// Put a model, and wait until it is built
    Put(PutArguments),
    /// Say what a put would change; nothing is changed
    Diff(DiffArguments),
    /// Compare all items with what the model says
    Check(CheckArguments),
}

#[derive(clap::Args)]
struct GetArguments {
    #[command(flatten)]
    target: Target,
}

#[derive(clap::Args)]
struct PutArguments {
    #[command(flatten)]
    target: Target,
    /// The model as JSON; `-` reads standard input
    file: String,
    /// Do not wait until it is built
    #[arg(long)]
    no_wait: bool,
    /// Only if the model that is there has this ETag
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
    /// Print one JSON value
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct DiffArguments {
    #[command(flatten)]
    target: Target,
    /// The model as JSON; `-` reads standard input
    file: String,
    /// Print one JSON value
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct CheckArguments {
    #[command(flatten)]
    target: Target,
    /// Put right what is wrong, and check again
    #[arg(long, conflicts_with = "model")]
    repair: bool,
    /// What a repair does with references without a target
    #[arg(long, value_name = "WHAT", default_value = "report", value_parser = ["report", "remove"], requires = "repair")]
    dangling: String,
    /// A model that is not declared, as JSON; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    model: Option<String>,
    /// Only these declarations
    #[arg(long = "declaration", value_name = "NAME")]
    declarations: Vec<String>,
    /// Examples of each finding
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = clap::value_parser!(u32).range(0..=1000))]
    examples: u32,
    /// Print one JSON value
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct Target {
    /// The database
    database: String,
    /// Print no notes
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(clap::Args)]
pub struct LinksArguments {
    #[command(subcommand)]
    command: LinksCommand,
}

#[derive(clap::Subcommand)]
enum LinksCommand {
    /// Find references without a target, and keys that two items have
    Check(LinksCheckArguments),
}

#[derive(clap::Args)]
struct LinksCheckArguments {
    #[command(flatten)]
    target: Target,
    /// Examples of each finding
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = clap::value_parser!(u32).range(0..=1000))]
    examples: u32,
    /// Print one JSON value
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &ModelArguments) -> Result<ExitCode> {
    match &arguments.command {
        ModelCommand::Get(arguments) => get(arguments),
        ModelCommand::Put(arguments) => put(arguments),
        ModelCommand::Diff(arguments) => diff(arguments),
        ModelCommand::Check(arguments) => check(arguments),
    }
}

pub fn run_links(arguments: &LinksArguments) -> Result<ExitCode> {
    let LinksCommand::Check(arguments) = &arguments.command;
    let mut server = arguments.target.connect()?;
    let model = server.send_request(Method::GET, "", &[], String::new())?;
    let links = model.get("links").and_then(Value::as_array).unwrap_or_default();
    let links: Vec<Value> = links.iter().filter_map(|link| link.get("name").cloned()).collect();
    let mut order = Object::new();
    order.set("declarations", Value::Array(links));
    order.set("examples", i64::from(arguments.examples));
    let result = server.run_job("check", order)?;
    report(&result, arguments.json)
}

fn get(arguments: &GetArguments) -> Result<ExitCode> {
    let model = arguments.target.connect()?.send_request(Method::GET, "", &[], String::new())?;
    output::print(&shown::pretty(&model))?;
    Ok(ExitCode::SUCCESS)
}

fn put(arguments: &PutArguments) -> Result<ExitCode> {
    let body = read_model(&arguments.file)?;
    let mut server = arguments.target.connect()?;
    let headers: Vec<(&str, String)> =
        arguments.if_match.iter().map(|etag| ("if-match", etag.clone())).collect();
    let put = server.send_request(Method::PUT, "", &headers, body)?;
    let text = if arguments.json { format!("{}\n", put.to_json()) } else { shown::changes(&put) };
    output::print(&text)?;
    if arguments.no_wait {
        return Ok(ExitCode::SUCCESS);
    }
    for job in put.get("_jobs").and_then(Value::as_array).unwrap_or_default() {
        server.wait(job.as_str().unwrap_or_default())?;
    }
    let failed = server.failed_declarations()?;
    if !failed.is_empty() {
        bail!("not everything could be built:\n{}", failed.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

fn diff(arguments: &DiffArguments) -> Result<ExitCode> {
    let body = read_model(&arguments.file)?;
    let mut server = arguments.target.connect()?;
    let run = server.dry_run(body)?;
    let text = if arguments.json {
        format!("{}\n", run.to_json())
    } else {
        shown::changes(&run) + &shown::estimates(&run)
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn check(arguments: &CheckArguments) -> Result<ExitCode> {
    let mut order = Object::new();
    if !arguments.declarations.is_empty() {
        let names = arguments.declarations.iter().map(|name| Value::from(name.as_str()));
        order.set("declarations", names.collect::<Value>());
    }
    order.set("examples", i64::from(arguments.examples));
    if let Some(file) = &arguments.model {
        let model = read_model(file)?;
        let model = text::parse(model.as_bytes(), Limits::default());
        order.set("model", model.with_context(|| format!("reading {file}"))?);
    }
    let mut server = arguments.target.connect()?;
    if arguments.repair {
        let mut repair = order.clone();
        repair.set("dangling", arguments.dangling.as_str());
        let repaired = server.run_job("repair", repair)?;
        if !arguments.target.quiet {
            eprint!("{}", shown::repaired(&repaired));
        }
    }
    let result = server.run_job("check", order)?;
    report(&result, arguments.json)
}

fn report(result: &Value, as_json: bool) -> Result<ExitCode> {
    let text = if as_json { format!("{}\n", result.to_json()) } else { shown::findings(result) };
    output::print(&text)?;
    let is_clean = result.get("clean").and_then(Value::as_bool) == Some(true);
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FOUND) })
}

fn read_model(file: &str) -> Result<String> {
    if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("reading standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(PathBuf::from(file)).with_context(|| format!("reading {file}"))
}

impl Target {
    pub fn connect(&self) -> Result<Server> {
        if self.database.contains(['/', '@']) {
            bail!("'{}' is not the name of a database", self.database);
        }
        Server::connect(&self.server, &self.database, self.quiet)
    }
}
