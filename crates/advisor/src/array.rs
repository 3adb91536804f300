//! What rules about arrays have in common.

use quire_profile::{ArrayProfile, Summary, TypeProfile};
use quire_value::{Object, Value};

use crate::case::Case;
use crate::finding::{Candidate, Effect};
use crate::price;

/// Elements that a window keeps, and those of a page that is half full.
const WINDOW_ELEMENTS: f64 = 3.0;
const PAGE_ELEMENTS: f64 = 50.0;

pub const VERSIONED_MIN: u64 = 20;
pub const GROWING_MIN: f64 = 0.2;
pub const PLATEAU_MIN: f64 = 0.05;

impl Case<'_> {
    /// Of 20 or more items with three recorded versions, a fifth grew twice or more and never shrank.
    pub fn is_growing(&self, array: &ArrayProfile) -> bool {
        array.growth.is_some_and(|growth| {
            self.holds("growing/versioned", growth.versioned >= VERSIONED_MIN)
                && self.holds("growing/share", growth.growing >= GROWING_MIN)
        })
    }

    /// Many arrays are as long as the longest: something bounds them.
    pub fn is_unbounded(&self, array: &ArrayProfile) -> bool {
        self.holds("growing/plateau", array.at_max() < PLATEAU_MIN)
    }

    /// Days until the largest items reach the limit, at the present rate.
    pub fn days_to_limit(&self, kind: &TypeProfile, array: &ArrayProfile) -> Option<f64> {
        let bytes = self.per_day(array.growth?.per_item) * array.element_bytes;
        (bytes > 0.0).then(|| ((self.thresholds.item_limit_bytes - kind.size.p99) / bytes).max(0.0))
    }

    /// What a window of three elements and pages of 100 save.
    pub fn split_effect(&self, array: &ArrayProfile) -> Effect {
        let moved = (array.length.mean - WINDOW_ELEMENTS).max(0.0);
        let (size, values) = (self.changed_size(), self.values());
        let (moved_bytes, moved_values) = (moved * array.element_bytes, moved * array.indexed_values);
        let then_size = (size - moved_bytes).max(0.0);
        let then_values = (values - moved_values).max(0.0);
        let writes = self.per_day(self.workload().writes.changes.touching(&array.path) as f64);
        let page = price::replace(PAGE_ELEMENTS * array.element_bytes, PAGE_ELEMENTS * array.indexed_values);
        let write = price::replace(size, values) - price::replace(then_size, then_values) - page;
        let mean = self.profile.mean_size();
        let read = price::read(mean) - price::read((mean - moved_bytes).max(0.0));
        let reads = self.reads_per_day();
        let now = writes * price::replace(size, values) + reads * price::read(mean);
        self.effect(now, writes * write + reads * read)
    }

    /// A finding whose refactoring is `split-array`.
    pub fn split_candidate(
        &self,
        kind: &TypeProfile,
        array: &ArrayProfile,
        title: String,
        text: String,
    ) -> Candidate {
        let has_id = array.element_names.iter().any(|name| name == "id");
        Candidate {
            path: array.path.clone(),
            title,
            text,
            examples: self.examples(array.longest.iter().chain(&kind.examples)),
            effect: self.split_effect(array),
            apply: self.split_array(&array.path, has_id),
            items: Some(kind.count),
            ..Candidate::default()
        }
    }
}

/// The name of an array for a title.
pub fn last_name(path: &str) -> String {
    quire_profile::names(path).into_iter().rfind(|name| name != "*").unwrap_or_default()
}

pub fn quantiles(summary: &Summary, wanted: &[&str]) -> Value {
    let value = |name: &str| match name {
        "p50" => summary.p50,
        "p90" => summary.p90,
        "p95" => summary.p95,
        "p99" => summary.p99,
        _ => summary.max,
    };
    Value::from(Object::from_iter(wanted.iter().map(|name| (*name, figure(value(name))))))
}

/// Four digits behind the point; whole numbers without one.
pub fn figure(value: f64) -> Value {
    let rounded = (value * 10_000.0).round() / 10_000.0;
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        Value::from(rounded as i64)
    } else {
        Value::from(rounded)
    }
}
