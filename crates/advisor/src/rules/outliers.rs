//! A few items are far larger than the rest because of one array.

use quire_profile::{ArrayProfile, Operation, TypeProfile};

use crate::array::{figure, last_name, quantiles};
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const FAR_MIN: f64 = 20.0;
const USUAL_MAX: f64 = 4.0;
const LENGTH_MIN: f64 = 250.0;
const TOP_SHARE_MIN: f64 = 0.3;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let arrays = case.types().flat_map(|kind| kind.arrays.iter().map(move |array| (kind, array)));
    arrays
        .filter(|(kind, array)| fires(case, kind, array))
        .map(|(kind, array)| found(case, kind, array))
        .collect()
}

fn fires(case: &Case<'_>, kind: &TypeProfile, array: &ArrayProfile) -> bool {
    let usual = array.length.p50.max(1.0);
    case.holds("outliers/far", array.length.p99 / usual >= FAR_MIN)
        && case.holds("outliers/usual", array.length.p95 / usual <= USUAL_MAX)
        && case.holds("outliers/length", array.length.max >= LENGTH_MIN)
        && case.holds("outliers/bytes", kind.top_share >= TOP_SHARE_MIN)
        && case.holds("outliers/growing", !array.growth.is_some_and(|_| case.is_growing(array)))
}

fn found(case: &Case<'_>, kind: &TypeProfile, array: &ArrayProfile) -> Candidate {
    let name = last_name(&array.path);
    let title = format!("a few items of {} have far more {name} than the rest", case.name());
    let text = format!(
        "One item in a hundred holds {:.0} % of the bytes. Keep the first few {name} on the item and the rest of the large ones in pages.",
        kind.top_share * 100.0
    );
    let moved = (array.length.mean - array.length.p95).max(0.0) * array.element_bytes;
    let mean = kind.size.mean;
    let reads = case.reads_per_day();
    let saved = reads * (price::read(mean) - price::read(mean - moved));
    let now = case.per_day(case.workload().charge(Operation::Read));
    Candidate {
        evidence: vec![
            ("length", quantiles(&array.length, &["p50", "p95", "p99", "max"])),
            ("topShare", figure(kind.top_share)),
        ],
        effect: case.effect(now, saved),
        ..case.split_candidate(kind, array, title, text)
    }
}
