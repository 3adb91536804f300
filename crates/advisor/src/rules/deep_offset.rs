//! Queries skip many items before the first that they return.

use crate::apply::Apply;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const EXECUTIONS_MIN: u64 = 10;
const OFFSET_MIN: u64 = 1_000;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let deep: Vec<_> = case
        .shapes()
        .filter(|found| case.holds("deep-offset/offset", found.shape.offset >= OFFSET_MIN))
        .collect();
    let executions: u64 = deep.iter().map(|found| found.totals.count).sum();
    let skipped: f64 = deep.iter().map(|found| found.totals.count as f64 * found.shape.offset as f64).sum();
    let charge: f64 = deep.iter().map(|found| found.totals.charge_sum).sum();
    let saved = case.per_day(skipped * price::PAGE_PER_LOADED);
    let title = format!("queries of {} skip many items", case.name());
    let text = "Skipped items are read and paid for. Go on from a continuation, or filter by the last value that was shown.";
    (!deep.is_empty() && case.holds("deep-offset/executions", executions >= EXECUTIONS_MIN))
        .then(|| Candidate {
            evidence: vec![
                ("offset", figure(deep.iter().map(|found| found.shape.offset).max().unwrap_or(0) as f64)),
                ("executions", figure(executions as f64)),
            ],
            effect: case.effect(case.per_day(charge), saved),
            apply: Apply::steps([
                "Use the continuation of the last page, or a filter on the last value and ORDER BY.",
            ]),
            shapes: deep.iter().map(|found| found.shape.id).collect(),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}
