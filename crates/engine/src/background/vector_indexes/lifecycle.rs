//! Creates and removes vector indexes, and commits their rows.

use quire_storage::{KeyRange, Op, Position, Removal};

use crate::api::EngineError;
use crate::catalog::Container;
use crate::indexes::vectors::state::{VectorIndexIdentity, VectorIndexPhase, VectorIndexState, indexes_in};
use crate::runtime::Shared;
use crate::store::keys::{self, CATALOG, LOOKUPS, VectorKeys};
use crate::store::{CommitOutcome, guarded_commit, send};

pub(super) fn put_state(container: u32, number: u32, state: &VectorIndexState) -> Op {
    Op::Put { space: CATALOG, key: keys::vector_index(container, number), value: state.encode() }
}

/// Commits what was made of an index as it was read: `TransactionConflict` if it is another one by now, since a job and a worker
/// change indexes.
pub(super) fn commit_as_read(
    shared: &Shared,
    container: &Container,
    number: u32,
    read: (&VectorIndexIdentity, u64),
    ops: Vec<Op>,
) -> Result<(), EngineError> {
    commit_if(shared, container, ops, || {
        let row = shared.storage.snapshot()?.get(CATALOG, &keys::vector_index(container.number, number))?;
        let stored = row.map(|row| VectorIndexState::decode(&row)).transpose()?;
        let is_as_read = |stored: VectorIndexState| (&stored.identity, stored.commits) == read;
        if stored.is_some_and(is_as_read) { Ok(()) } else { Err(EngineError::TransactionConflict) }
    })
}

/// In a sequence of its own, so that no writer waits; not once the container is being deleted. Commits of a container wait for
/// one another, so what the check has found is so.
fn commit_if(
    shared: &Shared,
    container: &Container,
    ops: Vec<Op>,
    check: impl FnOnce() -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let storage = &*shared.storage;
    let sequence = keys::vector_sequence(container.number);
    let sent = container.partitions.unless_retired(|| {
        check()?;
        let position = storage.position(sequence)?.unwrap_or(Position { epoch: 0, lsn: 0 });
        let commit = guarded_commit(sequence, position, position.lsn + 1, ops)?;
        Ok::<CommitOutcome, EngineError>(send(storage, &commit))
    });
    match sent.ok_or_else(|| container.not_found())?? {
        CommitOutcome::Done => Ok(()),
        CommitOutcome::Failed(error) => Err(error),
        // The next try reads what there is. The guard keeps the commit from happening after a later one.
        CommitOutcome::Unknown => Err(EngineError::Unresolved),
    }
}

/// Begins an index of a container; its number.
pub(crate) fn start_index(
    shared: &Shared,
    container: &Container,
    identity: VectorIndexIdentity,
) -> Result<u32, EngineError> {
    let indexes = indexes_in(&*shared.storage.snapshot()?, container.number)?;
    let number = indexes.last().map_or(1, |(number, _)| number + 1);
    let ops = vec![put_state(container.number, number, &VectorIndexState::new(identity))];
    commit_if(shared, container, ops, || Ok(()))?;
    Ok(number)
}

/// Removes an index: one step. True: it is removed.
pub(crate) fn drop_index(
    shared: &Shared,
    container: &Container,
    number: u32,
    state: &VectorIndexState,
) -> Result<bool, EngineError> {
    if state.phase != VectorIndexPhase::Dropping {
        let mut dropping = state.clone();
        (dropping.phase, dropping.commits) = (VectorIndexPhase::Dropping, state.commits + 1);
        let ops = vec![put_state(container.number, number, &dropping)];
        commit_as_read(shared, container, number, (&state.identity, state.commits), ops)?;
        return Ok(false);
    }
    let range = KeyRange::prefix(&VectorKeys { container: container.number, index: number }.prefix());
    if shared.storage.remove_range(LOOKUPS, &range)? == Removal::More {
        return Ok(false);
    }
    let key = keys::vector_index(container.number, number);
    commit_if(shared, container, vec![Op::Delete { space: CATALOG, key }], || Ok(()))?;
    Ok(true)
}
