//! Several item operations in one request: as a transaction of one logical partition, or each for itself.

pub(crate) mod atomic; // all or nothing
pub(crate) mod bulk; // each its own write, few syncs

use bytes::Bytes;
use quire_resource::{PartitionKey, SessionToken};

use crate::api::{Cancel, EngineError, IndexingDirective};

/// What the bodies of all results may have together; the service's limit of a response.
const RESPONSE_BYTES_MAX: usize = 4 << 20;

#[derive(Clone)]
pub enum BatchVerb {
    Create,
    Upsert,
    Read { id: String },
    Replace { id: String },
    Delete { id: String },
    Patch { id: String },
}

#[derive(Clone)]
pub struct BatchOperation {
    pub verb: BatchVerb,
    /// JSON text: the item, or the patch; empty for a read or delete.
    pub body: Bytes,
    /// On a read it says that the client has this version, as `if_none_match` does.
    pub if_match: Option<String>,
    /// Of a read or patch.
    pub if_none_match: Option<String>,
    pub indexing: IndexingDirective,
    /// Only in bulk: the key of an atomic batch is that of the request.
    pub partition_key: Option<PartitionKey>,
    /// Of a write; the result of a read always has one.
    pub want_body: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationOutcome {
    Created,
    /// Replaced, patched, or upserted where there was an item.
    Replaced,
    Deleted,
    Read,
    /// The client has it already. No failure.
    NotModified,
}

#[derive(Debug)]
pub struct OperationDone {
    pub outcome: OperationOutcome,
    /// With its quotes; empty for a delete.
    pub etag: String,
    /// The item with system properties, where there is one and it is wanted.
    pub body: Bytes,
}

#[derive(Debug)]
pub struct OperationResult {
    pub charge: f64,
    pub result: Result<OperationDone, EngineError>,
}

impl OperationResult {
    pub(crate) fn is_moved(&self) -> bool {
        matches!(self.result, Err(EngineError::PartitionMoved))
    }

    /// Not done, for no reason of its own.
    pub(crate) fn is_not_done(&self) -> bool {
        matches!(self.result, Err(EngineError::PartitionMoved | EngineError::FailedDependency))
    }
}

#[derive(Clone)]
pub struct Bulk {
    pub operations: Vec<BatchOperation>,
    /// Operations whose key is elsewhere are refused with [`EngineError::PartitionGone`].
    pub partition_id: Option<String>,
    /// Of operations that name none; those that do must agree with it.
    pub partition_key: Option<PartitionKey>,
    /// Otherwise the first failure ends it, and what would have followed is [`EngineError::FailedDependency`].
    pub continue_on_error: bool,
    pub session: Option<SessionToken>,
    /// What is not done by then is [`EngineError::Cancelled`].
    pub cancel: Cancel,
}

/// Of all operations together: an answer is held in memory as a whole.
pub(super) fn check_response(bytes: usize) -> Result<(), EngineError> {
    if bytes <= RESPONSE_BYTES_MAX { Ok(()) } else { Err(response_too_large()) }
}

fn response_too_large() -> EngineError {
    EngineError::ResponseTooLarge { bytes_max: RESPONSE_BYTES_MAX }
}

/// Whether an error says something about the server, not about an operation.
fn is_general(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Storage(_)
            | EngineError::Corrupt { .. }
            | EngineError::Io { .. }
            | EngineError::Unresolved
            | EngineError::Overloaded
            | EngineError::Contended
            | EngineError::ResourceNotFound { .. }
            | EngineError::PartitionMoved
            | EngineError::Cancelled
    )
}
