//! Indexed paths that no query uses.

use quire_profile::{Operation, PathProfile, TypeProfile, covers, top_level};
use quire_value::Value;

use crate::apply::list;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let operations = case.workload().total_operations() as f64;
    let enough = case.holds("index-unused/days", case.days >= case.thresholds.index_min_days)
        && case.holds("index-unused/operations", operations >= case.thresholds.index_min_operations);
    let unused: Vec<&PathProfile> =
        case.profile.types.iter().flat_map(|kind| unused_of(case, kind)).collect();
    let values = unused.iter().map(|path| path.kinds.scalars() as f64).sum::<f64>()
        / case.profile.items.scanned.max(1) as f64;
    if !enough || unused.is_empty() {
        return Vec::new();
    }
    let roots = roots(case, &unused);
    let title = format!("{} indexes paths that no query uses", case.name());
    let text = "Each indexed value is paid for with every write. Exclude the paths; an index can be built again while the container serves.";
    vec![Candidate {
        evidence: vec![
            ("unused", list(roots.iter().map(|path| Value::from(path.as_str())))),
            ("values", figure(values)),
        ],
        effect: case.effect(
            case.writes_per_day() * price::insert(case.profile.mean_size(), case.values()),
            saved(case, values),
        ),
        apply: case.indexing(case.policy_without(&roots)),
        ..case.about_container(title, text.to_owned())
    }]
}

/// A change writes and removes index entries, a new item only writes them.
pub fn saved(case: &Case<'_>, values: f64) -> f64 {
    let creates = case.per_day(case.workload().count(Operation::Create) as f64);
    (case.changes_per_day() * 2.0 + creates) * price::WRITE_PER_VALUE * values
}

fn unused_of<'a>(case: &Case<'a>, kind: &'a TypeProfile) -> Vec<&'a PathProfile> {
    let is_needed = |path: &str| path == "/id" || path == case.key().path;
    kind.paths
        .iter()
        .filter(|path| path.indexed && !is_needed(&path.path) && !is_used(case, &path.path))
        .collect()
}

/// In a filter, ORDER BY, GROUP BY, JOIN or aggregate.
pub fn is_used(case: &Case<'_>, path: &str) -> bool {
    case.shapes().any(|found| {
        found.shape.used.iter().any(|used| covers(used, path) && !used.is_empty() || covers(path, used))
    })
}

/// Top-level paths where nothing below is used, else the paths themselves.
fn roots(case: &Case<'_>, unused: &[&PathProfile]) -> Vec<String> {
    let mut roots: Vec<String> = unused
        .iter()
        .map(|path| {
            let top = top_level(&path.path);
            if is_used(case, top) { path.path.clone() } else { top.to_owned() }
        })
        .collect();
    roots.sort_unstable();
    roots.dedup();
    roots
}
