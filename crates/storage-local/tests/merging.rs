//! Merging of sorted runs: few runs to read from, and no commit that pays for a whole merge.

use anyhow::{Context, Result, ensure};
use quire_storage::{Commit, Op, RowList, Space, Storage, Token};
use quire_storage_local::{LocalOptions, LocalStorage};

const COMMITS: u64 = 1500;
const ROWS: u64 = 100;
/// Eight times the rows of a commit, plus a thousand, plus one step.
const MOVED_MAX: u64 = 8 * ROWS + 1000 + 100;
const RUNS_MAX: u64 = 40;

#[test]
fn merges_are_spread_over_commits() -> Result<()> {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let storage = LocalStorage::open(folder.path(), LocalOptions::default())?;
    let figure = |name: &str| -> Result<u64> {
        let found = storage.statistics().into_iter().find(|(found, _)| *found == name);
        Ok(found.context("a figure")?.1)
    };
    let mut runs_most = 0;
    for number in 0..COMMITS {
        let added = (0..ROWS).map(|row| (row * 7919 % ROWS).to_be_bytes()).collect();
        let suffix = (number * 2_654_435_761 % COMMITS).to_be_bytes().to_vec();
        let rows = Op::Rows { space: Space(3), prefix: vec![1], suffix, added, removed: RowList::default() };
        storage.commit(Commit { guards: vec![], token: Token(number.into()), ops: vec![rows] })?;
        runs_most = runs_most.max(figure("runs")?);
    }
    let (moved, most) = (figure("merged_rows")?, figure("merged_rows_per_commit_max")?);
    eprintln!("{moved} rows moved, {most} at most in one commit, {runs_most} runs at most");
    ensure!(moved > COMMITS * ROWS, "runs were not merged");
    ensure!(most <= MOVED_MAX, "a commit moved {most} rows");
    ensure!(runs_most <= RUNS_MAX, "{runs_most} runs");
    Ok(())
}
