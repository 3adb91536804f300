//! The partition key has too few values to spread over partitions.

use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const PER_PARTITION_MIN: f64 = 10.0;
const VALUES_MIN: f64 = 100.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let values = case.key().values as f64;
    let p = case.partitions();
    let is_spread = case.holds("key-few-values/several", p >= 2.0)
        && case.holds("key-few-values/partitions", values < PER_PARTITION_MIN * p);
    let bytes = case.profile.items.bytes as f64;
    let is_large = case.holds("key-few-values/bytes", bytes >= case.thresholds.key_small_bytes)
        && case.holds("key-few-values/values", values < VALUES_MIN);
    let title = format!("the partition key of {} has few values", case.name());
    let text = "All items of one value are on one partition, so that data and load cannot spread. Take a property with thousands of values.";
    (is_spread || is_large)
        .then(|| Candidate {
            path: case.key().path.clone(),
            evidence: vec![("values", figure(values)), ("partitions", figure(p))],
            apply: super::key_unused::rekey_or_steps(case),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}
