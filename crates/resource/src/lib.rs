//! What an account contains: resource ids, partition keys and their hash, container definitions and policies.
//!
//! Everything here is pure: text or JSON in, validated types out. Errors carry the service's message; which
//! status they become is the server's business.
//! Not here: where resources are kept (see `quire-engine`), HTTP (see `quire-server`).

mod container; // ContainerDefinition: validation and normalisation of a container's JSON
mod epk; // effective partition keys: V1, V2, MultiHash
mod full_text; // full-text policy and indexes
mod index_rules; // included and excluded paths as a tree beside the item
mod indexing; // indexing policy: paths, precedence, composite, spatial, vector, full text
mod members; // reading members of a definition's JSON
mod name; // id rules
mod partition_key; // definitions, values, header text, extraction from items
mod policy_path; // the syntax of paths in definitions
mod rid; // `_rid`s and `_self` links
mod sections; // the smaller sections of a container
mod session; // session tokens
mod throughput; // manual and autoscale offers
mod ttl; // when items expire
mod vector; // vector embeddings and indexes
mod view; // containers made of others

pub use container::{ContainerDefinition, ContainerError};
pub use epk::{EffectivePartitionKey, EpkRange};
pub use full_text::{FULL_TEXT_LANGUAGES, FullTextPath, FullTextPolicy};
pub use index_rules::{PathOrder, RulePlace};
pub use indexing::{
    BoundingBox, CompositePath, IndexingMode, IndexingPolicy, SortOrder, SpatialIndex, SpatialType,
    TupleIndex,
};
pub use name::{NameError, check_item_id, check_name};
pub use partition_key::{
    Component, PartitionKey, PartitionKeyDefinition, PartitionKeyError, PartitionKeyKind, SYSTEM_KEY_PATH,
};
pub use rid::{ChildKind, ResourceId, RidError};
pub use sections::{ConflictResolution, GeospatialType, UniqueKey};
pub use session::{SessionToken, SessionTokenError};
pub use throughput::{Throughput, ThroughputError};
pub use ttl::{ItemTtl, TtlError, expires_at};
pub use vector::{
    DistanceFunction, Quantizer, VectorDataType, VectorEmbedding, VectorIndex, VectorIndexKind,
};
pub use view::{VIEW_MEMBERS, ViewDefinition};
