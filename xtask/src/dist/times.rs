//! `cargo xtask bench start`: how long the packed program takes to be ready, the helpers for tests to start and stop it, and
//! what fifty of them hold in memory.
//!
//! Times are those of a clock: run it on a machine that does nothing else. Each figure is the median of [`ROUNDS`], with the
//! worst beside it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Packed, check};
use crate::command::target_dir;
use crate::live::LiveServer;

const ROUNDS: usize = 20;
const SERVERS: usize = 50;

/// Printed by the helpers' programs: milliseconds of a start and of a stop.
const PYTHON: &str = "
import quire, time
for _ in range(ROUNDS):
    server, begin = quire.Server(), time.perf_counter()
    server.start()
    ready = time.perf_counter()
    server.stop()
    print((ready - begin) * 1000, (time.perf_counter() - ready) * 1000)
";
const JAVASCRIPT: &str = "
const quire = require('quire-db');
(async () => {
  for (let round = 0; round < ROUNDS; round += 1) {
    const begin = performance.now();
    const server = await quire.start();
    const ready = performance.now();
    await server.stop();
    console.log(ready - begin, performance.now() - ready);
  }
})();
";

pub fn run(program: &Path, packed: &Packed) -> Result<()> {
    let scratch = target_dir().join("bench-start");
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch)?;
    }
    std::fs::create_dir_all(&scratch)?;
    let python = check::install_wheel(packed, &check::scratch("python")?)?;
    let folder = check::scratch("npm")?;
    check::install_npm(packed, &folder)?;
    println!("load average before: {}", load_average()?);
    println!("\n| measured | median | worst | bound | met |\n|---|---|---|---|---|");
    emulator(program, &scratch)?;
    helper("Python", Command::new(&python).arg("-c").arg(with_rounds(PYTHON)), &scratch)?;
    let mut node = Command::new("node");
    helper("npm", node.arg("--eval").arg(with_rounds(JAVASCRIPT)).current_dir(&folder), &scratch)?;
    fifty(program, &scratch)?;
    println!("\nload average after: {}", load_average()?);
    Ok(())
}

fn with_rounds(program: &str) -> String {
    program.replace("ROUNDS", &ROUNDS.to_string())
}

/// A first start makes a certificate, a later one finds it.
fn emulator(program: &Path, scratch: &Path) -> Result<()> {
    for (kind, flag) in [("in memory", "--ephemeral"), ("with a directory", "--data")] {
        let (mut first, mut later) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let home = scratch.join(format!("emulator{flag}-{round}"));
            let mut command = Command::new(program);
            command.args(["emulator", "--listen", "127.0.0.1:0", "--log", "error", flag]);
            if flag == "--data" {
                command.arg(home.join("data"));
            }
            command.env("XDG_STATE_HOME", &home);
            for times in [&mut first, &mut later] {
                let server = LiveServer::run(&mut command)?;
                times.push(milliseconds(server.ready_after));
                server.stop()?;
            }
        }
        row(&format!("emulator {kind}: ready at its first start"), first, 600.0);
        row(&format!("emulator {kind}: ready with a certificate made before"), later, 150.0);
    }
    Ok(())
}

fn helper(name: &str, command: &mut Command, scratch: &Path) -> Result<()> {
    let output = command.env("XDG_STATE_HOME", scratch).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("starting the helper of {name}"))?;
    ensure!(output.status.success(), "the helper of {name} ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let column = |index: usize| -> Result<Vec<f64>> {
        let of_line = |line: &str| {
            let word = line.split_whitespace().nth(index);
            word.and_then(|word| word.parse().ok()).with_context(|| format!("{line:?} is no pair of times"))
        };
        text.lines().map(of_line).collect()
    };
    row(&format!("helper of {name}: start until ready"), column(0)?, 100.0);
    row(&format!("helper of {name}: stop"), column(1)?, 150.0);
    Ok(())
}

/// All at once. What they share counts once.
fn fifty(program: &Path, scratch: &Path) -> Result<()> {
    let start = || {
        let mut command = Command::new(program);
        command.args(["emulator", "--listen", "127.0.0.1:0", "--log", "error", "--ephemeral"]);
        LiveServer::run(command.env("XDG_STATE_HOME", scratch))
    };
    let begin = Instant::now();
    let servers: Vec<LiveServer> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..SERVERS).map(|_| scope.spawn(start)).collect();
        let joined = starting.into_iter().map(|thread| thread.join().expect("a start does not panic"));
        joined.collect::<Result<_>>()
    })?;
    let ready = milliseconds(begin.elapsed());
    let kilobytes: u64 = servers.iter().map(|server| memory_kb(server.process())).sum::<Result<_>>()?;
    let megabytes = kilobytes as f64 / 1000.0;
    let met = if megabytes < 1000.0 { "yes" } else { "**no**" };
    println!("| {SERVERS} servers: memory of all | {megabytes:.0} MB | | 1000 MB | {met} |");
    println!("| {SERVERS} servers at once: all ready | {ready:.0} ms | | | |");
    servers.into_iter().try_for_each(LiveServer::stop)
}

/// The process's part of the memory that it uses.
fn memory_kb(process: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let line = text.lines().find(|line| line.starts_with("Pss:")).context("the kernel gives no Pss")?;
    line.split_whitespace().nth(1).context("a number")?.parse().context("a number")
}

fn load_average() -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    Ok(text.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn row(what: &str, mut times: Vec<f64>, bound: f64) {
    times.sort_by(f64::total_cmp);
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    let met = if median < bound { "yes" } else { "**no**" };
    println!("| {what} | {median:.0} ms | {worst:.0} ms | {bound:.0} ms | {met} |");
}
