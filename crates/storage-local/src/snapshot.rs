//! Snapshots: reading from a read view.

use crate::OpenStore;
use crate::error::reading;
use crate::health::retried;
use crate::index_rows::flusher::CHECKPOINT_KEY;
use crate::index_rows::read_view::ReadView;
use crate::index_rows::run::{Bounds, Merge, ordered};
use fjall::{Guard, Readable, UserKey, UserValue};
use quire_storage::memory::CAPS;
use quire_storage::{Direction, Scan, Snapshot, Space, StorageError, Visit, VisitValue};
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

pub(crate) struct LocalSnapshot {
    open: Arc<OpenStore>,
    view: Arc<ReadView>,
}

impl LocalSnapshot {
    pub(crate) fn new(open: Arc<OpenStore>) -> LocalSnapshot {
        let view = open.views.current();
        LocalSnapshot { open, view }
    }

    fn keyspace(&self, space: Space) -> Result<&fjall::Keyspace, StorageError> {
        self.open.check_open()?;
        self.open.store.space(space)
    }

    fn get_in(
        &self,
        keyspace: &fjall::Keyspace,
        space: Space,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, StorageError> {
        if let Some(value) = self.view.in_runs(space, key) {
            return Ok(value.map(<[u8]>::to_vec));
        }
        Ok(self.get_in_tables(keyspace, key)?.map(|value| value.to_vec()))
    }

    fn get_in_tables(
        &self,
        keyspace: &fjall::Keyspace,
        key: &[u8],
    ) -> Result<Option<UserValue>, StorageError> {
        // Longer keys are internal.
        if key.len() > CAPS.key_bytes_max {
            return Ok(None);
        }
        retried(|| self.view.snapshot.get(keyspace, key)).map_err(reading)
    }
}

impl Snapshot for LocalSnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.get_in(self.keyspace(space)?, space, key)
    }

    /// In key order, so that adjacent keys are found in the block just read.
    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
        let keyspace = self.keyspace(space)?;
        let mut values = vec![None; keys.len()];
        for index in in_key_order(keys) {
            values[index] = self.get_in(keyspace, space, keys[index])?;
        }
        Ok(values)
    }

    /// A value is shown where it lies: in a run, or in a block of a table.
    fn visit_values(
        &self,
        space: Space,
        keys: &[&[u8]],
        visit: &mut VisitValue<'_>,
    ) -> Result<(), StorageError> {
        let keyspace = self.keyspace(space)?;
        for key in keys {
            let shown = match self.view.in_runs(space, key) {
                Some(value) => visit(value),
                None => visit(self.get_in_tables(keyspace, key)?.as_deref()),
            };
            if shown.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn visit(&self, scan: &Scan, visit: &mut Visit<'_>) -> Result<bool, StorageError> {
        let keyspace = self.keyspace(scan.space)?;
        if scan.range.is_empty() {
            return Ok(false);
        }
        let bounds = (bound(&scan.range.start), before_checkpoint(bound(&scan.range.end)));
        if is_beyond_checkpoint(bounds) {
            return Ok(false);
        }
        let rows = self.view.snapshot.range::<&[u8], _>(keyspace, bounds);
        let runs = self.view.merge(scan.space, bounds, scan.direction);
        match scan.direction {
            Direction::Forward => visit_merged(rows, runs, scan, visit),
            Direction::Backward => visit_merged(rows.rev(), runs, scan, visit),
        }
    }
}

/// The positions of the keys in `keys`, smallest key first.
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

/// Ends a range before the hidden rows.
pub(crate) fn before_checkpoint(end: Bound<&[u8]>) -> Bound<&[u8]> {
    match end {
        Bound::Included(key) if key < &CHECKPOINT_KEY[..] => end,
        Bound::Excluded(key) if key <= &CHECKPOINT_KEY[..] => end,
        _ => Bound::Excluded(&CHECKPOINT_KEY),
    }
}

fn is_beyond_checkpoint((start, _): Bounds<'_>) -> bool {
    matches!(start, Bound::Included(key) | Bound::Excluded(key) if key >= &CHECKPOINT_KEY[..])
}

/// Visits the rows of the tables merged with the runs.
fn visit_merged(
    rows: impl Iterator<Item = Guard>,
    mut runs: Merge<'_>,
    scan: &Scan,
    visit: &mut Visit<'_>,
) -> Result<bool, StorageError> {
    let mut budget = scan.budget();
    let mut show = |key: &[u8], value: &[u8]| {
        let value = if scan.keys_only { &[] } else { value };
        budget.takes(key.len() + value.len()) && visit(key, value).is_continue()
    };
    let mut rows = rows.map(|row| read_row(row, scan.keys_only));
    let mut below = rows.next().transpose()?;
    let mut above = runs.next();
    loop {
        let order = match (&above, &below) {
            (None, None) => return Ok(false),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((above, _)), Some((below, _))) => ordered(scan.direction, above, below),
        };
        if order == Ordering::Equal {
            below = rows.next().transpose()?;
        }
        let goes_on = match (order, above, &below) {
            (Ordering::Greater, _, Some((key, value))) => show(key, value),
            (_, Some((key, Some(value))), _) => show(key, value),
            _ => true,
        };
        if !goes_on {
            return Ok(true);
        }
        match order {
            Ordering::Greater => below = rows.next().transpose()?,
            Ordering::Less | Ordering::Equal => above = runs.next(),
        }
    }
}

fn read_row(row: Guard, keys_only: bool) -> Result<(UserKey, UserValue), StorageError> {
    match keys_only {
        true => Ok((row.key().map_err(reading)?, UserValue::empty())),
        false => row.into_inner().map_err(reading),
    }
}
