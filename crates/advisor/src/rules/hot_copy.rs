//! Data that many items copy changes often.

use quire_profile::Repetition;

use crate::apply::Apply;
use crate::array::{figure, last_name, quantiles};
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const PER_KEY_MIN: f64 = 10.0;
const CHANGES_MIN: f64 = 0.3;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    case.profile.repetition.iter().filter_map(|repetition| of_repetition(case, repetition)).collect()
}

fn of_repetition(case: &Case<'_>, repetition: &Repetition) -> Option<Candidate> {
    let changes = &case.workload().writes.changes;
    let only = changes.only(&repetition.path) as f64;
    let writes = case.per_day(only) * case.replace_now();
    let reads = case.reads_per_day() * price::read(repetition.bytes);
    let fires = case.holds("hot-copy/per-key", repetition.per_key.p95 >= PER_KEY_MIN)
        && case.holds("hot-copy/changes", only > 0.0 && only >= CHANGES_MIN * changes.writes() as f64)
        && writes > reads;
    if !fires {
        return None;
    }
    let changed = (only / repetition.per_key.p50.max(1.0)).max(case.workload().writes.element_keys as f64);
    let values = (repetition.bytes / 20.0).min(case.values());
    let then = case.per_day(changed) * price::replace(repetition.bytes, values) + reads;
    let name = last_name(&repetition.path);
    Some(Candidate {
        path: repetition.path.clone(),
        title: format!("{name} is copied into many items of {} and changes often", case.name()),
        text: format!(
            "Each {name} is in about {:.0} items. When it changes, all of them are rewritten. Keep it once, and refer to it.",
            repetition.per_key.p50
        ),
        evidence: vec![
            ("perKey", quantiles(&repetition.per_key, &["p50", "p95"])),
            ("keys", figure(repetition.keys as f64)),
            ("changes", figure(only)),
        ],
        examples: case.examples(repetition.example.iter()),
        effect: case.effect(writes, writes - then),
        apply: apply(case, repetition),
        ..Candidate::default()
    })
}

/// Old writers go on writing through, and where copies differ the newest one is right.
fn apply(case: &Case<'_>, repetition: &Repetition) -> Apply {
    let mut apply = case.extract(&repetition.path, Some(&repetition.key));
    if let Some(body) = apply.request.as_mut().and_then(|(_, _, body)| body.as_object_mut()) {
        body.set("oldWriters", "through");
        body.set("onConflict", "newest");
    }
    apply
}
