//! Partition key ranges: from which clients learn which partition has a key.
//!
//! With `A-IM` it is a feed of changes: clients send the etag of the last answer until they get a 304. Without it the answer
//! is always the whole list.

use hyper::StatusCode;
use hyper::header::{HeaderName, IF_NONE_MATCH};
use quire_engine::{Container, PartitionInfo};
use quire_value::{Number, Object, Value};

use crate::handlers::{Call, HandlerResult, charge, feeds};
use crate::wire::Feed;
use crate::wire::headers::Reply;
use crate::wire::status::HandlerError;

pub(super) const A_IM: HeaderName = HeaderName::from_static("a-im");

pub(crate) fn list(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    let container = call.owner_container(database, container)?;
    call.page()?;
    let reply =
        if is_incremental(call)? { incremental(call, &container)? } else { all_partitions(&container) };
    Ok(reply.in_container(&container).first_session(&container).charge(charge::LIST))
}

pub(crate) async fn query(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    let container = call.owner_container(database, container)?;
    let rid = container.resource.rid.to_string();
    let (partitions, etag) = (container.partitions(), container.partitions_etag());
    let partitions: Vec<(usize, PartitionInfo)> = partitions.into_iter().enumerate().collect();
    let (source, count) = (container.clone(), partitions.len());
    let body = move |(position, partition): &_| row(&source, &etag, partition, *position, count);
    let reply = feeds::query(call, Feed::PartitionKeyRanges, &rid, partitions, body).await?;
    Ok(reply.in_container(&container).first_session(&container))
}

fn is_incremental(call: &Call<'_>) -> Result<bool, HandlerError> {
    let value = call.text(&A_IM)?.unwrap_or_default();
    Ok(value.trim().eq_ignore_ascii_case("incremental feed"))
}

fn incremental(call: &Call<'_>, container: &Container) -> HandlerResult {
    let etag = container.partitions_etag();
    let reply = match call.text(&IF_NONE_MATCH)? {
        Some(known) if known == etag => Reply::empty(StatusCode::NOT_MODIFIED),
        _ => all_partitions(container),
    };
    Ok(reply.etag(&etag))
}

fn all_partitions(container: &Container) -> Reply {
    let rows = rows(container).into_iter().map(Value::from).collect();
    feeds::rows_reply(Feed::PartitionKeyRanges, &container.resource.rid.to_string(), rows)
}

fn rows(container: &Container) -> Vec<Object> {
    let (partitions, etag) = (container.partitions(), container.partitions_etag());
    let count = partitions.len();
    partitions
        .into_iter()
        .enumerate()
        .map(|(position, partition)| row(container, &etag, &partition, position, count))
        .collect()
}

/// Members in the service's order.
fn row(
    container: &Container,
    etag: &str,
    partition: &PartitionInfo,
    position: usize,
    count: usize,
) -> Object {
    let parents: Vec<Value> = partition.parents.iter().map(|parent| Value::from(parent.as_str())).collect();
    let mut row = Object::new();
    row.set("_rid", partition.rid.to_string());
    row.set("id", partition.id.as_str());
    row.set("_etag", etag);
    row.set("minInclusive", partition.range.min.to_hex());
    row.set("maxExclusive", partition.range.max.to_hex());
    row.set("ridPrefix", i64::try_from(position).unwrap_or(i64::MAX));
    row.set("_self", partition.rid.self_link());
    row.set("throughputFraction", 1.0 / count as f64);
    row.set("status", "online");
    row.set("parents", parents);
    row.set("ownedArchivalPKRangeIds", Vec::new());
    row.set("_ts", container.resource.ts);
    row.set("lsn", Value::Number(Number::from_u64(partition.lsn)));
    row
}
