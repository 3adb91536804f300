//! Removal of ranges: removed rows never come back, other rows are never affected, commits do not become slower, and
//! the disk space is freed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod child;

use anyhow::{Context, Result, ensure};
use quire_storage::random::Random;
use quire_storage::{Commit, Direction, KeyRange, Op, Removal, RowList, Scan, Space, Storage, Token};
use quire_storage_local::{IndexRows, LocalOptions, LocalStorage};
use quire_testkit::crash::{Kill, kill_count, run_and_kill};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const FOLDER: &str = "QUIRE_TEST_FOLDER";
/// More than a commit deletes.
const ROWS: u64 = 2500;
const CHUNK: u64 = 500;
/// Rows per commit of the neighbours.
const BESIDE: u64 = 10;
const ITEMS: Space = Space(1);
const INDEX: Space = Space(3);

/// Tables are written and compacted all the time.
fn flushing_often(index_rows: IndexRows) -> LocalOptions {
    LocalOptions { memtable_bytes: 1 << 20, index_rows, run_rows_max: 4000, ..LocalOptions::default() }
}

fn commit(owner: u64, first: u64, count: u64) -> Commit {
    let numbers = || (first..first + count).map(|number| number.to_be_bytes().to_vec());
    let key = |number: Vec<u8>| [&owner.to_be_bytes()[..], &number].concat();
    let mut ops: Vec<Op> =
        numbers().map(|number| Op::Put { space: ITEMS, key: key(number), value: vec![7; 100] }).collect();
    let (prefix, suffix, removed) = (owner.to_be_bytes().to_vec(), vec![], RowList::default());
    ops.push(Op::Rows { space: INDEX, prefix, suffix, added: numbers().collect(), removed });
    Commit { guards: vec![], token: Token(u128::from(owner) << 64 | u128::from(first)), ops }
}

fn count(storage: &LocalStorage, space: Space, owner: u64) -> Result<u64> {
    let scan = Scan {
        space,
        range: range(owner),
        direction: Direction::Forward,
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
        keys_only: true,
    };
    Ok(storage.snapshot()?.scan(&scan)?.rows.len() as u64)
}

fn range(owner: u64) -> KeyRange {
    KeyRange::prefix(&owner.to_be_bytes())
}

fn remove(storage: &LocalStorage, owner: u64) -> Result<()> {
    for space in [ITEMS, INDEX] {
        while storage.remove_range(space, &range(owner))? == Removal::More {}
    }
    Ok(())
}

fn output_of(line: String) {
    let mut output = std::io::stdout().lock();
    output.write_all(line.as_bytes()).and_then(|()| output.flush()).unwrap();
}

/// Owners have consecutive even numbers; their rows lie between those of the neighbours.
fn owner(round: u64) -> u64 {
    2 * round
}

#[test]
fn killed_while_removing_plain() -> Result<()> {
    killed_while_removing(IndexRows::Plain)
}

#[test]
fn killed_while_removing_packed() -> Result<()> {
    killed_while_removing(IndexRows::Packed)
}

/// In memory if possible: a killed process loses nothing that it has written.
fn scratch() -> Result<tempfile::TempDir> {
    Ok(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?)
}

fn killed_while_removing(form: IndexRows) -> Result<()> {
    let folder = scratch()?;
    let seed = std::env::var("QUIRE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20);
    eprintln!("QUIRE_SEED={seed}");
    let mut random = Random(seed);
    let (mut removed, mut neighbours) = (0, 0);
    for round in 0..kill_count(6) {
        let kill = match random.below(3) {
            0 => Kill::After(Duration::from_millis(500 + random.below(3000))),
            _ => Kill::AfterLines(5 + random.below(60) as usize),
        };
        let mut command = child::command("removing_child");
        command.env(FOLDER, folder.path()).env("QUIRE_TEST_REMOVED", removed.to_string());
        command.env("QUIRE_TEST_NEIGHBOURS", neighbours.to_string());
        child::set_form(&mut command, form);
        for line in run_and_kill(&mut command, kill)? {
            let number = |word: &str| line.split_once(word)?.1.parse::<u64>().ok();
            removed = removed.max(number("removed ").unwrap_or(0));
            neighbours = neighbours.max(number("neighbours ").unwrap_or(0));
        }
        check(folder.path(), form, removed, neighbours)
            .with_context(|| format!("round {round}, {kill:?}"))?;
    }
    ensure!(removed > 0, "no removal was ever finished");
    eprintln!("{removed} ranges removed, {neighbours} rows beside them");
    Ok(())
}

/// Rows reported as removed are gone; the neighbours have at least the acknowledged rows, without gaps.
fn check(folder: &Path, form: IndexRows, removed: u64, neighbours: u64) -> Result<()> {
    let storage = LocalStorage::open(folder, flushing_often(form))?;
    for round in 1..=removed {
        for space in [ITEMS, INDEX] {
            let rows = count(&storage, space, owner(round))?;
            ensure!(rows == 0, "{rows} rows of {space:?}, round {round}, are back");
        }
    }
    let expected = [neighbours, neighbours + BESIDE];
    for space in [ITEMS, INDEX] {
        let rows = count(&storage, space, 1)?;
        ensure!(expected.contains(&rows), "{rows} rows of {space:?} beside, {neighbours} acknowledged");
    }
    Ok(())
}

#[test]
fn removing_child() {
    if !child::is_role("removing_child") {
        return;
    }
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let storage =
        LocalStorage::open(PathBuf::from(std::env::var(FOLDER).unwrap()), flushing_often(child::form()))
            .unwrap();
    let storage = &storage;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for first in (number("QUIRE_TEST_NEIGHBOURS")..).step_by(BESIDE as usize) {
                storage.commit(commit(1, first, BESIDE)).unwrap();
                output_of(format!("neighbours {}\n", first + BESIDE));
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        for round in number("QUIRE_TEST_REMOVED") + 1.. {
            // A removal that an earlier process began is completed first.
            remove(storage, owner(round)).unwrap();
            for first in (0..ROWS).step_by(CHUNK as usize) {
                storage
                    .commit(Commit { token: random_token(), ..commit(owner(round), first, CHUNK) })
                    .unwrap();
            }
            remove(storage, owner(round)).unwrap();
            output_of(format!("removed {round}\n"));
        }
    });
}

/// The same rows are written again after a kill.
fn random_token() -> Token {
    use std::hash::{BuildHasher, Hasher};
    Token(1 << 127 | u128::from(std::hash::RandomState::new().build_hasher().finish()))
}

/// 200,000 rows are removed without a commit that contains them.
#[test]
fn removals_do_not_slow_commits() -> Result<()> {
    let folder = scratch()?;
    let storage = LocalStorage::open(folder.path(), LocalOptions::default())?;
    for first in (0..100_000).step_by(CHUNK as usize) {
        storage.commit(commit(2, first, CHUNK))?;
    }
    storage.commit(commit(1, 0, CHUNK))?;
    let figure = |name: &str| storage.statistics().into_iter().find(|(found, _)| *found == name).unwrap().1;
    let before = (figure("commits"), figure("bytes_committed"));
    remove(&storage, 2)?;
    let after = (figure("commits"), figure("bytes_committed"));
    // Only the remaining rows at the end may be deleted by a commit.
    ensure!(after.0 - before.0 <= 2 && after.1 - before.1 < 100_000, "{before:?} {after:?}");
    ensure!(count(&storage, ITEMS, 2)? == 0 && count(&storage, ITEMS, 1)? == CHUNK);
    Ok(())
}

/// Within a minute after everything was removed, large ranges and small ones.
#[test]
fn disk_space_is_freed() -> Result<()> {
    let folder = scratch()?;
    let options = LocalOptions { memtable_bytes: 2 << 20, run_rows_max: 20_000, ..LocalOptions::default() };
    let storage = LocalStorage::open(folder.path(), options)?;
    let owners = 1..60;
    for first in (0..100_000).step_by(CHUNK as usize) {
        storage.commit(commit(0, first, CHUNK))?;
    }
    for owner in owners.clone() {
        for first in (0..1000).step_by(CHUNK as usize) {
            storage.commit(commit(owner, first, CHUNK))?;
        }
    }
    let full = tables_bytes(folder.path())?;
    for owner in (0..1).chain(owners) {
        remove(&storage, owner)?;
    }
    let start = Instant::now();
    loop {
        let left = tables_bytes(folder.path())?;
        if left < 300_000 {
            eprintln!("{full} bytes became {left} in {:?}", start.elapsed());
            return Ok(());
        }
        ensure!(start.elapsed() < Duration::from_secs(200), "{left} of {full} bytes are left");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn tables_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for keyspace in std::fs::read_dir(folder.join("store/keyspaces"))? {
        for table in std::fs::read_dir(keyspace?.path().join("tables"))? {
            // A file may be deleted meanwhile.
            bytes += table?.metadata().map_or(0, |metadata| metadata.len());
        }
    }
    Ok(bytes)
}
