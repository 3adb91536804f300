//! Items that only join two others.

use quire_profile::{ReferenceProfile, TypeProfile, parent};
use quire_value::Value;

use crate::apply::{Apply, list, object};
use crate::array::{figure, quantiles};
use crate::case::Case;
use crate::finding::Candidate;

const PER_TARGET_MAX: f64 = 100.0;
const PER_TARGET_LARGEST: f64 = 500.0;
const ACTIONS_MIN: u64 = 100;
const FILTERED_MIN: f64 = 0.5;
const FURTHER_MAX: usize = 2;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    case.types().filter_map(|kind| of_type(case, kind)).collect()
}

fn of_type(case: &Case<'_>, kind: &TypeProfile) -> Option<Candidate> {
    let ends: Vec<&ReferenceProfile> = case
        .profile
        .references
        .iter()
        .filter(|reference| {
            parent(&reference.path).is_empty() && reference.path != "/id" && reference.type_name == kind.name
        })
        .collect();
    let [left, right] = ends.as_slice() else { return None };
    let further = other_scalars(case, kind, left, right);
    let narrow = |end: &ReferenceProfile| {
        end.per_target.p95 <= PER_TARGET_MAX && end.per_target.max <= PER_TARGET_LARGEST
    };
    let fires = case.holds("join-items/data", further.is_some_and(|further| further <= FURTHER_MAX))
        && case.holds("join-items/narrow", narrow(left) && narrow(right))
        && case.holds(
            "join-items/used",
            actions(case) >= ACTIONS_MIN || filtered(case, left, right) >= FILTERED_MIN,
        );
    fires.then(|| found(case, kind, left, right, further.unwrap_or(0)))
}

/// Scalars beyond ids, key and discriminator; `None` with anything else.
fn other_scalars(
    case: &Case<'_>,
    kind: &TypeProfile,
    left: &ReferenceProfile,
    right: &ReferenceProfile,
) -> Option<usize> {
    let discriminator = case.profile.discriminator.as_ref().map(|found| found.path.as_str());
    let is_known = |path: &str| {
        path == "/id"
            || path == left.path
            || path == right.path
            || path == case.key().path
            || Some(path) == discriminator
    };
    let others: Vec<_> = kind.paths.iter().filter(|path| !is_known(&path.path)).collect();
    others.iter().all(|path| path.kinds.array + path.kinds.object == 0).then_some(others.len())
}

fn actions(case: &Case<'_>) -> u64 {
    case.workload()
        .sequences
        .iter()
        .filter(|sequence| !sequence.backward)
        .map(|sequence| sequence.count)
        .sum()
}

fn filtered(case: &Case<'_>, left: &ReferenceProfile, right: &ReferenceProfile) -> f64 {
    let by_one = case
        .shapes()
        .filter(|found| [left, right].iter().any(|end| found.shape.equality.contains(&end.path)));
    by_one.map(|found| found.totals.count).sum::<u64>() as f64 / case.queries().max(1) as f64
}

fn found(
    case: &Case<'_>,
    kind: &TypeProfile,
    left: &ReferenceProfile,
    right: &ReferenceProfile,
    further: usize,
) -> Candidate {
    let charge = case.per_day(case.query_charge());
    let apply = if further == 0 {
        case.refactoring(object([
            ("kind", Value::from("merge-join-items")),
            ("container", Value::from(case.name())),
            ("left", Value::from(left.path.as_str())),
            ("right", Value::from(right.path.as_str())),
            ("into", list([Value::from(format!("/{}", right.to)), Value::from(format!("/{}", left.to))])),
        ]))
    } else {
        Apply::steps([
            format!(
                "Store the ids of {} as an array in {}, with what the join items hold.",
                right.to, left.to
            ),
            format!("Declare the link and a mirror in {}.", right.to),
        ])
    };
    Candidate {
        with: Some(left.to.clone()),
        title: format!("{} only joins {} and {}", case.name(), left.to, right.to),
        text: "Every screen pays a query for the join items before it can read what it shows. A few ids on both sides do the same."
            .to_owned(),
        evidence: vec![
            ("ends", list([Value::from(left.path.as_str()), Value::from(right.path.as_str())])),
            ("perTarget", list([quantiles(&left.per_target, &["p50", "p95", "max"]), quantiles(&right.per_target, &["p50", "p95", "max"])])),
            ("actions", figure(actions(case) as f64)),
        ],
        examples: case.examples(&kind.examples),
        effect: case.effect(charge, charge),
        apply,
        items: Some(kind.count),
        ..Candidate::default()
    }
}
