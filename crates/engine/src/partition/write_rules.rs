//! The definitions that a write depends on and that may change while a container is written to: its indexing policy,
//! its change feed policy, the model of its database.
//!
//! All of it is one immutable value, switched in one way ([`PartitionSet::switch`](super::set::PartitionSet::switch)). A
//! writer notes the generation of its partition, then loads the rules. A switch stores the new rules and then raises the
//! generations, so a write that was prepared under other rules is refused as stale and prepared again; what is in a group
//! under way is waited for by a barrier, where that matters. So every write is made under exactly one set of rules.

use std::sync::Arc;

use quire_resource::ContainerDefinition;

use crate::indexes::Indexes;
use crate::model::ContainerModel;

#[derive(Clone)]
pub(crate) struct WriteRules {
    pub indexes: Arc<Indexes>,
    /// The change feed policy asks for all versions.
    pub keeps_versions: bool,
    /// `None`: no model names the container.
    pub model: Option<Arc<ContainerModel>>,
}

impl WriteRules {
    /// Of a container that no model names.
    pub fn new(definition: &ContainerDefinition, indexes: Indexes) -> WriteRules {
        WriteRules {
            indexes: Arc::new(indexes),
            keeps_versions: definition.change_feed_retention_minutes.is_some(),
            model: None,
        }
    }

    /// Whether a write that was prepared under the others is one of these, too.
    pub fn are_same(&self, other: &WriteRules) -> bool {
        let is_same_model = match (&self.model, &other.model) {
            (Some(one), Some(another)) => Arc::ptr_eq(one, another),
            (None, None) => true,
            _ => false,
        };
        is_same_model
            && self.keeps_versions == other.keeps_versions
            && self.indexes.epoch() == other.indexes.epoch()
            && self.indexes.has_missing_of(&other.indexes)
    }
}
