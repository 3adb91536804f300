//! Beginning and removing vector indexes, and their commits.

use quire_storage::{KeyRange, Op, Position, Removal};

use crate::api::EngineError;
use crate::catalog::Container;
use crate::indexes::vectors::state::{Identity, Phase, State, indexes_in};
use crate::runtime::Shared;
use crate::store::keys::{self, CATALOG, LOOKUPS, VectorKeys};
use crate::store::{Sent, guarded_commit, send};

pub(super) fn put_state(container: u32, number: u32, state: &State) -> Op {
    Op::Put { space: CATALOG, key: keys::vector_index(container, number), value: state.encode() }
}

/// In a sequence of its own, so that no writer waits; not once the container is being deleted.
pub(super) fn commit(shared: &Shared, container: &Container, ops: Vec<Op>) -> Result<(), EngineError> {
    let storage = &*shared.storage;
    let sequence = keys::vector_sequence(container.number);
    let sent = container.partitions.unless_retired(|| {
        let position = storage.position(sequence)?.unwrap_or(Position { epoch: 0, lsn: 0 });
        let commit = guarded_commit(sequence, position, position.lsn + 1, ops)?;
        Ok::<Sent, EngineError>(send(storage, &commit))
    });
    match sent.ok_or_else(|| container.not_found())?? {
        Sent::Done => Ok(()),
        Sent::Failed(error) => Err(error),
        // The next try reads what there is. The guard keeps the commit from happening after a later one.
        Sent::Unknown => Err(EngineError::Unresolved),
    }
}

/// Begins an index of a container; its number.
pub(crate) fn start_index(
    shared: &Shared,
    container: &Container,
    identity: Identity,
) -> Result<u32, EngineError> {
    let indexes = indexes_in(&*shared.storage.snapshot()?, container.number)?;
    let number = indexes.last().map_or(1, |(number, _)| number + 1);
    commit(shared, container, vec![put_state(container.number, number, &State::new(identity))])?;
    Ok(number)
}

/// Removes an index: one step. True when nothing is left of it.
pub(crate) fn drop_index(
    shared: &Shared,
    container: &Container,
    number: u32,
    state: &State,
) -> Result<bool, EngineError> {
    if state.phase != Phase::Dropping {
        let mut state = state.clone();
        state.phase = Phase::Dropping;
        commit(shared, container, vec![put_state(container.number, number, &state)])?;
        return Ok(false);
    }
    let range = KeyRange::prefix(&VectorKeys { container: container.number, index: number }.prefix());
    if shared.storage.remove_range(LOOKUPS, &range)? == Removal::More {
        return Ok(false);
    }
    let key = keys::vector_index(container.number, number);
    commit(shared, container, vec![Op::Delete { space: CATALOG, key }])?;
    Ok(true)
}
