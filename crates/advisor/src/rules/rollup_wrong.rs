//! A stored count or sum differs from what it counts.

use quire_profile::{ContainerProfile, CountProfile, ReferenceProfile, lower_bound};
use quire_value::{Object, Value};

use crate::apply::expression;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const UNEQUAL_MIN: f64 = 0.001;
const CASES_MIN: u64 = 5;

/// The finding is about the targets: references of all containers are examined.
pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let mut found = Vec::new();
    for referrer in &case.database.containers {
        let references = referrer.references.iter().filter(|reference| reference.to == case.name());
        for reference in references {
            let counts = reference.counts.iter().filter(|count| fires(case, referrer, count));
            found.extend(counts.map(|count| about(case, referrer, reference, count)));
        }
    }
    found
}

fn fires(case: &Case<'_>, referrer: &ContainerProfile, count: &CountProfile) -> bool {
    let unequal = count.targets - count.equal;
    let expires = case.other_definition(&referrer.container).is_some_and(|own| own.default_ttl.is_some());
    case.holds(
        "rollup-wrong/unequal",
        unequal >= CASES_MIN && lower_bound(unequal, count.targets) > UNEQUAL_MIN,
    ) && case.holds("rollup-wrong/expires", !expires)
}

fn about(
    case: &Case<'_>,
    referrer: &ContainerProfile,
    reference: &ReferenceProfile,
    count: &CountProfile,
) -> Candidate {
    let equal = count.equal as f64 / count.targets.max(1) as f64;
    let mut declaration = Object::from_iter([
        ("name", Value::from(crate::apply::name_of(&format!("{}-of-{}", count.op, referrer.container)))),
        ("op", Value::from(count.op)),
        ("into", Value::from(count.path.as_str())),
    ]);
    if let Some(value) = &count.value {
        let alias = if count.references { "e" } else { "r" };
        declaration.set("value", expression(alias, &quire_profile::join("", value)));
    }
    if count.references {
        declaration.set("of", "references");
    }
    let owner = Case {
        profile: referrer,
        definition: case.other_definition(&referrer.container).unwrap_or(case.definition),
        ..*case
    };
    Candidate {
        path: count.path.clone(),
        with: Some(referrer.container.clone()),
        title: format!("{} of {} is wrong in some items", crate::array::last_name(&count.path), case.name()),
        text: format!(
            "It is the {} over items of {}, and in some it is not. A declared rollup is exact in every commit.",
            count.op, referrer.container
        ),
        evidence: vec![
            ("equal", figure(equal)),
            ("op", Value::from(count.op)),
            ("link", Value::from(reference.path.as_str())),
        ],
        examples: case.examples(&count.unequal_examples),
        effect: case.no_effect(),
        apply: owner.model_with(reference, "rollups", declaration),
        broken: Some(1.0 - equal),
        ..Candidate::default()
    }
}
