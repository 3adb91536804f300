//! Queries do not name the partition key, and another property would serve them.

use quire_profile::{PathProfile, Scope, parent};
use quire_value::Value;

use crate::apply::Apply;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const PARTITIONS_MIN: f64 = 3.0;
const UNSCOPED_MIN: f64 = 0.3;
const PRESENT_MIN: f64 = 0.99;
const VALUES_MIN: u64 = 100;
const LARGEST_MAX: f64 = 0.2;
const COVERS_MIN: f64 = 0.6;
const OWN_MAX: f64 = 0.2;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let all = case.query_charge().max(1e-9);
    let unscoped: Vec<_> = case.shapes().filter(|found| found.shape.scope == Scope::None).collect();
    let charge: f64 = unscoped.iter().map(|found| found.totals.charge_sum).sum();
    let executions: u64 = unscoped.iter().map(|found| found.totals.count).sum();
    let own: f64 = coverage(case, &case.key().path) / all;
    let Some((path, covers)) = candidate(case) else { return Vec::new() };
    let fires = case.holds("key-unused/partitions", case.partitions() >= PARTITIONS_MIN)
        && case.holds("key-unused/unscoped", charge >= UNSCOPED_MIN * all)
        && case.holds("key-unused/own", own < OWN_MAX);
    let saved = case.per_day(executions as f64) * price::PAGE_PER_PARTITION * (case.partitions() - 1.0);
    let title = format!("queries of {} do not use the partition key", case.name());
    let text = format!("They ask every partition. With {path} as the key most of them would ask one.");
    fires
        .then(|| Candidate {
            path: case.key().path.clone(),
            evidence: vec![
                ("unscoped", figure(charge / all)),
                ("candidate", Value::from(path.as_str())),
                ("covers", figure(covers)),
            ],
            effect: case.effect(case.per_day(charge), saved),
            apply: case.rekey(&path),
            ..case.about_container(title, text)
        })
        .into_iter()
        .collect()
}

/// The property that would serve most of the queries, if there is one.
pub fn candidate(case: &Case<'_>) -> Option<(String, f64)> {
    let all = case.query_charge().max(1e-9);
    let fits = |path: &&PathProfile| {
        parent(&path.path).is_empty()
            && path.path != case.key().path
            && path.kinds.array + path.kinds.object == 0
            && case.holds(
                "key-unused/present",
                path.items as f64 >= PRESENT_MIN * case.profile.items.scanned as f64,
            )
            && case.holds("key-unused/values", path.distinct >= VALUES_MIN)
            && case.holds("key-unused/largest", path.largest_share <= LARGEST_MAX)
    };
    let paths = case.profile.types.iter().flat_map(|kind| &kind.paths).filter(fits);
    let covered = paths.map(|path| (path.path.clone(), coverage(case, &path.path) / all));
    let best = covered.max_by(|one, other| one.1.total_cmp(&other.1).then(other.0.cmp(&one.0)))?;
    case.holds("key-unused/covers", best.1 >= COVERS_MIN).then_some(best)
}

/// Charge of the queries with equality on a path.
fn coverage(case: &Case<'_>, path: &str) -> f64 {
    case.shapes()
        .filter(|found| found.shape.equality.iter().any(|own| own == path))
        .map(|found| found.totals.charge_sum)
        .sum()
}

pub fn rekey_or_steps(case: &Case<'_>) -> Apply {
    match candidate(case) {
        Some((path, _)) => case.rekey(&path),
        None => Apply::steps([
            "Choose a property with thousands of values that most queries name.",
            "Or add a second level to the key, such as /id.",
            "Rekey the container to it.",
        ]),
    }
}
