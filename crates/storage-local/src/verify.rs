//! Verification: reads everything.

use crate::directory::Directory;
use crate::error::OpenError;
use crate::log::chain;
use crate::{LocalOptions, LocalStorage};
use quire_storage::{Direction, KeyRange, SPACE_COUNT, Scan, Snapshot, Space, Storage, StorageError};
use std::ops::ControlFlow;
use std::path::Path;

/// The contents of a closed directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifiedDirectory {
    /// Rows by space.
    pub rows: [u64; SPACE_COUNT as usize],
    pub bytes: u64,
    /// Commit records in the chain, each checked against the one before.
    pub commit_records: u64,
    pub partitions: u64,
    pub last_sequence: u64,
    /// One sentence each; empty if there are none.
    pub problems: Vec<String>,
}

impl LocalStorage {
    /// Opens an unused directory (which replays its journal and unpacks index rows), reads every row of every space,
    /// which verifies every block's checksum, and checks the chain of commit records. Never creates a database. A
    /// directory that cannot be opened is an error; a defect that is found later is a problem.
    pub fn verify(path: impl AsRef<Path>) -> Result<VerifiedDirectory, OpenError> {
        let path = path.as_ref();
        if !Directory::is_begun(path) {
            return Err(OpenError::NoDatabase { path: path.into() });
        }
        let storage = LocalStorage::open(path, LocalOptions::default())?;
        let mut verified = VerifiedDirectory::default();
        {
            let open = storage.opened()?;
            let snapshot = open.store.database.snapshot();
            let view = storage.snapshot()?;
            let loaded = chain::load(&open.store.ledger, &snapshot)?;
            verified.commit_records = loaded.chain.records() as u64;
            verified.last_sequence = loaded.chain.newest.sequence;
            verified.partitions = loaded.positions.len() as u64;
            for (space, count) in (0..SPACE_COUNT).zip(&mut verified.rows) {
                match read_space(&*view, Space(space)) {
                    Ok((rows, bytes)) => {
                        *count = rows;
                        verified.bytes += bytes;
                    }
                    Err(error) => verified.problems.push(format!("space {space}: {error}")),
                }
            }
        }
        if let Err(error) = storage.close() {
            verified.problems.push(format!("closing: {error}"));
        }
        Ok(verified)
    }
}

fn read_space(snapshot: &dyn Snapshot, space: Space) -> Result<(u64, u64), StorageError> {
    let (mut rows, mut bytes) = (0, 0);
    let mut last: Vec<u8> = Vec::new();
    let mut is_sorted = true;
    let scan = Scan {
        space,
        range: KeyRange::all(),
        direction: Direction::Forward,
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
        keys_only: false,
    };
    snapshot.visit(&scan, &mut |key, value| {
        rows += 1;
        bytes += (key.len() + value.len()) as u64;
        is_sorted = last.as_slice() < key;
        last.clear();
        last.extend_from_slice(key);
        if is_sorted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    if !is_sorted {
        return Err(StorageError::Corrupt { what: format!("keys out of order after {rows} rows") });
    }
    Ok((rows, bytes))
}
