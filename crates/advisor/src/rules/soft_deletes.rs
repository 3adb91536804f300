//! Deleted items stay, and every query has to leave them out.

use quire_profile::{PathProfile, parent};

use crate::apply::Apply;
use crate::array::{figure, last_name};
use crate::case::Case;
use crate::finding::Candidate;

const NAMES: [&str; 3] = ["deleted", "isdeleted", "deletedat"];
const SHARE_MIN: f64 = 0.2;
const FILTERED_MIN: f64 = 0.9;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let paths = case.types().flat_map(|kind| kind.paths.iter().map(move |path| (kind, path)));
    let found = paths.filter(|(_, path)| fires(case, path));
    found
        .map(|(kind, path)| Candidate {
            path: path.path.clone(),
            title: format!("{} keeps many items that are deleted", case.name()),
            text: "They are stored, indexed and left out by nearly every query. Give an item a time to live when it is marked.".to_owned(),
            evidence: vec![("share", figure(path.set)), ("filtered", figure(filtered(case, path)))],
            examples: case.examples(path.example.iter()),
            effect: case.no_effect(),
            apply: Apply::steps([
                "Turn the time to live on (defaultTtl -1), and set ttl when an item is marked.",
                "Or move marked items to an archive.",
            ]),
            items: Some(kind.count),
            ..Candidate::default()
        })
        .collect()
}

fn fires(case: &Case<'_>, path: &PathProfile) -> bool {
    parent(&path.path).is_empty()
        && NAMES.contains(&last_name(&path.path).to_lowercase().as_str())
        && case.holds("soft-deletes/share", path.set >= SHARE_MIN)
        && case.holds("soft-deletes/filtered", filtered(case, path) >= FILTERED_MIN)
}

/// Share of the queries that leave marked items out.
fn filtered(case: &Case<'_>, path: &PathProfile) -> f64 {
    let leaving_out = case.shapes().filter(|found| found.shape.excluded.contains(&path.path));
    leaving_out.map(|found| found.totals.count).sum::<u64>() as f64 / case.queries().max(1) as f64
}
