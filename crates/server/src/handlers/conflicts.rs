//! Conflicts of several write regions: with one there are never any.

use quire_engine::{EngineError, Scope};
use quire_value::Object;

use crate::handlers::{Call, HandlerResult, charge, feeds};
use crate::wire::Feed;

pub(crate) fn list(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    let container = call.owner_container(database, container)?;
    call.page()?;
    let reply = feeds::rows_reply(Feed::Conflicts, &container.resource.rid.to_string(), Vec::new());
    Ok(reply.in_container(&container).first_session(&container).charge(charge::LIST))
}

pub(crate) async fn query(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    let container = call.owner_container(database, container)?;
    let Scope { partition_key, partition_id, range } = call.scope()?;
    let is_narrowed = partition_key.is_some() || partition_id.is_some() || range.is_some();
    if !is_narrowed && !call.crosses_partitions() {
        return Err(EngineError::CrossPartitionRefused.into());
    }
    let rid = container.resource.rid.to_string();
    let reply = feeds::query(call, Feed::Conflicts, &rid, Vec::new(), Object::clone).await?;
    Ok(reply.in_container(&container).first_session(&container))
}

/// Read and delete: the container must exist, the conflict never does.
pub(crate) fn missing(call: &Call<'_>, database: &str, container: &str, id: &str) -> HandlerResult {
    call.owner_container(database, container)?;
    Err(EngineError::ResourceNotFound { kind: "conflict", id: id.to_owned() }.into())
}
