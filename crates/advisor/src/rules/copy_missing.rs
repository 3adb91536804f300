//! A few fields of another item are read again and again.

use quire_profile::{ContainerProfile, Operation, ReferenceProfile, SequenceProfile, parent};
use quire_value::{Object, Value};

use crate::apply::expression;
use crate::array::{figure, quantiles};
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

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
    let fan_out = case.per_day(writes as f64)
        * reference.per_target.mean
        * rewritten(case, reference, fields.len(), bytes)
        + maintained(case, reference, fields.len());
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

/// A referrer is written with its copies, and its target is read.
fn rewritten(case: &Case<'_>, reference: &ReferenceProfile, fields: usize, bytes: f64) -> f64 {
    let values = case.values() + fields as f64;
    price::replace(case.changed_size() + bytes, values) + price::read(reference.target_bytes)
}

/// What every write of a referrer costs more, a day: the read of its targets, and its copies in the index.
fn maintained(case: &Case<'_>, reference: &ReferenceProfile, fields: usize) -> f64 {
    let creates = case.per_day(case.workload().count(Operation::Create) as f64);
    let read = price::read(reference.target_bytes);
    let indexed = price::WRITE_PER_VALUE * fields as f64;
    // A new item has a row of the link, too.
    let created = read + indexed + price::WRITE_PER_VALUE;
    reference.per_item.mean * (case.changes_per_day() * (read + 2.0 * indexed) + creates * created)
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
        ("name", Value::from(crate::apply::name_of(&format!("{}-on-{}", reference.to, case.name())))),
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
