//! A `quire` process for tests: started on a free port, stopped when dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

pub struct Live {
    child: Child,
    /// `http://127.0.0.1:PORT/`
    pub endpoint: String,
}

impl Live {
    pub fn start(binary: &Path, arguments: &[&str]) -> Result<Live> {
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {}", binary.display()))?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line)?;
        let Some(endpoint) = line.trim_end().strip_prefix("quire is ready on ") else {
            bail!("the server did not get ready, it said {line:?}");
        };
        let endpoint = endpoint.to_owned();
        Ok(Live { child, endpoint })
    }

    pub fn port(&self) -> &str {
        self.endpoint.trim_end_matches('/').rsplit(':').next().expect("an endpoint has a port")
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // A server that already ended cannot be killed, and that is as good.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
