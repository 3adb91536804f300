//! Commits in doubt: the storage could not report their outcome.

use std::sync::atomic::Ordering;

use quire_storage::{StorageError, Token};

use super::Sequencer;
use super::retry::attempts;
use crate::api::EngineError;
use crate::partition::sweep_due::SweepDueUpdate;
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};

/// How often the outcome of a commit is asked for before the partition stops taking writes.
const RESOLVE_TRIES: u32 = 6;

/// A commit with an unknown outcome.
pub(super) struct UnresolvedCommit {
    pub token: Token,
    pub touched: Vec<Vec<u8>>,
    pub rids: Vec<u64>,
}

impl Sequencer {
    /// How a commit of unknown outcome ended: done or not, `None` if that cannot be learnt now. A raised epoch sees
    /// to it that a commit that has not happened by then never will.
    pub(super) fn settle(&self, token: Token) -> Option<bool> {
        for _ in attempts(RESOLVE_TRIES, 1) {
            match self.settle_once(token) {
                Ok(done) => return Some(done),
                Err(error) => {
                    tracing::warn!(partition = ?self.storage_partition(), %error, "outcome of a commit is unknown")
                }
            }
        }
        None
    }

    pub(super) fn settle_once(&self, token: Token) -> Result<bool, StorageError> {
        let storage = &self.shared.storage;
        if storage.resolve(token)?.is_some() {
            return Ok(true);
        }
        #[cfg(feature = "schedules")]
        if is_put_back(Race::DoubtWithoutFence) {
            return Ok(false);
        }
        let partition = self.storage_partition();
        let epoch = storage.position(partition)?.map_or(0, |position| position.epoch);
        storage.fence(partition, epoch + 1)?;
        Ok(storage.resolve(token)?.is_some())
    }

    /// Before anything else is committed. Keeps the doubt if it still cannot be removed.
    pub(super) fn settle_later(&self, unresolved: UnresolvedCommit) -> Result<(), EngineError> {
        if self.settle(unresolved.token).is_none() {
            self.state.lock().unresolved = Some(unresolved);
            return Err(EngineError::Overloaded);
        }
        self.sweep_due.add(SweepDueUpdate::ANYTHING);
        self.discard_committed();
        self.is_doubtful.store(false, Ordering::Release);
        unresolved.touched.iter().for_each(|key| self.shared.item_cache.end_write(key));
        self.shared.row_spans.end_write(self.container, &unresolved.rids);
        Ok(())
    }
}
