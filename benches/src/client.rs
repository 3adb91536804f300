//! A load generator: one blocking connection per thread.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use quire_testkit::http::{Address, Connection};

pub struct Load {
    pub requests: u64,
    pub elapsed: Duration,
    pub latency_p50: Duration,
    pub latency_p99: Duration,
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

/// When a load ends.
#[derive(Clone, Copy)]
pub enum LoadEnd {
    Elapsed(Duration),
    /// So many requests over all connections.
    Requests(u64),
}

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
    run_until(&Address::local(port), connections, LoadEnd::Elapsed(duration), status..=status, next_of)
}

/// Until a time has passed or so many requests are answered; `statuses` are those that are no failures.
pub fn run_until(
    address: &Address,
    connections: usize,
    until: LoadEnd,
    statuses: RangeInclusive<u16>,
    next_of: impl Fn(usize) -> NextRequest,
) -> Result<Load> {
    let (stop, number) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let requests_max = if let LoadEnd::Requests(count) = until { count } else { u64::MAX };
    let started = Instant::now();
    let threads: Vec<_> = (0..connections)
        .map(|connection| {
            let client = Client {
                address: address.clone(),
                statuses: statuses.clone(),
                next: next_of(connection),
                stop: stop.clone(),
                number: number.clone(),
                requests_max,
            };
            std::thread::spawn(move || client.run())
        })
        .collect();
    if let LoadEnd::Elapsed(duration) = until {
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
    }
    let mut times = Vec::new();
    for thread in threads {
        times.extend(thread.join().expect("a client thread does not panic")?);
    }
    let elapsed = started.elapsed();
    times.sort_unstable();
    let requests = times.len() as u64;
    let (latency_p50, latency_p99) = percentiles(&times).context("no request was answered")?;
    Ok(Load { requests, elapsed, latency_p50, latency_p99 })
}

/// The median and the 99th percentile of sorted times.
pub fn percentiles(sorted: &[Duration]) -> Option<(Duration, Duration)> {
    let at = |share: usize| sorted.get((sorted.len() * share / 100).min(sorted.len().saturating_sub(1)));
    Some((*at(50)?, *at(99)?))
}

struct Client {
    address: Address,
    statuses: RangeInclusive<u16>,
    next: NextRequest,
    stop: Arc<AtomicBool>,
    number: Arc<AtomicU64>,
    requests_max: u64,
}

impl Client {
    fn run(&self) -> Result<Vec<Duration>> {
        let mut connection = Connection::open_at(&self.address)?;
        let mut times = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.number.fetch_add(1, Ordering::Relaxed);
            if number >= self.requests_max {
                break;
            }
            let request = (self.next)(number);
            let sent = Instant::now();
            let found = connection.status(&request)?;
            times.push(sent.elapsed());
            if !self.statuses.contains(&found) {
                bail!("expected status {:?}, got {found}", self.statuses);
            }
        }
        Ok(times)
    }
}
