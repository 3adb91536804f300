//! One item is written by many at once.

use quire_profile::HotItem;

use crate::apply::Apply;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const RATE_MIN: f64 = 10.0;
const CONFLICTS_MIN: f64 = 0.1;
const WRITES_MIN: u64 = 1_000;
const KEY_SHARE_MIN: f64 = 0.8;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let Some(hot) = case.workload().hot_items.iter().find(|hot| fires(case, hot)) else { return Vec::new() };
    let title = format!("one item of {} is written by many at once", case.name());
    let text = "Writes of one item wait for each other or fail. Split a counter into several items and add them up, or collect changes.";
    vec![Candidate {
        evidence: vec![("item", figure(hot.item as f64)), ("writesPerSecond", figure(hot.writes_per_second))],
        example_items: vec![hot.item],
        apply: Apply::steps([
            "Counters: write to one of several items, chosen at random, and read their sum.",
            "State: collect changes for a second and write once.",
        ]),
        explains_key: case.holds("contended-item/key", hot.key_share >= KEY_SHARE_MIN),
        ..case.about_container(title, text.to_owned())
    }]
}

fn fires(case: &Case<'_>, hot: &HotItem) -> bool {
    let is_fast = case.holds("contended-item/rate", hot.writes_per_second > RATE_MIN);
    let conflicts = hot.conflicts as f64 / hot.writes.max(1) as f64;
    let is_refused = case.holds("contended-item/writes", hot.writes >= WRITES_MIN)
        && case.holds("contended-item/conflicts", conflicts > CONFLICTS_MIN);
    is_fast || is_refused
}
