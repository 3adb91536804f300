//! This test binary run again, as a child that can be killed, traced or starved.

#![allow(dead_code, reason = "every test file uses a part of it")]

use quire_storage_local::IndexRows;
use std::process::Command;

const ROLE: &str = "QUIRE_TEST_CHILD";
const FORM: &str = "QUIRE_TEST_INDEX_ROWS";

/// A command that runs the test named `role` in a process of its own.
pub fn command(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args([role, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command.env("RUST_BACKTRACE", "0");
    command
}

/// Tells a child how index rows are kept.
pub fn keeps(command: &mut Command, form: IndexRows) {
    command.env(FORM, if form == IndexRows::Plain { "plain" } else { "packed" });
}

/// How this child was told to keep index rows.
pub fn form() -> IndexRows {
    match std::env::var(FORM).as_deref() {
        Ok("plain") => IndexRows::Plain,
        _ => IndexRows::Packed,
    }
}

/// Whether this process was started to play the role.
pub fn plays(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|played| played == role)
}
