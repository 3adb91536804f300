//! Point reads that follow links: the item and what follows from it, of one moment.

use bytes::Bytes;
use quire_sql::{FOLLOWED_MEMBER, Item};
use quire_value::Value;

use super::PageLinks;
use crate::api::{
    Answer, Cancel, EngineError, FollowRequest, ItemRead, ReadItem, SessionPosition, charge, corrupt,
};
use crate::catalog::{Catalog, Container, RoutedKey};
use crate::items::body::{SelfLinks, StampedItem};
use crate::items::etag_matches;
use crate::query::read_snapshot::ReadSnapshot;
use crate::runtime::{Shared, allowance};
use crate::store::item_row::ItemRow;
use crate::store::keys;

/// The item with its member, and how many items follow.
pub(crate) fn read_item_followed(
    shared: &Shared,
    catalog: &Catalog,
    container: &Container,
    read: &ReadItem<'_>,
    follow: &FollowRequest,
) -> Answer<(ItemRead, u64)> {
    let (mut position, mut charge) = (None, charge::REFUSED);
    let result = find(shared, catalog, container, read, follow, &mut position);
    let result = result.map(|(answer, count, cost)| {
        charge = cost;
        (answer, count)
    });
    Answer { charge, position, result }
}

fn find(
    shared: &Shared,
    catalog: &Catalog,
    container: &Container,
    read: &ReadItem<'_>,
    follow: &FollowRequest,
    position: &mut Option<SessionPosition>,
) -> Result<(ItemRead, u64, f64), EngineError> {
    container.check_open()?;
    let place = RoutedKey::of(container, read.partition_key.clone())?;
    *position = Some(place.partition.position()?);
    *position = Some(place.partition.position_for(read.session)?);
    let allowance = allowance::of_page(shared, &Cancel::default());
    let links = PageLinks::new(shared, Some(catalog), container, &allowance).with_request(follow)?;
    let view = ReadSnapshot::take(shared, container)?;
    let not_found = || EngineError::ItemNotFound { id: read.id.to_owned() };
    let rid = view.snapshot.get(keys::LOOKUPS, &place.id_key(container, read.id))?;
    let rid = keys::number(&rid.ok_or_else(not_found)?).ok_or_else(|| corrupt("id row"))?;
    let bytes = view.snapshot.get(keys::ITEMS, &keys::item(container.number, rid))?;
    let bytes = bytes.ok_or_else(|| corrupt("id row without an item"))?;
    let row = ItemRow::parse(&bytes)?;
    if container.is_invisible(&row, &view.visibility_point) || row.partition_key()? != place.key {
        return Err(not_found());
    }
    let (etag, item_lsn) = (std::sync::Arc::from(row.stamp.etag()), row.stamp.lsn);
    if read.if_none_match.is_some_and(|condition| etag_matches(condition, &etag)) {
        return Ok((ItemRead::NotModified { etag, item_lsn }, 0, charge::REFUSED));
    }
    links.begin(&view)?;
    let own_links = SelfLinks::new(container);
    let system = StampedItem { links: &own_links, child: rid, stamp: row.stamp };
    let item = Item::stored(row.node()?, &system);
    links.prefetch(|| links.member(&item).map(|_| ()))?;
    links.start_item();
    let member = links.member(&item)?.ok_or_else(|| corrupt("links that are not read"))?;
    links.row_sent();
    let mut value = item.to_value();
    if let Value::Object(object) = &mut value {
        object.remove(FOLLOWED_MEMBER); // of an item that was written before there was a model
        object.set(FOLLOWED_MEMBER, member);
    }
    let mut body = Vec::with_capacity(row.json_bytes as usize + 512);
    value.write_json(&mut body);
    let cost = links.cost();
    let charge = charge::rounded(charge::read(row.json_bytes as usize) + cost.charge);
    Ok((ItemRead::Found { body: Bytes::from(body), etag, item_lsn }, cost.sent, charge))
}
