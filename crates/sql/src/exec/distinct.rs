//! The rows that DISTINCT has emitted, in a hash table. Lookup needs no owned copy of a row.

use std::hash::RandomState;

use hashbrown::HashTable;
use quire_value::Value;

use crate::data::Row;
use crate::error::SqlError;
use crate::limits::Kept;

/// Bytes of an entry, with the free entries of a hash table.
const SLOT_BYTES: usize = 2 * std::mem::size_of::<(u64, Value)>();

/// Rows that DISTINCT has emitted.
#[derive(Default)]
pub(crate) struct Seen {
    random: RandomState,
    rows: HashTable<(u64, Value)>,
}

pub(crate) enum Inserted {
    New,
    /// Equal to an earlier row.
    Repeated,
    /// Not equal to a row in the table, and not inserted for lack of memory.
    NoRoom,
}

/// The memory for the rows of DISTINCT.
#[derive(Clone, Copy)]
pub(crate) struct RowMemory<'k> {
    pub kept: &'k Kept<'k>,
    pub beyond: Beyond,
}

/// What happens to rows that do not fit into memory.
#[derive(Clone, Copy)]
pub(crate) enum Beyond {
    Refused,
    /// The caller sorts them in temporary files and emits them later.
    PutOff,
    /// The caller defers every further row.
    AllPutOff,
}

impl Seen {
    /// Looks the row up, and inserts it if it is new and fits into memory.
    pub fn insert(&mut self, row: &Row<'_>, memory: RowMemory<'_>) -> Result<Inserted, SqlError> {
        let hash = row.hash(&self.random);
        if self.rows.find(hash, |(known, value)| *known == hash && row.equals(value)).is_some() {
            return Ok(Inserted::Repeated);
        }
        let row = row.again();
        let bytes = row.approximate_size() + SLOT_BYTES;
        let has_room = match memory.beyond {
            Beyond::Refused => memory.kept.keep(bytes).map(|()| true)?,
            Beyond::PutOff => memory.kept.try_keep(bytes)?,
            Beyond::AllPutOff => false,
        };
        if !has_room {
            return Ok(Inserted::NoRoom);
        }
        let value = row.into_value();
        self.rows.insert_unique(hash, (hash, value), |(hash, _)| *hash);
        Ok(Inserted::New)
    }

    pub fn clear(&mut self) {
        self.rows = HashTable::new();
    }
}
