//! Time to open a directory after its process was killed, and after it was closed.
//!
//! `cargo run --release --example reopen_time -- [ITEMS]` loads items of 1 KB in a child process, kills it, opens.

use quire_storage::{Commit, Guard, Op, PartitionId, Space, Storage, Token};
use quire_storage_local::{LocalOptions, LocalStorage};
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const WRITERS: u64 = 8;
const PER_COMMIT: u64 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|argument| argument == "load") {
        return load(Path::new(&arguments[2]), arguments[3].parse()?);
    }
    let items: u64 = arguments.get(1).map_or(Ok(100_000), |text| text.parse())?;
    let folder = std::env::temp_dir().join(format!("quire-reopen-{}", std::process::id()));
    let start = Instant::now();
    let mut child = Command::new(&arguments[0])
        .args(["load", folder.to_str().ok_or("folder")?, &items.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    child.kill()?;
    child.wait()?;
    println!("loaded {items} items in {:.2} s: {}", start.elapsed().as_secs_f64(), line.trim());
    println!("resident before opening: {} KB", resident());
    for what in ["after kill -9", "after close", "again"] {
        let start = Instant::now();
        let storage = LocalStorage::open(&folder, LocalOptions::default())?;
        println!("opened {what} in {:.3} s, resident {} KB", start.elapsed().as_secs_f64(), resident());
        let start = Instant::now();
        storage.close()?;
        println!("closed in {:.3} s", start.elapsed().as_secs_f64());
    }
    let start = Instant::now();
    println!("{:?} in {:.2} s", LocalStorage::verify(&folder)?, start.elapsed().as_secs_f64());
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap_or("?").trim().trim_end_matches(" kB").into()
}

fn load(folder: &Path, items: u64) -> Result<(), Box<dyn Error>> {
    let storage = LocalStorage::open(folder, LocalOptions::default())?;
    std::thread::scope(|scope| {
        for partition in 0..WRITERS {
            let storage = &storage;
            scope.spawn(move || {
                for lsn in 1..=items / WRITERS / PER_COMMIT {
                    storage.commit(commit(partition, lsn)).expect("commit");
                }
            });
        }
    });
    println!("{:?}, resident {} KB", storage.statistics(), resident());
    std::thread::sleep(std::time::Duration::from_secs(600));
    Ok(())
}

/// A few items, each with a lookup row and a feed row; bodies compress like text.
fn commit(partition: u64, lsn: u64) -> Commit {
    let mut ops = Vec::new();
    for ordinal in 0..PER_COMMIT {
        let key = [partition.to_be_bytes(), (lsn * PER_COMMIT + ordinal).to_be_bytes()].concat();
        let mut body = Vec::with_capacity(1024);
        let mut number = partition << 40 | lsn << 8 | ordinal;
        while body.len() < 1024 {
            number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17);
            body.extend_from_slice(b"\"property\": ");
            body.extend(number.to_be_bytes());
        }
        let put = |space, value: Vec<u8>| Op::Put { space: Space(space), key: key.clone(), value };
        ops.extend([put(1, body), put(2, vec![b'r'; 8]), put(4, vec![b'f'; 24])]);
    }
    Commit {
        guards: vec![Guard {
            partition: PartitionId(partition),
            epoch: 0,
            previous_lsn: lsn - 1,
            next_lsn: lsn,
        }],
        token: Token(u128::from(partition) << 64 | u128::from(lsn)),
        ops,
    }
}
