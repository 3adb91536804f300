//! Descriptors and disk space that run out and become free again: nothing is poisoned, no acknowledged commit is
//! lost, reads work, and writes work again as soon as possible.

mod child;

use anyhow::{Context, Result, bail, ensure};
use quire_storage::{Commit, CommitError, Op, RowList, Space, Storage, StorageError, Token};
use quire_storage_local::{LocalOptions, LocalStorage};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FOLDER: &str = "QUIRE_TEST_FOLDER";
const RECOVERED_WITHIN: Duration = Duration::from_secs(120);

fn commit(number: u64) -> Commit {
    let key = number.to_be_bytes().to_vec();
    let (prefix, suffix, removed) = (vec![7], key.clone(), RowList::default());
    let added = (0..20u8).map(|index| [index]).collect();
    let ops = vec![
        Op::Put { space: Space(1), key, value: vec![number as u8; 2000] },
        Op::Rows { space: Space(3), prefix, suffix, added, removed },
    ];
    Commit { guards: vec![], token: Token(number.into()), ops }
}

/// Retries a commit that was refused temporarily; any other error fails the test.
fn try_commit(storage: &LocalStorage, number: u64) -> Result<bool> {
    match storage.commit(commit(number)) {
        Ok(_) => Ok(true),
        Err(CommitError::Storage(
            StorageError::Unavailable { .. } | StorageError::DiskFull { .. } | StorageError::Io { .. },
        )) => Ok(false),
        Err(error) => bail!("commit {number}: {error:?}"),
    }
}

fn commit_within(storage: &LocalStorage, number: u64) -> Result<()> {
    let start = Instant::now();
    while !try_commit(storage, number)? {
        ensure!(start.elapsed() < RECOVERED_WITHIN, "writes do not go on: {:?}", storage.statistics());
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn check_rows(storage: &LocalStorage, numbers: &[u64]) -> Result<()> {
    let snapshot = storage.snapshot()?;
    for number in numbers {
        let value = snapshot.get(Space(1), &number.to_be_bytes())?;
        ensure!(value == Some(vec![*number as u8; 2000]), "commit {number} is lost");
        let index = [&[7, 3][..], &number.to_be_bytes()].concat();
        ensure!(snapshot.get(Space(3), &index)?.is_some(), "index rows of commit {number} are lost");
    }
    Ok(())
}

fn run(mut command: Command, role: &str) -> Result<()> {
    let output = command.output().context("running the child")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && said.contains("as expected"), "{role}: {said}\n{failed}");
    eprintln!("{}", said.lines().find(|line| line.contains("as expected")).unwrap_or_default());
    Ok(())
}

/// Runs the child in a shell that prepares its limits.
fn prepared(script: &str, role: &str, folder: &Path) -> Command {
    let inner = child::command(role);
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?)))).env(FOLDER, folder);
    command
}

#[test]
fn descriptors_run_out() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let command =
        prepared("ulimit -n 150; exec \"$0\" \"$@\"", "without_descriptors", &folder.path().join("data"));
    run(command, "without_descriptors")
}

#[test]
fn without_descriptors() -> Result<()> {
    if !child::is_role("without_descriptors") {
        return Ok(());
    }
    let options = LocalOptions { memtable_bytes: 60_000, run_rows_max: 2000, ..LocalOptions::default() };
    let storage = LocalStorage::open(PathBuf::from(std::env::var(FOLDER)?), options)?;
    let mut done = Vec::new();
    let (mut next, mut refused_in_all) = (0u64, 0);
    for _ in 0..3 {
        for _ in 0..100 {
            next += 1;
            commit_within(&storage, next)?;
            done.push(next);
        }
        // Another thread takes every descriptor that becomes free.
        let (ended, ran_out) = (AtomicBool::new(false), AtomicBool::new(false));
        let refused = std::thread::scope(|scope| -> Result<u64> {
            scope.spawn(|| {
                let mut taken = Vec::new();
                while !ended.load(Ordering::Acquire) {
                    match File::open("/dev/null") {
                        Ok(file) => taken.push(file),
                        Err(_) => {
                            ran_out.store(true, Ordering::Release);
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                }
            });
            let (start, mut refused) = (Instant::now(), 0);
            let mut starve = || -> Result<()> {
                while start.elapsed() < Duration::from_millis(1500) {
                    next += 1;
                    match try_commit(&storage, next)? {
                        true => done.push(next),
                        false => {
                            refused += 1;
                            std::thread::sleep(Duration::from_millis(5));
                        }
                    }
                }
                Ok(())
            };
            let outcome = starve();
            ended.store(true, Ordering::Release);
            outcome.map(|()| refused)
        })?;
        ensure!(ran_out.load(Ordering::Acquire), "there were descriptors all the time");
        refused_in_all += refused;
    }
    next += 1;
    commit_within(&storage, next)?;
    done.push(next);
    check_rows(&storage, &done)?;
    let figures = storage.statistics();
    ensure!(figures.contains(&("poisoned", 0)));
    let recoveries = figures.iter().find(|(name, _)| *name == "recoveries").context("a figure")?.1;
    ensure!(
        recoveries > 0 && refused_in_all > 0,
        "{recoveries} recoveries, {refused_in_all} refused commits"
    );
    storage.close()?;
    let storage = LocalStorage::open(PathBuf::from(std::env::var(FOLDER)?), LocalOptions::default())?;
    check_rows(&storage, &done)?;
    println!(
        "{} commits, {refused_in_all} refused, opened again {recoveries} times, as expected",
        done.len()
    );
    Ok(())
}

/// Set where `unshare -rm` is not allowed: the test of a full disk is then left out.
const NO_MOUNTS: &str = "QUIRE_TEST_NO_MOUNTS";

/// A separate disk in memory. Fails where mounting is not allowed, unless it is said that it is not.
#[test]
fn the_disk_fills_up() -> Result<()> {
    if std::env::var_os(NO_MOUNTS).is_some() {
        eprintln!("left out: {NO_MOUNTS} is set");
        return Ok(());
    }
    let allowed = Command::new("unshare").args(["-rm", "true"]).output();
    let is_allowed = allowed.is_ok_and(|output| output.status.success());
    ensure!(
        is_allowed,
        "`unshare -rm` is not allowed here, so no disk can be filled; {NO_MOUNTS}=1 leaves this out"
    );
    let folder = tempfile::tempdir()?;
    let script = "exec unshare -rm sh -c 'mount -t tmpfs -o size=64m none \"$QUIRE_TEST_FOLDER\" && exec \"$0\" \"$@\"' \"$0\" \"$@\"";
    run(prepared(script, "on_a_small_disk", folder.path()), "on_a_small_disk")
}

#[test]
fn on_a_small_disk() -> Result<()> {
    if !child::is_role("on_a_small_disk") {
        return Ok(());
    }
    let folder = PathBuf::from(std::env::var(FOLDER)?);
    let (filler, data) = (folder.join("filler"), folder.join("data"));
    let options = LocalOptions { memtable_bytes: 200_000, run_rows_max: 2000, ..LocalOptions::default() };
    let storage = LocalStorage::open(&data, options.clone())?;
    let mut done = Vec::new();
    for round in 0..3u64 {
        for number in 1..=50 {
            commit_within(&storage, round * 1000 + number)?;
            done.push(round * 1000 + number);
        }
        fill(&filler)?;
        let start = Instant::now();
        let error = loop {
            match storage.commit(commit(round * 1000 + 500)) {
                Ok(_) => ensure!(start.elapsed() < RECOVERED_WITHIN, "a full disk is not noticed"),
                Err(error) => break error,
            }
        };
        ensure!(matches!(error, CommitError::Storage(StorageError::DiskFull { .. })), "{error:?}");
        ensure!(!storage.is_writable());
        check_rows(&storage, &done).context("reads go on")?;
        std::fs::remove_file(&filler)?;
    }
    commit_within(&storage, 9999)?;
    done.push(9999);
    ensure!(storage.is_writable() && storage.statistics().contains(&("poisoned", 0)));
    storage.close()?;
    check_rows(&LocalStorage::open(&data, options)?, &done)?;
    println!("{} commits as expected", done.len());
    Ok(())
}

/// Writes until there is no space left.
fn fill(path: &Path) -> Result<()> {
    use std::io::Write;
    let mut file = File::create(path)?;
    while file.write_all(&[0; 4096]).is_ok() {}
    Ok(())
}
