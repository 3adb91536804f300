//! Partition keys: how many, how even, whether they follow time.

use std::collections::HashMap;

use datasketches::frequencies::{ErrorType, FrequentItemsSketch};
use quire_resource::{Component, PartitionKey};
use quire_value::{Value, key};

use crate::profile::{ItemExample, KeyOrder, KeyProfile, Kinds, Largest};
use crate::sketch::{Distinct, DistinctSample, text_hash};

use super::text;

/// Keys whose totals are kept; above, every second one is let go of, by its hash.
const TOTALS_MAX: usize = 100_000;
const HEAVY_MAX: usize = 4_096;
/// Keys whose order is compared with time.
const ORDERED_MAX: usize = 512;
const ORDERED_MIN: usize = 20;

#[derive(Clone, Debug)]
pub(super) struct KeyScan {
    distinct: Distinct,
    totals: Totals,
    heavy: FrequentItemsSketch<u64>,
    kinds: Kinds,
    absent: u64,
    items: u64,
    order: DistinctSample<OrderedKey>,
    dates: u64,
    largest: Option<(u64, ItemExample)>,
    uncommon: Option<ItemExample>,
    /// The kind of the first key.
    usual: Option<Option<std::mem::Discriminant<Component>>>,
}

#[derive(Clone, Debug)]
struct OrderedKey {
    sort: Vec<u8>,
    first_ts: u64,
}

/// Totals of a uniform sample of the keys, or of all.
#[derive(Clone, Debug)]
struct Totals {
    threshold: u64,
    keys: HashMap<u64, (u64, u64)>,
}

impl Default for KeyScan {
    fn default() -> KeyScan {
        KeyScan {
            distinct: Distinct::default(),
            totals: Totals { threshold: u64::MAX, keys: HashMap::new() },
            heavy: FrequentItemsSketch::new(HEAVY_MAX).expect("a power of two"),
            kinds: Kinds::default(),
            absent: 0,
            items: 0,
            order: DistinctSample::new(ORDERED_MAX),
            dates: 0,
            largest: None,
            uncommon: None,
            usual: None,
        }
    }
}

impl KeyScan {
    pub fn add(
        &mut self,
        partition_key: &PartitionKey,
        bytes: u64,
        ts: u64,
        example: &dyn Fn() -> ItemExample,
    ) {
        let first = partition_key.0.first();
        let hash = component_hash(first);
        self.items += 1;
        self.distinct.add(hash);
        self.totals.add(hash, bytes);
        self.heavy.update_with_count(hash, bytes.max(1));
        self.count_kind(first, example);
        self.dates += u64::from(is_date(first));
        self.order.add(hash, || OrderedKey { sort: sort_key(first), first_ts: ts });
        self.update_largest(hash, example);
    }

    fn update_largest(&mut self, hash: u64, example: &dyn Fn() -> ItemExample) {
        let weight = self.heavy.estimate(&hash);
        if self.largest.as_ref().is_none_or(|(largest, _)| weight > largest * 2) {
            self.largest = Some((weight, example()));
        }
    }

    fn count_kind(&mut self, component: Option<&Component>, example: &dyn Fn() -> ItemExample) {
        match component {
            Some(Component::String(_)) => self.kinds.string += 1,
            Some(Component::Number(_)) => self.kinds.number += 1,
            Some(Component::Bool(_)) => self.kinds.bool += 1,
            Some(Component::Null) => self.kinds.null += 1,
            _ => self.absent += 1,
        }
        let kind = component.map(std::mem::discriminant);
        let usual = *self.usual.get_or_insert(kind);
        if kind != usual && self.uncommon.is_none() {
            self.uncommon = Some(example());
        }
    }

    pub fn merge(&mut self, other: &KeyScan) {
        self.distinct.merge(&other.distinct);
        self.totals.merge(&other.totals);
        self.heavy.merge(&other.heavy);
        self.kinds.add(&other.kinds);
        self.absent += other.absent;
        self.items += other.items;
        self.dates += other.dates;
        self.order.merge(&other.order);
        self.uncommon = self.uncommon.take().or_else(|| other.uncommon.clone());
        if other.largest.as_ref().map(|largest| largest.0) > self.largest.as_ref().map(|largest| largest.0) {
            self.largest = other.largest.clone();
        }
    }

    /// About how much memory it holds.
    pub fn held_bytes(&self) -> usize {
        const TOTAL_BYTES: usize = 48;
        const HEAVY_BYTES: usize = 32;
        let sketches = self.distinct.held_bytes() + self.order.len() * super::TEXT_ENTRY_BYTES;
        self.totals.keys.len() * TOTAL_BYTES + HEAVY_MAX * HEAVY_BYTES + sketches
    }

    /// `scale` is how many items stand behind each that was scanned.
    pub fn finish(&self, path: String, scanned_bytes: u64, scale: f64) -> KeyProfile {
        let (items, bytes) = self.largest();
        let scaled = |count: u64| (count as f64 * scale).round() as u64;
        KeyProfile {
            path,
            values: self.distinct.estimate(),
            largest: Largest {
                items: scaled(items),
                bytes: scaled(bytes),
                share: bytes as f64 / scanned_bytes.max(1) as f64,
            },
            gini: self.totals.gini(),
            kinds: self.kinds,
            absent: self.absent as f64 / self.items.max(1) as f64,
            order: KeyOrder {
                dates: self.dates as f64 / self.items.max(1) as f64,
                correlation: self.correlation(),
            },
            odd_example: self.uncommon.clone(),
            largest_example: self.largest.as_ref().map(|(_, example)| example.clone()),
            smallest_bytes: self.totals.keys.values().map(|(_, bytes)| *bytes).min().unwrap_or_default(),
        }
    }

    fn largest(&self) -> (u64, u64) {
        let counted = self.totals.keys.values().max_by_key(|(_, bytes)| *bytes).copied().unwrap_or_default();
        let heavy = self.heavy.frequent_items(ErrorType::NoFalsePositives);
        let heaviest = heavy.iter().map(|row| row.lower_bound()).max().unwrap_or_default();
        match heaviest > counted.1 {
            true => {
                ((self.items * heaviest).checked_div(self.heavy.total_weight()).unwrap_or_default(), heaviest)
            }
            false => counted,
        }
    }

    /// Spearman's, between the order of keys and the times of their first items.
    fn correlation(&self) -> f64 {
        if self.order.len() < ORDERED_MIN {
            return 0.0;
        }
        let mut keys: Vec<&OrderedKey> = self.order.iter().map(|(_, key)| key).collect();
        keys.sort_by(|one, other| one.sort.cmp(&other.sort));
        let times = ranks(&keys.iter().map(|key| key.first_ts).collect::<Vec<_>>());
        let places: Vec<f64> = (0..keys.len()).map(|place| place as f64).collect();
        pearson(&places, &times)
    }
}

impl Totals {
    fn add(&mut self, hash: u64, bytes: u64) {
        if hash > self.threshold {
            return;
        }
        let entry = self.keys.entry(hash).or_default();
        *entry = (entry.0 + 1, entry.1 + bytes);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.keys.len() > TOTALS_MAX {
            self.threshold /= 2;
            let threshold = self.threshold;
            self.keys.retain(|hash, _| *hash <= threshold);
        }
    }

    fn merge(&mut self, other: &Totals) {
        self.threshold = self.threshold.min(other.threshold);
        let threshold = self.threshold;
        self.keys.retain(|hash, _| *hash <= threshold);
        for (hash, (items, bytes)) in other.keys.iter().filter(|(hash, _)| **hash <= threshold) {
            let entry = self.keys.entry(*hash).or_default();
            *entry = (entry.0 + items, entry.1 + bytes);
        }
        self.shrink();
    }

    fn gini(&self) -> f64 {
        let mut bytes: Vec<f64> = self.keys.values().map(|(_, bytes)| *bytes as f64).collect();
        bytes.sort_by(f64::total_cmp);
        let (count, total) = (bytes.len() as f64, bytes.iter().sum::<f64>());
        if total == 0.0 {
            return 0.0;
        }
        let weighted: f64 = bytes.iter().zip(1u32..).map(|(bytes, rank)| bytes * f64::from(rank)).sum();
        (2.0 * weighted / (count * total) - (count + 1.0) / count).max(0.0)
    }
}

impl Kinds {
    pub(crate) fn add(&mut self, other: &Kinds) {
        self.null += other.null;
        self.bool += other.bool;
        self.number += other.number;
        self.string += other.string;
        self.array += other.array;
        self.object += other.object;
    }
}

fn component_hash(component: Option<&Component>) -> u64 {
    text_hash(&sort_key(component))
}

fn sort_key(component: Option<&Component>) -> Vec<u8> {
    let mut bytes = Vec::new();
    key::encode_sort(&component.map_or(Value::Undefined, Component::to_value), &mut bytes);
    bytes
}

fn is_date(component: Option<&Component>) -> bool {
    match component {
        Some(Component::String(text)) => {
            text::date(text.as_bytes()).is_some() || is_month_or_hour(text.as_bytes())
        }
        _ => false,
    }
}

/// `2026-11`, `20261117`, `2026-11-17T09`
fn is_month_or_hour(text: &[u8]) -> bool {
    let digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    let begins = |text: &[u8]| text.starts_with(b"20") || text.starts_with(b"19");
    match text.len() {
        7 => begins(text) && digits(&text[..4]) && text[4] == b'-' && digits(&text[5..]),
        8 => begins(text) && digits(text) && text[4] <= b'1' && text[6] <= b'3',
        13 => begins(text) && text::date(&text[..10]).is_some() && digits(&text[11..]),
        _ => false,
    }
}

/// Equal values share the mean of their ranks.
fn ranks(values: &[u64]) -> Vec<f64> {
    let mut places: Vec<usize> = (0..values.len()).collect();
    places.sort_by_key(|place| values[*place]);
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < places.len() {
        let value = values[places[start]];
        let end = start + places[start..].iter().take_while(|place| values[**place] == value).count();
        let mean = (start + end - 1) as f64 / 2.0;
        places[start..end].iter().for_each(|place| ranks[*place] = mean);
        start = end;
    }
    ranks
}

fn pearson(one: &[f64], other: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (one_mean, other_mean) = (mean(one), mean(other));
    let product = |a: &[f64], am: f64, b: &[f64], bm: f64| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - am) * (b - bm)).sum()
    };
    let variance = product(one, one_mean, one, one_mean) * product(other, other_mean, other, other_mean);
    if variance == 0.0 { 0.0 } else { product(one, one_mean, other, other_mean) / variance.sqrt() }
}
