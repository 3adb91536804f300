//! Lists and queries of resources that are in memory: databases, containers, users, offers, ...
//!
//! A list is in rid order, so that a continuation, the rid of the last resource of a page, stays valid when resources are
//! created and deleted between two pages.

use std::sync::Arc;

use hyper::StatusCode;
use quire_engine::{EngineError, Page, PageRequest, Resource};
use quire_resource::ResourceId;
use quire_value::{Object, Value};

use crate::handlers::{Call, HandlerResult, charge};
use crate::wire::headers::Reply;
use crate::wire::status;
use crate::wire::{Feed, envelope, envelope_head, finish_envelope};

/// Resources of a page when the client names no size.
const PAGE_SIZE: usize = 1000;
/// A page ends with the resource that exceeds this.
const PAGE_BYTES: usize = 4 << 20;

pub(super) fn list(
    call: &Call<'_>,
    feed: Feed,
    owner_rid: &str,
    mut resources: Vec<Arc<Resource>>,
    body: impl Fn(&Resource) -> Object,
) -> HandlerResult {
    let page = call.page()?;
    resources.sort_by_key(|resource| resource.rid);
    let start = match page.continuation {
        None => 0,
        Some(text) => {
            let last = ResourceId::parse(&text).map_err(|_| EngineError::BadContinuation)?;
            resources.partition_point(|resource| resource.rid <= last)
        }
    };
    let size = match page.item_count_max {
        None => PAGE_SIZE,
        Some(size) => usize::try_from(size).unwrap_or(usize::MAX), // -1: all
    };
    let mut rows = vec![b'['];
    let mut end = start;
    for resource in resources[start..].iter().take(size) {
        if end > start {
            rows.push(b',');
        }
        Value::from(body(resource)).write_json(&mut rows);
        end += 1;
        if rows.len() > PAGE_BYTES {
            break;
        }
    }
    rows.push(b']');
    let continuation = (end < resources.len()).then(|| resources[end - 1].rid.to_string());
    let text = envelope(feed, owner_rid, &rows, end - start);
    let reply = Reply::json(StatusCode::OK, text).count(end - start);
    Ok(reply.continuation(continuation).charge(charge::LIST))
}

/// Rows that are not paged.
pub(super) fn rows_reply(feed: Feed, owner_rid: &str, rows: Vec<Value>) -> Reply {
    let count = rows.len();
    let rows = Value::from(rows).to_json();
    Reply::json(StatusCode::OK, envelope(feed, owner_rid, rows.as_bytes(), count)).count(count)
}

/// `body` gives the members of a resource, in the call: a query that waits holds no copies.
pub(super) async fn query<R: Send + 'static>(
    call: &Call<'_>,
    feed: Feed,
    owner_rid: &str,
    resources: Vec<R>,
    body: impl Fn(&R) -> Object + Send + 'static,
) -> HandlerResult {
    let query = call.query()?;
    let page = PageRequest { head: envelope_head(feed, owner_rid), ..call.page()? };
    let engine = call.state.engine.clone();
    let (text, answer) = call
        .run(move || {
            let answer = engine.query_resources(&query.text, &query.parameters, &resources, body, &page);
            (query.text, answer)
        })
        .await?;
    match answer {
        Ok(page) => Ok(page_reply(page).charge(charge::QUERY)),
        Err(error) => Ok(Reply::failure(status::query(&error, &text)).charge(charge::QUERY)),
    }
}

/// Of a page that begins with the head of its envelope. The memory of the query is released here: from now on the answer is
/// counted as one ([`crate::edge::answers`]), and a client that reads slowly holds nothing that other queries need.
pub(super) fn page_reply(page: Page) -> Reply {
    let mut body = page.rows;
    finish_envelope(&mut body, page.count, page.explain.as_deref());
    drop(page.memory);
    Reply::json(StatusCode::OK, body).count(page.count).continuation(page.continuation)
}
