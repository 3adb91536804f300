//! The latest time that was seen, in a row: a clock that is set back while the engine is closed makes nothing young again.

use std::sync::atomic::{AtomicU64, Ordering};

use quire_storage::{Op, Storage};

use super::keys::{self, CATALOG, TIME_SEQUENCE};
use super::sequence::Sequence;
use crate::api::{EngineError, corrupt};

pub(crate) struct LatestTime {
    sequence: Sequence,
    stored_ms: AtomicU64,
}

impl LatestTime {
    pub fn new() -> LatestTime {
        LatestTime { sequence: Sequence::new(TIME_SEQUENCE), stored_ms: AtomicU64::new(0) }
    }

    pub fn load(&self, storage: &dyn Storage) -> Result<(), EngineError> {
        if let Some(value) = storage.snapshot()?.get(CATALOG, &keys::LATEST_TIME)? {
            let stored_ms = keys::number(&value).ok_or_else(|| corrupt("the latest time seen"))?;
            self.stored_ms.store(stored_ms, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Milliseconds since the epoch; 0: none was stored.
    pub fn stored_ms(&self) -> i64 {
        i64::try_from(self.stored_ms.load(Ordering::Relaxed)).unwrap_or(i64::MAX)
    }

    /// Durable when it returns `Ok`. An earlier time than the stored one changes nothing.
    pub fn store(&self, storage: &dyn Storage, latest_ms: i64) -> Result<(), EngineError> {
        let Some(latest_ms) = u64::try_from(latest_ms).ok().filter(|_| latest_ms > self.stored_ms()) else {
            return Ok(());
        };
        let (key, value) = (keys::LATEST_TIME.to_vec(), keys::number_value(latest_ms));
        self.sequence.commit(storage, vec![Op::Put { space: CATALOG, key, value }])?;
        self.stored_ms.fetch_max(latest_ms, Ordering::Relaxed);
        Ok(())
    }
}
