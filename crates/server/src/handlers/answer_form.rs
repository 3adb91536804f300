//! Answers about items in the form that the client asked for: without system properties, or in binary.
//!
//! The binary form is for clients that take nothing else: one that takes JSON text as well gets text.

use hyper::header::HeaderName;
use quire_value::{Limits, Object, Value, text};

use crate::handlers::{Call, HandlerResult, takes_binary_only};
use crate::operations::Action;
use crate::routes::RouteKind;
use crate::wire::binary_json_writer::to_binary;
use crate::wire::headers::Reply;
use crate::wire::status::RequestError;

const EXCLUDE_SYSTEM_PROPERTIES: HeaderName = HeaderName::from_static("x-ms-exclude-system-properties");
const SYSTEM_PROPERTIES: [&str; 5] = ["_rid", "_self", "_etag", "_ts", "_attachments"];

/// The memory of a change of form, in lengths of the answer: it is read into values and written again.
const COPIES: usize = 8;
/// More than any item or query row has.
const DEPTH_MAX: usize = 512;

pub(crate) fn in_form(call: &Call<'_>, kind: &RouteKind, reply: Reply) -> HandlerResult {
    let is_of_items = matches!(kind, RouteKind::Items { .. } | RouteKind::Item { .. });
    if !is_of_items || call.operation.action == Action::Batch || !reply.status().is_success() {
        return Ok(reply);
    }
    let excludes = call.is_true(&EXCLUDE_SYSTEM_PROPERTIES);
    let is_binary = takes_binary_only(call.request);
    let Some(body) = reply.json_body().filter(|_| excludes || is_binary) else { return Ok(reply) };
    // What wrote is told so in any case.
    let mut hold = call.state.bytes.hold();
    let bytes = COPIES * body.len();
    match call.operation.action {
        Action::Read | Action::ReadFeed | Action::ChangeFeed | Action::Query => hold.grow_to(bytes)?,
        _ => hold.take(bytes),
    }
    let mut value = text::parse(body, Limits { depth_max: DEPTH_MAX })
        .map_err(|error| RequestError::Internal { what: format!("an answer that is no JSON: {error}") })?;
    if excludes {
        exclude(&mut value);
    }
    Ok(if is_binary { reply.with_binary(to_binary(&value)) } else { reply.with_json(value.to_json()) })
}

/// Of an item, or of the items of a feed.
fn exclude(answer: &mut Value) {
    let Some(object) = answer.as_object_mut() else { return };
    let Some(Value::Array(items)) = object.get_mut("Documents") else { return without(object) };
    items.iter_mut().filter_map(Value::as_object_mut).for_each(without);
}

fn without(item: &mut Object) {
    SYSTEM_PROPERTIES.iter().for_each(|name| drop(item.remove(name)));
}
