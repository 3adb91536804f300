//! One read is followed by many, one for each reference.

use quire_profile::ReferenceProfile;

use crate::apply::Apply;
use crate::array::{figure, quantiles};
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const SHARE_MIN: f64 = 0.5;
const ACTIONS_MIN: u64 = 100;
const WIDTH_MIN: f64 = 5.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    case.profile.references.iter().filter_map(|reference| of_reference(case, reference)).collect()
}

fn of_reference(case: &Case<'_>, reference: &ReferenceProfile) -> Option<Candidate> {
    let sequence = case.sequence(&reference.path, false)?;
    let fires = case.holds("n-plus-one/share", sequence.share >= SHARE_MIN)
        && case.holds("n-plus-one/actions", sequence.count >= ACTIONS_MIN)
        && case.holds("n-plus-one/width", sequence.width.p50 >= WIDTH_MIN);
    let (name, _) = case.link(reference);
    let trips = case.per_day(sequence.count as f64);
    let effect = case.effect(0.0, 0.0);
    fires.then(|| Candidate {
        path: reference.path.clone(),
        with: Some(reference.to.clone()),
        title: format!("{} are read one by one after an item of {}", reference.to, case.name()),
        text: format!(
            "Half of the actions read {:.0} items of {}, each with a request of its own. Declare the link and let one request follow it.",
            sequence.width.p50, reference.to
        ),
        evidence: vec![
            ("share", figure(sequence.share)),
            ("width", quantiles(&sequence.width, &["p50", "p95"])),
        ],
        examples: case.examples(reference.example.iter()),
        effect: crate::finding::Effect {
            round_trips_now: trips * (1.0 + sequence.width.mean),
            round_trips_then: trips,
            charge_now: trips * sequence.width.mean * price::read(reference.target_bytes),
            ..effect
        },
        apply: Apply::steps([
            format!("Declare the link {name} from {} to {}.", reference.path, reference.to),
            format!("Send x-quire-follow: {name} with the first read."),
        ]),
        ..Candidate::default()
    })
}
