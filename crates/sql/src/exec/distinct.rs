//! The rows that DISTINCT has emitted, in a hash table. Lookup needs no owned copy of a row.

use std::hash::RandomState;

use hashbrown::HashTable;
use quire_value::Value;

use crate::data::Row;
use crate::error::SqlError;
use crate::limits::RetainedMemory;

/// Bytes of an entry, with the free entries of a hash table.
const SLOT_BYTES: usize = 2 * std::mem::size_of::<(u64, Value)>();

/// Rows that DISTINCT has emitted.
#[derive(Default)]
pub(crate) struct DistinctRows {
    random: RandomState,
    rows: HashTable<(u64, Value)>,
}

pub(crate) enum InsertOutcome {
    New,
    /// Equal to an earlier row.
    Duplicate,
    /// Not equal to a row in the table, and not inserted for lack of memory.
    NoMemory,
}

/// The memory for the rows of DISTINCT.
#[derive(Clone, Copy)]
pub(crate) struct RowMemory<'k> {
    pub kept: &'k RetainedMemory<'k>,
    pub when_full: WhenFull,
}

/// What happens to rows that do not fit into memory.
#[derive(Clone, Copy)]
pub(crate) enum WhenFull {
    Fail,
    /// The caller sorts them in temporary files and emits them later.
    Defer,
    /// The caller defers every further row.
    DeferAll,
}

impl DistinctRows {
    /// Looks the row up, and inserts it if it is new and fits into memory.
    pub fn insert(&mut self, row: &Row<'_>, memory: RowMemory<'_>) -> Result<InsertOutcome, SqlError> {
        let hash = row.hash(&self.random);
        if self.rows.find(hash, |(known, value)| *known == hash && row.equals(value)).is_some() {
            return Ok(InsertOutcome::Duplicate);
        }
        let row = row.reborrow();
        let bytes = row.approximate_size() + SLOT_BYTES;
        let has_room = match memory.when_full {
            WhenFull::Fail => memory.kept.retain_bytes(bytes).map(|()| true)?,
            WhenFull::Defer => memory.kept.try_retain_bytes(bytes)?,
            WhenFull::DeferAll => false,
        };
        if !has_room {
            return Ok(InsertOutcome::NoMemory);
        }
        let value = row.into_value();
        self.rows.insert_unique(hash, (hash, value), |(hash, _)| *hash);
        Ok(InsertOutcome::New)
    }

    pub fn clear(&mut self) {
        self.rows = HashTable::new();
    }
}
