//! Most of an item never changes, and is rewritten with the little that does.

use quire_profile::{PathProfile, TypeProfile, parent};

use crate::array::{figure, quantiles};
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const SIZE_MIN: f64 = 16.0 * 1_024.0;
const COLD_BYTES_MIN: f64 = 0.8;
const UNCHANGED_MIN: f64 = 0.95;
const CHANGES_MIN: u64 = 100;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    case.types().filter_map(|kind| of_type(case, kind)).collect()
}

fn of_type(case: &Case<'_>, kind: &TypeProfile) -> Option<Candidate> {
    let changes = &case.workload().writes.changes;
    let changing = changes.changing();
    let cold: Vec<&PathProfile> = top_level(kind)
        .filter(|path| changes.touching(&path.path) as f64 <= (1.0 - UNCHANGED_MIN) * changing as f64)
        .collect();
    let share: f64 = cold.iter().map(|path| path.bytes).sum();
    let names: Vec<&str> = cold.iter().map(|path| path.path.as_str()).collect();
    let unchanged = changes.without(&names);
    let coldest = cold.iter().max_by(|one, other| one.bytes.total_cmp(&other.bytes))?;
    let fires = case.holds("hot-and-cold/size", kind.size.p95 >= SIZE_MIN)
        && case.holds("hot-and-cold/changes", changing >= CHANGES_MIN)
        && case.holds("hot-and-cold/cold", share >= COLD_BYTES_MIN)
        && unchanged as f64 >= UNCHANGED_MIN * changing as f64;
    let (size, values) = (case.changed_size(), case.values());
    let cold_values: f64 = values_below(kind, &names);
    let hot = price::replace(size * (1.0 - share), (values - cold_values).max(0.0));
    let writes = case.per_day(unchanged as f64);
    let reads = case.reads_per_day();
    let saved = writes * (price::replace(size, values) - hot) - reads * price::read(size * share);
    fires.then(|| Candidate {
        path: coldest.path.clone(),
        title: format!("most of an item of {} never changes", case.name()),
        text: format!(
            "{:.0} % of the bytes stayed as they were in nearly every write, and were written again each time. Keep them in an item of \
             their own. What an application ignores after reading a whole item cannot be seen here.",
            share * 100.0
        ),
        evidence: vec![
            ("size", quantiles(&kind.size, &["p50", "p95"])),
            ("coldShare", figure(share)),
            ("changes", figure(changing as f64)),
        ],
        examples: case.examples(kind.largest.iter().chain(&kind.examples)),
        effect: case.effect(writes * price::replace(size, values), saved),
        apply: case.extract(&coldest.path, None),
        items: Some(kind.count),
        ..Candidate::default()
    })
}

fn top_level(kind: &TypeProfile) -> impl Iterator<Item = &PathProfile> {
    kind.paths.iter().filter(|path| parent(&path.path).is_empty() && path.path != "/id")
}

fn values_below(kind: &TypeProfile, names: &[&str]) -> f64 {
    let below = kind
        .paths
        .iter()
        .filter(|path| path.indexed && names.iter().any(|name| quire_profile::covers(name, &path.path)));
    below.map(|path| path.kinds.scalars() as f64).sum::<f64>() / kind.count.max(1) as f64
}
