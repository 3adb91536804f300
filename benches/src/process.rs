//! What a live process uses.

use std::time::Duration;

use anyhow::{Context, Result};
use quire_testkit::live::Live;

/// User and system time used so far.
pub fn cpu(live: &Live) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", live.child.id()))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10)) // USER_HZ is 100 on Linux
}

pub fn resident_bytes(live: &Live) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", live.child.id()))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = line.split_whitespace().nth(1).context("no VmRSS figure")?.parse()?;
    Ok(kilobytes * 1024)
}
