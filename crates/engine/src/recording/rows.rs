//! Workloads in the storage: the byte form of `quire-profile`, in rows with a checksum.
//!
//! All rows of a workload are written in one commit, and those that are left of a longer one removed.

use quire_profile::Workload;
use quire_storage::{Op, Storage};

use crate::api::EngineError;
use crate::store::keys::{self, CATALOG};
use crate::store::{Sequence, for_each_row, sealed};

const ROW_BYTES: usize = 256 << 10;

/// What is stored; nothing where that is damaged: it is a record of the past, and no item depends on it.
pub(super) fn load(storage: &dyn Storage, database: u32) -> Result<Workload, EngineError> {
    let mut bytes = Vec::new();
    let mut is_whole = true;
    for_each_row(&*storage.snapshot()?, CATALOG, &keys::workload_prefix(database), |key, row| {
        match sealed::open(key, row).and_then(|mut row| Ok(row.bytes()?.to_vec())) {
            Ok(part) => bytes.extend(part),
            Err(_) => is_whole = false,
        }
        Ok(())
    })?;
    let workload = is_whole.then(|| Workload::from_bytes(&bytes));
    match workload {
        _ if bytes.is_empty() && is_whole => Ok(Workload::new()),
        Some(Ok(workload)) => Ok(workload),
        _ => {
            tracing::warn!(database, "the recorded workload of a database is damaged and begins anew");
            Ok(Workload::new())
        }
    }
}

/// False where the database is gone.
pub(super) fn put(
    storage: &dyn Storage,
    sequence: &Sequence,
    (database, exists): (u32, &dyn Fn(u32) -> bool),
    bytes: &[u8],
) -> Result<bool, EngineError> {
    let mut ops = Vec::new();
    for (number, part) in bytes.chunks(ROW_BYTES).enumerate() {
        let key = keys::workload(database, number as u32);
        let mut rest = Vec::with_capacity(part.len() + 4);
        sealed::write_text(part, &mut rest);
        let value = sealed::seal(&key, &rest);
        ops.push(Op::Put { space: CATALOG, key, value });
    }
    let count = ops.len() as u32;
    // What is stored is known only behind the last commit.
    sequence.settle(storage)?;
    ops.extend(
        stored_keys(storage, database)?
            .into_iter()
            .filter(|key| *key >= keys::workload(database, count))
            .map(delete),
    );
    sequence.commit_while(storage, &|| exists(database), ops)
}

pub(super) fn remove(storage: &dyn Storage, sequence: &Sequence, database: u32) -> Result<(), EngineError> {
    sequence.settle(storage)?;
    let ops: Vec<Op> = stored_keys(storage, database)?.into_iter().map(delete).collect();
    if ops.is_empty() { Ok(()) } else { sequence.commit(storage, ops) }
}

fn delete(key: Vec<u8>) -> Op {
    Op::Delete { space: CATALOG, key }
}

fn stored_keys(storage: &dyn Storage, database: u32) -> Result<Vec<Vec<u8>>, EngineError> {
    let mut found = Vec::new();
    for_each_row(&*storage.snapshot()?, CATALOG, &keys::workload_prefix(database), |key, _| {
        found.push(key.to_vec());
        Ok(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use quire_storage::PartitionId;
    use quire_storage::fault::{CommitFault, FaultStorage};
    use quire_storage::memory::MemoryStorage;

    use super::*;

    /// A commit whose outcome was not known leaves nothing behind a later one.
    #[test]
    fn what_was_not_known_to_be_stored_is_removed_too() {
        let large = vec![7; 2 * ROW_BYTES + 1];
        for (is_removed, rows) in [(true, 0), (false, 1)] {
            let (storage, sequence) =
                (FaultStorage::new(MemoryStorage::new()), Sequence::new(PartitionId(9)));
            storage.script_commits(vec![CommitFault::UnknownNotDone; 6]);
            let put = |bytes: &[u8]| put(&storage, &sequence, (1, &|_| true), bytes);
            assert!(matches!(put(&large), Err(EngineError::Unresolved)));
            storage.stop_faults();
            match is_removed {
                true => remove(&storage, &sequence, 1).unwrap(),
                false => assert!(put(b"small").unwrap()),
            }
            sequence.settle(&storage).unwrap();
            assert_eq!(stored_keys(&storage, 1).unwrap().len(), rows);
        }
    }
}
