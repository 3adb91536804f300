//! Owned values: put into an item whatever a client sent, and an item without them.

use quire_value::{Node, Object, Value};

use super::{ItemError, ModelRules};
use crate::declare::OnWrite;
use crate::pointer::{Pointer, Segment};

/// What a declaration makes of one place of an item.
#[derive(Clone, Debug)]
pub struct OwnedValue {
    pub owner: String,
    pub path: Pointer,
    /// What the `*` of the path stand for.
    pub positions: Vec<usize>,
    pub right: ExpectedPathValue,
    pub on_write: OnWrite,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExpectedPathValue {
    Value(Value),
    /// There is nothing at the path.
    Absent,
}

/// How a value was put in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    Same,
    Changed,
    /// A parent is there that is no object: the path stays absent.
    Blocked,
}

/// Puts the right values into an item. With `refuse` a different value of the client's is an error. What it left out, and what
/// it left as it was in the stored item, is not the client's: a patch that never touched a path cannot be wrong about it.
pub fn put_owned_values(
    item: &mut Value,
    stored: Option<&Value>,
    owned: &[OwnedValue],
) -> Result<Vec<PutOutcome>, ItemError> {
    let is_wrong =
        |own: &&OwnedValue| own.on_write == OnWrite::Refuse && own.differs_from_client_value(item, stored);
    if let Some(wrong) = owned.iter().find(is_wrong) {
        let path = wrong.path.at(&wrong.positions);
        return Err(ItemError::PathOwned { path, owner: wrong.owner.clone() });
    }
    Ok(owned.iter().map(|own| own.put(item)).collect())
}

impl OwnedValue {
    fn differs_from_client_value(&self, item: &Value, stored: Option<&Value>) -> bool {
        let Some(found) = self.path.find(item, &self.positions) else { return false };
        let is_right = matches!(&self.right, ExpectedPathValue::Value(right) if found == right);
        let before = stored.and_then(|stored| self.path.find(stored, &self.positions));
        !is_right && before != Some(found)
    }

    /// Missing parents are made.
    pub fn put(&self, item: &mut Value) -> PutOutcome {
        match (self.path.find(item, &self.positions), &self.right) {
            (Some(found), ExpectedPathValue::Value(right)) if found == right => return PutOutcome::Same,
            (None, ExpectedPathValue::Absent) => return PutOutcome::Same,
            _ => {}
        }
        let Some((Segment::Name(name), parents)) = self.path.0.split_last() else {
            return PutOutcome::Blocked;
        };
        let Some(parent) = parent_object(item, parents, &self.positions) else { return PutOutcome::Blocked };
        match &self.right {
            ExpectedPathValue::Value(right) => parent.set(name.as_str(), right.clone()),
            ExpectedPathValue::Absent => _ = parent.remove(name),
        }
        PutOutcome::Changed
    }
}

impl OwnedValue {
    /// Whether something that is no object is where a parent of the path would be: then nothing is put there.
    pub fn is_blocked(&self, item: &Value) -> bool {
        let Some((Segment::Name(_), parents)) = self.path.0.split_last() else { return true };
        let mut positions = self.positions.iter();
        let mut place = item;
        for segment in parents {
            let next = match (segment, place) {
                (Segment::Name(name), Value::Object(object)) if !object.contains(name) => return false,
                (Segment::Name(name), Value::Object(object)) => object.get(name),
                (Segment::Name(name), Value::Array(elements)) => {
                    crate::pointer::as_index(name).and_then(|at| elements.get(at))
                }
                (Segment::Each, Value::Array(elements)) => positions.next().and_then(|at| elements.get(*at)),
                _ => None,
            };
            let Some(next) = next else { return true };
            place = next;
        }
        place.as_object().is_none()
    }

    /// What it takes of an item's JSON, at least.
    pub fn json_bytes_min(&self) -> usize {
        match &self.right {
            ExpectedPathValue::Value(value) => json_bytes_min(value),
            ExpectedPathValue::Absent => 0,
        }
    }
}

fn json_bytes_min(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(elements) => {
            1 + elements.iter().map(|element| 1 + json_bytes_min(element)).sum::<usize>()
        }
        Value::Object(object) => {
            1 + object.iter().map(|(name, value)| name.len() + 4 + json_bytes_min(value)).sum::<usize>()
        }
        _ => 1,
    }
}

/// The object at a path, made with its parents where it is missing; nothing where something else is in the way.
fn parent_object<'i>(
    item: &'i mut Value,
    parents: &[Segment],
    positions: &[usize],
) -> Option<&'i mut Object> {
    let mut positions = positions.iter();
    let mut place = item;
    for segment in parents {
        place = match (segment, place) {
            (Segment::Name(name), Value::Object(object)) => {
                if !object.contains(name) {
                    object.set(name.as_str(), Object::new());
                }
                object.get_mut(name)?
            }
            (Segment::Name(name), Value::Array(elements)) => {
                elements.get_mut(crate::pointer::as_index(name)?)?
            }
            (Segment::Each, Value::Array(elements)) => elements.get_mut(*positions.next()?)?,
            _ => return None,
        };
    }
    place.as_object_mut()
}

impl ModelRules {
    /// The item as clients wrote it: what `t` or `r` alone is, without objects that are there for owned paths only. Fields beside references are owned whether or not the target
    /// exists, so that nothing here depends on other items.
    pub fn without_owned(&self, container: &str, item: Node<'_>) -> Value {
        let mut value = item.to_value();
        for pattern in self.owned.get(container).map_or(&[][..], Vec::as_slice) {
            match pattern.beside {
                None => remove(&mut value, &pattern.path, &[]),
                Some(link) => {
                    // An item with too many references was never accepted.
                    for reference in self.links[link].references(item).unwrap_or_default() {
                        remove(&mut value, &pattern.path, &reference.positions);
                    }
                }
            }
        }
        value
    }
}

/// Removes what is at a path, and the objects around it that have nothing else: it is unknown whether they were made for it.
fn remove(item: &mut Value, path: &Pointer, positions: &[usize]) {
    let mut place = path.clone();
    while let Some(Segment::Name(name)) = place.0.pop() {
        let Some(Value::Object(parent)) = place.find_mut(item, positions) else { continue };
        let is_own = place.0.len() + 1 == path.0.len();
        let is_empty = parent.get(&name).and_then(Value::as_object).is_some_and(Object::is_empty);
        if is_own || is_empty {
            parent.remove(&name);
        }
    }
}
