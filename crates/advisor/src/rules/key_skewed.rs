//! One value of the partition key holds much of the data.

use quire_value::Value;

use crate::apply::object;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const VALUES_MIN: u64 = 100;
const SHARE_MAX: f64 = 0.2;
const GINI_MAX: f64 = 0.8;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let key = case.key();
    let is_one = case.holds("key-skewed/values", key.values >= VALUES_MIN)
        && case.holds("key-skewed/share", key.largest.share > SHARE_MAX);
    let is_uneven = case.holds("key-skewed/gini", key.gini > GINI_MAX);
    let fires = case.holds("key-skewed/bytes", key.largest.bytes as f64 >= case.thresholds.key_small_bytes)
        && (is_one || is_uneven);
    let title = format!("one partition key of {} holds much of the data", case.name());
    let text = "A partition key cannot be split over partitions. Add a second level below it, or take another property.";
    fires
        .then(|| Candidate {
            path: key.path.clone(),
            evidence: vec![
                ("values", figure(key.values as f64)),
                ("largest", largest(key)),
                ("gini", figure(key.gini)),
            ],
            apply: super::key_unused::rekey_or_steps(case),
            examples: case.examples(key.largest_example.iter()),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}

pub fn largest(key: &quire_profile::KeyProfile) -> Value {
    object([
        ("items", Value::from(key.largest.items)),
        ("bytes", Value::from(key.largest.bytes)),
        ("share", figure(key.largest.share)),
    ])
}
