//! Guarded commits of one writer at a time, for rows that neither a partition nor the catalog commits.
//!
//! A commit whose outcome the storage cannot tell is kept and sent again, with the same token, before the next one: it either
//! happened or happens then.

use quire_storage::{Commit, Op, PartitionId, Position, Storage};

use super::commit::{Sent, guarded_commit, send};
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

    /// Durable when it returns `Ok`; `Unresolved` when nobody knows.
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
        state.settle(storage)?;
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
            Sent::Done => {
                state.position = Some(Position { lsn: position.lsn + 1, ..position });
                Ok(true)
            }
            Sent::Failed(error) => Err(error),
            Sent::Unknown => {
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
            Sent::Done => return Ok(()),
            // The storage refuses for now; what became of the commit is still open.
            Sent::Failed(error) => Err(error),
            Sent::Unknown => Err(EngineError::Unresolved),
        };
        self.unresolved = Some(commit);
        result
    }
}
