//! A few fields of another item are read again and again.

use quire_profile::{ContainerProfile, ReferenceProfile, SequenceProfile, parent};
use quire_value::{Object, Value};

use crate::apply::expression;
use crate::array::{figure, quantiles};
use crate::case::Case;
use crate::finding::Candidate;

const SHARE_MIN: f64 = 0.5;
const ACTIONS_MIN: u64 = 100;
const PER_TARGET_MIN: f64 = 2.0;
const PROJECTED_MAX: f64 = 200.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    case.profile.references.iter().filter_map(|reference| of_reference(case, reference)).collect()
}

fn of_reference(case: &Case<'_>, reference: &ReferenceProfile) -> Option<Candidate> {
    let sequence = case.sequence(&reference.path, false)?;
    let target = case.other(&reference.to)?;
    let fields: Vec<&String> =
        sequence.projected.iter().filter(|path| path.as_str() != reference.key).collect();
    let bytes: f64 = fields.iter().map(|path| field_bytes(target, path)).sum();
    let writes: u64 =
        fields.iter().map(|path| target.workload.writes.changes.touching(path)).max().unwrap_or(0);
    let fan_out = case.per_day(writes as f64) * reference.per_target.mean * case.replace_now();
    let reads = case.per_day(sequence.charge);
    let fires = case.holds("copy-missing/share", sequence.share >= SHARE_MIN)
        && case.holds("copy-missing/actions", sequence.count >= ACTIONS_MIN)
        && case.holds("copy-missing/per-target", reference.per_target.p95 >= PER_TARGET_MIN)
        && fan_out < reads
        && case.holds("copy-missing/bytes", bytes <= PROJECTED_MAX)
        && case.holds("copy-missing/whole", sequence.whole == 0)
        && !fields.is_empty()
        && parent(&reference.path) != reference.path
        && !reference.path.ends_with("/*");
    fires.then(|| found(case, reference, sequence, &fields, writes, reads - fan_out))
}

fn field_bytes(target: &ContainerProfile, path: &str) -> f64 {
    target.types.iter().filter_map(|kind| Some(kind.path(path)?.bytes * kind.size.mean)).fold(0.0, f64::max)
}

fn found(
    case: &Case<'_>,
    reference: &ReferenceProfile,
    sequence: &SequenceProfile,
    fields: &[&String],
    writes: u64,
    saved: f64,
) -> Candidate {
    let beside = |path: &str| {
        let name = quire_profile::names(path).pop().unwrap_or_default();
        let is_taken = case.profile.path(&quire_profile::join(parent(&reference.path), &name)).is_some();
        if is_taken { format!("{}{}", reference.to.trim_end_matches('s'), name) } else { name }
    };
    let members = fields.iter().map(|path| (beside(path), Value::from(expression("t", path))));
    let declaration = Object::from_iter([
        ("name", Value::from(crate::apply::kebab(&format!("{}-on-{}", reference.to, case.name())))),
        ("fields", Value::from(Object::from_iter(members))),
    ]);
    let fewer = case.per_day(sequence.count as f64 * sequence.width.mean);
    let effect = case.effect(case.per_day(sequence.charge), saved);
    Candidate {
        path: reference.path.clone(),
        with: Some(reference.to.clone()),
        title: format!("{} is read after {} for a few small fields", reference.to, case.name()),
        text: "The fields are small and seldom change. A declared copy beside the reference saves the second request and is kept true."
            .to_owned(),
        evidence: vec![
            ("share", figure(sequence.share)),
            ("width", quantiles(&sequence.width, &["p50", "p95"])),
            ("perTarget", quantiles(&reference.per_target, &["p50", "p95", "max"])),
            ("targetWrites", figure(writes as f64)),
        ],
        examples: case.examples(reference.example.iter()),
        effect: crate::finding::Effect { round_trips_then: (effect.round_trips_now - fewer).max(0.0), ..effect },
        apply: case.model_with(reference, "copies", declaration),
        ..Candidate::default()
    }
}
