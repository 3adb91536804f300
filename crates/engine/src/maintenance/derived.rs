//! Rows that are derived from an item: a restore writes them again, and `verify` expects them.

use quire_resource::{ContainerDefinition, ItemTtl};
use quire_storage::{RowList, Space};

use crate::api::EngineError;
use crate::indexes::{IndexId, Indexes};
use crate::items::unique;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, FEEDS, INDEX, LOOKUPS};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DerivedRow {
    pub space: Space,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// All that follows from an item.
pub(crate) struct DerivedRows {
    pub rows: Vec<DerivedRow>,
    /// Counts that have no rows.
    pub weights: Vec<(IndexId, u64)>,
}

/// Id row, unique rows, feed row, expiry row and index rows of an item; and what is counted of it without rows.
pub(crate) fn derived_rows(
    container: u32,
    definition: &ContainerDefinition,
    indexes: &Indexes,
    rid: u64,
    row: &ItemRow<'_>,
) -> Result<DerivedRows, EngineError> {
    let key = row.partition_key()?;
    let epk = definition.partition_key.effective(&key);
    let identity = definition.partition_key.identity(&key);
    let identity = identity.as_ref().unwrap_or(&epk);
    let lookup = |key, value| DerivedRow { space: LOOKUPS, key, value };
    let feed = |key, value| DerivedRow { space: FEEDS, key, value };
    let mut rows = vec![lookup(keys::id(container, identity, row.id()?), keys::number_value(rid))];
    for tuple in unique::tuples_of(container, &definition.unique_keys, &epk, row.node()?) {
        rows.push(lookup(keys::unique(&tuple.prefix, rid), Vec::new()));
    }
    let stamp = &row.stamp;
    let latest = keys::latest(container, stamp.partition, stamp.lsn, stamp.ordinal);
    rows.push(feed(latest, keys::number_value(rid)));
    if let Some(expires_at) = own_expiry(row) {
        rows.push(feed(keys::expiry(container, expires_at, rid), Vec::new()));
    }
    let prefix = keys::container_prefix(container);
    let indexed = indexes.rows_of(rid, row)?;
    let weights = indexed.as_ref().map_or(Vec::new(), |rows| rows.weights().to_vec());
    let indexed = indexed.map_or_else(RowList::default, |rows| rows.into_rows(stamp.ts));
    // Rows that are still being written follow from nothing.
    for middle in indexed.iter().filter(|middle| !indexes.is_incomplete(middle)) {
        let key = [&prefix[..], middle, &rid.to_be_bytes()].concat();
        rows.push(DerivedRow { space: INDEX, key, value: Vec::new() });
    }
    Ok(DerivedRows { rows, weights })
}

/// Only items with a `ttl` of their own have an expiry row, also where the container's TTL is off.
fn own_expiry(row: &ItemRow<'_>) -> Option<i64> {
    match row.ttl {
        ItemTtl::Seconds(seconds) => Some(row.written() + i64::from(seconds)),
        ItemTtl::Inherit | ItemTtl::Never => None,
    }
}
