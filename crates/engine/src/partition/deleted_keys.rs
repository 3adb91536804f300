//! Partition keys that were deleted and whose items still have rows.

use std::collections::HashMap;

use quire_storage::Snapshot;

use crate::api::{EngineError, corrupt};
use crate::store::{for_each_row, keys};

/// Partition keys whose items are gone up to an LSN and have not all been removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeletedKeys {
    /// By the encoded key.
    lsns: HashMap<Vec<u8>, u64>,
}

impl DeletedKeys {
    pub fn is_empty(&self) -> bool {
        self.lsns.is_empty()
    }

    pub fn len(&self) -> usize {
        self.lsns.len()
    }

    pub fn insert(&mut self, encoded_key: Vec<u8>, lsn: u64) {
        let known = self.lsns.entry(encoded_key).or_default();
        *known = lsn.max(*known);
    }

    /// Forgets a key, unless it was deleted once more.
    pub fn remove(&mut self, encoded_key: &[u8], lsn: u64) {
        if self.lsns.get(encoded_key) == Some(&lsn) {
            self.lsns.remove(encoded_key);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.lsns.iter().map(|(key, lsn)| (key.as_slice(), *lsn))
    }

    pub fn covers(&self, encoded_key: &[u8], lsn: u64) -> bool {
        self.lsns.get(encoded_key).is_some_and(|&deleted| lsn <= deleted)
    }
}

/// The marks of a container as a snapshot has them.
pub(crate) fn marks_in(snapshot: &dyn Snapshot, container: u32) -> Result<DeletedKeys, EngineError> {
    let mut marks = DeletedKeys::default();
    for_each_row(snapshot, keys::CATALOG, &keys::deleted_keys_prefix(container), |key, encoded_key| {
        let lsn = keys::lsn_of_deleted_key(key).ok_or_else(|| corrupt("mark of a deleted key"))?;
        marks.insert(encoded_key.to_vec(), lsn);
        Ok(())
    })?;
    Ok(marks)
}
