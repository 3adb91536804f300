//! The floor of a durable write: append + fdatasync.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Median time of appending `size` bytes and syncing them.
pub fn append_and_sync(folder: &Path, size: usize, rounds: usize) -> Result<Duration> {
    let path = folder.join("floor");
    let mut file = std::fs::File::create(&path)?;
    let bytes = vec![7u8; size];
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let started = Instant::now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        times.push(started.elapsed());
    }
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    Ok(times[rounds / 2])
}
