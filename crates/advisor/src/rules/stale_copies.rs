//! Copies of another item's fields differ from it, although somebody keeps them up to date.

use quire_profile::{CopyProfile, ReferenceProfile, lower_bound};
use quire_value::{Object, Value};

use crate::apply::{beside, expression};
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const UNEQUAL_MIN: f64 = 0.001;
const CASES_MIN: u64 = 5;
const EQUAL_MIN: f64 = 0.6;
const WRITES_MIN: u64 = 10;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let copies = case
        .profile
        .references
        .iter()
        .flat_map(|reference| reference.copies.iter().map(move |copy| (reference, copy)));
    copies
        .filter(|(_, copy)| fires(case, copy))
        .map(|(reference, copy)| found(case, reference, copy))
        .collect()
}

fn fires(case: &Case<'_>, copy: &CopyProfile) -> bool {
    let unequal = copy.pairs - copy.equal;
    let is_kept = case.workload().writes.changes.touching(&copy.path) >= WRITES_MIN;
    case.holds("stale-copies/cases", unequal >= CASES_MIN)
        && case.holds("stale-copies/unequal", lower_bound(unequal, copy.pairs) > UNEQUAL_MIN)
        && copy.equal_share() >= EQUAL_MIN
        && case.holds("stale-copies/kept", is_kept)
}

fn found(case: &Case<'_>, reference: &ReferenceProfile, copy: &CopyProfile) -> Candidate {
    let field = beside(reference, &copy.path);
    let declaration = Object::from_iter([
        ("name", Value::from(crate::apply::name_of(&format!("{}-on-{}", reference.to, case.name())))),
        ("fields", Value::from(Object::from_iter([(field.clone(), Value::from(expression("t", &copy.of)))]))),
    ]);
    Candidate {
        path: copy.path.clone(),
        with: Some(reference.to.clone()),
        title: format!("{field} of {} is out of date in some items", case.name()),
        text: format!(
            "It is a copy of {} of {}, and some were not changed with it. A declared copy is kept true in the same commit.",
            copy.of, reference.to
        ),
        evidence: vec![
            ("equal", figure(copy.equal_share())),
            ("pairs", figure(copy.pairs as f64)),
            ("of", Value::from(copy.of.as_str())),
        ],
        examples: case.examples(&copy.unequal_examples),
        effect: case.no_effect(),
        apply: case.model_with(reference, "copies", declaration),
        broken: Some(1.0 - copy.equal_share()),
        ..Candidate::default()
    }
}
