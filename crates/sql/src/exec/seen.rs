//! Values looked up by what they are equal to, without owning what is looked up: DISTINCT and GROUP BY.

use std::hash::{BuildHasher, Hasher, RandomState};

use hashbrown::HashTable;
use quire_value::Value;

use crate::SqlError;
use crate::meter::Kept;

use super::datum::Datum;
use super::row::Row;

/// A place in the table, and the room that tables leave free.
const SLOT_BYTES: usize = 2 * std::mem::size_of::<(u64, Value)>();

/// Rows that DISTINCT has let through.
#[derive(Default)]
pub(crate) struct Seen {
    random: RandomState,
    rows: HashTable<(u64, Value)>,
}

impl Seen {
    /// False for a row that is equal to an earlier one.
    pub fn insert(&mut self, row: &Row<'_>, kept: &Kept<'_>) -> Result<bool, SqlError> {
        let hash = row.hash(&self.random);
        if self.rows.find(hash, |(known, value)| *known == hash && row.equals(value)).is_some() {
            return Ok(false);
        }
        let row = row.again();
        kept.keep(row.approximate_size() + SLOT_BYTES)?;
        let value = row.into_value();
        self.rows.insert_unique(hash, (hash, value), |(hash, _)| *hash);
        Ok(true)
    }
}

/// Where what has some keys stands in a list.
#[derive(Default)]
pub(crate) struct Places {
    random: RandomState,
    places: HashTable<(u64, usize)>,
}

impl Places {
    /// A place in the table, and the room that tables leave free.
    pub const SLOT_BYTES: usize = 2 * std::mem::size_of::<(u64, usize)>();

    pub fn hash(&self, keys: &[Datum<'_>]) -> u64 {
        let mut hasher = self.random.build_hasher();
        keys.iter().for_each(|key| key.view().hash_with(&self.random, &mut hasher));
        hasher.finish()
    }

    /// `is_it`: whether what stands at a place has the keys.
    pub fn find(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        self.places.find(hash, |(known, place)| *known == hash && is_it(*place)).map(|(_, place)| *place)
    }

    pub fn insert(&mut self, hash: u64, place: usize) {
        self.places.insert_unique(hash, (hash, place), |(hash, _)| *hash);
    }
}
