//! Dates whose text order is not their time order, and queries that need it.

use quire_profile::PathProfile;
use quire_value::{Object, Value};

use crate::apply::object;
use crate::array::{figure, last_name};
use crate::case::Case;
use crate::finding::Candidate;

const DATES_MIN: f64 = 0.95;
const UNSORTABLE_MIN: f64 = 0.01;
const EXECUTIONS_MIN: u64 = 10;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let paths = case.types().flat_map(|kind| kind.paths.iter().map(move |path| (kind, path)));
    paths
        .filter(|(_, path)| fires(case, path))
        .map(|(kind, path)| Candidate { items: Some(kind.count), ..found(case, path) })
        .collect()
}

fn fires(case: &Case<'_>, path: &PathProfile) -> bool {
    let (texts, dates) = (path.kinds.string as f64, path.dates.dates as f64);
    dates > 0.0
        && case.holds("unsortable-dates/dates", dates >= DATES_MIN * texts)
        && case.holds("unsortable-dates/odd", unsortable_count(path) as f64 >= UNSORTABLE_MIN * dates)
        && case.holds("unsortable-dates/executions", executions(case, &path.path) >= EXECUTIONS_MIN)
}

/// Dates that are not ISO 8601 in UTC of the most frequent precision.
fn unsortable_count(path: &PathProfile) -> u64 {
    let most = path.dates.sortable.iter().map(|(_, count)| *count).max().unwrap_or(0);
    path.dates.dates - most
}

fn executions(case: &Case<'_>, path: &str) -> u64 {
    let ordered = case.shapes().filter(|found| {
        let shape = &found.shape;
        shape.range.iter().any(|own| own == path) || shape.order_by.iter().any(|(own, _)| own == path)
    });
    ordered.map(|found| found.totals.count).sum()
}

fn found(case: &Case<'_>, path: &PathProfile) -> Candidate {
    let sortable: u64 = path.dates.sortable.iter().map(|(_, count)| *count).sum();
    let mut formats: Object =
        path.dates.sortable.iter().map(|(form, count)| (form.clone(), Value::from(*count))).collect();
    formats.set("other", path.dates.dates - sortable);
    Candidate {
        path: path.path.clone(),
        title: format!("{} of {} does not sort by time", last_name(&path.path), case.name()),
        text: "Texts are compared letter by letter. Only one ISO 8601 form in UTC with one precision sorts as time does.".to_owned(),
        evidence: vec![
            ("formats", Value::from(formats)),
            ("executions", figure(executions(case, &path.path) as f64)),
        ],
        examples: case.examples(path.odd_example.iter().chain(&path.example)),
        effect: case.no_effect(),
        apply: case.refactoring(object([
            ("kind", Value::from("retype")),
            ("container", Value::from(case.name())),
            ("path", Value::from(path.path.as_str())),
            ("as", Value::from("iso-date")),
        ])),
        ..Candidate::default()
    }
}
