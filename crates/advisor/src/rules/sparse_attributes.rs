//! Many optional properties side by side, and queries filter on several of them.

use quire_profile::{PathProfile, TypeProfile, parent};

use crate::apply::Apply;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const ATTRIBUTES_MIN: usize = 20;
const PRESENT_MAX: f64 = 0.3;
const EXECUTIONS_MIN: u64 = 100;
const FILTERED_MIN: usize = 3;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    case.types()
        .flat_map(|kind| objects(kind).into_iter().filter_map(move |path| of_object(case, kind, &path)))
        .collect()
}

fn objects(kind: &TypeProfile) -> Vec<String> {
    let mut parents: Vec<String> = kind.paths.iter().map(|path| parent(&path.path).to_owned()).collect();
    parents.sort_unstable();
    parents.dedup();
    parents
}

fn of_object(case: &Case<'_>, kind: &TypeProfile, object: &str) -> Option<Candidate> {
    let sparse: Vec<&PathProfile> = kind
        .paths
        .iter()
        .filter(|path| {
            let is_child = parent(&path.path) == object && path.kinds.array + path.kinds.object == 0;
            is_child && case.holds("sparse-attributes/present", path.present < PRESENT_MAX)
        })
        .collect();
    let filters = |path: &&&PathProfile| case.shapes().any(|found| found.shape.used.contains(&path.path));
    let filtered = sparse.iter().filter(filters).count();
    let executions: u64 = case
        .shapes()
        .filter(|found| sparse.iter().any(|path| found.shape.used.contains(&path.path)))
        .map(|found| found.totals.count)
        .sum();
    let fires = case.holds("sparse-attributes/attributes", sparse.len() >= ATTRIBUTES_MIN)
        && case.holds("sparse-attributes/executions", executions >= EXECUTIONS_MIN)
        && case.holds("sparse-attributes/filtered", filtered >= FILTERED_MIN);
    fires.then(|| Candidate {
        path: object.to_owned(),
        title: format!("{} has many optional attributes", case.name()),
        text: "Each is in few items, each has an index of its own, and a filter needs to know its name. Put them into one array of \
               names and values."
            .to_owned(),
        evidence: vec![("attributes", figure(sparse.len() as f64)), ("filtered", figure(filtered as f64))],
        examples: case.examples(&kind.examples),
        effect: case.no_effect(),
        apply: Apply::steps([
            "Store the attributes as an array of objects with name and value.",
            "Filter with EXISTS over the array.",
        ]),
        items: Some(kind.count),
        ..Candidate::default()
    })
}
