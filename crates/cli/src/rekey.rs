//! `quire rekey`: another partition key for a container, while it is used.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hyper::Method;
use quire_value::{Limits, Object, Value, text};

use crate::client::ServerArguments;
use crate::model::server::Server;
use crate::{EXIT_FOUND, output};

#[derive(clap::Args)]
pub struct RekeyArguments {
    /// The database and the container, such as shop/orders
    #[arg(value_name = "DATABASE/CONTAINER")]
    location: String,
    /// The paths of the new partition key, with commas between them
    #[arg(long, value_name = "PATHS", required_unless_present_any = ["finish", "undo"])]
    partition_key: Option<String>,
    /// Which of several items is taken that would have the same id, or the same unique values, under the new key
    #[arg(long, value_name = "WHICH", value_parser = ["first", "newest", "skip"])]
    on_conflict: Option<String>,
    /// The model for the new key, as JSON, where the model of the database names the container
    #[arg(long, value_name = "FILE")]
    model: Option<std::path::PathBuf>,
    /// Say what it would do; nothing is changed
    #[arg(long, conflicts_with_all = ["finish", "undo"])]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Delete the old container: after that it cannot be undone
    #[arg(long, conflicts_with_all = ["undo", "partition_key"])]
    finish: bool,
    /// Give the container its old key back, with what was written since
    #[arg(long, conflicts_with = "partition_key")]
    undo: bool,
    /// Print no notes
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    server: ServerArguments,
}

pub fn run(arguments: &RekeyArguments) -> Result<ExitCode> {
    let named = arguments
        .location
        .split_once('/')
        .filter(|(database, name)| !database.is_empty() && !name.is_empty());
    let (database, container) = named.context("the container is named as DATABASE/CONTAINER")?;
    let mut server = Server::connect(&arguments.server, database, arguments.quiet)?;
    if arguments.finish {
        return finish(arguments, &mut server, container);
    }
    if arguments.undo {
        return undo(&mut server, container);
    }
    let order = order(arguments, container)?;
    let found = server.dry_run_about("refactorings", Method::POST, Value::Object(order.clone()).to_json())?;
    output::print(&shown(&found))?;
    if arguments.dry_run || !agrees(arguments, &format!("Change the partition key of {container}?"))? {
        return Ok(ExitCode::SUCCESS);
    }
    start(arguments, &mut server, container, order)
}

fn order(arguments: &RekeyArguments, container: &str) -> Result<Object> {
    let paths = arguments.partition_key.as_deref().unwrap_or_default();
    let paths: Vec<Value> = paths.split(',').map(|path| Value::from(path.trim())).collect();
    let mut key = Object::new();
    key.set("kind", if paths.len() > 1 { "MultiHash" } else { "Hash" });
    key.set("paths", paths);
    key.set("version", 2);
    let mut order = Object::new();
    order.set("kind", "rekey");
    order.set("container", container);
    order.set("partitionKey", key);
    order.set("finish", "auto");
    if let Some(which) = &arguments.on_conflict {
        order.set("onConflict", which.as_str());
    }
    if let Some(file) = &arguments.model {
        let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let model = text::parse(&bytes, Limits::default());
        order.set("model", model.map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?);
    }
    Ok(order)
}

/// How the items would be spread, and what would be in the way.
fn shown(found: &Value) -> String {
    let number = |own: &Value, member: &str| own.get(member).and_then(Value::as_u64).unwrap_or(0);
    let mut text =
        format!("{} items under {} partition keys\n", number(found, "items"), number(found, "partitionKeys"));
    if let Some(largest) = found.get("largest") {
        let key = largest.get("partitionKey").map_or(String::new(), Value::to_json);
        let percent = 100.0 * number(largest, "items") as f64 / number(found, "items").max(1) as f64;
        text += &format!("the largest is {key}: {} items, {percent:.1} %\n", number(largest, "items"));
    }
    let left = number(found, "wouldLeave");
    if left > 0 {
        text += &format!("{left} items are in the way of others, or have no place:\n");
        let conflicts = found.get("conflicts").and_then(Value::as_array).unwrap_or_default();
        text += &conflicts.iter().take(3).map(conflict).collect::<String>();
    }
    text
}

fn conflict(own: &Value) -> String {
    let key = own.get("partitionKey").map_or(String::new(), Value::to_json);
    let text = |member: &str| own.get(member).and_then(Value::as_str).unwrap_or_default();
    format!("  {} {key}: {}\n", text("id"), text("reason"))
}

fn agrees(arguments: &RekeyArguments, question: &str) -> Result<bool> {
    if arguments.yes {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        bail!("nobody can be asked: --yes does it without asking");
    }
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}

fn start(
    arguments: &RekeyArguments,
    server: &mut Server,
    container: &str,
    order: Object,
) -> Result<ExitCode> {
    let result = server.run_job_about("refactorings", "", order)?;
    let text = |member: &str| result.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (id, state) = (text("refactoring"), text("state"));
    if state == "finished" {
        let location = &arguments.location;
        output::print(&format!(
            "{container} has the partition key {}\nthe old container is {container}~old, until `quire rekey {location} --finish`\n",
            arguments.partition_key.as_deref().unwrap_or_default()
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let own =
        server.send_below_database("refactorings", Method::GET, &format!("/{id}"), &[], String::new())?;
    let conflicts = own.get("conflicts").and_then(Value::as_array).unwrap_or_default();
    let count = own.get("conflictCount").and_then(Value::as_u64).unwrap_or(0);
    let listed: String = conflicts.iter().take(10).map(conflict).collect();
    output::print(&format!(
        "{id} is {state}: {count} items are in the way of others\n{listed}\
         It goes on when they are changed or deleted; --undo ends it, --on-conflict says which ones are taken.\n"
    ))?;
    Ok(ExitCode::from(EXIT_FOUND))
}

fn finish(arguments: &RekeyArguments, server: &mut Server, container: &str) -> Result<ExitCode> {
    let old = format!("{container}~old");
    if agrees(arguments, &format!("Delete {old}? After that it cannot be undone."))? {
        server.delete_container(&old)?;
        output::print(&format!("{old} is deleted\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The newest one of the container.
fn undo(server: &mut Server, container: &str) -> Result<ExitCode> {
    let all = server.send_below_database("refactorings", Method::GET, "", &[], String::new())?;
    let all = all.get("refactorings").and_then(Value::as_array).unwrap_or_default();
    let text =
        |own: &Value, member: &str| own.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_own = |own: &&Value| text(own, "kind") == "rekey" && text(own, "container") == container;
    let own = all.iter().find(is_own).with_context(|| format!("{container} got no other partition key"))?;
    let id = text(own, "id");
    let result = server.run_job_about("refactorings", &format!("/{id}/undo"), Object::new())?;
    output::print(&format!("{id} is {}\n", text(&result, "state")))?;
    Ok(ExitCode::SUCCESS)
}
