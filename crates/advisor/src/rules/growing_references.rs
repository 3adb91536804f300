//! The "one" side of a relationship collects the ids of its "many" side.

use quire_profile::{ArrayProfile, ElementKind, ReferenceProfile, TypeProfile};
use quire_value::Value;

use crate::apply::{Apply, object};
use crate::array::{figure, last_name, quantiles};
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const LENGTH_MIN: f64 = 100.0;
const LENGTH_LARGE: f64 = 1_000.0;
const SHARED_MIN: f64 = 0.01;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let arrays = case.types().flat_map(|kind| kind.arrays.iter().map(move |array| (kind, array)));
    arrays
        .filter_map(|(kind, array)| {
            let reference = case.references_to(&format!("{}/*", array.path))?;
            fires(case, array).then(|| found(case, kind, array, reference))
        })
        .collect()
}

fn fires(case: &Case<'_>, array: &ArrayProfile) -> bool {
    let grows = array.growth.is_some_and(|_| case.is_growing(array));
    let is_long = case.holds("growing-references/length", array.length.p99 >= LENGTH_MIN);
    let is_large = case.holds("growing-references/large", array.length.p95 >= LENGTH_LARGE);
    array.element == ElementKind::String && (grows && is_long || is_large) && case.is_unbounded(array)
}

fn found(
    case: &Case<'_>,
    kind: &TypeProfile,
    array: &ArrayProfile,
    reference: &ReferenceProfile,
) -> Candidate {
    let (size, mean, values) = (case.changed_size(), case.profile.mean_size(), case.values());
    let then = price::replace(
        (mean - array.bytes).max(0.0),
        (values - array.length.mean * array.indexed_values).max(0.0),
    );
    let writes = case.per_day(case.workload().writes.changes.touching(&array.path) as f64);
    // What is written is larger than most items by the ids that it has more.
    let more = ((size - mean) / array.element_bytes.max(1.0)).max(-array.length.mean);
    let now = price::replace(size, values + more * array.indexed_values);
    let is_shared = 1.0 - reference.exclusive >= SHARED_MIN;
    let into = format!("/{}Id", case.name().trim_end_matches('s'));
    let apply = match !is_shared {
        true => case.refactoring(object([
            ("kind", Value::from("flip")),
            ("container", Value::from(case.name())),
            ("path", Value::from(array.path.as_str())),
            ("to", Value::from(reference.to.as_str())),
            ("into", Value::from(into)),
        ])),
        false => Apply::steps([
            format!(
                "Some items of {} have several owners: store an array of owners' ids in them.",
                reference.to
            ),
            format!("Query {} by that array, and remove {}.", reference.to, array.path),
        ]),
    };
    Candidate {
        path: array.path.clone(),
        with: Some(reference.to.clone()),
        title: format!("{} of {} collects ids without bound", last_name(&array.path), case.name()),
        text: format!(
            "The list of ids grows with every new item of {}, and is rewritten each time. Let the other side hold the one id that does \
             not change.",
            reference.to
        ),
        evidence: vec![
            ("length", quantiles(&array.length, &["p50", "p95", "p99", "max"])),
            ("growing", figure(array.growth.map_or(0.0, |growth| growth.growing))),
            ("to", Value::from(reference.to.as_str())),
        ],
        examples: case.examples(array.longest.iter().chain(&kind.examples)),
        effect: case.effect(writes * now, writes * (now - then)),
        apply,
        limit_days: case.days_to_limit(kind, array),
        items: Some(kind.count),
        ..Candidate::default()
    }
}
