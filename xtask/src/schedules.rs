//! The concurrent core under an explorer of schedules: `tests/schedules.rs` of the engine and of the embedded storage, which
//! only a feature builds.
//!
//! The features are asked for beside the whole workspace, so everything else is as the other tests have built it.

use anyhow::Result;

use crate::command::{TestCounts, cargo, cargo_line, counted};
use crate::rust_tests;

const TARGET: &[&str] = &[
    "test",
    "--release",
    "--workspace",
    "--features",
    "quire-engine/schedules,quire-storage-local/schedules",
    "--test",
    "schedules",
];

/// As many schedules as the test command has time for, and all known races.
pub fn test() -> Result<TestCounts> {
    let mut build = cargo();
    build.args(TARGET);
    rust_tests::built_and_run(&mut build)
}

/// So many schedules of a program, or of each. `QUIRE_SCHEDULES_SEED` chooses others.
pub fn explore(schedules: &str, program: Option<&str>) -> Result<TestCounts> {
    let schedules: u64 = schedules.parse()?;
    let tests = program.map_or_else(|| "holds_under".to_owned(), |name| format!("{name}::holds_under"));
    let mut command = cargo();
    command.args(TARGET).args(["--", "--nocapture", &tests]);
    command.env("QUIRE_SCHEDULES", schedules.to_string());
    counted(&mut command, cargo_line)
}
