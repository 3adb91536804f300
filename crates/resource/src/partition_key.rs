//! Partition key definitions and values.

use quire_value::{Node, Path, Value};

use crate::EffectivePartitionKey;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionKeyKind {
    Hash,
    MultiHash,
    Range,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionKeyDefinition {
    pub paths: Vec<Path>,
    pub kind: PartitionKeyKind,
    /// 1 or 2. Absent in the JSON means 1, and stays absent when written back.
    pub version: u8,
    pub version_given: bool,
    pub system_key: bool,
}

#[derive(Clone, Debug)]
pub enum Component {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    String(String),
}

/// A value of the key, complete or a prefix. Equality: numbers as f64, strings by bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionKey(pub Vec<Component>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionKeyError {
    /// the service's text for 400 on a bad definition
    #[error("{message}")]
    BadDefinition { message: String },
    #[error("Partition key {text} is invalid.")]
    BadHeader { text: String },
    #[error("PartitionKey has fewer components than defined the collection resource.")]
    TooFew,
    #[error("PartitionKey has more components than defined the collection resource.")]
    TooMany,
    #[error("partition key value of {bytes} bytes is longer than {bytes_max}")]
    TooLong { bytes: usize, bytes_max: usize },
}

impl PartialEq for Component {
    fn eq(&self, _other: &Component) -> bool {
        todo!()
    }
}

impl PartitionKeyDefinition {
    /// From the container's `partitionKey` member.
    pub fn from_json(_json: &Value) -> Result<PartitionKeyDefinition, PartitionKeyError> {
        todo!()
    }
    pub fn to_json(&self) -> Value {
        todo!()
    }
    /// Key of an item. Objects and arrays at a path count as undefined.
    pub fn extract(&self, _item: Node<'_>) -> Result<PartitionKey, PartitionKeyError> {
        todo!()
    }
    /// Complete key required (point operations).
    pub fn check_complete(&self, _key: &PartitionKey) -> Result<(), PartitionKeyError> {
        todo!()
    }
    pub fn effective(&self, _key: &PartitionKey) -> EffectivePartitionKey {
        todo!()
    }
    /// 24 bits that order like the effective key: the top of the first hash. For item rids.
    pub fn rid_prefix(&self, _key: &PartitionKey) -> u32 {
        todo!()
    }
}

impl PartitionKey {
    /// From the header `x-ms-documentdb-partitionkey`: a JSON array; `{}` is undefined.
    pub fn from_header(_text: &str) -> Result<PartitionKey, PartitionKeyError> {
        todo!()
    }
    pub fn to_header(&self) -> String {
        todo!()
    }
    /// Compact binary form for item headers on disk, self-delimiting; documented beside its encoder, golden bytes.
    pub fn encode(&self, _out: &mut Vec<u8>) {
        todo!()
    }
    pub fn decode(_bytes: &[u8]) -> Result<(PartitionKey, &[u8]), PartitionKeyError> {
        todo!()
    }
    /// True when `self` (maybe shorter) is a prefix of `other`.
    pub fn is_prefix_of(&self, _other: &PartitionKey) -> bool {
        todo!()
    }
}
