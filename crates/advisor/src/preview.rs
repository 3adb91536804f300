//! A stored item before and after a finding is applied: made for the answer, not kept.

use quire_profile::{names, parent};
use quire_value::{Object, Value};

use crate::finding::Finding;

/// Elements of an array that are shown.
const SHOWN: usize = 3;

/// An item of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    pub container: String,
    pub item: Value,
}

/// The item with every array cut to three elements.
pub fn cut(item: &Value) -> Value {
    match item {
        Value::Array(elements) => Value::from(elements.iter().take(SHOWN).map(cut).collect::<Vec<_>>()),
        Value::Object(object) => {
            Value::from(Object::from_iter(object.iter().map(|(name, value)| (name, cut(value)))))
        }
        scalar => scalar.clone(),
    }
}

/// What an item of the finding's container becomes; empty where the change is not to items.
pub fn preview(finding: &Finding, item: &Value) -> Vec<Preview> {
    let request = finding.candidate.apply.request.as_ref();
    request.map_or_else(Vec::new, |(_, _, body)| preview_of(&finding.container, body, item))
}

/// The same for a finding that is known as JSON: its container, and the body of the request that applies it.
pub fn preview_of(container: &str, body: &Value, item: &Value) -> Vec<Preview> {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let of = |container: &str, item: Value| Preview { container: container.to_owned(), item: cut(&item) };
    match text("kind") {
        "split-array" => {
            split_array(container, body, item).into_iter().map(|(to, item)| of(&to, item)).collect()
        }
        "extract" => extract(container, body, item).into_iter().map(|(to, item)| of(&to, item)).collect(),
        "flip" => {
            let mut owner = item.clone();
            let ids = take(&mut owner, text("path"));
            let child = ids.as_ref().and_then(|ids| ids.at(0)).cloned().unwrap_or(Value::Null);
            let id = item.get("id").cloned().unwrap_or(Value::Null);
            let name = text("into").trim_start_matches('/');
            let child = Value::from(Object::from_iter([("id", child), (name, id)]));
            vec![of(container, owner), of(text("to"), child)]
        }
        "rename" | "retype" | "embed" | "merge-join-items" | "rekey" => {
            vec![of(container, item.clone())]
        }
        _ => Vec::new(),
    }
}

fn split_array(container: &str, body: &Value, item: &Value) -> Vec<(String, Value)> {
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut window = item.clone();
    let elements = take(&mut window, &text(body, "path")).and_then(Value::into_array).unwrap_or_default();
    let kept = elements[elements.len().saturating_sub(SHOWN)..].to_vec();
    let place = Some(text(body, "rename")).filter(|place| !place.is_empty()).unwrap_or(text(body, "path"));
    put(&mut window, &place, Value::from(kept));
    let pages = body.get("pages").cloned().unwrap_or_default();
    let rest = elements[..elements.len().saturating_sub(SHOWN)].to_vec();
    let mut page = Value::from(Object::new());
    put(&mut page, &text(&pages, "parent"), item.get("id").cloned().unwrap_or(Value::Null));
    put(&mut page, &text(&pages, "number"), Value::from(0));
    put(&mut page, &text(&pages, "path"), Value::from(rest));
    vec![(container.to_owned(), window), (text(&pages, "container"), page)]
}

fn extract(container: &str, body: &Value, item: &Value) -> Vec<(String, Value)> {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut owner = item.clone();
    let part = replace_parts(&mut owner, &names(text("path")), text("key"), text("reference"));
    let mut target = part.unwrap_or_default();
    let id = target
        .get(text("key").trim_start_matches('/'))
        .or_else(|| item.get("id"))
        .cloned()
        .unwrap_or(Value::Null);
    if !matches!(target, Value::Object(_)) {
        target = Value::from(Object::from_iter([(names(text("path")).pop().unwrap_or_default(), target)]));
    }
    if let Some(object) = target.as_object_mut() {
        object.set("id", id);
    }
    vec![(container.to_owned(), owner), (text("into").to_owned(), target)]
}

/// Puts a reference in the place of every part; the first part is given back.
fn replace_parts(value: &mut Value, path: &[String], key: &str, reference: &str) -> Option<Value> {
    match (path, value) {
        ([each, rest @ ..], Value::Array(elements)) if each == "*" => {
            let parts: Vec<Option<Value>> =
                elements.iter_mut().map(|element| replace_parts(element, rest, key, reference)).collect();
            parts.into_iter().flatten().next()
        }
        ([name], Value::Object(object)) => {
            let part = object.remove(name)?;
            if let Some(key) = part.get(key.trim_start_matches('/')) {
                object.set(reference, key.clone());
            }
            Some(part)
        }
        ([name, rest @ ..], Value::Object(object)) => {
            replace_parts(object.get_mut(name)?, rest, key, reference)
        }
        _ => None,
    }
}

fn take(item: &mut Value, path: &str) -> Option<Value> {
    let name = names(path).pop()?;
    find(item, parent(path))?.as_object_mut()?.remove(&name)
}

fn put(item: &mut Value, path: &str, value: Value) {
    let name = names(path).pop().unwrap_or_default();
    if let Some(object) = find(item, parent(path)).and_then(Value::as_object_mut) {
        object.set(name, value);
    }
}

fn find<'v>(item: &'v mut Value, path: &str) -> Option<&'v mut Value> {
    names(path)
        .iter()
        .filter(|name| !name.is_empty())
        .try_fold(item, |value, name| value.as_object_mut()?.get_mut(name))
}
