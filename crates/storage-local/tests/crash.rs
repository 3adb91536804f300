//! No acknowledged commit is lost and no commit is partial: after kill -9 at random moments, and after a power cut at
//! every sync; in both forms of index rows.

mod child;

use anyhow::{Context, Result, ensure};
use quire_storage::random::Random;
use quire_storage::{
    Commit, Direction, Guard, KeyRange, Op, PartitionId, Position, SPACE_COUNT, Scan, Snapshot, Space,
    Storage, Token,
};
use quire_storage_local::{IndexRows, LocalOptions, LocalStorage};
use quire_testkit::crash::trace::{FileRecording, UnsyncedChanges, record};
use quire_testkit::crash::{Kill, kill_count, run_and_kill};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FOLDER: &str = "QUIRE_TEST_FOLDER";

fn output_of(line: String) {
    let mut output = std::io::stdout().lock();
    output.write_all(line.as_bytes()).and_then(|()| output.flush()).expect("said");
}

fn seed() -> u64 {
    let given = std::env::var("QUIRE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()) << 20);
    eprintln!("QUIRE_SEED={seed}");
    seed
}

// ---- kill -9 ----

const WRITERS: u64 = 6;
/// Older items are deleted as new ones are created.
const WINDOW: u64 = 40;
/// Index rows per item.
const ROWS: u64 = 5;

/// Small enough that tables are written and compacted all the time.
fn killed(index_rows: IndexRows) -> LocalOptions {
    LocalOptions { memtable_bytes: 60_000, index_rows, run_rows_max: 1500, ..LocalOptions::default() }
}

#[test]
fn kill_loop_plain() -> Result<()> {
    kill_loop(IndexRows::Plain)
}

#[test]
fn kill_loop_packed() -> Result<()> {
    kill_loop(IndexRows::Packed)
}

fn kill_loop(form: IndexRows) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut random = Random(seed());
    let mut acknowledged = BTreeMap::new();
    for round in 0..kill_count(10) {
        let kill = match random.below(3) {
            0 => Kill::After(Duration::from_millis(random.below(400))),
            _ => Kill::AfterLines(1 + random.below(400) as usize),
        };
        let mut command = child::command("kill_child");
        command.env(FOLDER, folder.path());
        child::set_form(&mut command, form);
        let lines = run_and_kill(&mut command, kill)?;
        for (partition, lsn) in lines.iter().filter_map(|line| parse_acknowledged(line)) {
            acknowledged.insert(partition, lsn);
        }
        check_partitions(folder.path(), form, &mut acknowledged)
            .with_context(|| format!("round {round}, {kill:?}"))?;
    }
    let verified = LocalStorage::verify(folder.path())?;
    ensure!(verified.problems.is_empty(), "{verified:?}");
    eprintln!("{} kills, {} commits acknowledged", kill_count(10), acknowledged.values().sum::<u64>());
    Ok(())
}

fn parse_acknowledged(line: &str) -> Option<(u64, u64)> {
    // The test harness may have printed the start of the line.
    let (_, numbers) = line.split_once("acknowledged ")?;
    let (partition, lsn) = numbers.split_once(' ')?;
    Some((partition.parse().ok()?, lsn.parse().ok()?))
}

#[test]
fn kill_child() {
    if !child::is_role("kill_child") {
        return;
    }
    let folder = PathBuf::from(std::env::var(FOLDER).expect("folder"));
    let storage = LocalStorage::open(folder, killed(child::form())).expect("opens");
    std::thread::scope(|scope| {
        for partition in 1..=WRITERS {
            let storage = &storage;
            scope.spawn(move || write_until_killed(storage, partition));
        }
    });
}

fn write_until_killed(storage: &LocalStorage, partition: u64) {
    let start =
        storage.position(PartitionId(partition)).expect("position").map_or(0, |position| position.lsn);
    for lsn in start + 1.. {
        storage.commit(kill_commit(partition, lsn)).expect("commit");
        output_of(format!("acknowledged {partition} {lsn}\n"));
    }
}

fn key(partition: u64, lsn: u64) -> Vec<u8> {
    [partition.to_be_bytes(), lsn.to_be_bytes()].concat()
}

/// The bytes depend only on partition and LSN.
fn body(partition: u64, lsn: u64) -> Vec<u8> {
    let mut random = Random(partition << 32 | lsn);
    let length = [10, 300, 1000, 5000, 20_000][random.below(5) as usize];
    (0..length).map(|_| random.below(64) as u8).collect()
}

fn kill_commit(partition: u64, lsn: u64) -> Commit {
    let guard = Guard { partition: PartitionId(partition), epoch: 0, previous_lsn: lsn - 1, next_lsn: lsn };
    let key = key(partition, lsn);
    let mut ops = vec![
        Op::Put { space: Space(1), key: key.clone(), value: body(partition, lsn) },
        Op::Put { space: Space(2), key: partition.to_be_bytes().to_vec(), value: lsn.to_be_bytes().to_vec() },
        Op::Put { space: Space(4), key, value: vec![] },
    ];
    ops.push(index_rows(partition, lsn, true));
    if lsn > WINDOW {
        ops.push(Op::Delete { space: Space(1), key: self::key(partition, lsn - WINDOW) });
        ops.push(index_rows(partition, lsn - WINDOW, false));
    }
    Commit { guards: vec![guard], token: token(partition, lsn), ops }
}

/// The index rows of an item, all added or all removed: `number of the index · a hash · item`.
fn index_rows(partition: u64, lsn: u64, come: bool) -> Op {
    let middles: Vec<Vec<u8>> =
        (0..ROWS).map(|index| [&[index as u8][..], &body(partition, lsn)[..6]].concat()).collect();
    let (added, removed) = if come { (middles, vec![]) } else { (vec![], middles) };
    Op::Rows {
        space: Space(3),
        prefix: partition.to_be_bytes().to_vec(),
        suffix: lsn.to_be_bytes().to_vec(),
        added: added.into(),
        removed: removed.into(),
    }
}

fn index_keys(partition: u64, lsns: impl Iterator<Item = u64>) -> Rows {
    let mut keys = Rows::new();
    for lsn in lsns {
        let Op::Rows { prefix, suffix, added, .. } = index_rows(partition, lsn, true) else { unreachable!() };
        keys.extend(added.iter().map(|middle| ([&prefix[..], middle, &suffix].concat(), vec![])));
    }
    keys.sort();
    keys
}

fn token(partition: u64, lsn: u64) -> Token {
    Token(u128::from(partition) << 64 | u128::from(lsn))
}

/// Compares the rows with the acknowledged commits, and adopts commits that were in flight and succeeded.
fn check_partitions(folder: &Path, form: IndexRows, acknowledged: &mut BTreeMap<u64, u64>) -> Result<()> {
    let storage = LocalStorage::open(folder, killed(form))?;
    let snapshot = storage.snapshot()?;
    for partition in 1..=WRITERS {
        let known = acknowledged.get(&partition).copied().unwrap_or(0);
        let lsn = storage.position(PartitionId(partition))?.map_or(0, |position| position.lsn);
        ensure!(lsn == known || lsn == known + 1, "partition {partition} at {lsn}, acknowledged {known}");
        if lsn > 0 {
            check_partition(&storage, &*snapshot, partition, lsn)
                .with_context(|| format!("partition {partition}"))?;
        }
        acknowledged.insert(partition, lsn);
    }
    Ok(())
}

fn check_partition(storage: &LocalStorage, snapshot: &dyn Snapshot, partition: u64, lsn: u64) -> Result<()> {
    let latest = snapshot.get(Space(2), &partition.to_be_bytes())?;
    ensure!(latest == Some(lsn.to_be_bytes().to_vec()), "at {lsn}, but the row says {latest:?}");
    let feed: Vec<_> = rows(snapshot, 4, &partition.to_be_bytes())?.into_iter().map(|(key, _)| key).collect();
    ensure!(feed == (1..=lsn).map(|lsn| key(partition, lsn)).collect::<Vec<_>>(), "feed rows are not dense");
    let oldest = lsn.saturating_sub(WINDOW) + 1;
    let expected: Vec<_> = (oldest..=lsn).map(|lsn| (key(partition, lsn), body(partition, lsn))).collect();
    ensure!(
        rows(snapshot, 1, &partition.to_be_bytes())? == expected,
        "items are not those of the last commits"
    );
    ensure!(
        rows(snapshot, 3, &partition.to_be_bytes())? == index_keys(partition, oldest..=lsn),
        "index rows are not those of the items"
    );
    ensure!(storage.resolve(token(partition, lsn))?.is_some(), "the last token is forgotten");
    Ok(())
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn rows(snapshot: &dyn Snapshot, space: u8, prefix: &[u8]) -> Result<Rows> {
    let page = snapshot.scan(&Scan {
        space: Space(space),
        range: KeyRange::prefix(prefix),
        direction: Direction::Forward,
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
        keys_only: false,
    })?;
    ensure!(!page.more);
    Ok(page.rows)
}

// ---- power cuts ----

/// Commits of the traced child, which closes and opens once in between.
const COMMITS: u64 = 30;
const REOPENED_AT: u64 = 18;

fn traced(index_rows: IndexRows) -> LocalOptions {
    LocalOptions { memtable_bytes: 40_000, index_rows, run_rows_max: 60, ..LocalOptions::default() }
}

#[test]
fn power_cut_at_every_sync_plain() -> Result<()> {
    power_cut_at_every_sync(IndexRows::Plain)
}

#[test]
fn power_cut_at_every_sync_packed() -> Result<()> {
    power_cut_at_every_sync(IndexRows::Packed)
}

fn power_cut_at_every_sync(form: IndexRows) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = child::command("traced_child");
    command.env(FOLDER, folder.path());
    child::set_form(&mut command, form);
    let recording = record(&command, folder.path())?;
    let commits = recording.printed_before(recording.events.len()).filter_map(parse_number).count() as u64;
    ensure!(commits == COMMITS, "the recorder saw {commits} commits");
    let (seed, points) = (seed(), recording.sync_points());
    let results = std::thread::scope(|scope| {
        let cut = |half: usize| {
            let mut numbered = points.iter().copied().enumerate().skip(half).step_by(2);
            numbered.try_for_each(|(number, point)| check_cuts(&recording, form, point, seed + number as u64))
        };
        let other = scope.spawn(move || cut(1));
        [cut(0), other.join().expect("the other half")]
    });
    eprintln!("{} sync points, {} events", points.len(), recording.events.len());
    results.into_iter().collect()
}

fn check_cuts(recording: &FileRecording, form: IndexRows, point: usize, seed: u64) -> Result<()> {
    let acknowledged = recording.printed_before(point).filter_map(parse_number).count() as u64;
    for rest in [UnsyncedChanges::Dropped, UnsyncedChanges::Cut, UnsyncedChanges::Garbled(seed)] {
        check_cut(recording, form, point, rest, acknowledged).with_context(|| {
            format!("cut before event {point} with {acknowledged} acknowledged, {rest:?}")
        })?;
    }
    Ok(())
}

/// In memory if possible: this checks what was read, not that it was synced.
fn scratch() -> Result<tempfile::TempDir> {
    Ok(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?)
}

fn parse_number(line: &str) -> Option<u64> {
    line.split_once("acknowledged ")?.1.parse().ok()
}

#[test]
fn traced_child() {
    if !child::is_role("traced_child") {
        return;
    }
    let folder = PathBuf::from(std::env::var(FOLDER).expect("folder"));
    let options = traced(child::form());
    let mut storage = LocalStorage::open(&folder, options.clone()).expect("opens");
    for number in 1..=COMMITS {
        storage.commit(traced_commit(number)).expect("commit");
        output_of(format!("acknowledged {number}\n"));
        if number == REOPENED_AT {
            storage.close().expect("closes");
            storage = LocalStorage::open(&folder, options.clone()).expect("opens again");
        }
    }
}

/// Puts two rows, replaces one, deletes one; adds an item's index rows and removes those of an older item.
fn traced_commit(number: u64) -> Commit {
    let guard = Guard { partition: PartitionId(9), epoch: 0, previous_lsn: number - 1, next_lsn: number };
    let mut ops = vec![
        Op::Put { space: Space(1), key: key(9, number), value: body(9, number) },
        Op::Put { space: Space(2), key: b"latest".to_vec(), value: number.to_be_bytes().to_vec() },
        Op::Put { space: Space(4), key: key(9, number), value: vec![] },
        Op::Put { space: Space(3), key: b"an ordinary row".to_vec(), value: vec![number as u8; 3] },
        index_rows(9, number, true),
    ];
    if number > 5 {
        ops.push(Op::Delete { space: Space(1), key: key(9, number - 5) });
        ops.push(index_rows(9, number - 5, false));
    }
    Commit { guards: vec![guard], token: token(9, number), ops }
}

/// After the cut, the folder contains exactly the first commits, at least the acknowledged ones.
fn check_cut(
    recording: &FileRecording,
    form: IndexRows,
    point: usize,
    rest: UnsyncedChanges,
    acknowledged: u64,
) -> Result<()> {
    let folder = scratch()?;
    recording.cut_at(point, rest, folder.path())?;
    let storage = LocalStorage::open(folder.path(), traced(form))?;
    let lsn = storage.position(PartitionId(9))?.map_or(0, |position| position.lsn);
    ensure!(lsn == acknowledged || lsn == acknowledged + 1, "at {lsn}");
    compare(&storage, lsn)?;
    storage.commit(traced_commit(lsn + 1)).context("the next commit")?;
    drop(storage);
    let storage = LocalStorage::open(folder.path(), traced(form)).context("opening again")?;
    compare(&storage, lsn + 1)
}

fn compare(storage: &LocalStorage, commits: u64) -> Result<()> {
    let mut expected: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = vec![BTreeMap::new(); SPACE_COUNT.into()];
    for op in (1..=commits).flat_map(|number| traced_commit(number).ops) {
        match op {
            Op::Put { space, key, value } => drop(expected[usize::from(space.0)].insert(key, value)),
            Op::Delete { space, key } => drop(expected[usize::from(space.0)].remove(&key)),
            Op::Rows { space, prefix, suffix, added, removed } => {
                let key = |middle: &[u8]| [&prefix[..], middle, &suffix].concat();
                let rows = &mut expected[usize::from(space.0)];
                added.iter().for_each(|middle| drop(rows.insert(key(middle), vec![])));
                removed.iter().for_each(|middle| drop(rows.remove(&key(middle))));
            }
        }
    }
    let snapshot = storage.snapshot()?;
    for (space, expected) in (0..SPACE_COUNT).zip(expected) {
        ensure!(
            rows(&*snapshot, space, b"")? == expected.into_iter().collect::<Rows>(),
            "space {space} differs"
        );
    }
    let position = (commits > 0).then_some(Position { epoch: 0, lsn: commits });
    ensure!(storage.position(PartitionId(9))? == position);
    ensure!(commits == 0 || storage.resolve(token(9, commits))?.is_some());
    Ok(())
}
