//! Developer commands: `cargo xtask test | tidy | compat | sdk | dist | schedules | fuzz | crash | isolation | storm | bench`.
//!
//! `test` is all that continuous integration runs: tidy, the workspace's tests, random schedules, the official SDKs against
//! live servers, the packages, then the fuzz targets. It says what it brings to the machine, fetches it into `.test-tools/` and
//! prints one closing line `N passed, N failed`.

mod bench; // measurements against floors taken in the same run

mod command; // running other programs
mod compat; // docs/compatibility.md
mod dist; // packages for those who run it
mod fuzz; // fuzz targets
mod live; // a `quire` process for tests
mod rooms; // folders of a crate in one order of dependency
mod rust_tests; // test binaries, several at a time
mod schedules; // the concurrent core under random schedules
mod sdk; // the official SDKs
mod tidy; // what a reviewer should not have to check
mod tools; // fetching what the suites need
mod words; // names of types that are refused

use anyhow::{Result, bail};

use command::TestCounts;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test"] => test(),
        ["tidy"] => tidy::run(),
        ["compat"] => compat::write(),
        ["dist"] => close(dist::run()?),
        ["dist", "test"] => close(dist::test()?),
        ["dist", "test", program] => close(dist::test_program(program.as_ref())?),
        ["sdk"] => close(sdk::run(&[])?),
        ["sdk", names @ ..] => close(sdk::run(names)?),
        ["schedules"] => close(schedules::test()?),
        ["schedules", "--schedules", count] => close(schedules::explore(count, None)?),
        ["schedules", "--schedules", count, name] => close(schedules::explore(count, Some(name))?),
        ["fuzz"] => close(fuzz::run(None, fuzz::SECONDS)?),
        ["fuzz", "--seconds", seconds] => close(fuzz::run(None, seconds.parse()?)?),
        ["fuzz", target] => close(fuzz::run(Some(target), fuzz::SECONDS)?),
        ["fuzz", target, "--seconds", seconds] => close(fuzz::run(Some(target), seconds.parse()?)?),
        ["crash", kills] => crash(kills),
        ["isolation", "--minutes", minutes] => isolation(minutes),
        ["storm", "--minutes", minutes] => storm("storm", minutes),
        ["storm", "--model", "--minutes", minutes] => storm("model_storm", minutes),
        ["storm", "--refactorings", "--minutes", minutes] => storm("refactoring_storm", minutes),
        ["bench", "base"] => bench::base(),
        ["bench", "compare", arguments @ ..] => bench::compare(arguments),
        ["bench", "profile", workload, arguments @ ..] => bench::profile(workload, arguments),
        ["bench", "instructions"] => bench::instructions(),
        ["bench", "growth"] => bench::growth(),
        ["bench", "space"] => bench::space(),
        ["bench", "scripts"] => bench::scripts(),
        ["bench", "feed"] => bench::feed(),
        ["bench", "model", parts @ ..] => bench::model(parts),
        ["bench", "start"] => dist::times(),
        ["bench", "vectors", arguments @ ..] => bench::vectors(arguments),
        _ => {
            bail!(
                "usage: cargo xtask test | tidy | compat | sdk [python js rust go java] | dist [test [PROGRAM]] | schedules [--schedules N [NAME]] | fuzz [TARGET] [--seconds N] | crash KILLS | \
                 isolation --minutes MINUTES | storm [--model|--refactorings] --minutes MINUTES | bench base|compare [WORKLOAD...]|profile WORKLOAD|instructions|growth|space|scripts|feed|model|start|vectors"
            )
        }
    }
}

fn test() -> Result<()> {
    tools::announce();
    tidy::run()?;
    tools::need_programs()?;
    let mut test_counts = rust_tests::workspace(&[])?;
    test_counts.add(schedules::test()?);
    test_counts.add(sdk::run(&[])?);
    test_counts.add(dist::test()?);
    test_counts.add(fuzz::run(None, fuzz::SECONDS)?);
    // A row of the table whose test was renamed, skipped or not run is a failure like any other.
    let rows_without_test = compat::rows_without_test(&test_counts.names)?;
    let (left_out, rows_without_test): (Vec<String>, Vec<String>) = rows_without_test
        .into_iter()
        .partition(|row| test_counts.left_out.iter().any(|folder| row.starts_with(folder)));
    for row in &rows_without_test {
        println!("docs/compatibility.md: {row}");
    }
    // Machines without the tools of a suite prove less. That is no failure, but it is said.
    for row in &left_out {
        println!("docs/compatibility.md, not proved on this machine: {row}");
    }
    test_counts.unproved_rows = left_out.len() as u64;
    test_counts.failed += rows_without_test.len() as u64;
    close(test_counts)
}

/// The kill -9 loops with as many kills as asked for.
fn crash(kills: &str) -> Result<()> {
    let kills: u32 = kills.parse()?;
    tools::need("strace", "strace")?;
    close(rust_tests::named("crash", &[("QUIRE_CRASH_KILLS", kills.to_string())])?)
}

/// The proof of isolation, for longer than the test command has time: a third with scripts in the server's process, a
/// third with processes of their own, a third with transactions over several partition keys.
fn isolation(minutes: &str) -> Result<()> {
    let seconds = minutes.parse::<u64>()? * 60 / 3;
    let mut command = command::cargo();
    command.args(["test", "--release", "--package", "quire-cli", "--test", "isolation"]);
    command.args(["--", "--nocapture", "--test-threads", "1"]);
    command.env("QUIRE_ISOLATION_SECONDS", seconds.to_string());
    close(command::counted(&mut command, command::cargo_line)?)
}

/// Everything a container does at once, for longer than the test command has time.
fn storm(test: &str, minutes: &str) -> Result<()> {
    let seconds = minutes.parse::<u64>()? * 60;
    let mut command = command::cargo();
    command.args(["test", "--release", "--package", "quire-cli", "--test", test, "--", "--nocapture"]);
    command.env("QUIRE_STORM_SECONDS", seconds.to_string());
    close(command::counted(&mut command, command::cargo_line)?)
}

fn close(test_counts: TestCounts) -> Result<()> {
    for folder in &test_counts.left_out {
        println!("\n{folder} was left out: its tools are not on this machine");
    }
    if test_counts.unproved_rows > 0 {
        println!("{} tests that docs/compatibility.md names did not run", test_counts.unproved_rows);
    }
    println!("\n{} passed, {} failed", test_counts.passed, test_counts.failed);
    if test_counts.failed > 0 || test_counts.passed == 0 {
        bail!("not all tests passed");
    }
    Ok(())
}
