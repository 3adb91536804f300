//! Records that wait in the lists of threads, until they are taken in to the workloads of their databases.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use quire_profile::Record;
use quire_storage::Storage;

use super::shapes::NewShapes;
use super::{DatabaseRecord, RATE_MAX, Recorder, SHARDS};
use crate::api::EngineError;

/// Room for records that an empty list keeps.
const EMPTY_MAX: usize = 1_024;

#[derive(Default)]
pub(super) struct RecordShard {
    pub records: Vec<WaitingRecord>,
    /// Memory of the records.
    pub bytes: usize,
    /// Requests without a record, by database.
    pub dropped: Vec<(u32, u64)>,
}

pub(super) struct WaitingRecord {
    pub database: u32,
    pub container: u32,
    pub record: Record,
}

/// What is left of the last time that records were taken in.
pub(super) struct Drained {
    at: Instant,
    /// Lists that shards use again.
    empty: Vec<Vec<WaitingRecord>>,
}

impl Default for Drained {
    fn default() -> Drained {
        Drained { at: Instant::now(), empty: Vec::new() }
    }
}

impl RecordShard {
    pub fn drop_request(&mut self, database: u32, count: u64) {
        match self.dropped.iter_mut().find(|(own, _)| *own == database) {
            Some((_, dropped)) => *dropped += count,
            None => self.dropped.push((database, count)),
        }
    }
}

impl Recorder {
    /// Takes in what waits, and decides which part of the requests is recorded from now on. A database whose record cannot be read
    /// holds up no other one.
    pub fn drain(&self, storage: &dyn Storage) -> Result<(), EngineError> {
        let mut drained = self.drained.lock();
        let mut waited =
            RecordShard { records: drained.empty.pop().unwrap_or_default(), ..Default::default() };
        for shard in &self.shards {
            let mut shard = shard.lock();
            if shard.records.is_empty() && shard.dropped.is_empty() {
                continue;
            }
            let empty = drained.empty.pop().unwrap_or_default();
            let mut records = std::mem::replace(&mut shard.records, empty);
            let dropped = std::mem::take(&mut shard.dropped);
            shard.bytes = 0;
            drop(shard);
            waited.records.append(&mut records);
            drained.reuse(records);
            dropped.into_iter().for_each(|(database, count)| waited.drop_request(database, count));
        }
        // After the records: every shape that one of them names is there.
        let shapes = self.shapes.take_new();
        let dropped = waited.dropped.iter().map(|(_, count)| *count).sum::<u64>();
        let answered = waited.records.len() as f64 + dropped as f64;
        let seconds = drained.at.elapsed().as_secs_f64();
        if seconds >= 0.5 {
            let one_in = (answered / seconds / RATE_MAX).ceil().clamp(1.0, 1_000_000.0);
            self.one_in.store(one_in as u32, Ordering::Relaxed);
            drained.at = Instant::now();
        }
        let taken_in = self.add_records(storage, &mut waited, shapes);
        drained.reuse(waited.records);
        if taken_in.is_err() {
            // Those that were not taken in must come again.
            self.shapes.clear();
        }
        taken_in
    }

    pub(super) fn add_records(
        &self,
        storage: &dyn Storage,
        waited: &mut RecordShard,
        shapes: NewShapes,
    ) -> Result<(), EngineError> {
        let mut result = Ok(());
        let mut with = |database: u32, what: &mut dyn FnMut(&mut DatabaseRecord)| match self
            .record_of(storage, database)
        {
            Ok(record) => what(&mut record.lock()),
            Err(error) => result = Err(error),
        };
        for (database, count) in waited.dropped.drain(..) {
            with(database, &mut |record| record.workload.drop_requests(count));
        }
        let records = &mut waited.records;
        // Lists of threads, one behind the other, each in the order of time.
        if !records.is_sorted_by_key(|waiting| waiting.record.time_ms) {
            records.sort_by_key(|waiting| waiting.record.time_ms);
        }
        // Shapes of a container that was made again come after those of the one before are forgotten.
        let mut places = RecordedPlaces::default();
        records.iter().for_each(|waiting| places.add(waiting));
        for (database, name, container) in &places.all {
            with(*database, &mut |record| record.workload.set_container(name, *container));
        }
        for ((database, _), (name, shape)) in shapes {
            with(database, &mut |record| record.workload.add_shape(&name, &shape));
        }
        let mut records = records.drain(..).filter(|waiting| places.is_current(waiting)).peekable();
        while let Some(first) = records.next() {
            let database = first.database;
            let mut first = Some(first);
            with(database, &mut |record| {
                first.take().into_iter().for_each(|waiting| record.add_records(waiting.record));
                while let Some(next) = records.next_if(|next| next.database == database) {
                    record.add_records(next.record);
                }
            });
        }
        result
    }
}

impl Drained {
    fn reuse(&mut self, mut records: Vec<WaitingRecord>) {
        records.clear();
        records.shrink_to(EMPTY_MAX);
        if self.empty.len() <= SHARDS {
            self.empty.push(records);
        }
    }
}

/// Numbers of containers by database and name, as the last records have them.
#[derive(Default)]
struct RecordedPlaces {
    all: Vec<(u32, Arc<str>, u32)>,
}

impl RecordedPlaces {
    fn find(&self, waiting: &WaitingRecord) -> Option<usize> {
        let name = &waiting.record.container;
        let is_same = |own: &Arc<str>| Arc::ptr_eq(own, name) || **own == **name;
        self.all.iter().position(|(database, own, _)| *database == waiting.database && is_same(own))
    }

    fn add(&mut self, waiting: &WaitingRecord) {
        match self.find(waiting) {
            Some(place) => self.all[place].2 = waiting.container,
            None => {
                let name = Arc::clone(&waiting.record.container);
                self.all.push((waiting.database, name, waiting.container));
            }
        }
    }

    fn is_current(&self, waiting: &WaitingRecord) -> bool {
        self.find(waiting).is_some_and(|place| self.all[place].2 == waiting.container)
    }
}
