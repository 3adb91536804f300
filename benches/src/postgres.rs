//! PostgreSQL beside us, where it is installed, driven by its own load generator.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

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

    fn rate(&self, script: &Path, host: &str, connections: usize, seconds: &str) -> Result<f64> {
        let (script, clients) = (script.to_str().context("a UTF-8 path")?, connections.to_string());
        let arguments = [
            "-h", host, "-p", PORT, "-n", "-M", "prepared", "-f", script, "-c", &clients, "-j", "2", "-T",
            seconds, "postgres",
        ];
        let output = self.run("pgbench", &arguments)?;
        let line = output.lines().find(|line| line.starts_with("tps = ")).context("pgbench says no rate")?;
        Ok(line.split_whitespace().nth(2).context("pgbench says no rate")?.parse()?)
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

impl Drop for Postgres {
    fn drop(&mut self) {
        // The scratch directory goes either way.
        self.run("pg_ctl", &["stop", "--mode=immediate", "--pgdata", &self.data()]).ok();
    }
}
