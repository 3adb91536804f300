//! One item for each reading, and they are read by the hundred.

use quire_profile::{Operation, ShapeProfile, TimeSeries, TypeProfile};

use crate::apply::Apply;
use crate::array::{figure, quantiles};
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const SIZE_MAX: f64 = 1_024.0;
const RISING_MIN: f64 = 0.99;
const GAP_MAX: f64 = 60.0;
const GAP_SPREAD_MAX: f64 = 3.0;
const TEXT_MAX: f64 = 40.0;
const CHANGED_MAX: f64 = 0.01;
const RETURNED_MIN: f64 = 50.0;
const POINT_MAX: f64 = 0.05;
/// Readings in a bucket.
const BUCKET: f64 = 60.0;
const BUCKET_VALUES: f64 = 5.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    case.types().filter_map(|kind| of_type(case, kind)).collect()
}

fn of_type(case: &Case<'_>, kind: &TypeProfile) -> Option<Candidate> {
    let series = kind.times.iter().find(|series| is_even(case, series))?;
    let ranges: Vec<&ShapeProfile> = case
        .shapes()
        .filter(|found| {
            found.shape.range.contains(&series.path)
                && case.holds("event-items/returned", found.totals.returned.p50 >= RETURNED_MIN)
        })
        .collect();
    let texts = kind
        .paths
        .iter()
        .filter(|path| path.kinds.string > 0)
        .map(|path| path.length.p95)
        .fold(0.0, f64::max);
    let reads = case.workload().count(Operation::Read) as f64;
    let all = reads + case.queries() as f64;
    let fires = case.holds("event-items/size", kind.size.p95 <= SIZE_MAX)
        && case.holds("event-items/text", texts <= TEXT_MAX)
        && case.holds(
            "event-items/changed",
            case.workload().changes() as f64 <= CHANGED_MAX * kind.count as f64,
        )
        && !ranges.is_empty()
        && case.holds("event-items/point", reads <= POINT_MAX * all)
        && case.holds("event-items/expires", !case.is_expiring());
    fires.then(|| found(case, kind, series, &ranges))
}

fn is_even(case: &Case<'_>, series: &TimeSeries) -> bool {
    let gap = &series.gap_seconds;
    case.holds("event-items/rising", series.rising >= RISING_MIN)
        && case.holds("event-items/gap", gap.p50 <= GAP_MAX && gap.count > 0)
        && case.holds("event-items/spread", gap.p90 <= GAP_SPREAD_MAX * gap.p50.max(1e-9))
}

fn found(case: &Case<'_>, kind: &TypeProfile, series: &TimeSeries, ranges: &[&ShapeProfile]) -> Candidate {
    let creates = case.per_day(case.workload().count(Operation::Create) as f64);
    let now = creates * price::insert(kind.size.mean, kind.indexed_values);
    let then = creates / BUCKET * price::insert(kind.size.mean * BUCKET, BUCKET_VALUES);
    Candidate {
        path: series.path.clone(),
        title: format!("{} has one item for each reading", case.name()),
        text: "Readings come at even times, are never changed, and are read by the hundred. An item for each hour or minute of them costs a \
               fraction to write and to read."
            .to_owned(),
        evidence: vec![
            ("gap", quantiles(&series.gap_seconds, &["p50", "p90"])),
            ("returned", figure(ranges[0].totals.returned.p50)),
        ],
        examples: case.examples(&kind.examples),
        effect: case.effect(now, now - then),
        apply: Apply::steps([
            "Collect the readings of one key for a minute or an hour, and write them as one item.",
            "Exclude the array of readings from the index.",
        ]),
        items: Some(kind.count),
        ..Candidate::default()
    }
}
