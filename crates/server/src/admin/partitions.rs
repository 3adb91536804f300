//! `/_quire/dbs/{db}/colls/{coll}/partitions`: how a container is divided, and dividing it further.
//!
//! `GET …/partitions` lists them. `POST …/partitions/{id}/split` makes two of one and answers with the list as it then is;
//! a container's throughput and size do the same by themselves.

use hyper::StatusCode;
use quire_engine::{CannotSplit, Container, Engine, EngineError, PartitionInfo};
use quire_value::{Object, Value};

use crate::admin::{AdminCall, Answered, answer};

pub(crate) async fn list(call: &AdminCall<'_>, database: &str, container: &str) -> Answered {
    let (engine, database, container) =
        (call.state.engine.clone(), database.to_owned(), container.to_owned());
    let run = move || Ok::<_, EngineError>(describe(&engine, &*engine.container(&database, &container)?));
    Ok(answer::json(StatusCode::OK, call.state.pool.read(run).await??))
}

pub(crate) async fn split(call: &AdminCall<'_>, database: &str, container: &str, id: &str) -> Answered {
    let (engine, id) = (call.state.engine.clone(), id.to_owned());
    let (database, container) = (database.to_owned(), container.to_owned());
    let run = move || {
        engine.split_partition(&engine.container(&database, &container)?, &id)?;
        // As it is after the split.
        Ok::<_, EngineError>(describe(&engine, &*engine.container(&database, &container)?))
    };
    Ok(answer::json(StatusCode::OK, call.state.pool.write(run).await??))
}

fn describe(engine: &Engine, container: &Container) -> String {
    let partitions = container.partitions().into_iter().map(|info| {
        let cannot_split = engine.cannot_split(container, &info.id);
        one(info, cannot_split)
    });
    let partitions = partitions.collect();
    let mut list = Object::new();
    list.set("partitions", Value::Array(partitions));
    Value::Object(list).to_json()
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
