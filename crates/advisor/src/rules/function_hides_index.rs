//! A function around a path keeps queries from using its index.

use std::collections::{BTreeMap, BTreeSet};

use quire_profile::{ShapeProfile, names};
use quire_value::Value;

use crate::apply::{Apply, expression, list, object};
use crate::array::quantiles;
use crate::case::Case;
use crate::finding::Candidate;

use super::index_missing::charge_with_index;

const ROWS_MIN: f64 = 100.0;
const PER_RETURNED_MIN: f64 = 10.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let mut by_path: BTreeMap<&str, Vec<&ShapeProfile>> = BTreeMap::new();
    for found in case.shapes().filter(|found| fires(case, found)) {
        for (path, _) in &found.shape.functions {
            by_path.entry(path).or_default().push(found);
        }
    }
    by_path.into_iter().map(|(path, shapes)| about(case, path, &shapes)).collect()
}

fn fires(case: &Case<'_>, found: &ShapeProfile) -> bool {
    let totals = &found.totals;
    !found.shape.functions.is_empty()
        && case.holds("function-hides-index/rows", totals.rows_read.p50 >= ROWS_MIN)
        && case.holds(
            "function-hides-index/returned",
            totals.rows_read.p50 >= PER_RETURNED_MIN * totals.returned.p50,
        )
}

fn about(case: &Case<'_>, path: &str, shapes: &[&ShapeProfile]) -> Candidate {
    let functions: BTreeSet<&str> = shapes
        .iter()
        .flat_map(|found| &found.shape.functions)
        .filter(|(own, _)| own == path)
        .map(|(_, function)| function.as_str())
        .collect();
    let charge: f64 = shapes.iter().map(|found| found.totals.charge_sum).sum();
    let then: f64 = shapes.iter().map(|found| charge_with_index(case, found)).sum();
    let title = format!("a function around {path} hides its index in {}", case.name());
    let text =
        "The function has to be computed for every item. A computed property holds its value and is indexed.";
    Candidate {
        path: path.to_owned(),
        evidence: vec![
            ("functions", list(functions.iter().map(|function| Value::from(*function)))),
            ("rowsRead", quantiles(&shapes[0].totals.rows_read, &["p50", "p95"])),
        ],
        effect: case.effect(case.per_day(charge), case.per_day(charge - then)),
        apply: apply(case, path, functions.first().copied().unwrap_or_default()),
        shapes: shapes.iter().map(|found| found.shape.id).collect(),
        ..case.about_container(title, text.to_owned())
    }
}

/// A computed property for a function of one argument; other expressions are for people.
fn apply(case: &Case<'_>, path: &str, function: &str) -> Apply {
    if !["LOWER", "UPPER"].contains(&function) || path.contains('*') {
        return Apply::steps([
            "Store the value of the expression as a property, or define a computed property with it.",
            "Filter on that property.",
        ]);
    }
    let name = format!("{}{}", function.to_lowercase(), names(path).pop().unwrap_or_default());
    let property = quire_profile::join("", &name);
    let query = format!("SELECT VALUE {function}({}) FROM c", expression("c", path));
    let mut all =
        case.definition.json.get("computedProperties").and_then(Value::as_array).unwrap_or_default().to_vec();
    let own = object([("name", Value::from(name.as_str())), ("query", Value::from(query))]);
    if all.contains(&own) {
        return Apply::steps([format!("Filter on the computed property {name}, which is there.")]);
    }
    all.push(own);
    // It is indexed where the policy names it.
    let members = [("computedProperties", Value::from(all)), ("indexingPolicy", case.policy_with(&property))];
    case.replace_members(members)
}
