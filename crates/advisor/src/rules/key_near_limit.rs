//! One value of the partition key comes near the limit of a logical partition.

use crate::array::figure;
use crate::case::Case;
use crate::finding::{Candidate, Severity};

use super::key_skewed::largest;

const NOTE: f64 = 0.5;
const WARNING: f64 = 0.7;
const SERIOUS: f64 = 0.9;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let key = case.key();
    let share = key.largest.bytes as f64 / case.thresholds.key_limit_bytes;
    let severity = match share {
        share if share >= SERIOUS => Severity::Serious,
        share if share >= WARNING => Severity::Warning,
        _ => Severity::Note,
    };
    let title = format!("one partition key of {} is near the limit", case.name());
    let text = "A logical partition may hold 20 GB on Cosmos DB; then writes with that key fail. Add a second level below it in time.";
    case.holds("key-near-limit/share", share >= NOTE)
        .then(|| Candidate {
            path: key.path.clone(),
            evidence: vec![("largest", largest(key)), ("limit", figure(case.thresholds.key_limit_bytes))],
            apply: super::key_unused::rekey_or_steps(case),
            severity: Some(severity),
            examples: case.examples(key.largest_example.iter()),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}
