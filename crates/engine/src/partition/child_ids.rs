//! Counters of new child ids: each container reserves them in durable blocks.
//!
//! The end of a block is stored before any number of the block is used, so no number is used twice, also after a crash.
//! A crash loses the rest of the block.

use std::sync::Arc;

use quire_storage::{Commit, CommitError, Guard, Op};

use crate::api::{EngineError, corrupt};
use crate::partition::sequencer::{WriteRefused, retry_until_accepted};
use crate::runtime::Shared;
use crate::store::{keys, random_token};
use crate::sync::Mutex;

/// One more sync per this many creates; a restart loses at most as many of 2^36.
const BLOCK: u64 = 1 << 14;

pub(crate) struct ChildIds {
    container: u32,
    shared: Arc<Shared>,
    block: Mutex<ChildIdBlock>,
}

#[derive(Default)]
struct ChildIdBlock {
    /// Reserved and not yet given; empty at first.
    left: std::ops::Range<u64>,
    retired: bool,
}

impl ChildIds {
    pub fn new(shared: &Arc<Shared>, container: u32) -> ChildIds {
        ChildIds { container, shared: Arc::clone(shared), block: Mutex::default() }
    }

    /// The next counter of the container.
    pub fn allocate(&self) -> Result<u64, EngineError> {
        let mut block = self.block.lock();
        if block.retired {
            let id = self.container.to_string();
            return Err(EngineError::ResourceNotFound { kind: "container", id });
        }
        if block.left.is_empty() {
            block.left = self.reserve()?;
        }
        let counter = block.left.start;
        block.left.start += 1;
        Ok(counter)
    }

    /// Reserves nothing any more; returns when no reservation is under way.
    pub fn retire(&self) {
        self.block.lock().retired = true;
    }

    pub fn resume_writes(&self) {
        self.block.lock().retired = false;
    }

    fn reserve(&self) -> Result<std::ops::Range<u64>, EngineError> {
        retry_until_accepted(&self.shared.statistics, || self.try_reserve()?.ok_or(WriteRefused::Stale))
    }

    /// `None` when it did not happen, or the outcome is unknown: another block is as good.
    fn try_reserve(&self) -> Result<Option<std::ops::Range<u64>>, EngineError> {
        let (storage, key) = (&self.shared.storage, keys::rid_counter(self.container));
        let partition = keys::rid_sequence(self.container);
        let position = storage.position(partition)?;
        let (epoch, previous_lsn) = position.map_or((0, 0), |position| (position.epoch, position.lsn));
        let start = match storage.snapshot()?.get(keys::CATALOG, &key)? {
            Some(value) => keys::number(&value).ok_or_else(|| corrupt("counter of rids"))?,
            None => 1,
        };
        let end = start + BLOCK;
        if end >> keys::RID_COUNTER_BITS != 0 {
            let reason = "the container has used up its item ids".to_owned();
            return Err(EngineError::Forbidden { reason });
        }
        // The row is the truth; the guard only keeps two reservations apart.
        let guard = Guard { partition, epoch, previous_lsn, next_lsn: previous_lsn + 1 };
        let ops = vec![Op::Put { space: keys::CATALOG, key, value: keys::number_value(end) }];
        match storage.commit(Commit { guards: vec![guard], token: random_token()?, ops }) {
            Ok(_) => Ok(Some(start..end)),
            Err(CommitError::Storage(error)) => Err(error.into()),
            Err(error) => {
                tracing::debug!(container = self.container, %error, "reserving rids again");
                Ok(None)
            }
        }
    }
}
