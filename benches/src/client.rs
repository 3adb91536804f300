//! A load generator: one blocking connection per thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use quire_testkit::http::Connection;

pub struct Load {
    pub requests: u64,
    pub elapsed: Duration,
    pub latency_p50: Duration,
}

impl Load {
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

/// Makes the request with a given number.
pub type Next = Box<dyn Fn(u64) -> Vec<u8> + Send + Sync>;

/// The same, shared by connections.
pub type NextRequest = Arc<dyn Fn(u64) -> Vec<u8> + Send + Sync>;

/// Sends what `next` makes on each of `connections` for `duration`, expecting `status`.
pub fn run(port: u16, connections: usize, duration: Duration, status: u16, next: Next) -> Result<Load> {
    let next: NextRequest = Arc::from(next);
    run_each(port, connections, duration, status, |_| next.clone())
}

/// Every connection sends what is made for it.
pub fn run_each(
    port: u16,
    connections: usize,
    duration: Duration,
    status: u16,
    next_of: impl Fn(usize) -> NextRequest,
) -> Result<Load> {
    let (stop, number) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let started = Instant::now();
    let threads: Vec<_> = (0..connections)
        .map(|connection| {
            let (next, stop, number) = (next_of(connection), stop.clone(), number.clone());
            std::thread::spawn(move || one_connection(port, status, &next, &stop, &number))
        })
        .collect();
    std::thread::sleep(duration);
    stop.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    for thread in threads {
        times.extend(thread.join().expect("a client thread does not panic")?);
    }
    let elapsed = started.elapsed();
    times.sort_unstable();
    let latency_p50 = *times.get(times.len() / 2).context("no request was answered")?;
    Ok(Load { requests: times.len() as u64, elapsed, latency_p50 })
}

fn one_connection(
    port: u16,
    status: u16,
    next: &NextRequest,
    stop: &AtomicBool,
    number: &AtomicU64,
) -> Result<Vec<Duration>> {
    let mut connection = Connection::open(port)?;
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let request = next(number.fetch_add(1, Ordering::Relaxed));
        let sent = Instant::now();
        let found = connection.status(&request)?;
        times.push(sent.elapsed());
        if found != status {
            bail!("expected status {status}, got {found}");
        }
    }
    Ok(times)
}
