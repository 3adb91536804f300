//! `/_quire/dbs/{db}/colls/{coll}/partitions`: the partitions of a container, and their splits.
//!
//! `GET …/partitions` lists them. `POST …/partitions/{id}/split` splits one and answers with the new list. The server also
//! splits by itself, by throughput and size.

use hyper::StatusCode;
use quire_engine::{CannotSplit, Container, Engine, PartitionInfo};
use quire_value::{Object, Value};

use crate::admin::{AdminCall, AdminReply, AdminResult};

pub(crate) async fn list(call: &AdminCall<'_>, database: &str, container: &str) -> AdminResult {
    let container = call.container(database, container)?;
    let list = call.run(move |engine| Ok(describe(engine, &container))).await?;
    Ok(AdminReply::json(StatusCode::OK, list))
}

pub(crate) async fn split(call: &AdminCall<'_>, database: &str, container: &str, id: &str) -> AdminResult {
    let (database, name, id) = (database.to_owned(), container.to_owned(), id.to_owned());
    let container = call.container(&database, &name)?;
    let split = move |engine: &Engine| {
        engine.split_partition(&container, &id)?;
        // As it is after the split.
        Ok(describe(engine, &*engine.catalog().container(&database, &name)?))
    };
    Ok(AdminReply::json(StatusCode::OK, call.run(split).await?))
}

fn describe(engine: &Engine, container: &Container) -> Object {
    let partitions = container.partitions().into_iter().map(|info| {
        let cannot_split = engine.cannot_split(container, &info.id);
        one(info, cannot_split)
    });
    let mut list = Object::new();
    list.set("partitions", partitions.collect::<Vec<Value>>());
    list
}

fn one(info: PartitionInfo, cannot_split: Option<CannotSplit>) -> Value {
    let mut partition = Object::new();
    partition.set("id", info.id.as_str());
    partition.set("minInclusive", info.range.min.to_hex().as_str());
    partition.set("maxExclusive", info.range.max.to_hex().as_str());
    let parents = info.parents.iter().map(|parent| Value::from(parent.as_str())).collect();
    partition.set("parents", Value::Array(parents));
    partition.set("lsn", info.lsn as i64);
    partition.set("items", info.item_count as i64);
    partition.set("bytes", info.size_bytes as i64);
    if let Some(cannot) = cannot_split {
        let mut split = Object::new();
        split.set("state", "notPossible");
        split.set("reason", cannot.reason);
        split.set("triedAt", cannot.tried_at);
        split.set("againAt", cannot.again_at);
        partition.set("split", Value::Object(split));
    }
    Value::Object(partition)
}
