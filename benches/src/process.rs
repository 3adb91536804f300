//! Child processes that say when they are ready, and what they use.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

pub struct Running {
    child: Child,
    pub port: u16,
    pub ready_after: Duration,
}

impl Running {
    /// Starts a program that prints a line ending in `:PORT/` when it answers.
    pub fn start(program: &Path, arguments: &[&str]) -> Result<Running> {
        let started = Instant::now();
        let mut child = Command::new(program)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line)?;
        let ready_after = started.elapsed();
        let port =
            line.trim_end().trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        match port {
            Some(port) => Ok(Running { child, port, ready_after }),
            None => bail!("the server said {line:?}"),
        }
    }

    /// User and system time used so far.
    pub fn cpu(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        Ok(Duration::from_millis(ticks * 10)) // USER_HZ is 100 on Linux
    }

    pub fn resident_bytes(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
        let kilobytes: u64 = line.split_whitespace().nth(1).context("no VmRSS figure")?.parse()?;
        Ok(kilobytes * 1024)
    }

    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have been killed already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
