//! Partition key definitions, keys, and their positions in the hash space.

mod definition; // paths, kind and version; extraction from items
mod epk; // effective partition keys: V1, V2, MultiHash
mod key; // values, header text, form on disk

pub use self::definition::{PartitionKeyDefinition, PartitionKeyKind, SYSTEM_KEY_PATH};
pub use self::epk::{EffectivePartitionKey, EpkRange};
pub use self::key::{Component, PartitionKey};

const PATHS_MAX: usize = 3;

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
    /// Stored bytes do not decode. Not the client's fault.
    #[error("corrupt partition key: {reason}")]
    Corrupt { reason: &'static str },
}

#[cfg(test)]
pub(crate) mod tests;
