//! Fuzz targets of `fuzz/`, by libFuzzer with coverage counters that the stable compiler can make.
//!
//! Inputs that reach something new are kept in the target directory, so a later run goes on where one ended. An input that
//! fails is kept there, too, and shown.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use crate::command::{TestCounts, cargo, check, root, target_dir};
use crate::tools;

/// In the test command, each target.
pub const SECONDS: u64 = 30;

/// What cargo-fuzz sets, but for the sanitizers, which only a nightly compiler has.
const FLAGS: &[&str] = &[
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];

/// A target that reaches fewer places was built without counters, or refuses everything at its door.
const PLACES_MIN: u64 = 50;

/// Runs the named target, or all: as many at a time as there are processors.
pub fn run(name: Option<&str>, seconds: u64) -> Result<TestCounts> {
    let mut targets = targets()?;
    if let Some(name) = name {
        targets.retain(|target| target == name);
    }
    if targets.is_empty() {
        bail!("there is no fuzz target {:?}", name.unwrap_or_default());
    }
    let folder = build()?;
    targets.reverse();
    let (waiting, total) = (Mutex::new(targets), Mutex::new(TestCounts::default()));
    let work = || -> Result<()> {
        loop {
            let Some(target) = waiting.lock().expect("no thread panicked").pop() else { return Ok(()) };
            let test_counts = run_one(&folder.join(&target), &target, seconds)?;
            total.lock().expect("no thread panicked").add(test_counts);
        }
    };
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panicked"))
    })?;
    Ok(total.into_inner().expect("no thread panicked"))
}

fn targets() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join("fuzz/fuzz_targets"))? {
        found.extend(entry?.path().file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    found.sort();
    Ok(found)
}

/// Where the built targets are. Naming the host's platform keeps the flags from build scripts and macros.
fn build() -> Result<PathBuf> {
    tools::need("c++", "g++")?;
    let version = Command::new("rustc").arg("-vV").output().context("asking rustc for its host")?;
    let version = String::from_utf8(version.stdout)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let folder = target_dir().join("fuzz");
    let mut command = cargo();
    command.args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", host]);
    command.env("CARGO_TARGET_DIR", &folder).env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    check(&mut command)?;
    Ok(folder.join(host).join("release"))
}

fn run_one(program: &std::path::Path, target: &str, seconds: u64) -> Result<TestCounts> {
    let corpus = target_dir().join("fuzz/corpus").join(target);
    let failures = target_dir().join("fuzz/failures");
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&failures)?;
    let mut command = Command::new(program);
    command.arg(format!("-max_total_time={seconds}"));
    command.args(["-timeout=25", "-rss_limit_mb=2048", "-max_len=4096", "-print_final_stats=1"]);
    command.arg(format!("-artifact_prefix={}/{target}-", failures.display()));
    command.arg(corpus).arg(root().join("fuzz/seeds").join(target)).current_dir(root());
    let output = command.output().with_context(|| format!("starting {target}"))?;
    Ok(report(target, &output))
}

fn report(target: &str, output: &Output) -> TestCounts {
    let text = String::from_utf8_lossy(&output.stderr);
    let runs = number_after(&text, "stat::number_of_executed_units:");
    let places = number_after(&text, " cov:");
    if output.status.success() && places >= Some(PLACES_MIN) {
        let [runs, places] = [runs, places].map(Option::unwrap_or_default);
        println!("fuzz {target} ... ok: {runs} inputs, {places} places reached");
        return TestCounts::counted(1, 0);
    }
    println!(
        "--- fuzz {target}\n{text}\nfuzz {target} ... FAILED: {}, {places:?} places reached",
        output.status
    );
    TestCounts::counted(0, 1)
}

/// The last one.
fn number_after(text: &str, words: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(words)?;
    rest.trim_start().split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn failed(exit: i32, stderr: &str) -> u64 {
        let output = Output { status: ExitStatus::from_raw(exit), stdout: Vec::new(), stderr: stderr.into() };
        report("a", &output).failed
    }

    #[test]
    fn a_target_that_fails_or_sees_nothing_fails() {
        let closing = "#9 DONE   cov: 1234 ft: 5\nstat::number_of_executed_units: 99\n";
        assert_eq!(failed(0, closing), 0);
        assert_eq!(failed(77 << 8, closing), 1);
        assert_eq!(failed(0, "#9 DONE   ft: 5\nstat::number_of_executed_units: 99\n"), 1, "no counters");
        assert_eq!(failed(0, &closing.replace("1234", "3")), 1, "no way in");
    }

    #[test]
    fn every_target_is_built_and_has_seeds() {
        let manifest = std::fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        for target in targets().unwrap() {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target}");
            let seeds = std::fs::read_dir(root().join("fuzz/seeds").join(&target)).unwrap();
            assert!(seeds.count() > 0, "{target}");
        }
    }
}
