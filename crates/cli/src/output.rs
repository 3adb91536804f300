//! Results on standard output.

use std::io::{self, Write};

use anyhow::{Context, Result};

/// Whoever reads it may have had enough, as in `quire help tls | head -1`.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("printing"),
    }
}
