//! The rows of DISTINCT, looked up by what they are equal to, without owning what is looked up.

use std::hash::RandomState;

use hashbrown::HashTable;
use quire_value::Value;

use crate::data::Row;
use crate::error::SqlError;
use crate::limits::Kept;

/// A place in the table, and the room that tables leave free.
const SLOT_BYTES: usize = 2 * std::mem::size_of::<(u64, Value)>();

/// Rows that DISTINCT has let through.
#[derive(Default)]
pub(crate) struct Seen {
    random: RandomState,
    rows: HashTable<(u64, Value)>,
}

pub(crate) enum Inserted {
    New,
    /// Equal to an earlier one.
    Repeated,
    /// Not equal to one that is here, and not kept.
    NoRoom,
}

/// Where rows are kept that DISTINCT lets through.
#[derive(Clone, Copy)]
pub(crate) struct RowMemory<'k> {
    pub kept: &'k Kept<'k>,
    pub beyond: Beyond,
}

/// What becomes of rows that have no room.
#[derive(Clone, Copy)]
pub(crate) enum Beyond {
    Refused,
    /// They go elsewhere.
    PutOff,
    /// The same for every row that comes.
    AllPutOff,
}

impl Seen {
    /// What a row is. `memory`: where a new one is kept.
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
