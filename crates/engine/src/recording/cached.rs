//! Records of databases in memory: those that are too many are stored, and read again when they are asked for.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use quire_storage::Storage;

use super::{DatabaseRecord, Recorder};
use crate::api::EngineError;

/// Databases whose record is in memory: those beyond it that were idle for [`IDLE_MS`] are stored and let go, the others beyond
/// [`ACTIVE_MAX`].
const IDLE_KEPT_MAX: usize = 16;
const ACTIVE_MAX: usize = 256;
const IDLE_MS: u128 = 60_000;

/// A record in memory.
pub(super) struct CachedRecord {
    pub record: Arc<Mutex<DatabaseRecord>>,
    /// When it was last used.
    pub used: Instant,
}

impl Recorder {
    /// Stores records that are too many for the memory, and lets them go: they are read again when they are asked for.
    pub fn evict(&self, storage: &dyn Storage, exists: &dyn Fn(u32) -> bool) -> Result<(), EngineError> {
        for database in self.too_many() {
            let record = self.databases.lock().get(&database).map(|own| Arc::clone(&own.record));
            let Some(record) = record else { continue };
            {
                let mut record = record.lock();
                // What is under way is not part of what is stored.
                record.workload.close_open_actions();
                record.is_changed = true;
            }
            let stored = self.store_one(storage, (database, exists), &record);
            if stored.is_err() {
                record.lock().is_changed = true;
                return stored;
            }
            let mut databases = self.databases.lock();
            // Whoever has it now may be about to write to it.
            let is_shared = Arc::strong_count(&record) > 2;
            if !is_shared && !record.lock().is_changed {
                databases.remove(&database);
            }
        }
        Ok(())
    }

    /// Databases whose records are to go, the longest idle first.
    fn too_many(&self) -> Vec<u32> {
        let idle_ms = |own: &CachedRecord| own.used.elapsed().as_millis();
        let databases = self.databases.lock();
        let mut all: Vec<(u128, u32)> =
            databases.iter().map(|(number, own)| (idle_ms(own), *number)).collect();
        drop(databases);
        all.sort_unstable_by(|one, other| other.cmp(one));
        let count = all.len();
        let goes = |(place, (idle, _)): &(usize, (u128, u32))| {
            let left = count - place;
            left > ACTIVE_MAX || left > IDLE_KEPT_MAX && *idle >= IDLE_MS
        };
        all.into_iter().enumerate().take_while(goes).map(|(_, (_, database))| database).collect()
    }
}

#[cfg(test)]
mod tests {
    use quire_storage::memory::MemoryStorage;

    use super::super::tests::{place, reads, request};
    use super::*;

    #[test]
    fn records_of_many_databases_do_not_stay_in_memory() {
        let (recorder, storage) = (Recorder::new(&[1; 32]), MemoryStorage::new());
        let count = ACTIVE_MAX as u32 + 44;
        for round in 0..2 {
            for database in 0..count {
                recorder.add(&place(database, 1), 1_000 + round, request(round));
            }
            recorder.drain(&storage).expect("drained");
            assert_eq!(recorder.databases.lock().len(), count as usize);
            recorder.evict(&storage, &|_| true).expect("let go");
            assert_eq!(recorder.databases.lock().len(), ACTIVE_MAX);
        }
        (0..count).for_each(|database| assert_eq!(reads(&recorder, &storage, database), 2, "{database}"));
        // One that is in use stays.
        let held = recorder.current(&storage, 7).expect("a record");
        recorder.databases.lock().values_mut().for_each(|own| own.used = Instant::now());
        if let Some(own) = recorder.databases.lock().get_mut(&7) {
            own.used = Instant::now().checked_sub(std::time::Duration::from_secs(5)).unwrap_or(own.used);
        }
        recorder.evict(&storage, &|_| true).expect("let go");
        assert!(recorder.databases.lock().contains_key(&7));
        drop(held);
    }
}
