//! Items carry their own past versions.

use quire_profile::{ArrayProfile, TypeProfile};

use crate::array::{figure, last_name, quantiles};
use crate::case::Case;
use crate::finding::Candidate;

const LENGTH_MIN: f64 = 50.0;
const SHARED_MIN: f64 = 0.7;
const NAMES_MIN: usize = 4;
const NAMES: [&str; 5] = ["history", "versions", "revisions", "changes", "audit"];

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let arrays = case.types().flat_map(|kind| kind.arrays.iter().map(move |array| (kind, array)));
    arrays
        .filter(|(kind, array)| fires(case, kind, array))
        .map(|(kind, array)| found(case, kind, array))
        .collect()
}

fn fires(case: &Case<'_>, kind: &TypeProfile, array: &ArrayProfile) -> bool {
    let name = last_name(&array.path).to_lowercase();
    let is_like_item = array.element_names.len() >= NAMES_MIN && shared(kind, array) >= SHARED_MIN;
    let is_named = NAMES.contains(&name.as_str()) && array.element_date;
    case.is_growing(array)
        && case.holds("history-in-item/length", array.length.p99 >= LENGTH_MIN)
        && case.holds("history-in-item/history", is_like_item || is_named)
        && case.is_unbounded(array)
}

/// Share of the elements' names that the item has, too.
fn shared(kind: &TypeProfile, array: &ArrayProfile) -> f64 {
    let both = array.element_names.iter().filter(|name| kind.properties.contains(name)).count();
    both as f64 / array.element_names.len().max(1) as f64
}

fn found(case: &Case<'_>, kind: &TypeProfile, array: &ArrayProfile) -> Candidate {
    let name = last_name(&array.path);
    let title = format!("items of {} carry their {name}", case.name());
    let text = "The past is read and written with every use of the present. Keep the current state on the item and the past in pages.";
    let growth = array.growth.unwrap_or_default();
    Candidate {
        evidence: vec![
            ("length", quantiles(&array.length, &["p50", "p99", "max"])),
            ("growing", figure(growth.growing)),
            ("sharedNames", figure(shared(kind, array))),
        ],
        limit_days: case.days_to_limit(kind, array),
        ..case.split_candidate(kind, array, title, text.to_owned())
    }
}
