//! PostgreSQL beside us, where it is installed, driven by its own load generator.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::client::{Load, LoadEnd, percentiles};

const BINARIES: &str = "/usr/lib/postgresql/15/bin";
const PORT: &str = "54987";
const SECONDS: &str = "3";

/// A server on a scratch directory, stopped when dropped. PostgreSQL does not run as root, so its own user runs it.
pub struct Postgres {
    folder: tempfile::TempDir,
}

impl Postgres {
    /// `None` where PostgreSQL 15 is not installed. It has its defaults and a Unix socket.
    pub fn start() -> Result<Option<Postgres>> {
        Postgres::start_with("-c listen_addresses=''")
    }

    /// As a competent user sets it up for a machine of this size, durable, over TCP.
    pub fn start_tuned() -> Result<Option<Postgres>> {
        Postgres::start_with(
            "-c listen_addresses=127.0.0.1 -c shared_buffers=1GB -c effective_cache_size=8GB -c work_mem=32MB \
             -c maintenance_work_mem=256MB -c random_page_cost=1.1 -c max_wal_size=4GB -c wal_compression=on",
        )
    }

    fn start_with(settings: &str) -> Result<Option<Postgres>> {
        if !Path::new(BINARIES).join("initdb").exists() {
            return Ok(None);
        }
        let postgres = Postgres { folder: tempfile::tempdir()? };
        let home = postgres.folder.path().to_str().context("a UTF-8 path")?;
        ensure!(
            Command::new("chown").args(["-R", "postgres", home]).status()?.success(),
            "there is no user postgres"
        );
        postgres.run("initdb", &["--auth=trust", "--no-sync", "--pgdata", &postgres.data()])?;
        let options = format!("-p {PORT} -k {home} {settings}");
        let log = format!("{home}/log");
        postgres.run(
            "pg_ctl",
            &["start", "--wait", "--pgdata", &postgres.data(), "--log", &log, "--options", &options],
        )?;
        postgres.sql("CREATE TABLE items (id bigserial PRIMARY KEY, body jsonb NOT NULL)")?;
        Ok(Some(postgres))
    }

    /// Durable inserts per second.
    pub fn insert_rate(&self, connections: usize) -> Result<f64> {
        let script = self.folder.path().join("insert.sql");
        let filling = "x".repeat(950);
        std::fs::write(
            &script,
            format!("INSERT INTO items (body) VALUES ('{{\"pk\":\"p\",\"filling\":\"{filling}\"}}');\n"),
        )?;
        let home = self.folder.path().to_str().context("a UTF-8 path")?;
        self.rate(&script, home, connections, SECONDS)
    }

    /// Runs of a script per second, over TCP.
    pub fn query_rate(&self, text: &str, connections: usize) -> Result<f64> {
        let script = self.folder.path().join("query.sql");
        std::fs::write(&script, text)?;
        self.rate(&script, "127.0.0.1", connections, "2")
    }

    /// What a query gives, one row a line, without headings.
    pub fn rows(&self, text: &str) -> Result<String> {
        let home = self.folder.path().to_str().context("a UTF-8 path")?;
        self.run("psql", &["-h", home, "-p", PORT, "-q", "-A", "-t", "-c", text, "postgres"])
    }

    /// Fills a table from tab-separated text.
    pub fn copy(&self, table: &str, rows: &str) -> Result<()> {
        let file = self.folder.path().join("rows.txt");
        std::fs::write(&file, rows)?;
        let file = file.to_str().context("a UTF-8 path")?;
        self.sql(&format!("COPY {table} FROM '{file}'"))
    }

    /// Runs scripts by their weights over TCP with prepared statements, and reads how long each run took.
    pub fn load(&self, scripts: &[(String, u32)], connections: usize, until: LoadEnd) -> Result<Load> {
        let logs = self.folder.path().join("latencies");
        std::fs::create_dir_all(&logs)?;
        let mut arguments: Vec<String> =
            ["-h", "127.0.0.1", "-p", PORT, "-n", "-M", "prepared", "-j", "2", "-l"]
                .map(str::to_owned)
                .to_vec();
        arguments.push(format!("--log-prefix={}", logs.join("log").display()));
        arguments.extend(["-c".to_owned(), connections.to_string()]);
        match until {
            LoadEnd::Elapsed(time) => arguments.extend(["-T".to_owned(), time.as_secs().to_string()]),
            LoadEnd::Requests(count) => {
                arguments.extend(["-t".to_owned(), (count / connections as u64).to_string()])
            }
        }
        for (number, (text, weight)) in scripts.iter().enumerate() {
            let script = self.folder.path().join(format!("script{number}.sql"));
            std::fs::write(&script, text)?;
            arguments.extend(["-f".to_owned(), format!("{}@{weight}", script.display())]);
        }
        arguments.push("postgres".to_owned());
        ensure!(
            Command::new("chown").args(["-R", "postgres"]).arg(self.folder.path()).status()?.success(),
            "there is no user postgres"
        );
        let output = self.run("pgbench", &arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        ensure!(output.contains("number of failed transactions: 0 "), "pgbench: {output}");
        let times = latencies(&logs)?;
        std::fs::remove_dir_all(&logs)?;
        let elapsed = Duration::from_secs_f64(times.len() as f64 / rate_in(&output)?);
        let (latency_p50, latency_p99) = percentiles(&times).context("pgbench ran no script")?;
        Ok(Load { requests: times.len() as u64, elapsed, latency_p50, latency_p99 })
    }

    /// The process whose children are all others.
    pub fn process(&self) -> Result<u32> {
        let text = std::fs::read_to_string(format!("{}/postmaster.pid", self.data()))?;
        Ok(text.lines().next().context("an empty postmaster.pid")?.trim().parse()?)
    }

    fn rate(&self, script: &Path, host: &str, connections: usize, seconds: &str) -> Result<f64> {
        let (script, clients) = (script.to_str().context("a UTF-8 path")?, connections.to_string());
        let arguments = [
            "-h", host, "-p", PORT, "-n", "-M", "prepared", "-f", script, "-c", &clients, "-j", "2", "-T",
            seconds, "postgres",
        ];
        rate_in(&self.run("pgbench", &arguments)?)
    }

    pub fn sql(&self, text: &str) -> Result<()> {
        let home = self.folder.path().to_str().context("a UTF-8 path")?;
        self.run("psql", &["-h", home, "-p", PORT, "-q", "-c", text, "postgres"])?;
        Ok(())
    }

    fn data(&self) -> String {
        self.folder.path().join("data").to_string_lossy().into_owned()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let program: PathBuf = Path::new(BINARIES).join(program);
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(&program).args(arguments).current_dir(self.folder.path());
        // pg_ctl hands its output on to the server, which would keep a pipe open.
        let is_start = arguments.first() == Some(&"start");
        if is_start {
            let status =
                command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).status()?;
            ensure!(status.success(), "{} failed", program.display());
            return Ok(String::new());
        }
        let output = command.output().with_context(|| format!("running {}", program.display()))?;
        ensure!(
            output.status.success(),
            "{}: {}",
            program.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// What the load generator says, without the time of connecting.
fn rate_in(output: &str) -> Result<f64> {
    let line = output.lines().find(|line| line.starts_with("tps = ")).context("pgbench says no rate")?;
    Ok(line.split_whitespace().nth(2).context("pgbench says no rate")?.parse()?)
}

/// The third word of each line is the time of one run in microseconds.
fn latencies(logs: &Path) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for entry in std::fs::read_dir(logs)? {
        for line in std::fs::read_to_string(entry?.path())?.lines() {
            let micros = line.split(' ').nth(2).context("a log of pgbench with short lines")?;
            times.push(Duration::from_micros(micros.parse()?));
        }
    }
    times.sort_unstable();
    Ok(times)
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The scratch directory goes either way.
        self.run("pg_ctl", &["stop", "--mode=immediate", "--pgdata", &self.data()]).ok();
    }
}
