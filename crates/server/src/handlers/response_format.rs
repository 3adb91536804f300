//! The format of answers about items: without system properties, or in binary, where the client asks for it.
//!
//! The binary form is for clients that accept nothing else: one that accepts JSON text as well gets text.

use bytes::Bytes;
use hyper::header::HeaderName;
use quire_engine::FeedMode;
use quire_value::{Limits, Object, Value, text};

use crate::handlers::{Call, HandlerResult, accepts_binary_only, changes};
use crate::operations::Action;
use crate::routes::RouteKind;
use crate::wire::binary_json_writer::to_binary;
use crate::wire::headers::Reply;
use crate::wire::status::RequestError;

const EXCLUDE_SYSTEM_PROPERTIES: HeaderName = HeaderName::from_static("x-ms-exclude-system-properties");
const SYSTEM_PROPERTIES: [&str; 5] = ["_rid", "_self", "_etag", "_ts", "_attachments"];

/// The memory of a conversion, in lengths of the answer: it is parsed into values and written again.
const COPIES: usize = 8;
/// More than any item or query row has.
const DEPTH_MAX: usize = 512;

pub(crate) fn convert(call: &Call<'_>, kind: &RouteKind<'_>, reply: Reply) -> HandlerResult {
    let is_of_items = matches!(kind, RouteKind::Items { .. } | RouteKind::Item { .. });
    if !is_of_items || call.operation.action == Action::Batch || !reply.status().is_success() {
        return Ok(reply);
    }
    let excludes = call.is_true(&EXCLUDE_SYSTEM_PROPERTIES);
    let is_binary = accepts_binary_only(call.request);
    let Some(body) = reply.json_body().filter(|_| excludes || is_binary) else { return Ok(reply) };
    // A write is answered in any case, because it was done.
    let mut reserved = call.state.bytes.reserve();
    let bytes = COPIES * body.len();
    match call.operation.action {
        Action::Read | Action::ReadFeed | Action::ChangeFeed | Action::Query => reserved.grow_to(bytes)?,
        _ => reserved.add(bytes),
    }
    let mut value = text::parse(body, Limits { depth_max: DEPTH_MAX })
        .map_err(|error| RequestError::Internal { what: format!("an answer that is not JSON: {error}") })?;
    if excludes {
        exclude_system_properties(&mut value, is_of_versions(call));
    }
    Ok(if is_binary { reply.with_binary(to_binary(&value)) } else { reply.with_json(value.to_json()) })
}

/// An item within the answer of a batch.
pub(crate) fn batch_item(call: &Call<'_>, body: Bytes) -> Bytes {
    if body.is_empty() || !call.is_true(&EXCLUDE_SYSTEM_PROPERTIES) {
        return body;
    }
    // The batch was done, so it is answered in any case.
    call.state.bytes.reserve().add(COPIES * body.len());
    match text::parse(&body, Limits { depth_max: DEPTH_MAX }) {
        Ok(Value::Object(mut item)) => {
            remove_system_properties(&mut item);
            Value::Object(item).to_json().into()
        }
        _ => body,
    }
}

fn is_of_versions(call: &Call<'_>) -> bool {
    call.operation.action == Action::ChangeFeed && matches!(changes::mode(call), Ok(FeedMode::AllVersions))
}

/// Removes them from an item, or from the items of a feed.
fn exclude_system_properties(answer: &mut Value, is_of_versions: bool) {
    let Some(object) = answer.as_object_mut() else { return };
    let Some(Value::Array(items)) = object.get_mut("Documents") else {
        return remove_system_properties(object);
    };
    let rows = items.iter_mut().filter_map(Value::as_object_mut);
    rows.for_each(if is_of_versions { remove_from_versions } else { remove_system_properties });
}

fn remove_from_versions(row: &mut Object) {
    for name in ["current", "previous"] {
        row.get_mut(name).and_then(Value::as_object_mut).into_iter().for_each(remove_system_properties);
    }
}

fn remove_system_properties(item: &mut Object) {
    SYSTEM_PROPERTIES.iter().for_each(|name| drop(item.remove(name)));
}
