//! Opening damaged, foreign, busy and old directories.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use quire_storage::{
    Commit, Direction, Guard, KeyRange, Op, PartitionId, RowList, Scan, Space, Storage, TOKENS_KEPT, Token,
};
use quire_storage_local::{LocalOptions, LocalStorage, OpenError};
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn open(folder: &Path) -> Result<LocalStorage, OpenError> {
    LocalStorage::open(folder, LocalOptions::default())
}

fn open_accepting_loss(folder: &Path) -> Result<LocalStorage, OpenError> {
    LocalStorage::open(folder, LocalOptions { accept_loss: true, ..LocalOptions::default() })
}

fn commit(lsn: u64) -> Commit {
    let guard = Guard { partition: PartitionId(1), epoch: 0, previous_lsn: lsn - 1, next_lsn: lsn };
    let op = Op::Put { space: Space(1), key: lsn.to_be_bytes().to_vec(), value: vec![lsn as u8; 500] };
    Commit { guards: vec![guard], token: Token(lsn.into()), ops: vec![op] }
}

fn lsn(storage: &LocalStorage) -> u64 {
    storage.position(PartitionId(1)).unwrap().map_or(0, |position| position.lsn)
}

/// A folder after a kill after five commits, and where each of their batches ends in the journal.
fn killed() -> (TempDir, Vec<usize>) {
    let folder = tempfile::tempdir().unwrap();
    let storage = open(folder.path()).unwrap();
    let mut ends = vec![0];
    for lsn in 1..=5 {
        storage.commit(commit(lsn)).unwrap();
        ends.push(journal_bytes(folder.path()).len());
    }
    drop(storage);
    (folder, ends)
}

fn journal(folder: &Path) -> PathBuf {
    folder.join("store/0.jnl")
}

/// Up to the preallocated zeros; a batch ends in a nonzero byte.
fn journal_bytes(folder: &Path) -> Vec<u8> {
    let mut bytes = fs::read(journal(folder)).unwrap();
    // Whole blocks first: nearly all of it is zeros.
    let blocks =
        bytes.chunks(4096).rposition(|block| block != &[0; 4096][..block.len()]).map_or(0, |last| last + 1);
    bytes.truncate(blocks * 4096);
    let length = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(length);
    bytes
}

fn cut_files(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("journal-cut-")).count()
}

#[test]
fn an_unfinished_batch_is_dropped() {
    let (folder, ends) = killed();
    let bytes = journal_bytes(folder.path());
    let batch = bytes[ends[4]..ends[5]].to_vec();
    let garbage: Vec<u8> =
        (1..2000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut flipped = batch.clone();
    flipped[40] ^= 1;
    let huge = [&[1, 1, 0, 0, 0], &[9; 8][..], &[2, 0, 0], &[1; 8], &[5, 0], &[255; 8], b"x"].concat();
    for tail in [&batch[..1], &batch[..20], &batch[..batch.len() - 1], &garbage, &flipped, &huge] {
        fs::write(journal(folder.path()), [&bytes, tail, &[0; 1000]].concat()).unwrap();
        let storage = open(folder.path()).unwrap();
        assert_eq!(lsn(&storage), 5);
        drop(storage);
        assert_eq!(cut_files(folder.path()), 0, "nothing of value was cut");
    }
    let storage = open(folder.path()).unwrap();
    storage.commit(commit(6)).unwrap();
    drop(storage);
    assert_eq!(lsn(&open(folder.path()).unwrap()), 6);
}

#[test]
fn missing_acknowledged_commits_refuse_to_open() {
    for (damage, found) in [("cut", 4), ("garbled", 1)] {
        let (folder, ends) = killed();
        let mut bytes = journal_bytes(folder.path());
        match damage {
            "cut" => bytes.truncate(ends[5] - 3),
            _ => bytes[ends[1] + 60] ^= 0xFF,
        }
        fs::write(journal(folder.path()), &bytes).unwrap();
        for _ in 0..2 {
            let error = open(folder.path()).err().expect("refused");
            let OpenError::LogEndsEarly { acknowledged: 5, found: end } = error else { panic!("{error}") };
            assert_eq!(end, found);
        }
        assert_eq!(cut_files(folder.path()), 1, "what was cut is kept");
        let storage = open_accepting_loss(folder.path()).unwrap();
        assert_eq!(lsn(&storage), found);
        storage.commit(commit(found + 1)).unwrap();
        drop(storage);
        assert_eq!(lsn(&open(folder.path()).unwrap()), found + 1, "the loss was accepted once and for all");
    }
}

#[test]
fn a_hole_refuses_to_open() {
    let (folder, ends) = killed();
    let mut bytes = journal_bytes(folder.path());
    bytes.drain(ends[2]..ends[3]);
    fs::write(journal(folder.path()), &bytes).unwrap();
    for error in [open(folder.path()).err(), open_accepting_loss(folder.path()).err()] {
        let error = error.expect("refused").to_string();
        assert_eq!(error, "corrupt data: a hole in the log: commit 4 follows where 3 should");
    }
}

#[test]
fn an_unreadable_acknowledgement_refuses_to_open() {
    let (folder, _) = killed();
    fs::write(folder.path().join("acknowledged"), [7; 1040]).unwrap();
    assert!(matches!(open(folder.path()).err(), Some(OpenError::AcknowledgedUnreadable)));
    drop(open_accepting_loss(folder.path()).unwrap());
    assert_eq!(lsn(&open(folder.path()).unwrap()), 5);
}

#[test]
fn a_missing_keyspace_refuses_to_open() {
    let (folder, _) = killed();
    fs::remove_dir_all(folder.path().join("store/keyspaces/2")).unwrap();
    let error = open(folder.path()).err().expect("refused").to_string();
    assert_eq!(error, "corrupt data: keyspace 2 is missing from the store");
}

#[test]
fn a_second_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path()).unwrap();
    let error = open(folder.path()).err().expect("refused");
    assert!(error.to_string().ends_with("is in use by another process"), "{error}");
    first.close().unwrap();
    open(folder.path()).unwrap();
}

#[test]
fn snapshots_can_be_used_after_closing() {
    let folder = tempfile::tempdir().unwrap();
    let storage = open(folder.path()).unwrap();
    storage.commit(commit(1)).unwrap();
    let snapshot = storage.snapshot().unwrap();
    storage.close().unwrap();
    assert!(snapshot.get(Space(1), &1u64.to_be_bytes()).is_err());
    assert!(
        matches!(open(folder.path()).err(), Some(OpenError::Locked { .. })),
        "its files are still in use"
    );
    drop(snapshot);
    assert_eq!(lsn(&open(folder.path()).unwrap()), 1);
}

#[test]
fn closing_leaves_nothing_to_replay() {
    let (folder, _) = killed();
    open(folder.path()).unwrap().close().unwrap();
    assert_eq!(fs::metadata(journal(folder.path())).unwrap().len(), 0);
    let storage = open(folder.path()).unwrap();
    assert_eq!(lsn(&storage), 5);
    storage.commit(commit(6)).unwrap();
    assert_eq!(storage.resolve(Token(5)).unwrap().unwrap().sequence, 5);
}

#[test]
fn verify_reads_every_block() {
    let (folder, _) = killed();
    let storage = open(folder.path()).unwrap();
    for lsn in 6..=300 {
        storage.commit(commit(lsn)).unwrap();
    }
    storage.close().unwrap();
    let verified = LocalStorage::verify(folder.path()).unwrap();
    assert_eq!(verified.rows, [0, 300, 0, 0, 0]);
    assert_eq!((verified.last_sequence, verified.partitions, verified.problems.len()), (300, 1, 0));
    let tables = fs::read_dir(folder.path().join("store/keyspaces/2/tables")).unwrap();
    let table =
        tables.map(|entry| entry.unwrap().path()).max_by_key(|path| fs::metadata(path).unwrap().len());
    let table = table.expect("a table");
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 4;
    bytes[middle] ^= 0x10;
    fs::write(&table, bytes).unwrap();
    let verified = LocalStorage::verify(folder.path()).unwrap();
    assert_eq!(verified.problems.len(), 1, "{verified:?}");
    assert!(verified.problems[0].starts_with("space 1: "), "{verified:?}");
}

#[test]
fn old_commit_records_are_pruned_and_the_chain_still_checks() {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let storage = open(folder.path()).unwrap();
    let count = TOKENS_KEPT as u64 + 6000;
    for lsn in 1..=count {
        storage.commit(commit(lsn)).unwrap();
    }
    let kept = |storage: &LocalStorage| {
        assert_eq!(storage.resolve(Token(1)).unwrap(), None, "forgotten");
        assert!(storage.resolve(Token((count - TOKENS_KEPT as u64 + 1).into())).unwrap().is_some());
        let figures = storage.statistics();
        figures.into_iter().find(|(name, _)| *name == "commit_records").unwrap().1
    };
    let records = kept(&storage);
    assert!(records < TOKENS_KEPT as u64 + 4200, "{records} records");
    drop(storage);
    let storage = open(folder.path()).unwrap();
    assert_eq!(kept(&storage), records);
    assert_eq!(lsn(&storage), count);
    storage.close().unwrap();
    assert_eq!(LocalStorage::verify(folder.path()).unwrap().commit_records, records);
}

// ---- packed index rows ----

const INDEX_ROWS: u64 = 10;

fn indexed(lsn: u64) -> Commit {
    let rows = Op::Rows {
        space: Space(3),
        prefix: b"index".to_vec(),
        suffix: lsn.to_be_bytes().to_vec(),
        added: (0..INDEX_ROWS).map(|number| [number as u8]).collect(),
        removed: RowList::default(),
    };
    let mut commit = commit(lsn);
    commit.ops.push(rows);
    commit
}

/// A folder after a kill after thirty commits, with all but the last index rows in tables, and where each batch ends
/// in the journal.
fn killed_with_rows() -> (TempDir, Vec<usize>) {
    let folder = tempfile::tempdir().unwrap();
    let options = LocalOptions { run_rows_max: 50, ..LocalOptions::default() };
    let storage = LocalStorage::open(folder.path(), options).unwrap();
    let mut ends = vec![0];
    for lsn in 1..=30 {
        storage.commit(indexed(lsn)).unwrap();
        ends.push(journal_bytes(folder.path()).len());
    }
    while figure(&storage, "run_rows") >= 50 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(figure(&storage, "run_flushes") > 0);
    drop(storage);
    (folder, ends)
}

fn figure(storage: &LocalStorage, name: &str) -> u64 {
    storage.statistics().into_iter().find(|(known, _)| *known == name).unwrap().1
}

fn has_index_rows(storage: &LocalStorage, lsn: u64) -> bool {
    let key = |number: u64| [&b"index"[..], &[number as u8], &lsn.to_be_bytes()].concat();
    let snapshot = storage.snapshot().unwrap();
    (0..INDEX_ROWS).all(|number| snapshot.get(Space(3), &key(number)).unwrap().is_some())
}

#[test]
fn packed_rows_come_back() {
    let (folder, _) = killed_with_rows();
    let storage = open(folder.path()).unwrap();
    assert!((1..=30).all(|lsn| has_index_rows(&storage, lsn)));
    storage.commit(indexed(31)).unwrap();
    drop(storage);
    let verified = LocalStorage::verify(folder.path()).unwrap();
    assert_eq!(verified.rows, [0, 31, 0, 31 * INDEX_ROWS, 0], "{verified:?}");
    let storage = open(folder.path()).unwrap();
    assert_eq!(figure(&storage, "run_rows"), 0, "closing left nothing to unpack");
    assert!((1..=31).all(|lsn| has_index_rows(&storage, lsn)));
}

#[test]
fn a_log_that_ends_before_what_was_flushed_refuses_to_open() {
    let (folder, ends) = killed_with_rows();
    let bytes = journal_bytes(folder.path());
    fs::write(journal(folder.path()), &bytes[..ends[3]]).unwrap();
    // Even if the file of acknowledged commits is older.
    fs::write(folder.path().join("acknowledged"), [7; 1040]).unwrap();
    for _ in 0..2 {
        let error = open(folder.path()).err().expect("refused");
        assert!(matches!(error, OpenError::LogEndsEarly { found: 3, acknowledged: 4.. }), "{error}");
    }
    let storage = open_accepting_loss(folder.path()).unwrap();
    assert_eq!(lsn(&storage), 3);
    for lsn in 4..=9 {
        storage.commit(indexed(lsn)).unwrap();
    }
    drop(storage);
    for _ in 0..2 {
        let storage = open(folder.path()).expect("the loss was accepted once and for all");
        assert_eq!(lsn(&storage), 9);
        assert!((1..=9).all(|lsn| has_index_rows(&storage, lsn)), "new commits count, whatever was flushed");
        storage.close().unwrap();
    }
}

#[test]
fn the_checkpoint_row_is_hidden() {
    let (folder, _) = killed_with_rows();
    let storage = open(folder.path()).unwrap();
    storage.close().unwrap();
    let storage = open(folder.path()).unwrap();
    let snapshot = storage.snapshot().unwrap();
    let longest = vec![0xFF; storage.caps().key_bytes_max];
    let longer = |more: usize| [&longest[..], &vec![0xFF; more]].concat();
    for more in 1..4 {
        assert_eq!(snapshot.get(Space(3), &longer(more)).unwrap(), None);
    }
    let starts = [
        Bound::Unbounded,
        Bound::Included(longer(1)),
        Bound::Excluded(longer(1)),
        Bound::Included(longer(0)),
    ];
    let ends = [
        Bound::Unbounded,
        Bound::Included(longer(1)),
        Bound::Excluded(longer(2)),
        Bound::Included(longer(3)),
    ];
    for (start, end) in starts.iter().flat_map(|start| ends.iter().map(move |end| (start, end))) {
        for direction in [Direction::Forward, Direction::Backward] {
            let range = KeyRange { start: start.clone(), end: end.clone() };
            let (rows_max, bytes_max) = (usize::MAX, usize::MAX);
            let scan = Scan { space: Space(3), range, direction, rows_max, bytes_max, keys_only: true };
            let rows = snapshot.scan(&scan).unwrap().rows.len() as u64;
            assert_eq!(rows, if *start == Bound::Unbounded { 30 * INDEX_ROWS } else { 0 }, "{scan:?}");
        }
    }
}

/// Scans read through deleted rows until a hint reclaims them.
#[test]
fn a_hint_reclaims_deleted_index_rows() {
    let folder = tempfile::tempdir().unwrap();
    let storage = open(folder.path()).unwrap();
    let middles: RowList = (0..20_000u32).map(u32::to_be_bytes).collect();
    let rows = |added, removed| {
        let op = Op::Rows { space: Space(3), prefix: vec![1], suffix: vec![2], added, removed };
        Commit { guards: vec![], token: Token(storage_token()), ops: vec![op] }
    };
    storage.commit(rows(middles.clone(), RowList::default())).unwrap();
    storage.close().unwrap();
    let storage = open(folder.path()).unwrap();
    storage.commit(rows(RowList::default(), middles)).unwrap();
    storage.compact(Space(3), KeyRange::prefix(&[1]));
    let start = std::time::Instant::now();
    while figure(&storage, "reclaims") == 0 && start.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!((figure(&storage, "run_rows"), figure(&storage, "tombstones")), (0, 0));
}

/// An unused token.
fn storage_token() -> u128 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1 << 40);
    NEXT.fetch_add(1, Ordering::Relaxed).into()
}
