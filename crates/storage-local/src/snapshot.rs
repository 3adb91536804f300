//! Reading: fjall's snapshots behind the contract.

use crate::Open;
use crate::error::reading;
use fjall::{Guard, Readable};
use quire_storage::{Direction, Scan, Snapshot, Space, StorageError, Visit};
use std::ops::Bound;
use std::sync::Arc;

pub(crate) struct LocalSnapshot {
    open: Arc<Open>,
    inner: fjall::Snapshot,
}

impl LocalSnapshot {
    pub(crate) fn new(open: Arc<Open>) -> LocalSnapshot {
        let inner = open.store.database.snapshot();
        LocalSnapshot { open, inner }
    }

    fn keyspace(&self, space: Space) -> Result<&fjall::Keyspace, StorageError> {
        self.open.check_open()?;
        self.open.store.space(space)
    }
}

impl Snapshot for LocalSnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let value = self.inner.get(self.keyspace(space)?, key).map_err(reading)?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// In key order, so that neighbours are found in the block just read.
    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
        let keyspace = self.keyspace(space)?;
        let mut values = vec![None; keys.len()];
        for index in in_key_order(keys) {
            let value = self.inner.get(keyspace, keys[index]).map_err(reading)?;
            values[index] = value.map(|value| value.to_vec());
        }
        Ok(values)
    }

    fn visit(&self, scan: &Scan, visit: &mut Visit<'_>) -> Result<bool, StorageError> {
        let keyspace = self.keyspace(scan.space)?;
        if scan.range.is_empty() {
            return Ok(false);
        }
        let bounds = (bound(&scan.range.start), bound(&scan.range.end));
        let rows = self.inner.range::<&[u8], _>(keyspace, bounds);
        match scan.direction {
            Direction::Forward => show(rows, scan, visit),
            Direction::Backward => show(rows.rev(), scan, visit),
        }
    }
}

/// Where the keys are in `keys`, smallest first.
fn in_key_order(keys: &[&[u8]]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    if !keys.is_sorted() {
        order.sort_unstable_by_key(|&index| keys[index]);
    }
    order
}

fn bound(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn show(rows: impl Iterator<Item = Guard>, scan: &Scan, visit: &mut Visit<'_>) -> Result<bool, StorageError> {
    let mut budget = scan.budget();
    for row in rows {
        let (key, value) = match scan.keys_only {
            true => (row.key().map_err(reading)?, None),
            false => row.into_inner().map(|(key, value)| (key, Some(value))).map_err(reading)?,
        };
        let value = value.as_deref().unwrap_or_default();
        if !budget.takes(key.len() + value.len()) || visit(&key, value).is_break() {
            return Ok(true);
        }
    }
    Ok(false)
}
