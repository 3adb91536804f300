//! A part of items is changed or read by itself.

use quire_profile::{PathProfile, Projection, TypeProfile, covers, parent};

use crate::array::{figure, last_name, quantiles};
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

use quire_profile::Operation;

const CHANGES_MIN: f64 = 0.3;
const PROJECTED_MIN: f64 = 0.2;
const SIZE_MIN: f64 = 4.0 * 1_024.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let parts = case.types().flat_map(|kind| parts(kind).map(move |part| (kind, part)));
    let mut found: Vec<(f64, Candidate)> =
        parts.filter_map(|(kind, part)| of_part(case, kind, part)).collect();
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    // Parts of one item: the largest; the others look different once it is gone.
    found.into_iter().take(1).map(|(_, candidate)| candidate).collect()
}

fn parts(kind: &TypeProfile) -> impl Iterator<Item = &PathProfile> {
    kind.paths.iter().filter(|path| parent(&path.path).is_empty() && path.kinds.object + path.kinds.array > 0)
}

fn of_part(case: &Case<'_>, kind: &TypeProfile, part: &PathProfile) -> Option<(f64, Candidate)> {
    let changes = &case.workload().writes.changes;
    let writes = changes.writes() as f64;
    let (only, rest) = (changes.only(&part.path) as f64, changes.without(&[&part.path]) as f64);
    let changed_apart = case.holds("extract-part/part", writes > 0.0 && only >= CHANGES_MIN * writes)
        && case.holds("extract-part/rest", writes > 0.0 && rest >= CHANGES_MIN * writes);
    let projected = projected(case, &part.path);
    let read_apart = case.holds("extract-part/projected", projected >= PROJECTED_MIN);
    let fires = (changed_apart || read_apart) && case.holds("extract-part/size", kind.size.p95 >= SIZE_MIN);
    if !fires {
        return None;
    }
    let (size, values) = (case.changed_size(), case.values());
    let part_values = values_below(kind, &part.path);
    let part_size = size * part.bytes;
    let whole = price::replace(size, values);
    let of_part = whole - price::replace(part_size, part_values);
    let of_rest = whole - price::replace(size - part_size, (values - part_values).max(0.0));
    let saved = case.per_day(only) * of_part + case.per_day(rest) * of_rest;
    let candidate = Candidate {
        path: part.path.clone(),
        title: format!("{} lives its own life inside {}", last_name(&part.path), case.name()),
        text: "Writes change either this part or the rest, seldom both, and each rewrites the whole item. As an item of its own each \
               side is written alone."
            .to_owned(),
        evidence: vec![
            ("partOnly", figure(only / writes.max(1.0))),
            ("restOnly", figure(rest / writes.max(1.0))),
            ("size", quantiles(&kind.size, &["p50", "p95"])),
        ],
        examples: case.examples(part.example.iter()),
        effect: case.effect(case.changes_per_day() * whole, saved),
        apply: case.extract(&part.path, None),
        items: Some(kind.count),
        ..Candidate::default()
    };
    Some((part.bytes, candidate))
}

/// Share of reads and queries that ask for nothing but the part.
fn projected(case: &Case<'_>, part: &str) -> f64 {
    let is_key = |path: &String| path == "/id" || *path == case.key().path;
    let of_part = case.shapes().filter(|found| match &found.shape.projection {
        Projection::All => false,
        Projection::Paths(paths) => {
            paths.iter().any(|path| covers(part, path))
                && paths.iter().all(|path| covers(part, path) || is_key(path))
        }
    });
    let executions: u64 = of_part.map(|found| found.totals.count).sum();
    let all = case.workload().count(Operation::Read) + case.queries();
    executions as f64 / all.max(1) as f64
}

fn values_below(kind: &TypeProfile, part: &str) -> f64 {
    let below = kind.paths.iter().filter(|path| path.indexed && covers(part, &path.path));
    below.map(|path| path.kinds.scalars() as f64).sum::<f64>() / kind.count.max(1) as f64
}
