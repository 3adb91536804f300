//! From a reference to its target.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use quire_model::{LinkRules, TargetKey};
use quire_storage::Snapshot;

use super::TargetHash;
use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::items::logical_partition::{LogicalPartition, StoredRow};
use crate::items::visibility::VisibilityPoint;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, DeclarationKeys, LOOKUPS};
use crate::store::scan;

/// A link, and where its targets are.
#[derive(Clone, Copy)]
pub(crate) struct TargetRoute<'a> {
    pub link: &'a LinkRules,
    /// Number of the link.
    pub declaration: u32,
    /// Of the targets.
    pub container: &'a Container,
}

/// The item that a reference names.
pub(crate) struct FoundTarget<'a> {
    pub logical_partition: LogicalPartition<'a>,
    pub id_key: Vec<u8>,
    pub stored: StoredRow,
    /// Nobody sees it any more: for clients it is no target.
    pub is_invisible: bool,
}

impl<'a> TargetRoute<'a> {
    pub fn rows(&self) -> DeclarationKeys {
        DeclarationKeys { container: self.container.number, declaration: self.declaration }
    }

    /// The logical partition and id row of what a reference names, where the link says both. `None`: it is found by its key,
    /// or no item can be there.
    pub fn place_of(&self, target: &TargetKey) -> Option<(LogicalPartition<'a>, Vec<u8>)> {
        let partition_key = target.partition_key.clone().filter(|_| !self.link.link.has_key_index())?;
        // A key that no item can have: too long, or a value of a kind that keys are not.
        let logical_partition = LogicalPartition::of(self.container, partition_key).ok()?;
        let id_key = logical_partition.id_key(&target.value);
        Some((logical_partition, id_key))
    }
}

/// The item that a reference names, visible or not. `visibility_point` was asked before the snapshot.
pub(crate) fn find_target<'a>(
    snapshot: &dyn Snapshot,
    route: TargetRoute<'a>,
    target: &TargetKey,
    visibility_point: &VisibilityPoint,
) -> Result<Option<FoundTarget<'a>>, EngineError> {
    if route.link.link.has_key_index() {
        return find_by_key(snapshot, route, target, visibility_point);
    }
    let Some((logical_partition, id_key)) = route.place_of(target) else { return Ok(None) };
    let Some(stored) = logical_partition.find(snapshot, &id_key)? else { return Ok(None) };
    let (_, row) = stored.parse()?;
    // Hashes of partition keys collide.
    if !logical_partition.has(&row)? {
        return Ok(None);
    }
    let is_invisible = route.container.is_invisible(&row, visibility_point);
    Ok(Some(FoundTarget { logical_partition, id_key, stored, is_invisible }))
}

fn find_by_key<'a>(
    snapshot: &dyn Snapshot,
    route: TargetRoute<'a>,
    target: &TargetKey,
    visibility_point: &VisibilityPoint,
) -> Result<Option<FoundTarget<'a>>, EngineError> {
    let key = route.rows().link_key(&TargetHash::of(target).0);
    let Some(rid) = snapshot.get(LOOKUPS, &key)? else { return Ok(None) };
    let rid = keys::number(&rid).ok_or_else(|| corrupt("row of a link's key"))?;
    let bytes = snapshot.get(keys::ITEMS, &keys::item(route.container.number, rid))?;
    let stored =
        StoredRow { rid, bytes: bytes.ok_or_else(|| corrupt("row of a link's key without an item"))? };
    let (_, row) = stored.parse()?;
    let partition_key = row.partition_key()?;
    if route.link.target_key(row.node()?, &partition_key).as_ref() != Some(target) {
        return Ok(None);
    }
    let logical_partition = LogicalPartition::of(route.container, partition_key)?;
    let id_key = logical_partition.id_key(row.id()?);
    let is_invisible = route.container.is_invisible(&row, visibility_point);
    Ok(Some(FoundTarget { logical_partition, id_key, stored, is_invisible }))
}

/// Which of some targets clients see, where the link says their place. They are read together, in the order of their rows.
pub(crate) fn visible_targets(
    snapshot: &dyn Snapshot,
    route: TargetRoute<'_>,
    targets: &BTreeMap<TargetHash, &TargetKey>,
    visibility_point: &VisibilityPoint,
) -> Result<HashSet<TargetHash>, EngineError> {
    let place = |(hash, target): (&TargetHash, &&TargetKey)| {
        let (logical_partition, id_key) = route.place_of(target)?;
        Some((id_key, *hash, logical_partition))
    };
    let mut places: Vec<(Vec<u8>, TargetHash, LogicalPartition<'_>)> =
        targets.iter().filter_map(place).collect();
    places.sort_unstable_by(|(left, ..), (right, ..)| left.cmp(right));
    let id_keys: Vec<&[u8]> = places.iter().map(|(id_key, ..)| id_key.as_slice()).collect();
    let rids = snapshot.multi_get(LOOKUPS, &id_keys)?;
    let mut found = Vec::with_capacity(places.len());
    for ((_, hash, logical_partition), rid) in places.iter().zip(rids) {
        let Some(rid) = rid else { continue };
        let rid = keys::number(&rid).ok_or_else(|| corrupt("id row"))?;
        found.push((keys::item(route.container.number, rid), *hash, logical_partition));
    }
    found.sort_unstable_by(|(left, ..), (right, ..)| left.cmp(right));
    let item_keys: Vec<&[u8]> = found.iter().map(|(key, ..)| key.as_slice()).collect();
    let rows = snapshot.multi_get(keys::ITEMS, &item_keys)?;
    let mut visible = HashSet::with_capacity(found.len());
    for ((_, hash, logical_partition), row) in found.iter().zip(rows) {
        let row = row.ok_or_else(|| corrupt("id row without an item"))?;
        let row = ItemRow::parse(&row)?;
        // Hashes of partition keys collide.
        if logical_partition.has(&row)? && !route.container.is_invisible(&row, visibility_point) {
            visible.insert(*hash);
        }
    }
    Ok(visible)
}

/// Whether there is an item with a key, as its items say.
pub(crate) enum ScannedKey {
    /// With the bytes of its JSON.
    Found(usize),
    Missing,
    /// There are more items than were examined.
    Unknown,
}

/// Looks for a key in the items themselves, up to so many of them: where the keys of a link are still being indexed.
pub(crate) fn scan_for_key(
    snapshot: &dyn Snapshot,
    route: TargetRoute<'_>,
    target: &TargetKey,
    visibility_point: &VisibilityPoint,
    items_max: usize,
) -> Result<ScannedKey, EngineError> {
    let (container, mut range, mut left) =
        (route.container, keys::items_from(route.container.number, 0), items_max);
    loop {
        let page = snapshot.scan(&scan(keys::ITEMS, range.clone()))?;
        for (_, bytes) in page.rows.iter().take(left) {
            let row = ItemRow::parse(bytes)?;
            let key = route.link.target_key(row.node()?, &row.partition_key()?);
            if key.as_ref() == Some(target) && !container.is_invisible(&row, visibility_point) {
                return Ok(ScannedKey::Found(row.json_bytes as usize));
            }
        }
        let Some(rest) = left.checked_sub(page.rows.len()) else { return Ok(ScannedKey::Unknown) };
        left = rest;
        match page.rows.into_iter().next_back() {
            Some((last, _)) if page.more => range.start = Bound::Excluded(last),
            _ => return Ok(ScannedKey::Missing),
        }
    }
}
