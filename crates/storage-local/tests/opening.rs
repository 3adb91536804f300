//! Opening after a kill reads what the journals hold, and no more of it stays in memory than was not in tables yet:
//! however much the store holds, and however often it was written.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod child;

use anyhow::{Context, Result, ensure};
use quire_storage::{Commit, Op, RowList, Space, Storage, Token};
use quire_storage_local::{LocalOptions, LocalStorage};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const FOLDER: &str = "QUIRE_TEST_FOLDER";
const COMMITS: &str = "QUIRE_TEST_COMMITS";
const DONE: &str = "all commits are acknowledged";

const VALUE_BYTES: usize = 96 << 10;
const ROWS: u64 = 40;
const RUN_ROWS_MAX: u64 = 4000;
/// What fjall takes before it lets go of a journal, once for the journal that is full and once for the one being written.
const JOURNAL_BYTES_MAX: u64 = 2 * (64 << 20) + (16 << 20);

fn options() -> LocalOptions {
    LocalOptions { memtable_bytes: 2 << 20, run_rows_max: RUN_ROWS_MAX as usize, ..LocalOptions::default() }
}

fn commit(storage: &LocalStorage, number: u64) -> Result<()> {
    let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
    let value = vec![number as u8; VALUE_BYTES];
    let added = (0..ROWS).map(|row| row.to_be_bytes()).collect();
    let ops = vec![
        Op::Put { space: Space(1), key: key.clone(), value },
        Op::Rows { space: Space(3), prefix: vec![1], suffix: key, added, removed: RowList::default() },
    ];
    storage.commit(Commit { guards: vec![], token: Token(number.into()), ops })?;
    Ok(())
}

fn figure(storage: &LocalStorage, name: &str) -> Result<u64> {
    let found = storage.statistics().into_iter().find(|(found, _)| *found == name);
    Ok(found.with_context(|| format!("no figure {name}"))?.1)
}

#[test]
fn opening_reads_no_more_than_the_journals() -> Result<()> {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let mut from = 0;
    for commits in [150, 900, 1800] {
        write_and_abort(folder.path(), from..commits)?;
        from = commits;
        let storage = LocalStorage::open(folder.path(), options())?;
        let [bytes, rows, packed, unflushed, sequence] = [
            "opened_journal_bytes",
            "opened_index_rows",
            "opened_packed_rows",
            "opened_unflushed_rows",
            "sequence",
        ]
        .map(|name| figure(&storage, name).unwrap());
        eprintln!(
            "{commits} commits: {bytes} bytes, {packed} packed rows, {unflushed} unflushed, {rows} index rows"
        );
        ensure!(bytes <= JOURNAL_BYTES_MAX, "{bytes} bytes of journals after {commits} commits");
        ensure!(
            packed * VALUE_BYTES as u64 <= JOURNAL_BYTES_MAX,
            "{packed} packed rows after {commits} commits"
        );
        ensure!(rows <= 4 * RUN_ROWS_MAX, "{rows} index rows after {commits} commits");
        ensure!(rows == unflushed * ROWS, "{rows} index rows of {unflushed} commits");
        ensure!(sequence >= commits, "{sequence} of {commits} commits are there");
    }
    Ok(())
}

/// In another process, which is killed when it is done.
fn write_and_abort(folder: &Path, commits: Range<u64>) -> Result<()> {
    let mut command = child::command("writing_child");
    command.env(FOLDER, folder).env(COMMITS, format!("{} {}", commits.start, commits.end));
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(child.stdout.take().context("an output")?);
    let is_done = output.lines().map_while(|line| line.ok()).any(|line| line.contains(DONE));
    child.kill()?;
    child.wait()?;
    ensure!(is_done, "the writer ended early");
    Ok(())
}

#[test]
fn writing_child() {
    if !child::is_role("writing_child") {
        return;
    }
    let (folder, commits) = (std::env::var_os(FOLDER).unwrap(), std::env::var(COMMITS).unwrap());
    let (from, to) = commits.split_once(' ').unwrap();
    let storage = LocalStorage::open(folder, options()).unwrap();
    for number in from.parse().unwrap()..to.parse().unwrap() {
        commit(&storage, number).unwrap();
    }
    println!("{DONE}");
    std::thread::sleep(Duration::from_secs(600));
}
