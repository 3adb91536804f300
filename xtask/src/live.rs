//! A `quire` process for tests and measurements: started on a free port, killed when dropped.
//!
//! `quire-testkit` has the same for tests of the crates. This crate builds the workspace and depends on none of its crates.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::check;

pub struct LiveServer {
    child: Child,
    /// `http://127.0.0.1:PORT/`
    pub endpoint: String,
    pub ready_after: Duration,
}

impl LiveServer {
    pub fn start(binary: &Path, arguments: &[&str]) -> Result<LiveServer> {
        LiveServer::run(Command::new(binary).args(["serve", "--listen", "127.0.0.1:0"]).args(arguments))
    }

    /// Runs a command that prints the endpoint when the server is ready.
    pub fn run(command: &mut Command) -> Result<LiveServer> {
        let started = Instant::now();
        let mut child = command.stdout(Stdio::piped()).spawn().context("starting a server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line)?;
        let ready_after = started.elapsed();
        let Some(endpoint) = line.trim_end().strip_prefix("quire is ready on ") else {
            bail!("the server is not ready; it printed {line:?}");
        };
        let endpoint = endpoint.to_owned();
        Ok(LiveServer { child, endpoint, ready_after })
    }

    pub fn port(&self) -> &str {
        self.endpoint.trim_end_matches('/').rsplit(':').next().expect("an endpoint has a port")
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM, and waits for the end of the process.
    pub fn stop(mut self) -> Result<()> {
        check(Command::new("kill").arg(self.child.id().to_string()))?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for LiveServer {
    fn drop(&mut self) {
        // A process that has ended cannot be killed, which is as good.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
