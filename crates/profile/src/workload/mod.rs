//! Recorded requests: a ring of the last ones, and hourly totals that outlive it.
//!
//! [`Workload::record`] feeds every request to small state machines (executions of queries, minutes of keys, versions of arrays,
//! actions); [`Workload::resolve_sequences`] asks for the items that decide whether one read followed another. What they find is
//! added to the hour. [`Workload::container`] sums the hours up for one container.
//! Bounds: [`RING_MAX`] records and [`RING_BYTES_MAX`] of them, 28 days of hours, named limits for every map, and what
//! [`Workload::to_bytes_within`] is given for all of it.

mod actions; // requests that belong together
mod bounds; // what is evicted when the record is full
mod change_sets; // which paths change together
mod encode; // the byte form
mod growth; // lengths of arrays over versions
mod hour; // totals of one hour
mod minutes; // charges of keys, minute by minute
mod placeholders; // from a shape back to a query
mod record; // what is recorded
mod rewrite; // queries with other paths
mod sequence; // one read follows another
mod shape; // query shapes
mod summary; // totals of a container, for the profile

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};

use quire_value::{Object, Value};

use self::actions::Actions;
use self::encode::Encode;
use self::growth::Growth;
use self::hour::HourTotals;
use self::minutes::Minutes;
use self::record::RETURNED_ITEMS_MAX;

pub use self::change_sets::ChangeSets;
pub use self::encode::CorruptWorkload;
pub use self::placeholders::{ParameterQuery, Placeholder, Role, any_value, parameter_query};
pub use self::record::{ActionSource, ArrayLength, ItemChange, Operation, Record, RecordedQuery};
pub use self::rewrite::{Replacement, rewritten};
pub use self::sequence::{ItemReader, ItemSequence};
pub use self::shape::{Projection, QueryShape, SHAPE_TEXT_BYTES_MAX, Scope, shape_of};
pub use self::summary::{
    ContainerWorkload, HotItem, HotKey, KeyUse, OperationTotals, QueryTotals, SequenceProfile, ShapeProfile,
    WriteTotals,
};

/// Records of one database.
pub const RING_MAX: usize = 65_536;
/// Memory of their names, paths and lists.
pub const RING_BYTES_MAX: usize = 6 << 20;
const HOUR_MS: u64 = 3_600_000;
/// Hours that are kept, and those that counts are taken from.
const KEPT_HOURS: u64 = 28 * 24;
pub(crate) const COUNTED_HOURS: u64 = 14 * 24;
const SHAPES_MAX: usize = 1_000;
const EXECUTIONS_MAX: usize = 1_024;
/// Of the byte form.
const FORMAT: u8 = 2;
/// Without numbers of containers.
const FORMAT_1: u8 = 1;

/// The recorded workload of one database.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    ring: VecDeque<Record>,
    /// Counts towards [`RING_BYTES_MAX`].
    ring_bytes: usize,
    hours: BTreeMap<u64, BTreeMap<String, HourTotals>>,
    shapes: BTreeMap<u64, (String, QueryShape)>,
    growth: BTreeMap<String, Growth>,
    from_ms: Option<u64>,
    to_ms: u64,
    dropped: u64,
    /// Numbers of containers by name: one that was made again is another one.
    numbers: BTreeMap<String, u32>,
    /// State of what is under way; not stored.
    executions: HashMap<u64, Record>,
    minutes: BTreeMap<String, Minutes>,
    actions: Actions,
}

impl Workload {
    pub fn new() -> Workload {
        Workload::default()
    }

    /// A shape that records will name. Beyond the limit it is dropped, and its queries count as operations only.
    pub fn add_shape(&mut self, container: &str, shape: &QueryShape) {
        if self.shapes.len() < SHAPES_MAX || self.shapes.contains_key(&shape.id) {
            self.shapes.entry(shape.id).or_insert_with(|| (container.to_owned(), shape.clone()));
        }
    }

    /// Times hardly go back: a clock that jumps a little counts as standing still. Where it was far ahead, what was recorded then
    /// is of the time up to now.
    pub fn record(&mut self, record: Record) {
        let mut record = record.bounded();
        if record.time_ms.saturating_add(HOUR_MS) < self.to_ms {
            self.set_back(record.time_ms);
        }
        record.time_ms = record.time_ms.max(self.to_ms);
        self.to_ms = record.time_ms;
        self.from_ms.get_or_insert(record.time_ms);
        self.add_record(&record);
        self.ring_bytes += record.variable_memory();
        self.ring.push_back(record);
        while self.ring.len() > RING_MAX || self.ring_bytes > RING_BYTES_MAX {
            self.forget_first();
        }
    }

    /// The clock was ahead. Hours that have not been yet become the last ones before now, each for itself: counts stay exact.
    fn set_back(&mut self, now_ms: u64) {
        self.close_open_actions();
        let (hour, ahead) = (now_ms / HOUR_MS, (self.to_ms - now_ms) / HOUR_MS);
        let later = self.hours.split_off(&(hour + 1));
        for (number, totals) in later.into_iter().rev() {
            let mut free = number.saturating_sub(ahead).min(hour);
            while free > 0 && self.hours.contains_key(&free) {
                free -= 1;
            }
            self.hours.insert(free, totals);
        }
        let records = self.ring.iter_mut().chain(self.executions.values_mut());
        records.for_each(|record| record.time_ms = record.time_ms.min(now_ms));
        self.from_ms = self.from_ms.map(|from| from.min(now_ms));
        self.to_ms = now_ms;
    }

    /// The container that records of this name are of. What was recorded of another one of that name is removed.
    pub fn set_container(&mut self, name: &str, number: u32) {
        let known = self.numbers.get(name).copied();
        if known.is_some_and(|known| known != number) {
            self.remove_recorded(name);
        }
        if known != Some(number) {
            self.numbers.insert(name.to_owned(), number);
        }
    }

    /// Requests that were answered while sampling and not recorded.
    pub fn drop_requests(&mut self, count: u64) {
        self.dropped += count;
    }

    fn add_record(&mut self, record: &Record) {
        let container = &*record.container;
        let hour = entry_of(hour_of(&mut self.hours, record.time_ms), container);
        hour.add(record);
        entry_of(&mut self.minutes, container).add(record, hour);
        if let Some(execution) = self.execution(record) {
            entry_of(hour_of(&mut self.hours, record.time_ms), container).add_execution(&execution);
        }
        if record.is_change() {
            entry_of(&mut self.growth, container).add(record);
        }
        let closed = self.actions.add(record);
        for (container, found) in closed {
            entry_of(hour_of(&mut self.hours, record.time_ms), &container).patterns.add(&found);
        }
        self.evict_old(record.time_ms / HOUR_MS);
    }

    /// All pages of an execution as one record, at its last page.
    fn execution<'r>(&mut self, record: &'r Record) -> Option<Cow<'r, Record>> {
        let query = record.query.as_ref()?;
        let is_over = query.is_last || !record.is_success();
        let before = self.executions.remove(&query.execution);
        if is_over && before.is_none() {
            return Some(Cow::Borrowed(record));
        }
        let mut whole = record.clone();
        if let Some(before) = before
            && let (Some(whole_query), Some(before_query)) = (&mut whole.query, &before.query)
        {
            whole_query.rows_read += before_query.rows_read;
            whole_query.returned += before_query.returned;
            whole_query.items.splice(0..0, before_query.items.iter().copied());
            whole_query.items.truncate(RETURNED_ITEMS_MAX);
            whole.charge += before.charge;
        }
        if is_over {
            return Some(Cow::Owned(whole));
        }
        let evicted = if self.executions.len() >= EXECUTIONS_MAX {
            let oldest = self.executions.iter().min_by_key(|(_, record)| record.time_ms).map(|(id, _)| *id);
            oldest.and_then(|id| self.executions.remove(&id))
        } else {
            None
        };
        self.executions.insert(query.execution, whole);
        evicted.map(Cow::Owned)
    }

    /// Ends what is under way: before a summary, or at shutdown.
    pub fn close_open_actions(&mut self) {
        for record in std::mem::take(&mut self.executions).into_values() {
            let hours = hour_of(&mut self.hours, self.to_ms);
            hours.entry(record.container.to_string()).or_default().add_execution(&record);
        }
        for (container, minutes) in &mut self.minutes {
            let hours = hour_of(&mut self.hours, self.to_ms);
            minutes.close(hours.entry(container.clone()).or_default());
        }
        for (container, found) in self.actions.close_all() {
            hour_of(&mut self.hours, self.to_ms).entry(container).or_default().patterns.add(&found);
        }
    }

    /// Decides which reads followed others, by the items themselves. `references`: container, path, target container, key.
    pub fn resolve_sequences(&mut self, references: &[ItemSequence], reader: &dyn ItemReader) {
        let shapes: HashMap<u64, QueryShape> =
            self.shapes.iter().map(|(id, (_, shape))| (*id, shape.clone())).collect();
        let found = sequence::resolve(self.actions.take_reads(), references, &shapes, reader);
        for (container, sequences) in found {
            hour_of(&mut self.hours, self.to_ms).entry(container).or_default().sequences.merge(&sequences);
        }
    }

    fn evict_old(&mut self, hour: u64) {
        while let Some((first, _)) = self.hours.first_key_value()
            && first + KEPT_HOURS <= hour
        {
            self.hours.pop_first();
        }
    }

    /// Of one container that is made again: what was recorded before does not count any more.
    pub fn remove_recorded(&mut self, container: &str) {
        self.hours.values_mut().for_each(|hours| drop(hours.remove(container)));
        self.growth.remove(container);
        self.minutes.remove(container);
        self.shapes.retain(|_, (own, _)| own != container);
        self.ring.retain(|record| *record.container != *container);
        self.ring_bytes = self.ring.iter().map(Record::variable_memory).sum();
        self.actions.remove_recorded(container);
    }

    pub fn records(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.ring.iter()
    }

    pub fn shape(&self, id: u64) -> Option<&QueryShape> {
        self.shapes.get(&id).map(|(_, shape)| shape)
    }

    /// Totals of one container over the last 14 days. Call [`Workload::close_open_actions`] before.
    pub fn container(&self, container: &str) -> ContainerWorkload {
        let last = self.to_ms / HOUR_MS;
        let counted = self.hours.range(last.saturating_sub(COUNTED_HOURS)..);
        let hours: Vec<&HourTotals> = counted.filter_map(|(_, hours)| hours.get(container)).collect();
        let shapes = self.shapes.iter().filter(|(_, (own, _))| own == container);
        let shapes: Vec<&QueryShape> = shapes.map(|(_, (_, shape))| shape).collect();
        let from_ms = self.from_ms.unwrap_or(self.to_ms);
        let mut sum = summary::sum_up(from_ms, self.to_ms, &hours, &shapes, self.growth.get(container));
        for sequence in &mut sum.sequences {
            let other = self.hours.range(last.saturating_sub(COUNTED_HOURS)..);
            let other: Vec<&HourTotals> = other.filter_map(|(_, hours)| hours.get(&sequence.to)).collect();
            let holder = if sequence.backward { sequence.to.as_str() } else { container };
            sequence.alone = summary::share_read_alone(&other, holder, &sequence.from);
        }
        sum
    }

    /// `GET workload`. Times are made text by the caller.
    pub fn to_json(&self, recording: bool, time: &dyn Fn(u64) -> String) -> Value {
        let mut operations: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
        for (container, totals) in self.hours.values().flatten() {
            for (operation, counted) in &totals.operations {
                let of_container = operations.entry(container).or_default();
                *of_container.entry(operation_name(*operation)).or_default() += counted.count;
            }
        }
        let operations =
            operations.into_iter().map(|(name, counts)| (name, Value::from(Object::from_iter(counts))));
        let time_or_null = |ms: Option<u64>| ms.map_or(Value::Null, |ms| Value::from(time(ms)));
        Value::from(Object::from_iter([
            ("recording", Value::from(recording)),
            ("from", time_or_null(self.from_ms)),
            ("to", time_or_null(self.from_ms.map(|_| self.to_ms))),
            ("operations", Value::from(Object::from_iter(operations))),
            ("kept", Value::from(self.ring.len() as u64)),
            ("dropped", Value::from(self.dropped)),
            ("shapes", Value::from(self.shapes.len() as u64)),
        ]))
    }

    /// What is stored: the ring, the hours, shapes and growth. What is under way is not.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        (self.ring.len() as u64).put(&mut bytes);
        self.ring.iter().for_each(|record| record.put(&mut bytes));
        self.hours.put(&mut bytes);
        self.shapes.put(&mut bytes);
        self.growth.put(&mut bytes);
        self.from_ms.put(&mut bytes);
        self.to_ms.put(&mut bytes);
        self.dropped.put(&mut bytes);
        self.numbers.put(&mut bytes);
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Workload, CorruptWorkload> {
        let Some((&format @ (FORMAT | FORMAT_1), mut rest)) = bytes.split_first() else {
            return Err(CorruptWorkload);
        };
        let input = &mut rest;
        let ring: VecDeque<Record> = Vec::take(input)?.into();
        let workload = Workload {
            ring_bytes: ring.iter().map(Record::variable_memory).sum(),
            ring,
            hours: Encode::take(input)?,
            shapes: Encode::take(input)?,
            growth: Encode::take(input)?,
            from_ms: Encode::take(input)?,
            to_ms: Encode::take(input)?,
            dropped: Encode::take(input)?,
            numbers: if format == FORMAT { Encode::take(input)? } else { BTreeMap::new() },
            ..Workload::default()
        };
        if input.is_empty() { Ok(workload) } else { Err(CorruptWorkload) }
    }
}

fn hour_of(
    hours: &mut BTreeMap<u64, BTreeMap<String, HourTotals>>,
    time_ms: u64,
) -> &mut BTreeMap<String, HourTotals> {
    hours.entry(time_ms / HOUR_MS).or_default()
}

/// What is noted of a container, whose name is copied only for the first of it.
fn entry_of<'m, V: Default>(all: &'m mut BTreeMap<String, V>, container: &str) -> &'m mut V {
    if !all.contains_key(container) {
        all.insert(container.to_owned(), V::default());
    }
    all.get_mut(container).expect("it was inserted")
}

fn operation_name(number: u8) -> &'static str {
    Operation::ALL.get(usize::from(number)).map_or("", |(_, name)| name)
}

pub(crate) fn operation_number(operation: Operation) -> u8 {
    Operation::ALL.iter().position(|(own, _)| *own == operation).unwrap_or_default() as u8
}
