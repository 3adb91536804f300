//! One partition key gets much of the load at a time.

use std::collections::BTreeMap;

use crate::apply::Apply;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const VALUES_MIN: u64 = 50;
const SHARE_MIN: f64 = 0.2;
const MINUTES_MIN: f64 = 0.1;
/// Charge in a minute: 1,000 a second.
const CHARGE_MIN: f64 = 60_000.0;
const THROTTLED_MIN: u64 = 100;
const THROTTLED_SHARE: f64 = 0.8;
const THROTTLED_KEYS: f64 = 0.05;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let (share, minutes) = hottest(case);
    let active = case.workload().keys.minutes.len() as f64;
    let is_hot = minutes > 0
        && case.holds("key-hot/values", case.key().values >= VALUES_MIN)
        && case.holds("key-hot/minutes", f64::from(minutes) >= MINUTES_MIN * active);
    let title = format!("one partition key of {} gets much of the load", case.name());
    let text = "One partition serves it, however many there are. Spread its writes over a suffix, or cache its reads.";
    (is_hot || is_throttled(case))
        .then(|| Candidate {
            path: case.key().path.clone(),
            evidence: vec![("share", figure(share)), ("minutes", figure(f64::from(minutes)))],
            apply: Apply::steps([
                "Writes: add a suffix from 1 to n to the key, made from another property, and query the n keys.",
                "Reads: cache the item, or keep copies under several keys.",
            ]),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}

/// The key that is hot in most minutes: its largest share, and how many.
fn hottest(case: &Case<'_>) -> (f64, u32) {
    let mut keys: BTreeMap<u64, (f64, u32)> = BTreeMap::new();
    for (key, share, charge) in &case.workload().keys.minutes {
        let is_hot = case.holds("key-hot/share", *share > SHARE_MIN)
            && case.holds("key-hot/charge", *charge >= CHARGE_MIN);
        if is_hot {
            let own = keys.entry(*key).or_default();
            *own = (own.0.max(*share), own.1 + 1);
        }
    }
    keys.into_values().max_by_key(|(_, minutes)| *minutes).unwrap_or_default()
}

fn is_throttled(case: &Case<'_>) -> bool {
    let keys = &case.workload().keys;
    let few = ((case.key().values as f64 * THROTTLED_KEYS).ceil() as usize).max(1);
    let on_few: u64 = keys.throttled_keys.iter().take(few).map(|(_, count)| count).sum();
    keys.throttled > 0
        && case.holds("key-hot/values", case.key().values >= VALUES_MIN)
        && case.holds("key-hot/throttled", keys.throttled >= THROTTLED_MIN)
        && case.holds("key-hot/throttled-keys", on_few as f64 >= THROTTLED_SHARE * keys.throttled as f64)
}
