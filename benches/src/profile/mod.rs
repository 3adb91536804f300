//! Where a server spends its processor time under one workload.
//!
//! `perf` samples the server's processes and unwinds their stacks, by the unwind tables of the release build, or by frame
//! pointers for a build that has them. The folded stacks are written to a file (for flame graphs); shares by group, system calls
//! and functions are printed. What is built is what is run otherwise: inlined functions count as their callers.

mod folded; // stacks of perf
mod groups; // what a sample is counted as

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use quire_testkit::live::LiveServer;

use self::folded::Stacks;
use crate::compare;
use crate::process::{cpu_with_children, descendants, finish_background_work};

const SAMPLES_A_SECOND: u64 = 397;

struct Options {
    connections: usize,
    seconds: u64,
    out: PathBuf,
    /// `dwarf` or `fp`.
    unwind: String,
}

impl Options {
    fn parse(arguments: &[&str]) -> Result<Options> {
        let mut options =
            Options { connections: 16, seconds: 10, out: PathBuf::from("."), unwind: "dwarf".to_owned() };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let value = *words.next().with_context(|| format!("{word} has no value"))?;
            match *word {
                "--connections" => options.connections = value.parse()?,
                "--seconds" => options.seconds = value.parse()?,
                "--out" => options.out = PathBuf::from(value),
                "--unwind" => options.unwind = value.to_owned(),
                _ => bail!("unknown option {word}"),
            }
        }
        let known = ["dwarf", "fp"].contains(&options.unwind.as_str());
        ensure!(known, "stacks are unwound by dwarf or fp, not {:?}", options.unwind);
        Ok(options)
    }
}

pub fn run(binary: &Path, workload: &str, arguments: &[&str]) -> Result<()> {
    let options = Options::parse(arguments)?;
    let workload = compare::named(workload)?;
    let folder = tempfile::tempdir()?;
    let quire = LiveServer::quire(binary, &folder.path().join("data"), &["--partitions", "1"])?;
    compare::load(quire.port)?;
    // Caches are full and script workers are there.
    let warming = Duration::from_secs(1);
    compare::prepare(quire.port, workload, warming, 0)?;
    compare::drive(quire.port, workload, options.connections, warming, 0)?;
    let seconds = Duration::from_secs(options.seconds);
    compare::prepare(quire.port, workload, seconds, 1)?;
    finish_background_work(quire.child.id())?;
    let data = folder.path().join("perf.data");
    let mut perf = record(&quire, &options, &data)?;
    let before = cpu_with_children(quire.child.id())?;
    let load = compare::drive(quire.port, workload, options.connections, seconds, 1)?;
    let used = cpu_with_children(quire.child.id())? - before;
    Command::new("kill").args(["-INT", &perf.id().to_string()]).status()?;
    perf.wait()?;
    let stacks = Stacks::read(&data)?;
    std::fs::create_dir_all(&options.out)?;
    let path = options.out.join(format!("{}.folded", workload.name));
    std::fs::write(&path, stacks.folded())?;
    println!(
        "{}: {} connection(s), {:.0}/s, {:.1} us of CPU per operation, {} samples of {:.0}; stacks in {}\n",
        workload.title,
        options.connections,
        load.rate(),
        used.as_secs_f64() * 1e6 / load.requests as f64,
        stacks.samples(),
        used.as_secs_f64() * SAMPLES_A_SECOND as f64,
        path.display()
    );
    print!("{}", stacks.shares());
    Ok(())
}

fn record(quire: &LiveServer, options: &Options, data: &Path) -> Result<std::process::Child> {
    // A stack of the server's deepest calls; what lies above is cut off.
    const STACK_BYTES: u32 = 24_576;
    let graph = match options.unwind.as_str() {
        "dwarf" => format!("dwarf,{STACK_BYTES}"),
        other => other.to_owned(),
    };
    let mut processes = vec![quire.child.id()];
    processes.extend(descendants(quire.child.id())?);
    let processes: Vec<String> = processes.iter().map(u32::to_string).collect();
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-e", "cpu-clock", "-F", &SAMPLES_A_SECOND.to_string()]);
    command.args(["--call-graph", &graph, "-p", &processes.join(","), "-o"]).arg(data);
    let perf = command.stdout(Stdio::null()).spawn().context("perf is needed (Debian: linux-perf)")?;
    // It makes its file first and then looks at each thread; on a busy machine that takes a while.
    for _ in 0..100 {
        if data.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_secs(1));
    Ok(perf)
}
