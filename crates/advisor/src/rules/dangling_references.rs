//! References to items that are not there.

use quire_profile::{IdForm, ReferenceProfile, lower_bound};
use quire_value::Value;

use crate::apply::{list, object};
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const DANGLING_MIN: f64 = 0.005;
const CASES_MIN: u64 = 5;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    case.profile
        .references
        .iter()
        .filter(|reference| fires(case, reference))
        .map(|reference| found(case, reference))
        .collect()
}

fn fires(case: &Case<'_>, reference: &ReferenceProfile) -> bool {
    let expires = case.other_definition(&reference.to).is_some_and(|target| target.default_ttl.is_some());
    let by_chance =
        case.other(&reference.to).is_some_and(|target| target.ids != IdForm::Other) && !reference.named;
    let share = lower_bound(reference.dangling, reference.pairs);
    case.holds("dangling-references/share", reference.dangling >= CASES_MIN && share > DANGLING_MIN)
        && case.holds("dangling-references/expires", !expires)
        && case.holds("dangling-references/chance", !by_chance)
}

fn found(case: &Case<'_>, reference: &ReferenceProfile) -> Candidate {
    let (_, link) = case.link(reference);
    Candidate {
        path: reference.path.clone(),
        with: Some(reference.to.clone()),
        title: format!("some items of {} refer to items of {} that do not exist", case.name(), reference.to),
        text: "They were deleted, or never there. A declared link counts them, can remove them, and can refuse new ones.".to_owned(),
        evidence: vec![
            ("dangling", figure(reference.dangling_share())),
            ("to", Value::from(reference.to.as_str())),
        ],
        examples: case.examples(&reference.dangling_examples),
        effect: case.no_effect(),
        apply: case.model(object([("version", Value::from(1)), ("links", list([link]))])),
        broken: Some(reference.dangling_share()),
        ..Candidate::default()
    }
}
