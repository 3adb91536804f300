//! Measurements against floors and peers that are taken in the same run: see `benches/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{build_server, cargo, check, target_dir};
use crate::tools;

pub fn base() -> Result<()> {
    run("base", |_| Ok(()))
}

/// Sixteen workloads, or those that are named, against PostgreSQL and any other server of the protocol.
pub fn compare(arguments: &[&str]) -> Result<()> {
    run("compare", |command| {
        command.args(arguments).arg("--out").arg(results());
        tools::postgres()
    })
}

/// Where the server spends its time under one workload.
pub fn profile(workload: &str, arguments: &[&str]) -> Result<()> {
    tools::need("perf", "linux-perf")?;
    run("profile", |command| {
        command.arg(workload).args(arguments).arg("--out").arg(results());
        Ok(())
    })
}

fn results() -> PathBuf {
    target_dir().join("bench")
}

/// The same queries over 10,000 and 1,000,000 items.
pub fn growth() -> Result<()> {
    run("growth", |_| Ok(()))
}

/// What indexing costs in CPU and on disk.
pub fn space() -> Result<()> {
    run("space", |_| Ok(()))
}

/// Reading the change feed, and what readers and the sweep cost writers.
pub fn feed() -> Result<()> {
    run("feed", |_| Ok(()))
}

/// Procedures, batches and user-defined functions, against PostgreSQL.
pub fn scripts() -> Result<()> {
    run("scripts", |_| tools::postgres())
}

/// Links, copies and counts, against PostgreSQL with a foreign key and a trigger; all parts, or those that are named.
pub fn model(parts: &[&str]) -> Result<()> {
    run("model", |command| {
        command.args(parts);
        tools::postgres()
    })
}

/// Instructions of the engine per operation, by callgrind: what a run of many takes more than a run of none.
pub fn instructions() -> Result<()> {
    const COUNT: u64 = 1_000;
    tools::need("valgrind", "valgrind")?;
    check(cargo().args(["build", "--release", "--package", "quire-engine", "--example", "instructions"]))?;
    let program = target_dir().join("release").join("examples").join("instructions");
    let operations = ["point-read", "equality", "create"];
    let recorded = operations.iter().map(|operation| format!("{operation}-recorded"));
    for operation in operations.iter().map(ToString::to_string).chain(recorded) {
        let operation = operation.as_str();
        let many = counted_instructions(&program, operation, COUNT)?;
        let none = counted_instructions(&program, operation, 0)?;
        println!("{operation}: {} instructions", many.saturating_sub(none) / COUNT);
    }
    Ok(())
}

fn counted_instructions(program: &Path, operation: &str, count: u64) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    let output = command.arg(program).args([operation, &count.to_string()]).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split_once("Collected : "));
    let (_, figure) = line.with_context(|| format!("callgrind says no figure: {text}"))?;
    Ok(figure.trim().parse()?)
}

/// Recall and CPU of vector search; takes how many vectors, which data, and a directory to keep the store in.
pub fn vectors(arguments: &[&str]) -> Result<()> {
    let bench = ["bench", "--package", "quire-engine", "--bench", "vectors", "--"];
    check(cargo().args(bench).args(arguments))
}

fn run(name: &str, complete: impl FnOnce(&mut Command) -> Result<()>) -> Result<()> {
    let server = build_server()?;
    check(cargo().args(["build", "--release", "--package", "benches"]))?;
    let mut command = Command::new(target_dir().join("release").join("benches"));
    command.arg(name).arg(server);
    complete(&mut command)?;
    check(&mut command)
}
