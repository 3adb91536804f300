//! A full disk and a failed sync: writes are refused from then on, reads go on, nothing acknowledged is lost, and
//! what was refused is there as a whole or not at all.

mod child;

use anyhow::{Context, Result, ensure};
use quire_storage::{
    Commit, CommitError, Direction, Guard, KeyRange, Op, PartitionId, Scan, Space, Storage, StorageError,
    Token,
};
use quire_storage_local::{LocalOptions, LocalStorage};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: &str = "QUIRE_TEST_FOLDER";
const PREPARED: u64 = 10;
const ATTEMPTS_MAX: u64 = 20_000;
const ROWS: u64 = 4;

/// Files may grow to a few megabytes (a shell counts blocks of 512 or 1024 bytes). The signal that goes with it is
/// ignored, so that the write itself fails.
#[test]
fn full_disk() -> Result<()> {
    check(|command| {
        let mut limited = Command::new("sh");
        limited.args(["-c", "trap '' XFSZ; ulimit -f 6000; exec \"$0\" \"$@\""]);
        limited.arg(command.get_program()).args(command.get_args());
        limited
    })
}

#[test]
fn failed_sync() -> Result<()> {
    check(|command| {
        let mut injected = Command::new("strace");
        injected.args(["-f", "-o", "/dev/null", "-e", "trace=fdatasync"]);
        injected.args(["-e", "inject=fdatasync:error=EIO:when=25"]);
        injected.arg(command.get_program()).args(command.get_args());
        injected
    })
}

/// Prepares a folder, lets a child write to it until its disk fails, and looks at what is left.
fn check(starve: impl Fn(&Command) -> Command) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let storage = LocalStorage::open(folder.path(), LocalOptions::default())?;
    for lsn in 1..=PREPARED {
        storage.commit(commit(lsn))?;
    }
    drop(storage);
    let command = child::command("failing_child");
    let mut starved = starve(&command);
    starved
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env(FOLDER, folder.path());
    let output = starved.output().context("running the child")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the child failed: {said}\n{failed}");
    ensure!(said.contains("poisoned as expected"), "the disk never failed: {said}");
    let numbers = said.lines().filter_map(|line| line.split_once("acknowledged ")?.1.parse().ok());
    let acknowledged = numbers.max().unwrap_or(PREPARED);
    ensure!(acknowledged > PREPARED, "nothing was written before the disk failed");
    check_left(folder.path(), acknowledged)
}

fn check_left(folder: &Path, acknowledged: u64) -> Result<()> {
    let storage = LocalStorage::open(folder, LocalOptions::default())?;
    let lsn = storage.position(PartitionId(1))?.context("the partition")?.lsn;
    ensure!(lsn == acknowledged || lsn == acknowledged + 1, "at {lsn}, acknowledged {acknowledged}");
    ensure!(count(&storage)? == lsn * ROWS, "half a commit: {} rows at {lsn}", count(&storage)?);
    storage.commit(commit(lsn + 1)).context("it writes again")?;
    storage.close()?;
    let verified = LocalStorage::verify(folder)?;
    ensure!(verified.problems.is_empty() && verified.rows[1] == (lsn + 1) * ROWS, "{verified:?}");
    Ok(())
}

fn commit(lsn: u64) -> Commit {
    let guard = Guard { partition: PartitionId(1), epoch: 0, previous_lsn: lsn - 1, next_lsn: lsn };
    let row = |number: u64| {
        let key = [lsn.to_be_bytes(), number.to_be_bytes()].concat();
        Op::Put { space: Space(1), key, value: vec![lsn as u8; 3000] }
    };
    Commit { guards: vec![guard], token: Token(lsn.into()), ops: (0..ROWS).map(row).collect() }
}

fn count(storage: &LocalStorage) -> Result<u64> {
    let scan = Scan {
        space: Space(1),
        range: KeyRange::all(),
        direction: Direction::Forward,
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
        keys_only: true,
    };
    Ok(storage.snapshot()?.scan(&scan)?.rows.len() as u64)
}

#[test]
fn failing_child() -> Result<()> {
    if !child::plays("failing_child") {
        return Ok(());
    }
    let folder = PathBuf::from(std::env::var(FOLDER)?);
    let storage = LocalStorage::open(folder, LocalOptions::default())?;
    let mut output = std::io::stdout();
    for lsn in PREPARED + 1..PREPARED + ATTEMPTS_MAX {
        if let Err(error) = storage.commit(commit(lsn)) {
            ensure!(is_poisoned(&error), "{error:?}");
            return check_poisoned(&storage, lsn);
        }
        // Said with raw writes: standard output may be a file under the same limit, but it stays small.
        output.write_all(format!("acknowledged {lsn}\n").as_bytes())?;
        output.flush()?;
    }
    Ok(())
}

fn is_poisoned(error: &CommitError) -> bool {
    matches!(error, CommitError::Storage(StorageError::Poisoned { .. }))
}

fn check_poisoned(storage: &LocalStorage, lsn: u64) -> Result<()> {
    let again = storage.commit(commit(lsn)).err().context("a poisoned storage took a write")?;
    ensure!(is_poisoned(&again), "{again:?}");
    ensure!(storage.fence(PartitionId(1), 5).is_err(), "a poisoned storage took a fence");
    ensure!(count(storage)? == (lsn - 1) * ROWS, "reads go on, and see what was acknowledged");
    ensure!(storage.position(PartitionId(1))?.is_some_and(|position| position.lsn == lsn - 1));
    ensure!(storage.resolve(Token(lsn.into()))?.is_none());
    ensure!(storage.statistics().contains(&("poisoned", 1)));
    ensure!(storage.close().is_err(), "closing says that it could not flush");
    println!("poisoned as expected");
    Ok(())
}
