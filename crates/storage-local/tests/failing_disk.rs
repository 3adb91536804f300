//! A full disk and a failed sync: from then on writes are refused and reads work, no acknowledged commit is lost, and
//! a refused commit is there completely or not at all.

mod child;

use anyhow::{Context, Result, ensure};
use quire_storage::{
    Commit, CommitError, Direction, Guard, KeyRange, Op, PartitionId, RowList, Scan, Space, Storage,
    StorageError, Token,
};
use quire_storage_local::{IndexRows, LocalOptions, LocalStorage};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: &str = "QUIRE_TEST_FOLDER";
const FULL: &str = "QUIRE_TEST_FULL_DISK";
const PREPARED: u64 = 10;
const ATTEMPTS_MAX: u64 = 20_000;
const ROWS: u64 = 4;
const INDEX_ROWS: u64 = 10;

/// Files may grow to a few megabytes (a shell counts blocks of 512 or 1024 bytes). The signal for the limit is
/// ignored, so that the write itself fails.
#[test]
fn full_disk_plain() -> Result<()> {
    full_disk(IndexRows::Plain)
}

#[test]
fn full_disk_packed() -> Result<()> {
    full_disk(IndexRows::Packed)
}

fn full_disk(form: IndexRows) -> Result<()> {
    check(form, |command| {
        let mut limited = Command::new("sh");
        limited.args(["-c", "trap '' XFSZ; ulimit -f 6000; exec \"$0\" \"$@\""]);
        limited.arg(command.get_program()).args(command.get_args()).env(FULL, "yes");
        limited
    })
}

#[test]
fn failed_sync_plain() -> Result<()> {
    failed_sync(IndexRows::Plain)
}

#[test]
fn failed_sync_packed() -> Result<()> {
    failed_sync(IndexRows::Packed)
}

fn failed_sync(form: IndexRows) -> Result<()> {
    check(form, |command| {
        let mut injected = Command::new("strace");
        injected.args(["-f", "-o", "/dev/null", "-e", "trace=fdatasync"]);
        injected.args(["-e", "inject=fdatasync:error=EIO:when=25"]);
        injected.arg(command.get_program()).args(command.get_args());
        injected
    })
}

/// Index rows are flushed now and then.
fn options(index_rows: IndexRows) -> LocalOptions {
    LocalOptions { index_rows, run_rows_max: 1000, ..LocalOptions::default() }
}

/// Prepares a folder, lets a child write to it until its disk fails, and checks the result.
fn check(form: IndexRows, starve: impl Fn(&Command) -> Command) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let storage = LocalStorage::open(folder.path(), options(form))?;
    for lsn in 1..=PREPARED {
        storage.commit(commit(lsn))?;
    }
    drop(storage);
    let mut command = child::command("failing_child");
    child::set_form(&mut command, form);
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
    check_recovered(folder.path(), form, acknowledged)
}

fn check_recovered(folder: &Path, form: IndexRows, acknowledged: u64) -> Result<()> {
    let storage = LocalStorage::open(folder, options(form))?;
    let lsn = storage.position(PartitionId(1))?.context("the partition")?.lsn;
    ensure!(lsn == acknowledged || lsn == acknowledged + 1, "at {lsn}, acknowledged {acknowledged}");
    check_rows(&storage, lsn)?;
    storage.commit(commit(lsn + 1)).context("it writes again")?;
    storage.close()?;
    let verified = LocalStorage::verify(folder)?;
    ensure!(verified.problems.is_empty() && verified.rows[1] == (lsn + 1) * ROWS, "{verified:?}");
    ensure!(verified.rows[3] == (lsn + 1) * INDEX_ROWS, "{verified:?}");
    Ok(())
}

fn check_rows(storage: &LocalStorage, lsn: u64) -> Result<()> {
    let (rows, index_rows) = (count(storage, Space(1))?, count(storage, Space(3))?);
    ensure!(rows == lsn * ROWS && index_rows == lsn * INDEX_ROWS, "{rows} and {index_rows} rows at {lsn}");
    Ok(())
}

fn commit(lsn: u64) -> Commit {
    let guard = Guard { partition: PartitionId(1), epoch: 0, previous_lsn: lsn - 1, next_lsn: lsn };
    let row = |number: u64| {
        let key = [lsn.to_be_bytes(), number.to_be_bytes()].concat();
        Op::Put { space: Space(1), key, value: vec![lsn as u8; 3000] }
    };
    let index_rows = Op::Rows {
        space: Space(3),
        prefix: vec![],
        suffix: lsn.to_be_bytes().to_vec(),
        added: (0..INDEX_ROWS).map(|number| [number as u8]).collect(),
        removed: RowList::default(),
    };
    let ops = (0..ROWS).map(row).chain([index_rows]).collect();
    Commit { guards: vec![guard], token: Token(lsn.into()), ops }
}

fn count(storage: &LocalStorage, space: Space) -> Result<u64> {
    let scan = Scan {
        space,
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
    if !child::is_role("failing_child") {
        return Ok(());
    }
    let folder = PathBuf::from(std::env::var(FOLDER)?);
    let storage = LocalStorage::open(folder, options(child::form()))?;
    let mut output = std::io::stdout();
    for lsn in PREPARED + 1..PREPARED + ATTEMPTS_MAX {
        if let Err(error) = storage.commit(commit(lsn)) {
            ensure!(is_expected(&error), "{error:?}");
            return check_poisoned(&storage, lsn);
        }
        // With raw writes: standard output may be a file under the same limit, but it stays small.
        output.write_all(format!("acknowledged {lsn}\n").as_bytes())?;
        output.flush()?;
    }
    Ok(())
}

/// A full disk is reported as such.
fn is_expected(error: &CommitError) -> bool {
    match std::env::var(FULL) {
        Ok(_) => matches!(error, CommitError::Storage(StorageError::DiskFull { .. })),
        Err(_) => matches!(error, CommitError::Storage(StorageError::Poisoned { .. })),
    }
}

fn check_poisoned(storage: &LocalStorage, lsn: u64) -> Result<()> {
    let again = storage.commit(commit(lsn)).err().context("a poisoned storage took a write")?;
    ensure!(is_expected(&again), "{again:?}");
    ensure!(storage.fence(PartitionId(1), 5).is_err(), "a poisoned storage took a fence");
    check_rows(storage, lsn - 1).context("reads go on, and see what was acknowledged")?;
    ensure!(storage.position(PartitionId(1))?.is_some_and(|position| position.lsn == lsn - 1));
    ensure!(storage.resolve(Token(lsn.into()))?.is_none());
    ensure!(storage.statistics().contains(&("poisoned", 1)));
    ensure!(storage.close().is_err(), "closing says that it could not flush");
    println!("poisoned as expected");
    Ok(())
}
