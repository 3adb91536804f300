//! Queries filter on a path that is not indexed.

use std::collections::BTreeMap;

use quire_profile::{ShapeProfile, policy_path};

use crate::array::{figure, quantiles};
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const ROWS_MIN: f64 = 100.0;
const PER_RETURNED_MIN: f64 = 10.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let mut by_path: BTreeMap<&str, Vec<&ShapeProfile>> = BTreeMap::new();
    for found in case.shapes().filter(|found| is_scan(case, found)) {
        let filters = found.shape.equality.iter().chain(&found.shape.range);
        let excluded = filters.filter(|path| {
            case.holds("index-missing/excluded", !case.definition.indexing.is_indexed(&policy_path(path)))
        });
        for path in excluded {
            by_path.entry(path).or_default().push(found);
        }
    }
    by_path.into_iter().map(|(path, shapes)| found(case, path, &shapes)).collect()
}

fn is_scan(case: &Case<'_>, found: &ShapeProfile) -> bool {
    let totals = &found.totals;
    case.holds("index-missing/rows", totals.rows_read.p50 >= ROWS_MIN)
        && case
            .holds("index-missing/returned", totals.rows_read.p50 >= PER_RETURNED_MIN * totals.returned.p50)
}

/// What the executions would cost if they loaded only what they return.
pub fn charge_with_index(case: &Case<'_>, found: &ShapeProfile) -> f64 {
    let returned = found.totals.returned.mean;
    found.totals.count as f64
        * price::page(case.partitions(), returned, returned, returned * case.profile.mean_size())
}

fn found(case: &Case<'_>, path: &str, shapes: &[&ShapeProfile]) -> Candidate {
    let charge: f64 = shapes.iter().map(|found| found.totals.charge_sum).sum();
    let then: f64 = shapes.iter().map(|found| charge_with_index(case, found)).sum();
    let title = format!("queries of {} filter on {path}, which is not indexed", case.name());
    let text = "They read every item to find a few. With an index they read only those.";
    Candidate {
        path: path.to_owned(),
        evidence: vec![
            ("rowsRead", quantiles(&shapes[0].totals.rows_read, &["p50", "p95"])),
            ("returned", figure(shapes[0].totals.returned.p50)),
        ],
        effect: case.effect(case.per_day(charge), case.per_day(charge - then)),
        apply: case.indexing(case.policy_with(path)),
        shapes: shapes.iter().map(|found| found.shape.id).collect(),
        ..case.about_container(title, text.to_owned())
    }
}
