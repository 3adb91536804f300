//! Which elements of arrays the changes of a journal belong to, once clients have moved, added and deleted some.
//!
//! An element is known by its `id` where it has one, else by a digest of what the refactoring made of it. A change belongs to the
//! element at its own position if that is the same one, else to one with the same identity elsewhere. One without an `id` that
//! is nowhere may have been changed: then it is the one at its position, if no other change belongs to that.

use std::collections::{HashMap, HashSet};

use quire_model::Pointer;
use quire_value::{Object, Value, key};
use ring::digest;

use super::convert::PathChange;
use super::order::Rule;

/// Of a digest, as text.
const DIGEST_BYTES: usize = 12;

/// Of each change, where it is in the item now; `None`: its element is gone.
pub(super) fn current_positions(
    rule: &Rule,
    changes: &[PathChange],
    item: &Value,
) -> Vec<Option<Vec<usize>>> {
    let Some(path) = path_of(rule).filter(|path| path.each_count() > 0) else {
        return changes.iter().map(|change| Some(change.at.clone())).collect();
    };
    let positions = path.places_in(item);
    let mut by_identity: HashMap<String, Vec<&Vec<usize>>> = HashMap::new();
    let mut identities: HashMap<&Vec<usize>, String> = HashMap::new();
    for at in positions.iter().rev() {
        let identity = identity(path, item, at).to_json();
        by_identity.entry(identity.clone()).or_default().push(at);
        identities.insert(at, identity);
    }
    let mut found: Vec<Option<Vec<usize>>> = vec![None; changes.len()];
    let mut taken: HashSet<&Vec<usize>> = HashSet::new();
    for (change, place) in changes.iter().zip(&mut found) {
        if identities.get(&change.at).is_some_and(|own| *own == change.element.to_json())
            && let Some((at, _)) = identities.get_key_value(&change.at)
            && taken.insert(at)
        {
            *place = Some(change.at.clone());
        }
    }
    for (change, place) in changes.iter().zip(&mut found).filter(|(_, place)| place.is_none()) {
        let Some(same) = by_identity.get_mut(&change.element.to_json()) else { continue };
        while let Some(at) = same.pop() {
            if taken.insert(at) {
                *place = Some(at.clone());
                break;
            }
        }
    }
    for (change, place) in changes.iter().zip(&mut found).filter(|(_, place)| place.is_none()) {
        let is_by_id = change.element.as_object().is_some();
        if let Some((at, _)) = identities.get_key_value(&change.at).filter(|_| !is_by_id)
            && taken.insert(at)
        {
            *place = Some(change.at.clone());
        }
    }
    found
}

/// By what an element is found again; null where the path goes through no array.
pub(super) fn identity(path: &Pointer, item: &Value, at: &[usize]) -> Value {
    if path.each_count() == 0 {
        return Value::Null;
    }
    let Some(element) = Pointer(path.elements().to_vec()).find(item, at) else { return Value::Null };
    match element.get("id") {
        Some(id @ (Value::String(_) | Value::Number(_))) => {
            Value::Object(Object::from_iter([("id", id.clone())]))
        }
        _ => Value::from(digest_of(element)),
    }
}

/// Where a rule changes items: the object that has the member, or the value.
pub(super) fn path_of(rule: &Rule) -> Option<&Pointer> {
    match rule {
        Rule::Rename { parent, .. } => Some(parent),
        Rule::Retype { path, .. } => Some(path),
        Rule::Structure(_) | Rule::Rekey(_) => None,
    }
}

/// Equal values have one, whatever the order of their members.
fn digest_of(value: &Value) -> String {
    let mut encoded = Vec::new();
    key::encode(value, &mut encoded);
    let digest = digest::digest(&digest::SHA256, &encoded);
    digest.as_ref().iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect()
}
