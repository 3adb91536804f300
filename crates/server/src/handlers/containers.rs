//! Containers.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use quire_engine::{Container, Engine, Resource};
use quire_resource::SYSTEM_KEY_PATH;
use quire_value::{Object, Value};

use crate::handlers::views;
use crate::handlers::{Call, HandlerResult, charge, feeds};
use crate::wire::Feed;
use crate::wire::headers::{Reply, database_names};

const POPULATE_QUOTA: HeaderName = HeaderName::from_static("x-ms-documentdb-populatequotainfo");
const POPULATE_STATISTICS: HeaderName =
    HeaderName::from_static("x-ms-documentdb-populatepartitionstatistics");
const INDEX_PROGRESS: HeaderName =
    HeaderName::from_static("x-ms-documentdb-collection-index-transformation-progress");
const SHARE_THROUGHPUT: HeaderName = HeaderName::from_static("x-ms-share-throughput");
const MAX_CONTENT_LENGTH: HeaderName = HeaderName::from_static("x-ms-cosmos-max-content-length");

pub(crate) async fn create(call: &Call<'_>, database: &str) -> HandlerResult {
    let (mut body, throughput) = (call.json()?, call.throughput()?);
    if !call.knows_partition_keys() {
        add_system_key(&mut body);
    }
    let (engine, database) = (call.state.engine.clone(), database.to_owned());
    let container =
        call.run(move || engine.catalog().create_container(&database, &body, throughput)).await??;
    Ok(Reply::json(StatusCode::CREATED, json(&call.state.engine, &container))
        .etag(&container.resource.etag)
        .owner_names(database_names(&container.database))
        .first_session(&container)
        .with(MAX_CONTENT_LENGTH, HeaderValue::from_static("2097152"))
        .charge(charge::CREATE))
    .map(|reply| with_sharing(call, &container, reply))
}

/// Clients from before partition keys create containers without one. All their items have the undefined key.
fn add_system_key(body: &mut Value) {
    let Some(container) = body.as_object_mut() else { return };
    if !matches!(container.get("partitionKey"), None | Some(Value::Null)) {
        return;
    }
    let mut key = Object::new();
    key.set("paths", vec![Value::from(SYSTEM_KEY_PATH)]);
    key.set("kind", "Hash");
    key.set("systemKey", true);
    container.set("partitionKey", key);
}

/// Whether the container has its throughput from its database.
fn with_sharing(call: &Call<'_>, container: &Container, reply: Reply) -> Reply {
    match call.state.engine.catalog().throughput_of(container) {
        Some((_, _, true)) => reply.with(SHARE_THROUGHPUT, HeaderValue::from_static("true")),
        _ => reply,
    }
}

pub(crate) fn read(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    let container = call.container(database, container)?;
    let statistics = call.is_true(&POPULATE_STATISTICS);
    if statistics {
        call.check_whole_container("x-ms-documentdb-populatepartitionstatistics")?;
    }
    let reply = call.read_reply(&container.resource, || {
        let engine = &call.state.engine;
        if statistics { json_with_statistics(engine, &container) } else { json(engine, &container) }
    })?;
    let reply = reply
        .owner(database_names(&container.database), &container.database.rid)
        .first_session(&container)
        .charge(charge::READ);
    let reply = with_sharing(call, &container, reply);
    if !call.is_true(&POPULATE_QUOTA) {
        return Ok(reply);
    }
    let (item_count, size_bytes) = container.usage();
    let progress = HeaderValue::from(u16::from(container.index_progress()));
    Ok(reply.usage(item_count, size_bytes).with(INDEX_PROGRESS, progress))
}

pub(crate) fn list(call: &Call<'_>, database: &str) -> HandlerResult {
    let owner = call.owner_database(database)?;
    let containers = call.state.engine.catalog().containers(database)?;
    let resources = containers.iter().map(|container| container.resource.clone()).collect();
    let reply = feeds::list(call, Feed::Containers, &owner.rid.to_string(), resources, Resource::to_json)?;
    Ok(reply.owner(database_names(&owner), &owner.rid))
}

pub(crate) async fn query(call: &Call<'_>, database: &str) -> HandlerResult {
    let owner = call.owner_database(database)?;
    let containers = call.state.engine.catalog().containers(database)?;
    let body = |container: &Arc<Container>| container.resource.to_json();
    let reply = feeds::query(call, Feed::Containers, &owner.rid.to_string(), containers, body).await?;
    Ok(reply.owner(database_names(&owner), &owner.rid))
}

pub(crate) async fn replace(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    call.container(database, container)?; // checks the intended rid
    let (body, precondition) = (call.json()?, call.precondition()?);
    let (engine, database, name) = (call.state.engine.clone(), database.to_owned(), container.to_owned());
    let container = call
        .run(move || engine.catalog().replace_container(&database, &name, &body, &precondition))
        .await??;
    Ok(Reply::json(StatusCode::OK, json(&call.state.engine, &container))
        .etag(&container.resource.etag)
        .owner(database_names(&container.database), &container.database.rid)
        .first_session(&container)
        .charge(charge::REPLACE))
    .map(|reply| with_sharing(call, &container, reply))
}

pub(crate) async fn delete(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    let owner = call.container(database, container)?.database.clone();
    let precondition = call.precondition()?;
    let (engine, database, name) = (call.state.engine.clone(), database.to_owned(), container.to_owned());
    call.run(move || engine.catalog().delete_container(&database, &name, &precondition)).await??;
    Ok(Reply::empty(StatusCode::NO_CONTENT).owner(database_names(&owner), &owner.rid).charge(charge::DELETE))
}

fn json(engine: &Engine, container: &Arc<Container>) -> String {
    Value::from(body(engine, container)).to_json()
}

fn body(engine: &Engine, container: &Container) -> Object {
    let mut body = container.resource.to_json();
    views::add_view_members(engine, container, &mut body);
    body
}

/// `"statistics": [{"id": "0", "sizeInKB": 1, "documentCount": 3, ...}]`, one entry per partition.
fn json_with_statistics(engine: &Engine, container: &Arc<Container>) -> String {
    let mut body = body(engine, container);
    let partitions = container.partitions();
    let statistics: Vec<Value> = partitions
        .iter()
        .map(|partition| {
            let mut entry = Object::new();
            entry.set("id", partition.id.as_str());
            entry.set("sizeInKB", kilobytes(partition.size_bytes));
            entry.set("documentCount", i64::try_from(partition.item_count).unwrap_or(i64::MAX));
            entry.set("sampledDistinctPartitionKeyCount", 0i64);
            entry.set("partitionKeys", Vec::new());
            Value::from(entry)
        })
        .collect();
    body.set("statistics", statistics);
    Value::from(body).to_json()
}

fn kilobytes(bytes: u64) -> i64 {
    i64::try_from(bytes.div_ceil(1024)).unwrap_or(i64::MAX)
}
