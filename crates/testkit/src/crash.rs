//! Crashes: killing a child process, and replaying what it asked of the disk.
//!
//! [`run_and_kill`] ends a child with SIGKILL in the middle of its work; what it said until then counts as
//! acknowledged. [`trace`] records every write and sync of a child and rebuilds its files as a power cut at any sync
//! would have left them.

pub mod trace;

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// When a child dies.
#[derive(Clone, Copy, Debug)]
pub enum Kill {
    /// So long after it was started.
    After(Duration),
    /// Once it has said so many lines.
    AfterLines(usize),
}

/// How many kills a loop makes: `QUIRE_CRASH_KILLS`, else `few`.
pub fn kill_count(few: usize) -> usize {
    std::env::var("QUIRE_CRASH_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

/// Runs a child until it is killed, and gives the lines it said. A child that ends by itself is an error.
pub fn run_and_kill(command: &mut Command, kill: Kill) -> Result<Vec<String>> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("starting the child")?;
    let output = child.stdout.take().context("the child's output")?;
    let mut reader = BufReader::new(output);
    let mut lines = Vec::new();
    let ended = match kill {
        Kill::After(time) => wait(&mut child, time)?,
        Kill::AfterLines(count) => !read_lines(&mut reader, count, &mut lines)?,
    };
    anyhow::ensure!(!ended, "the child ended by itself: {:?}", child.wait());
    child.kill().context("killing the child")?;
    child.wait().context("waiting for the child")?;
    let mut rest = String::new();
    reader.read_to_string(&mut rest).context("reading the child's output")?;
    // A last line without its end was being printed when the child was killed.
    let complete = rest.rfind('\n').map_or("", |end| &rest[..end]);
    lines.extend(complete.lines().map(str::to_owned));
    Ok(lines)
}

/// Whether the child ended within the time.
fn wait(child: &mut Child, time: Duration) -> Result<bool> {
    let start = Instant::now();
    while start.elapsed() < time {
        if child.try_wait().context("waiting for the child")?.is_some() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

/// Whether there were so many lines.
fn read_lines(reader: &mut impl BufRead, count: usize, lines: &mut Vec<String>) -> Result<bool> {
    while lines.len() < count {
        let mut line = String::new();
        if reader.read_line(&mut line).context("reading the child's output")? == 0 {
            return Ok(false);
        }
        lines.push(line.trim_end().to_owned());
    }
    Ok(true)
}
