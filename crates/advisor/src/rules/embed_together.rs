//! Two items that are always read together could be one.

use quire_profile::{ContainerProfile, ReferenceProfile, SequenceProfile};
use quire_value::Value;

use crate::apply::{Apply, object};
use crate::array::{figure, quantiles};
use crate::case::Case;
use crate::finding::Candidate;

const SHARE_MIN: f64 = 0.9;
const ALONE_MAX: f64 = 0.1;
const EXCLUSIVE_MIN: f64 = 0.99;
const FEW_MAX: f64 = 10.0;
const WRITES_PER_READ_MAX: f64 = 0.1;
const TOGETHER_MAX: f64 = 100.0 * 1_024.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    case.profile
        .references
        .iter()
        .filter_map(|reference| forward(case, reference).or_else(|| backward(case, reference)))
        .collect()
}

/// The target goes into its only referrer.
fn forward(case: &Case<'_>, reference: &ReferenceProfile) -> Option<Candidate> {
    let sequence = case.sequence(&reference.path, false)?;
    let embedded = case.other(&reference.to)?;
    let fires = case.holds("embed-together/exclusive", reference.exclusive >= EXCLUSIVE_MIN)
        && is_together(case, sequence, reference, embedded);
    fires.then(|| found(case, reference, sequence, false))
}

/// The referrers go into their target.
fn backward(case: &Case<'_>, reference: &ReferenceProfile) -> Option<Candidate> {
    let target = case.other(&reference.to)?;
    let sequence = target
        .workload
        .sequences
        .iter()
        .find(|found| found.backward && found.from == reference.path && found.to == case.name())?;
    let fires = case.holds("embed-together/few", reference.per_target.p95 <= FEW_MAX)
        && is_together(case, sequence, reference, case.profile);
    fires.then(|| found(case, reference, sequence, true))
}

fn is_together(
    case: &Case<'_>,
    sequence: &SequenceProfile,
    reference: &ReferenceProfile,
    embedded: &ContainerProfile,
) -> bool {
    let writes = embedded.workload.changes() as f64;
    let expires = case.other_definition(&embedded.container).is_some_and(|own| own.default_ttl.is_some());
    let grows = embedded
        .types
        .iter()
        .flat_map(|kind| &kind.arrays)
        .any(|array| array.growth.is_some_and(|_| case.is_growing(array)));
    case.holds("embed-together/share", sequence.share > SHARE_MIN)
        && case.holds("embed-together/alone", sequence.alone < ALONE_MAX)
        && case.holds("embed-together/writes", writes <= WRITES_PER_READ_MAX * sequence.count as f64)
        && case.holds("embed-together/size", reference.together_p95 <= TOGETHER_MAX)
        && case.holds("embed-together/expires", !expires)
        && case.holds("embed-together/grows", !grows)
}

fn found(
    case: &Case<'_>,
    reference: &ReferenceProfile,
    sequence: &SequenceProfile,
    into_target: bool,
) -> Candidate {
    let charge = case.per_day(sequence.charge);
    let (inner, outer) =
        if into_target { (case.name(), reference.to.as_str()) } else { (reference.to.as_str(), case.name()) };
    let (name, link) = case.link(reference);
    let into = format!("/{}", if into_target { inner } else { inner.trim_end_matches('s') });
    let mut body =
        vec![("kind", Value::from("embed")), ("link", Value::from(name)), ("into", Value::from(into))];
    if into_target {
        body.push(("side", Value::from("target")));
    } else if reference.exclusive < 1.0 {
        // The few items that several refer to become a part of each.
        body.push(("onConflict", Value::from("first")));
    }
    let apply = case.refactoring(Value::from(quire_value::Object::from_iter(body)));
    Candidate {
        path: reference.path.clone(),
        with: Some(reference.to.clone()),
        title: format!("items of {inner} are always read with their item of {outer}"),
        text: "They are read together nearly every time, hardly ever apart, and seldom written. As a part of the other item they cost \
               one request less each time."
            .to_owned(),
        evidence: vec![
            ("share", figure(sequence.share)),
            ("alone", figure(sequence.alone)),
            ("width", quantiles(&sequence.width, &["p50", "p95"])),
            ("perTarget", quantiles(&reference.per_target, &["p50", "p95", "max"])),
        ],
        examples: case.examples(reference.example.iter()),
        effect: trips(case, charge, sequence),
        apply: Apply { link: Some(object([("links", crate::apply::list([link]))])), ..apply },
        ..Candidate::default()
    }
}

fn trips(case: &Case<'_>, charge: f64, sequence: &SequenceProfile) -> crate::finding::Effect {
    let effect = case.effect(charge, charge);
    let fewer = case.per_day(sequence.count as f64 * sequence.width.mean);
    crate::finding::Effect { round_trips_then: (effect.round_trips_now - fewer).max(0.0), ..effect }
}
