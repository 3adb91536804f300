//! Reading: fjall's snapshots behind the contract.

use crate::Open;
use crate::error::reading;
use fjall::{Guard, Readable};
use quire_storage::{Direction, Scan, ScanPage, Snapshot, Space, StorageError};
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

    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
        let keyspace = self.keyspace(space)?;
        let get = |key: &&[u8]| {
            let value = self.inner.get(keyspace, key).map_err(reading)?;
            Ok(value.map(|value| value.to_vec()))
        };
        keys.iter().map(get).collect()
    }

    fn scan(&self, scan: &Scan) -> Result<ScanPage, StorageError> {
        let keyspace = self.keyspace(scan.space)?;
        if scan.range.is_empty() {
            return Ok(ScanPage::default());
        }
        let bounds = (scan.range.start.clone(), scan.range.end.clone());
        let rows = self.inner.range::<Vec<u8>, _>(keyspace, bounds);
        match scan.direction {
            Direction::Forward => page(rows, scan),
            Direction::Backward => page(rows.rev(), scan),
        }
    }
}

fn page(rows: impl Iterator<Item = Guard>, scan: &Scan) -> Result<ScanPage, StorageError> {
    let mut page = ScanPage::default();
    let mut bytes = 0;
    for row in rows {
        let (key, value) = match scan.keys_only {
            true => (row.key().map_err(reading)?, None),
            false => row.into_inner().map(|(key, value)| (key, Some(value))).map_err(reading)?,
        };
        bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
        if page.rows.len() >= scan.rows_max || (bytes > scan.bytes_max && !page.rows.is_empty()) {
            page.more = true;
            break;
        }
        page.rows.push((key.to_vec(), value.map_or(Vec::new(), |value| value.to_vec())));
    }
    Ok(page)
}
