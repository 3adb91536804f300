//! An array grows with every use of its item.

use quire_profile::{ArrayProfile, ElementKind, TypeProfile};

use crate::array::{figure, last_name, quantiles};
use crate::case::Case;
use crate::finding::Candidate;

const LENGTH_MIN: f64 = 100.0;
const SIZE_MIN: f64 = 200.0 * 1_024.0;
/// Scalars take little room.
const SCALARS_MAX: f64 = 1_000.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let arrays = case.types().flat_map(|kind| kind.arrays.iter().map(move |array| (kind, array)));
    arrays
        .filter(|(kind, array)| fires(case, kind, array))
        .map(|(kind, array)| found(case, kind, array))
        .collect()
}

fn fires(case: &Case<'_>, kind: &TypeProfile, array: &ArrayProfile) -> bool {
    let limit = case.days_to_limit(kind, array).is_some_and(|days| days <= case.thresholds.days_ahead);
    let is_long = array.length.p99 >= LENGTH_MIN;
    let is_small =
        matches!(array.element, ElementKind::Number | ElementKind::Bool) && array.length.max < SCALARS_MAX;
    case.is_growing(array)
        && case.holds("unbounded-array/large", is_long || kind.size.p95 >= SIZE_MIN || limit)
        && case.holds("unbounded-array/scalars", !is_small)
        && case.is_unbounded(array)
}

fn found(case: &Case<'_>, kind: &TypeProfile, array: &ArrayProfile) -> Candidate {
    let name = last_name(&array.path);
    let growth = array.growth.unwrap_or_default();
    let limit = case.days_to_limit(kind, array);
    let title = format!("{name} grow without bound inside {}", case.name());
    let text = format!(
        "Most items get longer {name} with every version. Each write rewrites all of them, each read loads all of them, and an item \
         may not exceed 2 MB. Keep the newest few on the item and move the rest to pages."
    );
    let candidate = case.split_candidate(kind, array, title, text);
    Candidate {
        evidence: vec![
            ("length", quantiles(&array.length, &["p50", "p99", "max"])),
            ("growing", figure(growth.growing)),
            ("perDay", figure(case.per_day(growth.per_item))),
            ("elementBytes", figure(array.element_bytes.round())),
            ("daysToLimit", limit.map_or(quire_value::Value::Null, |days| figure(days.round()))),
        ],
        limit_days: limit,
        ..candidate
    }
}
