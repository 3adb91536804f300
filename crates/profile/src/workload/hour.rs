//! Totals of one hour of one container. All of it can be added up.

use std::collections::BTreeMap;

use crate::sketch::Histogram;

use super::actions::Patterns;
use super::change_sets::ChangeSets;
use super::operation_number;
use super::record::{Operation, Record};
use super::sequence::SequenceTotals;

/// Keys and items whose totals are kept.
const KEYS_MAX: usize = 1_000;
const ITEMS_MAX: usize = 2_000;
/// Distinct keys of elements that were changed.
const ELEMENT_KEYS_MAX: usize = 4_096;

const TOO_MANY_REQUESTS: u16 = 429;
const CONFLICTS: [u16; 2] = [412, 449];
/// A replace that would move an item to another partition key.
const KEY_CHANGED: (u16, u32) = (400, 1001);

#[derive(Clone, Debug, Default)]
pub(crate) struct HourTotals {
    pub operations: BTreeMap<u8, OperationCount>,
    pub changes: ChangeSets,
    pub size_before: Histogram,
    pub size_after: Histogram,
    pub shapes: BTreeMap<u64, ExecutionTotals>,
    pub creates: u64,
    pub create_keys: BTreeMap<u64, u64>,
    pub throttled: u64,
    pub throttled_keys: BTreeMap<u64, u64>,
    pub used_keys: BTreeMap<u64, f64>,
    pub items: BTreeMap<u64, ItemTotals>,
    pub element_keys: BTreeMap<u64, u64>,
    pub if_match: u64,
    /// The key with most of the charge, for each minute with enough requests.
    pub minutes: Vec<(u64, f64, f64)>,
    pub key_moves: u64,
    pub patterns: Patterns,
    pub sequences: SequenceTotals,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OperationCount {
    pub count: u64,
    pub charge: f64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ExecutionTotals {
    pub count: u64,
    pub charge: Histogram,
    pub rows_read: Histogram,
    pub returned: Histogram,
    pub refused: u64,
    pub drained: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ItemTotals {
    pub writes: u64,
    pub conflicts: u64,
    /// Most writes within ten seconds.
    pub burst: u64,
    pub charge: f64,
    pub key: u64,
}

impl HourTotals {
    pub fn add(&mut self, record: &Record) {
        let weight = u64::from(record.weight.max(1));
        let counted = self.operations.entry(operation_number(record.operation)).or_default();
        counted.count += weight;
        counted.charge += record.charge * weight as f64;
        counted.bytes += record.bytes * weight;
        self.add_key(record, weight);
        if (record.status, record.sub_status) == KEY_CHANGED && record.operation == Operation::Replace {
            self.key_moves += weight;
        }
        if record.is_success() {
            self.add_write(record, weight);
        }
        self.add_item(record, weight);
    }

    fn add_key(&mut self, record: &Record, weight: u64) {
        let Some(key) = record.partition_key else { return };
        add_bounded(&mut self.used_keys, key, record.charge * weight as f64, KEYS_MAX);
        if record.status == TOO_MANY_REQUESTS {
            self.throttled += weight;
            add_bounded(&mut self.throttled_keys, key, weight, KEYS_MAX);
        }
        if record.operation == Operation::Create && record.is_success() {
            self.creates += weight;
            add_bounded(&mut self.create_keys, key, weight, KEYS_MAX);
        }
    }

    fn add_write(&mut self, record: &Record, weight: u64) {
        let Some(change) = &record.change else { return };
        if let Some(size) = change.size_after {
            self.size_after.add_many(size as f64, weight);
        }
        let (Some(size), true) = (change.size_before, record.operation != Operation::Delete) else { return };
        self.size_before.add_many(size as f64, weight);
        self.changes.add(&change.paths, weight);
        self.if_match += if change.if_match { weight } else { 0 };
        for key in &change.element_keys {
            add_bounded(&mut self.element_keys, *key, weight, ELEMENT_KEYS_MAX);
        }
    }

    fn add_item(&mut self, record: &Record, weight: u64) {
        let (Some(item), true) = (record.item, record.operation.is_write()) else { return };
        if self.items.len() >= ITEMS_MAX && !self.items.contains_key(&item) {
            let least = self.items.values().map(|totals| totals.writes).min().unwrap_or_default();
            self.items.retain(|_, totals| totals.writes > least);
        }
        let totals = self.items.entry(item).or_default();
        totals.writes += weight;
        totals.conflicts += if CONFLICTS.contains(&record.status) { weight } else { 0 };
        totals.charge += record.charge * weight as f64;
        totals.key = record.partition_key.unwrap_or_default();
    }

    pub fn add_execution(&mut self, record: &Record) {
        let Some(query) = &record.query else { return };
        let weight = u64::from(record.weight.max(1));
        let totals = self.shapes.entry(query.shape).or_default();
        totals.count += weight;
        if query.refused {
            totals.refused += weight;
            return;
        }
        totals.charge.add_many(record.charge, weight);
        totals.rows_read.add_many(query.rows_read as f64, weight);
        totals.returned.add_many(query.returned as f64, weight);
        totals.drained += if query.is_last { weight } else { 0 };
    }

    pub fn burst(&mut self, item: u64, writes: u64) {
        if let Some(totals) = self.items.get_mut(&item) {
            totals.burst = totals.burst.max(writes);
        }
    }
}

impl ExecutionTotals {
    pub fn merge(&mut self, other: &ExecutionTotals) {
        self.count += other.count;
        self.charge.merge(&other.charge);
        self.rows_read.merge(&other.rows_read);
        self.returned.merge(&other.returned);
        self.refused += other.refused;
        self.drained += other.drained;
    }
}

/// Adds to a key's total. When there are too many keys, the smaller half goes.
pub(super) fn add_bounded<V>(totals: &mut BTreeMap<u64, V>, key: u64, value: V, keys_max: usize)
where
    V: std::ops::AddAssign + Default + PartialOrd + Copy,
{
    *totals.entry(key).or_default() += value;
    if totals.len() > keys_max {
        let mut values: Vec<V> = totals.values().copied().collect();
        values.sort_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
        let middle = values[values.len() / 2];
        let (mut equal, half) = (0, keys_max / 2);
        totals.retain(|_, value| {
            equal += usize::from(*value == middle);
            *value > middle || *value == middle && equal <= half
        });
    }
}
