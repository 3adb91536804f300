//! Totals of a container over the counted hours, for the profile.

use std::collections::{BTreeMap, BTreeSet};

use crate::profile::ArrayGrowth;
use crate::sketch::{Histogram, Summary};

use super::actions::Patterns;
use super::change_sets::ChangeSets;
use super::growth::Growth;
use super::hour::{ExecutionTotals, HourTotals, ItemTotals, add_bounded};
use super::record::Operation;
use super::sequence::SequenceTotals;
use super::shape::QueryShape;

const DAY_MS: f64 = 86_400_000.0;
const KEYS_MAX: usize = 1_000;
const HOT_MAX: usize = 10;
const CREATES_MIN: u64 = 100;

#[derive(Clone, Debug, Default)]
pub struct ContainerWorkload {
    pub from_ms: u64,
    pub to_ms: u64,
    /// Recorded time.
    pub days: f64,
    pub operations: BTreeMap<Operation, OperationTotals>,
    pub writes: WriteTotals,
    pub growth: BTreeMap<String, ArrayGrowth>,
    pub shapes: Vec<ShapeProfile>,
    pub sequences: Vec<SequenceProfile>,
    pub keys: KeyUse,
    pub hot_items: Vec<HotItem>,
    pub lost_updates: u64,
    /// By path: actions, and of those with `If-Match`.
    pub read_modify_write: BTreeMap<String, (u64, u64)>,
    /// Actions by header or trace that write, and those of them that are not atomic.
    pub writing_actions: u64,
    pub not_atomic: u64,
    pub not_atomic_writes: u64,
    /// Example items of lost updates, read-modify-write and actions that are not atomic.
    pub examples: [Option<u64>; 3],
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OperationTotals {
    pub count: u64,
    pub charge: f64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct WriteTotals {
    pub changes: ChangeSets,
    /// Of changed items.
    pub size_before: Summary,
    /// Of new and changed items.
    pub size_after: Summary,
    pub if_match: u64,
    /// Different keys of changed elements.
    pub element_keys: u64,
}

#[derive(Clone, Debug)]
pub struct ShapeProfile {
    pub shape: QueryShape,
    pub totals: QueryTotals,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueryTotals {
    pub count: u64,
    pub charge_sum: f64,
    pub charge: Summary,
    pub rows_read: Summary,
    pub returned: Summary,
    pub refused: u64,
    pub drained: u64,
}

#[derive(Clone, Debug)]
pub struct SequenceProfile {
    /// Path of the reference: of this container, or, backward, of the other one.
    pub from: String,
    pub to: String,
    pub backward: bool,
    pub count: u64,
    /// Of the actions that read this container.
    pub share: f64,
    /// Share of reads of the other container that no such read came before.
    pub alone: f64,
    pub width: Summary,
    pub charge: f64,
    /// Followed reads that read whole items.
    pub whole: u64,
    pub projected: Vec<String>,
}

/// How keys are used.
#[derive(Clone, Debug, Default)]
pub struct KeyUse {
    /// Keys with the largest share of the charge.
    pub hot: Vec<HotKey>,
    /// Key, share of the charge and charge, for each minute with 100 requests or more.
    pub minutes: Vec<(u64, f64, f64)>,
    pub used: u64,
    pub throttled: u64,
    pub throttled_keys: Vec<(u64, u64)>,
    /// For each hour with 100 creates or more the share that went to two keys.
    pub create_hours: Vec<f64>,
    pub moves: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HotKey {
    pub key: u64,
    pub share: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HotItem {
    pub item: u64,
    pub writes: u64,
    pub conflicts: u64,
    /// At its busiest ten seconds.
    pub writes_per_second: f64,
    /// Share of its key's charge.
    pub key_share: f64,
}

impl ContainerWorkload {
    pub fn total_operations(&self) -> u64 {
        self.operations.values().map(|totals| totals.count).sum()
    }

    pub fn total_charge(&self) -> f64 {
        self.operations.values().map(|totals| totals.charge).sum()
    }

    pub fn count(&self, operation: Operation) -> u64 {
        self.operations.get(&operation).map_or(0, |totals| totals.count)
    }

    pub fn charge(&self, operation: Operation) -> f64 {
        self.operations.get(&operation).map_or(0.0, |totals| totals.charge)
    }

    /// Writes of items that were there before.
    pub fn changes(&self) -> u64 {
        self.writes.changes.writes()
    }
}

pub(super) fn sum_up(
    from_ms: u64,
    to_ms: u64,
    hours: &[&HourTotals],
    shapes: &[&QueryShape],
    growth: Option<&Growth>,
) -> ContainerWorkload {
    let days = (to_ms - from_ms) as f64 / DAY_MS;
    let patterns = patterns(hours);
    ContainerWorkload {
        from_ms,
        to_ms,
        days,
        operations: operations(hours),
        writes: writes(hours),
        growth: growth.map(|growth| growth.finish(days)).unwrap_or_default(),
        shapes: shape_profiles(hours, shapes),
        sequences: sequences(hours),
        keys: keys(hours),
        hot_items: hot_items(hours),
        lost_updates: patterns.lost_updates,
        writing_actions: patterns.writing,
        not_atomic: patterns.not_atomic,
        not_atomic_writes: patterns.not_atomic_writes,
        examples: patterns.examples,
        read_modify_write: patterns.read_modify_write,
    }
}

fn operations(hours: &[&HourTotals]) -> BTreeMap<Operation, OperationTotals> {
    let mut found: BTreeMap<Operation, OperationTotals> = BTreeMap::new();
    for (number, counted) in hours.iter().flat_map(|hour| &hour.operations) {
        let Some((operation, _)) = Operation::ALL.get(usize::from(*number)) else { continue };
        let own = found.entry(*operation).or_default();
        own.count += counted.count;
        own.charge += counted.charge;
        own.bytes += counted.bytes;
    }
    found
}

fn writes(hours: &[&HourTotals]) -> WriteTotals {
    let mut totals = WriteTotals::default();
    let (mut before, mut after) = (Histogram::default(), Histogram::default());
    let mut element_keys: BTreeSet<u64> = BTreeSet::new();
    for hour in hours {
        totals.changes.merge(&hour.changes);
        before.merge(&hour.size_before);
        after.merge(&hour.size_after);
        totals.if_match += hour.if_match;
        element_keys.extend(hour.element_keys.keys());
    }
    totals.size_before = before.summary();
    totals.size_after = after.summary();
    totals.element_keys = element_keys.len() as u64;
    totals
}

fn shape_profiles(hours: &[&HourTotals], shapes: &[&QueryShape]) -> Vec<ShapeProfile> {
    let mut found = Vec::new();
    for shape in shapes {
        let mut totals = ExecutionTotals::default();
        hours.iter().filter_map(|hour| hour.shapes.get(&shape.id)).for_each(|hour| totals.merge(hour));
        if totals.count > 0 {
            let totals = QueryTotals {
                count: totals.count,
                charge_sum: totals.charge.sum(),
                charge: totals.charge.summary(),
                rows_read: totals.rows_read.summary(),
                returned: totals.returned.summary(),
                refused: totals.refused,
                drained: totals.drained,
            };
            found.push(ShapeProfile { shape: (*shape).clone(), totals });
        }
    }
    found.sort_by(|one, other| {
        other.totals.charge_sum.total_cmp(&one.totals.charge_sum).then(one.shape.text.cmp(&other.shape.text))
    });
    found
}

fn patterns(hours: &[&HourTotals]) -> Patterns {
    let mut sum = Patterns::default();
    hours.iter().for_each(|hour| sum.add(&hour.patterns));
    sum
}

/// Without `share_read_alone`, which takes the hours of the other container: see [`share_read_alone`].
fn sequences(hours: &[&HourTotals]) -> Vec<SequenceProfile> {
    let mut sum = SequenceTotals::default();
    hours.iter().for_each(|hour| sum.merge(&hour.sequences));
    let profile =
        |((from, to, backward), followed): (&(String, String, bool), &super::sequence::FollowedRead)| {
            SequenceProfile {
                from: from.clone(),
                to: to.clone(),
                backward: *backward,
                count: followed.actions,
                share: followed.actions as f64 / sum.actions.max(1) as f64,
                alone: 0.0,
                width: followed.width.summary(),
                charge: followed.charge,
                whole: followed.whole,
                projected: followed.projected.iter().cloned().collect(),
            }
        };
    sum.followed.iter().map(profile).collect()
}

/// Share of the reads of a container that did not come by a reference.
pub(super) fn share_read_alone(hours: &[&HourTotals], container: &str, path: &str) -> f64 {
    let mut sum = SequenceTotals::default();
    hours.iter().for_each(|hour| sum.merge(&hour.sequences));
    let reached = sum.reached.get(&(container.to_owned(), path.to_owned())).copied().unwrap_or_default();
    1.0 - reached as f64 / sum.reads.max(1) as f64
}

fn keys(hours: &[&HourTotals]) -> KeyUse {
    let mut found = KeyUse::default();
    let mut charges: BTreeMap<u64, f64> = BTreeMap::new();
    let mut throttled: BTreeMap<u64, u64> = BTreeMap::new();
    for hour in hours {
        hour.used_keys.iter().for_each(|(key, charge)| add_bounded(&mut charges, *key, *charge, KEYS_MAX));
        hour.throttled_keys
            .iter()
            .for_each(|(key, count)| add_bounded(&mut throttled, *key, *count, KEYS_MAX));
        found.throttled += hour.throttled;
        found.minutes.extend(&hour.minutes);
        found.moves += hour.key_moves;
        if hour.creates >= CREATES_MIN {
            let mut counts: Vec<u64> = hour.create_keys.values().copied().collect();
            counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
            found.create_hours.push(counts.iter().take(2).sum::<u64>() as f64 / hour.creates as f64);
        }
    }
    let total: f64 =
        hours.iter().flat_map(|hour| hour.operations.values()).map(|counted| counted.charge).sum();
    found.used = charges.len() as u64;
    let mut hot: Vec<HotKey> =
        charges.into_iter().map(|(key, charge)| HotKey { key, share: charge / total.max(1e-9) }).collect();
    hot.sort_by(|one, other| other.share.total_cmp(&one.share));
    hot.truncate(HOT_MAX);
    found.hot = hot;
    found.throttled_keys = throttled.into_iter().collect();
    found.throttled_keys.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    found
}

fn hot_items(hours: &[&HourTotals]) -> Vec<HotItem> {
    let mut items: BTreeMap<u64, ItemTotals> = BTreeMap::new();
    let mut keys: BTreeMap<u64, f64> = BTreeMap::new();
    for hour in hours {
        for (item, totals) in &hour.items {
            let own = items.entry(*item).or_default();
            own.writes += totals.writes;
            own.conflicts += totals.conflicts;
            own.burst = own.burst.max(totals.burst);
            own.charge += totals.charge;
            own.key = totals.key;
        }
        hour.used_keys.iter().for_each(|(key, charge)| *keys.entry(*key).or_default() += charge);
    }
    let hot = |(item, totals): (u64, ItemTotals)| HotItem {
        item,
        writes: totals.writes,
        conflicts: totals.conflicts,
        writes_per_second: totals.burst as f64 / 10.0,
        key_share: totals.charge / keys.get(&totals.key).copied().unwrap_or(totals.charge).max(1e-9),
    };
    let mut found: Vec<HotItem> = items.into_iter().map(hot).collect();
    found.sort_by(|one, other| {
        other.writes_per_second.total_cmp(&one.writes_per_second).then(other.writes.cmp(&one.writes))
    });
    found.truncate(HOT_MAX);
    found
}
