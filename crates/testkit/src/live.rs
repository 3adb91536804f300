//! A server process: started on a free port, killed when dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

pub struct LiveServer {
    pub child: Child,
    /// The server, where the child is its tracer.
    traced: Option<u32>,
    pub port: u16,
    pub ready_after: Duration,
}

impl LiveServer {
    /// Starts a program that prints a line ending in `:PORT/` when it answers.
    pub fn start(program: &Path, arguments: &[&str]) -> Result<LiveServer> {
        LiveServer::run(Command::new(program).args(arguments))
    }

    /// The same, with whatever else the command says.
    pub fn run(command: &mut Command) -> Result<LiveServer> {
        let started = Instant::now();
        let mut child = command.stdout(Stdio::piped()).spawn().context("starting a server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line)?;
        let ready_after = started.elapsed();
        let port =
            line.trim_end().trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        match port {
            Some(port) => Ok(LiveServer { child, traced: None, port, ready_after }),
            None => bail!("the server did not get ready, it said {line:?}"),
        }
    }

    /// `quire serve` on a directory.
    pub fn quire(program: &Path, data: &Path, more: &[&str]) -> Result<LiveServer> {
        LiveServer::start(program, &arguments(data, "warn", more)?)
    }

    /// The same on a disk that fails: the sync of that number of every thread is an error.
    pub fn quire_with_failing_sync(
        program: &Path,
        data: &Path,
        more: &[&str],
        failing: usize,
    ) -> Result<LiveServer> {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fdatasync"]);
        command.arg("-e").arg(format!("inject=fdatasync:error=EIO:when={failing}"));
        command.arg(program).args(arguments(data, "off", more)?);
        let mut live = LiveServer::run(&mut command)?;
        live.traced = Some(child_of(live.child.id()).context("strace has no child")?);
        Ok(live)
    }

    /// Runs a command of `program` against this server: its exit code, what it printed, and what it printed as errors.
    pub fn run_command(&self, program: &str, arguments: &[&str]) -> (i32, String, String) {
        let endpoint = format!("http://127.0.0.1:{}/", self.port);
        let output = Command::new(program).args(arguments).env("QUIRE_ENDPOINT", endpoint).output();
        let output = output.expect("the program runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code().expect("a code"), text(output.stdout), text(output.stderr))
    }

    /// SIGTERM, and waits until it has ended.
    pub fn stop(mut self) -> Result<()> {
        anyhow::ensure!(self.signal("-TERM")?, "the server cannot be told to stop");
        self.child.wait()?;
        Ok(())
    }

    /// SIGKILL: no chance to tidy up.
    pub fn kill(mut self) -> Result<()> {
        anyhow::ensure!(self.signal("-KILL")?, "the server cannot be killed");
        self.child.wait()?;
        Ok(())
    }

    fn signal(&self, signal: &str) -> Result<bool> {
        let pid = self.traced.unwrap_or(self.child.id()).to_string();
        Ok(Command::new("kill").args([signal, &pid]).status()?.success())
    }
}

fn arguments<'a>(data: &'a Path, log: &'a str, more: &[&'a str]) -> Result<Vec<&'a str>> {
    let data = data.to_str().context("a UTF-8 path")?;
    let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--data", data, "--log", log];
    arguments.extend(more);
    Ok(arguments)
}

/// A process whose parent is another one.
fn child_of(parent: u32) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.find(|process| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // Behind the name, which may contain anything: state, parent.
        let parents = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        parents.and_then(|text| text.parse().ok()) == Some(parent)
    })
}

impl Drop for LiveServer {
    fn drop(&mut self) {
        // It may have ended already, and that is as good.
        if let Ok(None) = self.child.try_wait() {
            self.signal("-KILL").ok();
            self.child.kill().ok();
        }
        self.child.wait().ok();
    }
}
