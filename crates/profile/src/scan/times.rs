//! Times that rise within a key, in the order in which items were made: readings, events, messages.

use std::collections::{BTreeMap, HashMap};

use quire_value::{Kind, Node};

use crate::profile::TimeSeries;
use crate::sketch::{Histogram, text_hash};

use super::{ItemInput, text};

/// Keys whose last time is kept.
const KEYS_MAX: usize = 10_000;
const PATHS_MAX: usize = 8;

#[derive(Clone, Debug, Default)]
pub(super) struct TimeScan {
    paths: BTreeMap<Box<str>, Series>,
}

#[derive(Clone, Debug, Default)]
struct Series {
    last: HashMap<u64, f64>,
    gaps: Histogram,
    rising: u64,
    steps: u64,
}

impl TimeScan {
    pub fn add(&mut self, input: ItemInput<'_>) {
        let key = text_hash(input.partition_key.to_header().as_bytes());
        for (name, value) in input.item.members().filter(|(name, _)| !name.starts_with('_')) {
            let Some(time) = time_of(value) else { continue };
            if !self.paths.contains_key(name) && self.paths.len() >= PATHS_MAX {
                continue;
            }
            self.paths.entry(name.into()).or_default().add(key, time);
        }
    }

    /// About how much memory it holds.
    pub fn held_bytes(&self) -> usize {
        const ENTRY_BYTES: usize = 32;
        self.paths.values().map(|series| series.last.len() * ENTRY_BYTES + series.gaps.held_bytes()).sum()
    }

    pub fn merge(&mut self, other: &TimeScan) {
        for (name, series) in &other.paths {
            let own = self.paths.entry(name.clone()).or_default();
            own.gaps.merge(&series.gaps);
            own.rising += series.rising;
            own.steps += series.steps;
        }
    }

    pub fn finish(&self) -> Vec<TimeSeries> {
        let found = self.paths.iter().filter(|(_, series)| series.steps > 0);
        found
            .map(|(name, series)| TimeSeries {
                path: crate::path::join("", name),
                rising: series.rising as f64 / series.steps as f64,
                gap_seconds: series.gaps.summary(),
            })
            .collect()
    }
}

impl Series {
    fn add(&mut self, key: u64, time: f64) {
        if let Some(last) = self.last.get_mut(&key) {
            self.steps += 1;
            self.rising += u64::from(time >= *last);
            self.gaps.add((time - *last).abs());
            *last = time;
        } else if self.last.len() < KEYS_MAX {
            self.last.insert(key, time);
        }
    }
}

/// Seconds since the epoch of an ISO date or of a number that looks like one.
fn time_of(value: Node<'_>) -> Option<f64> {
    match value.kind() {
        Kind::String => text::seconds(value.as_text()?),
        Kind::Number => match value.as_number()?.as_f64() {
            seconds @ 1e9..4e9 => Some(seconds),
            milliseconds @ 1e12..4e12 => Some(milliseconds / 1_000.0),
            _ => None,
        },
        _ => None,
    }
}
