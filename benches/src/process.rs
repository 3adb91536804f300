//! What a live process uses.

use std::time::Duration;

use anyhow::{Context, Result};
use quire_testkit::live::LiveServer;

/// User and system time used so far.
pub fn cpu(live: &LiveServer) -> Result<Duration> {
    let stat = Stat::of(live.child.id())?;
    Ok(from_ticks(stat.own_ticks))
}

/// User and system time of a process and of all its descendants, those that have ended included.
pub fn cpu_with_children(process: u32) -> Result<Duration> {
    let children = descendant_stats(process)?;
    let ticks: u64 = children.iter().map(Stat::all_ticks).sum();
    Ok(from_ticks(Stat::of(process)?.all_ticks() + ticks))
}

/// The processes that a process and its children have started and that still run.
pub fn descendants(process: u32) -> Result<Vec<u32>> {
    Ok(descendant_stats(process)?.iter().map(|stat| stat.process).collect())
}

fn descendant_stats(process: u32) -> Result<Vec<Stat>> {
    let mut others: Vec<Stat> = std::fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        // A process may end while the list is read.
        .filter_map(|process| Stat::of(process).ok())
        .collect();
    let (mut found, mut parents) = (Vec::new(), vec![process]);
    while let Some(parent) = parents.pop() {
        for child in others.extract_if(.., |stat| stat.parent == parent) {
            parents.push(child.process);
            found.push(child);
        }
    }
    Ok(found)
}

/// Waits until a process and its descendants have nothing left to do in the background.
pub fn finish_background_work(process: u32) -> Result<()> {
    const LOOKS_MAX: usize = 240;
    for _ in 0..LOOKS_MAX {
        let before = cpu_with_children(process)?;
        std::thread::sleep(Duration::from_millis(500));
        if cpu_with_children(process)? - before <= Duration::from_millis(10) {
            return Ok(());
        }
    }
    eprintln!("process {process} is still busy after {LOOKS_MAX} looks");
    Ok(())
}

pub fn resident_bytes(live: &LiveServer) -> Result<u64> {
    status_bytes(live, "VmRSS:")
}

/// From now on the peak is that of what comes.
pub fn forget_peak(live: &LiveServer) -> Result<()> {
    Ok(std::fs::write(format!("/proc/{}/clear_refs", live.child.id()), "5")?)
}

/// The most that was resident.
pub fn peak_bytes(live: &LiveServer) -> Result<u64> {
    status_bytes(live, "VmHWM:")
}

fn status_bytes(live: &LiveServer, name: &'static str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", live.child.id()))?;
    let line = status.lines().find(|line| line.starts_with(name)).context(name)?;
    let kilobytes: u64 = line.split_whitespace().nth(1).context(name)?.parse()?;
    Ok(kilobytes << 10)
}

/// What `/proc/PID/stat` says.
struct Stat {
    process: u32,
    parent: u32,
    own_ticks: u64,
    /// Of children that have ended and were waited for.
    ended_children_ticks: u64,
}

impl Stat {
    fn of(process: u32) -> Result<Stat> {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        // Behind the name, which may contain anything: state, parent, then figures.
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| -> Result<u64> { Ok(fields.get(at).context("a short stat file")?.parse()?) };
        Ok(Stat {
            process,
            parent: ticks(1)? as u32,
            own_ticks: ticks(11)? + ticks(12)?,
            ended_children_ticks: ticks(13)? + ticks(14)?,
        })
    }

    fn all_ticks(&self) -> u64 {
        self.own_ticks + self.ended_children_ticks
    }
}

fn from_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 10) // USER_HZ is 100 on Linux
}
