//! A server process: started on a free port, killed when dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

pub struct Live {
    pub child: Child,
    pub port: u16,
    pub ready_after: Duration,
}

impl Live {
    /// Starts a program that prints a line ending in `:PORT/` when it answers.
    pub fn start(program: &Path, arguments: &[&str]) -> Result<Live> {
        Live::run(Command::new(program).args(arguments))
    }

    /// The same, with whatever else the command says.
    pub fn run(command: &mut Command) -> Result<Live> {
        let started = Instant::now();
        let mut child = command.stdout(Stdio::piped()).spawn().context("starting a server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line)?;
        let ready_after = started.elapsed();
        let port =
            line.trim_end().trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        match port {
            Some(port) => Ok(Live { child, port, ready_after }),
            None => bail!("the server did not get ready, it said {line:?}"),
        }
    }

    /// `quire serve` on a directory.
    pub fn quire(program: &Path, data: &Path, more: &[&str]) -> Result<Live> {
        let data = data.to_str().context("a UTF-8 path")?;
        let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--data", data, "--log", "warn"];
        arguments.extend(more);
        Live::start(program, &arguments)
    }

    /// SIGTERM, and waits until it has ended.
    pub fn stop(mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status()?;
        anyhow::ensure!(told.success(), "the server cannot be told to stop");
        self.child.wait()?;
        Ok(())
    }

    /// SIGKILL: no chance to tidy up.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // It may have ended already, and that is as good.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
