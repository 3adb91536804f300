//! Which paths may be references: their values are mostly keys of one container.

use crate::path;
use crate::profile::IdForm;
use crate::scan::ScanResult;
use crate::sketch::DistinctSample;

use super::{ContainerScan, DISTINCT_MIN};

/// Candidates that are looked up.
const CANDIDATES_MAX: usize = 400;
/// Below this share of known values a sketch rules a candidate out.
const SKETCH_OVERLAP_MIN: f64 = 0.8;

#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub from: String,
    pub type_name: Option<String>,
    pub path: String,
    pub to: String,
    pub key: String,
    pub values: Vec<String>,
    pub distinct: u64,
    pub named: bool,
    pub target_items: u64,
    pub answered: u64,
    pub found: u64,
}

impl Candidate {
    pub fn overlap(&self) -> f64 {
        self.found as f64 / self.answered.max(1) as f64
    }

    fn is_place(&self, other: &Candidate) -> bool {
        self.from == other.from && self.path == other.path && self.type_name == other.type_name
    }
}

pub(super) fn find(containers: &[ContainerScan<'_>]) -> Vec<Candidate> {
    let mut found = Vec::new();
    for source in containers {
        for target in containers {
            found.extend(between(source, target));
        }
    }
    found.sort_by_key(|candidate| (!candidate.named, candidate.from.clone(), candidate.path.clone()));
    found.truncate(CANDIDATES_MAX);
    found
}

fn between(source: &ContainerScan<'_>, target: &ContainerScan<'_>) -> Vec<Candidate> {
    let mut found = Vec::new();
    for (key, keys) in keys_of(target.scan) {
        for sample in &source.scan.samples {
            let is_same = source.definition.id == target.definition.id && sample.path == key;
            let is_id = sample.path == "/id" && target.scan.profile().ids != IdForm::Other;
            if is_same || is_id || sample.values.len() < DISTINCT_MIN || !may_overlap(&sample.values, keys) {
                continue;
            }
            found.push(Candidate {
                from: source.definition.id.clone(),
                type_name: sample.type_name.clone(),
                path: sample.path.clone(),
                to: target.definition.id.clone(),
                key: key.clone(),
                values: sample.values.iter().map(|(_, value)| value.clone()).collect(),
                distinct: sample.distinct,
                named: is_named(&sample.path, &target.definition.id),
                target_items: target.scan.profile().items.count,
                answered: 0,
                found: 0,
            });
        }
    }
    found
}

/// `/id`, and top-level texts of which every item has one of its own.
fn keys_of(scan: &ScanResult) -> Vec<(String, &DistinctSample<String>)> {
    let unique = scan
        .samples
        .iter()
        .filter(|sample| sample.unique && sample.path != "/id" && path::parent(&sample.path).is_empty());
    let keys = unique.map(|sample| (sample.path.clone(), &sample.values));
    std::iter::once(("/id".to_owned(), &scan.ids)).chain(keys).collect()
}

/// Too few known values leave it to the look-ups.
fn may_overlap(values: &DistinctSample<String>, keys: &DistinctSample<String>) -> bool {
    let (known, both) = values.overlap(keys);
    known < DISTINCT_MIN || both as f64 >= SKETCH_OVERLAP_MIN * known as f64
}

/// One target for each place: the one with the largest overlap; names break ties.
pub(super) fn proven_references(candidates: Vec<Candidate>, overlap_min: f64) -> Vec<Candidate> {
    let mut best: Vec<Candidate> = Vec::new();
    let fits = |candidate: &Candidate| {
        candidate.answered >= DISTINCT_MIN as u64 && candidate.overlap() >= overlap_min
    };
    for candidate in candidates.into_iter().filter(fits) {
        match best.iter_mut().find(|own| own.is_place(&candidate)) {
            Some(own) if is_better(&candidate, own) => *own = candidate,
            Some(_) => {}
            None => best.push(candidate),
        }
    }
    best
}

fn is_better(one: &Candidate, other: &Candidate) -> bool {
    let rank = |candidate: &Candidate| {
        let overlap = (candidate.overlap() * 100.0).round() as u64;
        (overlap, candidate.named, candidate.key == "/id", std::cmp::Reverse(candidate.target_items))
    };
    rank(one) > rank(other)
}

/// `authorId`, `author_id`, `authors/*/id` and `authors/*` all name `authors`.
pub(crate) fn is_named(path: &str, container: &str) -> bool {
    let container = stem(container);
    let names: Vec<String> = path::names(path).into_iter().filter(|name| name != "*").collect();
    names.iter().rev().take(2).any(|name| {
        let name = stem(name);
        !name.is_empty() && (name == container || container.ends_with(&name) || name.ends_with(&container))
    })
}

fn stem(name: &str) -> String {
    let lower: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let cut = ["ids", "id", "refs", "ref", "keys", "key"].iter().find_map(|end| lower.strip_suffix(end));
    let cut = cut.unwrap_or(&lower);
    match cut.strip_suffix("ies") {
        Some(start) => format!("{start}y"),
        None => cut.strip_suffix('s').unwrap_or(cut).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for path in ["/authorId", "/author_id", "/authors/*/id", "/authors/*", "/mainAuthorId"] {
            assert!(is_named(path, "authors"), "{path}");
        }
        assert!(is_named("/categoryId", "categories"));
        assert!(!is_named("/quantity", "authors") && !is_named("/id", "authors"));
    }
}
