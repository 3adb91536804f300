//! Items are nested deeply.

use crate::apply::Apply;
use crate::array::quantiles;
use crate::case::Case;
use crate::finding::Candidate;

const DEPTH_MAX: f64 = 64.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let deep = case.types().filter(|kind| case.holds("deep-nesting/depth", kind.depth.p99 > DEPTH_MAX));
    let deepest = deep.max_by(|one, other| one.depth.max.total_cmp(&other.depth.max));
    deepest
        .into_iter()
        .map(|kind| Candidate {
            title: format!("items of {} are nested deeply", case.name()),
            text: "The limit is 128 levels, and paths that deep cannot be used in queries. Store the nodes in a flat list, each with \
                   the id of its parent."
                .to_owned(),
            evidence: vec![("depth", quantiles(&kind.depth, &["p99", "max"]))],
            examples: case.examples(kind.deepest.iter()),
            effect: case.no_effect(),
            apply: Apply::steps(["Store nodes flat, each with its parent's id or its whole path."]),
            items: Some(kind.count),
            ..Candidate::default()
        })
        .collect()
}
