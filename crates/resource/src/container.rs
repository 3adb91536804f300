//! Container definitions: validated, normalised, written back with everything the client sent.

use quire_value::{Object, Path, Value};

use crate::{IndexingPolicy, PartitionKeyDefinition, PartitionKeyError};

/// A container as the client defined it. `to_json` gives the user part of the resource (no system properties),
/// defaults added, unknown members preserved, absent options absent.
#[derive(Clone, Debug)]
pub struct ContainerDefinition {
    pub id: String,
    pub partition_key: PartitionKeyDefinition,
    pub indexing: IndexingPolicy,
    /// `None`: TTL off; `-1`: on without default; n: seconds
    pub default_ttl: Option<i32>,
    pub unique_keys: Vec<UniqueKey>,
    pub conflict_resolution: ConflictResolution,
    pub computed_properties: Vec<(String, String)>,
    /// The normalised JSON as it is returned.
    pub json: Object,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueKey {
    pub paths: Vec<Path>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictResolution {
    LastWriterWins { path: String },
    Custom { procedure: String },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerError {
    /// 400 with the service's text
    #[error("{message}")]
    Invalid { message: String },
    /// 403: unique keys cannot change
    #[error(
        "The unique index cannot be modified. To change the unique index, remove the collection and re-create a new one."
    )]
    UniqueKeysChanged,
    #[error(transparent)]
    PartitionKey(#[from] PartitionKeyError),
}

impl ContainerDefinition {
    pub fn create(_json: &Value) -> Result<ContainerDefinition, ContainerError> {
        todo!()
    }
    /// Validates a replacement against what exists (immutable parts; omitted sections reset).
    pub fn replace(&self, _json: &Value) -> Result<ContainerDefinition, ContainerError> {
        todo!()
    }
}
