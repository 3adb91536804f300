//! The read set of a transaction, and its validation at the commit.
//!
//! If the transaction only read and wrote single items, the commit locks these, as single writes and batches do, and
//! checks that they are unchanged: other items of the logical partition may change, and share the sync. Lists, queries
//! and unique keys depend on items that were not named: then nothing in the logical partition may have changed, and the
//! commit locks the whole logical partition.
//!
//! An item cannot change while it is locked, and the sequencer records its last write before the lock is released. So
//! if the logical partition has not changed, no item has to be checked.

use std::collections::HashMap;

use super::{ReadProtection, Transaction};
use crate::api::EngineError;
use crate::catalog::Container;
use crate::items::logical_partition::StoredRow;
use crate::items::visibility::VisibilityPoint;
use crate::runtime::locks::{LockKind, LockMode, LockSet};
use crate::store::item_row::ItemRow;

/// With more items than this it is not worth looking at each.
const ITEMS_MAX: usize = 128;

/// Which write an item is of: child id, LSN, ordinal.
type ItemVersion = (u64, u64, u16);

pub(super) struct ReadSet {
    /// Single items by their id rows' keys, as the snapshot has them; `None`: everything was seen.
    items: Option<HashMap<Vec<u8>, Option<ItemVersion>>>,
}

impl ReadSet {
    pub fn new(container: &Container) -> ReadSet {
        ReadSet { items: container.definition.unique_keys.is_empty().then(HashMap::new) }
    }

    pub fn all(&mut self) {
        self.items = None;
    }

    pub fn item(&mut self, id_key: &[u8], stored: Option<&StoredRow>) -> Result<(), EngineError> {
        let Some(items) = &mut self.items else { return Ok(()) };
        if items.len() >= ITEMS_MAX && !items.contains_key(id_key) {
            self.all();
        } else {
            items.insert(id_key.to_vec(), version_of(stored)?);
        }
        Ok(())
    }
}

fn version_of(stored: Option<&StoredRow>) -> Result<Option<ItemVersion>, EngineError> {
    let Some(stored) = stored else { return Ok(None) };
    // Whoever uses the row looks at its checksum.
    let stamp = ItemRow::trusted(&stored.bytes)?.stamp;
    Ok(Some((stored.rid, stamp.lsn, stamp.ordinal)))
}

impl Transaction<'_> {
    /// What must not change between the look and the commit.
    pub(super) fn locks_to_commit(&self) -> LockSet {
        let (table, container) = (&self.shared.locks, self.logical_partition.container.number);
        let mut set = LockSet::default();
        let Some(items) = &self.read_set.items else {
            self.logical_partition.add_lock(table, &mut set, LockMode::Exclusive);
            return set;
        };
        self.logical_partition.add_lock(table, &mut set, LockMode::Shared);
        for id_key in items.keys() {
            let mode = if self.own.get(id_key).is_some() { LockMode::Exclusive } else { LockMode::Shared };
            table.add(&mut set, container, LockKind::Item(id_key), mode);
        }
        set
    }

    /// Under these locks: whether what the transaction has seen is still so.
    pub(super) fn validate(&self) -> Result<(), EngineError> {
        if !matches!(self.holds, ReadProtection::Nothing) {
            return Ok(());
        }
        let name = self.logical_partition.name(&self.shared.locks);
        if !self.partition().sequencer.changed_since(name, self.lsn)? {
            return Ok(());
        }
        let Some(items) = &self.read_set.items else { return Err(EngineError::TransactionConflict) };
        let visibility_point = self.logical_partition.container.visibility_point(self.shared);
        let snapshot = self.logical_partition.container.snapshot(self.shared)?;
        for (id_key, seen) in items {
            let stored = self.logical_partition.find(&*snapshot, id_key)?;
            if version_of(stored.as_ref())? != *seen
                || self.has_become_invisible(stored.as_ref(), &visibility_point)?
            {
                return Err(EngineError::TransactionConflict);
            }
        }
        Ok(())
    }

    /// Whether an item has become invisible since the snapshot, though its row is still there.
    fn has_become_invisible(
        &self,
        stored: Option<&StoredRow>,
        visibility_point: &VisibilityPoint,
    ) -> Result<bool, EngineError> {
        let Some(stored) = stored else { return Ok(false) };
        let (row, container) = (ItemRow::trusted(&stored.bytes)?, self.logical_partition.container);
        Ok(container.is_invisible(&row, visibility_point)
            != container.is_invisible(&row, &self.read_snapshot.visibility_point))
    }
}
