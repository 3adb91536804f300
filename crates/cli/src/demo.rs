//! `quire demo`: a database of examples with a day of workload, in a running server or in a closed data directory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use quire_engine::{Clock, Engine, EngineError, JobState, Options};
use quire_server::SystemClock;
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_value::{Object, Value};

use crate::client::ServerArguments;
use crate::model::server::Server;
use crate::output;

const CACHE_BYTES: usize = 64 << 20;

#[derive(clap::Args)]
pub struct DemoArguments {
    /// The database to make
    #[arg(default_value = "demo")]
    database: String,
    /// A data directory that no server has open, in the place of a running server; it is made when it is not there
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print one JSON value
    #[arg(long)]
    json: bool,
    /// Print no notes
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    server: ServerArguments,
}

pub fn run(arguments: &DemoArguments) -> Result<ExitCode> {
    let filled = match &arguments.data {
        Some(directory) => fill_directory(directory, &arguments.database)?,
        None => {
            let order = Object::from_iter([("database", arguments.database.as_str())]);
            let mut server = Server::connect(&arguments.server, &arguments.database, arguments.quiet)?;
            server.run_job_of_server("demo", order)?
        }
    };
    let text = if arguments.json { format!("{}\n", filled.to_json()) } else { shown(&filled) };
    output::print(&text)?;
    if !arguments.quiet && !arguments.json {
        eprint!("{}", next(&arguments.database));
    }
    Ok(ExitCode::SUCCESS)
}

/// The server's way of filling it, without a server.
fn fill_directory(directory: &Path, database: &str) -> Result<Value> {
    let storage = LocalStorage::open(directory, LocalOptions::default())
        .with_context(|| format!("opening {}", directory.display()))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let options = Options {
        clock: Arc::clone(&clock),
        partitions: 1,
        cache_bytes: CACHE_BYTES,
        scripts: Default::default(),
        query_memory: Default::default(),
        query_temp: None,
    };
    let engine = Arc::new(Engine::open(Arc::new(storage), options).context("opening the database")?);
    quire_server::demo::set_up(&engine, &clock);
    let filled = fill(&engine, database);
    engine.close().context("closing the database")?;
    filled
}

fn fill(engine: &Engine, database: &str) -> Result<Value> {
    let job = match engine.fill_demo(database) {
        Err(EngineError::AlreadyExists { .. }) => bail!("there is a database '{database}' already"),
        job => job.context("making the database")?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(engine.watch_job(&job.id)?);
    let job = engine.job(&job.id)?;
    match job.state {
        JobState::Done => Ok(job.result),
        state => bail!("making the demo data is {}: {}", state.name(), job.error.unwrap_or_default()),
    }
}

fn shown(filled: &Value) -> String {
    let containers = filled.get("containers").and_then(Value::as_object).cloned().unwrap_or_default();
    let width = containers.names().map(str::len).max().unwrap_or(0);
    let line = |(name, items): (&str, &Value)| format!("{name:<width$}  {:>5} items\n", items.to_json());
    let requests = filled.get("requests").map(Value::to_json).unwrap_or_default();
    let lines: String = containers.iter().map(line).collect();
    format!("{lines}a day of workload: {requests} requests\n")
}

fn next(database: &str) -> String {
    format!(
        "next:\n  quire advise {database}\n  quire advise {database} --apply all --finish\n  quire model check {database}\n  quire advise {database}\n"
    )
}
