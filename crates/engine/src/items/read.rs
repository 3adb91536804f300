//! Point reads: from the cache, or one snapshot, the id row, the item row.

use std::sync::Arc;

use bytes::Bytes;
use quire_resource::PartitionKey;

use super::body::SelfLinks;
use super::etag_matches;
use crate::api::{Answer, EngineError, ItemRead, ReadItem, SessionPosition, charge, corrupt};
use crate::catalog::{Container, RoutedKey, canonical_of, id_key_of};
use crate::memory::item_cache::CachedItem;
use crate::recording::record_read;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys;
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, put_back_or};

pub(crate) fn read_item(shared: &Shared, container: &Container, read: &ReadItem<'_>) -> Answer<ItemRead> {
    let mut position = None;
    let result = find(shared, container, read, &mut position);
    answer(read, result, position)
}

pub(crate) fn read_item_cached(
    shared: &Shared,
    container: &Container,
    read: &ReadItem<'_>,
) -> Option<Answer<ItemRead>> {
    container.check_open().ok()?;
    let definition = &container.definition.partition_key;
    definition.check_complete(read.partition_key).ok()?;
    let key = canonical_of(definition, read.partition_key);
    let (partition, id_key) = id_key_of(container, &key, read.id);
    // Before the entry is looked up: what it shows is at least this new.
    let position = partition.cached_position()?;
    if !partition.satisfies(read.session, &position) {
        return None;
    }
    let visibility_point = container.visibility_point(shared);
    let item = shared.item_cache.get(&id_key)?;
    let is_invisible =
        container.is_invisible_by((item.ttl, item.written), &item.partition_key, item.lsn, &visibility_point);
    let visible = item.partition_key == *key && !is_invisible;
    visible.then(|| answer(read, Ok(item), Some(position)))
}

/// An item, which is in the cache then unless something is in the way.
pub(crate) fn find_item(
    shared: &Shared,
    container: &Container,
    id: &str,
    partition_key: &PartitionKey,
) -> Option<Arc<CachedItem>> {
    let read = ReadItem { id, partition_key, if_none_match: None, session: None };
    find(shared, container, &read, &mut None).ok()
}

fn find(
    shared: &Shared,
    container: &Container,
    read: &ReadItem<'_>,
    position: &mut Option<SessionPosition>,
) -> Result<Arc<CachedItem>, EngineError> {
    container.check_open()?;
    let place = RoutedKey::of(container, read.partition_key.clone())?;
    *position = Some(place.partition.position()?);
    *position = Some(place.partition.position_for(read.session)?);
    let id_key = place.id_key(container, read.id);
    let read_at = shared.write_clock.now();
    let not_found = || EngineError::ItemNotFound { id: read.id.to_owned() };
    let visibility_point = container.visibility_point(shared);
    let snapshot = container.snapshot(shared)?;
    #[cfg(feature = "schedules")]
    let visibility_point =
        put_back_or(Race::MarksAfterSnapshot, visibility_point, || container.visibility_point(shared));
    let rid = snapshot.get(keys::LOOKUPS, &id_key)?.ok_or_else(not_found)?;
    let rid = keys::number(&rid).ok_or_else(|| corrupt("id row"))?;
    let bytes = snapshot.get(keys::ITEMS, &keys::item(container.number, rid))?;
    let bytes = bytes.ok_or_else(|| corrupt("id row without an item"))?;
    let row = ItemRow::parse(&bytes)?;
    if container.is_invisible(&row, &visibility_point) || row.partition_key()? != place.key {
        return Err(not_found());
    }
    let item = Arc::new(ready(container, place, rid, &row)?);
    shared.item_cache.insert(&id_key, Arc::clone(&item), read_at);
    Ok(item)
}

fn ready(
    container: &Container,
    place: RoutedKey<'_>,
    rid: u64,
    row: &ItemRow<'_>,
) -> Result<CachedItem, EngineError> {
    let etag = row.stamp.etag();
    let mut body = Vec::with_capacity(row.json_bytes as usize + 256);
    row.node()?.write_json(&mut body);
    SelfLinks::new(container).complete(&mut body, rid, &row.stamp, &etag);
    Ok(CachedItem {
        body: Bytes::from(body),
        etag: Arc::from(etag),
        lsn: row.stamp.lsn,
        written: row.written(),
        ttl: row.ttl,
        json_bytes: row.json_bytes,
        rid,
        partition_key: place.key,
    })
}

fn answer(
    read: &ReadItem<'_>,
    result: Result<Arc<CachedItem>, EngineError>,
    position: Option<SessionPosition>,
) -> Answer<ItemRead> {
    let item = match result {
        Ok(item) => item,
        Err(error) => return Answer { charge: charge::REFUSED, position, result: Err(error) },
    };
    record_read(item.rid, read.id, &item.partition_key);
    let (etag, item_lsn) = (Arc::clone(&item.etag), item.lsn);
    if read.if_none_match.is_some_and(|condition| etag_matches(condition, &etag)) {
        let result = Ok(ItemRead::NotModified { etag, item_lsn });
        return Answer { charge: charge::REFUSED, position, result };
    }
    let result = Ok(ItemRead::Found { body: item.body.clone(), etag, item_lsn });
    Answer { charge: charge::read(item.json_bytes as usize), position, result }
}
