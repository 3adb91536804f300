//! Guarded commits without a sequencer: those of the catalog, of vector indexes and of a restore.

use std::time::Duration;

use quire_storage::{Commit, CommitError, Guard, Op, PartitionId, Position, Storage};

use super::random::random_token;
use crate::api::{EngineError, corrupt};
use crate::sync::sleep;

/// Waits between attempts to find out the outcome of a commit, or to commit to a busy storage.
const RETRY_WAITS_MS: [u64; 6] = [1, 5, 20, 50, 100, 200];

/// The outcome of a commit that was sent.
pub(crate) enum CommitOutcome {
    Done,
    /// Nothing happened.
    Failed(EngineError),
    /// It may or may not have happened.
    Unknown,
}

pub(crate) fn guarded_commit(
    partition: PartitionId,
    position: Position,
    next_lsn: u64,
    ops: Vec<Op>,
) -> Result<Commit, EngineError> {
    let guard = Guard { partition, epoch: position.epoch, previous_lsn: position.lsn, next_lsn };
    Ok(Commit { guards: vec![guard], token: random_token()?, ops })
}

/// Sends a commit until its outcome is known or all attempts are used.
pub(crate) fn send(storage: &dyn Storage, commit: &Commit) -> CommitOutcome {
    let mut unknown = false;
    let mut last = CommitError::Busy;
    for wait_ms in RETRY_WAITS_MS {
        match storage.commit(commit.clone()) {
            Ok(_) => return CommitOutcome::Done,
            Err(CommitError::Unknown { .. }) => unknown = true,
            Err(error @ (CommitError::Busy | CommitError::Conflict { .. })) => last = error,
            // A refusal does not show the outcome of an earlier attempt, which may have succeeded.
            Err(_) if unknown => return CommitOutcome::Unknown,
            Err(error) => return CommitOutcome::Failed(refusal(error)),
        }
        sleep(Duration::from_millis(wait_ms));
    }
    if unknown { CommitOutcome::Unknown } else { CommitOutcome::Failed(refusal(last)) }
}

fn refusal(error: CommitError) -> EngineError {
    match error {
        CommitError::Storage(error) => EngineError::Storage(error),
        CommitError::Busy => EngineError::Overloaded,
        CommitError::TooLarge { .. } => {
            EngineError::BadRequest { message: "Request size is too large".to_owned() }
        }
        error => corrupt(format!("a commit was refused: {error}")),
    }
}
