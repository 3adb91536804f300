//! Figures over a large part of the container are computed from its items.

use quire_profile::{Scope, ShapeProfile};

use crate::apply::Apply;
use crate::array::{figure, quantiles};
use crate::case::Case;
use crate::finding::Candidate;

const EXECUTIONS_MIN: u64 = 10;
const PART_MIN: f64 = 0.1;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let items = case.profile.items.count as f64;
    let scans: Vec<_> = case.shapes().filter(|found| is_scan(case, found, items)).collect();
    let executions: u64 = scans.iter().map(|found| found.totals.count).sum();
    let charge: f64 = scans.iter().map(|found| found.totals.charge_sum).sum();
    let Some(first) = scans.first() else { return Vec::new() };
    let fires = case.holds("scan-for-analytics/items", items >= case.thresholds.analytics_min_items)
        && case.holds("scan-for-analytics/executions", executions >= EXECUTIONS_MIN);
    let title = format!("figures over {} are computed from its items", case.name());
    let text = "Each time a good part of the container is read. Keep the figures, make a view, or export the items to where analysis belongs.";
    fires
        .then(|| Candidate {
            evidence: vec![
                ("rowsRead", quantiles(&first.totals.rows_read, &["p50", "p95"])),
                ("executions", figure(executions as f64)),
            ],
            effect: case.effect(case.per_day(charge), case.per_day(charge)),
            apply: Apply::steps([
                "Keep the figures in items of their own, from the change feed.",
                "Or export to a store for analysis.",
            ]),
            shapes: scans.iter().map(|found| found.shape.id).collect(),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}

fn is_scan(case: &Case<'_>, found: &ShapeProfile, items: f64) -> bool {
    let shape = &found.shape;
    !(shape.aggregates.is_empty() && shape.group_by.is_empty())
        && case.holds("scan-for-analytics/scope", shape.scope == Scope::None)
        && case.holds("scan-for-analytics/part", found.totals.rows_read.p50 >= PART_MIN * items)
}
