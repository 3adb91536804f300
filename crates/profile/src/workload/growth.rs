//! Lengths of arrays over the recorded versions of items.

use std::collections::BTreeMap;

use crate::profile::ArrayGrowth;

use super::record::Record;

/// Pairs of item and array that are followed in one container.
const FOLLOWED_MAX: usize = 20_000;
const VERSIONS_MIN: u64 = 3;
const GREW_MIN: u64 = 2;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Growth {
    pub items: BTreeMap<(String, u64), Versions>,
    pub versions: BTreeMap<u64, u64>,
}

/// Of one array of one item.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Versions {
    pub grew: u64,
    pub shrank: u64,
    pub added: u64,
    pub first_ms: u64,
    pub last_ms: u64,
}

impl Growth {
    pub fn add(&mut self, record: &Record) {
        let (Some(item), Some(change)) = (record.item, &record.change) else { return };
        if self.versions.len() < FOLLOWED_MAX || self.versions.contains_key(&item) {
            *self.versions.entry(item).or_default() += 1;
        }
        for length in &change.lengths {
            let key = (length.path.clone(), item);
            if self.items.len() >= FOLLOWED_MAX && !self.items.contains_key(&key) {
                continue;
            }
            let versions = self.items.entry(key).or_default();
            if versions.grew + versions.shrank == 0 {
                versions.first_ms = record.time_ms;
            }
            versions.last_ms = record.time_ms;
            versions.grew += u64::from(length.after > length.before);
            versions.shrank += u64::from(length.after < length.before);
            versions.added += length.after.saturating_sub(length.before);
        }
    }

    /// For each array. `days` is the recorded time.
    pub fn finish(&self, days: f64) -> BTreeMap<String, ArrayGrowth> {
        let versioned: Vec<u64> = self
            .versions
            .iter()
            .filter(|(_, count)| **count + 1 >= VERSIONS_MIN)
            .map(|(item, _)| *item)
            .collect();
        let writes: u64 = self.versions.values().sum();
        let mut found: BTreeMap<String, ArrayGrowth> = BTreeMap::new();
        let mut added: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for ((path, item), versions) in &self.items {
            let growth = found.entry(path.clone()).or_default();
            let sums = added.entry(path).or_default();
            *sums = (sums.0 + versions.added, sums.1 + 1);
            if versioned.binary_search(item).is_ok() {
                growth.growing += f64::from(u8::from(versions.grew >= GREW_MIN && versions.shrank == 0));
                growth.shrinking += f64::from(u8::from(versions.shrank > 0));
            }
        }
        for (path, growth) in &mut found {
            let (sum, items) = added.get(path.as_str()).copied().unwrap_or_default();
            growth.versioned = versioned.len() as u64;
            growth.growing /= (versioned.len().max(1)) as f64;
            growth.shrinking /= (versioned.len().max(1)) as f64;
            growth.per_write = sum as f64 / writes.max(1) as f64;
            growth.per_item = sum as f64 / items.max(1) as f64;
            growth.per_day = growth.per_item / days.max(1.0 / 24.0);
        }
        found
    }
}
