//! A path holds values of two types, and queries filter or sort by it.

use quire_profile::{Kinds, PathProfile};
use quire_value::{Object, Value};

use crate::apply::object;
use crate::array::{figure, last_name};
use crate::case::Case;
use crate::finding::Candidate;

const SHARE_MIN: f64 = 0.01;
const EXECUTIONS_MIN: u64 = 10;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let paths = case.types().flat_map(|kind| kind.paths.iter().map(move |path| (kind, path)));
    paths
        .filter(|(_, path)| fires(case, path))
        .map(|(kind, path)| Candidate { items: Some(kind.count), ..found(case, path) })
        .collect()
}

fn fires(case: &Case<'_>, path: &PathProfile) -> bool {
    let kinds = kinds(&path.kinds);
    kinds.len() >= 2
        && case.holds("type-drift/share", kinds.iter().filter(|(_, share)| *share >= SHARE_MIN).count() >= 2)
        && case.holds("type-drift/executions", executions(case, &path.path) >= EXECUTIONS_MIN)
        && case.holds("type-drift/sibling", !path.decided_by_sibling)
}

/// Shares of the types, null aside.
fn kinds(kinds: &Kinds) -> Vec<(&'static str, f64)> {
    Kinds { null: 0, ..*kinds }.shares()
}

fn executions(case: &Case<'_>, path: &str) -> u64 {
    case.shapes()
        .filter(|found| found.shape.used.iter().any(|used| used == path))
        .map(|found| found.totals.count)
        .sum()
}

fn found(case: &Case<'_>, path: &PathProfile) -> Candidate {
    let shares = kinds(&path.kinds);
    let most =
        shares.iter().max_by(|one, other| one.1.total_cmp(&other.1)).map_or("string", |(name, _)| *name);
    let wanted = if most == "number" { "number" } else { "string" };
    Candidate {
        path: path.path.clone(),
        title: format!("{} of {} has values of several types", last_name(&path.path), case.name()),
        text: "A filter or an order compares values of one type only: items of the other are silently left out or sorted apart."
            .to_owned(),
        evidence: vec![
            ("types", Value::from(Object::from_iter(shares.iter().map(|(name, share)| (*name, figure(*share)))))),
            ("executions", figure(executions(case, &path.path) as f64)),
        ],
        examples: case.examples(path.example.iter()),
        effect: case.no_effect(),
        apply: case.refactoring(object([
            ("kind", Value::from("retype")),
            ("container", Value::from(case.name())),
            ("path", Value::from(path.path.as_str())),
            ("as", Value::from(wanted)),
        ])),
        ..Candidate::default()
    }
}
