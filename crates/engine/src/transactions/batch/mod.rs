//! Several item operations in one request: as a transaction of one logical partition, or each for itself.

mod atomic; // all or nothing
mod bulk; // each its own write, few syncs

use std::sync::Arc;

use bytes::Bytes;
use quire_resource::{PartitionKey, SessionToken};

use crate::api::{Answer, Cancel, EngineError, IndexingDirective, charge};
use crate::catalog::Container;
use crate::engine::Engine;

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
pub enum Outcome {
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
    pub outcome: Outcome,
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

impl Engine {
    /// All operations or none, in order, each seeing those before it. When one fails its result says why, and all
    /// others are [`EngineError::FailedDependency`].
    pub fn write_batch(
        &self,
        container: &Arc<Container>,
        key: &PartitionKey,
        operations: &[BatchOperation],
        session: Option<&SessionToken>,
        cancel: &Cancel,
    ) -> Answer<Vec<OperationResult>> {
        self.on_current(container, |container| {
            atomic::write_batch(&self.shared, container, key, operations, session, cancel)
        })
    }

    /// Every operation for itself. Operations on one item keep their order.
    pub fn bulk(&self, container: &Arc<Container>, bulk: Bulk) -> Answer<Vec<OperationResult>> {
        let mut answer =
            self.on_current(container, |container| bulk::run(&self.shared, container, bulk.clone(), 0));
        let mut container = Arc::clone(container);
        // What met a split was not done, nor what came after it: it goes on where the partitions now are.
        while let Ok(results) = &mut answer.result
            && results.iter().any(OperationResult::is_moved)
        {
            let left: Vec<usize> = (0..results.len()).filter(|at| results[*at].is_left()).collect();
            let taken =
                results.iter().filter_map(|result| Some(result.result.as_ref().ok()?.body.len())).sum();
            let rest = match self.successor(&container) {
                Ok(successor) => {
                    let operations = left.iter().map(|at| bulk.operations[*at].clone()).collect();
                    container = successor;
                    bulk::run(&self.shared, &container, Bulk { operations, ..bulk.clone() }, taken)
                }
                Err(error) => Answer { charge: 0.0, position: None, result: Err(error) },
            };
            answer.position = rest.position.or(answer.position);
            match rest.result {
                Ok(rest) => left.iter().zip(rest).for_each(|(at, result)| results[*at] = result),
                // Such as that the partition they name is gone.
                Err(error) => left.iter().for_each(|at| results[*at].result = Err(error.duplicate())),
            }
            answer.charge = charge::rounded(results.iter().map(|result| result.charge).sum());
        }
        answer
    }
}

impl OperationResult {
    fn is_moved(&self) -> bool {
        matches!(self.result, Err(EngineError::PartitionMoved))
    }

    /// Not done, for no reason of its own.
    fn is_left(&self) -> bool {
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

fn check_response(bytes: usize) -> Result<(), EngineError> {
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
