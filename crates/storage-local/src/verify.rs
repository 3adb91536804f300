//! Re-reading everything.

use crate::error::{OpenError, reading};
use crate::{LocalOptions, LocalStorage, chain};
use fjall::Readable;
use quire_storage::{SPACE_COUNT, Space, Storage};
use std::path::Path;

/// What a closed directory was found to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Rows by space.
    pub rows: [u64; SPACE_COUNT as usize],
    pub bytes: u64,
    /// Commit records in the chain, each checked against the one before.
    pub commit_records: u64,
    pub partitions: u64,
    pub last_sequence: u64,
    /// One sentence each; empty means sound.
    pub problems: Vec<String>,
}

impl LocalStorage {
    /// Opens a directory nobody uses (which replays its journal), reads every row of every space, so that every
    /// block's checksum is checked, and walks the chain of commit records. What already keeps it from being opened
    /// is an error; what is found afterwards is a problem.
    pub fn verify(path: impl AsRef<Path>) -> Result<Verified, OpenError> {
        let storage = LocalStorage::open(path, LocalOptions::default())?;
        let mut verified = Verified::default();
        {
            let open = storage.opened()?;
            let snapshot = open.store.database.snapshot();
            let loaded = chain::load(&open.store.ledger, &snapshot)?;
            verified.commit_records = loaded.chain.records() as u64;
            verified.last_sequence = loaded.chain.newest.sequence;
            verified.partitions = loaded.positions.len() as u64;
            for (space, count) in (0..SPACE_COUNT).zip(&mut verified.rows) {
                match read_space(open.store.space(Space(space))?, &snapshot) {
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

fn read_space(
    keyspace: &fjall::Keyspace,
    snapshot: &fjall::Snapshot,
) -> Result<(u64, u64), quire_storage::StorageError> {
    let (mut rows, mut bytes) = (0, 0);
    let mut last: Option<fjall::UserKey> = None;
    for row in snapshot.iter(keyspace) {
        let (key, value) = row.into_inner().map_err(reading)?;
        rows += 1;
        bytes += (key.len() + value.len()) as u64;
        if last.as_ref().is_some_and(|last| *last >= key) {
            return Err(quire_storage::StorageError::Corrupt {
                what: format!("keys out of order after {rows} rows"),
            });
        }
        last = Some(key);
    }
    Ok((rows, bytes))
}
