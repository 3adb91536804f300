//! Runs this test binary again as a child process that can be killed, traced or limited.

#![allow(dead_code, reason = "every test file uses a part of it")]

use quire_storage_local::IndexRows;
use std::process::Command;

const ROLE: &str = "QUIRE_TEST_CHILD";
const FORM: &str = "QUIRE_TEST_INDEX_ROWS";

/// A command that runs the test named `role` in its own process.
pub fn command(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args([role, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command.env("RUST_BACKTRACE", "0");
    command
}

/// Tells a child the form of index rows.
pub fn set_form(command: &mut Command, form: IndexRows) {
    command.env(FORM, if form == IndexRows::Plain { "plain" } else { "packed" });
}

/// The form of index rows of this child.
pub fn form() -> IndexRows {
    match std::env::var(FORM).as_deref() {
        Ok("plain") => IndexRows::Plain,
        _ => IndexRows::Packed,
    }
}

/// Whether this process was started for the role.
pub fn is_role(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|played| played == role)
}
