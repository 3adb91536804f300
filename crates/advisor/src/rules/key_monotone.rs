//! The partition key follows time, so that all writes go to the newest value.

use crate::apply::Apply;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const CORRELATION_MIN: f64 = 0.95;
const DATES_MIN: f64 = 0.95;
const VALUES_MIN: u64 = 20;
const HOURS_MIN: f64 = 0.5;
const SHARE_MIN: f64 = 0.9;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let key = case.key();
    let hours = &case.workload().keys.create_hours;
    let narrow = hours.iter().filter(|share| **share >= SHARE_MIN).count() as f64;
    let is_time = key.order.dates >= DATES_MIN || key.order.correlation >= CORRELATION_MIN;
    let fires = case.holds("key-monotone/time", is_time)
        && case.holds("key-monotone/values", key.values >= VALUES_MIN)
        && !hours.is_empty()
        && case.holds("key-monotone/hours", narrow >= HOURS_MIN * hours.len() as f64);
    let title = format!("the partition key of {} follows time", case.name());
    let text = "New items all go to one partition while the others rest. Take what the items belong to as the key, and keep time as a \
                property, or as a second level.";
    let share = hours.iter().sum::<f64>() / hours.len().max(1) as f64;
    fires
        .then(|| Candidate {
            path: key.path.clone(),
            evidence: vec![("correlation", figure(key.order.correlation)), ("share", figure(share))],
            apply: match super::key_unused::candidate(case) {
                Some((path, _)) => case.rekey(&path),
                None => Apply::steps([
                    "Choose a property that names what items belong to.",
                    "Rekey the container to it.",
                ]),
            },
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}
