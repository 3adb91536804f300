//! Indexing policies.

use quire_value::{Node, Value};

use crate::ContainerError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexingMode {
    Consistent,
    None,
}

#[derive(Clone, Debug)]
pub struct IndexingPolicy {
    pub mode: IndexingMode,
    pub automatic: bool,
    // included, excluded, composite, spatial, vector, full text: parsed forms, private; JSON kept by the container
}

impl IndexingPolicy {
    pub fn from_json(_json: Option<&Value>) -> Result<IndexingPolicy, ContainerError> {
        todo!()
    }
    pub fn to_json(&self) -> Value {
        todo!()
    }
    /// How many scalar values of the item the policy indexes: the `x` of the charge formula.
    pub fn indexed_values(&self, _item: Node<'_>) -> usize {
        todo!()
    }
}
