//! An order that needs a composite index.

use std::collections::BTreeMap;

use quire_profile::{ShapeProfile, policy_path};

use crate::array::{figure, quantiles};
use crate::case::Case;
use crate::finding::Candidate;

use super::index_missing::charge_with_index;

const REFUSED_MIN: u64 = 10;
const CHARGE_MIN: f64 = 10.0;
const PER_RETURNED_MIN: f64 = 2.0;

type WantedPaths = Vec<(String, bool)>;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let mut by_path: BTreeMap<String, (WantedPaths, Vec<&ShapeProfile>)> = BTreeMap::new();
    for found in case.shapes().filter(|found| fires(case, found)) {
        let wanted = wanted(found);
        if case.holds("composite-missing/exists", !exists(case, &wanted)) {
            let path = wanted.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>().join(", ");
            by_path.entry(path).or_insert_with(|| (wanted, Vec::new())).1.push(found);
        }
    }
    by_path.into_iter().map(|(path, (wanted, shapes))| about(case, path, &wanted, &shapes)).collect()
}

fn fires(case: &Case<'_>, found: &ShapeProfile) -> bool {
    let totals = &found.totals;
    let is_refused = found.shape.order_by.len() >= 2
        && totals.refused > 0
        && case.holds("composite-missing/refused", totals.refused >= REFUSED_MIN);
    let is_slow = !found.shape.order_by.is_empty()
        && !found.shape.equality.is_empty()
        && case.holds("composite-missing/charge", totals.charge.p50 >= CHARGE_MIN)
        && case.holds(
            "composite-missing/rows",
            totals.rows_read.p50 >= PER_RETURNED_MIN * totals.returned.p50.max(1.0),
        );
    is_refused || is_slow
}

/// Paths of equality first, then the order.
fn wanted(found: &ShapeProfile) -> WantedPaths {
    let descending = found.shape.order_by.first().is_some_and(|(_, descending)| *descending);
    let ordered = |path: &str| found.shape.order_by.iter().any(|(own, _)| own == path);
    let equal = found.shape.equality.iter().filter(|path| !ordered(path) && found.totals.refused == 0);
    equal.map(|path| (path.clone(), descending)).chain(found.shape.order_by.iter().cloned()).collect()
}

fn exists(case: &Case<'_>, wanted: &WantedPaths) -> bool {
    let paths: Vec<String> = wanted.iter().map(|(path, _)| policy_path(path).to_string()).collect();
    case.definition
        .indexing
        .composite
        .iter()
        .any(|own| own.iter().map(|part| part.path.to_string()).collect::<Vec<_>>() == paths)
}

fn about(case: &Case<'_>, path: String, wanted: &WantedPaths, shapes: &[&ShapeProfile]) -> Candidate {
    let charge: f64 = shapes.iter().map(|found| found.totals.charge_sum).sum();
    let then: f64 = shapes.iter().map(|found| charge_with_index(case, found)).sum();
    let refused: u64 = shapes.iter().map(|found| found.totals.refused).sum();
    let title = format!("an order of {} needs a composite index", case.name());
    let text = "Without it the query is refused, or sorts many items to return a few.";
    Candidate {
        path,
        evidence: vec![
            ("refused", figure(refused as f64)),
            ("rowsRead", quantiles(&shapes[0].totals.rows_read, &["p50", "p95"])),
        ],
        effect: case.effect(case.per_day(charge), case.per_day(charge - then).max(0.0)),
        apply: case.indexing(case.policy_with_composite(wanted)),
        shapes: shapes.iter().map(|found| found.shape.id).collect(),
        ..case.about_container(title, text.to_owned())
    }
}
