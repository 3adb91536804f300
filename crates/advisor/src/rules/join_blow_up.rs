//! Two JOINs over arrays make every pair of their elements.

use quire_profile::ShapeProfile;
use quire_value::Value;

use crate::apply::{Apply, list};
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const EXECUTIONS_MIN: u64 = 10;
const PRODUCT_MIN: f64 = 10_000.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let large: Vec<(&ShapeProfile, Vec<f64>)> = case
        .shapes()
        .map(|found| (found, lengths(case, found)))
        .filter(|(found, lengths)| {
            found.shape.joins.len() >= 2
                && case.holds("join-blow-up/product", lengths.iter().product::<f64>() >= PRODUCT_MIN)
        })
        .collect();
    let executions: u64 = large.iter().map(|(found, _)| found.totals.count).sum();
    let Some((_, first)) = large.first() else { return Vec::new() };
    let title = format!("a query of {} joins two long arrays", case.name());
    let text = "Each item gives as many rows as the product of the lengths. Filter each array in a subquery or with EXISTS.";
    case.holds("join-blow-up/executions", executions >= EXECUTIONS_MIN)
        .then(|| Candidate {
            evidence: vec![
                ("lengths", list(first.iter().map(|length| figure(*length)))),
                ("executions", Value::from(executions)),
            ],
            apply: Apply::steps(["Put the filter of each array into a subquery: JOIN (SELECT VALUE x FROM x IN c.array WHERE ...)."]),
            shapes: large.iter().map(|(found, _)| found.shape.id).collect(),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}

fn lengths(case: &Case<'_>, found: &ShapeProfile) -> Vec<f64> {
    let length = |path: &String| {
        let arrays = case.profile.types.iter().filter_map(|kind| kind.array(path));
        arrays.map(|array| array.length.p95).fold(1.0, f64::max)
    };
    found.shape.joins.iter().map(length).collect()
}
