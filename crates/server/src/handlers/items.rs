//! Items: create, upsert, read, replace, patch, delete, list.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use quire_engine::{
    Answer, Cancel, Container, EngineError, FollowRequest, ItemRead, ItemWritten, PageRequest, ReadItem,
    SessionPosition, WriteItem, WriteKind,
};
use quire_resource::PartitionKey;
use quire_value::Value;

use crate::handlers::{Call, HandlerResult, feeds, procedures};
use crate::wire::headers::{Reply, page_head};
use crate::wire::status::{Failure, HandlerError, RequestError};

const PRE_TRIGGERS: HeaderName = HeaderName::from_static("x-ms-documentdb-pre-trigger-include");
/// How many items an answer has besides those that were asked for.
pub(super) const FOLLOWED: HeaderName = HeaderName::from_static("x-quire-followed");
const POST_TRIGGERS: HeaderName = HeaderName::from_static("x-ms-documentdb-post-trigger-include");

/// The hot path: a hit in the cache of the engine is answered on the async worker.
pub(crate) async fn read(call: &Call<'_>, database: &str, container: &str, id: &str) -> HandlerResult {
    let container = call.item_container(database, container)?;
    let by_rid = id_by_rid(call, &container, database, id).await?;
    let id = by_rid.as_deref().unwrap_or(id);
    let partition_key = call.key_in(&container).ok_or(EngineError::PartitionKeyMissing)?;
    let partition_key = &*partition_key;
    let if_none_match = call.text(&IF_NONE_MATCH)?;
    let session = call.session()?;
    if let Some(follow) = call.follow()? {
        return read_followed(call, &container, (id, partition_key), follow).await;
    }
    let read = ReadItem { id, partition_key, if_none_match, session: session.as_ref() };
    if let Some(answer) = call.run_here(|| call.state.engine.read_item_cached(&container, &read)) {
        return Ok(read_reply(&container, answer));
    }
    let engine = call.state.engine.clone();
    let (id, partition_key) = (id.to_owned(), partition_key.clone());
    let if_none_match = if_none_match.map(str::to_owned);
    let blocking = {
        let container = container.clone();
        move || {
            let read = ReadItem {
                id: &id,
                partition_key: &partition_key,
                if_none_match: if_none_match.as_deref(),
                session: session.as_ref(),
            };
            engine.read_item(&container, &read)
        }
    };
    let answer = call.run(blocking).await?;
    Ok(read_reply(&container, answer))
}

/// The item and what follows from it, of one moment.
async fn read_followed(
    call: &Call<'_>,
    container: &Arc<Container>,
    (id, partition_key): (&str, &PartitionKey),
    follow: FollowRequest,
) -> HandlerResult {
    let if_none_match = call.text(&IF_NONE_MATCH)?;
    let session = call.session()?;
    let read = ReadItem { id, partition_key, if_none_match, session: session.as_ref() };
    if let Some(answer) = call.state.engine.read_item_followed_cached(container, &read, &follow) {
        return Ok(followed_reply(container, answer));
    }
    let (engine, source) = (call.state.engine.clone(), container.clone());
    let (id, partition_key) = (id.to_owned(), partition_key.clone());
    let if_none_match = if_none_match.map(str::to_owned);
    let answer = call
        .run(move || {
            let read = ReadItem {
                id: &id,
                partition_key: &partition_key,
                if_none_match: if_none_match.as_deref(),
                session: session.as_ref(),
            };
            engine.read_item_followed(&source, &read, &follow)
        })
        .await?;
    Ok(followed_reply(container, answer))
}

fn followed_reply(container: &Container, answer: Answer<(ItemRead, u64)>) -> Reply {
    let mut count = None;
    let result = answer.result.map(|(read, followed)| {
        count = Some(followed);
        read
    });
    let reply = read_reply(container, Answer { charge: answer.charge, position: answer.position, result });
    match count {
        Some(count) => reply.with(FOLLOWED, HeaderValue::from(count)),
        None => reply,
    }
}

fn read_reply(container: &Container, answer: Answer<ItemRead>) -> Reply {
    let reply = match answer.result {
        Ok(ItemRead::Found { body, etag, item_lsn }) => {
            let reply = Reply::json(StatusCode::OK, body).etag(&etag).item_lsn(item_lsn).count(1);
            match container.cached_usage() {
                Some((item_count, size_bytes)) => reply.usage(item_count, size_bytes),
                None => reply,
            }
        }
        Ok(ItemRead::NotModified { etag, item_lsn }) => {
            Reply::empty(StatusCode::NOT_MODIFIED).etag(&etag).item_lsn(item_lsn)
        }
        Err(error) => Reply::failure(Failure::from(&error)),
    };
    with_position(reply, container, answer.charge, answer.position.as_ref())
}

pub(crate) async fn create(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    write(call, call.item_container(database, container)?, WriteKind::Create).await
}

pub(crate) async fn upsert(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    write(call, call.item_container(database, container)?, WriteKind::Upsert).await
}

pub(crate) async fn replace(call: &Call<'_>, database: &str, container: &str, id: &str) -> HandlerResult {
    let container = call.item_container(database, container)?;
    let by_rid = id_by_rid(call, &container, database, id).await?;
    let id = by_rid.unwrap_or_else(|| id.to_owned());
    check_keeps_id(call, &id)?;
    write(call, container, WriteKind::Replace { id }).await
}

/// A replace may give an item another id. A token for one item covers no other, so it may not.
fn check_keeps_id(call: &Call<'_>, id: &str) -> Result<(), HandlerError> {
    if !call.request.is_limited_to_item {
        return Ok(());
    }
    match call.json()?.get("id").and_then(Value::as_str) {
        Some(new) if new != id => {
            let reason = "A token for one item cannot give it another id.".to_owned();
            Err(EngineError::Forbidden { reason }.into())
        }
        _ => Ok(()),
    }
}

/// With any content type: clients disagree about it.
pub(crate) async fn patch(call: &Call<'_>, database: &str, container: &str, id: &str) -> HandlerResult {
    let container = call.item_container(database, container)?;
    let by_rid = id_by_rid(call, &container, database, id).await?;
    let id = by_rid.unwrap_or_else(|| id.to_owned());
    let if_none_match = call.text(&IF_NONE_MATCH)?.map(str::to_owned);
    write(call, container, WriteKind::Patch { id, if_none_match }).await
}

pub(crate) async fn delete(call: &Call<'_>, database: &str, container: &str, id: &str) -> HandlerResult {
    let container = call.item_container(database, container)?;
    let by_rid = id_by_rid(call, &container, database, id).await?;
    let id = by_rid.unwrap_or_else(|| id.to_owned());
    write(call, container, WriteKind::Delete { id }).await
}

/// All items of a partition key.
pub(crate) async fn delete_all(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    let container = call.item_container(database, container)?;
    let key = call.partition_key.clone().ok_or(EngineError::PartitionKeyMissing)?;
    let (engine, target) = (call.state.engine.clone(), container.clone());
    let answer = call.run(move || engine.delete_partition_key(&target, key)).await?;
    let reply = match answer.result {
        Ok(()) => Reply::empty(StatusCode::OK),
        Err(error) => Reply::failure(Failure::from(&error)),
    };
    Ok(with_position(reply, &container, answer.charge, answer.position.as_ref()))
}

/// The id behind a rid, when the path is made of rids: `_self` links are. Names and rids are not mixed, so the
/// segment of the database shows which they are.
async fn id_by_rid(
    call: &Call<'_>,
    container: &Arc<Container>,
    database: &str,
    id: &str,
) -> Result<Option<String>, HandlerError> {
    if container.database.id == database {
        return Ok(None);
    }
    let (engine, container, rid) = (call.state.engine.clone(), container.clone(), id.to_owned());
    Ok(call.state.pool.read(call.party(), move || engine.item_id(&container, &rid)).await??)
}

async fn write(call: &Call<'_>, container: Arc<Container>, kind: WriteKind) -> HandlerResult {
    let (pre_trigger, post_trigger) = (trigger(call, &PRE_TRIGGERS)?, trigger(call, &POST_TRIGGERS)?);
    let runs_scripts = pre_trigger.is_some() || post_trigger.is_some();
    let is_delete = matches!(kind, WriteKind::Delete { .. });
    let can_take_long =
        runs_scripts || matches!(kind, WriteKind::Patch { .. }) || container.evaluates_writes();
    let partition_key = call.key_in(&container).map(Cow::into_owned);
    if is_delete && partition_key.is_none() {
        return Err(EngineError::PartitionKeyMissing.into());
    }
    // A session is about reads: a write checks only that the token can be parsed.
    call.session()?;
    let write = WriteItem {
        kind,
        partition_key,
        body: if is_delete { Bytes::new() } else { call.body()? },
        if_match: call.text(&IF_MATCH)?.map(str::to_owned),
        indexing: call.indexing()?,
        want_body: !is_delete && !call.request.prefers_minimal(),
        pre_trigger,
        post_trigger,
        trigger_headers: if runs_scripts { procedures::request_headers(call) } else { Vec::new() },
        cancel: if can_take_long { call.request.client.cancel() } else { Cancel::never() },
    };
    let engine = call.state.engine.clone();
    let target = container.clone();
    let write = move || engine.write_item(&target, write);
    let answer = if runs_scripts { call.run_script(write).await? } else { call.run(write).await? };
    Ok(written_reply(&container, answer, is_delete))
}

fn written_reply(container: &Arc<Container>, answer: Answer<ItemWritten>, is_delete: bool) -> Reply {
    let reply = match answer.result {
        Ok(written) if is_delete => Reply::empty(StatusCode::NO_CONTENT).item_lsn(written.item_lsn),
        Ok(written) => {
            let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
            let reply = if written.body.is_empty() {
                Reply::empty(status)
            } else {
                Reply::json(status, written.body)
            };
            reply.etag(&written.etag).item_lsn(written.item_lsn)
        }
        Err(error) => {
            let reply = Reply::failure(Failure::from(&error));
            return with_position(reply, container, answer.charge, answer.position.as_ref());
        }
    };
    let (item_count, size_bytes) = container.usage();
    with_position(reply, container, answer.charge, answer.position.as_ref()).usage(item_count, size_bytes)
}

/// All items of the scope, in pages.
pub(crate) async fn list(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    let container = call.item_container(database, container)?;
    let page = PageRequest { head: page_head(&container), ..call.page()? };
    if call.follow()?.is_some() {
        let message = "x-quire-follow is for reads of single items and queries.".to_owned();
        return Err(EngineError::BadRequest { message }.into());
    }
    let (engine, source) = (call.state.engine.clone(), container.clone());
    let answer = call.run(move || engine.list_items(&source, &page)).await?;
    let reply = match answer.result {
        Ok(page) => feeds::page_reply(page),
        Err(error) => Reply::failure(Failure::from(&error)),
    };
    Ok(with_positions(reply, &container, answer.charge, answer.position.as_ref()))
}

/// Charge, owner and position of the serving partition: also on failures, whose session clients keep.
pub(super) fn with_position(
    reply: Reply,
    container: &Container,
    charge: f64,
    position: Option<&SessionPosition>,
) -> Reply {
    // An answer of 404 names no owner.
    let reply = match reply.status() {
        StatusCode::NOT_FOUND => reply.in_container_names(container),
        _ => reply.in_container(container),
    };
    let reply = reply.charge(charge);
    match position {
        Some(position) => reply.position(container, position),
        None => reply,
    }
}

/// The same for pages: without a single serving partition it is the position of the first.
pub(super) fn with_positions(
    reply: Reply,
    container: &Container,
    charge: f64,
    position: Option<&SessionPosition>,
) -> Reply {
    let reply = with_position(reply, container, charge, position);
    if position.is_some() {
        return reply;
    }
    reply.first_session(container).first_partition(container)
}

/// The trigger that a header names: a list of at most one id.
fn trigger(call: &Call<'_>, name: &HeaderName) -> Result<Option<String>, HandlerError> {
    let text = call.text(name)?.unwrap_or_default();
    let mut ids = text.split(',').map(str::trim).filter(|id| !id.is_empty());
    match (ids.next(), ids.next()) {
        (id, None) => Ok(id.map(str::to_owned)),
        (_, Some(_)) => {
            let message =
                format!("At most one trigger of a kind can run with a request, '{name}' names more.");
            Err(RequestError::BadRequest { message }.into())
        }
    }
}
