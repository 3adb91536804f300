//! A query that asks for one item by its id.

use quire_profile::Scope;

use crate::apply::Apply;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const EXECUTIONS_MIN: u64 = 100;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let shapes: Vec<_> = case
        .shapes()
        .filter(|found| {
            let shape = &found.shape;
            shape.equality.iter().any(|path| path == "/id")
                && shape.aggregates.is_empty()
                && shape.joins.is_empty()
                && case.holds("query-for-point-read/scope", shape.scope == Scope::Full)
                && case.holds("query-for-point-read/returned", found.totals.returned.max <= 1.0)
        })
        .collect();
    let executions: u64 = shapes.iter().map(|found| found.totals.count).sum();
    let charge: f64 = shapes.iter().map(|found| found.totals.charge_sum).sum();
    let then = executions as f64 * price::read(case.profile.mean_size());
    let title = format!("queries ask {} for one item by its id", case.name());
    let text = "A point read gives the same item for less than half the charge, and sooner.";
    (!shapes.is_empty() && case.holds("query-for-point-read/executions", executions >= EXECUTIONS_MIN))
        .then(|| Candidate {
            path: "/id".to_owned(),
            evidence: vec![("executions", figure(executions as f64))],
            effect: case.effect(case.per_day(charge), case.per_day(charge - then)),
            apply: Apply::steps(["Read the item by id and partition key instead of querying for it."]),
            shapes: shapes.iter().map(|found| found.shape.id).collect(),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}
