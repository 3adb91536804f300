//! What an item refers to by a link, and by what it is referred to.

use std::collections::HashMap;

use quire_resource::{Component, PartitionKey, PartitionKeyDefinition};
use quire_value::{Kind, Node, Value};

use super::{ItemError, LinkRules, ModelRules};
use crate::Pointer;
use crate::declare::{Convert, Level, REFERENCES_MAX, Route};
use crate::pointer::{Segment, as_index};
use crate::validate::FOLLOW_MEMBER;

/// What a reference names. It has one target or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetKey {
    /// Of the target's key property.
    pub value: String,
    /// `None`: the value is unique in the container.
    pub partition_key: Option<PartitionKey>,
}

/// One reference of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// What the `*` of the link's path stand for.
    pub positions: Vec<usize>,
    pub target: TargetKey,
}

impl LinkRules {
    /// All references of an item, in the order of their places.
    pub fn references(&self, item: Node<'_>) -> Result<Vec<Reference>, ItemError> {
        let mut references = Vec::new();
        for (positions, node) in self.link.from.path.places(item) {
            let Some(value) = self.value_of(node) else { continue };
            if references.len() == REFERENCES_MAX {
                return Err(ItemError::TooManyReferences { link: self.link.name.clone() });
            }
            let partition_key = self.route(item, &positions, &value);
            references.push(Reference { positions, target: TargetKey { value, partition_key } });
        }
        Ok(references)
    }

    /// By what an item of the target container is found; nothing when no reference can name it.
    pub fn target_key(&self, item: Node<'_>, partition_key: &PartitionKey) -> Option<TargetKey> {
        let value =
            self.link.to.key.find_in(item, &[])?.as_str().filter(|value| !value.is_empty())?.to_owned();
        let partition_key = match self.link.to.partition_key {
            Some(Route::Lookup) => None,
            Some(Route::Levels(_)) | None => Some(partition_key.clone()),
        };
        Some(TargetKey { value, partition_key })
    }

    /// The text of a reference; null, booleans, objects, arrays, `""` and, without `convert`, numbers are none. Equal numbers
    /// name the same target: `1.0` is `1`.
    fn value_of(&self, node: Node<'_>) -> Option<String> {
        match node.kind() {
            Kind::String => node.as_str().filter(|text| !text.is_empty()).map(str::to_owned),
            Kind::Number if self.link.to.convert == Convert::String => {
                node.as_number().map(|number| number.normalized().to_string())
            }
            _ => None,
        }
    }

    fn route(&self, item: Node<'_>, positions: &[usize], value: &str) -> Option<PartitionKey> {
        let reference = || Component::String(value.to_owned());
        match &self.link.to.partition_key {
            Some(Route::Lookup) => None,
            None => Some(PartitionKey(vec![reference()])),
            Some(Route::Levels(levels)) => {
                let component = |level: &Level| match level {
                    Level::Path(path) => {
                        path.find_in(item, positions).map_or(Component::Undefined, component_of)
                    }
                    Level::Value(value) => component_of_value(value),
                    Level::Reference => reference(),
                };
                Some(whole_key(&self.target_key, levels.iter().map(component).collect()))
            }
        }
    }

    /// What holds a reference: the object around it, or the element that it is.
    pub(super) fn holder<'a>(&self, item: Node<'a>, reference: &Reference) -> Option<Node<'a>> {
        self.link.holder().find_in(item, &reference.positions)
    }

    /// Takes references away, as `onDelete: remove` does: the property, or the whole element behind the last `*`. True when
    /// the item changed.
    pub fn remove_references(&self, item: &mut Value, references: &[Reference]) -> bool {
        let path = &self.link.from.path;
        let mut places: Vec<&[usize]> =
            references.iter().map(|reference| reference.positions.as_slice()).collect();
        // From the last to the first, so that earlier positions stay what they are.
        places.sort_unstable();
        places.dedup();
        let removed = places.into_iter().rev().filter(|positions| match path.elements() {
            [] => remove_property(item, path),
            elements => remove_element(item, &Pointer(elements[..elements.len() - 1].to_vec()), positions),
        });
        removed.count() > 0
    }
}

impl ModelRules {
    /// Drops what answers add to items that are followed.
    pub fn drop_follow(&self, container: &str, item: &mut Value) {
        let is_end = self.links_from(container).next().is_some() || self.links_to(container).next().is_some();
        if let (true, Value::Object(object)) = (is_end, item) {
            object.remove(FOLLOW_MEMBER);
        }
    }
}

/// References that a write adds or changes: those an enforced link must find. A further reference to a target counts, one
/// that only moved does not.
pub fn added_references<'n>(old: &[Reference], new: &'n [Reference]) -> Vec<&'n Reference> {
    let mut before: HashMap<&TargetKey, usize> = HashMap::new();
    for reference in old {
        *before.entry(&reference.target).or_default() += 1;
    }
    let is_added = |reference: &&Reference| match before.get_mut(&reference.target) {
        Some(left @ 1..) => {
            *left -= 1;
            false
        }
        _ => true,
    };
    new.iter().filter(is_added).collect()
}

fn remove_property(item: &mut Value, path: &Pointer) -> bool {
    let Some(Segment::Name(name)) = path.0.last() else { return false };
    match path.parent().find_mut(item, &[]) {
        Some(Value::Object(object)) => object.remove(name).is_some(),
        Some(Value::Array(elements)) => match as_index(name).filter(|index| *index < elements.len()) {
            Some(index) => {
                elements.remove(index);
                true
            }
            None => false,
        },
        _ => false,
    }
}

fn remove_element(item: &mut Value, array: &Pointer, positions: &[usize]) -> bool {
    let Some((last, outer)) = positions.split_last() else { return false };
    match array.find_mut(item, outer) {
        Some(Value::Array(elements)) if *last < elements.len() => {
            elements.remove(*last);
            true
        }
        _ => false,
    }
}

/// As items have their keys: those from before containers had keys are all in the empty one.
fn whole_key(definition: &PartitionKeyDefinition, components: Vec<Component>) -> PartitionKey {
    if definition.system_key && components == [Component::Undefined] {
        return PartitionKey(Vec::new());
    }
    PartitionKey(components)
}

fn component_of(node: Node<'_>) -> Component {
    match node.kind() {
        Kind::Null => Component::Null,
        Kind::Bool => node.as_bool().map_or(Component::Undefined, Component::Bool),
        Kind::Number => node.as_number().map_or(Component::Undefined, |own| Component::Number(own.as_f64())),
        Kind::String => node.as_str().map_or(Component::Undefined, |own| Component::String(own.to_owned())),
        Kind::Undefined | Kind::Array | Kind::Object => Component::Undefined,
    }
}

fn component_of_value(value: &Value) -> Component {
    match value {
        Value::Null => Component::Null,
        Value::Bool(value) => Component::Bool(*value),
        Value::Number(number) => Component::Number(number.as_f64()),
        Value::String(text) => Component::String(text.clone()),
        Value::Undefined | Value::Array(_) | Value::Object(_) => Component::Undefined,
    }
}
