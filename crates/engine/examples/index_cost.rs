//! What indexes cost a write: CPU of creates, replaces and deletes with the default policy and with none.
//!
//! `cargo run --release -p quire-engine --example index_cost -- ITEMS [memory]`: items of 1 KB with 20 values, written by
//! 16 threads to a directory that is removed afterwards, or in memory.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use quire_engine::{Clock, Container, Engine, Options, WriteItem, WriteKind};
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_value::{Limits, text};

const THREADS: u64 = 16;
const POLICIES: [(&str, &str); 2] =
    [("none", r#"{"indexingMode":"none","automatic":false}"#), ("default", "{}")];

struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where time comes in")]
    fn now_ms(&self) -> i64 {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since_epoch.map_or(0, |elapsed| elapsed.as_millis() as i64)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let items: u64 = std::env::args().nth(1).unwrap_or_else(|| "100000".to_owned()).parse()?;
    let in_memory = std::env::args().nth(2).is_some_and(|form| form == "memory");
    for (name, policy) in POLICIES {
        let directory = tempfile::tempdir()?;
        let storage: Arc<dyn Storage> = if in_memory {
            Arc::new(MemoryStorage::new())
        } else {
            Arc::new(LocalStorage::open(directory.path(), LocalOptions::default())?)
        };
        let options = Options {
            clock: Arc::new(SystemClock),
            partitions: 1,
            cache_bytes: 64 << 20,
            scripts: Default::default(),
            query_memory: Default::default(),
            query_temp: None,
        };
        let engine = Engine::open(storage, options)?;
        let before = cpu_time()?;
        let made_up = measure(&engine, name, policy, items)?;
        engine.close()?;
        let settled = micros(cpu_time()? - before) / items as f64 - 3.0 * made_up;
        println!("    {settled:.1} us for both, everything flushed");
    }
    Ok(())
}

/// What it costs to make up an item.
fn measure(engine: &Engine, name: &str, policy: &str, items: u64) -> Result<f64, Box<dyn Error>> {
    engine.catalog().create_database(&text::parse(br#"{"id": "d"}"#, Limits::default())?, None)?;
    let body = format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"]}},"indexingPolicy":{policy}}}"#);
    let container =
        engine.catalog().create_container("d", &text::parse(body.as_bytes(), Limits::default())?, None)?;
    let made_up = timed(items, &|number| drop(std::hint::black_box(item(number, 0))))?;
    let create = timed(items, &|number| write(engine, &container, WriteKind::Create, &item(number, 0)))?;
    let replace = timed(items, &|number| {
        write(engine, &container, WriteKind::Replace { id: number.to_string() }, &item(number, 1))
    })?;
    let [create, replace] = [create, replace].map(|cpu| cpu - made_up);
    println!("{name}: {create:.1} us of CPU per create, {replace:.1} per replace with one changed value");
    Ok(made_up)
}

/// CPU of all threads per item, in microseconds.
fn timed(items: u64, work: &(dyn Fn(u64) + Sync)) -> Result<f64, Box<dyn Error>> {
    let before = cpu_time()?;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || (thread..items).step_by(THREADS as usize).for_each(work));
        }
    });
    Ok(micros(cpu_time()? - before) / items as f64)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn item(number: u64, version: u64) -> String {
    let mut body = format!(r#"{{"id":"{number}","pk":"{}","version":{version}"#, number % 1000);
    for path in 0..9 {
        body += &format!(r#","number{path}":{}"#, number.wrapping_mul(path * 7919 + 13) % 100_000);
        body += &format!(
            r#","text{path}":"some text of an ordinary length, as items have it, number {}""#,
            number % (path + 2)
        );
    }
    body + "}"
}

fn write(engine: &Engine, container: &Arc<Container>, kind: WriteKind, body: &str) {
    let write = WriteItem::new(kind, None, body.to_owned());
    engine.write_item(container, write).result.expect("an ordinary write");
}

fn cpu_time() -> Result<Duration, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}
