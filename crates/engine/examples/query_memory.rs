//! What a query costs that does not fit into its memory: CPU per item, peak memory of the process, temporary space.
//!
//! `cargo run --release -p quire-engine --example query_memory -- DIR fill ITEMS` writes small items, then
//! `… -- DIR query MEGABYTES PAGES PAGE_SIZE TEXT` runs a query with that much memory, reads so many pages (0: all), and
//! `… -- DIR query-in-memory …` does the same without temporary files.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quire_engine::{
    Clock, Engine, Options, PageRequest, Parameters, QueryMemoryLimits, TempSpace, WriteItem, WriteKind,
};
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_value::{Limits, text};

const THREADS: u64 = 32;
const TEMP_BYTES_MAX: u64 = 4 << 30;

struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where time comes in")]
    fn now_ms(&self) -> i64 {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since_epoch.map_or(0, |elapsed| elapsed.as_millis() as i64)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [directory, "fill", items] => fill(Path::new(directory), items.parse()?),
        [directory, "query", megabytes, pages, size, text] => {
            let temp = TempSpace::open(&Path::new(directory).join("temp"), TEMP_BYTES_MAX, 64)?;
            query(Path::new(directory), megabytes.parse()?, Some(temp), (pages.parse()?, size.parse()?), text)
        }
        [directory, "query-in-memory", megabytes, pages, size, text] => {
            query(Path::new(directory), megabytes.parse()?, None, (pages.parse()?, size.parse()?), text)
        }
        _ => Err("DIR fill ITEMS | DIR query MEGABYTES PAGES PAGE_SIZE TEXT".into()),
    }
}

fn open(
    directory: &Path,
    megabytes: usize,
    query_temp: Option<Arc<TempSpace>>,
) -> Result<Engine, Box<dyn Error>> {
    let options = LocalOptions { cache_bytes: 16 << 20, ..LocalOptions::default() };
    let storage = Arc::new(LocalStorage::open(directory, options)?);
    let query_memory = QueryMemoryLimits { total_bytes: megabytes << 20, query_bytes: megabytes << 20 };
    let options = Options {
        clock: Arc::new(SystemClock),
        partitions: 1,
        cache_bytes: 16 << 20,
        scripts: Default::default(),
        query_memory,
        query_temp,
    };
    Ok(Engine::open(storage, options)?)
}

fn fill(directory: &Path, items: u64) -> Result<(), Box<dyn Error>> {
    let engine = open(directory, 64, None)?;
    engine.catalog().create_database(&text::parse(br#"{"id": "d"}"#, Limits::default())?, None)?;
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"]},"indexingPolicy":{"includedPaths":[{"path":"/n/?"}],"excludedPaths":[{"path":"/*"}]}}"#;
    let container =
        engine.catalog().create_container("d", &text::parse(body.as_bytes(), Limits::default())?, None)?;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, container) = (&engine, &container);
            scope.spawn(move || {
                for number in (thread..items).step_by(THREADS as usize) {
                    let shuffled = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % items;
                    let body = format!(
                        r#"{{"id":"{number}","pk":"{}","n":{shuffled},"k":"key {shuffled}","g":{}}}"#,
                        number % 1000,
                        number % 100
                    );
                    let write = WriteItem::new(WriteKind::Create, None, body);
                    engine.write_item(container, write).result.expect("written");
                }
            });
        }
    });
    engine.close()?;
    Ok(())
}

fn query(
    directory: &Path,
    megabytes: usize,
    temp: Option<Arc<TempSpace>>,
    (pages_max, page_size): (u64, i64),
    text: &str,
) -> Result<(), Box<dyn Error>> {
    let engine = open(directory, megabytes, temp.clone())?;
    let container = engine.catalog().container("d", "c")?;
    let (rss_before, before) = (status("VmRSS:")?, cpu_time()?);
    let (mut pages, mut rows, mut read, mut index_rows) = (0, 0, 0, 0);
    let mut request = PageRequest {
        item_count_max: Some(page_size),
        continuation_bytes_max: 1024,
        index_use: std::env::var("QUIRE_NO_INDEX").is_err(),
        ..PageRequest::default()
    };
    loop {
        let page = match engine.query_items(&container, text, &Parameters::default(), &request).result {
            Ok(page) => page,
            Err(error) => {
                println!("refused: {error}");
                break;
            }
        };
        pages += 1;
        rows += page.count as u64;
        read += page.metrics.loaded_count;
        index_rows += page.metrics.index_rows;
        request.continuation = page.continuation;
        if request.continuation.is_none() || pages == pages_max {
            break;
        }
    }
    let cpu = cpu_time()? - before;
    println!("{text}");
    println!(
        "  {pages} pages, {rows} rows, {read} items and {index_rows} index rows read, {:.2} s of CPU, {:.2} us per item read",
        cpu.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / (read.max(1) as f64)
    );
    let used = temp.map(|temp| temp.usage()).unwrap_or_default();
    println!(
        "  memory {} MB before, peak {} MB; temporary files peak {} MB, written {} MB",
        rss_before >> 10,
        status("VmHWM:")? >> 10,
        used.peak_bytes >> 20,
        used.written_bytes >> 20
    );
    Ok(())
}

/// A figure of this process, in KB.
fn status(name: &str) -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such figure")?;
    Ok(line.split_whitespace().next().ok_or("no number")?.parse()?)
}

/// Of this process, all threads.
fn cpu_time() -> Result<Duration, Box<dyn Error>> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}
