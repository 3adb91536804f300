//! The newest item is found by asking every partition.

use std::collections::BTreeMap;

use quire_profile::{Scope, ShapeProfile};

use crate::apply::Apply;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const EXECUTIONS_MIN: u64 = 100;
const PARTITIONS_MIN: f64 = 3.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let mut by_path: BTreeMap<&str, Vec<&ShapeProfile>> = BTreeMap::new();
    for found in case.shapes().filter(|found| is_latest(case, found)) {
        by_path.entry(&found.shape.order_by[0].0).or_default().push(found);
    }
    by_path
        .into_iter()
        .filter_map(|(path, shapes)| {
            let executions: u64 = shapes.iter().map(|found| found.totals.count).sum();
            let fires = case.holds("latest-by-scan/executions", executions >= EXECUTIONS_MIN)
                && case.holds("latest-by-scan/partitions", case.partitions() >= PARTITIONS_MIN);
            fires.then(|| about(case, path, executions, &shapes))
        })
        .collect()
}

fn is_latest(case: &Case<'_>, found: &ShapeProfile) -> bool {
    let shape = &found.shape;
    matches!(shape.order_by.as_slice(), [(_, true)])
        && case.holds("latest-by-scan/limit", shape.limit == Some(1))
        && case.holds("latest-by-scan/scope", shape.scope == Scope::None)
}

fn about(case: &Case<'_>, path: &str, executions: u64, shapes: &[&ShapeProfile]) -> Candidate {
    let charge: f64 = shapes.iter().map(|found| found.totals.charge_sum).sum();
    let saved = case.per_day(executions as f64) * price::PAGE_PER_PARTITION * (case.partitions() - 1.0);
    let title = format!("the newest item of {} is looked for in every partition", case.name());
    let text = "Keep it in an item with a fixed id, written with each new one; reading that costs 1.";
    Candidate {
        path: path.to_owned(),
        evidence: vec![("executions", figure(executions as f64))],
        effect: case.effect(case.per_day(charge), saved),
        apply: Apply::steps(["Upsert an item latest with each new one.", "Read it by id."]),
        shapes: shapes.iter().map(|found| found.shape.id).collect(),
        ..case.about_container(title, text.to_owned())
    }
}
