//! What a transaction has read, and whether that is still so when it commits.
//!
//! Of one that only read and wrote single items the commit locks these, as single writes and batches do, and looks whether they
//! are still what they were: others of the same logical partition may come and go, and share its sync. Lists and queries
//! have seen which items there are, and unique keys are about items nobody named: then nothing at all may have
//! changed in the logical partition, and the commit locks it whole.
//!
//! An item cannot change while it is locked, and its last write was noted by the sequencer before its lock was given back. So when
//! nothing changed in the logical partition there is nothing to look at.

use std::collections::HashMap;

use super::{Holds, Transaction};
use crate::api::EngineError;
use crate::catalog::Container;
use crate::items::logical_partition::Stored;
use crate::items::visibility::Moment;
use crate::runtime::locks::{LockSet, Mode, Protects};
use crate::store::item_row::Row;

/// With more items than this it is not worth looking at each.
const ITEMS_MAX: usize = 128;

/// Which write an item is of: child id, LSN, ordinal.
type Version = (u64, u64, u16);

pub(super) struct Seen {
    /// Single items by their id rows' keys, as the view has them; `None`: everything was seen.
    items: Option<HashMap<Vec<u8>, Option<Version>>>,
}

impl Seen {
    pub fn new(container: &Container) -> Seen {
        Seen { items: container.definition.unique_keys.is_empty().then(HashMap::new) }
    }

    pub fn all(&mut self) {
        self.items = None;
    }

    pub fn item(&mut self, id_key: &[u8], stored: Option<&Stored>) -> Result<(), EngineError> {
        let Some(items) = &mut self.items else { return Ok(()) };
        if items.len() >= ITEMS_MAX && !items.contains_key(id_key) {
            self.all();
        } else {
            items.insert(id_key.to_vec(), version_of(stored)?);
        }
        Ok(())
    }
}

fn version_of(stored: Option<&Stored>) -> Result<Option<Version>, EngineError> {
    let Some(stored) = stored else { return Ok(None) };
    // Whoever uses the row looks at its checksum.
    let stamp = Row::trusted(&stored.bytes)?.stamp;
    Ok(Some((stored.rid, stamp.lsn, stamp.ordinal)))
}

impl Transaction<'_> {
    /// What must not change between the look and the commit.
    pub(super) fn locks_to_commit(&self) -> LockSet {
        let (table, container) = (&self.shared.locks, self.home.container.number);
        let mut set = LockSet::default();
        let Some(items) = &self.seen.items else {
            self.home.add_lock(table, &mut set, Mode::Exclusive);
            return set;
        };
        self.home.add_lock(table, &mut set, Mode::Shared);
        for id_key in items.keys() {
            let mode = if self.own.get(id_key).is_some() { Mode::Exclusive } else { Mode::Shared };
            table.add(&mut set, container, Protects::Item(id_key), mode);
        }
        set
    }

    /// Under these locks: whether what the transaction has seen is still so.
    pub(super) fn validate(&self) -> Result<(), EngineError> {
        if !matches!(self.holds, Holds::Nothing) {
            return Ok(());
        }
        let name = self.home.name(&self.shared.locks);
        if !self.partition().sequencer.changed_since(name, self.lsn)? {
            return Ok(());
        }
        let Some(items) = &self.seen.items else { return Err(EngineError::TransactionConflict) };
        let moment = self.home.container.moment(self.shared);
        let snapshot = self.home.container.snapshot(self.shared)?;
        for (id_key, seen) in items {
            let stored = self.home.find(&*snapshot, id_key)?;
            if version_of(stored.as_ref())? != *seen || self.is_newly_gone(stored.as_ref(), &moment)? {
                return Err(EngineError::TransactionConflict);
            }
        }
        Ok(())
    }

    /// Whether an item has become invisible since the view, though its row is still there.
    fn is_newly_gone(&self, stored: Option<&Stored>, moment: &Moment) -> Result<bool, EngineError> {
        let Some(stored) = stored else { return Ok(false) };
        let (row, container) = (Row::trusted(&stored.bytes)?, self.home.container);
        Ok(container.is_gone(&row, moment) != container.is_gone(&row, &self.view.moment))
    }
}
