//! Queries return everything, to the last page.

use quire_profile::ShapeProfile;

use crate::apply::Apply;
use crate::array::{figure, quantiles};
use crate::case::Case;
use crate::finding::Candidate;

const EXECUTIONS_MIN: u64 = 10;
const RETURNED_MIN: f64 = 1_000.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let large: Vec<_> = case.shapes().filter(|found| is_large(case, found)).collect();
    let drained: u64 = large.iter().map(|found| found.totals.drained).sum();
    let Some(first) = large.first() else { return Vec::new() };
    let title = format!("queries of {} return thousands of items", case.name());
    let text =
        "Nobody looks at that many. Ask for a page, or narrow the filter; exports read the change feed.";
    case.holds("unbounded-result/executions", drained >= EXECUTIONS_MIN)
        .then(|| Candidate {
            evidence: vec![
                ("returned", quantiles(&first.totals.returned, &["p50", "p95", "max"])),
                ("executions", figure(drained as f64)),
            ],
            apply: Apply::steps([
                "Show a page at a time, with TOP or a continuation.",
                "Or narrow the filter.",
            ]),
            shapes: large.iter().map(|found| found.shape.id).collect(),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}

fn is_large(case: &Case<'_>, found: &ShapeProfile) -> bool {
    case.holds("unbounded-result/limit", found.shape.limit.is_none())
        && case.holds("unbounded-result/returned", found.totals.returned.p95 > RETURNED_MIN)
}
