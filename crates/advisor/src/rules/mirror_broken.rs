//! Two arrays of ids should be each other's inverse, and are not everywhere.

use quire_profile::{MirrorProfile, ReferenceProfile, lower_bound};
use quire_value::{Object, Value};

use crate::array::figure;
use crate::case::Case;
use crate::finding::{Candidate, Example};

const UNEQUAL_MIN: f64 = 0.001;
const CASES_MIN: u64 = 5;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let mirrors =
        case.profile.references.iter().filter_map(|reference| Some((reference, reference.mirror.as_ref()?)));
    mirrors
        .filter(|(reference, mirror)| fires(case, reference, mirror))
        .map(|(reference, mirror)| found(case, reference, mirror))
        .collect()
}

fn fires(case: &Case<'_>, reference: &ReferenceProfile, mirror: &MirrorProfile) -> bool {
    let unequal = mirror.targets - mirror.equal;
    reference.path.contains("/*")
        && is_first(case, reference, mirror)
        && case.holds(
            "mirror-broken/unequal",
            unequal >= CASES_MIN && lower_bound(unequal, mirror.targets) > UNEQUAL_MIN,
        )
}

/// The other array has the same finding: it is listed once.
fn is_first(case: &Case<'_>, reference: &ReferenceProfile, mirror: &MirrorProfile) -> bool {
    let other = case.other(&reference.to).and_then(|target| {
        target
            .references
            .iter()
            .find(|own| own.to == case.name() && own.path.starts_with(&mirror.path) && own.mirror.is_some())
    });
    match other {
        Some(other) => (case.name(), &reference.path) <= (reference.to.as_str(), &other.path),
        None => true,
    }
}

fn found(case: &Case<'_>, reference: &ReferenceProfile, mirror: &MirrorProfile) -> Candidate {
    let equal = mirror.equal as f64 / mirror.targets.max(1) as f64;
    let into = mirror.path.trim_end_matches("/*/id");
    let declaration = Object::from_iter([
        ("name", Value::from(crate::apply::name_of(&format!("{}-of-{}", case.name(), reference.to)))),
        ("into", Value::from(into)),
    ]);
    let array = reference.path.split("/*").next().unwrap_or_default().to_owned();
    Candidate {
        path: array,
        with: Some(reference.to.clone()),
        title: format!("{} of {} and {} disagree about who belongs to whom", into, reference.to, case.name()),
        text: "Both sides list the other's ids, and some lists miss one. Declare the link on one side and a mirror on the other.".to_owned(),
        evidence: vec![("equal", figure(equal)), ("pairs", figure(mirror.targets as f64))],
        examples: mirror
            .unequal_examples
            .iter()
            .map(|item| Example { container: reference.to.clone(), item: item.clone() })
            .collect(),
        effect: case.no_effect(),
        apply: case.model_with(reference, "mirrors", declaration),
        broken: Some(1.0 - equal),
        ..Candidate::default()
    }
}
