//! Cost of index rows: CPU and memory of a load, opening after a crash, seeks, scans and disk space, in both forms.
//!
//! `cargo run --release --example index_rows -- DIR ITEMS packed|plain`: a child process loads ITEMS of 1 KB with 20
//! index rows each, 16 per commit, waits until background work is done and exits without closing; then this process
//! opens the directory.

use quire_storage::random::Random;
use quire_storage::{
    Commit, Direction, Guard, KeyRange, Op, PartitionId, RowList, Scan, Snapshot, Space, Storage, Token,
};
use quire_storage_local::{IndexRows, LocalOptions, LocalStorage};
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const ITEMS: Space = Space(1);
const INDEX: Space = Space(3);
const ITEMS_PER_COMMIT: u64 = 16;
const PATHS: u64 = 20;
const CONTAINER: [u8; 4] = 7u32.to_be_bytes();
const SEEKS: u64 = 2000;
const SEEK_ROWS: usize = 100;
/// fjall's numbers of the two keyspaces.
const FOLDERS: [(&str, &str); 2] = [("items", "store/keyspaces/2"), ("index", "store/keyspaces/4")];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [folder, items, form] => {
            let child =
                Command::new(std::env::current_exe()?).args(["load", folder, items, form]).status()?;
            if !child.success() {
                return Err("the load failed".into());
            }
            read(Path::new(folder), items.parse()?, form_of(form)?)
        }
        ["load", folder, items, form] => load(Path::new(folder), items.parse()?, form_of(form)?),
        _ => Err("index_rows DIR ITEMS packed|plain".into()),
    }
}

fn form_of(text: &str) -> Result<IndexRows, Box<dyn Error>> {
    match text {
        "packed" => Ok(IndexRows::Packed),
        "plain" => Ok(IndexRows::Plain),
        _ => Err(format!("no form {text:?}").into()),
    }
}

fn options(index_rows: IndexRows) -> LocalOptions {
    LocalOptions { index_rows, ..LocalOptions::default() }
}

// ---- loading ----

fn load(folder: &Path, items: u64, form: IndexRows) -> Result<(), Box<dyn Error>> {
    let made_up = making_up()?;
    let storage = LocalStorage::open(folder, options(form))?;
    let before = cpu_time()?;
    let (start, mut latencies) = (Instant::now(), Vec::new());
    for lsn in 1..=items / ITEMS_PER_COMMIT {
        let commit = commit(lsn);
        let began = Instant::now();
        storage.commit(commit)?;
        latencies.push(began.elapsed());
    }
    let took = start.elapsed();
    wait_until_idle(&storage);
    let cpu = (cpu_time()? - before).as_secs_f64() * 1e6 / items as f64;
    let (took, settled) = (took.as_secs_f64(), start.elapsed().as_secs_f64());
    println!("{form:?}: {items} items loaded in {took:.1} s, settled after {settled:.1} s");
    println!("    CPU per create {:.1} us of all threads, besides {made_up:.1} to make it up", cpu - made_up);
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!("    commit p50 {:.2} p99 {:.2} worst {:.2} ms", at(0.5), at(0.99), at(1.0));
    println!("    peak memory {} MB", memory("VmHWM")?);
    println!("    {:?}", storage.statistics());
    // Like a killed process: nothing is flushed or closed.
    std::process::exit(0)
}

/// CPU microseconds per item outside of the storage.
fn making_up() -> Result<f64, Box<dyn Error>> {
    const COMMITS: u64 = 2000;
    let before = cpu_time()?;
    for lsn in 1..=COMMITS {
        std::hint::black_box(commit(lsn));
    }
    Ok((cpu_time()? - before).as_secs_f64() * 1e6 / (COMMITS * ITEMS_PER_COMMIT) as f64)
}

/// Waits until nothing was flushed or compacted for a second.
fn wait_until_idle(storage: &LocalStorage) {
    let work = || {
        let figures = storage.statistics();
        let read = |wanted| figures.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| *value);
        (read("pending_flushes"), read("compactions_running"), read("tables"), read("run_flushes"))
    };
    let (mut last, mut since) = (work(), Instant::now());
    while since.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(50));
        let now = work();
        if now != last || (now.0, now.1) != (0, 0) {
            (last, since) = (now, Instant::now());
        }
    }
}

fn commit(lsn: u64) -> Commit {
    let guard = Guard { partition: PartitionId(1), epoch: 0, previous_lsn: lsn - 1, next_lsn: lsn };
    let mut ops = Vec::new();
    for number in (lsn - 1) * ITEMS_PER_COMMIT..lsn * ITEMS_PER_COMMIT {
        let rid = rid(number);
        let key = [&CONTAINER[..], &rid].concat();
        ops.push(Op::Put { space: ITEMS, key: key.clone(), value: text(number) });
        ops.push(Op::Put { space: Space(2), key: [&key[..], b"id"].concat(), value: rid.to_vec() });
        ops.push(Op::Put { space: Space(4), key: number.to_be_bytes().to_vec(), value: rid.to_vec() });
        ops.push(Op::Rows {
            space: INDEX,
            prefix: CONTAINER.to_vec(),
            suffix: rid.to_vec(),
            added: (0..PATHS).map(|path| [&index_id(path)[..], &value(path, number)].concat()).collect(),
            removed: RowList::default(),
        });
    }
    Commit { guards: vec![guard], token: Token(lsn.into()), ops }
}

/// Items in random key order, as with hashed partition keys.
fn rid(number: u64) -> [u8; 8] {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !0xFFFF_FFFF | number & 0xFFFF_FFFF).to_be_bytes()
}

fn index_id(path: u64) -> [u8; 8] {
    Random(path).next_u64().to_be_bytes()
}

const WORDS: [&str; 16] = [
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "knoll",
    "lagoon", "meadow", "north", "orchard", "prairie",
];

/// 1 KB that compresses about like JSON.
fn text(number: u64) -> Vec<u8> {
    let mut random = Random(number);
    let mut text = Vec::with_capacity(1040);
    while text.len() < 1000 {
        text.extend(format!("\"{}\":{},", WORDS[random.below(16) as usize], random.below(100_000)).bytes());
    }
    text.truncate(1000);
    text
}

/// A quarter of the paths each: few strings, numbers, longer strings, nearly unique ones; encoded as keys.
fn value(path: u64, number: u64) -> Vec<u8> {
    let mut random = Random(number * PATHS + path);
    let string = |text: String| [&[0x40], text.as_bytes(), &[0x00, 0x01]].concat();
    match path % 4 {
        0 => string(WORDS[random.below(16) as usize].into()),
        1 => [&[0x30, 0x40][..], &random.below(1_u64 << 40).to_be_bytes(), &[0; 1]].concat(),
        2 => string(format!("{} {}", WORDS[random.below(16) as usize], WORDS[random.below(16) as usize])),
        _ => string(format!("{:012x}", random.next_u64() >> 16)),
    }
}

// ---- reading ----

fn read(folder: &Path, items: u64, form: IndexRows) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let storage = LocalStorage::open(folder, options(form))?;
    println!("    opened after a crash in {:.2} s", start.elapsed().as_secs_f64());
    reads(&*storage.snapshot()?, items, "after the crash")?;
    let start = Instant::now();
    storage.close()?;
    println!("    closed in {:.2} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let storage = LocalStorage::open(folder, options(form))?;
    println!("    opened after closing in {:.2} s", start.elapsed().as_secs_f64());
    wait_until_idle(&storage);
    reads(&*storage.snapshot()?, items, "settled")?;
    for (name, keyspace) in FOLDERS {
        let bytes = size(&folder.join(keyspace))?;
        println!(
            "    {name} on disk: {} MB, {:.2} of the items' text",
            bytes >> 20,
            bytes as f64 / (items * 1000) as f64
        );
    }
    println!("    peak memory of reading {} MB", memory("VmHWM")?);
    storage.close()?;
    Ok(())
}

fn reads(snapshot: &dyn Snapshot, items: u64, when: &str) -> Result<(), Box<dyn Error>> {
    let mut random = Random(1);
    let (start, mut rows) = (Instant::now(), 0);
    for _ in 0..SEEKS {
        let (path, number) = (random.below(PATHS), random.below(items));
        let prefix = [&CONTAINER[..], &index_id(path), &value(path, number)].concat();
        rows += count(snapshot, INDEX, KeyRange::prefix(&prefix), SEEK_ROWS)?;
    }
    let seek = start.elapsed().as_secs_f64() * 1e6 / SEEKS as f64;
    println!("    {when}: index seek {seek:.1} us for {:.1} rows", rows as f64 / SEEKS as f64);
    for (space, name) in [(INDEX, "index row, keys only"), (ITEMS, "item of 1 KB")] {
        let start = Instant::now();
        let rows = count(snapshot, space, KeyRange::all(), usize::MAX)?;
        let each = start.elapsed().as_secs_f64() * 1e9 / rows as f64;
        println!("    {when}: scan {each:.0} ns per {name} ({rows})");
    }
    let mut keys: Vec<Vec<u8>> =
        (0..SEEKS).map(|_| [&CONTAINER[..], &rid(random.below(items))].concat()).collect();
    keys.sort_unstable();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let start = Instant::now();
    let found = snapshot.multi_get(ITEMS, &keys)?.into_iter().flatten().count();
    let each = start.elapsed().as_secs_f64() * 1e6 / SEEKS as f64;
    println!("    {when}: multi_get {each:.2} us per item ({found} found)");
    Ok(())
}

fn count(
    snapshot: &dyn Snapshot,
    space: Space,
    range: KeyRange,
    rows_max: usize,
) -> Result<u64, Box<dyn Error>> {
    let keys_only = space == INDEX;
    let scan =
        Scan { space, range, direction: Direction::Forward, rows_max, bytes_max: usize::MAX, keys_only };
    let mut rows = 0;
    snapshot.visit(&scan, &mut |_, _| {
        rows += 1;
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

// ---- figures of the process ----

/// User and system time of all threads, in ticks of 10 ms.
fn cpu_time() -> Result<Duration, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}

fn memory(name: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such figure")?;
    let kilobytes: u64 = line.trim_matches([':', '\t', ' ', 'k', 'B']).parse()?;
    Ok(kilobytes >> 10)
}

fn size(path: &Path) -> std::io::Result<u64> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    std::fs::read_dir(path)?.map(|entry| size(&entry?.path())).sum()
}
