//! Names of properties are data: they grow with the items.

use crate::apply::Apply;
use crate::array::{figure, last_name};
use crate::case::Case;
use crate::finding::Candidate;

const NAMES_MIN: u64 = 200;
const GROWTH_MIN: f64 = 0.2;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let objects = case.types().flat_map(|kind| kind.objects.iter().map(move |object| (kind, object)));
    let found = objects.filter(|(_, object)| {
        object.names >= NAMES_MIN
            && case.holds("data-as-names/growth", object.growth_share >= GROWTH_MIN)
            && case.holds("data-as-names/shape", object.one_shape)
    });
    found
        .map(|(kind, object)| {
            let name = last_name(&object.path);
            let of = if name.is_empty() { "items".to_owned() } else { name };
            Candidate {
                path: object.path.clone(),
                title: format!("names inside {of} of {} are data", case.name()),
                text: "New names keep coming. No query can filter over all of them, and each one is an index path of its own. Use an \
                       array of objects with the name as a value, or items of their own."
                    .to_owned(),
                evidence: vec![("names", figure(object.names as f64)), ("growthShare", figure(object.growth_share))],
                examples: case.examples(object.example.iter().chain(&kind.examples)),
                effect: case.no_effect(),
                apply: Apply::steps(["Make each name the value of a property of an element.", "Filter with EXISTS over the array."]),
                items: Some(kind.count),
                ..Candidate::default()
            }
        })
        .collect()
}
