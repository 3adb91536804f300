//! `quire refactor`: what is being refactored in a database, and its end.

use std::process::ExitCode;

use anyhow::Result;
use hyper::Method;
use quire_value::{Object, Value};

use crate::model::Target;
use crate::output;

#[derive(clap::Args)]
pub struct RefactorArguments {
    #[command(subcommand)]
    command: RefactorCommand,
}

#[derive(clap::Subcommand)]
enum RefactorCommand {
    /// List the refactorings of a database
    List(ListArguments),
    /// Let go of the old form: later writes of it are not followed any more
    Finish(EndArguments),
    /// Put back what items had
    Undo(EndArguments),
}

#[derive(clap::Args)]
struct ListArguments {
    #[command(flatten)]
    target: Target,
    /// Print one JSON value
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct EndArguments {
    #[command(flatten)]
    target: Target,
    /// The refactoring, such as r-1
    id: String,
}

pub fn run(arguments: &RefactorArguments) -> Result<ExitCode> {
    match &arguments.command {
        RefactorCommand::List(arguments) => list(arguments)?,
        RefactorCommand::Finish(arguments) => end(arguments, "finish")?,
        RefactorCommand::Undo(arguments) => end(arguments, "undo")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(arguments: &ListArguments) -> Result<()> {
    let mut server = arguments.target.connect()?;
    let found = server.send_below_database("refactorings", Method::GET, "", &[], String::new())?;
    if arguments.json {
        return output::print(&format!("{}\n", found.to_json()));
    }
    let all = found.get("refactorings").and_then(Value::as_array).unwrap_or_default();
    let lines: Vec<String> = all.iter().map(line).collect();
    output::print(&if lines.is_empty() { "nothing is being refactored\n".to_owned() } else { lines.concat() })
}

fn line(own: &Value) -> String {
    let text = |member: &str| own.get(member).and_then(Value::as_str).unwrap_or_default();
    let number = |member: &str| own.get(member).and_then(Value::as_u64).unwrap_or(0);
    format!(
        "{}  {}  {}  {}  {} converted, {} left\n",
        text("id"),
        text("kind"),
        text("container"),
        text("state"),
        number("converted"),
        number("conflictCount")
    )
}

fn end(arguments: &EndArguments, act: &str) -> Result<()> {
    let mut server = arguments.target.connect()?;
    let below = format!("/{}/{act}", arguments.id);
    let result = server.run_job_about("refactorings", &below, Object::new())?;
    let state = result.get("state").and_then(Value::as_str).unwrap_or_default();
    output::print(&format!("{} is {state}\n", arguments.id))
}
