//! Mirrors: a target's array of its distinct referrers.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use quire_resource::{Component, PartitionKey};
use quire_value::{Node, Value};

use super::{ExpectedPathValue, MirrorRules, ModelRules, OwnedValue};
use crate::declare::WhenFull;

/// A referrer, in the order in which mirrors have them: by id in code points, then by partition key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReferrerKey {
    pub id: String,
    pub partition_key: PartitionKey,
}

/// Changes of one mirror of one target: what its referrers now stand for, or that they are gone. The later of two wins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MirrorChange(pub BTreeMap<ReferrerKey, Option<Value>>);

impl MirrorChange {
    pub fn merge(&mut self, later: MirrorChange) {
        self.0.extend(later.0);
    }

    /// Applies the change to all referrers of the target.
    pub fn apply(self, referrers: &mut BTreeMap<ReferrerKey, Value>) {
        for (referrer, value) in self.0 {
            match value {
                Some(value) => _ = referrers.insert(referrer, value),
                None => _ = referrers.remove(&referrer),
            }
        }
    }
}

impl ModelRules {
    /// What a referrer stands for in a mirror; undefined is left out of it.
    pub fn mirrored(&self, mirror: &MirrorRules, referrer: Node<'_>) -> Value {
        if mirror.value.reads_whole(0) {
            let container = &self.links[mirror.link].link.from.container;
            return mirror.value.evaluate_values(&[&self.without_owned(container, referrer)]);
        }
        mirror.value.evaluate(&[referrer])
    }

    /// The array of a target, from the values of its referrers in their order. `None`: there are more than a mirror that
    /// refuses may have.
    pub fn mirror_value(
        &self,
        mirror: &MirrorRules,
        values: impl IntoIterator<Item = Value>,
    ) -> Option<OwnedValue> {
        let max = mirror.mirror.max as usize;
        let mut values = values.into_iter().filter(|value| !value.is_undefined());
        let kept: Vec<Value> = values.by_ref().take(max).collect();
        if mirror.mirror.when_full == WhenFull::Refuse && values.next().is_some() {
            return None;
        }
        Some(OwnedValue {
            owner: mirror.mirror.name.clone(),
            path: mirror.mirror.into.clone(),
            positions: Vec::new(),
            right: ExpectedPathValue::Value(Value::Array(kept)),
            on_write: mirror.on_write,
        })
    }
}

impl Ord for ReferrerKey {
    fn cmp(&self, other: &ReferrerKey) -> Ordering {
        let keys = || {
            let (own, other) = (self.partition_key.0.iter(), other.partition_key.0.iter());
            own.map(value_of).cmp(other.map(value_of))
        };
        self.id.cmp(&other.id).then_with(keys)
    }
}

impl PartialOrd for ReferrerKey {
    fn partial_cmp(&self, other: &ReferrerKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The value that a component stands for, for its order.
fn value_of(component: &Component) -> Value {
    match component {
        Component::Undefined => Value::Undefined,
        Component::Null => Value::Null,
        Component::Bool(value) => Value::Bool(*value),
        Component::Number(value) => Value::from(*value),
        Component::String(text) => Value::from(text.as_str()),
    }
}
