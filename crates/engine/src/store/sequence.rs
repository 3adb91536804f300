//! Guarded commits of one writer at a time, for rows that neither a partition nor the catalog commits.
//!
//! If the storage cannot report the outcome of a commit, the commit is kept and sent again, with the same token, before
//! the next one: then it has happened exactly once.

use quire_storage::{Commit, Op, PartitionId, Position, Storage};

use super::commit::{CommitOutcome, guarded_commit, send};
use crate::api::EngineError;
use crate::sync::Mutex;

pub(crate) struct Sequence {
    id: PartitionId,
    state: Mutex<SequenceState>,
}

#[derive(Default)]
struct SequenceState {
    /// Where it stands, once that is known.
    position: Option<Position>,
    unresolved: Option<Commit>,
}

impl Sequence {
    pub fn new(id: PartitionId) -> Sequence {
        Sequence { id, state: Mutex::default() }
    }

    /// Durable when it returns `Ok`; `Unresolved` when the outcome is unknown. Behind an earlier commit of an unknown outcome it is
    /// refused: nobody has to find out about a commit that was not sent.
    pub fn commit(&self, storage: &dyn Storage, ops: Vec<Op>) -> Result<(), EngineError> {
        self.commit_while(storage, &|| true, ops).map(drop)
    }

    /// The same for rows of something that may be gone: false, and nothing is written, where it is. Whoever makes it go calls
    /// [`Sequence::settle`] before the rows are removed: none comes after it.
    pub fn commit_while(
        &self,
        storage: &dyn Storage,
        exists: &dyn Fn() -> bool,
        ops: Vec<Op>,
    ) -> Result<bool, EngineError> {
        let mut state = self.state.lock();
        state.settle(storage).map_err(EngineError::not_sent)?;
        if !exists() {
            return Ok(false);
        }
        let position = match state.position {
            Some(position) => position,
            None => storage.position(self.id)?.unwrap_or(Position { epoch: 0, lsn: 0 }),
        };
        state.position = None;
        let commit = guarded_commit(self.id, position, position.lsn + 1, ops)?;
        match send(storage, &commit) {
            CommitOutcome::Done => {
                state.position = Some(Position { lsn: position.lsn + 1, ..position });
                Ok(true)
            }
            CommitOutcome::Failed(error) => Err(error),
            CommitOutcome::Unknown => {
                state.unresolved = Some(commit);
                Err(EngineError::Unresolved)
            }
        }
    }

    /// Every earlier commit has happened, or never will, when it returns `Ok`.
    pub fn settle(&self, storage: &dyn Storage) -> Result<(), EngineError> {
        self.state.lock().settle(storage)
    }
}

impl SequenceState {
    fn settle(&mut self, storage: &dyn Storage) -> Result<(), EngineError> {
        let Some(commit) = self.unresolved.take() else { return Ok(()) };
        self.position = None;
        let result = match send(storage, &commit) {
            CommitOutcome::Done => return Ok(()),
            // The storage refuses for now; what became of the commit is still open.
            CommitOutcome::Failed(error) => Err(error),
            CommitOutcome::Unknown => Err(EngineError::Unresolved),
        };
        self.unresolved = Some(commit);
        result
    }
}

#[cfg(test)]
mod tests {
    use quire_storage::fault::{CommitFault, FaultStorage};
    use quire_storage::memory::MemoryStorage;

    use super::*;
    use crate::store::keys::CATALOG;

    fn put(key: u8) -> Vec<Op> {
        vec![Op::Put { space: CATALOG, key: vec![key], value: vec![key] }]
    }

    #[test]
    fn a_commit_behind_an_unknown_one_is_refused_and_does_not_happen() {
        for (fault, times) in [(CommitFault::UnknownDone, 12), (CommitFault::UnknownNotDone, 12)] {
            let storage = FaultStorage::new(MemoryStorage::new());
            let sequence = Sequence::new(PartitionId(77));
            storage.script_commits(vec![fault; times]);
            assert!(matches!(sequence.commit(&storage, put(1)), Err(EngineError::Unresolved)));
            assert!(matches!(sequence.commit(&storage, put(2)), Err(EngineError::Overloaded)));
            storage.stop_faults();
            sequence.commit(&storage, put(3)).unwrap();
            let stored = |key: u8| storage.snapshot().unwrap().get(CATALOG, &[key]).unwrap().is_some();
            assert_eq!([1, 2, 3].map(stored), [true, false, true]);
        }
    }
}
