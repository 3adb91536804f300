//! Where a partition is divided: in the middle of its items, never inside a logical partition.
//!
//! Child ids begin with 24 bits of the effective partition key, so the middle item is found by keys alone, and the boundary
//! is the first effective key that those bits can have. Only where all items share them, as under one first level of
//! a hierarchical key, the items' own keys decide.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use quire_resource::{EffectivePartitionKey, EpkRange};
use quire_storage::{KeyRange, Scan, Snapshot};

use super::count::rids;
use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::partition::Partition;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS};
use crate::store::{for_each_row, scan};

/// How many items have each prefix, as far as it matters where the middle is.
struct PrefixCounts {
    total: u64,
    first: Option<u32>,
    last: Option<u32>,
}

pub(super) fn find_boundary(
    shared: &Shared,
    container: &Container,
    partition: &Partition,
) -> Result<EffectivePartitionKey, EngineError> {
    let range = &partition.layout.range;
    let found = count_prefixes(shared, container, range)?;
    let boundary = match (found.first, found.last) {
        (None, _) | (_, None) => middle_of(container, range),
        (Some(first), Some(last)) if first == last => {
            let keys = keys_of(shared, container, range, first)?;
            Some(middle_key(&keys).ok_or_else(|| cannot(partition, "it holds one logical partition only"))?)
        }
        (Some(first), Some(_)) => {
            let prefix = middle_prefix(shared, container, range, first, found.total)?;
            prefix.map(|prefix| floor(container, prefix))
        }
    };
    let inside = boundary.filter(|boundary| range.min < *boundary && *boundary < range.max);
    inside.ok_or_else(|| cannot(partition, "its range is too narrow"))
}

fn cannot(partition: &Partition, reason: &'static str) -> EngineError {
    EngineError::CannotSplit { id: partition.name.to_string(), reason }
}

/// The first key that child ids with a prefix can have.
fn floor(container: &Container, prefix: u32) -> EffectivePartitionKey {
    let definition = &container.definition.partition_key;
    EffectivePartitionKey::of_rid_prefix(definition.kind, definition.version, prefix)
}

/// Of a partition without items: where an even layout would divide, else half way.
fn middle_of(container: &Container, range: &EpkRange) -> Option<EffectivePartitionKey> {
    let definition = &container.definition.partition_key;
    let even = EpkRange::split_evenly(definition, 2).swap_remove(0).max;
    if range.min < even && even < range.max && *range == EpkRange::full() {
        return Some(even);
    }
    let (first, last) = range.rid_prefixes(definition.kind, definition.version);
    let middle = first + (last.saturating_sub(first)).div_ceil(2);
    (middle > first).then(|| floor(container, middle))
}

fn count_prefixes(
    shared: &Shared,
    container: &Container,
    range: &EpkRange,
) -> Result<PrefixCounts, EngineError> {
    let mut found = PrefixCounts { total: 0, first: None, last: None };
    for_each_prefix(shared, container, range, |prefix| {
        found.total += 1;
        found.first.get_or_insert(prefix);
        found.last = Some(prefix);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// The prefix behind the first one that has about as many items before it as after it.
fn middle_prefix(
    shared: &Shared,
    container: &Container,
    range: &EpkRange,
    first: u32,
    total: u64,
) -> Result<Option<u32>, EngineError> {
    let (mut seen, mut begun, mut best) = (0u64, first, None::<(u64, u32)>);
    for_each_prefix(shared, container, range, |prefix| {
        if prefix != begun {
            begun = prefix;
            let off_middle = (2 * seen).abs_diff(total);
            if best.is_some_and(|(least, _)| least <= off_middle) {
                return ControlFlow::Break(()); // it only gets worse
            }
            best = Some((off_middle, prefix));
        }
        seen += 1;
        ControlFlow::Continue(())
    })?;
    Ok(best.map(|(_, prefix)| prefix))
}

fn for_each_prefix(
    shared: &Shared,
    container: &Container,
    range: &EpkRange,
    mut item: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<(), EngineError> {
    let (first, last) = rids(container, range);
    let edges = shared_edges(container, range);
    let mut start = Bound::Included(keys::item(container.number, first));
    let end = Bound::Included(keys::item(container.number, last));
    loop {
        let page =
            Scan { rows_max: 10_000, keys_only: true, ..scan(ITEMS, KeyRange { start, end: end.clone() }) };
        let snapshot = shared.storage.snapshot()?;
        let page = snapshot.scan(&page)?;
        for (key, _) in &page.rows {
            let rid = keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"))?;
            let prefix = keys::rid_prefix(rid);
            if edges.contains(&prefix) && !is_inside(&*snapshot, container, range, key)? {
                continue;
            }
            if item(prefix).is_break() {
                return Ok(());
            }
        }
        match page.rows.into_iter().next_back() {
            Some((last, _)) if page.more => start = Bound::Excluded(last),
            _ => return Ok(()),
        }
    }
}

/// Prefixes that items of a neighbouring partition can have too.
fn shared_edges(container: &Container, range: &EpkRange) -> Vec<u32> {
    let definition = &container.definition.partition_key;
    let (first, last) = range.rid_prefixes(definition.kind, definition.version);
    let mut edges = Vec::new();
    if range.min > floor(container, first) {
        edges.push(first);
    }
    if range.max < floor(container, last + 1) {
        edges.push(last);
    }
    edges
}

fn is_inside(
    snapshot: &dyn Snapshot,
    container: &Container,
    range: &EpkRange,
    key: &[u8],
) -> Result<bool, EngineError> {
    let value = snapshot.get(ITEMS, key)?.ok_or_else(|| corrupt("a key without its row"))?;
    let key = ItemRow::parse(&value)?.partition_key()?;
    Ok(range.contains(&container.definition.partition_key.effective(&key)))
}

/// The keys of a partition's items that share a prefix, and how many items each has.
fn keys_of(
    shared: &Shared,
    container: &Container,
    range: &EpkRange,
    prefix: u32,
) -> Result<BTreeMap<EffectivePartitionKey, u64>, EngineError> {
    let definition = &container.definition.partition_key;
    let mut found = BTreeMap::new();
    let under = (u64::from(prefix) << keys::RID_COUNTER_BITS).to_be_bytes();
    let mut under = [&keys::container_prefix(container.number)[..], &under[..]].concat();
    // The prefix is 24 of the last 60 bits: the first three and a half bytes of eight.
    under.truncate(4 + 3);
    for_each_row(&*shared.storage.snapshot()?, ITEMS, &under, |key, value| {
        let rid = keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"))?;
        if keys::rid_prefix(rid) == prefix {
            let epk = definition.effective(&ItemRow::parse(value)?.partition_key()?);
            if range.contains(&epk) {
                *found.entry(epk).or_insert(0) += 1;
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// The one, not the first, with about as many items before it as from it on.
fn middle_key(keys: &BTreeMap<EffectivePartitionKey, u64>) -> Option<EffectivePartitionKey> {
    let total: u64 = keys.values().sum();
    let mut before = 0u64;
    let mut places = Vec::with_capacity(keys.len());
    for (key, count) in keys {
        places.push(((2 * before).abs_diff(total), key));
        before += count;
    }
    places.into_iter().skip(1).min_by_key(|(off_middle, _)| *off_middle).map(|(_, key)| key.clone())
}
