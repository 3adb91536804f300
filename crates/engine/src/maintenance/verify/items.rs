//! Item rows.

use quire_resource::ContainerDefinition;
use quire_value::Item;

use super::catalog::CheckedContainer;
use crate::catalog::canonical;
use crate::maintenance::derived::{DerivedRows, derived_rows};
use crate::store::PartitionLayout;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, Counts};

pub(super) fn check_item(
    container: u32,
    CheckedContainer { definition, layout, indexes, .. }: &CheckedContainer,
    key: &[u8],
    value: &[u8],
) -> Result<((u32, Counts), DerivedRows), String> {
    let rid = keys::rid_of_item_key(key).ok_or("a key of the wrong length")?;
    let row = ItemRow::parse(value).map_err(|error| error.to_string())?;
    let partition = check_row(definition, layout, rid, &row)?;
    let derived = derived_rows(container, definition, indexes, rid, &row);
    let derived = derived.map_err(|error| error.to_string())?;
    Ok(((partition, row.counts()), derived))
}

/// The row against itself and the container it is in; which partition holds it.
pub(crate) fn check_row(
    definition: &ContainerDefinition,
    layout: &[PartitionLayout],
    rid: u64,
    row: &ItemRow<'_>,
) -> Result<u32, String> {
    let item = Item::from_bytes(row.item().to_vec()).map_err(|error| error.to_string())?;
    let partition_key = row.partition_key().map_err(|error| error.to_string())?;
    let extracted = definition.partition_key.extract(item.root()).map_err(|error| error.to_string())?;
    if canonical(&definition.partition_key, extracted) != partition_key {
        return Err("its partition key is not the one of its item".to_owned());
    }
    let epk = definition.partition_key.effective(&partition_key);
    let prefix = epk.rid_prefix(definition.partition_key.kind, definition.partition_key.version);
    if keys::rid_prefix(rid) != prefix {
        return Err("its rid is not where its partition key belongs".to_owned());
    }
    // It may have been written before its partition was split.
    let partition = layout.iter().find(|partition| partition.range.contains(&epk));
    let partition = partition.filter(|partition| partition.descends_from(row.stamp.partition));
    let partition =
        partition.ok_or_else(|| format!("partition {} is not the one of its key", row.stamp.partition))?.id;
    if item.root().json_len() != row.json_bytes as usize {
        return Err("its size is not what its header says".to_owned());
    }
    Ok(partition)
}
