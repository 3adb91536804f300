//! This test binary run again, as a child that can be killed, traced or starved.

use std::process::Command;

const ROLE: &str = "QUIRE_TEST_CHILD";

/// A command that runs the test named `role` in a process of its own.
pub fn command(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args([role, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command.env("RUST_BACKTRACE", "0");
    command
}

/// Whether this process was started to play the role.
pub fn plays(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|played| played == role)
}
