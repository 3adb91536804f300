//! What an account contains: resource ids, partition keys and their hash, container definitions and policies.
//!
//! Everything here is pure: text or JSON in, validated types out. Errors carry the service's message; the server
//! chooses the status. Not here: how resources are stored (see `quire-engine`), HTTP (see `quire-server`).

mod container; // ContainerDefinition: validation and normalisation of a container's JSON
mod members; // reading members of a definition's JSON
mod name; // id rules
mod partition_key; // definitions, values, header text, extraction from items, effective keys
mod policy_path; // the syntax of paths in definitions
mod rid; // `_rid`s and `_self` links
mod session; // session tokens
mod throughput; // manual and autoscale offers
mod ttl; // when items expire

pub use container::{
    BoundingBox, COMPOSITE_PATHS_MAX, CONTAINER_MEMBERS, CompositePath, ConflictResolution,
    ContainerDefinition, ContainerError, DistanceFunction, FULL_TEXT_LANGUAGES, FullTextPath, FullTextPolicy,
    GeospatialType, IndexingMode, IndexingPolicy, PathOrder, Quantizer, RuleNode, SortOrder, SpatialIndex,
    SpatialType, TupleIndex, UniqueKey, VIEW_MEMBERS, VectorDataType, VectorEmbedding, VectorIndex,
    VectorIndexKind, ViewDefinition,
};
pub use name::{NameError, check_item_id, check_name};
pub use partition_key::{
    Component, EffectivePartitionKey, EpkRange, PartitionKey, PartitionKeyDefinition, PartitionKeyError,
    PartitionKeyKind, SYSTEM_KEY_PATH,
};
pub use rid::{ChildKind, ResourceId, RidError, RidText};
pub use session::{SessionToken, SessionTokenError};
pub use throughput::{Throughput, ThroughputError};
pub use ttl::{ItemTtl, TtlError, expires_at};
