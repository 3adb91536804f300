//! Vectors are in the range index, where no query finds them.

use quire_profile::{ArrayProfile, ElementKind, TypeProfile, policy_path};

use crate::array::{figure, last_name};
use crate::case::Case;
use crate::finding::Candidate;

use super::index_unused::{is_used, saved};

const LENGTH_MIN: f64 = 128.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let arrays = case.types().flat_map(|kind| kind.arrays.iter().map(move |array| (kind, array)));
    arrays.filter(|(_, array)| fires(case, array)).map(|(kind, array)| found(case, kind, array)).collect()
}

fn fires(case: &Case<'_>, array: &ArrayProfile) -> bool {
    let path = policy_path(&array.path);
    let has_vector_index = case.definition.indexing.vector.iter().any(|index| index.path == path);
    array.element == ElementKind::Number
        && case.holds("index-on-vectors/one-length", array.one_length)
        && case.holds("index-on-vectors/length", array.length.p50 >= LENGTH_MIN)
        && array.indexed_values > 0.0
        && case.holds("index-on-vectors/used", !is_used(case, &array.path))
        && !has_vector_index
}

fn found(case: &Case<'_>, kind: &TypeProfile, array: &ArrayProfile) -> Candidate {
    let share = kind.count as f64 / case.profile.items.scanned.max(1) as f64;
    let values = array.length.mean * array.indexed_values * share;
    let paths = [array.path.clone()];
    Candidate {
        path: array.path.clone(),
        title: format!("{} of {} is a vector in the range index", last_name(&array.path), case.name()),
        text: "Every number of it is an index entry that no query uses. Exclude the path; a vector index serves VectorDistance.".to_owned(),
        evidence: vec![("length", figure(array.length.p50)), ("values", figure(values))],
        examples: case.examples(&kind.examples),
        effect: case.effect(case.charge_per_day(), saved(case, values)),
        apply: case.indexing(case.policy_without(&paths)),
        items: Some(kind.count),
        ..Candidate::default()
    }
}
