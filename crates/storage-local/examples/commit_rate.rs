//! Rate of durable commits, compared with the lower bound: a plain append and fdatasync of the same bytes in the same
//! run.
//!
//! `cargo run --release --example commit_rate -- [DIR] [SECONDS]` prints one line per number of writers.

use quire_storage::{Commit, Guard, Op, PartitionId, Space, Storage, Token};
use quire_storage_local::{LocalOptions, LocalStorage};
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder =
        arguments.next().map_or_else(|| std::env::temp_dir().join("quire-commit-rate"), PathBuf::from);
    let seconds = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let time = Duration::from_secs(seconds);
    std::fs::create_dir_all(&folder)?;
    report("append + fdatasync", 1, &bare_appends(&folder.join("bare"), time)?);
    let data = folder.join("data");
    let start = Instant::now();
    let storage = LocalStorage::open(&data, LocalOptions::default())?;
    println!("opened in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    for (round, writers) in [1, 4, 16, 64].into_iter().enumerate() {
        let before = figures(&storage);
        let latencies = commits(&storage, round as u64, writers, time);
        report("commit", writers, &latencies);
        let after = figures(&storage);
        println!("    {:.1} commits per sync", (after.0 - before.0) as f64 / (after.1 - before.1) as f64);
    }
    report("append + fdatasync", 1, &bare_appends(&folder.join("bare"), time)?);
    let start = Instant::now();
    storage.close()?;
    println!("closed in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn figures(storage: &LocalStorage) -> (u64, u64) {
    let figures = storage.statistics();
    let read = |wanted| figures.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| *value);
    (read("commits"), read("syncs"))
}

fn bare_appends(path: &Path, time: Duration) -> Result<Vec<Duration>, std::io::Error> {
    let mut file = File::create(path)?;
    let bytes = vec![b'x'; VALUE_BYTES + 400];
    let (start, mut latencies) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        let began = Instant::now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        latencies.push(began.elapsed());
    }
    Ok(latencies)
}

/// Every writer has its own partition and writes one item row, one lookup row and one feed row per commit.
fn commits(storage: &LocalStorage, round: u64, writers: u64, time: Duration) -> Vec<Duration> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| scope.spawn(move || write(storage, round << 32 | writer, start + time)))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("writer")).collect()
    })
}

fn write(storage: &LocalStorage, partition: u64, until: Instant) -> Vec<Duration> {
    let mut latencies = Vec::new();
    for lsn in 1.. {
        if Instant::now() >= until {
            break;
        }
        let began = Instant::now();
        storage.commit(commit(partition, lsn)).expect("commit");
        latencies.push(began.elapsed());
    }
    latencies
}

fn commit(partition: u64, lsn: u64) -> Commit {
    let key = [partition.to_be_bytes(), lsn.to_be_bytes()].concat();
    let put = |space, value: Vec<u8>| Op::Put { space: Space(space), key: key.clone(), value };
    Commit {
        guards: vec![Guard {
            partition: PartitionId(partition),
            epoch: 0,
            previous_lsn: lsn - 1,
            next_lsn: lsn,
        }],
        token: Token(u128::from(partition) << 64 | u128::from(lsn)),
        ops: vec![put(1, vec![b'x'; VALUE_BYTES]), put(2, vec![b'r'; 8]), put(4, vec![b'f'; 24])],
    }
}

fn report(what: &str, writers: u64, latencies: &[Duration]) {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    let total: Duration = sorted.iter().sum();
    let rate = writers as f64 * sorted.len() as f64 / total.as_secs_f64();
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    let (p10, p50, p99, worst) = (at(0.1), at(0.5), at(0.99), at(1.0));
    println!(
        "{what}, {writers} writers: {rate:.0}/s, p10 {p10:.0} p50 {p50:.0} p99 {p99:.0} worst {worst:.0} us"
    );
}
